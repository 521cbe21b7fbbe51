//! Conditions that may explain a difference: pressure, steal, other load, frequency, temperature, time since boot; and boots.
//!
//! A condition is named if the medians of the sides differ by an amount that can matter, and if either the ranges of
//! the two sides do not overlap or a test of ranks finds a difference at 5 % over all conditions. The amounts are
//! fixed here, before any figure is seen. A condition that differs is no proof of a cause: the sentences say *may*.
//!
//! Left out: a condition that differed in a few occasions only.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Conditions, Environment, Pressure};

use super::record::{Comparison, Scale, Word};
use super::two::{Kind, Tested};
use super::{LEVEL, Options};
use crate::quantile::median;

/// Number of conditions.
const CONDITIONS: usize = 8;

/// A condition of an occasion.
struct Condition {
    name: &'static str,
    unit: &'static str,
    /// The smallest difference of medians that can matter: in the unit, or as a share of the smaller one.
    least: f64,
    share: f64,
    /// Direction in which more of it moves times: 1 lengthens them, -1 shortens them, 0 either.
    effect: i8,
}

const fn condition(name: &'static str, unit: &'static str, least: f64, effect: i8) -> Condition {
    Condition {
        name,
        unit,
        least,
        share: 0.0,
        effect,
    }
}

impl Condition {
    /// Returns the smallest difference from `level` that can matter.
    fn least(&self, level: f64) -> f64 {
        self.least.max(self.share * level)
    }
}

/// The conditions, in the order of [`Occasion::values`].
const EACH: [Condition; CONDITIONS] = [
    condition("steal", " % of CPU time", 1.0, 1),
    condition("the CPU time of other programs", " %", 3.0, 1),
    condition("CPU pressure before the run", " %", 5.0, 1),
    condition("memory pressure before the run", " %", 5.0, 1),
    condition("I/O pressure before the run", " %", 5.0, 1),
    Condition {
        share: 0.02,
        ..condition("CPU frequency", " MHz", 0.0, -1)
    },
    condition("temperature", " degrees", 5.0, 1),
    Condition {
        share: 2.0,
        ..condition("time since boot", " min", 10.0, 0)
    },
];

/// Boot and conditions of an occasion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Occasion {
    /// The kernel's id of the boot.
    pub boot: Option<String>,
    /// Its conditions; `None` is unknown.
    values: [Option<f64>; CONDITIONS],
}

impl Occasion {
    /// Creates an occasion from the readings at its begin (`uptime_s`, `pressure`) and from the conditions during it.
    #[must_use]
    pub fn new(
        boot: Option<String>,
        uptime_s: Option<u64>,
        pressure: &[Pressure],
        conditions: Option<Conditions>,
    ) -> Occasion {
        let of = conditions.unwrap_or_default();
        let waited = |resource: &str| {
            let of = pressure.iter().find(|of| of.resource == resource);
            of.map(|of| of.some.avg10)
        };
        let minutes = uptime_s.map(|seconds| seconds as f64 / 60.0);
        Occasion {
            boot,
            values: [
                of.steal,
                of.others,
                waited("cpu"),
                waited("memory"),
                waited("io"),
                of.frequency_mhz,
                of.temperature_c,
                minutes,
            ],
        }
    }

    /// Creates the occasion of a record.
    #[must_use]
    pub fn of(machine: &Environment) -> Occasion {
        Occasion::new(
            machine.boot_id.clone(),
            machine.uptime_s,
            &machine.pressure_before,
            machine.conditions,
        )
    }
}

impl Comparison {
    /// Adds sentences about conditions in which the sides differ, and warns if each side has boots of its own, each
    /// with several occasions. Does nothing if those of a side are unknown.
    pub fn look_at(&mut self, before: &[Occasion], after: &[Occasion]) {
        if before.is_empty() || after.is_empty() {
            return;
        }
        self.conditions = differing(before, after, self.verdict.word);
        self.warnings.splice(..0, boots(before, after));
    }
}

