use super::*;
use crate::oracle::{Answer, Differential, Shape};
use alloc::vec::Vec;
use core::cell::Cell;

fn space(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * 0x1000), 0x1000).unwrap()
}

/// How often extents came, and went while something was held in them.
#[derive(Debug, Default, Clone, Copy)]
struct Moves {
    came: u64,
    taken_apart: u64,
}

/// One thread that passes for another with each call: what it places with one shard it frees as any.
struct Scattered {
    shared: Shared,
    state: u64,
    moves: Cell<Moves>,
}

impl Scattered {
    fn new(shared: Shared, seed: u64) -> Scattered {
        Scattered {
            shared,
            state: seed,
            moves: Cell::default(),
        }
    }

    fn next_number(&mut self) -> usize {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(11);
        (self.state >> 40) as usize
    }

    fn extents(&self) -> Vec<(Range, u64)> {
        let shards = self.shared.shards.iter();
        let of = |shard: &Aligned<Shard>| -> Vec<_> {
            let shard = lock(&shard.0);
            let extents = shard.extents.iter().flatten();
            extents.map(|extent| (extent.whole, extent.used)).collect()
        };
        shards.flat_map(of).collect()
    }

    fn watch<T>(&mut self, call: impl FnOnce(&mut Scattered) -> T) -> T {
        let before = self.extents();
        let answer = call(self);
        let after = self.extents();
        let is_in = |list: &[(Range, u64)], whole: Range| list.iter().any(|of| of.0 == whole);
        let moves = self.moves.get_mut();
        moves.came += after.iter().filter(|of| !is_in(&before, of.0)).count() as u64;
        let gone = before.iter().filter(|of| !is_in(&after, of.0));
        moves.taken_apart += gone.filter(|of| of.1 > 0).count() as u64;
        answer
    }
}

impl Policy for Scattered {
    fn space(&self) -> Space {
        self.shared.space
    }
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let number = self.next_number();
        self.watch(|this| this.shared.place_as(number, request))
    }
    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.watch(|this| this.shared.free(range))
    }
    fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }
    fn work(&self) -> Work {
        self.shared.work()
    }
    fn check(&self) -> Result<(), String> {
        self.shared.check()
    }
}

/// Windows from a page to 2^47 bytes, with extents from 4 pages on, so that they fill up, empty, are
/// given back and taken apart all the time.
#[test]
fn it_keeps_the_contract() {
    // Start, pages, ranges held, their pages, shards, pages of an extent at least, steps.
    let windows = [
        (0x10_0000, 1, 1, 1, 2, 1, 3_000),
        (0x7000, 3, 2, 2, 2, 1, 3_000),
        (0x10_0000, 200, 48, 6, 2, 4, 10_000),
        (0, 128, 60, 4, 1, 4, 10_000),
        (0x1_0000, 4096, 200, 60, 4, 16, 6_000),
        (0x1_0000, 4096, 400, 12, 4, 64, 6_000),
        (0x5000, 10_007, 300, 60, 8, 8, 6_000),
        (0xffff_0000, 50_000, 300, 400, 2, LEAST_EXTENT, 6_000),
        (
            0x1_0000,
            (1 << 35) - 0x10,
            60,
            1 << 33,
            4,
            LEAST_EXTENT,
            3_000,
        ),
        (0x1_0000, (1 << 35) - 0x10, 400, 64, 4, LEAST_EXTENT, 2_000),
        (0x3000, 1 << 20, 200, 1 << 13, 2, LEAST_EXTENT, 1_500),
    ];
    let mut total = Moves::default();
    for (seed, (start, pages, live, size, shards, least, steps)) in (1..).zip(windows) {
        for base in [Shape::ALL, Shape::PLAIN] {
            let shape = Shape {
                live,
                pages: size,
                ..base
            };
            let shared = Shared::with_extents(space(start, pages), shards, least, 10);
            let policy = Scattered::new(shared, seed);
            let mut run = Differential::new(policy, Answer::Valid, shape, seed);
            run.run(steps, 499)
                .unwrap_or_else(|what| panic!("{pages} pages, seed {seed}: {what}"));
            let moves = run.policy().moves.get();
            total.came += moves.came;
            total.taken_apart += moves.taken_apart;
        }
    }
    assert!(total.came > 120 && total.taken_apart > 100, "{total:?}");
}

