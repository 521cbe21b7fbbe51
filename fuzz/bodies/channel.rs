//! What must hold of a channel whose peer is hostile. Shared by the fuzz target and by
//! `crates/arena/tests/channel_bytes.rs`, which runs it on random bytes for a second.
//!
//! The peer is no end of the library's: it maps the ring by itself, and writes into it and sends over the socket whatever
//! the bytes say; often nearly what a peer would. The address sanitizer sees reads outside of what is ours; outside of
//! the ring lie pages that cannot be read.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use stopgap_arena::channel::{Client, Options, Server};
use stopgap_arena::{Error, Result};

const CAPACITY: usize = 4096;
const HEADER: usize = 4096;
const LENGTH: usize = HEADER + 2 * CAPACITY;

/// Words of the header that mean something: four indices and two sides, 128 bytes each.
const LINES: usize = 6;

/// Where what lies in the header, in bytes.
const fn tail(way: usize) -> usize {
    way * 256
}
const fn head(way: usize) -> usize {
    way * 256 + 128
}

/// The ring as the hostile peer has it mapped.
pub(crate) struct Hostile {
    start: NonNull<u8>,
    pub(crate) socket: Option<OwnedFd>,
    /// Which of the two the victim is: also the way that goes to it.
    victim: usize,
}

// SAFETY: all access to the mapping is by atomics.
unsafe impl Send for Hostile {}
// SAFETY: likewise.
unsafe impl Sync for Hostile {}

impl Drop for Hostile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), LENGTH) }.unwrap();
    }
}

fn map(file: &OwnedFd) -> NonNull<u8> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is asked for.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            LENGTH,
            protection,
            MapFlags::SHARED,
            file,
            0,
        )
    };
    NonNull::new(start.unwrap().cast()).unwrap()
}

impl Hostile {
    /// A word of the memory, by its offset in bytes.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        let offset = offset % LENGTH / 4 * 4;
        // SAFETY: within the mapping, which lives as long as `self`, and aligned.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn add(&self, offset: usize, value: u32) {
        self.word(offset).fetch_add(value, Ordering::SeqCst);
    }

    /// Offset of the word that is at `index` of the way to the victim.
    fn place(&self, index: u32) -> usize {
        HEADER + self.victim * CAPACITY + index as usize % CAPACITY
    }

    /// A message as a peer would write it, but for `length` and `fds`.
    fn message(&self, length: u32, fds: u32, claimed: u32) {
        let at = self.word(tail(self.victim)).load(Ordering::SeqCst);
        self.word(self.place(at)).store(claimed, Ordering::SeqCst);
        self.word(self.place(at.wrapping_add(4)))
            .store(fds, Ordering::SeqCst);
        let footprint = 8 + length.next_multiple_of(8);
        self.add(tail(self.victim), footprint);
    }

    fn send(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let Some(socket) = &self.socket else { return };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Full, or too many descriptors on their way: then not.
        let _ = rustix::net::sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags);
    }

    /// Reads away what the victim sent.
    fn drain(&self) {
        let Some(socket) = &self.socket else { return };
        while receive(socket).is_some_and(|(length, _)| length > 0) {}
    }
}

fn receive(socket: &OwnedFd) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 64];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let buffers = &mut [IoSliceMut::new(&mut bytes)];
    let message = rustix::net::recvmsg(socket, buffers, &mut control, flags).ok()?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = part {
            fds.extend(more);
        }
    }
    Some((message.bytes, fds))
}

fn sockets() -> (OwnedFd, OwnedFd) {
    let kind = SocketType::SEQPACKET;
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn options() -> Options {
    Options {
        ring: CAPACITY,
        spin: Duration::from_micros(20),
        idle: Duration::from_micros(100),
        ..Options::default()
    }
}

/// A server whose client is hostile.
pub(crate) fn server() -> (Server, Hostile) {
    let (theirs, ours) = sockets();
    let server = Server::over(ours, &options()).unwrap();
    let (_, fds) = receive(&theirs).unwrap();
    let hostile = Hostile {
        start: map(&fds[0]),
        socket: Some(theirs),
        victim: 0,
    };
    (server, hostile)
}

/// A client whose server is hostile.
pub(crate) fn client() -> (Client, Hostile) {
    let (theirs, ours) = sockets();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&file, LENGTH as u64).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let hostile = Hostile {
        start: map(&file),
        socket: Some(theirs),
        victim: 1,
    };
    let capacity = CAPACITY as u32;
    let greeting = [
        &b"stopgapc"[..],
        &1_u32.to_ne_bytes(),
        &capacity.to_ne_bytes(),
    ]
    .concat();
    hostile.send(&greeting, &[file.as_fd()]);
    (Client::over(ours, &options()).unwrap(), hostile)
}

