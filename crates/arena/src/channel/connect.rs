//! How two ends find each other: the server makes the memory and sends it, the client checks it.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use super::end::End;
use super::memory::{Mapping, is_capacity};
use super::ring::{CLIENT, LEAST, MOST, Ring, SERVER};
use super::{Client, Options, Server};
use crate::error::{Error, Result};
use crate::sys::socket::{self, Received, Sent};
use crate::sys::threads::now;

/// The packet that comes with the memory: these 8 bytes, then the version, then the bytes of a way.
const MAGIC: [u8; 8] = *b"stopgapc";
const VERSION: u32 = 1;

/// Where a server waits for its clients.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

/// Marks a [`Client`].
#[derive(Debug)]
pub struct Asks(PhantomData<()>);

/// Marks a [`Server`].
#[derive(Debug)]
pub struct Serves(PhantomData<()>);

/// Both ends of a new channel, for a fork(2) or two threads.
///
/// # Errors
/// [`Error::Limit`] for impossible options, or a ring beyond `RLIMIT_FSIZE`; as socketpair(2), memfd_create(2), mmap(2).
pub fn pair(options: &Options) -> Result<(Server, Client)> {
    let (server, client) = socket::pair()?;
    let server = Server::over(server, options)?;
    let client = Client::over(client, options)?;
    Ok((server, client))
}

impl Listener {
    /// The next client's channel; waits for it, without a time limit: poll [`Listener::fd`] first where one is needed.
    /// A client that goes at once is an end whose first wait says [`Error::PeerGone`].
    ///
    /// # Errors
    /// As [`Server::over`] and accept4(2).
    pub fn accept(&self, options: &Options) -> Result<Server> {
        let socket = socket::accept(self.socket.as_fd())?;
        Server::over(socket, options)
    }

    /// The listening socket, to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Server {
    /// Listens at `path`, a file that must not exist yet. Nobody removes it: a server that serves again at the same path does
    /// so first. The permissions of the folder decide who may connect.
    ///
    /// # Errors
    /// As bind(2): `EADDRINUSE` where it exists; [`Error::Invalid`] for a path above 107 bytes.
    pub fn bind(path: impl AsRef<Path>) -> Result<Listener> {
        let socket = socket::listen(path.as_ref())?;
        Ok(Listener { socket })
    }

    /// The server's end over a connected Unix socket of type `SOCK_SEQPACKET` that nothing was sent over: inherited,
    /// from socketpair(2) or accept(2). Makes the ring, and sends it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another socket, [`Error::Limit`] for a ring beyond 1 GiB or `RLIMIT_FSIZE`;
    /// [`Error::PeerGone`]; as memfd_create(2), mmap(2).
    pub fn over(socket: OwnedFd, options: &Options) -> Result<Server> {
        let capacity = capacity(options)?;
        of_packets(&socket)?;
        let (mapping, file) = Mapping::create(capacity)?;
        let packet = [
            &MAGIC[..],
            &VERSION.to_ne_bytes(),
            &(capacity as u32).to_ne_bytes(),
        ]
        .concat();
        match socket::send(socket.as_fd(), &packet, &[file.as_fd()])? {
            Sent::Yes => Ok(End::new(Ring::new(mapping, SERVER), socket, options)),
            Sent::Gone => Err(Error::PeerGone),
            Sent::Full => Err(Error::invalid("a socket that was used before")),
        }
    }

    /// Answers every request by `answer`, which finds the reply empty, until the client goes. While requests lie in the
    /// ring the replies gather; the client is woken once for all of them.
    ///
    /// # Errors
    /// As [`End::recv`] and [`End::send`], but not [`Error::PeerGone`].
    pub fn serve(&mut self, mut answer: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<()> {
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        loop {
            let result = self.recv(&mut request, None).and_then(|()| {
                reply.clear();
                answer(&request, &mut reply);
                self.send(&reply, None)
            });
            match result {
                Ok(()) => {}
                Err(Error::PeerGone) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Client {
    /// Connects to the server that listens at `path`; waits for it at most [`Options::connect`].
    ///
    /// # Errors
    /// As connect(2): `ENOENT` where nothing is there, `ECONNREFUSED` where nobody listens any more; [`Error::TimedOut`];
    /// [`Error::Peer`] where what is there is no server of this version, or what it sends is no memory that is safe to
    /// map.
    pub fn connect(path: impl AsRef<Path>, options: &Options) -> Result<Client> {
        let began = now();
        let socket = socket::connect(path.as_ref(), options.connect)?;
        let spent = Duration::from_nanos(now() - began);
        greet(socket, options, options.connect.saturating_sub(spent))
    }

    /// The client's end over a connected Unix socket of type `SOCK_SEQPACKET`; its other end is a server's.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another socket; otherwise as [`Client::connect`].
    pub fn over(socket: OwnedFd, options: &Options) -> Result<Client> {
        of_packets(&socket)?;
        greet(socket, options, options.connect)
    }

    /// Sends a request and waits for a message, in place of what `reply` held: its reply, where none is outstanding.
    /// `timeout` holds for each of the two.
    ///
    /// # Errors
    /// As [`End::send`] and [`End::recv`]. After [`Error::TimedOut`] the reply may still come: it would be taken for
    /// the next request's, so receive it first, or give the channel up.
    pub fn call(
        &mut self,
        request: &[u8],
        reply: &mut Vec<u8>,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.send(request, timeout)?;
        self.recv(reply, timeout)
    }
}

/// Takes the memory that the server sends.
fn greet(socket: OwnedFd, options: &Options, time: Duration) -> Result<Client> {
    let wrong = |what| Err(Error::Peer { what });
    let began = now();
    // The version and the length follow the magic bytes.
    let mut packet = [0; 16];
    let (length, cut, mut fds, fds_cut) = loop {
        match socket::receive(socket.as_fd(), &mut packet)? {
            Received::Packet {
                length,
                cut,
                fds,
                fds_cut,
            } => break (length, cut, fds, fds_cut),
            Received::Gone => return Err(Error::PeerGone),
            Received::Nothing => {}
        }
        let left = time.saturating_sub(Duration::from_nanos(now() - began));
        if left.is_zero() {
            return Err(Error::TimedOut);
        }
        socket::readable(socket.as_fd(), Some(left))?;
    };
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| packet[at + byte]));
    if length != packet.len() || cut || !packet.starts_with(&MAGIC) {
        return wrong("it is no server of a channel");
    }
    if word(8) != VERSION {
        return wrong("it speaks another version of the channel");
    }
    let (Some(file), true) = (fds.pop(), fds.is_empty()) else {
        return match fds_cut {
            true => Err(Error::Call {
                call: "recvmsg",
                errno: rustix::io::Errno::MFILE,
            }),
            false => wrong("not one file came with the greeting"),
        };
    };
    let mapping = Mapping::of_peer(&file, word(12) as usize)?;
    Ok(End::new(Ring::new(mapping, CLIENT), socket, options))
}

fn capacity(options: &Options) -> Result<usize> {
    let capacity = options.ring.max(LEAST).checked_next_power_of_two();
    let possible = capacity.filter(|&capacity| is_capacity(capacity));
    possible.ok_or(Error::Limit {
        asked: options.ring as u64,
        limit: MOST as u64,
        which: "a ring",
    })
}

fn of_packets(socket: &OwnedFd) -> Result<()> {
    match socket::is_of_packets(socket.as_fd())? {
        true => Ok(()),
        false => Err(Error::invalid("not a Unix socket of type SOCK_SEQPACKET")),
    }
}
