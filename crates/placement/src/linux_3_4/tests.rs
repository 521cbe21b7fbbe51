use super::V3_4;
use crate::Direction::{BottomUp, TopDown};
use crate::free_area_cache::drawn::{Drawn, MAX};

type Mm = Drawn<V3_4>;

/// ```text
/// 0123456789ab
/// .........C.A     B was freed, and the cache moved to A
/// .......DDC.A     D does not fit under it: the scan goes on from there. Its first probe held the hole
///                  and C: the hole is not recorded
/// ......EDDC.A     so E does not find it
/// ```
#[test]
fn what_does_not_fit_under_the_cache_scans_on_from_there() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABC");
    mm.unmap('B');
    assert_eq!(mm.state(), (11, 0));
    assert_eq!(mm.work_of(|mm| mm.map_all("DD")), [2, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".......DDC.A", (7, 0))
    );
    assert_eq!(mm.work_of(|mm| mm.map_all("E")), [1, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("......EDDC.A", (6, 0))
    );
}

/// ```text
/// 0123456789ab
/// ........C..A     B was freed, and the cache moved to A
/// .....DDDC..A
/// .....DDDCE.A     E by its hint: the cache stays at D
/// ....FDDDCE.A     F's hint is taken: as if it had none
/// ```
#[test]
fn a_hint_leaves_the_cache() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABBC");
    mm.unmap('B');
    mm.map_all("DDD");
    assert_eq!(mm.work_of(|mm| assert!(mm.map_at('E', 1, 9))), [1, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....DDDCE.A", (5, 0))
    );
    assert_eq!(mm.work_of(|mm| assert!(mm.map_at('F', 1, 9))), [2, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....FDDDCE.A", (4, 0))
    );
}

/// ```text
/// 0123456789ab
/// ........C..A     B was freed, and the cache moved to A
///        |--|      the first probe for four pages: one page of it lies under C, and that is recorded
/// ....DDDDC..A     although D takes it itself
/// ....DDDDC.EA     E begins at the base again, and finds the hole that was not recorded
/// ```
#[test]
fn a_hole_that_was_passed_over_resets_the_search() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABBC");
    mm.unmap('B');
    assert_eq!(mm.work_of(|mm| mm.map_all("DDDD")), [2, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....DDDDC..A", (4, 1))
    );
    assert_eq!(mm.work_of(|mm| mm.map_all("E")), [2, 1, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....DDDDC.EA", (10, 0))
    );
}

/// ```text
/// 0123456789ab
/// .......DDC.A     the hole at 10 was passed over unseen, the cache is at 7
/// EEEEEEEDDC.A     the cache is at 0: nothing is below
/// EEEEEEEDDCFA     F tries once more, from the base; so does G, for which there is nothing, and once
/// ```
#[test]
fn having_run_out_it_tries_once_more_from_the_base() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABC");
    mm.unmap('B');
    mm.map_all("DDEEEEEEE");
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("EEEEEEEDDC.A", (0, 0))
    );
    assert_eq!(mm.work_of(|mm| mm.map_all("F")), [2, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("EEEEEEEDDCFA", (10, 0))
    );
    // From the cache C, D, E; from the base A, F, C, D, E; bottom-up E, D, C, F, A and the list's end.
    let work = mm.work_of(|mm| assert!(!mm.map('G', 1)));
    assert_eq!((work, mm.state()), ([3 + 5 + 6, 0, 1], (12, MAX)));
    // The fallback sent the next one to the base: no second try.
    let work = mm.work_of(|mm| assert!(!mm.map('G', 1)));
    assert_eq!((work, mm.state()), ([5 + 6, 1, 1], (12, MAX)));
}

/// ```text
/// 0123456789ab
/// ....A...DDD.     A is freed: the cache moves to 4, the hole size stays
/// ```
#[test]
fn bottom_up_munmap_leaves_the_hole_size() {
    let mut mm = Mm::new(BottomUp);
    mm.map_all("ABCCCDDD");
    mm.unmap('A');
    assert_eq!(mm.state(), (4, 0));
    mm.unmap('C');
    assert_eq!(mm.state(), (4, 0));
    mm.map_all("EEE");
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....BEEEDDD", (9, 1))
    );
    mm.unmap('E');
    assert_eq!(mm.state(), (6, 1));
    mm.map_all("EEEF");
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....FBEEEDDD", (5, 0))
    );
}
