//! Values of flags, as people write them.

use stopgap_events::reclaim::Load;
use stopgap_events::roundtrip::Cpus;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;
use stopgap_placement::Direction;
use stopgap_report::text::thousands;

/// Most memory and longest time that make sense anywhere: what is computed from them stays far
/// below what 64 bits hold.
const MOST_MEMORY: Bytes = Bytes(1 << 50);
const LONGEST: Nanos = Nanos::secs(30 * 24 * 3_600);

/// Most operations of a workload, and rounds of a probe: some minutes of them, or a file of some GiB.
pub(super) const MOST_OPERATIONS: u64 = 100_000_000;
/// The largest number of 32 bits.
pub(super) const U32: u64 = u32::MAX as u64;
/// Most runs of a probe. Each is a process of its own, and intervals are narrow long before.
pub(super) const MOST_RUNS: u64 = 10_000;

pub(super) fn size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse()?;
    let most = MOST_MEMORY;
    let sane = size <= most;
    sane.then_some(size)
        .ok_or_else(|| format!("'{text}' is more memory than there is; give at most {most}"))
}

/// A time; of hours and days, too, because what watches runs for days.
pub(crate) fn time(text: &str) -> Result<Nanos, String> {
    const UNITS: [(char, Nanos); 2] = [('h', Nanos::secs(3_600)), ('d', Nanos::secs(24 * 3_600))];
    let long = UNITS.into_iter().find_map(|(letter, unit)| {
        let number: u64 = text.strip_suffix(letter)?.parse().ok()?;
        Some(Nanos(number.saturating_mul(unit.0)))
    });
    let time: Nanos = match long {
        Some(time) => time,
        None => text.parse()?,
    };
    (time <= LONGEST)
        .then_some(time)
        .ok_or_else(|| format!("'{text}' is longer than 30 days"))
}

/// An age with its unit, of any length: `12h`, `30d`, `400d`.
///
/// # Errors
/// Where it is none.
pub(super) fn age(text: &str) -> Result<Nanos, String> {
    let wrong = || format!("'{text}' is no age; write it as 30d or 12h");
    let unit = match text.chars().next_back() {
        Some('d') => Nanos::secs(24 * 3_600),
        Some('h') => Nanos::secs(3_600),
        Some('m') => Nanos::secs(60),
        Some('s') => Nanos::secs(1),
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(unit.0).map(Nanos).ok_or_else(wrong)
}

/// A label, as `key=value`.
///
/// # Errors
/// Where it has no `=`, a key that others could not read, or a value with control characters.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    const LONGEST_KEY: usize = 64;
    const LONGEST_VALUE: usize = 256;
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' has no '='; write it as key=value"))?;
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || key.len() > LONGEST_KEY || !key.chars().all(is_of_key) {
        return Err(format!(
            "'{key}' is no key of a label; give 1 to {LONGEST_KEY} letters, digits, '-', '_', '.' or '/'"
        ));
    }
    if value.len() > LONGEST_VALUE {
        let length = value.len();
        return Err(format!(
            "the value of label '{key}' has {length} bytes; give at most {LONGEST_VALUE}"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!(
            "the value of label '{key}' has a control character, such as a line feed"
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A count: `40000`, `40k`, `1m`, `2g`; powers of 1,000.
///
/// # Errors
/// Where it is none, or more than 64 bits hold.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no count; write it as 40000, 40k or 1m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("'{text}' is more than 64 bits hold"))
}

/// A count from `LEAST` to `MOST`, written as [`count`] reads it.
///
/// # Errors
/// Where it is none, or fewer or more than makes sense.
pub(super) fn between<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let count = count(text)?;
    (LEAST..=MOST)
        .contains(&count)
        .then_some(count)
        .ok_or_else(|| {
            let (least, most) = (thousands(LEAST), thousands(MOST));
            if LEAST == 0 {
                return format!("'{text}' is out of range: give at most {most}");
            }
            format!("'{text}' is out of range: give at least {least} and at most {most}")
        })
}

/// The same for what 32 bits hold.
pub(super) fn few<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u32, String> {
    let count = between::<LEAST, MOST>(text)?;
    u32::try_from(count).map_err(|_| format!("'{text}' is more than 32 bits hold"))
}

/// A share, as `5%` or `0.05`: 0 to less than 10. Without the sign it is less than 1: most people who write `2` mean 2 %, and what
/// is 200 % passes every gate.
pub(crate) fn margin(text: &str) -> Result<f64, String> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |n| (n, 100.0));
    let share = number.trim().parse::<f64>().map(|number| number / whole);
    let most = if whole > 1.0 { 10.0 } else { 1.0 };
    share
        .ok()
        .filter(|share| (0.0..most).contains(share))
        .ok_or_else(|| format!("'{text}' is no margin; write it as 5% or 0.05"))
}

pub(super) fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is no process id; give a number, as pidof or pgrep prints it for a name")
    })
}

