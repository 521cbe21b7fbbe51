//! Being woken when tasks wait too long for memory or I/O: triggers of pressure stall information
//! (Documentation/accounting/psi.rst, Linux 5.2 on).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::event::PollFlags;
use stopgap_events::units::Nanos;

use super::wait_for;
use crate::error::{Error, Result};
use crate::proc::pressure;

/// More than the lines of a file of pressure.
const LINES: usize = 512;

/// A trigger; it goes with its descriptor, so that nothing is left behind.
#[derive(Debug)]
pub struct PressureTrigger {
    file: File,
}

impl PressureTrigger {
    /// Fires when, within any `window`, some task waited for `stall` altogether. `path` is a file of
    /// `/proc/pressure` or a cgroup's `*.pressure`. The kernel looks ten times a window and fires at
    /// most once a window.
    ///
    /// # Errors
    /// As open(2) and write(2): `EOPNOTSUPP` where pressure is not kept (`psi=0`), `EINVAL` for a
    /// window that is not of 500 ms to 10 s or shorter than the stall, `EPERM` without root where
    /// it is no multiple of 2 s.
    pub fn new(path: &Path, stall: Nanos, window: Nanos) -> Result<PressureTrigger> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let mut file = opened.map_err(|e| Error::call("open", path.display(), e))?;
        // With its closing NUL: the kernel overwrites the last byte (psi_write()).
        let text = format!("some {} {}\0", stall.0 / 1_000, window.0 / 1_000);
        file.write_all(text.as_bytes())
            .map_err(|e| Error::call("write", path.display(), e))?;
        Ok(PressureTrigger { file })
    }

    /// Returns how long some task has waited since the boot. Costs one system call: the file stays open.
    ///
    /// # Errors
    /// Where the cgroup is gone (`ENODEV`), or the file is not of the form that we know.
    pub fn total(&self) -> Result<Nanos> {
        let mut bytes = [0; LINES];
        let read = self.file.read_at(&mut bytes, 0);
        let length = read.map_err(|e| Error::call("pread", "a file of pressure", e))?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        let read = pressure::parse("", &text);
        let read = read.map_err(|reason| Error::parse("a file of pressure", reason))?;
        Ok(Nanos::micros(read.some.total_us))
    }

    /// Waits until a trigger fires, `end` becomes readable (a process that ends), a signal comes or the
    /// time is over; for each of `triggers` whether it has fired.
    pub fn wait(
        triggers: &[&PressureTrigger],
        end: Option<BorrowedFd<'_>>,
        longest: Nanos,
    ) -> Vec<bool> {
        let triggers = triggers
            .iter()
            .map(|trigger| (trigger.file.as_fd(), PollFlags::PRI));
        let count = triggers.len();
        let end = end.map(|end| (end, PollFlags::IN));
        let mut fired = wait_for(triggers.chain(end), longest);
        fired.truncate(count);
        fired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_names_the_file() {
        let path = Path::new("/nonexistent/pressure");
        let error = PressureTrigger::new(path, Nanos::millis(1), Nanos::secs(1)).unwrap_err();
        assert!(error.is_absent() && error.to_string().contains("/nonexistent/pressure"));
    }

    /// A window that no kernel takes.
    #[test]
    fn a_window_that_is_too_short_is_invalid() {
        let path = Path::new("/proc/pressure/memory");
        let made = PressureTrigger::new(path, Nanos::millis(1), Nanos::millis(2));
        assert!(made.is_err());
    }

    /// As often as one likes, from the file that is open.
    #[test]
    fn a_trigger_reads_what_the_file_says() {
        let path = Path::new("/proc/pressure/io");
        let made = PressureTrigger::new(path, Nanos::secs(1), Nanos::secs(2));
        let Ok(trigger) = made else { return }; // no root, or no pressure
        let of_file = || crate::pressure::total(&crate::Linux, path).unwrap();
        for _ in 0..3 {
            let before = of_file();
            let total = trigger.total().unwrap();
            assert!(before <= total && total <= of_file());
        }
    }

    #[test]
    fn a_wait_for_nothing_ends_in_time() {
        let begin = std::time::Instant::now();
        let fired = PressureTrigger::wait(&[], None, Nanos::millis(30));
        assert!(fired.is_empty());
        assert!(begin.elapsed() >= std::time::Duration::from_millis(30));
    }
}
