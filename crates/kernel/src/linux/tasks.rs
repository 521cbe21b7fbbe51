use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stopgap_events::units::Nanos;

use super::{Linux, cpu_set, timespec, wait4};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::switches::SwitchEvents;
use crate::tasks::{ChildBody, ChildLimits, ChildOutcome, End, Running, Switches, Tasks};

/// Exit status of a child whose body panicked.
const PANICKED: i32 = 101;
/// Exit status of a child that could not set its limits; it sends why.
const NO_LIMITS: i32 = 102;
/// The score that the kernel adds to when it looks whom to kill, -1000 to 1000.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

impl Tasks for Linux {
    fn cpus(&self) -> Result<Vec<u32>> {
        let set =
            sched_getaffinity(None).map_err(|e| Error::call("sched_getaffinity", "self", e))?;
        Ok((0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .map(|cpu| cpu as u32)
            .collect())
    }

    fn set_cpus(&self, cpus: &[u32]) -> Result<()> {
        sched_setaffinity(None, &cpu_set(cpus)?)
            .map_err(|e| Error::call("sched_setaffinity", format!("CPUs {cpus:?}"), e))
    }

    fn run_children(
        &self,
        limits: &ChildLimits,
        bodies: Vec<ChildBody<'_>>,
    ) -> Vec<Result<ChildOutcome>> {
        let mut bodies = bodies.into_iter();
        let mut children = Vec::with_capacity(bodies.len());
        while let Some(body) = bodies.next() {
            children.push(start(limits, body, &mut bodies));
        }
        self.read_all(&mut children, self.now() + limits.time);
        children
            .into_iter()
            .map(|child| child?.reap(limits.time))
            .collect()
    }

    fn start_child(&self, limits: &ChildLimits, body: ChildBody<'_>) -> Result<Running> {
        let child = start(limits, body, &mut Vec::new().into_iter())?;
        let (deadline, time) = (self.now() + limits.time, limits.time);
        Ok(Running::new(move |end| {
            let mut child = [Ok(child)];
            if end == End::Killed {
                child.iter_mut().flatten().for_each(Child::kill);
            }
            Linux.read_all(&mut child, deadline);
            let [child] = child;
            child?.reap(time)
        }))
    }

    fn oom_score_fixed(&self) -> Option<Error> {
        // A child is dumpable where we are. Opened and closed, it stays as it is.
        let opened = std::fs::OpenOptions::new().write(true).open(OOM_SCORE);
        opened
            .err()
            .map(|error| Error::call("open", OOM_SCORE, error))
    }

    fn switches(&self) -> Result<Switches> {
        // SAFETY: an all-zero rusage is a valid value, which getrusage fills.
        let (status, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), usage)
        };
        if status != 0 {
            return Err(Error::last("getrusage", "thread"));
        }
        Ok(Switches {
            voluntary: usage.ru_nvcsw as u64,
            involuntary: usage.ru_nivcsw as u64,
        })
    }

    fn switch_events(&self) -> Result<SwitchEvents> {
        super::switches::open(self).map(SwitchEvents::new)
    }

    fn set_batch(&self) -> Result<()> {
        set_batch().map_err(|e| Error::call("sched_setscheduler", "SCHED_BATCH", e))
    }

    fn set_timer_slack(&self, slack: Nanos) -> Result<()> {
        let slack = std::num::NonZeroU64::new(slack.0).or(std::num::NonZeroU64::new(1));
        rustix::thread::set_current_timer_slack(slack)
            .map_err(|e| Error::call("prctl", "PR_SET_TIMERSLACK", e))
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn pid(&self) -> u32 {
        rustix::process::getpid().as_raw_pid().cast_unsigned()
    }
}

/// Puts the calling thread under `SCHED_BATCH`. Safe after fork(2).
pub(super) fn set_batch() -> std::result::Result<(), rustix::io::Errno> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call; 0 is the calling thread. errno is this thread's own.
    unsafe {
        match libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) {
            0 => Ok(()),
            _ => Err(rustix::io::Errno::from_raw_os_error(
                *libc::__errno_location(),
            )),
        }
    }
}

