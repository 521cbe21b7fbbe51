//! The running kernel.

mod command;
mod devices;
mod files;
pub mod heap;
mod holds;
mod mapping_count;
mod memory;
pub mod perf;
mod pressure_trigger;
mod switches;
mod tasks;
pub(crate) mod taskstats;
mod trace_pipe;
mod x11;

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{ClockId, CpuSet, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use stopgap_events::units::Nanos;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::ipc::{Endpoint, Ipc};
use crate::realtime::{Awake, CPU_LATENCY, Realtime};

pub use mapping_count::MappingCount;
pub(crate) use perf::Ring;
pub use pressure_trigger::PressureTrigger;
pub use {
    command::Child, command::Conditions, command::Ended, command::Guard, command::Held,
    command::Watched,
};
pub use {trace_pipe::TracePipe, trace_pipe::TraceReader};

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

    /// Puts the calling thread before all ordinary threads (`SCHED_FIFO` with the lowest priority), or back among them. What it starts
    /// is ordinary in any case.
    ///
    /// # Errors
    /// As [`Realtime::set_fifo`].
    pub fn hurry(self, hurry: bool) -> Result<()> {
        let (policy, priority, word) = match hurry {
            true => (libc::SCHED_FIFO, 1, "SCHED_FIFO 1"),
            false => (libc::SCHED_OTHER, 0, "SCHED_OTHER"),
        };
        set_policy(policy | libc::SCHED_RESET_ON_FORK, priority, word)
    }
}

/// Gives the calling thread a scheduling policy, which errors call `word`.
fn set_policy(policy: i32, priority: i32, word: &str) -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the parameters outlive the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(Error::last("sched_setscheduler", word)),
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

fn nanos(time: Timespec) -> Nanos {
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Clock for Linux {
    fn now(&self) -> Nanos {
        nanos(clock_gettime(rustix::time::ClockId::Monotonic))
    }

    fn thread_cpu(&self) -> Nanos {
        nanos(clock_gettime(rustix::time::ClockId::ThreadCPUTime))
    }

    fn sleep_until(&self, deadline: Nanos) {
        // Ended early by a signal: the caller looks at the interrupt flag next.
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(deadline));
    }

    fn suspended(&self) -> Nanos {
        // Somebody else may have the CPU between two readings.
        let apart = || {
            let here = self.now();
            nanos(clock_gettime(rustix::time::ClockId::Boottime)).saturating_sub(here)
        };
        (0..8).map(|_| apart()).min().unwrap_or_default()
    }

    fn unix_seconds(&self) -> u64 {
        nanos(clock_gettime(rustix::time::ClockId::Realtime)).0 / 1_000_000_000
    }
}

impl Ipc for Linux {
    fn stream_pair(&self) -> Result<(Endpoint, Endpoint)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| Error::call("socketpair", "AF_UNIX", e))?;
        Ok((Endpoint::new(one), Endpoint::new(other)))
    }

    fn allow_files(&self, count: u64) -> Result<()> {
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_none_or(|current| current >= count) {
            return Ok(());
        }
        // Beyond the hard limit it takes CAP_SYS_RESOURCE, which raises both; without it the call fails with EPERM.
        let raised = Rlimit {
            current: Some(count),
            maximum: limit.maximum.map(|maximum| maximum.max(count)),
        };
        setrlimit(Resource::Nofile, raised)
            .map_err(|e| Error::call("setrlimit", format!("RLIMIT_NOFILE {count}"), e))
    }

    fn most_files(&self) -> Option<u64> {
        getrlimit(Resource::Nofile).maximum
    }
}

impl Realtime for Linux {
    fn set_fifo(&self, priority: u32) -> Result<()> {
        let word = format!("SCHED_FIFO {priority}");
        set_policy(libc::SCHED_FIFO, priority.cast_signed(), &word)
    }

    fn lock_memory(&self) -> Result<()> {
        // SAFETY: mlockall takes flags and changes no content.
        if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0 {
            return Ok(());
        }
        Err(Error::last("mlockall", "this process"))
    }

    fn stay_awake(&self) -> Result<Awake> {
        let failed = |call| move |error| Error::call(call, CPU_LATENCY, error);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = open(CPU_LATENCY, flags, Mode::empty()).map_err(failed("open"))?;
        // Four bytes are a binary number of microseconds.
        write(&file, &0i32.to_ne_bytes()).map_err(failed("write"))?;
        Ok(Awake { _file: Some(file) })
    }
}
