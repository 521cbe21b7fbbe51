//! Traces of two sides: each is explained by itself, one at a time, and what explain adds up is compared figure by figure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_explain::Options;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_report::moved::screen;
use stopgap_stats::compare::Difference;
use stopgap_stats::compare::moved::{self, Account, Moved, Per, moved};
use stopgap_stats::document::Document;
use stopgap_trace::{Metadata, NOBODY, is_trace};

use super::sides::{OFTEN, files_of, name, wrong};
use crate::explain::{Explained, explained};
use crate::failure::Failure;
use crate::output::Printed;
use crate::{args, input_file, output, session, voice};

/// Traces of a side: each takes as long as stopgap explain.
const MOST: usize = 1_000;

/// Bytes by which a trace is known.
const HEAD: u64 = 4 << 10;

/// Values of a side that a difference names.
const MOST_NAMED: usize = 3;

/// Returns the traces of both sides; `None` where neither begins with one.
pub(super) fn traces(given: [&[PathBuf]; 2]) -> Result<Option<[Vec<PathBuf>; 2]>, Failure> {
    let mut sides = [Vec::new(), Vec::new()];
    for (paths, side) in given.into_iter().zip(&mut sides) {
        for path in paths {
            files_of(path, side)?;
        }
    }
    let begins = |side: &Vec<PathBuf>| side.first().is_some_and(|path| begins_as_trace(path));
    Ok(sides.iter().any(begins).then_some(sides))
}

fn begins_as_trace(path: &Path) -> bool {
    let mut head = Vec::new();
    // What cannot be opened is no trace here; who reads it says why. A pipe is read once, and not for this.
    let file = input_file::open(path).ok();
    let read = file.map(|file| file.take(HEAD).read_to_end(&mut head));
    matches!(read, Some(Ok(_))) && is_trace(&head)
}

/// Explains each, compares them and prints what moved.
pub(super) fn run(
    sides: &[Vec<PathBuf>; 2],
    given: [&[PathBuf]; 2],
    args: &args::Compare,
    directory: Option<&Path>,
) -> Result<ExitCode, Failure> {
    signals::install();
    let record = document(sides, given, args)?;
    let name = output::name("moved", Linux.unix_seconds());
    let printed = Printed::with(args.json);
    output::document(&record.to_json(), &name, directory, printed, |path| {
        screen(&record, path, voice::style())
    })
}

/// Explains each and compares them.
pub(super) fn document(
    sides: &[Vec<PathBuf>; 2],
    given: [&[PathBuf]; 2],
    args: &args::Compare,
) -> Result<Moved, Failure> {
    refuse(args)?;
    let mut seen = BTreeMap::new();
    let mut accounts = [Vec::new(), Vec::new()];
    let mut of_sides: [Vec<Metadata>; 2] = [Vec::new(), Vec::new()];
    for (side, paths) in sides.iter().enumerate() {
        if paths.len() > MOST {
            return Err(Failure::error(format!("more than {MOST} traces a side")));
        }
        for path in paths {
            let (account, metadata, recording) = one(path, args.per.as_ref())?;
            if let Some(recording) = recording
                && let Some(other) = seen.insert(recording, path.clone())
            {
                return Err(Failure::error(format!(
                    "{} and {} are the same recording: a trace counts once",
                    other.display(),
                    path.display()
                )));
            }
            accounts[side].push(account);
            of_sides[side].push(metadata);
        }
    }
    let environment = differences(&of_sides);
    if environment.iter().any(|one| one.what == "program") {
        for (account, metadata) in accounts.iter_mut().flatten().zip(of_sides.iter().flatten()) {
            if let Some(program) = program(metadata) {
                // As the kernel cuts a thread's name.
                let name: String = program.chars().take(15).collect();
                account.rename(&name, "the program");
            }
        }
    }
    let mut warnings = Vec::new();
    for (kind, of) in [("machines", MACHINE), ("programs", &["program"][..])] {
        let differs = environment.iter().filter(|one| of.contains(&&*one.what));
        let differs: Vec<String> = differs
            .map(|one| format!("{} {} -> {}", one.what, one.before, one.after))
            .collect();
        if !differs.is_empty() {
            warnings.push(format!("different {kind}: {}", differs.join("; ")));
        }
    }
    warnings.extend(one_after_the_other(&of_sides));
    let options = moved::Options {
        seed: args.seed.unwrap_or(1),
        per: args.per.clone(),
        command: session::command(),
        names: given.map(name),
        environment,
        warnings,
    };
    Ok(moved(&accounts, options))
}

