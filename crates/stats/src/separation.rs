//! Whether a figure distinguishes runs of two kinds.
//!
//! The measure is the area under the ROC curve, which is Mann and Whitney's U over the number of pairs:
//! the share of pairs (one run of each kind) in which the first is higher, a tie counting half. 1: each run
//! of the first kind is higher; 0: each is lower; 0.5: the figure does not tell. It asks nothing of the
//! figures but their order, so a heavy tail weighs no more than it should (Hanley and McNeil, 1982).
//!
//! # The interval
//!
//! Runs are drawn anew within each kind ([`crate::bootstrap`]), and the ends moved away from the estimate
//! by the factor that is used there for few runs; then cut at 0 and 1. Where not one pair disagrees each
//! draw says the same, however few runs there are: two runs on each side would be certain. There the end
//! is the least area under which runs like these part so cleanly in one of forty experiments, if the two
//! kinds differ by a constant factor in hazard (Lehmann's alternatives):
//!
//! ```text
//! P(all n of the lower kind come before all m of the higher) = product over j = 1..n of j / (j + m/k),
//! area = k / (k + 1)
//! ```
//!
//! 6 against 6 runs: 0.73; 3 against 3: 0.48, which is no separation, as a permutation test says too (1 in
//! 20, one-sided).
//!
//! Cost: [`RESAMPLES`] times the number of pairs, some milliseconds for tens of runs.

use stopgap_events::random::Random;

use crate::bootstrap::{Interval, LEAST_RUNS, RESAMPLES, percentile, widening};

/// How well a figure tells runs of one kind from runs of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Separation {
    /// The area under the ROC curve and its 95 % interval, all within 0 to 1.
    pub auc: Interval,
}

impl Separation {
    /// Of `higher` from `lower`, which say what is expected and not what is so. `None` with fewer than
    /// three runs on a side, or where a figure is no number.
    ///
    /// The same seed gives the same interval for ever.
    #[must_use]
    pub fn between(higher: &[f64], lower: &[f64], seed: u64) -> Option<Separation> {
        let sides = [higher, lower];
        let finite = sides
            .iter()
            .all(|runs| runs.iter().all(|run| run.is_finite()));
        if !finite || sides.iter().any(|runs| runs.len() < LEAST_RUNS) {
            return None;
        }
        let value = auc(higher, lower);
        let parted = |first: &[f64], last: &[f64]| first.iter().all(|a| last.iter().all(|b| a < b));
        // Not one pair disagrees, one way or the other.
        let clean = if parted(lower, higher) {
            Some((least_area(lower.len(), higher.len()), 1.0))
        } else if parted(higher, lower) {
            Some((0.0, 1.0 - least_area(higher.len(), lower.len())))
        } else {
            None
        };
        if let Some((low, high)) = clean {
            return Some(Separation {
                auc: Interval { value, low, high },
            });
        }
        let mut random = Random::new(seed);
        let mut draw = |runs: &[f64]| -> Vec<f64> {
            let drawn = runs.iter().map(|_| runs[random.index(runs.len())]);
            drawn.collect()
        };
        let mut drawn: Vec<f64> = (0..RESAMPLES)
            .map(|_| auc(&draw(higher), &draw(lower)))
            .collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let factor = widening(higher.len().min(lower.len()));
        let end = |q| (value + (percentile(&drawn, q) - value) * factor).clamp(0.0, 1.0);
        Some(Separation {
            auc: Interval {
                value,
                low: end(0.025).min(value),
                high: end(0.975).max(value),
            },
        })
    }

    /// Returns whether the figure distinguishes the two kinds: the interval does not hold 0.5.
    #[must_use]
    pub fn separates(&self) -> bool {
        self.auc.low > 0.5 || self.auc.high < 0.5
    }
}

/// The share of pairs in which the first is higher, a tie as half.
fn auc(higher: &[f64], lower: &[f64]) -> f64 {
    let mut halves = 0u64;
    for one in higher {
        for other in lower {
            halves += match one.total_cmp(other) {
                std::cmp::Ordering::Greater => 2,
                std::cmp::Ordering::Equal => 1,
                std::cmp::Ordering::Less => 0,
            };
        }
    }
    halves as f64 / (2 * higher.len() * lower.len()) as f64
}