/// Some extents come as pages are placed, and all but one go as they are freed.
///
/// ```text
/// . . . . . . . .|PPPP|PPPP|PPPP|     extents full of pages
/// . . . . . . . .|    |. . . . .      all freed: one stays the shard's
/// RRRRRRRRRRRRRRRRRRRRRRRRRRRRRR     all of the window fits nevertheless
/// ```
#[test]
fn what_is_empty_is_given_back() {
    let mut shared = Scattered::new(Shared::with_extents(space(0x1000, 1000), 2, 64, 10), 1);
    let page = Request::of(0x1000);
    let held: Vec<Range> = (0..300)
        .map(|_| shared.shared.place_as(0, &page).unwrap())
        .collect();
    assert!(shared.extents().len() >= 3, "{:x?}", shared.extents());
    for &range in &held {
        shared.free(range).unwrap();
    }
    assert_eq!(shared.extents().len(), 1);
    shared.check().unwrap();
    let whole = shared.place(&Request::of(1000 * 0x1000)).unwrap();
    assert_eq!(whole, shared.space().window());
    assert_eq!(shared.place(&page), Err(PlaceError::Exhausted));
    shared.free(whole).unwrap();
    assert_eq!(shared.statistics().holes, 1);
}

/// ```text
///              edge
/// . . . . . . . |. . . . . . P|     an extent with one page held, at the top
/// . . . . . . .|H H|. . . . .P|     a hint across the edge
/// . . . . . .|F F F F F|. . .P|     frees across the edge
/// ```
#[test]
fn an_extents_edge_is_none_to_the_contract() {
    let shared = Shared::with_extents(space(0x1000, 4096), 2, 64, 10);
    let held = shared.place_as(1, &Request::of(0x1000)).unwrap();
    let across = |shared: &Shared| -> Range {
        let shard = lock(&shared.shards[1].0);
        let extents = shard.extents.iter().flatten();
        let edge = extents.map(|extent| extent.whole.start).next().unwrap();
        Range::new(edge - 0x1000, edge + 0x1000)
    };
    let range = across(&shared);
    assert_eq!(shared.free(range), Err(FreeError::AlreadyFree));
    let wide = Range::new(range.start, held.end);
    assert_eq!(shared.free(wide), Err(FreeError::NotAsGiven));
    let mut request = Request::of(0x2000);
    request.hint = Some(range.start);
    assert_eq!(shared.place_as(1, &request), Ok(range));
    shared.check().unwrap();
    assert_eq!(shared.statistics().ranges, 2);
    assert_eq!(shared.free(range), Ok(()));
    assert_eq!(shared.free(held), Ok(()));
    assert_eq!(shared.statistics().holes, 1);
    assert_eq!(shared.work().placed, 2);
}

/// A request that no space could answer does not make an extent think that it is full.
#[test]
fn nonsense_leaves_the_fast_path_fast() {
    let shared = Shared::with_shards(space(0, 1 << 30), 2);
    let extents = |shared: &Shared| lock(&shared.shards[0].0).extents.len();
    for _ in 0..10 {
        shared.place_as(0, &Request::of(0x1000)).unwrap();
        let mut nonsense = Request::of(1);
        nonsense.alignment = 3;
        assert!(shared.place_as(0, &nonsense).is_err());
        assert!(shared.place_as(0, &Request::of(0)).is_err());
    }
    assert_eq!(extents(&shared), 1);
    let placed = lock(&shared.shards[0].0).placed;
    assert_eq!(placed, 10);
}

mod threads;
