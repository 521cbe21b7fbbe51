//! Other people's range allocators beside our policies.
//!
//! None of them checks a range that it is given back: `offset-allocator` wants its own token, the others
//! trust the caller, where our policies refuse what was never given. None takes an address as a hint;
//! hints are passed over. What a request asks that an allocator has no notion of is
//! [`PlaceError::Lacks`], but for alignment where padding can do it: it is padded then, and the note of the rows says so.

use std::collections::{BTreeMap, BTreeSet};

use offset_allocator::{Allocation, Allocator as Bins};
use range_alloc::RangeAllocator;
use stopgap_models::placement::{Allocator, Entry, Scene, Start};
use stopgap_placement::{Direction, FreeError, Lack, PlaceError, Range, Request, Space};
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

/// All of them.
pub(crate) const ALL: &[fn() -> Entry] = &[
    || {
        let note = "pads for alignment, at most 2^32 - 1 pages, frees by its own token, takes all its memory in the beginning";
        Entry::new("offset-allocator", Some(note), Offsets::new)
    },
    || Entry::new("range-alloc", None, |scene| Ok(RangeAlloc::new(scene))),
    || Entry::new("vm-allocator", None, VmAllocator::new),
    || Entry::new("btree-pair", None, |scene| Ok(TreePair::new(scene))),
];

/// Refuses limits.
fn no_limits(request: &Request) -> Result<(), PlaceError> {
    match request.limits {
        Some(_) => Err(PlaceError::Lacks(Lack::Limits)),
        None => Ok(()),
    }
}

/// Refuses to look from one end: where it looks is the allocator's choice.
fn no_direction(request: &Request) -> Result<(), PlaceError> {
    match request.direction {
        Direction::Any => Ok(()),
        _ => Err(PlaceError::Lacks(Lack::Direction)),
    }
}

/// Refuses an offset of the alignment.
fn no_offset(request: &Request) -> Result<(), PlaceError> {
    match request.offset {
        0 => Ok(()),
        _ => Err(PlaceError::Lacks(Lack::Alignment)),
    }
}

/// `offset-allocator` 0.2: Sebastian Aaltonen's OffsetAllocator in Rust. Bins of sizes 1/8 apart, O(1).
/// It counts 32 bits of units and has no alignment, no limits and no direction.
struct Offsets {
    inner: Bins<u32>,
    base: u64,
    /// A page is 2 to this power: a division would be as slow as all that the allocator does.
    shift: u32,
    nodes: u32,
}

/// Ranges where nobody knows how many there will be.
const USUAL: u64 = 1 << 20;
/// Bytes of a node of `offset-allocator` and of its place in the list of free nodes, by its source.
const NODE: u64 = 28 + 4;

/// Returns the bytes that an aligned request is made larger by.
fn padding(request: &Request, page: u64) -> u64 {
    request.alignment.max(page) - page
}

impl Offsets {
    fn new(scene: Scene) -> Result<Offsets, PlaceError> {
        let (window, page) = (scene.space.window(), scene.space.page());
        // Pages beyond its 32 bits stay unused.
        let units = u32::try_from(window.length() / page).unwrap_or(u32::MAX);
        // A range and the hole beside it, and the two that it keeps back.
        let nodes = scene.live.unwrap_or(USUAL).saturating_mul(2) + 4;
        let nodes = u32::try_from(nodes)
            .ok()
            .filter(|&nodes| nodes < u32::MAX - 1);
        let nodes = nodes.ok_or(PlaceError::Lacks(Lack::Window))?;
        Ok(Offsets {
            inner: Bins::with_max_allocs(units, nodes),
            base: window.start,
            shift: page.trailing_zeros(),
            nodes,
        })
    }
}

impl Allocator for Offsets {
    type Handle = Allocation<u32>;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Allocation<u32>, PlaceError> {
        no_limits(request)?;
        no_direction(request)?;
        let page = 1 << self.shift;
        let bytes = request.size + padding(request, page) + (page - 1);
        let units = u32::try_from(bytes >> self.shift).map_err(|_| PlaceError::Exhausted)?;
        self.inner.allocate(units).ok_or(PlaceError::Exhausted)
    }

    #[inline]
    fn free(&mut self, handle: Allocation<u32>, _: u64) -> Result<(), FreeError> {
        self.inner.free(handle);
        Ok(())
    }

    fn start(&self, handle: Allocation<u32>) -> Option<u64> {
        Some(self.base + (u64::from(handle.offset) << self.shift))
    }

