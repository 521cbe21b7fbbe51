//! The locked set, and the memory in it.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Mutex, PoisonError};

use stopgap_arena::Error;
use stopgap_arena::locked::{
    Contents, Held, Options, Pressure, Purged, Set, Statistics, Watch, Way,
};

use crate::failure::{Failure, Result, enter};
use crate::given::{self, borrow, duplicate, put, structs};
use crate::handle::{HELD, SETS, WatchedSet, one_call, open, stopgap_held, stopgap_set};

structs! {
    stopgap_set_options, 56:
        budget: u64, batch: u64, way: u64, pressure_stall_ns: u64, pressure_window_ns: u64,
        pressure_path: *const c_char,;

    stopgap_purged, 40:
        objects: u64, bytes: u64, unlocked: u64, error: u64,;

    stopgap_set_statistics, 56 from Statistics:
        objects: u64, bytes: u64, locked: u64, released: u64, purgeable: u64, purged: u64,;
}

const SYSV: u64 = 1;
const MEMFD: u64 = 2;

/// # Safety
/// The path is NULL or a string that ends with a NUL.
unsafe fn usual(theirs: &stopgap_set_options) -> Result<Options> {
    let mut ours = Options::default();
    given::set(&mut ours.budget, theirs.budget);
    given::set(&mut ours.batch, theirs.batch);
    ours.way = match theirs.way {
        0 => ours.way,
        SYSV => Way::SysV,
        MEMFD => Way::Memfd,
        _ => return Err(Failure::argument("no such way to lock")),
    };
    let mut pressure = Pressure::default();
    given::set_time(&mut pressure.stall, theirs.pressure_stall_ns);
    given::set_time(&mut pressure.window, theirs.pressure_window_ns);
    if !theirs.pressure_path.is_null() {
        // SAFETY: the caller's promise.
        pressure.path = unsafe { given::path(theirs.pressure_path) }?.into();
    }
    let times = [theirs.pressure_stall_ns, theirs.pressure_window_ns];
    if times != [0, 0] || !theirs.pressure_path.is_null() {
        ours.pressure = Some(pressure);
    }
    Ok(ours)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_set_new(
    options: *const stopgap_set_options,
) -> *mut stopgap_set {
    enter(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { usual(&given::read(options)?) }?;
        let set = Set::new(options)?;
        let watch = Mutex::new(None);
        open(&SETS, WatchedSet { watch, set })
    })
}

