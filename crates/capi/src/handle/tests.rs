//! An oracle with a map; then all that is no handle; then threads and a fork.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::thread;

use proptest::prelude::*;

use super::*;

/// Counts itself as long as it lives.
struct Counted<'a>(u64, &'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(value: u64, alive: &'a AtomicUsize) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(value, alive)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refused<T>(result: Result<T>) -> Option<Failure> {
    result.err()
}

proptest! {
    #[test]
    fn as_a_map_would(steps in prop::collection::vec((0_u8..4, any::<u64>()), 1..400)) {
        let alive = AtomicUsize::new(0);
        let table = Table::<Counted<'_>, 2>::new(15);
        let mut open: HashMap<usize, u64> = HashMap::new();
        let mut all: Vec<*mut u8> = Vec::new();
        for (what, value) in steps {
            let some = (!all.is_empty()).then(|| all[value as usize % all.len()]);
            match (what, some) {
                (0 | 1, _) | (_, None) => {
                    let handle = table.insert::<u8>(Counted::new(value, &alive)).unwrap();
                    prop_assert!(open.insert(handle.addr(), value).is_none());
                    all.push(handle);
                }
                (2, Some(handle)) => {
                    let expected = open.remove(&handle.addr());
                    match table.close(handle) {
                        Ok(object) => prop_assert_eq!(object.map(|o| o.0), expected),
                        Err(failure) => {
                            prop_assert_eq!((failure, expected), (Failure::HANDLE, None));
                        }
                    }
                }
                (_, Some(handle)) => match table.get(handle) {
                    Ok(used) => prop_assert_eq!(Some(&used.0), open.get(&handle.addr())),
                    Err(failure) => {
                        prop_assert_eq!(failure, Failure::HANDLE);
                        prop_assert!(!open.contains_key(&handle.addr()));
                    }
                },
            }
            prop_assert_eq!(alive.load(Ordering::Relaxed), open.len());
        }
        for handle in open.keys() {
            drop(table.close(ptr::without_provenance_mut::<u8>(*handle)).unwrap());
        }
    }

    #[test]
    fn any_bits_are_refused(bits: u64, near in any::<prop::sample::Index>(), flip in 0_u32..64) {
        let table = Table::<u64, 1>::new(15);
        let handles: Vec<*mut u8> = (0..40).map(|i| table.insert(i).unwrap()).collect();
        let near = handles[near.index(handles.len())].addr() as u64;
        for bits in [bits, near ^ 1 << flip, bits & 0xffff_ffff, near | bits >> 40] {
            let handle = ptr::without_provenance::<u8>(bits as usize);
            let known = handles.iter().position(|h| h.addr() as u64 == bits);
            match table.get(handle) {
                Ok(used) => prop_assert_eq!(Some(*used as usize), known),
                Err(failure) => prop_assert_eq!((failure, known), (Failure::HANDLE, None)),
            }
        }
        for handle in handles {
            table.close(handle).unwrap();
        }
    }
}

#[test]
fn places_are_each_index_once() {
    let mut expected = (0, 0);
    for index in 0..1 << 16 {
        assert_eq!(place(index), expected, "{index}");
        expected.1 += 1;
        if expected.1 == (FIRST as usize) << expected.0 {
            expected = (expected.0 + 1, 0);
        }
    }
    // The last that there is room for, and the first beyond.
    let all = FIRST * ((1 << CHUNKS) - 1);
    assert_eq!(place(all - 1).0, CHUNKS - 1);
    assert_eq!(place(all).0, CHUNKS);
    assert!(all < 1 << INDEX_BITS);
}

#[test]
fn a_handle_is_no_address_of_user_space() {
    let table = Table::<u64, 1>::new(15);
    let handle = table.insert::<u8>(1).unwrap();
    // 57 bits are the most that user space has anywhere; x86 faults on all that is not canonical.
    assert_ne!(handle.addr() >> 57, 0);
    assert_ne!(handle.addr() as i64 >> 47, -1);
    table.close(handle).unwrap();
}

