//! Events, compiled to what a policy is asked.
//!
//! An operation takes 16 bytes, and what a map asks beyond its size stands once in a table of its
//! batch: a driver that reads operations does hardly anything but read memory in order. Touching is no
//! operation: no policy hears of it. Nor is protecting a mapping that never merges: it stays one VMA.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use stopgap_placement::{Direction, Impossible, Range, Request, Space};
use thiserror::Error;

/// Operations in a batch at most. Their number fits the index of what they ask.
pub const BATCH: usize = 1 << 16;

/// A round of at least so many operations ends a batch, so that it can be timed by itself: in shorter
/// ones it would be the caches that are timed.
pub const ROUND: usize = 1_000;

/// One thing that a policy is to do. Slots are named by the compiler, from 0, and used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Place `size` bytes and keep them in the slot.
    Map {
        /// Which of [`Batch::asks`] it is, its size apart.
        ask: u16,
        /// Where the answer is kept.
        slot: u32,
        /// Bytes, as the event has them.
        size: u64,
    },
    /// Free what is in the slot.
    Unmap {
        /// Which.
        slot: u32,
        /// Bytes in whole pages.
        size: u64,
    },
    /// Change what the first part of it merges with.
    Protect {
        /// The new number to merge with.
        merge: u16,
        /// Which.
        slot: u32,
        /// Bytes from its start in whole pages, at most all.
        size: u64,
    },
}

/// Operations in a row, all of the layout or all measured.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The operations.
    pub operations: Vec<Operation>,
    /// Requests of maps, each once; the size stands in the operation.
    pub asks: Vec<Request>,
    /// Whether they are measured: not of [`Phase::Layout`].
    pub measured: bool,
    /// Slots that operations so far have named.
    pub slots: usize,
    /// Whether a round ends with it.
    pub ends_round: bool,
    /// Whether it begins or continues a round and has only maps.
    pub maps_of_round: bool,
    /// The event of each operation, counted from [`Batch::first`].
    events: Vec<u32>,
    first: u64,
    known: HashMap<Request, u16>,
}

impl Batch {
    /// Index of the event, from 0, that operation `at` comes from.
    #[must_use]
    pub fn event(&self, at: usize) -> u64 {
        self.first + self.events.get(at).map_or(0, |&event| u64::from(event))
    }

    fn clear(&mut self, first: u64) {
        self.operations.clear();
        self.asks.clear();
        self.events.clear();
        self.known.clear();
        self.first = first;
    }

    fn push(&mut self, operation: Operation, event: u64) {
        self.operations.push(operation);
        // Cannot be cut: a batch ends long before 2^32 events of touching.
        self.events
            .push(u32::try_from(event - self.first).unwrap_or(u32::MAX));
    }

    /// The index of `ask`, which has no size.
    fn ask(&mut self, ask: Request) -> u16 {
        // Workloads have few; a trace with an address hint in each map has one a map.
        if let Some(at) = self.asks.iter().take(16).position(|known| *known == ask) {
            return index(at);
        }
        match self.known.entry(ask) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.asks.push(ask);
                *new.insert(index(self.asks.len() - 1))
            }
        }
    }
}

/// Cannot be cut: a batch has at most 2^16 maps, so asks from 0 to 2^16 - 1.
fn index(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// An event that makes no sense where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamError {
    /// Its index in the stream, from 0.
    pub event: u64,
    /// The error.
    pub what: Wrong,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            // A file's reader says where, in the file's own terms.
            Wrong::Unreadable(why) => f.write_str(why),
            what => write!(f, "event {}: {what}", self.event),
        }
    }
}

impl std::error::Error for StreamError {}

/// An error in an event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Wrong {
    /// Its name is in use.
    #[error("maps {0}, which is mapped already")]
    MappedTwice(u32),
    /// Its name is not in use.
    #[error("{1} {0}, which is not mapped")]
    NotMapped(u32, &'static str),
    /// Not even an empty address space could do it.
    #[error("cannot be placed by any policy: {0}")]
    Impossible(Impossible),
    /// More than what is mapped.
    #[error("protects more of {0} than is mapped")]
    ProtectsMore(u32),
    /// Nothing is to be protected.
    #[error("protects 0 bytes of {0}")]
    ProtectsNothing(u32),
    /// The stream could not be read on: where, and why.
    #[error("{0}")]
    Unreadable(String),
}

