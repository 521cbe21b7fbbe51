//! The plan of a campaign: TOML, checked as a whole before anything begins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stopgap_events::units::{Bytes, Nanos};

use crate::args::time;
use crate::failure::Failure;
use crate::input_file;

/// More is no plan.
const LARGEST: Bytes = Bytes(1 << 16);

/// Fewer occasions a side prove nothing of two endpoints, see `stopgap_stats::compare`.
const FEWEST: u32 = 5;
const MOST: u32 = 60;

/// A measurement that takes so many times as long as the plan says has failed.
const PATIENCE: u64 = 5;

/// A boot, where none was seen yet.
pub(super) const BOOT: Nanos = Nanos::secs(60);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Plan {
    #[serde(default)]
    pub(super) name: String,
    pub(super) occasions: u32,
    pub(super) output: PathBuf,
    probe: Option<String>,
    command: Option<String>,
    settle: Option<String>,
    takes: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) reboot: Option<String>,
    pub(super) put_back: Option<String>,
    #[serde(default)]
    endpoint: Vec<String>,
    series: Option<String>,
    margin: Option<String>,
    pub(super) before: Side,
    pub(super) after: Side,
}

/// One side: a boot, settings, commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Side {
    pub(super) name: String,
    /// Selects the next boot.
    pub(super) boot: Option<String>,
    /// Release of the kernel of its boots.
    kernel: Option<String>,
    /// Words of the kernel's command line that only this side's boots have.
    #[serde(default)]
    command_line: Vec<String>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    pub(super) set: Option<String>,
    pub(super) undo: Option<String>,
}

impl Plan {
    /// Reads and checks a plan.
    pub(super) fn read(path: &Path) -> Result<Plan, Failure> {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::error(format!(
                "{}: {why}; stopgap campaign --help shows a plan",
                path.display()
            ))
        };
        let bytes = input_file::whole(path, LARGEST).map_err(|error| wrong(&error))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong(&"it is no UTF-8"))?;
        let plan: Plan = basic_toml::from_str(text).map_err(|error| wrong(&error))?;
        plan.check().map_err(|why| wrong(&why))?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        if !(FEWEST..=MOST).contains(&self.occasions) {
            return Err(format!(
                "occasions = {}: {FEWEST} to {MOST} per side; fewer prove nothing",
                self.occasions
            ));
        }
        if self.probe.is_some() == self.command.is_some() {
            return Err("it must have one of probe and command".to_owned());
        }
        for (name, text) in [("settle", &self.settle), ("takes", &self.takes)] {
            let time = text.as_deref().map(time).transpose();
            time.map_err(|why| format!("{name}: {why}"))?;
        }
        let sides = [&self.before, &self.after];
        for (side, word) in sides.into_iter().zip(["before", "after"]) {
            let wrong = |why: String| format!("[{word}] {why}");
            if side.name.is_empty() || side.name.chars().any(char::is_control) {
                return Err(wrong("needs a name, without control characters".to_owned()));
            }
            side.settings().map_err(wrong)?;
            let no_word = |of: &String| of.is_empty() || of.contains(char::is_whitespace);
            if side.command_line.iter().any(no_word) {
                return Err(wrong("command-line is a list of words".to_owned()));
            }
            if side.undo.is_some() && side.set.is_none() {
                return Err(wrong("has undo and no set".to_owned()));
            }
            if side.boot.is_some() && self.reboot.is_none() {
                return Err(wrong(
                    "selects a boot, and the plan has no reboot".to_owned(),
                ));
            }
        }
        if self.name.chars().any(char::is_control) {
            return Err("name has control characters".to_owned());
        }
        let [first, second] = sides;
        let told = first.kernel != second.kernel || first.command_line != second.command_line;
        if sides.iter().any(|side| side.boot.is_some()) && !told {
            return Err("both sides' boots look alike: give kernel or command-line".to_owned());
        }
        Ok(())
    }

    pub(super) fn side(&self, later: bool) -> &Side {
        match later {
            true => &self.after,
            false => &self.before,
        }
    }

    /// Returns the command that measures, for `sh -c`. `own`: this program, as a shell takes it.
    pub(super) fn line(&self, own: &str) -> String {
        match (&self.command, &self.probe) {
            (Some(command), _) => command.clone(),
            (None, probe) => {
                let words = probe.as_deref().unwrap_or_default();
                format!("exec {own} probe {words} --json --no-record")
            }
        }
    }

    pub(super) fn settle(&self) -> Nanos {
        checked(self.settle.as_deref(), 60)
    }

    pub(super) fn takes(&self) -> Nanos {
        checked(self.takes.as_deref(), 120)
    }

    /// How long a measurement may take.
    pub(super) fn limit(&self) -> Nanos {
        Nanos(self.takes().0.saturating_mul(PATIENCE))
    }

    /// Returns how long an occasion takes with all that is around it, as the plan says.
    pub(super) fn expected(&self) -> Nanos {
        let boot = self.reboot.as_ref().map_or(0, |_| BOOT.0);
        Nanos(self.settle().0 + self.takes().0 + boot)
    }

    /// Returns the words of the `compare` that judges these files.
    pub(super) fn compare(&self, before: &[PathBuf], after: &[PathBuf]) -> Vec<std::ffi::OsString> {
        let mut words: Vec<std::ffi::OsString> = vec!["stopgap".into(), "compare".into()];
        for (flag, value) in [("--series", &self.series), ("--margin", &self.margin)] {
            if let Some(value) = value {
                words.extend([flag.into(), value.into()]);
            }
        }
        for name in &self.endpoint {
            words.extend(["--endpoint".into(), name.into()]);
        }
        for (flag, files) in [("--before", before), ("--after", after)] {
            words.push(flag.into());
            words.extend(files.iter().map(|file| file.as_os_str().to_owned()));
        }
        words
    }
}

