//! Samples -> the answer. Pure.
//!
//! | seen | verdict |
//! |---|---|
//! | one strategy stalls in two runs or more | `stalls` |
//! | stalls, but no strategy twice | `inconclusive`: repeats disagree |
//! | long blocks, but no direct reclaim or compaction | `inconclusive`: not the allocator |
//! | free memory is in large blocks | `inconclusive: not fragmented`: nothing could stall |
//! | fragmented, but no strategy was made to compact | `inconclusive` |
//! | made fragmented on purpose, no strategy stalls twice, and runs put strategies in different orders | `inconclusive`: repeats disagree ([`Ranking`]) |
//! | a strategy had to compact, in two runs or more, and did not stall | `clean` |
//!
//! A block *stalls* if it is beyond its series' threshold and the kernel counted a direct
//! reclaim or compaction in the same child, or cannot count them. The others are *long*: a
//! busy machine, a virtual machine's host, memory that was never used before.

mod ranking;

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Privilege;
use stopgap_events::order::{Inserted as _, SortRows};
use stopgap_events::question::Question;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Block, Figure, Series};
use stopgap_stats::verdict::{Verdict, Word};

use super::Strategy;
use super::series::{BLOCK, RECLAIMS};
use crate::chunks::series::{PHYSICAL_RUNS, TAKE, entries_name};
use crate::chunks::take::IOMMUS;
use crate::contract::{Judgement, Measured, Parameters};

pub use {ranking::APART, ranking::Ranking};

/// Unusable-free-space index at which memory counts as fragmented at an order: below it,
/// more than half of what is free could be given out at once. (`vm.extfrag_threshold` compacts
/// from 0.5 on too, by its kindred index.)
pub const FRAGMENTED: f64 = 0.5;

/// Below this order the kernel never calls an allocation costly
/// (`PAGE_ALLOC_COSTLY_ORDER` is 3, Linux 6.12): the first order that may stall for compaction.
pub(super) const COSTLY_ORDER: u32 = 4;

/// Name of the fact that is there where memory was made fragmented.
pub(super) const KEPT_ONE_IN: &str = "kept_one_in";

/// Name of the fact that holds the index of an order.
pub(super) fn index_fact(order: u32) -> String {
    format!("index_order_{order}")
}

pub(super) fn judge(
    measured: Measured,
    parameters: Parameters,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let seen = Seen::from_measured(&measured);
    let mut advice = Vec::new();
    if let Some(stalled) = seen.stalled() {
        advice.extend(seen.advice(&stalled));
    }
    let judgement = Judgement {
        verdict: seen.verdict(),
        figure: seen.figure(seed),
        evidence: seen.evidence(),
        advice,
    };
    measured.into_answer(Question::Chunks, parameters, privilege, judgement)
}

/// The measurements of one strategy's blocks at one buffer size.
struct Row<'a> {
    strategy: Strategy,
    block: Bytes,
    chunk: Bytes,
    /// Bytes held at once.
    held: Bytes,
    direct: bool,
    blocks: &'a [Block],
    /// Runs in which no direct reclaim or compaction was counted.
    idle: BTreeSet<u32>,
}

/// The stalls of one strategy, all buffer sizes together.
struct Stalled {
    strategy: Strategy,
    runs: BTreeSet<u32>,
    count: u64,
    threshold_ns: u64,
    worst_ns: u64,
    worst_block: Bytes,
    /// Time spent in its blocks.
    spent: Nanos,
}

struct Seen<'a> {
    measured: &'a Measured,
    rows: Vec<Row<'a>>,
    runs: BTreeSet<u32>,
}

