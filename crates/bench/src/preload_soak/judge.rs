//! How much of its peer's CPU time a program takes with the library, and what can be said of that.
//!
//! A *pair* is a run with the library and one without, right after each other, in alternating order: what drifts on a
//! shared machine is in both. Of the logarithms of the pairs' ratios we take the Hodges-Lehmann estimate (Hodges and
//! Lehmann, *Estimates of Location Based on Rank Tests*, 1963): the median of the means of all two of them, each with
//! itself too. A neighbour's burst in one pair moves it as little as a median, and it needs hardly more pairs than
//! a mean. Its interval is the bootstrap over pairs of stopgap-stats. Time n^2 for n pairs.
//!
//! How many pairs: a first [`PILOT`] show how far pairs lie apart, which says how many bring the interval's half down to
//! [`WANTED`]. It is decided once, so that no look at a ratio decides when to stop.

use std::fmt;

use stopgap_stats::bootstrap::{Interval, over_runs};

/// A program with the library may take so many times its peer's CPU time.
pub(super) const BOUND: f64 = 1.03;
/// Pairs before it is decided how many there will be.
pub(super) const PILOT: usize = 5;
/// Half an interval that tells the bound from no difference, with as much room on both sides.
const WANTED: f64 = 0.015;

/// User and system time of a pair, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pair {
    pub(super) with: f64,
    pub(super) without: f64,
    /// Minor page faults, in the same order.
    pub(super) faults: [u64; 2],
}

impl Pair {
    /// With over without.
    #[allow(clippy::cast_precision_loss)] // counts far below 2^52
    pub(super) fn faults_ratio(&self) -> f64 {
        let [with, without] = self.faults;
        with as f64 / without as f64
    }

    fn log_ratio(&self) -> f64 {
        (self.with / self.without).ln()
    }
}

/// What is said of a program's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The whole interval lies below 1.
    Faster,
    /// The whole interval lies at or below the bound.
    Within,
    /// The interval holds the bound.
    NotProven,
    /// The whole interval lies above the bound.
    Slower,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Word::Faster => "faster",
            Word::Within => "within 3 %",
            Word::NotProven => "not proven within 3 %",
            Word::Slower => "more than 3 % slower",
        })
    }
}

impl Word {
    pub(super) fn of(interval: Option<Interval>) -> Word {
        match interval {
            Some(interval) if interval.low > BOUND => Word::Slower,
            Some(interval) if interval.high < 1.0 => Word::Faster,
            Some(interval) if interval.high <= BOUND => Word::Within,
            _ => Word::NotProven,
        }
    }
}

/// Time with the library over time without, and its 95 % interval; `None` with fewer than three pairs, and where a time is 0.
pub(super) fn ratio(pairs: &[Pair]) -> Option<Interval> {
    let logs: Vec<f64> = pairs.iter().map(Pair::log_ratio).collect();
    let interval = over_runs(&logs, SEED, hodges_lehmann)?;
    Some(Interval {
        value: interval.value.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    })
}

/// Of the resampling.
const SEED: u64 = 1;

/// The median of the means of every two, each with itself too; `None` of nothing.
fn hodges_lehmann(values: &[&f64]) -> Option<f64> {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (at, one) in values.iter().enumerate() {
        means.extend(
            values[at..]
                .iter()
                .map(|other| f64::midpoint(**one, **other)),
        );
    }
    median(&mut means)
}

/// The median, of an even count the mean of the middle two; `None` of nothing.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some(f64::midpoint(values[values.len() / 2 - 1], upper)),
    }
}