    fn memory(&self) -> Option<u64> {
        Some(u64::from(self.nodes) * NODE)
    }
}

/// `range-alloc` 0.1, of the gfx-rs family: a sorted list of free ranges, best fit, O(holes).
struct RangeAlloc {
    inner: RangeAllocator<u64>,
    page: u64,
}

impl RangeAlloc {
    fn new(scene: Scene) -> RangeAlloc {
        let window = scene.space.window();
        RangeAlloc {
            inner: RangeAllocator::new(window.start..window.end),
            page: scene.space.page(),
        }
    }
}

impl Allocator for RangeAlloc {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        no_limits(request)?;
        no_direction(request)?;
        no_offset(request)?;
        let size = (request.size + self.page - 1) & !(self.page - 1);
        let given = if request.alignment > self.page {
            self.inner.allocate_range_aligned(size, request.alignment)
        } else {
            self.inner.allocate_range(size)
        };
        let given = given.map_err(|_| PlaceError::Exhausted)?;
        Ok(Start::new(given.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        self.inner.free_range(start..start + size);
        Ok(())
    }

    fn start(&self, handle: Start) -> Option<u64> {
        Some(handle.address())
    }
}

/// `vm-allocator` 0.1 of rust-vmm: an interval tree of free and taken ranges, first or last match.
struct VmAllocator {
    inner: AddressAllocator,
    page: u64,
}

impl VmAllocator {
    fn new(scene: Scene) -> Result<VmAllocator, PlaceError> {
        let window = scene.space.window();
        let inner = AddressAllocator::new(window.start, window.length())
            .map_err(|_| PlaceError::Lacks(Lack::Window))?;
        let page = scene.space.page();
        Ok(VmAllocator { inner, page })
    }
}

impl Allocator for VmAllocator {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        no_limits(request)?;
        no_offset(request)?;
        let size = (request.size + self.page - 1) & !(self.page - 1);
        let policy = match request.direction {
            Direction::TopDown => AllocPolicy::LastMatch,
            Direction::Any | Direction::BottomUp => AllocPolicy::FirstMatch,
        };
        let given = self
            .inner
            .allocate(size, request.alignment.max(self.page), policy);
        Ok(Start::new(
            given.map_err(|_| PlaceError::Exhausted)?.start(),
        ))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        let range = RangeInclusive::new(start, start + size - 1);
        let range = range.map_err(|_| FreeError::Malformed)?;
        self.inner.free(&range).map_err(|_| FreeError::NotAsGiven)
    }

    fn start(&self, handle: Start) -> Option<u64> {
        Some(handle.address())
    }
}

/// What one writes in an afternoon: holes by start in one tree and by size in another, best fit.
/// O(log holes), but for aligned and limited requests, which may look at every hole that is large enough.
struct TreePair {
    space: Space,
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_size: BTreeSet<(u64, u64)>,
}

impl TreePair {
    fn new(scene: Scene) -> TreePair {
        let mut pair = TreePair {
            space: scene.space,
            by_start: BTreeMap::new(),
            by_size: BTreeSet::new(),
        };
        pair.add(scene.space.window());
        pair
    }

    fn add(&mut self, hole: Range) {
        if hole.start < hole.end {
            self.by_start.insert(hole.start, hole.end);
            self.by_size.insert((hole.length(), hole.start));
        }
    }

    fn remove(&mut self, hole: Range) {
        self.by_start.remove(&hole.start);
        self.by_size.remove(&(hole.length(), hole.start));
    }
}

