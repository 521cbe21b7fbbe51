use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::MapError;

/// Units of 2^0, 2^10, 2^20 bytes and so on.
const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// The page sizes that an IOMMU can map, as in `iommu_domain.pgsize_bitmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSizes {
    bits: u64,
}

impl PageSizes {
    /// 4 KiB, 2 MiB, 1 GiB: Intel VT-d, AMD-Vi's usual set, Arm with 4 KiB granule.
    pub const K4_M2_G1: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 21 | 1 << 30,
    };
    /// 4 KiB, 64 KiB, 1 MiB, 16 MiB: Arm's short descriptors.
    pub const K4_K64_M1_M16: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 16 | 1 << 20 | 1 << 24,
    };
    /// 4 KiB, 64 KiB, 2 MiB: Arm with 4 KiB granule where sixteen neighbours share an entry.
    pub const K4_K64_M2: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 16 | 1 << 21,
    };

    /// A set of sizes in bytes.
    ///
    /// # Errors
    /// [`MapError::BadSizes`] where there is none, or one is no power of two.
    pub fn new(sizes: &[u64]) -> Result<PageSizes, MapError> {
        if sizes.is_empty() || !sizes.iter().all(|size| size.is_power_of_two()) {
            return Err(MapError::BadSizes);
        }
        Ok(PageSizes {
            bits: sizes.iter().fold(0, |bits, size| bits | size),
        })
    }

    /// The smallest size, bytes.
    #[must_use]
    pub fn smallest(self) -> u64 {
        1 << self.bits.trailing_zeros() // never empty: every constructor sees to it
    }

    /// The largest size, bytes.
    #[must_use]
    pub fn largest(self) -> u64 {
        1 << self.bits.ilog2() // never empty: every constructor sees to it
    }

    /// Whether `size`, in bytes, is one of them.
    #[must_use]
    pub fn contains(self, size: u64) -> bool {
        size.is_power_of_two() && self.bits & size != 0
    }

    /// Those of at most `size` bytes, which is one of them.
    pub(super) fn up_to(self, size: u64) -> PageSizes {
        PageSizes {
            bits: self.bits & (size | (size - 1)),
        }
    }

    /// The sizes in bytes, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(move |size| self.bits & size != 0)
    }
}

/// As `{4K,2M,1G}`.
impl fmt::Display for PageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, size) in self.iter().enumerate() {
            let thousands = (size.trailing_zeros() / 10) as usize; // at most 6: u64 has 64 bits
            let comma = if at == 0 { "{" } else { "," };
            write!(f, "{comma}{}{}", size >> (10 * thousands), UNITS[thousands])?;
        }
        f.write_str("}")
    }
}

/// Of `4K,64K,2M`, with or without braces: powers of two in bytes, or with one of the units that
/// [`fmt::Display`] writes.
impl FromStr for PageSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<PageSizes, String> {
        let inner = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let sizes = inner.unwrap_or(text).split(',').map(|word| {
            let word = word.trim();
            size(word).map_err(|why| format!("'{word}' of the page sizes '{text}' {why}"))
        });
        let sizes: Vec<u64> = sizes.collect::<Result<_, String>>()?;
        PageSizes::new(&sizes).map_err(|error| format!("{error}"))
    }
}

/// A power of two, or why it is none.
fn size(word: &str) -> Result<u64, &'static str> {
    const NO_POWER: &str = "is no power of two, as 4096, 4K or 2M";
    const TOO_LARGE: &str = "is more than 64 bits hold";
    let letter = |c: char| {
        UNITS
            .iter()
            .position(|unit| unit.starts_with(c.to_ascii_uppercase()))
    };
    let (digits, thousands) = match word.char_indices().next_back() {
        Some((at, last)) if !last.is_ascii_digit() => (&word[..at], letter(last).ok_or(NO_POWER)?),
        _ => (word, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(NO_POWER);
    }
    // Digits alone fail in one way only.
    let number: u64 = digits.parse().map_err(|_| TOO_LARGE)?;
    let size = number.checked_mul(1 << (10 * thousands)).ok_or(TOO_LARGE)?;
    size.is_power_of_two().then_some(size).ok_or(NO_POWER)
}
