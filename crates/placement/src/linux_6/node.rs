//! Nodes: slots side by side, and the arena that they live in.

use core::ops::{Index, IndexMut};

use alloc::vec::Vec;

use crate::contract::Merge;

use super::tree::Tree;

/// A leaf's slots (MAPLE_RANGE64_SLOTS). What a slot holds: a VMA, or nothing.
pub(super) type Leaf = Slots<Option<Merge>, 16>;
/// An inner node's slots (MAPLE_ARANGE64_SLOTS).
pub(super) type Inner = Slots<Child, 10>;

/// A node below, and the largest run of empty addresses in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) node: u32,
    pub(super) gap: u64,
}

/// The contents of a slot.
pub(super) trait Item<const N: usize>: Copy + Default {
    /// The largest run of empty addresses in a slot of this `length`.
    fn gap(&self, length: u64) -> u64;
    /// Whether a gap of `size` can be here, as far as that is seen without the slot's ends.
    fn may_have(&self, size: u64) -> bool;
    /// Where nodes of such slots are kept.
    fn nodes(tree: &mut Tree) -> &mut Arena<Slots<Self, N>>;
}

impl Item<16> for Option<Merge> {
    fn gap(&self, length: u64) -> u64 {
        if self.is_none() { length } else { 0 }
    }

    fn may_have(&self, _: u64) -> bool {
        self.is_none()
    }

    fn nodes(tree: &mut Tree) -> &mut Arena<Leaf> {
        &mut tree.leaves
    }
}

impl Item<10> for Child {
    fn gap(&self, _: u64) -> u64 {
        self.gap
    }

    fn may_have(&self, size: u64) -> bool {
        self.gap >= size
    }

    fn nodes(tree: &mut Tree) -> &mut Arena<Inner> {
        &mut tree.inners
    }
}

/// A node: `count` slots, each from where the one before it ends up to its own end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots<T, const N: usize> {
    ends: [u64; N],
    items: [T; N],
    count: u8,
    /// The slot with the largest gap, as the last [`Slots::measure`] or [`Inner::set_gap`] left it.
    widest: u8,
}

impl<T: Item<N>, const N: usize> Slots<T, N> {
    /// Fewest slots of a node that is not the root (mt_min_slots): 6 in a leaf, 4 in an inner node.
    pub(super) const FEWEST: usize = N / 2 - N / 8;

    pub(super) fn new() -> Self {
        Slots {
            ends: [0; N],
            items: [T::default(); N],
            count: 0,
            widest: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    pub(super) fn ends(&self) -> &[u64] {
        &self.ends[..self.count()]
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items[..self.count()]
    }

    /// Where `slot` starts, in a node that starts at `start`.
    #[inline]
    pub(super) fn start_of(&self, slot: usize, start: u64) -> u64 {
        if slot == 0 {
            start
        } else {
            self.ends[slot - 1]
        }
    }

    /// The slot that `address`, which lies in the node, falls into.
    #[inline]
    pub(super) fn slot_of(&self, address: u64) -> usize {
        let past = self.ends().iter().position(|&end| end > address);
        debug_assert!(past.is_some(), "{address:x} is not in the node");
        past.unwrap_or(self.count() - 1)
    }

    pub(super) fn set_end(&mut self, slot: usize, end: u64) {
        self.ends[slot] = end;
    }

    pub(super) fn set_item(&mut self, slot: usize, item: T) {
        self.items[slot] = item;
    }

    /// Puts `new` in the place of `removed` slots from `at` on. What comes of it must fit.
    pub(super) fn splice(&mut self, at: usize, removed: usize, new: &[(u64, T)]) {
        let count = self.count();
        if new.len() != removed {
            self.ends.copy_within(at + removed..count, at + new.len());
            self.items.copy_within(at + removed..count, at + new.len());
        }
        for (slot, &(end, item)) in (at..).zip(new) {
            self.ends[slot] = end;
            self.items[slot] = item;
        }
        self.count = (count + new.len() - removed) as u8;
    }

    /// Looks for the largest gap, remembers where it is, and tells how large.
    pub(super) fn measure(&mut self, start: u64) -> u64 {
        let (mut from, mut largest) = (start, 0);
        self.widest = 0;
        for slot in 0..self.count() {
            let gap = self.items[slot].gap(self.ends[slot] - from);
            if gap > largest {
                largest = gap;
                self.widest = slot as u8;
            }
            from = self.ends[slot];
        }
        largest
    }

    pub(super) fn widest(&self) -> usize {
        usize::from(self.widest)
    }
}

impl Inner {
    /// The largest gap below, as remembered.
    pub(super) fn gap(&self) -> u64 {
        self.items[self.widest()].gap
    }

    /// Sets one gap and tells the largest; looks at the others only if the largest shrank.
    pub(super) fn set_gap(&mut self, slot: usize, gap: u64) -> u64 {
        let largest = self.gap();
        self.items[slot].gap = gap;
        if slot == self.widest() && gap < largest {
            // The start is nothing to gaps of children.
            return self.measure(0);
        }
        if gap > largest {
            self.widest = slot as u8;
        }
        self.gap()
    }
}

/// Slots of one or two nodes and of a change, on their way into one or two nodes
/// (maple_big_node).
pub(super) struct Big<T> {
    slots: [(u64, T); Big::<()>::ROOM],
    count: usize,
}

impl Big<()> {
    /// A leaf that takes two more than it has room for, and as full a neighbour.
    const ROOM: usize = 2 * 16 + 2;
}

impl<T: Copy + Default> Big<T> {
    pub(super) fn new() -> Big<T> {
        Big {
            slots: [(0, T::default()); Big::<()>::ROOM],
            count: 0,
        }
    }

    pub(super) fn slots(&self) -> &[(u64, T)] {
        &self.slots[..self.count]
    }

    pub(super) fn extend(&mut self, slots: &[(u64, T)]) {
        self.slots[self.count..][..slots.len()].copy_from_slice(slots);
        self.count += slots.len();
    }

    /// Takes over the slots `from` up to `until` of `node`.
    pub(super) fn copy<const N: usize>(&mut self, node: &Slots<T, N>, from: usize, until: usize)
    where
        T: Item<N>,
    {
        for slot in from..until {
            self.slots[self.count] = (node.ends[slot], node.items[slot]);
            self.count += 1;
        }
    }
}

/// Nodes by number.
#[derive(Debug, Clone)]
pub(super) struct Arena<N> {
    nodes: Vec<N>,
    free: Vec<u32>,
}

impl<N> Arena<N> {
    pub(super) fn new() -> Arena<N> {
        Arena {
            nodes: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, node: N) -> u32 {
        if let Some(number) = self.free.pop() {
            self[number] = node;
            return number;
        }
        if self.nodes.len() == self.nodes.capacity() {
            // An eighth at a time: what is reserved and not used counts as memory of the policy.
            self.nodes.reserve_exact(self.nodes.len() / 8 + 4);
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Nodes in use.
    pub(super) fn in_use(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Bytes, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<N>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<N> Index<u32> for Arena<N> {
    type Output = N;

    #[inline]
    fn index(&self, number: u32) -> &N {
        &self.nodes[number as usize]
    }
}

impl<N> IndexMut<u32> for Arena<N> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut N {
        &mut self.nodes[number as usize]
    }
}
