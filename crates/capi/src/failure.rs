//! Where C ends and Rust begins: why a function returned NULL or -1, `errno`, and panics.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Arguments, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Result of every function's body.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a function failed. Small and without memory of its own, so that it can be kept for each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The arena refused.
    Arena(stopgap_arena::Error),
    /// Not a live handle of this kind: `EBADF`.
    Handle,
    /// The handle is in use by another thread, so it cannot be closed: `EBUSY`.
    Busy,
    /// A function panicked with this handle before; its object may be half changed: `ENOTRECOVERABLE`.
    Broken,
    /// This function panicked: a defect in the library. `ENOTRECOVERABLE`.
    Panic,
    /// NULL where something is read or written: `EFAULT`.
    Null { what: &'static str },
    /// An argument that only C can hand over: `EINVAL`.
    Argument(&'static str),
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
}

impl Failure {
    /// Returns the `errno` that C sees.
    pub(crate) fn errno(self) -> c_int {
        match self {
            Failure::Arena(error) => error.errno(),
            Failure::Handle | Failure::Descriptor => libc::EBADF,
            Failure::Busy => libc::EBUSY,
            Failure::Broken | Failure::Panic => libc::ENOTRECOVERABLE,
            Failure::Null { .. } => libc::EFAULT,
            Failure::Argument(_) => libc::EINVAL,
            Failure::Newer { .. } => libc::E2BIG,
            Failure::TooLong { .. } => libc::EMSGSIZE,
            Failure::Unwritten => libc::EAGAIN,
            Failure::Handles => libc::EMFILE,
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
        f.write_str(match self {
            Failure::Arena(error) => return error.fmt(f),
            Failure::Null { what } => return write!(f, "NULL for {what}"),
            Failure::Newer { bytes, known } => {
                return write!(
                    f,
                    "a struct of {bytes} bytes with more set than the {known} bytes that this version knows"
                );
            }
            Failure::TooLong { bytes, room } => {
                return write!(f, "a message of {bytes} bytes, and room for {room}");
            }
            Failure::Argument(what) => what,
            Failure::Handle => "not an open handle of this kind",
            Failure::Busy => "another thread is in a call with this handle",
            Failure::Broken => {
                "a function failed half-way with this handle before; only closing it is left"
            }
            Failure::Panic => "a defect in stopgap; its message went to standard error",
            Failure::Unwritten => "the file took no more, and what waited is lost",
            Failure::Descriptor => "not a file descriptor",
            Failure::Handles => "no more handles",
        })
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

impl Answer for () {
    type C = c_int;
    const FAILED: c_int = -1;
    fn into_c(self) -> c_int {
        0
    }
}

impl Answer for bool {
    type C = c_int;
    const FAILED: c_int = -1;
    fn into_c(self) -> c_int {
        self.into()
    }
}

impl Answer for c_int {
    type C = c_int;
    const FAILED: c_int = -1;
    fn into_c(self) -> c_int {
        self
    }
}

impl Answer for isize {
    type C = isize;
    const FAILED: isize = -1;
    fn into_c(self) -> isize {
        self
    }
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
            Failure::Panic
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

/// Returns the library's version, `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Writes why the last call of this thread that failed did, as `snprintf` would.
///
/// # Safety
/// `buffer` is NULL with `size` 0, or `size` bytes can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_error_text(buffer: *mut c_char, size: usize) -> c_int {
    enter(|| {
        // SAFETY: the caller's promise.
        let write = |what| unsafe { write_text(buffer, size, what) };
        match LAST.get() {
            Some(failure) => write(format_args!("{failure}")),
            None => write(format_args!("no call failed in this thread")),
        }
    })
}

/// Writes `what` into a buffer of C's as `snprintf` would: cut where there is no more room, and a NUL. Returns the
/// length of all of it without the NUL.
///
/// # Safety
/// `buffer` is NULL, or `size` bytes can be written there.
pub(crate) unsafe fn write_text(
    buffer: *mut c_char,
    size: usize,
    what: Arguments<'_>,
) -> Result<c_int> {
    if buffer.is_null() && size > 0 {
        return Err(Failure::Null { what: "the text" });
    }
    let mut text = Text {
        buffer: buffer.cast(),
        size,
        length: 0,
    };
    let too_long = Failure::Argument("a text longer than an int can count");
    text.write_fmt(what).map_err(|_| too_long)?;
    if let Some(end) = size.checked_sub(1) {
        // SAFETY: within the buffer's size.
        unsafe { text.buffer.add(end.min(text.length as usize)).write(0) };
    }
    Ok(text.length)
}

/// Takes what fits and counts the rest.
struct Text {
    buffer: *mut u8,
    size: usize,
    length: c_int,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            // The last one is for the NUL.
            if (self.length as usize).saturating_add(1) < self.size {
                // SAFETY: within the buffer's size.
                unsafe { self.buffer.add(self.length as usize).write(byte) };
            }
            self.length = self.length.checked_add(1).ok_or(fmt::Error)?;
        }
        Ok(())
    }
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