impl<'a> Seen<'a> {
    fn from_measured(measured: &'a Measured) -> Seen<'a> {
        let rows: Vec<Row<'a>> = measured
            .series
            .iter()
            .filter_map(|of| row(of, &measured.series))
            .collect();
        let runs = rows
            .iter()
            .flat_map(|row| row.blocks)
            .map(|block| block.run)
            .inserted();
        Seen {
            measured,
            rows,
            runs,
        }
    }

    fn fact(&self, name: &str) -> Option<f64> {
        self.measured.facts.get(name).copied()
    }

    fn order(&self, size: Bytes) -> Option<u32> {
        let page = self.fact("page_bytes")? as u64;
        size.0.checked_div(page)?.checked_ilog2()
    }

    fn index(&self, order: u32) -> Option<f64> {
        self.fact(&index_fact(order))
    }

    fn pmd_order(&self) -> Option<u32> {
        self.order(Bytes(self.fact("pmd_bytes")? as u64))
    }

    /// Free memory in blocks of this order or larger.
    fn usable(&self, order: u32) -> Option<f64> {
        Some(self.fact("free_bytes")? * (1.0 - self.index(order)?))
    }

    /// Stalls by strategy; the one seen in most runs, then with the longest block, first.
    fn stalls(&self) -> Vec<Stalled> {
        let mut by: BTreeMap<Strategy, Stalled> = BTreeMap::new();
        for row in &self.rows {
            let stalled = by.entry(row.strategy).or_insert_with(|| Stalled {
                strategy: row.strategy,
                runs: BTreeSet::new(),
                count: 0,
                threshold_ns: u64::MAX,
                worst_ns: 0,
                worst_block: row.block,
                spent: Nanos(0),
            });
            for block in row.blocks {
                if let Some(stalls) = &block.stalls {
                    stalled.threshold_ns = stalled.threshold_ns.min(stalls.threshold_ns);
                    if stalls.count > 0 && !row.idle.contains(&block.run) {
                        stalled.count += stalls.count;
                        stalled.runs.insert(block.run);
                    }
                }
                let worst = worst(block);
                if worst > stalled.worst_ns {
                    (stalled.worst_ns, stalled.worst_block) = (worst, row.block);
                }
                stalled.spent += spent(block);
            }
        }
        let mut stalls: Vec<_> = by.into_values().filter(|s| s.count > 0).collect();
        stalls.sort_rows_by_key(|s| std::cmp::Reverse((s.runs.len(), s.worst_ns)));
        stalls
    }

    /// Blocks beyond the threshold that the allocator did not cause.
    fn long(&self) -> Option<String> {
        let rows = self.rows.iter();
        let blocks = rows.flat_map(|row| row.blocks.iter().map(move |block| (row, block)));
        let long = blocks.filter(|(row, block)| {
            let beyond = block.stalls.as_ref().is_some_and(|stalls| stalls.count > 0);
            beyond && row.idle.contains(&block.run)
        });
        let longest = long.map(|(_, block)| worst(block)).max()?;
        Some(format!(
            "blocks of up to {} without direct reclaim or compaction: not the allocator",
            Nanos(longest)
        ))
    }

    /// The strategy that stalls, if one does so in two runs.
    fn stalled(&self) -> Option<Stalled> {
        let first = self.stalls().into_iter().next()?;
        (first.runs.len() >= 2).then_some(first)
    }

    fn verdict(&self) -> Verdict {
        if self.rows.is_empty() {
            return match self.measured.interrupted {
                true => Verdict::inconclusive("interrupted before the first buffer"),
                false => Verdict::unsupported(&self.first_error()),
            };
        }
        if let Some(stalled) = self.stalled() {
            return Verdict::new(Word::Stalls, stalled.words());
        }
        let once = self.stalls().into_iter().next().map(|stalled| {
            let stalls = match stalled.count {
                1 => "a stall".to_owned(),
                count => format!("{count} stalls"),
            };
            let example = stalled.example();
            match self.runs.len() {
                1 => format!("{stalls} in the only run ({example}): not repeated"),
                runs => format!("{stalls} in one run of {runs} ({example}): repeats disagree"),
            }
        });
        if let Some(why) = self.untested() {
            let once = once.map_or_else(String::new, |once| format!("; {once}"));
            return Verdict::inconclusive(&format!("{why}{once}"));
        }
        if let Some(why) = once.or_else(|| self.disagreement()).or_else(|| self.long()) {
            return Verdict::inconclusive(&why);
        }
        let index = self.pmd_order().and_then(|order| self.index(order));
        let text = format!(
            "clean: no block stalled in {} runs, index {:.2}, worst {}",
            self.runs.len(),
            index.unwrap_or(1.0),
            self.worst_words()
        );
        Verdict::new(Word::Clean, text)
    }

    /// Why the absence of stalls proves nothing; `None`: it does prove something.
    fn untested(&self) -> Option<String> {
        let Some(pmd) = self.pmd_order() else {
            return Some("the page size is not known".to_owned());
        };
        let (Some(index), Some(_)) = (self.index(pmd), self.fact("free_bytes")) else {
            return Some("how fragmented memory is cannot be read".to_owned());
        };
        let fragmented = [pmd, COSTLY_ORDER]
            .into_iter()
            .any(|order| self.fragmented(order));
        if !fragmented {
            let up = self
                .fact("uptime_s")
                .map_or(String::new(), |s| format!(", up {}", age(s)));
            return Some(format!("not fragmented (index {index:.2}{up})"));
        }
        if !self.rows.iter().any(|row| row.direct) {
            return Some(format!(
                "fragmented (index {index:.2}), but no strategy with direct reclaim was measured"
            ));
        }
        // A strategy had to compact only where less was at hand than it held at once. In memory that
        // was made fragmented nothing large is at hand: faults do not reach what is left.
        let made = self.fact(KEPT_ONE_IN).is_some();
        let tested = |row: &Row<'_>| {
            let scarce = made
                || self.order(row.chunk).is_some_and(|order| {
                    let held = row.held.0 as f64;
                    self.fragmented(order) && self.usable(order).is_some_and(|usable| usable < held)
                });
            row.direct && scarce && row.blocks.len() >= 2
        };
        if self.rows.iter().any(tested) {
            return None;
        }
        if self.runs.len() < 2 {
            return Some("one run only".to_owned());
        }
        let usable = Bytes(self.usable(pmd).unwrap_or(0.0) as u64);
        Some(format!(
            "fragmented (index {index:.2}), but {usable} lie free in large blocks, \
             so that nothing had to be compacted"
        ))
    }