impl Allocator for TreePair {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        let need = self.space.need(request)?;
        let mut large = self.by_size.range((need.size, 0)..);
        let found = large.find_map(|&(length, start)| {
            let hole = Range::new(start, start + length);
            Some((hole, need.within(hole)?))
        });
        let (hole, given) = found.ok_or(PlaceError::Exhausted)?;
        self.remove(hole);
        self.add(Range::new(hole.start, given.start));
        self.add(Range::new(given.end, hole.end));
        Ok(Start::new(given.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        let mut hole = Range::new(start, start + size);
        let below = self.by_start.range(..start).next_back();
        if let Some((&start, &end)) = below.filter(|(_, end)| **end == hole.start) {
            self.remove(Range::new(start, end));
            hole.start = start;
        }
        if let Some(&end) = self.by_start.get(&hole.end) {
            self.remove(Range::new(hole.end, end));
            hole.end = end;
        }
        self.add(hole);
        Ok(())
    }

    fn start(&self, handle: Start) -> Option<u64> {
        Some(handle.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_placement::oracle::{Naive, Shape, Step, Walk};
    use stopgap_placement::{Merge, Policy};

    /// Walks random steps of `shape`: what is given must be free, aligned and within its limits.
    fn keeps_the_contract<C: Allocator>(
        make: impl Fn(Scene) -> Result<C, PlaceError>,
        shape: Shape,
        covers: impl Fn(&C, C::Handle, &Request, u64) -> Range,
    ) {
        let window = Range::new(0x1_0000, 0x1_0000 + 4_096 * 0x1000);
        let scene = Scene {
            space: Space::new(window, 0x1000).unwrap(),
            direction: Direction::Any,
            live: Some(1_000),
        };
        let shape = Shape {
            bad: 0,
            hints: false,
            ..shape
        };
        let mut allocator = make(scene).unwrap();
        let mut naive = Naive::new(scene.space, false);
        let mut walk = Walk::new(scene.space, shape, 1);
        let mut held: Vec<(Range, Range, C::Handle)> = Vec::new();
        let (mut placed, mut freed) = (0, 0);
        for _ in 0..20_000 {
            match walk.step() {
                Step::Place(request) => {
                    let Ok(need) = scene.space.need(&request) else {
                        continue;
                    };
                    let Ok(handle) = allocator.place(&request) else {
                        continue;
                    };
                    let taken = covers(&allocator, handle, &request, need.size);
                    let start = need.first_from(taken.start).unwrap();
                    let given = Range::new(start, start + need.size);
                    assert!(taken.contains(given), "{request:?}: {given} of {taken}");
                    assert!(need.limits.contains(given), "{request:?}: {given}");
                    naive.take(taken, Merge::Never).unwrap();
                    walk.gave(given, Merge::Never);
                    held.push((given, taken, handle));
                    placed += 1;
                }
                Step::Free(range) => {
                    let at = held.iter().position(|held| held.0 == range).unwrap();
                    let (given, taken, handle) = held.swap_remove(at);
                    allocator.free(handle, given.length()).unwrap();
                    naive.free(taken).unwrap();
                    walk.took(range);
                    freed += 1;
                }
                Step::Protect(..) => {}
            }
        }
        assert!(placed > 5_000 && freed > 5_000, "{placed}, {freed}");
    }

    fn from_start<C: Allocator>(allocator: &C, handle: C::Handle, _: &Request, size: u64) -> Range {
        let start = allocator.start(handle).unwrap();
        Range::new(start, start + size)
    }

    #[test]
    fn each_keeps_the_contract() {
        let plain = Shape::PLAIN;
        let directed = Shape {
            directions: &[Direction::Any, Direction::TopDown, Direction::BottomUp],
            ..plain
        };
        let aligned = Shape {
            alignment: true,
            ..plain
        };
        keeps_the_contract(|scene| Ok(TreePair::new(scene)), Shape::ALL, from_start);
        keeps_the_contract(VmAllocator::new, directed, from_start);
        keeps_the_contract(|scene| Ok(RangeAlloc::new(scene)), plain, from_start);
        let padded = |c: &Offsets, handle, request: &Request, size| {
            let start = c.start(handle).unwrap();
            Range::new(start, start + size + padding(request, 0x1000))
        };
        keeps_the_contract(Offsets::new, aligned, padded);
    }

    #[test]
    fn what_they_have_no_notion_of_is_said() {
        let space = Space::new(Range::new(0, 1 << 20), 0x1000).unwrap();
        let scene = Scene {
            space,
            direction: Direction::Any,
            live: Some(10),
        };
        let limited = Request {
            limits: Some(Range::new(0, 0x8000)),
            ..Request::of(1)
        };
        let lacks = Err(PlaceError::Lacks(Lack::Limits));
        let mut offsets = Offsets::new(scene).unwrap();
        assert_eq!(offsets.place(&limited).map(|_| ()), lacks);
        let mut vm = VmAllocator::new(scene).unwrap();
        assert_eq!(vm.place(&limited).map(|_| ()), lacks);
        let mut ranges = RangeAlloc::new(scene);
        assert_eq!(ranges.place(&limited).map(|_| ()), lacks);
        let down = Request {
            direction: Direction::TopDown,
            ..Request::of(1)
        };
        let lacks = Err(PlaceError::Lacks(Lack::Direction));
        assert_eq!(offsets.place(&down).map(|_| ()), lacks);
        assert_eq!(ranges.place(&down).map(|_| ()), lacks);
    }
}
