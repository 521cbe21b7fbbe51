//! The writer that gathers replies.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use stopgap_arena::coalesce::{Options, State, Writer};

use crate::failure::{Failure, enter};
use crate::given::{self, borrow, duplicate, put, structs};
use crate::handle::OneCall;
use crate::tables::{WRITERS, open, stopgap_writer};

structs! {
    stopgap_writer_options, 32:
        most_bytes: usize, longest_ns: u64, most_pending: usize,;
}

const fn word(state: State) -> c_int {
    match state {
        State::Written => 0,
        State::Gathering => 1,
        State::Blocked => 2,
    }
}

/// A writer to the file behind `fd`, by a descriptor of its own.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_writer_options` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_writer_open(
    fd: c_int,
    options: *const stopgap_writer_options,
) -> *mut stopgap_writer {
    enter(|| {
        let mut ours = Options::default();
        // SAFETY: the caller's promise.
        if let Some(theirs) = unsafe { given::read(options) }? {
            if theirs.most_bytes != 0 {
                ours.most_bytes = theirs.most_bytes;
            }
            if theirs.longest_ns != 0 {
                ours.longest = Duration::from_nanos(theirs.longest_ns);
            }
            if theirs.most_pending != 0 {
                ours.most_pending = theirs.most_pending;
            }
        }
        open(&WRITERS, OneCall::new(Writer::new(duplicate(fd)?, ours)))
    })
}

/// Takes a reply.
///
/// # Safety
/// `length` bytes can be read at `reply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_writer_push(
    writer: *mut stopgap_writer,
    reply: *const c_void,
    length: usize,
) -> c_int {
    enter(|| {
        let used = WRITERS.get(writer)?;
        // SAFETY: the caller's promise.
        let reply = unsafe { given::bytes(reply, length, "the reply") }?;
        Ok(word(used.begin()?.push(reply)?))
    })
}

/// Writes what waits.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_writer_flush(writer: *mut stopgap_writer) -> c_int {
    enter(|| Ok(word(WRITERS.get(writer)?.begin()?.flush()?)))
}

/// Reads requests; what waits is written before anything waits for them.
///
/// # Safety
/// `size` bytes can be written at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_writer_read(
    writer: *mut stopgap_writer,
    fd: c_int,
    buffer: *mut c_void,
    size: usize,
) -> isize {
    enter(|| {
        let used = WRITERS.get(writer)?;
        // SAFETY: the caller's promise.
        let buffer = unsafe { given::room(buffer, size, "the buffer") }?;
        let count = used.begin()?.read(borrow(fd)?, buffer)?;
        // Cannot be more than the slice has, which is at most isize::MAX.
        Ok(count as isize)
    })
}

/// How long the caller may wait before it flushes, and how much waits.
///
/// # Safety
/// `nanoseconds` and `pending` are each NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_writer_due(
    writer: *mut stopgap_writer,
    nanoseconds: *mut i64,
    pending: *mut usize,
) -> c_int {
    enter(|| {
        let used = WRITERS.get(writer)?;
        let writer = used.begin()?;
        let due = writer
            .due()
            .map_or(-1, |due| i64::try_from(due.as_nanos()).unwrap_or(i64::MAX));
        // SAFETY: the caller's promise.
        unsafe {
            put(nanoseconds, due);
            put(pending, writer.pending());
        }
        Ok(0)
    })
}

/// Ends a writer. What still waits is written once more, as far as the file takes it at once.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_writer_close(writer: *mut stopgap_writer) -> c_int {
    enter(|| {
        let Some(solo) = WRITERS.close(writer)? else {
            return Ok(0);
        };
        match solo.into_inner()?.flush()? {
            State::Blocked => Err(Failure::Unwritten),
            State::Written | State::Gathering => Ok(0),
        }
    })
}
