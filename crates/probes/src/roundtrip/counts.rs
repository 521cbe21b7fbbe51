//! Switch-outs for a round trip, or for a flush of an X client: how many, in which process, and whether they are too many.

use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;
use stopgap_stats::record::Figure;
use stopgap_stats::verdict::format_interval;

use super::{EXCESS, LEAST};

/// A change is named where it leaves less than this share of the switches.
const WORTHWHILE: f64 = 0.9;

pub(super) struct Counts {
    /// Client and server together: the median of the runs.
    pub(super) all: Interval,
    /// Medians of client blocked, client pre-empted, server blocked, server pre-empted.
    pub(super) shares: [f64; 4],
}

impl Counts {
    /// Returns the counts of these runs; `None` with too few of them for an interval.
    pub(super) fn new(runs: &[f64], shares: [Vec<f64>; 4], seed: u64) -> Option<Counts> {
        let all = over_runs(runs, seed, |runs| {
            median(runs.iter().copied().copied().collect())
        })?;
        Some(Counts {
            all: Interval {
                low: all.low.max(0.0), // a count
                ..all
            },
            shares: shares.map(|values| median(values).unwrap_or(f64::NAN)),
        })
    }

    /// Returns whether there are certainly more than needed.
    pub(super) fn exceeds(&self) -> bool {
        self.all.low > EXCESS
    }

    /// Returns whether there are certainly not more than needed.
    pub(super) fn is_clean(&self) -> bool {
        self.all.high <= EXCESS
    }

    /// Returns how many times the needed number there are, and the interval.
    pub(super) fn figure(&self) -> Figure {
        let [value, low, high] = [self.all.value, self.all.low, self.all.high].map(|n| n / LEAST);
        Figure::new(value, "x").within(low, high)
    }

    /// Returns the figure as `1.9x (1.8..2.0)`.
    pub(super) fn times(&self) -> String {
        let [value, low, high] = [self.all.value, self.all.low, self.all.high].map(|n| n / LEAST);
        format_interval(value, low, high, "x")
    }

    /// Returns the number with its interval in this unit.
    pub(super) fn text(&self, unit: &str) -> String {
        format_interval(self.all.value, self.all.low, self.all.high, unit)
    }

    /// Returns whether `other` has clearly fewer.
    pub(super) fn is_beaten_by(&self, other: &Counts) -> bool {
        other.all.high < self.all.low * WORTHWHILE
    }

    /// Returns `client 1.0, server 2.9`.
    pub(super) fn by_side(&self) -> String {
        let [a, b, c, d] = self.shares;
        format!("client {:.1}, server {:.1}", a + b, c + d)
    }

    /// Returns the one of four words, in the order of the shares, whose share is most above what is needed.
    pub(super) fn largest<'w>(&self, words: [&'w str; 4]) -> &'w str {
        let [a, b, c, d] = self.shares;
        let above = [a - 1.0, b, c - 1.0, d].into_iter().zip(words);
        above
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or("", |(_, word)| word)
    }
}
