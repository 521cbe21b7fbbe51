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
use stopgap_events::order::SortRows;
use stopgap_guest::protocol::{Counted, Counts, Dma};
use stopgap_stats::quantile::median;

pub use crate::functions::{Profile, Stack};
pub use config::differences;
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
    /// The boot. One that is not whole says nothing else.
    pub boot: Boot,
    /// `uname -r` of the guest.
    pub release: Option<String>,
    /// Counts of operations.
    pub said: Vec<Counted>,
    /// Readings of the IOMMU, by workload.
    pub dma: Vec<(String, Dma)>,
    /// Cells that the guest could not measure.
    pub missing: Vec<Missing>,
}

/// Completes `record`, which says what was planned, by what was measured: each later kernel against the first. `cells` are
/// the names of the workloads in the order in which they are shown.
#[must_use]
pub fn judge(mut record: Kernels, cells: &[String], measured: Vec<Measured>) -> Kernels {
    SCHEMA.clone_into(&mut record.schema);
    env!("CARGO_PKG_VERSION").clone_into(&mut record.version);
    UNIT.clone_into(&mut record.unit);
    record.repetitions = REPETITIONS;
    record.cannot_tell = cannot_tell();
    let mut configs = Vec::new();
    for mut measured in measured {
        set_aside(&mut measured.boots);
        let mut kernel = measured.kernel;
        kernel.cells = counted(cells, &record.seeds, &measured.boots);
        kernel.dma = dma(cells, &record.seeds, &measured.boots);
        for booted in measured.boots {
            for Missing { what, why } in booted.missing {
                let of_kernel = Missing::new(format!("{}: {what}", kernel.name), why);
                if !record.missing.contains(&of_kernel) {
                    record.missing.push(of_kernel);
                }
            }
            kernel.boots.push(booted.boot);
        }
        configs.push(measured.config);
        record.kernels.push(kernel);
    }
    let later = 1..record.kernels.len();
    record.against = later
        .map(|after| against(&record, cells, &configs, after))
        .collect();
    record
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
        let seed = boot.boot.seed;
        if !seeds.contains(&seed) && whole_of(boots, seed).any(|other| !other.says_as(boot)) {
            seeds.push(seed);
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
        let odd = boots.iter().position(|one| {
            let (same, others): (Vec<_>, Vec<_>) =
                whole_of(boots, seed).partition(|other| other.says_as(one));
            let alone = one.boot.whole && one.boot.seed == seed && same.len() == 1;
            alone
                && others.len() >= (REPETITIONS + AGAIN - 1) as usize
                && others.iter().all(|other| other.says_as(others[0]))
        });
        if let Some(at) = odd {
            boots[at].boot.set_aside = true;
        }
    }
}

/// The boots of a layout that came to their end and count.
fn whole_of(boots: &[Booted], seed: u64) -> impl Iterator<Item = &Booted> {
    boots.iter().filter(move |booted| {
        booted.boot.whole && booted.boot.seed == seed && !booted.boot.set_aside
    })
}

impl Booted {
    /// Whether every figure is the same.
    fn says_as(&self, other: &Booted) -> bool {
        (&self.said, &self.dma) == (&other.said, &other.dma)
    }
}

/// Names of workloads and operations, each once, in the order of `cells`; operations in the order in which they come.
fn in_order<'n>(
    cells: &[String],
    names: impl Iterator<Item = (&'n str, &'n str)>,
) -> Vec<(&'n str, &'n str)> {
    let mut once: Vec<(&str, &str)> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    let place = |cell: &str| cells.iter().position(|name| name == cell);
    once.sort_rows_by_key(|(cell, _)| place(cell).unwrap_or(cells.len()));
    once
}

/// The first of what the boots of a layout said, and whether all of them said the same; null where only one came to its end.
fn agreed<T: PartialEq>(told: &[Option<T>]) -> Option<(&T, Option<bool>)> {
    let first = told.iter().flatten().next()?;
    let same = told.iter().all(|one| one.as_ref() == Some(first));
    Some((first, (told.len() >= REPETITIONS as usize).then_some(same)))
}

