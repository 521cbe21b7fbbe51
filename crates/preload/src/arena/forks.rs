//! Which process this is: what a fork leaves of the arena, on either side of it.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{FORKS, LOCK, MARK, Stage, abandon, files, stage};
use crate::lock::me;

/// Finds out whether this process is a forked child, by whatever call it was made.
#[inline]
pub(super) fn notice_fork() {
    let mark = MARK.load(Ordering::Relaxed);
    if mark != 0 {
        // SAFETY: the page is mapped as long as the process lives.
        let made_here = unsafe { &*(mark as *const AtomicU32) };
        if made_here.load(Ordering::Relaxed) == 0 {
            forked(made_here);
        }
    }
}

/// In a child. It may have threads already: one of them does it.
#[cold]
fn forked(made_here: &AtomicU32) {
    let first = made_here.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err() {
        return;
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
    crate::report::forked();
    if LOCK.held() {
        // By a thread that is not here, in the midst of it.
        abandon();
        crate::HEAP.forked();
        LOCK.forked();
    }
}

/// Before a fork by libc: nobody is in the midst of anything.
extern "C" fn before_fork() {
    if stage() != Stage::Aside as u32 || files::ready() {
        // Refused: a fork in a signal handler. The child will see the lock held.
        if LOCK.enter().is_ok() {
            FORKING.store(me(), Ordering::Relaxed);
        }
    }
}

/// Who forks now, and has the lock for it.
pub(super) static FORKING: AtomicUsize = AtomicUsize::new(0);

fn was_forking() -> bool {
    let mine = FORKING.compare_exchange(me(), 0, Ordering::Relaxed, Ordering::Relaxed);
    mine.is_ok()
}

extern "C" fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if was_forking() {
        LOCK.leave();
    }
}

extern "C" fn after_fork_in_child() {
    if was_forking() {
        LOCK.forked();
    }
    notice_fork();
}

/// Called when the library is loaded, and not by the first map: that may come from a malloc or a fork handler, whose
/// locks libc's registration would need.
pub(crate) fn watch_forks() {
    // SAFETY: the handlers are functions of this library, which is never unloaded. It cannot fail before there are
    // dozens.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork),
            Some(after_fork_in_child),
        )
    };
}
