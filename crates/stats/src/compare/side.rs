//! Runs to compare, each reduced to the tested figures.

use std::collections::BTreeMap;
use std::fmt;

use crate::histogram::Histogram;
use crate::quantile::{lower_quartile, median, quantile};
use crate::record::Stalls;
use stopgap_events::order::Inserted as _;

/// One side: the runs of one kernel, one version, one setting.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Side {
    /// Its name, as `before`, `6.12`, a file's name.
    pub name: String,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// One run (a process or a boot) as figures. All latencies are in [`Options::unit`](super::Options::unit), and less
/// is better in every figure. `None` means that the run has no such figure. The comparison names a figure that is NaN
/// or infinite, and never tests it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Its name for errors, such as the name of a file.
    pub name: String,
    /// Runs of which an occasion consists ([`Run::of_occasion`]); 0 for a run that counts by itself.
    pub within: usize,
    /// Median of its samples.
    pub median: Option<f64>,
    /// 10th percentile of its samples; of an occasion the lower quartile of its runs': what it takes where the machine disturbs least.
    pub p10: Option<f64>,
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
    /// Number of independent stall episodes behind its tail. A sampler that is delayed once finds many long samples
    /// of one episode.
    pub episodes: Option<u64>,
    /// Figures with one number per run, by name: elapsed time, system time, a count.
    pub numbers: BTreeMap<String, f64>,
}

/// Stalls of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStalls {
    /// Number of episodes.
    pub count: u64,
    /// Sum of all episodes in nanoseconds; `None` if not every episode was kept.
    pub time_ns: Option<u64>,
    /// Nanoseconds from which a sample is a stall; must be the same for all runs.
    pub threshold_ns: u64,
    /// Length of the measurement in nanoseconds.
    pub duration_ns: u64,
}

impl Run {
    /// Creates a run without figures.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Run {
        Run {
            name: name.into(),
            ..Run::default()
        }
    }

    /// Creates a run from a histogram: its quantiles in nanoseconds, from all its samples. Quantiles with too few
    /// samples ([`quantile`]) are absent.
    #[must_use]
    pub fn of_histogram(name: impl Into<String>, histogram: &Histogram) -> Run {
        let at = |q| quantile(histogram, q).ok().map(|ns| ns as f64);
        Run::of_quantiles(name, histogram.max().map(|ns| ns as f64), at)
    }

    /// Creates a run from the quantiles that `at` returns; `None` for quantiles that it does not know.
    pub(crate) fn of_quantiles(
        name: impl Into<String>,
        max: Option<f64>,
        at: impl Fn(f64) -> Option<f64>,
    ) -> Run {
        let tenths = (1..=9).map(|tenth| at(f64::from(tenth) / 10.0));
        let deciles: Option<Vec<f64>> = tenths.collect();
        Run {
            median: at(0.5),
            p10: at(0.1),
            p99: at(0.99),
            p999: at(0.999),
            max,
            deciles: deciles.and_then(|deciles| deciles.try_into().ok()),
            ..Run::new(name)
        }
    }

    /// Creates an occasion: runs that one command made within minutes, and that share a boot, neighbours and chance.
    /// More runs cannot separate what they share from a change. So all of them count as one run: the median of each
    /// figure (of `p10` the lower quartile), and the sum of stalls. A figure that one run lacks is absent.
    #[must_use]
    pub fn of_occasion(name: impl Into<String>, runs: &[Run]) -> Run {
        let of_all = |figure: &dyn Fn(&Run) -> Option<f64>, of: fn(Vec<f64>) -> Option<f64>| {
            let each: Vec<f64> = runs.iter().map(figure).collect::<Option<_>>()?;
            // A value that is no number is named, not sorted to an end.
            let wrong = each.iter().find(|value| !value.is_finite()).copied();
            wrong.or_else(|| of(each))
        };
        let middle = |figure: &dyn Fn(&Run) -> Option<f64>| of_all(figure, median);
        let deciles: Option<Vec<f64>> = (0..9)
            .map(|tenth| middle(&|run| Some(run.deciles?[tenth])))
            .collect();
        let names = runs.iter().flat_map(|run| run.numbers.keys());
        let numbers = names.filter_map(|name| {
            let value = middle(&|run| run.numbers.get(name).copied())?;
            Some((name.clone(), value))
        });
        let stalls: Option<Vec<RunStalls>> = runs.iter().map(|run| run.stalls).collect();
        Run {
            name: name.into(),
            within: runs.len(),
            median: middle(&|run| run.median),
            p10: of_all(&|run| run.p10, lower_quartile),
            p99: middle(&|run| run.p99),
            p999: middle(&|run| run.p999),
            max: runs.iter().filter_map(|run| run.max).max_by(f64::total_cmp),
            deciles: deciles.and_then(|deciles| deciles.try_into().ok()),
            stalls: stalls.and_then(|stalls| RunStalls::together(&stalls)),
            episodes: runs
                .iter()
                .try_fold(0u64, |sum, run| Some(sum.saturating_add(run.episodes?))),
            numbers: numbers.inserted(),
        }
    }

    /// Adds stalls, which are the run's independent episodes.
    #[must_use]
    pub fn with_stalls(mut self, stalls: RunStalls) -> Run {
        self.episodes = Some(stalls.count);
        self.stalls = Some(stalls);
        self
    }

    /// Creates a run that is one number, such as a line of a file for ministat.
    #[must_use]
    pub fn of_number(name: impl Into<String>, what: impl Into<String>, value: f64) -> Run {
        let mut run = Run::new(name);
        run.numbers.insert(what.into(), value);
        run
    }
}

