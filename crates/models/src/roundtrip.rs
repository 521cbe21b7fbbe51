//! How often a client and a server on a Unix socket switch, were the kernel's rules others.
//!
//! The probe `roundtrip` counts switches on the running kernel; here the same two programs run on a model of a
//! scheduler and of a socket, event by event. What is modelled is what mail 002 is about: who is woken by what, and
//! whether being woken takes the CPU from the waker.
//!
//! ```text
//! client  think, write(v), [poll], read, [poll], read ...      until all replies are here
//!            |  request: wake IN      ^ reply: wake IN
//!            v                        |  (and each side's read: wake OUT, room to write)
//! server  select over k, read, work, write(v) or a write a reply
//! ```
//!
//! Both programs are the probe's. Sources: Linux 6.12 net/unix/af_unix.c (`unix_stream_sendmsg()`,
//! `unix_write_space()`), fs/select.c, kernel/sched/fair.c of 2.6.35 and 6.12; mail 002.
//!
//! * [`Cell`]: what is varied. [`Rules`]: the kernel's. [`Prices`]: what a step of a call costs.
//! * [`run`]: carries a cell out. [`Outcome`]: switches a round trip, each with its cause.
//!
//! Left out: other tasks and interrupts, caches, signals, groups of tasks, weights other than nice 0, a full send
//! buffer (batches stay below it), a tick's own cost, moves between CPUs (each task stays on its own).
//!
//! `scheduler` has the run queues, `socket` who waits for what, `program` the two tasks, `machine` the events.

mod machine;
mod outcome;
mod prices;
mod program;
mod row;
mod scheduler;
mod socket;

use stopgap_events::roundtrip::{Cell, Cpus};
use stopgap_events::units::Nanos;
use stopgap_events::words;
use thiserror::Error;

pub use outcome::{Cause, Outcome, Side, Why};
pub use prices::Prices;
pub use row::{cells, note_bistable, row};

/// Whose wake-up rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rules {
    /// CFS: a woken sleeper gets up to 3 ms of credit, and pre-empts from 1 ms on.
    Linux2_6_35,
    /// EEVDF: a woken task is placed by the lag that it left with, and pre-empts where the running one is past its
    /// share.
    Linux6_12,
}

words!(Rules, "policy", Linux2_6_35 "linux-2.6.35", Linux6_12 "linux-6.12");

/// Largest batch: a message alone in a buffer takes some 768 bytes of a send buffer of 212,992, and a sender that
/// waits for room, which the model does not have, begins at 277.
pub const MOST_BATCH: u32 = 256;
/// Most descriptors: more than a process may have open by default.
const MOST_DESCRIPTORS: u32 = 1 << 20;
/// Longest work or thinking of a round trip.
const MOST_TIME: Nanos = Nanos::secs(1);

/// Why a cell cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CellError {
    /// A batch of none, or of more than fit.
    #[error(
        "a batch of {0}: give 1 to {MOST_BATCH}; a larger one fills the socket's buffer, which is not modelled"
    )]
    Batch(u32),
    /// Descriptors: none, or more than there can be.
    #[error("K of {0}: give 1 to {MOST_DESCRIPTORS} descriptors")]
    Descriptors(u32),
    /// Work or thinking that is no round trip any more.
    #[error("{0} of work or thinking a round trip: give at most {MOST_TIME}")]
    Time(Nanos),
    /// The model moves no task between CPUs.
    #[error("placed freely: give one CPU or two; the model does not move tasks between CPUs")]
    Free,
}

fn validate(cell: &Cell) -> Result<(), CellError> {
    if cell.batch == 0 || cell.batch > MOST_BATCH {
        return Err(CellError::Batch(cell.batch));
    }
    if cell.descriptors == 0 || cell.descriptors > MOST_DESCRIPTORS {
        return Err(CellError::Descriptors(cell.descriptors));
    }
    let work = Nanos(cell.work.0.saturating_mul(u64::from(cell.batch)));
    if work.max(cell.think) > MOST_TIME {
        return Err(CellError::Time(work.max(cell.think)));
    }
    if cell.cpus == Cpus::Free {
        return Err(CellError::Free);
    }
    Ok(())
}

/// Runs `cell` by `rules`: first some round trips that do not count, then `round_trips` that do.
///
/// The same arguments give the same outcome; `seed` decides how much more or less each step takes
/// ([`Prices::spread_per_cent`]). Where `stop` says so, asked every now and then, the outcome is of what was counted
/// so far. Cost: about 0.1 us a step, 20 to 100 steps a request; 4 bytes a round trip.
///
/// # Errors
/// [`CellError`] where a cell makes no sense or is more than the model can tell of.
pub fn run(
    cell: &Cell,
    rules: Rules,
    prices: &Prices,
    round_trips: u64,
    seed: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, CellError> {
    validate(cell)?;
    Ok(machine::Machine::new(cell, rules, prices, seed).run(round_trips, stop))
}

#[cfg(test)]
mod tests;
