//! Where C ends and Rust begins: why a function returned NULL or -1, `errno`, and panics.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::given::write_text;

/// Result of every function's body.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a function failed. Small and without memory of its own, so that it can be kept for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The arena refused.
    Arena(stopgap_arena::Error),
    /// A mistake that only a caller in C can make: its `errno`, and why.
    Call(c_int, &'static str),
    /// NULL where something is read or written: `EFAULT`.
    Null(&'static str),
    /// A struct of a later version that asks for what this one does not have: `E2BIG`.
    Newer { bytes: usize, known: usize },
    /// A message longer than the buffer for it, or than a message can be: `EMSGSIZE`.
    TooLong { bytes: u64, room: u64 },
}

impl Failure {
    pub(crate) const HANDLE: Failure =
        Failure::Call(libc::EBADF, "not an open handle of this kind");
    pub(crate) const BUSY: Failure =
        Failure::Call(libc::EBUSY, "another thread is in a call with this handle");
    /// A function panicked with this handle before; its object may be half changed.
    pub(crate) const BROKEN: Failure = Failure::Call(
        libc::ENOTRECOVERABLE,
        "a function failed half-way with this handle before; only closing it is left",
    );
    const PANIC: Failure = Failure::Call(
        libc::ENOTRECOVERABLE,
        "a defect in stopgap; its message went to standard error",
    );

    pub(crate) const fn argument(why: &'static str) -> Failure {
        Failure::Call(libc::EINVAL, why)
    }

    /// Returns the `errno` that C sees.
    pub(crate) fn errno(self) -> c_int {
        match self {
            Failure::Arena(error) => error.errno(),
            Failure::Call(errno, _) => errno,
            Failure::Null(_) => libc::EFAULT,
            Failure::Newer { .. } => libc::E2BIG,
            Failure::TooLong { .. } => libc::EMSGSIZE,
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
            Failure::Call(_, why) => f.write_str(why),
            Failure::Null(what) => write!(f, "NULL for {what}"),
            Failure::Newer { bytes, known } => write!(
                f,
                "a struct of {bytes} bytes with more set than the {known} bytes that this version knows"
            ),
            Failure::TooLong { bytes, room } => {
                write!(f, "a message of {bytes} bytes, and room for {room}")
            }
        }
    }
}

thread_local! {
    /// The last failure of this thread. Without a destructor, so that it can be read at a thread's end, too.
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// A value that a function's body returns, and how C sees it.
pub(crate) trait Answer {
    type C;
    const FAILED: Self::C;
    fn into_c(self) -> Self::C;
}

/// Defines how C sees types: what failure is, and what success is.
macro_rules! answers {
    ($($type:ty: $c:ty = $failed:expr, $into:expr;)*) => {$(
        impl Answer for $type {
            type C = $c;
            const FAILED: $c = $failed;
            fn into_c(self) -> $c {
                $into(self)
            }
        }
    )*};
}

answers! {
    (): c_int = -1, |()| 0;
    bool: c_int = -1, c_int::from;
    c_int: c_int = -1, |value| value;
    isize: isize = -1, |value| value;
}

impl<T> Answer for *mut T {
    type C = *mut T;
    const FAILED: *mut T = ptr::null_mut();
    #[inline]
    fn into_c(self) -> *mut T {
        self
    }
}

/// Runs a function's body. `errno` stays as it was, or says why the body failed; no panic leaves.
#[inline]
pub(crate) fn enter<T: Answer>(work: impl FnOnce() -> Result<T>) -> T::C {
    let before = errno();
    // What a body changes and what is looked at again after a panic is behind handles, and those are marked as
    // broken then (`handle::Used`).
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        inject::at(inject::Panic::First);
        work()
    }));
    let failure = match result {
        Ok(Ok(value)) => {
            set_errno(before);
            return value.into_c();
        }
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // Dropping it could panic again, and here nothing would catch that.
            std::mem::forget(payload);
            Failure::PANIC
        }
    };
    LAST.set(Some(failure));
    set_errno(failure.errno());
    T::FAILED
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// The version with the NUL that C needs.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a NUL in the version"),
    };

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_version() -> *const c_char {
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_error_text(buffer: *mut c_char, size: usize) -> c_int {
    enter(|| {
        // SAFETY: the caller's promise.
        let write = |what| unsafe { write_text(buffer, size, what) };
        match LAST.get() {
            Some(failure) => write(format_args!("{failure}")),
            None => write(format_args!("no call failed in this thread")),
        }
    })
}

/// Functions that panic when a test says so, in the thread that says so.
#[cfg(test)]
pub(crate) mod inject {
    use std::cell::Cell;

    /// Where the next function panics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Panic {
        Nowhere,
        /// Before anything else.
        First,
        /// When the handle has been looked up.
        WithHandle,
    }

    thread_local! {
        static NEXT: Cell<Panic> = const { Cell::new(Panic::Nowhere) };
    }

    pub(crate) fn panicking<T>(place: Panic, work: impl FnOnce() -> T) -> T {
        NEXT.set(place);
        let result = work();
        NEXT.set(Panic::Nowhere);
        result
    }

    pub(crate) fn at(place: Panic) {
        if NEXT.get() == place {
            panic!("asked for by a test");
        }
    }
}
