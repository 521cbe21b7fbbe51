//! `stopgap-bench overhead`: what being recorded costs a client and a server, and what it does to their switches.
//!
//! ```text
//! overhead (recorder)  ->  stopgap-bench overhead --pair   ->  client, server
//!                          held until the capture is ready      children of it, followed by the kernel
//! ```
//!
//! A *pair* of runs is one recorded and one not, right after each other; CPU time is that of client and
//! server over the same round trips, measured by themselves. The recorder's own stands beside.

mod pair;
mod parts;
mod peers;
mod recording;
mod table;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use stopgap_cli::replay::count;
use stopgap_cli::{Failure, journal, print, progress_bar, put_back, tell};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::{Cell, ClientWait, Cpus};
use stopgap_tracer::events::EventSet;

use recording::{Recorder, Run};
use table::Table;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Pairs of runs; each set of events has one in each repetition, in rotating order.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Round trips of a run.
    #[arg(long, value_name = "N", default_value = "100k", value_parser = count)]
    round_trips: u64,
    /// Leave other tools (strace, perf) out.
    #[arg(long)]
    no_peers: bool,
    /// The one cell alone that is held to the bounds: a fifth of the time.
    #[arg(long)]
    judged: bool,
    /// What each part of the capture costs, instead.
    #[arg(long, conflicts_with_all = ["work", "judged"])]
    parts: bool,
    /// Switches of a client that blocks, not recorded, by the work of its server, instead.
    #[arg(long, conflicts_with = "judged")]
    work: bool,
    /// Be the client and the server, as `client,placement`, and write what it cost to the file.
    #[arg(long, hide = true, num_args = 2, value_names = ["CELL", "FILE"])]
    pair: Option<Vec<String>>,
}

/// What is recorded, from nothing on.
const MODES: [Option<EventSet>; 3] = [None, Some(EventSet::Scheduling), Some(EventSet::All)];

/// What the client and the server do. The first is held to the bounds.
const CELLS: [Cell; 3] = [
    Cell::PLAIN,
    Cell {
        client: ClientWait::Read,
        ..Cell::PLAIN
    },
    Cell {
        cpus: Cpus::Two,
        ..Cell::PLAIN
    },
];

/// One repetition of a cell: a run in each of [`MODES`].
type Repetition = [Run; MODES.len()];

/// Exit status where a bound is broken.
const BROKEN: u8 = 2;

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    if let Some(words) = &flags.pair {
        return pair::run(words, flags.round_trips);
    }
    signals::install();
    if flags.round_trips < 1_000 {
        return Err(Failure::error(
            "--round-trips: fewer than 1000 are over before a figure is one",
        ));
    }
    let folder = scratch()?;
    let journal = journal(None)?;
    put_back(&Linux, &journal);
    let recorder = Recorder::new(&journal, folder.clone(), flags.round_trips)?;
    if flags.parts || flags.work {
        let text = match flags.parts {
            true => parts::run(&recorder, flags.pairs),
            false => work::run(&recorder, flags.pairs),
        };
        let _ = std::fs::remove_dir_all(&folder); // ours; what is left in it is nobody's
        print(text?.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let tables = measure(flags, &recorder);
    let peers = match &tables {
        Ok(tables) if !flags.no_peers && !signals::interrupted() => {
            peers::run(&recorder, &tables[0])
        }
        _ => Vec::new(),
    };
    let _ = std::fs::remove_dir_all(&folder); // ours; what is left in it is nobody's
    let tables = tables?;
    for (number, table) in tables.iter().enumerate() {
        print(table.text().trim_end())?;
        if number == 0 {
            print(peers.concat().trim_end())?;
        }
    }
    let broken = tables[0].broken();
    if signals::interrupted() {
        tell("interrupted: fewer pairs");
    }
    if broken.is_empty() {
        print("poll client on one CPU: every bound is kept")?;
        return Ok(ExitCode::SUCCESS);
    }
    for what in broken {
        print(&format!("broken: {what}"))?;
    }
    Ok(ExitCode::from(BROKEN))
}

/// A folder of ours for pages, on a disk: memory that they took would be missing elsewhere.
fn scratch() -> Result<PathBuf, Failure> {
    let folder = std::env::temp_dir().join(format!("stopgap-overhead.{}", std::process::id()));
    std::fs::create_dir(&folder)
        .map_err(|error| Failure::error(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

fn measure(flags: &Flags, recorder: &Recorder<'_>) -> Result<Vec<Table>, Failure> {
    let cpus = Linux.cpus()?;
    let cells: Vec<Cell> = CELLS
        .into_iter()
        .take(if flags.judged { 1 } else { CELLS.len() })
        .filter(|cell| cell.cpus != Cpus::Two || cpus.len() > 1)
        .collect();
    let bar = progress_bar();
    let mut repetitions: Vec<Vec<Repetition>> = vec![Vec::new(); cells.len()];
    for done in 0..flags.pairs {
        for (cell, repetitions) in cells.iter().zip(&mut repetitions) {
            bar.set_position(u64::from(done) * 1_000 / u64::from(flags.pairs));
            bar.set_message(cell.to_string());
            if signals::interrupted() {
                break;
            }
            let mut order = [0, 1, 2];
            order.rotate_left(done as usize % MODES.len());
            let mut runs = [None; MODES.len()];
            for at in order {
                match recorder.run(cell, MODES[at]) {
                    Ok(run) => runs[at] = Some(run),
                    Err(_) if signals::interrupted() => break, // Ctrl-C ends the pair too
                    Err(failure) => return Err(failure),
                }
            }
            if let [Some(none), Some(scheduling), Some(all)] = runs {
                repetitions.push([none, scheduling, all]);
            }
        }
    }
    bar.finish_and_clear();
    let tables = cells.into_iter().zip(repetitions);
    let tables: Vec<Table> = tables
        .filter(|(_, repetitions)| !repetitions.is_empty())
        .map(|(cell, repetitions)| Table::new(&cell, repetitions))
        .collect();
    if tables.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    Ok(tables)
}
