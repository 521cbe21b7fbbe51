//! Two sides whose runs come in pairs: the same hosts, before and after.
//!
//! What differs from pair to pair, but not from side to side, is in no difference of a pair. So the interval is narrower than that of
//! [`compare`](super::compare()), whose sides are of different runs.
//!
//! The test asks whether the means are equal, and changes the sides of each pair: in all ways, where these are no more than
//! [`EXACT`], else in a seeded sample of them (Fisher, *The Design of Experiments*, 1935, chapter 3). Its level is exact where a side makes
//! no difference to any pair. Where only the means are equal it holds in the limit: the sum of squares, by which Student's statistic is
//! divided, is the same in all arrangements.
//!
//! The interval holds each ratio by which the earlier figures can be multiplied (each difference that can be added to them) so that the
//! test at the same level does not tell the sides apart.

use serde::Serialize;
use stopgap_events::random::Random;

use super::adjust::holm;
use super::record::{Effect, Scale};
use super::resample::Ends;
use super::two::{EXACT, last_inside, share, with_same};
use super::{LEVEL, Options};

/// Doublings of a step away from the estimate before an interval counts as unbounded.
const DOUBLINGS: u32 = 100;

/// One figure of all pairs, before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paired {
    /// Mean of the earlier figures.
    pub before: f64,
    /// Mean of the later figures.
    pub after: f64,
    /// Ratio of the means, or their difference where the earlier mean is 0. The interval has a level of 5 % or less:
    /// that by which Holm's procedure judges.
    pub effect: Effect,
    /// Probability of means that differ as much if the sides do not.
    pub p: f64,
    /// The same, adjusted by Holm for the number of figures.
    pub p_holm: f64,
}

/// Compares figures in pairs: of each figure a list of earlier and one of later values, with the same pairs in the same order.
///
/// 12 figures of 300 pairs and 9,999 arrangements take some 0.1 s. A figure without values, or with more of one side, has no row.
#[must_use]
pub fn paired(figures: &[[Vec<f64>; 2]], options: &Options) -> Vec<Paired> {
    let tests: Vec<Test> = (figures.iter())
        .filter(|[before, after]| !before.is_empty() && before.len() == after.len())
        .map(|[before, after]| Test::new(before, after, options))
        .collect();
    let p: Vec<f64> = tests.iter().map(|test| test.p(test.same())).collect();
    (tests.iter().zip(&p).zip(holm(&p)))
        .map(|((test, &p), p_holm)| {
            // At this level the interval leaves out "the same" where, and only where, the adjusted probability is at most `LEVEL`.
            let ends = test.ends(p, LEVEL * p / p_holm);
            let bound = |end: f64| end.is_finite().then_some(end);
            let [before, after] = test.means;
            Paired {
                before,
                after,
                effect: Effect {
                    value: Some(test.value),
                    low: bound(ends.low),
                    high: bound(ends.high),
                    scale: test.scale,
                    infinite: false,
                },
                p,
                p_holm,
            }
        })
        .collect()
}

/// Returns whether so many pairs can prove a change of one of so many figures.
#[must_use]
pub fn pairs_suffice(pairs: usize, figures: usize, options: &Options) -> bool {
    let least = match exact(pairs) {
        Some(arrangements) => 1.0 / f64::from(arrangements),
        None => share(0, options.permutations as usize, false),
    };
    least * figures as f64 <= LEVEL
}

/// Returns the number of arrangements of so many pairs where all are gone through. The last pair keeps its sides: all changed at once are
/// as far from "the same".
fn exact(pairs: usize) -> Option<u32> {
    let free = u32::try_from(pairs.saturating_sub(1)).ok()?;
    1_u32.checked_shl(free).filter(|&ways| ways <= EXACT)
}

/// Sums of `later - effect * earlier` in each arrangement, which are straight lines over the effect.
struct Test {
    scale: Scale,
    means: [f64; 2],
    value: f64,
    /// Constant and slope as seen, then of each arrangement.
    seen: (f64, f64),
    lines: Vec<(f64, f64)>,
    exact: bool,
}

