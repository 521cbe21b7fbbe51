//! Quantities with their unit in the type. Inside a crate a plain integer may carry the
//! unit in its name (`wait_ns`); between crates it carries it in its type.
//!
//! Sums stop at 2^64 - 1 instead of wrapping: people may ask for any size, and one that is too
//! large must not pass a comparison with a budget as a small one.

mod text;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name { $name(self.0.saturating_add(other.0)) }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) { *self = *self + other; }
        }
        impl Sub for $name {
            type Output = $name;
            /// Panics in debug builds when the result would be negative, as integers do.
            fn sub(self, other: $name) -> $name { $name(self.0 - other.0) }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(iter: I) -> $name { iter.fold($name(0), Add::add) }
        }
        impl $name {
            /// The difference, or zero where it would be negative.
            #[must_use]
            pub fn saturating_sub(self, other: $name) -> $name {
                $name(self.0.saturating_sub(other.0))
            }
        }
    };
}

quantity! {
    /// A length or an amount of memory in bytes.
    Bytes
}
quantity! {
    /// A number of base pages. How large a page is, the system says; 4 KiB is only usual.
    Pages
}
quantity! {
    /// A duration, or a point in time on the clock that the field's text names, in nanoseconds.
    Nanos
}

impl Bytes {
    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }
    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }
    /// `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }
    /// The pages of `page_size` bytes that hold this many bytes, the last perhaps in part.
    #[must_use]
    pub const fn pages(self, page_size: Bytes) -> Pages {
        Pages(self.0.div_ceil(page_size.0))
    }
    /// Rounded up to whole pages of `page_size` bytes; 2^64 - 1 where there is no such number.
    #[must_use]
    pub const fn page_aligned(self, page_size: Bytes) -> Bytes {
        Bytes(self.0.div_ceil(page_size.0).saturating_mul(page_size.0))
    }
}

impl Pages {
    /// The bytes in this many pages of `page_size` bytes.
    #[must_use]
    pub const fn bytes(self, page_size: Bytes) -> Bytes {
        Bytes(self.0 * page_size.0)
    }
}

impl Nanos {
    /// `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }
    /// `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }
    /// `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }
    /// As seconds, for rates and for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// `value` with three significant digits, as `3.62`, `41.5`, `9412`.
fn three_digits(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let whole = value.fract().abs() < f64::EPSILON;
    let digits = if value >= 99.95 || whole {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    write!(f, "{value:.digits$} {unit}")
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..0x10_0000 => three_digits(f, value / 1024.0, "KiB"),
            0x10_0000..0x4000_0000 => three_digits(f, value / f64::from(1 << 20), "MiB"),
            0x4000_0000..0x100_0000_0000 => three_digits(f, value / f64::from(1 << 30), "GiB"),
            _ => three_digits(f, value / (1u64 << 40) as f64, "TiB"),
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => three_digits(f, value / 1e3, "us"),
            1_000_000..1_000_000_000 => three_digits(f, value / 1e6, "ms"),
            _ => three_digits(f, value / 1e9, "s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_for_people() {
        for (text, shown) in [
            (Bytes(512).to_string(), "512 B"),
            (Bytes::kib(4).to_string(), "4 KiB"),
            (Bytes::mib(64).to_string(), "64 MiB"),
            (Bytes(1_610_612_736).to_string(), "1.50 GiB"),
            (Nanos(87).to_string(), "87 ns"),
            (Nanos(3_620).to_string(), "3.62 us"),
            (Nanos(41_500_000).to_string(), "41.5 ms"),
            (Nanos::secs(2).to_string(), "2 s"),
        ] {
            assert_eq!(text, shown);
        }
    }

    /// `--bytes 18446744073709551615` and something beside it is not less than a budget.
    #[test]
    fn what_is_too_large_stays_large() {
        let most = Bytes(u64::MAX);
        let mut sum = most + Bytes(1);
        sum += Bytes(1);
        assert_eq!(sum, most);
        assert_eq!([most, Bytes(7)].into_iter().sum::<Bytes>(), most);
        assert_eq!(most.page_aligned(Bytes::kib(4)), most);
    }

    #[test]
    fn pages_round_up() {
        let page = Bytes::kib(16);
        assert_eq!(Bytes(1).pages(page), Pages(1));
        assert_eq!(Bytes(0).pages(page), Pages(0));
        assert_eq!(Bytes(16_385).page_aligned(page), Bytes::kib(32));
    }
}
