use alloc::vec::Vec;

use super::lazy::{BOUND, Lazy};
use super::propagation::{EarlyStop, ToRoot};
use super::{GapTree, WeinerLazy};
use crate::contract::{
    Direction, FreeError, Merge, PlaceError, Policy, Range, Request, Space, Work,
};
use crate::oracle::soak::soak;
use crate::registry::{Name, Visit};
use crate::vmas::{NIL, Propagation, RIGHT};

const PAGE: u64 = 0x1000;

fn space(pages: u64) -> Space {
    Space::new(Range::new(0, pages * PAGE), PAGE).unwrap()
}

fn pages(start: u64, end: u64) -> Range {
    Range::new(start * PAGE, end * PAGE)
}

/// `range` is taken, wherever searches would go.
fn put<P: Propagation>(tree: &mut GapTree<P>, range: Range, merge: Merge) {
    let request = Request {
        hint: Some(range.start),
        merge,
        ..Request::of(range.length())
    };
    assert_eq!(tree.place(&request), Ok(range));
}

/// The VMAs with what they merge with.
fn vmas<P: Propagation>(tree: &GapTree<P>) -> Vec<(u64, u64, Merge)> {
    let nodes = &tree.vmas.nodes;
    let vma = |id| {
        let Range { start, end } = nodes[id].range;
        (start / PAGE, end / PAGE, nodes[id].merge)
    };
    nodes.list().map(vma).collect()
}

#[test]
fn all_three_answer_as_the_rule_says() {
    for (name, seed) in [
        (Name::Linux3_8, 38),
        (Name::VanRielV1, 2012),
        (Name::WeinerLazy, 3),
    ] {
        let met = soak(name, 120_000, seed, |_| true).unwrap();
        let least = met.exhausted.min(met.placed).min(met.freed);
        assert!(least > 5_000, "{name}: {met:?}");
    }
}

/// The registry's names lead to the three: what one propagation costs tells them apart.
#[test]
fn the_names_are_theirs() {
    struct Count;
    impl Visit for Count {
        type Output = u64;
        fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> u64 {
            for _ in 0..100 {
                policy.place(&Request::of(PAGE)).unwrap();
            }
            // The largest gap is at the bottom, so that a page more or less in the middle is known to
            // matter little as soon as one looks.
            for _ in 0..100 {
                policy.free(pages(950, 951)).unwrap();
                assert_eq!(policy.place(&Request::of(PAGE)), Ok(pages(950, 951)));
            }
            policy.work().propagated
        }
    }
    let count = |word: &str| {
        let name: Name = word.parse().unwrap();
        name.visit(space(1_000), Direction::TopDown, Count)
    };
    let [stop, root, lazy] = ["linux-3.8", "van-riel-v1", "weiner-lazy"].map(count);
    assert!(lazy < stop && stop < root, "{lazy} {stop} {root}");
}

