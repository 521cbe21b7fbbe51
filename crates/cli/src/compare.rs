//! `stopgap compare`: two sides of runs, read from files or made here, held against each other; and the gate.
//!
//! * `sides`: files and directories to two sides of runs.
//! * `gather`: two commands, run in turn.
//! * `moved`: traces instead of runs: which of explain's figures moved.
//! * `history`: when a figure changed over many occasions.
//! * `machines`: in what the machines of the sides differ.

mod counted;
pub(crate) mod gather;
mod history;
mod machines;
mod moved;
mod sides;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_events::machine::Environment;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Nanos;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_report::compare::{Beside, screen};
use stopgap_report::gate::{self, Standing};
use stopgap_stats::anytime::MARGIN;
use stopgap_stats::compare::moved::Moved;
use stopgap_stats::compare::{Comparison, Endpoint, Occasion, Options, Side, Word, compare};
use stopgap_stats::document::Document;
use stopgap_stats::gather::{Gathered, TESTED, names};

use crate::args;
use crate::failure::{BISECT_BAD, BISECT_SKIP, CANNOT_TELL, DONE, Failure, REGRESSION};
use crate::output::Printed;
use crate::session::tell;
use crate::whole_file::WholeFile;
use crate::{output, session, voice};

/// For how long units are begun, unless told otherwise.
const MAX_TIME: Nanos = Nanos::secs(300);

/// By what share files may differ and be the same, unless told otherwise.
const MARGIN_OF_FILES: f64 = 0.05;

/// Sides to compare.
struct Input {
    before: Side,
    after: Side,
    /// Records: the series that was compared, as `placement: map n=200`.
    series: Option<String>,
    /// The machines of each side, where they are known.
    machines: [Vec<Environment>; 2],
    /// The files that were read, by device and inode.
    files: BTreeSet<(u64, u64)>,
    /// Reasons to doubt the files, most important first.
    warnings: Vec<String>,
    options: Options,
    /// The document that the runs are from, where they were gathered, and where it is, if it was written.
    gathered: Option<(Gathered, Option<PathBuf>)>,
}

pub(crate) fn run(args: &args::Compare) -> Result<ExitCode, Failure> {
    let args = &chosen(args.clone())?;
    if !args.history.is_empty() {
        return history::run(args);
    }
    let asked = Asked::from_args(args)?;
    let directory = args.place.directory()?;
    if let Asked::Two(before, after) = asked
        && let Some(sides) = moved::traces([before, after])?
    {
        return moved::run(&sides, [before, after], args, directory.as_deref());
    }
    if args.per.is_some() {
        return Err(Failure::error("--per is for traces, and these are none"));
    }
    // Before the work, so that an unwritable place is an error at once.
    let junit = args.junit.as_deref().map(begin).transpose()?;
    let openmetrics = args.openmetrics.as_deref().map(begin).transpose()?;

    let (comparison, input) = held(&asked, args, directory.as_deref())?;
    if let Some(file) = junit {
        file.write(&gate::junit(&comparison), &input.files)?;
    }
    if let Some(file) = openmetrics {
        let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
        file.write(&gate::openmetrics(&comparison, &name), &input.files)?;
    }
    report(args, &comparison, &input, directory.as_deref())?;
    if (args.bisect || args.fail_on.is_some())
        && args.cannot_tell != Some(args::CannotTell::Pass)
        && comparison.verdict.word == Word::NoDifferenceProven
    {
        tell(
            "cannot tell: neither that it is worse, nor that it is not. Name with --endpoint what the question is, take a \
             --margin that is wider than the noise and smaller than what is looked for, or make more runs",
        );
    }
    Ok(ExitCode::from(status(args, comparison.verdict.word)))
}

