//! The running kernel.

mod clock;
mod command;
mod devices;
mod files;
mod holds;
mod ipc;
mod mapping_count;
mod memory;
pub mod perf;
mod pressure_trigger;
mod realtime;
mod switches;
mod tasks;
pub(crate) mod taskstats;
mod trace_pipe;
mod x11;
mod xvfb;

pub use command::{Child, Conditions, Ended, Guard, Held, Watched};
pub use mapping_count::MappingCount;
pub(crate) use perf::Ring;
pub use pressure_trigger::PressureTrigger;
pub use trace_pipe::{TracePipe, TraceReader};

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::CpuSet;
use rustix::time::Timespec;
use stopgap_events::units::Nanos;

use crate::error::{Error, Result};

/// The running kernel. It has no state of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Linux {
    /// From now on this process, and what it starts, runs where others leave the CPU (nice 19).
    ///
    /// # Errors
    /// As setpriority(2).
    pub fn be_nice(self) -> Result<()> {
        rustix::process::setpriority_process(None, 19)
            .map_err(|e| Error::call("setpriority", "this process", e))
    }
}

/// Returns a time as the kernel takes it.
fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: (time.0 / 1_000_000_000).cast_signed(),
        tv_nsec: (time.0 % 1_000_000_000) as _,
    }
}

/// Waits until one of `fds` has one of its events, a signal comes, or the time is over; returns for each whether it has.
fn wait_for<'f>(
    fds: impl Iterator<Item = (BorrowedFd<'f>, PollFlags)>,
    longest: Nanos,
) -> Vec<bool> {
    let mut fds: Vec<PollFd<'_>> = fds
        .map(|(fd, events)| PollFd::from_borrowed_fd(fd, events))
        .collect();
    let woken = poll(&mut fds, Some(&timespec(longest))).is_ok();
    let has = |fd: &PollFd<'_>| woken && !fd.revents().is_empty();
    fds.iter().map(has).collect()
}

/// Returns these CPUs as a set.
///
/// # Errors
/// `EINVAL` of sched_setaffinity(2) for a CPU that no set can hold.
fn cpu_set(cpus: &[u32]) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= CpuSet::MAX_CPU {
            let cpu = format!("CPU {cpu}");
            return Err(Error::refusal("sched_setaffinity", cpu, libc::EINVAL));
        }
        set.set(cpu as usize);
    }
    Ok(set)
}

/// Waits for the end of a child, as wait4(2) with these options; `None`: it still runs.
fn wait4(pid: i32, options: i32) -> Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value; wait4 writes both.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        loop {
            match libc::wait4(pid, &raw mut status, options, &raw mut usage) {
                0 => return Ok(None),
                -1 => {
                    let error = Error::last("wait4", pid);
                    if error.errno() != Some(libc::EINTR) {
                        return Err(error);
                    }
                }
                _ => return Ok(Some((status, usage))),
            }
        }
    }
}
