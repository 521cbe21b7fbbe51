//! A command that is held before its first instruction until everything that watches it is ready.

use std::ffi::{CString, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, setpgid,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use stopgap_events::units::{Bytes, Nanos};

use crate::error::{Error, Result};
use crate::tasks::Switches;

/// A process that somebody else may start or that we started, seen until it ends.
#[derive(Debug)]
pub struct Watched {
    pid: u32,
    /// Readable when the process has ended.
    end: OwnedFd,
}

impl Watched {
    /// The process `pid`.
    ///
    /// # Errors
    /// As pidfd_open(2): `ESRCH` where there is no such process.
    pub fn open(pid: u32) -> Result<Watched> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let none = Error::no_process(pid, "");
        let end = match pidfd_open(raw.ok_or(none)?, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => {
                return Err(Error::no_process(pid, ""));
            }
            // A thread that leads no process.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
                return Err(Error::no_process(pid, ": it is a thread of another"));
            }
            other => other.map_err(|e| Error::call("pidfd_open", pid, e))?,
        };
        Ok(Watched { pid, end })
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns a descriptor that becomes readable when it ends.
    #[must_use]
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ends_within(Nanos(0))
    }

    /// Sleeps until it has ended, `longest` at most, or a signal came; whether it has ended.
    pub fn ends_within(&self, longest: Nanos) -> bool {
        let end = [(self.end.as_fd(), PollFlags::IN)];
        super::wait_for(end.into_iter(), longest)[0]
    }

    /// Sleeps until it has ended, `other` is readable, `longest` at most, or a signal came.
    pub fn ends_or_readable(&self, other: BorrowedFd<'_>, longest: Nanos) {
        let both = [(self.end.as_fd(), PollFlags::IN), (other, PollFlags::IN)];
        super::wait_for(both.into_iter(), longest);
    }
}

/// Under what conditions a command is started, beside those of every one.
#[derive(Debug, Default)]
pub struct Conditions {
    /// CPUs that it may use; empty: ours.
    pub cpus: Vec<u32>,
    /// Whether it is under `SCHED_BATCH`.
    pub batch: bool,
    /// Its standard output; `None`: ours.
    pub output: Option<OwnedFd>,
    /// Whether its standard error goes nowhere.
    pub silent: bool,
    /// Files that it gets open under the same numbers.
    pub keeps: Vec<OwnedFd>,
    /// Variables that its environment has beside ours.
    pub environment: Vec<(String, String)>,
    /// Signal that it is sent when the thread ends that started it; `None`: no signal.
    pub dies_by: Option<Signal>,
    /// Whether it leads a process group of its own: [`Child::end`] then ends what it started, too, and a Ctrl-C
    /// of the terminal does not reach it.
    pub group: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// `Ok` its exit status, `Err` the signal that killed it.
    pub how: std::result::Result<i32, i32>,
    /// What it and those of its children that it waited for left the CPU, by wait4(2).
    pub switches: Switches,
    /// Page faults of theirs that needed no disk.
    pub minor_faults: u64,
    /// Page faults of theirs that did.
    pub major_faults: u64,
    /// The most memory that one of them had resident.
    pub most_resident: Bytes,
    /// CPU time of theirs in user mode.
    pub user_time: Nanos,
    /// CPU time of theirs in the kernel.
    pub system_time: Nanos,
}

/// A command that was started and stands before its exec. Dropped before [`Held::release`], it never
/// runs.
#[derive(Debug)]
pub struct Held {
    watched: Watched,
    group: bool,
    name: String,
    go: OwnedFd,
    failed: OwnedFd,
}

/// A command that runs.
#[derive(Debug)]
pub struct Child {
    watched: Watched,
    group: bool,
}

/// How long a guard lets a command end by itself, in milliseconds.
const GUARDS_PATIENCE: i32 = 2_000;

