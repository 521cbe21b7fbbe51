//! The mappings of processes, from the rows of a trace.

use std::collections::{BTreeMap, HashMap};

use super::recorded::{Call, Mapping};
use super::{Event, Kind};
use stopgap_events::memory::{MemoryEvent, Merge, Protection};
use stopgap_events::range::AddressRange;
use stopgap_events::units::Bytes;

/// The address space of each process of a trace, by its system calls.
///
/// It begins with the `map` rows that have an address and come before the first call of the process
/// (`/proc/PID/maps`, as the recorder read it), or with a copy of its parent's where the trace saw it
/// forked. `exec` empties it: what the kernel itself maps then (the program, its loader, stack, heap,
/// vdso) no system call shows, nor how a stack grows. A trace without calls counts by its `map`
/// and `unmap` rows.
///
/// Memory: about 100 bytes a mapping.
#[derive(Debug)]
pub struct AddressSpaces {
    page: u64,
    processes: HashMap<Option<u32>, AddressSpace>,
    /// The call in which each thread is.
    entered: HashMap<Option<u32>, Call>,
}

impl AddressSpaces {
    /// Returns an empty set of address spaces. A page has `page` bytes, a power of two.
    #[must_use]
    pub fn new(page: Bytes) -> AddressSpaces {
        AddressSpaces {
            page: page.0,
            processes: HashMap::new(),
            entered: HashMap::new(),
        }
    }

    /// Applies the event, and returns whether the address space of its process may have changed.
    /// O(log n) in what is mapped, but for a fork, which copies, and what covers several mappings.
    pub fn event(&mut self, event: &Event) -> bool {
        match &event.kind {
            Kind::Memory {
                event: memory,
                range: Some(range),
            } => {
                let space = self.processes.entry(event.pid).or_default();
                if space.called {
                    return false; // the calls have told it already
                }
                match memory {
                    MemoryEvent::Map {
                        protection, merge, ..
                    } => space.map(*range, access_of(*protection), *merge),
                    MemoryEvent::Unmap { .. } => {
                        space.unmap(*range);
                    }
                    MemoryEvent::Protect { protection, .. } => {
                        space.protect(*range, access_of(*protection));
                    }
                    MemoryEvent::Touch { .. } | MemoryEvent::Begin(_) => return false,
                }
                true
            }
            Kind::Counter { name, value } if **name == *HEAP_END => {
                let space = self.processes.entry(event.pid).or_default();
                if !space.called {
                    space.heap = u64::try_from(*value).ok();
                }
                false
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
                false
            }
            Kind::SyscallExit {
                name: Some(name),
                result,
                ..
            } if Call::is_one(name) => {
                let call = self.entered.remove(&event.tid);
                let space = self.processes.entry(event.pid).or_default();
                space.called = true;
                // Errors are -errno.
                let result = result.and_then(|result| u64::try_from(result).ok());
                match (call.filter(|call| call.word() == &**name), result) {
                    (Some(call), Some(result)) => {
                        space.call(&call, result, self.page);
                        true
                    }
                    _ => false,
                }
            }
            Kind::Fork {
                target_pid: Some(child),
                ..
            } if event.pid.is_some_and(|parent| parent != *child) => {
                if let Some(parent) = self.processes.get(&event.pid) {
                    let mut copy = parent.clone();
                    copy.called = false;
                    self.processes.insert(Some(*child), copy);
                }
                false
            }
            Kind::Exec { .. } => {
                self.processes.insert(event.pid, AddressSpace::default());
                true
            }
            _ => false,
        }
    }

    /// Returns the address space of a process, `None` where no row named the process. `pid` is `None` for rows without one.
    #[must_use]
    pub fn process(&self, pid: Option<u32>) -> Option<&AddressSpace> {
        self.processes.get(&pid)
    }

    /// Forgets a process that has ended.
    pub fn remove(&mut self, pid: Option<u32>) -> Option<AddressSpace> {
        self.processes.remove(&pid)
    }
}

