//! Propagation put off: what Johannes Weiner proposed in mail 003 (June 2012).
//!
//! "Chain up vmas that need to propagate gaps and do it in batch": a VMA whose gap has changed is put
//! on a bounded list, and nothing else happens. One that is on it already costs nothing, which is what
//! unmapping and mapping the same place again and again comes down to. When the list is full, or when
//! a search has failed, it is *flushed*: all paths from listed VMAs to the root are recomputed, each
//! node once, however many paths meet in it.
//!
//! # Why the answer is exact all the same
//!
//! Meanwhile the numbers above a listed VMA may be too high (a gap was filled) or too low (a gap has
//! come). Own gaps are never stored but computed from the VMA and its neighbour, so each candidate is
//! verified as it is met. What remains is that a number that is too low could hide a gap. Two
//! invariants, which `check` executes, hold between any two calls:
//!
//! 1. *Cover*: a node's number is at least the gap of every VMA in its subtree that is **not listed**.
//! 2. *Exact*: a node with no listed VMA in its subtree, itself included, has the right number.
//!
//! They are kept because
//!
//! * a gap changes only together with its VMA being listed;
//! * a VMA that is removed takes a gap away, which never breaks 1; the lowest node that lost it is
//!   listed, which makes 2 say nothing about the nodes above;
//! * a VMA that is moved up into a removed one's place takes its number, which covered both; what was
//!   above it is above the listed node;
//! * a rotation gives the number of the old subtree root to the new one, whose VMAs are the same, and
//!   recomputes the old from children for which 1 and 2 hold;
//! * a flush makes every number right from the bottom up, and only nodes below which nothing was
//!   listed are not touched: those are right by 2.
//!
//! By 1, the pruned walk meets the first fitting gap, in its order, among the VMAs that are not listed:
//! no node above it has a number below its size. The listed ones, at most [`BOUND`], are looked at one
//! by one. The first of both is the first of all. So nothing would be missed without the flush after a
//! failed search, either; it is there because a failure is where numbers that are too high cost most:
//! each leads the walk to a dead end, and one failed search is mostly followed by others.
//!
//! By 2, numbers that are too high stand only above listed nodes: a search visits at most
//! `BOUND` x height nodes without finding a gap.

use alloc::vec::Vec;

use crate::vmas::{Id, NIL, Nodes, Propagation};

/// VMAs on the list at most. Every search pays for looking at them, and a change is paid with a path at
/// most, 20 to 40 nodes in a tree of a million: a list of that length at most doubles a search's work,
/// and holds the VMAs that a program works on again and again.
pub const BOUND: usize = 32;

/// The list.
#[derive(Debug, Clone)]
pub struct Lazy {
    listed: Vec<Id>,
    flushes: u64,
}

impl Default for Lazy {
    fn default() -> Lazy {
        Lazy {
            listed: Vec::with_capacity(BOUND),
            flushes: 0,
        }
    }
}

impl Lazy {
    /// Makes every number right, and the list empty.
    fn flush(&mut self, nodes: &mut Nodes) {
        if self.listed.is_empty() {
            return;
        }
        self.flushes += 1;
        for &id in &self.listed {
            nodes[id].listed = false;
            let mut at = id;
            while at != NIL && !nodes[at].marked {
                nodes[at].marked = true;
                at = nodes[at].parent;
            }
        }
        for &id in &self.listed {
            // A node waits for the marked ones below it: the last path that comes from there goes on
            // through it. So listed nodes on the way of others drop out here.
            let mut at = id;
            while nodes[at].marked && nodes[at].child.iter().all(|&below| !nodes[below].marked) {
                nodes.recompute(at);
                nodes[at].marked = false;
                at = nodes[at].parent;
            }
        }
        self.listed.clear();
    }
}

impl Propagation for Lazy {
    fn changed(&mut self, nodes: &mut Nodes, id: Id) {
        if id == NIL || nodes[id].listed {
            return;
        }
        if self.listed.len() == BOUND {
            self.flush(nodes);
        }
        nodes[id].listed = true;
        self.listed.push(id);
    }

    fn lost(&mut self, nodes: &mut Nodes, lowest: Id, _: Id) {
        self.changed(nodes, lowest);
    }

    fn leaving(&mut self, nodes: &mut Nodes, id: Id) {
        if nodes[id].listed {
            nodes[id].listed = false;
            self.listed.retain(|&listed| listed != id);
        }
    }

    fn failed(&mut self, nodes: &mut Nodes) {
        self.flush(nodes);
    }

    fn pending(&self) -> &[Id] {
        &self.listed
    }

    fn flushes(&self) -> u64 {
        self.flushes
    }

    fn memory(&self) -> usize {
        self.listed.capacity() * size_of::<Id>()
    }
}
