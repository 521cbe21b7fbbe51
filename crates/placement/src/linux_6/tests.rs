use alloc::vec::Vec;

use super::*;
use crate::oracle::{Answer, Differential, Naive, Shape, linux_6};

/// A page in most of these tests: small, so that a PMD, 8 pages of 64 bytes, is soon reached.
const P: u64 = 64;
const PMD: u64 = 512;

type Make = fn(Space) -> Linux6;
type Rule = fn(&Naive, &Need) -> Option<u64>;
const POLICIES: [(Make, Rule); 3] = [
    (Linux6::v6_1, linux_6::linux_6_1),
    (Linux6::v6_7, linux_6::linux_6_7),
    (Linux6::v6_12, linux_6::linux_6_12),
];

fn space(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * P), P).unwrap()
}

fn levels(policy: &Linux6) -> usize {
    policy.tree.height + 1
}

#[test]
fn addresses_are_those_of_the_rules() {
    for (seed, pages) in [48, 300, 1500, 40_000].into_iter().enumerate() {
        for merging in [false, true] {
            for (make, rule) in POLICIES {
                let shape = Shape {
                    merging,
                    pages: 30,
                    live: 30,
                    ..Shape::ALL
                };
                let policy = make(space(0x40, pages));
                let mut run =
                    Differential::new(policy, Answer::Rule(rule), shape, seed as u64 * 10 + 1);
                run.run(6_000, 1).unwrap();
                let counts = run.counts();
                assert!(counts[1] > 500 && counts[2] > 100, "{counts:?}");
                assert!(pages >= 1500 || counts[0] > 100, "{counts:?}");
            }
        }
    }
}

#[test]
fn so_they_are_in_a_tree_of_many_levels() {
    for (seed, merging, make, rule) in [
        (1, false, POLICIES[0].0, POLICIES[0].1),
        (2, true, POLICIES[1].0, POLICIES[1].1),
        (3, false, POLICIES[2].0, POLICIES[2].1),
    ] {
        let shape = Shape {
            merging,
            live: 2_000,
            ..Shape::ALL
        };
        let policy = make(space(0x10_0000, 14_000));
        let mut run = Differential::new(policy, Answer::Rule(rule), shape, seed);
        run.run(6_000, 40).unwrap();
        let holes = run.policy().statistics().holes;
        assert!(levels(run.policy()) >= 4 && holes > 100, "{holes} holes");
    }
}

/// Three kernels answer one request of 2 MiB and one page, and one of 2 MiB, on 4 KiB pages.
///
/// ```text
/// 0     2     4     6     8   MiB
/// |. . .|. . .|. . .|. . p|     p: a page that is taken
/// |. . .|. . .|. ***|***pp|     6.1, 6.12: 2 MiB + a page, right below
/// |. . .|. . .|*****|*. pp|     6.7: from a multiple of 2 MiB
/// |. . .|. . .|*****|. . p|     6.7, 6.12: 2 MiB
/// ```
#[test]
fn huge_pages_as_each_kernel_has_them() {
    let mib = 1 << 20;
    let space = Space::new(Range::new(0, 8 * mib), 0x1000).unwrap();
    let start = |make: fn(Space) -> Linux6, request: Request| {
        let mut policy = make(space);
        policy.place(&Request::of(0x1000)).unwrap();
        policy.place(&request).unwrap().start
    };
    let top = 8 * mib - 0x1000;
    let odd = Request::of(2 * mib + 0x1000);
    let whole = Request::of(2 * mib);
    assert_eq!(start(Linux6::v6_1, odd), top - odd.size);
    assert_eq!(start(Linux6::v6_7, odd), 4 * mib);
    assert_eq!(start(Linux6::v6_12, odd), top - odd.size);
    assert_eq!(start(Linux6::v6_1, whole), top - whole.size);
    assert_eq!(start(Linux6::v6_7, whole), 4 * mib);
    assert_eq!(start(Linux6::v6_12, whole), 4 * mib);
    // Neither with alignment of its own, nor with a hint, free or not.
    let aligned = Request {
        alignment: 0x2000,
        ..whole
    };
    assert_eq!(start(Linux6::v6_12, aligned), top - 0x1000 - whole.size);
    for (hint, given) in [(0x5000, 0x5000), (top, top - whole.size)] {
        let hinted = Request {
            hint: Some(hint),
            ..whole
        };
        assert_eq!(start(Linux6::v6_7, hinted), given);
    }
}