/// A process that ends a command when this process is killed. Dropping the guard dismisses it, and the command goes on.
///
/// `PR_SET_PDEATHSIG` does not do: the kernel forgets it when the command gains rights by its exec, and nobody but the command
/// itself can take it back when it is to go on without us.
#[derive(Debug)]
#[must_use = "dropped, it guards nothing"]
pub struct Guard {
    pid: Pid,
    /// A byte dismisses the guard; its end without one is our death.
    dismiss: OwnedFd,
}

impl Guard {
    /// Starts the guard of the process `watched`, of its whole group where `group` is true. When we end without having dropped
    /// the guard, it sends `SIGTERM`, and two seconds later `SIGKILL`.
    fn start(watched: &Watched, group: bool) -> Result<Guard> {
        let failed = |call, e: rustix::io::Errno| Error::call(call, watched.pid, e);
        let (wait, dismiss) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed("pipe", e))?;
        // SAFETY: until its _exit the child makes only calls that are safe after fork(2); all that it reads was made before.
        match unsafe { libc::fork() } {
            -1 => Err(Error::last("fork", watched.pid)),
            0 => {
                // SAFETY: as above; the descriptors are this process's own copies.
                unsafe {
                    guard(
                        wait.as_raw_fd(),
                        watched.end.as_raw_fd(),
                        watched.pid,
                        group,
                    )
                }
            }
            pid => Ok(Guard {
                pid: Pid::from_raw(pid).ok_or_else(|| failed("fork", rustix::io::Errno::SRCH))?,
                dismiss,
            }),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that the guard has ended already.
        let _ = rustix::io::write(&self.dismiss, b"!");
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

/// The life of a guard.
///
/// # Safety
/// To be called after fork(2), with descriptors that are open.
unsafe fn guard(wait: i32, end: i32, pid: u32, group: bool) -> ! {
    // SAFETY: calls that are safe after fork(2), on plain integers and on memory of this frame.
    unsafe {
        // A terminal's signals go to our group; the guard outlives them.
        libc::setpgid(0, 0);
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Pipes, locks and files of ours end with us, not with it.
        let (low, high) = (wait.min(end).cast_unsigned(), wait.max(end).cast_unsigned());
        let close = |from: u32, to: u32| {
            if from > to || libc::syscall(libc::SYS_close_range, from, to, 0) == 0 {
                return;
            }
            // Before Linux 5.9.
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 1 << 16);
            for fd in from..to
                .saturating_add(1)
                .min(u32::try_from(most).unwrap_or(1 << 16))
            {
                libc::close(fd.cast_signed());
            }
        };
        if let Some(below) = low.checked_sub(1) {
            close(0, below);
        }
        close(low + 1, high - 1);
        close(high + 1, u32::MAX);
        let mut byte = 0_u8;
        let read = loop {
            match libc::read(wait, (&raw mut byte).cast(), 1) {
                -1 if *libc::__errno_location() == libc::EINTR => {}
                read => break read,
            }
        };
        if read != 0 {
            libc::_exit(0);
        }
        // Its id is its own until somebody has waited for it, which was to be us: the descriptor tells whether it has ended.
        let mut ended = libc::pollfd {
            fd: end,
            events: libc::POLLIN,
            revents: 0,
        };
        for (signal, patience) in [(libc::SIGTERM, GUARDS_PATIENCE), (libc::SIGKILL, 0)] {
            let over = libc::poll(&raw mut ended, 1, 0) > 0;
            if over && (signal == libc::SIGTERM || !group) {
                break;
            }
            if group {
                libc::kill(-pid.cast_signed(), signal);
            } else {
                let none = std::ptr::null::<libc::siginfo_t>();
                libc::syscall(libc::SYS_pidfd_send_signal, end, signal, none, 0);
            }
            libc::poll(&raw mut ended, 1, patience);
        }
        libc::_exit(0)
    }
}

impl Held {
    /// Starts a process that will run `words`, found as a shell finds it, with our standard files.
    ///
    /// # Errors
    /// As fork(2) and pipe(2); a word with a NUL in it.
    pub fn start(words: &[OsString]) -> Result<Held> {
        Held::start_under(words, &Conditions::default())
    }