/// The counts of each operation by layout.
fn counted(cells: &[String], seeds: &[u64], boots: &[Booted]) -> Vec<Cell> {
    let said = boots.iter().filter(|booted| !booted.boot.set_aside);
    let said = said.flat_map(|booted| &booted.said);
    let names = in_order(cells, said.map(|said| (&*said.name, &*said.operation)));
    let cell = |(cell, operation): (&str, &str)| {
        let sample = |&seed: &u64| {
            let counts = |booted: &'_ Booted| -> Option<Counts> {
                let mut said = booted.said.iter();
                let found = said.find(|said| said.name == cell && said.operation == operation)?;
                Some(found.counts.clone())
            };
            let told: Vec<_> = whole_of(boots, seed).map(counts).collect();
            let (counts, repeats) = agreed(&told)?;
            let (modes, outside) = modes::modes(counts);
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
                counts: counts.clone(),
            })
        };
        Cell {
            cell: cell.to_owned(),
            operation: operation.to_owned(),
            seeds: seeds.iter().filter_map(sample).collect(),
        }
    };
    names.into_iter().map(cell).collect()
}

/// The readings of the IOMMU of each workload that has some, by layout.
fn dma(cells: &[String], seeds: &[u64], boots: &[Booted]) -> Vec<DmaCell> {
    let of = |cell: &String| {
        let sample = |&seed: &u64| {
            let reading = |booted: &Booted| {
                let found = booted.dma.iter().find(|(name, _)| name == cell)?;
                Some(found.1.clone())
            };
            let told: Vec<Option<Dma>> = whole_of(boots, seed).map(reading).collect();
            let (dma, repeats) = agreed(&told)?;
            let dma = dma.clone();
            Some(DmaSample { seed, repeats, dma })
        };
        DmaCell {
            cell: cell.clone(),
            seeds: seeds.iter().filter_map(sample).collect(),
        }
    };
    let cells = cells.iter().map(of);
    cells.filter(|cell| !cell.seeds.is_empty()).collect()
}

fn against(
    record: &Kernels,
    cells: &[String],
    configs: &[Option<String>],
    after: usize,
) -> Against {
    let [old, new] = [&record.kernels[0], &record.kernels[after]];
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
    // A row for each operation that either kernel has, and one for each planned workload that neither has.
    let measured = old.cells.iter().chain(&new.cells);
    let mut names: Vec<(&str, &str)> = measured
        .map(|cell| (&*cell.cell, &*cell.operation))
        .collect();
    let absent = cells
        .iter()
        .filter(|cell| names.iter().all(|(name, _)| name != cell));
    let absent: Vec<_> = absent.map(|cell| (&**cell, "")).collect();
    names.extend(absent);
    let names = in_order(cells, names.into_iter());
    let rows: Vec<Row> = names
        .into_iter()
        .map(|(cell, operation)| row(cell, operation, [old, new], record.margin))
        .collect();
    Against {
        before: 0,
        after,
        cause,
        config: config.unwrap_or_default(),
        verdict: verdict(&rows, record.interrupted),
        gate: gate(&rows, record.margin * 100.0, record.interrupted),
        rows,
    }
}

