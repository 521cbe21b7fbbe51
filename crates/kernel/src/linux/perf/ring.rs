//! The ring that the kernel writes records to: the mapping of an event.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::attr::enable;
use crate::error::{Error, Result};

/// Where `data_head` and `data_tail` stand in `struct perf_event_mmap_page`.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// An event and the records of all that send theirs to it.
#[derive(Debug)]
pub(crate) struct Ring {
    fd: OwnedFd,
    /// The control page, then the data.
    start: NonNull<u8>,
    page: usize,
    /// Bytes of data, a power of two.
    size: usize,
    /// Records that were taken out last, to be read in one piece.
    taken: Vec<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread; the position that we write is written
// only through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `size` bytes of data, a power of two of at least a `page`, for `event`.
    pub(in crate::linux) fn map(
        event: OwnedFd,
        page: usize,
        size: usize,
    ) -> std::result::Result<Ring, Errno> {
        let start = map(&event, page + size)?;
        Ok(Ring {
            fd: event,
            start,
            page,
            size,
            taken: Vec::new(),
        })
    }

    /// There was no room for a ring with `size` bytes of data.
    pub(in crate::linux) fn no_room(page: usize, size: usize) -> Error {
        Error::unsupported(
            "records of perf",
            format!(
                "no {} bytes for their ring within kernel.perf_event_mlock_kb, which all of a \
                 user's processes share",
                page + size
            ),
        )
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn event(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn enable(&self, on: bool) -> Result<()> {
        enable(&self.fd, on)
            .map_err(|e| Error::call("ioctl", format!("perf event {}", self.fd.as_raw_fd()), e))
    }

    /// The records that have come, whole and in order; makes room.
    pub(crate) fn drain(&mut self) -> &[u8] {
        self.taken.clear();
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed); // only we write it
        let from = (tail % self.size as u64) as usize;
        let length = (head.wrapping_sub(tail) as usize).min(self.size);
        let before_end = length.min(self.size - from);
        for (at, length) in [(from, before_end), (0, length - before_end)] {
            // SAFETY: `at + length` is at most `size`, so the part lies in the mapping. The
            // kernel wrote it before it moved the head (acquired above) and does not write
            // there again before we move the tail.
            let part = unsafe {
                std::slice::from_raw_parts(self.start.as_ptr().add(self.page + at), length)
            };
            self.taken.extend_from_slice(part);
        }
        self.position(TAIL).store(head, Ordering::Release);
        &self.taken
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives; both positions are
        // 8-byte aligned 64-bit numbers that user and kernel access atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no reference into it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.page + self.size) };
    }
}

fn map(event: &OwnedFd, length: usize) -> std::result::Result<NonNull<u8>, Errno> {
    // SAFETY: the kernel chooses a free place, so no memory of ours is replaced.
    let start = unsafe {
        mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            event,
            0,
        )
    };
    NonNull::new(start?.cast::<u8>()).ok_or(Errno::NOMEM)
}
