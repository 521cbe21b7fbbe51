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

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::order::{Inserted as _, SortRows};

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

/// Own instructions of each function, all operations, and how many of them were elsewhere.
fn own(profile: &Profile) -> BTreeMap<&str, [u64; 2]> {
    let mut functions: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for stack in &profile.stacks {
        let own = stack.frames.last().map_or(UNKNOWN, String::as_str);
        let sums = functions.entry(own).or_default();
        sums[0] += stack.instructions;
        if is_elsewhere(&stack.frames) {
            sums[1] += stack.instructions;
        }
    }
    functions
}

/// Whether an interrupt or a thread of the kernel ran it, which came while the operation lasted and did not do its work.
fn is_elsewhere(frames: &[String]) -> bool {
    frames.iter().any(|frame| {
        frame.starts_with("asm_sysvec_")
            || frame.starts_with("sysvec_")
            || ["asm_common_interrupt", "common_interrupt", "kthread"].contains(&&**frame)
    })
}

/// A kernel's profiles of one operation, one a layout; the figures are the first one's.
pub(crate) type Layouts<'a> = [&'a Profiled];

/// Each function of either kernel, in the order of [`Function::stands_out`]. Empty where a side has no operations.
///
/// The figures are those of the first layout. What differs between two layouts of the same kernel is known to come and go without
/// a change of the code.
#[must_use]
pub(crate) fn differences(before: &Layouts<'_>, after: &Layouts<'_>) -> Vec<Function> {
    let own = |of: &&Profiled| {
        let operations = of.profile.operations;
        let each = own(&of.profile).into_iter();
        let shares = each.filter_map(|(name, sums)| {
            let share = |sum| share(sum, operations);
            Some((name.to_owned(), [share(sums[0])?, share(sums[1])?]))
        });
        shares.inserted()
    };
    let sides: [Vec<BTreeMap<String, [f64; 2]>>; 2] =
        [before, after].map(|layouts| layouts.iter().map(own).collect());
    let [Some(&first), Some(&later)] = [before.first(), after.first()] else {
        return Vec::new();
    };
    if first.profile.operations == 0 || later.profile.operations == 0 {
        return Vec::new();
    }
    let names: BTreeSet<&String> = sides
        .iter()
        .flat_map(|layouts| layouts.iter().flat_map(BTreeMap::keys))
        .inserted();
    let row = |name: &String| {
        let of = |layout: &BTreeMap<String, [f64; 2]>, part: usize| -> f64 {
            layout.get(name).map_or(0.0, |own| own[part])
        };
        let [old, new] = [0, 1].map(|side: usize| Some(sides[side][0].get(name)?[0]));
        let between = sides.iter().filter(|layouts| layouts.len() > 1);
        let between = between.map(|layouts| {
            let each = || layouts.iter().map(|layout| of(layout, 0) - of(layout, 1));
            each().fold(f64::MIN, f64::max) - each().fold(f64::MAX, f64::min)
        });
        Function {
            before_kernel: first.kernel,
            after_kernel: later.kernel,
            cell: later.cell.clone(),
            operation: later.operation.clone(),
            function: name.to_owned(),
            before: old,
            after: new,
            difference: new.unwrap_or(0.0) - old.unwrap_or(0.0),
            elsewhere: of(&sides[1][0], 1) - of(&sides[0][0], 1),
            between_layouts: between.reduce(f64::max),
        }
    };
    let mut all: Vec<Function> = names.into_iter().map(row).collect();
    all.sort_rows(by_rank);
    all
}

/// Those first that stand out most, then the largest difference, whichever way.
pub(crate) fn by_rank(a: &Function, b: &Function) -> Ordering {
    let stands_out = b.stands_out().total_cmp(&a.stands_out());
    stands_out.then_with(|| b.difference.abs().total_cmp(&a.difference.abs()))
}

#[cfg(test)]
mod tests;
