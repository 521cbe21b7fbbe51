//! `stopgap-bench chunked`: the library's chunked buffer beside base pages and beside what the kernel does by itself.
//!
//! ```text
//! whole memory    probe's strategies | chunked ......... | again, in the other order      IOMMU entries
//! fragmented      fresh state: chunked, base, direct in random order | fresh state: ...   the longest 2 MiB
//! ```
//!
//! Each buffer is taken in a child of its own. A block is 2 MiB, without the time in which its child was ready to
//! run and had
//! no CPU. Knobs are set for each side and put back after it.

mod side;
mod states;
mod whole;

use std::fmt;
use std::process::ExitCode;

use stopgap_cli::{Failure, journal, put_back};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::clock::Clock;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::{Linux, signals};

/// A bound is broken.
const BROKEN: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Fresh fragmented states; 0: none. Each takes about half a minute.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    states: u32,
    /// Rounds in memory as it is; 0: none.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=100))]
    rounds: u32,
    /// A buffer.
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    size: Bytes,
    /// Memory that may be used at most, for a time: fragmenting takes up most of what is free.
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    memory: Bytes,
    /// No state and no round begins after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// `defrag` while the chunked buffer is taken.
    #[arg(long, value_name = "WORD", default_value = "never", value_parser = ["never", "defer"])]
    defrag: String,
    /// Seed of the orders.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// What all parts work with.
struct Bench<'a> {
    flags: &'a Flags,
    journal: &'a Journal<'a>,
    end: Nanos,
}

impl Bench<'_> {
    fn over(&self) -> bool {
        signals::interrupted() || Linux.now() >= self.end
    }

    /// Sets knobs, carries `work` out, and puts them back.
    fn with_knobs<T>(
        &self,
        set: impl FnOnce(&Journal<'_>) -> Result<(), Failure>,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let scope = self.journal.scope();
        let done = set(self.journal).and_then(|()| work());
        match scope.undo().first() {
            Some(error) => Err(Failure::error(format!("putting a knob back: {error}"))),
            None => done,
        }
    }
}

/// What must hold.
struct Bound {
    what: String,
    value: f64,
    most: f64,
}

impl Bound {
    fn holds(&self) -> bool {
        self.value <= self.most
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.holds() { "holds " } else { "BROKEN" };
        let Bound { what, value, most } = self;
        write!(f, "{word} {what}: {value:.3}, at most {most}")
    }
}

/// Runs, prints both tables and a line for each bound.
pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    if Linux.uid() != 0 {
        return Err(Failure::error(
            "chunked needs root: knobs of huge pages, page frames",
        ));
    }
    if flags.size.0 < 1 << 21 || flags.size > Bytes::gib(1) {
        return Err(Failure::error("--size: from 2M to 1G"));
    }
    let folder = journal(None)?;
    put_back(&Linux, &folder);
    let journal = Journal::new(&Linux, &folder);
    let bench = Bench {
        flags,
        journal: &journal,
        end: Linux.now() + Nanos::secs(flags.seconds),
    };
    let mut bounds = Vec::new();
    if flags.rounds > 0 {
        bounds.extend(whole::run(&bench)?);
    }
    if flags.states > 0 {
        bounds.extend(states::run(&bench)?);
    }
    if let Some(error) = journal.undo().first() {
        return Err(Failure::error(format!("putting a knob back: {error}")));
    }
    for bound in &bounds {
        println!("{bound}");
    }
    if signals::interrupted() {
        return Err(Failure::error("interrupted: fewer rounds and states"));
    }
    Ok(match bounds.iter().all(Bound::holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(BROKEN),
    })
}

/// The middle one, or the mean of the two in the middle; `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len().checked_sub(1)? / 2;
    Some((values[half] + values[values.len() / 2]) / 2.0)
}

#[cfg(test)]
mod tests;
