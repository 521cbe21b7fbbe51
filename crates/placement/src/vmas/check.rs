//! The invariants: those of the kernel's `validate_mm` and `browse_rb`, the balance, and those of
//! [`crate::gap_tree::lazy`], which say of a tree without listed nodes that every number is right.

use alloc::format;
use alloc::string::String;

use crate::contract::Merge;

use super::Vmas;
use super::nodes::{Id, LEFT, NIL, RIGHT};
use super::propagation::Propagation;

impl<P: Propagation> Vmas<P> {
    /// The invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_tree()?;
        self.check_merged()
    }

    /// All but that neighbours have merged, which does not hold in the middle of a call.
    pub(super) fn check_tree(&self) -> Result<(), String> {
        let nodes = &self.nodes;
        let mut last = self.space.window().start;
        let mut count = 0;
        for id in nodes.list() {
            let range = nodes[id].range;
            if !self.space.holds(range) {
                return Err(format!("VMA {range} is not made of pages of the window"));
            }
            if range.start < last {
                return Err(format!(
                    "VMA {range} begins below {last:x}, where the one before it ends"
                ));
            }
            last = range.end;
            count += 1;
            if count > nodes.count || nodes[nodes[id].prev].next != id {
                return Err(format!("the list is broken at VMA {range}"));
            }
        }
        if count != nodes.count {
            return Err(format!(
                "{count} VMAs in the list, but {} held",
                nodes.count
            ));
        }
        if count + nodes.free_places() + 1 != nodes.places() {
            return Err(format!("places of the arena are lost, with {count} VMAs"));
        }
        if nodes[NIL].red || nodes[NIL].subtree_gap != 0 || nodes[NIL].listed {
            return Err(String::from("the node that stands for none has changed"));
        }
        if self.last != NIL && !nodes.list().any(|id| id == self.last) {
            return Err(String::from("the last lookup gave what is no VMA"));
        }
        let pending = self.propagation.pending();
        if let Some(&id) = pending.iter().find(|&&id| !nodes[id].listed) {
            return Err(format!(
                "{} is on the list, but not marked so",
                nodes[id].range
            ));
        }
        let listed = nodes.list().filter(|&id| nodes[id].listed).count();
        if listed != pending.len() {
            return Err(format!(
                "{listed} VMAs are marked as listed, of {}",
                pending.len()
            ));
        }
        if nodes[nodes.root].parent != NIL || nodes[nodes.root].red {
            return Err(String::from("the root has a parent, or is red"));
        }
        if nodes.root == NIL {
            return if count == 0 {
                Ok(())
            } else {
                Err(format!("the tree is empty, but there are {count} VMAs"))
            };
        }
        let (hung, _) = self.check_balance(nodes.root)?;
        if hung != count {
            return Err(format!("{hung} VMAs in the tree, but {count} held"));
        }
        if P::AUGMENTED {
            self.check_numbers(nodes.root)?;
        }
        // From end to end and back. So the highest VMA in the tree is the list's last, where searches
        // take the highest gap to begin.
        let (mut up, mut down) = (NIL, NIL);
        for _ in 0..=count {
            let (above, below) = (self.beside(up, RIGHT), self.beside(down, LEFT));
            if above != nodes[up].next || below != nodes[down].prev {
                let at = nodes[if above == nodes[up].next { down } else { up }].range;
                return Err(format!("tree and list differ beside {at}"));
            }
            (up, down) = (above, below);
        }
        Ok(())
    }

    /// The next VMA in the tree above (`RIGHT`) or below `id`; of `NIL`, the first from that end.
    fn beside(&self, id: Id, side: usize) -> Id {
        let nodes = &self.nodes;
        let mut at = if id == NIL {
            nodes.root
        } else {
            nodes[id].child[side]
        };
        if at != NIL {
            while nodes[at].child[1 - side] != NIL {
                at = nodes[at].child[1 - side];
            }
            return at;
        }
        let mut below = id;
        at = nodes[id].parent;
        while at != NIL && nodes[at].child[side] == below {
            below = at;
            at = nodes[at].parent;
        }
        at
    }

    /// VMAs in the subtree of `id`, and black nodes on each way down. That each child names its parent
    /// keeps this from running in a circle; no tree is deeper than twice the logarithm of its size.
    fn check_balance(&self, id: Id) -> Result<(usize, u32), String> {
        let nodes = &self.nodes;
        if id == NIL {
            return Ok((0, 0));
        }
        let node = &nodes[id];
        let range = node.range;
        for child in node.child {
            if child != NIL && nodes[child].parent != id {
                return Err(format!(
                    "the parent of {} is not {range}",
                    nodes[child].range
                ));
            }
            if node.red && nodes[child].red {
                return Err(format!("{range} and {} are both red", nodes[child].range));
            }
        }
        let (count_left, left) = self.check_balance(node.child[LEFT])?;
        let (count_right, right) = self.check_balance(node.child[RIGHT])?;
        if left != right {
            return Err(format!("{left} and {right} black nodes below {range}"));
        }
        Ok((count_left + 1 + count_right, left + u32::from(!node.red)))
    }

    /// Checks the numbers in the subtree of `id`: the largest gap below a VMA of it that is not listed,
    /// and whether one is listed.
    fn check_numbers(&self, id: Id) -> Result<(u64, bool), String> {
        let nodes = &self.nodes;
        if id == NIL {
            return Ok((0, false));
        }
        let node = &nodes[id];
        let (range, stored) = (node.range, node.subtree_gap);
        if node.marked {
            return Err(format!("VMA {range} is still marked for a flush"));
        }
        let (left, listed_left) = self.check_numbers(node.child[LEFT])?;
        let (right, listed_right) = self.check_numbers(node.child[RIGHT])?;
        let own = if node.listed {
            0
        } else {
            nodes.gap(id).length()
        };
        let unlisted = left.max(right).max(own);
        if stored < unlisted {
            return Err(format!(
                "{range} hides a gap: {stored:x}, but {unlisted:x} is below it"
            ));
        }
        let listed = node.listed || listed_left || listed_right;
        if !listed && stored != unlisted {
            return Err(format!(
                "{range} has {stored:x} as largest gap, but {unlisted:x} is right"
            ));
        }
        Ok((unlisted, listed))
    }

    /// Whether all neighbours that may have merged.
    pub(super) fn check_merged(&self) -> Result<(), String> {
        let nodes = &self.nodes;
        for id in nodes.list() {
            let (below, vma) = (&nodes[nodes[id].prev], &nodes[id]);
            let touch = vma.merge != Merge::Never && below.range.end == vma.range.start;
            if touch && below.merge == vma.merge {
                return Err(format!("{} and {} have not merged", below.range, vma.range));
            }
        }
        Ok(())
    }

    /// As the kernel does where CONFIG_DEBUG_VM_RB is set: before a tree changes its form, every number
    /// must be right. In small trees alone, as it walks through all of the tree.
    #[cfg(test)]
    pub(super) fn check_as_it_goes(&self) {
        if P::AUGMENTED && self.nodes.count <= 64 {
            self.check_numbers(self.nodes.root).unwrap();
        }
    }
}
