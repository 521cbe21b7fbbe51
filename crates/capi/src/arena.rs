//! The arena: buffers in a window of addresses.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, IntoRawFd};
use std::ptr::NonNull;
use std::time::Duration;

use ::stopgap_arena::{Arena, Backing, Config, Error, GiveBack, Protection, Sharing};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, borrow, put, structs};
use crate::tables::{ARENAS, open, stopgap_arena};

structs! {
    stopgap_arena_options, 56:
        window: usize, backing: u64, give_back: u64, after_ns: u64, keep: usize, guard: u64,;

    stopgap_arena_statistics, 96:
        window: u64, accessible: u64, buffers: u64, buffer_bytes: u64, maps: u64, kept: u64,
        cached: u64, keep: u64, given: u64, given_back: u64, strays: u64,;
}

fn usual(theirs: &stopgap_arena_options) -> Result<Config> {
    let mut ours = Config::default();
    if theirs.window != 0 {
        ours.window = theirs.window;
    }
    ours.backing = match theirs.backing {
        0 => Backing::Anonymous,
        1 => Backing::Memfd,
        _ => {
            return Err(Failure::Argument("no such backing"));
        }
    };
    match (theirs.give_back, theirs.after_ns) {
        (0, 0) => {}
        (0, after) => ours.give_back = GiveBack::After(Duration::from_nanos(after)),
        (1, 0) => ours.give_back = GiveBack::AtOnce,
        (2, 0) => ours.give_back = GiveBack::UnderPressure,
        _ => {
            return Err(Failure::Argument(
                "no such way to give memory back, or a time for one that has none",
            ));
        }
    }
    if theirs.keep != 0 {
        ours.keep = theirs.keep;
    }
    ours.guard = match theirs.guard {
        0 => false,
        1 => true,
        _ => {
            return Err(Failure::Argument("guard is 0 or 1"));
        }
    };
    Ok(ours)
}

/// Reserves a window.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_arena_options` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_new(
    options: *const stopgap_arena_options,
) -> *mut stopgap_arena {
    enter(|| {
        // SAFETY: the caller's promise.
        let config = match unsafe { given::read(options) }? {
            Some(theirs) => usual(&theirs)?,
            None => Config::default(),
        };
        open(&ARENAS, Arena::new(&config)?)
    })
}

/// The alignment asked for; 0: a page's.
const fn alignment(align: usize) -> usize {
    if align == 0 { 1 } else { align }
}

/// A buffer that reads as zero.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_alloc(
    arena: *mut stopgap_arena,
    length: usize,
    align: usize,
) -> *mut c_void {
    enter(|| {
        Ok(ARENAS
            .get(arena)?
            .alloc(length, alignment(align))?
            .as_ptr()
            .cast())
    })
}

/// A buffer that may hold old contents.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_alloc_uninit(
    arena: *mut stopgap_arena,
    length: usize,
    align: usize,
) -> *mut c_void {
    enter(|| {
        Ok(ARENAS
            .get(arena)?
            .alloc_uninit(length, alignment(align))?
            .as_ptr()
            .cast())
    })
}

/// Takes a buffer back, or a mapping of a file.
///
/// # Safety
/// Nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_free(
    arena: *mut stopgap_arena,
    address: *mut c_void,
    length: usize,
) -> c_int {
    enter(|| {
        let used = ARENAS.get(arena)?;
        let address = given(address)?;
        // SAFETY: the caller's promise. What was not given out is refused.
        unsafe { used.free(address, length) }?;
        Ok(0)
    })
}

/// An address that may have been given out: NULL never was.
fn given(address: *const c_void) -> Result<NonNull<u8>> {
    NonNull::new(address.cast_mut().cast()).ok_or(Failure::Arena(Error::Foreign { address: 0 }))
}

