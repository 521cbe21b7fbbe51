use super::churn::Churn;
use super::log_normal::{log_normal, log_uniform};
use super::{PAGE, map, streams};
use crate::memory::{MemoryEvent, Placing};
use crate::random::Random;
use crate::units::Bytes;

/// Sizes that hardly repeat, so that a range freed seldom fits what is asked next: `n` ranges
/// live, one freed at random and one mapped in turn.
///
/// The seed first draws [`ManySizes::SIZES`] distinct page counts from 1 to
/// [`ManySizes::LARGEST_PAGES`], their logarithm uniform, so that nearly every small count is
/// among them and the large ones are spread. A request then draws a log-normal page count,
/// median 16 pages and a standard deviation of 1.3 of its natural logarithm, and takes the
/// nearest of them (the smaller of two as near). So each is as likely as the log-normal says.
/// Most of the 2,000 are rare: some 1,000 come within a million operations.
#[derive(Debug, Clone)]
pub struct ManySizes {
    n: u32,
    operations: u64,
    seed: u64,
}

/// The deviation of the logarithm to the base 2: 1.3 / ln 2.
const SIGMA: f64 = 1.3 * std::f64::consts::LOG2_E;
const LOG2_MEDIAN: f64 = 4.0;
const LOG2_LARGEST: u32 = 12;

impl ManySizes {
    /// Distinct sizes.
    pub const SIZES: usize = 2_000;
    /// The largest of them at most, in pages of 4 KiB.
    pub const LARGEST_PAGES: u64 = 1 << LOG2_LARGEST;
    /// The default number of live ranges.
    pub const USUAL_N: u32 = 25_000;

    /// `n` ranges live, then `operations` operations: a free, a map, a free ...
    #[must_use]
    pub fn new(n: u32, operations: u64, seed: u64) -> ManySizes {
        ManySizes {
            n,
            operations,
            seed,
        }
    }

    /// The distinct page counts, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<u64> {
        let [_, _, mut set] = streams(self.seed);
        distinct(&mut set)
    }

    /// Its events.
    pub fn events(&self) -> impl Iterator<Item = MemoryEvent> + use<> {
        let nearest = nearest(&self.sizes());
        let [mut sizes, choice, _] = streams(self.seed);
        Churn::new(self.n, self.n, self.operations, choice, move |id| {
            let drawn = log_normal(&mut sizes, LOG2_MEDIAN, SIGMA).min(ManySizes::LARGEST_PAGES);
            let pages = nearest[drawn as usize];
            map(id, Bytes(u64::from(pages) * PAGE.0), Placing::ANYWHERE)
        })
    }
}

fn distinct(random: &mut Random) -> Vec<u64> {
    let mut sizes = std::collections::BTreeSet::new();
    while sizes.len() < ManySizes::SIZES {
        sizes.insert(log_uniform(random, LOG2_LARGEST));
    }
    sizes.into_iter().collect()
}

/// For each page count the nearest of `sizes`.
fn nearest(sizes: &[u64]) -> Vec<u16> {
    let mut at = 0;
    (0..=ManySizes::LARGEST_PAGES)
        .map(|pages| {
            while at + 1 < sizes.len() && sizes[at + 1].abs_diff(pages) < sizes[at].abs_diff(pages)
            {
                at += 1;
            }
            sizes[at] as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn there_are_two_thousand_sizes_and_requests_are_log_normal() {
        let workload = ManySizes::new(25_000, 400_000, 1);
        let sizes = workload.sizes();
        assert_eq!(sizes.len(), 2_000);
        let mut seen = BTreeMap::new();
        let mut requests = 0;
        for event in workload.events() {
            if let MemoryEvent::Map { length, .. } = event {
                *seen.entry(length.0 / PAGE.0).or_insert(0u32) += 1;
                requests += 1;
            }
        }
        assert!(seen.keys().all(|pages| sizes.binary_search(pages).is_ok()));
        assert!(seen.len() > 500, "{} sizes came", seen.len());
        let up_to = |most| seen.range(..=most).map(|(_, n)| n).sum::<u32>();
        // 51.0 % of the log-normal lie below 16.5 pages and 84.1 % below 16 e^1.3 = 58.7.
        let share = |n| f64::from(n) / f64::from(requests);
        assert!((share(up_to(16)) - 0.510).abs() < 0.01);
        assert!((share(up_to(58)) - 0.840).abs() < 0.01);
    }

    /// ```text
    /// sizes     1   2         6
    /// pages   0 1   2 3 4 | 5 6 7 ...    4 is as near to 2 as to 6: the smaller
    /// ```
    #[test]
    fn the_nearest_is_taken() {
        let nearest = nearest(&[1, 2, 6]);
        assert_eq!(nearest[..8], [1, 1, 2, 2, 2, 6, 6, 6]);
        assert_eq!(nearest.last(), Some(&6));
    }
}
