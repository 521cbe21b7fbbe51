//! Children of this program, which has one thread.

#![allow(unsafe_code)] // fork(2) and _exit(2)

use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};

/// A child that runs. To be reaped; dropped, it stays until this process ends.
#[derive(Debug)]
#[must_use = "a child that is not reaped stays"]
pub struct Child(Pid);

impl Child {
    /// Starts a child that does `body` and ends with the status that it gives, without running destructors. It is killed
    /// when this process ends.
    ///
    /// # Errors
    /// As fork(2).
    #[inline(always)] // nothing but the call lies in a counted fork
    pub fn start(body: impl FnOnce() -> u8) -> io::Result<Child> {
        // SAFETY: this program has one thread, so the child holds no lock that nobody will release.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let status = body();
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(status)) }
            }
            pid => Pid::from_raw(pid)
                .map(Child)
                .ok_or_else(io::Error::last_os_error),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Where it did not end with status 0, or was reaped already.
    #[inline(always)]
    pub fn reap(self) -> io::Result<()> {
        let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.0), WaitOptions::empty()))?;
        match ended.and_then(|(_, status)| status.exit_status()) {
            Some(0) => Ok(()),
            Some(status) => Err(io::Error::other(format!(
                "a child ended with status {status}"
            ))),
            None => Err(io::Error::other("a child was ended by a signal")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_status_is_seen() {
        Child::start(|| 0).unwrap().reap().unwrap();
        let error = Child::start(|| 7).unwrap().reap().unwrap_err();
        assert!(error.to_string().contains("status 7"), "{error}");
    }
}
