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

mod cell;
mod machine;
mod outcome;
mod prices;
mod program;
mod row;
mod scheduler;
mod socket;

use stopgap_events::words;

pub use cell::{
    Cell, CellError, ClientPolicy, ClientWait, Cpus, Kernel, MOST_BATCH, Reply, ServerWait,
};
pub use outcome::{Cause, Outcome, Side, Why};
pub use prices::Prices;
pub use row::{cells, note_bistable, prices, row};

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
    cell.validate()?;
    Ok(machine::Machine::new(cell, rules, prices, seed).run(round_trips, stop))
}

#[cfg(test)]
mod tests;
