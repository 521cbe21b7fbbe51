//! The protocol's arithmetic (IGT, `lib/igt_stats.c` and `benchmarks/gem_syslatency.c`).

/// What one number of per-CPU maxima is: the trimean of more than 9, the median of more than 5, else the mean.
/// `None` where there is none. It is *not* the maximum: of 11 CPUs the latest two may be as late as they like.
pub(super) fn fold(maxima: &[f64]) -> Option<f64> {
    let mut sorted = maxima.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0..=5 => mean(&sorted),
        6..=9 => Some(middle(&sorted)),
        _ => Some(trimean(&sorted)),
    }
}

/// The mean; `None` of nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median of sorted values (at least one): of an even number the mean of the two in the middle.
fn middle(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// (q1 + 2 q2 + q3) / 4 of sorted values (at least one); the one in the middle of an odd number belongs to both
/// halves.
fn trimean(sorted: &[f64]) -> f64 {
    let half = sorted.len().div_ceil(2);
    let (q1, q3) = (
        middle(&sorted[..half]),
        middle(&sorted[sorted.len() - half..]),
    );
    (q1 + 2.0 * middle(sorted) + q3) / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    #[test]
    fn up_to_five_cpus_it_is_the_mean() {
        assert_eq!(fold(&[]), None);
        assert_eq!(fold(&[7.0]), Some(7.0));
        assert_eq!(fold(&[1.0, 2.0, 3.0, 4.0, 90.0]), Some(20.0));
    }

    #[test]
    fn up_to_nine_it_is_the_median() {
        assert_eq!(fold(&[90.0, 1.0, 2.0, 3.0, 4.0, 5.0]), Some(3.5));
        assert_eq!(
            fold(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0]),
            Some(5.0)
        );
    }

    /// Ten: halves 1..5 and 6..10, so q1 3, q2 5.5, q3 8. Eleven: halves 1..6 and 6..11, so q1 3.5, q2 6, q3 8.5.
    #[test]
    fn beyond_it_is_the_trimean_and_an_odd_middle_belongs_to_both_halves() {
        assert_eq!(fold(&up_to(10)), Some((3.0 + 11.0 + 8.0) / 4.0));
        assert_eq!(fold(&up_to(11)), Some(6.0));
        // The upper half is 0 4 8 12 16 20 with the middle in it, so q3 is 10; without it, 12.
        let odd = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 8.0, 12.0, 16.0, 20.0];
        assert_eq!(fold(&odd), Some((0.0 + 0.0 + 10.0) / 4.0));
    }

    #[test]
    fn an_outlier_disappears_in_it() {
        let mut maxima = up_to(11);
        maxima[10] = 675_000_000.0;
        assert_eq!(fold(&maxima), Some(6.0));
        maxima.swap(0, 10);
        assert_eq!(fold(&maxima), Some(6.0), "in whatever order");
    }
}
