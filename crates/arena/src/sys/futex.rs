//! Sleeping on a word that another process shares, waking who sleeps there; the clock and the CPU that go with it.

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec};

use super::call;
use crate::error::Result;

/// Sleeps while `word` holds `expected`, at most `time`. Returns when woken, when the word holds something else, after
/// a signal, and when the time is over: true then. The caller looks again at what it waits for, whichever it was.
pub(crate) fn wait(word: &AtomicU32, expected: u32, time: Duration) -> Result<bool> {
    let time = timespec(time);
    let result = call("futex", || {
        // Not private: the peer has the word at another address.
        futex::wait(word, futex::Flags::empty(), expected, Some(&time))
    });
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.is(&[Errno::AGAIN, Errno::INTR]) => Ok(false),
        Err(error) if error.is(&[Errno::TIMEDOUT]) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Wakes one that sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) -> Result<()> {
    call("futex", || futex::wake(word, futex::Flags::empty(), 1)).map(drop)
}

/// The monotonic clock in nanoseconds. No system call, and it cannot fail.
#[inline]
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    // Neither is negative on this clock; 2^64 ns are 584 years.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The CPU that this thread runs on now. No system call where the machine's vDSO has it.
#[inline]
pub(crate) fn cpu() -> u32 {
    // Linux numbers CPUs below 8,192 (`NR_CPUS`).
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0)
}

/// As the kernel takes it. Beyond what it holds: a time that never ends.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
