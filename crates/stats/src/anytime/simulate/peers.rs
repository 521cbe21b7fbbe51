//! Other methods, applied to runs of the same slots.

use crate::bootstrap::{Z_975, t_975};

/// First look of methods that look after each pair: 5 runs per side. The last one is at [`super::EARLY`].
const FIRST_LOOK: usize = 5;

/// Welch's t-test of means at 5 %.
pub(super) fn welch(before: &[f64], after: &[f64]) -> bool {
    let of = |side: &[f64]| {
        let n = side.len() as f64;
        let mean = side.iter().sum::<f64>() / n;
        let squares: f64 = side.iter().map(|x| (x - mean) * (x - mean)).sum();
        (mean, squares / (n - 1.0) / n, n)
    };
    let ((a, part_a, n), (b, part_b, m)) = (of(before), of(after));
    let both = part_a + part_b;
    if both <= 0.0 {
        return (a - b).abs() > 0.0;
    }
    let freedom = both * both / (part_a * part_a / (n - 1.0) + part_b * part_b / (m - 1.0));
    (b - a).abs() > t_975(freedom.floor() as usize) * both.sqrt()
}

/// Mann and Whitney's test at 5 % by the normal distribution, corrected for ties and continuity.
pub(super) fn mann_whitney(before: &[f64], after: &[f64]) -> bool {
    let (n, m) = (before.len() as f64, after.len() as f64);
    let labelled = |side: &[f64], is_later| side.iter().map(move |&x| (x, is_later)).collect();
    let mut all: Vec<(f64, bool)> = labelled(before, false);
    all.extend::<Vec<_>>(labelled(after, true));
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut ranks, mut ties) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let count = equal.len() as f64;
        let later = equal.iter().filter(|(_, is_later)| *is_later).count() as f64;
        // Equal values share the mean of their ranks.
        ranks += later * (below + f64::midpoint(1.0, count));
        ties += count.powi(3) - count;
        below += count;
    }
    let u = ranks - m * (m + 1.0) / 2.0;
    let both = n + m;
    let variance = n * m / 12.0 * (both + 1.0 - ties / (both * (both - 1.0)));
    (u - n * m / 2.0).abs() - 0.5 > Z_975 * variance.sqrt()
}

/// Returns whether a test finds a difference at any look.
pub(super) fn looking(
    test: fn(&[f64], &[f64]) -> bool,
    before: &[f64],
    after: &[f64],
    most: usize,
) -> bool {
    (FIRST_LOOK..=most).any(|n| test(&before[..n], &after[..n]))
}

/// tango-bench: differences of alternating pairs. As many are cut off at both ends as lie more than five interquartile ranges
/// below the first quartile (its code means to look at the upper end as well, but counts from the wrong place). Then the mean
/// must be 2.6 standard errors and half a per cent.
pub(super) fn tango(before: &[f64], after: &[f64]) -> bool {
    let mut differences: Vec<f64> = before.iter().zip(after).map(|(a, b)| b - a).collect();
    differences.sort_unstable_by(f64::total_cmp);
    let n = differences.len();
    let (first, third) = (differences[n / 4], differences[n * 3 / 4]);
    let far = 5.0 * (third - first);
    let cut = differences.partition_point(|&d| d < first - far);
    let kept = &differences[cut..n - cut];
    let count = kept.len() as f64;
    let mean = kept.iter().sum::<f64>() / count;
    let squares: f64 = kept.iter().map(|d| (d - mean) * (d - mean)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let typical = after.iter().sum::<f64>() / n as f64;
    mean.abs() >= 2.6 * error && (mean / typical).abs() > 0.005
}

/// The anytime-valid t-test of Lindon, Ham, Tingley and Bojinov: the likelihood of normal differences whose mean, in their deviations,
/// is drawn from a normal distribution, over that of a mean of 0. Returns the unit at which it reaches `1 / alpha`.
pub(super) fn anytime_t(units: &[f64], alpha: f64) -> Option<usize> {
    /// The prior's precision: means of half a deviation are expected.
    const PRECISION: f64 = 4.0;
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    units
        .iter()
        .position(|d| {
            n += 1.0;
            let step = d - mean;
            mean += step / n;
            squares += step * (d - mean);
            // t^2 / (n - 1), without dividing by a spread of 0.
            let explained = n * mean * mean;
            let shrunk = PRECISION / (PRECISION + n);
            let gain = (squares + explained) / (squares + explained * shrunk);
            n > 1.0 && shrunk.sqrt() * gain.powf(n / 2.0) >= 1.0 / alpha
        })
        .map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_others() {
        let before: Vec<f64> = (0..10).map(f64::from).collect();
        let moved = |by: f64| before.iter().map(|x| x + by).collect::<Vec<_>>();
        // t = 4 / 1.354 = 2.95, and 1.48 for 2; 18 degrees of freedom.
        assert!(welch(&before, &moved(4.0)) && !welch(&before, &moved(2.0)));
        // U = 82.5 by ranks of half ties for 4.5: z = 2.4; for 2.5: 1.4.
        assert!(mann_whitney(&before, &moved(4.5)) && !mann_whitney(&before, &moved(2.5)));
        assert!(!mann_whitney(&[1.0; 5], &[1.0; 5]) && !welch(&[1.0; 5], &[1.0; 5]));
        assert!(!tango(&before, &before));
        let shaken: Vec<f64> = before.iter().map(|x| x + 1.0 + 0.1 * (x % 2.0)).collect();
        assert!(tango(&before, &shaken));
        assert!(looking(welch, &before, &moved(4.0), 10));
        // For 0.4 and 0.6: mean 0.5, squares 0.02; gain 0.52 / (0.02 + 0.5 * 4 / 6), times the root of 4 / 6.
        let evidence = (4.0f64 / 6.0).sqrt() * 0.52 / (0.02 + 1.0 / 3.0);
        assert_eq!(anytime_t(&[0.4, 0.6], 1.001 / evidence), Some(2));
        assert_eq!(anytime_t(&[0.4, 0.6], 0.999 / evidence), None);
        assert_eq!(anytime_t(&[0.0; 50], 0.5), None);
    }
}