fn boots(before: &[Occasion], after: &[Occasion]) -> Option<String> {
    let of = |side: &[Occasion]| -> Option<BTreeSet<String>> {
        side.iter().map(|of| of.boot.clone()).collect()
    };
    let (first, second) = (of(before)?, of(after)?);
    let own = first.len() == before.len() && second.len() == after.len();
    if own || !first.is_disjoint(&second) {
        return None;
    }
    let words = |boots: usize, one: &str, more: &str| match boots {
        1 => one.to_owned(),
        _ => format!("{boots}{more} boots"),
    };
    Some(format!(
        "all of before ran in {} and all of after in {}: whatever else differs between boots looks like the change; stopgap \
         campaign makes each occasion in a boot of its own",
        words(first.len(), "one boot", ""),
        words(second.len(), "another", " other")
    ))
}

fn differing(before: &[Occasion], after: &[Occasion], word: Word) -> Vec<String> {
    let known = |at: usize, side: &[Occasion]| -> Option<Vec<f64>> {
        let values = side
            .iter()
            .map(|of| of.values[at].filter(|v| v.is_finite()));
        values.collect()
    };
    let sides = |at: usize| Some([known(at, before)?, known(at, after)?]);
    // A condition that hardly varies over both sides is not tested.
    let varies = |at: usize| {
        let all = sides(at)?.concat();
        let [low, high] = [f64::min, f64::max].map(|most| end(&all, most));
        (high - low >= EACH[at].least(low)).then_some(())
    };
    let tests = (0..CONDITIONS).filter_map(varies).count();
    let said = EACH.iter().enumerate().filter_map(|(at, condition)| {
        let sides = sides(at)?;
        let [first, second] = [median(sides[0].clone())?, median(sides[1].clone())?];
        if (second - first).abs() < condition.least(first.min(second)) || !apart(sides, tests) {
            return None;
        }
        let slower = match condition.effect {
            0 => None,
            effect => Some((second > first) == (effect > 0)),
        };
        let may = match (word, slower) {
            (Word::Regression, Some(false)) => "it does not explain that after is worse",
            (Word::Improvement, Some(true)) => "it does not explain that after is better",
            (Word::Regression | Word::Improvement, _) => "it may explain the difference",
            _ => "it may hide a difference, or make one",
        };
        let (name, unit) = (condition.name, condition.unit);
        let shown = |value: f64| match value {
            value if value.abs() < 10.0 => format!("{value:.1}"),
            value => format!("{value:.0}"),
        };
        Some(format!(
            "{name} was {}{unit} in before and {}{unit} in after: {may}",
            shown(first),
            shown(second)
        ))
    });
    said.collect()
}

/// Returns the largest or the smallest of some values; `NAN` without values.
fn end(values: &[f64], most: fn(f64, f64) -> f64) -> f64 {
    values.iter().copied().reduce(most).unwrap_or(f64::NAN)
}

