//! Memory of a set: a segment or a part of a memfd, mapped, locked or not.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::sys::memory::{self, Span};
use crate::sys::{self, files, shm, signals};

/// By which way memory is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// A System V segment, flagged by `SHM_LOCK`.
    SysV,
    /// A memfd, locked by mlock.
    Memfd,
}

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) span: Span,
    pub(super) writable: bool,
    /// It was somebody's before, and may have pages already: locking makes all of it resident.
    pub(super) theirs: bool,
    kind: Kind,
    mapped: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    Segment { id: i32 },
    File { fd: OwnedFd, offset: u64 },
}

/// `length` in whole pages.
pub(super) fn whole_pages(length: usize) -> Result<usize> {
    if length == 0 {
        return Err(Error::invalid("a length of 0"));
    }
    length
        .checked_next_multiple_of(sys::page())
        .filter(|&length| isize::try_from(length).is_ok())
        .ok_or(Error::NoRoom {
            bytes: length,
            largest: None,
        })
}

impl Memory {
    /// A segment of `length` bytes, whole pages, that ends with its attachment.
    pub(super) fn segment(length: usize) -> Result<Memory> {
        // A handler that does not come back would leave the segment without an end.
        let _blocked = signals::Blocked::all()?;
        let id = shm::get(length)?;
        let attached = shm::attach(id);
        // Removed at once where nothing is attached.
        let removed = shm::remove(id).or_else(|_| shm::remove(id));
        let memory = Memory {
            span: Span::new(attached?, length),
            writable: true,
            theirs: false,
            kind: Kind::Segment { id },
            mapped: AtomicBool::new(true),
        };
        removed.map(|()| memory)
    }

    /// A memfd of `length` bytes, whole pages, whose size is sealed: nobody who gets it can make us fault.
    pub(super) fn memfd(length: usize) -> Result<Memory> {
        let seals = SealFlags::SHRINK | SealFlags::GROW;
        let fd = files::memfd(c"stopgap-locked", length as u64, seals)?;
        Memory::map(fd, 0, length, true, false)
    }

    /// `length` bytes, whole pages, from `offset` on of somebody's memfd.
    pub(super) fn file(fd: OwnedFd, offset: u64, length: usize) -> Result<Memory> {
        if !offset.is_multiple_of(sys::page() as u64) {
            return Err(Error::invalid("an offset that is not of whole pages"));
        }
        let there = files::size(fd.as_fd())?;
        let there = there
            .checked_next_multiple_of(sys::page() as u64)
            .unwrap_or(there);
        if offset
            .checked_add(length as u64)
            .is_none_or(|end| end > there)
        {
            return Err(Error::invalid(
                "a file that is shorter than what is to be locked of it",
            ));
        }
        let sealed = files::seals(fd.as_fd())?;
        let writable = !sealed.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        Memory::map(fd, offset, length, writable, true)
    }

    fn map(
        fd: OwnedFd,
        offset: u64,
        length: usize,
        writable: bool,
        theirs: bool,
    ) -> Result<Memory> {
        let map = |protection| {
            memory::map_file(fd.as_fd(), offset, length, protection, MapFlags::empty())
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (span, writable) = match map(if writable { both } else { ProtFlags::READ }) {
            // Opened read-only.
            Err(error) if writable && theirs && error.is(&[Errno::ACCESS, Errno::PERM]) => {
                (map(ProtFlags::READ)?, false)
            }
            mapped => (mapped?, writable),
        };
        Ok(Memory {
            span,
            writable,
            theirs,
            kind: Kind::File { fd, offset },
            mapped: AtomicBool::new(true),
        })
    }

    pub(super) fn way(&self) -> Way {
        match self.kind {
            Kind::Segment { .. } => Way::SysV,
            Kind::File { .. } => Way::Memfd,
        }
    }

    pub(super) fn file_behind(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.kind {
            Kind::Segment { .. } => None,
            Kind::File { fd, offset } => Some((fd.as_fd(), *offset)),
        }
    }

    /// Locks it: what comes later, and of somebody's memfd all of it now, which makes it resident.
    pub(super) fn lock(&self) -> Result<()> {
        match self.kind {
            Kind::Segment { id } => shm::lock(id),
            Kind::File { .. } => {
                memory::lock(self.span, !self.theirs).inspect_err(|_| {
                    // A part may be locked, or all but not all resident.
                    let _ = memory::unlock(self.span);
                })
            }
        }
    }

    /// Unlocks a segment. Parts of files are unlocked by their addresses, several in one call.
    pub(super) fn unlock(&self) -> Result<()> {
        match self.kind {
            Kind::Segment { id } => shm::unlock(id),
            Kind::File { .. } => memory::unlock(self.span),
        }
    }

    /// Whether [`Memory::empty`] can be done.
    pub(super) fn check_can_be_emptied(&self) -> Result<()> {
        let Kind::File { fd, .. } = &self.kind else {
            return Ok(());
        };
        let sealed = files::seals(fd.as_fd())?;
        if !self.writable || sealed.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(Error::invalid(
                "contents that cannot go: the memfd may not be written",
            ));
        }
        Ok(())
    }

    /// Gives its pages back. It reads as zero then, in every mapping.
    pub(super) fn empty(&self) -> Result<()> {
        match &self.kind {
            // SAFETY: the set hands out addresses alone, and its owner said that the contents may go.
            Kind::Segment { .. } => unsafe { memory::remove(self.span) },
            Kind::File { fd, offset } => files::punch(fd.as_fd(), *offset, self.span.bytes as u64),
        }
    }
}

impl Memory {
    /// Unmaps it, which gives a segment back, and a memfd but for its descriptors elsewhere. A second time does nothing.
    pub(super) fn unmap(&self) -> Result<()> {
        if !self.mapped.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: the set hands out nothing but addresses. By dropping `Held` the owner says that none is used any more.
        let gone = unsafe {
            match self.kind {
                Kind::Segment { .. } => shm::detach(self.span.start),
                Kind::File { .. } => memory::unmap(self.span),
            }
        };
        self.mapped.store(gone.is_err(), Ordering::Relaxed);
        gone
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Again where it failed: nobody would hear of an error.
        let _ = self.unmap().or_else(|_| self.unmap());
    }
}