    /// On memory that was made fragmented: between whom repeats disagree.
    fn disagreement(&self) -> Option<String> {
        self.fact(KEPT_ONE_IN)?;
        let sizes: BTreeSet<Bytes> = self.measured.series.iter().filter_map(size_of).inserted();
        sizes.into_iter().find_map(|size| {
            let (one, other) = Ranking::of(&self.measured.series, size)?.disagree?;
            let size = size.short();
            Some(format!("repeats disagree: {size} by {one} and by {other}"))
        })
    }

    fn fragmented(&self, order: u32) -> bool {
        self.index(order).is_some_and(|index| index >= FRAGMENTED)
    }

    fn first_error(&self) -> String {
        let error = self
            .measured
            .series
            .iter()
            .find_map(|series| series.error.clone());
        error.unwrap_or_else(|| "no strategy could be measured".to_owned())
    }

    /// The median over runs of the longest block of a run.
    fn figure(&self, seed: u64) -> Option<Figure> {
        let worst_of = |&run: &u32| {
            let blocks = self.rows.iter().flat_map(|row| row.blocks);
            let worst = blocks.filter(|block| block.run == run).map(worst).max();
            worst.map(|ns| ns as f64 / 1e6)
        };
        let worst: Vec<f64> = self.runs.iter().filter_map(worst_of).collect();
        let interval = over_runs(&worst, seed, |runs| {
            median(runs.iter().map(|&&ms| ms.ln()).collect())
        });
        Some(Figure {
            low: interval.map(|interval| interval.low.exp()),
            high: interval.map(|interval| interval.high.exp()),
            ..Figure::new(median(worst)?, "ms in the worst block")
        })
    }
}

impl Stalled {
    fn words(&self) -> String {
        let rate = self.count as f64 / self.spent.as_secs_f64().max(1e-9);
        let threshold = Nanos(self.threshold_ns);
        format!(
            "stalls {}/s above {threshold}: {}",
            short_rate(rate),
            self.example()
        )
    }

    fn example(&self) -> String {
        let worst = Nanos(self.worst_ns);
        format!(
            "{}, worst {} block {worst}",
            self.strategy.words(),
            self.worst_block
        )
    }
}

