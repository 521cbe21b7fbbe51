//! The symbols. Nothing but these is exported; each leaves `errno` alone unless it fails.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{off_t, off64_t, rlimit, rlimit64, size_t};

use crate::calls::{self, Wanted};
use crate::kernel;
use crate::kernel::{Errno, Result};

/// mmap's answer to an error.
const FAILED: *mut c_void = usize::MAX as *mut c_void;

/// Whether a sanitizer's runtime is loaded.
static SANITIZED: AtomicBool = AtomicBool::new(false);

/// Makes every later call go to the sanitizer's own function, which must see what is mapped, and locks nothing.
pub(crate) fn leave_to_the_sanitizer() {
    SANITIZED.store(true, Ordering::Relaxed);
}

/// Exports functions under libc's names. Where a sanitizer's runtime is loaded, its function of that name answers.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> $result {
                if SANITIZED.load(Ordering::Relaxed) {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the name ends with a 0; a function of libc's name has libc's type.
                    let next = unsafe {
                        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast());
                        std::mem::transmute::<*mut c_void, Option<extern "C" fn($($type),*) -> $result>>(found)
                    };
                    if let Some(next) = next {
                        return next($($argument),*);
                    }
                }
                $body
            }
        )*
    };
}

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

fn limit(pid: c_int, resource: u32, new: *const rlimit64, old: *mut rlimit64) -> c_int {
    if resource == libc::RLIMIT_AS && !new.is_null() {
        calls::limit_is_set();
    }
    status(kernel::prlimit(pid, resource, new, old))
}

export! {
    fn mmap(
        at: *mut c_void,
        length: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off_t,
    ) -> *mut c_void {
        let wanted = Wanted {
            length,
            protection,
            flags,
            fd,
            offset,
        };
        address(calls::mmap(at as usize, wanted))
    }

    fn mmap64(
        at: *mut c_void,
        length: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off64_t,
    ) -> *mut c_void {
        mmap(at, length, protection, flags, fd, offset)
    }

    fn munmap(at: *mut c_void, length: size_t) -> c_int {
        status(calls::munmap(at as usize, length))
    }

    /// The fifth argument is only there with `MREMAP_FIXED`; integers of a variable list come where fixed ones do on x86-64
    /// and aarch64 Linux.
    fn mremap(
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
        address(calls::mremap(
            old as usize,
            old_length,
            new_length,
            flags,
            new,
        ))
    }

    fn mprotect(at: *mut c_void, length: size_t, protection: c_int) -> c_int {
        let at = at as usize;
        let call = || kernel::mprotect(at, length, protection);
        status(calls::change(at, length, call))
    }

    fn pkey_mprotect(
        at: *mut c_void,
        length: size_t,
        protection: c_int,
        key: c_int,
    ) -> c_int {
        if key == -1 {
            return mprotect(at, length, protection);
        }
        let at = at as usize;
        let call = || kernel::pkey_mprotect(at, length, protection, key);
        status(calls::change(at, length, call))
    }

    fn madvise(at: *mut c_void, length: size_t, advice: c_int) -> c_int {
        status(calls::madvise(at as usize, length, advice))
    }

    /// A locked map is not kept: its pages would stay locked.
    fn mlock(at: *const c_void, length: size_t) -> c_int {
        let at = at as usize;
        status(calls::change(at, length, || kernel::mlock(at, length)))
    }

    fn mlock2(at: *const c_void, length: size_t, flags: c_uint) -> c_int {
        let (at, flags) = (at as usize, flags.cast_signed());
        let call = || {
            if flags == 0 {
                kernel::mlock(at, length)
            } else {
                kernel::mlock2(at, length, flags)
            }
        };
        status(calls::change(at, length, call))
    }

    fn mlockall(flags: c_int) -> c_int {
        status(calls::mlockall(flags))
    }

    fn setrlimit(resource: u32, new: *const rlimit) -> c_int {
        limit(0, resource, new.cast(), std::ptr::null_mut())
    }

    fn setrlimit64(resource: u32, new: *const rlimit64) -> c_int {
        limit(0, resource, new, std::ptr::null_mut())
    }

    fn prlimit(
        pid: libc::pid_t,
        resource: u32,
        new: *const rlimit,
        old: *mut rlimit,
    ) -> c_int {
        limit(pid, resource, new.cast(), old.cast())
    }

    fn prlimit64(
        pid: libc::pid_t,
        resource: u32,
        new: *const rlimit64,
        old: *mut rlimit64,
    ) -> c_int {
        limit(pid, resource, new, old)
    }
}

/// Whether calls of the program come to this copy of the library, and not to another that was preloaded before it.
pub(crate) fn called() -> bool {
    // SAFETY: looking a name up changes nothing.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mremap".as_ptr()) };
    first == mremap as *mut c_void
}
