//! `linux-6.1`, `linux-6.7` and `linux-6.12`: first fit by address over a B-tree of ranges.
//!
//! Source: Linux 6.1 (3499a13168da and its series) `lib/maple_tree.c`, `mm/mmap.c`:
//! `vm_unmapped_area`, `unmapped_area`, `unmapped_area_topdown`, `mas_empty_area`,
//! `mas_empty_area_rev`, `mas_parent_gap`; for huge pages `mm/huge_memory.c`:
//! `__thp_get_unmapped_area`.
//!
//! **The tree** covers the whole window. Leaves have 16 slots, inner nodes 10. A slot of a leaf is a
//! VMA or an empty range; a slot of an inner node has the largest run of empty addresses below it,
//! and a node remembers which of its slots has the largest. After a change the leaf's new largest goes
//! to the slot above, and on from there only if that changes the largest of the node.
//!
//! **The search** is for Lp = length + alignment mask, so that it need not know where in a hole an
//! aligned start lies: a hole that takes the range only at the right alignment is refused. It finds
//! the lowest or the highest hole whose part inside the limits is at least Lp; the range is put at
//! that part's low end and aligned up, or at its high end and aligned down. [`Direction::Any`] is from
//! the top, mmap(2)'s default. A hint is taken where it is free.
//!
//! **Huge pages.** What is asked for without a hint and without alignment above a page is taken for
//! anonymous memory, for which the rule's file offset is 0 ([`Request::offset`] is the alignment's
//! alone). Where the length is at least that of a PMD (`linux-6.7`, efa7df3e3bb5) or a multiple of it
//! (`linux-6.12`, d4148aeab412), length + PMD is searched for, and the range starts at the first
//! multiple of PMD in what was found. Searching from the top that leaves a whole PMD unused above a
//! range whose length is a multiple, where what was found is aligned by itself; since 6.8 (Ryan Roberts,
//! "thp_get_unmapped_area must honour topdown preference"; so in `linux-6.12`, not in
//! `linux-6.7`) the range then starts a PMD higher. Where nothing is found, the plain search follows.
//! A PMD maps a page of page-table entries of 8 bytes: 2 MiB with pages of 4 KiB, 32 MiB with 16 KiB.
//!
//! Cost: O(log N) for a search, except where large gaps lie outside the limits: gaps of inner nodes
//! are not clipped, and the search comes back from each. O(log N) for a change; one that leaves its
//! leaf's largest gap alone touches one node. Nothing is allocated but nodes, which are used again.
//! Freeing or protecting a part of what merged costs that for each VMA in it. Space: 264 bytes a leaf,
//! with 6 to 16 slots; a hole takes a slot as a VMA does. What is mapped side by side fills 14.
//!
//! Left out, of the tree: RCU (nodes are changed in place, the kernel makes new ones), dense nodes,
//! spanning stores (a change that concerns two leaves is two changes here), bulk loading, and the care
//! not to split a node beside an empty slot. The search has no guard gaps. `linux-6.1` ignored them when
//! it was new (58c5d0d6d522 brought them back); without stacks that grow, and shadow stacks, there are
//! none, so that it makes no difference here. The fallback from the top-down search to one from the
//! bottom, above TASK_UNMAPPED_BASE: it asks for the same length in a part of the same window, because
//! ours ends at mmap_base, and so finds nothing that the first search did not. `linux-6.7` searches for
//! a hint with the longer length too, and so may ignore one that is free; here a hint is a hint.

mod change;
mod check;
mod node;
mod search;
mod tree;
mod vmas;

use alloc::string::String;

use crate::contract::{
    Direction, FreeError, Merge, Need, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};

use tree::{Cursor, Tree};

/// Which requests are aligned for huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Huge {
    /// None: 6.1.
    None,
    /// Those of a PMD's length at least: 6.7.
    AtLeast(u64),
    /// Those of whole PMDs: 6.12.
    Multiples(u64),
}

impl Huge {
    /// The alignment for `need`, if it is to be aligned.
    fn alignment(self, need: &Need, page: u64) -> Option<u64> {
        let plain = need.hint.is_none() && need.align_mask == page - 1;
        match self {
            Huge::AtLeast(pmd) if plain && need.size >= pmd => Some(pmd),
            Huge::Multiples(pmd) if plain && need.size.is_multiple_of(pmd) => Some(pmd),
            _ => None,
        }
    }
}

/// First fit from the top or the bottom over a range B-tree, which keeps VMAs.
#[derive(Debug, Clone)]
pub struct Linux6 {
    space: Space,
    tree: Tree,
    huge: Huge,
    work: Work,
}

impl Linux6 {
    /// `linux-6.1`: no rule for huge pages.
    #[must_use]
    pub fn v6_1(space: Space) -> Linux6 {
        Linux6::new(space, Huge::None)
    }

    /// `linux-6.7`: a range as long as a PMD, or longer, is aligned to one.
    #[must_use]
    pub fn v6_7(space: Space) -> Linux6 {
        let huge = pmd(space.page()).map_or(Huge::None, Huge::AtLeast);
        Linux6::new(space, huge)
    }

    /// `linux-6.12`: whole PMDs are aligned to one.
    #[must_use]
    pub fn v6_12(space: Space) -> Linux6 {
        let huge = pmd(space.page()).map_or(Huge::None, Huge::Multiples);
        Linux6::new(space, huge)
    }

    fn new(space: Space, huge: Huge) -> Linux6 {
        Linux6 {
            space,
            tree: Tree::new(space.window()),
            huge,
            work: Work::default(),
        }
    }

