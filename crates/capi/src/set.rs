//! The locked set, and the memory in it.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stopgap_arena::Error;
use stopgap_arena::locked::{Contents, Options, Pressure, Purged, Set, Watch, Way};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, duplicate, put, structs};
use crate::tables::{HELD, SETS, WatchedSet, open, stopgap_held, stopgap_set};

structs! {
    stopgap_set_options, 56:
        budget: u64, batch: u64, way: u64, pressure_stall_ns: u64, pressure_window_ns: u64,
        pressure_path: *const c_char,;

    stopgap_purged, 40:
        objects: u64, bytes: u64, unlocked: u64, error: u64,;

    stopgap_set_statistics, 56:
        objects: u64, bytes: u64, locked: u64, released: u64, purgeable: u64, purged: u64,;
}

const SYSV: u64 = 1;
const MEMFD: u64 = 2;

/// A set with nothing in it.
///
/// # Safety
/// `options` is NULL or a `struct stopgap_set_options` with its size filled in, and its path NULL or a string that
/// ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_set_new(options: *const stopgap_set_options) -> *mut stopgap_set {
    enter(|| {
        // SAFETY: the caller's promise.
        let theirs = unsafe { given::read(options) }?;
        let ours = match theirs {
            // SAFETY: the caller's promise.
            Some(theirs) => unsafe { usual(&theirs) }?,
            None => Options::default(),
        };
        let set = Set::new(ours)?;
        let watch = Mutex::new(None);
        open(&SETS, WatchedSet { watch, set })
    })
}

/// # Safety
/// The path is NULL or a string that ends with a NUL.
unsafe fn usual(theirs: &stopgap_set_options) -> Result<Options> {
    let mut ours = Options::default();
    if theirs.budget != 0 {
        ours.budget = theirs.budget;
    }
    if theirs.batch != 0 {
        ours.batch = theirs.batch;
    }
    match theirs.way {
        0 => {}
        SYSV => ours.way = Way::SysV,
        MEMFD => ours.way = Way::Memfd,
        _ => {
            return Err(Failure::Argument("no such way to lock"));
        }
    }
    let pressure = (theirs.pressure_stall_ns, theirs.pressure_window_ns);
    if pressure != (0, 0) || !theirs.pressure_path.is_null() {
        let mut asked = Pressure::default();
        if !theirs.pressure_path.is_null() {
            // SAFETY: the caller's promise.
            asked.path = unsafe { given::path(theirs.pressure_path) }?.into();
        }
        if pressure.0 != 0 {
            asked.stall = Duration::from_nanos(pressure.0);
        }
        if pressure.1 != 0 {
            asked.window = Duration::from_nanos(pressure.1);
        }
        ours.pressure = Some(asked);
    }
    Ok(ours)
}

/// Memory that is locked as soon as it is touched.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_take(set: *mut stopgap_set, length: usize) -> *mut stopgap_held {
    enter(|| open(&HELD, SETS.get(set)?.set.take(length)?))
}

/// The same, with a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_take_shareable(
    set: *mut stopgap_set,
    length: usize,
) -> *mut stopgap_held {
    enter(|| open(&HELD, SETS.get(set)?.set.take_shareable(length)?))
}

/// Locks memory of a memfd that is there already.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_take_file(
    set: *mut stopgap_set,
    fd: c_int,
    offset: u64,
    length: usize,
) -> *mut stopgap_held {
    enter(|| {
        let used = SETS.get(set)?;
        open(&HELD, used.set.take_file(duplicate(fd)?, offset, length)?)
    })
}

/// Unlocks all that was released.
///
/// # Safety
/// `unlocked` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_set_flush(set: *mut stopgap_set, unlocked: *mut u64) -> c_int {
    enter(|| {
        let bytes = SETS.get(set)?.set.flush()?;
        // SAFETY: the caller's promise.
        unsafe { put(unlocked, bytes) };
        Ok(0)
    })
}

/// Gives back what is purgeable and unlocks what was released.
///
/// # Safety
/// `purged` is NULL or a `struct stopgap_purged` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_set_react(
    set: *mut stopgap_set,
    purged: *mut stopgap_purged,
) -> c_int {
    enter(|| {
        let used = SETS.get(set)?;
        // SAFETY: the caller's promise. Looked at before anything is done.
        unsafe { tell(purged, &Purged::default()) }?;
        let brought = used.set.react()?;
        // SAFETY: the caller's promise.
        unsafe { tell(purged, &brought) }?;
        Ok(0)
    })
}

/// Reacts if memory got short.
///
/// # Safety
/// `purged` is NULL or a `struct stopgap_purged` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_set_poll_pressure(
    set: *mut stopgap_set,
    purged: *mut stopgap_purged,
) -> c_int {
    enter(|| {
        let used = SETS.get(set)?;
        // SAFETY: the caller's promise.
        unsafe { tell(purged, &Purged::default()) }?;
        let Some(brought) = used.set.poll_pressure()? else {
            return Ok(0);
        };
        // SAFETY: the caller's promise.
        unsafe { tell(purged, &brought) }?;
        Ok(1)
    })
}

