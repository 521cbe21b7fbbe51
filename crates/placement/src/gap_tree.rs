//! The gap-augmented red-black tree of Linux 3.8 to 6.0, and the two forms of it that were only mailed.
//!
//! VMAs are in a red-black tree by address and in a list. Each node also knows the largest gap *below*
//! a VMA anywhere in its subtree (`rb_subtree_gap`), so that a search for a gap skips subtrees that
//! have none. What differs is when that number is put right after a change:
//!
//! | policy | source | [`propagation`] |
//! |---|---|---|
//! | [`Linux3_8`] | Linux 3.8, Michel Lespinasse: `mm/mmap.c`, `vma_gap_update`, `vma_adjust`, `vm_unmapped_area` (commits d37371870ceb, db4fbfb9523c); the same up to 6.0 | climbs from the changed node and stops where nothing changes |
//! | [`VanRielV1`] | "\[PATCH -mm 1/7\] mm: track free size between VMAs in VMA rbtree", Rik van Riel, 18 June 2012; the kernel of mail 003's measurement | climbs to the root, always; `vma_adjust` from up to four VMAs, changed or not |
//! | [`WeinerLazy`] | proposed by Johannes Weiner in mail 003, never built | a bounded list of changed nodes, see [`lazy`] |
//!
//! Place, free and protect take O(log N) steps; a search may take more where large gaps lie outside the
//! limits or are clipped by them, because the tree knows gaps unclipped. Memory: 64 bytes a VMA.
//!
//! # The rule
//!
//! All three answer the same address, the one that [`crate::oracle::linux_3_8::rule`] states. How
//! requests become searches (x86-64's `arch_get_unmapped_area_topdown`):
//!
//! * The window is the address space from its lowest mappable address to `mmap_base`. A gap below the
//!   lowest VMA begins at the window's start, not at address 0: as no answer may lie lower, that
//!   changes no answer.
//! * The request's limits are `low_limit` and `high_limit`. [`Direction::Any`](crate::Direction) looks
//!   from the top, as mmap(2) does by default. A request for the bottom is searched from its own low
//!   limit: who wants the legacy layout makes a window that begins at TASK_UNMAPPED_BASE.
//! * The kernel follows a top-down search that failed by a bottom-up one, from TASK_UNMAPPED_BASE (a
//!   third into the address space) to its end, which is above `mmap_base`. Here the window's end is
//!   both. So the second search asks for gaps among those that the first has refused: it finds nothing,
//!   and visits nothing, as the root's number is too small. It is therefore in the oracle's rule and
//!   not in the tree. A request with limits of its own is one call of `vm_unmapped_area`, which has no
//!   second try.
//!
//! # What is counted
//!
//! [`Work::visited`](crate::Work): steps from node to node in a search, down and up, and listed nodes
//! compared; the descent that frees a range is no search. `propagated`: nodes whose number was
//! recomputed, each time, one per rotation among them; the same for all three. A flush of the lazy list
//! looks at each node once before, to mark it, which is not counted.
//!
//! # What is left out
//!
//! Stack guard gaps (2017), file offsets and
//! `anon_vma`s (VMAs merge if they touch and their [`Merge`](crate::Merge) is equal), the limit on the
//! number of VMAs. Van Riel's v1 searched with code of its own, and climbing with the rbtree of 3.5 it
//! recomputed each node's sibling, too; here it searches as 3.8 did and recomputes only the path,
//! which halves its work: what it is found to cost is a lower bound. Trees are limited to 2^32 - 1 VMAs.

pub mod lazy;
pub mod propagation;
mod search;
#[cfg(test)]
mod tests;

use alloc::string::String;

use crate::contract::{
    Direction, FreeError, Merge, Need, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};
use crate::vmas::{Id, Propagation, Vmas};

use search::Wanted;

/// VMAs in a tree whose gaps are kept right by `P`.
#[derive(Debug, Clone)]
pub struct GapTree<P> {
    vmas: Vmas<P>,
    /// Without what [`Vmas`] counts itself.
    work: Work,
}

/// Linux 3.8 to 6.0.
pub type Linux3_8 = GapTree<propagation::EarlyStop>;
/// The first form, of 18 June 2012, which mail 003 measured.
pub type VanRielV1 = GapTree<propagation::ToRoot>;
/// Mail 003's proposal.
pub type WeinerLazy = GapTree<lazy::Lazy>;

#[allow(private_bounds)] // the ways of propagating are ours alone
impl<P: Propagation> GapTree<P> {
    /// Nothing is mapped yet.
    #[must_use]
    pub fn new(space: Space) -> GapTree<P> {
        GapTree {
            vmas: Vmas::new(space),
            work: Work::default(),
        }
    }

    /// `get_unmapped_area`: where `need` goes, and the VMA above that, maybe `NIL`.
    fn choose(&mut self, need: &Need) -> Option<(u64, Id)> {
        if let Some(hinted) = need.hinted(self.vmas.space()) {
            let (above, visited) = self.vmas.find(hinted.start);
            self.work.visited += visited;
            // "Starts" at the window's end if it is `NIL`.
            if hinted.end <= self.vmas.nodes[above].range.start {
                return Some((hinted.start, above));
            }
        }
        let wanted = Wanted::new(self.vmas.space(), need)?;
        let pending = self.vmas.propagation.pending();
        let visited = &mut self.work.visited;
        let found = if need.direction == Direction::BottomUp {
            wanted.lowest(&self.vmas.nodes, pending, visited)
        } else {
            wanted.highest(&self.vmas.nodes, pending, visited)
        };
        if found.is_none() {
            self.vmas.propagation.failed(&mut self.vmas.nodes);
        }
        found
    }
}

impl<P: Propagation> Policy for GapTree<P> {
    fn space(&self) -> Space {
        self.vmas.space()
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.vmas.space().need(request)?;
        let (start, above) = self.choose(&need).ok_or(PlaceError::Exhausted)?;
        let range = Range::new(start, start + need.size);
        self.vmas.map(range, need.merge, above);
        self.work.placed += 1;
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.vmas.unmap(range).map(drop)
    }

    fn keeps_vmas(&self) -> bool {
        true
    }

    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        self.vmas.protect(part, merge)
    }

    fn statistics(&self) -> Statistics {
        self.vmas.statistics()
    }

    fn work(&self) -> Work {
        Work {
            propagated: self.vmas.nodes.recomputed,
            flushes: self.vmas.propagation.flushes(),
            ..self.work
        }
    }

    fn check(&self) -> Result<(), String> {
        self.vmas.check()
    }
}
