//! A lock of one word that can be given up on, and forced open in the child of a fork.
//!
//! The standard library's could be neither: a child has no thread that would unlock what another thread held.
//! The states and their order are those of the standard library's futex lock (Drepper, "Futexes are tricky", 2011).

use super::sync::{AtomicU32, Ordering, pause, sleep, wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on it.
const AWAITED: u32 = 2;

/// Looks before sleeping: what is done under these locks takes some 100 ns, unless it is a system call.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

pub(crate) struct Lock(AtomicU32);

/// Unlocks when it goes.
pub(crate) struct Locked<'a>(&'a Lock);

impl Lock {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// `None` where `is_given_up` says that nobody will ever unlock it.
    #[inline]
    pub(crate) fn lock(&self, is_given_up: impl Fn() -> bool) -> Option<Locked<'_>> {
        let word = &self.0;
        let got = word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        (got.is_ok() || self.wait(is_given_up)).then_some(Locked(self))
    }

    /// `None` where somebody has it.
    #[cfg(not(loom))]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        let got = (self.0).compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        got.is_ok().then_some(Locked(self))
    }

    #[cold]
    fn wait(&self, is_given_up: impl Fn() -> bool) -> bool {
        for _ in 0..SPINS {
            let word = &self.0;
            let got = word.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
            if got.is_ok() {
                return true;
            }
            pause();
        }
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            if is_given_up() {
                return false;
            }
            sleep(&self.0, AWAITED);
        }
        true
    }

    /// Locks, and stays locked until [`Lock::force_open`] or [`Lock::unlock`].
    pub(crate) fn keep_locked(&self) {
        if let Some(locked) = self.lock(|| false) {
            core::mem::forget(locked);
        }
    }

    /// Unlocks what [`Lock::keep_locked`] locked.
    #[inline]
    pub(crate) fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0);
        }
    }

    /// Opens the lock in a process of one thread, where no thread waits for it.
    pub(crate) fn force_open(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}