/// # Safety
/// `purged` is NULL or a `struct stopgap_purged` with its size filled in.
unsafe fn tell(purged: *mut stopgap_purged, brought: &Purged) -> Result<()> {
    if purged.is_null() {
        return Ok(());
    }
    let value = stopgap_purged {
        size: 0,
        objects: brought.objects,
        bytes: brought.bytes,
        unlocked: brought.unlocked,
        // A number of the kernel's is positive.
        error: brought
            .error
            .map_or(0, |error| u64::from(error.errno().unsigned_abs())),
    };
    // SAFETY: the caller's promise.
    unsafe { given::write(purged, &value, "what was purged") }
}

/// The trigger's descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_pressure_fd(set: *mut stopgap_set) -> c_int {
    enter(|| {
        let used = SETS.get(set)?;
        let file = used.set.pressure_file().ok_or(Failure::Argument(
            "the set was made without pressure to react to",
        ))?;
        Ok(file.as_raw_fd())
    })
}

/// Starts a thread that reacts.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_watch(set: *mut stopgap_set) -> c_int {
    enter(|| {
        let used = SETS.get(set)?;
        let mut watch = used.watch.try_lock().map_err(|_| Failure::Busy)?;
        if watch.is_none() {
            *watch = Some(used.set.watch()?);
        }
        Ok(0)
    })
}

/// Ends that thread.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_watch_end(set: *mut stopgap_set) -> c_int {
    enter(|| {
        let used = SETS.get(set)?;
        let watch = used.watch.try_lock().map_err(|_| Failure::Busy)?.take();
        watch
            .ok_or(Failure::Argument("no thread watches for this set"))?
            .end()?;
        Ok(0)
    })
}

/// Fills in counters of the set.
///
/// # Safety
/// `statistics` is NULL or a `struct stopgap_set_statistics` with its size filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_set_stat(
    set: *mut stopgap_set,
    statistics: *mut stopgap_set_statistics,
) -> c_int {
    enter(|| {
        let got = SETS.get(set)?.set.statistics()?;
        let value = stopgap_set_statistics {
            size: 0,
            objects: got.objects,
            bytes: got.bytes,
            locked: got.locked,
            released: got.released,
            purgeable: got.purgeable,
            purged: got.purged,
        };
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &value, "the statistics") }?;
        Ok(0)
    })
}

/// Ends a set; what is held of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_set_close(set: *mut stopgap_set) -> c_int {
    enter(|| {
        if let Some(WatchedSet { watch, set }) = SETS.close(set)? {
            let watch = watch.into_inner().unwrap_or_else(PoisonError::into_inner);
            let ended = watch.map_or(Ok(()), Watch::end);
            drop(set);
            ended?;
        }
        Ok(0)
    })
}

/// Where it begins.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_address(held: *mut stopgap_held) -> *mut c_void {
    enter(|| Ok(HELD.get(held)?.as_ptr().cast()))
}

/// Bytes.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_length(held: *mut stopgap_held) -> isize {
    // No mapping has more than isize::MAX.
    enter(|| Ok(HELD.get(held)?.len() as isize))
}

/// By which way it is locked.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_way(held: *mut stopgap_held) -> c_int {
    enter(|| {
        Ok(match HELD.get(held)?.way() {
            Way::SysV => SYSV as c_int,
            Way::Memfd => MEMFD as c_int,
        })
    })
}

/// Whether it may be written.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_is_writable(held: *mut stopgap_held) -> c_int {
    enter(|| Ok(HELD.get(held)?.is_writable()))
}

/// A descriptor of the memfd that it is.
///
/// # Safety
/// `offset` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_held_file(held: *mut stopgap_held, offset: *mut u64) -> c_int {
    enter(|| {
        let used = HELD.get(held)?;
        let (fd, at) = used.file()?.ok_or(Error::Unsupported {
            what: "a descriptor of a System V segment",
            advice: "take the memory by stopgap_set_take_shareable",
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(offset, at) };
        Ok(fd.into_raw_fd())
    })
}

/// Its owner needs it no longer locked.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_release(held: *mut stopgap_held) -> c_int {
    enter(|| Ok(HELD.get(held)?.release()?))
}

/// Its contents may go.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_purgeable(held: *mut stopgap_held) -> c_int {
    enter(|| Ok(HELD.get(held)?.purgeable()?))
}

/// Takes it again.
#[unsafe(no_mangle)]
pub extern "C" fn stopgap_held_keep(held: *mut stopgap_held) -> c_int {
    enter(|| {
        Ok(match HELD.get(held)?.keep()? {
            Contents::Kept => 0,
            Contents::Lost => 1,
        })
    })
}

/// Gives it back.
///
/// # Safety
/// Nothing uses its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stopgap_held_close(held: *mut stopgap_held) -> c_int {
    enter(|| HELD.close(held).map(drop))
}