    /// Goes to the slot that takes `size` bytes under the need's limits and direction, and says where
    /// they start.
    fn unmapped_area(
        &mut self,
        need: &Need,
        size: u64,
        align_mask: u64,
        at: &mut Cursor,
    ) -> Option<u64> {
        let (limits, padded) = (need.limits, size.checked_add(align_mask)?);
        if limits.length() < padded {
            return None;
        }
        let visited = &mut self.work.visited;
        // Neither over- nor underflows: the part of the slot that lies inside the limits is as long as
        // `padded`.
        if need.direction == Direction::BottomUp {
            let found = self.tree.lowest(limits, padded, at, visited);
            let start = found.then(|| self.tree.range(at).start.max(limits.start))?;
            Some(start + (need.align_offset.wrapping_sub(start) & align_mask))
        } else {
            let found = self.tree.highest(limits, padded, at, visited);
            let start = found.then(|| self.tree.range(at).end.min(limits.end) - size)?;
            Some(start - (start.wrapping_sub(need.align_offset) & align_mask))
        }
    }

    /// The same for a start that is aligned to `pmd`.
    fn huge_area(&mut self, need: &Need, pmd: u64, at: &mut Cursor) -> Option<u64> {
        let start = self.unmapped_area(need, need.size.checked_add(pmd)?, 0, at)?;
        let up = start.wrapping_neg() & (pmd - 1);
        let keeps_to_the_top = matches!(self.huge, Huge::Multiples(_));
        if up == 0 && keeps_to_the_top && need.direction != Direction::BottomUp {
            return Some(start + pmd);
        }
        Some(start + up)
    }

    /// The same for the hint.
    fn hinted(&mut self, need: &Need, at: &mut Cursor) -> Option<u64> {
        let range = need.hinted(self.space)?;
        self.tree.find(range.start, at);
        self.work.visited += self.tree.height as u64 + 1;
        let free = self.tree.item(at).is_none() && range.end <= self.tree.range(at).end;
        free.then_some(range.start)
    }

    /// Goes to the slot in which `range` starts, if that may be given back or changed.
    fn taken(&self, range: Range, at: &mut Cursor) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        self.tree.find(range.start, at);
        let (mut slot, mut item) = (self.tree.range(at), self.tree.item(at));
        // An empty slot ends where a VMA starts, or with the window.
        if item.is_none() && slot.end >= range.end {
            return Err(FreeError::AlreadyFree);
        }
        if item.is_some() && slot == range {
            return Ok(());
        }
        let mut next = Cursor::new();
        while let Some(Merge::With(_)) = item {
            if slot.end >= range.end {
                return Ok(());
            }
            self.tree.find(slot.end, &mut next);
            (slot, item) = (self.tree.range(&next), self.tree.item(&next));
        }
        Err(FreeError::NotAsGiven)
    }

    /// Makes both ends of `range` boundaries between slots.
    fn split(&mut self, range: Range, at: &mut Cursor) {
        self.tree.split(range.start, at);
        if range.end < self.space.window().end {
            self.tree.split(range.end, at);
        }
    }
}

/// Bytes that one page of page-table entries maps, if that is more than a page.
fn pmd(page: u64) -> Option<u64> {
    page.checked_mul(page / 8).filter(|&pmd| pmd > page)
}

impl Policy for Linux6 {
    fn space(&self) -> Space {
        self.space
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        let at = &mut Cursor::new();
        let mut start = self.hinted(&need, at);
        if start.is_none()
            && let Some(pmd) = self.huge.alignment(&need, self.space.page())
        {
            start = self.huge_area(&need, pmd, at);
        }
        if start.is_none() {
            // The kernel's mask has no bits below the page's.
            let align_mask = need.align_mask & !(self.space.page() - 1);
            start = self.unmapped_area(&need, need.size, align_mask, at);
        }
        let start = start.ok_or(PlaceError::Exhausted)?;
        let range = Range::new(start, start + need.size);
        self.tree.fill(at, range, need.merge);
        self.work.placed += 1;
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        let at = &mut Cursor::new();
        self.taken(range, at)?;
        if self.tree.range(at) == range {
            self.tree.clear(at);
            return Ok(());
        }
        self.split(range, at);
        let mut start = range.start;
        while start < range.end {
            self.tree.find(start, at);
            start = self.tree.range(at).end;
            self.tree.clear(at);
        }
        Ok(())
    }

    fn keeps_vmas(&self) -> bool {
        true
    }

    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        let at = &mut Cursor::new();
        self.taken(part, at)?;
        let old = self.tree.item(at);
        if merge == Merge::Never || old == Some(Merge::Never) {
            return Err(FreeError::NotAsGiven);
        }
        if old == Some(merge) && part.end <= self.tree.range(at).end {
            return Ok(());
        }
        self.split(part, at);
        let mut start = part.start;
        while start < part.end {
            self.tree.find(start, at);
            let end = self.tree.range(at).end;
            self.tree.set(at, merge);
            self.tree.join_if_alike(start, at);
            start = end;
        }
        self.tree.join_if_alike(part.end, at);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        let mut statistics = Statistics {
            ranges: self.tree.vmas,
            memory: self.tree.memory() as u64,
            ..Statistics::default()
        };
        self.tree.each(&mut |slot, item| {
            if item.is_none() {
                statistics.holes += 1;
                statistics.largest_hole = statistics.largest_hole.max(slot.length());
                return;
            }
            statistics.used += slot.length();
            let start = statistics.span.map_or(slot.start, |span| span.start);
            statistics.span = Some(Range::new(start, slot.end));
        });
        statistics
    }

    fn work(&self) -> Work {
        Work {
            propagated: self.tree.propagated,
            ..self.work
        }
    }

    fn check(&self) -> Result<(), String> {
        self.tree.check()
    }
}

#[cfg(test)]
mod tests;
