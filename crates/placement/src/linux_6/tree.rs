//! The tree: its root, and cursors into it.

use crate::contract::{Merge, Range};

use super::node::{Arena, Child, Inner, Leaf, Slots};

/// A range B-tree over a window: every address is in one slot of one leaf.
///
/// * Slots of a node ascend, and a slot ends where the next one starts; the node's last slot ends
///   where its slot in the node above does.
/// * All leaves are at one depth. A node that is not the root has at least [`Slots::FEWEST`] slots,
///   a root that is an inner node at least two.
/// * Of two neighbouring slots of leaves, in one leaf or two, at least one holds a VMA, and VMAs that
///   may merge are one slot: a hole is one slot, so the largest gap of a leaf is that of a slot.
/// * The gap in an inner slot is the largest among the slots of the node below.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) window: Range,
    pub(super) leaves: Arena<Leaf>,
    pub(super) inners: Arena<Inner>,
    pub(super) root: u32,
    /// Levels of inner nodes.
    pub(super) height: usize,
    /// VMAs, as mm->map_count.
    pub(super) vmas: u64,
    /// Nodes whose largest gap was determined anew.
    pub(super) propagated: u64,
}

/// Levels at most: 16 of at least 4 slots each and a leaf of 6 hold more than arenas of 2^32 can.
const LEVELS: usize = 17;

/// One step of the way down.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) node: u32,
    pub(super) slot: u32,
    /// Where the node starts.
    pub(super) start: u64,
}

impl Frame {
    pub(super) fn slot(self) -> usize {
        self.slot as usize
    }

    pub(super) fn at(node: u32, slot: usize, start: u64) -> Frame {
        Frame {
            node,
            slot: slot as u32,
            start,
        }
    }
}

/// A slot of a leaf and the way to it from the root: good until the next change. The leaf is at
/// level [`Tree::height`], the root at 0. Some 270 bytes: lent, not handed around.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) frames: [Frame; LEVELS],
}

impl Cursor {
    pub(super) fn new() -> Cursor {
        Cursor {
            frames: [Frame::default(); LEVELS],
        }
    }
}

/// Whether neighbours of these two kinds are one slot.
pub(super) fn alike(a: Option<Merge>, b: Option<Merge>) -> bool {
    a == b && a != Some(Merge::Never)
}

impl Tree {
    /// One leaf with one empty slot.
    pub(super) fn new(window: Range) -> Tree {
        let mut leaf: Leaf = Slots::new();
        leaf.splice(0, 0, &[(window.end, None)]);
        leaf.measure(window.start);
        let mut leaves = Arena::new();
        let root = leaves.add(leaf);
        Tree {
            window,
            leaves,
            inners: Arena::new(),
            root,
            height: 0,
            vmas: 0,
            propagated: 0,
        }
    }

    /// Goes to the slot that `address`, which lies in the window, falls into.
    #[inline]
    pub(super) fn find(&self, address: u64, at: &mut Cursor) {
        let (mut node, mut start) = (self.root, self.window.start);
        for frame in &mut at.frames[..self.height] {
            let inner = &self.inners[node];
            let slot = inner.slot_of(address);
            *frame = Frame::at(node, slot, start);
            start = inner.start_of(slot, start);
            node = inner.items()[slot].node;
        }
        let slot = self.leaves[node].slot_of(address);
        at.frames[self.height] = Frame::at(node, slot, start);
    }

    /// The leaf that a cursor is in.
    #[inline]
    pub(super) fn leaf(&self, at: &Cursor) -> &Leaf {
        &self.leaves[at.frames[self.height].node]
    }

    /// Returns the contents of a cursor's slot.
    #[inline]
    pub(super) fn item(&self, at: &Cursor) -> Option<Merge> {
        self.leaf(at).items()[at.frames[self.height].slot()]
    }

    /// Where a cursor's slot lies.
    #[inline]
    pub(super) fn range(&self, at: &Cursor) -> Range {
        let frame = at.frames[self.height];
        let leaf = self.leaf(at);
        let start = leaf.start_of(frame.slot(), frame.start);
        Range::new(start, leaf.ends()[frame.slot()])
    }

    /// What the slot below a cursor's holds, be it in another leaf; `None` at the window's start.
    pub(super) fn below(&self, at: &Cursor) -> Option<Option<Merge>> {
        let frame = at.frames[self.height];
        if frame.slot > 0 {
            return Some(self.leaf(at).items()[frame.slot() - 1]);
        }
        let level = (0..self.height)
            .rev()
            .find(|&level| at.frames[level].slot > 0)?;
        let frame = at.frames[level];
        let mut node = self.inners[frame.node].items()[frame.slot() - 1].node;
        for _ in level + 1..self.height {
            node = self.inners[node].items().last()?.node;
        }
        self.leaves[node].items().last().copied()
    }

    /// What the slot above a cursor's holds, be it in another leaf; `None` at the window's end.
    pub(super) fn above(&self, at: &Cursor) -> Option<Option<Merge>> {
        let frame = at.frames[self.height];
        if let Some(&item) = self.leaf(at).items().get(frame.slot() + 1) {
            return Some(item);
        }
        let next = |level: usize| -> Option<&Child> {
            let frame: Frame = at.frames[level];
            self.inners[frame.node].items().get(frame.slot() + 1)
        };
        let (level, child) = (0..self.height)
            .rev()
            .find_map(|level| Some((level, next(level)?)))?;
        let mut node = child.node;
        for _ in level + 1..self.height {
            node = self.inners[node].items().first()?.node;
        }
        self.leaves[node].items().first().copied()
    }

    /// Hands every slot of every leaf to `slot`, upwards.
    pub(super) fn each(&self, slot: &mut impl FnMut(Range, Option<Merge>)) {
        self.each_below(self.root, 0, self.window.start, slot);
    }

    fn each_below(
        &self,
        node: u32,
        level: usize,
        mut start: u64,
        slot: &mut impl FnMut(Range, Option<Merge>),
    ) {
        if level == self.height {
            let leaf = &self.leaves[node];
            for (&end, &item) in leaf.ends().iter().zip(leaf.items()) {
                slot(Range::new(start, end), item);
                start = end;
            }
            return;
        }
        let inner = &self.inners[node];
        for (&end, child) in inner.ends().iter().zip(inner.items()) {
            self.each_below(child.node, level + 1, start, slot);
            start = end;
        }
    }

    /// Bytes, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.leaves.memory() + self.inners.memory()
    }
}
