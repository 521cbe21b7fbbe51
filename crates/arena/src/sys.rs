//! Every system call of this crate, each a thin wrapper: arguments in types, the errno with the call's name.
//!
//! Calls go to the kernel directly (rustix without libc), never through libc's functions of the same name: a library that stands
//! in for those functions may use this crate. Each wrapper begins with [`call`], so that a test can make any of
//! them fail.

#![allow(unsafe_code)]
// Under loom only what needs no call is compiled.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
pub(crate) mod futex;
pub(crate) mod gather;
pub(crate) mod huge;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod sched;
pub(crate) mod shm;
pub(crate) mod signals;
#[cfg(not(loom))]
pub(crate) mod socket;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::{Error, Result};

/// Carries out a call named `name`, or fails in its place where a test said so.
#[inline]
fn call<T>(name: &'static str, work: impl FnOnce() -> std::result::Result<T, Errno>) -> Result<T> {
    #[cfg(any(test, feature = "inject"))]
    crate::inject::before(name).map_err(|errno| Error::Call { call: name, errno })?;
    work().map_err(|errno| Error::Call { call: name, errno })
}

/// Converts an error of a call that rustix does not have.
fn errno(errno: syscalls::Errno) -> Errno {
    Errno::from_raw_os_error(errno.into_raw())
}

/// Makes a file `bytes` long. Beyond `RLIMIT_FSIZE` the call would end the process (SIGXFSZ), so that is asked first.
fn lengthen(file: &OwnedFd, bytes: u64) -> Result<()> {
    if let Some(limit) = getrlimit(Resource::Fsize).current
        && bytes > limit
    {
        return Err(Error::Limit {
            asked: bytes,
            limit,
            which: "RLIMIT_FSIZE",
        });
    }
    call("ftruncate", || rustix::fs::ftruncate(file, bytes))
}

/// Bytes of a base page.
#[inline]
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}