/// Maps a file.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_map_fd(
    arena: *mut stopgap_arena,
    fd: c_int,
    offset: u64,
    length: usize,
    prot: c_int,
    flags: c_int,
) -> *mut c_void {
    enter(|| {
        let used = ARENAS.get(arena)?;
        let may = |bit| prot & bit != 0;
        if prot & !(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
            return Err(Failure::Argument(
                "another protection than PROT_READ, PROT_WRITE, PROT_EXEC",
            ));
        }
        let protection = Protection {
            read: may(libc::PROT_READ),
            write: may(libc::PROT_WRITE),
            execute: may(libc::PROT_EXEC),
        };
        let sharing = match flags {
            libc::MAP_SHARED => Sharing::Shared,
            libc::MAP_PRIVATE => Sharing::Private,
            _ => {
                return Err(Failure::Argument(
                    "other flags than MAP_SHARED or MAP_PRIVATE",
                ));
            }
        };
        let mapped = used.map_fd(borrow(fd)?, offset, length, protection, sharing)?;
        Ok(mapped.as_ptr().cast())
    })
}

/// A descriptor of the file behind a buffer, and where in that it lies.
///
/// # Safety
/// `offset` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_export(
    arena: *mut stopgap_arena,
    address: *const c_void,
    offset: *mut u64,
) -> c_int {
    enter(|| {
        let used = ARENAS.get(arena)?;
        let (file, at) = used.export(given(address)?)?;
        // A descriptor of the caller's own: if the caller closed the arena's, the arena would cut holes into another file.
        let twin =
            rustix::io::fcntl_dupfd_cloexec(file.as_fd(), 0).map_err(|errno| Error::Call {
                call: "fcntl",
                errno,
            })?;
        // SAFETY: the caller's promise.
        unsafe { put(offset, at) };
        Ok(twin.into_raw_fd())
    })
}

/// Whether an address is the arena's.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_contains(
    arena: *mut stopgap_arena,
    address: *const c_void,
) -> c_int {
    enter(|| {
        let used = ARENAS.get(arena)?;
        let address = NonNull::new(address.cast_mut().cast());
        Ok(address.is_some_and(|address| used.contains(address)))
    })
}

/// Where the window lies.
///
/// # Safety
/// `start` and `length` are each NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_window(
    arena: *mut stopgap_arena,
    start: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    enter(|| {
        let (at, bytes) = ARENAS.get(arena)?.window();
        // SAFETY: the caller's promise.
        unsafe {
            put(start, std::ptr::with_exposed_provenance_mut(at));
            put(length, bytes);
        }
        Ok(0)
    })
}

/// Gives free memory back.
///
/// # Safety
/// `given_back` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_trim(
    arena: *mut stopgap_arena,
    given_back: *mut u64,
) -> c_int {
    enter(|| {
        let bytes = ARENAS.get(arena)?.trim()?;
        // SAFETY: the caller's promise.
        unsafe { put(given_back, bytes) };
        Ok(0)
    })
}

/// Gives free memory back if memory is short.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_pressure(arena: *mut stopgap_arena) -> c_int {
    enter(|| Ok(ARENAS.get(arena)?.pressure()?))
}

/// Fills in counters of the arena.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_arena_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_stat(
    arena: *mut stopgap_arena,
    statistics: *mut stopgap_arena_statistics,
) -> c_int {
    enter(|| {
        let got = ARENAS.get(arena)?.statistics();
        let value = stopgap_arena_statistics {
            size: 0,
            window: got.window,
            accessible: got.accessible,
            buffers: got.buffers,
            buffer_bytes: got.buffer_bytes,
            maps: got.maps,
            kept: got.kept,
            cached: got.cached,
            keep: got.keep,
            given: got.given,
            given_back: got.given_back,
            strays: got.strays,
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Gives the window back, and all that is in it.
///
/// # Safety
/// Nothing in it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_close(arena: *mut stopgap_arena) -> c_int {
    enter(|| ARENAS.close(arena).map(drop))
}
