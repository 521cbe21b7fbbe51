//! `stopgap replay roundtrip`: a client and a server by the wake-up rules of two kernels.

mod trace;

use std::process::ExitCode;

use stopgap_events::question::Question;
use stopgap_events::roundtrip::{Cell, Kernel, Matrix};
use stopgap_kernel::signals;
use stopgap_models::roundtrip::{
    Prices, Rules, cells as measured_cells, note_bistable, row, run as model,
};
use stopgap_stats::replay::{Replay, RoundtripSetting, Row};

use super::measured::measured;
use super::{Destination, given_or, policies, record};
use crate::args::ReplayRoundtrip;
use crate::failure::Failure;

/// Most rows: more are no table.
const MOST_ROWS: usize = 10_000;
/// Most round trips of a row: 4 MB, and some ten seconds.
const MOST_ROUND_TRIPS: u64 = 1_000_000;

/// Replays what `flags` say, writes the record and prints it.
pub(crate) fn run(flags: &ReplayRoundtrip) -> Result<ExitCode, Failure> {
    signals::install();
    let (replay, destination) = outcome(flags)?;
    destination.replay(&replay)
}

/// The record, and where it is to go.
pub(crate) fn outcome(flags: &ReplayRoundtrip) -> Result<(Replay, Destination), Failure> {
    let rules = policies(&flags.policy, Rules::ALL)?;
    let mut seen = match &flags.trace {
        Some(path) => trace::read(path)?,
        None => Vec::new(),
    };
    let measured = (flags.beside.as_deref())
        .map(|path| measured(path, Question::Roundtrip))
        .transpose()?;
    let cells = match (&measured, seen.is_empty()) {
        (_, false) => trace::cells(&mut seen, flags),
        (Some(answer), true) if flags.client.is_empty() && flags.work.is_empty() => {
            measured_cells(answer)
        }
        (_, true) => cells(flags),
    };
    if flags.round_trips == 0 || flags.round_trips > MOST_ROUND_TRIPS {
        return Err(Failure::error(format!(
            "{} round trips: give 1 to {MOST_ROUND_TRIPS}",
            flags.round_trips
        )));
    }
    if cells.len() * rules.len() > MOST_ROWS {
        return Err(Failure::error(format!(
            "{} cells by {} policies: give shorter lists, {MOST_ROWS} rows in all at most",
            cells.len(),
            rules.len()
        )));
    }
    let destination = Destination::new(&flags.record.place, flags.record.json)?;
    let costs = measured.as_ref().and_then(Prices::measured);
    let costs = costs.unwrap_or_default();
    let by_rules = |(index, cell)| rules.iter().map(move |&rules| (index, cell, rules));
    let items: Vec<(usize, &Cell, Rules)> = cells.iter().enumerate().flat_map(by_rules).collect();
    let rows = super::rows(
        &items,
        |_| String::new(),
        |&(index, cell, rules), _| {
            let by = |prices: &Prices| {
                let stop = &signals::interrupted;
                model(cell, rules, prices, flags.round_trips, flags.seed, stop)
                    .map_err(|error| Failure::error(error.to_string()))
            };
            let outcome = by(&costs)?;
            if outcome.round_trips() == 0 {
                return Ok(Vec::new());
            }
            let mut row = row(cell, rules, &outcome, measured.as_ref());
            if let Some(seen) = seen.get(index) {
                seen.stands_beside(&mut row);
            }
            if rules == Rules::Linux6_12 {
                let (cheaper, dearer) = (by(&costs.nudged(-10))?, by(&costs.nudged(10))?);
                note_bistable(&mut row, [&outcome, &cheaper, &dearer]);
            }
            Ok(vec![Row::Roundtrip(row)])
        },
    )?;
    let replay = Replay {
        seed: flags.seed,
        interrupted: signals::interrupted(),
        rows,
        roundtrip: Some(RoundtripSetting {
            prices: costs.assumptions(),
            beside: (flags.beside.as_ref())
                .or(flags.trace.as_ref())
                .map(|path| path.display().to_string()),
        }),
        ..record(Question::Roundtrip)
    };
    Ok((replay, destination))
}

/// The cells that the flags name.
fn cells(flags: &ReplayRoundtrip) -> Vec<Cell> {
    let usual = Matrix::default();
    let matrix = Matrix {
        clients: given_or(&flags.client, &usual.clients),
        servers: flags.server.clone(),
        descriptors: flags.k.clone(),
        work: given_or(&flags.work, &usual.work),
        think: given_or(&flags.think, &usual.think),
        batches: flags.batch.clone(),
        replies: flags.reply.clone(),
        cpus: flags.on.clone(),
        policies: flags.client_policy.clone(),
        kernels: kernels(flags),
    };
    matrix.cells()
}

/// The kernel's behaviours that the flags name, in all combinations.
fn kernels(flags: &ReplayRoundtrip) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for &keyed in &flags.keyed {
        for &preempt in &flags.preempt {
            kernels.extend(flags.merge.iter().map(|&merge| Kernel {
                keyed,
                preempt,
                merge,
            }));
        }
    }
    kernels
}
