//! Tests that need no second thread; `loom_tests` has the others.

use std::sync::atomic::AtomicU64;

use super::lock::Lock;
use super::marks::{Deferred, Kind, MOST_PAGES, Mark, Marks};
use super::owners::{NUMBERS, Owners};

#[test]
fn a_mark_holds_what_it_may() {
    for pages in [1, 77, MOST_PAGES] {
        for kind in [Kind::Nothing, Kind::Live, Kind::Held, Kind::Free] {
            let mark = Mark::new(kind, pages);
            assert_eq!((mark.kind(), mark.pages()), (kind, pages));
        }
    }
}

#[test]
fn outside_the_window_nothing_starts() {
    let words = [const { AtomicU64::new(0) }; 2];
    let marks = Marks::new(&words);
    marks.set(2, Mark::new(Kind::Live, 1));
    assert_eq!(marks.get(2).kind(), Kind::Nothing);
    assert!(!marks.hold(2, Mark::new(Kind::Live, 1)));
}

#[test]
fn what_is_deferred_is_taken_in_turn() {
    let words = [const { AtomicU64::new(0) }; 2];
    let (marks, deferred) = (Marks::new(&words), Deferred::new());
    for page in [0, 1] {
        let mark = Mark::new(Kind::Live, 5 + page);
        marks.set(page, mark);
        assert!(marks.hold(page, mark) && !marks.hold(page, mark));
        deferred.push(&marks, page);
    }
    let mut taken = Vec::new();
    deferred.take(&marks, |page, mark| taken.push((page, mark)));
    let held = |pages| Mark::new(Kind::Held, pages);
    assert_eq!(taken, [(1, held(6)), (0, held(5))]);
    assert_eq!(marks.get(1), held(6));
}

#[test]
fn a_lock_can_be_given_up_and_forced_open() {
    let lock = Lock::new();
    let held = lock.lock(|| false).unwrap();
    assert!(lock.lock(|| true).is_none());
    std::mem::forget(held);
    lock.force_open();
    drop(lock.lock(|| true).unwrap());
    lock.keep_locked();
    lock.unlock();
    assert!(lock.lock(|| true).is_some());
}

#[test]
fn numbers_end_and_dead_ones_come_back() {
    let owners = Owners::new();
    for thread in 1..=NUMBERS {
        let thread = u32::try_from(thread).unwrap();
        assert_eq!(owners.claim(thread, |_| false), Some(thread as usize - 1));
    }
    assert_eq!(owners.claim(1_000, |_| false), None);
    assert_eq!(owners.claim(1_000, |thread| thread == 100), Some(99));
    assert_eq!(owners.claim(7, |_| false), Some(6));
    let mut found = Vec::new();
    owners.orphans(
        1_000,
        |thread| (7..9).contains(&thread),
        |number| found.push(number),
    );
    assert_eq!(found, [6, 7]);
    assert_eq!(owners.claim(2_000, |thread| thread == 7), Some(6));
    owners.only(Some(3), 50);
    assert_eq!(owners.claim(50, |_| false), Some(3));
    assert_eq!(owners.claim(51, |_| false), Some(0));
}
