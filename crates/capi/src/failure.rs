//! Why a function returned NULL or -1: what the arena says, and what only C can do wrong.

use std::fmt;

/// Result of every function's body.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why. Small and without memory of its own, so that it can be kept for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The arena refused.
    Arena(stopgap_arena::Error),
    /// Not a live handle of this kind: `EBADF`.
    Handle,
    /// The handle is in use by another thread, so it cannot be closed: `EBUSY`.
    Busy,
    /// A function panicked with this handle before; what it stands for may be half changed: `ENOTRECOVERABLE`.
    Broken,
    /// This function panicked: a defect in the library. `ENOTRECOVERABLE`.
    Panic,
    /// NULL where something is read or written: `EFAULT`.
    Null { what: &'static str },
    /// An argument that only C can hand over: `EINVAL`.
    Argument { what: &'static str },
    /// A struct of a later version that asks for what this one does not have: `E2BIG`.
    Newer { bytes: usize, known: usize },
    /// A message longer than the buffer for it, or than a message can be: `EMSGSIZE`.
    TooLong { bytes: u64, room: u64 },
    /// The writer's file took no more: `EAGAIN`.
    Unwritten,
    /// A negative number for a file descriptor: `EBADF`.
    Descriptor,
    /// As many handles as there can be: `EMFILE`.
    Handles,
    /// malloc failed: `ENOMEM`.
    Heap,
}

impl Failure {
    /// What `errno` becomes.
    pub(crate) fn errno(self) -> i32 {
        match self {
            Failure::Arena(error) => error.errno(),
            Failure::Handle | Failure::Descriptor => libc::EBADF,
            Failure::Busy => libc::EBUSY,
            Failure::Broken | Failure::Panic => libc::ENOTRECOVERABLE,
            Failure::Null { .. } => libc::EFAULT,
            Failure::Argument { .. } => libc::EINVAL,
            Failure::Newer { .. } => libc::E2BIG,
            Failure::TooLong { .. } => libc::EMSGSIZE,
            Failure::Unwritten => libc::EAGAIN,
            Failure::Handles => libc::EMFILE,
            Failure::Heap => libc::ENOMEM,
        }
    }
}

impl From<stopgap_arena::Error> for Failure {
    fn from(error: stopgap_arena::Error) -> Self {
        Failure::Arena(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Arena(error) => error.fmt(f),
            Failure::Handle => f.write_str("not an open handle of this kind"),
            Failure::Busy => f.write_str("another thread is in a call with this handle"),
            Failure::Broken => f.write_str(
                "a function failed half-way with this handle before; only closing it is left",
            ),
            Failure::Panic => {
                f.write_str("a defect in stopgap; its message went to standard error")
            }
            Failure::Null { what } => write!(f, "NULL for {what}"),
            Failure::Argument { what } => f.write_str(what),
            Failure::Newer { bytes, known } => {
                write!(
                    f,
                    "a struct of {bytes} bytes with more set than the {known} bytes that this version knows"
                )
            }
            Failure::TooLong { bytes, room } => {
                write!(f, "a message of {bytes} bytes, and room for {room}")
            }
            Failure::Unwritten => f.write_str("the file took no more, and what waited is lost"),
            Failure::Descriptor => f.write_str("not a file descriptor"),
            Failure::Handles => f.write_str("no more handles"),
            Failure::Heap => f.write_str("malloc: no memory"),
        }
    }
}