/// A mapping that is live.
#[derive(Debug, Clone, Copy)]
struct Live {
    size: u64,
    merges: bool,
}

/// Names below this are looked up in a table, others by hashing: recorded names may be anything.
const DENSE: u32 = 1 << 24;

/// Which slot a name has; 0 is none, 1 the first.
#[derive(Debug, Default)]
struct Names {
    dense: Vec<u32>,
    sparse: HashMap<u32, u32>,
}

impl Names {
    fn get(&self, id: MapId) -> Option<u32> {
        let slot = if id.0 < DENSE {
            self.dense.get(id.0 as usize).copied()
        } else {
            self.sparse.get(&id.0).copied()
        };
        slot?.checked_sub(1)
    }

    fn set(&mut self, id: MapId, slot: Option<u32>) {
        let value = slot.map_or(0, |slot| slot + 1);
        if id.0 >= DENSE {
            if value == 0 {
                self.sparse.remove(&id.0);
            } else {
                self.sparse.insert(id.0, value);
            }
            return;
        }
        let at = id.0 as usize;
        if at >= self.dense.len() {
            let length = (at + 1).next_power_of_two();
            self.dense.resize(length, 0);
        }
        self.dense[at] = value;
    }
}

/// Turns a stream of events into batches.
#[derive(Debug)]
pub struct Compiler {
    space: Space,
    direction: Direction,
    /// Operations in a batch at most.
    batch: usize,
    names: Names,
    live: Vec<Option<Live>>,
    vacant: Vec<u32>,
    event: u64,
    measured: bool,
    /// Whether a measured operation has been compiled: all later ones are measured.
    begun: bool,
    over: bool,
    /// Operations of the round under way.
    round: usize,
    /// Whether those are all maps.
    only_maps: bool,
    /// The first unmap after a round's maps, and its event: it begins the next batch.
    held: Option<(Operation, u64)>,
}

impl Compiler {
    /// For policies that fill `space`; every map asks for `direction`.
    #[must_use]
    pub fn new(space: Space, direction: Direction) -> Compiler {
        Compiler {
            space,
            direction,
            batch: BATCH,
            names: Names::default(),
            live: Vec::new(),
            vacant: Vec::new(),
            event: 0,
            measured: true,
            begun: false,
            over: false,
            round: 0,
            only_maps: true,
            held: None,
        }
    }

    /// Fills batches with at most `operations`, up to [`BATCH`].
    #[must_use]
    pub fn in_batches_of(mut self, operations: usize) -> Compiler {
        self.batch = operations.clamp(1, BATCH);
        self
    }

