//! Writing several buffers at once, without `SIGPIPE`, and reading what is there.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::call;
use super::signals::NoPipeSignal;
use crate::error::Result;

/// Sends to a socket; `ENOTSOCK` where it is none.
pub(crate) fn send(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> Result<usize> {
    call("sendmsg", || {
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg(fd, slices, &mut nothing, SendFlags::NOSIGNAL)
    })
}

/// Writes to what is no socket.
pub(crate) fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> Result<usize> {
    let _quiet = NoPipeSignal::new()?;
    call("writev", || rustix::io::writev(fd, slices))
}

/// Receives what is there, `EAGAIN` where nothing is; `ENOTSOCK` where it is no socket.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    call("recvfrom", || {
        rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
    })
}

/// Reads, and waits where the file does.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    call("read", || rustix::io::read(fd, &mut *buffer))
}
