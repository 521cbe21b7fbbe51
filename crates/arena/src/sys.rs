//! Every system call of this crate, each a thin wrapper: arguments in types, the errno with the call's name.
//!
//! Calls go to the kernel directly (rustix without libc), never through libc's functions of the same name: a library that stands
//! in for those functions may use this crate. Each wrapper begins with [`call`], so that a test can make any of
//! them fail.

#![allow(unsafe_code)]
// Under loom only what needs no call is compiled.
#![cfg_attr(loom, allow(dead_code))]

pub(crate) mod devices;
pub(crate) mod files;
pub(crate) mod memory;
pub(crate) mod shm;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod threads;

use rustix::io::Errno;

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

/// Bytes of a base page.
#[inline]
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}
