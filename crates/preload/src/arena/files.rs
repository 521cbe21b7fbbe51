//! File maps without an address, where `STOPGAP_FILES` asks for it: under kernels that search for a place linearly.
//!
//! A place is chosen here, in a room of addresses for files alone, and the kernel is told it as a hint. A kernel takes
//! a hint whose addresses are free without a search, searches as ever where they are not, and does all else to the map
//! as it does without one.
//!
//! # Contract
//!
//! * What the program sees of a map is what the kernel made: nothing is reserved in the room, nothing of a file is kept,
//!   munmap, mprotect, mremap, madvise, mlock are the kernel's own calls there, and no limit counts anything more.
//! * A call that fails with a hint has changed nothing, and is made again without: that is the program's answer.
//! * What is written down here, which places are taken, bears on where the next map goes and on nothing else, and it
//!   may be wrong (a system call made directly, a signal handler): who lies at a place that is thought to be free keeps
//!   it, and a place that is thought to be taken is not used.
//! * The room lies where a kernel puts nothing by itself. So the files' maps are not met by the search for all others'
//!   places either.
//! * It needs no window and goes on where that is given up; but for the one lock they have nothing in common.
//!
//! Not in the window and not by `MAP_FIXED`: over a reservation a map that fails leaves a hole, or does not, by kernel
//! and errno; then whether somebody else's map fills that hole already or the reservation was never gone, nobody can
//! tell. It would also take as many more VMAs as it cuts the reservation into, and time (docs/fixes/run.md).

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{RESERVED, alone, found_in_window, refused, touches};
use crate::inject;
use crate::kernel::{self, PAGE};
use crate::lock::Refused;
use crate::report::{Count, count};
use crate::setup;
use crate::window::{Span, Window};

/// From this length on file systems and drivers align maps to huge pages, unless there is a hint: these pass through.
const LIMIT: usize = 2 << 20;
/// Flags that say nothing of where a map may be.
const FLAGS: c_int = libc::MAP_SHARED
    | libc::MAP_PRIVATE // both: MAP_SHARED_VALIDATE
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_LOCKED
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_SYNC;
/// Hints in all that were not taken, until no more are given: somebody has other plans for the room.
const PATIENCE: u32 = 64;

/// Whether there is a room.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const READY: u32 = 1;
/// Not asked for, not to be had, or not any more.
const NONE: u32 = 2;

/// The room, 0 and 0 where there is none.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static MISSED: AtomicU32 = AtomicU32::new(0);

struct Shelf(UnsafeCell<Option<Window>>);

// SAFETY: only who has the lock looks inside.
unsafe impl Sync for Shelf {}

static PLACES: Shelf = Shelf(UnsafeCell::new(None));

/// Works under the lock; `None` where there is no room.
fn locked<T>(work: impl FnOnce(&mut Window) -> Option<T>) -> Result<Option<T>, Refused> {
    alone(|| {
        // Given up while we came here: then what is written down may be half changed.
        let ready = STATE.load(Ordering::Relaxed) == READY;
        // SAFETY: the lock is ours.
        let places = unsafe { &mut *PLACES.0.get() };
        places.as_mut().filter(|_| ready).and_then(work)
    })
}

/// Whether there is a room.
pub(super) fn ready() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

/// Makes the room, once.
#[cold]
fn start() -> bool {
    let begun = alone(|| {
        if STATE.load(Ordering::Relaxed) == UNKNOWN {
            let room = setup::files().and_then(room);
            let places = room.and_then(Window::new);
            if let (Some(room), Some(_)) = (room, &places) {
                START.store(room.start, Ordering::Relaxed);
                END.store(room.end, Ordering::Relaxed);
            }
            let state = if places.is_some() { READY } else { NONE };
            // SAFETY: the lock is ours.
            unsafe { *PLACES.0.get() = places };
            STATE.store(state, Ordering::Release);
        }
    });
    if let Err(why) = begun {
        refused(why);
        return false;
    }
    ready()
}