impl Test {
    fn new(before: &[f64], after: &[f64], options: &Options) -> Test {
        let n = before.len();
        let means = [before, after].map(|side| side.iter().sum::<f64>() / n as f64);
        let both = || after.iter().copied().zip(before.iter().copied());
        let (scale, pairs): (_, Vec<(f64, f64)>) = match means[0] > 0.0 {
            true => (Scale::Ratio, both().collect()),
            false => {
                let differences = both().map(|(after, before)| (after - before, 1.0));
                (Scale::Difference, differences.collect())
            }
        };
        let sum = |sign: &mut dyn FnMut(usize) -> f64| {
            (pairs.iter().enumerate()).fold((0.0, 0.0), |sum, (at, pair)| {
                let sign = sign(at);
                (sum.0 + sign * pair.0, sum.1 + sign * pair.1)
            })
        };
        let seen = sum(&mut |_| 1.0);
        let ways = exact(n);
        let lines = match ways {
            Some(ways) => (0..ways)
                .map(|choice| {
                    sum(&mut |at| signed(at + 1 == n || u64::from(choice) >> at & 1 == 1))
                })
                .collect(),
            None => {
                let mut random = Random::new(options.seed);
                (0..options.permutations)
                    .map(|_| {
                        let mut bits = 0;
                        sum(&mut |at| {
                            if at % 64 == 0 {
                                bits = random.bits();
                            }
                            signed(bits >> (at % 64) & 1 == 1)
                        })
                    })
                    .collect()
            }
        };
        Test {
            scale,
            means,
            value: seen.0 / seen.1,
            seen,
            lines,
            exact: ways.is_some(),
        }
    }

    /// The effect of nothing.
    fn same(&self) -> f64 {
        match self.scale {
            Scale::Ratio => 1.0,
            Scale::Difference => 0.0,
        }
    }

    /// The two-sided probability where the sides differ by `effect`.
    fn p(&self, effect: f64) -> f64 {
        let far = |line: &(f64, f64)| (line.0 - effect * line.1).abs();
        let seen = far(&self.seen);
        // As far, but for rounding.
        let rounding = 1e-12 * (self.seen.0.abs() + (effect * self.seen.1).abs());
        let as_far = (self.lines.iter()).filter(|line| far(line) >= seen - rounding);
        share(as_far.count(), self.lines.len(), self.exact)
    }

    /// The ends of the interval at `level`; infinite where the pairs do not bound it.
    fn ends(&self, p: f64, level: f64) -> Ends {
        let step = match self.scale {
            Scale::Ratio => self.value.max(1.0) * 1e-3,
            Scale::Difference => self.value.abs() * 1e-3,
        };
        let ends = Ends {
            low: self.end(-step, level).unwrap_or(f64::NEG_INFINITY),
            high: self.end(step, level).unwrap_or(f64::INFINITY),
        };
        let ends = with_same(ends, self.value, self.same(), p <= level);
        match self.scale {
            // No ratio is negative.
            Scale::Ratio => Ends {
                low: ends.low.max(0.0),
                ..ends
            },
            Scale::Difference => ends,
        }
    }

    /// Goes from the estimate by doubled steps to an effect that the test refuses, then back to the last one that it does not.
    fn end(&self, step: f64, level: f64) -> Option<f64> {
        let refused = |effect: f64| self.p(effect) <= level;
        let outside = (0..DOUBLINGS)
            .map(|doubling| self.value + step * 2f64.powi(doubling.cast_signed()))
            .find(|&effect| refused(effect))?;
        Some(last_inside(self.value, outside, refused))
    }
}

