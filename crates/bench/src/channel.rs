//! `stopgap-bench channel`: the arena's channel beside a Unix socket and poll(2), in one run.
//!
//! ```text
//!            pair 0                  pair 1
//! cell 1   channel   socket        socket    channel     a client and a server, forked for each: pinned on one CPU,
//! cell 2   channel   socket        socket    channel     on one each, or free
//! ```
//!
//! A *run* is a warm-up and a window, opened and closed by a message, so that both sides count over the same round
//! trips. Switches are those of both processes by getrusage(2); latency is of each round trip; wake-ups are what the
//! channel's own ends count. At the end the server is killed (SIGKILL) while the client waits for its reply.

mod bounds;
mod death;
mod table;

use std::process::ExitCode;

use stopgap_cli::fixes::channel::{self, Cell, Run, Side};
use stopgap_cli::{Failure, print, progress_bar, tell};
use stopgap_events::units::Nanos;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::roundtrip::Cpus;

use bounds::Bound;
use table::Row;

/// A bound is broken.
const BROKEN: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each side of each cell.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..))]
    runs: u32,
    /// Length of a run's window, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    window: u64,
    /// The cells alone that are held to bounds.
    #[arg(long)]
    judged: bool,
}

/// What is compared in a cell; the first is ours.
fn sides(cell: &Cell) -> &'static [Side] {
    match cell.batch {
        1 => &[Side::Channel, Side::Socket],
        _ => &[Side::Channel, Side::Socket, Side::SocketEach],
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for cpus in [Cpus::One, Cpus::Two, Cpus::Free] {
        for batch in [1, 32] {
            for work in [Nanos(0), Nanos::micros(50)] {
                cells.push(Cell { cpus, work, batch });
            }
        }
    }
    cells
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    // From the last one down: the first has most of the interrupts.
    let mut cpus = Linux.cpus()?;
    cpus.reverse();
    let cells: Vec<Cell> = cells()
        .into_iter()
        .filter(|cell| cell.cpus == Cpus::One || cpus.len() > 1)
        .filter(|cell| !flags.judged || bounds::judges(cell))
        .collect();
    let window = Nanos::millis(flags.window);
    let bar = progress_bar();
    let mut rows: Vec<Row> = cells.iter().map(|&cell| Row::new(cell)).collect();
    'runs: for number in 0..flags.runs {
        for row in &mut rows {
            bar.set_position(u64::from(number) * 1_000 / u64::from(flags.runs));
            let sides = sides(&row.cell);
            let mut order: Vec<usize> = (0..sides.len()).collect();
            order.rotate_left(number as usize % sides.len());
            let mut runs: Vec<Option<Run>> = vec![None; sides.len()];
            for at in order {
                if signals::interrupted() {
                    break 'runs;
                }
                match channel::run(sides[at], &row.cell, &cpus, window) {
                    Ok(run) => runs[at] = Some(run),
                    Err(_) if signals::interrupted() => break 'runs, // Ctrl-C ends the children too
                    Err(why) => return Err(Failure::error(why)),
                }
            }
            row.repetitions
                .extend(runs.into_iter().collect::<Option<Vec<_>>>());
        }
    }
    bar.finish_and_clear();
    if signals::interrupted() {
        tell("interrupted: fewer runs");
    }
    rows.retain(|row| !row.repetitions.is_empty());
    if rows.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    print(table::text(&rows).trim_end())?;
    if cpus.len() < 2 {
        print("skipped: one CPU only, so nothing is said of two")?;
    }
    let deaths = match signals::interrupted() {
        true => Vec::new(),
        false => death::measure(&cpus, flags.runs)?,
    };
    print(table::deaths(&deaths).trim_end())?;
    let bounds = bounds::of(&rows, &deaths);
    for bound in &bounds {
        print(&bound.to_string())?;
    }
    Ok(if bounds.iter().all(Bound::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}
