//! `probe QUESTION --again RECORD`: the parameters of an earlier run, so that one short command repeats it.
//!
//! The record has the command line that made it. The flags of a `probe` are read from there, as if they were typed again. A
//! `check` has no flags for its cells: the probe that `check` runs is made again, with the runs and the time of a `probe`.

use std::path::{Path, PathBuf};

use clap::Parser;
use stopgap_events::question::Question;
use stopgap_kernel::Linux;
use stopgap_probes::Probe;
use stopgap_probes::chunks::Chunks;
use stopgap_probes::placement::Placement;
use stopgap_probes::reclaim::Reclaim;
use stopgap_probes::roundtrip::Roundtrip;
use stopgap_probes::wakeup::Wakeup;
use stopgap_stats::record::Run;

use crate::args::{Args, Check, Command, ProbeCommon, ProbeQuestion};
use crate::failure::Failure;
use crate::session::tell;
use crate::{input_file, places};

/// A record may itself be of a probe with `--again`. A circle of such records ends here.
const LONGEST_CHAIN: usize = 16;

/// The parameters of an earlier run.
pub(super) enum Earlier {
    /// The flags of a `probe`.
    Probe(Box<ProbeQuestion>),
    /// The cells that `check` measures.
    Check {
        quick: bool,
        /// Mappings of the process that `check -p` asked about.
        mappings: Option<u32>,
    },
}

/// Finds the parameters of `question` in the record that its flag `--again` names. Flags of `question` that may stand beside
/// `--again` come first.
///
/// # Errors
/// Where there is no such record, or it does not answer this question.
pub(super) fn find(question: &ProbeQuestion, record: &Path) -> Result<Earlier, Failure> {
    let asked = question.question();
    let mut record = record.to_owned();
    for _ in 0..LONGEST_CHAIN {
        let path = path_of(&record);
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::error(format!("--again {}: {why}", path.display()))
        };
        let text = input_file::whole(&path, input_file::LARGEST_RECORD);
        let text = text.map_err(|error| wrong(&error))?;
        let run = Run::from_json(&String::from_utf8_lossy(&text)).map_err(|error| wrong(&error))?;
        if !run.answers.iter().any(|answer| answer.question == asked) {
            let others: Vec<_> = run.answers.iter().map(|a| a.question.word()).collect();
            return Err(wrong(&match others.is_empty() {
                true => format!("it has no answer about {asked}"),
                false => format!(
                    "it has no answer about {asked}, only about {}",
                    others.join(", ")
                ),
            }));
        }
        let args = Args::try_parse_from(&run.command).map_err(|_| {
            wrong(&format!(
                "this version does not understand its command line: {}",
                line(&run)
            ))
        })?;
        let earlier = match args.command {
            Command::Check(flags) => of_check(&flags, &run),
            Command::Probe(probe) => match probe.question.common().again.clone() {
                Some(before) => {
                    record = before;
                    continue;
                }
                None => Earlier::Probe(Box::new(joined(probe.question, question.common()))),
            },
            _ => return Err(wrong(&"neither check nor probe made it")),
        };
        tell(&format!("the parameters are those of: {}", line(&run)));
        return Ok(earlier);
    }
    Err(Failure::error(format!(
        "--again {}: the records name each other in a circle",
        record.display()
    )))
}

/// The command line of a run, without the folder of the program.
fn line(run: &Run) -> String {
    let flags = run.command.iter().skip(1).map(|word| format!(" {word}"));
    format!("stopgap{}", flags.collect::<String>())
}

/// Returns the file of a record: `given`, or the one of this name where records go.
fn path_of(given: &Path) -> PathBuf {
    if given.components().count() > 1 || given.exists() {
        return given.to_owned();
    }
    let named = places::would_be(None).join(given);
    match named.extension() {
        Some(end) if end == "json" => named,
        _ => named.with_extension("json"),
    }
}

fn of_check(flags: &Check, run: &Run) -> Earlier {
    let process = run.now.as_ref().and_then(|now| now.process.as_ref());
    let mappings = process.and_then(|process| process.mappings);
    Earlier::Check {
        quick: flags.quick,
        mappings: mappings.and_then(|mappings| u32::try_from(mappings).ok()),
    }
}

/// Returns `earlier` with those flags of `now` that may stand beside `--again`. Where the record goes and whether it is printed is
/// never repeated.
fn joined(mut earlier: ProbeQuestion, now: &ProbeCommon) -> ProbeQuestion {
    let common = earlier.common_mut();
    common.duration = now.duration.or(common.duration);
    common.runs = now.runs.or(common.runs);
    let (memory, cpus) = (common.common.memory, common.common.cpus.take());
    common.common = now.common.clone();
    common.common.memory = now.common.memory.or(memory);
    common.common.cpus = now.common.cpus.clone().or(cpus);
    earlier
}

/// Makes the probe that `check` ran, with as many runs as `flags` say.
pub(super) fn probe(
    question: Question,
    quick: bool,
    mappings: Option<u32>,
    flags: &ProbeCommon,
    reclaim_runs: u32,
) -> Box<dyn Probe> {
    let runs = flags.runs();
    match question {
        Question::Placement => Box::new(Placement {
            also: mappings,
            runs,
            ..Placement::check(&Linux, quick)
        }),
        Question::Roundtrip => Box::new(Roundtrip {
            runs,
            cpus: flags.common.cpus.clone().unwrap_or_default(),
            ..Roundtrip::check(quick)
        }),
        Question::Chunks => Box::new(Chunks {
            runs,
            ..Chunks::check(quick)
        }),
        Question::Reclaim => {
            let mut reclaim = Reclaim::check(quick);
            reclaim.runs = flags.runs.unwrap_or(reclaim_runs);
            if let Some(pressure) = &mut reclaim.pressure {
                pressure.runs = reclaim.runs;
            }
            Box::new(reclaim)
        }
        Question::Wakeup => Box::new(Wakeup {
            runs,
            ..Wakeup::check(quick)
        }),
    }
}
