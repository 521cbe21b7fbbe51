//! Where C ends and Rust begins: `errno`, and panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::{Failure, Result};

thread_local! {
    /// The last failure of this thread. Without a destructor, so that it can be had at a thread's end too.
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// What C gets where a function fails.
pub(crate) trait Fails {
    const FAILED: Self;
}

impl Fails for libc::c_int {
    const FAILED: Self = -1;
}

impl Fails for isize {
    const FAILED: Self = -1;
}

impl<T> Fails for *mut T {
    const FAILED: Self = ptr::null_mut();
}

impl<T> Fails for *const T {
    const FAILED: Self = ptr::null();
}

/// Runs a function's body. `errno` is left as it was, or says why the body failed; no panic leaves.
#[inline]
pub(crate) fn enter<T: Fails>(work: impl FnOnce() -> Result<T>) -> T {
    let before = errno();
    // What a body changes and what is looked at again after a panic is behind handles, and those are marked as
    // broken then (`handle::Used`).
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        inject::panic_if_asked();
        work()
    }));
    let failure = match result {
        Ok(Ok(value)) => {
            set_errno(before);
            return value;
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

/// Why the last function that failed in this thread did.
pub(crate) fn last() -> Option<Failure> {
    LAST.get()
}

fn errno() -> i32 {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
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

    pub(crate) fn panic_if_asked() {
        at(Panic::First);
    }

    pub(crate) fn at(place: Panic) {
        if NEXT.get() == place {
            panic!("asked for by a test");
        }
    }
}
