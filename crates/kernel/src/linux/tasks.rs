use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stopgap_events::units::Nanos;

use super::Linux;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::tasks::{ChildLimits, ChildOutcome, Tasks};

/// Exit status of a child whose body panicked.
const PANICKED: i32 = 101;
/// Exit status of a child that could not set its limits.
const NO_LIMITS: i32 = 102;

impl Tasks for Linux {
    fn cpus(&self) -> Result<Vec<u32>> {
        let set =
            sched_getaffinity(None).map_err(|e| Error::call("sched_getaffinity", "self", e))?;
        #[allow(clippy::cast_possible_truncation)] // CPU numbers are small
        Ok((0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .map(|cpu| cpu as u32)
            .collect())
    }

    fn set_cpus(&self, cpus: &[u32]) -> Result<()> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            if cpu as usize >= CpuSet::MAX_CPU {
                let none = io::Error::from_raw_os_error(libc::EINVAL);
                return Err(Error::call("sched_setaffinity", format!("CPU {cpu}"), none));
            }
            set.set(cpu as usize);
        }
        sched_setaffinity(None, &set)
            .map_err(|e| Error::call("sched_setaffinity", format!("CPUs {cpus:?}"), e))
    }

    fn run_child(
        &self,
        limits: &ChildLimits,
        body: &mut dyn FnMut() -> Vec<u8>,
    ) -> Result<ChildOutcome> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| Error::call("pipe", "load child", e))?;
        let parent = rustix::process::getpid();
        // SAFETY: the child runs `body` and leaves with _exit, so no destructor of this
        // process runs twice. The tool calls this with one thread; under a test harness with
        // many, glibc resets its allocator's locks in the child, and the contract of
        // `run_child` forbids `body` to print or to take another lock.
        match unsafe { libc::fork() } {
            -1 => Err(Error::call(
                "fork",
                "load child",
                io::Error::last_os_error(),
            )),
            0 => {
                drop(reader);
                let status = child(parent, limits, writer, body);
                // SAFETY: _exit takes an integer and does not return.
                unsafe { libc::_exit(status) }
            }
            pid => {
                drop(writer);
                self.await_child(pid, reader, limits.time)
            }
        }
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn pid(&self) -> u32 {
        rustix::process::getpid().as_raw_pid().cast_unsigned()
    }
}

/// The child's life; its exit status.
fn child(
    parent: rustix::process::Pid,
    limits: &ChildLimits,
    writer: OwnedFd,
    body: &mut dyn FnMut() -> Vec<u8>,
) -> i32 {
    if set_limits(parent, limits).is_err() {
        return NO_LIMITS;
    }
    // A panic is reported by its status; its message has gone to standard error.
    let Ok(output) = catch_unwind(AssertUnwindSafe(body)) else {
        return PANICKED;
    };
    match io::Write::write_all(&mut std::fs::File::from(writer), &output) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn set_limits(parent: rustix::process::Pid, limits: &ChildLimits) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(parent) {
        return Err(io::ErrorKind::NotConnected.into()); // it died before the call above
    }
    // The parent kills us in time; should it be stopped meanwhile, the alarm does. Seconds,
    // rounded up, and two more so that the parent comes first.
    #[allow(clippy::cast_possible_truncation)]
    let seconds = (limits.time.0.div_ceil(1_000_000_000) + 2).min(u64::from(u32::MAX)) as u32;
    // SAFETY: alarm(2) takes an integer. SIGALRM's default is to end the process.
    unsafe { libc::alarm(seconds) };
    // Raising one's own score needs no privilege.
    std::fs::write("/proc/self/oom_score_adj", "1000")?;
    if let Some(cgroup) = &limits.cgroup {
        std::fs::OpenOptions::new()
            .write(true)
            .open(cgroup.join("cgroup.procs"))?
            .write_all(b"0")?; // 0 stands for the writer
    }
    Ok(())
}

impl Linux {
    /// Reads what the child sends until it ends, kills it when its time is over, reaps it.
    fn await_child(&self, pid: libc::pid_t, reader: OwnedFd, time: Nanos) -> Result<ChildOutcome> {
        let deadline = self.now() + time;
        let mut output = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        let mut file = std::fs::File::from(reader);
        let mut late = false;
        loop {
            let left = deadline.saturating_sub(self.now());
            if left.0 == 0 && !late {
                late = true;
                if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL); // ours and not yet reaped
                }
            }
            let wait = rustix::time::Timespec {
                #[allow(clippy::cast_possible_wrap)]
                tv_sec: if late {
                    5
                } else {
                    (left.0 / 1_000_000_000) as i64
                },
                #[allow(clippy::cast_possible_wrap)]
                tv_nsec: (left.0 % 1_000_000_000) as _,
            };
            let ready = {
                let mut fds = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
                poll(&mut fds, Some(&wait))
            };
            match ready {
                Ok(0) if late => break, // a grandchild holds the pipe open
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(Error::call("poll", "load child", e)),
            }
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => output.extend_from_slice(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::call("read", "load child", e)),
            }
        }
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value; wait4 writes both.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            while libc::wait4(pid, &raw mut status, 0, &raw mut usage) == -1 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(Error::call("wait4", pid, error));
                }
            }
            usage
        };
        let ended = |ended: String| Err(Error::Child { ended });
        if late {
            return ended(format!("ran into its time limit of {time}"));
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            let why = if signal == libc::SIGKILL {
                " (out of memory, or killed by hand)"
            } else {
                ""
            };
            return ended(format!("was killed by signal {signal}{why}"));
        }
        match libc::WEXITSTATUS(status) {
            0 => Ok(ChildOutcome {
                output,
                #[allow(clippy::cast_sign_loss)]
                peak_resident: usage.ru_maxrss as u64 * 1024,
            }),
            PANICKED => ended("panicked".to_owned()),
            NO_LIMITS => ended("could not set its limits".to_owned()),
            other => ended(format!("ended with status {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(time: Nanos) -> ChildLimits {
        ChildLimits { time, cgroup: None }
    }

    #[test]
    fn a_child_returns_what_its_body_returns() {
        let expected = vec![7u8; 200_000]; // more than a pipe holds
        let outcome = Linux
            .run_child(&limits(Nanos::secs(10)), &mut || vec![7u8; 200_000])
            .unwrap();
        assert_eq!(outcome.output, expected);
        assert!(outcome.peak_resident > 0);
    }

    #[test]
    fn a_child_that_takes_too_long_is_killed() {
        let before = Linux.now();
        let error = Linux
            .run_child(&limits(Nanos::millis(200)), &mut || {
                loop {
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            })
            .unwrap_err();
        assert!(error.to_string().contains("time limit"), "{error}");
        assert!((Linux.now() - before) < Nanos::secs(5));
    }

    #[test]
    fn a_child_is_the_first_to_go_when_memory_ends() {
        let outcome = Linux
            .run_child(&limits(Nanos::secs(10)), &mut || {
                std::fs::read("/proc/self/oom_score_adj").unwrap()
            })
            .unwrap();
        assert_eq!(outcome.output, b"1000\n");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(Linux.set_cpus(&[1_000_000]).is_err());
        assert!(!Linux.cpus().unwrap().is_empty());
    }
}
