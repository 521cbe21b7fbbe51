//! The requests of a recorded program to its memory map, from its system calls.

mod call;
mod space;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use super::address_space::{AddressSpaces, HEAP_END};
use super::{Event, Kind};
pub(super) use call::{Call, Mapping};
use space::{Piece, Space};
use stopgap_events::machine::Missing;
use stopgap_events::memory::{MapId, MemoryEvent, Merge, Phase, Placing, Protection};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

/// Turns the system calls of one process into memory events that a policy can carry out.
///
/// Its threads share its memory map; a call counts where it ends, if it did not fail. `map` rows of
/// the process with an address that come before its first call are what was mapped when the recording
/// began: they are given back as the layout, each at its address. A process that was forked within the
/// trace has what its parent had mapped then as its layout, unless it runs another program.
///
/// A recording may do what memory events cannot say, and each is counted ([`Recorded::missing`]):
/// * a part of a mapping is unmapped: the mapping goes, and what is left of it is mapped again;
/// * a mapping grows or shrinks where it is (`mremap`): it goes, and is mapped again;
/// * mappings put over mapped addresses (`MAP_FIXED`, as a program's loader does) look for no place
///   and change none: they are left out;
/// * a protection from the middle of a mapping on is left out;
/// * what is unmapped, moved or protected and was not mapped in the trace is left out.
///
/// What is put at an address (`MAP_FIXED`, `brk`, a hint) asks for that address as a hint: a policy
/// that has put something else there puts it elsewhere. Flags are those of x86-64 and arm64. Memory: a
/// hundred bytes a live mapping.
#[derive(Debug)]
pub struct Recorded {
    process: Option<u32>,
    page: u64,
    space: Space,
    /// The call in which each thread is.
    entered: HashMap<Option<u32>, Call>,
    /// Names that are free again, then those that never were used.
    vacant: Vec<MapId>,
    next: u32,
    /// The end of the heap.
    heap: Option<u64>,
    /// Whether layout came, whether a call.
    layout: bool,
    begun: bool,
    /// Whether it ran another program.
    exec: bool,
    /// The other processes, until this one has begun.
    others: Option<AddressSpaces>,
    /// Mappings that it inherited from its parent.
    inherited: Vec<(AddressRange, Protection, Merge)>,
    counts: Counts,
}

/// Calls that are replayed in another way, or not at all.
#[derive(Debug, Default)]
struct Counts {
    cut: u64,
    resized: u64,
    over: u64,
    inside: u64,
    unknown: u64,
    torn: u64,
    nonsense: u64,
}

