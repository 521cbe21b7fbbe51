//! When a change of a gap reaches the nodes above it.

use super::nodes::{Id, NIL, Nodes};

/// A way of propagating. What it is told is told when the list and the tree are as they are to be, but
/// for the balance.
pub(super) trait Propagation: Default {
    /// Whether `vma_adjust` ends by propagating from the VMA, an inserted one and the successors of
    /// both, whatever it did.
    const UNCONDITIONAL: bool = false;

    /// The gap below `id` may have changed, or `id` is a new leaf.
    fn changed(&mut self, nodes: &mut Nodes, id: Id);

    /// From `lowest` up to `moved` (exclusive) nodes have lost a VMA below them, and `moved`, if not
    /// `NIL`, another than before: see [`super::balance::Removed`].
    fn lost(&mut self, nodes: &mut Nodes, lowest: Id, moved: Id);

    /// `id` is about to leave the tree.
    fn leaving(&mut self, nodes: &mut Nodes, id: Id) {
        let _ = (nodes, id);
    }

    /// A search has found nothing.
    fn failed(&mut self, nodes: &mut Nodes) {
        let _ = nodes;
    }

    /// Nodes of which those above do not know yet.
    fn pending(&self) -> &[Id] {
        &[]
    }

    /// Times that work put off was done.
    fn flushes(&self) -> u64 {
        0
    }

    /// Bytes that its own structures take.
    fn memory(&self) -> usize {
        0
    }
}

/// Linux 3.8: up to the first node that does not change.
#[derive(Debug, Clone, Copy, Default)]
pub struct EarlyStop;

impl EarlyStop {
    /// Up from `id`, to below `until`.
    #[inline]
    fn climb(nodes: &mut Nodes, id: Id, until: Id) {
        let mut at = id;
        while at != until && nodes.recompute(at) {
            at = nodes[at].parent;
        }
    }
}

impl Propagation for EarlyStop {
    #[inline]
    fn changed(&mut self, nodes: &mut Nodes, id: Id) {
        EarlyStop::climb(nodes, id, NIL);
    }

    fn lost(&mut self, nodes: &mut Nodes, lowest: Id, moved: Id) {
        if moved == NIL {
            EarlyStop::climb(nodes, lowest, NIL);
        } else {
            // `moved` has the number of the VMA whose place it took: it is recomputed even if
            // nothing below it changed.
            EarlyStop::climb(nodes, lowest, moved);
            EarlyStop::climb(nodes, moved, NIL);
        }
    }
}

/// Van Riel's first form: up to the root.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToRoot;

impl Propagation for ToRoot {
    const UNCONDITIONAL: bool = true;

    fn changed(&mut self, nodes: &mut Nodes, id: Id) {
        let mut at = id;
        while at != NIL {
            nodes.recompute(at);
            at = nodes[at].parent;
        }
    }

    fn lost(&mut self, nodes: &mut Nodes, lowest: Id, _: Id) {
        // `moved` is on the way.
        self.changed(nodes, lowest);
    }
}