/// The name of the counter that tells where a process's heap ends (brk(2)).
pub const HEAP_END: &str = "heap end";

/// What one process has mapped. Neighbours that the kernel would keep as one mapping are one: anonymous
/// memory of the same access, and parts of what was mapped at once.
///
/// The kernel may keep more than these: it does not join neighbours whose pages or flags (`madvise`,
/// `mlock`) it keeps apart.
#[derive(Debug, Clone, Default)]
pub struct AddressSpace {
    areas: BTreeMap<u64, Area>,
    heap: Option<u64>,
    /// Names for what must not be joined; 0 is anonymous memory.
    maps: u64,
    called: bool,
    placed: Option<AddressRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    end: u64,
    /// As in `PROT_*`.
    access: u8,
    map: u64,
}

/// Holes between mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holes {
    /// How many.
    pub count: u64,
    /// All together.
    pub bytes: Bytes,
    /// The largest.
    pub largest: Bytes,
}

const ANONYMOUS: u64 = 0;

impl AddressSpace {
    /// Mappings.
    #[must_use]
    pub fn mappings(&self) -> u64 {
        self.areas.len() as u64
    }

    /// Returns the bytes that are mapped, in all.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.ranges().map(|range| range.length().0).sum())
    }

    /// The mappings, upwards.
    pub fn ranges(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.areas.iter().map(|(&start, area)| AddressRange {
            start,
            end: area.end,
        })
    }

    /// The mappings, upwards, as a layout says them.
    pub(super) fn layout(&self) -> impl Iterator<Item = (AddressRange, Protection, Merge)> + '_ {
        self.areas.iter().map(|(&start, area)| {
            let range = AddressRange {
                start,
                end: area.end,
            };
            let protection = match area.access {
                access if access & 2 != 0 => Protection::Write,
                0 => Protection::None,
                _ => Protection::Read,
            };
            let merge = match area.map {
                ANONYMOUS => Merge::May,
                _ => Merge::Never,
            };
            (range, protection, merge)
        })
    }

    /// Where its heap ends, as far as the trace said.
    pub(super) fn heap(&self) -> Option<u64> {
        self.heap
    }

    /// Holes between neighbours, from the lowest to the highest address at which the kernel itself put a
    /// mapping (an mmap or mremap without an address) that the trace saw. So the emptiness between heap,
    /// mappings and stack is none. `None` where the trace saw no such call. Linear in what is mapped.
    #[must_use]
    pub fn holes(&self) -> Option<Holes> {
        let placed = self.placed?;
        let mut holes = Holes::default();
        let mut end = None;
        for range in self.ranges() {
            if range.end <= placed.start || range.start >= placed.end {
                continue;
            }
            let hole = end.map_or(0, |end| range.start - end);
            if hole > 0 {
                holes.count += 1;
                holes.bytes.0 += hole;
                holes.largest.0 = holes.largest.0.max(hole);
            }
            end = Some(range.end);
        }
        Some(holes)
    }

    fn call(&mut self, call: &Call, result: u64, page: u64) {
        let range = |start: u64, length: u64| {
            let whole = length.checked_next_multiple_of(page)?;
            AddressRange::new(start, Bytes(whole)).filter(|range| range.start < range.end)
        };
        match call {
            Call::Map(mapping) => {
                let Some(range) = range(result, mapping.length) else {
                    return;
                };
                self.map(range, mapping.access, mapping.merge);
                if mapping.is_placed() {
                    self.places(range);
                }
            }
            Call::Unmap { start, length } => {
                if let Some(range) = range(*start, *length) {
                    self.unmap(range);
                }
            }
            Call::Remap {
                start,
                old,
                new,
                fixed,
                keeps_old,
            } => {
                let Some(new) = range(result, *new) else {
                    return;
                };
                let before = self.at(*start);
                // For a mapping that the trace did not see made.
                let unknown = (2 | 1, Merge::Never);
                let (access, map) = before.map_or_else(
                    || (unknown.0, self.name(unknown.1)),
                    |area| (area.access, area.map),
                );
                if let Some(old) = range(*start, *old)
                    && !keeps_old
                {
                    self.unmap(old);
                }
                self.set(new, access, map);
                if result != *start && !fixed {
                    self.places(new);
                }
            }
            Call::Protect {
                start,
                length,
                access,
                ..
            } => {
                if let Some(range) = range(*start, *length) {
                    self.protect(range, *access);
                }
            }
            Call::Heap => {
                let Some(end) = result.checked_next_multiple_of(page) else {
                    return;
                };
                let before = self.heap.replace(end).unwrap_or(end);
                if end < before {
                    self.unmap(AddressRange {
                        start: end,
                        end: before,
                    });
                } else if end > before {
                    self.map(AddressRange { start: before, end }, 2 | 1, Merge::May);
                }
            }
        }
    }

    fn places(&mut self, range: AddressRange) {
        let placed = self.placed.get_or_insert(range);
        placed.start = placed.start.min(range.start);
        placed.end = placed.end.max(range.end);
    }

    fn name(&mut self, merge: Merge) -> u64 {
        match merge {
            Merge::May => ANONYMOUS,
            Merge::Never => {
                self.maps += 1;
                self.maps
            }
        }
    }

    fn map(&mut self, range: AddressRange, access: u8, merge: Merge) {
        let map = self.name(merge);
        self.set(range, access, map);
    }

    fn set(&mut self, range: AddressRange, access: u8, map: u64) {
        self.unmap(range);
        self.insert(range, access, map);
    }

    /// Puts an area where nothing is, and joins it with its neighbours.
    fn insert(&mut self, mut range: AddressRange, access: u8, map: u64) {
        if range.start >= range.end {
            return;
        }
        let same = |area: &Area| (area.access, area.map) == (access, map);
        if let Some((&start, area)) = self.areas.range(..range.start).next_back()
            && area.end == range.start
            && same(area)
        {
            range.start = start;
        }
        if let Some(area) = self.areas.get(&range.end).copied().filter(same) {
            self.areas.remove(&range.end);
            range.end = area.end;
        }
        let end = range.end;
        self.areas.insert(range.start, Area { end, access, map });
    }

    /// The area in which the address lies.
    fn at(&self, address: u64) -> Option<Area> {
        let (_, area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some(*area)
    }

    fn unmap(&mut self, range: AddressRange) {
        self.cut_out(range);
    }

    fn protect(&mut self, range: AddressRange, access: u8) {
        for (part, area) in self.cut_out(range) {
            self.insert(part, access, area.map);
        }
    }

    /// Takes out what lies in the range.
    fn cut_out(&mut self, range: AddressRange) -> Vec<(AddressRange, Area)> {
        let first = self.areas.range(..=range.start).next_back();
        let first = match first {
            Some((&start, area)) if area.end > range.start => start,
            _ => range.start,
        };
        let within = self.areas.range(first..range.end.max(first));
        let within: Vec<(u64, Area)> = within.map(|(&start, &area)| (start, area)).collect();
        let mut taken = Vec::with_capacity(within.len());
        for (start, area) in within {
            self.areas.remove(&start);
            let mut keep = |start: u64, end: u64| {
                if start < end {
                    self.areas.insert(start, Area { end, ..area });
                }
            };
            keep(start, range.start);
            keep(range.end, area.end);
            let part = AddressRange {
                start: start.max(range.start),
                end: area.end.min(range.end),
            };
            taken.push((part, area));
        }
        taken
    }
}

impl Mapping {
    /// Whether the kernel looked for its place.
    fn is_placed(&self) -> bool {
        !self.fixed && self.placing.hint.is_none()
    }
}

fn access_of(protection: Protection) -> u8 {
    match protection {
        Protection::None => 0,
        Protection::Read => 1,
        Protection::Write => 3,
    }
}

#[cfg(test)]
mod tests;
