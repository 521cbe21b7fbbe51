//! The size of a change that a number of occasions can show.

/// Returns the change that one endpoint of `occasions` per side shows in four of five comparisons, in standard
/// deviations between occasions. With fewer than 2 per side, no change shows.
#[must_use]
pub fn detectable(occasions: u32) -> f64 {
    if occasions < 2 {
        return f64::INFINITY;
    }
    // The sum of the normal quantiles of 0.975 and 0.8; the last factor brings it to Student's distribution.
    let n = f64::from(occasions);
    2.802 * (2.0 / n).sqrt() * (1.0 + 0.6 / (n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Run, Side, Word, compare};
    use super::*;
    use stopgap_events::random::Random;

    #[test]
    fn four_of_five_comparisons_find_it() {
        assert!(detectable(1).is_infinite());
        let mut random = Random::new(3);
        // The sum of twelve uniform numbers is nearly normal, with a deviation of 1.
        let mut normal = || {
            (0..12)
                .map(|_| random.bits() as f64 / u64::MAX as f64)
                .sum::<f64>()
                - 6.0
        };
        let options = Options {
            resamples: 10,
            permutations: 999,
            endpoints: vec!["x".into()],
            ..Options::default()
        };
        for (n, tries) in [(5, 150), (10, 60), (30, 40)] {
            let mut side = |shift: f64| Side {
                runs: (0..n)
                    .map(|_| Run::of_number("", "x", 10.0 + shift + normal()))
                    .collect(),
                ..Side::default()
            };
            let found = (0..tries).filter(|_| {
                let (before, after) = (side(0.0), side(detectable(n)));
                compare(&before, &after, &options).verdict.word == Word::Regression
            });
            let found = found.count() as f64 / f64::from(tries);
            assert!((0.62..=0.95).contains(&found), "{found} at {n}");
        }
    }
}
