//! Which kernel is shorter: exact counts of guests in emulation, judged.
//!
//! An emulator that counts instructions gives the same figures again and again, so there is no noise and nothing to be
//! tested by chance. Two ways to be wrong remain, and these rules are against them:
//!
//! * **The tool itself.** Every layout of every kernel is booted twice. Where their counts differ in any operation, the layout is
//!   booted [`AGAIN`] times more. One boot that differs from all others, which agree, is set aside and marked
//!   (`set_aside`). Else the counts are `void`: the tool is at fault, and the cell counts for nothing.
//! * **The layout.** Where a page-table page or a node of a tree happens to begin moves figures by more than a change of code
//!   does: a kernel that was made 62 instructions longer once came out 9.8 % shorter. Seeds are layout samples. Kernels are
//!   compared under the same layout. A change is called only if its sign is the same under *all* layouts, at least
//!   [`MIN_SEEDS`], and if the median change is larger than the largest less the smallest change.
//!
//! All else is `no difference proven`. `identical` means that every count of every operation is the same under every layout.
//!
//! Two figures an operation are judged: the median, and the mean, which has the rare and long operations that the median is
//! blind to. Where the two are proven to go different ways the row is `mixed`. Where the counts fall into several modes
//! ([`Mode`]) the median may jump from one to another because their shares shifted by little: there it is
//! called only where the mean says the same.
//!
//! Cost: linear in the pairs of counts. Pure.

mod config;
mod modes;
mod record;

use stopgap_events::machine::Missing;
use stopgap_guest::protocol::{Counts, Dma};

pub use crate::functions::{Profile, Stack};
pub use config::differences;
use stopgap_stats::quantile::median;

pub use modes::Mode;
pub use record::{
    Against, Boot, Cause, Cell, DmaCell, DmaSample, Emulator, Figure, Function, Gate, Kernel,
    Kernels, OptionDiffers, Profiled, Row, SCHEMA, Sample, Standing, UNIT, Verdict, Word, schema,
};

/// Layout samples below which no change is called.
pub const MIN_SEEDS: usize = 5;

/// How often a layout is booted once more where its boots do not say the same ([`differ`]).
pub const AGAIN: u32 = 2;

/// How often each layout is booted.
pub const REPETITIONS: u32 = 2;

/// The request, and the emulator that carried it out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The command line.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// By what share a later kernel may be longer and still pass.
    pub margin: f64,
    /// The layout samples.
    pub seeds: Vec<u64>,
    /// Names of the cells, in the order in which they are shown.
    pub cells: Vec<String>,
    /// The emulator of the guests.
    pub emulator: Emulator,
}

/// A kernel, and what its guests said.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its description; `judge` fills in boots and cells.
    pub kernel: Kernel,
    /// Its configuration, where it is known.
    pub config: Option<String>,
    /// Its boots.
    pub boots: Vec<Booted>,
}

/// The figures of one boot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Booted {
    /// The boot.
    pub boot: Boot,
    /// Counts of operations.
    pub said: Vec<Said>,
    /// Readings of the IOMMU, by workload.
    pub dma: Vec<(String, Dma)>,
    /// Cells that the guest could not measure.
    pub missing: Vec<Missing>,
}

/// The counts of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The workload.
    pub cell: String,
    /// The operation.
    pub operation: String,
    /// The counts.
    pub counts: Counts,
}

/// The record of what was measured: each later kernel against the first.
#[must_use]
pub fn judge(plan: &Plan, measured: Vec<Measured>) -> Kernels {
    let mut missing = Vec::new();
    let mut configs = Vec::new();
    let mut kernels = Vec::new();
    for mut measured in measured {
        set_aside(&mut measured.boots);
        let cells = cells(plan, &measured.boots);
        let dma = dma(plan, &measured.boots);
        let Measured {
            mut kernel,
            config,
            boots,
        } = measured;
        for booted in boots {
            for Missing { what, why } in booted.missing {
                let of_kernel = Missing::new(format!("{}: {what}", kernel.name), why);
                if !missing.contains(&of_kernel) {
                    missing.push(of_kernel);
                }
            }
            kernel.boots.push(booted.boot);
        }
        (kernel.cells, kernel.dma) = (cells, dma);
        configs.push(config);
        kernels.push(kernel);
    }
    let against = (1..kernels.len())
        .map(|after| Against::of(plan, &kernels, &configs, after))
        .collect();
    Kernels {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: plan.command.clone(),
        started_unix_s: plan.started_unix_s,
        interrupted: plan.interrupted,
        unit: UNIT.to_owned(),
        margin: plan.margin,
        seeds: plan.seeds.clone(),
        repetitions: REPETITIONS,
        emulator: plan.emulator.clone(),
        kernels,
        against,
        functions: Vec::new(),
        profiles: Vec::new(),
        cannot_tell: cannot_tell(),
        missing,
    }
}