/// Flags of runs mean nothing for traces.
fn refuse(args: &args::Compare) -> Result<(), Failure> {
    let given = [
        ("--margin", args.margin.is_some()),
        ("--threshold", args.threshold.is_some()),
        ("--endpoint", !args.endpoint.is_empty()),
        ("--question", args.question.is_some()),
        ("--series", args.series.is_some()),
        ("--unit", args.unit.is_some()),
        ("--fail-on", args.fail_on.is_some()),
        ("--bisect", args.bisect),
        ("--ktap", args.ktap),
        ("--annotations", args.annotations),
        ("--junit", args.junit.is_some()),
        ("--openmetrics", args.openmetrics.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::error(format!(
            "{flag} is for runs; of traces compare says what moved, not whether that is worse"
        ))),
    }
}

/// Identity of a recording.
type Recording = (Option<String>, u64, u64);

/// Explains a trace. One that is damaged is no evidence.
fn one(path: &Path, per: Option<&Per>) -> Result<(Account, Metadata, Option<Recording>), Failure> {
    let request = match per {
        Some(Per::Request(request)) => request.parse().ok(),
        _ => None,
    };
    let options = Options {
        request,
        ..Options::default()
    };
    let Explained {
        mut metadata,
        findings,
        damaged,
    } = explained(path, options)?;
    if damaged.is_some() {
        let why = findings.trace.cut_short.unwrap_or_default();
        return Err(wrong(
            path,
            &format!("{why}; a damaged trace is no evidence"),
        ));
    }
    if findings.trace.events == 0 {
        return Err(wrong(path, &"it has no event"));
    }
    if findings
        .missing
        .iter()
        .any(|missing| missing.what == NOBODY)
    {
        return Err(wrong(
            path,
            &"none of the processes that were to be recorded started",
        ));
    }
    let trace = &findings.trace;
    let recording = trace
        .duration_ns
        .map(|ns| (trace.boot_id.clone(), trace.events, ns));
    metadata.files = Vec::new(); // the largest part, and not needed
    let account = Account::new(path.display().to_string(), &findings, per);
    Ok((account, metadata, recording))
}

/// Properties of a machine.
const MACHINE: &[&str] = &[
    "host",
    "architecture",
    "CPU",
    "CPUs",
    "memory",
    "hypervisor",
];

/// The recorded program's name without its folder.
fn program(of: &Metadata) -> Option<&str> {
    of.program.as_deref()?.rsplit('/').next()
}

/// Where and how a trace was recorded.
fn circumstances(of: &Metadata) -> Vec<(&'static str, Option<String>)> {
    let machine = of.machine.clone().unwrap_or_default();
    vec![
        ("host", of.host.clone()),
        ("architecture", machine.architecture),
        ("CPU", machine.cpu),
        ("CPUs", machine.cpus.map(|n| n.to_string())),
        ("memory", machine.memory.map(|memory| memory.to_string())),
        ("hypervisor", machine.hypervisor),
        ("kernel", of.kernel.clone()),
        ("boot", of.boot_id.clone()),
        ("stopgap", of.stopgap.clone()),
        ("program", program(of).map(str::to_owned)),
        ("command", of.source.clone()),
        (
            "sample period",
            of.sample_period_ns.map(|period| period.to_string()),
        ),
    ]
}

/// Lists the circumstances in which the sides differ. Where the traces of one side differ among themselves, both values are shown.
fn differences(sides: &[Vec<Metadata>; 2]) -> Vec<Difference> {
    let of_sides = sides.each_ref().map(|side| {
        let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (what, value) in side.iter().flat_map(circumstances) {
            let value = value.unwrap_or_else(|| "unknown".to_owned());
            values.entry(what).or_default().insert(value);
        }
        values
    });
    let said = |values: &BTreeSet<String>| {
        let named: Vec<&str> = values
            .iter()
            .take(MOST_NAMED)
            .map(|value| &**value)
            .collect();
        let more = values.len().saturating_sub(MOST_NAMED);
        let more = if more > 0 {
            format!(" or {more} more")
        } else {
            String::new()
        };
        named.join(" or ") + &more
    };
    let [before, after] = of_sides;
    let order = circumstances(&Metadata::default());
    let both = order
        .iter()
        .filter_map(|(what, _)| Some((*what, before.get(what)?, after.get(what)?)));
    both.filter(|(_, before, after)| before != after)
        .map(|(what, before, after)| Difference {
            what: what.to_owned(),
            before: said(before),
            after: said(after),
        })
        .collect()
}

/// Warns of sides that were recorded one after the other. Times of RFC 3339 in UTC are in the order of their text.
fn one_after_the_other(sides: &[Vec<Metadata>; 2]) -> Option<String> {
    let times = |side: &Vec<Metadata>| {
        let all: Option<Vec<String>> = side.iter().map(|one| one.start.clone()).collect();
        let all = all.filter(|all| all.len() >= OFTEN)?;
        Some((all.iter().min()?.clone(), all.iter().max()?.clone()))
    };
    let [(first, last), (least, most)] = [times(&sides[0])?, times(&sides[1])?];
    (last < least || most < first).then(|| {
        "all of one side was recorded before the other: a drift of the machine looks like a change; record them in turn"
            .to_owned()
    })
}
