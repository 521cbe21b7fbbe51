//! One allocator with its slots, its counts and its limits.
//!
//! The trait object [`Execute`] is called once for each batch; the loop over the batch's operations
//! is compiled for each allocator, so that a policy of some nanoseconds is called directly.

use std::ops::Range as Part;

use stopgap_placement::{FreeError, Lack, Merge, PlaceError, Request, Work};

use super::allocator::Allocator;
use super::operation::{Batch, Operation};

/// Operations between two looks at the limits.
const LOOK: usize = 128;

/// Visits of an operation that are not counted against the limit: more than a search through a tree of
/// a hundred million mappings takes, so that only those are stopped that scan.
pub const SEARCH: u64 = 64;

/// Where an allocator is stopped.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// After this many visits in one pass beyond [`SEARCH`] an operation: the policies that scan all
    /// mappings would take hours.
    pub visits: u64,
    /// After this much time in one pass, in nanoseconds, for those that do not count visits.
    pub ns: u64,
}

/// Why an allocator stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It reached [`Limits::visits`], after so many.
    Visits(u64),
    /// It reached [`Limits::ns`].
    Time(u64),
    /// It lacks a part of the contract.
    Lacks(Lack),
}

/// An allocator answered what it must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The operation's place in its batch.
    pub at: usize,
    /// The wrong answer.
    pub what: String,
}

/// Counts of an allocator in the measured part.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Operations carried out.
    pub operations: u64,
    /// Maps that gave a range.
    pub maps: u64,
    /// Maps refused as exhausted.
    pub failures: u64,
    /// Its work; `None` where it does not count.
    pub work: Option<Work>,
    /// Ranges held at the end.
    pub live: u64,
    /// Bytes held at the end, and from the first of them to the last; `None` where nothing is held,
    /// or an allocator that keeps no statistics was stopped.
    pub used_and_span: Option<(u64, u64)>,
    /// Memory that its structures take at the end, in bytes.
    pub memory: Option<u64>,
}

/// How operations are timed.
pub enum Timing<'a> {
    /// Not here; the caller times the whole.
    Whole,
    /// Each operation by itself.
    Each {
        /// Takes the times, in the order of the operations.
        into: &'a mut Vec<u32>,
        /// Cost of reading the clock twice, in nanoseconds.
        cost: u64,
    },
}

/// An allocator that executes operations.
pub trait Execute {
    /// Carries out `part` of a batch, and says how many operations it came to: fewer where it stops.
    ///
    /// # Errors
    /// [`Fault`]: the allocator breaks the contract.
    fn carry_out(
        &mut self,
        batch: &Batch,
        part: Part<usize>,
        now: &dyn Fn() -> u64,
        timing: Timing<'_>,
    ) -> Result<usize, Fault>;

    /// From here on it is measured.
    fn measure(&mut self);

    /// Why it stopped, once it has.
    fn stopped(&self) -> Option<Stop>;

    /// What it did since [`Execute::measure`], and holds; `sizes` says for each slot how much it holds
    /// if its map gave a range. May walk everything that is held.
    fn facts(&self, sizes: &mut dyn Iterator<Item = u64>) -> Facts;
}

/// An allocator with its slots, counts and limits.
pub(super) struct Execution<C: Allocator> {
    allocator: C,
    slots: Vec<Option<C::Handle>>,
    requests: Vec<Request>,
    limits: Limits,
    spent: u64,
    carried: u64,
    stop: Option<Stop>,
    facts: Facts,
    before: Option<Work>,
}

/// Reason to stop the loop over operations.
enum Halt {
    Lacks(Lack),
    Broken(String),
}

impl<C: Allocator> Execution<C> {
    pub(super) fn new(allocator: C, limits: Limits) -> Execution<C> {
        Execution {
            before: allocator.work(),
            allocator,
            slots: Vec::new(),
            requests: Vec::new(),
            limits,
            spent: 0,
            carried: 0,
            stop: None,
            facts: Facts::default(),
        }
    }