/// Compares an operation on two kernels.
fn row(cell: &str, operation: &str, kernels: [&Kernel; 2], margin: f64) -> Row {
    let samples = kernels.map(|kernel| {
        let mut cells = kernel.cells.iter();
        let found = cells.find(|one| one.cell == cell && one.operation == operation);
        found.map_or(&[][..], |cell| &cell.seeds)
    });
    let modes = samples.map(|samples| {
        let each = samples.iter().map(|sample| sample.modes.len());
        each.max().unwrap_or(0)
    });
    let mut row = Row {
        cell: cell.to_owned(),
        operation: operation.to_owned(),
        word: Word::Inconclusive,
        why: String::new(),
        standing: Standing::CannotTell,
        seeds: Vec::new(),
        median: None,
        mean: None,
        modes,
    };
    if let Some(what) = broken(cell, kernels, samples) {
        row.word = Word::Void;
        row.standing = Standing::Error;
        row.why = format!("the tool is at fault: two boots of the {what}");
        return row;
    }
    let [before, after] = samples;
    let pairs: Vec<[&Sample; 2]> = before
        .iter()
        .filter_map(|old| {
            let new = after.iter().find(|new| new.seed == old.seed)?;
            let sure = [old, new].iter().all(|side| side.repeats == Some(true));
            sure.then_some([old, new])
        })
        .collect();
    let other_work = pairs
        .iter()
        .find(|[old, new]| old.operations != new.operations);
    row.why = match [before.is_empty(), after.is_empty()] {
        [true, true] => "neither kernel gave figures".to_owned(),
        [true, false] => "the first kernel gave no figures".to_owned(),
        [false, true] => "the later kernel gave no figures".to_owned(),
        _ if pairs.is_empty() => "no layout was booted twice on both kernels".to_owned(),
        _ => other_work.map_or(String::new(), |[old, new]| {
            format!(
                "not the same work: {} and {} operations under layout {}",
                old.operations, new.operations, old.seed
            )
        }),
    };
    if !row.why.is_empty() {
        return row;
    }
    row.seeds = pairs.iter().map(|[old, _]| old.seed).collect();
    let figure = |of: fn(&Sample) -> (u64, u64)| {
        let layout = |[old, new]: &[&Sample; 2]| (of(old).0, of(new).0, of(old).1);
        Figure::of(&pairs.iter().map(layout).collect::<Vec<_>>())
    };
    let median = figure(|sample| (sample.median, 1));
    let mean = figure(|sample| (sample.total, sample.operations));
    let same = pairs.iter().all(|[old, new]| old.counts == new.counts);
    (row.word, row.why) = match same {
        true => (Word::Identical, String::new()),
        false => word(&median, &mean, modes),
    };
    row.standing = standing(row.word, [&median, &mean], margin);
    (row.median, row.mean) = (Some(median), Some(mean));
    row
}

/// Which kernel's boots do not say the same, under which layout, and of what.
fn broken(cell: &str, kernels: [&Kernel; 2], samples: [&[Sample]; 2]) -> Option<String> {
    const SIDES: [&str; 2] = ["first", "later"];
    let counts = SIDES.into_iter().zip(samples).find_map(|(side, samples)| {
        let one = samples.iter().find(|one| one.repeats == Some(false))?;
        let seed = one.seed;
        Some(format!(
            "{side} kernel under layout {seed} do not give the same counts"
        ))
    });
    let dma = || {
        SIDES.into_iter().zip(kernels).find_map(|(side, kernel)| {
            let of_cell = kernel.dma.iter().filter(|dma| dma.cell == cell);
            let mut seeds = of_cell.flat_map(|dma| &dma.seeds);
            let seed = seeds.find(|one| one.repeats == Some(false))?.seed;
            Some(format!(
                "{side} kernel under layout {seed} do not say the same of the IOMMU"
            ))
        })
    };
    counts.or_else(dma)
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
        let each = |value: fn(&(u64, u64, u64)) -> f64| -> Vec<f64> {
            layouts.iter().map(value).collect()
        };
        let before = each(|&(before, _, by)| before as f64 / by as f64);
        let after = each(|&(_, after, by)| after as f64 / by as f64);
        let differences = each(|&(before, after, by)| {
            (i128::from(after) - i128::from(before)) as f64 / by as f64
        });
        let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
        let most = differences
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        let change = median(differences.clone()).unwrap_or_default();
        let spread = most - least;
        let enough = differences.len() >= MIN_SEEDS;
        let word = if least == 0.0 && most == 0.0 {
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
        let worst = |worst: f64, share: Option<f64>| Some(worst.max(share?));
        Figure {
            word,
            worst_share: shares.into_iter().try_fold(f64::NEG_INFINITY, worst),
            before,
            after,
            change,
            share: (level != 0.0).then(|| change / level),
            spread,
            differences,
        }
    }
}

