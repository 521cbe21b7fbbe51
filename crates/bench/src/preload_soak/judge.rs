//! The ratio of a program's CPU time with the library to that without, and its verdict.
//!
//! A *pair* is a run with the library and one without, side by side on one CPU: what slows a shared machine down is in
//! both. We take the Hodges-Lehmann estimate of the logarithms of the pairs' ratios (Hodges and
//! Lehmann, *Estimates of Location Based on Rank Tests*, 1963): the median of the means of all two of them, each with
//! itself too. A neighbour's burst in one pair moves it as little as a median, and it needs hardly more pairs than
//! a mean. Its interval is the bootstrap over pairs of stopgap-stats. Time n^2 for n pairs.
//!
//! How many pairs: until the interval's half is [`WANTED`] or less. Its width is looked at and never where it lies, so that no
//! look at a ratio decides when to stop; and seldom, each time with a quarter more pairs.

use std::fmt;

use stopgap_stats::bootstrap::{Interval, over_runs};
use stopgap_stats::quantile::median;

use crate::common::exp;

/// A program with the library may take so many times its peer's CPU time.
pub(super) const BOUND: f64 = 1.03;
/// Pairs before the first look.
pub(super) const PILOT: usize = 10;
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
    pub(super) fn faults_ratio(&self) -> f64 {
        let [with, without] = self.faults;
        with as f64 / without as f64
    }

    fn log_ratio(&self) -> f64 {
        (self.with / self.without).ln()
    }
}

/// A verdict on a program's time.
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
    over_runs(&logs, SEED, hodges_lehmann).map(exp)
}

/// Seed of the resampling.
const SEED: u64 = 1;

/// The median of the means of every two, each with itself too; `None` of nothing.
fn hodges_lehmann(values: &[&f64]) -> Option<f64> {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (at, one) in values.iter().enumerate() {
        let others = values[at..].iter();
        means.extend(others.map(|other| f64::midpoint(**one, **other)));
    }
    median(means)
}

/// When the width of the interval is looked at.
#[derive(Debug)]
pub(super) struct Looks {
    next: usize,
}

impl Looks {
    pub(super) fn new() -> Looks {
        Looks { next: PILOT }
    }

    /// Whether this is a look, and it finds the interval narrow enough.
    pub(super) fn suffice(&mut self, pairs: &[Pair]) -> bool {
        if pairs.len() < self.next {
            return false;
        }
        self.next = pairs.len() + (pairs.len() / 4).max(1);
        ratio(pairs).is_some_and(|interval| (interval.high / interval.low).ln() <= 2.0 * WANTED)
    }
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
        // Too few pairs, or no time at all, prove nothing.
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

    /// How many pairs it takes of a series of ratios, which begins again at its end; `None`: more than there are (200).
    fn taken(series: &[f64]) -> Option<usize> {
        let mut looks = Looks::new();
        let all = pairs(&series.repeat(200 / series.len()));
        (1..=all.len()).find(|&n| looks.suffice(&all[..n]))
    }

    #[test]
    fn more_pairs_are_made_where_pairs_lie_apart_and_where_the_ratio_lies_is_nothing() {
        let near = [0.999, 1.0, 1.001, 1.0, 1.0005];
        let apart = [0.97, 1.0, 1.03, 1.015, 0.985];
        for shift in [0.5, 1.0, 1.03, 2.0] {
            let of = |series: &[f64]| taken(&series.iter().map(|r| r * shift).collect::<Vec<_>>());
            assert_eq!(of(&near), Some(PILOT), "{shift}");
            let more = of(&apart).unwrap();
            assert!((PILOT..=40).contains(&more), "{shift}: {more}");
            let wide = of(&[0.5, 1.0, 2.0, 1.5, 0.7]);
            assert!(wide.is_none_or(|n| n > 100), "{shift}: {wide:?}");
        }
        // Without an interval there is nothing to stop for.
        assert_eq!(taken(&[f64::NAN]), None);
    }
}
