//! Fewer switches: `SCHED_BATCH` for the calling thread, and the writer that gathers replies.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Mutex;

use stopgap_arena::coalesce::{Options, State, Writer};
use stopgap_arena::sched::{Batch, batch_client};

use crate::failure::{Failure, enter};
use crate::given::{self, borrow, duplicate, put, structs};
use crate::handle::{WRITERS, open, stopgap_writer};

thread_local! {
    /// What goes back. Never dropped: a thread that ends has no policy to go back to.
    static BATCH: Cell<Option<ManuallyDrop<Batch>>> = const { Cell::new(None) };
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_batch_client() -> c_int {
    enter(|| {
        let guard = match BATCH.take() {
            Some(guard) => guard,
            None => ManuallyDrop::new(batch_client()?),
        };
        BATCH.set(Some(guard));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_batch_client_end() -> c_int {
    enter(|| {
        let guard = BATCH.take().ok_or(Failure::argument(
            "stopgap_batch_client was not called in this thread",
        ))?;
        Ok(ManuallyDrop::into_inner(guard).end()?)
    })
}

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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_writer_open(
    fd: c_int,
    options: *const stopgap_writer_options,
) -> *mut stopgap_writer {
    enter(|| {
        // SAFETY: the caller's promise.
        let theirs = unsafe { given::read(options) }?;
        let mut ours = Options::default();
        given::set(&mut ours.most_bytes, theirs.most_bytes);
        given::set_time(&mut ours.longest, theirs.longest_ns);
        given::set(&mut ours.most_pending, theirs.most_pending);
        open(
            &WRITERS,
            Mutex::new(Writer::new(duplicate(borrow(fd)?)?, ours)),
        )
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_writer_push(
    writer: *mut stopgap_writer,
    reply: *const c_void,
    length: usize,
) -> c_int {
    WRITERS.alone(writer, |writer| {
        // SAFETY: the caller's promise.
        let reply = unsafe { given::bytes(reply, length, "the reply") }?;
        Ok(word(writer.push(reply)?))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_writer_flush(writer: *mut stopgap_writer) -> c_int {
    WRITERS.alone(writer, |writer| Ok(word(writer.flush()?)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_writer_read(
    writer: *mut stopgap_writer,
    fd: c_int,
    buffer: *mut c_void,
    size: usize,
) -> isize {
    WRITERS.alone(writer, |writer| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { given::room(buffer, size, "the buffer") }?;
        // Cannot be more than the slice has, which is at most isize::MAX.
        Ok(writer.read(borrow(fd)?, buffer)? as isize)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_writer_due(
    writer: *mut stopgap_writer,
    nanoseconds: *mut i64,
    pending: *mut usize,
) -> c_int {
    WRITERS.alone(writer, |writer| {
        let due = writer
            .due()
            .map_or(-1, |due| i64::try_from(due.as_nanos()).unwrap_or(i64::MAX));
        // SAFETY: the caller's promise.
        unsafe {
            put(nanoseconds, due);
            put(pending, writer.pending());
        }
        Ok(())
    })
}

/// Writes the replies that still wait once more, as far as the file takes them at once.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_writer_close(writer: *mut stopgap_writer) -> c_int {
    enter(|| {
        let Some(writer) = WRITERS.close(writer)? else {
            return Ok(());
        };
        let writer = writer.into_inner().map_err(|_| Failure::BROKEN);
        match writer?.flush()? {
            State::Blocked => Err(Failure::Call(
                libc::EAGAIN,
                "the file took no more, and what waited is lost",
            )),
            State::Written | State::Gathering => Ok(()),
        }
    })
}