    #[inline(always)]
    fn one(&mut self, operation: Operation) -> Result<(), Halt> {
        match operation {
            Operation::Map { ask, slot, size } => {
                let request = &mut self.requests[usize::from(ask)];
                request.size = size;
                match self.allocator.place(request) {
                    Ok(handle) => {
                        self.slots[slot as usize] = Some(handle);
                        self.facts.maps += 1;
                    }
                    Err(PlaceError::Exhausted) => {
                        self.slots[slot as usize] = None;
                        self.facts.failures += 1;
                    }
                    Err(other) => return Err(refused(other)),
                }
            }
            Operation::Unmap { slot, size } => {
                if let Some(handle) = self.slots[slot as usize].take() {
                    self.allocator.free(handle, size).map_err(broken)?;
                }
            }
            Operation::Protect { merge, slot, size } => {
                if let Some(handle) = self.slots[slot as usize] {
                    let merge = Merge::With(u32::from(merge));
                    self.allocator
                        .protect(handle, size, merge)
                        .map_err(broken)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a limit is reached.
    fn over(&self, spent: impl FnOnce() -> u64) -> Option<Stop> {
        let Limits { visits, ns } = self.limits;
        match self.allocator.work() {
            Some(work) => {
                let beyond = work.visited.saturating_sub(SEARCH * self.carried);
                (beyond >= visits).then_some(Stop::Visits(work.visited))
            }
            None => (spent() >= ns).then_some(Stop::Time(ns)),
        }
    }
}

#[cold]
fn refused(error: PlaceError) -> Halt {
    match error {
        PlaceError::Lacks(what) => Halt::Lacks(what),
        other => Halt::Broken(other.to_string()),
    }
}

#[cold]
fn broken(error: FreeError) -> Halt {
    Halt::Broken(error.to_string())
}

impl<C: Allocator> Execute for Execution<C> {
    fn carry_out(
        &mut self,
        batch: &Batch,
        part: Part<usize>,
        now: &dyn Fn() -> u64,
        mut timing: Timing<'_>,
    ) -> Result<usize, Fault> {
        if self.stop.is_some() {
            return Ok(0);
        }
        let began = now();
        self.requests.clone_from(&batch.asks);
        if self.slots.len() < batch.slots {
            self.slots.resize(batch.slots, None);
        }
        let first = part.start;
        let operations = &batch.operations[part];
        for (index, chunk) in operations.chunks(LOOK).enumerate() {
            let done = index * LOOK;
            let mut carried = 0;
            let mut halted = None;
            for &operation in chunk {
                let result = match &mut timing {
                    Timing::Whole => self.one(operation),
                    Timing::Each { into, cost } => {
                        let start = now();
                        let result = self.one(operation);
                        let length = now().saturating_sub(start);
                        let length = length.saturating_sub(*cost);
                        into.push(u32::try_from(length).unwrap_or(u32::MAX));
                        result
                    }
                };
                if let Err(halt) = result {
                    halted = Some(halt);
                    break;
                }
                carried += 1;
            }
            self.facts.operations += carried as u64;
            self.carried += carried as u64;
            let at = done + carried;
            self.stop = match halted {
                Some(Halt::Broken(what)) => {
                    return Err(Fault {
                        at: first + at,
                        what,
                    });
                }
                Some(Halt::Lacks(what)) => Some(Stop::Lacks(what)),
                None => self.over(|| self.spent + now().saturating_sub(began)),
            };
            if self.stop.is_some() {
                return Ok(at);
            }
        }
        self.spent += now().saturating_sub(began);
        Ok(operations.len())
    }

    fn measure(&mut self) {
        self.facts = Facts::default();
        self.before = self.allocator.work();
    }

    fn stopped(&self) -> Option<Stop> {
        self.stop
    }

    fn facts(&self, sizes: &mut dyn Iterator<Item = u64>) -> Facts {
        let mut facts = self.facts.clone();
        facts.live = self.slots.iter().flatten().count() as u64;
        facts.work = self.allocator.work().zip(self.before).map(since);
        if let Some(held) = self.allocator.statistics() {
            facts.memory = Some(held.memory);
            facts.used_and_span = held.span.map(|span| (held.used, span.length()));
        } else {
            facts.memory = self.allocator.memory();
            // The sizes are the stream's at its end, which a stopped one has not seen.
            if self.stop.is_none() {
                facts.used_and_span = self.used_and_span(sizes);
            }
        }
        facts
    }
}

impl<C: Allocator> Execution<C> {
    /// Bytes that the slots hold, and from the first to the last.
    fn used_and_span(&self, sizes: &mut dyn Iterator<Item = u64>) -> Option<(u64, u64)> {
        let (mut used, mut first, mut last) = (0, u64::MAX, 0);
        for (slot, size) in self.slots.iter().zip(sizes) {
            let Some(handle) = slot else { continue };
            let start = self.allocator.start(*handle)?;
            first = first.min(start);
            last = last.max(start.wrapping_add(size));
            used += size;
        }
        (used > 0).then(|| (used, last.saturating_sub(first)))
    }
}

/// Returns the work done between two readings.
fn since((after, before): (Work, Work)) -> Work {
    Work {
        placed: after.placed - before.placed,
        visited: after.visited - before.visited,
        descended: after.descended - before.descended,
        propagated: after.propagated - before.propagated,
        resets: after.resets - before.resets,
        full_scans: after.full_scans - before.full_scans,
        flushes: after.flushes - before.flushes,
    }
}
