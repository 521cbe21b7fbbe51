//! `vm_unmapped_area`: the first gap from either side.

use crate::contract::{Need, Range, Space};

use crate::vmas::{Id, LEFT, NIL, Nodes, RIGHT};

/// A search's request (`struct vm_unmapped_area_info`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    need: Need,
    /// Length of a gap in which an aligned answer lies wherever the gap starts.
    padded: u64,
    /// A gap must start here at the latest: enough remains below the limits' end.
    latest_start: u64,
    /// A gap must end here at the earliest: enough remains above the limits' start.
    earliest_end: u64,
}

impl Wanted {
    /// `None` where even an empty space is refused.
    #[inline]
    pub(super) fn new(space: Space, need: &Need) -> Option<Wanted> {
        let Range { start, end } = need.limits;
        let padded = need
            .size
            .checked_add(need.align_mask & !(space.page() - 1))?;
        let latest_start = end.checked_sub(padded)?;
        (start <= latest_start).then_some(Wanted {
            need: *need,
            padded,
            latest_start,
            // At most the limits' end.
            earliest_end: start + padded,
        })
    }

    #[inline]
    fn fits(&self, nodes: &Nodes, id: Id) -> bool {
        let gap = nodes.gap(id);
        gap.start <= self.latest_start
            && gap.end >= self.earliest_end
            && gap.length() >= self.padded
    }

    /// The lowest answer, and the VMA above it, maybe `NIL`; counts the nodes it visits. `pending` are
    /// the nodes whose numbers those above do not know.
    pub(super) fn lowest(
        &self,
        nodes: &Nodes,
        pending: &[Id],
        visited: &mut u64,
    ) -> Option<(u64, Id)> {
        let mut found = self.walk_up(nodes, visited);
        for &id in pending {
            *visited += 1;
            let first = found.is_none_or(|than| nodes[id].range.start < nodes[than].range.start);
            if first && self.fits(nodes, id) {
                found = Some(id);
            }
        }
        let above = found?;
        let start = self
            .need
            .first_from(nodes.gap(above).start.max(self.need.limits.start))?;
        Some((start, above))
    }

    /// The highest answer, as [`Wanted::lowest`] the lowest.
    pub(super) fn highest(
        &self,
        nodes: &Nodes,
        pending: &[Id],
        visited: &mut u64,
    ) -> Option<(u64, Id)> {
        let mut found = self.walk_down(nodes, visited);
        for &id in pending {
            *visited += 1;
            let first = found.is_none_or(|than| nodes[id].range.start > nodes[than].range.start);
            if first && self.fits(nodes, id) {
                found = Some(id);
            }
        }
        let above = found?;
        let end = nodes.gap(above).end.min(self.need.limits.end);
        let start = self.need.last_until(end.checked_sub(self.need.size)?)?;
        Some((start, above))
    }

    /// `unmapped_area`: the lowest gap that fits, going by the numbers, named by the VMA above it.
    fn walk_up(&self, nodes: &Nodes, visited: &mut u64) -> Option<Id> {
        // The gap above all VMAs is in no node's number, and comes last.
        let top = || (nodes.gap(NIL).start <= self.latest_start).then_some(NIL);
        let mut at = nodes.root;
        if nodes[at].subtree_gap < self.padded {
            return top();
        }
        loop {
            *visited += 1;
            let left = nodes[at].child[LEFT];
            // All VMAs of the left subtree end where this one starts, or lower.
            if self.worth(nodes, left) && nodes[at].range.start >= self.earliest_end {
                at = left;
                continue;
            }
            loop {
                if nodes.gap(at).start > self.latest_start {
                    return None;
                }
                if self.fits(nodes, at) {
                    return Some(at);
                }
                let right = nodes[at].child[RIGHT];
                if self.worth(nodes, right) {
                    at = right;
                    break;
                }
                at = match Wanted::climb(nodes, at, LEFT, visited) {
                    NIL => return top(),
                    above => above,
                };
            }
        }
    }

    /// `unmapped_area_topdown`: the highest gap that fits.
    fn walk_down(&self, nodes: &Nodes, visited: &mut u64) -> Option<Id> {
        if nodes.gap(NIL).start <= self.latest_start {
            return Some(NIL);
        }
        let mut at = nodes.root;
        if nodes[at].subtree_gap < self.padded {
            return None;
        }
        loop {
            *visited += 1;
            let right = nodes[at].child[RIGHT];
            // All gaps of the right subtree start where this VMA's gap starts, or higher.
            if self.worth(nodes, right) && nodes.gap(at).start <= self.latest_start {
                at = right;
                continue;
            }
            loop {
                if nodes[at].range.start < self.earliest_end {
                    return None;
                }
                if self.fits(nodes, at) {
                    return Some(at);
                }
                let left = nodes[at].child[LEFT];
                if self.worth(nodes, left) {
                    at = left;
                    break;
                }
                at = match Wanted::climb(nodes, at, RIGHT, visited) {
                    NIL => return None,
                    above => above,
                };
            }
        }
    }

    /// Whether `id`'s subtree may have a gap of the length; `NIL`'s has none.
    #[inline]
    fn worth(&self, nodes: &Nodes, id: Id) -> bool {
        nodes[id].subtree_gap >= self.padded
    }

    /// Up from `id`, to the first node reached from its `side`; `NIL` if that is none.
    fn climb(nodes: &Nodes, id: Id, side: usize, visited: &mut u64) -> Id {
        let mut at = id;
        loop {
            let parent = nodes[at].parent;
            if parent == NIL {
                return NIL;
            }
            *visited += 1;
            if nodes[parent].child[side] == at {
                return parent;
            }
            at = parent;
        }
    }
}