/// Returns the conclusions that no figures of an emulator allow.
#[must_use]
pub fn cannot_tell() -> Vec<Missing> {
    [
        (
            "time",
            "a guest instruction has no duration: one may take a cycle or hundreds. Shorter is not faster",
        ),
        (
            "caches, TLB, branch prediction",
            "the emulator has none that cost anything: a path that is shorter and misses more looks better here",
        ),
        (
            "SMP, contention, locks that wait, IPIs",
            "the guest has one CPU and nobody beside it; what a lock costs uncontended is in the figures",
        ),
        (
            "memory pressure and background work",
            "nothing else runs in the guest, and it has memory enough: no reclaim, no compaction, no writeback",
        ),
        (
            "your CPU's own paths",
            "the kernels see the emulated CPU: without ERMS and FSRM copies are loops, and mitigations are chosen for it",
        ),
        (
            "operations that were not run",
            "of all that a kernel does the workloads use a little",
        ),
    ]
    .map(|(what, why)| Missing::new(what, why))
    .into()
}

/// Layouts whose boots came to their end and do not say the same, in the order in which they were booted.
#[must_use]
pub fn differ(boots: &[Booted]) -> Vec<u64> {
    let mut seeds: Vec<u64> = Vec::new();
    for boot in boots.iter().filter(|booted| booted.boot.whole) {
        let mut whole = whole_of(boots, boot.boot.seed);
        if !seeds.contains(&boot.boot.seed) && whole.any(|other| !other.says_as(boot)) {
            seeds.push(boot.boot.seed);
        }
    }
    seeds
}

/// Sets aside the boot that was disturbed, if one was: under its layout all others, [`REPETITIONS`] + [`AGAIN`] - 1 of them
/// at least, say the same and it does not.
///
/// On a host of two CPUs with ten runnable tasks, one boot of some hundred was seen to differ from all others, from one cell to the
/// last: as where the guest's clock moved against its instructions while it was idle. (QEMU moves the clock of an idle guest
/// from one thread and counts instructions in another; that this is the cause is not proven.) A guest that goes one of two
/// ways by itself is not hidden by this for long: where two boots differ, the next two agree with one of them, both with
/// the same, every other time only.
fn set_aside(boots: &mut [Booted]) {
    for seed in differ(boots) {
        let whole = whole_of(boots, seed).count();
        let odd = boots.iter().position(|one| {
            let others: Vec<_> = whole_of(boots, seed)
                .filter(|other| !other.says_as(one))
                .collect();
            one.boot.whole
                && one.boot.seed == seed
                && others.len() + 1 == whole
                && others.len() >= (REPETITIONS + AGAIN - 1) as usize
                && others.iter().all(|other| other.says_as(others[0]))
        });
        if let Some(at) = odd {
            boots[at].boot.set_aside = true;
        }
    }
}

fn whole_of(boots: &[Booted], seed: u64) -> impl Iterator<Item = &Booted> {
    let of_seed = move |booted: &&Booted| booted.boot.whole && booted.boot.seed == seed;
    boots.iter().filter(of_seed)
}

impl Booted {
    /// Whether every figure is the same.
    fn says_as(&self, other: &Booted) -> bool {
        (&self.said, &self.dma) == (&other.said, &other.dma)
    }
}

