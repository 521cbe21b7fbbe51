//! Slots replaced by others: splits, pushes to a sibling, merges, and the gaps on the way up.
//!
//! One change goes from a leaf to the root as far as it must: what becomes of a node is, to the node
//! above, one or two slots in the place of one or two.

use super::node::{Big, Child, Inner, Item, Slots};
use super::tree::{Cursor, Tree};

impl Tree {
    /// Puts `new` in the place of `removed` slots, from `slot` on, of the node at `level` on the way to
    /// `at`. The new slots end where those removed did.
    pub(super) fn change<T: Item<N>, const N: usize>(
        &mut self,
        at: &Cursor,
        level: usize,
        (slot, removed): (usize, usize),
        new: &[(u64, T)],
    ) {
        let frame = at.frames[level];
        let node = &mut T::nodes(self)[frame.node];
        let count = node.count() + new.len() - removed;
        if count > N {
            let mut big = Big::new();
            big.copy(node, 0, slot);
            big.extend(new);
            big.copy(node, slot + removed, node.count());
            return self.overflow(at, level, &big);
        }
        node.splice(slot, removed, new);
        if level > 0 && count < Slots::<T, N>::FEWEST {
            return self.underflow::<T, N>(at, level);
        }
        let gap = node.measure(frame.start);
        self.propagated += 1;
        if level == 0 && self.height > 0 && count == 1 {
            // The root is an inner node with one child: the child becomes the root.
            let child = self.inners[self.root].items()[0].node;
            self.inners.remove(self.root);
            self.root = child;
            self.height -= 1;
            return;
        }
        self.propagate(at, level, gap);
    }

    /// The node at `level` has `gap` now: tells the nodes above, as far as their own largest changes
    /// (mas_parent_gap).
    pub(super) fn propagate(&mut self, at: &Cursor, level: usize, mut gap: u64) {
        for frame in at.frames[..level].iter().rev() {
            let inner = &mut self.inners[frame.node];
            if inner.items()[frame.slot()].gap == gap {
                return;
            }
            self.propagated += 1;
            let before = inner.gap();
            gap = inner.set_gap(frame.slot(), gap);
            if gap == before {
                return;
            }
        }
    }

    /// `big` is to replace the node at `level`, and is more than fits: pushes what is too much to a
    /// sibling that has room, the left one first, which is filled up to two slots (mas_push_data); or
    /// splits the node in halves.
    fn overflow<T: Item<N>, const N: usize>(&mut self, at: &Cursor, level: usize, big: &Big<T>) {
        let node = at.frames[level].node;
        let Some(above) = level.checked_sub(1) else {
            let right = T::nodes(self).add(Slots::new());
            return self.deal(at, level, (0, 0), [node, right], big, big.slots().len() / 2);
        };
        let slot = at.frames[above].slot();
        let count = big.slots().len();
        for left in [true, false] {
            let sibling = if left { slot.wrapping_sub(1) } else { slot + 1 };
            let parent = &self.inners[at.frames[above].node];
            let Some(number) = parent.items().get(sibling).map(|child| child.node) else {
                continue;
            };
            let other = &T::nodes(self)[number];
            let total = count + other.count();
            if total > 2 * N - 2 {
                continue;
            }
            let mut both = Big::new();
            if left {
                both.copy(other, 0, other.count());
                both.extend(big.slots());
                return self.deal(at, level, (sibling, 2), [number, node], &both, N - 2);
            }
            both.extend(big.slots());
            both.copy(other, 0, other.count());
            return self.deal(at, level, (slot, 2), [node, number], &both, total - (N - 2));
        }
        let right = T::nodes(self).add(Slots::new());
        self.deal(at, level, (slot, 1), [node, right], big, count / 2);
    }

    /// The node at `level`, not the root, has too few slots: makes one of it and its right sibling, or
    /// its left one where it is the last (mas_rebalance), or shares their slots evenly where that
    /// would leave less than two free.
    fn underflow<T: Item<N>, const N: usize>(&mut self, at: &Cursor, level: usize) {
        let above = at.frames[level - 1];
        let parent = &self.inners[above.node];
        // Every inner node has two children at least, so there is one or the other.
        let slot = above.slot().min(parent.count() - 2);
        let start = parent.start_of(slot, above.start);
        let [left, right] = [slot, slot + 1].map(|slot| parent.items()[slot].node);
        let nodes = T::nodes(self);
        let mut big = Big::new();
        big.copy(&nodes[left], 0, nodes[left].count());
        big.copy(&nodes[right], 0, nodes[right].count());
        let total = big.slots().len();
        if total > N - 2 {
            return self.deal(at, level, (slot, 2), [left, right], &big, total / 2);
        }
        nodes.remove(right);
        let one = fill(&mut nodes[left], left, start, big.slots());
        self.propagated += 1;
        self.change(at, level - 1, (slot, 2), &[one]);
    }

    /// Deals `big` out to two nodes, the first `cut` slots to the left one, and has them take the
    /// place of some slots of the node above, which is made where `level` is the root's.
    fn deal<T: Item<N>, const N: usize>(
        &mut self,
        at: &Cursor,
        level: usize,
        (slot, removed): (usize, usize),
        [left, right]: [u32; 2],
        big: &Big<T>,
        cut: usize,
    ) {
        let start = match level.checked_sub(1) {
            Some(above) => {
                let above = at.frames[above];
                self.inners[above.node].start_of(slot, above.start)
            }
            None => self.window.start,
        };
        let (low, high) = big.slots().split_at(cut);
        let nodes = T::nodes(self);
        let low = fill(&mut nodes[left], left, start, low);
        let high = fill(&mut nodes[right], right, low.0, high);
        self.propagated += 2;
        if level > 0 {
            return self.change(at, level - 1, (slot, removed), &[low, high]);
        }
        let mut root: Inner = Slots::new();
        root.splice(0, 0, &[low, high]);
        root.measure(start);
        self.root = self.inners.add(root);
        self.height += 1;
    }
}

/// Makes `node`, which starts at `start`, out of `slots`, and says what the node above is to have.
fn fill<T: Item<N>, const N: usize>(
    node: &mut Slots<T, N>,
    number: u32,
    start: u64,
    slots: &[(u64, T)],
) -> (u64, Child) {
    *node = Slots::new();
    node.splice(0, 0, slots);
    let gap = node.measure(start);
    let end = node.ends().last().map_or(start, |&end| end);
    (end, Child { node: number, gap })
}
