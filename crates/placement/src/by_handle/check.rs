//! Statistics and invariants: everything walked.

use alloc::format;
use alloc::string::String;

use super::ByHandle;
use super::nodes::{EDGE, END, NONE, Node};
use crate::classes::{CLASSES, class_of};
use crate::contract::Statistics;

impl ByHandle {
    /// The nodes by address, from the edge to the end.
    pub(super) fn by_address(&self) -> impl Iterator<Item = (u32, Node)> + '_ {
        let mut next = Some(EDGE);
        core::iter::from_fn(move || {
            let number = next?;
            let node = self.nodes[number];
            next = (number != END).then_some(node.after);
            Some((number, node))
        })
    }

    /// Returns what it holds now. Walks everything.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let memory = size_of::<ByHandle>() + self.first.memory() + self.nodes.memory();
        let mut statistics = Statistics {
            memory: memory as u64,
            ..Statistics::default()
        };
        // Padding is free, and one hole with what is free beside it.
        let mut from = 0;
        for (number, node) in self.by_address() {
            if node.is_hole() {
                continue;
            }
            let (start, pages) = node.given();
            if start > from {
                statistics.add_hole(self.range((from, start - from)));
            }
            if number != END {
                statistics.add_range(self.range((start, pages)));
            }
            from = start + pages;
        }
        statistics
    }

    /// Whether its structures are as they must be.
    ///
    /// # Errors
    /// The first thing that is wrong, with the pages concerned.
    pub fn check(&self) -> Result<(), String> {
        let mut at = 0;
        let mut before = NONE;
        let mut was_hole = false;
        let mut holes = 0;
        for (number, node) in self.by_address() {
            let wrong = |what: &str| Err(format!("node {number} at page {at:x}: {what}"));
            if node.start() != at || node.before != before {
                return wrong("it is not where the one before it ends");
            }
            if node.pages == 0 && number != EDGE && number != END {
                return wrong("it has no pages");
            }
            if node.is_hole() && was_hole {
                return wrong("it touches a hole");
            }
            let padding = [node.next, node.previous].map(u64::from);
            if !node.is_hole() && padding.iter().any(|&side| side > node.pages / 2) {
                return wrong("it has more padding than pages");
            }
            was_hole = node.is_hole();
            holes += usize::from(was_hole && number != EDGE);
            (at, before) = (node.end(), number);
        }
        if at != self.space.window().length() >> self.shift {
            return Err(format!("the last ends at page {at:x}"));
        }
        let mut listed = 0;
        for class in 0..CLASSES {
            let mut before = None;
            for hole in self.list(class) {
                let node = self.nodes[hole];
                let links = before.is_none_or(|before| node.previous == before);
                if !node.is_hole() || class_of(node.pages) != class || !links {
                    return Err(format!("class {class}: node {hole} does not belong there"));
                }
                before = Some(hole);
                listed += 1;
            }
            if before.is_some() != self.nonempty.contains(class) {
                return Err(format!("class {class}: whether there are any is wrong"));
            }
        }
        if listed != holes {
            return Err(format!("{holes} holes, but {listed} in lists"));
        }
        Ok(())
    }
}
