use super::*;
use crate::contract::Impossible;
use crate::linux_2_6_35::V2_6_35;
use crate::linux_3_4::V3_4;
use crate::oracle::{
    Answer, Differential, Era, Naive, NaiveFreeAreaCache, Pair, Shape, Step, Walk,
};

use crate::vmas::NIL;

const PAGE: u64 = 0x1000;
const LAYOUTS: [Direction; 2] = [Direction::TopDown, Direction::BottomUp];

fn pages(start: u64, pages: u64) -> Space {
    Space::new(Range::new(start, start + pages * PAGE), PAGE).unwrap()
}

/// All that these policies know.
fn shape(layout: Direction) -> Shape {
    let directions: &'static [Direction] = match layout {
        Direction::BottomUp => &[Direction::Any, Direction::BottomUp],
        Direction::TopDown | Direction::Any => &[Direction::Any, Direction::TopDown],
    };
    Shape {
        hints: true,
        merging: true,
        directions,
        ..Shape::PLAIN
    }
}

/// Windows so tight that every route is taken, down to searches that fail.
fn keeps_the_rule<V: Version>(era: Era) {
    let spaces = [
        pages(0x10_0000, 200),
        pages(0, 260),
        pages(0x7000, 67),
        pages(0, 300),
    ];
    for (seed, space) in (1..).zip(spaces) {
        for layout in LAYOUTS {
            let policy = FreeAreaCache::<V>::new(space, layout);
            let rule = NaiveFreeAreaCache::new(era, space, layout);
            let mut pair = Pair::new(policy, rule, shape(layout), seed);
            for _ in 0..10_000 {
                let same = pair.run(1, 1);
                same.unwrap_or_else(|what| panic!("{era:?}, {layout:?}, seed {seed}: {what}"));
                let mm = pair.policy().mm();
                let state = (mm.free_area_cache(), mm.cached_hole_size());
                assert_eq!(state, pair.reference().state());
            }
            let (counts, work) = (pair.counts(), pair.policy().work());
            assert!(counts.iter().all(|&n| n > 500), "{layout:?}: {counts:?}");
            assert!(work.full_scans > 100, "{layout:?}: {work:?}");
            assert_eq!(work.resets > 100, layout == Direction::TopDown, "{work:?}");
        }
    }
}

#[test]
fn linux_2_6_35_keeps_the_rule() {
    keeps_the_rule::<V2_6_35>(Era::Linux2_6_35);
}

#[test]
fn linux_3_4_keeps_the_rule() {
    keeps_the_rule::<V3_4>(Era::Linux3_4);
}

#[test]
fn a_rule_of_the_other_version_is_found() {
    for layout in LAYOUTS {
        let policy = FreeAreaCache::<V2_6_35>::new(pages(0, 200), layout);
        let rule = NaiveFreeAreaCache::new(Era::Linux3_4, pages(0, 200), layout);
        let mut pair = Pair::new(policy, rule, shape(layout), 1);
        let mut state = || {
            pair.run(1, 0)?;
            let mm = pair.policy().mm();
            let state = (mm.free_area_cache(), mm.cached_hole_size());
            Ok::<_, String>(state == pair.reference().state())
        };
        assert!((0..10_000).any(|_| state() != Ok(true)), "{layout:?}");
    }
}

/// In a window that never fills, the rule's answers are valid by the contract.
#[test]
fn answers_are_valid() {
    fn run<V: Version>() {
        for (seed, layout) in (1..).zip(LAYOUTS) {
            let policy = FreeAreaCache::<V>::new(pages(0x10_0000, 4_000), layout);
            let mut run = Differential::new(policy, Answer::Valid, shape(layout), seed);
            run.run(20_000, 10).unwrap();
            let [exhausted, placed, freed] = run.counts();
            assert_eq!(exhausted, 0);
            assert!(placed > 5_000 && freed > 5_000);
        }
    }
    run::<V2_6_35>();
    run::<V3_4>();
}