fn verdict(rows: &[Row], interrupted: bool) -> Verdict {
    use Word::{Identical, Inconclusive, Longer, Mixed, NoDifferenceProven, Shorter, Void};
    let of = |word: Word| rows.iter().filter(move |row| row.word == word);
    let count = |word: Word| of(word).count();
    let all = rows.len();
    let said = |word: Word, text: String| Verdict {
        word,
        text: format!("{word}: {text}"),
    };
    if let Some(first) = of(Void).next() {
        let (void, name, why) = (count(Void), first.name(), &first.why);
        return said(Void, format!("{void} of {all}, first {name}: {why}"));
    }
    let word = match (count(Longer), count(Shorter)) {
        _ if count(Inconclusive) == all => Inconclusive,
        _ if count(Mixed) > 0 => Mixed,
        (0, 0) if count(Identical) == all => Identical,
        (0, 0) => NoDifferenceProven,
        (0, _) => Shorter,
        (_, 0) => Longer,
        _ => Mixed,
    };
    let order = [
        Longer,
        Shorter,
        Mixed,
        Identical,
        NoDifferenceProven,
        Inconclusive,
    ];
    let present = order.into_iter().filter(|&word| count(word) > 0);
    let parts = present.map(|word| {
        let part = format!("{} of {all} {word}", count(word));
        let shares = of(word).filter_map(|row| row.leading()?.share);
        match range(shares).filter(|_| matches!(word, Longer | Shorter)) {
            Some(range) => format!("{part} by {range}"),
            None => part,
        }
    });
    let mut text = match all {
        0 => "nothing was measured".to_owned(),
        _ => parts.collect::<Vec<_>>().join(", "),
    };
    if interrupted {
        text.push_str("; interrupted: less was measured than was planned");
    }
    said(word, text)
}

impl Row {
    /// `placement pbobench n=1000, map`.
    #[must_use]
    pub fn name(&self) -> String {
        match &*self.operation {
            "" => self.cell.clone(),
            operation => format!("{}, {operation}", self.cell),
        }
    }

    /// The figure that the row's word is of: the median's, unless only the mean is called.
    #[must_use]
    pub fn leading(&self) -> Option<&Figure> {
        let mut figures = self.median.iter().chain(&self.mean);
        let called = figures.find(|figure| figure.word == self.word);
        called.or(self.median.as_ref())
    }
}

/// Formats shares without their sign: `12.3 to 32.8 %`.
fn range(shares: impl Iterator<Item = f64>) -> Option<String> {
    let sizes: Vec<f64> = shares.map(|share| share.abs() * 100.0).collect();
    let least = sizes.iter().copied().min_by(f64::total_cmp)?;
    let most = sizes.iter().copied().max_by(f64::total_cmp)?;
    let (least, most) = (format!("{least:.2}"), format!("{most:.2}"));
    Some(match least == most {
        true => format!("{least} %"),
        false => format!("{least} to {most} %"),
    })
}

/// The decision on all rows; `margin` in per cent.
fn gate(rows: &[Row], margin: f64, interrupted: bool) -> Gate {
    // Nothing measured passes no gate; and what was not measured any more may have failed it.
    let standing = match rows.iter().map(|row| row.standing).max() {
        None => Standing::CannotTell,
        Some(Standing::Pass) if interrupted => Standing::CannotTell,
        Some(worst) => worst,
    };
    let those = rows.iter().filter(|row| row.standing == standing);
    let mut names: Vec<String> = those.map(Row::name).collect();
    if names.len() > 3 {
        let more = format!("and {} more", names.len() - 3);
        names.splice(3.., [more]);
    }
    let none = names.is_empty();
    let names = names.join("; ");
    let text = match standing {
        Standing::Pass => format!("pass: under no layout longer by more than {margin} %"),
        Standing::Fail => format!("fail: longer by more than {margin} %: {names}"),
        Standing::Error => format!("error: the tool is at fault: {names}"),
        Standing::CannotTell if rows.is_empty() => "cannot tell: nothing was measured".to_owned(),
        Standing::CannotTell if none => "cannot tell: interrupted".to_owned(),
        Standing::CannotTell => {
            format!("cannot tell whether longer by more than {margin} %: {names}")
        }
    };
    Gate { standing, text }
}

#[cfg(test)]
mod tests;
