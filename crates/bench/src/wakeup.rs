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
//!
//! In a virtual machine the host may take the CPU from one of the two for tens of milliseconds. That says nothing of
//! either tool, so a pair is void, and another is made of the same load, where the kernel counts more than a tick of `steal`
//! or a thread above the load was held up ([`witness`]): by these alone, whatever was measured. Void pairs are shown and
//! counted; where they are more than a third, nothing is decided.

mod load;
mod peer;
mod sides;
mod stolen;
mod witness;

use std::process::ExitCode;

use stopgap_cli::{Failure, journal, progress_bar, put_back, tell};
use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};

use crate::bound;
use load::Load;
use sides::{Pair, Side, Stalled, Taken};
use witness::Witness;

/// Real-time priority of both tools' threads.
const PRIORITY: u32 = 80;
/// Between two intended wake-ups.
const INTERVAL: Nanos = Nanos::millis(1);
/// The shortest and the longest time that the load takes the CPU for.
const TAKES: (Nanos, Nanos) = (Nanos::millis(2), Nanos::millis(40));
/// The injected stall.
const STALL: Nanos = Nanos::millis(200);
/// The machine was too busy elsewhere for an answer.
const INCONCLUSIVE: u8 = 4;

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
    let mut tries = Tries::new(flags.runs);
    while let Some(number) = tries.next() {
        if signals::interrupted() {
            tell("interrupted: fewer runs");
            break;
        }
        bar.set_position(u64::from(number) * 1_000 / u64::from(flags.runs));
        let takes = load::between(TAKES, number, flags.runs, &mut random);
        // A load for each, from its beginning: both meet the same.
        let one = |run: &dyn Fn(Nanos) -> Result<Side, Failure>| {
            let load = Load::repeated(cpu, takes, time + Nanos::secs(20))?;
            let witness = Witness::start(cpu)?;
            let before = stolen::of(&Linux, cpu);
            let side = run(time);
            let taken = Taken {
                stolen: stolen::between(before, stolen::of(&Linux, cpu)),
                held_up: witness.end(),
            };
            drop(load);
            side.map(|side| (side, taken))
        };
        let (ours, theirs) = if tries.made.is_multiple_of(2) {
            let ours = one(&ours)?;
            (ours, one(&theirs)?)
        } else {
            let theirs = one(&theirs)?;
            (one(&ours)?, theirs)
        };
        let pair = Pair {
            takes,
            ours: ours.0,
            theirs: theirs.0,
            taken: [ours.1, theirs.1],
        };
        bar.suspend(|| println!("{}", pair.line(tries.made)));
        tries.count(pair.is_void());
        if !pair.is_void() {
            pairs.push(pair);
        }
    }
    bar.finish_and_clear();
    println!("\n{}", tries.line());
    if tries.too_many_void() {
        return Ok(ExitCode::from(INCONCLUSIVE));
    }
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
    println!("{}", stalled.line());
    Ok(bound::print(&sides::bounds(&pairs, &stalled)))
}

/// Pairs made so far, and when it is enough of them.
struct Tries {
    /// Pairs that are to count.
    wanted: u32,
    made: u32,
    void: u32,
}

impl Tries {
    fn new(wanted: u32) -> Tries {
        Tries {
            wanted,
            made: 0,
            void: 0,
        }
    }

    /// The number of the pair to make: of a void one again. `None`: there are enough, or more than a third of so many
    /// would be void.
    fn next(&self) -> Option<u32> {
        let number = self.made - self.void;
        (number < self.wanted && !self.too_many_void()).then_some(number)
    }

    fn count(&mut self, void: bool) {
        self.made += 1;
        self.void += u32::from(void);
    }

    /// Whether, with all that are wanted, more than a third of the pairs are void.
    fn too_many_void(&self) -> bool {
        u64::from(self.void) * 2 > u64::from(self.wanted)
    }

    fn line(&self) -> String {
        let (void, made) = (self.void, self.made);
        let text = format!(
            "{void} of {made} pairs void: the machine was held up on one side (at most a third)"
        );
        if self.too_many_void() {
            format!("inconclusive: {text}")
        } else {
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes pairs, those of these numbers of tries void; the numbers of pairs in the order in which they were made.
    fn made(wanted: u32, void: &[u32]) -> (Tries, Vec<u32>) {
        let mut tries = Tries::new(wanted);
        let mut numbers = Vec::new();
        while let Some(number) = tries.next() {
            numbers.push(number);
            tries.count(void.contains(&tries.made));
        }
        (tries, numbers)
    }

    #[test]
    fn a_void_pair_is_made_again_and_a_third_of_them_is_the_most() {
        let (none, numbers) = made(4, &[]);
        assert_eq!((numbers, none.too_many_void()), (vec![0, 1, 2, 3], false));
        let (third, numbers) = made(4, &[1, 4]);
        assert_eq!(numbers, [0, 1, 1, 2, 3, 3]);
        assert!(!third.too_many_void());
        assert!(
            third.line().starts_with("2 of 6 pairs void"),
            "{}",
            third.line()
        );
        let (many, numbers) = made(4, &[0, 1, 2]);
        assert_eq!(numbers, [0, 0, 0]);
        assert!(many.too_many_void());
        assert!(
            many.line().starts_with("inconclusive: 3 of 3"),
            "{}",
            many.line()
        );
    }
}
