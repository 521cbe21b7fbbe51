//! Unix sockets of whole packets (`SOCK_SEQPACKET`) and descriptors in them; streams that are written without `SIGPIPE`.
//!
//! No send and no receive of packets waits: waiting is done by [`readable`] and [`writable`], with a time.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use super::call;
use super::signals::NoPipeSignal;
use super::threads::timespec;
use crate::error::{Error, Result};

/// Most descriptors in one packet.
pub(crate) const MOST_FDS: usize = 16;

/// Two sockets, connected to one another, closed on exec.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    call("socketpair", || {
        rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
    })
}

fn socket() -> Result<OwnedFd> {
    call("socket", || {
        rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
    })
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    /// `sun_path`, less the byte 0 that ends it: Linux would take a path without that, others could not name it.
    const LONGEST: usize = 107;
    let wrong =
        Error::invalid("a path that is too long for a socket's (107 bytes), or has a byte 0");
    match path.as_os_str().len() {
        1..=LONGEST => SocketAddrUnix::new(path).map_err(|_| wrong),
        _ => Err(wrong),
    }
}

/// A socket that listens at `path`.
pub(crate) fn listen(path: &Path) -> Result<OwnedFd> {
    let address = address(path)?;
    let socket = socket()?;
    call("bind", || rustix::net::bind(&socket, &address))?;
    call("listen", || rustix::net::listen(&socket, 128))?;
    Ok(socket)
}

/// The next that connects; waits for it.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    loop {
        let accepted = call("accept4", || {
            rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
        });
        match accepted {
            // A signal; or one that connected and went before it was accepted.
            Err(error) if error.is(&[Errno::INTR, Errno::CONNABORTED]) => {}
            accepted => return accepted,
        }
    }
}

/// Connects a socket to the listener at `path`; waits at most `time` where too many wait to be accepted.
pub(crate) fn connect(path: &Path, time: Duration) -> Result<OwnedFd> {
    let address = address(path)?;
    let socket = socket()?;
    // 0 would mean for ever.
    let time = time.max(Duration::from_millis(1));
    call("setsockopt", || {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(time))
    })?;
    match call("connect", || rustix::net::connect(&socket, &address)) {
        Ok(()) => Ok(socket),
        Err(error) if error.is(&[Errno::AGAIN]) => Err(Error::TimedOut),
        Err(error) => Err(error),
    }
}

/// Whether it is a Unix socket of whole packets.
pub(crate) fn is_of_packets(socket: BorrowedFd<'_>) -> Result<bool> {
    let domain = call("getsockopt", || sockopt::socket_domain(socket))?;
    let kind = call("getsockopt", || sockopt::socket_type(socket))?;
    Ok(domain == AddressFamily::UNIX && kind == SocketType::SEQPACKET)
}

/// Result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It lies in the peer's queue.
    Yes,
    /// There is no room for it: the peer has not read what lies there.
    Full,
    /// The peer is gone.
    Gone,
}

/// Sends one packet with at most [`MOST_FDS`] descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::invalid("more descriptors than one packet takes"));
    }
    loop {
        let sent = call("sendmsg", || {
            rustix::net::sendmsg(
                socket,
                &[IoSlice::new(packet)],
                &mut control,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            )
        });
        return match sent {
            Ok(_) => Ok(Sent::Yes), // a packet goes whole or not at all
            Err(error) if error.is(&[Errno::INTR]) => continue,
            Err(error) if error.is(&[Errno::AGAIN]) => Ok(Sent::Full),
            Err(error) if error.is(&[Errno::PIPE, Errno::CONNRESET]) => Ok(Sent::Gone),
            Err(error) => Err(error),
        };
    }
}

/// Result of a receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A packet, by its length; longer than the buffer: cut.
    Packet {
        /// Bytes in the buffer.
        length: usize,
        /// It was longer.
        cut: bool,
        /// Descriptors that came with it, closed on exec.
        fds: Vec<OwnedFd>,
        /// Some descriptors could not be taken: too many, or no room in this process's table.
        fds_cut: bool,
    },
    /// Nothing lies there.
    Nothing,
    /// The peer closed its end or is dead, and nothing is left. An empty packet looks the same.
    Gone,
}

/// Takes one packet.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = call("recvmsg", || {
            rustix::net::recvmsg(
                socket,
                &mut [IoSliceMut::new(buffer)],
                &mut control,
                RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
            )
        });
        let message = match received {
            Ok(message) => message,
            // Reset: the peer went and left something unread. It comes once, and the packets before it follow.
            Err(error) if error.is(&[Errno::INTR, Errno::CONNRESET]) => continue,
            Err(error) if error.is(&[Errno::AGAIN]) => return Ok(Received::Nothing),
            Err(error) => return Err(error),
        };
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = part {
                fds.extend(more);
            }
        }
        return Ok(if message.bytes == 0 {
            Received::Gone
        } else {
            Received::Packet {
                length: message.bytes.min(buffer.len()),
                cut: message.flags.contains(ReturnFlags::TRUNC),
                fds_cut: message.flags.contains(ReturnFlags::CTRUNC),
                fds,
            }
        });
    }
}

/// Waits until a packet lies there or the peer is gone, at most `time`; `None`: for ever. A signal ends the wait too.
pub(crate) fn readable(socket: BorrowedFd<'_>, time: Option<Duration>) -> Result<()> {
    wait(socket, PollFlags::IN, time)
}

/// Waits until a packet can be sent or the peer is gone, likewise.
pub(crate) fn writable(socket: BorrowedFd<'_>, time: Option<Duration>) -> Result<()> {
    wait(socket, PollFlags::OUT, time)
}

fn wait(socket: BorrowedFd<'_>, what: PollFlags, time: Option<Duration>) -> Result<()> {
    let time = time.map(timespec);
    let mut fds = [PollFd::from_borrowed_fd(socket, what)];
    match call("ppoll", || poll(&mut fds, time.as_ref())) {
        Err(error) if !error.is(&[Errno::INTR]) => Err(error),
        _ => Ok(()),
    }
}

/// Whether it is a stream socket; false: it is none at all. On any other several replies would become one message.
pub(crate) fn is_stream(fd: BorrowedFd<'_>) -> Result<bool> {
    match call("getsockopt", || sockopt::socket_type(fd)) {
        Ok(SocketType::STREAM) => Ok(true),
        Ok(_) => Err(Error::invalid(
            "a socket of messages: replies that are gathered would merge",
        )),
        Err(error) if error.is(&[Errno::NOTSOCK]) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes to a stream socket, or to what is no socket, without `SIGPIPE`.
pub(crate) fn write(fd: BorrowedFd<'_>, is_socket: bool, slices: &[IoSlice<'_>]) -> Result<usize> {
    if is_socket {
        return call("sendmsg", || {
            let mut nothing = SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, slices, &mut nothing, SendFlags::NOSIGNAL)
        });
    }
    let _quiet = NoPipeSignal::new()?;
    call("writev", || rustix::io::writev(fd, slices))
}

/// Reads what is there from a stream socket, `EAGAIN` where nothing is; `ENOTSOCK` where it is no socket.
pub(crate) fn read_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    call("recvfrom", || {
        rustix::net::recv(fd, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count)
    })
}

/// Reads, and waits where the file does.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    call("read", || rustix::io::read(fd, &mut *buffer))
}