fn take(set: *mut stopgap_set, take: impl FnOnce(&Set) -> Result<Held>) -> *mut stopgap_held {
    SETS.call(set, |watched| open(&HELD, take(&watched.set)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_take(
    set: *mut stopgap_set,
    length: usize,
) -> *mut stopgap_held {
    take(set, |set| Ok(set.take(length)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_take_shareable(
    set: *mut stopgap_set,
    length: usize,
) -> *mut stopgap_held {
    take(set, |set| Ok(set.take_shareable(length)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_take_file(
    set: *mut stopgap_set,
    fd: c_int,
    offset: u64,
    length: usize,
) -> *mut stopgap_held {
    take(set, |set| {
        let file = duplicate(borrow(fd)?)?;
        Ok(set.take_file(file, offset, length)?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_set_flush(
    set: *mut stopgap_set,
    unlocked: *mut u64,
) -> c_int {
    SETS.call(set, |watched| {
        let bytes = watched.set.flush()?;
        // SAFETY: the caller's promise.
        unsafe { put(unlocked, bytes) };
        Ok(())
    })
}

/// Lets a set react, and fills in what went. Returns whether it reacted.
///
/// # Safety
/// `purged` is NULL or a `struct stopgap_purged` with its size filled in.
unsafe fn react(
    set: *mut stopgap_set,
    purged: *mut stopgap_purged,
    react: impl FnOnce(&Set) -> Result<Option<Purged>>,
) -> c_int {
    let tell = |went: &Purged| {
        let value = stopgap_purged {
            size: 0,
            objects: went.objects,
            bytes: went.bytes,
            unlocked: went.unlocked,
            // A number of the kernel's is positive.
            error: went
                .error
                .map_or(0, |error| u64::from(error.errno().unsigned_abs())),
        };
        if purged.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { given::write(purged, &value, "what was purged") }
    };
    SETS.call(set, |watched| {
        // The struct is looked at before anything is done.
        tell(&Purged::default())?;
        let Some(went) = react(&watched.set)? else {
            return Ok(false);
        };
        tell(&went).map(|()| true)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_set_react(
    set: *mut stopgap_set,
    purged: *mut stopgap_purged,
) -> c_int {
    // SAFETY: the caller's promise.
    let reacted = unsafe { react(set, purged, |set| Ok(Some(set.react()?))) };
    reacted.min(0)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_set_poll_pressure(
    set: *mut stopgap_set,
    purged: *mut stopgap_purged,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { react(set, purged, |set| Ok(set.poll_pressure()?)) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_pressure_fd(set: *mut stopgap_set) -> c_int {
    SETS.call(set, |watched| {
        let file = watched.set.pressure_file().ok_or(Failure::argument(
            "the set was made without pressure to react to",
        ))?;
        Ok(file.as_raw_fd())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_watch(set: *mut stopgap_set) -> c_int {
    SETS.call(set, |watched| {
        let mut watch = one_call(&watched.watch)?;
        if watch.is_none() {
            *watch = Some(watched.set.watch()?);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_watch_end(set: *mut stopgap_set) -> c_int {
    SETS.call(set, |watched| {
        let watch = one_call(&watched.watch)?.take();
        let watch = watch.ok_or(Failure::argument("no thread watches for this set"))?;
        Ok(watch.end()?)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_set_stat(
    set: *mut stopgap_set,
    statistics: *mut stopgap_set_statistics,
) -> c_int {
    SETS.call(set, |watched| {
        let counters = watched.set.statistics()?.into();
        // SAFETY: the caller's promise.
        unsafe { given::write(statistics, &counters, "the statistics") }
    })
}

/// Memory taken from the set stays.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_set_close(set: *mut stopgap_set) -> c_int {
    enter(|| {
        let Some(WatchedSet { watch, set }) = SETS.close(set)? else {
            return Ok(());
        };
        let watch = watch.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ended = watch.map_or(Ok(()), Watch::end);
        drop(set);
        Ok(ended?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_address(held: *mut stopgap_held) -> *mut c_void {
    HELD.call(held, |held| Ok(held.as_ptr().cast()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_length(held: *mut stopgap_held) -> isize {
    // No mapping has more than isize::MAX.
    HELD.call(held, |held| Ok(held.len() as isize))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_way(held: *mut stopgap_held) -> c_int {
    HELD.call(held, |held| {
        Ok(match held.way() {
            Way::SysV => SYSV as c_int,
            Way::Memfd => MEMFD as c_int,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_is_writable(held: *mut stopgap_held) -> c_int {
    HELD.call(held, |held| Ok(held.is_writable()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_held_file(
    held: *mut stopgap_held,
    offset: *mut u64,
) -> c_int {
    HELD.call(held, |held| {
        let (fd, at) = held.file()?.ok_or(Error::Unsupported {
            what: "a descriptor of a System V segment",
            advice: "take the memory by stopgap_set_take_shareable",
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(offset, at) };
        Ok(fd.into_raw_fd())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_release(held: *mut stopgap_held) -> c_int {
    HELD.call(held, |held| Ok(held.release()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_purgeable(held: *mut stopgap_held) -> c_int {
    HELD.call(held, |held| Ok(held.purgeable()?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn stopgap_held_keep(held: *mut stopgap_held) -> c_int {
    HELD.call(held, |held| Ok(held.keep()? == Contents::Lost))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stopgap_held_close(held: *mut stopgap_held) -> c_int {
    enter(|| HELD.close(held).map(drop))
}
