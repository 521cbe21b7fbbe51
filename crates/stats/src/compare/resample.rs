//! The interval of one side's level, by a bootstrap over runs.
//!
//! As [`crate::bootstrap`]: runs are drawn as wholes, with replacement, and both ends are moved away from the estimate by
//!
//! ```text
//! t(0.975, runs - 1) / 1.96 * sqrt(runs / (runs - 1))
//! ```
//!
//! A draw whose rate is 0 or infinite counts as that. A draw without a rate counts against both ends. An end that
//! then is at 0 or infinity is dropped, because the data gives no bound for it.

use stopgap_events::random::Random;

use super::rate::Rate;
use crate::bootstrap::{LEAST_RUNS, widening_of};
use crate::quantile::median_of_sorted;

/// The ends of a 95 % interval; an end without a bound is infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ends {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Returns the ends around `value`, the median of these runs, which are finite and ascending.
pub(super) fn of_median(runs: &[f64], draws: u32, seed: u64) -> Option<Ends> {
    let median = |runs: &[f64]| median_of_sorted(runs).unwrap_or(f64::NAN);
    one_side(runs, median(runs), draws, seed, median)
}

/// Returns the ends around the logarithm of the rate of these runs.
pub(super) fn of_rate(runs: &[Rate], draws: u32, seed: u64) -> Option<Ends> {
    let log = |runs: &[Rate]| Rate::pooled(runs).ln();
    one_side(runs, log(runs), draws, seed, log)
}

fn one_side<T: Copy>(
    runs: &[T],
    value: f64,
    draws: u32,
    seed: u64,
    statistic: impl Fn(&[T]) -> f64,
) -> Option<Ends> {
    if runs.len() < LEAST_RUNS || !value.is_finite() {
        return None;
    }
    let mut random = Random::new(seed);
    let (mut drawn, mut counts) = (Vec::new(), Vec::new());
    let values = (0..draws).map(|_| {
        draw(runs, &mut drawn, &mut counts, &mut random);
        statistic(&drawn)
    });
    let values = values.collect();
    Some(ends(values, value, widening_of(runs.len() - 1, runs.len())))
}

/// Draws as many items of `from` as it has, with replacement and in their order.
fn draw<T: Copy>(from: &[T], into: &mut Vec<T>, counts: &mut Vec<u32>, random: &mut Random) {
    counts.clear();
    counts.resize(from.len(), 0);
    for _ in from {
        counts[random.index(from.len())] += 1;
    }
    into.clear();
    for (&value, &count) in from.iter().zip(&*counts) {
        into.extend((0..count).map(|_| value));
    }
}

/// Returns the percentiles of `values`, the outer one where they fall between two, moved away from `value`.
fn ends(mut values: Vec<f64>, value: f64, widening: f64) -> Ends {
    let Some(last) = values.len().checked_sub(1) else {
        return Ends {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        };
    };
    let unknown = values.iter().filter(|value| value.is_nan()).count();
    // In this order NaN is greater than infinity. The sign of a NaN is removed.
    for value in values.iter_mut().filter(|value| value.is_nan()) {
        *value = f64::NAN.abs();
    }
    values.sort_unstable_by(f64::total_cmp);
    // For the lower end, unknown draws would come first.
    let low = ((0.025 * last as f64).floor() as usize)
        .checked_sub(unknown)
        .map_or(f64::NEG_INFINITY, |place| values[place]);
    let high = values[(0.975 * last as f64).ceil() as usize];
    let high = if high.is_nan() { f64::INFINITY } else { high };
    Ends {
        low: value - widening * (value - low).max(0.0),
        high: value + widening * (high - value).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_what_is_not_known() {
        let mut values: Vec<f64> = (0..=1_000).map(f64::from).collect();
        let of = |values: &[f64]| {
            let ends = ends(values.to_vec(), 500.0, 1.0);
            (ends.low, ends.high)
        };
        assert_eq!(of(&values), (25.0, 975.0));
        // Ten draws without a rate count against both ends.
        values[491..501].fill(-f64::NAN);
        assert_eq!(of(&values), (15.0, 985.0));
        values[480..520].fill(f64::NAN);
        assert_eq!(of(&values), (f64::NEG_INFINITY, f64::INFINITY));
        values.fill(500.0);
        assert_eq!(of(&values), (500.0, 500.0));
        assert_eq!(of(&[]), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn too_few_runs_give_no_ends() {
        assert!(of_median(&[1.0, 2.0], 10, 1).is_none());
        assert!(of_median(&[1.0, 2.0, 3.0], 10, 1).is_some());
    }
}
