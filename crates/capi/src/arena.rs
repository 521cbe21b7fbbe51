//! The arena: buffers in a window of addresses.

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::time::Duration;

use ::stopgap_arena::{Arena, Backing, Config, Error, Statistics};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, duplicate, put, structs};
use crate::handle::{ARENAS, open, stopgap_arena};

structs! {
    stopgap_arena_options, 40:
        window: usize, backing: u64, decay_ns: u64, guard: u64,;

    stopgap_arena_statistics, 80 from Statistics:
        window: u64, accessible: u64, buffers: u64, buffer_bytes: u64, kept: u64,
        cached: u64, given: u64, given_back: u64, strays: u64,;
}

fn config(theirs: &stopgap_arena_options) -> Result<Config> {
    let mut ours = Config::default();
    given::set(&mut ours.window, theirs.window);
    ours.backing = match theirs.backing {
        0 => Backing::Anonymous,
        1 => Backing::Memfd,
        _ => return Err(Failure::argument("no such backing")),
    };
    if theirs.decay_ns != 0 {
        ours.decay = Duration::from_nanos(theirs.decay_ns);
    }
    ours.guard = match theirs.guard {
        0 => false,
        1 => true,
        _ => return Err(Failure::argument("guard is 0 or 1")),
    };
    Ok(ours)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_new(
    options: *const stopgap_arena_options,
) -> *mut stopgap_arena {
    enter(|| {
        // SAFETY: the caller's promise.
        let config = config(&unsafe { given::read(options) }?)?;
        open(&ARENAS, Arena::new(&config)?)
    })
}

/// The alignment asked for; 0: a page's.
const fn alignment(align: usize) -> usize {
    if align == 0 { 1 } else { align }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_arena_alloc(
    arena: *mut stopgap_arena,
    length: usize,
    align: usize,
) -> *mut c_void {
    ARENAS.call(arena, |arena| {
        Ok(arena.alloc(length, alignment(align))?.as_ptr().cast())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_arena_alloc_uninit(
    arena: *mut stopgap_arena,
    length: usize,
    align: usize,
) -> *mut c_void {
    ARENAS.call(arena, |arena| {
        let buffer = arena.alloc_uninit(length, alignment(align))?;
        Ok(buffer.as_ptr().cast())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_free(
    arena: *mut stopgap_arena,
    address: *mut c_void,
    length: usize,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let address = given(address)?;
        // SAFETY: the caller's promise. What was not given out is refused.
        Ok(unsafe { arena.free(address, length) }?)
    })
}

/// An address that may have been given out: NULL never was.
fn given(address: *const c_void) -> Result<NonNull<u8>> {
    NonNull::new(address.cast_mut().cast()).ok_or(Failure::Arena(Error::Foreign { address: 0 }))
}

/// The descriptor is the caller's own: if the caller closed the arena's, the arena would cut holes into another file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_export(
    arena: *mut stopgap_arena,
    address: *const c_void,
    offset: *mut u64,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let (file, at) = arena.export(given(address)?)?;
        let twin = duplicate(file)?;
        // SAFETY: the caller's promise.
        unsafe { put(offset, at) };
        Ok(twin.into_raw_fd())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_arena_contains(
    arena: *mut stopgap_arena,
    address: *const c_void,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let address = NonNull::new(address.cast_mut().cast());
        Ok(address.is_some_and(|address| arena.contains(address)))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_window(
    arena: *mut stopgap_arena,
    start: *mut *mut c_void,
    length: *mut usize,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let (at, bytes) = arena.window();
        // SAFETY: the caller's promise.
        unsafe {
            put(start, std::ptr::with_exposed_provenance_mut(at));
            put(length, bytes);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_trim(
    arena: *mut stopgap_arena,
    given_back: *mut u64,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let bytes = arena.trim()?;
        // SAFETY: the caller's promise.
        unsafe { put(given_back, bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_decay(
    arena: *mut stopgap_arena,
    given_back: *mut u64,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let bytes = arena.decay()?;
        // SAFETY: the caller's promise.
        unsafe { put(given_back, bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_stat(
    arena: *mut stopgap_arena,
    statistics: *mut stopgap_arena_statistics,
) -> c_int {
    ARENAS.call(arena, |arena| {
        let counters = arena.statistics().into();
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &counters, "the statistics") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_arena_close(arena: *mut stopgap_arena) -> c_int {
    enter(|| ARENAS.close(arena).map(drop))
}