    /// As [`Held::start`], under conditions. They hold from the start on, so that what it does before its
    /// first instruction is under them, too.
    ///
    /// # Errors
    /// As there; [`Held::release`] says which condition could not be had.
    pub fn start_under(words: &[OsString], conditions: &Conditions) -> Result<Held> {
        let name = words
            .first()
            .map_or(String::new(), |word| word.to_string_lossy().into_owned());
        let invalid = |_| Error::call("exec", &name, io::Error::from(io::ErrorKind::InvalidInput));
        let strings: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.as_bytes()).map_err(invalid))
            .collect::<Result<_>>()?;
        let mut pointers: Vec<*const libc::c_char> =
            strings.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let Some(program) = strings.first() else {
            let empty = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::call("exec", "no command", empty));
        };
        let environment = environment(conditions)?;
        let mut variables: Vec<*const libc::c_char> = environment
            .iter()
            .map(|variable| variable.as_ptr())
            .collect();
        variables.push(std::ptr::null());
        let set = super::cpu_set(&conditions.cpus)?;
        let nowhere = conditions
            .silent
            .then(|| std::fs::File::options().write(true).open("/dev/null"));
        let nowhere = nowhere
            .transpose()
            .map_err(|e| Error::call("open", "/dev/null", e))?;
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::call("pipe", &name, e));
        let (wait, go) = pipe()?;
        let (failed, fail) = pipe()?;
        // SAFETY: until its exec or _exit the child makes only calls that are safe after fork(2):
        // close, read, signal, execvpe (which allocates nothing in glibc), write, _exit, and those of
        // `take_on`. All it reads was made before the fork.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(Error::last("fork", &name)),
            0 => {
                // SAFETY: as above; the descriptors are this process's own copies.
                unsafe {
                    libc::close(go.as_raw_fd()); // or our own copy would keep us waiting
                    let bad = take_on(conditions, &set, nowhere.as_ref().map(AsRawFd::as_raw_fd));
                    let mut byte = 0_u8;
                    let read = libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                    if read != 1 {
                        libc::_exit(0); // the parent has ended, or wants it no more
                    }
                    for ignored in [libc::SIGPIPE, libc::SIGXFSZ] {
                        libc::signal(ignored, libc::SIG_DFL);
                    }
                    let errno = match bad {
                        Err(errno) => errno.raw_os_error(),
                        Ok(()) => {
                            libc::execvpe(program.as_ptr(), pointers.as_ptr(), variables.as_ptr());
                            *libc::__errno_location()
                        }
                    };
                    libc::write(fail.as_raw_fd(), (&raw const errno).cast(), 4);
                    libc::_exit(127)
                }
            }
            _ => Ok(Held {
                watched: Watched::open(pid.cast_unsigned())?,
                group: conditions.group,
                name,
                go,
                failed,
            }),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.watched.pid
    }

    /// Has it end when we are killed, for as long as the guard is not dropped. What the command has started itself goes on,
    /// unless the command leads a group of its own.
    ///
    /// # Errors
    /// As fork(2) and pipe(2).
    pub fn guarded(&self) -> Result<Guard> {
        Guard::start(&self.watched, self.group)
    }

    /// Lets it run.
    ///
    /// # Errors
    /// As execve(2): `ENOENT` where there is no such program.
    pub fn release(self) -> Result<Child> {
        let child = Child {
            watched: self.watched,
            group: self.group,
        };
        let failed = |e: io::Error| Error::call("exec", &self.name, e);
        rustix::io::write(&self.go, b"!").map_err(|e| failed(e.into()))?;
        let mut errno = Vec::new();
        std::fs::File::from(self.failed)
            .read_to_end(&mut errno)
            .map_err(failed)?;
        match errno.first_chunk() {
            None => Ok(child), // closed by its exec
            Some(&errno) => {
                child.wait(true)?;
                let errno = i32::from_ne_bytes(errno);
                Err(failed(io::Error::from_raw_os_error(errno)))
            }
        }
    }

    /// Ends it, unrun.
    ///
    /// # Errors
    /// As wait4(2).
    pub fn give_up(self) -> Result<()> {
        let child = Child {
            watched: self.watched,
            group: self.group,
        };
        drop(self.go);
        child.wait(true).map(drop)
    }
}

