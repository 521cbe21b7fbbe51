//! Two sides whose figures come in pairs: the same hosts, before and after.
//!
//! What differs from host to host, but not from side to side, is in no difference of a pair. So the interval is narrower than that of
//! `stopgap_stats::compare`, whose sides are of different runs.
//!
//! The test asks whether the means are equal, and changes the sides of each pair in all ways or in a seeded sample of them (Fisher, *The
//! Design of Experiments*, 1935, chapter 3). Its level is exact where a side makes no difference to any host. Where only the means are equal
//! it holds in the limit: the sum of squares, by which Student's statistic is divided, is the same in all arrangements.
//!
//! The interval holds each ratio by which the earlier figures can be multiplied (each difference that can be added to them) so that the
//! test at the same level does not tell the sides apart.

use serde::Serialize;
use stopgap_events::random::Random;
use stopgap_stats::compare::{Effect, LEVEL, Scale, holm};

/// Up to so many pairs all arrangements are gone through.
const EXACT_PAIRS: usize = 13;

/// Doublings of a step away from the estimate before an interval counts as unbounded.
const DOUBLINGS: u32 = 100;

/// One figure of all hosts, before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Paired {
    /// Mean of the earlier figures.
    pub(crate) before: f64,
    /// Mean of the later figures.
    pub(crate) after: f64,
    /// Ratio of the means, or their difference where the earlier mean is 0. The interval has a level of 5 % or less:
    /// that by which Holm's procedure judges.
    pub(crate) effect: Effect,
    /// The probability of means that differ as much where the sides do not.
    pub(crate) p: f64,
    /// The same, adjusted by Holm for the number of figures.
    pub(crate) p_holm: f64,
}

/// Returns the least probability that so many pairs can give.
pub(crate) fn least_p(pairs: usize, permutations: u32) -> f64 {
    match pairs <= EXACT_PAIRS {
        true => 2.0 / 2f64.powi(i32::try_from(pairs.max(1)).unwrap_or(1)),
        false => 1.0 / (f64::from(permutations) + 1.0),
    }
}

/// Compares figures of the same hosts before and after: a pair of lists a figure, each with a value a host in the same order.
///
/// 12 figures of 300 hosts and 9,999 arrangements take some 0.1 s. Returns nothing of lists without values.
pub(crate) fn pairs(figures: &[[Vec<f64>; 2]], permutations: u32, seed: u64) -> Vec<Paired> {
    let tests: Vec<Test> = (figures.iter())
        .filter(|[before, after]| !before.is_empty() && before.len() == after.len())
        .map(|[before, after]| Test::new(before, after, permutations, seed))
        .collect();
    let p: Vec<f64> = tests.iter().map(|test| test.p(test.same())).collect();
    (tests.iter().zip(&p).zip(holm(&p)))
        .map(|((test, &p), p_holm)| {
            // At this level the interval leaves out "the same" where, and only where, the adjusted probability is at most `LEVEL`.
            let (low, high) = test.ends(p, LEVEL * p / p_holm);
            let [before, after] = test.means;
            Paired {
                before,
                after,
                effect: Effect {
                    value: Some(test.value),
                    low,
                    high,
                    scale: test.scale,
                    infinite: false,
                },
                p,
                p_holm,
            }
        })
        .collect()
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
    fn new(before: &[f64], after: &[f64], permutations: u32, seed: u64) -> Test {
        let n = before.len();
        let means = [before, after].map(|side| side.iter().sum::<f64>() / n as f64);
        let (scale, pairs): (_, Vec<(f64, f64)>) = match means[0] > 0.0 {
            true => (
                Scale::Ratio,
                after.iter().copied().zip(before.iter().copied()).collect(),
            ),
            false => {
                let differences = after
                    .iter()
                    .zip(before)
                    .map(|(after, before)| after - before);
                (Scale::Difference, differences.map(|by| (by, 1.0)).collect())
            }
        };
        let sum = |sign: &mut dyn FnMut(usize) -> f64| {
            pairs
                .iter()
                .enumerate()
                .fold((0.0, 0.0), |sum, (at, pair)| {
                    let sign = sign(at);
                    (sum.0 + sign * pair.0, sum.1 + sign * pair.1)
                })
        };
        let seen = sum(&mut |_| 1.0);
        let exact = n <= EXACT_PAIRS;
        let lines = if exact {
            // The last pair keeps its sides: all signs changed at once are as far from 0.
            (0..1_u32 << (n - 1))
                .map(|choice| sum(&mut |at| signed(choice >> at & 1 == 1)))
                .collect()
        } else {
            let mut random = Random::new(seed);
            (0..permutations)
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
        };
        Test {
            scale,
            means,
            value: seen.0 / seen.1,
            seen,
            lines,
            exact,
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
        let as_far = self
            .lines
            .iter()
            .filter(|line| far(line) >= seen - rounding);
        let own = usize::from(!self.exact);
        (as_far.count() + own) as f64 / (self.lines.len() + own) as f64
    }

    /// The ends of the interval at `level`, `None` where the pairs do not bound it. It leaves out "the same" where, and only where, `p`
    /// is at most the level.
    fn ends(&self, p: f64, level: f64) -> (Option<f64>, Option<f64>) {
        let same = self.same();
        let step = match self.scale {
            Scale::Ratio => self.value.max(1.0) * 1e-3,
            Scale::Difference => self.value.abs() * 1e-3,
        };
        let [low, high] = [-1.0, 1.0].map(|sign| self.end(sign * step, level));
        // No ratio is negative.
        let low = match self.scale {
            Scale::Ratio => Some(low.unwrap_or(0.0).max(0.0)),
            Scale::Difference => low,
        };
        // The probability need not fall evenly on the way to an end.
        match p <= level {
            true if self.value > same => (low.map(|low| low.max(same)), high),
            true => (low, high.map(|high| high.min(same))),
            false => (
                low.map(|low| low.min(same)),
                high.map(|high| high.max(same)),
            ),
        }
    }

    /// Goes from the estimate by doubled steps to an effect that the test refuses, then back to the last one that it does not.
    fn end(&self, step: f64, level: f64) -> Option<f64> {
        let mut outside = (0..DOUBLINGS)
            .map(|doubling| self.value + step * 2f64.powi(doubling.cast_signed()))
            .find(|&effect| self.p(effect) <= level)?;
        let mut inside = self.value;
        for _ in 0..64 {
            let middle = f64::midpoint(inside, outside);
            match self.p(middle) <= level {
                true => outside = middle,
                false => inside = middle,
            }
        }
        Some(inside)
    }
}

fn signed(same: bool) -> f64 {
    if same { 1.0 } else { -1.0 }
}
