//! The symbols. Nothing but these is exported; each leaves `errno` alone unless it fails.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};

use libc::{off_t, off64_t, rlimit, rlimit64, size_t};

use crate::kernel::{Errno, Result};
use crate::{arena, kernel};

/// mmap's answer to an error.
const FAILED: *mut c_void = usize::MAX as *mut c_void;

#[cold]
fn set(Errno(errno): Errno) {
    // SAFETY: the location of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

fn address(result: Result<usize>) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            set(errno);
            FAILED
        }
    }
}

fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            -1
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    address(arena::mmap(
        at as usize,
        length,
        protection,
        flags,
        fd,
        offset,
    ))
}

#[unsafe(no_mangle)]
extern "C" fn mmap64(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    mmap(at, length, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    status(arena::munmap(at as usize, length))
}

/// The fifth argument is only there with `MREMAP_FIXED`; integers of a variable list come where fixed ones do on x86-64
/// and aarch64 Linux.
#[unsafe(no_mangle)]
extern "C" fn mremap(
    old: *mut c_void,
    old_length: size_t,
    new_length: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let new = if flags & libc::MREMAP_FIXED != 0 {
        new as usize
    } else {
        0
    };
    address(arena::mremap(
        old as usize,
        old_length,
        new_length,
        flags,
        new,
    ))
}

#[unsafe(no_mangle)]
extern "C" fn mprotect(at: *mut c_void, length: size_t, protection: c_int) -> c_int {
    status(arena::mprotect(at as usize, length, protection))
}

/// It changes what mprotect does.
#[unsafe(no_mangle)]
extern "C" fn pkey_mprotect(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    key: c_int,
) -> c_int {
    if key == -1 {
        return mprotect(at, length, protection);
    }
    status(arena::pkey_mprotect(at as usize, length, protection, key))
}

#[unsafe(no_mangle)]
extern "C" fn madvise(at: *mut c_void, length: size_t, advice: c_int) -> c_int {
    status(arena::madvise(at as usize, length, advice))
}

/// A locked map must not be kept: its pages would stay locked.
#[unsafe(no_mangle)]
extern "C" fn mlock(at: *const c_void, length: size_t) -> c_int {
    status(arena::mlock(at as usize, length, kernel::mlock))
}

#[unsafe(no_mangle)]
extern "C" fn mlock2(at: *const c_void, length: size_t, flags: c_uint) -> c_int {
    let flags = flags.cast_signed();
    let call = |at, length| {
        if flags == 0 {
            kernel::mlock(at, length)
        } else {
            kernel::mlock2(at, length, flags)
        }
    };
    status(arena::mlock(at as usize, length, call))
}

/// It would lock the window, too, and what is kept.
#[unsafe(no_mangle)]
extern "C" fn mlockall(flags: c_int) -> c_int {
    arena::step_aside();
    status(kernel::mlockall(flags))
}

/// A limit of the address space counts the window.
fn limit(pid: c_int, resource: u32, new: *const rlimit64, old: *mut rlimit64) -> c_int {
    if resource == libc::RLIMIT_AS && !new.is_null() {
        arena::step_aside();
    }
    status(kernel::prlimit(pid, resource, new, old))
}

#[unsafe(no_mangle)]
extern "C" fn setrlimit(resource: u32, new: *const rlimit) -> c_int {
    limit(0, resource, new.cast(), std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn setrlimit64(resource: u32, new: *const rlimit64) -> c_int {
    limit(0, resource, new, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn prlimit(
    pid: libc::pid_t,
    resource: u32,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    limit(pid, resource, new.cast(), old.cast())
}

#[unsafe(no_mangle)]
extern "C" fn prlimit64(
    pid: libc::pid_t,
    resource: u32,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    limit(pid, resource, new, old)
}

/// Whether calls of the program come to this copy of the library, and not to another that was preloaded before it.
pub(crate) fn called() -> bool {
    // SAFETY: looking a name up changes nothing.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mremap".as_ptr()) };
    first == mremap as *mut c_void
}
