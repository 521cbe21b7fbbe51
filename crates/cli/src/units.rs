//! Sizes and durations as people type them.

use stopgap_events::units::{Bytes, Nanos};

/// `64M`, `4MiB`, `2G`, `4096`: bytes, in powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    let (number, unit) = split(text);
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("'{text}' is no size; write it as 64M or 2G")),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("'{text}' is no size; write it as 64M or 2G"))?;
    number
        .checked_mul(1 << shift)
        .map(Bytes)
        .ok_or_else(|| format!("'{text}' is more than 64 bits hold"))
}

/// `60s`, `500ms`, `50us`, `2m`, `10`: seconds where no unit is given.
pub(crate) fn duration(text: &str) -> Result<Nanos, String> {
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

fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096"), Ok(Bytes(4096)));
        assert_eq!(bytes("64M"), Ok(Bytes::mib(64)));
        assert_eq!(bytes("4MiB"), Ok(Bytes::mib(4)));
        assert_eq!(bytes("2GB"), Ok(Bytes::gib(2)));
        for wrong in ["", "M", "-1", "4X", "1.5G", "99999999999T", "4 M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("60s"), Ok(Nanos::secs(60)));
        assert_eq!(duration("10"), Ok(Nanos::secs(10)));
        assert_eq!(duration("50us"), Ok(Nanos::micros(50)));
        assert_eq!(duration("2m"), Ok(Nanos::secs(120)));
        for wrong in ["", "s", "-5s", "5h", "99999999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
