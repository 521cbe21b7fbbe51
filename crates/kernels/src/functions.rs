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

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// A function on two kernels, guest instructions an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    /// Its symbol.
    pub function: String,
    /// Its own instructions on the earlier kernel; `None` where nothing of it was executed.
    pub before: Option<f64>,
    /// On the later one.
    pub after: Option<f64>,
    /// After less before, what is missing taken for none.
    pub difference: f64,
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
pub(crate) fn differences(before: &Profile, after: &Profile) -> Vec<Difference> {
    if before.operations == 0 || after.operations == 0 {
        return Vec::new();
    }
    let sides = [before, after].map(|profile| (profile.functions(), profile.operations));
    let mut names: Vec<&str> = sides
        .iter()
        .flat_map(|(functions, _)| functions.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut all: Vec<Difference> = names
        .into_iter()
        .map(|name| {
            let [old, new] = [0, 1].map(|side| {
                let (functions, operations): &(BTreeMap<&str, u64>, u64) = &sides[side];
                functions.get(name).and_then(|&own| share(own, *operations))
            });
            let difference = new.unwrap_or(0.0) - old.unwrap_or(0.0);
            Difference {
                function: name.to_owned(),
                before: old,
                after: new,
                difference,
            }
        })
        .collect();
    all.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
    all
}

#[cfg(test)]
mod tests;
