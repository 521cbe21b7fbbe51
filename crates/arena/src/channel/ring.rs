//! The ring and the handshake of sleeping and waking: everything that both processes do to the memory they share.
//!
//! ```text
//! 0     +--------------------------------------------------------------+
//!       | requests: tail (the client's) | head (the server's)          |  each on cache lines of its own,
//!       | replies:  tail (the server's) | head (the client's)          |  written by one side only
//!       | server:   sleep | cpu | woke                                 |
//!       | client:   sleep | cpu | woke                                 |
//! 4096  +--------------------------------------------------------------+
//!       | requests, `capacity` bytes                                   |
//!       +--------------------------------------------------------------+
//!       | replies, `capacity` bytes                                    |
//!       +--------------------------------------------------------------+
//!
//!                 head                        tail
//!                  v                           v
//!   ... free ...  | 5  0 | h e l l o . . . | 0 0 | ... free ...       head and tail count bytes, modulo 2^32;
//!                   ^  ^                     ^                        a place is that modulo the capacity
//!               length descriptors     an empty message
//! ```
//!
//! A message is a word of 8 bytes (length, number of descriptors) and its bytes, filled up to a multiple of 8; it goes
//! round the end of the ring, word by word. Invariant, for each way: `0 <= tail - head <= capacity`, and `8` divides both.
//!
//! # Sleeping and waking
//!
//! ```text
//! who waits                                   who made a message, or room
//!   sleep = what for, and how                   tail (or head) = new
//!   fence                                       fence
//!   look at tail (or head) again                look at sleep
//!   unchanged: sleep in the kernel,             not 0: put 0 there, and wake who slept
//!     while `sleep` still holds it
//! ```
//!
//! The two fences are in one order. If the waiter's is first, the other side sees `sleep`; if the other side's is first,
//! the waiter sees the message. So no wake-up is lost: `loom.rs` tries every order.
//!
//! # What is believed
//!
//! Every word may change at any time: the peer may be hostile. So each is read once, by an atomic load, into a variable
//! of our own; that is checked, and only the copy is used. Our own head and tail are never read back. What is wrong is
//! [`Error::Peer`]. Message bytes are copied out word by word by atomic loads: no reference to them ever exists.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::error::{Error, Result};

/// Bytes in front of the ways' own.
pub(super) const HEADER: usize = 4096;
/// Bytes of a word; each message begins with one.
pub(super) const WORD: u32 = 8;
/// Least and most bytes of a way.
pub(super) const LEAST: usize = 4096;
pub(super) const MOST: usize = 1 << 30;
/// Most descriptors with a message.
pub(super) const MOST_FDS: u32 = 16;

/// Our side: also the number of the [`Way`] that goes to us.
pub(super) const SERVER: usize = 0;
pub(super) const CLIENT: usize = 1;

/// `Side::sleep`: 0, or what is waited for and where. Bits.
pub(super) mod sleep {
    /// It is awake.
    pub(in super::super) const AWAKE: u32 = 0;
    /// It waits for a message.
    pub(in super::super) const MESSAGE: u32 = 1;
    /// It waits for room.
    pub(in super::super) const ROOM: u32 = 2;
    /// It sleeps on the word itself.
    pub(in super::super) const FUTEX: u32 = 4;
    /// It sleeps on the socket.
    pub(in super::super) const SOCKET: u32 = 8;
}

/// A value that shares no cache line, nor the neighbour that is fetched with it.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Line<T>(pub(super) T);

/// The indices of one way.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Way {
    pub(super) tail: Line<AtomicU32>,
    pub(super) head: Line<AtomicU32>,
}

/// The words that one side writes.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Side {
    /// [`sleep`]. Also written by the other side: to 0, when it wakes.
    pub(super) sleep: AtomicU32,
    /// The CPU where it was last seen, plus 1. Advice.
    pub(super) cpu: AtomicU32,
    /// When it last woke the other, on the monotonic clock. Advice.
    pub(super) woke: AtomicU64,
}

/// The start of the shared memory.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Header {
    pub(super) ways: [Way; 2],
    pub(super) sides: [Side; 2],
}

const _: () = assert!(cfg!(loom) || size_of::<Header>() <= HEADER);

