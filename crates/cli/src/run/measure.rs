//! The command with and without the fixes, in turn; the runs are those of `compare --run`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_report::compare::{Beside, screen};
use stopgap_report::text::{level, ratio};
use stopgap_stats::anytime::MARGIN;
use stopgap_stats::compare::{Comparison, Options};
use stopgap_stats::gather::{Gathered, Label, TESTED};
use stopgap_stats::quantile::median;

use super::Fixed;
use crate::args;
use crate::compare::gather::{Asked, Commands, Way, gather};
use crate::compare::unit_seconds;
use crate::failure::{DONE, Failure};
use crate::output::Printed;
use crate::{output, session, voice};

/// The document of `run --measure --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunFixed {
    /// `stopgap.run-fix/1`.
    schema: &'static str,
    /// Version of the tool that wrote it.
    version: &'static str,
    /// The command line, program name first.
    command: Vec<String>,
    /// The fixes, as they were asked for.
    fixes: Vec<String>,
    /// The library that was preloaded; null where no fix needs it.
    library: Option<String>,
    /// The file with the runs, to be compared again (`stopgap.gather/1`); null where none was written.
    runs: Option<String>,
    /// User and system time together, seconds: the median of each side, and their ratio; null where a side has no run.
    cpu_time: Option<Pair>,
    /// Numbers that are printed and not tested: the median of each side.
    described: Vec<Described>,
    /// Without the fixes (before) against with them (after); the verdict is in it.
    comparison: Comparison,
}

/// For how long runs are begun.
const MAX_TIME: Nanos = Nanos::secs(600);

/// Without and with.
#[derive(Debug, Serialize, JsonSchema)]
struct Pair {
    without: f64,
    with: f64,
    /// `with` in units of `without`; null where that is 0.
    ratio: Option<f64>,
}

/// A number of both sides.
#[derive(Debug, Serialize, JsonSchema)]
struct Described {
    name: String,
    /// `bytes`, or empty for a count.
    unit: &'static str,
    without: f64,
    with: f64,
}

pub(super) fn run(args: &args::RunFix, fixed: &Fixed) -> Result<ExitCode, Failure> {
    let directory = args.place().directory()?;
    let words: Vec<String> = args
        .command
        .iter()
        .map(|word| quoted(word))
        .collect::<Result<_, _>>()?;
    let without = format!("exec {}", words.join(" "));
    let mut with = String::new();
    for (name, value) in &fixed.variables {
        with.push_str(&format!("export {name}={}\n", quoted(value)?));
    }
    with.push_str(&without);
    let asked = Asked {
        commands: Commands {
            lines: [&without, &with],
            batch: [false, fixed.batch],
        },
        // A fix may move time to another thread or CPU.
        way: Way::InTurn,
        endpoints: vec!["elapsed time".to_owned(), TESTED.to_owned()],
        margin: MARGIN,
        most: args.n,
        few: true,
        max_time: MAX_TIME,
        same_output: false,
        seed: session::seed(args.seed),
    };
    let (gathered, runs) = gather(&asked, directory.as_deref())?;
    let mut comparison = gathered.compare(&Options {
        command: session::command(),
        ..Options::default()
    });
    // The lines are long; that it is the same command is what matters.
    comparison.before.name = "without the fix".to_owned();
    comparison.after.name = "with the fix".to_owned();
    let cpu = cpu_time(&gathered);
    let described = gathered.described(&comparison);
    let place = runs.map(|path| path.display().to_string());
    let document = RunFixed {
        schema: "stopgap.run-fix/1",
        version: env!("CARGO_PKG_VERSION"),
        command: session::command(),
        fixes: args.fix.iter().map(ToString::to_string).collect(),
        library: fixed
            .library
            .as_ref()
            .map(|path| path.display().to_string()),
        runs: place.clone(),
        described: described
            .iter()
            .map(|(name, unit, without, with)| Described {
                name: name.clone(),
                unit,
                without: *without,
                with: *with,
            })
            .collect(),
        comparison,
        cpu_time: cpu,
    };
    let name = output::name("run-fix", Linux.unix_seconds());
    output::document(
        &output::json(&document),
        &name,
        directory.as_deref(),
        Printed::with(args.json),
        |record| {
            let beside = Beside {
                unit_seconds: unit_seconds(&gathered, &document.comparison),
                described: &described,
                runs: place.as_deref(),
                record,
            };
            let mut text = screen(&document.comparison, &beside, voice::style());
            text.extend(document.cpu_time.as_ref().map(Pair::line));
            text
        },
    )?;
    Ok(ExitCode::from(DONE))
}

fn cpu_time(gathered: &Gathered) -> Option<Pair> {
    let side = |label: Label| {
        let of = gathered.runs.iter().filter(|run| run.label == label);
        let times = of.map(|run| (run.user_ns + run.system_ns) as f64 / 1e9);
        median(times.collect())
    };
    let (without, with) = (side(Label::Before)?, side(Label::After)?);
    Some(Pair {
        without,
        with,
        ratio: (without > 0.0).then(|| with / without),
    })
}

impl Pair {
    fn line(&self) -> String {
        let times = self
            .ratio
            .map_or("-".to_owned(), |times| format!("{}x", ratio(times)));
        format!(
            "user and system time together, medians: {} without, {} with: {times}\n",
            level(self.without, "s"),
            level(self.with, "s")
        )
    }
}

/// A word as `sh` reads it back.
fn quoted(word: &OsStr) -> Result<String, Failure> {
    let text = std::str::from_utf8(word.as_bytes()).map_err(|_| {
        Failure::error("a word of the command is not UTF-8; --measure keeps it as text")
    })?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_in_the_unit_that_reads_best() {
        let said = |without, with, ratio| {
            let pair = Pair {
                without,
                with,
                ratio,
            };
            pair.line()
        };
        let begin = "user and system time together, medians: ";
        assert_eq!(
            said(0.012_34, 0.000_5, Some(0.040_52)),
            format!("{begin}12.3 ms without, 500 us with: 0.0405x\n")
        );
        assert_eq!(
            said(0.0, 1.5, None),
            format!("{begin}0 s without, 1.50 s with: -\n")
        );
    }

    #[test]
    fn words_come_back_from_a_shell() {
        for word in [
            "ls", "", "a b", "it's", "$HOME", "x;y", "\"", "ö", "a\nb", "*",
        ] {
            let line = format!("printf %s {}", quoted(OsStr::new(word)).unwrap());
            let printed = std::process::Command::new("sh")
                .args(["-c", &line])
                .output();
            assert_eq!(printed.unwrap().stdout, word.as_bytes(), "{line}");
        }
        let wrong = OsStr::from_bytes(b"\xff");
        assert!(quoted(wrong).is_err());
    }
}
