//! Samples of load children -> series of the record.

use std::collections::BTreeMap;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::histogram::{Histogram, Recorder};
use stopgap_stats::record::{Block, Parameter, Series, parameters};

use super::strategy::Strategy;
use super::take::{IOMMUS, Sample, Taken};
use super::work::WORK;
use crate::contract::Parameters;

/// A block stalls from this length on: more than half of a 60 Hz frame, and ten times what a
/// machine needs for a block of 2 MiB in the worst of its usual ways (base pages, 0.6 to 1 ms).
pub const STALL_FLOOR: Nanos = Nanos::millis(10);

/// And only if it is this many times the median of its strategy's blocks, so that a strategy
/// or a machine that is slow throughout (blocks of 32 or 512 MiB, 64 KiB base pages) does not
/// count as one that stalls.
pub const STALL_TIMES: u64 = 10;

/// Name of the series of blocks, whose stalls decide.
pub(super) const BLOCK: &str = "block";
/// Name of the series of direct reclaims and compactions counted while a child held buffers.
pub(super) const RECLAIMS: &str = "direct reclaim and compaction";
/// Name of the series of whole buffers.
pub(super) const TAKE: &str = "take";

/// One strategy at one buffer size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) size: Bytes,
    pub(super) strategy: Strategy,
}

/// How a cell was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) chunk: Bytes,
    pub(super) block: Bytes,
    pub(super) buffers: u64,
    pub(super) direct: bool,
    pub(super) defrag: Option<String>,
    /// Whether knobs were set for it; else they were as they stood.
    pub(super) set: bool,
}

/// All that is known of a cell: its runs, or why there is none.
#[derive(Debug, Clone, Default)]
pub(super) struct Cells {
    pub(super) runs: BTreeMap<Cell, (Manner, Vec<(u32, Taken)>)>,
    /// The first reason of each cell that failed, perhaps in some runs only.
    pub(super) errors: BTreeMap<Cell, String>,
}

/// The series of every cell, smallest buffer first. A cell without any sample is one series
/// that says why.
pub(super) fn series(cells: &Cells) -> Vec<Series> {
    let mut all: Vec<Cell> = cells
        .runs
        .keys()
        .chain(cells.errors.keys())
        .copied()
        .collect();
    all.sort_unstable();
    all.dedup();
    let mut series = Vec::new();
    for cell in all {
        let before = series.len();
        if let Some((manner, runs)) = cells.runs.get(&cell) {
            of_cell(cell, manner, runs, &mut series);
        }
        if series.len() == before {
            series.push(Series {
                error: cells.errors.get(&cell).cloned(),
                ..Series::new(TAKE, "ns", &common(cell), [])
            });
        }
    }
    series
}

fn common(cell: Cell) -> Parameters {
    parameters([
        ("size", cell.size.short().into()),
        ("strategy", cell.strategy.to_string().into()),
    ])
}

fn of_cell(cell: Cell, manner: &Manner, runs: &[(u32, Taken)], series: &mut Vec<Series>) {
    let mut parameters = common(cell);
    let yes_no = |yes: bool| Parameter::from(if yes { "yes" } else { "no" });
    parameters.extend(stopgap_stats::record::parameters([
        ("chunk", manner.chunk.short().into()),
        ("block", manner.block.short().into()),
        ("buffers", manner.buffers.into()),
        ("direct-reclaim", yes_no(manner.direct)),
        ("knobs-set", yes_no(manner.set)),
    ]));
    if let Some(defrag) = &manner.defrag {
        parameters.insert("defrag".to_owned(), defrag.as_str().into());
    }

    let mut add = |name: &str, unit: &str, blocks: Vec<Block>| {
        if !blocks.is_empty() {
            series.push(Series::new(name, unit, &parameters, blocks));
        }
    };
    let threshold = threshold(runs);
    let blocks = times(runs, |taken| &taken.blocks, Some(threshold));
    add(TAKE, "ns", times(runs, |taken| &taken.takes, None));
    add(BLOCK, "ns", blocks);
    let collapses = times(runs, |taken| &taken.collapses, None);
    add("collapse", "ns", collapses);
    add("release", "ns", times(runs, |taken| &taken.releases, None));
    let reclaims = |taken: &Taken| taken.reclaims.into_iter().collect();
    add(RECLAIMS, "times", counts(runs, reclaims));
    for work in &WORK {
        add(work.name, work.unit, per_buffer(runs, work.name));
    }
    let faults = counts(runs, |taken| taken.faults.clone());
    add("faults", "faults/buffer", faults);
    let physical = counts(runs, |taken| taken.runs.clone());
    add(PHYSICAL_RUNS, "runs/buffer", physical);
    for at in 0..IOMMUS.len() {
        let of = |taken: &Taken| taken.entries.iter().map(|counts| counts[at]).collect();
        add(&entries_name(at), "entries/buffer", counts(runs, of));
    }
}

/// Name of the series of runs of physically neighbouring pages.
pub(super) const PHYSICAL_RUNS: &str = "physical runs";

/// Name of the series of entries for one of [`IOMMUS`].
pub(super) fn entries_name(iommu: usize) -> String {
    format!("entries {}", IOMMUS[iommu])
}