/// Shared memory, however it comes about.
pub(super) trait Memory {
    fn header(&self) -> &Header;
    /// The words of the way that goes to `side`; always the same number of them, a power of two.
    fn words(&self, side: usize) -> &[AtomicU64];
}

/// The message that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) length: u32,
    pub(super) fds: u32,
}

impl Front {
    /// Bytes that it takes in the ring. Lengths are below 2^30.
    fn footprint(self) -> u32 {
        footprint(self.length)
    }
}

/// Bytes that a message takes in the ring.
pub(super) fn footprint(length: u32) -> u32 {
    WORD + length.next_multiple_of(WORD)
}

/// One side's view of the ring.
#[derive(Debug)]
pub(super) struct Ring<M> {
    memory: M,
    me: usize,
    /// Bytes of a way: a power of two, at most [`MOST`].
    capacity: u32,
    /// Up to where we wrote, and where the peer had read when we last looked.
    tail: u32,
    their_head: u32,
    /// Up to where we read, and where the peer had written when we last looked.
    head: u32,
    their_tail: u32,
    front: Option<Front>,
    /// What changed since we last looked whether the peer sleeps: bits of [`sleep`].
    owed: u32,
}

impl<M: Memory> Ring<M> {
    /// `memory` is all 0 at first, and nobody else is `me`.
    pub(super) fn new(memory: M, me: usize) -> Ring<M> {
        let words = memory.words(me).len();
        debug_assert!(words.is_power_of_two() && words * WORD as usize <= MOST);
        let capacity = words as u32 * WORD;
        Ring {
            memory,
            me,
            capacity,
            tail: 0,
            their_head: 0,
            head: 0,
            their_tail: 0,
            front: None,
            owed: 0,
        }
    }

    fn them(&self) -> usize {
        1 - self.me
    }

    /// The words that we write.
    pub(super) fn mine(&self) -> &Side {
        &self.memory.header().sides[self.me]
    }

    /// The words that the peer writes.
    pub(super) fn theirs(&self) -> &Side {
        &self.memory.header().sides[self.them()]
    }

    /// Bytes of a way.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Up to where we wrote, modulo 2^32.
    pub(super) fn tail(&self) -> u32 {
        self.tail
    }

    /// Up to where the peer had read when we last looked.
    pub(super) fn their_head(&self) -> u32 {
        self.their_head
    }

    /// Whether `bytes` more can be written.
    pub(super) fn room(&mut self, bytes: u32) -> Result<bool> {
        // Cannot wrap: their_head was checked when it was read.
        let free = |ring: &Self| ring.capacity - ring.tail.wrapping_sub(ring.their_head);
        if free(self) >= bytes {
            return Ok(true);
        }
        self.look_at_head()?;
        Ok(free(self) >= bytes)
    }

    /// Looks how far the peer has read.
    pub(super) fn look_at_head(&mut self) -> Result<()> {
        let head = self.memory.header().ways[self.them()]
            .head
            .0
            .load(Ordering::Acquire);
        let unread = self.tail.wrapping_sub(head);
        if unread > self.tail.wrapping_sub(self.their_head) || !head.is_multiple_of(WORD) {
            return Err(Error::peer(
                "it says it has read what was not written, or less than before",
            ));
        }
        self.their_head = head;
        Ok(())
    }

    /// Writes a message; false: there is no room now. Visible to the peer at once, but see [`Ring::sleeper`]. A message
    /// whose footprint is above the capacity never fits.
    pub(super) fn push(&mut self, message: &[u8], fds: u32) -> Result<bool> {
        let Ok(length) = u32::try_from(message.len()) else {
            return Ok(false);
        };
        if length > self.capacity || !self.room(footprint(length))? {
            return Ok(false);
        }
        let words = self.memory.words(self.them());
        let mask = words.len() - 1;
        let mut place = (self.tail / WORD) as usize;
        let mut put = |word: u64| {
            words[place & mask].store(word, Ordering::Relaxed);
            place += 1;
        };
        put(u64::from(length) | u64::from(fds) << 32);
        let (whole, rest) = message.as_chunks::<{ WORD as usize }>();
        for word in whole {
            put(u64::from_ne_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; WORD as usize];
            word[..rest.len()].copy_from_slice(rest);
            put(u64::from_ne_bytes(word));
        }
        self.tail = self.tail.wrapping_add(footprint(length));
        let tail = &self.memory.header().ways[self.them()].tail.0;
        tail.store(self.tail, Ordering::Release);
        self.owed |= sleep::MESSAGE;
        Ok(true)
    }

