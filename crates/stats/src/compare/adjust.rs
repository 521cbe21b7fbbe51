//! Adjusts the probabilities of several tests, so that all together are as certain as a single one.

use stopgap_events::order::SortRows;

/// Holm's adjusted probabilities (*A simple sequentially rejective multiple test procedure*, 1979): those at or below
/// 0.05 are together wrong in at most 5 % of cases, however the tests depend on each other. For a gate.
///
/// ```
/// assert_eq!(stopgap_stats::compare::holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
/// ```
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0f64;
    for (place, &at) in order.iter().enumerate() {
        least = least.max(p[at] * (p.len() - place) as f64).min(1.0);
        adjusted[at] = least;
    }
    adjusted
}

/// Benjamini and Hochberg's adjusted probabilities (*Controlling the False Discovery Rate*, 1995): of those at or below
/// 0.05 at most 5 % are wrong on average, for tests that are independent or positively dependent. For looking around
/// among many; not for a gate.
///
/// ```
/// assert_eq!(stopgap_stats::compare::benjamini_hochberg(&[0.01, 0.04, 0.03]), [0.03, 0.04, 0.04]);
/// ```
#[must_use]
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let order = ascending(p);
    let mut adjusted = vec![1.0; p.len()];
    let mut most = 1.0f64;
    for (place, &at) in order.iter().enumerate().rev() {
        most = most.min(p[at] * (p.len() as f64 / (place + 1) as f64));
        adjusted[at] = most;
    }
    adjusted
}

/// Returns the indices of `p` in the order of its values.
fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_rows(|&a, &b| p[a].total_cmp(&p[b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R's `p.adjust` of these, to its seven digits.
    #[test]
    fn as_r_does_it() {
        let p = [0.001, 0.20, 0.013, 0.04, 0.013];
        let close = |ours: Vec<f64>, theirs: [f64; 5]| {
            let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
            assert!(ours.iter().zip(&theirs).all(near), "{ours:?} {theirs:?}");
        };
        close(holm(&p), [0.005, 0.20, 0.052, 0.08, 0.052]);
        let third = 0.065 / 3.0;
        close(benjamini_hochberg(&p), [0.005, 0.20, third, 0.05, third]);
        assert!(holm(&[]).is_empty());
    }
}
