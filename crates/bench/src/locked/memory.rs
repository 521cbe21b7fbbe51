//! Memory by the set and by its peers, filled in the same way.

#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::result::Result as StdResult;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise, mlock, munlock};
use stopgap_arena::locked::Held;
use stopgap_events::memory::Protection;
use stopgap_events::units::Bytes;
use stopgap_kernel::holds::{Holds, Segment};
use stopgap_kernel::memory::{MapKind, MapRequest, Mapping, MemFile, Memory};
use stopgap_kernel::{Linux, Result};
use stopgap_probes::reclaim::Way;

/// Writes a byte to each page.
fn write(address: usize, length: usize) {
    for at in (address..address + length).step_by(rustix::param::page_size()) {
        // SAFETY: each caller's memory, mapped to be written and not referred to.
        unsafe { with_exposed_provenance_mut::<u8>(at).write_volatile(1) };
    }
}

/// Writes a byte to each page of a part.
///
/// # Panics
/// Where the part is none of it.
pub(super) fn fill(held: &Held, part: Range<usize>) {
    assert!(part.end <= held.len());
    write(held.as_ptr().addr() + part.start, part.len());
}

/// Has the kernel make a part resident, all of it in one call.
///
/// # Panics
/// Where the part is none of it.
pub(super) fn populate(held: &Held, part: Range<usize>) -> StdResult<(), Errno> {
    assert!(part.end <= held.len());
    let start = held.as_ptr().wrapping_add(part.start).cast();
    // SAFETY: within its memory, whose contents it leaves.
    unsafe { madvise(start, part.len(), Advice::LinuxPopulateWrite) }
}

/// Whether each page holds what [`fill`] wrote.
pub(super) fn is_filled(held: &Held) -> bool {
    let start = held.as_ptr().addr();
    let mut pages = (start..start + held.len()).step_by(rustix::param::page_size());
    // SAFETY: within its memory, which is mapped and not referred to.
    pages.all(|at| unsafe { with_exposed_provenance::<u8>(at).read_volatile() == 1 })
}

/// Has reclaim look at each page of it.
pub(super) fn page_out(held: &Held) -> StdResult<(), Errno> {
    // SAFETY: what it holds stays, in memory or in swap.
    unsafe { madvise(held.as_ptr().cast(), held.len(), Advice::LinuxPageOut) }
}

/// Memory without the set.
pub(super) enum Peer {
    File(Mapping, MemFile),
    Segment(Segment),
}

impl Peer {
    pub(super) fn memfd(length: Bytes) -> Result<Peer> {
        let file = Linux.mem_file(length)?;
        let mapping = Linux.map(&MapRequest {
            length,
            protection: Protection::Write,
            kind: MapKind::File {
                file: &file,
                offset: Bytes(0),
            },
            align: Bytes(0),
        })?;
        Ok(Peer::File(mapping, file))
    }

    pub(super) fn segment(length: Bytes) -> Result<Peer> {
        Linux.segment(length).map(Peer::Segment)
    }

    fn mapping(&self) -> &Mapping {
        match self {
            Peer::File(mapping, _) => mapping,
            Peer::Segment(segment) => segment.mapping(),
        }
    }

    /// Returns the address and length of a part.
    ///
    /// # Panics
    /// Where the part is none of it.
    fn part(&self, part: Range<usize>) -> (usize, usize) {
        let range = self.mapping().range();
        assert!(part.end as u64 <= range.length().0);
        // A mapping of this process.
        (range.start as usize + part.start, part.len())
    }

    pub(super) fn fill(&self, part: Range<usize>) {
        let (start, length) = self.part(part);
        write(start, length);
    }

    /// Locks a part by mlock(2).
    pub(super) fn mlock(&self, part: Range<usize>) -> StdResult<(), Errno> {
        let (start, length) = self.part(part);
        // SAFETY: locking changes neither what is mapped nor what it holds.
        unsafe { mlock(with_exposed_provenance_mut(start), length) }
    }

    /// Unlocks all of it by munlock(2).
    pub(super) fn munlock(&self) -> StdResult<(), Errno> {
        let (start, length) = self.part(0..self.mapping().range().length().0 as usize);
        // SAFETY: as for locking.
        unsafe { munlock(with_exposed_provenance_mut(start), length) }
    }

    pub(super) fn give_back(self) -> Result<()> {
        match self {
            Peer::File(mapping, file) => {
                let unmapped = Linux.unmap(mapping);
                drop(file);
                unmapped
            }
            Peer::Segment(segment) => Linux.unmap(segment.into_mapping()),
        }
    }

    /// Makes a filled memfd that is held until its process ends.
    pub(super) fn held(length: Bytes, way: Way) -> Result<Box<dyn std::any::Any>> {
        let peer: &'static Peer = Box::leak(Box::new(Peer::memfd(length)?));
        peer.fill(0..length.0 as usize);
        let held = match way {
            Way::Vmsplice => Linux.hold(peer.mapping(), Way::Vmsplice)?,
            _ => Linux.hold(peer.mapping(), Way::Mlock)?,
        };
        Ok(Box::new(held))
    }
}
