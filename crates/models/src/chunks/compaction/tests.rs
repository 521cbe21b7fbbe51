use super::super::buddy::{Buddy, PageState};
use super::super::machine::Setting;
use super::*;

/// ```text
/// frame  0    512  1024       3584   4096
///        MMMM MMMM MMMM ....  ffff        M movable, f free
/// ```
fn free_at_the_end() -> Machine {
    let mut buddy = Buddy::new(4_096, Use::Movable).unwrap();
    // In single pages: every second one, so that nothing larger is free.
    for frame in (3_072..4_096).step_by(2) {
        buddy.give(frame, 0).unwrap();
    }
    let mut machine = Machine::new(buddy, &Setting::default()).unwrap();
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
