//! Quantiles that refuse when there are too few samples.
//!
//! A p99.9 of 200 samples is in fact the largest of them. So a quantile is given only if at least [`BEYOND`] samples
//! are expected on its thinner side, so that one sample more or less does not decide it. The median has half of the
//! samples on either side, and needs [`MEDIAN`] samples.
//!
//! A quantile describes the samples of its runs. It has no interval, because samples of one run resemble each other.
//! For intervals, see [`bootstrap`](crate::bootstrap).

use thiserror::Error;

use crate::histogram::Histogram;

/// Samples that must be expected beyond a quantile, on its thinner side.
pub const BEYOND: u64 = 10;
/// Samples that a median needs.
pub const MEDIAN: u64 = 5;

/// Too few samples for this quantile.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("n too small ({have} samples; {} needs {need})", label(*quantile))]
pub struct TooFew {
    /// The quantile, from 0 to 1.
    pub quantile: f64,
    /// Number of samples.
    pub have: u64,
    /// Number of samples that it needs.
    pub need: u64,
}

/// Returns the value, in nanoseconds, that a share `q` of the samples does not exceed; rounded up by at most 0.1 %.
///
/// # Errors
/// [`TooFew`] if there are fewer samples than [`needed`] returns.
///
/// # Panics
/// If `q` is not between 0 and 1, both excluded. The ends are [`Histogram::min`] and [`Histogram::max`].
pub fn quantile(histogram: &Histogram, q: f64) -> Result<u64, TooFew> {
    let too_few = TooFew {
        quantile: q,
        have: histogram.len(),
        need: needed(q),
    };
    if too_few.have < too_few.need {
        return Err(too_few);
    }
    histogram.at(q).ok_or(too_few)
}

/// Returns the number of samples that the quantile `q` needs: 5 for the median, 1,000 for 0.99 and for 0.01.
///
/// # Panics
/// If `q` is not between 0 and 1, both excluded.
#[must_use]
pub fn needed(q: f64) -> u64 {
    assert!(q > 0.0 && q < 1.0, "quantile {q} is not between 0 and 1");
    // Computed in billionths of a thousandth, because 1 - 0.999 is a little more than a thousandth.
    const WHOLE: f64 = 1e12;
    let tail = (q.min(1.0 - q) * WHOLE).round().max(1.0) as u64;
    if tail == WHOLE as u64 / 2 {
        MEDIAN
    } else {
        (BEYOND * WHOLE as u64).div_ceil(tail)
    }
}

/// Returns the median of figures, one per run; for an even number the mean of the two in the middle. `None` without
/// figures.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    median_of_sorted(&figures)
}

/// Returns the [`median`] of figures in ascending order.
#[must_use]
pub fn median_of_sorted(ascending: &[f64]) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    Some(f64::midpoint(
        ascending[last / 2],
        ascending[last.div_ceil(2)],
    ))
}

/// Returns the lower quartile of figures, one per run, between two neighbours in proportion (Hyndman and Fan's seventh
/// definition, 1996). `None` without figures.
#[must_use]
pub fn lower_quartile(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    let part = (last % 4) as f64 / 4.0;
    let (low, high) = (figures[last / 4], figures[last.div_ceil(4)]);
    Some((high - low).mul_add(part, low))
}

/// Returns the rank, from 1, of the least of `n` samples that a share `q` of them does not exceed.
#[must_use]
pub fn rank(q: f64, n: u64) -> u64 {
    ((q * n as f64).ceil() as u64).clamp(1, n.max(1))
}

/// Returns the median of `figures`; for an even number the lower of the two in the middle, so it is one of the
/// figures. `None` without figures.
#[must_use]
pub fn low_median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied()
}

/// Returns the least value that a share `q` of `total` samples does not exceed, from pairs of a value and how often it came,
/// in ascending order of values; `None` where there are too few samples ([`needed`]), or the pairs end before.
#[must_use]
pub fn quantile_of_counts(
    counts: impl IntoIterator<Item = (u64, u64)>,
    total: u64,
    q: f64,
) -> Option<u64> {
    if total < needed(q) {
        return None;
    }
    let rank = rank(q, total);
    let mut below = 0;
    let mut counts = counts.into_iter();
    let reached = counts.find(|(_, count)| {
        below += count;
        below >= rank
    });
    reached.map(|(value, _)| value)
}

/// Returns the quantile's usual name: `p50`, `p99.9`.
#[must_use]
pub fn label(q: f64) -> String {
    let digits = format!("{:.6}", q * 100.0);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("p{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R's `quantile(x, 0.25)`.
    #[test]
    fn lower_quartiles_are_rs() {
        for (figures, quartile) in [
            (vec![], None),
            (vec![7.0], Some(7.0)),
            (vec![4.0, 1.0], Some(1.75)),
            (vec![5.0, 1.0, 4.0, 2.0, 3.0], Some(2.0)),
            (vec![6.0, 1.0, 5.0, 2.0, 4.0, 3.0], Some(2.25)),
        ] {
            assert_eq!(lower_quartile(figures), quartile);
        }
    }

    fn to(n: u64) -> Histogram {
        let mut histogram = Histogram::new();
        for ns in 1..=n {
            histogram.record(ns);
        }
        histogram
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![7.0]), Some(7.0));
        assert_eq!(median(Vec::new()), None);
        assert_eq!(low_median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(low_median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(low_median(Vec::new()), None);
    }

    #[test]
    fn what_is_needed() {
        for (q, need) in [
            (0.5, 5),
            (0.9, 100),
            (0.1, 100),
            (0.99, 1_000),
            (0.01, 1_000),
            (0.999, 10_000),
            (0.9999, 100_000),
            (0.75, 40),
            (0.3, 34),
        ] {
            assert_eq!(needed(q), need, "{q}");
        }
    }

    #[test]
    fn too_few_samples_are_refused_in_words() {
        let error = quantile(&to(200), 0.999).unwrap_err();
        assert_eq!(
            error.to_string(),
            "n too small (200 samples; p99.9 needs 10000)"
        );
        assert_eq!(quantile(&to(4), 0.5).unwrap_err().need, 5);
        assert_eq!(quantile(&to(99), 0.1).unwrap_err().have, 99);
        assert!(quantile(&Histogram::new(), 0.5).is_err());
    }

    #[test]
    fn enough_samples_are_answered() {
        assert_eq!(quantile(&to(5), 0.5), Ok(3));
        assert_eq!(quantile(&to(1_000), 0.99), Ok(990));
        assert_eq!(quantile(&to(1_000), 0.01), Ok(10));
    }

    #[test]
    fn labels() {
        for (q, name) in [
            (0.5, "p50"),
            (0.999, "p99.9"),
            (0.9999, "p99.99"),
            (0.07, "p7"),
        ] {
            assert_eq!(label(q), name);
        }
    }

    #[test]
    #[should_panic(expected = "quantile 1 is not between 0 and 1")]
    fn the_maximum_is_no_quantile() {
        let _ = quantile(&to(10), 1.0);
    }
}
