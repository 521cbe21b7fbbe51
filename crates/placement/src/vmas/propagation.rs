//! When a change of a gap reaches the nodes above it.

use super::nodes::{Id, Nodes};

/// A way of propagating. Its methods are called when the list and the tree have their new form, but
/// for the balance.
pub(crate) trait Propagation: Default {
    /// Whether nodes know the largest gap below them at all. Without, rotations recompute nothing.
    const AUGMENTED: bool = true;

    /// Whether `vma_adjust` ends by propagating from the VMA, an inserted one and the successors of
    /// both, even where nothing changed.
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

/// No number, nothing to propagate: Linux up to 3.7.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plain;

impl Propagation for Plain {
    const AUGMENTED: bool = false;

    #[inline]
    fn changed(&mut self, _: &mut Nodes, _: Id) {}

    #[inline]
    fn lost(&mut self, _: &mut Nodes, _: Id, _: Id) {}
}