/// Compares the sides, which are made here where they are commands.
fn held(
    asked: &Asked<'_>,
    args: &args::Compare,
    directory: Option<&Path>,
) -> Result<(Comparison, Input), Failure> {
    let input = match *asked {
        Asked::Commands(commands) => {
            let asked = of_commands(commands, args)?;
            of_gathered(gather::gather(&asked, directory)?, args)
        }
        Asked::One(path) => {
            let mut input = of_gathered((sides::gathered(path)?, Some(path.to_owned())), args);
            input.files = identity(path).into_iter().inserted();
            input
        }
        Asked::Two(before, after) => {
            let input = sides::read([before, after], args, false)?;
            are_known(&input)?;
            input
        }
    };
    let mut comparison = match &input.gathered {
        Some((gathered, _)) => gathered.compare(&input.options),
        None => compare(&input.before, &input.after, &input.options),
    };
    let [before, after] = &input.machines;
    comparison.environment = machines::differences(before, after);
    comparison.series.clone_from(&input.series);
    comparison
        .warnings
        .splice(..0, input.warnings.iter().cloned());
    let [before, after] = input.machines.each_ref().map(|side| {
        let occasions = side.iter().map(Occasion::of);
        occasions.collect::<Vec<_>>()
    });
    comparison.look_at(&before, &after);
    Ok((comparison, input))
}

/// Refuses an endpoint that no run has: its name is misspelt. Runs may lack the usual figures.
fn are_known(input: &Input) -> Result<(), Failure> {
    let runs = || input.before.runs.iter().chain(&input.after.runs);
    let has = |endpoint: &Endpoint| runs().any(|run| endpoint.is_in(run));
    let asked = &input.options.endpoints;
    let named = |endpoint: &&Endpoint| !Endpoint::USUAL.contains(endpoint);
    let Some(unknown) = asked.iter().filter(named).find(|one| !has(one)) else {
        return Ok(());
    };
    let usual = Endpoint::USUAL.iter().filter(|endpoint| has(endpoint));
    let numbers = runs().flat_map(|run| run.numbers.keys());
    let numbers: BTreeSet<&String> = numbers.inserted();
    let known = usual.map(ToString::to_string);
    let known: Vec<String> = known.chain(numbers.into_iter().cloned()).collect();
    Err(Failure::error(format!(
        "no run has '{unknown}'; there is {}",
        known.join(", ")
    )))
}

/// A comparison of runs or of traces.
#[derive(Debug)]
pub enum Compared {
    /// Runs (`stopgap.compare/1`).
    Runs(Box<Comparison>),
    /// Traces (`stopgap.moved/1`).
    Traces(Box<Moved>),
}

/// The document of two sides that are there. Nothing is made, written or printed.
pub(crate) fn document(args: args::Compare) -> Result<Compared, Failure> {
    let args = &chosen(args)?;
    let asked = Asked::from_args(args)?;
    if let Asked::Two(before, after) = asked
        && let Some(sides) = moved::traces([before, after])?
    {
        let moved = moved::document(&sides, [before, after], args)?;
        return Ok(Compared::Traces(Box::new(moved)));
    }
    let (comparison, _) = held(&asked, args, None)?;
    Ok(Compared::Runs(Box::new(comparison)))
}

/// Compares the files that the occasions of a campaign made, each one occasion. Names the sides `names`.
pub(crate) fn of_campaign(
    args: &args::Compare,
    names: [&str; 2],
    occasions: [&[Occasion]; 2],
) -> Result<Comparison, Failure> {
    let mut input = sides::read([&args.before, &args.after], args, true)?;
    input.before.name = names[0].to_owned();
    input.after.name = names[1].to_owned();
    // The command line is the campaign's, which does not compare again.
    input.options.command.clear();
    let mut comparison = compare(&input.before, &input.after, &input.options);
    let [before, after] = &input.machines;
    comparison.environment = machines::differences(before, after);
    comparison.series = input.series;
    comparison.warnings.splice(..0, input.warnings);
    comparison.look_at(occasions[0], occasions[1]);
    Ok(comparison)
}