/// Which boot's words there are of a cell under a layout.
fn cells(plan: &Plan, boots: &[Booted]) -> Vec<Cell> {
    // The order of the plan, and of operations within a cell that of the guest.
    let mut names: Vec<(&str, &str)> = Vec::new();
    let counted = boots.iter().filter(|booted| !booted.boot.set_aside);
    for said in counted.flat_map(|booted| &booted.said) {
        let name = (&*said.cell, &*said.operation);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let place = |cell: &str| plan.cells.iter().position(|name| name == cell);
    names.sort_by_key(|(cell, _)| place(cell).unwrap_or(plan.cells.len()));
    let cell = |(cell, operation): (&str, &str)| Cell {
        cell: cell.to_owned(),
        operation: operation.to_owned(),
        seeds: plan
            .seeds
            .iter()
            .filter_map(|&seed| sample(seed, cell, operation, boots))
            .collect(),
    };
    names.into_iter().map(cell).collect()
}

fn sample(seed: u64, cell: &str, operation: &str, boots: &[Booted]) -> Option<Sample> {
    let of_seed = || {
        let counts = |booted: &&Booted| booted.boot.seed == seed && !booted.boot.set_aside;
        boots.iter().filter(counts)
    };
    let counts = |booted: &Booted| -> Vec<Counts> {
        let same = booted
            .said
            .iter()
            .filter(|said| said.cell == cell && said.operation == operation);
        same.map(|said| said.counts.clone()).collect()
    };
    // What a guest did not come to is unknown; what it was done with and did not say differs from what the other said.
    let told: Vec<Vec<Counts>> = of_seed()
        .filter(|booted| booted.boot.whole || !counts(booted).is_empty())
        .map(counts)
        .collect();
    let first = told.iter().find(|counts| !counts.is_empty())?;
    let once = told.iter().all(|counts| counts.len() == 1);
    let repeats =
        (told.len() >= REPETITIONS as usize).then(|| once && told.iter().all(|one| one == first));
    let counts = first.first()?.clone();
    let (modes, outside) = modes::modes(&counts);
    Some(Sample {
        seed,
        repeats,
        operations: counts.operations(),
        total: counts.total(),
        // A cell with no completed operation counts as not measured.
        least: counts.pairs().first()?.0,
        median: counts.median()?,
        most: counts.pairs().last()?.0,
        modes,
        outside,
        counts,
    })
}

/// Returns the guests' readings of the IOMMU, by cell.
fn dma(plan: &Plan, boots: &[Booted]) -> Vec<DmaCell> {
    let of = |cell: &String| {
        let sample = |&seed: &u64| {
            // A boot that came to its end without a reading differs from one with a reading.
            let of_seed = whole_of(boots, seed).filter(|booted| !booted.boot.set_aside);
            let told: Vec<Option<&Dma>> = of_seed
                .map(|booted| {
                    let mut dma = booted.dma.iter();
                    dma.find(|(name, _)| name == cell).map(|(_, dma)| dma)
                })
                .collect();
            let first = told.iter().copied().flatten().next()?;
            let repeats = (told.len() >= REPETITIONS as usize)
                .then(|| told.iter().all(|one| *one == Some(first)));
            Some(DmaSample {
                seed,
                repeats,
                dma: first.clone(),
            })
        };
        DmaCell {
            cell: cell.clone(),
            seeds: plan.seeds.iter().filter_map(sample).collect(),
        }
    };
    let cells = plan.cells.iter().map(of);
    cells.filter(|cell| !cell.seeds.is_empty()).collect()
}

impl Against {
    fn of(plan: &Plan, kernels: &[Kernel], configs: &[Option<String>], after: usize) -> Against {
        let [old, new] = [&kernels[0], &kernels[after]];
        let config = match [&configs[0], &configs[after]] {
            [Some(before), Some(after)] => Some(differences(before, after)),
            _ => None,
        };
        let cause = match &config {
            _ if old.sha256 == new.sha256 => Cause::SameImage,
            None => Cause::Unknown,
            Some(differs) if differs.is_empty() => Cause::Code,
            Some(_) => Cause::ConfigAndCode,
        };
        let rows = rows(plan, old, new);
        let verdict = verdict(&rows, plan.interrupted);
        let gate = gate(&rows, plan);
        Against {
            before: 0,
            after,
            cause,
            config: config.unwrap_or_default(),
            verdict,
            gate,
            rows,
        }
    }
}

/// A row for each operation that either kernel has, and one for each planned cell that neither has.
fn rows(plan: &Plan, old: &Kernel, new: &Kernel) -> Vec<Row> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for cell in old.cells.iter().chain(&new.cells) {
        let name = (&*cell.cell, &*cell.operation);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for cell in &plan.cells {
        if names.iter().all(|(name, _)| name != cell) {
            names.push((cell, ""));
        }
    }
    let place = |cell: &str| plan.cells.iter().position(|name| name == cell);
    names.sort_by_key(|(cell, _)| place(cell).unwrap_or(plan.cells.len()));
    let row = |(cell, operation): (&str, &str)| {
        let of = |kernel: &'_ Kernel| -> Vec<Sample> {
            let same = |one: &&Cell| one.cell == cell && one.operation == operation;
            let found = kernel.cells.iter().find(same);
            found.map(|cell| cell.seeds.clone()).unwrap_or_default()
        };
        let (before, after) = (of(old), of(new));
        let mut row = Row::of(&before, &after, plan);
        if row.word != Word::Void
            && let Some((side, seed)) = other_entries(cell, old, new)
        {
            row = Row {
                word: Word::Void,
                standing: Standing::Error,
                why: format!(
                    "the tool is at fault: two boots of the {side} kernel under layout {seed} do not say the same of the IOMMU"
                ),
                seeds: Vec::new(),
                median: None,
                mean: None,
                ..row
            };
        }
        (row.cell, row.operation) = (cell.to_owned(), operation.to_owned());
        row
    };
    names.into_iter().map(row).collect()
}

