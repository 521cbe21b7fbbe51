//! mmap, munmap and mprotect on the tree.

use crate::contract::{FreeError, Merge, Range};

use super::Vmas;
use super::nodes::{Id, NIL};
use super::propagation::Propagation;

impl<P: Propagation> Vmas<P> {
    /// `mmap_region`: maps `range` directly below `next`, merging where it may.
    pub(crate) fn map(&mut self, range: Range, merge: Merge, next: Id) {
        let prev = self.nodes[next].prev;
        let below = self.joins(prev, merge) && self.nodes[prev].range.end == range.start;
        let above = self.joins(next, merge) && self.nodes[next].range.start == range.end;
        match (below, above) {
            (true, true) => self.swallow(prev, 1),
            (true, false) => {
                self.nodes[prev].range.end = range.end;
                self.adjusted(prev, NIL, next);
            }
            (false, true) => {
                self.nodes[next].range.start = range.start;
                self.adjusted(next, NIL, next);
            }
            (false, false) => {
                self.link(range, merge, next);
            }
        }
    }

    /// Whether `id` is a VMA that would merge with a neighbour of `merge`.
    fn joins(&self, id: Id, merge: Merge) -> bool {
        id != NIL && merge != Merge::Never && self.nodes[id].merge == merge
    }

    /// `__vma_link`: a new VMA directly below `next`. The gap below `next` shrinks first, then the new
    /// one's appears.
    fn link(&mut self, range: Range, merge: Merge, next: Id) -> Id {
        let id = self.nodes.add(range, merge, next);
        self.propagate(next);
        self.nodes.hang(id);
        self.propagate(id);
        #[cfg(test)]
        self.check_as_it_goes();
        self.nodes.balance_added(id);
        id
    }

    /// `vma_rb_erase`: out of the tree, not out of the list.
    fn erase(&mut self, id: Id) {
        #[cfg(test)]
        self.check_as_it_goes();
        self.propagation.leaving(&mut self.nodes, id);
        let removed = self.nodes.unhang(id);
        if removed.lowest != NIL {
            let (lowest, moved) = (removed.lowest, removed.moved);
            self.propagation.lost(&mut self.nodes, lowest, moved);
        }
        self.nodes.balance_removed(&removed);
    }

    /// The gap below `id` changed; the one above the highest VMA is in no node.
    #[inline]
    fn propagate(&mut self, id: Id) {
        if id != NIL {
            self.propagation.changed(&mut self.nodes, id);
        }
    }

    /// The end of `vma_adjust`, which moved `vma`'s ends and inserted `insert`, if not `NIL`: `changed`
    /// is the VMA above a gap that changed otherwise than by that insertion, or `NIL`.
    fn adjusted(&mut self, vma: Id, insert: Id, changed: Id) {
        if !P::UNCONDITIONAL {
            self.propagate(changed);
            return;
        }
        self.propagate(vma);
        self.propagate(insert);
        let (above, above_insert) = (self.nodes[vma].next, self.nodes[insert].next);
        if above != insert {
            self.propagate(above);
        }
        if insert != NIL && above_insert != vma {
            self.propagate(above_insert);
        }
    }

    /// `vma_adjust` that lets `vma` grow over its `count` successors, which go.
    fn swallow(&mut self, vma: Id, count: usize) {
        for _ in 0..count {
            let gone = self.nodes[vma].next;
            let end = self.nodes[gone].range.end;
            self.erase(gone);
            self.nodes.drop_from_list(gone, gone);
            // As `__vma_unlink` does.
            if self.last == gone {
                self.last = vma;
            }
            self.nodes[vma].range.end = end;
            if P::UNCONDITIONAL {
                // Its __vma_unlink did so, too.
                self.propagate(self.nodes[vma].next);
            }
        }
        self.adjusted(vma, NIL, self.nodes[vma].next);
    }

    /// `split_vma` at `at`; the new VMA, which is the lower or the upper part.
    fn split(&mut self, vma: Id, at: u64, new_below: bool) -> Id {
        let Range { start, end } = self.nodes[vma].range;
        let merge = self.nodes[vma].merge;
        let new = if new_below {
            self.nodes[vma].range.start = at;
            self.link(Range::new(start, at), merge, vma)
        } else {
            self.nodes[vma].range.end = at;
            self.link(Range::new(at, end), merge, self.nodes[vma].next)
        };
        self.adjusted(vma, new, NIL);
        new
    }