/// The least area under which `first` runs all come before `last` runs with a chance of 2.5 %.
fn least_area(first: usize, last: usize) -> f64 {
    let chance = |k: f64| -> f64 {
        let odds = last as f64 / k;
        (1..=first).map(|j| j as f64 / (j as f64 + odds)).product()
    };
    // The chance grows with k from 0 to 1: halve the range of its logarithm.
    let (mut low, mut high) = (-20.0f64, 20.0f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if chance(middle.exp()) < 0.025 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let k = low.exp();
    k / (k + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::normal;
    use proptest::prelude::*;

    const LOW: [f64; 6] = [1.0, 1.0, 1.01, 1.02, 1.0, 1.03];

    #[test]
    fn runs_that_part_cleanly_are_told_apart_and_not_for_certain() {
        let high = LOW.map(|run| run + 1.0);
        let one = Separation::between(&high, &LOW, 1).expect("six runs");
        assert_eq!((one.auc.value, one.auc.high), (1.0, 1.0));
        assert!((0.70..0.76).contains(&one.auc.low), "{one:?}");
        assert!(one.separates());
        let other = Separation::between(&LOW, &high, 1).expect("six runs");
        assert_eq!((other.auc.value, other.auc.low), (0.0, 0.0));
        assert!((other.auc.high + one.auc.low - 1.0).abs() < 1e-9);
        assert!(other.separates());
        // A permutation test of three against three reaches 1 in 20 at best.
        let few = Separation::between(&high[..3], &LOW[..3], 1).expect("three runs");
        assert!(!few.separates(), "{few:?}");
    }

    #[test]
    fn what_is_the_same_is_not_told_apart() {
        let same = Separation::between(&LOW, &LOW, 1).expect("six runs");
        assert!((same.auc.value - 0.5).abs() < 1e-12);
        assert!(!same.separates());
        let equal = Separation::between(&[1.0; 5], &[1.0; 5], 1).expect("five runs");
        assert!((equal.auc.value - 0.5).abs() < 1e-12 && !equal.separates());
    }

    #[test]
    fn too_few_runs_and_no_numbers_tell_nothing() {
        assert_eq!(Separation::between(&[1.0, 2.0], &LOW, 1), None);
        assert_eq!(Separation::between(&[1.0, 2.0, f64::NAN], &LOW, 1), None);
    }

    /// The formula against dice: how often three runs of hazard 1 all come before four of hazard 1/k.
    #[test]
    fn the_chance_of_a_clean_parting_is_the_formulas() {
        let k = least_area(3, 4) / (1.0 - least_area(3, 4));
        let mut random = Random::new(5);
        let mut exponential = |mean: f64| {
            let uniform = (random.below(1 << 52) as f64 + 0.5) / (1u64 << 52) as f64;
            -mean * uniform.ln()
        };
        let experiments = 40_000;
        let clean = (0..experiments)
            .filter(|_| {
                let first = (0..3).map(|_| exponential(1.0)).fold(0.0, f64::max);
                let last = (0..4).map(|_| exponential(k)).fold(f64::INFINITY, f64::min);
                first < last
            })
            .count();
        let share = clean as f64 / f64::from(experiments);
        assert!((share - 0.025).abs() < 0.004, "{share}");
    }

    /// Six against six normal runs, one unit apart: the true area is Phi(1 / sqrt 2) = 0.760.
    #[test]
    fn intervals_cover_what_they_promise() {
        let mut random = Random::new(3);
        for (shift, truth) in [(0.0, 0.5), (1.0, 0.760_25)] {
            let covered = (0..200)
                .filter(|_| {
                    let mut runs = |shift: f64| -> Vec<f64> {
                        (0..6).map(|_| shift + normal(&mut random)).collect()
                    };
                    let (higher, lower) = (runs(shift), runs(0.0));
                    let auc = Separation::between(&higher, &lower, 7)
                        .expect("six runs")
                        .auc;
                    auc.low <= truth && truth <= auc.high
                })
                .count();
            assert!(covered >= 180, "{covered} of 200 at {truth}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn turned_round_it_is_the_rest(higher in prop::collection::vec(0u8..20, 3..8), lower in prop::collection::vec(0u8..20, 3..8)) {
            let numbers = |runs: &[u8]| -> Vec<f64> { runs.iter().map(|&run| f64::from(run)).collect() };
            let (higher, lower) = (numbers(&higher), numbers(&lower));
            let one = Separation::between(&higher, &lower, 1).expect("three runs").auc;
            let other = Separation::between(&lower, &higher, 1).expect("three runs").auc;
            prop_assert!((one.value + other.value - 1.0).abs() < 1e-9);
            prop_assert!(0.0 <= one.low && one.low <= one.value && one.value <= one.high && one.high <= 1.0);
        }
    }
}