/// The flags, and where one was not given what the project has chosen.
fn chosen(mut args: args::Compare) -> Result<args::Compare, Failure> {
    let settings = crate::settings::of_compare()?;
    args.margin = args.margin.or(settings.margin()?);
    args.cannot_tell = args.cannot_tell.or(settings.cannot_tell);
    args.max_time = args.max_time.or(settings.max_time()?);
    // Files have figures of other names.
    if args.endpoint.is_empty() && !args.commands.is_empty() {
        args.endpoint = settings.endpoint;
    }
    Ok(args)
}

/// Where the runs come from.
enum Asked<'a> {
    Commands([&'a str; 2]),
    /// A file of gathered runs.
    One(&'a Path),
    Two(&'a [PathBuf], &'a [PathBuf]),
}

impl<'a> Asked<'a> {
    fn from_args(args: &'a args::Compare) -> Result<Asked<'a>, Failure> {
        match (&args.commands[..], &args.sides[..]) {
            ([before, after], _) => Ok(Asked::Commands([before, after])),
            ([], []) if !args.before.is_empty() => Ok(Asked::Two(&args.before, &args.after)),
            ([], [one]) => Ok(Asked::One(one)),
            ([], [before, after]) => Ok(Asked::Two(
                std::slice::from_ref(before),
                std::slice::from_ref(after),
            )),
            ([], []) => Err(Failure::error(
                "nothing to compare: give BEFORE and AFTER, or two commands with --run; see stopgap compare --help",
            )),
            ([], more) => Err(Failure::error(format!(
                "{} files: which are before, which after? stopgap compare --before FILE... --after FILE...",
                more.len()
            ))),
            (commands, _) => Err(Failure::error(format!(
                "--run is to be given twice, the earlier side first; it was given {}",
                match commands.len() {
                    1 => "once".to_owned(),
                    n => format!("{n} times"),
                }
            ))),
        }
    }
}

fn options(args: &args::Compare) -> Options {
    Options {
        seed: args.seed.unwrap_or(1),
        margin: args.margin.unwrap_or(MARGIN_OF_FILES),
        endpoints: args
            .endpoint
            .iter()
            .map(|name| Endpoint::from(&**name))
            .collect(),
        stall_threshold_ns: args.threshold.map(|time| time.0),
        command: session::command(),
        ..Options::default()
    }
}

/// Returns the question to two commands; the error names a number that a command does not have.
fn of_commands<'a>(
    lines: [&'a str; 2],
    args: &args::Compare,
) -> Result<gather::Asked<'a>, Failure> {
    let endpoints = match &args.endpoint[..] {
        [] => vec![TESTED.to_owned()],
        named => named.to_vec(),
    };
    if let Some(unknown) = endpoints
        .iter()
        .find(|name| !names().any(|known| known == **name))
    {
        let known: Vec<&str> = names().collect();
        return Err(Failure::error(format!(
            "a command has no '{unknown}'; there is {}",
            known.join(", ")
        )));
    }
    Ok(gather::Asked {
        commands: gather::Commands {
            lines,
            batch: [false; 2],
        },
        way: match (args.side_by_side, args.in_turn) {
            (true, _) => gather::Way::SideBySide,
            (_, true) => gather::Way::InTurn,
            _ => gather::Way::Best,
        },
        endpoints,
        margin: args.margin.unwrap_or(MARGIN),
        most: args.n,
        few: false,
        max_time: args.max_time.unwrap_or(MAX_TIME),
        same_output: args.same_output,
        seed: session::seed(args.seed),
    })
}

fn of_gathered((mut gathered, path): (Gathered, Option<PathBuf>), args: &args::Compare) -> Input {
    // Another margin is another question of the same runs.
    if let (Some(plan), Some(margin)) = (&mut gathered.plan, args.margin) {
        plan.margin = margin;
    }
    Input {
        before: Side::default(),
        after: Side::default(),
        series: None,
        machines: [Vec::new(), Vec::new()],
        files: BTreeSet::new(),
        warnings: Vec::new(),
        options: options(args),
        gathered: Some((gathered, path)),
    }
}

/// How long a unit took, seconds.
pub(crate) fn unit_seconds(gathered: &Gathered, comparison: &Comparison) -> Option<f64> {
    let units = comparison.looked?.units;
    let all: u64 = gathered.runs.iter().map(|run| run.elapsed_ns).sum();
    let together = if comparison.looked?.cpu.is_some() {
        2.0
    } else {
        1.0
    };
    (units > 0).then(|| all as f64 / 1e9 / units as f64 / together)
}

fn report(
    args: &args::Compare,
    comparison: &Comparison,
    input: &Input,
    directory: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let gathered = input.gathered.as_ref();
    let described = gathered.map(|(gathered, _)| gathered.described(comparison));
    let unit_seconds = gathered.and_then(|(gathered, _)| unit_seconds(gathered, comparison));
    let runs = gathered.and_then(|(_, path)| path.as_ref());
    let runs = runs.map(|path| path.display().to_string());
    let name = output::name("compare", Linux.unix_seconds());
    let printed = match args.ktap || args.annotations {
        true => Printed::Asked,
        false => Printed::with(args.json),
    };
    output::document(&comparison.to_json(), &name, directory, printed, |record| {
        if args.ktap {
            return gate::ktap(comparison);
        }
        let beside = Beside {
            unit_seconds,
            described: described.as_deref().unwrap_or_default(),
            runs: runs.as_deref(),
            record,
        };
        let mut text = screen(comparison, &beside, voice::style());
        if args.annotations {
            text.push_str(&gate::annotations(comparison));
        }
        text
    })
}

fn status(args: &args::Compare, word: Word) -> u8 {
    let (bad, cannot_tell) = match (args.bisect, args.fail_on) {
        (true, _) => (BISECT_BAD, BISECT_SKIP),
        (_, Some(args::FailOn::Regression)) if args.cannot_tell == Some(args::CannotTell::Pass) => {
            (REGRESSION, DONE)
        }
        (_, Some(args::FailOn::Regression)) => (REGRESSION, CANNOT_TELL),
        (_, None) => return DONE,
    };
    match Standing::from(word) {
        Standing::Good => DONE,
        Standing::Bad => bad,
        Standing::CannotTell => cannot_tell,
    }
}

/// An error is no verdict: to `git bisect run`, which takes 1 for "bad", it is "cannot tell".
pub(crate) fn for_bisect(mut failure: Failure) -> Failure {
    let mut words = std::env::args_os().skip(1);
    let judges = words
        .next()
        .is_some_and(|word| word == "compare" || word == "kernels");
    if judges && words.any(|word| word == "--bisect") {
        let (Failure::Told { status, .. } | Failure::Silent { status }) = &mut failure;
        if *status != DONE {
            *status = BISECT_SKIP;
        }
    }
    failure
}

/// A file beside the record that is there whole or not at all.
struct Extra<'a> {
    path: &'a Path,
    whole: WholeFile,
}

fn begin(path: &Path) -> Result<Extra<'_>, Failure> {
    let whole = WholeFile::create(path).map_err(|error| cannot_write(path, &error))?;
    Ok(Extra { path, whole })
}

impl Extra<'_> {
    /// Refused where it would replace one of the `inputs`.
    fn write(self, text: &str, inputs: &BTreeSet<(u64, u64)>) -> Result<(), Failure> {
        if identity(self.path).is_ok_and(|file| inputs.contains(&file)) {
            let error = std::io::Error::other("it is one of the files that are compared");
            return Err(cannot_write(self.path, &error));
        }
        let written = self.whole.file().write_all(text.as_bytes());
        written
            .and_then(|()| self.whole.finish())
            .map_err(|error| cannot_write(self.path, &error))
    }
}

/// Returns a file's device and inode.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let there = std::fs::metadata(path)?;
    Ok((there.dev(), there.ino()))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("cannot write {}: {error}", path.display()))
}