#[test]
fn a_slot_is_retired_before_an_old_handle_would_be_one_again() {
    let table = Table::<u64, 1>::new(15);
    let first = table.insert::<u8>(0).unwrap();
    let slot = table.slot(0).unwrap();
    slot.state
        .store(state(GENERATIONS - 1, LIVE), Ordering::SeqCst);
    let last =
        ptr::without_provenance::<u8>(first.addr() | (GENERATIONS as usize - 1) << INDEX_BITS);
    assert_eq!(table.close(last).unwrap(), Some(0));
    assert_eq!(refused(table.get(first)), Some(Failure::HANDLE));
    assert_eq!(refused(table.get(last)), Some(Failure::HANDLE));
    let next = table.insert::<u8>(1).unwrap();
    assert_ne!(
        next.addr() & 1,
        first.addr() & 1,
        "the slot was given out again"
    );
    table.close(next).unwrap();
}

#[test]
fn a_handle_in_use_stays_open() {
    let table = Table::<u64, 4>::new(15);
    let handle = table.insert::<u8>(7).unwrap();
    let used = table.get(handle).unwrap();
    assert_eq!(table.close(handle), Err(Failure::BUSY));
    assert_eq!(*used, 7);
    drop(used);
    assert_eq!(table.close(handle), Ok(Some(7)));
    assert_eq!(table.close(handle), Err(Failure::HANDLE));
}

#[test]
fn what_a_panic_went_through_can_only_be_closed() {
    let alive = AtomicUsize::new(0);
    let table = Table::<Counted<'_>, 4>::new(15);
    let handle = table.insert::<u8>(Counted::new(7, &alive)).unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _used = table.get(handle).unwrap();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panic.is_err());
    assert_eq!(refused(table.get(handle)), Some(Failure::BROKEN));
    assert!(table.close(handle).unwrap().is_none());
    assert_eq!(refused(table.get(handle)), Some(Failure::HANDLE));
    assert_eq!(
        alive.load(Ordering::Relaxed),
        1,
        "it was dropped, half changed"
    );
}

#[test]
fn the_child_of_a_fork_has_no_users_of_other_threads() {
    let table = Table::<u64, 4>::new(15);
    let handle = table.insert::<u8>(7).unwrap();
    std::mem::forget(table.get(handle).unwrap());
    assert_eq!(table.close(handle), Err(Failure::BUSY));
    table.forked();
    assert_eq!(table.close(handle), Ok(Some(7)));
}

/// Threads open, use and close at random, each others' too: what is used is never what was closed.
#[test]
fn threads_meet_nothing_that_was_closed() {
    const ROUNDS: u64 = if cfg!(debug_assertions) {
        20_000
    } else {
        200_000
    };
    /// Says so when it is used after it was dropped.
    struct Alive(AtomicBool);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let table = Table::<Alive, 4>::new(15);
    let shared: [AtomicPtr<u8>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];
    let closed = AtomicUsize::new(0);
    let opened = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (table, shared, closed, opened) = (&table, &shared, &closed, &opened);
            scope.spawn(move || {
                let mut random = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let at = &shared[random as usize % 4];
                    match random >> 8 & 3 {
                        0 => {
                            let new = table.insert::<u8>(Alive(AtomicBool::new(true))).unwrap();
                            opened.fetch_add(1, Ordering::Relaxed);
                            let old = at.swap(new, Ordering::Relaxed);
                            // Refused as long as another thread is in a call with it.
                            while !old.is_null()
                                && table.close(old).is_err_and(|f| f == Failure::BUSY)
                            {
                                thread::yield_now();
                            }
                            if !old.is_null() {
                                closed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        _ => {
                            if let Ok(used) = table.get(at.load(Ordering::Relaxed)) {
                                assert!(used.0.load(Ordering::Relaxed));
                            }
                        }
                    }
                }
            });
        }
    });
    for at in &shared {
        if table.close(at.load(Ordering::Relaxed)).is_ok() {
            closed.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(closed.into_inner(), opened.into_inner());
}