    /// Slots that were live at one time at most.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.live.len()
    }

    /// Bytes in whole pages of what each slot holds; 0 where it is empty.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.live
            .iter()
            .map(|live| live.map_or(0, |live| live.size))
    }

    /// Fills `batch` with what comes next, up to a whole batch or the next change of phase.
    /// `false` where nothing is left.
    ///
    /// # Errors
    /// [`StreamError`], which names the event.
    pub fn fill<I>(&mut self, events: &mut I, batch: &mut Batch) -> Result<bool, StreamError>
    where
        I: Iterator<Item = Result<MemoryEvent, String>> + ?Sized,
    {
        batch.clear(self.held.map_or(self.event, |(_, event)| event));
        batch.measured = self.measured;
        batch.ends_round = false;
        batch.maps_of_round = self.only_maps;
        if let Some((operation, event)) = self.held.take() {
            batch.push(operation, event);
        }
        while !self.over && batch.operations.len() < self.batch {
            let at = self.event;
            let error = |what| StreamError { event: at, what };
            let Some(event) = events.next() else {
                self.over = true;
                break;
            };
            let event = event.map_err(|why| error(Wrong::Unreadable(why)))?;
            self.event += 1;
            if let MemoryEvent::Begin(phase) = event {
                let measured = self.begun || phase != Phase::Layout;
                if measured != self.measured {
                    self.measured = measured;
                    (self.round, self.only_maps) = (0, true);
                    if batch.operations.is_empty() {
                        batch.measured = measured;
                        continue;
                    }
                    break;
                }
                if phase == Phase::Round && self.round >= ROUND {
                    self.round = 0;
                    self.only_maps = true;
                    batch.ends_round = true;
                    break;
                }
            } else if let Some(operation) = self.operation(event, batch).map_err(error)? {
                self.begun |= self.measured;
                self.round += 1;
                let maps = matches!(operation, Operation::Map { .. });
                if self.only_maps && !maps {
                    self.only_maps = false;
                    if self.round > ROUND && !batch.operations.is_empty() {
                        self.held = Some((operation, at));
                        break;
                    }
                    batch.maps_of_round = false;
                }
                batch.push(operation, at);
            }
        }
        batch.slots = self.live.len();
        Ok(!batch.operations.is_empty() || !self.over)
    }

    fn operation(
        &mut self,
        event: MemoryEvent,
        batch: &mut Batch,
    ) -> Result<Option<Operation>, Wrong> {
        match event {
            MemoryEvent::Map {
                id,
                length,
                protection,
                merge,
                placing,
            } => {
                if self.names.get(id).is_some() {
                    return Err(Wrong::MappedTwice(id.0));
                }
                let merges = merge == Merge::May;
                let mut ask = self.request(placing);
                if merges {
                    ask.merge = stopgap_placement::Merge::With(u32::from(number(protection)));
                }
                let whole = Request {
                    size: length.0,
                    ..ask
                };
                let need = self.space.need(&whole).map_err(Wrong::Impossible)?;
                let slot = self.take(Live {
                    size: need.size,
                    merges,
                });
                self.names.set(id, Some(slot));
                Ok(Some(Operation::Map {
                    ask: batch.ask(ask),
                    slot,
                    size: length.0,
                }))
            }
            MemoryEvent::Unmap { id } => {
                let (slot, live) = self.find(id, "unmaps")?;
                self.live[slot as usize] = None;
                self.vacant.push(slot);
                self.names.set(id, None);
                let size = live.size;
                Ok(Some(Operation::Unmap { slot, size }))
            }
            MemoryEvent::Protect {
                id,
                length,
                protection,
            } => {
                let (slot, live) = self.find(id, "protects")?;
                if length.0 == 0 {
                    return Err(Wrong::ProtectsNothing(id.0));
                }
                let size = self.space.page_up(length.0);
                let size = size.filter(|&size| size <= live.size);
                let size = size.ok_or(Wrong::ProtectsMore(id.0))?;
                let merge = number(protection);
                Ok(live
                    .merges
                    .then_some(Operation::Protect { merge, slot, size }))
            }
            MemoryEvent::Touch { id } => self.find(id, "touches").map(|_| None),
            MemoryEvent::Begin(_) => Ok(None),
        }
    }

    fn request(&self, placing: Placing) -> Request {
        Request {
            size: 0,
            // 0, too, means a page.
            alignment: placing.alignment.0.max(1),
            offset: placing.offset.0,
            limits: placing.limits.map(|to| Range::new(to.start, to.end)),
            direction: self.direction,
            hint: placing.hint,
            merge: stopgap_placement::Merge::Never,
        }
    }

    fn find(&self, id: MapId, doing: &'static str) -> Result<(u32, Live), Wrong> {
        let slot = self.names.get(id);
        let live = slot.and_then(|slot| Some((slot, self.live[slot as usize]?)));
        live.ok_or(Wrong::NotMapped(id.0, doing))
    }

    /// A slot for what is live now.
    fn take(&mut self, live: Live) -> u32 {
        if let Some(slot) = self.vacant.pop() {
            self.live[slot as usize] = Some(live);
            return slot;
        }
        self.live.push(Some(live));
        // Cannot be cut: names are of 32 bits, and each has one slot at a time.
        u32::try_from(self.live.len() - 1).unwrap_or(u32::MAX)
    }
}

/// The number that mappings of this protection merge with.
fn number(protection: Protection) -> u16 {
    match protection {
        Protection::None => 0,
        Protection::Read => 1,
        Protection::Write => 2,
    }
}

#[cfg(test)]
mod tests;
