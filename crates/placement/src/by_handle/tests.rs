use super::*;
use crate::contract::Impossible;
use crate::oracle::{Answer, ByRange, Differential, Shape};
use alloc::vec::Vec;

fn space(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * 0x1000), 0x1000).unwrap()
}

#[test]
fn it_answers_as_the_naive_policy_does() {
    let windows = [
        (0x10_0000, 1, 1, 1),
        (0x7000, 3, 2, 2),
        (0x10_0000, 200, 48, 12),
        (0, 128, 60, 4),
        (0xffff_0000, 50_000, 300, 400),
        (0x1_0000, (1 << 35) - 0x10, 60, 1 << 33),
        (0x3000, 1 << 20, 200, 1 << 13),
        (0x5000, 30_000, 250, 191),
        (0x1000, 260_000, 900, 512),
    ];
    for (seed, (start, pages, live, size)) in (1..).zip(windows) {
        for alignment in [false, true] {
            let shape = Shape {
                live,
                pages: size,
                alignment,
                ..Shape::PLAIN
            };
            let nearly = ByHandle::new(space(start, pages));
            let certain = nearly.clone().certain();
            for (policy, answer) in [(nearly, Answer::Nearly), (certain, Answer::Valid)] {
                let mut run = Differential::new(ByRange::new(policy), answer, shape, seed);
                run.run(10_000, 29)
                    .unwrap_or_else(|what| panic!("{pages} pages, seed {seed}: {what}"));
            }
        }
    }
}

#[test]
fn what_it_lacks_or_no_space_could_answer_is_said() {
    let mut policy = ByHandle::new(space(0x7000, 100));
    let plain = Request::of(0x1000);
    let limits = Some(policy.space().window());
    let direction = Direction::BottomUp;
    let lacks = |lack| Err(PlaceError::Lacks(lack));
    let impossible = |why| Err(PlaceError::Impossible(why));
    for (request, answer) in [
        (Request { limits, ..plain }, lacks(Lack::Limits)),
        (Request { direction, ..plain }, lacks(Lack::Direction)),
        (
            Request {
                hint: Some(0x8000),
                ..plain
            },
            lacks(Lack::Hint),
        ),
        (
            Request {
                alignment: 3,
                ..plain
            },
            impossible(Impossible::Alignment),
        ),
        (
            Request {
                alignment: 0,
                ..plain
            },
            impossible(Impossible::Alignment),
        ),
        (
            Request { offset: 1, ..plain },
            impossible(Impossible::Offset),
        ),
        (Request::of(0), impossible(Impossible::ZeroSize)),
        (Request::of(101 << 12), impossible(Impossible::TooLarge)),
        (Request::of(u64::MAX), impossible(Impossible::TooLarge)),
        (
            Request::of(u64::MAX - 0xfff),
            impossible(Impossible::TooLarge),
        ),
    ] {
        assert_eq!(policy.place(&request).map(|_| ()), answer, "{request:?}");
    }
    policy.place(&Request::of(100 << 12)).unwrap();
    assert_eq!(policy.place(&plain), Err(PlaceError::Exhausted));
}

#[test]
fn a_handle_frees_its_own_range_once() {
    let mut policy = ByHandle::new(space(0x7000, 1 << 20));
    let mut other = ByHandle::new(policy.space());
    let (_, kept) = policy.place(&Request::of(0x1000)).unwrap();
    let (_, foreign) = other.place(&Request::of(0x1000)).unwrap();
    // One policy has more nodes than the other.
    let many = |_| other.place(&Request::of(0x3000)).unwrap().1;
    let beyond = (0..10_000).map(many).last().unwrap();
    for _ in 0..3 {
        let (range, handle) = policy.place(&Request::of(0x5000)).unwrap();
        assert_eq!(policy.range_of(handle), Ok(range));
        assert_eq!(policy.free(handle), Ok(()));
        // The node is used again, and the old handle is still refused.
        let (_, new) = policy.place(&Request::of(0x5000)).unwrap();
        assert_eq!(policy.free(handle), Err(FreeError::AlreadyFree));
        assert_eq!(policy.free(new), Ok(()));
        assert_eq!(policy.free(foreign), Err(FreeError::NotAsGiven));
        assert_eq!(policy.free(beyond), Err(FreeError::NotAsGiven));
        policy.check().unwrap();
    }
    let mut copy = policy.clone();
    assert_eq!((copy.free(kept), policy.free(kept)), (Ok(()), Ok(())));
}

/// A node's generations end; its first handles are refused even then.
#[test]
fn a_used_up_node_is_not_used_again() {
    let mut policy = ByHandle::new(space(0, 64));
    let beside = policy.place(&Request::of(0x2000)).unwrap();
    let mut first = None;
    for _ in 0..=LAST_GENERATION / 2 + 1 {
        let (_, handle) = policy.place(&Request::of(0x3000)).unwrap();
        first.get_or_insert(handle);
        policy.free(handle).unwrap();
        assert_eq!(policy.free(first.unwrap()), Err(FreeError::AlreadyFree));
    }
    policy.check().unwrap();
    assert_eq!(policy.nodes.more(), Some(5), "the end's, two, and one anew");
    assert_eq!(policy.range_of(beside.1), Ok(beside.0));
}

