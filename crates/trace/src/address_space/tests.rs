//! Held against pages: each page is mapped or not, by the last call that named it.

use super::*;
use crate::tests;
use stopgap_events::random::Random;

const PAGE: u64 = 4_096;
const PRIVATE: u64 = 2;
const FIXED: u64 = 0x10;
const ANONYMOUS_FLAG: u64 = 0x20;

fn row(pid: u32, kind: Kind) -> Event {
    tests::row(pid, pid, kind)
}

fn call(spaces: &mut AddressSpaces, pid: u32, name: &str, arguments: &[u64], result: u64) {
    spaces.event(&row(pid, tests::enter(name, arguments)));
    spaces.event(&row(pid, tests::leave(name, result.cast_signed())));
}

/// The mappings in pages: `start+length`.
fn said(spaces: &AddressSpaces, pid: u32) -> String {
    let space = spaces.process(Some(pid)).unwrap();
    let range = |range: AddressRange| format!("{}+{}", range.start / PAGE, range.length().0 / PAGE);
    space.ranges().map(range).collect::<Vec<_>>().join(" ")
}

fn spaces() -> AddressSpaces {
    AddressSpaces::new(Bytes(PAGE))
}

fn map(spaces: &mut AddressSpaces, pid: u32, page: u64, pages: u64, flags: u64) {
    let arguments = [0, pages * PAGE, 3, flags];
    call(spaces, pid, "mmap", &arguments, page * PAGE);
}

/// ```text
/// 0123456789
/// FFFFFF       a file
/// FFXXFF       its middle executable: three mappings
/// FFFFFF       and as it was: one
///       AA     anonymous memory beside it stays apart,
///       AAAA   more of it does not
/// ```
#[test]
fn mappings_split_and_join_as_the_kernel_keeps_them() {
    let mut spaces = spaces();
    map(&mut spaces, 1, 0, 6, PRIVATE);
    call(&mut spaces, 1, "mprotect", &[2 * PAGE, 2 * PAGE, 5], 0);
    assert_eq!(said(&spaces, 1), "0+2 2+2 4+2");
    call(&mut spaces, 1, "mprotect", &[2 * PAGE, 2 * PAGE, 3], 0);
    assert_eq!(said(&spaces, 1), "0+6");
    map(&mut spaces, 1, 6, 2, PRIVATE | ANONYMOUS_FLAG);
    map(&mut spaces, 1, 8, 2, PRIVATE | ANONYMOUS_FLAG);
    assert_eq!(said(&spaces, 1), "0+6 6+4");
    assert_eq!(spaces.process(Some(1)).unwrap().bytes(), Bytes(10 * PAGE));
}

/// ```text
/// 0         1
/// 0123456789012345
///   AA  A   AAA     four pages between, two holes; what lies outside is none
/// ```
#[test]
fn holes_are_between_what_the_kernel_placed() {
    let mut spaces = spaces();
    for (page, pages) in [(2, 2), (6, 1), (10, 3)] {
        map(&mut spaces, 1, page, pages, PRIVATE | ANONYMOUS_FLAG);
    }
    let fixed = [100 * PAGE, PAGE, 3, PRIVATE | ANONYMOUS_FLAG | FIXED];
    call(&mut spaces, 1, "mmap", &fixed, 100 * PAGE);
    let holes = spaces.process(Some(1)).unwrap().holes().unwrap();
    let expected = Holes {
        count: 2,
        bytes: Bytes(5 * PAGE),
        largest: Bytes(3 * PAGE),
    };
    assert_eq!(holes, expected);
    let mut fixed_only = AddressSpaces::new(Bytes(PAGE));
    call(&mut fixed_only, 1, "mmap", &fixed, 100 * PAGE);
    assert_eq!(fixed_only.process(Some(1)).unwrap().holes(), None);
}

