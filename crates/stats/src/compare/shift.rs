//! Estimates of a change that no single run decides.
//!
//! [`hodges_lehmann`] is the median of all differences between a run of one side and a run of the other (Hodges and
//! Lehmann, *Estimates of Location Based on Rank Tests*, 1963). For logarithms it is a ratio. Up to 29 % of the runs
//! may be arbitrarily wrong before the estimate is. The differences are not listed: the range of the median is
//! halved, and differences are counted, O(runs) per step, in about ten steps.

/// Most differences that are listed and sorted instead of halving further.
const LISTED: usize = 64;

/// Returns the median of all differences `after - before`, for sides that are finite and ascending. `None` without
/// differences, or if a number cannot hold one.
pub(super) fn hodges_lehmann(before: &[f64], after: &[f64]) -> Option<f64> {
    let all = before.len() * after.len();
    let mut low = after.first()? - before.last()?;
    let mut high = after.last()? - before.first()?;
    if !low.is_finite() || !high.is_finite() {
        return None;
    }
    // The differences in the middle are those with this many at or below them: numbers `lower` and `upper`, from 1.
    let (lower, upper) = (all.div_ceil(2), all / 2 + 1);
    // All differences are at or below `high`, and `below` of them, fewer than `lower`, are at or below `low`.
    low = low.next_down();
    let (mut below, mut within) = (0, all);
    while within - below > LISTED {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            // The ends are neighbouring numbers, so the remaining differences are equal.
            return Some(high);
        }
        let count = at_or_below(before, after, middle);
        if count >= upper {
            (high, within) = (middle, count);
        } else if count < lower {
            (low, below) = (middle, count);
        } else {
            // The median is between the two in the middle.
            return Some(around(before, after, middle));
        }
    }
    let mut listed = Vec::with_capacity(LISTED);
    list(before, after, (low, high), &mut listed);
    listed.sort_unstable_by(f64::total_cmp);
    Some(f64::midpoint(
        listed[lower - below - 1],
        listed[upper - below - 1],
    ))
}

/// Returns the number of differences at or below `limit`.
fn at_or_below(before: &[f64], after: &[f64], limit: f64) -> usize {
    // As `before` grows, so does the part of `after` that is close enough.
    let (mut count, mut near) = (0, 0);
    for before in before {
        while near < after.len() && after[near] - before <= limit {
            near += 1;
        }
        count += near;
    }
    count
}

/// Returns the mean of the largest difference at or below `limit` and the smallest one above it.
fn around(before: &[f64], after: &[f64], limit: f64) -> f64 {
    let (mut below, mut above) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut near = 0;
    for before in before {
        while near < after.len() && after[near] - before <= limit {
            near += 1;
        }
        if near > 0 {
            below = below.max(after[near - 1] - before);
        }
        if near < after.len() {
            above = above.min(after[near] - before);
        }
    }
    f64::midpoint(below, above)
}

/// Lists the differences above `low` up to `high`.
fn list(before: &[f64], after: &[f64], (low, high): (f64, f64), listed: &mut Vec<f64>) {
    let mut first = 0;
    for before in before {
        while first < after.len() && after[first] - before <= low {
            first += 1;
        }
        let rest = after[first..].iter().map(|after| after - before);
        listed.extend(rest.take_while(|difference| *difference <= high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stopgap_events::random::Random;

    /// The definition: sorts every difference.
    fn oracle(before: &[f64], after: &[f64]) -> Option<f64> {
        let differences = before
            .iter()
            .flat_map(|before| after.iter().map(move |after| after - before));
        crate::quantile::median(differences.collect())
    }

    fn sorted(mut side: Vec<f64>) -> Vec<f64> {
        side.sort_unstable_by(f64::total_cmp);
        side
    }

    #[test]
    fn the_median_of_all_differences() {
        let of = hodges_lehmann;
        assert_eq!(of(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]), Some(10.0));
        assert_eq!(of(&[1.0], &[2.0]), Some(1.0));
        assert_eq!(of(&[1.0], &[]), None);
        assert_eq!(of(&[-f64::MAX], &[f64::MAX]), None);
        assert_eq!(of(&[7.0; 40], &[7.0; 40]), Some(0.0));
    }

    /// Up to 60 runs per side, many of them equal.
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
                sorted((0..n).map(value).collect())
            };
            let (before, after) = (side(), side());
            assert_eq!(
                hodges_lehmann(&before, &after),
                oracle(&before, &after),
                "round {round}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_finite_numbers(
            before in prop::collection::vec(-1e300f64..1e300, 1..40),
            after in prop::collection::vec(-1e300f64..1e300, 1..40),
        ) {
            let (before, after) = (sorted(before), sorted(after));
            prop_assert_eq!(hodges_lehmann(&before, &after), oracle(&before, &after));
        }
    }
}
