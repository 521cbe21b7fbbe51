//! Rows of a replay of `placement`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use crate::bootstrap::Interval;
use crate::histogram::Histogram;
use crate::verdict::Word;

/// The figures of one policy on one workload at one N. All are of the measured part alone: what
/// lays the scene out is not in them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlacementRow {
    /// The workload, or the trace's file.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// The workload's size, in its own unit (pbobench: mappings laid out); absent for a trace.
    pub n: Option<u64>,
    /// Operations carried out: maps that were tried, unmaps, protections.
    pub operations: u64,
    /// Maps among them that gave a range.
    pub maps: u64,
    /// CPU time of an operation in nanoseconds, that of the driver taken off: median of the repetitions
    /// for each stretch of operations, then the mean.
    pub ns_per_operation: Option<f64>,
    /// The same with the least and with the greatest of the repetitions instead of their median.
    pub spread: Option<Spread>,
    /// What the driver alone takes for an operation in nanoseconds: reading it, and its slot.
    pub driver_ns: Option<f64>,
    /// Work units a map: nodes and areas looked at while searching (visited and descended) plus what was
    /// propagated, of all operations, over maps that gave a range.
    pub work_per_map: Option<f64>,
    /// VMAs, nodes or free areas looked at while searching.
    pub visited: Option<u64>,
    /// Nodes that lookups of visited VMAs passed on their way down a tree; 0 where a visit is of a node.
    pub descended: Option<u64>,
    /// Nodes recomputed to keep a search structure right.
    pub propagated: Option<u64>,
    /// Searches that began at the base again because of `cached_hole_size`.
    pub resets: Option<u64>,
    /// Searches that scanned from the base, for any reason.
    pub full_scans: Option<u64>,
    /// Times that deferred work was carried out at once.
    pub flushes: Option<u64>,
    /// 99.99 % of operations were not longer than this many nanoseconds, the clock's cost taken off:
    /// the median of the repetitions.
    pub p9999_ns: Option<u64>,
    /// The longest operation in nanoseconds, without the cost of reading the clock. The fastest repetition of each
    /// operation counts.
    pub worst_ns: Option<u64>,
    /// From the first byte held to the last, over the bytes held, at the end.
    pub span_over_live: Option<f64>,
    /// Maps refused because nothing was left; what was to be done with them later is left out.
    pub failures: u64,
    /// Ranges held at the end.
    pub live: u64,
    /// Memory of the policy's own structures over the ranges held at the end, in bytes.
    pub bytes_per_range: Option<f64>,
    /// What the maps of its loops took, where the workload has loops of a thousand operations and more (agua).
    pub loops: Option<Loops>,
    /// Figures of mail 003 for this policy on this workload.
    pub mail_003: Option<Mail003>,
    /// Why it ended early, where it did: after so many visits, say. Counts are of the first pass until
    /// then; the passes that take time are stopped sooner.
    pub stopped: Option<String>,
    /// The part of the contract that the policy lacks for this workload; it was not carried out then.
    pub lacks: Option<String>,
    /// How the policy differs from the system that it models.
    pub note: Option<String>,
    /// Unknown figures, and why.
    pub missing: Vec<Missing>,
}

/// Times of the maps of a workload's loops, as `agua_frag_test` prints them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loops {
    /// Loops timed; absent where a source does not say.
    pub count: Option<u64>,
    /// The shortest, in milliseconds.
    pub min_ms: f64,
    /// Their mean, in milliseconds.
    pub avg_ms: f64,
    /// The longest, in milliseconds.
    pub max_ms: f64,
    /// Their standard deviation (population), in milliseconds.
    pub sd_ms: f64,
}

impl Loops {
    /// From `agua_frag_test`: above this many milliseconds it says "Standard deviation exceeds 10".
    pub const MOST_SD_MS: f64 = 10.0;

    /// From the length of each loop in nanoseconds; `None` where there is none.
    #[must_use]
    pub fn from_ns(ns: &[u64]) -> Option<Loops> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let count = ns.len() as f64;
        let mean = ns.iter().map(|&ns| ms(ns)).sum::<f64>() / count;
        let square = |ns: &u64| (ms(*ns) - mean).powi(2);
        Some(Loops {
            count: Some(ns.len() as u64),
            min_ms: ms(*ns.iter().min()?),
            avg_ms: mean,
            max_ms: ms(*ns.iter().max()?),
            sd_ms: (ns.iter().map(square).sum::<f64>() / count).sqrt(),
        })
    }

    /// From a histogram of their lengths in nanoseconds, to the width of its buckets.
    #[must_use]
    pub fn in_histogram(all: &Histogram) -> Option<Loops> {
        let mean = all.mean()?;
        let squares = all
            .buckets()
            .map(|(ns, count)| (ns as f64 - mean).powi(2) * count as f64);
        Some(Loops {
            count: Some(all.len()),
            min_ms: all.min()? as f64 / 1e6,
            avg_ms: mean / 1e6,
            max_ms: all.max()? as f64 / 1e6,
            sd_ms: (squares.sum::<f64>() / all.len() as f64).sqrt() / 1e6,
        })
    }

    /// Returns the verdict of `agua_frag_test` on the deviation.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.sd_ms <= Loops::MOST_SD_MS
    }
}

/// Figures of mail 003, or of a mail of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mail003 {
    /// Seconds that all of freegap took.
    pub elapsed_s: Option<f64>,
    /// Loops of agua.
    pub loops: Option<Loops>,
}

/// The least and the greatest of the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// How a figure grows over N.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The workload.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// The quantity that grows.
    pub quantity: Quantity,
    /// `flat`, `grows` or `inconclusive`.
    pub word: Word,
    /// p of `a + b * N^p` with its 95 % interval; absent where the figure hardly varies.
    pub exponent: Option<Interval>,
    /// For people, beginning with the word.
    pub text: String,
}

/// A quantity that may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// [`PlacementRow::work_per_map`], the call itself counted as one unit more: a policy that looks at
    /// nothing costs something too. Exact counts.
    WorkPerMap,
    /// [`PlacementRow::ns_per_operation`].
    Time,
}

/// Mail 000 measured microseconds a step; the model counts visits a step. One floor and one cost a
/// visit, both fitted by least squares in relative error, turn the one into the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MailFit {
    /// The workload and the policy whose rows these are.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// Fitted cost of a step without visits, in microseconds.
    pub floor_us: f64,
    /// Fitted cost of a visit, in nanoseconds.
    pub visit_ns: f64,
    /// One a N of the mail.
    pub points: Vec<MailPoint>,
}

/// One N of mail 000.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MailPoint {
    /// Mappings laid out.
    pub n: u64,
    /// Visits a step (a map or an unmap) in the model.
    pub visits_per_step: f64,
    /// Microseconds a step in the mail.
    pub mail_us: f64,
    /// Microseconds a step from the model and the two fitted constants.
    pub model_us: f64,
    /// By how much the model is off, over the mail: 0.1 is 10 % too much.
    pub deviation: f64,
}
