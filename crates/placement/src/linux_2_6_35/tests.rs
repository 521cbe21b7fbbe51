use super::V2_6_35;
use crate::Direction::{BottomUp, TopDown};
use crate::free_area_cache::drawn::{Drawn, MAX};

type Mm = Drawn<V2_6_35>;

/// ```text
/// 0123456789ab
/// ........CBBA
/// ........C..A     B is freed, and the cache moves to A
/// .....DDDC..A     D does not fit under it; the scan passes over a hole of two pages
/// .....DDDC.EA     E may: the search begins again, and finds the hole from its top
/// ```
#[test]
fn a_hole_that_was_passed_over_resets_the_search() {
    let mut mm = Mm::new(TopDown);
    assert_eq!(mm.work_of(|mm| mm.map_all("ABBC")), [3, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("........CBBA", (8, 0))
    );
    mm.unmap('B');
    assert_eq!(mm.state(), (11, 0));
    // The probe meets C; the scan meets A, then C, then nothing.
    assert_eq!(mm.work_of(|mm| mm.map_all("DDD")), [4, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....DDDC..A", (5, 2))
    );
    // The probe and the scan's first step meet A.
    assert_eq!(mm.work_of(|mm| mm.map_all("E")), [3, 1, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....DDDC.EA", (10, 0))
    );
}

/// ```text
/// 0123456789ab
/// .....DDDC..A     as above: a hole of two pages was passed over
/// .....DDDCFFA     F fills it by its hint: neither cache nor hole size change
/// ...GGDDDCFFA     G begins again, for nothing
/// ```
#[test]
fn a_hole_that_is_filled_still_resets() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABBC");
    mm.unmap('B');
    mm.map_all("DDD");
    assert_eq!(mm.work_of(|mm| assert!(mm.map_at('F', 2, 9))), [1, 0, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....DDDCFFA", (5, 2))
    );
    // The probe meets F; the scan F (of A and F the lower), D (of D and C the lower), and nothing.
    assert_eq!(mm.work_of(|mm| mm.map_all("GG")), [4, 1, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("...GGDDDCFFA", (3, 0))
    );
}

/// ```text
/// 0123456789ab
/// .........CBA
/// .........C.A     B is freed, and the cache moves to A
/// .......DDC.A     no hole is known, but the two pages under the cache are not free: a full scan
/// .......DDCEA     the scan saw a hole of one page, and so E begins again
/// ```
#[test]
fn a_failed_probe_scans_from_the_base() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABC");
    mm.unmap('B');
    assert_eq!(mm.state(), (11, 0));
    assert_eq!(mm.work_of(|mm| mm.map_all("DD")), [4, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".......DDC.A", (7, 1))
    );
    assert_eq!(mm.work_of(|mm| mm.map_all("E")), [3, 1, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".......DDCEA", (10, 0))
    );
}

/// ```text
/// 0123456789ab
/// ....DDDC.B.A
///          |-|     the scan's first probe for three pages: B, a hole, A
///       |-|        the second: D, C, a hole
/// .FFFDDDC.B.A     the third is free; of the two holes nothing is known
/// ```
#[test]
fn a_step_passes_over_all_of_its_probe_but_the_lowest_vma() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("AxByCDDD");
    mm.unmap('x');
    mm.unmap('y');
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....DDDC.B.A", (11, 0))
    );
    assert_eq!(mm.work_of(|mm| mm.map_all("FFF")), [4, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".FFFDDDC.B.A", (1, 0))
    );
}

/// ```text
/// 0123456789ab
/// ..H.G...DCBA     G and H by their hints: the cache is at D
/// ```
#[test]
fn munmap_moves_the_cache_up_to_the_top_of_the_hole_alone() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("ABCD");
    assert!(mm.map_at('G', 1, 4) && mm.map_at('H', 1, 2));
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("..H.G...DCBA", (8, 0))
    );
    // The VMA above the hole, G, lies below the cache.
    mm.unmap('H');
    assert_eq!(mm.state(), (8, 0));
    mm.unmap('C');
    assert_eq!(mm.state(), (10, 0));
    // The hole that it enlarges has A above it.
    mm.unmap('B');
    assert_eq!(mm.state(), (11, 0));
    mm.unmap('D');
    assert_eq!(mm.state(), (11, 0));
    // Nothing lies above: the base.
    mm.unmap('A');
    assert_eq!(mm.state(), (12, 0));
}

/// ```text
/// 0123456789ab
/// AAAAAAAAAAAA     B finds nothing from the base, nor bottom-up from 4
/// ..........CC     C of any size begins at the base
/// ```
#[test]
fn after_the_bottom_up_search_the_next_begins_at_the_base() {
    let mut mm = Mm::new(TopDown);
    assert!(mm.map('A', 12));
    assert_eq!(mm.state(), (0, 0));
    // No probe under 0; A from the base, A at 4 and the end of the list.
    let work = mm.work_of(|mm| assert!(!mm.map('B', 1)));
    assert_eq!((work, mm.state()), ([3, 0, 1], (12, MAX)));
    mm.unmap('A');
    assert_eq!(mm.state(), (12, MAX));
    assert_eq!(mm.work_of(|mm| mm.map_all("CC")), [1, 1, 0]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("..........CC", (10, 0))
    );
}

/// ```text
/// 0123456789ab
/// .AAAAAAAAAAA     page 0 is free; no search gives it, because the comparisons are strict
/// BAAAAAAAAAAA     a hint does
/// ```
#[test]
fn the_first_page_is_not_given() {
    let mut mm = Mm::new(TopDown);
    mm.map_all("AAAAAAAAAAA");
    assert!(!mm.map('B', 1));
    assert!(mm.map_at('B', 1, 0));
    assert_eq!(mm.picture(), "BAAAAAAAAAAA");
}

/// ```text
/// 0123456789ab
/// ....ABCCCDDD     TASK_UNMAPPED_BASE is 4
/// .....B...DDD     A is freed: the cache moves to 4; then C: it stays
/// .....BEEEDDD     E passes over A's page
/// ....FBEEEDDD     nothing above the cache: F begins again at 4, although its size was known to fit
/// ```
#[test]
fn bottom_up_begins_again_only_at_the_end() {
    let mut mm = Mm::new(BottomUp);
    mm.map_all("ABCCCDDD");
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....ABCCCDDD", (12, 0))
    );
    mm.unmap('A');
    assert_eq!(mm.state(), (4, MAX));
    mm.unmap('C');
    assert_eq!(mm.state(), (4, MAX));
    assert_eq!(mm.work_of(|mm| mm.map_all("EEE")), [2, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        (".....BEEEDDD", (9, 1))
    );
    // D and the end of the list, then B.
    assert_eq!(mm.work_of(|mm| mm.map_all("F")), [3, 0, 1]);
    assert_eq!(
        (mm.picture().as_str(), mm.state()),
        ("....FBEEEDDD", (5, 0))
    );
}

/// ```text
/// 0123456789ab
/// A...BBBBBBBB     what is free lies below TASK_UNMAPPED_BASE, where no search looks
/// ```
#[test]
fn bottom_up_does_not_look_below_task_unmapped_base() {
    let mut mm = Mm::new(BottomUp);
    assert!(mm.map_at('A', 1, 0));
    mm.map_all("BBBBBBBB");
    assert!(!mm.map('C', 1));
    assert_eq!(mm.picture(), "A...BBBBBBBB");
    // Nor does munmap move the cache there.
    assert!(mm.map_at('C', 1, 2));
    mm.unmap('C');
    assert_eq!(mm.state().0, 12);
}
