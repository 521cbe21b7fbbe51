//! The record of a comparison of kernels, JSON `stopgap.kernels/1`.
//!
//! Nothing in it is of the host's clock but [`Kernels::started_unix_s`]: the same command gives the same record again.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;
use stopgap_events::words;
use stopgap_guest::protocol::{Counts, Dma};

use super::modes::Mode;
use crate::functions::Profile;

/// The name and version of the record's form.
pub const SCHEMA: &str = "stopgap.kernels/1";

/// The unit of every figure in the record. It is no unit of time.
pub const UNIT: &str = "guest instructions";

/// Kernels, each compared with the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernels {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970, UTC.
    pub started_unix_s: u64,
    /// Ctrl-C ended it: less was measured than was planned.
    pub interrupted: bool,
    /// [`UNIT`].
    pub unit: String,
    /// By what share a later kernel may be longer and still pass the gate.
    pub margin: f64,
    /// The layout samples that were planned.
    pub seeds: Vec<u64>,
    /// How often each layout sample was planned to be booted: 2, to see that the figures repeat.
    pub repetitions: u32,
    /// The emulator of the guests.
    pub emulator: Emulator,
    /// The kernels, in the order of the command line.
    pub kernels: Vec<Kernel>,
    /// Each later kernel against the first.
    pub against: Vec<Against>,
    /// Which functions grew or shrank, the largest difference of an operation first; empty where it was not asked for.
    pub functions: Vec<Function>,
    /// The stacks behind `functions`.
    pub profiles: Vec<Profiled>,
    /// Conclusions that the figures do not allow, each with the reason.
    pub cannot_tell: Vec<Missing>,
    /// Missing measurements, each with the reason.
    pub missing: Vec<Missing>,
}

/// The emulator of the guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Emulator {
    /// QEMU's version, as it gives it; null where no guest was started.
    pub qemu: Option<String>,
    /// The CPU model with its switched-off features, as `max,-la57,-erms,-fsrm`.
    pub cpu: Option<String>,
}

/// One kernel, and what was measured of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// As it was named on the command line.
    pub name: String,
    /// What its guest calls itself (`uname -r`), else what its file says; null where neither is known.
    pub release: Option<String>,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// SHA-256 of the kernel image that was booted.
    pub sha256: String,
    /// SHA-256 of the initramfs that it was booted with.
    pub initramfs_sha256: String,
    /// Where its configuration comes from, or why it is not known.
    pub config_from: String,
    /// Modules that its guest was to load, in that order.
    pub modules: Vec<String>,
    /// The emulator's command line. What differs from boot to boot, or lies in a folder that is gone by now, stands as a word:
    /// `SEED`, `KERNEL` (of a package), `INITRAMFS`.
    pub command_line: Vec<String>,
    /// Its boots, by seed and repetition.
    pub boots: Vec<Boot>,
    /// Its figures.
    pub cells: Vec<Cell>,
    /// Readings of the IOMMU, of the workloads that map buffers for DMA.
    #[serde(default)]
    pub dma: Vec<DmaCell>,
}

/// What the buffer of a workload took of the IOMMU on one kernel, and what a transfer through it showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DmaCell {
    /// The workload.
    pub cell: String,
    /// A row a layout sample.
    pub seeds: Vec<DmaSample>,
}

/// The same under one layout sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DmaSample {
    /// The layout sample.
    pub seed: u64,
    /// Whether all repetitions said the same; null where there was one repetition only.
    pub repeats: Option<bool>,
    /// The readings.
    pub dma: Dma,
}

/// One boot of one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Boot {
    /// Its layout sample.
    pub seed: u64,
    /// Which of the repetitions, from 0.
    pub repetition: u32,
    /// Whether the guest carried its plan out to the end.
    pub whole: bool,
    /// How it ended, in words.
    pub end: String,
    /// The guest's last lines, where it did not carry its plan out.
    pub last_lines: Vec<String>,
    /// Whether its figures are not those of all other boots of its layout, of which there are three: they count for nothing.
    #[serde(default)]
    pub set_aside: bool,
}

/// An operation of a workload, on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The workload, as `placement pbobench n=10000`.
    pub cell: String,
    /// The operation, as `map`.
    pub operation: String,
    /// A row a layout sample.
    pub seeds: Vec<Sample>,
}