fn short_rate(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

fn size_of(series: &Series) -> Option<Bytes> {
    series.word("size")?.parse().ok()
}

fn strategy_of(series: &Series) -> Option<Strategy> {
    series.word("strategy")?.parse().ok()
}

fn row<'a>(series: &'a Series, all: &'a [Series]) -> Option<Row<'a>> {
    if series.name != BLOCK || series.blocks.is_empty() {
        return None;
    }
    let buffers = series.number("buffers")?;
    let reclaims = all
        .iter()
        .find(|other| other.name == RECLAIMS && other.parameters == series.parameters);
    let counts = reclaims.map_or(&[][..], |reclaims| &reclaims.blocks);
    Some(Row {
        idle: counts
            .iter()
            .filter(|b| b.value < 1.0)
            .map(|b| b.run)
            .inserted(),
        strategy: strategy_of(series)?,
        block: series.word("block")?.parse().ok()?,
        chunk: series.word("chunk")?.parse().ok()?,
        held: Bytes(size_of(series)?.0.saturating_mul(buffers)),
        direct: series.word("direct-reclaim")? == "yes",
        blocks: &series.blocks,
    })
}

fn worst(block: &Block) -> u64 {
    let histogram = block.histogram.as_ref();
    histogram.and_then(Histogram::max).unwrap_or(0)
}

fn spent(block: &Block) -> Nanos {
    let mean = block.histogram.as_ref().and_then(Histogram::mean);
    Nanos((mean.unwrap_or(0.0) * block.samples as f64) as u64)
}

/// Seconds as `40 s`, `12 min`, `5 h`, `9 d`.
fn age(seconds: f64) -> String {
    for (unit, length) in [("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)] {
        if seconds >= 2.0 * length {
            return format!("{:.0} {unit}", (seconds / length).floor());
        }
    }
    format!("{seconds:.0} s")
}

// The sentences beside the verdict.

impl Seen<'_> {
    /// `2 MiB block 148 ms (THP with direct reclaim)`
    fn worst_words(&self) -> String {
        let rows = self.rows.iter();
        let blocks = rows.flat_map(|row| row.blocks.iter().map(move |block| (worst(block), row)));
        let longest = blocks.max_by_key(|&(worst, _)| worst);
        longest.map_or(String::new(), |(worst, row)| {
            format!(
                "{} block {} ({})",
                row.block,
                Nanos(worst),
                row.strategy.words()
            )
        })
    }

    /// Most telling first.
    fn evidence(&self) -> Vec<String> {
        let mut evidence: Vec<String> = self.made().into_iter().collect();
        let sizes: BTreeSet<Bytes> = self.measured.series.iter().filter_map(size_of).inserted();
        for &size in sizes.iter().rev() {
            let took = self.medians(TAKE, size);
            let both = took
                .get(&Strategy::Base)
                .zip(took.get(&Strategy::ThpDirect));
            if let Some((base, huge)) = both {
                evidence.push(format!(
                    "{size} takes {} in base pages, {} in THP ({:.2}x){}",
                    nanos(*base),
                    nanos(*huge),
                    huge / base,
                    self.entries_of_both(size).unwrap_or_default()
                ));
            }
        }
        if !self.rows.is_empty() {
            evidence.push(format!("the worst block: {}", self.worst_words()));
        }
        evidence.extend(self.long());
        evidence.extend(
            self.stalls()
                .iter()
                .skip(1)
                .map(|s| format!("also {}", s.words())),
        );
        for &size in sizes.iter().rev() {
            let took = self.medians(TAKE, size);
            if let (Some(_), Some(ranking)) = (
                self.fact(KEPT_ONE_IN),
                Ranking::of(&self.measured.series, size),
            ) {
                evidence.push(ranking.words(size));
            } else if !took.is_empty() {
                let list: Vec<String> = took
                    .iter()
                    .map(|(strategy, ns)| format!("{strategy} {}", nanos(*ns)))
                    .collect();
                evidence.push(format!("{} took: {}", size.short(), list.join(", ")));
            }
        }
        evidence.extend(sizes.iter().filter_map(|&size| self.neighbours(size)));
        evidence.extend(sizes.iter().filter_map(|&size| self.entries(size)));
        evidence
    }

    /// `made: 1/4 of 20.7 GiB kept, pinned; unusable index at least 0.99 at order 4, 1.00 at order 9; 15.1 GiB free`
    fn made(&self) -> Option<String> {
        let bytes = |name: &str| Some(Bytes(self.fact(name)? as u64));
        let one_in = self.fact(KEPT_ONE_IN)?;
        let pinned = match bytes("pinned_bytes")? {
            Bytes(0) => "movable",
            _ => "pinned",
        };
        let indices: Vec<String> = [Some(COSTLY_ORDER), self.pmd_order()]
            .into_iter()
            .flatten()
            .filter_map(|order| Some(format!("{:.2} at order {order}", self.index(order)?)))
            .collect();
        Some(format!(
            "made: 1/{one_in} of {} kept, {pinned}; unusable index at least {}; {} free",
            bytes("split_bytes")?,
            indices.join(", "),
            bytes("free_bytes")?,
        ))
    }

    /// What an x86 IOMMU needs for base pages and for THP, where the layout could be read.
    fn entries_of_both(&self, size: Bytes) -> Option<String> {
        let entries = self.medians(&entries_name(0), size);
        let base = entries.get(&Strategy::Base)?;
        let huge = entries.get(&Strategy::ThpDirect)?;
        let sizes = &IOMMUS[0];
        Some(format!(
            "; {base:.0} and {huge:.0} IOMMU entries of {sizes}"
        ))
    }

    /// `4M of base pages: 1,024 pages lie in 37 physical runs, 27.7 neighbours each by chance`
    fn neighbours(&self, size: Bytes) -> Option<String> {
        let runs = self.medians(PHYSICAL_RUNS, size);
        let runs = runs.get(&Strategy::Base).filter(|runs| **runs > 0.0)?;
        let pages = size.0 as f64 / self.fact("page_bytes")?;
        Some(format!(
            "{} of base pages: {pages:.0} pages lie in {runs:.0} physical runs, {:.1} neighbours each by chance",
            size.short(),
            pages / runs
        ))
    }

    /// `4M needs entries of {..}/{..}/{..}: base 1024/1020/1020, ...`
    fn entries(&self, size: Bytes) -> Option<String> {
        let sets = IOMMUS.map(|sizes| sizes.to_string()).join("/");
        let counts: Vec<_> = (0..IOMMUS.len())
            .map(|at| self.medians(&entries_name(at), size))
            .collect();
        let of = |strategy: &Strategy| {
            let count = |medians: &BTreeMap<Strategy, f64>| {
                let count = medians.get(strategy);
                count.map_or("?".to_owned(), |count| format!("{count:.0}"))
            };
            let by_set: Vec<String> = counts.iter().map(count).collect();
            format!("{strategy} {}", by_set.join("/"))
        };
        let list: Vec<String> = counts[0].keys().map(of).collect();
        let size = size.short();
        (!list.is_empty()).then(|| format!("{size} needs entries of {sets}: {}", list.join(", ")))
    }

    /// Median over runs of a series at this buffer size, by strategy.
    fn medians(&self, name: &str, size: Bytes) -> BTreeMap<Strategy, f64> {
        let of = |series: &Series| {
            let same = series.name == name && size_of(series) == Some(size);
            same.then_some(())?;
            Some((strategy_of(series)?, series.median()?))
        };
        self.measured.series.iter().filter_map(of).inserted()
    }

    /// A setting that the evidence shows to help.
    fn advice(&self, stalled: &Stalled) -> Option<String> {
        let helps = Strategy::ThpNoReclaim;
        let measured = self.rows.iter().any(|row| row.strategy == helps);
        let stalls = self.stalls().iter().any(|other| other.strategy == helps);
        let by_fault = matches!(
            stalled.strategy,
            Strategy::ThpDirect | Strategy::Mthp(_) | Strategy::MthpUpTo(_)
        );
        (by_fault && measured && !stalls).then(|| {
            "echo defer > /sys/kernel/mm/transparent_hugepage/defrag: huge pages are then made \
             in the background, and without direct reclaim no block stalled here"
                .to_owned()
        })
    }
}

fn nanos(ns: f64) -> Nanos {
    Nanos(ns as u64)
}

#[cfg(test)]
mod tests;
