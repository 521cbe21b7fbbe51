//! Which function grew: the guest instructions of an operation by function and caller, and how two kernels differ.
//!
//! # Contract
//!
//! A [`Profile`] is whole numbers: its stacks come to its instructions exactly, and so do its functions. Figures *an
//! operation* are those numbers divided by the operations, so that the differences of all functions come to the
//! difference of the two operations, but for rounding in the last bits.
//!
//! A function is its symbol without what a compiler appends (`.isra.0`, `.constprop.0`, `.part.0`, `.cold`): which
//! parts it splits off differs from build to build. Static functions of one name are one row; a function that was inlined
//! is a part of its caller. So a difference in a row may also be code that moved between a function and its callers.
//!
//! Pure. Cost: linear in stacks, with a sort.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::order::SortRows;

use crate::judge::{Function, Profiled};

/// What programs executed, not the kernel: the guest program itself. A row like a function.
pub(crate) const PROGRAM: &str = "[program]";

/// What was executed where no symbol is: modules, where only the kernel's own symbols are known; BPF.
pub(crate) const UNKNOWN: &str = "[no symbol]";

/// Guest instructions of some operations of one kind on one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// How many operations.
    pub operations: u64,
    /// Guest instructions of all of them.
    pub instructions: u64,
    /// By stack, in ascending order of frames, each once. They come to `instructions`.
    pub stacks: Vec<Stack>,
}

/// A function in the midst of its callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stack {
    /// Functions, each called by the one before; the last is the one whose instructions these are.
    pub frames: Vec<String>,
    /// Guest instructions of it, those of what it called left out.
    pub instructions: u64,
}

impl Profile {
    /// A profile of `stacks`, in any order, equal ones added up.
    #[must_use]
    pub fn of(operations: u64, stacks: impl IntoIterator<Item = (Vec<String>, u64)>) -> Profile {
        let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (frames, instructions) in stacks {
            let sum = sums.entry(frames).or_default();
            *sum = sum.saturating_add(instructions);
        }
        sums.retain(|_, instructions| *instructions > 0);
        let instructions = sums
            .values()
            .fold(0u64, |all, one| all.saturating_add(*one));
        let stack = |(frames, instructions)| Stack {
            frames,
            instructions,
        };
        Profile {
            operations,
            instructions,
            stacks: sums.into_iter().map(stack).collect(),
        }
    }

    /// Own instructions of each function, all operations. They come to `instructions`.
    #[must_use]
    pub fn functions(&self) -> BTreeMap<&str, u64> {
        let mut functions = BTreeMap::new();
        for stack in &self.stacks {
            let own = stack.frames.last().map_or(UNKNOWN, String::as_str);
            *functions.entry(own).or_default() += stack.instructions;
        }
        functions
    }

    /// Guest instructions an operation.
    #[must_use]
    pub fn each(&self) -> Option<f64> {
        share(self.instructions, self.operations)
    }
}

fn share(instructions: u64, operations: u64) -> Option<f64> {
    (operations > 0).then(|| instructions as f64 / operations as f64)
}

/// Each function of either kernel, the largest difference first, whichever way; of equal ones by name. Empty where a side
/// has no operations.
#[must_use]
pub(crate) fn differences(before: &Profiled, after: &Profiled) -> Vec<Function> {
    let sides = [before, after].map(|of| (of.profile.functions(), of.profile.operations));
    if sides.iter().any(|(_, operations)| *operations == 0) {
        return Vec::new();
    }
    let names: BTreeSet<&str> = sides
        .iter()
        .flat_map(|(own, _)| own.keys().copied())
        .collect();
    let row = |name: &str| {
        let each =
            |(own, operations): &(BTreeMap<&str, u64>, u64)| share(*own.get(name)?, *operations);
        let [old, new] = [each(&sides[0]), each(&sides[1])];
        Function {
            before_kernel: before.kernel,
            after_kernel: after.kernel,
            cell: after.cell.clone(),
            operation: after.operation.clone(),
            function: name.to_owned(),
            before: old,
            after: new,
            difference: new.unwrap_or(0.0) - old.unwrap_or(0.0),
        }
    };
    let mut all: Vec<Function> = names.into_iter().map(row).collect();
    all.sort_rows(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    all
}

#[cfg(test)]
mod tests;
