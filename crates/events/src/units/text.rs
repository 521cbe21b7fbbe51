//! Quantities as people and records write them: one text in, the same text out.

use std::str::FromStr;

use super::{Bytes, Nanos};

impl FromStr for Bytes {
    type Err = String;

    /// `64M`, `4MiB`, `2G`, `4096`: bytes, in powers of 1024.
    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("'{text}' is no size; write it as 64K, 4M or 2G");
        let (number, unit) = split(text);
        let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            "g" | "G" => 30,
            "t" | "T" => 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number
            .checked_mul(1 << shift)
            .map(Bytes)
            .ok_or_else(|| format!("'{text}' is more than 64 bits hold"))
    }
}

impl Bytes {
    /// As it is read back, in the largest unit that divides it: `64K`, `4M`, `1000`.
    #[must_use]
    pub fn short(self) -> String {
        let whole = |shift: u32| self.0 > 0 && self.0.trailing_zeros() >= shift;
        match () {
            () if whole(40) => format!("{}T", self.0 >> 40),
            () if whole(30) => format!("{}G", self.0 >> 30),
            () if whole(20) => format!("{}M", self.0 >> 20),
            () if whole(10) => format!("{}K", self.0 >> 10),
            () => self.0.to_string(),
        }
    }
}

impl FromStr for Nanos {
    type Err = String;

    /// `60s`, `500ms`, `50us`, `2m`, `10`: seconds where no unit is given.
    fn from_str(text: &str) -> Result<Nanos, String> {
        let wrong = || format!("'{text}' is no duration; write it as 60s, 500ms or 50us");
        let (number, unit) = split(text);
        let factor = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "" | "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number
            .checked_mul(factor)
            .map(Nanos)
            .ok_or_else(|| format!("'{text}' is more than 584 years"))
    }
}

impl Nanos {
    /// As it is read back, in the largest unit that divides it: `50us`, `1ms`, `0s`.
    #[must_use]
    pub fn short(self) -> String {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let whole = units.iter().find(|(unit, _)| self.0.is_multiple_of(*unit));
        match whole {
            Some((unit, name)) => format!("{}{name}", self.0 / unit),
            None => format!("{}ns", self.0),
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, size) in [
            ("4096", Bytes(4096)),
            ("64M", Bytes::mib(64)),
            ("4MiB", Bytes::mib(4)),
            ("2GB", Bytes::gib(2)),
            ("0", Bytes(0)),
        ] {
            assert_eq!(text.parse(), Ok(size));
        }
        for wrong in ["", "M", "-1", "4X", "1.5G", "99999999999T", "4 M", "4MM"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_told_in_the_largest_unit() {
        for text in ["1T", "1G", "1025G", "64K", "1000"] {
            assert_eq!(text.parse::<Bytes>().map(Bytes::short), Ok(text.to_owned()));
        }
        assert_eq!(Bytes(1 << 40).short(), "1T");
    }

    #[test]
    fn durations() {
        for (text, time) in [
            ("60s", Nanos::secs(60)),
            ("10", Nanos::secs(10)),
            ("50us", Nanos::micros(50)),
            ("2m", Nanos::secs(120)),
        ] {
            assert_eq!(text.parse(), Ok(time));
        }
        for wrong in ["", "s", "-5s", "5h", "99999999999999s"] {
            assert!(wrong.parse::<Nanos>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_quantity_reads_back(size: u64) {
            prop_assert_eq!(Bytes(size).short().parse(), Ok(Bytes(size)));
            prop_assert_eq!(Nanos(size).short().parse(), Ok(Nanos(size)));
        }

        #[test]
        fn any_text_is_a_size_or_an_error(text: String) {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Nanos>();
        }
    }
}
