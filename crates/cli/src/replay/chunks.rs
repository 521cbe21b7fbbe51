//! `stopgap replay chunks`: buffers from a modelled memory, by every policy.
//!
//! `advise` runs the same and judges it.

mod input;
mod log;
mod trace;

use std::cell::Cell;
use std::io::Write;
use std::process::ExitCode;

use stopgap_chunks::policy::Name;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_kernel::signals;
use stopgap_models::chunks::experiment::{Device, Experiment, assumptions};
use stopgap_models::chunks::machine::MachineError;
use stopgap_stats::replay::chunks::{Assumption, ChunksRow, ChunksSetting};
use stopgap_stats::replay::{Replay, Row};

use self::input::PAGE;
use super::{Destination, policies, record};
use crate::args::{ChunksInput, ReplayChunks};
use crate::failure::Failure;
use crate::output;

/// Replays what `flags` say, writes the record and prints it.
pub(crate) fn run(flags: &ReplayChunks) -> Result<ExitCode, Failure> {
    if flags.log {
        let device = device(flags);
        let mut policies = policies(&flags.input.policy, Name::ALL)?;
        if flags.input.policy.is_empty() {
            policies = log::POLICIES.to_vec();
        }
        let text = log::text(&input::input(&flags.input, &device)?, &policies)?;
        output::written_out(output::stdout().write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    signals::install();
    let (replay, destination) = replayed(flags)?;
    destination.replay(&replay)
}

/// The record, and where it is to go.
pub(crate) fn replayed(flags: &ReplayChunks) -> Result<(Replay, Destination), Failure> {
    let outcome = outcome(&flags.input, &device(flags))?;
    let replay = Replay {
        seed: flags.input.seed,
        interrupted: outcome.interrupted,
        rows: outcome.rows.into_iter().map(Row::Chunks).collect(),
        chunks: Some(outcome.setting),
        ..record(Question::Chunks)
    };
    Ok((replay, outcome.destination))
}

fn device(flags: &ReplayChunks) -> Device {
    Device {
        sizes: flags.device,
        access: once(&flags.access),
    }
}

/// Rows of all policies.
pub(crate) struct Outcome {
    pub(crate) setting: ChunksSetting,
    pub(crate) rows: Vec<ChunksRow>,
    pub(crate) interrupted: bool,
    /// Policies that were carried out to their end, and those that were to be.
    pub(crate) compared: (usize, usize),
    pub(crate) destination: Destination,
}

/// Carries out what `flags` say for `device`.
pub(crate) fn outcome(flags: &ChunksInput, device: &Device) -> Result<Outcome, Failure> {
    let policies = policies(&flags.policy, Name::ALL)?;
    let input = input::input(flags, device)?;
    let memory = &input.memory;
    let destination = Destination::new(&flags.record.place, flags.record.json)?;
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
    let mut compared = 0;
    let title = |policy: &Name| policy.word().to_owned();
    let rows = super::rows(&policies, title, |&policy, progress| {
        let row = experiment.row(policy, &stop, progress);
        let mut row = Vec::from_iter(row.map_err(|error| wrong(&error))?);
        for row in &mut row {
            row.missing.extend_from_slice(&input.missing);
        }
        compared += usize::from(!cut.get());
        Ok(row)
    })?;
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
        interrupted: cut.get() || compared < policies.len(),
        compared: (compared, policies.len()),
        destination,
    })
}

/// An assumption that is no number.
fn assumed(told: &str) -> Assumption {
    Assumption {
        name: told.to_owned(),
        value: None,
        unit: String::new(),
        why: "assumed: nobody says".to_owned(),
    }
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
