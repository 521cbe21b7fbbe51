//! Errors, with the call that failed and its cause.

use rustix::io::Errno;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was refused. Nothing was changed then, unless a variant says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{call}: {errno}")]
    Call {
        /// The call's name.
        call: &'static str,
        /// Why.
        errno: Errno,
    },
    /// What was asked for makes no sense: a length of 0, an alignment that is no power of two. errno `EINVAL`.
    #[error("{what}")]
    Invalid {
        /// The argument and its fault.
        what: &'static str,
    },
    /// Nothing in the window is free that is as long as this, aligned as asked; or no address space is. errno `ENOMEM`.
    #[error("no room for {bytes} bytes in {}{}", if isize::try_from(*bytes).is_ok() { "the window" } else { "an address space" },
        Hole(*largest))]
    NoRoom {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes of the longest hole, which may not be aligned as asked; `None` where no hole was looked for.
        largest: Option<usize>,
    },
    /// An address that was never given out, or that is not the start of what was. errno `EINVAL`.
    #[error("{address:#x} was not given out here")]
    Foreign {
        /// The address.
        address: usize,
    },
    /// An address that was given out and freed already. errno `EINVAL`.
    #[error("{address:#x} is free already")]
    Freed {
        /// The address.
        address: usize,
    },
    /// A limit that the caller or the system set would be passed. errno `ENOMEM`.
    #[error("{asked} bytes more would pass the limit of {limit} bytes: {which}")]
    Limit {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are allowed in all.
        limit: u64,
        /// Whose limit: `RLIMIT_MEMLOCK`, `the budget`.
        which: &'static str,
    },
    /// This kernel or this user cannot do it. errno `ENOTSUP`.
    #[error("{what}: {advice}")]
    Unsupported {
        /// The thing that is missing.
        what: &'static str,
        /// Why, or what to do.
        advice: &'static str,
    },
    /// The other side of a channel broke its rules; nothing of it is believed any more. errno `EPROTO`.
    #[error("the peer broke the channel's rules: {what}")]
    Peer {
        /// The rule that it broke.
        what: &'static str,
    },
    /// A file that is shared with others is not what it says; nothing in it is believed. errno `EBADMSG`.
    #[error("{what}")]
    Corrupt {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The other side of a channel is gone. errno `EPIPE`.
    #[error("the peer is gone")]
    PeerGone,
    /// Time was over first. errno `ETIMEDOUT`.
    #[error("the time was over")]
    TimedOut,
}

/// How an error tells the longest hole.
struct Hole(Option<usize>);

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "; the largest hole is {bytes} bytes"),
            None => Ok(()),
        }
    }
}

impl Error {
    pub(crate) const fn invalid(what: &'static str) -> Error {
        Error::Invalid { what }
    }

    pub(crate) const fn peer(what: &'static str) -> Error {
        Error::Peer { what }
    }

    pub(crate) const fn unsupported(what: &'static str, advice: &'static str) -> Error {
        Error::Unsupported { what, advice }
    }

    /// Returns whether a system call failed with one of `errnos`.
    pub(crate) fn is(&self, errnos: &[Errno]) -> bool {
        matches!(self, Error::Call { errno, .. } if errnos.contains(errno))
    }

    /// The number that C's `errno` gets: one of the system call's or what the variant says.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match *self {
            Error::Call { errno, .. } => errno,
            Error::Invalid { .. } | Error::Foreign { .. } | Error::Freed { .. } => Errno::INVAL,
            Error::NoRoom { .. } | Error::Limit { .. } => Errno::NOMEM,
            Error::Unsupported { .. } => Errno::NOTSUP,
            Error::Peer { .. } => Errno::PROTO,
            Error::Corrupt { .. } => Errno::BADMSG,
            Error::PeerGone => Errno::PIPE,
            Error::TimedOut => Errno::TIMEDOUT,
        };
        errno.raw_os_error()
    }
}
