//! `stopgap replay chunks`: buffers from a modelled memory, by every policy.
//!
//! `advise` runs the same and judges it.

mod input;
mod log;
mod trace;

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use stopgap_chunks::policy::Name;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::{Linux, signals};
use stopgap_models::chunks::experiment::{Device, Experiment, assumptions};
use stopgap_models::chunks::machine::MachineError;
use stopgap_report::replay as tables;
use stopgap_report::text::plain;
use stopgap_stats::replay::chunks::{Assumption, ChunksRow, ChunksSetting};
use stopgap_stats::replay::{Replay, Row, SCHEMA};

use self::input::PAGE;
use crate::args::{ChunksInput, ReplayChunks};
use crate::failure::Failure;
use crate::{output, places, session};

/// Replays what `flags` say, writes the record and prints it.
pub(crate) fn run(flags: &ReplayChunks) -> Result<ExitCode, Failure> {
    let device = Device {
        sizes: flags.device,
        access: once(&flags.access),
    };
    if flags.log {
        let mut policies = policies(&flags.input.policy)?;
        if flags.input.policy.is_empty() {
            policies = log::POLICIES.to_vec();
        }
        let text = log::text(&input::input(&flags.input, &device)?, &policies)?;
        output::written_out(output::stdout().write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = outcome(&flags.input, &device)?;
    let replay = Replay {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: session::command(),
        question: Question::Chunks,
        seed: flags.input.seed,
        repetitions: 1,
        clock_ns: None,
        interrupted: outcome.interrupted,
        rows: outcome.rows.into_iter().map(Row::Chunks).collect(),
        growth: Vec::new(),
        mail: None,
        chunks: Some(outcome.setting),
        roundtrip: None,
        reclaim: None,
    };
    let name = output::name("replay-chunks", outcome.started);
    let json = flags.input.record.json;
    output::document(&replay.to_json(), &name, &outcome.records, json, |place| {
        let screen = tables::screen(&replay, session::style());
        format!("{screen}record {}\n", plain(place))
    })
}

/// What came of all policies.
pub(crate) struct Outcome {
    pub(crate) setting: ChunksSetting,
    pub(crate) rows: Vec<ChunksRow>,
    pub(crate) interrupted: bool,
    /// Policies that were carried out to their end, and those that were to be.
    pub(crate) compared: (usize, usize),
    /// When it began, in seconds since 1970.
    pub(crate) started: u64,
    /// The directory for the record.
    pub(crate) records: PathBuf,
}

/// Carries out what `flags` say for `device`.
pub(crate) fn outcome(flags: &ChunksInput, device: &Device) -> Result<Outcome, Failure> {
    signals::install();
    let policies = policies(&flags.policy)?;
    let input = input::input(flags, device)?;
    let memory = &input.memory;
    let records = places::records(flags.record.output.as_deref())?;
    let started = Linux.unix_seconds();
    let experiment = Experiment {
        workload: &input.workload,
        machine: &memory.machine,
        otherwise: &memory.otherwise,
        steps: &input.steps,
        device,
        beside_mail: input.beside_mail,
        seed: flags.seed,
    };
    let wrong = |error: &MachineError| Failure::error(format!("{}: {error}", input.workload));
    // A policy was carried out to its end unless Ctrl-C was heard while it was.
    let cut = Cell::new(false);
    let stop = || {
        cut.set(cut.get() || signals::interrupted());
        cut.get()
    };
    let alone = experiment.alone(&stop).map_err(|error| wrong(&error))?;
    let bar = session::progress_bar();
    let mut rows = Vec::new();
    let mut compared = 0;
    for (index, &policy) in policies.iter().enumerate() {
        bar.set_message(policy.word());
        let progress = |share: f64| {
            bar.set_position(((index as f64 + share) / policies.len() as f64 * 1_000.0) as u64);
        };
        let row = experiment
            .row(policy, &stop, &progress)
            .map_err(|error| wrong(&error))?;
        rows.extend(row.map(|mut row| {
            row.missing.extend_from_slice(&input.missing);
            row
        }));
        if cut.get() {
            break;
        }
        compared += 1;
    }
    bar.finish_and_clear();
    if rows.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    let setting = ChunksSetting {
        memory: memory.name.clone(),
        memory_bytes: memory.bytes,
        kernel: memory.kernel.to_string(),
        page_bytes: PAGE,
        size_bytes: input.size,
        buffers: input.buffers(),
        live: input.live,
        device: device
            .sizes
            .iter()
            .map(|size| Bytes(size).short())
            .collect(),
        access: device.access.iter().map(ToString::to_string).collect(),
        single_pages: device.single_pages(),
        bystanders_alone: alone,
        assumptions: assumptions(&memory.machine.costs(), device, &|name| {
            memory.price_from(name)
        })
        .into_iter()
        .chain(memory.assumed.iter().map(|told| assumed(told)))
        .collect(),
    };
    Ok(Outcome {
        setting,
        rows,
        interrupted: cut.get(),
        compared: (compared, policies.len()),
        started,
        records,
    })
}

/// What is no number.
fn assumed(told: &str) -> Assumption {
    Assumption {
        name: told.to_owned(),
        value: None,
        unit: String::new(),
        why: "assumed: nobody says".to_owned(),
    }
}

/// The policies that were asked for, each once, and all of them where none was.
fn policies(words: &[String]) -> Result<Vec<Name>, Failure> {
    let mut asked = Vec::new();
    for word in words.iter().filter(|word| *word != "all") {
        let name = word
            .parse::<Name>()
            .map_err(|error| Failure::error(format!("{error}, all")))?;
        asked.push(name);
    }
    let every = asked.is_empty() || words.iter().any(|word| word == "all");
    let wanted = |name: &Name| every || asked.contains(name);
    Ok(Name::ALL.iter().copied().filter(wanted).collect())
}

/// Each once, in the order given.
fn once<T: Copy + PartialEq>(given: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for &one in given {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
