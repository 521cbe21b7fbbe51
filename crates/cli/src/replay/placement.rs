//! `stopgap replay placement`: a workload or a recorded trace through every policy.
//!
//! `stopgap-bench` runs the same with peers beside the policies.

pub(crate) mod calls;
mod input;
mod trace;

use std::process::ExitCode;

use stopgap_events::question::Question;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_models::placement::rows::Measured;
use stopgap_models::placement::{
    Entry, Experiment, Meter, ReplayError, Scene, Settings, experiment, growth, mail,
};
use stopgap_placement::Direction;
use stopgap_placement::registry::Name;
use stopgap_report::text::thousands;
use stopgap_stats::replay::{Replay, Row};

use self::input::Input;
use super::{Destination, record};
use crate::args::ReplayPlacement as Flags;
use crate::failure::Failure;
use crate::session;

/// Repetitions: the fewest whose middle one is neither the first nor the last of three.
const REPETITIONS: u32 = 5;
/// Repetitions of a long trace, of which only the first is of the whole: a million events through all policies then take less than
/// 10 s.
const REPETITIONS_OF_LONG: u32 = 3;

/// Visits that a policy may make at one N, in all passes together: the two that scan all mappings
/// take a second or two for them.
const VISITS: u64 = 24_000_000;

/// The same for a long trace, whose other policies take the time.
const VISITS_OF_LONG: u64 = 8_000_000;

/// Nanoseconds that a peer which counts no visits may take at one N, in all passes together.
const PEER_NS: u64 = 10_000_000_000;

/// Replays what `flags` say through our policies and `peers`, writes the record and prints it.
///
/// # Errors
/// [`Failure`]: what is wrong with the flags, the trace or a policy's answer.
pub fn run(flags: &Flags, peers: &[fn() -> Entry]) -> Result<ExitCode, Failure> {
    signals::install();
    let (replay, destination) = outcome(flags, peers)?;
    destination.replay(&replay)
}

/// The record, and where it is to go.
pub(crate) fn outcome(
    flags: &Flags,
    peers: &[fn() -> Entry],
) -> Result<(Replay, Destination), Failure> {
    let entries = entries(&flags.policy, peers)?;
    let inputs = input::inputs(flags)?;
    let memory = session::memory(flags.memory)?;
    for input in &inputs {
        fits(input, entries.len(), memory.0)?;
    }
    let destination = Destination::new(&flags.place(), flags.json)?;
    let (mut clock_ns, mut interrupted) = (None, false);
    let measured: Vec<Measured> = super::rows(&inputs, Input::title, |input, progress| {
        let meter = Meter {
            now: &|| Linux.now().0,
            cpu: &|| Linux.thread_cpu().0,
            interrupted: &signals::interrupted,
            progress,
        };
        let (visits, repeated) = match input.repetitions {
            REPETITIONS_OF_LONG => (VISITS_OF_LONG, experiment::SINGLES),
            _ => (VISITS, u64::MAX),
        };
        let settings = Settings {
            repetitions: input.repetitions,
            visits,
            ns: PEER_NS,
            memory: memory.0,
            repeated,
            thorough: false,
        };
        let experiment = Experiment {
            workload: &input.workload,
            n: input.n,
            scene: Scene {
                space: input.space,
                direction: flags.direction.unwrap_or(Direction::Any),
                live: input.live,
            },
            events: &*input.events,
        };
        let outcome = experiment
            .run(&entries, settings, &meter)
            .map_err(|error| failure(input, &error))?;
        clock_ns = Some(outcome.clock_ns);
        interrupted |= outcome.interrupted;
        let mut rows = outcome.rows;
        for measured in &mut rows {
            measured.row.missing.extend_from_slice(&input.missing);
        }
        Ok(rows)
    })?;

    let rows: Vec<_> = measured.iter().map(|measured| &measured.row).collect();
    let replay = Replay {
        seed: flags.seed,
        repetitions: inputs
            .iter()
            .map(|input| input.repetitions)
            .max()
            .unwrap_or(0),
        clock_ns,
        interrupted: interrupted || signals::interrupted(),
        growth: growth(&measured, flags.seed),
        mail: mail::fit(&rows),
        rows: measured
            .into_iter()
            .map(|measured| Row::Placement(measured.row))
            .collect(),
        ..record(Question::Placement)
    };
    Ok((replay, destination))
}

/// The policies that were asked for, each once, and all of them where none was.
fn entries(words: &[String], peers: &[fn() -> Entry]) -> Result<Vec<Entry>, Failure> {
    let policies = Name::ALL.iter().map(|&name| Entry::policy(name));
    let all: Vec<Entry> = policies.chain(peers.iter().map(|peer| peer())).collect();
    let names: Vec<String> = all.iter().map(|entry| entry.name().to_owned()).collect();
    for word in words {
        if word != "all" && !names.contains(word) {
            return Err(Failure::error(format!(
                "unknown policy '{word}'; there are {}, all",
                names.join(", ")
            )));
        }
    }
    let every = words.is_empty() || words.iter().any(|word| word == "all");
    let asked = |entry: &Entry| every || words.iter().any(|word| word == entry.name());
    Ok(all.into_iter().filter(asked).collect())
}

/// Whether what is live at a time fits the memory, before anything is made.
fn fits(input: &Input, policies: usize, memory: u64) -> Result<(), Failure> {
    let Some(live) = input.live else {
        return Ok(());
    };
    let allocators = policies as u64 + 1;
    let need = live
        .saturating_mul(allocators)
        .saturating_mul(experiment::RANGE);
    if need <= memory {
        return Ok(());
    }
    let error = ReplayError::Memory {
        live,
        allocators,
        need,
        most: memory,
    };
    Err(failure(input, &error))
}

fn failure(input: &Input, error: &ReplayError) -> Failure {
    let advice = match error {
        ReplayError::Memory { .. } => {
            "; give fewer with --policy, a smaller N with --n, or more with --memory"
        }
        _ => "",
    };
    let at = input
        .n
        .map_or_else(String::new, |n| format!(" at N={}", thousands(n)));
    Failure::error(format!("{}{at}: {error}{advice}", input.workload))
}
