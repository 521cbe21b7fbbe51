//! `stopgap-bench wakeup`: `probe wakeup` beside cyclictest, alternating, under a load of our own.
//!
//! The load is a thread of higher priority on the same CPU that takes it for some time, again and again. How long that is
//! differs from pair to pair, so that maxima have something to agree in. Then one stall of 200 ms, of which our histogram
//! must hold every missed period, and cyclictest's the one wake-up that it ended with.
//!
//! ```text
//! load   2 ms, every 8 ms .............. | 31 ms, every 124 ms .............. | ...
//! runs   probe        cyclictest         | cyclictest     probe               | probe ...
//! ```

mod load;
mod peer;
mod sides;

use std::process::ExitCode;

use stopgap_cli::{Failure, journal, progress_bar, put_back, tell};
use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};

use load::Load;
use sides::{Bound, Pair, Side, Stalled};

/// Real-time priority of both tools' threads.
const PRIORITY: u32 = 80;
/// Between two intended wake-ups.
const INTERVAL: Nanos = Nanos::millis(1);
/// The shortest and the longest time that the load takes the CPU for.
const TAKES: (Nanos, Nanos) = (Nanos::millis(2), Nanos::millis(40));
/// The injected stall.
const STALL: Nanos = Nanos::millis(200);
/// A bound is broken.
const BROKEN: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Pairs of runs; maxima are correlated over them.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    runs: u32,
    /// How long each run of each tool takes, whole seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// The CPU [default: the last one that we may use].
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Seed of the loads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs, prints a line for each pair and one for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let version = peer::version()?;
    load::possible()?;
    let cpus = Linux.cpus()?;
    let cpu = flags.cpu.or(cpus.last().copied()).unwrap_or(0);
    let folder = journal(None)?;
    put_back(&Linux, &folder);
    let journal = Journal::new(&Linux, &folder);
    let ours = |time| sides::ours(&journal, cpu, time);
    let theirs = |time| peer::run(cpu, time);
    println!(
        "{version} beside probe wakeup: CPU {cpu}, SCHED_FIFO {PRIORITY}, every {INTERVAL}, {} s a run",
        flags.seconds
    );
    println!("{}", Pair::HEAD);
    let bar = progress_bar();
    let mut random = Random::new(flags.seed);
    let time = Nanos::secs(flags.seconds);
    let mut pairs = Vec::new();
    for number in 0..flags.runs {
        if signals::interrupted() {
            tell("interrupted: fewer runs");
            break;
        }
        bar.set_position(u64::from(number) * 1_000 / u64::from(flags.runs));
        let takes = load::between(TAKES, number, flags.runs, &mut random);
        // A load for each, from its beginning: both meet the same.
        let one = |run: &dyn Fn(Nanos) -> Result<Side, Failure>| {
            let load = Load::repeated(cpu, takes, time + Nanos::secs(20))?;
            let side = run(time);
            drop(load);
            side
        };
        let (ours, theirs) = if number % 2 == 0 {
            let ours = one(&ours)?;
            (ours, one(&theirs)?)
        } else {
            let theirs = one(&theirs)?;
            (one(&ours)?, theirs)
        };
        let pair = Pair {
            takes,
            ours,
            theirs,
        };
        bar.suspend(|| println!("{}", pair.line(number)));
        pairs.push(pair);
    }
    bar.finish_and_clear();
    if pairs.len() < 3 {
        return Err(Failure::error("interrupted before enough was measured"));
    }
    let stalled = |run: &dyn Fn(Nanos) -> Result<Side, Failure>| {
        let at = Linux.now() + Nanos::millis(600);
        let load = Load::once(cpu, at, STALL)?;
        let side = run(Nanos::secs(1));
        drop(load);
        side
    };
    let stalled = Stalled {
        ours: stalled(&ours)?,
        theirs: stalled(&theirs)?,
    };
    println!("\n{}", stalled.line());
    let bounds = sides::bounds(&pairs, &stalled);
    for bound in &bounds {
        println!("{bound}");
    }
    Ok(if bounds.iter().all(Bound::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(BROKEN)
    })
}
