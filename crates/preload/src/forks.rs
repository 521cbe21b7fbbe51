//! libc's fork holds the lock, so that its child finds whole books. A child of another fork that finds the lock
//! taken by a thread it does not have never gets it, and places nothing.

#![allow(unsafe_code)]

use crate::books::{Books, LOCK, locked};
use crate::stage::keeping;
use crate::{kernel, report};

/// How often a fork tries to get the lock, letting other threads run in between.
const TRIES: u32 = 100;

extern "C" fn before() {
    if keeping() {
        // A child would share the pages, and each side would copy them at its next use.
        let _ = locked(Books::drop_kept);
    }
    for _ in 0..TRIES {
        if LOCK.enter() {
            LOCK.hold_for_fork();
            return;
        }
        kernel::let_others_run();
    }
}

extern "C" fn in_parent() {
    LOCK.leave_after_fork();
}

extern "C" fn in_child() {
    if LOCK.leave_after_fork() {
        report::begin_anew();
    }
}

/// Asks libc to call the handlers. Called when the library is loaded, and not by the first map: that may come from
/// a malloc or a fork handler, whose locks libc's registration would need.
pub(crate) fn watch() {
    // SAFETY: the handlers are functions of this library, which is never unloaded. The call cannot fail before
    // there are dozens.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}
