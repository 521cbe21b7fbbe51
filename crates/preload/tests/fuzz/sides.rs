//! The two sides: libc's functions, which the library stands in for, and the system calls.

use std::ffi::{c_int, c_void};

/// An errno.
pub(crate) type Errno = c_int;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Library,
    Kernel,
}

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn checked(result: isize) -> Result<usize, Errno> {
    if result == -1 {
        Err(errno())
    } else {
        Ok(result as usize)
    }
}

macro_rules! either {
    ($side:expr, $function:ident($($argument:expr),*), $number:ident) => {
        // SAFETY: addresses are of maps that only the fuzzer uses, or of none.
        checked(unsafe {
            match $side {
                Side::Library => libc::$function($($argument),*) as isize,
                Side::Kernel => libc::syscall(libc::$number, $($argument),*) as isize,
            }
        })
    };
}

impl Side {
    pub(crate) fn mmap(
        self,
        at: usize,
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> Result<usize, Errno> {
        either!(
            self,
            mmap(at as *mut c_void, length, protection, flags, fd, offset),
            SYS_mmap
        )
    }

    pub(crate) fn munmap(self, at: usize, length: usize) -> Result<usize, Errno> {
        either!(self, munmap(at as *mut c_void, length), SYS_munmap)
    }

    pub(crate) fn mremap(
        self,
        old: usize,
        old_length: usize,
        new_length: usize,
        flags: c_int,
        new: usize,
    ) -> Result<usize, Errno> {
        either!(
            self,
            mremap(
                old as *mut c_void,
                old_length,
                new_length,
                flags,
                new as *mut c_void
            ),
            SYS_mremap
        )
    }

    pub(crate) fn mprotect(
        self,
        at: usize,
        length: usize,
        protection: c_int,
    ) -> Result<usize, Errno> {
        either!(
            self,
            mprotect(at as *mut c_void, length, protection),
            SYS_mprotect
        )
    }

    pub(crate) fn madvise(self, at: usize, length: usize, advice: c_int) -> Result<usize, Errno> {
        either!(
            self,
            madvise(at as *mut c_void, length, advice),
            SYS_madvise
        )
    }

    pub(crate) fn mlock(self, at: usize, length: usize) -> Result<usize, Errno> {
        either!(self, mlock(at as *const c_void, length), SYS_mlock)
    }

    pub(crate) fn munlock(self, at: usize, length: usize) -> Result<usize, Errno> {
        either!(self, munlock(at as *const c_void, length), SYS_munlock)
    }
}

/// What some pages hold; an errno where they cannot be read. Protections are kept to.
pub(crate) fn read(at: usize, pages: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec {
        iov_base: pages.as_mut_ptr().cast(),
        iov_len: pages.len(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut c_void,
        iov_len: pages.len(),
    };
    // SAFETY: the local buffer is as long as it says; the remote one is checked by the kernel.
    checked(unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    })
}

/// Writes to a page; an errno where that may not be.
pub(crate) fn write(at: usize, bytes: &[u8]) -> Result<usize, Errno> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the local buffer is only read; the remote one is a map of the fuzzer, or none.
    checked(unsafe {
        libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    })
}