impl RunStalls {
    /// Returns the stalls of several runs together; `None` without runs, or if thresholds differ.
    fn together(each: &[RunStalls]) -> Option<RunStalls> {
        let (first, rest) = each.split_first()?;
        rest.iter().try_fold(*first, |sum, next| {
            (sum.threshold_ns == next.threshold_ns).then(|| RunStalls {
                count: sum.count.saturating_add(next.count),
                time_ns: sum
                    .time_ns
                    .zip(next.time_ns)
                    .map(|(a, b)| a.saturating_add(b)),
                threshold_ns: sum.threshold_ns,
                duration_ns: sum.duration_ns.saturating_add(next.duration_ns),
            })
        })
    }

    /// Creates the stalls of a record's block that took `duration_ns` nanoseconds.
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
    /// A run's 10th percentile. Tested where occasions are in pairs, which another endpoint costs next to nothing, or where it is asked
    /// for.
    P10,
    /// A run's 99th percentile.
    P99,
    /// A run's 99.9th percentile; see [`EPISODES`](super::EPISODES).
    P999,
    /// Stalls per second.
    StallRate,
    /// Milliseconds in stalls per second.
    StallTime,
    /// One of [`Run::numbers`], for the typical run.
    Number(String),
    /// The mean of the same number over runs, which shows if a slow mode becomes more frequent.
    Mean(String),
}

/// Prefix of the name of a mean.
pub(super) const MEAN: &str = "mean ";

impl Endpoint {
    /// Endpoints of latencies, in the order of display.
    pub const USUAL: [Endpoint; 6] = [
        Endpoint::Median,
        Endpoint::P10,
        Endpoint::P99,
        Endpoint::P999,
        Endpoint::StallRate,
        Endpoint::StallTime,
    ];

    /// Returns the run's figure; `None` where it has none.
    #[must_use]
    pub fn value(&self, run: &Run) -> Option<f64> {
        let per_second = |amount: f64| {
            let seconds = run.stalls?.duration_ns as f64 / 1e9;
            (seconds > 0.0).then(|| amount / seconds)
        };
        match self {
            Endpoint::Median => run.median,
            Endpoint::P10 => run.p10,
            Endpoint::P99 => run.p99,
            Endpoint::P999 => run.p999,
            Endpoint::StallRate => per_second(run.stalls?.count as f64),
            Endpoint::StallTime => per_second(run.stalls?.time_ns? as f64 / 1e6),
            Endpoint::Number(name) | Endpoint::Mean(name) => run.numbers.get(name).copied(),
        }
    }

    /// Returns whether the run has the figure.
    #[must_use]
    pub fn is_in(&self, run: &Run) -> bool {
        match self {
            Endpoint::Median => run.median.is_some(),
            Endpoint::P10 => run.p10.is_some(),
            Endpoint::P99 => run.p99.is_some(),
            Endpoint::P999 => run.p999.is_some(),
            Endpoint::StallRate | Endpoint::StallTime => run.stalls.is_some(),
            Endpoint::Number(name) | Endpoint::Mean(name) => run.numbers.contains_key(name),
        }
    }
}

/// Writes the name in the record: `median`, `p10`, `p99`, `p99.9`, `stall rate`, `stall time`, or the number's.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Endpoint::Median => "median",
            Endpoint::P10 => "p10",
            Endpoint::P99 => "p99",
            Endpoint::P999 => "p99.9",
            Endpoint::StallRate => "stall rate",
            Endpoint::StallTime => "stall time",
            Endpoint::Number(name) => name,
            Endpoint::Mean(name) => return f.pad(&format!("{MEAN}{name}")),
        })
    }
}

/// Reads the name. A name that is not one of these is that of a number, or of its mean.
impl From<&str> for Endpoint {
    fn from(name: &str) -> Endpoint {
        let usual = Endpoint::USUAL.into_iter();
        let mut same = usual.filter(|endpoint| endpoint.to_string() == name);
        same.next()
            .unwrap_or_else(|| match name.strip_prefix(MEAN) {
                Some(of) => Endpoint::Mean(of.to_owned()),
                None => Endpoint::Number(name.to_owned()),
            })
    }
}