/// An eighth of the way down from where the kernel puts maps now: neither a search from the top nor one from the bottom
/// comes there before all else is full.
fn room(length: usize) -> Option<Span> {
    let here = kernel::mmap(0, PAGE, libc::PROT_NONE, RESERVED, -1, 0).ok()?;
    let _ = kernel::munmap(here, PAGE);
    let end = (here - here / 8) / LIMIT * LIMIT;
    let length = length.max(LIMIT).min(end / 2) / LIMIT * LIMIT;
    Some(Span::new(end - length, end))
}

/// No more hints, for good: whoever had the lock left what is written down half changed.
pub(super) fn give_up() {
    STATE.store(NONE, Ordering::Release);
    END.store(0, Ordering::Relaxed);
    START.store(0, Ordering::Relaxed);
}

/// A map without an address of a file; `None`: the kernel's to place, and to refuse.
#[inline]
pub(super) fn serve(
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Option<usize> {
    let state = STATE.load(Ordering::Acquire);
    if state == NONE || length == 0 || length >= LIMIT || flags & !FLAGS != 0 {
        return None;
    }
    if state == UNKNOWN && !start() {
        return None;
    }
    hint(length, protection, flags, fd, offset)
}

fn hint(length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> Option<usize> {
    if MISSED.load(Ordering::Relaxed) >= PATIENCE {
        return None;
    }
    let placed = locked(|places| {
        let span = places.place(length.next_multiple_of(PAGE))?;
        places.enliven(span);
        Some(span)
    });
    let span = match placed {
        Ok(span) => span?,
        Err(why) => {
            refused(why);
            return None;
        }
    };
    // Not under the lock: a file system may take its time.
    let answer = inject::before()
        .and_then(|()| kernel::mmap(span.start, length, protection, flags, fd, offset));
    match answer {
        Ok(at) if at == span.start => {
            count(Count::placed_files, 1);
            Some(at)
        }
        Ok(at) => {
            // Somebody is there; so it stays taken until it is unmapped.
            MISSED.fetch_add(1, Ordering::Relaxed);
            count(Count::passed_file, 1);
            found_in_window(at, length);
            mapped(at, length);
            Some(at)
        }
        Err(_) => {
            release(span);
            None
        }
    }
}

/// Pages of a range, if it shares any with the room.
#[inline]
fn concerned(address: usize, length: usize) -> Option<Span> {
    let end = END.load(Ordering::Relaxed);
    // At once where there is none.
    if address >= end {
        return None;
    }
    touches(
        Span::new(START.load(Ordering::Relaxed), end),
        address,
        length,
    )
}

/// The program has mapped this where it wanted it.
#[inline]
pub(super) fn mapped(address: usize, length: usize) {
    if let Some(span) = concerned(address, length) {
        claim(span);
    }
}

#[cold]
#[inline(never)]
fn claim(span: Span) {
    let done = locked(|places| {
        places.claim(span.with(places.span()));
        Some(())
    });
    if let Err(why) = done {
        // It may be hinted at: in vain.
        refused(why);
    }
}

/// The program has unmapped this.
#[inline]
pub(super) fn unmapped(address: usize, length: usize) {
    if let Some(span) = concerned(address, length) {
        release(span);
    }
}

#[inline(never)]
fn release(span: Span) {
    let done = locked(|places| {
        if places.take(span) {
            places.unplace(span);
        } else {
            places.release(span);
        }
        Some(())
    });
    if let Err(why) = done {
        // A place lost: it stays taken.
        refused(why);
    }
}

/// The program has moved this or changed its length; `at` is where it lies now.
#[inline]
pub(super) fn remapped(old: usize, old_length: usize, new_length: usize, flags: c_int, at: usize) {
    if flags & libc::MREMAP_DONTUNMAP == 0 {
        let stays = if at == old {
            new_length.next_multiple_of(PAGE)
        } else {
            0
        };
        unmapped(old.saturating_add(stays), old_length.saturating_sub(stays));
    }
    mapped(at, new_length);
}
