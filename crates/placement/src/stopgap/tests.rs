use super::*;
use crate::contract::PlaceError;
use crate::oracle::{Answer, Differential, Shape};
use alloc::vec::Vec;

fn space(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * 0x1000), 0x1000).unwrap()
}

#[test]
fn it_keeps_the_contract() {
    let windows = [
        (0x10_0000, 1, 1, 1),
        (0x7000, 3, 2, 2),
        (0x10_0000, 200, 48, 12),
        (0, 128, 60, 4),
        (0x1_0000, 4096, 200, 90),
        (0xffff_0000, 50_000, 300, 400),
        (0x1_0000, (1 << 35) - 0x10, 60, 1 << 33),
        (0x1_0000, (1 << 35) - 0x10, 400, 64),
        (0x3000, 1 << 20, 200, 1 << 13),
        (0x5000, 9_000, 60, 300),
        (0x5000, 30_000, 250, 191),
        (0x1000, 260_000, 900, 512),
    ];
    for (seed, (start, pages, live, size)) in (1..).zip(windows) {
        for base in [Shape::ALL, Shape::PLAIN] {
            let shape = Shape {
                live,
                pages: size,
                ..base
            };
            let nearly = Stopgap::new(space(start, pages));
            let certain = nearly.clone().certain();
            for (policy, answer) in [(nearly, Answer::Nearly), (certain, Answer::Valid)] {
                let mut run = Differential::new(policy, answer, shape, seed);
                run.run(10_000, 29)
                    .unwrap_or_else(|what| panic!("{pages} pages, seed {seed}: {what}"));
            }
        }
    }
}

/// Once an alignment was asked for, what needs none takes no start that is aligned if there is another.
///
/// ```text
/// page      top - 512        top
/// freed     |A A A A|. . .|B B B B|      A was asked for at a multiple of 512, B anywhere
/// ```
#[test]
fn aligned_starts_are_left_to_those_that_need_them() {
    let mut stopgap = Stopgap::new(space(0, 1 << 20));
    let plain = Request::of(0x4000);
    let aligned = Request {
        alignment: 512 * 0x1000,
        ..plain
    };
    let a = stopgap.place(&aligned).unwrap();
    let b = stopgap.place(&plain).unwrap();
    assert_ne!(b.start % aligned.alignment, 0);
    // Both wait in one magazine, the aligned one on top.
    stopgap.free(b).unwrap();
    stopgap.free(a).unwrap();
    let visited = stopgap.work().visited;
    assert_eq!(stopgap.place(&plain), Ok(b));
    assert_eq!(stopgap.place(&aligned), Ok(a));
    assert_eq!(stopgap.work().visited, visited, "the map was asked");
    stopgap.check().unwrap();
}

fn place(stopgap: &mut Stopgap, pages: u64) -> Range {
    stopgap.place(&Request::of(pages * 0x1000)).unwrap()
}

/// ```text
/// freed     |300|.|129|.|128|.|130|.      between ranges that stay
/// placed    129: of three holes of its class or the next the one that fits, then the next longer one
/// ```
#[test]
fn the_shortest_long_hole_is_taken() {
    let mut stopgap = Stopgap::new(space(0, 1 << 20));
    let holes = [300, 129, 128, 130].map(|pages| {
        let range = place(&mut stopgap, pages);
        place(&mut stopgap, 1);
        range
    });
    for range in holes {
        stopgap.free(range).unwrap();
    }
    assert_eq!(place(&mut stopgap, 129), holes[1]);
    assert_eq!(place(&mut stopgap, 129).end, holes[3].end);
    assert_eq!(place(&mut stopgap, 128), holes[2]);
    assert_eq!(place(&mut stopgap, 128).end, holes[0].end);
    stopgap.check().unwrap();
}

#[test]
fn an_exhausted_window_knows_its_largest_hole() {
    let mut stopgap = Stopgap::new(space(0, 400));
    let held = [100, 100, 100].map(|pages| place(&mut stopgap, pages));
    assert_eq!(stopgap.largest_hole(), 100 * 0x1000);
    stopgap.free(held[1]).unwrap();
    place(&mut stopgap, 50);
    let error = stopgap.place(&Request::of(101 * 0x1000));
    assert_eq!(error, Err(PlaceError::Exhausted));
    assert_eq!(stopgap.largest_hole(), stopgap.statistics().largest_hole);
}

/// What [`Stopgap::new`] says.
#[test]
fn an_empty_policy_takes_47_to_52_kib() {
    for bits in [8, 18, 28, 35] {
        let memory = Stopgap::new(space(0x1000, (1 << bits) - 1))
            .statistics()
            .memory;
        assert!((46 << 10..=52 << 10).contains(&memory), "{bits}: {memory}");
    }
}