/// The variables of a command, ours and what it has beside them.
fn environment(conditions: &Conditions) -> Result<Vec<CString>> {
    let given = |name: &OsString| {
        conditions
            .environment
            .iter()
            .any(|(other, _)| name == other.as_str())
    };
    let ours = std::env::vars_os().filter(|(name, _)| !given(name));
    let theirs = conditions.environment.iter();
    let theirs = theirs.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    ours.chain(theirs)
        .map(|(name, value)| {
            let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
            let invalid = |_| {
                Error::call(
                    "exec",
                    name.to_string_lossy(),
                    io::Error::from(io::ErrorKind::InvalidInput),
                )
            };
            CString::new(text).map_err(invalid)
        })
        .collect()
}

/// In the child: makes the conditions so. Calls alone that are safe after fork(2).
fn take_on(
    conditions: &Conditions,
    cpus: &CpuSet,
    nowhere: Option<i32>,
) -> std::result::Result<(), rustix::io::Errno> {
    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::stdio::{dup2_stderr, dup2_stdout};
    if let Some(signal) = conditions.dies_by {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
    }
    if conditions.group {
        setpgid(None, None)?;
    }
    if !conditions.cpus.is_empty() {
        sched_setaffinity(None, cpus)?;
    }
    if conditions.batch {
        super::tasks::set_batch()?;
    }
    if let Some(output) = &conditions.output {
        dup2_stdout(output)?;
    }
    if let Some(nowhere) = nowhere {
        // SAFETY: it is open for as long as this process is before its exec.
        dup2_stderr(unsafe { BorrowedFd::borrow_raw(nowhere) })?;
    }
    for file in &conditions.keeps {
        fcntl_setfd(file, FdFlags::empty())?;
    }
    Ok(())
}

impl Child {
    /// The process.
    #[must_use]
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// How it ended; `None` where it still runs. Once it has ended this is asked once.
    ///
    /// # Errors
    /// As wait4(2).
    pub fn ended(&self) -> Result<Option<Ended>> {
        self.wait(false)
    }

    /// Asks it to end (`SIGTERM`), gives it `patience` for that, then ends it, and what is left of its group where it leads
    /// one; how it ended. Asked in place of [`Child::ended`].
    ///
    /// # Errors
    /// As wait4(2).
    pub fn end(&self, patience: Nanos) -> Result<Option<Ended>> {
        // It is ours and not yet reaped, so these can only fail where it has just ended, and its id is no other group's.
        let leads = Pid::from_raw(self.watched.pid.cast_signed()).filter(|_| self.group);
        let send = |signal| match leads {
            Some(leader) => kill_process_group(leader, signal),
            None => pidfd_send_signal(&self.watched.end, signal),
        };
        let _ = send(Signal::TERM);
        if !self.watched.ends_within(patience) || leads.is_some() {
            let _ = send(Signal::KILL);
        }
        self.wait(true)
    }