/// The victim, whichever it is.
trait Victim {
    fn try_send(&mut self, message: &[u8]) -> Result<bool>;
    fn send_fds(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()>;
    fn try_recv(&mut self, into: &mut Vec<u8>) -> Result<bool>;
    fn recv(&mut self, into: &mut Vec<u8>, time: Duration) -> Result<()>;
    fn recv_into(&mut self, into: &mut [u8]) -> Result<usize>;
    fn next_length(&mut self) -> Result<Option<usize>>;
    fn arm(&mut self) -> Result<bool>;
    fn flush(&mut self) -> Result<()>;
    fn check_peer(&mut self) -> Result<()>;
    fn take_fds(&mut self) -> Vec<OwnedFd>;
}

macro_rules! victim {
    ($($end:ty),*) => {$(
        impl Victim for $end {
            fn try_send(&mut self, message: &[u8]) -> Result<bool> {
                self.try_send(message)
            }
            fn send_fds(&mut self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
                self.send_fds(message, fds, Some(Duration::ZERO))
            }
            fn try_recv(&mut self, into: &mut Vec<u8>) -> Result<bool> {
                self.try_recv(into)
            }
            fn recv(&mut self, into: &mut Vec<u8>, time: Duration) -> Result<()> {
                self.recv(into, Some(time))
            }
            fn recv_into(&mut self, into: &mut [u8]) -> Result<usize> {
                self.recv_into(into, Some(Duration::ZERO))
            }
            fn next_length(&mut self) -> Result<Option<usize>> {
                self.next_length()
            }
            fn arm(&mut self) -> Result<bool> {
                self.arm()
            }
            fn flush(&mut self) -> Result<()> {
                self.flush()
            }
            fn check_peer(&mut self) -> Result<()> {
                self.check_peer()
            }
            fn take_fds(&mut self) -> Vec<OwnedFd> {
                self.take_fds()
            }
        }
    )*};
}
victim!(Server, Client);

/// What may come back, whatever the peer did; and that a dead end stays dead.
#[derive(Default)]
struct Judge {
    dead: Option<Error>,
    good: usize,
}

impl Judge {
    fn result<T>(&mut self, result: Result<T>) -> Option<T> {
        if let Some(dead) = self.dead {
            assert_eq!(result.as_ref().err(), Some(&dead), "dead, and alive again");
        }
        match result {
            Ok(value) => {
                self.good += 1;
                Some(value)
            }
            Err(error @ Error::Peer { .. }) => {
                self.dead = Some(error);
                None
            }
            Err(Error::PeerGone | Error::TimedOut | Error::Limit { .. }) => None,
            // Descriptors on their way are counted against the sender, all over the system.
            Err(Error::Call {
                call: "sendmsg", ..
            }) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Bytes of one step: what, where, and a value.
const STEP: usize = 6;

/// The first byte says who the victim is, the rest are steps of it and of its peer. Gives back how many calls of the
/// victim's succeeded.
pub(crate) fn run(bytes: &[u8]) -> usize {
    match bytes.split_first() {
        None => 0,
        Some((first, steps)) if first & 1 == 0 => {
            let (mut server, hostile) = server();
            play(&mut server, hostile, steps)
        }
        Some((_, steps)) => {
            let (mut client, hostile) = client();
            play(&mut client, hostile, steps)
        }
    }
}

fn play(victim: &mut impl Victim, mut hostile: Hostile, steps: &[u8]) -> usize {
    let mut judge = Judge::default();
    let mut got = Vec::new();
    let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for step in steps.chunks_exact(STEP) {
        let value = u32::from_le_bytes([step[2], step[3], step[4], step[5]]);
        let small = value % 256;
        match step[0] % 24 {
            // The peer as it should be, or nearly.
            0..=3 => hostile.message(small, 0, small),
            4 => hostile.message(small, 1, small),
            5 => {
                let count = 1 + step[1] % 16;
                hostile.send(&[b'f', count], &vec![fd.as_fd(); count.into()]);
                hostile.message(small, count.into(), small);
            }
            6 => hostile.add(head(1 - hostile.victim), 8 * (value % 64)),
            7 => {
                let read = hostile
                    .word(tail(1 - hostile.victim))
                    .load(Ordering::SeqCst);
                hostile
                    .word(head(1 - hostile.victim))
                    .store(read, Ordering::SeqCst);
                hostile.drain();
            }
            // And as it should not.
            8 => hostile.message(small, 0, value),
            9 => hostile.message(small, value, small),
            10 => hostile.add(tail(hostile.victim), value),
            11 => {
                let offset = usize::from(step[1]) * 4 % (LINES * 128);
                hostile.word(offset).store(value, Ordering::SeqCst);
            }
            12 => {
                let line = usize::from(step[1]) % LINES * 128;
                hostile
                    .word(line + 4 * (value as usize % 4))
                    .store(small % 16, Ordering::SeqCst);
            }
            13 => hostile
                .word(value as usize)
                .store(value.rotate_left(step[1].into()), Ordering::SeqCst),
            14 => hostile.send(b"w", &[]),
            15 => {
                let packet = &step[1..1 + usize::from(step[1]) % 5];
                hostile.send(packet, &vec![fd.as_fd(); usize::from(step[2]) % 20]);
            }
            16 if value.is_multiple_of(16) => hostile.socket = None,
            // The victim.
            17 => drop(judge.result(victim.try_send(&vec![7; value as usize % 300]))),
            18 => {
                let fds = vec![fd.as_fd(); usize::from(step[1]) % 17];
                judge.result(victim.send_fds(&vec![7; small as usize], &fds));
            }
            19 => {
                let mut buffer = vec![0; value as usize % 300];
                if let Some(length) = judge.result(victim.recv_into(&mut buffer)) {
                    assert!(length <= buffer.len());
                }
            }
            20 => {
                judge.result(victim.arm());
            }
            21 => {
                judge.result(victim.flush());
                judge.result(victim.check_peer());
                if let Some(Some(length)) = judge.result(victim.next_length()) {
                    assert!(length <= CAPACITY - 8, "{length}");
                }
            }
            22 => {
                let time = Duration::from_micros(u64::from(step[1]));
                judge.result(victim.recv(&mut got, time));
            }
            _ => {
                judge.result(victim.try_recv(&mut got));
            }
        }
        assert!(got.len() <= CAPACITY - 8, "{}", got.len());
        assert!(victim.take_fds().len() <= 16);
    }
    judge.good
}
