//! The permutation test.
//!
//! Where nothing changed, a run's side is a label that any other run of its block could carry as well. The test deals
//! the labels anew, block by block, in every possible way where those are at most [`EXACT`], else in a seeded random
//! sample; the probability is the share of arrangements in which the sum of the later side's scores is as far from its
//! expectation as the one that was seen. In a sample the seen arrangement counts as one more (Phipson and Smyth,
//! *Permutation P-values Should Never Be Zero*, 2010), so the level holds with any number of draws.
//!
//! Scores are integers: whether two arrangements tie is then no matter of rounding.

use stopgap_events::random::Random;

/// Up to so many arrangements are all gone through: 8 runs against 8 in one block, 5 ABBA blocks of 4.
pub const EXACT: u32 = 20_000;

/// The unit of scores: what is no whole number is rounded to 1 / `UNIT`.
const UNIT: f64 = (1u64 << 20) as f64;

/// The scores of one block, the earlier side's first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scores {
    all: Vec<i64>,
    /// How many of them, the last ones, are the later side's.
    after: usize,
}

impl Scores {
    /// Each score must be at most 2^20 away from 0.
    pub(super) fn new(before: &[f64], after: &[f64]) -> Scores {
        let all = before.iter().chain(after);
        Scores {
            all: all.map(|score| (score * UNIT).round() as i64).collect(),
            after: after.len(),
        }
    }

    fn sum(&self) -> i64 {
        self.all.iter().sum()
    }

    /// Returns the mean sum of the later side's scores over all arrangements.
    fn expected(&self) -> i64 {
        let product = i128::from(self.sum()) * self.after as i128;
        i64::try_from(product / self.all.len().max(1) as i128)
            .expect("a part of a sum of scores, which is an i64")
    }
}

/// A probability, and from how many arrangements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Probability {
    pub(super) p: f64,
    pub(super) arrangements: u32,
    /// All there are, or a random sample.
    pub(super) exact: bool,
}

/// How many arrangements there are, possibly infinite: the product over blocks of (runs choose later runs).
pub(super) fn arrangements(blocks: impl Iterator<Item = (usize, usize)>) -> f64 {
    let choose = |n: usize, k: usize| {
        let k = k.min(n - k);
        (1..=k).fold(1.0, |product, i| product * (n - k + i) as f64 / i as f64)
    };
    blocks
        .map(|(before, after)| choose(before + after, after).round())
        .product()
}

/// The two-sided probability of the later side's sum of scores. Draws the same arrangements for the same seed and sizes.
///
/// Takes a step a run and draw: 9,999 draws of 60 runs are 1 ms.
pub(super) fn permutation(blocks: &mut [Scores], draws: u32, seed: u64) -> Probability {
    let expected: i64 = blocks.iter().map(Scores::expected).sum();
    // Every score may be half a unit off, every expectation one.
    let runs: usize = blocks.iter().map(|block| block.all.len()).sum();
    let slack = 2 * runs as i64;
    let later = |block: &Scores| -> i64 { block.all[block.all.len() - block.after..].iter().sum() };
    let seen = (blocks.iter().map(later).sum::<i64>() - expected).abs();
    let as_far = |sum: i64| (sum - expected).abs() + slack >= seen;

    let sizes = blocks
        .iter()
        .map(|block| (block.all.len() - block.after, block.after));
    if arrangements(sizes) <= f64::from(EXACT) {
        let mut sums = vec![0];
        for block in blocks {
            let (mut own, n) = (Vec::new(), block.all.len());
            // Choosing the smaller side leaves the larger one.
            subset_sums(&block.all, block.after.min(n - block.after), 0, &mut own);
            if block.after > n - block.after {
                let whole = block.sum();
                own.iter_mut().for_each(|sum| *sum = whole - *sum);
            }
            let with = |sum: &i64| own.iter().map(move |own| sum + own).collect::<Vec<_>>();
            sums = sums.iter().flat_map(with).collect();
        }
        let far = sums.iter().filter(|&&sum| as_far(sum)).count();
        return Probability {
            p: f64::from(far as u32) / f64::from(sums.len() as u32),
            arrangements: sums.len() as u32,
            exact: true,
        };
    }

    let mut random = Random::new(seed);
    let sums: Vec<i64> = blocks.iter().map(Scores::sum).collect();
    let mut far = 0u32;
    for _ in 0..draws {
        let mut sum = 0;
        for (block, whole) in blocks.iter_mut().zip(&sums) {
            let n = block.all.len();
            let fewer = block.after.min(n - block.after);
            let mut drawn = 0;
            for place in 0..fewer {
                block.all.swap(place, place + random.index(n - place));
                drawn += block.all[place];
            }
            sum += if fewer == block.after {
                drawn
            } else {
                whole - drawn
            };
        }
        far += u32::from(as_far(sum));
    }
    Probability {
        p: f64::from(far + 1) / (f64::from(draws) + 1.0),
        arrangements: draws,
        exact: false,
    }
}