/// From what length on a block of these runs stalls.
fn threshold(runs: &[(u32, Taken)]) -> u64 {
    let mut all = Histogram::new();
    for sample in runs.iter().flat_map(|(_, taken)| &taken.blocks) {
        all.record(sample.length_ns);
    }
    let median = all.median().unwrap_or(0);
    STALL_FLOOR.0.max(median.saturating_mul(STALL_TIMES))
}

fn times(
    runs: &[(u32, Taken)],
    of: impl Fn(&Taken) -> &Vec<Sample>,
    threshold: Option<u64>,
) -> Vec<Block> {
    let block = |(run, taken): &(u32, Taken)| {
        let samples = of(taken);
        let mut recorder = Recorder::new(threshold.unwrap_or(u64::MAX));
        for sample in samples {
            recorder.record(sample.start_ns, sample.length_ns);
        }
        let mut block = recorder.into_block(*run, samples.first()?.start_ns)?;
        if threshold.is_none() {
            block.stalls = None;
        }
        Some(block)
    };
    runs.iter().filter_map(block).collect()
}

/// One count a buffer -> the median a run.
fn counts(runs: &[(u32, Taken)], of: impl Fn(&Taken) -> Vec<u64>) -> Vec<Block> {
    let block = |(run, taken): &(u32, Taken)| {
        let mut counts = of(taken);
        counts.sort_unstable();
        let median = *counts.get(counts.len().checked_sub(1)? / 2)? as f64;
        let start_ns = taken.takes.first().map_or(0, |sample| sample.start_ns);
        Some(Block::number(*run, start_ns, counts.len() as u64, median))
    };
    runs.iter().filter_map(block).collect()
}

/// Work of that name a buffer, of each run whose kernel counts it.
fn per_buffer(runs: &[(u32, Taken)], name: &str) -> Vec<Block> {
    let block = |(run, taken): &(u32, Taken)| {
        let count = *taken.work.get(name)?;
        let samples = taken.takes.len() as u64;
        let start_ns = taken.takes.first()?.start_ns;
        let mean = count as f64 / samples as f64;
        Some(Block::number(*run, start_ns, samples, mean))
    };
    runs.iter().filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(blocks: &[u64]) -> Taken {
        let at = |(i, &length_ns): (usize, &u64)| Sample {
            start_ns: i as u64 * 1_000_000_000,
            length_ns,
        };
        Taken {
            takes: vec![at((0, &blocks.iter().sum()))],
            blocks: blocks.iter().enumerate().map(at).collect(),
            faults: vec![7, 2, 3, 9],
            ..Taken::default()
        }
    }

    fn cells(runs: Vec<(u32, Taken)>) -> Cells {
        let cell = Cell {
            size: Bytes::mib(4),
            strategy: Strategy::ThpDirect,
        };
        let manner = Manner {
            chunk: Bytes::mib(2),
            block: Bytes::mib(2),
            buffers: 8,
            direct: true,
            defrag: Some("always".to_owned()),
            set: true,
        };
        Cells {
            runs: BTreeMap::from([(cell, (manner, runs))]),
            errors: BTreeMap::new(),
        }
    }

    fn stalls(blocks: &[u64]) -> (u64, u64) {
        let series = series(&cells(vec![(0, taken(blocks))]));
        let block = series.iter().find(|series| series.name == BLOCK).unwrap();
        let stalls = block.blocks[0].stalls.as_ref().unwrap();
        (stalls.count, stalls.threshold_ns)
    }

    #[test]
    fn a_stall_is_long_and_far_from_usual() {
        let ms = 1_000_000;
        assert_eq!(stalls(&[100, 100, 100, 9 * ms]), (0, 10 * ms));
        assert_eq!(stalls(&[100, 100, 100, 11 * ms]), (1, 10 * ms));
        // Slow throughout is no stall; ten times that is.
        let (count, threshold) = stalls(&[12 * ms, 12 * ms, 12 * ms, 100 * ms]);
        assert!(count == 0 && threshold > 119 * ms, "{threshold}");
        assert_eq!(stalls(&[12 * ms, 12 * ms, 12 * ms, 130 * ms]).0, 1);
    }

    #[test]
    fn a_cell_without_samples_says_why() {
        let mut cells = cells(vec![(0, Taken::default())]);
        let (&cell, _) = cells.runs.first_key_value().unwrap();
        cells
            .errors
            .insert(cell, "no huge pages in the pool".to_owned());
        let series = series(&cells);
        assert_eq!(series.len(), 1);
        assert!(series[0].blocks.is_empty());
        assert_eq!(
            series[0].error.as_deref(),
            Some("no huge pages in the pool")
        );
    }

    #[test]
    #[allow(clippy::float_cmp)] // a count
    fn what_is_not_known_has_no_series() {
        let series = series(&cells(vec![(0, taken(&[5])), (1, taken(&[6]))]));
        let names: Vec<_> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["take", "block", "faults"]);
        assert_eq!(series[2].blocks[0].value, 3.0); // the lower of the two in the middle
        assert_eq!(series[2].blocks[1].run, 1);
    }
}
