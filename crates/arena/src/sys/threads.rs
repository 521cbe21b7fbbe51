//! Threads: words that they sleep on, clocks, numbers, forks, scheduling policies.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::{ClockId, Timespec};
use syscalls::{Sysno, syscall};

use super::{call, errno};
use crate::error::Result;

/// Sleeps while `word`, which other processes share, holds `expected`, at most `time`. Returns when woken, when the word
/// holds something else, after a signal, and when the time is over: true then. The caller looks again at what it waits
/// for, whichever it was.
pub(crate) fn wait(word: &AtomicU32, expected: u32, time: Duration) -> Result<bool> {
    let time = timespec(time);
    // Not private: the peer has the word at another address.
    match call("futex", || {
        futex::wait(word, Flags::empty(), expected, Some(&time))
    }) {
        Ok(()) => Ok(false),
        Err(error) if error.is(&[Errno::AGAIN, Errno::INTR]) => Ok(false),
        Err(error) if error.is(&[Errno::TIMEDOUT]) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Wakes one that sleeps on `word` by [`wait`].
pub(crate) fn wake_shared(word: &AtomicU32) -> Result<()> {
    call("futex", || futex::wake(word, Flags::empty(), 1)).map(drop)
}

/// Sleeps while `word` is `value`, or wakes for no reason.
pub(crate) fn sleep(word: &AtomicU32, value: u32) {
    // Whatever it returns, the caller looks again.
    let _ = futex::wait(word, Flags::PRIVATE, value, None);
}

/// Wakes one that sleeps on `word` by [`sleep`].
pub(crate) fn wake(word: &AtomicU32) {
    // It fails only where the address is bad.
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

/// The monotonic clock in nanoseconds. No system call, and it cannot fail.
#[inline]
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The same a few milliseconds coarse, and cheaper.
#[inline]
pub(crate) fn now_coarse() -> u64 {
    nanoseconds(ClockId::MonotonicCoarse)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    // Neither is negative on these clocks; 2^64 ns are 584 years.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// As the kernel takes it. Beyond what it holds: a time that never ends.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// The CPU that this thread runs on now. No system call where the machine's vDSO has it.
#[inline]
pub(crate) fn cpu() -> u32 {
    // Linux numbers CPUs below 8,192 (`NR_CPUS`).
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0)
}

/// The process's number.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_pid().cast_unsigned()
}

/// The thread's number.
pub(crate) fn thread() -> u32 {
    rustix::thread::gettid().as_raw_pid().cast_unsigned()
}

/// Whether no thread of this process has this number: others may have it by now, and soon do where many processes start.
pub(crate) fn is_dead(thread: u32) -> bool {
    // SAFETY: signal 0 is none; the kernel only looks whether there is such a thread.
    let found = unsafe { syscall!(Sysno::tgkill, process(), thread, 0) };
    found == Err(syscalls::Errno::ESRCH)
}

/// Has libc call these before fork(2), and after it in the parent and in the child.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) -> Result<()> {
    call("pthread_atfork", || {
        // SAFETY: three functions that stay as long as the process does.
        match unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) } {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    })
}

/// Returns the calling thread's scheduling policy, with `SCHED_RESET_ON_FORK` where that is set.
pub(crate) fn policy() -> Result<i32> {
    call("sched_getscheduler", || {
        // SAFETY: takes nothing but integers; 0 is the calling thread.
        let policy = unsafe { syscall!(Sysno::sched_getscheduler, 0) };
        // A policy is an int.
        policy.map(|policy| policy as i32).map_err(errno)
    })
}

/// Sets a policy that has no real-time priority; the nice value stays.
pub(crate) fn set_policy(policy: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    call("sched_setscheduler", || {
        let parameters = &raw const parameters;
        // SAFETY: the parameters outlive the call, which only reads them; 0 is the calling thread.
        unsafe { syscall!(Sysno::sched_setscheduler, 0, policy, parameters) }
            .map(drop)
            .map_err(errno)
    })
}
