//! Atomics and sleeping: the system's, or loom's.

#[cfg(not(loom))]
pub(super) use crate::sys::threads::{sleep, wake};
#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

pub(super) use core::sync::atomic::Ordering;

/// To loom, sleeping is letting others run: a wake-up that got lost is a thread that spins for ever, which it finds.
#[cfg(loom)]
pub(super) fn sleep(word: &AtomicU32, value: u32) {
    if word.load(Ordering::Relaxed) == value {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn wake(_: &AtomicU32) {}

#[cfg(not(loom))]
pub(super) fn pause() {
    core::hint::spin_loop();
}

#[cfg(loom)]
pub(super) fn pause() {
    loom::thread::yield_now();
}
