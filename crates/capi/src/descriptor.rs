//! File descriptors that C hands over: numbers, and perhaps of nothing.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use crate::{Failure, Result};

/// A descriptor of our own of the same open file: whatever the caller closes later, the library never writes to a
/// number that was used again for something else.
pub(crate) fn twin(fd: c_int) -> Result<OwnedFd> {
    let call = "fcntl";
    rustix::io::fcntl_dupfd_cloexec(borrow(fd)?, 0)
        .map_err(|errno| Failure::from(stopgap_arena::Error::Call { call, errno }))
}

/// The descriptor for the time of a call. One that is not open makes that call fail.
pub(crate) fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Failure::Descriptor);
    }
    // SAFETY: not negative. Whoever calls from C says that it is open, and stays so during the call; where it is not,
    // the kernel says EBADF, and nothing here owns it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Closes a descriptor that the caller gave away.
///
/// # Safety
/// Nobody else uses it.
pub(crate) unsafe fn close(fd: c_int) {
    // SAFETY: the caller's promise. What close(2) says is of no use: the number is free all the same.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