/// What mprotect does to three neighbours, the middle one made like its neighbours or not. The numbers
/// are those of the kernel's `vma_merge`; a shift of a boundary moves no gap.
///
/// ```text
///      AAAANNNNBBBB        of A, N and B, each four pages, A and B maybe alike
/// 4    AAAANNBBBBBB        the upper half of N becomes B
/// 5    AAAAAANNBBBB        the lower half of N becomes A
/// 6    AAAAAAAAAAAA        N becomes A, which B is, too
/// 7    AAAAAAAABBBB        N becomes A
/// 8    AAAABBBBBBBB        N becomes B
///      AAAANCCNBBBB        the middle of N becomes something else
/// ```
fn protections<P: Propagation>() {
    let [a, n, b, c] = [0, 1, 2, 3].map(Merge::With);
    let laid_out = |above| {
        let mut tree = GapTree::<P>::new(space(64));
        put(&mut tree, pages(8, 12), a);
        put(&mut tree, pages(12, 16), n);
        put(&mut tree, pages(16, 20), above);
        tree
    };
    type Vmas<'a> = &'a [(u64, u64, Merge)];
    let cases: [(Merge, Range, Merge, Vmas<'_>); 6] = [
        (b, pages(14, 16), b, &[(8, 12, a), (12, 14, n), (14, 20, b)]),
        (b, pages(12, 14), a, &[(8, 14, a), (14, 16, n), (16, 20, b)]),
        (a, pages(12, 16), a, &[(8, 20, a)]),
        (b, pages(12, 16), a, &[(8, 16, a), (16, 20, b)]),
        (b, pages(12, 16), b, &[(8, 12, a), (12, 20, b)]),
        (
            b,
            pages(13, 15),
            c,
            &[
                (8, 12, a),
                (12, 13, n),
                (13, 15, c),
                (15, 16, n),
                (16, 20, b),
            ],
        ),
    ];
    for (above, part, merge, right) in cases {
        let mut tree = laid_out(above);
        tree.protect(part, merge).unwrap();
        assert_eq!(vmas(&tree), right);
        tree.check().unwrap();
    }
    // Over all of it and no further.
    let mut tree = laid_out(b);
    assert_eq!(tree.protect(pages(8, 21), c), Err(FreeError::NotAsGiven));
    assert_eq!(
        tree.protect(pages(8, 20), Merge::Never),
        Err(FreeError::NotAsGiven)
    );
    tree.protect(pages(9, 19), c).unwrap();
    assert_eq!(vmas(&tree), [(8, 9, a), (9, 19, c), (19, 20, b)]);
    tree.check().unwrap();
}

#[test]
fn a_protection_splits_shifts_and_merges() {
    protections::<EarlyStop>();
    protections::<ToRoot>();
    protections::<Lazy>();
}

/// 1,000 one-page VMAs with a page between each two, so that every number matters.
fn comb<P: Propagation>() -> GapTree<P> {
    let mut tree = GapTree::<P>::new(space(2_001));
    for i in 0..1_000 {
        put(&mut tree, pages(2 * i + 1, 2 * i + 2), Merge::With(0));
    }
    tree
}

fn depth<P: Propagation>(tree: &GapTree<P>, address: u64) -> u64 {
    tree.vmas.nodes.find(address).1
}

/// Returns how many nodes `step` recomputes.
fn recomputed<P: Propagation>(tree: &mut GapTree<P>, step: impl Fn(&mut GapTree<P>)) -> u64 {
    let before = tree.work().propagated;
    step(tree);
    tree.check().unwrap();
    tree.work().propagated - before
}

/// ```text
/// . A . A . A A A A . A . A     two pages of the middle change hands: no gap moves
/// ```
#[test]
fn a_boundary_shift_costs_only_who_always_climbs() {
    fn cost<P: Propagation>() -> (u64, u64, u64) {
        let mut tree = comb::<P>();
        put(&mut tree, pages(1_000, 1_001), Merge::With(1));
        put(&mut tree, pages(1_002, 1_003), Merge::With(0));
        // Now 1000 is of kind 1 and 999, 1001 to 1003 are of kind 0.
        let paths = depth(&tree, 999 * PAGE) + depth(&tree, 1_000 * PAGE);
        tree.protect(pages(1_001, 1_002), Merge::With(1)).unwrap();
        let back = |tree: &mut GapTree<P>| {
            tree.protect(pages(1_001, 1_002), Merge::With(0)).unwrap();
        };
        let cost = recomputed(&mut tree, back);
        (cost, paths, tree.work().flushes)
    }
    assert_eq!(cost::<EarlyStop>().0, 0);
    assert_eq!(cost::<Lazy>().0, 0);
    let (climbed, paths, _) = cost::<ToRoot>();
    assert!(
        climbed + 8 >= paths && climbed <= paths + 8,
        "{climbed} {paths}"
    );
}

/// The hole that opens is as large as others beside it, so that one or two levels up nothing changes.
#[test]
fn an_early_stop_is_early() {
    let mut tree = comb::<EarlyStop>();
    let hole = pages(1_000, 1_001);
    put(&mut tree, hole, Merge::Never);
    let free = |tree: &mut GapTree<_>| tree.free(hole).unwrap();
    let stopped = recomputed(&mut tree, free);
    let mut tree = comb::<ToRoot>();
    put(&mut tree, hole, Merge::Never);
    let free = |tree: &mut GapTree<_>| tree.free(hole).unwrap();
    let climbed = recomputed(&mut tree, free);
    assert!(stopped <= 6 && climbed >= 16, "{stopped} {climbed}");
}

/// The page between the limits is taken, and there are 500 gaps that would do on either side of them:
/// a search that stops at the limits looks at none of those.
#[test]
fn a_search_ends_where_the_limits_end() {
    let mut tree = comb::<EarlyStop>();
    for direction in [Direction::TopDown, Direction::BottomUp] {
        let request = Request {
            limits: Some(pages(1_001, 1_002)),
            direction,
            ..Request::of(PAGE)
        };
        let before = tree.work().visited;
        assert_eq!(tree.place(&request), Err(PlaceError::Exhausted));
        let visited = tree.work().visited - before;
        // The tree is at most 20 nodes high.
        assert!(visited <= 40, "{direction:?}: {visited}");
    }
}

/// The same page, unmapped and mapped, lists the same VMAs each time. A gap that has just come and that
/// no number tells of is found.
#[test]
fn what_is_listed_already_costs_nothing() {
    let mut tree = comb::<Lazy>();
    assert_eq!(
        tree.place(&Request::of(3 * PAGE)),
        Err(PlaceError::Exhausted)
    );
    let Work { flushes, .. } = tree.work();
    assert!(tree.vmas.propagation.pending().is_empty());
    let cost = recomputed(&mut tree, |tree| {
        for _ in 0..100 {
            tree.free(pages(1_001, 1_002)).unwrap();
            assert!(tree.vmas.nodes[tree.vmas.nodes.root].subtree_gap < 3 * PAGE);
            // Pages 1000 to 1003.
            assert_eq!(tree.place(&Request::of(3 * PAGE)), Ok(pages(1_000, 1_003)));
            tree.free(pages(1_000, 1_003)).unwrap();
            put(tree, pages(1_001, 1_002), Merge::Never);
        }
    });
    let listed = tree.vmas.propagation.pending().len();
    assert_eq!(tree.work().flushes, flushes);
    assert!(listed < BOUND, "{listed}");
    // Rotations alone: a path would be 10 nodes each time.
    assert!(cost <= 100 * 2 * 3, "{cost}");
}

/// ```text
/// 0 1 2 3 4 5 6 7 8 9 a
/// . A . . . B . . . C D     A's, B's and C's gaps: 1, 3, 3
///           ^               B goes: C has 7, which the list alone knows, and is before A
/// ```
#[test]
fn of_a_gap_in_the_tree_and_a_listed_one_the_first_in_order_is_taken() {
    let mut tree = WeinerLazy::new(space(11));
    for (start, end) in [(1, 2), (5, 6), (9, 10), (10, 11)] {
        put(&mut tree, pages(start, end), Merge::Never);
    }
    let none = tree.place(&Request::of(5 * PAGE));
    assert_eq!(none, Err(PlaceError::Exhausted));
    assert!(tree.vmas.propagation.pending().is_empty());
    tree.free(pages(5, 6)).unwrap();
    tree.check().unwrap();
    let up = Request {
        direction: Direction::BottomUp,
        ..Request::of(PAGE)
    };
    assert_eq!(tree.place(&up), Ok(pages(0, 1)));
    assert_eq!(tree.place(&Request::of(PAGE)), Ok(pages(8, 9)));
    assert_eq!(tree.place(&Request::of(6 * PAGE)), Ok(pages(2, 8)));
    tree.check().unwrap();
}

#[test]
fn a_full_list_is_flushed_and_a_failure_too() {
    let mut tree = comb::<Lazy>();
    let before = tree.work().flushes;
    for i in (0..1_000).step_by(10) {
        tree.free(pages(2 * i + 1, 2 * i + 2)).unwrap();
        tree.check().unwrap();
    }
    let after = tree.work().flushes;
    // Two VMAs at most are listed for each that goes: its successor and who was above it.
    assert!((2..=7).contains(&(after - before)), "{before} {after}");
    let failing = Request::of(4 * PAGE);
    assert_eq!(tree.place(&failing), Err(PlaceError::Exhausted));
    assert_eq!(tree.work().flushes, after + 1);
    assert_eq!(tree.place(&failing), Err(PlaceError::Exhausted));
    assert_eq!(tree.work().flushes, after + 1, "nothing to flush");
}

/// A check that finds no fault checks nothing.
#[test]
fn faults_are_found() {
    type Fault = fn(&mut WeinerLazy);
    let faults: [(&str, Fault); 10] = [
        ("hides a gap", |tree| {
            let root = tree.vmas.nodes.root;
            tree.vmas.nodes[root].subtree_gap = 0;
        }),
        ("as largest gap", |tree| {
            let root = tree.vmas.nodes.root;
            tree.vmas.nodes[root].subtree_gap += PAGE;
        }),
        ("are marked as listed", |tree| {
            let root = tree.vmas.nodes.root;
            tree.vmas.nodes[root].listed = true;
        }),
        ("still marked for a flush", |tree| {
            let root = tree.vmas.nodes.root;
            tree.vmas.nodes[root].marked = true;
        }),
        ("black nodes below", |tree| {
            let lowest = tree.vmas.nodes[NIL].next;
            let node = &mut tree.vmas.nodes[lowest];
            node.red = !node.red;
        }),
        ("the parent of", |tree| {
            let right = tree.vmas.nodes[tree.vmas.nodes.root].child[RIGHT];
            tree.vmas.nodes[right].parent = NIL;
        }),
        ("where the one before it ends", |tree| {
            let second = tree.vmas.nodes[tree.vmas.nodes[NIL].next].next;
            tree.vmas.nodes[second].range.start -= 3 * PAGE;
        }),
        ("the list is broken", |tree| {
            let second = tree.vmas.nodes[tree.vmas.nodes[NIL].next].next;
            tree.vmas.nodes[second].prev = NIL;
        }),
        ("held", |tree| tree.vmas.nodes.count += 1),
        ("have not merged", |tree| {
            put(tree, pages(4, 5), Merge::With(1));
            let id = tree.vmas.nodes.find(4 * PAGE).0;
            tree.vmas.nodes[id].merge = Merge::With(0);
        }),
    ];
    for (what, fault) in faults {
        let mut tree = comb::<Lazy>();
        assert!(tree.place(&Request::of(3 * PAGE)).is_err());
        assert_eq!(tree.check(), Ok(()));
        fault(&mut tree);
        let found = tree.check().err().unwrap_or_default();
        assert!(found.contains(what), "{what}: found '{found}'");
    }
}