/// Which kernel's boots do not say the same of the IOMMU, and under which layout.
fn other_entries(cell: &str, old: &Kernel, new: &Kernel) -> Option<(&'static str, u64)> {
    let broken = |kernel: &Kernel| {
        let mut samples = kernel
            .dma
            .iter()
            .filter(|dma| dma.cell == cell)
            .flat_map(|dma| &dma.seeds);
        let broken = samples.find(|sample| sample.repeats == Some(false))?;
        Some(broken.seed)
    };
    let first = broken(old).map(|seed| ("first", seed));
    first.or_else(|| broken(new).map(|seed| ("later", seed)))
}

impl Row {
    fn of(before: &[Sample], after: &[Sample], plan: &Plan) -> Row {
        let modes = [before, after].map(|samples| {
            let each = samples.iter().map(|sample| sample.modes.len());
            each.max().unwrap_or(0)
        });
        let mut row = Row {
            cell: String::new(),
            operation: String::new(),
            word: Word::Inconclusive,
            why: String::new(),
            standing: Standing::CannotTell,
            seeds: Vec::new(),
            median: None,
            mean: None,
            modes,
        };
        for (side, samples) in [("first", before), ("later", after)] {
            let broken = samples
                .iter()
                .find(|sample| sample.repeats == Some(false))
                .map(|sample| sample.seed);
            if let Some(seed) = broken {
                row.word = Word::Void;
                row.standing = Standing::Error;
                row.why = format!(
                    "the tool is at fault: two boots of the {side} kernel under layout {seed} do not give the same counts"
                );
                return row;
            }
        }
        let pairs: Vec<[&Sample; 2]> = before
            .iter()
            .filter_map(|old| {
                let new = after.iter().find(|new| new.seed == old.seed)?;
                let sure = [old, new].iter().all(|side| side.repeats == Some(true));
                sure.then_some([old, new])
            })
            .collect();
        let nothing = match [before.is_empty(), after.is_empty()] {
            [true, true] => "neither kernel gave figures",
            [true, false] => "the first kernel gave no figures",
            [false, true] => "the later kernel gave no figures",
            [false, false] if pairs.is_empty() => "no layout was booted twice on both kernels",
            [false, false] => "",
        };
        row.why = nothing.to_owned();
        if !nothing.is_empty() {
            return row;
        }
        if let Some([old, new]) = pairs
            .iter()
            .find(|[old, new]| old.operations != new.operations)
        {
            row.why = format!(
                "not the same work: {} and {} operations under layout {}",
                old.operations, new.operations, old.seed
            );
            return row;
        }
        row.seeds = pairs.iter().map(|[old, _]| old.seed).collect();
        let median = pairs.iter().map(|[old, new]| (old.median, new.median, 1));
        let median = Figure::of(&median.collect::<Vec<_>>());
        let mean = pairs
            .iter()
            .map(|[old, new]| (old.total, new.total, old.operations));
        let mean = Figure::of(&mean.collect::<Vec<_>>());
        let same = pairs.iter().all(|[old, new]| old.counts == new.counts);
        (row.word, row.why) = if same {
            (Word::Identical, String::new())
        } else {
            word(&median, &mean, modes)
        };
        row.standing = standing(row.word, [&median, &mean], plan.margin);
        (row.median, row.mean) = (Some(median), Some(mean));
        row
    }
}