/// Returns whether one side is wholly above the other, or whether a test over `tests` conditions finds a difference.
fn apart(sides: [Vec<f64>; 2], tests: usize) -> bool {
    let [low, high] =
        [f64::min, f64::max].map(|most| [0, 1].map(|side: usize| end(&sides[side], most)));
    if high[0] < low[1] || high[1] < low[0] {
        return true;
    }
    let draws = Options::default().permutations;
    let tested = Tested::new(Kind::Ranks, Scale::Difference, sides, draws, 1);
    tested.p() * tests as f64 <= LEVEL
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::random::Random;

    fn occasions(boot: &str, at: usize, values: &[f64]) -> Vec<Occasion> {
        let one = |&value: &f64| {
            let mut of = Occasion {
                boot: Some(boot.to_owned()),
                values: [Some(0.0); CONDITIONS],
            };
            of.values[at] = Some(value);
            of
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn steal_that_differs_may_explain() {
        let before = occasions("a", 0, &[0.0, 0.1, 0.0, 0.2, 0.0]);
        let after = occasions("a", 0, &[4.0, 3.9, 5.0, 4.4, 0.1]);
        let said = |word| differing(&before, &after, word);
        assert_eq!(
            said(Word::Regression),
            [
                "steal was 0.0 % of CPU time in before and 4.0 % of CPU time in after: it may explain the difference"
            ]
        );
        assert!(said(Word::Improvement)[0].ends_with("it does not explain that after is better"));
        assert!(
            said(Word::NoDifferenceProven)[0].ends_with("it may hide a difference, or make one")
        );
        // The same on both sides, too little to matter, or unknown for one occasion.
        assert!(differing(&after, &after, Word::Regression).is_empty());
        let little = occasions("a", 0, &[0.6, 0.7, 0.8, 0.6, 0.7]);
        assert!(differing(&before, &little, Word::Regression).is_empty());
        let mut untold = after.clone();
        untold[2].values[0] = None;
        assert!(differing(&before, &untold, Word::Regression).is_empty());
    }

    #[test]
    fn less_frequency_and_a_younger_boot_are_seen() {
        let (fast, slow) = ([3_000.0, 3_010.0, 2_990.0], [2_500.0, 2_490.0, 2_400.0]);
        let said = |before: &[f64], after: &[f64], at, word| {
            differing(
                &occasions("a", at, before),
                &occasions("a", at, after),
                word,
            )
        };
        let of = said(&fast, &slow, 5, Word::Regression);
        assert!(of[0].starts_with("CPU frequency was 3000 MHz in before and 2490 MHz"));
        assert!(of[0].ends_with("it may explain the difference"), "{of:?}");
        let of = said(&slow, &fast, 5, Word::Regression);
        assert!(
            of[0].ends_with("does not explain that after is worse"),
            "{of:?}"
        );
        let of = said(&[120.0, 130.0], &[3.0, 4.0], 7, Word::Improvement);
        assert!(of[0].ends_with("it may explain the difference"), "{of:?}");
        assert!(said(&[120.0, 130.0], &[140.0, 150.0], 7, Word::Improvement).is_empty());
    }

    #[test]
    fn a_boot_a_side_is_warned_of_and_a_boot_an_occasion_is_not() {
        let one = |boot: &str| occasions(boot, 0, &[0.0, 0.0]);
        let several = |first: &str, second: &str| [&one(first)[..1], &one(second)[..1]].concat();
        let warned = boots(&one("a"), &one("b")).unwrap();
        assert!(warned.starts_with("all of before ran in one boot and all of after in another:"));
        let warned = boots(&several("a", "b"), &one("c")).unwrap();
        assert!(warned.contains("ran in 2 boots and"), "{warned}");
        assert_eq!(boots(&several("a", "b"), &several("c", "d")), None);
        assert_eq!(boots(&several("a", "b"), &several("a", "b")), None);
        assert_eq!(boots(&one("a")[..1], &one("b")[..1]), None);
        let mut untold = one("b");
        untold[0].boot = None;
        assert_eq!(boots(&one("a"), &untold), None);
    }

    /// Equal sides with noisy conditions give a sentence in at most one of twenty comparisons, over all conditions.
    #[test]
    fn equal_conditions_are_seldom_called_different() {
        let mut random = Random::new(7);
        let mut side = |n: usize| -> Vec<Occasion> {
            let mut one = || Occasion {
                boot: None,
                values: std::array::from_fn(|_| Some(f64::from(random.below(4_000) as u32))),
            };
            (0..n).map(|_| one()).collect()
        };
        for (n, tries) in [(6, 300), (12, 60)] {
            let called = (0..tries).filter(|_| {
                let (before, after) = (side(n), side(n));
                !differing(&before, &after, Word::Regression).is_empty()
            });
            let called = called.count();
            assert!(
                called <= tries / 20 + tries / 30,
                "{called} of {tries} at {n}"
            );
        }
    }
}
