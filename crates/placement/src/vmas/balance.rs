//! Red-black balancing (Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", chapter 13),
//! keeping `subtree_gap` in rotations: the node that comes up takes the number of the one that goes
//! down, as the same VMAs are below it, and the one that goes down is recomputed.

use super::nodes::{Id, LEFT, NIL, Nodes, RIGHT};

/// The tree around a removed node, before balancing.
pub(super) struct Removed {
    /// The lowest node that has lost something below it; `NIL` if none has.
    pub(super) lowest: Id,
    /// The node that now stands in the removed one's place and has its number, if it came from deeper
    /// down: `lowest` or above it. Else `NIL`.
    pub(super) moved: Id,
    /// What took the place of the node that went from the bottom, maybe `NIL`, and whether the tree is
    /// a black node short there.
    hole: Id,
    short: bool,
}

impl Nodes {
    /// Hangs `id`, which is in the list, into the tree as a leaf, without balancing.
    pub(super) fn hang(&mut self, id: Id) {
        let (prev, next) = (self[id].prev, self[id].next);
        // One of two neighbours in the list is below the other in the tree, so that one of these two
        // places is free: the lower one's right or the higher one's left.
        let (parent, side) = if next != NIL && self[next].child[LEFT] == NIL {
            (next, LEFT)
        } else {
            (prev, RIGHT)
        };
        self[id].parent = parent;
        if parent == NIL {
            self.root = id;
        } else {
            self[parent].child[side] = id;
        }
    }

    /// Balances after [`Nodes::hang`].
    pub(super) fn balance_added(&mut self, id: Id) {
        let mut at = id;
        loop {
            let parent = self[at].parent;
            if !self[parent].red {
                break;
            }
            // A red node is not the root, so it has a parent.
            let grandparent = self[parent].parent;
            let side = self.side(parent);
            let uncle = self[grandparent].child[1 - side];
            if self[uncle].red {
                self[parent].red = false;
                self[uncle].red = false;
                self[grandparent].red = true;
                at = grandparent;
                continue;
            }
            if self.side(at) != side {
                self.rotate(parent, side);
            }
            let upper = self[grandparent].child[side];
            self[upper].red = false;
            self[grandparent].red = true;
            self.rotate(grandparent, 1 - side);
            break;
        }
        let root = self.root;
        self[root].red = false;
    }

    /// Takes `id` out of the tree, not out of the list, without balancing.
    pub(super) fn unhang(&mut self, id: Id) -> Removed {
        let [left, right] = self[id].child;
        if left == NIL || right == NIL {
            let hole = if left == NIL { right } else { left };
            let lowest = self[id].parent;
            let short = !self[id].red;
            self.replace(id, hole);
            return Removed {
                lowest,
                moved: NIL,
                hole,
                short,
            };
        }
        let mut successor = right;
        while self[successor].child[LEFT] != NIL {
            successor = self[successor].child[LEFT];
        }
        let hole = self[successor].child[RIGHT];
        let short = !self[successor].red;
        let lowest = if successor == right {
            successor
        } else {
            let lowest = self[successor].parent;
            self.replace(successor, hole);
            self[successor].child[RIGHT] = right;
            self[right].parent = successor;
            lowest
        };
        self.replace(id, successor);
        self[successor].child[LEFT] = left;
        self[left].parent = successor;
        self[successor].red = self[id].red;
        self[successor].subtree_gap = self[id].subtree_gap;
        Removed {
            lowest,
            moved: successor,
            hole,
            short,
        }
    }

    /// Balances after [`Nodes::unhang`].
    pub(super) fn balance_removed(&mut self, removed: &Removed) {
        if !removed.short {
            return;
        }
        let (mut at, mut parent) = (removed.hole, removed.lowest);
        while at != self.root && !self[at].red {
            // At most one child of `parent` is `NIL`: the other has a black node more below it.
            let side = usize::from(self[parent].child[RIGHT] == at);
            let mut sibling = self[parent].child[1 - side];
            if self[sibling].red {
                self[sibling].red = false;
                self[parent].red = true;
                self.rotate(parent, side);
                sibling = self[parent].child[1 - side];
            }
            let nephews = self[sibling].child;
            if !self[nephews[LEFT]].red && !self[nephews[RIGHT]].red {
                self[sibling].red = true;
                at = parent;
                parent = self[at].parent;
                continue;
            }
            if !self[nephews[1 - side]].red {
                self[nephews[side]].red = false;
                self[sibling].red = true;
                self.rotate(sibling, 1 - side);
                sibling = self[parent].child[1 - side];
            }
            self[sibling].red = self[parent].red;
            self[parent].red = false;
            let outer = self[sibling].child[1 - side];
            self[outer].red = false;
            self.rotate(parent, side);
            return;
        }
        self[at].red = false;
    }

    /// Which child of its parent `id` is.
    fn side(&self, id: Id) -> usize {
        usize::from(self[self[id].parent].child[RIGHT] == id)
    }

    /// Puts `by`, maybe `NIL`, into `id`'s place below `id`'s parent.
    fn replace(&mut self, id: Id, by: Id) {
        let parent = self[id].parent;
        if parent == NIL {
            self.root = by;
        } else {
            let side = self.side(id);
            self[parent].child[side] = by;
        }
        if by != NIL {
            self[by].parent = parent;
        }
    }

    /// `id` goes down to `side`, its child on the other side comes up.
    fn rotate(&mut self, id: Id, side: usize) {
        let up = self[id].child[1 - side];
        let between = self[up].child[side];
        self[id].child[1 - side] = between;
        if between != NIL {
            self[between].parent = id;
        }
        self.replace(id, up);
        self[up].child[side] = id;
        self[id].parent = up;
        self[up].subtree_gap = self[id].subtree_gap;
        self.rotated(id);
    }
}