    /// Whether other processes are in the group that it leads. To be asked before [`Child::ended`] and [`Child::end`], and not
    /// often: it looks at every process of the machine.
    #[must_use]
    pub fn has_company(&self) -> bool {
        let group = self.watched.pid.to_string();
        let Ok(all) = std::fs::read_dir("/proc") else {
            return false;
        };
        all.flatten().any(|entry| {
            let name = entry.file_name();
            let is_process = name.to_str().is_some_and(|name| {
                name != group && name.bytes().all(|digit| digit.is_ascii_digit())
            });
            // After the name in parentheses: state, parent, group.
            is_process
                && std::fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| {
                    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
                    after.split_whitespace().nth(2) == Some(&*group)
                })
        })
    }

    fn wait(&self, block: bool) -> Result<Option<Ended>> {
        let options = if block { 0 } else { libc::WNOHANG };
        let pid = self.watched.pid.cast_signed();
        let Some((status, usage)) = super::wait4(pid, options)? else {
            return Ok(None);
        };
        let how = if libc::WIFSIGNALED(status) {
            Err(libc::WTERMSIG(status))
        } else {
            Ok(libc::WEXITSTATUS(status))
        };
        let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0); // none is negative
        let time = |time: libc::timeval| {
            let micros = u64::try_from(time.tv_usec).unwrap_or(0);
            Nanos(u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + micros * 1_000)
        };
        Ok(Some(Ended {
            how,
            switches: Switches {
                voluntary: count(usage.ru_nvcsw),
                involuntary: count(usage.ru_nivcsw),
            },
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            most_resident: Bytes(count(usage.ru_maxrss) * 1024),
            user_time: time(usage.ru_utime),
            system_time: time(usage.ru_stime),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_testing::assert_contains;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn it_runs_when_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ran");
        let script = format!("echo > {}; exit 7", file.display());
        let held = Held::start(&words(&["sh", "-c", &script])).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!file.exists() && !held.watched.has_ended());
        let child = held.release().unwrap();
        let ended = child.wait(true).unwrap().unwrap();
        assert_eq!(ended.how, Ok(7));
        assert!(ended.switches.total() > 0 && file.exists());
        assert!(ended.minor_faults > 0 && ended.most_resident > Bytes(0));
        assert!(child.watched().has_ended());
    }

    #[test]
    fn what_cannot_run_is_said_and_what_is_given_up_never_does() {
        let held = Held::start(&words(&["/nonexistent/program"])).unwrap();
        let error = held.release().unwrap_err();
        assert!(error.is_absent(), "{error}");
        assert!(error.to_string().contains("/nonexistent/program"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ran");
        let held = Held::start(&words(&["touch", file.to_str().unwrap()])).unwrap();
        held.give_up().unwrap();
        assert!(!file.exists());
        assert!(Held::start(&[]).is_err());
        assert!(Held::start(&words(&["a\0b"])).is_err());
    }

    #[test]
    fn a_signal_is_told_from_a_status() {
        let held = Held::start(&words(&["sh", "-c", "kill -KILL $$"])).unwrap();
        let child = held.release().unwrap();
        assert_eq!(child.wait(true).unwrap().unwrap().how, Err(libc::SIGKILL));
    }

    /// A dismissed guard ends, and the command goes on.
    #[test]
    fn a_command_whose_guard_is_dismissed_goes_on() {
        let held = Held::start(&words(&["sleep", "60"])).unwrap();
        let guard = held.guarded().unwrap();
        let child = held.release().unwrap();
        let (pid, began) = (guard.pid, std::time::Instant::now());
        drop(guard);
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
        assert!(rustix::process::test_kill_process(pid).is_err(), "reaped");
        assert!(!child.watched().ends_within(Nanos::millis(100)));
        child.end(Nanos::secs(5)).unwrap();
    }

    #[test]
    fn a_group_is_ended_as_a_whole() {
        let conditions = Conditions {
            group: true,
            ..Conditions::default()
        };
        // The shell ends at once; its child takes no notice of SIGTERM.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!(
            "sh -c 'trap \"\" TERM; echo $$ > {0}.new; mv {0}.new {0}; sleep 60' & wait",
            file.display()
        );
        let held = Held::start_under(&words(&["sh", "-c", &script]), &conditions).unwrap();
        let child = held.release().unwrap();
        let pid: u32 = loop {
            if let Ok(text) = std::fs::read_to_string(&file) {
                break text.trim().parse().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let grandchild = Watched::open(pid).unwrap();
        let ended = child.end(Nanos::secs(5)).unwrap().unwrap();
        assert_eq!(ended.how, Err(libc::SIGTERM));
        assert!(grandchild.ends_within(Nanos::secs(5)));
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = Watched::open(u32::MAX).unwrap_err();
        assert_contains(error.to_string(), &["no process 4294967295"]);
        assert!(Watched::open(i32::MAX.cast_unsigned()).is_err());
    }
}