/// The sum of every choice of `k` of `scores`, added to `so_far`.
fn subset_sums(scores: &[i64], k: usize, so_far: i64, sums: &mut Vec<i64>) {
    if k == 0 {
        sums.push(so_far);
        return;
    }
    // The first one chosen; enough must be left for the others.
    for first in 0..=scores.len() - k {
        subset_sums(&scores[first + 1..], k - 1, so_far + scores[first], sums);
    }
}

/// Returns the rank of each value, starting with 1; equal values share the mean of theirs.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
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

    fn one(before: &[f64], after: &[f64]) -> Probability {
        permutation(&mut [Scores::new(before, after)], 999, 1)
    }

    #[test]
    fn ranks_are_shared_by_equals() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert!(ranks(&[]).is_empty());
    }

    /// 2 of 252, 2 of 6 arrangements are as far; R's `wilcox.test(exact = TRUE)` says 0.007937 and 0.3333.
    #[test]
    fn few_runs_are_counted_out() {
        let apart = one(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(apart.arrangements, 252);
        assert!(apart.exact && (apart.p - 2.0 / 252.0).abs() < 1e-12);
        assert!((one(&[1.0, 2.0], &[3.0, 4.0]).p - 2.0 / 6.0).abs() < 1e-12);
        // Two sides that overlap: R says 0.1143.
        let overlap = one(&[1.0, 2.0, 3.0, 6.0], &[4.0, 5.0, 7.0, 8.0]);
        assert!((overlap.p - 8.0 / 70.0).abs() < 1e-12, "{overlap:?}");
        assert!((one(&[1.0], &[2.0]).p - 1.0).abs() < 1e-12);
        assert!((one(&[4.0; 5], &[4.0; 5]).p - 1.0).abs() < 1e-12);
    }

    /// ```text
    /// block 0   1 | 2      block 1   11 | 12     block 2   21 | 22
    /// ```
    /// Two of 8 arrangements are as far as this one; without blocks it would be lost among the blocks' levels.
    #[test]
    fn labels_stay_in_their_block() {
        let block = |level: f64| Scores::new(&[level + 1.0], &[level + 2.0]);
        let mut blocks = [block(0.0), block(10.0), block(20.0)];
        let seen = permutation(&mut blocks, 999, 1);
        assert_eq!((seen.arrangements, seen.exact), (8, true));
        assert!((seen.p - 0.25).abs() < 1e-12);
        assert!(one(&[1.0, 11.0, 21.0], &[2.0, 12.0, 22.0]).p > 0.5);
    }

    /// The sample of arrangements against all of them.
    #[test]
    fn a_sample_is_near_the_whole() {
        let before: Vec<f64> = (0..9).map(|i| f64::from(i) * 1.7).collect();
        let after: Vec<f64> = (0..9).map(|i| f64::from(i) * 1.7 + 4.6).collect();
        let mut sums = Vec::new();
        let scores = Scores::new(&before, &after);
        subset_sums(&scores.all, 9, 0, &mut sums);
        let (expected, seen) = (scores.expected(), scores.all[9..].iter().sum::<i64>());
        let far = |sum: &&i64| (**sum - expected).abs() >= (seen - expected).abs() - 36;
        let exact = sums.iter().filter(far).count() as f64 / sums.len() as f64;
        let sampled = permutation(&mut [scores], 20_000, 1);
        assert!(!sampled.exact && sums.len() == 48_620);
        // Five standard errors.
        let error = (exact * (1.0 - exact) / 20_000.0).sqrt();
        assert!(
            (sampled.p - exact).abs() < 5.0 * error,
            "{sampled:?} {exact}"
        );
    }

    #[test]
    fn how_many_there_are() {
        let of = |sizes: &[(usize, usize)]| arrangements(sizes.iter().copied());
        assert!((of(&[(5, 5)]) - 252.0).abs() < 1e-9);
        assert!((of(&[(2, 2), (2, 2)]) - 36.0).abs() < 1e-9);
        assert!((of(&[(30, 30)]) / 118_264_581_564_861_424.0 - 1.0).abs() < 1e-9);
        assert!(of(&[(5_000, 5_000)]).is_infinite());
        assert!((of(&[(3, 0)]) - 1.0).abs() < 1e-9);
    }
}
