//! Unix sockets of whole packets (`SOCK_SEQPACKET`), descriptors in them, and files that live in memory.
//!
//! Every send and every receive is one that does not wait: waiting is done by [`readable`] and [`writable`], with a time.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::SealFlags;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use super::call;
use super::futex::timespec;
use super::memory::{self, Span};
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

/// Kinds of files that a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file in memory, in base pages, of that many bytes, which nobody can cut.
    Sealed {
        /// Bytes.
        length: u64,
    },
    /// A file in memory that may be cut under those who have it mapped: they would die by SIGBUS.
    Unsealed,
    /// Something else: on a disk, on a file system of the peer's own, or of huge pages that may run out.
    Other,
}

/// Returns the kind of `file`. [`Kind::Sealed`] holds for ever.
pub(crate) fn kind(file: &OwnedFd) -> Result<Kind> {
    /// `TMPFS_MAGIC` of <linux/magic.h>; hugetlbfs has another.
    const TMPFS: u64 = 0x0102_1994;
    let seals = match call("fcntl", || rustix::fs::fcntl_get_seals(file)) {
        Ok(seals) => seals,
        // It cannot be sealed, so it is no file in memory. A descriptor with O_PATH: EBADF.
        Err(error) if error.is(&[Errno::INVAL, Errno::BADF]) => return Ok(Kind::Other),
        Err(error) => return Err(error),
    };
    let system = call("fstatfs", || rustix::fs::fstatfs(file))?;
    // Its type's width and sign differ between machines.
    #[allow(clippy::unnecessary_cast, trivial_numeric_casts)]
    if system.f_type as u64 != TMPFS {
        return Ok(Kind::Other);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Ok(Kind::Unsealed);
    }
    // Only now: unsealed, the length could change after it was read.
    let stat = call("fstat", || rustix::fs::fstat(file))?;
    Ok(Kind::Sealed {
        length: u64::try_from(stat.st_size).unwrap_or(0),
    })
}

/// Memory shared with processes that map the same file. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it owns its mapping, which every thread of the process sees at the same address.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps the first `length` bytes of `file`, to read and write. The caller knows that the file has them and keeps them.
    pub(crate) fn map(file: &OwnedFd, length: usize) -> Result<Shared> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let span = memory::map_file(file.as_fd(), 0, length, protection, MapFlags::empty())?;
        let start = NonNull::new(ptr::with_exposed_provenance_mut(span.start));
        let start = start.ok_or(Error::NoRoom { bytes: length })?;
        Ok(Shared { start, length })
    }

    /// Its first byte, at the start of a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let span = Span {
            start: self.start.addr().get(),
            bytes: self.length,
        };
        // SAFETY: the mapping is ours alone, and no reference into it outlives `self`. A whole mapping of its own is
        // unmapped without memory, so this does not fail.
        let _ = unsafe { memory::unmap(span) };
    }
}
