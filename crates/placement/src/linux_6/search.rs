//! mas_empty_area and mas_empty_area_rev: the lowest and the highest empty slot of a size.

use crate::contract::Range;

use super::node::{Item, Slots};
use super::tree::{Cursor, Frame, Tree};

/// Result of a search in one node.
enum Step {
    /// This slot leads on, or is the answer.
    Slot(usize),
    /// None of the slots that were left will do: back to the node above.
    Back,
    /// Nor will any slot of the nodes above.
    End,
}

/// Looks through a node upwards from its frame's slot on. An empty slot is clipped to the limits; the
/// gap below an inner slot is not, so that the search may go down where nothing will do, and come back.
#[inline]
fn upwards<T: Item<N>, const N: usize>(
    node: &Slots<T, N>,
    frame: Frame,
    limits: Range,
    size: u64,
) -> Step {
    for (slot, item) in node.items().iter().enumerate().skip(frame.slot()) {
        // First what nearly all slots fail: few are ever looked at twice.
        if !item.may_have(size) {
            continue;
        }
        let (start, end) = (node.start_of(slot, frame.start), node.ends()[slot]);
        if start >= limits.end {
            return Step::End;
        }
        if end > limits.start {
            let length = end.min(limits.end) - start.max(limits.start);
            if item.gap(length) >= size {
                return Step::Slot(slot);
            }
        }
    }
    Step::Back
}

/// The mirror of [`upwards`]: the first gap that is large enough from where it starts to the limits'
/// end is the answer, or there is none: the part inside the limits of those below is shorter still.
#[inline]
fn downwards<T: Item<N>, const N: usize>(
    node: &Slots<T, N>,
    frame: Frame,
    limits: Range,
    size: u64,
) -> Step {
    let from = node.count().min(frame.slot() + 1);
    for (slot, item) in node.items()[..from].iter().enumerate().rev() {
        if !item.may_have(size) {
            continue;
        }
        let (start, end) = (node.start_of(slot, frame.start), node.ends()[slot]);
        if start < limits.end && limits.end - start >= size && item.gap(end - start) >= size {
            return if end < limits.start + size {
                Step::End
            } else {
                Step::Slot(slot)
            };
        }
    }
    Step::Back
}

impl Tree {
    /// The lowest slot that has `size` empty bytes inside `limits`. Adds the nodes looked at to
    /// `visited`, each as often as the search comes to it. Without an answer the cursor is at none.
    pub(super) fn lowest(
        &self,
        limits: Range,
        size: u64,
        at: &mut Cursor,
        visited: &mut u64,
    ) -> bool {
        self.search::<true>(limits, size, at, visited)
    }

    /// The highest such slot.
    pub(super) fn highest(
        &self,
        limits: Range,
        size: u64,
        at: &mut Cursor,
        visited: &mut u64,
    ) -> bool {
        self.search::<false>(limits, size, at, visited)
    }

    fn search<const UP: bool>(
        &self,
        limits: Range,
        size: u64,
        at: &mut Cursor,
        visited: &mut u64,
    ) -> bool {
        // A node is entered at its first slot, or, downwards, at whichever is its last.
        let enter = |node, start| Frame::at(node, if UP { 0 } else { usize::from(u8::MAX) }, start);
        at.frames[0] = enter(self.root, self.window.start);
        let mut level = 0;
        loop {
            *visited += 1;
            let frame = at.frames[level];
            let leaf = level == self.height;
            let step = match (leaf, UP) {
                (true, true) => upwards(&self.leaves[frame.node], frame, limits, size),
                (true, false) => downwards(&self.leaves[frame.node], frame, limits, size),
                (false, true) => upwards(&self.inners[frame.node], frame, limits, size),
                (false, false) => downwards(&self.inners[frame.node], frame, limits, size),
            };
            match step {
                Step::End => return false,
                Step::Slot(slot) => {
                    at.frames[level] = Frame::at(frame.node, slot, frame.start);
                    if leaf {
                        return true;
                    }
                    let inner = &self.inners[frame.node];
                    let start = inner.start_of(slot, frame.start);
                    level += 1;
                    at.frames[level] = enter(inner.items()[slot].node, start);
                }
                // To the nearest node above that has a slot left.
                Step::Back => loop {
                    if level == 0 {
                        return false;
                    }
                    level -= 1;
                    let frame = &mut at.frames[level];
                    if UP && frame.slot() + 1 < self.inners[frame.node].count() {
                        frame.slot += 1;
                        break;
                    }
                    if !UP && frame.slot > 0 {
                        frame.slot -= 1;
                        break;
                    }
                },
            }
        }
    }
}