/// Combines median and mean of counts that are not all the same.
fn word(median: &Figure, mean: &Figure, modes: [usize; 2]) -> (Word, String) {
    use Word::{Identical, Longer, Mixed, NoDifferenceProven, Shorter};
    let several = modes.iter().any(|&modes| modes > 1);
    match (median.word, mean.word) {
        (Longer, Shorter) | (Shorter, Longer) => {
            let why = format!("the median is {}, the mean {}", median.word, mean.word);
            (Mixed, why)
        }
        (Longer, Longer) | (Shorter, Shorter) => (median.word, String::new()),
        (Longer | Shorter, _) if several => {
            let why = format!(
                "the median is {} and the mean is not: with several modes it may have jumped from one to another",
                median.word
            );
            (NoDifferenceProven, why)
        }
        (Longer | Shorter, other) => (median.word, format!("the median; the mean: {other}")),
        (other, Longer | Shorter) => (mean.word, format!("the mean; the median: {other}")),
        (Identical, Identical) => {
            let why = "median and mean are the same, and not each count";
            (NoDifferenceProven, why.to_owned())
        }
        _ => (NoDifferenceProven, why_not(median)),
    }
}

/// Why nothing is called of a figure.
fn why_not(figure: &Figure) -> String {
    let seeds = figure.differences.len();
    let signs = [1.0, -1.0].map(|sign| figure.differences.iter().any(|d| d * sign > 0.0));
    if seeds < MIN_SEEDS {
        let s = if seeds == 1 { "" } else { "s" };
        format!("{seeds} layout{s}; {MIN_SEEDS} are needed")
    } else if signs == [true, true] {
        "longer under some layouts, shorter under others".to_owned()
    } else if figure.differences.contains(&0.0) {
        "the same under some layouts, not under all".to_owned()
    } else {
        "it does not exceed what layouts make of it".to_owned()
    }
}

fn standing(word: Word, figures: [&Figure; 2], margin: f64) -> Standing {
    let beyond = |figure: &&Figure| {
        figure.word == Word::Longer && figure.share.is_none_or(|share| share > margin)
    };
    let within = |figure: &&Figure| {
        let enough = figure.differences.len() >= MIN_SEEDS;
        enough && figure.worst_share.is_some_and(|share| share <= margin)
    };
    match word {
        Word::Void => Standing::Error,
        Word::Identical => Standing::Pass,
        Word::Longer | Word::Mixed if figures.iter().any(beyond) => Standing::Fail,
        Word::Inconclusive => Standing::CannotTell,
        _ if figures.iter().all(within) => Standing::Pass,
        _ => Standing::CannotTell,
    }
}

impl Figure {
    /// Builds a figure of layouts: numerator before, numerator after and their denominator; at least one.
    fn of(layouts: &[(u64, u64, u64)]) -> Figure {
        let side = |value: u64, by: u64| value as f64 / by as f64;
        let before: Vec<f64> = layouts.iter().map(|one| side(one.0, one.2)).collect();
        let after: Vec<f64> = layouts.iter().map(|one| side(one.1, one.2)).collect();
        let difference = |&(before, after, by): &(u64, u64, u64)| {
            (i128::from(after) - i128::from(before)) as f64 / by as f64
        };
        let differences: Vec<f64> = layouts.iter().map(difference).collect();
        let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
        let most = differences
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let change = median(differences.clone()).unwrap_or_default();
        let spread = most - least;
        let enough = differences.len() >= MIN_SEEDS;
        let word = if differences.iter().all(|&difference| difference == 0.0) {
            Word::Identical
        } else if enough && least > 0.0 && change > spread {
            Word::Longer
        } else if enough && most < 0.0 && -change > spread {
            Word::Shorter
        } else {
            Word::NoDifferenceProven
        };
        let level = median(before.clone()).unwrap_or_default();
        let shares = before.iter().zip(&differences);
        let shares = shares.map(|(before, difference)| match (*before, *difference) {
            (_, 0.0) => Some(0.0),
            (0.0, _) => None,
            (before, difference) => Some(difference / before),
        });
        let worst_share = shares
            .collect::<Option<Vec<f64>>>()
            .map(|shares| shares.into_iter().fold(f64::NEG_INFINITY, f64::max));
        Figure {
            word,
            before,
            after,
            change,
            share: (level != 0.0).then(|| change / level),
            worst_share,
            spread,
            differences,
        }
    }
}

