//! Samples of load children -> series of the record.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::histogram::{Histogram, Recorder};
use stopgap_stats::record::{Block, Series, parameters};

use super::Strategy;
use super::take::WORK;
use super::take::{IOMMUS, Sample, Taken, Task};
use crate::contract::{Measured, Parameters};

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

/// Name of the series of runs of physically neighbouring pages.
pub(super) const PHYSICAL_RUNS: &str = "physical runs";

/// Name of the series of entries for one of [`IOMMUS`].
pub(super) fn entries_name(iommu: usize) -> String {
    format!("entries {}", IOMMUS[iommu])
}

/// A buffer size and a strategy.
pub(super) type Cell = (Bytes, Strategy);

/// All that is known of a cell.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The parameters of all its series, as in the first run.
    parameters: Parameters,
    /// The series but for blocks, whose threshold hangs on all runs.
    measured: Measured,
    /// The blocks of each run.
    blocks: Vec<(u32, Vec<Sample>)>,
    /// The first reason why a run failed.
    pub(super) error: Option<String>,
}

impl Runs {
    /// Whether a run took as much as a part of a buffer, and whether one took a whole.
    pub(super) fn taken(&self) -> (bool, bool) {
        let whole = self.measured.series.iter().any(|one| one.name == TAKE);
        (!self.blocks.is_empty(), whole)
    }

    /// Adds what the child of one run gave.
    pub(super) fn keep(&mut self, run: u32, task: &Task, strategy: Strategy, taken: &Taken) {
        if self.parameters.is_empty() {
            self.parameters = common((task.size, strategy));
            self.parameters.extend(parameters([
                ("chunk", task.chunk.short().into()),
                ("block", task.block.short().into()),
                ("buffers", task.buffers.into()),
            ]));
            self.parameters.extend(task.knobs.clone());
        }
        self.blocks.push((run, taken.blocks.clone()));
        let mut add = |name: &str, unit: &str, block: Option<Block>| {
            self.measured.block(name, unit, &self.parameters, block);
        };
        let start_ns = taken.takes.first().map_or(0, |sample| sample.start_ns);
        // One count a buffer: the median.
        let median = |mut counts: Vec<u64>| {
            counts.sort_unstable();
            let median = *counts.get(counts.len().checked_sub(1)? / 2)? as f64;
            Some(Block::number(run, start_ns, counts.len() as u64, median))
        };
        add(TAKE, "ns", times(run, &taken.takes, None));
        add("collapse", "ns", times(run, &taken.collapses, None));
        add("release", "ns", times(run, &taken.releases, None));
        let reclaims = taken.reclaims.into_iter().collect();
        add(RECLAIMS, "times", median(reclaims));
        let buffers = taken.takes.len() as u64;
        for work in WORK.iter().filter(|_| buffers > 0) {
            let count = taken.work.get(work.name);
            let mean = count.map(|&count| count as f64 / buffers as f64);
            let block = mean.map(|mean| Block::number(run, start_ns, buffers, mean));
            add(work.name, work.unit, block);
        }
        add("faults", "faults/buffer", median(taken.faults.clone()));
        add(PHYSICAL_RUNS, "runs/buffer", median(taken.runs.clone()));
        for at in 0..IOMMUS.len() {
            let entries = taken.entries.iter().map(|counts| counts[at]);
            add(
                &entries_name(at),
                "entries/buffer",
                median(entries.collect()),
            );
        }
    }

    /// The series of `cell`; without any sample one that says why.
    pub(super) fn series(self, cell: Cell) -> Vec<Series> {
        let threshold = threshold(&self.blocks);
        let blocks: Vec<Block> = self
            .blocks
            .iter()
            .filter_map(|(run, blocks)| times(*run, blocks, Some(threshold)))
            .collect();
        let mut series = self.measured.series;
        if !blocks.is_empty() {
            let after_take = series.iter().take_while(|one| one.name == TAKE).count();
            series.insert(
                after_take,
                Series::new(BLOCK, "ns", &self.parameters, blocks),
            );
        }
        if series.is_empty() {
            series.push(Series {
                error: self.error,
                ..Series::new(TAKE, "ns", &common(cell), [])
            });
        }
        series
    }
}

fn common((size, strategy): Cell) -> Parameters {
    parameters([
        ("size", size.short().into()),
        ("strategy", strategy.to_string().into()),
    ])
}

/// From what length on a block of these runs stalls.
fn threshold(runs: &[(u32, Vec<Sample>)]) -> u64 {
    let mut all = Histogram::new();
    for sample in runs.iter().flat_map(|(_, blocks)| blocks) {
        all.record(sample.length_ns);
    }
    let median = all.median().unwrap_or(0);
    STALL_FLOOR.0.max(median.saturating_mul(STALL_TIMES))
}

fn times(run: u32, samples: &[Sample], threshold: Option<u64>) -> Option<Block> {
    let mut recorder = Recorder::new(threshold.unwrap_or(u64::MAX));
    for sample in samples {
        recorder.record(sample.start_ns, sample.length_ns);
    }
    let mut block = recorder.into_block(run, samples.first()?.start_ns)?;
    if threshold.is_none() {
        block.stalls = None;
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::take::How;

    const CELL: Cell = (Bytes::mib(4), Strategy::ThpDirect);

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

    fn runs(all: &[Taken]) -> Runs {
        let task = Task {
            how: How::Fault(None),
            size: CELL.0,
            buffers: 8,
            chunk: Bytes::mib(2),
            block: Bytes::mib(2),
            knobs: parameters([("defrag", "always".into())]),
            warm: false,
            deadline: Nanos(0),
        };
        let mut runs = Runs::default();
        for (run, taken) in (0..).zip(all) {
            runs.keep(run, &task, CELL.1, taken);
        }
        runs
    }

    fn stalls(blocks: &[u64]) -> (u64, u64) {
        let series = runs(&[taken(blocks)]).series(CELL);
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
        let mut runs = runs(&[Taken::default()]);
        runs.error = Some("no huge pages in the pool".to_owned());
        let series = runs.series(CELL);
        assert_eq!(series.len(), 1);
        assert!(series[0].blocks.is_empty());
        let error = series[0].error.as_deref();
        assert_eq!(error, Some("no huge pages in the pool"));
    }

    #[test]
    #[allow(clippy::float_cmp)] // a count
    fn what_is_not_known_has_no_series() {
        let series = runs(&[taken(&[5]), taken(&[6])]).series(CELL);
        let names: Vec<_> = series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["take", "block", "faults"]);
        assert_eq!(series[2].blocks[0].value, 3.0); // the lower of the two in the middle
        assert_eq!(series[2].blocks[1].run, 1);
    }
}
