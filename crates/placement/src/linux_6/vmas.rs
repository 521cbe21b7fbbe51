//! VMAs as slots: filled, cleared, split and joined.

use crate::contract::{Merge, Range};

use super::tree::{Cursor, Tree, alike};

impl Tree {
    /// Makes a VMA of `range` in the empty slot at `at`; neighbours that touch it and may merge with
    /// it become one with it.
    pub(super) fn fill(&mut self, at: &mut Cursor, range: Range, merge: Merge) {
        let hole = self.range(at);
        let item = Some(merge);
        let merges = merge != Merge::Never;
        let below = merges && range.start == hole.start && self.below(at) == Some(item);
        let above = merges && range.end == hole.end && self.above(at) == Some(item);
        let mut new = [(hole.end, None); 3];
        let mut count = 0;
        if range.start > hole.start {
            new[0].0 = range.start;
            count = 1;
        }
        new[count] = (range.end, item);
        count += 1;
        if range.end < hole.end {
            count += 1;
        }
        self.vmas += 1;
        self.put(at, &mut new[..count], below, above);
    }

    /// Makes the VMA at `at` an empty slot, one with those that it touches.
    pub(super) fn clear(&mut self, at: &mut Cursor) {
        let below = self.below(at) == Some(None);
        let above = self.above(at) == Some(None);
        let end = self.range(at).end;
        self.vmas -= 1;
        self.put(at, &mut [(end, None)], below, above);
    }

    /// Puts `new` in the place of the slot at `at`. `below` and `above`: its ends are one with the
    /// neighbours there; in the same leaf that is one change.
    fn put(
        &mut self,
        at: &mut Cursor,
        new: &mut [(u64, Option<Merge>)],
        mut below: bool,
        mut above: bool,
    ) {
        let range = self.range(at);
        let frame = at.frames[self.height];
        let (mut slot, mut removed) = (frame.slot(), 1);
        if let (true, Some(&end), Some(last)) =
            (above, self.leaf(at).ends().get(slot + 1), new.last_mut())
        {
            self.vmas -= u64::from(last.1.is_some());
            last.0 = end;
            removed += 1;
            above = false;
        }
        if below && slot > 0 {
            self.vmas -= u64::from(new[0].1.is_some());
            slot -= 1;
            removed += 1;
            below = false;
        }
        self.change(at, self.height, (slot, removed), new);
        if below {
            self.join(range.start, at);
        }
        if above {
            self.join(range.end, at);
        }
    }

    /// Makes a boundary between slots at `address`, inside the window, if there is none.
    pub(super) fn split(&mut self, address: u64, at: &mut Cursor) {
        self.find(address, at);
        let (range, item) = (self.range(at), self.item(at));
        if range.start < address {
            let slot = at.frames[self.height].slot();
            let new = [(address, item), (range.end, item)];
            self.change(at, self.height, (slot, 1), &new);
            self.vmas += u64::from(item.is_some());
        }
    }

    /// Changes what the VMA at `at` merges with, and nothing else: its neighbours may be alike now.
    pub(super) fn set(&mut self, at: &Cursor, merge: Merge) {
        let frame = at.frames[self.height];
        self.leaves[frame.node].set_item(frame.slot(), Some(merge));
    }

    /// Joins the slots on both sides of `address`, a boundary between slots, if they are alike.
    pub(super) fn join_if_alike(&mut self, address: u64, at: &mut Cursor) {
        if address > self.window.start && address < self.window.end {
            self.find(address - 1, at);
            let item = self.item(at);
            if self.above(at).is_some_and(|above| alike(item, above)) {
                self.join(address, at);
            }
        }
    }

    /// Makes one slot of those on both sides of `address`, which are alike.
    fn join(&mut self, address: u64, at: &mut Cursor) {
        self.find(address, at);
        let end = self.range(at).end;
        self.find(address - 1, at);
        let frame = at.frames[self.height];
        let item = self.item(at);
        self.vmas -= u64::from(item.is_some());
        if frame.slot() + 1 < self.leaf(at).count() {
            return self.change(at, self.height, (frame.slot(), 2), &[(end, item)]);
        }
        // The slots are in two leaves. The lower leaf takes both: it and the nodes above it, up to the
        // one that both leaves are below, end higher.
        let leaf = &mut self.leaves[frame.node];
        leaf.set_end(frame.slot(), end);
        let gap = leaf.measure(frame.start);
        for above in at.frames[..self.height].iter().rev() {
            let inner = &mut self.inners[above.node];
            inner.set_end(above.slot(), end);
            if above.slot() + 1 < inner.count() {
                break;
            }
        }
        self.propagated += 1;
        self.propagate(at, self.height, gap);
        // The upper leaf starts at `end` now, and its first slot is empty of addresses. It is not its
        // last: a leaf that is not alone has more than one.
        self.find(end, at);
        self.change::<Option<Merge>, 16>(at, self.height, (0, 1), &[]);
    }
}
