//! A writer that gathers replies, for servers that answer one by one.
//!
//! A server that writes each reply by itself wakes its client with the first; the client takes the CPU, finds one reply,
//! and sleeps again. 32 replies then cost some 40 switches where 2 would do. Here replies gather until the server would
//! wait for the next request, and go out in one call:
//!
//! ```text
//!  requests  1 2 3 4 5 6 | (would wait)        read: 6 at once
//!  replies   1 2 3 4 5 6 | one sendmsg          push, push, ...; about_to_wait
//!                        ^ one wake of the client
//! ```
//!
//! # Contract
//!
//! Bytes come out in the order they were pushed, none twice, none lost, however the kernel cuts the writes. Nothing waits
//! longer than [`Options::longest`] *if the owner calls in time*: the writer has no thread and no timer, [`Writer::due`] is
//! what the owner's poll may wait at most. What waits takes [`Options::most_pending`] at most; a reply that does not fit is
//! refused whole.
//!
//! # How
//!
//! Sockets by sendmsg(2) with `MSG_NOSIGNAL`; anything else by writev(2) with `SIGPIPE` blocked for the call (four more
//! system calls, so that a library never ends its program). Replies are copied into blocks of [`BLOCK`] bytes, one `iovec`
//! each; [`Writer::push_owned`] takes a large one as it is.
//!
//! # Left out
//!
//! Descriptors beside the bytes (`SCM_RIGHTS`), datagrams (replies would merge), and compression.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::sys::{files, socket};

#[cfg(test)]
mod tests;

/// The examples of the fix's page, so that they stay true.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch-client.md")]
struct Page;

/// Bytes of the blocks that replies are copied into.
pub const BLOCK: usize = 16 << 10;

/// When replies go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// As soon as this many bytes wait. 0: each by itself.
    pub most_bytes: usize,
    /// As soon as one waits for so long and the writer is called.
    pub longest: Duration,
    /// Bytes that may wait where the reader does not read. More are refused.
    pub most_pending: usize,
}

impl Default for Options {
    /// 64 KiB, 1 ms, 16 MiB.
    fn default() -> Options {
        Options {
            most_bytes: 64 << 10,
            longest: Duration::from_millis(1),
            most_pending: 16 << 20,
        }
    }
}

/// State of the replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// None waits.
    Written,
    /// Some wait for more to come.
    Gathering,
    /// Some wait because the other side does not read: wait until the file can be written, then [`Writer::flush`].
    Blocked,
}

/// A writer that gathers what it is given. One direction of one connection; not for two threads at once.
#[derive(Debug)]
pub struct Writer<F: AsFd> {
    /// `None`: taken out by [`Writer::into_inner`].
    file: Option<F>,
    options: Options,
    /// Replies that wait; no block is empty.
    blocks: VecDeque<Block>,
    /// Bytes of the first block that are out.
    out: usize,
    /// Bytes that wait: the sum of all blocks less `out`.
    pending: usize,
    /// Since when the oldest waits.
    since: Option<Instant>,
    /// A block to be used again.
    spare: Vec<u8>,
    /// Whether the file is a socket; `None`: nothing that can be written to, as far as is known.
    socket: Option<bool>,
    /// Whether the other side is gone.
    gone: bool,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Whether replies are copied into it; else it is one that was given whole.
    ours: bool,
}

