//! Every order that the memory model allows. See the module for the command.

#![allow(unsafe_code)]

use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use super::lock::Lock;
use super::marks::{Deferred, Kind, Mark, Marks};
use super::owners::Owners;
use super::strays::{PLACES, Stray, Strays};

#[test]
fn under_the_lock_there_is_one() {
    loom::model(|| {
        let shared = Arc::new((Lock::new(), UnsafeCell::new(0)));
        let add = |shared: &(Lock, UnsafeCell<u32>)| {
            let locked = shared.0.lock(|| false).unwrap();
            // SAFETY: under the lock; loom says so if two are there at once.
            shared.1.with_mut(|value| unsafe { *value += 1 });
            drop(locked);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let _locked = shared.0.lock(|| false).unwrap();
        // SAFETY: as above.
        assert_eq!(shared.1.with(|value| unsafe { *value }), 2);
    });
}

struct Table(Vec<AtomicU64>, Deferred, UnsafeCell<u32>);

impl Table {
    fn of(pages: usize) -> Arc<Table> {
        let words = (0..pages).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Table(words, Deferred::new(), UnsafeCell::new(0)))
    }

    fn marks(&self) -> Marks<'_> {
        Marks::new(&self.0)
    }
}

/// A buffer is given out by one thread, written, freed by two others: one of them has it then, and sees what was written.
#[test]
fn of_two_that_free_one_succeeds() {
    loom::model(|| {
        let table = Table::of(1);
        let won = Arc::new(AtomicUsize::new(0));
        // SAFETY: nobody else is there yet.
        table.2.with_mut(|value| unsafe { *value = 7 });
        table.marks().set(0, Mark::new(Kind::Live, 1));
        let free = |table: &Table, won: &AtomicUsize| {
            let seen = table.marks().get(0);
            if seen.kind() == Kind::Live && table.marks().hold(0, seen) {
                // SAFETY: only the holder of the mark uses the buffer; otherwise loom reports a race.
                table.2.with_mut(|value| unsafe { *value += 1 });
                won.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (other, of_other) = (Arc::clone(&table), Arc::clone(&won));
        let thread = thread::spawn(move || free(&other, &of_other));
        free(&table, &won);
        thread.join().unwrap();
        assert_eq!(won.load(Ordering::Relaxed), 1);
        assert_eq!(table.marks().get(0).kind(), Kind::Held);
    });
}

/// Freed by one, given out again by it, and freed by another: what the first did comes before.
#[test]
fn what_was_done_to_a_buffer_is_seen_by_who_gets_it_next() {
    loom::model(|| {
        let table = Table::of(1);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            // SAFETY: not given out yet, so this thread's.
            other.2.with_mut(|value| unsafe { *value = 1 });
            other.marks().set(0, Mark::new(Kind::Live, 1));
        });
        let seen = table.marks().get(0);
        if seen.kind() == Kind::Live && table.marks().hold(0, seen) {
            // SAFETY: the mark is held.
            assert_eq!(table.2.with(|value| unsafe { *value }), 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn what_is_deferred_is_taken_once() {
    loom::model(|| {
        let table = Table::of(3);
        for page in 0..3 {
            table.marks().set(page, Mark::new(Kind::Held, page + 1));
        }
        let threads: Vec<_> = (0..2)
            .map(|page| {
                let table = Arc::clone(&table);
                thread::spawn(move || table.1.push(&table.marks(), page))
            })
            .collect();
        let mut taken = Vec::new();
        table.1.push(&table.marks(), 2);
        table
            .1
            .take(&table.marks(), |page, mark| taken.push((page, mark)));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        table
            .1
            .take(&table.marks(), |page, mark| taken.push((page, mark)));
        taken.sort_by_key(|&(page, _)| page);
        let all = [0, 1, 2].map(|page| (page, Mark::new(Kind::Held, page + 1)));
        assert_eq!(taken, all);
        assert!(table.1.is_empty());
    });
}

/// Thread 5 is dead. Another of its name begins, and one of another name wants a number: the dead one's has one owner.
#[test]
fn a_dead_threads_number_goes_to_one() {
    loom::model(|| {
        let owners = Arc::new((Owners::new(), AtomicUsize::new(0)));
        assert_eq!(owners.0.claim(5, |_| false), Some(0));
        assert_eq!(owners.0.claim(9, |_| false), Some(1));
        // The kernel's answer: dead until the new one begins.
        let is_dead = |owners: &(Owners, AtomicUsize), thread| {
            thread == 5 && owners.1.load(Ordering::SeqCst) == 0
        };
        let other = Arc::clone(&owners);
        let thread = thread::spawn(move || {
            other.1.store(1, Ordering::SeqCst);
            other.0.claim(5, |thread| is_dead(&other, thread))
        });
        let got = owners.0.claim(6, |thread| is_dead(&owners, thread));
        let of_name = thread.join().unwrap();
        assert!(
            (got == Some(0)) != (of_name == Some(0)),
            "{got:?} {of_name:?}"
        );
    });
}

/// Emptying what dead threads left, while one of the same name begins.
#[test]
fn what_a_dead_thread_left_is_one_threads() {
    loom::model(|| {
        let owners = Arc::new((Owners::new(), UnsafeCell::new(0), AtomicUsize::new(0)));
        assert_eq!(owners.0.claim(5, |_| false), Some(0));
        let other = Arc::clone(&owners);
        let thread = thread::spawn(move || {
            other.2.store(1, Ordering::SeqCst);
            if other.0.claim(5, |_| false) == Some(0) {
                // SAFETY: the number's owner alone; loom says so if not.
                other.1.with_mut(|value| unsafe { *value += 1 });
            }
        });
        owners.0.orphans(
            7,
            |thread| thread == 5 && owners.2.load(Ordering::SeqCst) == 0,
            |_| {
                // SAFETY: as above.
                owners.1.with_mut(|value| unsafe { *value += 1 });
            },
        );
        thread.join().unwrap();
    });
}

#[test]
fn a_stray_is_removed_once_and_places_are_whole() {
    loom::model(|| {
        let places: Arc<Vec<Stray>> = Arc::new((0..PLACES).map(|_| Stray::new()).collect());
        assert!(Strays::new(&places).add(0x1000, 3));
        let other = Arc::clone(&places);
        let thread = thread::spawn(move || {
            let strays = Strays::new(&other);
            let removed = strays.remove(0x1000, 3);
            assert!(strays.add(0x2000, 5));
            removed
        });
        let strays = Strays::new(&places);
        let removed = strays.remove(0x1000, 3);
        if let Some(bytes) = strays.bytes(0x2000) {
            assert_eq!(bytes, 5);
        }
        assert!(thread.join().unwrap() != removed);
        assert_eq!(strays.all().collect::<Vec<_>>(), [(0x2000, 5)]);
    });
}
