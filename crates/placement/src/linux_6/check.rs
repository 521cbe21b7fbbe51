//! The invariants of [`Tree`], carried out.

use alloc::format;
use alloc::string::String;

use crate::contract::{Merge, Range};

use super::node::{Child, Item, Slots};
use super::tree::{Tree, alike};

/// Nodes met by a walk.
#[derive(Default)]
struct Met {
    leaves: usize,
    inners: usize,
    vmas: u64,
    /// The slot of a leaf met last.
    last: Option<(Range, Option<Merge>)>,
}

impl Tree {
    /// Whether everything is as [`Tree`] says.
    ///
    /// # Errors
    /// The first thing that is not.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut met = Met::default();
        self.check_node(self.root, 0, self.window, &mut met)?;
        let counted = [
            ("leaves", met.leaves as u64, self.leaves.in_use() as u64),
            (
                "inner nodes",
                met.inners as u64,
                self.inners.in_use() as u64,
            ),
            ("VMAs", met.vmas, self.vmas),
        ];
        for (what, met, kept) in counted {
            if met != kept {
                return Err(format!("{met} {what} are in the tree, {kept} are counted"));
            }
        }
        Ok(())
    }

    /// Checks what is below a node of `range`, and returns its largest gap.
    fn check_node(
        &self,
        node: u32,
        level: usize,
        range: Range,
        met: &mut Met,
    ) -> Result<u64, String> {
        if level == self.height {
            met.leaves += 1;
            let leaf = &self.leaves[node];
            check_slots(
                leaf,
                if level == 0 {
                    1
                } else {
                    Slots::<Option<Merge>, 16>::FEWEST
                },
                range,
            )?;
            let (mut start, mut gap) = (range.start, 0);
            for (&end, &item) in leaf.ends().iter().zip(leaf.items()) {
                let slot = Range::new(start, end);
                if let Some((last, _)) = met.last.filter(|&(_, last)| alike(last, item)) {
                    return Err(format!("{last} and {slot} are alike, and two slots"));
                }
                met.last = Some((slot, item));
                met.vmas += u64::from(item.is_some());
                gap = gap.max(item.gap(slot.length()));
                start = end;
            }
            return Ok(gap);
        }
        met.inners += 1;
        let inner = &self.inners[node];
        check_slots(
            inner,
            if level == 0 {
                2
            } else {
                Slots::<Child, 10>::FEWEST
            },
            range,
        )?;
        let (mut start, mut largest) = (range.start, 0);
        for (&end, child) in inner.ends().iter().zip(inner.items()) {
            let below = Range::new(start, end);
            let gap = self.check_node(child.node, level + 1, below, met)?;
            if gap != child.gap {
                return Err(format!(
                    "the largest gap in {below} is {gap:x}, but {:x} is remembered",
                    child.gap
                ));
            }
            largest = gap.max(largest);
            start = end;
        }
        if inner.widest() >= inner.count() || inner.gap() != largest {
            return Err(format!(
                "slot {} of {range} is not that of its largest gap, {largest:x}",
                inner.widest()
            ));
        }
        Ok(largest)
    }
}

/// A node of `range` has enough slots, they ascend, and the last ends where the node does.
fn check_slots<T: Item<N>, const N: usize>(
    node: &Slots<T, N>,
    fewest: usize,
    range: Range,
) -> Result<(), String> {
    if node.count() < fewest || node.count() > N {
        return Err(format!("the node of {range} has {} slots", node.count()));
    }
    let mut last = range.start;
    for &end in node.ends() {
        if end <= last {
            return Err(format!(
                "in {range} a slot ends at {end:x}, not above {last:x}"
            ));
        }
        last = end;
    }
    if last != range.end {
        return Err(format!("the slots of {range} end at {last:x}"));
    }
    Ok(())
}
