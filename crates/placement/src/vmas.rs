//! The VMAs of an address space as Linux kept them up to 6.0: a red-black tree (`mm_rb`), a list by
//! address and the VMA that was looked up last (`mmap_cache`, from 3.15 on one of several).
//!
//! All of these kernels' policies share it, so that what their times differ by is what they do, not what
//! they do it on. [`Plain`] is the tree up to 3.7; the ways of [`crate::gap_tree`] keep the largest gap
//! below each node, too.
//!
//! The kernel walks down the tree a second time to link what it maps (`find_vma_prepare`): here the
//! search's answer names the VMA above it.

mod balance;
mod change;
mod check;
mod nodes;
mod propagation;

use crate::contract::{Range, Space, Statistics};

pub(crate) use nodes::{Id, LEFT, NIL, Nodes, RIGHT};
pub(crate) use propagation::{Plain, Propagation};

/// VMAs whose gaps are kept right by `P`.
#[derive(Debug, Clone)]
pub(crate) struct Vmas<P> {
    space: Space,
    pub(crate) nodes: Nodes,
    pub(crate) propagation: P,
    /// mm->mmap_cache: what the last lookup gave, or `NIL`.
    last: Id,
}

impl<P: Propagation> Vmas<P> {
    /// Nothing is mapped yet.
    pub(crate) fn new(space: Space) -> Vmas<P> {
        Vmas {
            space,
            nodes: Nodes::new(space, P::AUGMENTED),
            propagation: P::default(),
            last: NIL,
        }
    }

    pub(crate) fn space(&self) -> Space {
        self.space
    }

    /// `find_vma`: the lowest VMA whose end is above `address`, or `NIL`, and the nodes looked at. The VMA
    /// found last counts only if it contains `address`; the VMA found is remembered.
    #[inline]
    pub(crate) fn find(&mut self, address: u64) -> (Id, u64) {
        let Range { start, end } = self.nodes[self.last].range;
        // `NIL` contains nothing: it ends where the window starts.
        if start <= address && address < end {
            return (self.last, 1);
        }
        let (found, visited) = self.nodes.find(address);
        if found != NIL {
            self.last = found;
        }
        (found, visited)
    }

    /// Walks all VMAs.
    pub(crate) fn statistics(&self) -> Statistics {
        let (lowest, highest) = (self.nodes[NIL].next, self.nodes[NIL].prev);
        let span = Range::new(
            self.nodes[lowest].range.start,
            self.nodes[highest].range.end,
        );
        let mut statistics = Statistics {
            ranges: self.nodes.count as u64,
            span: (lowest != NIL).then_some(span),
            memory: (self.nodes.memory() + self.propagation.memory()) as u64,
            ..Statistics::default()
        };
        for id in self.nodes.list().chain([NIL]) {
            if id != NIL {
                statistics.used += self.nodes[id].range.length();
            }
            let gap = self.nodes.gap(id).length();
            statistics.holes += u64::from(gap > 0);
            statistics.largest_hole = statistics.largest_hole.max(gap);
        }
        statistics
    }
}
