//! What a process has for itself: a forked child finds zeros here, by whatever call it was made.
//!
//! ```text
//! parent  [ here lock forks counts passed ]  -- fork -->  the same, and no page of it to copy at the next write
//! child                                      -- fork -->  [ zeros ], and no page at all before it writes
//! ```
//!
//! After a fork every page that one of the two writes to costs a fault, most often with a copy of it, and in a child
//! every page of our code that it comes through one that maps sixteen. A program that forks often would pay for all
//! that at each fork; so what changes all the time lies on pages with `MADV_WIPEONFORK` (Linux 4.14), and nothing of
//! this library runs in a child before that calls it.
//!
//! Where the kernel has no such pages this is ordinary memory, and there is no window (`arena`).

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arena::LIMIT_PAGES;
use crate::kernel::{self, PAGE};
use crate::lock::Lock;
use crate::report::{COUNTERS, Count};

/// A child that knows nothing yet.
pub(crate) const ANOTHER: u32 = 0;
/// Somebody looks at what the fork has left.
pub(crate) const LOOKING: u32 = 1;
/// All is as it should be.
pub(crate) const HERE: u32 = 2;

/// See the module.
pub(crate) struct Own {
    /// Whether this process has noticed that it is one: [`ANOTHER`] in a child, by itself.
    pub(crate) here: AtomicU32,
    /// Forks by libc of this process.
    pub(crate) forks: AtomicU32,
    /// Of the structures, which are no process's own.
    pub(crate) lock: Lock,
    /// The thread that forks now, and has the lock for it.
    pub(crate) forking: AtomicUsize,
    /// Of the report.
    pub(crate) counts: [AtomicU64; COUNTERS],
    /// By length in pages: maps that passed through since such maps rest.
    pub(crate) passed: [AtomicU16; LIMIT_PAGES + 1],
}

impl Own {
    const fn new(here: u32) -> Own {
        Own {
            here: AtomicU32::new(here),
            forks: AtomicU32::new(0),
            lock: Lock::new(),
            forking: AtomicUsize::new(0),
            counts: [const { AtomicU64::new(0) }; COUNTERS],
            passed: [const { AtomicU16::new(0) }; LIMIT_PAGES + 1],
        }
    }

    /// What was counted in this process.
    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }
}

static AT: AtomicPtr<Own> = AtomicPtr::new(std::ptr::null_mut());
/// Where the kernel wipes nothing.
static UNWIPED: Own = Own::new(HERE);

impl Own {
    /// Whether a child finds zeros.
    pub(crate) fn wiped(&self) -> bool {
        !std::ptr::eq(self, &raw const UNWIPED)
    }
}

/// It, if anybody has asked for it before.
#[inline]
pub(crate) fn if_made() -> Option<&'static Own> {
    // SAFETY: null, or published by `make`: initialised, never changed but by its atomics, never unmapped.
    unsafe { AT.load(Ordering::Acquire).as_ref() }
}

/// It.
#[inline]
pub(crate) fn own() -> &'static Own {
    if_made().unwrap_or_else(make)
}

/// By whoever comes first; of two at the same time one keeps nothing.
#[cold]
fn make() -> &'static Own {
    const LENGTH: usize = size_of::<Own>().next_multiple_of(PAGE);
    let ordinary = (&raw const UNWIPED).cast_mut();
    let pages = pages(LENGTH);
    let made = pages.map_or(ordinary, |at| at as *mut Own);
    let before = AT.compare_exchange(
        std::ptr::null_mut(),
        made,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if let (Err(_), Some(at)) = (before, pages) {
        let _ = kernel::munmap(at, LENGTH);
    }
    let at = before.map_or_else(|other| other, |_| made);
    // SAFETY: as in `if_made`; it is not null.
    unsafe { &*at }
}

/// Wiped by a fork, and `here`.
fn pages(length: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = kernel::mmap(0, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0).ok()?;
    if kernel::madvise(at, length, libc::MADV_WIPEONFORK).is_err() {
        let _ = kernel::munmap(at, length);
        return None;
    }
    // SAFETY: mapped just now, aligned, large enough; zeros are a valid `Own`.
    unsafe { (*(at as *const Own)).here.store(HERE, Ordering::Relaxed) };
    Some(at)
}