/// A name of a process, as the kernel keeps it.
///
/// # Errors
/// Where the kernel cannot have it.
pub(super) fn process_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 15;
    if text.is_empty() {
        return Err("'' is no name of a process; give one as ps -o comm prints it".to_owned());
    }
    if text.len() > LONGEST {
        let mut end = LONGEST;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = &text[..end];
        return Err(format!(
            "the kernel keeps {LONGEST} bytes of a process's name: write '{text}' as '{cut}'"
        ));
    }
    Ok(text.to_owned())
}

pub(super) fn yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("'{text}' is neither yes nor no")),
    }
}

/// A load that the probe runs; the model has more.
pub(super) fn live_load(text: &str) -> Result<Load, String> {
    words::one_of("load", text, Load::LIVE)
}

/// A placement that the model has; the probe has more.
pub(super) fn fixed_cpus(text: &str) -> Result<Cpus, String> {
    words::one_of("placement on CPUs", text, &[Cpus::One, Cpus::Two])
}

pub(super) fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "top-down" => Ok(Direction::TopDown),
        "bottom-up" => Ok(Direction::BottomUp),
        _ => Err(format!(
            "unknown direction '{text}'; there are top-down, bottom-up"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_read_as_people_write_them() {
        assert_eq!(margin("5%"), Ok(0.05));
        assert_eq!(margin("0.05"), Ok(0.05));
        assert_eq!(margin("0"), Ok(0.0));
        assert_eq!(margin("200%"), Ok(2.0));
        for wrong in [
            "", "%", "five", "-1%", "nan", "inf", "1000%", "5%%", "2", "1",
        ] {
            assert!(margin(wrong).unwrap_err().contains("5% or 0.05"), "{wrong}");
        }
    }

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(age("30d"), Ok(Nanos::secs(30 * 86_400)));
        assert_eq!(age("400d"), Ok(Nanos::secs(400 * 86_400)));
        assert_eq!(age("0s"), Ok(Nanos(0)));
        for wrong in ["", "d", "30", "-1d", "1.5d", "9999999999d", "1\u{e4}"] {
            assert!(age(wrong).unwrap_err().contains("30d or 12h"), "{wrong}");
        }
    }

    #[test]
    fn labels_are_words_that_others_can_read() {
        let label_of = |key: &str, value: &str| Ok((key.to_owned(), value.to_owned()));
        assert_eq!(label("machine=lab-3"), label_of("machine", "lab-3"));
        assert_eq!(label("a.b/c_d-9=x=y z"), label_of("a.b/c_d-9", "x=y z"));
        assert_eq!(label("empty="), label_of("empty", ""));
        let long = |keys, values| format!("{}={}", "k".repeat(keys), "v".repeat(values));
        assert!(label(&long(64, 256)).is_ok());
        for (wrong, why) in [
            ("machine".to_owned(), "write it as key=value"),
            ("=x".to_owned(), "'' is no key"),
            ("a b=x".to_owned(), "'a b' is no key"),
            ("\u{e4}=x".to_owned(), "is no key"),
            (long(65, 1), "give 1 to 64 letters"),
            (long(1, 257), "has 257 bytes; give at most 256"),
            ("a=x\ny".to_owned(), "a control character"),
        ] {
            let error = label(&wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_count_that_makes_no_sense_is_refused_with_what_does() {
        assert_eq!(between::<1, 100_000_000>("100m"), Ok(100_000_000));
        assert_eq!(few::<0, 10>("0"), Ok(0));
        for wrong in ["0", "100000001", "2g"] {
            let error = between::<1, 100_000_000>(wrong).unwrap_err();
            let range = "at least 1 and at most 100,000,000";
            assert_eq!(error, format!("'{wrong}' is out of range: give {range}"));
        }
        assert!(
            between::<1, 2>("99999999999g")
                .unwrap_err()
                .contains("64 bits")
        );
        assert!(few::<0, { 1 << 33 }>("5g").unwrap_err().contains("32 bits"));
    }

    #[test]
    fn counts_read_as_people_write_them() {
        assert_eq!(count("40k"), Ok(40_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        assert_eq!(count("17"), Ok(17));
        for wrong in [
            "",
            "k",
            "-1",
            "1kk",
            "1.5k",
            "k1",
            "99999999999g",
            "\u{660}",
        ] {
            assert!(count(wrong).unwrap_err().contains(wrong));
        }
    }
}