/// A time of a plan that was checked.
fn checked(text: Option<&str>, otherwise: u64) -> Nanos {
    let time = text.and_then(|text| time(text).ok());
    time.unwrap_or(Nanos::secs(otherwise))
}

impl Side {
    /// Returns the files of the settings, and what is written to them.
    pub(super) fn settings(&self) -> Result<Vec<(PathBuf, String)>, String> {
        let each = self.settings.iter().map(|(name, value)| {
            let path = match name.starts_with('/') {
                true => PathBuf::from(name),
                false => PathBuf::from(format!("/proc/sys/{}", name.replace('.', "/"))),
            };
            let below = path.starts_with("/proc/sys/") || path.starts_with("/sys/");
            let plain = path
                .components()
                .all(|part| part != std::path::Component::ParentDir);
            if !below || !plain || name.chars().any(char::is_control) {
                return Err(format!(
                    "setting {name:?}: a sysctl, or a file below /proc/sys or /sys"
                ));
            }
            match value {
                Value::String(word) if !word.contains('\0') => Ok((path, word.clone())),
                Value::Number(number) => Ok((path, number.to_string())),
                _ => Err(format!("setting {name:?} needs a text or a number")),
            }
        });
        each.collect()
    }

    /// Says why a boot of this kernel and command line is none of this side, whose other side is `other`.
    pub(super) fn fits(
        &self,
        other: &Side,
        kernel: &str,
        command_line: &str,
    ) -> Result<(), String> {
        if let Some(wanted) = self.kernel.as_deref().filter(|wanted| *wanted != kernel) {
            return Err(format!("the kernel is {kernel}, not {wanted}"));
        }
        let has = |word: &String| command_line.split_whitespace().any(|own| own == word);
        if let Some(word) = self.command_line.iter().find(|word| !has(word)) {
            return Err(format!("the command line has no '{word}'"));
        }
        let others = other.command_line.iter();
        let mut others = others.filter(|word| !self.command_line.contains(word) && has(word));
        match others.next() {
            Some(word) => Err(format!("the command line has '{word}' of the other side")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A plan without what is in `without`, with these lines.
    pub(crate) fn plan(lines: &str) -> Result<Plan, String> {
        let text = format!(
            "output = \"/tmp\"\n{lines}\n[before]\nname = \"a\"\n[after]\nname = \"b\"\ncommand-line = [\"x=1\"]\n"
        );
        let plan: Plan = basic_toml::from_str(&text).map_err(|error| error.to_string())?;
        plan.check().map(|()| plan)
    }

    #[test]
    fn a_plan_says_everything_or_is_refused() {
        let good = plan("occasions = 5\nprobe = \"wakeup\"\nsettle = \"3s\"").unwrap();
        assert_eq!(good.settle(), Nanos::secs(3));
        assert_eq!(good.limit(), Nanos::secs(600));
        assert_eq!(good.line("/s"), "exec /s probe wakeup --json --no-record");
        for (lines, why) in [
            ("occasions = 1\ncommand = \"x\"", "5 to 60"),
            ("occasions = 61\ncommand = \"x\"", "5 to 60"),
            ("occasions = 5", "one of probe and command"),
            (
                "occasions = 5\nprobe = \"x\"\ncommand = \"x\"",
                "one of probe",
            ),
            (
                "occasions = 5\ncommand = \"x\"\nreboots = 1",
                "unknown field",
            ),
            (
                "occasions = 5\ncommand = \"x\"\nsettle = \"soon\"",
                "settle: ",
            ),
            (
                "occasions = 5\ncommand = \"x\"\nname = \"\\u001b[2J\"",
                "control",
            ),
        ] {
            let refused = plan(lines).unwrap_err();
            assert!(refused.contains(why), "{lines}: {refused}");
        }
    }

    #[test]
    fn sides_that_cannot_be_told_or_set_are_refused() {
        let good = plan("occasions = 5\ncommand = \"x\"\nreboot = \"r\"").unwrap();
        let refused = |change: &dyn Fn(&mut Plan)| {
            let mut plan = good.clone();
            change(&mut plan);
            plan.check().unwrap_err()
        };
        let why = refused(&|plan| {
            plan.after.boot = Some("b".to_owned());
            plan.after.command_line.clear();
        });
        assert!(why.contains("look alike"), "{why}");
        let why = refused(&|plan| {
            plan.before.boot = Some("b".to_owned());
            plan.reboot = None;
        });
        assert!(why.contains("no reboot"), "{why}");
        for (name, value) in [
            ("/etc/passwd", Value::from(1)),
            ("/sys/../etc/x", Value::from(1)),
            ("vm.swappiness", Value::from(vec![1])),
        ] {
            let why = refused(&|plan| {
                plan.after.settings.insert(name.to_owned(), value.clone());
            });
            assert!(why.contains("[after] setting"), "{why}");
        }
        let two = |plan: &mut Plan| plan.after.command_line = vec!["x=1 y".to_owned()];
        assert!(refused(&two).contains("list of words"));
        assert!(refused(&|plan| plan.after.undo = Some("u".to_owned())).contains("no set"));
        assert!(refused(&|plan| plan.before.name.clear()).contains("needs a name"));
    }

    #[test]
    fn a_boot_of_the_other_side_does_not_fit() {
        let plan = plan("occasions = 5\ncommand = \"x\"").unwrap();
        let fits = |later: bool, kernel: &str, line: &str| {
            plan.side(later).fits(plan.side(!later), kernel, line)
        };
        assert_eq!(fits(false, "6.1", "quiet"), Ok(()));
        assert_eq!(fits(true, "6.1", "quiet x=1"), Ok(()));
        assert!(fits(false, "6.1", "quiet x=1").is_err());
        assert!(fits(true, "6.1", "quiet x=12").is_err());
        let mut side = plan.after.clone();
        side.kernel = Some("6.12".to_owned());
        let wrong = side.fits(&plan.before, "6.1", "x=1").unwrap_err();
        assert_eq!(wrong, "the kernel is 6.1, not 6.12");
    }
}