#[test]
fn a_child_has_what_its_parent_had_until_it_runs_another_program() {
    let mut spaces = spaces();
    map(&mut spaces, 1, 4, 2, PRIVATE);
    let fork = Kind::Fork {
        target_tid: 2,
        target_pid: Some(2),
        target_comm: None,
    };
    spaces.event(&row(1, fork));
    call(&mut spaces, 2, "munmap", &[5 * PAGE, PAGE], 0);
    assert_eq!((&*said(&spaces, 1), &*said(&spaces, 2)), ("4+2", "4+1"));
    let exec = Kind::Exec {
        filename: None,
        old_tid: None,
    };
    spaces.event(&row(2, exec));
    assert_eq!((&*said(&spaces, 1), &*said(&spaces, 2)), ("4+2", ""));
}

#[test]
fn the_heap_goes_on_where_it_was() {
    let mut spaces = spaces();
    let counter = Kind::Counter {
        name: HEAP_END.into(),
        value: (50 * PAGE).cast_signed(),
    };
    spaces.event(&row(1, counter));
    call(&mut spaces, 1, "brk", &[53 * PAGE], 53 * PAGE);
    assert_eq!(said(&spaces, 1), "50+3");
    call(&mut spaces, 1, "brk", &[51 * PAGE], 51 * PAGE);
    assert_eq!(said(&spaces, 1), "50+1");
}

/// Random calls: what is mapped is what the last call on each page left, and neighbours of one kind are
/// never two.
#[test]
fn any_calls_leave_the_pages_that_they_say() {
    let mut random = Random::new(7);
    for _ in 0..300 {
        let mut spaces = spaces();
        let mut pages = [0_u64; 64];
        for _ in 0..60 {
            let (page, count) = (random.below(56), 1 + random.below(8));
            let (start, length) = (page * PAGE, count * PAGE);
            let range = usize::try_from(page).unwrap()..usize::try_from(page + count).unwrap();
            let access = random.below(4);
            match random.below(4) {
                0 => {
                    let flags = PRIVATE | FIXED | ANONYMOUS_FLAG;
                    let arguments = [start, length, access, flags];
                    call(&mut spaces, 1, "mmap", &arguments, start);
                    pages[range].fill(4 + access);
                }
                1 => {
                    call(&mut spaces, 1, "munmap", &[start, length], 0);
                    pages[range].fill(0);
                }
                2 => {
                    call(&mut spaces, 1, "mprotect", &[start, length, access], 0);
                    for page in &mut pages[range] {
                        *page = if *page > 0 { 4 + access } else { 0 };
                    }
                }
                _ => {
                    let to = random.below(56);
                    // The kernel refuses to move onto itself.
                    if to.abs_diff(page) < 8 || pages[range.clone()].contains(&0) {
                        continue;
                    }
                    let one = pages[range.start];
                    if pages[range.clone()].iter().any(|&page| page != one) {
                        continue;
                    }
                    let arguments = [start, length, length, 3];
                    call(&mut spaces, 1, "mremap", &arguments, to * PAGE);
                    pages[range].fill(0);
                    let to = usize::try_from(to).unwrap();
                    pages[to..to + usize::try_from(count).unwrap()].fill(one);
                }
            }
            let mut expected = Vec::new();
            for (page, &kind) in (0..).zip(&pages) {
                if kind == 0 {
                    continue;
                }
                match expected.last_mut() {
                    Some((_, end, last)) if *end == page && *last == kind => *end += 1,
                    _ => expected.push((page, page + 1, kind)),
                }
            }
            let expected: Vec<_> = expected
                .iter()
                .map(|(start, end, _)| AddressRange {
                    start: start * PAGE,
                    end: end * PAGE,
                })
                .collect();
            let space = spaces.process(Some(1)).unwrap();
            assert_eq!(space.ranges().collect::<Vec<_>>(), expected);
            assert_eq!(space.mappings(), expected.len() as u64);
        }
    }
    let mut spaces = spaces();
    for value in [0, 1, PAGE - 1, u64::MAX - 1, u64::MAX] {
        for name in ["mmap", "munmap", "mremap", "mprotect", "brk"] {
            call(&mut spaces, 1, name, &[value; 6], value);
            call(&mut spaces, 1, name, &[value; 6], PAGE);
        }
    }
}
