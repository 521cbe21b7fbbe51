//! Result of a run.

use std::collections::BTreeMap;

use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::median;

use super::Cause;

/// When no page could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemoryPoint {
    /// Simulated time since the load began, in nanoseconds; 0: memory did not even hold what is pinned.
    pub at_ns: u64,
    /// Pages in use, all that may be.
    pub used: u64,
    /// Pages among those that must stay.
    pub held: u64,
}

/// Counts and times of runs.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Runs; counts and times are of all of them together.
    pub runs: u64,
    /// Pages scanned for each that was reclaimed, of each run that reclaimed.
    pub ratios: Vec<f64>,
    /// Pages scanned.
    pub scanned: u64,
    /// Anonymous and shmem pages among those.
    pub scanned_anon: u64,
    /// Pages that reclaim freed.
    pub reclaimed: u64,
    /// Pages among those that went to swap.
    pub written: u64,
    /// Pages that reclaim met and moved to the unevictable list.
    pub culled: u64,
    /// Pages that the driver's shrinker freed.
    pub shrunk: u64,
    /// Pages read.
    pub read: u64,
    /// Time inside reclaim of all tasks, in nanoseconds.
    pub reclaim_ns: u64,
    /// Simulated time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Times of mapping, touching and unmapping 2 MiB. Empty where the load has none.
    pub allocations: Histogram,
    /// Time of all tasks by cause, in nanoseconds.
    pub causes: BTreeMap<Cause, u64>,
    /// Longest time with interrupts off, in nanoseconds; taking and releasing included.
    pub longest_irq_off_ns: u64,
    /// Longest time during which a CPU was not given to others, in nanoseconds; taking and releasing included.
    pub longest_unpreempted_ns: u64,
    /// From the first run's beginning until reclaim was first needed, in nanoseconds; `None`: never.
    pub first_reclaim_ns: Option<u64>,
    /// Where memory was out; `None`: it was not.
    pub out_of_memory: Option<OutOfMemoryPoint>,
    /// Time to take what is held, a page, in the first run, in nanoseconds; `None` where nothing is held beforehand.
    pub take_ns_per_page: Option<f64>,
    /// Time to release it, a page, in nanoseconds.
    pub release_ns_per_page: Option<f64>,
}

impl Outcome {
    /// Pages scanned for each that was reclaimed, the median of the runs, as the probe has it; `None` where none was.
    #[must_use]
    pub fn scanned_per_reclaimed(&self) -> Option<f64> {
        median(self.ratios.clone())
    }

    /// Adds another run: the longest stays the longest, and what ended one ended all.
    pub(super) fn add(&mut self, other: &Outcome) {
        self.runs += other.runs;
        self.ratios.extend(&other.ratios);
        self.scanned += other.scanned;
        self.scanned_anon += other.scanned_anon;
        self.reclaimed += other.reclaimed;
        self.written += other.written;
        self.culled += other.culled;
        self.shrunk += other.shrunk;
        self.read += other.read;
        self.reclaim_ns += other.reclaim_ns;
        self.elapsed_ns += other.elapsed_ns;
        self.allocations.merge(&other.allocations);
        for (cause, ns) in &other.causes {
            *self.causes.entry(*cause).or_default() += ns;
        }
        self.longest_irq_off_ns = self.longest_irq_off_ns.max(other.longest_irq_off_ns);
        self.longest_unpreempted_ns = self
            .longest_unpreempted_ns
            .max(other.longest_unpreempted_ns);
        self.out_of_memory = self.out_of_memory.or(other.out_of_memory);
    }

    /// Milliseconds inside reclaim for each GiB read; `None` where nothing was read.
    #[must_use]
    pub fn reclaim_ms_per_gib(&self) -> Option<f64> {
        let gib = (self.read * super::PAGE) as f64 / f64::from(1 << 30);
        (self.read > 0).then(|| self.reclaim_ns as f64 / 1e6 / gib)
    }
}
