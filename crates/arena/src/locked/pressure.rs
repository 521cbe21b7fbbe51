//! When memory gets short: triggers of pressure stall information (Documentation/accounting/psi.rst, Linux 5.2 on).

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::set::Set;
use crate::error::{Error, Result};
use crate::sys::{files, signals};

/// What counts as short of memory: some task waited for memory for `stall` altogether within any `window`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressure {
    /// `/proc/pressure/memory` for the machine, a cgroup's `memory.pressure` for one group.
    pub path: PathBuf,
    /// How long tasks wait. The kernel takes whole microseconds.
    pub stall: Duration,
    /// Within what: 500 ms to 10 s, and longer than `stall`. Without privilege the kernel takes multiples of 2 s; where it
    /// refuses, both are stretched by the same factor to the next one.
    pub window: Duration,
}

impl Default for Pressure {
    /// 150 ms of any second, on the machine.
    fn default() -> Pressure {
        Pressure {
            path: PathBuf::from("/proc/pressure/memory"),
            stall: Duration::from_millis(150),
            window: Duration::from_secs(1),
        }
    }
}

/// A trigger of the kernel. It goes with its file.
#[derive(Debug)]
pub(super) struct Trigger {
    pub(super) file: OwnedFd,
    pub(super) pressure: Pressure,
}

/// Windows that everybody may ask for are multiples of this.
const EVERYBODYS: Duration = Duration::from_secs(2);

impl Pressure {
    /// The same share of a window that everybody may ask for.
    fn stretched(&self) -> Pressure {
        let windows = self
            .window
            .as_nanos()
            .div_ceil(EVERYBODYS.as_nanos())
            .clamp(1, 5);
        // At most 5.
        let window = EVERYBODYS * u32::try_from(windows).unwrap_or(5);
        let stall = self.stall.as_secs_f64() * window.as_secs_f64() / self.window.as_secs_f64();
        Pressure {
            path: self.path.clone(),
            stall: Duration::try_from_secs_f64(stall).unwrap_or(self.stall),
            window,
        }
    }

    fn text(&self) -> CString {
        let text = format!(
            "some {} {}",
            self.stall.as_micros(),
            self.window.as_micros()
        );
        CString::new(text).unwrap_or_default() // digits hold no NUL
    }
}

impl Trigger {
    pub(super) fn new(asked: Pressure) -> Result<Trigger> {
        if asked.window.is_zero() || asked.stall.is_zero() || asked.stall > asked.window {
            return Err(Error::invalid(
                "pressure: a stall of 0, or longer than its window",
            ));
        }
        let usual = asked.path == Pressure::default().path;
        let arm = |pressure: Pressure| {
            let file = files::trigger(&pressure.path, &pressure.text())?;
            Ok(Trigger { file, pressure })
        };
        let stretched = asked.stretched();
        let armed = match arm(asked) {
            Err(Error::Call {
                call: "write",
                errno: Errno::INVAL | Errno::PERM,
            }) => arm(stretched),
            other => other,
        };
        armed.map_err(|error| match error {
            // Without pressure stall information a group has no such file either: which of the two, nobody can tell.
            Error::Call { errno: Errno::NOENT, .. } if !usual => Error::unsupported("there is no such file of pressure", "a group's is its memory.pressure, where the kernel keeps it (CONFIG_PSI, psi=1)"),
            Error::Call { errno: Errno::NOENT | Errno::OPNOTSUPP, .. } => Error::unsupported("pressure stall information is not kept", "a kernel with CONFIG_PSI, started with psi=1, keeps it; without, make the set with pressure: None"),
            other => other,
        })
    }

    /// One that fires when `file` has urgent data.
    #[cfg(test)]
    pub(super) fn of(file: OwnedFd) -> Trigger {
        Trigger {
            file,
            pressure: Pressure::default(),
        }
    }

    /// Whether it has fired since it was last asked; `or` becoming readable ends the wait with false.
    pub(super) fn fired(&self, or: Option<BorrowedFd<'_>>) -> Result<bool> {
        let own = (self.file.as_fd(), PollFlags::PRI);
        let found = match or {
            None => files::poll([own], false)?[0],
            Some(or) => {
                let [found, ended] = files::poll([own, (or, PollFlags::IN)], true)?;
                if ended.there {
                    return Ok(false);
                }
                found
            }
        };
        if found.gone {
            return Err(Error::unsupported(
                "the pressure trigger is gone",
                "its cgroup was removed",
            ));
        }
        Ok(found.there)
    }
}

/// A thread that has a set react to pressure. Dropped, it ends.
#[derive(Debug)]
#[must_use = "dropped, nobody watches"]
pub struct Watch {
    pid: rustix::process::Pid,
    end: OwnedFd,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Watch {
    pub(super) fn start(set: Set) -> Result<Watch> {
        let end = files::event()?;
        let failed = |errno| Error::Call {
            call: "pthread_create",
            errno,
        };
        let theirs = files::duplicate(end.as_fd())?;
        // The thread starts with our mask: signals stay with the threads that were there before.
        let blocked = signals::Blocked::all()?;
        let thread = std::thread::Builder::new()
            .name("stopgap-locked".to_owned())
            .spawn(move || set.react_until(theirs.as_fd()))
            .map_err(|e| failed(Errno::from_io_error(&e).unwrap_or(Errno::AGAIN)))?;
        drop(blocked);
        Ok(Watch {
            pid: rustix::process::getpid(),
            end,
            thread: Some(thread),
        })
    }

    /// Ends the thread; why it had ended by itself, where it had.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the trigger's cgroup was removed meanwhile.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        if rustix::process::getpid() != self.pid {
            return Ok(()); // after fork there is no such thread
        }
        files::notify(self.end.as_fd())?;
        thread.join().unwrap_or(Ok(()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_window_that_everybody_may_ask_for_has_the_same_share() {
        let stretched = |stall, window| {
            let [stall, window] = [stall, window].map(Duration::from_millis);
            let pressure = Pressure {
                stall,
                window,
                ..Pressure::default()
            }
            .stretched();
            (pressure.stall.as_millis(), pressure.window.as_millis())
        };
        assert_eq!(stretched(150, 1_000), (300, 2_000));
        assert_eq!(stretched(100, 500), (400, 2_000));
        assert_eq!(stretched(300, 3_000), (400, 4_000));
        assert_eq!(stretched(70, 2_000), (70, 2_000));
        // Longer than the kernel takes: the longest that it does.
        assert_eq!(stretched(1_000, 20_000), (500, 10_000));
        let text = Pressure::default().text();
        assert_eq!(text.as_bytes_with_nul(), b"some 150000 1000000\0");
    }

    #[test]
    fn a_trigger_whose_group_is_gone_says_so() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let trigger = Trigger::of(write);
        assert_eq!(trigger.fired(None), Ok(false));
        drop(read);
        assert!(matches!(
            trigger.fired(None),
            Err(Error::Unsupported { .. })
        ));
        let never = files::event().unwrap();
        assert!(matches!(
            trigger.fired(Some(never.as_fd())),
            Err(Error::Unsupported { .. })
        ));
    }
}