/// A stack that shrinks: what magazines kept of its deep end is not given out again.
#[test]
fn a_stack_stays_a_stack() {
    let mut stopgap = Stopgap::new(space(0, 1 << 22));
    let mut stack: Vec<Range> = (0..20_000)
        .map(|at| place(&mut stopgap, 1 + at % 90))
        .collect();
    for depth in [4_000, 1_000, 3_000] {
        while stack.len() > depth {
            stopgap.free(stack.pop().unwrap()).unwrap();
        }
        while stack.len() < depth + 200 {
            stack.push(place(&mut stopgap, 1 + stack.len() as u64 % 90));
        }
        let held: u64 = stack.iter().map(|range| range.length()).sum();
        let span = stopgap.statistics().span.unwrap().length();
        assert!(span * 8 <= held * 9 + (8 << 21), "{span} of {held}");
        stopgap.check().unwrap();
    }
}

/// What the module says of a request's worst case, where fragments of all lengths fill a window and no hole need fit.
#[test]
fn a_request_looks_at_a_bounded_number_of_holes() {
    let mut stopgap = Stopgap::new(space(0x1000, 1 << 20));
    let mut held = Vec::new();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        1 + (random >> 33) % below
    };
    while let Ok(range) = stopgap.place(&Request::of(next(300) * 0x1000)) {
        held.push(range);
    }
    let mut most = 0;
    for step in 0..20_000_usize {
        let before = stopgap.work().visited;
        let mut request = Request::of(next(400) * 0x1000);
        match step % 4 {
            0 => request.alignment = 0x1000 << (step / 4 % 10),
            1 => request.limits = Some(Range::new(0x1000 * next(1 << 19), 0x1000 << 20)),
            _ => {}
        }
        if let Ok(range) = stopgap.place(&request) {
            held.push(range);
        }
        most = most.max(stopgap.work().visited - before);
        let at = next(held.len() as u64) as usize - 1;
        stopgap.free(held.swap_remove(at)).unwrap();
    }
    // A search before magazines are emptied and one after, each with two budgets besides its tries.
    assert!(most <= 2 * (2 * 256 + 2 * 64 + 64), "{most}");
    assert!(most > 64, "{most}: nothing was hard");
    stopgap.check().unwrap();
}

/// 400 holes have 200 pages. A request finds each of the few where a multiple of 1,024 leaves 96 pages, without a walk.
#[test]
fn the_few_holes_that_are_aligned_are_found() {
    let mut stopgap = Stopgap::new(space(0x7000, 1 << 20));
    let request = Request {
        alignment: 1024 * 0x1000,
        ..Request::of(96 * 0x1000)
    };
    // The first begins the index.
    let first = stopgap.place(&request).unwrap();
    stopgap.free(first).unwrap();
    let holes: Vec<Range> = (0..400)
        .map(|_| {
            let range = place(&mut stopgap, 200);
            place(&mut stopgap, 1);
            range
        })
        .collect();
    for &range in &holes {
        stopgap.free(range).unwrap();
    }
    let aligned = |hole: &&Range| {
        let start = hole.start.next_multiple_of(request.alignment);
        start + request.size <= hole.end
    };
    let few = holes.iter().filter(aligned).count();
    assert!((10..100).contains(&few), "{few}");
    for _ in 0..few {
        let visited = stopgap.work().visited;
        let range = stopgap.place(&request).unwrap();
        let inside = |hole: &Range| hole.start <= range.start && range.end <= hole.end;
        assert!(holes.iter().any(inside), "{range:?}");
        assert!(stopgap.work().visited - visited <= 8);
    }
    stopgap.check().unwrap();
}

#[test]
fn a_tile_fits_a_page() {
    assert!(size_of::<tile::Tile>() <= 4_096);
}

/// Few ranges of up to 64 pages that come and go at random stay together: what waits in magazines does not push them apart.
#[test]
fn a_program_of_few_ranges_stays_together() {
    let mut stopgap = Stopgap::new(space(0, 1 << 30));
    let mut random = 7_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut held: Vec<Range> = Vec::new();
    let (mut used, mut span) = (0, 0);
    for step in 0..20_000 {
        if held.len() == 50 {
            let range = held.swap_remove(below(50) as usize);
            stopgap.free(range).unwrap();
        }
        let size = (1 + below(64)) * 0x1000;
        held.push(stopgap.place(&Request::of(size)).unwrap());
        if step % 64 == 63 {
            used += held.iter().map(|range| range.length()).sum::<u64>();
            let first = held.iter().map(|range| range.start).min().unwrap();
            span += held.iter().map(|range| range.end).max().unwrap() - first;
        }
    }
    assert!(span * 2 < used * 5, "{span} of {used}");
    stopgap.check().unwrap();
}

/// Few ranges that all go and come again wait in magazines: hardly a request asks the map.
#[test]
fn ranges_that_all_go_and_come_again_are_kept() {
    let mut stopgap = Stopgap::new(space(0, 1 << 30));
    let size = |at: u64| (1 + at * 29 % 64) * 0x1000;
    let mut at = 0;
    let mut visited = 0;
    for round in 0..400 {
        if round == 200 {
            visited = stopgap.work().visited;
        }
        let held: Vec<Range> = (0..40)
            .map(|_| {
                at += 1;
                stopgap.place(&Request::of(size(at))).unwrap()
            })
            .collect();
        for range in held {
            stopgap.free(range).unwrap();
        }
    }
    let visited = stopgap.work().visited - visited;
    assert!(visited < 200 * 40 / 20, "{visited}");
}