/// A cell under one layout sample. All figures are guest instructions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The layout sample.
    pub seed: u64,
    /// Whether all repetitions gave the same counts, each of them; null where there was one repetition only.
    pub repeats: Option<bool>,
    /// How many operations were counted.
    pub operations: u64,
    /// The sum of all.
    pub total: u64,
    /// The fewest.
    pub least: u64,
    /// The median: of an even number of operations the lower of the two in the middle.
    pub median: u64,
    /// The most.
    pub most: u64,
    /// Clusters that are far apart; one where there is no such gap. See `modes` of a row.
    pub modes: Vec<Mode>,
    /// Operations that are in no mode, being too few.
    pub outside: u64,
    /// The exact counts, ascending: `17749x300 17750x2` are 300 operations of 17,749 and 2 of 17,750.
    pub counts: Counts,
}

/// A later kernel against the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Against {
    /// Which of the kernels, from 0: the earlier one.
    pub before: usize,
    /// The later one.
    pub after: usize,
    /// The possible cause of a difference.
    pub cause: Cause,
    /// Options in which the configurations differ, all of them: first those that both have.
    pub config: Vec<OptionDiffers>,
    /// The answer.
    pub verdict: Verdict,
    /// The gate's decision (`--gate`).
    pub gate: Gate,
    /// A row a cell and operation.
    pub rows: Vec<Row>,
}

/// The possible cause of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Cause {
    /// It is one and the same image.
    #[serde(rename = "same image")]
    SameImage,
    /// The configurations are the same.
    #[serde(rename = "code")]
    Code,
    /// They differ.
    #[serde(rename = "config + code")]
    ConfigAndCode,
    /// The configuration of one side is unknown.
    #[serde(rename = "code, and config for all that is known")]
    Unknown,
}

words!(
    Cause, "cause",
    SameImage "same image", Code "code", ConfigAndCode "config + code", Unknown "code, and config for all that is known"
);

/// A configuration option that differs. Null: the configuration does not name it, as a kernel that does not know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OptionDiffers {
    /// Its name, with `CONFIG_`.
    pub option: String,
    /// On the earlier kernel: `y`, `m`, `n`, a number, a text in quotes.
    pub before: Option<String>,
    /// On the later one.
    pub after: Option<String>,
}

/// The answer in a word, and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// For scripts.
    pub word: Word,
    /// For people, beginning with the word.
    pub text: String,
}

/// A verdict on a difference. Longer is more guest instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Word {
    /// Every count of every operation is the same under every layout.
    #[serde(rename = "identical")]
    Identical,
    /// More instructions under every layout, and by more than layouts differ.
    #[serde(rename = "longer")]
    Longer,
    /// Fewer.
    #[serde(rename = "shorter")]
    Shorter,
    /// Both are proven, of different things.
    #[serde(rename = "mixed")]
    Mixed,
    /// None of these. That they are the same is not proven either.
    #[serde(rename = "no difference proven")]
    NoDifferenceProven,
    /// There is nothing to compare, or too little.
    #[serde(rename = "inconclusive")]
    Inconclusive,
    /// Figures that must repeat bit by bit do not: the tool is at fault, and they count for nothing.
    #[serde(rename = "void")]
    Void,
}

words!(
    Word, "word",
    Identical "identical", Longer "longer", Shorter "shorter", Mixed "mixed", NoDifferenceProven "no difference proven", Inconclusive "inconclusive", Void "void"
);

/// The gate's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// For scripts.
    pub standing: Standing,
    /// The rows that decided it.
    pub text: String,
}

/// The gate's decision on a row, or on all. The least comes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Standing {
    /// Under no layout longer by more than the margin.
    #[serde(rename = "pass")]
    Pass,
    /// Not proven either way.
    #[serde(rename = "cannot tell")]
    CannotTell,
    /// Longer, by more than the margin.
    #[serde(rename = "fail")]
    Fail,
    /// The figures count for nothing: an error.
    #[serde(rename = "error")]
    Error,
}

words!(
    Standing, "standing",
    Pass "pass", CannotTell "cannot tell", Fail "fail", Error "error"
);

/// An operation of a workload, on both kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The workload.
    pub cell: String,
    /// The operation.
    pub operation: String,
    /// The verdict on the difference.
    pub word: Word,
    /// The reason, where the word needs one; else empty.
    pub why: String,
    /// The gate's decision on this row.
    pub standing: Standing,
    /// Layout samples that count: both kernels have them, and they repeat.
    pub seeds: Vec<u64>,
    /// The median operation; null where nothing can be compared.
    pub median: Option<Figure>,
    /// The mean operation: it has what the median is blind to, the rare and long ones.
    pub mean: Option<Figure>,
    /// The most modes that a layout has, of either kernel. Modes are clusters of at least 5 % of the operations between which
    /// there is a gap of at least 5 % of the smaller count, and of 32: where there are several, the median may jump from one to the
    /// other because their shares shifted by little.
    pub modes: [usize; 2],
}

