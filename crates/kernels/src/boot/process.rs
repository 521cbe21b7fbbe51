//! A child process that dies with us, and its pipes.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};

use crate::{Error, Result};

/// So much of what QEMU says is kept, in bytes.
const SAID: usize = 16 << 10;
/// So much is taken from a pipe before the others have their turn, in bytes.
const TURN: usize = 4 << 20;
/// The pipe holds so much, where the system lets it, in bytes: a guest must not wait for us.
const PIPE: usize = 1 << 20;

/// A process and its two pipes.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    /// Once it is waited for, its number may be somebody else's.
    exit: Option<ExitStatus>,
    /// The CPU time that it had when we ended it.
    used: Option<Duration>,
}

/// Says how a process ended.
pub(super) fn exit_text(exit: ExitStatus) -> String {
    match (exit.code(), exit.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "killed by signal 9 (no memory left?)".to_owned(),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or(0)),
    }
}

impl Process {
    pub(super) fn start(program: &Path, arguments: &[OsString]) -> Result<Process> {
        let parent = rustix::process::getpid();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C is ours to hear: it would reach QEMU first and look like its failure.
            .process_group(0);
        let die_with_us = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // We ended before the call above: nobody will ever send it.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are two bare system calls,
        // without allocation or locks. The signal comes when the thread ends that started the process: `run_all` is on it
        // until the process has been waited for.
        unsafe { command.pre_exec(die_with_us) };
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Error::file(program, e),
            _ => Error::about("starting QEMU", e),
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let process = Process {
            child,
            stdout,
            stderr,
            said: Vec::new(),
            exit: None,
            used: None,
        };
        // From here on it is killed when `process` is dropped.
        for pipe in process.pipes() {
            let flags = rustix::fs::fcntl_getfl(pipe).map_err(|e| Error::about("fcntl", e))?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)
                .map_err(|e| Error::about("fcntl", e))?;
        }
        if let Some(stdout) = &process.stdout {
            // Refused where this user's pipes take too much already; the usual size does as well.
            let _ = rustix::pipe::fcntl_setpipe_size(stdout, PIPE);
        }
        Ok(process)
    }

    fn pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let stdout = self.stdout.as_ref().map(AsFd::as_fd);
        stdout
            .into_iter()
            .chain(self.stderr.as_ref().map(AsFd::as_fd))
    }

    /// Whether it has ended, without waiting.
    pub(super) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().map_err(|e| Error::about("wait", e))?;
        }
        Ok(self.exit)
    }

    /// Takes what is there; false once there is nothing more for now.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8])) -> Result<bool> {
        let said = &mut self.said;
        let err = drain(&mut self.stderr, |bytes| {
            let room = SAID.saturating_sub(said.len());
            said.extend_from_slice(&bytes[..bytes.len().min(room)]);
        })?;
        let out = drain(&mut self.stdout, &mut take)?;
        Ok(err || out)
    }

    /// After its end: everything that it wrote, even where a child of its own still holds the pipes.
    pub(super) fn read_rest(&mut self, mut take: impl FnMut(&[u8])) -> Result<()> {
        // A pipe holds no more than this many turns.
        for _ in 0..64 {
            if !self.read(&mut take)? {
                break;
            }
        }
        Ok(())
    }

    /// Returns its standard error.
    pub(super) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }

    /// Asks it to end in order.
    pub(super) fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&mut self) {
        self.used = self.cpu_time();
        self.signal(Signal::KILL);
    }

    /// The CPU time that it had had when it was killed.
    pub(super) fn used(&self) -> Option<Duration> {
        self.used
    }

    /// Its CPU time so far, all of its threads (proc(5), /proc/PID/stat).
    fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name may have spaces and parentheses in it; the third field follows the last of them.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ').skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let ticks = user.checked_add(system)?;
        Some(Duration::from_millis(
            ticks.checked_mul(1000)? / rustix::param::clock_ticks_per_second().max(1),
        ))
    }

    /// To its whole group: QEMU may have been started by a script.
    fn signal(&mut self, signal: Signal) {
        // Not waited for yet: the number is still its own.
        if self.exit.is_none()
            && let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads until there is nothing more, the end, or the others' turn. True in the last case.
fn drain<R: Read>(pipe: &mut Option<R>, mut take: impl FnMut(&[u8])) -> Result<bool> {
    let mut buffer = [0; 1 << 16];
    let mut taken = 0;
    while let Some(reader) = pipe {
        match reader.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(read) => {
                take(&buffer[..read]);
                taken += read;
                if taken >= TURN {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::about("reading what QEMU wrote", error)),
        }
    }
    Ok(false)
}

/// Waits until a pipe has something, at most `limit`.
pub(super) fn wait<'a>(
    processes: impl Iterator<Item = &'a mut Process>,
    limit: Duration,
) -> Result<()> {
    let processes: Vec<&Process> = processes.map(|process| &*process).collect();
    let mut fds: Vec<PollFd<'_>> = processes
        .iter()
        .flat_map(|process| process.pipes())
        .map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN))
        .collect();
    let limit = Timespec::try_from(limit).unwrap_or_default();
    match rustix::event::poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::about("poll", error)),
    }
}

/// What a program writes on its standard output until its end; killed after `limit`.
pub(crate) fn ask(program: &Path, arguments: &[OsString], limit: Duration) -> Result<String> {
    const MOST: usize = 1 << 20;
    let mut process = Process::start(program, arguments)?;
    let began = Instant::now();
    let mut said = Vec::new();
    loop {
        wait(std::iter::once(&mut process), Duration::from_millis(20))?;
        let exit = process.exited()?;
        process.read(|bytes| {
            said.extend_from_slice(&bytes[..bytes.len().min(MOST.saturating_sub(said.len()))]);
        })?;
        if exit.is_some() {
            return Ok(String::from_utf8_lossy(&said).into_owned());
        }
        if began.elapsed() >= limit {
            let why = format!(
                "unsupported: {} did not answer within {} s",
                program.display(),
                limit.as_secs()
            );
            return Err(Error::unsupported(why));
        }
    }
}