    /// The lowest VMA of `range`, if all of it may be unmapped or changed.
    fn claim(&mut self, range: Range) -> Result<Id, FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let (first, _) = self.find(range.start);
        let vma = self.nodes[first];
        if first == NIL || vma.range.start >= range.end {
            return Err(FreeError::AlreadyFree);
        }
        if vma.range == range {
            return Ok(first);
        }
        // A part, or several: VMAs that may merge, without a gap between them.
        let (mut at, mut covered) = (first, range.start);
        while covered < range.end {
            let vma = &self.nodes[at];
            if at == NIL || vma.merge == Merge::Never || vma.range.start > covered {
                return Err(FreeError::NotAsGiven);
            }
            covered = vma.range.end;
            at = vma.next;
        }
        Ok(first)
    }

    /// `do_munmap`: unmaps `range`. Returns the VMA above the hole, maybe `NIL`.
    pub(crate) fn unmap(&mut self, range: Range) -> Result<Id, FreeError> {
        let mut first = self.claim(range)?;
        if self.nodes[first].range.start < range.start {
            first = self.split(first, range.start, false);
        }
        let mut last = first;
        while self.nodes[last].range.end < range.end {
            last = self.nodes[last].next;
        }
        if self.nodes[last].range.end > range.end {
            let lower = self.split(last, range.end, true);
            if last == first {
                first = lower;
            }
            last = lower;
        }
        let after = self.nodes[last].next;
        let mut at = first;
        while at != after {
            self.erase(at);
            at = self.nodes[at].next;
        }
        self.nodes.drop_from_list(first, last);
        self.propagate(after);
        self.last = NIL;
        Ok(after)
    }

    /// `mprotect_fixup` of `part`, which lies in `vma`: the VMA that then holds it.
    fn change(&mut self, vma: Id, part: Range, merge: Merge) -> Id {
        let whole = self.nodes[vma];
        if whole.merge == merge {
            return vma;
        }
        let (at_start, at_end) = (part.start == whole.range.start, part.end == whole.range.end);
        let (prev, next) = (whole.prev, whole.next);
        let touches = self.nodes[prev].range.end == part.start;
        let below = at_start && touches && self.joins(prev, merge);
        let touches = self.nodes[next].range.start == part.end;
        let above = at_end && touches && self.joins(next, merge);
        // The numbers are those of the comment above the kernel's vma_merge.
        match (below, above) {
            // 6
            (true, true) => {
                self.swallow(prev, 2);
                prev
            }
            // 7
            (true, false) if at_end => {
                self.swallow(prev, 1);
                prev
            }
            // 5: the boundary moves, and no gap.
            (true, false) => {
                self.nodes[prev].range.end = part.end;
                self.nodes[vma].range.start = part.end;
                self.adjusted(prev, NIL, NIL);
                prev
            }
            // 8
            (false, true) if at_start => {
                self.nodes[vma].merge = merge;
                self.swallow(vma, 1);
                vma
            }
            // 4: the boundary moves, and no gap.
            (false, true) => {
                self.nodes[vma].range.end = part.start;
                self.nodes[next].range.start = part.start;
                self.adjusted(vma, NIL, NIL);
                next
            }
            (false, false) => {
                if !at_start {
                    self.split(vma, part.start, true);
                }
                if !at_end {
                    self.split(vma, part.end, false);
                }
                self.nodes[vma].merge = merge;
                vma
            }
        }
    }

    /// `mprotect`: changes what `part` merges with.
    pub(crate) fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        let mut at = self.claim(part)?;
        // `claim` accepts a VMA that never merges only as a whole.
        if merge == Merge::Never || self.nodes[at].merge == Merge::Never {
            return Err(FreeError::NotAsGiven);
        }
        let mut start = part.start;
        loop {
            let end = part.end.min(self.nodes[at].range.end);
            let holder = self.change(at, Range::new(start, end), merge);
            start = self.nodes[holder].range.end.max(end);
            if start >= part.end {
                return Ok(());
            }
            at = self.nodes[holder].next;
        }
    }
}