/// ```text
/// 0      67          199   pages; bottom-up, only pages above 66 count
/// ```
/// Top-down all holes are found but one: at the window's start, and no larger than what is asked.
#[test]
fn what_is_refused_fits_only_where_the_search_does_not_look() {
    fn run<V: Version>(layout: Direction) {
        let space = pages(0, 200);
        let shape = Shape {
            merging: false,
            ..shape(layout)
        };
        let mut policy = FreeAreaCache::<V>::new(space, layout);
        let (mut naive, mut walk) = (Naive::new(space, true), Walk::new(space, shape, 9));
        let mut refused = 0;
        for _ in 0..20_000 {
            match walk.step() {
                Step::Place(request) => match policy.place(&request) {
                    Ok(range) => {
                        naive.take(range, request.merge).unwrap();
                        walk.gave(range, request.merge);
                    }
                    Err(PlaceError::Exhausted) => {
                        let size = space.page_up(request.size).unwrap();
                        let seen = |hole: Range| match layout {
                            Direction::BottomUp => hole.end >= hole.start.max(67 * PAGE) + size,
                            _ => hole.length() > size || (hole.length() == size && hole.start > 0),
                        };
                        assert!(!naive.holes().any(seen), "{layout:?}, {request:x?}");
                        refused += 1;
                    }
                    Err(_) => {}
                },
                Step::Free(range) => {
                    let freed = policy.free(range);
                    assert_eq!(freed, naive.free(range));
                    if freed.is_ok() {
                        walk.took(range);
                    }
                }
                Step::Protect(..) => {}
            }
        }
        assert!(refused > 1_000, "{refused}");
    }
    for layout in LAYOUTS {
        run::<V2_6_35>(layout);
        run::<V3_4>(layout);
    }
}

#[test]
fn what_the_searches_do_not_have_is_said() {
    let window = pages(0, 16).window();
    let request = Request::of(PAGE);
    let aligned = Request {
        alignment: 2 * PAGE,
        ..request
    };
    let limited = Request {
        limits: Some(Range::new(PAGE, window.end)),
        ..request
    };
    let directed = |direction| Request {
        direction,
        ..request
    };
    for (layout, other) in [(LAYOUTS[0], LAYOUTS[1]), (LAYOUTS[1], LAYOUTS[0])] {
        let mut policy = FreeAreaCache::<V3_4>::new(pages(0, 16), layout);
        let fresh = policy.mm().clone();
        for (asked, lack) in [
            (aligned, Lack::Alignment),
            (limited, Lack::Limits),
            (directed(other), Lack::Direction),
        ] {
            assert_eq!(policy.place(&asked), Err(PlaceError::Lacks(lack)));
        }
        let impossible = Request {
            size: 17 * PAGE,
            ..aligned
        };
        let why = PlaceError::Impossible(Impossible::TooLarge);
        assert_eq!(policy.place(&impossible), Err(why));
        assert_eq!(policy.mm().free_area_cache(), fresh.free_area_cache());
        assert_eq!(policy.work(), Work::default());
        let whole = Request {
            limits: Some(window),
            alignment: PAGE,
            ..directed(layout)
        };
        assert!(policy.place(&whole).is_ok());
    }
}

/// ```text
/// 0123456789ab      pages
///     1222333.      1, 2, 3: VMAs
///     |--|          found from 3 (below 1), 4 (in 1) and 5 (in 2)
/// ```
#[test]
fn a_lookup_gives_the_lowest_vma_that_ends_above() {
    let mut mm = Mm::new(pages(0, 12), Direction::TopDown);
    let range = |first: u64, end: u64| Range::new(first * PAGE, end * PAGE);
    for (number, vma) in [(1, range(4, 5)), (2, range(5, 8)), (3, range(8, 11))] {
        mm.take(vma, Merge::With(number), NIL);
    }
    let find = |mm: &mut Mm, address| {
        let (vma, _) = mm.vmas.find(address);
        (vma != NIL).then(|| mm.vmas.nodes[vma].range)
    };
    for _ in 0..2 {
        assert_eq!(find(&mut mm, 3 * PAGE), Some(range(4, 5)));
        assert_eq!(find(&mut mm, 5 * PAGE - 1), Some(range(4, 5)));
        assert_eq!(find(&mut mm, 5 * PAGE), Some(range(5, 8)));
        assert_eq!(find(&mut mm, 11 * PAGE), None);
    }
    // The VMA looked up last is gone: the lookup must not give it.
    assert_eq!(find(&mut mm, 5 * PAGE), Some(range(5, 8)));
    mm.vmas.protect(range(5, 8), Merge::With(3)).unwrap();
    mm.check().unwrap();
    assert_eq!(find(&mut mm, 5 * PAGE), Some(range(5, 11)));
    mm.vmas.unmap(range(5, 6)).unwrap();
    mm.check().unwrap();
    assert_eq!(find(&mut mm, 5 * PAGE), Some(range(6, 11)));
}