impl<F: AsFd> Writer<F> {
    /// A writer to `file`: a stream socket or a pipe, blocking or not. With another socket each write is
    /// [`Error::Invalid`], since replies would merge.
    pub fn new(file: F, options: Options) -> Writer<F> {
        // Asked now, so that a reply costs one call; what it is otherwise, its first write says.
        let socket = socket::is_stream(file.as_fd()).ok();
        Writer {
            file: Some(file),
            options,
            blocks: VecDeque::new(),
            out: 0,
            pending: 0,
            since: None,
            spare: Vec::new(),
            socket,
            gone: false,
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// How long the owner may wait before it calls [`Writer::flush`]; `None`: nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.since
            .map(|since| self.options.longest.saturating_sub(since.elapsed()))
    }

    /// The file, for the owner's poll.
    ///
    /// # Panics
    /// Never: the file is there as long as the writer is.
    pub fn get_ref(&self) -> &F {
        self.file
            .as_ref()
            .expect("only into_inner takes it, which ends the writer")
    }

    /// Takes a reply, whole or not at all, and writes where enough waits or for long enough.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond [`Options::most_pending`]; [`Error::PeerGone`] where nobody reads any more, and what waited is
    /// gone. Other errors of sendmsg(2) and writev(2) as [`Error::Call`]; the reply was taken then and still waits.
    pub fn push(&mut self, reply: &[u8]) -> Result<State> {
        self.admit(reply.len())?;
        let mut rest = reply;
        while !rest.is_empty() {
            let room = match self.blocks.back() {
                Some(last) if last.ours => BLOCK - last.bytes.len().min(BLOCK),
                _ => 0,
            };
            if room == 0 {
                let mut bytes = std::mem::take(&mut self.spare);
                bytes.reserve_exact(BLOCK);
                self.blocks.push_back(Block { bytes, ours: true });
                continue;
            }
            let (now, later) = rest.split_at(room.min(rest.len()));
            if let Some(last) = self.blocks.back_mut() {
                last.bytes.extend_from_slice(now);
            }
            rest = later;
        }
        self.taken(reply.len())
    }

    /// [`Writer::push`] of a reply that is not copied: for large ones.
    ///
    /// # Errors
    /// As [`Writer::push`].
    pub fn push_owned(&mut self, reply: Vec<u8>) -> Result<State> {
        self.admit(reply.len())?;
        let length = reply.len();
        if length > 0 {
            self.blocks.push_back(Block {
                bytes: reply,
                ours: false,
            });
        }
        self.taken(length)
    }

    /// Says that the owner would wait now for the next request: writes all that waits.
    ///
    /// # Errors
    /// As [`Writer::flush`].
    pub fn about_to_wait(&mut self) -> Result<State> {
        self.flush()
    }

    /// Writes what waits, in as few calls as the kernel takes it in. A file that blocks makes it wait.
    ///
    /// # Errors
    /// [`Error::PeerGone`] where nobody reads any more, and what waited is gone; else as sendmsg(2) and writev(2), and what
    /// was not written waits.
    pub fn flush(&mut self) -> Result<State> {
        if self.gone {
            return Err(Error::PeerGone);
        }
        while self.pending > 0 {
            match self.write_once() {
                Ok(count) => self.written(count),
                Err(error) if error.is(&[Errno::INTR]) => {}
                Err(error) if error.is(&[Errno::AGAIN]) => return Ok(State::Blocked),
                Err(error) if error.is(&[Errno::PIPE, Errno::CONNRESET]) => {
                    self.gone = true;
                    self.forget();
                    return Err(Error::PeerGone);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(State::Written)
    }

    /// Reads requests, and writes what waits first where it would have to wait for them (or where replies wait for long
    /// enough). With it a server needs no [`Writer::about_to_wait`]. 0: no more come.
    ///
    /// # Errors
    /// `EAGAIN` as [`Error::Call`] where a file that does not block has none, or where replies are stuck: wait until requests
    /// can be read, or, where [`Writer::pending`] is not 0, replies can be written. Else as [`Writer::flush`] and read(2);
    /// a signal is `EINTR`.
    pub fn read(&mut self, requests: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
        let requests = requests.as_fd();
        if self.due() == Some(Duration::ZERO) {
            self.flush()?;
        }
        if self.pending == 0 {
            return socket::read(requests, buffer).map_err(reset);
        }
        let there = match socket::read_now(requests, buffer) {
            Err(error) if error.is(&[Errno::NOTSOCK]) => {
                let [ready] = files::poll([(requests, PollFlags::IN)], false)?;
                // At its end a read says what there is to say.
                (ready.there || ready.gone).then(|| socket::read(requests, buffer))
            }
            Err(error) if error.is(&[Errno::AGAIN]) => None,
            other => Some(other),
        };
        // Where nothing is there this would wait now; at the end the last replies still go out.
        let ends = !buffer.is_empty() && matches!(there, Some(Ok(0)));
        if (ends || there.is_none()) && self.flush()? == State::Blocked {
            return Err(again());
        }
        let read = there.unwrap_or_else(|| socket::read(requests, buffer));
        read.map_err(reset)
    }

    /// Ends the writer; the file, and what still waited of each reply, in order.
    ///
    /// # Panics
    /// Never, as [`Writer::get_ref`].
    pub fn into_inner(mut self) -> (F, Vec<u8>) {
        let mut rest = Vec::with_capacity(self.pending);
        for block in &self.blocks {
            rest.extend_from_slice(&block.bytes);
        }
        rest.drain(..self.out);
        self.forget();
        let file = self.file.take();
        (file.expect("only this takes it"), rest)
    }

    /// Whether `length` bytes more may wait.
    fn admit(&mut self, length: usize) -> Result<()> {
        if self.gone {
            return Err(Error::PeerGone);
        }
        let limit = self.options.most_pending;
        match self.pending.checked_add(length) {
            Some(all) if all <= limit => Ok(()),
            _ => Err(Error::Limit {
                asked: length as u64,
                limit: limit as u64,
                which: "most_pending: the other side does not read",
            }),
        }
    }

    /// `length` bytes came to those that wait.
    fn taken(&mut self, length: usize) -> Result<State> {
        self.pending += length; // checked by `admit`
        if self.pending == 0 {
            return Ok(State::Written);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let full = self.pending >= self.options.most_bytes;
        if full || since.elapsed() >= self.options.longest {
            return self.flush();
        }
        Ok(State::Gathering)
    }

    fn write_once(&mut self) -> Result<usize> {
        let Some(file) = &self.file else {
            return Err(Error::PeerGone);
        };
        let mut slices = [IoSlice::new(&[]); 64];
        let mut used = 0;
        for (slice, block) in slices.iter_mut().zip(&self.blocks) {
            // The first block is never wholly out: `written` drops it then.
            let from = if used == 0 { self.out } else { 0 };
            *slice = IoSlice::new(&block.bytes[from..]);
            used += 1;
        }
        let slices = &slices[..used];
        let is_socket = match self.socket {
            Some(known) => known,
            None => socket::is_stream(file.as_fd())?,
        };
        self.socket = Some(is_socket);
        socket::write(file.as_fd(), is_socket, slices)
    }

    /// `count` bytes more are out.
    fn written(&mut self, count: usize) {
        let mut count = count.min(self.pending);
        self.pending -= count;
        while let Some(first) = self.blocks.front() {
            let left = first.bytes.len() - self.out;
            if count < left {
                self.out += count;
                break;
            }
            count -= left;
            self.out = 0;
            if let Some(mut block) = self.blocks.pop_front()
                && block.ours
                && self.spare.capacity() == 0
            {
                block.bytes.clear();
                self.spare = block.bytes;
            }
        }
        if self.pending == 0 {
            self.since = None;
        }
    }

    fn forget(&mut self) {
        self.blocks.clear();
        (self.out, self.pending, self.since) = (0, 0, None);
    }
}

fn again() -> Error {
    Error::Call {
        call: "read",
        errno: Errno::AGAIN,
    }
}

/// The other end was closed with something of ours unread.
fn reset(error: Error) -> Error {
    match error {
        Error::Call {
            errno: Errno::CONNRESET,
            ..
        } => Error::PeerGone,
        other => other,
    }
}

/// For servers that write to `impl Write`: `write` is [`Writer::push`], `flush` is [`Writer::flush`], `WouldBlock` where
/// the other side does not read. Replies beyond [`Options::most_pending`] are `WouldBlock`, too, once there is nothing else
/// to do than wait.
impl<F: AsFd> io::Write for Writer<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.push(bytes) {
            Ok(_) => Ok(bytes.len()),
            Err(Error::Limit { .. }) => match self.flush().and_then(|_| self.push(bytes)) {
                Ok(_) => Ok(bytes.len()),
                Err(Error::Limit { limit, .. }) if bytes.len() as u64 <= limit => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Err(error) => Err(io::Error::from_raw_os_error(error.errno())),
            },
            Err(error) => Err(io::Error::from_raw_os_error(error.errno())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match Writer::flush(self) {
            Ok(State::Blocked) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::from_raw_os_error(error.errno())),
        }
    }
}

impl<F: AsFd> Drop for Writer<F> {
    /// Writes what waits, once; what the other side does not take is lost, as in `BufWriter`.
    fn drop(&mut self) {
        if self.file.is_some() && self.pending > 0 {
            let _ = self.flush();
        }
    }
}
