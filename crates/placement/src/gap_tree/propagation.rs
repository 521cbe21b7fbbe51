//! How far a change of a gap climbs: the two ways that were built.

use crate::vmas::{Id, NIL, Nodes, Propagation};

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
