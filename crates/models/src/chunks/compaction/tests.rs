use super::super::buddy::{Buddy, PageState};
use super::super::kernel::Kernel;
use super::super::machine::Setting;
use super::*;

/// ```text
/// frame  0    512  1024       3584   4096
///        MMMM MMMM MMMM ....  ffff        M movable, f free
/// ```
fn free_at_the_end() -> Machine {
    free_at_the_end_in(&Setting::default())
}

fn free_at_the_end_in(setting: &Setting) -> Machine {
    let mut buddy = Buddy::new(4_096, Use::Movable).unwrap();
    // In single pages: every second one, so that nothing larger is free.
    for frame in (3_072..4_096).step_by(2) {
        buddy.free(frame, 0).unwrap();
    }
    let mut machine = Machine::new(buddy, setting).unwrap();
    machine = machine.with_marks(super::super::watermarks::Watermarks {
        min: 16,
        low: 32,
        high: 64,
    });
    machine
}

#[test]
fn a_pass_moves_the_beginning_to_the_end() {
    let mut machine = free_at_the_end();
    let free = machine.buddy().free_pages();
    let Compacted::Got(frame) = machine.compact(5, Mode::Sync) else {
        panic!("nothing was in the way");
    };
    machine.buddy().check().unwrap();
    assert!(frame < 512, "{frame}");
    assert_eq!(machine.buddy().free_pages(), free - 32);
    let counts = machine.counts();
    assert!(counts.moved > 0 && counts.scanned <= 4_096, "{counts:?}");
    assert_eq!(counts.compaction_succeeded, 1);
}

#[test]
fn pinned_pages_stay_where_they_are() {
    let mut machine = free_at_the_end();
    for frame in (0..3_072).step_by(2) {
        machine.zones[0].buddy.set_use(frame, Use::Pinned).unwrap();
    }
    assert_eq!(machine.compact(5, Mode::Sync), Compacted::Failed);
    machine.buddy().check().unwrap();
    for frame in (0..3_072).step_by(2) {
        let state = machine.buddy().page(frame);
        assert_eq!(state, Some(PageState::Used(Use::Pinned)));
    }
    // The next one is not even tried.
    assert_eq!(machine.compact(5, Mode::Sync), Compacted::Deferred);
}

/// 3.14 wants the low mark and twice the block free before it begins.
#[test]
fn too_few_free_pages_skip_it() {
    let mut machine = free_at_the_end();
    machine.zones[0].marks.low = machine.buddy().free_pages() - 64;
    assert_eq!(machine.compact(5, Mode::Sync), Compacted::Skipped);
    assert_eq!(machine.counts().scanned, 0);
}

fn recent() -> Machine {
    free_at_the_end_in(&Setting {
        kernel: Kernel::V6_12,
        ..Setting::default()
    })
}

/// As many free pages as there are pages to move; the scanner stands in the middle of a block and begins it again.
#[test]
fn a_recent_pass_stops_where_it_has_enough() {
    let mut machine = recent();
    assert!(machine.compact(4, Mode::Async).got().is_some());
    let counts = machine.counts();
    // 16 pages, and 31 of which every second one is free: the last 2 MiB block from its start.
    assert_eq!((counts.moved, counts.scanned), (16, 16 + 31), "{counts:?}");
    assert!(machine.compact(4, Mode::Async).got().is_some());
    let counts = machine.counts();
    // The first 31 of that block are used now.
    assert_eq!(
        (counts.moved, counts.scanned),
        (32, 47 + 16 + 63),
        "{counts:?}"
    );
}

/// ```text
/// page   0 . . . 4 . . . 16
///        P M M M P M M M P        each stretch of 16 has a page P that stays: it is left there
/// ```
#[test]
fn an_asynchronous_pass_leaves_a_stretch_at_the_page_that_stays() {
    let mut machine = recent();
    for frame in (0..3_072).step_by(4).chain((3_073..4_096).step_by(2)) {
        machine.zones[0].buddy.set_use(frame, Use::Pinned).unwrap();
    }
    assert_eq!(machine.compact(4, Mode::Async), Compacted::Failed);
    let counts = machine.counts();
    // Six blocks of 32 stretches each, and one where a free page is the first of each. The other scanner is in the last one.
    let once = 6 * 32 + 2 * 32;
    assert_eq!((counts.moved, counts.scanned), (0, once), "{counts:?}");
    // Nobody can use them until kswapd has slept.
    assert_eq!(machine.compact(4, Mode::Sync), Compacted::Failed);
    assert_eq!(machine.counts().scanned, once);
    machine.zones[0].compaction.kswapd_sleeps();
    machine.zones[0].compaction.deferral = Deferral::default();
    assert_eq!(machine.compact(4, Mode::Sync), Compacted::Failed);
    assert!(machine.counts().scanned > once + 6 * 512);
}