    /// Whether more than half of what we can write is unread, as far as we know.
    pub(super) fn half_full(&self) -> bool {
        self.tail.wrapping_sub(self.their_head) > self.capacity / 2
    }

    /// Whether at most half of what we can read is unread, as far as we know.
    pub(super) fn half_empty(&self) -> bool {
        self.their_tail.wrapping_sub(self.head) <= self.capacity / 2
    }

    /// The next message, if there is one.
    pub(super) fn front(&mut self) -> Result<Option<Front>> {
        if self.front.is_some() {
            return Ok(self.front);
        }
        if self.their_tail == self.head {
            let tail = self.memory.header().ways[self.me]
                .tail
                .0
                .load(Ordering::Acquire);
            let unread = tail.wrapping_sub(self.head);
            if unread > self.capacity || !tail.is_multiple_of(WORD) {
                return Err(Error::peer(
                    "it says it has written more than the ring holds",
                ));
            }
            self.their_tail = tail;
            if unread == 0 {
                return Ok(None);
            }
        }
        let unread = self.their_tail.wrapping_sub(self.head);
        let words = self.memory.words(self.me);
        let word = words[(self.head / WORD) as usize & (words.len() - 1)].load(Ordering::Relaxed);
        let (length, fds) = (word as u32, (word >> 32) as u32);
        if length > self.capacity || footprint(length) > unread || fds > MOST_FDS {
            return Err(Error::peer("a message is longer than what was written"));
        }
        self.front = Some(Front { length, fds });
        Ok(self.front)
    }

    /// Copies the next message out and gives its place back. `into` is as long as it.
    pub(super) fn pop(&mut self, into: &mut [u8]) {
        let Some(front) = self.front.take() else {
            return;
        };
        debug_assert_eq!(into.len(), front.length as usize);
        let words = self.memory.words(self.me);
        let mask = words.len() - 1;
        let first = (self.head / WORD) as usize + 1;
        for (at, bytes) in into.chunks_mut(WORD as usize).enumerate() {
            let word = words[(first + at) & mask]
                .load(Ordering::Relaxed)
                .to_ne_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        self.head = self.head.wrapping_add(front.footprint());
        // Release: the peer overwrites these words only after our loads.
        let head = &self.memory.header().ways[self.me].head.0;
        head.store(self.head, Ordering::Release);
        self.owed |= sleep::ROOM;
    }

    /// Announces that we are about to sleep. The caller then looks once more for its event before it sleeps.
    pub(super) fn falls_asleep(&self, how: u32) {
        self.mine().sleep.store(how, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that we are awake. Returns the word before: [`sleep::AWAKE`] where the peer has called us.
    pub(super) fn is_awake(&self) -> u32 {
        self.mine().sleep.swap(sleep::AWAKE, Ordering::AcqRel)
    }

    /// Returns how the peer sleeps, if it sleeps and its event has come since the last call. The caller
    /// must wake the peer: nobody else will.
    pub(super) fn sleeper(&mut self) -> Option<u32> {
        if self.owed == 0 {
            return None;
        }
        fence(Ordering::SeqCst);
        let owed = std::mem::take(&mut self.owed);
        if self.theirs().sleep.load(Ordering::Relaxed) & owed == 0 {
            return None;
        }
        // It may have woken meanwhile, and even sleep again for something else: then it is woken for nothing, looks
        // again, and says so again.
        match self.theirs().sleep.swap(sleep::AWAKE, Ordering::AcqRel) {
            sleep::AWAKE => None,
            how => Some(how),
        }
    }

    /// Whether something changed for the peer since it was last looked whether it sleeps.
    pub(super) fn owes(&self) -> bool {
        self.owed != 0
    }

    /// Whether the peer said that it sleeps.
    pub(super) fn peer_sleeps(&self) -> bool {
        self.theirs().sleep.load(Ordering::Relaxed) != sleep::AWAKE
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
