use std::path::Path;

use stopgap_events::machine::{Pressure, PressureLine};

use crate::error::{Error, Result};
use crate::files::{Files, read_text};

/// One resource's pressure (`kernel/sched/psi.c`, `psi_show()`). The CPU has no `full` line
/// before 5.13.
pub(crate) fn read(files: &(impl Files + ?Sized), resource: &str) -> Result<Pressure> {
    read_file(files, resource, &Path::new("/proc/pressure").join(resource))
}

/// The same from a file of the same form, as a cgroup has it.
pub(crate) fn read_file(
    files: &(impl Files + ?Sized),
    resource: &str,
    path: &Path,
) -> Result<Pressure> {
    let text = read_text(files, path)?;
    parse(resource, &text).map_err(|reason| Error::parse(path.display(), reason))
}

pub(crate) fn parse(resource: &str, text: &str) -> std::result::Result<Pressure, String> {
    let (mut some, mut full) = (None, None);
    for line in text.lines() {
        let (kind, values) = line.split_once(' ').unwrap_or((line, ""));
        let which = match kind {
            "some" => &mut some,
            "full" => &mut full,
            _ => continue, // a kind that came later
        };
        let value = |name: &str| {
            let word = values
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.ok_or_else(|| format!("no {name} in '{line}'"))
        };
        let per_cent = |name| {
            let word = value(name)?;
            let number: Option<f64> = word.parse().ok().filter(|n: &f64| n.is_finite());
            number.ok_or_else(|| format!("{name} is '{word}'"))
        };
        let total = value("total")?;
        *which = Some(PressureLine {
            avg10: per_cent("avg10")?,
            avg60: per_cent("avg60")?,
            avg300: per_cent("avg300")?,
            total_us: total.parse().map_err(|_| format!("total is '{total}'"))?,
        });
    }
    Ok(Pressure {
        resource: resource.to_owned(),
        some: some.ok_or("no line 'some'")?,
        full,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "some avg10=0.41 avg60=0.88 avg300=1.40 total=14877828";

    #[test]
    fn both_lines_are_read_and_full_may_lack() {
        let text = format!("{SOME}\nfull avg10=0.16 avg60=0.10 avg300=0.05 total=7");
        let both = parse("io", &text).unwrap();
        assert_eq!(both.some.total_us, 14_877_828);
        assert!((both.some.avg300 - 1.4).abs() < 1e-9);
        assert_eq!(both.full.unwrap().total_us, 7);
        assert_eq!(parse("cpu", SOME).unwrap().full, None);
    }

    #[test]
    fn broken_lines_are_errors() {
        for (text, reason) in [
            ("", "no line 'some'"),
            ("some", "no total"),
            ("some avg10=0.41 avg60=0.88 total=1", "no avg300"),
            (
                "some avg10=x avg60=0.88 avg300=1.40 total=1",
                "avg10 is 'x'",
            ),
            (
                "some avg10=nan avg60=0.88 avg300=1.40 total=1",
                "avg10 is 'nan'",
            ),
            (
                "some avg10=0.1 avg60=0.88 avg300=1.40 total=-1",
                "total is '-1'",
            ),
        ] {
            assert!(parse("io", text).unwrap_err().contains(reason), "{text}");
        }
    }
}
