//! By how much: estimates that no single run decides.
//!
//! [`hodges_lehmann`] is the median of all differences between a run of one side and one of the other (Hodges and
//! Lehmann, *Estimates of Location Based on Rank Tests*, 1963); of logarithms, it is a ratio. Up to 29 % of the runs may be
//! arbitrarily wrong before it is. Differences are taken within blocks only. It is found without making a list of the
//! differences, by halving the range that the median is in and counting: O(runs) a step, some ten steps.

use super::resample::Cell;

/// So many differences are listed and sorted instead of halving on.
const LISTED: usize = 64;

/// The median of all differences `after - before` within each cell, whose values are finite and ascending. `None` where
/// there is none, or a difference is beyond what a number can hold.
pub(super) fn hodges_lehmann(cells: &[Cell<f64>]) -> Option<f64> {
    let pairs = |cell: &Cell<f64>| cell.before.len() * cell.after.len();
    let all: usize = cells.iter().map(pairs).sum();
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for cell in cells {
        if let ([first, .., last] | [first @ last], [least, .., most] | [least @ most]) =
            (&cell.before[..], &cell.after[..])
        {
            low = low.min(least - last);
            high = high.max(most - first);
        }
    }
    if all == 0 || !low.is_finite() || !high.is_finite() {
        return None;
    }
    // The differences in the middle are those with this many at or below: number `lower` and `upper`, from 1.
    let (lower, upper) = (all.div_ceil(2), all / 2 + 1);
    // All differences are at or below `high`, and `below` of them, fewer than `lower`, are at or below `low`.
    low = low.next_down();
    let (mut below, mut within) = (0, all);
    while within - below > LISTED {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            // Neighbouring numbers: what is left are equal differences.
            return Some(high);
        }
        let count = at_or_below(cells, middle);
        if count >= upper {
            (high, within) = (middle, count);
        } else if count < lower {
            (low, below) = (middle, count);
        } else {
            // It lies between the two in the middle.
            return Some(around(cells, middle));
        }
    }
    let mut listed = Vec::with_capacity(LISTED);
    list(cells, low, high, &mut listed);
    listed.sort_unstable_by(f64::total_cmp);
    Some(f64::midpoint(
        listed[lower - below - 1],
        listed[upper - below - 1],
    ))
}

/// How many differences are at or below `limit`.
fn at_or_below(cells: &[Cell<f64>], limit: f64) -> usize {
    let mut count = 0;
    for cell in cells {
        // As `before` grows, so does the part of `after` that is near enough.
        let mut near = 0;
        for before in &cell.before {
            while near < cell.after.len() && cell.after[near] - before <= limit {
                near += 1;
            }
            count += near;
        }
    }
    count
}

/// The mean of the largest difference at or below `limit` and the least one above.
fn around(cells: &[Cell<f64>], limit: f64) -> f64 {
    let (mut below, mut above) = (f64::NEG_INFINITY, f64::INFINITY);
    for cell in cells {
        let mut near = 0;
        for before in &cell.before {
            while near < cell.after.len() && cell.after[near] - before <= limit {
                near += 1;
            }
            if near > 0 {
                below = below.max(cell.after[near - 1] - before);
            }
            if near < cell.after.len() {
                above = above.min(cell.after[near] - before);
            }
        }
    }
    f64::midpoint(below, above)
}

/// The differences above `low` up to `high`.
fn list(cells: &[Cell<f64>], low: f64, high: f64, listed: &mut Vec<f64>) {
    for cell in cells {
        let mut first = 0;
        for before in &cell.before {
            while first < cell.after.len() && cell.after[first] - before <= low {
                first += 1;
            }
            let rest = cell.after[first..].iter().map(|after| after - before);
            listed.extend(rest.take_while(|difference| *difference <= high));
        }
    }
}

/// An amount (of stalls, of time) in a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) amount: f64,
    /// More than 0.
    pub(super) duration: f64,
}

impl Rate {
    /// All amounts over all durations; NaN of none.
    pub(super) fn pooled(runs: &[Rate]) -> f64 {
        let (amount, duration) = Rate::sum(runs);
        amount / duration
    }

    fn sum(runs: &[Rate]) -> (f64, f64) {
        runs.iter().fold((0.0, 0.0), |(amount, duration), run| {
            (amount + run.amount, duration + run.duration)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stopgap_events::random::Random;

    /// The definition: every difference, sorted.
    fn oracle(cells: &[Cell<f64>]) -> Option<f64> {
        let mut all = Vec::new();
        for cell in cells {
            for before in &cell.before {
                all.extend(cell.after.iter().map(|after| after - before));
            }
        }
        crate::quantile::median(all)
    }

    fn cell(mut before: Vec<f64>, mut after: Vec<f64>) -> Cell<f64> {
        before.sort_unstable_by(f64::total_cmp);
        after.sort_unstable_by(f64::total_cmp);
        Cell { before, after }
    }

    #[test]
    fn the_median_of_all_differences() {
        let of = |before: &[f64], after: &[f64]| {
            hodges_lehmann(&[cell(before.to_vec(), after.to_vec())])
        };
        assert_eq!(of(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]), Some(10.0));
        assert_eq!(of(&[1.0], &[2.0]), Some(1.0));
        assert_eq!(of(&[1.0], &[]), None);
        assert_eq!(of(&[-f64::MAX], &[f64::MAX]), None);
        assert_eq!(of(&[7.0; 40], &[7.0; 40]), Some(0.0));
    }

    /// Up to 60 runs a side in up to three blocks, many of them equal.
    #[test]
    fn it_is_the_oracles() {
        let seed = 1;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for round in 0..3_000 {
            let grain = [2, 20, 1_000_000][round % 3];
            let mut side = || -> Vec<f64> {
                let n = 1 + random.index(60);
                let value = |_| random.below(grain) as f64 / 7.0;
                (0..n).map(value).collect()
            };
            let cells: Vec<_> = (0..1 + round / 3 % 3)
                .map(|_| cell(side(), side()))
                .collect();
            assert_eq!(hodges_lehmann(&cells), oracle(&cells), "round {round}");
        }
    }

    proptest! {
        #[test]
        fn any_finite_numbers(
            before in prop::collection::vec(-1e300f64..1e300, 1..40),
            after in prop::collection::vec(-1e300f64..1e300, 1..40),
        ) {
            let cells = [cell(before, after)];
            prop_assert_eq!(hodges_lehmann(&cells), oracle(&cells));
        }
    }
}
