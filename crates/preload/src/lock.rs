//! The one lock. Nobody waits for it: a call that does not get it goes to the kernel as it is.
//!
//! So a signal handler that interrupts this library, a child of a fork that has no thread to give the lock back, and a
//! thread that jumped out of a signal handler (siglongjmp) all end in the same way: maps are the kernel's, as without
//! this library.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// See the module.
pub(crate) struct Lock {
    taken: AtomicBool,
    /// Thread that holds the lock while it forks; 0: none.
    forking: AtomicUsize,
}

/// Returns the thread pointer of the ABI, which no two threads of a process share.
#[inline]
fn me() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of the thread's control block is its own address (x86-64 psABI, TLS variant II).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reading the thread pointer register changes nothing.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock {
            taken: AtomicBool::new(false),
            forking: AtomicUsize::new(0),
        }
    }

    /// Takes the lock, or returns `false` at once.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        let free = self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.is_ok()
    }

    /// Gives the lock back. Only its holder may.
    #[inline]
    pub(crate) fn leave(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Marks the lock, which the caller holds, as held for a fork.
    pub(crate) fn hold_for_fork(&self) {
        self.forking.store(me(), Ordering::Relaxed);
    }

    /// Gives the lock back after a fork, in the parent or in the child, if this thread held it for that fork.
    pub(crate) fn leave_after_fork(&self) -> bool {
        let mine = self
            .forking
            .compare_exchange(me(), 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if mine {
            self.leave();
        }
        mine
    }
}
