//! Handlers of fork(2), and the state of an arena in a child.
//!
//! libc calls three functions around fork(2): before it, all locks are taken, so that no structure is half changed; after
//! it they are opened on both sides, and in the child the numbers of the parent's other threads are free. What those threads were
//! putting into a ring of returns, and what lies behind it there, at most 256 ranges, the child does not give out again.
//!
//! A child that was made otherwise (clone(2) by hand, or fork(2) in a signal handler that had interrupted a call of the
//! arena) may have locks that nobody opens. A page that the kernel wipes on fork tells: there the word that says
//! [`SERVING`] reads as [`ORPHAN`], and the arena then gives out mappings outside its window.

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};

use super::lock_free::lock::Lock;
use super::{Inner, threads};
use crate::error::Result;
use crate::sys::threads as sys;

/// The wiped page's word in a child of unknown state: zero.
pub(super) const ORPHAN: u32 = 0;
/// All is well.
pub(super) const SERVING: u32 = 1;
/// The window's memory is shared with the parent, whose it is.
pub(super) const LENT: u32 = 2;

struct Registry {
    lock: Lock,
    arenas: UnsafeCell<Vec<*const Inner>>,
    /// Whether libc knows of us.
    known: Cell<bool>,
}

// SAFETY: list and flag are only used under the lock, and what the list points to is there until it is taken out under
// the lock.
unsafe impl Sync for Registry {}

static REGISTRY: Registry = Registry {
    lock: Lock::new(),
    arenas: UnsafeCell::new(Vec::new()),
    known: Cell::new(false),
};

/// From now on `arena` is right after fork.
pub(super) fn register(arena: &Inner) -> Result<()> {
    // Inside, so that a handler that forks meanwhile finds a call under way.
    let Some(_locked) = REGISTRY.lock.lock(|| false) else {
        return Ok(());
    };
    if !REGISTRY.known.get() {
        sys::at_fork(before, parent, child)?;
        REGISTRY.known.set(true);
        threads::belong();
    }
    // SAFETY: under the lock.
    unsafe { (*REGISTRY.arenas.get()).push(arena) };
    Ok(())
}

/// `arena` goes.
pub(super) fn forget(arena: &Inner) {
    if let Some(_locked) = REGISTRY.lock.lock(|| false) {
        // SAFETY: under the lock.
        unsafe { (*REGISTRY.arenas.get()).retain(|&other| !std::ptr::eq(other, arena)) };
    }
}

/// Each arena. Only while the registry is locked.
fn each(work: impl Fn(&Inner)) {
    // SAFETY: the caller holds the lock, and those in the list are there until they are taken out under it.
    for &arena in unsafe { &*REGISTRY.arenas.get() } {
        // SAFETY: likewise.
        work(unsafe { &*arena });
    }
}

unsafe extern "C" fn before() {
    if threads::begin_fork() {
        REGISTRY.lock.keep_locked();
        each(|arena| {
            arena.purging.keep_locked();
            for shard in &arena.shards {
                shard.lock.keep_locked();
            }
        });
    }
}

unsafe extern "C" fn parent() {
    threads::end_fork(|| {
        each(|arena| {
            arena.shards.iter().for_each(|shard| shard.lock.unlock());
            arena.purging.unlock();
        });
        REGISTRY.lock.unlock();
    });
}

unsafe extern "C" fn child() {
    threads::end_fork(|| {
        threads::alone();
        each(Inner::in_child);
        REGISTRY.lock.force_open();
    });
}