impl Recorded {
    /// The calls of `process`, where pages have `page` bytes (a power of two). `None` is the process
    /// of rows that name none.
    #[must_use]
    pub fn new(process: Option<u32>, page: u64) -> Recorded {
        Recorded {
            process,
            page,
            space: Space::default(),
            entered: HashMap::new(),
            vacant: Vec::new(),
            next: 0,
            heap: None,
            layout: false,
            begun: false,
            exec: false,
            others: process.map(|_| AddressSpaces::new(Bytes(page))),
            inherited: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Whether the event is the end of a call that changes a memory map, by its name.
    #[must_use]
    pub fn is_call(event: &Event) -> bool {
        matches!(&event.kind, Kind::SyscallExit { name: Some(name), .. } if Call::is_one(name))
    }

    /// Adds what the event asks, if it is of the process, to `to`.
    pub fn event(&mut self, event: &Event, to: &mut VecDeque<MemoryEvent>) {
        if event.pid != self.process {
            self.other(event);
            return;
        }
        match &event.kind {
            Kind::Memory {
                event:
                    MemoryEvent::Map {
                        length,
                        protection,
                        merge,
                        ..
                    },
                range: Some(range),
            } if !self.begun => {
                self.lay_out(*range, *length, (*protection, *merge), to);
            }
            Kind::Counter { name, value } if **name == *HEAP_END && !self.begun => {
                self.heap = u64::try_from(*value).ok();
            }
            Kind::SyscallEnter {
                name: Some(name),
                arguments,
                ..
            } => {
                match Call::parse(name, arguments) {
                    Some(call) => self.entered.insert(event.tid, call),
                    None => self.entered.remove(&event.tid),
                };
            }
            Kind::SyscallExit {
                name: Some(name),
                result,
                ..
            } if Call::is_one(name) => {
                self.begin(to);
                let call = self
                    .entered
                    .remove(&event.tid)
                    .filter(|call| call.word() == &**name);
                match (call, result) {
                    (Some(call), Some(result)) => {
                        // Errors are -errno, from -4095 on (include/linux/err.h).
                        if let Ok(result) = u64::try_from(*result) {
                            self.call(&call, result, to);
                        }
                    }
                    _ => self.counts.torn += 1,
                }
            }
            // Another program has a memory map of its own.
            Kind::Exec { .. } => {
                self.clear(
                    AddressRange {
                        start: 0,
                        end: u64::MAX,
                    },
                    to,
                );
                self.heap = None;
                self.inherited.clear();
                self.exec = true;
            }
            _ => {}
        }
    }

    /// Follows another process, whose child this one may be.
    fn other(&mut self, event: &Event) {
        let Some(others) = &mut self.others else {
            return;
        };
        others.event(event);
        if let Kind::Fork { target_pid, .. } = event.kind
            && target_pid == self.process
            && !self.layout
            && let Some(parent) = others.process(event.pid)
        {
            self.inherited = parent.layout().collect();
            self.heap = parent.heap();
        }
    }

    /// The first call has come.
    fn begin(&mut self, to: &mut VecDeque<MemoryEvent>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.others = None;
        for (range, protection, merge) in std::mem::take(&mut self.inherited) {
            self.lay_out(range, range.length(), (protection, merge), to);
        }
        if self.layout {
            to.push_back(MemoryEvent::Begin(Phase::Steady));
        }
    }

    fn lay_out(
        &mut self,
        range: AddressRange,
        length: Bytes,
        kind: (Protection, Merge),
        to: &mut VecDeque<MemoryEvent>,
    ) {
        if !std::mem::replace(&mut self.layout, true) {
            to.push_back(MemoryEvent::Begin(Phase::Layout));
        }
        self.clear(range, to);
        self.map(range, length, kind, at(range.start), to);
    }

    /// Returns how the events so far differ from the recording, and what they leave out.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let c = &self.counts;
        let mut all = Vec::new();
        let mut say = |count: u64, what: &str, why: &str| {
            if count > 0 {
                all.push(Missing::new(format!("{count} {what}"), why));
            }
        };
        say(
            c.cut,
            "mappings of which a part was unmapped",
            "replayed as an unmap of all and a map of what is left, which may go elsewhere",
        );
        say(
            c.resized,
            "mappings that mremap resized in place",
            "replayed as an unmap and a map, which may go elsewhere",
        );
        say(
            c.over,
            "mappings put over what is mapped (MAP_FIXED)",
            "left out: they look for no place and take none",
        );
        say(
            c.inside,
            "protections that begin inside of a mapping",
            "left out: a replay protects a mapping from its start on",
        );
        say(
            c.unknown,
            "unmaps, moves or protections of what the trace did not map",
            "left out: mapped before the recording began, or lost",
        );
        say(
            c.torn,
            "calls without their begin, arguments or result",
            "left out: the trace does not have them",
        );
        say(
            c.nonsense,
            "calls whose range is none",
            "left out: they leave the address space or have no byte",
        );
        if self.exec {
            all.push(Missing::new(
                "what exec mapped",
                "the program, its loader, its stack, the start of its heap and the vdso: the kernel maps them itself, and no system call tells",
            ));
        } else if !self.layout {
            all.push(Missing::new(
                "what was mapped before",
                "the trace has no map rows with an address before the first call, so the replay begins with nothing mapped",
            ));
        }
        all
    }

    fn call(&mut self, call: &Call, result: u64, to: &mut VecDeque<MemoryEvent>) {
        match call {
            Call::Map(mapping) => self.mmap(mapping, result, to),
            Call::Unmap { start, length } => {
                let Some(range) = self.range(*start, *length) else {
                    return;
                };
                if !self.clear(range, to) {
                    self.counts.unknown += 1;
                }
            }
            Call::Remap {
                start,
                old,
                new,
                fixed,
                keeps_old,
            } => {
                if self.space.at(*start).is_none() {
                    self.counts.unknown += 1;
                }
                let kind = self
                    .space
                    .at(*start)
                    .map_or((Protection::Write, Merge::Never), |piece| {
                        (piece.protection, piece.merge)
                    });
                // An old length of 0 makes a second mapping of a shared one.
                let old = match old {
                    0 => None,
                    old => self.range(*start, *old),
                };
                let Some(new) = self.range(result, *new) else {
                    return;
                };
                if result == *start {
                    self.counts.resized += u64::from(old != Some(new));
                    if let (Some(old), true) = (old, old != Some(new)) {
                        self.clear(old, to);
                        self.clear(new, to);
                        self.map(new, new.length(), kind, Placing::ANYWHERE, to);
                    }
                    return;
                }
                self.clear(new, to);
                let placing = if *fixed {
                    at(new.start)
                } else {
                    Placing::ANYWHERE
                };
                // The kernel finds the new place while the old one is taken.
                self.map(new, new.length(), kind, placing, to);
                if let (Some(old), false) = (old, keeps_old) {
                    self.clear(old, to);
                }
            }
            Call::Protect {
                start,
                length,
                protection,
                ..
            } => {
                let Some(range) = self.range(*start, *length) else {
                    return;
                };
                let pieces = self.space.within(range);
                self.counts.unknown += u64::from(pieces.is_empty());
                for piece in pieces {
                    if piece.range.start < range.start {
                        self.counts.inside += 1;
                        continue;
                    }
                    let end = piece.range.end.min(range.end);
                    to.push_back(MemoryEvent::Protect {
                        id: piece.id,
                        length: Bytes(end - piece.range.start),
                        protection: *protection,
                    });
                }
            }
            Call::Heap => {
                let Some(end) = self.page_up(result) else {
                    return;
                };
                // The first that is heard of it tells where it is, not how much of it there is.
                let before = self.heap.replace(end).unwrap_or(end);
                if end < before {
                    let shrunk = AddressRange {
                        start: end,
                        end: before,
                    };
                    if !self.clear(shrunk, to) {
                        self.counts.unknown += 1;
                    }
                } else if end > before {
                    let grown = AddressRange { start: before, end };
                    self.clear(grown, to);
                    let kind = (Protection::Write, Merge::May);
                    self.map(grown, grown.length(), kind, at(before), to);
                }
            }
        }
    }

    fn mmap(&mut self, mapping: &Mapping, start: u64, to: &mut VecDeque<MemoryEvent>) {
        let Some(range) = self.range(start, mapping.length) else {
            return;
        };
        if mapping.fixed && self.space.covers(range) {
            self.counts.over += 1;
            return;
        }
        // What is not unmapped here was, and that is not in the trace; or it is put over.
        self.clear(range, to);
        let kind = (mapping.protection, mapping.merge);
        let length = Bytes(mapping.length);
        self.map(range, length, kind, mapping.placing, to);
    }

    fn map(
        &mut self,
        range: AddressRange,
        length: Bytes,
        (protection, merge): (Protection, Merge),
        placing: Placing,
        to: &mut VecDeque<MemoryEvent>,
    ) {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.next += 1;
            MapId(self.next - 1)
        });
        self.space.insert(Piece {
            range,
            id,
            protection,
            merge,
        });
        to.push_back(MemoryEvent::Map {
            id,
            length,
            protection,
            merge,
            placing,
        });
    }

    /// Unmaps what lies in the range; whether anything did.
    fn clear(&mut self, range: AddressRange, to: &mut VecDeque<MemoryEvent>) -> bool {
        let pieces = self.space.within(range);
        for piece in &pieces {
            self.space.remove(piece);
            to.push_back(MemoryEvent::Unmap { id: piece.id });
            self.vacant.push(piece.id);
        }
        for piece in &pieces {
            let before = (piece.range.start, range.start);
            let after = (range.end, piece.range.end);
            let left = [before, after].map(|(start, end)| AddressRange { start, end });
            let left = left.into_iter().filter(|left| left.start < left.end);
            let kind = (piece.protection, piece.merge);
            let mut is_cut = false;
            for left in left {
                is_cut = true;
                self.map(left, left.length(), kind, Placing::ANYWHERE, to);
            }
            self.counts.cut += u64::from(is_cut);
        }
        !pieces.is_empty()
    }

    /// Whole pages; counted where it is no range.
    fn range(&mut self, start: u64, length: u64) -> Option<AddressRange> {
        let whole = self.page_up(length).filter(|&length| length > 0);
        let range = whole.and_then(|length| AddressRange::new(start, Bytes(length)));
        self.counts.nonsense += u64::from(range.is_none());
        range
    }

    fn page_up(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.page)
    }
}

/// At that address, if it is free.
fn at(address: u64) -> Placing {
    Placing {
        hint: Some(address),
        ..Placing::ANYWHERE
    }
}
