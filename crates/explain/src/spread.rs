//! The distribution of a count. It is exact, because counts are small.

use std::collections::BTreeMap;

use stopgap_stats::explain::Spread;
use stopgap_stats::quantile::quantile_of_counts;

/// Number of times that each value came. Its size is the number of distinct values: for switches, at most about
/// `sqrt(2 n)` within n events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(BTreeMap<u64, u64>);

impl Counts {
    pub(crate) fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    pub(crate) fn absorb(&mut self, other: &Counts) {
        for (&value, &count) in &other.0 {
            *self.0.entry(value).or_default() += count;
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the sum of all values.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|(value, count)| value * count).sum()
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let len = self.len();
        (len > 0).then(|| self.sum() as f64 / len as f64)
    }

    /// Returns the least value that a share `q` of the values does not exceed; `None` if there are too few values.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        let counts = self.0.iter().map(|(&value, &count)| (value, count));
        quantile_of_counts(counts, self.len(), q)
    }

    pub(crate) fn to_record(&self) -> Spread {
        Spread {
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            mean: self.mean(),
            most: self.0.keys().next_back().copied(),
            distribution: self.0.iter().map(|(&v, &c)| (v, c)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_list() {
        let mut counts = Counts::default();
        let values: Vec<u64> = (0..100).map(|i| i * i % 37).collect();
        for &value in &values {
            counts.add(value);
        }
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let spread = counts.to_record();
        assert_eq!(spread.p50, Some(sorted[49]));
        assert_eq!(spread.p90, Some(sorted[89]));
        assert_eq!(spread.most, Some(sorted[99]));
        assert_eq!(counts.sum(), values.iter().sum::<u64>());
    }

    #[test]
    fn too_few_have_no_quantile() {
        let mut counts = Counts::default();
        assert_eq!(counts.to_record(), Spread::default());
        for _ in 0..99 {
            counts.add(2);
        }
        assert_eq!(counts.quantile(0.5), Some(2));
        assert_eq!(counts.quantile(0.9), None);
    }
}