/// What was found is aligned: 6.7 leaves a PMD unused at the top, 6.12 does not.
#[test]
fn the_first_rule_for_huge_pages_lost_the_top() {
    let ask = Request::of(PMD);
    let from_top = |make: fn(Space) -> Linux6| {
        let mut policy = make(space(0, 32));
        [(); 2].map(|()| policy.place(&ask).unwrap().start / PMD)
    };
    assert_eq!(from_top(Linux6::v6_7), [2, 0]);
    assert_eq!(from_top(Linux6::v6_12), [3, 2]);
}

#[test]
fn where_nothing_is_left_for_a_huge_page_the_plain_search_follows() {
    let mut policy = Linux6::v6_12(space(0, 8));
    let given = policy.place(&Request::of(PMD));
    assert_eq!(given, Ok(Range::new(0, PMD)));
}

/// ```text
/// 0 1 2 3 4 5 6 7 8
/// a . . . . b . . *    a page aligned to 8 would fit at 8: no hole has 1 + 7 pages
/// a . . . * b . . .    a page aligned to 4 goes to 4: the lower hole has 1 + 3, the upper one not
/// ```
#[test]
fn a_hole_that_takes_a_range_at_the_right_alignment_alone_is_refused() {
    let mut policy = Linux6::v6_1(space(0, 9));
    let at = |page: u64| Request {
        hint: Some(page * P),
        ..Request::of(P)
    };
    policy.place(&at(0)).unwrap();
    policy.place(&at(5)).unwrap();
    let aligned = |pages: u64| Request {
        alignment: pages * P,
        ..Request::of(P)
    };
    assert_eq!(policy.place(&aligned(8)), Err(PlaceError::Exhausted));
    assert_eq!(policy.place(&aligned(4)), Ok(Range::new(4 * P, 5 * P)));
}

/// Filled, emptied and filled again: nodes split, are merged, and are used again.
#[test]
fn a_large_tree_grows_and_shrinks() {
    let mut policy = Linux6::v6_1(space(0, 1 << 20));
    let mut held: Vec<Range> = Vec::new();
    for round in 0..3 {
        while held.len() < 30_000 {
            let pages = 1 + (held.len() as u64 * 7 + round) % 4;
            held.push(policy.place(&Request::of(pages * P)).unwrap());
        }
        policy.check().unwrap();
        assert!(levels(&policy) >= 5);
        let full = policy.statistics();
        assert_eq!(full.ranges, 30_000);
        // Some stretches of every other one stay, more of them each time.
        let mut kept = Vec::new();
        for (number, range) in held.drain(..).enumerate() {
            if number % 2 == 0 && number % 4_000 < 500 * (round as usize + 1) {
                kept.push(range);
            } else {
                policy.free(range).unwrap();
            }
        }
        policy.check().unwrap();
        assert!(policy.statistics().holes > 1_500);
        held = kept;
    }
    for range in held.drain(..) {
        policy.free(range).unwrap();
    }
    policy.check().unwrap();
    assert_eq!(levels(&policy), 1);
    assert_eq!(policy.statistics().largest_hole, 64 << 20);
}