fn signed(same: bool) -> f64 {
    if same { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figures: &[[Vec<f64>; 2]], seed: u64) -> Vec<Paired> {
        let options = Options {
            seed,
            ..Options::default()
        };
        paired(figures, &options)
    }

    fn one(before: &[f64], after: &[f64]) -> Paired {
        of(&[[before.to_vec(), after.to_vec()]], 1).remove(0)
    }

    /// Darwin's 15 pairs of maize plants, by which Fisher showed the test: 1,726 of all 32,768 arrangements are as far. His interval by
    /// Student's distribution is -0.03 to 41.9 eighths of an inch.
    #[test]
    fn the_probability_is_fishers() {
        let differences = [
            49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0,
            -48.0,
        ];
        let found = one(&[0.0; 15], &differences);
        assert!((found.p - 1_726.0 / 32_768.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.effect.scale, Scale::Difference);
        let (low, high) = (found.effect.low.unwrap(), found.effect.high.unwrap());
        assert!(
            (low + 0.03).abs() < 1.5 && (high - 41.9).abs() < 1.5,
            "{found:?}"
        );
        // A sample is drawn of the arrangements of 16 pairs.
        let more: Vec<f64> = differences.into_iter().chain([20.0]).collect();
        let sampled = one(&[0.0; 16], &more);
        assert!(sampled.p > 0.01 && sampled.p < found.p, "{sampled:?}");
    }

    #[test]
    fn few_pairs_are_gone_through_in_all_ways() {
        let before: Vec<f64> = (1..=6).map(|pair| f64::from(pair) * 10.0).collect();
        let after: Vec<f64> = before.iter().map(|figure| figure * 1.5).collect();
        let found = one(&before, &after);
        assert!((found.p - 2.0 / 64.0).abs() < 1e-12);
        assert!((found.effect.value.unwrap() - 1.5).abs() < 1e-9);
        assert!((found.effect.low.unwrap() - 1.5).abs() < 1e-9);
        for same in [one(&before, &before), one(&[1.0], &[2.0])] {
            assert!((same.p - 1.0).abs() < 1e-12, "{same:?}");
        }
        let suffice = |pairs, figures| pairs_suffice(pairs, figures, &Options::default());
        assert!(suffice(6, 1) && suffice(7, 2) && suffice(9, 12) && suffice(16, 12));
        assert!(!suffice(0, 1) && !suffice(5, 1) && !suffice(6, 2) && !suffice(300, 501));
    }

    #[test]
    fn pairs_that_differ_tenfold_do_not_widen_the_interval() {
        let before: Vec<f64> = (0..40).map(|pair| 1.3f64.powi(pair % 12)).collect();
        let after: Vec<f64> = (before.iter().zip(0..40))
            .map(|(figure, pair)| figure * 1.03 * (1.0 + 0.01 * f64::from(pair * 7 % 5 - 2)))
            .collect();
        let found = one(&before, &after);
        let (low, high) = (found.effect.low.unwrap(), found.effect.high.unwrap());
        assert!(
            1.02 < low && low < 1.03 && 1.03 < high && high < 1.04,
            "{found:?}"
        );
        assert!(found.p < 0.001 && found == one(&before, &after));
    }

    #[test]
    fn nothing_on_a_side() {
        let (none, some) = ([0.0; 20], [2.0; 20]);
        let nothing = one(&none, &none);
        assert!((nothing.p - 1.0).abs() < 1e-12, "{nothing:?}");
        let gone = one(&some, &none).effect;
        assert_eq!((gone.value, gone.low), (Some(0.0), Some(0.0)));
        let came = one(&none, &some);
        assert!(
            came.p < 0.001 && came.effect.scale == Scale::Difference,
            "{came:?}"
        );
        assert!(came.effect.low > Some(1.0), "{came:?}");
        assert!(of(&[], 1).is_empty());
        assert!(of(&[[vec![], vec![]], [vec![1.0], vec![]]], 1).is_empty());
    }

    #[test]
    fn the_interval_leaves_out_the_same_where_it_is_proven() {
        let seed = 1;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut proven = 0;
        for round in 0..60_u32 {
            let (pairs, figures) = (4 + random.index(26), 1 + random.index(4));
            let shift = 0.1 * f64::from(round % 4);
            let figures: Vec<[Vec<f64>; 2]> = (0..figures)
                .map(|at| {
                    [0.0, shift * at as f64].map(|shift| {
                        (0..pairs)
                            .map(|_| shift + random.below(1 << 30) as f64 / f64::from(1 << 30))
                            .collect()
                    })
                })
                .collect();
            for found in of(&figures, u64::from(round)) {
                let (value, effect) = (found.effect.value.unwrap(), found.effect);
                let (low, high) = (effect.low.unwrap(), effect.high.unwrap_or(f64::INFINITY));
                assert!(
                    low <= value && value <= high && found.p <= found.p_holm,
                    "{found:?}"
                );
                let touches = (low - 1.0).abs() < 1e-9 || (high - 1.0).abs() < 1e-9;
                let holds = low <= 1.0 && 1.0 <= high;
                assert!(
                    holds == (found.p_holm > LEVEL) || touches,
                    "round {round}: {found:?}"
                );
                proven += u32::from(found.p_holm <= LEVEL);
            }
        }
        assert!(proven > 10, "{proven}");
    }
}