fn verdict(rows: &[Row], interrupted: bool) -> Verdict {
    let of = |word: Word| rows.iter().filter(move |row| row.word == word);
    let count = |word: Word| of(word).count();
    let (all, void) = (rows.len(), count(Word::Void));
    let said = |word: Word, text: String| Verdict {
        word,
        text: format!("{word}: {text}"),
    };
    if void > 0 {
        let first = of(Word::Void).next().map(Row::name).unwrap_or_default();
        let text = format!(
            "{void} of {all}, first {first}: {}",
            of(Word::Void).next().map_or("", |row| &row.why)
        );
        return said(Word::Void, text);
    }
    let (longer, shorter) = (count(Word::Longer), count(Word::Shorter));
    let word = match (longer, shorter) {
        _ if all == 0 || count(Word::Inconclusive) == all => Word::Inconclusive,
        _ if count(Word::Mixed) > 0 => Word::Mixed,
        (0, 0) if count(Word::Identical) == all => Word::Identical,
        (0, 0) => Word::NoDifferenceProven,
        (0, _) => Word::Shorter,
        (_, 0) => Word::Longer,
        _ => Word::Mixed,
    };
    let order = [
        Word::Longer,
        Word::Shorter,
        Word::Mixed,
        Word::Identical,
        Word::NoDifferenceProven,
        Word::Inconclusive,
    ];
    let parts = order
        .into_iter()
        .filter(|&word| count(word) > 0)
        .map(|word| {
            let part = format!("{} of {all} {word}", count(word));
            match range(of(word).filter_map(Row::leading_share)) {
                Some(range) if matches!(word, Word::Longer | Word::Shorter) => {
                    format!("{part} by {range}")
                }
                _ => part,
            }
        });
    let mut text = parts.collect::<Vec<_>>().join(", ");
    if all == 0 {
        "nothing was measured".clone_into(&mut text);
    }
    if interrupted {
        text.push_str("; interrupted: less was measured than was planned");
    }
    said(word, text)
}

impl Row {
    /// `placement pbobench n=1000, map`.
    #[must_use]
    pub fn name(&self) -> String {
        if self.operation.is_empty() {
            self.cell.clone()
        } else {
            format!("{}, {}", self.cell, self.operation)
        }
    }

    /// The figure that the row's word is of: the median's, unless only the mean is called.
    #[must_use]
    pub fn leading(&self) -> Option<&Figure> {
        let called = |figure: &&Figure| figure.word == self.word;
        let median = self.median.as_ref();
        median
            .filter(called)
            .or_else(|| self.mean.as_ref().filter(called))
            .or(median)
    }

    fn leading_share(&self) -> Option<f64> {
        self.leading()?.share
    }
}

/// Formats shares without their sign: `12.3 to 32.8 %`.
fn range(shares: impl Iterator<Item = f64>) -> Option<String> {
    let sizes: Vec<f64> = shares.map(|share| share.abs() * 100.0).collect();
    let least = sizes.iter().copied().min_by(f64::total_cmp)?;
    let most = sizes.iter().copied().max_by(f64::total_cmp)?;
    let (least, most) = (format!("{least:.2}"), format!("{most:.2}"));
    Some(if least == most {
        format!("{least} %")
    } else {
        format!("{least} to {most} %")
    })
}

fn gate(rows: &[Row], plan: &Plan) -> Gate {
    let margin = plan.margin * 100.0;
    let worst = rows.iter().map(|row| row.standing).max();
    // Nothing measured passes no gate; and what was not measured any more may have failed it.
    let standing = match worst {
        None => Standing::CannotTell,
        Some(Standing::Pass) if plan.interrupted => Standing::CannotTell,
        Some(worst) => worst,
    };
    let those: Vec<&Row> = rows.iter().filter(|row| row.standing == standing).collect();
    let names = those.iter().take(3).map(|row| row.name());
    let mut names = names.collect::<Vec<_>>().join("; ");
    if those.len() > 3 {
        names.push_str(&format!("; and {} more", those.len() - 3));
    }
    let text = match standing {
        Standing::Pass => format!("pass: under no layout longer by more than {margin} %"),
        Standing::Fail => format!("fail: longer by more than {margin} %: {names}"),
        Standing::Error => format!("error: the tool is at fault: {names}"),
        Standing::CannotTell if rows.is_empty() => "cannot tell: nothing was measured".to_owned(),
        Standing::CannotTell if those.is_empty() => "cannot tell: interrupted".to_owned(),
        Standing::CannotTell => {
            format!("cannot tell whether longer by more than {margin} %: {names}")
        }
    };
    Gate { standing, text }
}

#[cfg(test)]
mod tests;