/// A figure of an operation under each layout, on both kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// The verdict on this figure's difference.
    pub word: Word,
    /// The earlier kernel's, by layout.
    pub before: Vec<f64>,
    /// The later kernel's.
    pub after: Vec<f64>,
    /// After less before under the same layout.
    pub differences: Vec<f64>,
    /// The median of the differences.
    pub change: f64,
    /// The change as a share of the earlier kernel's median layout; null where that is 0.
    pub share: Option<f64>,
    /// The largest difference under any layout as such a share.
    pub worst_share: Option<f64>,
    /// The largest less the smallest difference: the effect of layouts.
    pub spread: f64,
}

/// How many guest instructions of an operation are a function's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Which of the kernels, from 0: the earlier one.
    pub before_kernel: usize,
    /// The later one.
    pub after_kernel: usize,
    /// The workload.
    pub cell: String,
    /// The operation.
    pub operation: String,
    /// The function's symbol.
    pub function: String,
    /// Guest instructions an operation, earlier kernel; null where it does not have the function.
    pub before: Option<f64>,
    /// Guest instructions an operation, later kernel.
    pub after: Option<f64>,
    /// After less before, what is missing taken for none.
    pub difference: f64,
    /// How much of the difference interrupts and threads of the kernel ran, which came while the operation lasted.
    #[serde(default)]
    pub elsewhere: f64,
    /// The most by which the rest of it differs between two layouts of one of the kernels; null where one layout was counted.
    #[serde(default)]
    pub between_layouts: Option<f64>,
}

impl Function {
    /// By how many guest instructions an operation's own work differs, beyond what differs between two layouts of one kernel.
    #[must_use]
    pub fn stands_out(&self) -> f64 {
        let own = (self.difference - self.elsewhere).abs();
        (own - self.between_layouts.unwrap_or(0.0)).max(0.0)
    }
}

/// The guest instructions of an operation on one kernel, by function and caller, under one layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Profiled {
    /// Which of the kernels, from 0.
    pub kernel: usize,
    /// The workload.
    pub cell: String,
    /// The operation.
    pub operation: String,
    /// All its operations.
    pub profile: Profile,
}

/// The record's schema.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Kernels).to_value()
}

impl Kernels {
    /// Says of each later kernel which functions differ from the first's, and keeps the profiles of the first layout. Takes the
    /// kernels' profiles layout by layout.
    pub fn take_profiles(&mut self, by_layout: Vec<Vec<Profiled>>) {
        self.functions.clear();
        let mut layouts: BTreeMap<(usize, &str, &str), Vec<&Profiled>> = BTreeMap::new();
        for of in by_layout.iter().flatten() {
            let operation = (of.kernel, &*of.cell, &*of.operation);
            layouts.entry(operation).or_default().push(of);
        }
        for (&(kernel, cell, operation), later) in &layouts {
            if let Some(first) = layouts.get(&(0, cell, operation)).filter(|_| kernel != 0) {
                let all = crate::functions::differences(first, later).into_iter();
                self.functions.extend(all.filter(|of| of.difference != 0.0));
            }
        }
        self.profiles = by_layout.into_iter().next().unwrap_or_default();
    }

    /// The functions that differ between the kernels of `against`: first those of operations that are proven to differ, and of these
    /// those that stand out most. Says how many explain a proven difference: they stand out in such an operation.
    pub(crate) fn functions_of(&self, against: &Against) -> (Vec<&Function>, usize) {
        let sides = (against.before, against.after);
        let of = |one: &&Function| (one.before_kernel, one.after_kernel) == sides;
        let proven = |one: &Function| {
            against.rows.iter().any(|row| {
                let operation = (&row.cell, &row.operation) == (&one.cell, &one.operation);
                operation && matches!(row.word, Word::Longer | Word::Shorter | Word::Mixed)
            })
        };
        let mut all: Vec<(bool, &Function)> = self
            .functions
            .iter()
            .filter(of)
            .map(|one| (proven(one), one))
            .collect();
        all.sort_rows(|a, b| {
            b.0.cmp(&a.0)
                .then_with(|| crate::functions::by_rank(a.1, b.1))
        });
        let explain = all
            .iter()
            .filter(|(proven, one)| *proven && one.stands_out() > 0.0);
        let explain = explain.count();
        (all.into_iter().map(|(_, one)| one).collect(), explain)
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