/// How many pairs bring the interval down to what is wanted, by the spread of these; at least as many as these.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // counts far below 2^52, and a float to integer cast saturates
pub(super) fn pairs_wanted(pilot: &[Pair]) -> usize {
    let logs: Vec<f64> = pilot.iter().map(Pair::log_ratio).collect();
    let mut sorted = logs.clone();
    let Some(middle) = median(&mut sorted) else {
        return 0;
    };
    // The median absolute deviation, as a standard deviation of what is normally distributed: one burst in five
    // pairs does not ask for ten times as many.
    let mut apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let spread = 1.4826 * median(&mut apart).unwrap_or(0.0);
    let wanted = (2.2 * spread / WANTED).powi(2).ceil();
    (wanted as usize).max(pilot.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        let of = |ratio: &f64| Pair {
            with: 2.0 * ratio,
            without: 2.0,
            faults: [0; 2],
        };
        ratios.iter().map(of).collect()
    }

    #[test]
    fn the_estimate_is_the_median_of_the_means_of_two() {
        let by_hand = |values: &[f64]| hodges_lehmann(&values.iter().collect::<Vec<_>>());
        assert_eq!(by_hand(&[]), None);
        assert_eq!(by_hand(&[3.0]), Some(3.0));
        // 1, 1.5, 2, 5.5, 6, 10 -> between 2 and 5.5.
        assert_eq!(by_hand(&[1.0, 2.0, 10.0]), Some(3.75));
        // Nine and a burst: 0 stays.
        assert_eq!(
            by_hand(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0]),
            Some(0.0)
        );
    }

    #[test]
    fn words_are_said_where_the_whole_interval_says_so() {
        let word = |ratios: &[f64]| Word::of(ratio(&pairs(ratios)));
        assert_eq!(word(&[1.10, 1.11, 1.09, 1.10, 1.12]), Word::Slower);
        assert_eq!(word(&[1.035, 1.01, 1.06, 1.02, 1.05]), Word::NotProven);
        assert_eq!(word(&[1.001, 1.0, 1.002, 0.999, 1.001]), Word::Within);
        assert_eq!(word(&[0.80, 0.81, 0.79, 0.82, 0.80]), Word::Faster);
        // Too few, or no time at all: nothing is said.
        assert_eq!(word(&[1.5, 1.5]), Word::NotProven);
        assert_eq!(word(&[f64::NAN; 5]), Word::NotProven);
        assert_eq!(word(&[0.0; 5]), Word::NotProven);
    }

    /// Seeds 0..2000: of pairs without any difference hardly any are called slower, of pairs 10 % apart hardly any are not.
    #[test]
    fn a_false_word_is_rare() {
        let slower = |shift: f64| {
            let count = |seed: u64| {
                let mut random = Random::new(seed);
                // The sum of four uniform ones: a spread of 3 %.
                let mut noise = || {
                    let sum: u64 = (0..4).map(|_| random.below(10_000)).sum();
                    #[allow(clippy::cast_precision_loss)]
                    let centred = sum as f64 / 20_000.0 - 1.0;
                    centred * 0.03 / 0.2887
                };
                let ratios: Vec<f64> = (0..8).map(|_| shift * (1.0 + noise())).collect();
                usize::from(Word::of(ratio(&pairs(&ratios))) == Word::Slower)
            };
            (0..200).map(count).sum::<usize>()
        };
        let (false_ones, at_the_bound, true_ones) = (slower(1.0), slower(BOUND), slower(1.10));
        assert_eq!(false_ones, 0);
        assert!(at_the_bound <= 14, "{at_the_bound} of 200, 2.5 % promised");
        assert!(true_ones >= 190, "{true_ones} of 200");
    }

    #[test]
    fn more_pairs_are_wanted_where_pairs_lie_apart() {
        assert_eq!(pairs_wanted(&[]), 0);
        assert_eq!(pairs_wanted(&pairs(&[1.0; 5])), 5);
        let near = pairs_wanted(&pairs(&[0.99, 1.0, 1.01, 1.0, 1.005]));
        let apart = pairs_wanted(&pairs(&[0.9, 1.0, 1.1, 1.05, 0.95]));
        assert!(near <= 6 && apart > 50, "{near} {apart}");
        // One burst asks for none.
        assert_eq!(pairs_wanted(&pairs(&[1.0, 1.0, 1.0, 1.0, 9.0])), 5);
    }
}
