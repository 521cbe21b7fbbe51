//! Other common tests on the same data: which of them call two sides different at 5 %.

use super::super::order::ranks;
use super::world::{Figures, SAMPLES};
use crate::bootstrap::{Z_975, t_975};

/// Their names, in the order of [`reject`].
pub(super) const NAMES: [&str; 4] = [
    "pooled t on raw samples",
    "ministat on run means",
    "Mann-Whitney on raw samples",
    "Mann-Whitney on run medians",
];

/// Both sides as they are.
pub(super) struct Sides<'a> {
    pub(super) before: &'a [Figures],
    pub(super) after: &'a [Figures],
    /// All samples of a side, ascending, in whole nanoseconds.
    pub(super) before_samples: &'a [u32],
    pub(super) after_samples: &'a [u32],
}

/// Returns which of them find a difference. Both sides must have the same number of runs.
pub(super) fn reject(sides: &Sides<'_>) -> [bool; NAMES.len()] {
    let [means, medians] = [|run: &Figures| run.mean, |run: &Figures| run.median]
        .map(|of| [sides.before, sides.after].map(|side| side.iter().map(of).collect::<Vec<_>>()));
    [
        pooled(sides),
        student(&means),
        raw_ranks(sides.before_samples, sides.after_samples),
        run_ranks(&medians),
    ]
}

/// Student's test of all samples, as if they were independent.
fn pooled(sides: &Sides<'_>) -> bool {
    let of = |side: &[Figures]| {
        let mean = side.iter().map(|run| run.mean).sum::<f64>() / side.len() as f64;
        let between = |run: &Figures| SAMPLES as f64 * (run.mean - mean) * (run.mean - mean);
        let squares: f64 = side.iter().map(|run| run.squares + between(run)).sum();
        (mean, squares, (side.len() * SAMPLES) as f64)
    };
    let (before, squares_before, n) = of(sides.before);
    let (after, squares_after, m) = of(sides.after);
    let variance = (squares_before + squares_after) / (n + m - 2.0);
    (after - before).abs() > Z_975 * (variance * (1.0 / n + 1.0 / m)).sqrt()
}

/// Student's test of one figure per run, as ministat does it.
fn student([before, after]: &[Vec<f64>; 2]) -> bool {
    let of = |side: &[f64]| {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        let squares: f64 = side.iter().map(|x| (x - mean) * (x - mean)).sum();
        (mean, squares)
    };
    let ((a, squares_a), (b, squares_b)) = (of(before), of(after));
    let freedom = before.len() + after.len() - 2;
    let variance = (squares_a + squares_b) / freedom as f64;
    let error = (variance * (1.0 / before.len() as f64 + 1.0 / after.len() as f64)).sqrt();
    (b - a).abs() > t_975(freedom) * error
}

/// Mann and Whitney's test by the normal distribution, of all samples, as if they were independent.
fn raw_ranks(before: &[u32], after: &[u32]) -> bool {
    let (mut less, mut or_equal, mut doubled) = (0, 0, 0u64);
    for ns in after {
        while less < before.len() && before[less] < *ns {
            less += 1;
        }
        while or_equal < before.len() && before[or_equal] <= *ns {
            or_equal += 1;
        }
        doubled += (less + or_equal) as u64;
    }
    let (n, m) = (before.len() as f64, after.len() as f64);
    let error = (n * m * (n + m + 1.0) / 12.0).sqrt();
    (doubled as f64 / 2.0 - n * m / 2.0).abs() > Z_975 * error
}

/// Mann and Whitney's test of one figure per run, by the normal distribution with its correction for continuity.
fn run_ranks([before, after]: &[Vec<f64>; 2]) -> bool {
    let (n, m) = (before.len() as f64, after.len() as f64);
    let ranks = ranks(&[&before[..], after].concat());
    let u = ranks[before.len()..].iter().sum::<f64>() - m * (m + 1.0) / 2.0;
    let error = (n * m * (n + m + 1.0) / 12.0).sqrt();
    (u - n * m / 2.0).abs() - 0.5 > Z_975 * error
}
