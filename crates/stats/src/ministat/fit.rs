//! Whether a pooled t-test fits two sets, and what their ranks say where it does not.
//!
//! The rule, each part of which is enough:
//!
//! * *unequal spread*: one standard deviation is more than [`SPREAD`] times the other, and further from it than chance
//!   brings those of two normal sets in 1 of 100 cases (the logarithm of the variances' ratio is more than
//!   2.576 * sqrt(2 / (n1 - 1) + 2 / (n2 - 1)));
//! * *outliers*: of ten values or more one is further than [`FAR`] times the distance of the quartiles away from the nearer one (Tukey's
//!   outer fence: one of 400,000 normal values);
//! * *skew*: the skewness is beyond 1 either way, and beyond three of its standard errors.
//!
//! It looks at the data, and so it is no part of a test: it says that the t-test's probability is not what it is called.

use std::fmt;

use super::general::General;
use super::set::Set;
use super::student::Confidence;
use crate::compare::{Endpoint, MOST_RUNS, Options, Run, Scale, Side, compare};

/// So many times the other's, a standard deviation is too large.
pub const SPREAD: f64 = 2.0;

/// A value is an outlier from this many distances of the quartiles beyond them.
pub const FAR: f64 = 3.0;

/// Least number of values; quartiles of fewer are chance.
const TEN: usize = 10;

/// The normal distribution's two-sided value of 1 %.
const Z_995: f64 = 2.576;

/// Reasons why the t-test does not fit, and the answer by ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// `unequal spread`, `outliers`, `skew`: at least one.
    pub why: Vec<&'static str>,
    /// With what confidence.
    pub confidence: Confidence,
    /// The answer by ranks; the error says why there is none.
    pub ranks: Result<Ranks, String>,
}

/// A permutation test of ranks (Brunner and Munzel's), as [`compare`] makes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// Two-sided probability.
    pub p: f64,
    /// Whether it is at most the level of the confidence.
    pub differs: bool,
    /// Hodges and Lehmann's estimate of the later set over the first, or less the first where there are values of 0 or
    /// less; `None` where it is no number.
    pub shift: Option<(f64, Scale)>,
}

impl Misfit {
    /// Looks at `later` against `first`; `None` where nothing speaks against the t-test.
    ///
    /// Takes some 20 ms for 100 values, most of it arrangements.
    #[must_use]
    pub fn between(first: &Set, later: &Set, confidence: Confidence) -> Option<Misfit> {
        let mut why = Vec::new();
        if unequal(first, later) {
            why.push("unequal spread");
        }
        if outlying(first) || outlying(later) {
            why.push("outliers");
        }
        if skewed(first) || skewed(later) {
            why.push("skew");
        }
        (!why.is_empty()).then(|| Misfit {
            why,
            confidence,
            ranks: ranks(first, later, confidence),
        })
    }
}

/// One line, with its line break.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "A t-test does not fit ({}); by ranks: ",
            self.why.join(", ")
        )?;
        match &self.ranks {
            Err(why) => writeln!(f, "{why}"),
            Ok(ranks) => {
                let word = if ranks.differs {
                    "difference"
                } else {
                    "no difference proven"
                };
                let percent = self.confidence.percent();
                write!(f, "{word} at {percent:.1}% confidence (p = ")?;
                write!(f, "{}", General::new(ranks.p, 2))?;
                match ranks.shift {
                    Some((ratio, Scale::Ratio)) => write!(f, ", {}x", General::new(ratio, 4))?,
                    Some((shift, Scale::Difference)) => {
                        write!(f, ", shift {}", General::new(shift, 4))?;
                    }
                    None => {}
                }
                writeln!(f, ")")
            }
        }
    }
}

/// The test by ranks of the two sets.
fn ranks(first: &Set, later: &Set, confidence: Confidence) -> Result<Ranks, String> {
    const VALUE: &str = "value";
    if first.values().len().max(later.values().len()) > MOST_RUNS {
        return Err(format!("no answer for more than {MOST_RUNS} values"));
    }
    let side = |set: &Set| Side {
        name: set.name().to_owned(),
        runs: (1..)
            .zip(set.values())
            .map(|(line, &value): (u64, _)| Run::of_number(line.to_string(), VALUE, value))
            .collect(),
    };
    let options = Options {
        resamples: 0,
        endpoints: vec![Endpoint::Number(VALUE.to_owned())],
        in_order: false,
        ..Options::default()
    };
    let comparison = compare(&side(first), &side(later), &options);
    let row = comparison.endpoints.first().ok_or("no answer")?;
    let p = row.p.ok_or_else(|| row.text.clone())?;
    let level = confidence.level();
    let least = row.arrangements.map_or(1.0, |all| 2.0 / f64::from(all));
    if row.exact && least > level {
        return Err(format!(
            "n too small (the least p is {})",
            General::new(least, 2)
        ));
    }
    let shift = row
        .effect
        .and_then(|effect| effect.value.zip(Some(effect.scale)));
    Ok(Ranks {
        p,
        differs: p <= level,
        shift,
    })
}

fn unequal(first: &Set, later: &Set) -> bool {
    let [a, b] = [first, later].map(|set| (spread(set), set.values().len() as f64));
    let (large, small) = if a.0 < b.0 { (b.0, a.0) } else { (a.0, b.0) };
    if large <= SPREAD * SPREAD * small {
        return false;
    }
    let chance = (2.0 / (a.1 - 1.0) + 2.0 / (b.1 - 1.0)).sqrt();
    (large / small).ln() > Z_995 * chance
}

