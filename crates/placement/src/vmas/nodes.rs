//! VMAs in an arena, threaded into a list by address and hung into a tree.

use core::ops::{Index, IndexMut};

use alloc::vec;
use alloc::vec::Vec;

use crate::contract::{Merge, Range, Space};

/// A node's place in the arena.
pub(crate) type Id = u32;

/// No node, and at the same time what lies outside the window: the list's ends meet in it, it "ends"
/// where the window starts and "starts" where the window ends. So the gap below `NIL` is the one above
/// the highest VMA, and the gap below the lowest VMA begins at the window's start.
pub(crate) const NIL: Id = 0;

/// The lower, and the higher child.
pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;

/// A VMA. One cache line, so that looking at a node costs one miss.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) range: Range,
    /// Largest gap below a VMA of this subtree, as far as it has been propagated.
    pub(crate) subtree_gap: u64,
    pub(crate) merge: Merge,
    pub(crate) parent: Id,
    pub(crate) child: [Id; 2],
    /// Neighbours by address.
    pub(crate) prev: Id,
    pub(crate) next: Id,
    pub(crate) red: bool,
    /// On the list of changed nodes (`lazy`).
    pub(crate) listed: bool,
    /// On a path that is being flushed (`lazy`).
    pub(crate) marked: bool,
}

/// The arena, with the tree's root and the free places.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    all: Vec<Node>,
    pub(crate) root: Id,
    /// First of the free places, which are chained by `next`.
    free: Id,
    /// VMAs.
    pub(crate) count: usize,
    /// Nodes recomputed so far.
    pub(crate) recomputed: u64,
    /// Whether nodes know the largest gap below them.
    augmented: bool,
}

impl Index<Id> for Nodes {
    type Output = Node;
    #[inline]
    fn index(&self, id: Id) -> &Node {
        &self.all[id as usize]
    }
}

impl IndexMut<Id> for Nodes {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut Node {
        &mut self.all[id as usize]
    }
}

impl Nodes {
    pub(crate) fn new(space: Space, augmented: bool) -> Nodes {
        let window = space.window();
        let outside = Node {
            range: Range::new(window.end, window.start),
            subtree_gap: 0,
            merge: Merge::Never,
            parent: NIL,
            child: [NIL; 2],
            prev: NIL,
            next: NIL,
            red: false,
            listed: false,
            marked: false,
        };
        Nodes {
            all: vec![outside],
            root: NIL,
            free: NIL,
            count: 0,
            recomputed: 0,
            augmented,
        }
    }

    /// A node in the list, directly before `next`, that is not yet in the tree: a red leaf whose
    /// subtree is not known to have a gap.
    pub(crate) fn add(&mut self, range: Range, merge: Merge, next: Id) -> Id {
        let prev = self[next].prev;
        let node = Node {
            range,
            subtree_gap: 0,
            merge,
            parent: NIL,
            child: [NIL; 2],
            prev,
            next,
            red: true,
            listed: false,
            marked: false,
        };
        let id = if self.free == NIL {
            self.all.push(node);
            (self.all.len() - 1) as Id
        } else {
            let id = self.free;
            self.free = self[id].next;
            self[id] = node;
            id
        };
        self[prev].next = id;
        self[next].prev = id;
        self.count += 1;
        id
    }

    /// Takes `first` to `last`, neighbours that are no longer in the tree, out of the list and frees
    /// their places.
    pub(crate) fn drop_from_list(&mut self, first: Id, last: Id) {
        let (before, after) = (self[first].prev, self[last].next);
        self[before].next = after;
        self[after].prev = before;
        let mut id = first;
        while id != after {
            let next = self[id].next;
            self[id].next = self.free;
            self.free = id;
            self.count -= 1;
            id = next;
        }
    }

    /// The gap below `id`.
    #[inline]
    pub(crate) fn gap(&self, id: Id) -> Range {
        let node = &self[id];
        Range::new(self[node.prev].range.end, node.range.start)
    }

    /// Returns the largest gap of `id`'s subtree, from its children and its own gap.
    #[inline]
    pub(crate) fn computed(&self, id: Id) -> u64 {
        let [left, right] = self[id].child;
        let below = self[left].subtree_gap.max(self[right].subtree_gap);
        below.max(self.gap(id).length())
    }

    /// Recomputes `id`; whether that changed it.
    #[inline]
    pub(crate) fn recompute(&mut self, id: Id) -> bool {
        let gap = self.computed(id);
        self.recomputed += 1;
        let changed = self[id].subtree_gap != gap;
        self[id].subtree_gap = gap;
        changed
    }

    /// Recomputes `id`, which a rotation has brought down.
    pub(super) fn rotated(&mut self, id: Id) {
        if self.augmented {
            self.recompute(id);
        }
    }

    /// The lowest VMA that ends above `address`, or `NIL`; and the nodes looked at.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> (Id, u64) {
        let (mut at, mut found, mut visited) = (self.root, NIL, 0);
        while at != NIL {
            visited += 1;
            let node = &self[at];
            if node.range.end <= address {
                at = node.child[RIGHT];
                continue;
            }
            found = at;
            if node.range.start <= address {
                break;
            }
            at = node.child[LEFT];
        }
        (found, visited)
    }

    /// All of them, by address.
    pub(crate) fn list(&self) -> impl Iterator<Item = Id> + '_ {
        let mut id = NIL;
        core::iter::from_fn(move || {
            id = self[id].next;
            (id != NIL).then_some(id)
        })
    }

    /// Places in the arena that are free.
    pub(crate) fn free_places(&self) -> usize {
        let mut id = self.free;
        let mut places = 0;
        // A chain that runs in a circle must not hang a check.
        while id != NIL && places <= self.all.len() {
            places += 1;
            id = self[id].next;
        }
        places
    }

    /// Places in the arena, free ones and `NIL`'s among them.
    pub(crate) fn places(&self) -> usize {
        self.all.len()
    }

    /// Bytes that the arena takes.
    pub(crate) fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Node>()
    }
}