/// What lies side by side fills its nodes: a leaf of 264 bytes has 14 slots in use, and nodes are
/// reserved an eighth at a time. The same from both sides, and merged VMAs take nothing.
#[test]
fn memory_for_a_range_is_what_a_full_leaf_takes() {
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let mut policy = Linux6::v6_1(space(0, 1 << 20));
        let mut request = Request {
            direction,
            ..Request::of(P)
        };
        for _ in 0..40_000 {
            policy.place(&request).unwrap();
        }
        let each = policy.statistics().memory as f64 / 40_000.0;
        assert!((17.0..24.0).contains(&each), "{each} bytes a range");
        request.merge = Merge::With(0);
        let before = policy.statistics();
        for _ in 0..40_000 {
            policy.place(&request).unwrap();
        }
        let after = policy.statistics();
        assert_eq!(after.ranges, before.ranges + 1);
        assert_eq!(after.memory, before.memory);
    }
}

/// A page is freed and placed again between 100 or 50,000 that stay: the search looks at one node a
/// level, and where the leaf has another hole as large no node but the leaf is looked at again.
///
/// ```text
/// . v v v v v v . v v v v v v .     every seventh is free; the fourth after each comes and goes
///         *             *
/// ```
#[test]
fn work_for_an_operation_does_not_grow_with_the_tree() {
    for ranges in [100, 50_000] {
        let mut policy = Linux6::v6_1(space(0, 1 << 20));
        let held: Vec<Range> = (0..ranges)
            .map(|_| policy.place(&Request::of(P)).unwrap())
            .collect();
        let levels = levels(&policy) as u64;
        let before = policy.work();
        policy.free(held[ranges / 2]).unwrap();
        let again = policy.place(&Request::of(P)).unwrap();
        assert_eq!(again, held[ranges / 2]);
        assert_eq!(policy.work().visited - before.visited, levels);
        for range in held.iter().step_by(7) {
            policy.free(*range).unwrap();
        }
        let before = policy.work();
        for range in held.iter().skip(4).step_by(7) {
            policy.free(*range).unwrap();
            let hint = Some(range.start);
            let again = Request {
                hint,
                ..Request::of(P)
            };
            assert_eq!(policy.place(&again), Ok(*range));
        }
        let changes = 2 * held.iter().skip(4).step_by(7).count() as u64;
        assert_eq!(policy.work().propagated - before.propagated, changes);
    }
}

/// A gap that the limits cut leads the search to a dead end, and it comes back.
///
/// ```text
/// v . . v v v .. v . . v v v .. v . . v     a gap of two pages every forty
///   |-|                                     limits: the lowest gap
///     |--------------|                      limits: one page of it, and none of the next
/// ```
#[test]
fn gaps_outside_the_limits_cost_a_way_back() {
    let mut policy = Linux6::v6_1(space(0, 10_000));
    let held: Vec<Range> = (0..9_000)
        .map(|_| policy.place(&Request::of(P)).unwrap())
        .collect();
    // Two pages in many leaves; the limits cut every one of them but the lowest.
    for index in (20..8_000).step_by(40) {
        policy.free(held[index]).unwrap();
        policy.free(held[index + 1]).unwrap();
    }
    let lowest = held[7_981].start;
    let mut request = Request::of(2 * P);
    request.limits = Some(Range::new(lowest, lowest + 2 * P));
    let before = policy.work().visited;
    assert_eq!(policy.place(&request).unwrap().start, lowest);
    let direct = policy.work().visited - before;
    request.limits = Some(Range::new(lowest + P, lowest + 30 * P));
    assert_eq!(policy.place(&request), Err(PlaceError::Exhausted));
    assert!(policy.work().visited - before - direct >= 2);
    assert!(direct <= levels(&policy) as u64 + 2, "{direct}");
}

#[test]
fn pages_too_small_or_too_large_have_no_huge_pages() {
    assert_eq!(
        [1, 8, 64, 4096].map(pmd),
        [None, None, Some(512), Some(2 << 20)]
    );
    assert_eq!(pmd(1 << 47), None);
    let space = Space::new(Range::new(0, 64), 1).unwrap();
    for (make, _) in POLICIES {
        assert_eq!(make(space).place(&Request::of(64)), Ok(Range::new(0, 64)));
    }
}
