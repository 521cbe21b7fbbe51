//! Writing several buffers at once, without `SIGPIPE`, and reading what is there.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketType, sockopt};

use super::call;
use super::signals::NoPipeSignal;
use crate::error::{Error, Result};

/// Whether it is a stream socket; false: it is none at all. On any other several replies would become one message.
pub(crate) fn is_stream_socket(fd: BorrowedFd<'_>) -> Result<bool> {
    match call("getsockopt", || sockopt::socket_type(fd)) {
        Ok(SocketType::STREAM) => Ok(true),
        Ok(_) => Err(Error::invalid(
            "a socket of messages: replies that are gathered would merge",
        )),
        Err(error) if error.is(&[Errno::NOTSOCK]) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends to a socket.
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
