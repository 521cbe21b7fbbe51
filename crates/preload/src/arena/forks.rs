//! Which process this is: what a fork leaves of the arena, on either side of it.
//!
//! libc's fork has the lock while it forks, so nobody is in the midst of anything, and its child needs nothing done. A
//! child of another fork looks whether somebody was, and stands aside. Either does so when it comes to the arena for the
//! first time; until then nothing of this library has run in it (`own`).

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use super::{INSIDE, Stage, abandon, files, stage, weigh_forks};
use crate::lock::me;
use crate::own::{self, Own, own};

/// Processes between the one that made the window and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Another number after each fork, in the parent and in the child: pages may be shared with the other since.
pub(super) fn forks() -> u64 {
    let generation = GENERATION.load(Ordering::Relaxed);
    u64::from(generation) << 32 | u64::from(own().forks.load(Ordering::Relaxed))
}

/// Finds out whether this process is a forked child, by whatever call it was made.
#[inline]
pub(super) fn notice_fork() {
    let own = own();
    if own.here.load(Ordering::Relaxed) == 0 {
        forked(own);
    }
}

/// In a child. It may have threads already: one of them does it.
#[cold]
fn forked(own: &Own) {
    let first = own
        .here
        .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err() {
        return;
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if INSIDE.swap(false, Ordering::Relaxed) {
        // A thread that is not here.
        abandon();
        crate::HEAP.forked();
    }
}

/// Before a fork by libc: nobody is in the midst of anything.
extern "C" fn before_fork() {
    let Some(own) = own::if_made() else {
        return; // nobody was here yet
    };
    notice_fork();
    if stage() != Stage::Aside as u32 || files::ready() {
        // Refused: a fork in a signal handler. The child will see that somebody is inside.
        if own.lock.enter().is_ok() {
            own.forking.store(me(), Ordering::Relaxed);
        }
    }
}

fn was_forking(own: &Own) -> bool {
    let mine = own
        .forking
        .compare_exchange(me(), 0, Ordering::Relaxed, Ordering::Relaxed);
    mine.is_ok()
}

extern "C" fn after_fork() {
    if let Some(own) = own::if_made() {
        own.forks.fetch_add(1, Ordering::Relaxed);
        if was_forking(own) {
            own.lock.leave();
        }
        weigh_forks(own);
    }
}

/// Where the child finds the lock as its parent held it.
extern "C" fn after_fork_in_child() {
    if let Some(own) = own::if_made()
        && was_forking(own)
    {
        own.lock.forked();
    }
}

/// Called when the library is loaded, and not by the first map: that may come from a malloc or a fork handler, whose
/// locks libc's registration would need.
pub(crate) fn watch_forks() {
    let in_child: Option<unsafe extern "C" fn()> = if own::kernel_wipes() {
        None
    } else {
        Some(after_fork_in_child)
    };
    // SAFETY: the handlers are functions of this library, which is never unloaded. It cannot fail before there are
    // dozens.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), in_child) };
}
