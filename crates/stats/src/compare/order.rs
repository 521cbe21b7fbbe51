//! Tests whether runs in their order are as independent as they should be.

use stopgap_events::order::SortRows;

/// Fewest runs for the test.
const LEAST: usize = 10;

/// Standard errors beyond which runs count as dependent: 1 of 500 sides of independent runs is further out.
const FAR: f64 = 2.88;

/// Returns the rank correlation of neighbouring runs where it is larger than that of independent runs, by Bartels' ratio of von
/// Neumann (*The Rank Version of von Neumann's Ratio Test for Randomness*, 1982).
pub(super) fn resemble(runs: &[f64]) -> Option<f64> {
    if runs.len() < LEAST {
        return None;
    }
    let ranks = ranks(runs);
    let n = ranks.len() as f64;
    let middle = f64::midpoint(n, 1.0);
    let spread: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    let steps: f64 = ranks.windows(2).map(|two| (two[1] - two[0]).powi(2)).sum();
    let ratio = steps / spread;
    let variance = 4.0 * (n - 2.0) * (5.0 * n * n - 2.0 * n - 9.0)
        / (5.0 * n * (n + 1.0) * (n - 1.0) * (n - 1.0));
    (2.0 - ratio > FAR * variance.sqrt()).then_some(1.0 - ratio / 2.0)
}

/// Returns the rank of each value, starting with 1; equal values share the mean of theirs.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_rows(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        for &at in tied {
            ranks[at] = below as f64 + f64::midpoint(1.0, tied.len() as f64);
        }
        below += tied.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    #[test]
    fn ranks_are_shared_by_equals() {
        let halves = |values: &[f64]| -> Vec<u32> {
            ranks(values)
                .iter()
                .map(|rank| (2.0 * rank) as u32)
                .collect()
        };
        assert_eq!(halves(&[3.0, 1.0, 3.0, 2.0]), [7, 2, 7, 4]);
        assert!(ranks(&[]).is_empty());
    }

    /// Independent runs are called dependent in 1 of 500 cases, runs of a walk nearly always.
    #[test]
    fn a_walk_is_told_from_independent_runs() {
        let seed = 1;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for (memory, least, most) in [(0.0, 0, 12), (0.98, 990, 1_000)] {
            let mut alike = 0;
            for _ in 0..1_000 {
                let mut level = 0.0;
                let runs: Vec<f64> = (0..60)
                    .map(|_| {
                        level = memory * level + random.below(1_000) as f64 - 499.5;
                        level
                    })
                    .collect();
                alike += u32::from(resemble(&runs).is_some());
            }
            assert!(
                (least..=most).contains(&alike),
                "{memory}: {alike} of 1,000"
            );
        }
        assert_eq!(resemble(&[7.0; 20]), None);
        // A drift is no independence either. Alternating runs do not count as dependent.
        let drift: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(resemble(&drift).is_some_and(|likeness| likeness > 0.9));
        let turns: Vec<f64> = (0..20).map(|i| f64::from(i % 2)).collect();
        assert_eq!(resemble(&turns), None);
    }
}
