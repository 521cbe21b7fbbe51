//! Errors of the seam, with the call that failed and its cause.

use std::io;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the system or of what it says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{call} {target}: {source}")]
    Call {
        /// The call's name.
        call: &'static str,
        /// On what: a path, a length, a process id.
        target: String,
        /// Why.
        source: io::Error,
    },
    /// A file of the system reads otherwise than expected: a kernel that we do not know.
    #[error("{file}: {reason}")]
    Parse {
        /// The file.
        file: String,
        /// The fault, and its place in the file.
        reason: String,
    },
    /// This kernel, or this user, cannot do it. `advice` says what would help.
    #[error("{what}: {advice}")]
    Unsupported {
        /// The missing thing.
        what: String,
        /// Why, or what to do.
        advice: String,
    },
    /// Another run has settings changed: what they say is not the machine's own.
    #[error("{what}")]
    Busy {
        /// Who, and what to do.
        what: String,
    },
    /// The process that was asked about does not exist.
    #[error("no process {pid}{advice}")]
    NoProcess {
        /// The number that was asked for.
        pid: u32,
        /// What has this number instead; empty where nothing has it.
        advice: String,
    },
    /// A load child did not end as it should.
    #[error("load child {ended}")]
    Child {
        /// How it ended: `was killed by signal 9`, `ran into its time limit of 20 s`.
        ended: String,
    },
}

/// The error in words, for a record that says why a figure is missing.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}

// Callers hand in a path's display, a number or a text: only failures pay for it.
#[allow(clippy::needless_pass_by_value)]
impl Error {
    /// The error of a `call` on `target`.
    pub fn call(call: &'static str, target: impl ToString, source: impl Into<io::Error>) -> Error {
        Error::Call {
            call,
            target: target.to_string(),
            source: source.into(),
        }
    }

    /// Returns the error of a `call` that failed with this error number.
    pub fn refusal(call: &'static str, target: impl ToString, errno: i32) -> Error {
        Error::call(call, target, io::Error::from_raw_os_error(errno))
    }

    /// Returns the error of the C library's `call` that has just failed.
    pub fn last(call: &'static str, target: impl ToString) -> Error {
        Error::call(call, target, io::Error::last_os_error())
    }

    /// Returns that there is no process `pid`; `advice` says what it is instead, and may be empty.
    pub fn no_process(pid: u32, advice: impl Into<String>) -> Error {
        let advice = advice.into();
        Error::NoProcess { pid, advice }
    }

    /// A load child that `ended` otherwise than it should.
    pub fn child(ended: impl ToString) -> Error {
        Error::Child {
            ended: ended.to_string(),
        }
    }

    /// `file` does not read as it should.
    pub fn parse(file: impl ToString, reason: impl ToString) -> Error {
        Error::Parse {
            file: file.to_string(),
            reason: reason.to_string(),
        }
    }

    /// Returns an error that says that this machine lacks `what`; `advice` says why or what to do.
    pub fn unsupported(what: impl ToString, advice: impl ToString) -> Error {
        Error::Unsupported {
            what: what.to_string(),
            advice: advice.to_string(),
        }
    }

    /// The errno behind it, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Call { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether it means that the file, call or object does not exist on this system.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Error::Call { source, .. } if source.kind() == io::ErrorKind::NotFound)
            || matches!(
                self.errno(),
                Some(libc::ENOSYS | libc::ENODEV | libc::ENXIO)
            )
    }

    /// Whether a file of `/proc/PID` is gone because its process has ended: before the open, or before the read (`ESRCH`).
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_absent() || self.errno() == Some(libc::ESRCH)
    }

    /// Whether it means that the kernel does not know the request, or does not carry it out on
    /// such an object (`EINVAL`).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.errno() == Some(libc::EINVAL)
    }

    /// Whether it means that the same call may succeed in a moment (`EAGAIN`).
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.errno() == Some(libc::EAGAIN)
    }

    /// Whether it means that another run has settings changed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// Whether it means that something has that name already (`EEXIST`).
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// Whether it means that we are not allowed to.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}
