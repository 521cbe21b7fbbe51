//! The shared memory: made by the server, checked by the client.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::ring::{HEADER, Header, LEAST, MOST, Memory, sleep};
use super::sync::{AtomicU64, Ordering};
use crate::error::{Error, Result};
use crate::sys::files::{self, Kind};
use crate::sys::memory::{self, Span};
use crate::sys::threads;

/// A mapping of the ring.
#[derive(Debug)]
pub(super) struct Mapping {
    memory: memory::Mapping,
    /// Words of a way.
    words: usize,
}

/// Bytes of the file of a ring whose ways have `capacity` bytes.
fn length(capacity: usize) -> usize {
    HEADER + 2 * capacity // at most 2^31 + 4096
}

/// A capacity that a ring can have.
pub(super) fn is_capacity(capacity: usize) -> bool {
    capacity.is_power_of_two() && (LEAST..=MOST).contains(&capacity)
}

impl Mapping {
    /// New memory, and the file by which the peer maps it too: sealed, so that its length is its length for ever.
    pub(super) fn create(capacity: usize) -> Result<(Mapping, OwnedFd)> {
        debug_assert!(is_capacity(capacity));
        let file = files::memfd(
            c"stopgap-channel",
            length(capacity) as u64,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        Ok((Mapping::map(&file, capacity)?, file))
    }

    /// The memory of a file that the peer made. A file that is not sealed against shrinking, or is too short, would let
    /// the peer kill us by SIGBUS at any later time: it is refused before it is mapped.
    pub(super) fn of_peer(file: &OwnedFd, capacity: usize) -> Result<Mapping> {
        let wrong = |what| Err(Error::Peer { what });
        if !is_capacity(capacity) {
            return wrong("the ring that it made has an impossible length");
        }
        match files::kind(file)? {
            Kind::Other => wrong("the ring that it made is no file in memory"),
            Kind::Unsealed => wrong("the ring that it made is not sealed against shrinking"),
            Kind::Sealed { length: has } if has < length(capacity) as u64 => {
                wrong("the ring that it made is shorter than it says")
            }
            Kind::Sealed { .. } => Mapping::map(file, capacity),
        }
    }

    fn map(file: &OwnedFd, capacity: usize) -> Result<Mapping> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (bytes, flags) = (length(capacity), MapFlags::empty());
        Ok(Mapping {
            memory: memory::Mapping(memory::map_file(file.as_fd(), 0, bytes, both, flags)?),
            words: capacity / size_of::<AtomicU64>(),
        })
    }
}

impl Drop for Mapping {
    /// Who sleeps on a word in it looks again; it finds the socket closed, if this was the last of the other side's.
    fn drop(&mut self) {
        for side in &self.header().sides {
            if side.sleep.load(Ordering::Relaxed) & sleep::FUTEX != 0 {
                let _ = threads::wake_shared(&side.sleep);
            }
        }
    }
}

impl Memory for Mapping {
    #[inline]
    fn header(&self) -> &Header {
        let Span { start, bytes } = self.memory.0;
        debug_assert!(bytes >= HEADER);
        // SAFETY: the mapping begins at a page and has at least HEADER bytes, as long as `self` lives; the file cannot
        // shrink under it. A header is atomics alone: any bytes are one, and others may write them at any time.
        unsafe { &*std::ptr::with_exposed_provenance::<Header>(start) }
    }

    #[inline]
    fn words(&self, side: usize) -> &[AtomicU64] {
        let offset = HEADER + side.min(1) * self.words * size_of::<AtomicU64>();
        let Span { start, bytes } = self.memory.0;
        debug_assert!(offset + self.words * size_of::<AtomicU64>() <= bytes);
        // SAFETY: as above; the two ways follow the header, `words` each, which is what `length` says and was mapped.
        // HEADER and the ways' lengths are multiples of 8.
        unsafe {
            let start = std::ptr::with_exposed_provenance::<AtomicU64>(start + offset);
            std::slice::from_raw_parts(start, self.words)
        }
    }
}
