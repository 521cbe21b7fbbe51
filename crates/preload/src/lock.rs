//! The one lock: a futex word that holds who has it.
//!
//! Who somebody is says the thread pointer, which costs no system call, needs no thread-local variable and no
//! destructor. A child of vfork or of clone(CLONE_VM) may share it with its parent: the two then take each other for
//! themselves, which is harmless, because who finds the lock in its own hands goes without it (below).
//!
//! Nobody waits for ever. [`Lock::enter`] says no where
//! * the same thread has it: a signal handler that interrupted this library;
//! * it stays in one hand for [`PATIENCE`] in all: its holder jumped out of a signal handler (siglongjmp), was a vfork
//!   child that was killed, or is another thread that was not copied by a fork of the bare system call.
//!
//! Who gets no goes to the kernel without the arena, and leaves a note (`notes`).

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::kernel;

/// Milliseconds that a holder may keep it, as seen by one who waits: on a machine with ten times more to do than it has
/// CPUs, a holder that is pre-empted is away for a third of a second now and then.
pub(crate) const PATIENCE: i64 = 5_000;
const STEP: i64 = 100;
/// Bit 0 of the word: somebody waits. Thread pointers are aligned.
const WAITED: usize = 1;

/// See the module.
pub(crate) struct Lock {
    word: AtomicUsize,
    /// Times that it was taken.
    taken: AtomicU32,
}

/// Why there is no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The calling thread has it.
    Own,
    /// Its holder will not come back.
    Abandoned,
}

/// The thread pointer of the ABI.
#[inline]
pub(crate) fn me() -> usize {
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
    pointer & !WAITED
}

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock {
            word: AtomicUsize::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// Takes it.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), Refused> {
        let me = me();
        let free = self
            .word
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed);
        match free {
            Ok(_) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(holder) if holder & !WAITED == me => Err(Refused::Own),
            Err(_) => self.enter_slowly(me),
        }
    }

    #[cold]
    fn enter_slowly(&self, me: usize) -> Result<(), Refused> {
        let mut patience = PATIENCE;
        let mut seen = self.taken.load(Ordering::Relaxed);
        loop {
            let now = self.word.load(Ordering::Relaxed);
            if now == 0 {
                // Others may wait, too.
                let taken = self.word.compare_exchange(
                    0,
                    me | WAITED,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                continue;
            }
            let waited = now | WAITED;
            if now != waited
                && self
                    .word
                    .compare_exchange(now, waited, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            kernel::wait(self.low(), waited as u32, STEP);
            let taken = self.taken.load(Ordering::Relaxed);
            if taken == seen && self.word.load(Ordering::Relaxed) == waited {
                patience -= STEP;
                if patience <= 0 {
                    return Err(Refused::Abandoned);
                }
            } else {
                (seen, patience) = (taken, PATIENCE);
            }
        }
    }

    /// The word's low half, which the kernel compares: it holds [`WAITED`] and enough of the holder's name.
    fn low(&self) -> *const u32 {
        let word = self.word.as_ptr().cast::<u32>().cast_const();
        if cfg!(target_endian = "big") {
            word.wrapping_add(1)
        } else {
            word
        }
    }

    /// Gives it back; only its holder may.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.word.swap(0, Ordering::Release) & WAITED != 0 {
            kernel::wake(self.low());
        }
    }

    /// In a forked child whose parent's forking thread had it, and where a fork wipes nothing: nobody has it.
    pub(crate) fn forked(&self) {
        self.word.store(0, Ordering::Release);
    }
}
