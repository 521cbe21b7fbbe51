//! The arena: buffers in a window of addresses.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, IntoRawFd};
use std::ptr::NonNull;
use std::time::Duration;

use ::stopgap_arena::{Arena, Backing, Config, Error, GiveBack, Protection, Sharing, Statistics};

use crate::descriptor::borrow;
use crate::guard::enter;
use crate::handle::{Kind, Table};
use crate::opaque::stopgap_arena;
use crate::sized::{self, Struct};
use crate::{Failure, Result};

/// `struct stopgap_arena_options`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct stopgap_arena_options {
    pub(crate) size: usize,
    pub(crate) window: usize,
    pub(crate) backing: u64,
    pub(crate) give_back: u64,
    pub(crate) after_ns: u64,
    pub(crate) keep: usize,
    pub(crate) guard: u64,
}

// SAFETY: integers of 8 bytes each, the size first.
unsafe impl Struct for stopgap_arena_options {
    const FIRST: usize = 56;
}

/// `struct stopgap_arena_statistics`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct stopgap_arena_statistics {
    pub(crate) size: usize,
    pub(crate) window: u64,
    pub(crate) accessible: u64,
    pub(crate) buffers: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) maps: u64,
    pub(crate) kept: u64,
    pub(crate) cached: u64,
    pub(crate) keep: u64,
    pub(crate) given: u64,
    pub(crate) given_back: u64,
    pub(crate) strays: u64,
}

// SAFETY: integers of 8 bytes each, the size first.
unsafe impl Struct for stopgap_arena_statistics {
    const FIRST: usize = 96;
}

/// Several threads allocate at once: a counter of users for each of some.
pub(crate) static TABLE: Table<Arena, 8> = Table::new(Kind::Arena);

fn usual(theirs: &stopgap_arena_options) -> Result<Config> {
    let mut ours = Config::default();
    if theirs.window != 0 {
        ours.window = theirs.window;
    }
    ours.backing = match theirs.backing {
        0 => Backing::Anonymous,
        1 => Backing::Memfd,
        _ => {
            return Err(Failure::Argument {
                what: "no such backing",
            });
        }
    };
    match (theirs.give_back, theirs.after_ns) {
        (0, 0) => {}
        (0, after) => ours.give_back = GiveBack::After(Duration::from_nanos(after)),
        (1, 0) => ours.give_back = GiveBack::AtOnce,
        (2, 0) => ours.give_back = GiveBack::UnderPressure,
        _ => {
            return Err(Failure::Argument {
                what: "no such way to give memory back, or a time for one that has none",
            });
        }
    }
    if theirs.keep != 0 {
        ours.keep = theirs.keep;
    }
    ours.guard = match theirs.guard {
        0 => false,
        1 => true,
        _ => {
            return Err(Failure::Argument {
                what: "guard is 0 or 1",
            });
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
        let config = match unsafe { sized::read(options) }? {
            Some(theirs) => usual(&theirs)?,
            None => Config::default(),
        };
        TABLE.insert(Arena::new(&config)?)
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
        Ok(TABLE
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
        Ok(TABLE
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
        let used = TABLE.get(arena)?;
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
        let used = TABLE.get(arena)?;
        let may = |bit| prot & bit != 0;
        if prot & !(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
            return Err(Failure::Argument {
                what: "another protection than PROT_READ, PROT_WRITE, PROT_EXEC",
            });
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
                return Err(Failure::Argument {
                    what: "other flags than MAP_SHARED or MAP_PRIVATE",
                });
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
        let used = TABLE.get(arena)?;
        let (file, at) = used.export(given(address)?)?;
        // The caller's own: whoever closed the arena's would have it cut holes into a stranger's file.
        let twin =
            rustix::io::fcntl_dupfd_cloexec(file.as_fd(), 0).map_err(|errno| Error::Call {
                call: "fcntl",
                errno,
            })?;
        if !offset.is_null() {
            // SAFETY: the caller's promise.
            unsafe { offset.write(at) };
        }
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
        let used = TABLE.get(arena)?;
        let address = NonNull::new(address.cast_mut().cast());
        Ok(c_int::from(
            address.is_some_and(|address| used.contains(address)),
        ))
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
        let (at, bytes) = TABLE.get(arena)?.window();
        // SAFETY: the caller's promise.
        unsafe {
            if !start.is_null() {
                start.write(std::ptr::with_exposed_provenance_mut(at));
            }
            if !length.is_null() {
                length.write(bytes);
            }
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
        let bytes = TABLE.get(arena)?.trim()?;
        if !given_back.is_null() {
            // SAFETY: the caller's promise.
            unsafe { given_back.write(bytes) };
        }
        Ok(0)
    })
}

/// Gives free memory back if memory is short.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_arena_pressure(arena: *mut stopgap_arena) -> c_int {
    enter(|| Ok(c_int::from(TABLE.get(arena)?.pressure()?)))
}

/// What an arena holds and has done.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_arena_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_stat(
    arena: *mut stopgap_arena,
    statistics: *mut stopgap_arena_statistics,
) -> c_int {
    enter(|| {
        let Statistics {
            window,
            accessible,
            buffers,
            buffer_bytes,
            maps,
            kept,
            cached,
            keep,
            given,
            given_back,
            strays,
        } = TABLE.get(arena)?.statistics();
        let value = stopgap_arena_statistics {
            size: 0,
            window,
            accessible,
            buffers,
            buffer_bytes,
            maps,
            kept,
            cached,
            keep,
            given,
            given_back,
            strays,
        };
        // SAFETY: the caller's promise.
        unsafe { sized::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Gives the window back, and all that is in it.
///
/// # Safety
/// Nothing in it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_arena_close(arena: *mut stopgap_arena) -> c_int {
    enter(|| {
        drop(TABLE.close(arena)?);
        Ok(0)
    })
}