/// A child that was started.
struct Child {
    pid: libc::pid_t,
    /// Pipe of what it sends; `None` when it has sent all.
    pipe: Option<std::fs::File>,
    output: Vec<u8>,
    /// Whether its time was over before it had ended.
    late: bool,
    failed: Option<Error>,
}

/// Starts a child for `body`. `siblings` are those that will be started after it.
fn start<'b>(
    limits: &ChildLimits,
    body: ChildBody<'b>,
    siblings: &mut std::vec::IntoIter<ChildBody<'b>>,
) -> Result<Child> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| Error::call("pipe", "load child", e))?;
    let parent = rustix::process::getpid();
    // SAFETY: the child runs `body` and leaves with _exit, so no destructor of this
    // process runs twice. The tool calls this with one thread; under a test harness with
    // many, glibc resets its allocator's locks in the child, and the contract of
    // `run_children` forbids `body` to print or to take another lock.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last("fork", "load child")),
        0 => {
            drop(reader);
            siblings.for_each(drop);
            let status = child(parent, limits, writer, body);
            // SAFETY: _exit takes an integer and does not return.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Child {
            pid,
            pipe: Some(reader.into()),
            output: Vec::new(),
            late: false,
            failed: None,
        }),
    }
}

/// The child's life; its exit status.
fn child(
    parent: rustix::process::Pid,
    limits: &ChildLimits,
    writer: OwnedFd,
    body: ChildBody<'_>,
) -> i32 {
    let mut pipe = std::fs::File::from(writer);
    if let Err(why) = set_limits(parent, limits) {
        let _ = pipe.write_all(why.to_string().as_bytes()); // the status tells as well
        return NO_LIMITS;
    }
    // A panic is reported by its status; its message has gone to standard error.
    let Ok(output) = catch_unwind(AssertUnwindSafe(body)) else {
        return PANICKED;
    };
    match pipe.write_all(&output) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn set_limits(parent: rustix::process::Pid, limits: &ChildLimits) -> Result<()> {
    // It comes when the *thread* ends that forked us: `run_children` keeps that one waiting.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Error::call("prctl", "PR_SET_PDEATHSIG", e))?;
    if rustix::process::getppid() != Some(parent) {
        let died = io::ErrorKind::NotConnected; // before the call above
        return Err(Error::call("getppid", "the parent has ended", died));
    }
    // The parent kills us in time; should it be stopped meanwhile, the alarm does. Seconds,
    // rounded up, and two more so that the parent comes first.
    let seconds = (limits.time.0.div_ceil(1_000_000_000) + 2).min(u64::from(u32::MAX)) as u32;
    // SAFETY: alarm(2) takes an integer. SIGALRM's default is to end the process.
    unsafe { libc::alarm(seconds) };
    // Raising one's own score needs no privilege, but a process that is not dumpable may not even open it; it is
    // said by `oom_score_fixed`, and all other limits hold.
    match Linux.write(OOM_SCORE.as_ref(), b"1000") {
        Err(error) if !error.is_refused() => return Err(error),
        _ => {}
    }
    if let Some(cgroup) = &limits.cgroup {
        Linux.write(&cgroup.join("cgroup.procs"), b"0")?; // 0 stands for the writer
    }
    Ok(())
}

impl Linux {
    /// Reads what the children send until all have ended; kills those whose time is over.
    fn read_all(&self, children: &mut [Result<Child>], deadline: Nanos) {
        let mut buffer = vec![0; 1 << 16];
        let mut killed = false;
        loop {
            let mut running: Vec<&mut Child> = children
                .iter_mut()
                .flatten()
                .filter(|child| child.pipe.is_some())
                .collect();
            if running.is_empty() {
                return;
            }
            let left = deadline.saturating_sub(self.now());
            if left.0 == 0 && !killed {
                killed = true;
                for child in &mut running {
                    child.kill();
                }
            }
            // After the kill the pipes end at once, unless a grandchild holds one open.
            let left = if killed { Nanos::secs(5) } else { left };
            let ready = {
                let mut fds: Vec<PollFd<'_>> = running
                    .iter()
                    .filter_map(|child| child.pipe.as_ref())
                    .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
                    .collect();
                poll(&mut fds, Some(&timespec(left))).map(|count| {
                    let ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
                    (count, ready)
                })
            };
            let ready: Vec<bool> = match ready {
                Ok((0, _)) if killed => return,
                Ok((0, _)) | Err(rustix::io::Errno::INTR) => continue,
                Ok((_, ready)) => ready,
                Err(_) => vec![true; running.len()], // read(2) says what is wrong
            };
            for (child, ready) in running.into_iter().zip(ready) {
                if ready {
                    child.read(&mut buffer);
                }
            }
        }
    }
}

impl Child {
    fn kill(&mut self) {
        self.late = true;
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL); // ours and not yet reaped
        }
    }

    /// Reads what is there.
    fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(count) => self.output.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => {
                self.pipe = None;
                self.failed = Some(Error::call("read", "load child", e));
            }
        }
    }

    /// Waits for its end, which is near: its pipe is closed, or it was killed.
    fn reap(self, time: Nanos) -> Result<ChildOutcome> {
        let Some((status, usage)) = wait4(self.pid, 0)? else {
            return Err(Error::child("still runs"));
        };
        if let Some(error) = self.failed {
            return Err(error);
        }
        let ended = |ended: String| Err(Error::child(ended));
        if self.late {
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
                output: self.output,
                peak_resident: usage.ru_maxrss as u64 * 1024,
            }),
            PANICKED => ended("panicked".to_owned()),
            NO_LIMITS => ended(format!(
                "could not set its limits: {}",
                String::from_utf8_lossy(&self.output)
            )),
            other => ended(format!("ended with status {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's scheduling policy.
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn who_hurries_starts_ordinary_threads() {
        if let Err(error) = Linux.hurry(true) {
            return stopgap_testing::skip(&stopgap_testing::Skip::machine(error));
        }
        assert_eq!(policy(), 1, "SCHED_FIFO");
        assert_eq!(std::thread::spawn(policy).join().unwrap(), 0);
        Linux.hurry(false).unwrap();
        assert_eq!(policy(), 0);
    }

    #[test]
    fn a_child_returns_what_its_body_returns() {
        let expected = vec![7u8; 200_000]; // more than a pipe holds
        let outcome = Linux
            .run_child(&ChildLimits::within(Nanos::secs(10)), &mut || {
                vec![7u8; 200_000]
            })
            .unwrap();
        assert_eq!(outcome.output, expected);
        assert!(outcome.peak_resident > 0);
    }

    #[test]
    fn a_child_that_takes_too_long_is_killed() {
        let before = Linux.now();
        let error = Linux
            .run_child(&ChildLimits::within(Nanos::millis(200)), &mut || {
                loop {
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            })
            .unwrap_err();
        assert!(error.to_string().contains("time limit"), "{error}");
        assert!((Linux.now() - before) < Nanos::secs(5));
    }

    #[test]
    fn a_limit_that_cannot_be_set_is_named() {
        let limits = ChildLimits {
            cgroup: Some("/nonexistent/group".into()),
            ..ChildLimits::within(Nanos::secs(10))
        };
        let error = Linux.run_child(&limits, &mut Vec::new).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("limits: open /nonexistent/group/"), "{said}");
    }

    /// It holds what it took until the parent closes the pipe, and is gone when its handle is dropped.
    #[test]
    fn a_child_works_beside_us_until_told() {
        use crate::ipc::Ipc;
        let begin = || {
            let (ours, theirs) = Linux.stream_pair().unwrap();
            let body: ChildBody<'static> = Box::new(move || {
                theirs.write_all(b"ready").unwrap();
                theirs.read(&mut [0]).unwrap();
                b"done".to_vec()
            });
            let running = Linux
                .start_child(&ChildLimits::within(Nanos::secs(30)), body)
                .unwrap();
            let mut said = [0; 8];
            assert_eq!(ours.read(&mut said).unwrap(), 5);
            (ours, running)
        };
        let (ours, running) = begin();
        ours.write_all(b"!").unwrap(); // closing it would not do: the child has a copy
        assert_eq!(running.finish().unwrap().output, b"done");

        let (ours, running) = begin();
        drop(running);
        assert_eq!(
            ours.read(&mut [0]).unwrap(),
            0,
            "killed, so its end is closed"
        );
    }

    #[test]
    fn a_child_is_the_first_to_go_when_memory_ends() {
        let outcome = Linux
            .run_child(&ChildLimits::within(Nanos::secs(10)), &mut || {
                std::fs::read("/proc/self/oom_score_adj").unwrap()
            })
            .unwrap();
        assert_eq!(outcome.output, b"1000\n");
    }

    /// An ordinary user's process is not dumpable where its binary is mode 111: then `/proc/self` is root's.
    #[test]
    fn a_process_that_is_not_dumpable_has_children_all_the_same() {
        let mut nested = || {
            // SAFETY: both take integers. The first succeeds for root alone, and must: root may write to any file.
            let other = unsafe {
                libc::setuid(65_534);
                libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)
            };
            assert_eq!(other, 0);
            let why = Linux.oom_score_fixed().map(|why| why.to_string());
            let inner = Linux.run_child(&ChildLimits::within(Nanos::secs(10)), &mut || {
                b"done".to_vec()
            });
            let inner = inner.map(|inner| inner.output);
            format!("{why:?} {inner:?}").into_bytes()
        };
        let outcome = Linux.run_child(&ChildLimits::within(Nanos::secs(20)), &mut nested);
        let said = String::from_utf8(outcome.unwrap().output).unwrap();
        let done = format!("{:?}", b"done");
        assert!(
            said.contains(OOM_SCORE) && said.contains("denied"),
            "{said}"
        );
        assert!(said.ends_with(&format!("Ok({done})")), "{said}");
        assert!(Linux.oom_score_fixed().is_none());
    }

    /// Each waits for the other, so one after the other they would never end.
    #[test]
    fn children_run_at_once() {
        use crate::ipc::Ipc;
        let (left, right) = Linux.stream_pair().unwrap();
        let talk = |end: crate::ipc::Endpoint, say: u8| -> ChildBody<'static> {
            Box::new(move || {
                let mut heard = [0];
                end.write_all(&[say]).unwrap();
                end.read(&mut heard).unwrap();
                heard.to_vec()
            })
        };
        let outcomes = Linux.run_children(
            &ChildLimits::within(Nanos::secs(10)),
            vec![talk(left, b'l'), talk(right, b'r')],
        );
        let outputs: Vec<Vec<u8>> = outcomes.into_iter().map(|o| o.unwrap().output).collect();
        assert_eq!(outputs, [b"r", b"l"]);
    }

    /// Whichever of the two dies, the other sees the end of its socket.
    #[test]
    fn a_childs_death_is_seen_by_its_sibling() {
        use crate::ipc::Ipc;
        for first_dies in [true, false] {
            let (left, right) = Linux.stream_pair().unwrap();
            let body = |end: crate::ipc::Endpoint, dies: bool| -> ChildBody<'static> {
                Box::new(move || {
                    if dies {
                        // Not a panic: its message needs a lock that a test may hold now.
                        let _ = kill_process(rustix::process::getpid(), Signal::KILL);
                    }
                    vec![u8::try_from(end.read(&mut [0]).unwrap()).unwrap()]
                })
            };
            let mut outcomes = Linux.run_children(
                &ChildLimits::within(Nanos::secs(20)),
                vec![body(left, first_dies), body(right, !first_dies)],
            );
            let survivor = outcomes.remove(usize::from(first_dies)).unwrap();
            assert_eq!(survivor.output, [0], "end of file");
            let died = outcomes.remove(0).unwrap_err();
            assert!(died.to_string().contains("signal 9"), "{died}");
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(Linux.set_cpus(&[1_000_000]).is_err());
        assert!(!Linux.cpus().unwrap().is_empty());
    }
}