/// The variance, about the mean: that of sums would be rounding alone where values are close to each other.
fn spread(set: &Set) -> f64 {
    moment(set, 2) / (1.0 - 1.0 / count(set))
}

fn outlying(set: &Set) -> bool {
    let values = set.values();
    let quarter = values.len() / 4;
    let (low, high) = (values[quarter], values[values.len() - 1 - quarter]);
    let far = FAR * (high - low);
    values.len() >= TEN && (low - set.min() > far || set.max() - high > far)
}

fn skewed(set: &Set) -> bool {
    let (n, variance) = (count(set), moment(set, 2));
    let skewness = moment(set, 3) / variance.powf(1.5);
    let error = (6.0 * n * (n - 1.0) / ((n - 2.0) * (n + 1.0) * (n + 3.0))).sqrt();
    skewness.abs() > (3.0 * error).max(1.0)
}

fn count(set: &Set) -> f64 {
    set.values().len() as f64
}

/// The mean of the values' distances from their mean, to a power. Where that is beyond what a number holds (distances of
/// some 1e100), no part of the rule that asks for it holds.
fn moment(set: &Set, power: i32) -> f64 {
    let mean = set
        .values()
        .iter()
        .fold(0.0, |mean, value| mean + value / count(set));
    let powers = set.values().iter().map(|value| (value - mean).powi(power));
    powers.sum::<f64>() / count(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    fn set(values: &[f64]) -> Set {
        Set::new("a", values.to_vec()).unwrap()
    }

    /// The sum of twelve uniform numbers, less six: close to normal, without a tail.
    fn normal(random: &mut Random, n: usize) -> Vec<f64> {
        let uniform = |random: &mut Random| random.below(1 << 40) as f64 / (1u64 << 40) as f64;
        let one = |random: &mut Random| (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0;
        (0..n).map(|_| one(random)).collect()
    }

    #[test]
    fn each_part_of_the_rule() {
        let even: Vec<f64> = (0..20).map(f64::from).collect();
        let why = |first: &[f64], later: &[f64]| {
            Misfit::between(&set(first), &set(later), Confidence::C95).map(|misfit| misfit.why)
        };
        assert_eq!(why(&even, &even), None);
        let wide: Vec<f64> = even.iter().map(|value| value * 3.0).collect();
        assert_eq!(why(&even, &wide), Some(vec!["unequal spread"]));
        assert_eq!(why(&wide, &even), Some(vec!["unequal spread"]));
        // Three times the spread of three values is chance.
        assert_eq!(why(&[1.0, 2.0, 3.0], &[3.0, 6.0, 9.0]), None);
        let mut tail = even.clone();
        tail[19] = 60.0;
        assert_eq!(why(&tail, &tail), Some(vec!["outliers", "skew"]));
        tail[0] = -40.0;
        assert_eq!(why(&tail, &tail), Some(vec!["outliers"]));
        let squares: Vec<f64> = even.iter().map(|value| value.powi(6)).collect();
        assert!(why(&squares, &squares).unwrap().contains(&"skew"));
        assert_eq!(why(&[1.0, 1.0, 1.0], &[1.0, 1.0, 1.0]), None);
    }

    /// The warning is rare for sets that a t-test fits, small or large.
    #[test]
    fn normal_sets_are_left_alone() {
        let mut random = Random::new(11);
        for n in [3, 5, 10, 30, 200] {
            let mut told = 0;
            for _ in 0..400 {
                let (a, b) = (set(&normal(&mut random, n)), set(&normal(&mut random, n)));
                told += u32::from(
                    unequal(&a, &b) || outlying(&a) || outlying(&b) || skewed(&a) || skewed(&b),
                );
            }
            assert!(told <= 40, "{told} of 400 pairs of {n}");
        }
    }

    #[test]
    fn the_answer_by_ranks() {
        // The mail's case: the later set is lower but for its outliers, which is all that means see.
        let first: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i)).collect();
        let mut later: Vec<f64> = (0..20).map(|i| 70.0 + f64::from(i)).collect();
        later[18] = 9_000.0;
        later[19] = 80_000.0;
        let misfit = Misfit::between(&set(&first), &set(&later), Confidence::C95).unwrap();
        let ranks = misfit.ranks.clone().unwrap();
        assert!(ranks.differs && ranks.p < 0.01, "{ranks:?}");
        assert!(matches!(ranks.shift, Some((x, Scale::Ratio)) if x < 0.8));
        let text = misfit.to_string();
        assert!(text.starts_with("A t-test does not fit (unequal spread, outliers, skew); by ranks: difference at 95.0% confidence (p = "), "{text}");

        let few = Misfit::between(
            &set(&[1.0, 2.0, 3.0]),
            &set(&[1.0, 500.0, 1e9]),
            Confidence::C95,
        );
        let text = few.unwrap().to_string();
        assert!(
            text.ends_with("by ranks: n too small (the least p is 0.1)\n"),
            "{text}"
        );
        let many: Vec<f64> = (0..=MOST_RUNS).map(|i| (i as f64).powi(9)).collect();
        let many = Misfit::between(&set(&many), &set(&many), Confidence::C95).unwrap();
        assert!(many.ranks.unwrap_err().contains("5000"));
    }
}
