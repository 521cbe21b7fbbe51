//! What Linux 2.6.13 to 3.7 share: a search that continues where the last one ended.
//!
//! * Source: `arch_get_unmapped_area()` and `arch_get_unmapped_area_topdown()` of
//!   arch/x86/kernel/sys_x86_64.c, `find_vma()`, `do_munmap()`, `arch_unmap_area()` and
//!   `arch_unmap_area_topdown()` of mm/mmap.c, read in 2.6.37 and 3.4 trees. [`crate::linux_2_6_35`] and
//!   [`crate::linux_3_4`] hold what differs: the top-down search, and one line of munmap(2).
//! * Lineage: Ingo Molnar's free_area_cache, which munmap moved, left small holes everywhere. In 2005
//!   Wolfgang Wander (commit 1363c3cd, 2.6.13) added cached_hole_size: a request that a hole passed over
//!   could hold begins at the base again. That restored first fit and its linear searches, which are
//!   what mail 000 reports. 3.8 replaced both by the gap tree.
//! * State: the VMAs with the one looked up last, free_area_cache, cached_hole_size.
//! * Cost: a search visits up to every VMA, each for a lookup of O(log N), because a scan's next probe
//!   never lies in the VMA that was looked up last. A free costs O(log N). Memory: 64 bytes a VMA.
//! * Here: addresses are counted from the window's start, so the kernel's page 0 is the window's first
//!   page. The window's end is TASK_SIZE and, top-down, mmap_base; TASK_UNMAPPED_BASE is a third of the
//!   window above its start, rounded up to a page. Bottom-up mmap_base is TASK_UNMAPPED_BASE, as
//!   arch_pick_mmap_layout() has it.
//! * So nothing lies between mmap_base and TASK_SIZE, which is where the kernel's top-down search finds
//!   memory when it falls back to the bottom-up one. Here the fallback finds nothing that the scan did
//!   not; it leaves its marks on the state, and visits what it visits.
//! * Left out: the random part of mmap_base and the gap for the stack above it; MAP_FIXED; MAP_32BIT
//!   and 32-bit tasks (a search with limits of its own, and the only bottom-up one on x86-64 that looks
//!   at cached_hole_size); colouring for AMD family 15h; limits, alignment and the other direction,
//!   which these searches do not have ([`Lack`]). A hint that leaves the window is no hint, where the
//!   kernel looks it up before it says so. There was no guard between neighbours yet.
//! * [`Work`]: `visited` counts calls of find_vma while searching and steps along the list, the step off
//!   its end among them; `descended` the nodes that those calls pass before the one that they give; `full_scans` counts searches that scanned from mmap_base, or bottom-up from
//!   TASK_UNMAPPED_BASE, once each. The single probe of 2.6.35 is no scan.

use core::marker::PhantomData;

use alloc::string::String;

use crate::contract::{
    Direction, FreeError, Lack, Merge, Need, PlaceError, Policy, Range, Request, Space, Statistics,
    Work,
};

mod mm;

#[cfg(test)]
pub(crate) mod drawn;
#[cfg(test)]
mod tests;

pub use mm::Mm;
pub(crate) use mm::Place;

/// Differences between the kernels of this era.
pub trait Version: Send + Sync + 'static {
    /// Whether munmap(2) in a bottom-up layout sets cached_hole_size to its largest value when it moves
    /// the cache.
    const UNMAP_FORGETS_HOLES: bool;

    /// The top-down search for `size` bytes, a hint having failed: the address, and the VMA above it.
    /// `None` where the kernel goes on to its bottom-up search.
    fn top_down(mm: &mut Mm, size: u64) -> Option<Place>;
}

/// The policy of [`Version`] `V`.
///
/// A search that is refused takes nothing, but moves free_area_cache and cached_hole_size, as it does in
/// the kernel.
#[derive(Debug, Clone)]
pub struct FreeAreaCache<V> {
    mm: Mm,
    version: PhantomData<V>,
}

impl<V: Version> FreeAreaCache<V> {
    /// An empty address space. [`Direction::BottomUp`] is the legacy layout; the others are top-down.
    #[must_use]
    pub fn new(space: Space, layout: Direction) -> FreeAreaCache<V> {
        FreeAreaCache {
            mm: Mm::new(space, layout),
            version: PhantomData,
        }
    }

    /// The state of its searches.
    #[must_use]
    pub fn mm(&self) -> &Mm {
        &self.mm
    }

    /// Returns the first part of `need` that these searches do not support.
    fn lack(&self, need: &Need) -> Option<Lack> {
        let space = self.space();
        if need.align_mask != space.page() - 1 {
            Some(Lack::Alignment)
        } else if need.limits != space.window() {
            Some(Lack::Limits)
        } else if need.direction != Direction::Any && need.direction != self.mm.layout() {
            Some(Lack::Direction)
        } else {
            None
        }
    }

    fn search(mm: &mut Mm, need: &Need) -> Option<Place> {
        if mm.layout() == Direction::BottomUp {
            return mm.bottom_up(need);
        }
        if let Some(place) = mm.hinted(need) {
            return Some(place);
        }
        if let Some(place) = V::top_down(mm, need.size) {
            return Some(place);
        }
        mm.fall_back(need)
    }
}

impl<V: Version> Policy for FreeAreaCache<V> {
    fn space(&self) -> Space {
        self.mm.vmas.space()
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space().need(request)?;
        if let Some(lack) = self.lack(&need) {
            return Err(PlaceError::Lacks(lack));
        }
        let found = self.mm.search(|mm| Self::search(mm, &need));
        let (start, above) = found.ok_or(PlaceError::Exhausted)?;
        let range = Range::new(start, start + need.size);
        self.mm.take(range, need.merge, above);
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        let above = self.mm.vmas.unmap(range)?;
        self.mm.unmapped(above, V::UNMAP_FORGETS_HOLES);
        Ok(())
    }

    fn keeps_vmas(&self) -> bool {
        true
    }

    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        self.mm.vmas.protect(part, merge)
    }

    fn statistics(&self) -> Statistics {
        self.mm.vmas.statistics()
    }

    fn work(&self) -> Work {
        self.mm.work
    }

    fn check(&self) -> Result<(), String> {
        self.mm.check()
    }
}
