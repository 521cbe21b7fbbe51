//! Bytes that C hands over, as slices.

use std::ffi::c_void;
use std::slice;

use crate::{Failure, Result};

/// `length` bytes at `at`. No bytes may lie anywhere, at NULL too.
///
/// # Safety
/// They can be read as long as the slice is used, and nobody writes there meanwhile.
pub(crate) unsafe fn read<'a>(
    at: *const c_void,
    length: usize,
    what: &'static str,
) -> Result<&'a [u8]> {
    if !check(at.is_null(), length, what)? {
        return Ok(&[]);
    }
    // SAFETY: not NULL, no longer than a slice may be; else the caller's promise.
    Ok(unsafe { slice::from_raw_parts(at.cast(), length) })
}

/// `length` bytes at `at`, to be written.
///
/// # Safety
/// They can be written as long as the slice is used, and nobody else uses them meanwhile. They may be uninitialised:
/// they are only handed to the kernel, or copied to.
pub(crate) unsafe fn write<'a>(
    at: *mut c_void,
    length: usize,
    what: &'static str,
) -> Result<&'a mut [u8]> {
    if !check(at.is_null(), length, what)? {
        return Ok(&mut []);
    }
    // SAFETY: as in `read`.
    Ok(unsafe { slice::from_raw_parts_mut(at.cast(), length) })
}

/// Whether there is anything.
fn check(null: bool, length: usize, what: &'static str) -> Result<bool> {
    if length == 0 {
        return Ok(false);
    }
    if null {
        return Err(Failure::Null { what });
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::Argument {
            what: "more bytes than there can be addresses",
        });
    }
    Ok(true)
}
