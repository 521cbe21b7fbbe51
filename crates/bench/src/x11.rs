//! `stopgap-bench x11`: whether what is said of switches is true of a real X server.
//!
//! Runs of Xvfb and `xwininfo -root -tree` on one CPU, recorded and explained, the client as it is and under
//! `SCHED_BATCH`, in turn; and beside each of them one that is not recorded, because being recorded costs switches. Held against bounds: the trace against the kernel's own counts, the causes against
//! their total, who is said to pre-empt the server, the advice, and what following the advice brings.

mod bounds;
mod recorded;

use std::process::ExitCode;

use stopgap_cli::{Failure, journal, progress_bar, put_back, tell};
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::x11::{Placing, X11};
use stopgap_kernel::{Linux, signals};

use crate::bound;
use recorded::Recorded;

/// Windows that the client asks for.
const WINDOWS: u32 = 500;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Runs of each policy, each with a server of its own.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The CPU of both; it should be idle [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
}

/// Runs, prints a line for each and one for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    Linux.x_programs()?;
    let cpus = Linux.cpus()?;
    let cpu = flags.cpu.or(cpus.last().copied()).unwrap_or(0);
    // We sleep while they run, the buffers have room for all. Bound to another CPU than theirs, we saw a client under
    // SCHED_BATCH take as many switches as one that is not; why is not known.
    Linux.set_cpus(&[cpu])?;
    let folder = journal(None)?;
    put_back(&Linux, &folder);
    let journal = Journal::new(&Linux, &folder);
    println!(
        "Xvfb with {WINDOWS} windows, xwininfo -root -tree, both on CPU {cpu}, {} runs of each policy",
        flags.runs
    );
    println!("{}", Recorded::HEAD);
    let bar = progress_bar();
    let mut all: [Vec<Recorded>; 2] = [Vec::new(), Vec::new()];
    let mut free: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    'runs: for run in 0..flags.runs {
        for batch in [false, true] {
            if signals::interrupted() {
                tell("interrupted: fewer runs");
                break 'runs;
            }
            bar.set_position(u64::from(run) * 1_000 / u64::from(flags.runs));
            let placing = Placing {
                server: vec![cpu],
                client: vec![cpu],
                batch,
                through: Vec::new(),
            };
            let recorded = recorded::record(&journal, &placing)?;
            let unrecorded = recorded::unrecorded(&placing)?;
            bar.suspend(|| println!("{}", recorded.line(run, batch, unrecorded)));
            free[usize::from(batch)].extend(unrecorded);
            all[usize::from(batch)].push(recorded);
        }
    }
    bar.finish_and_clear();
    let [usual, batch] = &all;
    if usual.is_empty() || batch.is_empty() {
        return Err(Failure::error("interrupted before anything was measured"));
    }
    println!("\n{}", bounds::causes("default", usual));
    println!("{}", bounds::causes("SCHED_BATCH", batch));
    Ok(bound::print(&bounds::of(usual, batch, &free)))
}
