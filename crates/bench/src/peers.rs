//! Other people's range allocators as allocators.
//!
//! None of them checks a range that it is given back: `offset-allocator` wants its own token, the others
//! trust the caller, where our policies refuse what was never given. None takes an address as a hint;
//! hints are passed over. What a request asks that an allocator has no notion of is
//! [`stopgap_placement::PlaceError::Lacks`], but for alignment where padding can do it: it is padded
//! then, and the note of the rows says so.

mod offset_allocator;
mod range_alloc;
mod tree_pair;
mod vm_allocator;

use stopgap_models::placement::Entry;
use stopgap_placement::{Direction, Lack, PlaceError, Request};

/// All of them.
pub(crate) const ALL: &[fn() -> Entry] = &[
    offset_allocator::entry,
    range_alloc::entry,
    vm_allocator::entry,
    tree_pair::entry,
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

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_models::placement::{Allocator, Scene};
    use stopgap_placement::oracle::{Naive, Shape, Step, Walk};
    use stopgap_placement::{Merge, Policy, Range, Space};

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
        let start = allocator.start(handle);
        Range::new(start, start + size)
    }

    const ALIGNED: Shape = Shape {
        alignment: true,
        ..Shape::PLAIN
    };

    #[test]
    fn the_pair_of_trees() {
        keeps_the_contract(
            |scene| Ok(tree_pair::TreePair::new(scene)),
            Shape::ALL,
            from_start,
        );
    }

    #[test]
    fn vm_allocator() {
        let plain = Shape {
            directions: &[Direction::Any, Direction::TopDown, Direction::BottomUp],
            ..Shape::PLAIN
        };
        keeps_the_contract(vm_allocator::VmAllocator::new, plain, from_start);
    }

    #[test]
    fn range_alloc() {
        keeps_the_contract(
            |scene| Ok(range_alloc::RangeAlloc::new(scene)),
            Shape::PLAIN,
            from_start,
        );
    }

    #[test]
    fn offset_allocator_pads() {
        let padded = |c: &offset_allocator::Offsets, handle, request: &Request, size| {
            let start = c.start(handle);
            Range::new(
                start,
                start + size + offset_allocator::padding(request, 0x1000),
            )
        };
        keeps_the_contract(offset_allocator::Offsets::new, ALIGNED, padded);
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
        let mut offsets = offset_allocator::Offsets::new(scene).unwrap();
        assert_eq!(offsets.place(&limited).map(|_| ()), lacks);
        let mut vm = vm_allocator::VmAllocator::new(scene).unwrap();
        assert_eq!(vm.place(&limited).map(|_| ()), lacks);
        let mut ranges = range_alloc::RangeAlloc::new(scene);
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
