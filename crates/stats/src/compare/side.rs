//! Runs to compare, each reduced to the figures that are tested.

use std::collections::BTreeMap;
use std::fmt;

use crate::histogram::Histogram;
use crate::quantile::quantile;
use crate::record::Stalls;

/// One side: the runs of one kernel, one version, one setting.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Side {
    /// Its name, as `before`, `6.12`, a file's name.
    pub name: String,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// One run (a process or a boot), as figures. All latencies are in [`Options::unit`](super::Options::unit), and less is
/// better in every one of them. `None` is "this run has no such figure"; the comparison names a figure that is NaN or infinite and
/// never tests it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Its name for errors, as a file's name.
    pub name: String,
    /// Runs of one block were made close together in time (an ABBA quadruple, one boot, one machine) and are compared
    /// with each other only. Runs without a block are a block of their own.
    pub block: Option<u32>,
    /// Median of its samples.
    pub median: Option<f64>,
    /// 99th percentile of its samples.
    pub p99: Option<f64>,
    /// 99.9th percentile of its samples.
    pub p999: Option<f64>,
    /// Its longest sample: described, never tested.
    pub max: Option<f64>,
    /// 10th, 20th, ... 90th percentile, for the shift function.
    pub deciles: Option<[f64; 9]>,
    /// Its stalls above a threshold.
    pub stalls: Option<RunStalls>,
    /// How many independent stall episodes are behind its tail: a sampler that was held up once finds many long
    /// samples of one episode.
    pub episodes: Option<u64>,
    /// Figures that are one number a run, by name: elapsed time, system time, a count.
    pub numbers: BTreeMap<String, f64>,
}

/// Stalls of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStalls {
    /// Episodes.
    pub count: u64,
    /// All of them together in nanoseconds; `None` where not every episode was kept.
    pub time_ns: Option<u64>,
    /// From what length on it counts as a stall, nanoseconds; must be one for all runs.
    pub threshold_ns: u64,
    /// For how long it was looked for them, nanoseconds.
    pub duration_ns: u64,
}

impl Run {
    /// A run of which nothing is known yet.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Run {
        Run {
            name: name.into(),
            ..Run::default()
        }
    }

    /// A run's quantiles, in nanoseconds, from all its samples; those for which there are too few samples
    /// ([`quantile`]) are absent.
    #[must_use]
    pub fn of_histogram(name: impl Into<String>, histogram: &Histogram) -> Run {
        let at = |q| quantile(histogram, q).ok().map(|ns| ns as f64);
        Run::of_quantiles(name, histogram.max().map(|ns| ns as f64), at)
    }

    /// A run of which `at` knows the quantiles; `None` for those that it does not know.
    pub(crate) fn of_quantiles(
        name: impl Into<String>,
        max: Option<f64>,
        at: impl Fn(f64) -> Option<f64>,
    ) -> Run {
        let tenths = (1..=9).map(|tenth| at(f64::from(tenth) / 10.0));
        let deciles: Option<Vec<f64>> = tenths.collect();
        Run {
            median: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max,
            deciles: deciles.and_then(|deciles| deciles.try_into().ok()),
            ..Run::new(name)
        }
    }

    /// The same run with its stalls, which are its independent episodes.
    #[must_use]
    pub fn with_stalls(mut self, stalls: RunStalls) -> Run {
        self.episodes = Some(stalls.count);
        self.stalls = Some(stalls);
        self
    }

    /// A run that is one number, as a line of a file for ministat.
    #[must_use]
    pub fn of_number(name: impl Into<String>, what: impl Into<String>, value: f64) -> Run {
        let mut run = Run::new(name);
        run.numbers.insert(what.into(), value);
        run
    }
}

impl RunStalls {
    /// Stalls of a record's block that took `duration_ns` nanoseconds.
    #[must_use]
    pub fn of_record(stalls: &Stalls, duration_ns: u64) -> RunStalls {
        let kept = stalls.episodes.iter().map(|stall| stall.length_ns);
        let every = stalls.episodes.len() as u64 == stalls.count;
        RunStalls {
            count: stalls.count,
            time_ns: every.then(|| kept.fold(0, u64::saturating_add)),
            threshold_ns: stalls.threshold_ns,
            duration_ns,
        }
    }
}

/// A quantity to test. A set of them is fixed before anyone looks at the data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A run's median.
    Median,
    /// A run's 99th percentile.
    P99,
    /// A run's 99.9th percentile; see [`EPISODES`](super::EPISODES).
    P999,
    /// Stalls a second.
    StallRate,
    /// Milliseconds in stalls, a second.
    StallTime,
    /// One of [`Run::numbers`].
    Number(String),
}

impl Endpoint {
    /// Those of latencies, in the order in which they are shown.
    pub const USUAL: [Endpoint; 5] = [
        Endpoint::Median,
        Endpoint::P99,
        Endpoint::P999,
        Endpoint::StallRate,
        Endpoint::StallTime,
    ];

    /// Whether the run says anything of it.
    pub(super) fn is_in(&self, run: &Run) -> bool {
        match self {
            Endpoint::Median => run.median.is_some(),
            Endpoint::P99 => run.p99.is_some(),
            Endpoint::P999 => run.p999.is_some(),
            Endpoint::StallRate | Endpoint::StallTime => run.stalls.is_some(),
            Endpoint::Number(name) => run.numbers.contains_key(name),
        }
    }
}

/// The name in the record: `median`, `p99`, `p99.9`, `stall rate`, `stall time`, or the number's.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Endpoint::Median => "median",
            Endpoint::P99 => "p99",
            Endpoint::P999 => "p99.9",
            Endpoint::StallRate => "stall rate",
            Endpoint::StallTime => "stall time",
            Endpoint::Number(name) => name,
        })
    }
}

/// The name back; one that is none of the usual is a number's.
impl From<&str> for Endpoint {
    fn from(name: &str) -> Endpoint {
        let usual = Endpoint::USUAL.into_iter();
        let mut same = usual.filter(|endpoint| endpoint.to_string() == name);
        same.next()
            .unwrap_or_else(|| Endpoint::Number(name.to_owned()))
    }
}
