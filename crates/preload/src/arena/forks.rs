//! Which process this is: what a fork leaves of the arena, on either side of it.
//!
//! libc's fork has the lock while it forks, so nobody is in the midst of anything, and its child needs nothing done. A
//! child of another fork looks whether somebody was, and stands aside. Either does so when it comes to the arena for the
//! first time; until then nothing of this library has run in it (`own`).

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{INSIDE, Stage, abandon, files, refused, stage, weigh_forks};
use crate::kernel;
use crate::lock::{Refused, me};
use crate::own::{self, ANOTHER, HERE, LOOKING, Own, own};

/// Processes between the one that made the window and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Another number after each fork, in the parent and in the child: pages may be shared with the other since.
pub(super) fn forks() -> u64 {
    let generation = GENERATION.load(Ordering::Relaxed);
    u64::from(generation) << 32 | u64::from(own().forks.load(Ordering::Relaxed))
}

/// Finds out whether this process is a forked child, by whatever call it was made.
///
/// # Errors
/// Somebody is just looking at what the fork has left: another thread, or this one below its signal handler.
#[inline]
pub(super) fn notice_fork() -> Result<(), Refused> {
    let own = own();
    match own.here.load(Ordering::Acquire) {
        HERE => Ok(()),
        _ => forked(own),
    }
}

/// In a child. It may have threads already: one of them does it.
#[cold]
fn forked(own: &Own) -> Result<(), Refused> {
    let first = own
        .here
        .compare_exchange(ANOTHER, LOOKING, Ordering::Acquire, Ordering::Acquire);
    match first {
        Ok(_) => {}
        Err(HERE) => return Ok(()),
        Err(_) => return Err(Refused::Own),
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if INSIDE.load(Ordering::Relaxed) {
        // A thread that is not here.
        abandon();
        crate::HEAP.forked();
        INSIDE.store(false, Ordering::Relaxed);
    }
    own.here.store(HERE, Ordering::Release);
    Ok(())
}

/// Whether a child gets the lock back: it finds zeros, or a handler gives it back. Otherwise nobody may take it.
pub(super) fn lock_survives(own: &Own) -> bool {
    own.wiped() || IN_CHILD.load(Ordering::Relaxed)
}

/// Whether a handler runs in libc's children.
static IN_CHILD: AtomicBool = AtomicBool::new(false);

/// Before a fork by libc: nobody is in the midst of anything.
extern "C" fn before_fork() {
    let Some(own) = own::if_made() else {
        return; // nobody was here yet
    };
    if notice_fork().is_err() || !lock_survives(own) {
        return;
    }
    if stage() != Stage::Aside as u32 || files::ready() {
        match own.lock.enter() {
            Ok(()) => own.forking.store(me(), Ordering::Relaxed),
            // A fork in a signal handler. The child will see that somebody is inside.
            Err(Refused::Own) => {}
            Err(why) => refused(why),
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
    let mut in_child: Option<unsafe extern "C" fn()> = None;
    // Asked without having a page. Where the kernel wipes none, a child must be given the lock back.
    if kernel::madvise(0, 0, libc::MADV_WIPEONFORK).is_err() {
        in_child = Some(after_fork_in_child);
        IN_CHILD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handlers are functions of this library, which is never unloaded. It cannot fail before there are
    // dozens.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), in_child) };
}