/// ```text
/// freed     |1000|.|521|.|520|.|530|.      between ranges that stay
/// placed    521: of three holes of its class or the next the one that fits, then the next longer one
/// ```
#[test]
fn the_shortest_hole_is_taken() {
    let mut policy = ByHandle::new(space(0, 1 << 20));
    let mut place = |pages: u64| policy.place(&Request::of(pages << 12)).unwrap();
    let holes = [1_000, 521, 520, 530].map(|pages| {
        let held = place(pages);
        place(1);
        held
    });
    for (_, handle) in holes {
        policy.free(handle).unwrap();
    }
    let mut place = |pages: u64| policy.place(&Request::of(pages << 12)).unwrap().0;
    assert_eq!(place(521), holes[1].0);
    assert_eq!(place(521).end, holes[3].0.end);
    assert_eq!(place(520), holes[2].0);
    assert_eq!(place(520).end, holes[0].0.end);
    assert!(policy.largest_hole() > 1 << 30);
    policy.check().unwrap();
}

/// What the module says of a request's worst case: in a full window, 2,000 holes of one class that are all too short.
#[test]
fn a_request_looks_at_a_bounded_number_of_holes() {
    let mut policy = ByHandle::new(space(0x1000, 2_000 * 1_024 + 100));
    let mut place = |pages: u64| policy.place(&Request::of(pages << 12)).unwrap().1;
    let held: Vec<Handle> = (0..2_000)
        .map(|at| {
            let held = place(1_016 + at % 7);
            place(1);
            held
        })
        .collect();
    while policy.place(&Request::of(0x1000)).is_ok() {}
    for handle in held {
        policy.free(handle).unwrap();
    }
    let mut visits = |request: &Request, answer: bool| {
        let before = policy.work().visited;
        assert_eq!(policy.place(request).is_ok(), answer, "{request:?}");
        policy.work().visited - before
    };
    let plain = Request::of(1_023 << 12);
    let aligned = Request {
        alignment: 1 << 32,
        ..Request::of(1_016 << 12)
    };
    let most = u64::from(BUDGET + LOOKS);
    assert_eq!(visits(&plain, false), most);
    assert!(visits(&Request::of(1_022 << 12), true) <= u64::from(LOOKS));
    // Some of each of the two classes, then as many as may be.
    let aligned = visits(&aligned, false);
    assert_eq!(aligned, u64::from(BUDGET + 2 * ALIGNED_LOOKS_PER_CLASS));
    policy.check().unwrap();
    let mut policy = policy.certain();
    assert_eq!(policy.place(&plain), Err(PlaceError::Exhausted));
}

/// Padding counts as free, ends with its range, and comes only while most of the window was never needed.
///
/// ```text
/// page   1008        1016        1024
///        |  5  | pad |  5  | pad |
/// ```
#[test]
fn an_aligned_range_is_padded_where_there_is_room() {
    let pages = 1 << 24;
    let aligned = Request {
        alignment: 4 << 12,
        ..Request::of(5 << 12)
    };
    // Counted from 1,024 pages before the end.
    let base = pages - 1_024;
    let range = |first: u64, end: u64| Range::new((base + first) << 12, (base + end) << 12);
    for (certain, listed) in [(false, [1, 1, 2]), (true, [2, 3, 2])] {
        let mut policy = ByHandle::new(space(0, pages));
        if certain {
            policy = policy.certain();
        }
        let holes = |policy: &ByHandle| {
            let listed = policy.by_address().filter(|(_, node)| node.is_hole());
            (listed.count(), policy.statistics().holes)
        };
        let (given, upper) = policy.place(&aligned).unwrap();
        assert_eq!(given, range(1_016, 1_021));
        assert_eq!(policy.range_of(upper), Ok(given));
        assert_eq!(holes(&policy), (listed[0], 2));
        let (given, lower) = policy.place(&aligned).unwrap();
        assert_eq!(given, range(1_008, 1_013));
        assert_eq!(holes(&policy), (listed[1], 3));
        policy.free(upper).unwrap();
        assert_eq!(policy.statistics().used, 5 << 12);
        policy.check().unwrap();
        policy.free(lower).unwrap();
        assert_eq!(policy.largest_hole(), pages << 12);
        // More than 1/32 is needed.
        let long = pages / 16;
        policy.place(&Request::of(long << 12)).unwrap();
        let below = Range::new((pages - long - 8) << 12, (pages - long - 3) << 12);
        assert_eq!(policy.place(&aligned).unwrap().0, below);
        assert_eq!(holes(&policy), (listed[2], 2));
        policy.check().unwrap();
    }
}

/// A small window has no padding that would be missing when it is full.
#[test]
fn a_small_window_is_used_to_the_last_page() {
    let mut policy = ByHandle::new(space(0, 4_096));
    let aligned = Request {
        alignment: 32 << 12,
        ..Request::of(17 << 12)
    };
    for _ in 0..4_096 / 32 {
        policy.place(&aligned).unwrap();
    }
    for _ in 0..4_096 / 32 {
        policy.place(&Request::of(15 << 12)).unwrap();
    }
    assert_eq!(policy.largest_hole(), 0);
    policy.check().unwrap();
}

/// Ranges that are as long as their alignment leave holes that are aligned, and find them again.
#[test]
fn ranges_aligned_to_their_size_stay_together() {
    let mut policy = ByHandle::new(space(0, 1 << 18));
    let mut random = 7_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut held = Vec::new();
    for _ in 0..60_000 {
        if held.len() == 2_000 {
            let handle = held.swap_remove(below(2_000) as usize);
            policy.free(handle).unwrap();
        }
        let bytes = 0x1000 << below(10);
        let request = Request {
            alignment: bytes,
            ..Request::of(bytes)
        };
        held.push(policy.place(&request).unwrap().1);
    }
    let statistics = policy.statistics();
    let (used, span) = (statistics.used, statistics.span.unwrap().length());
    assert!(span * 10 < used * 12, "{span} of {used}");
}
