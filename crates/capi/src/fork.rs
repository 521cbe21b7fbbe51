//! What the child of a fork(2) does first.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{arena, buffer, channel, set, writer};

/// Has [`forked`] called in every child from now on. Once is enough.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.load(Ordering::Relaxed) || WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: `forked` only stores to atomics. Where this fails for want of memory, a child may find a handle busy that
    // another thread of its parent was in a call with, and nothing else.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Of several threads only the one that forked is in the child: what others counted never ends there.
extern "C" fn forked() {
    arena::TABLE.forked();
    buffer::TABLE.forked();
    channel::TABLE.forked();
    channel::LISTENERS.forked();
    set::TABLE.forked();
    set::HELD.forked();
    writer::TABLE.forked();
}
