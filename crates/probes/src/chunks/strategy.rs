//! By what pages a buffer is asked for.

use std::fmt;
use std::str::FromStr;

use stopgap_events::units::Bytes;

/// How a buffer gets its physical memory. Its name (`Display`, `FromStr`) is the word for the
/// command line and the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// `base`: base pages alone (`MADV_NOHUGEPAGE`).
    Base,
    /// `mthp`: each size of [`Strategy::Mthp`] below the PMD's that the kernel has.
    EveryMthp,
    /// `mthp-64K`: transparent huge pages of this one size; faults reclaim directly, where we
    /// may set that.
    Mthp(Bytes),
    /// `thp-direct`: PMD-size transparent huge pages; a fault that finds none reclaims and
    /// compacts.
    ThpDirect,
    /// `thp-noreclaim`: PMD-size transparent huge pages; a fault that finds none takes base
    /// pages.
    ThpNoReclaim,
    /// `collapse`: filled with base pages, then `MADV_COLLAPSE`.
    Collapse,
    /// `hugetlb`: pages of PMD size from the pool that is set aside.
    Hugetlb,
}

impl Strategy {
    /// All of them; sizes of mTHP stand under their common name.
    pub const ALL: [Strategy; 6] = [
        Strategy::Base,
        Strategy::EveryMthp,
        Strategy::ThpDirect,
        Strategy::ThpNoReclaim,
        Strategy::Collapse,
        Strategy::Hugetlb,
    ];

    /// In words, for a sentence.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Strategy::Base => "base pages".to_owned(),
            Strategy::EveryMthp => "mTHP".to_owned(),
            Strategy::Mthp(size) => format!("{size} mTHP"),
            Strategy::ThpDirect => "THP with direct reclaim".to_owned(),
            Strategy::ThpNoReclaim => "THP without direct reclaim".to_owned(),
            Strategy::Collapse => "MADV_COLLAPSE".to_owned(),
            Strategy::Hugetlb => "hugetlb".to_owned(),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Base => f.pad("base"),
            Strategy::EveryMthp => f.pad("mthp"),
            Strategy::Mthp(size) => f.pad(&format!("mthp-{}", short_size(*size))),
            Strategy::ThpDirect => f.pad("thp-direct"),
            Strategy::ThpNoReclaim => f.pad("thp-noreclaim"),
            Strategy::Collapse => f.pad("collapse"),
            Strategy::Hugetlb => f.pad("hugetlb"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(word: &str) -> Result<Strategy, String> {
        if let Some(size) = word.strip_prefix("mthp-") {
            let size = parse_size(size)?;
            return match size.0.is_power_of_two() {
                true => Ok(Strategy::Mthp(size)),
                false => Err(format!("'{word}': the size of a page is a power of two")),
            };
        }
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.to_string() == word)
            .ok_or_else(|| {
                let words = Strategy::ALL
                    .map(|strategy| strategy.to_string())
                    .join(", ");
                format!("unknown strategy '{word}'; there are {words}, and one size as mthp-64K")
            })
    }
}

/// A size as `4096`, `64K`, `4M`, `1G` (powers of 1024; `KiB` and the like are understood too).
///
/// # Errors
/// Where it is no such number, or above 2^64 - 1 bytes.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let wrong = || format!("'{text}' is no size; write it as 64K, 4M or 1G");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return Err(wrong()),
    };
    match number.checked_mul(1 << shift) {
        Some(bytes) => Ok(Bytes(bytes)),
        None => Err(wrong()),
    }
}

/// A size as [`parse_size`] reads it back, in the largest unit that divides it.
#[must_use]
pub fn short_size(size: Bytes) -> String {
    let whole = |shift: u32| size.0 > 0 && size.0.trailing_zeros() >= shift;
    match () {
        () if whole(30) => format!("{}G", size.0 >> 30),
        () if whole(20) => format!("{}M", size.0 >> 20),
        () if whole(10) => format!("{}K", size.0 >> 10),
        () => size.0.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let sizes = [
            Strategy::Mthp(Bytes::kib(64)),
            Strategy::Mthp(Bytes::mib(1)),
        ];
        for strategy in Strategy::ALL.into_iter().chain(sizes) {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        assert_eq!(Strategy::Mthp(Bytes::kib(64)).to_string(), "mthp-64K");
    }

    #[test]
    fn wrong_names_say_what_there_is() {
        let error = "huge".parse::<Strategy>().unwrap_err();
        assert!(
            error.contains("thp-direct") && error.contains("mthp-64K"),
            "{error}"
        );
        assert!(
            "mthp-3K"
                .parse::<Strategy>()
                .unwrap_err()
                .contains("power of two")
        );
        assert!("mthp-".parse::<Strategy>().is_err());
    }

    #[test]
    fn sizes_read_back() {
        for (text, bytes) in [
            ("4M", 4 << 20),
            ("64K", 1 << 16),
            ("1G", 1 << 30),
            ("4095", 4095),
        ] {
            assert_eq!(parse_size(text), Ok(Bytes(bytes)));
            assert_eq!(short_size(Bytes(bytes)), text);
        }
        assert_eq!(parse_size("64 MiB"), Ok(Bytes::mib(64)));
        assert_eq!(short_size(Bytes(0)), "0");
        for wrong in ["", "M", "4X", "-4M", "4.5M", "18446744073709551615K"] {
            assert!(parse_size(wrong).unwrap_err().contains("64K"), "{wrong}");
        }
    }
}
