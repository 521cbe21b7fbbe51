//! The effect of a fix on this machine: the fix and what it replaces, measured in turn, in one run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bootstrap::over_runs;
use crate::quantile::median;
use crate::record::Figure;

/// A fix for a question, tried on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// Its name, as `arena`, `batch-client`, `chunked`, `locked`, `channel`.
    pub name: String,
    /// The quantity measured with and without it, as `a map, touch and unmap beside 1,000 buffers`.
    pub what: String,
    /// Unit of `pairs`, `before` and `after`.
    pub unit: String,
    /// Each turn: without it, with it.
    pub pairs: Vec<[f64; 2]>,
    /// Median of the turns without it; absent where it was not measured.
    pub before: Option<f64>,
    /// Median of the turns with it.
    pub after: Option<f64>,
    /// Ratio without to with over the turns: above 1 the fix costs less. Unit `x`.
    pub factor: Option<Figure>,
    /// Its cost, or where it does not help; may be empty.
    pub but: String,
    /// The command to use it; empty: it must be built in.
    pub command: String,
    /// Why it was not tried, or could not be judged.
    pub why: Option<String>,
}

impl Fix {
    /// Creates the result of a fix that was tried: `pairs` of the cost without and with it. The factor needs three
    /// pairs of numbers above 0, and ignores others.
    #[must_use]
    pub fn tried(name: &str, what: &str, unit: &str, pairs: Vec<[f64; 2]>, seed: u64) -> Fix {
        let middle = |side: usize| median(pairs.iter().map(|pair| pair[side]).collect());
        let sound = |pair: &&[f64; 2]| pair.iter().all(|v| v.is_finite() && *v > 0.0);
        let logs: Vec<f64> = pairs
            .iter()
            .filter(sound)
            .map(|[before, after]| (before / after).ln())
            .collect();
        let interval = over_runs(&logs, seed, |drawn| {
            median(drawn.iter().map(|log| **log).collect())
        });
        let factor = interval.map(|interval| Figure {
            value: interval.value.exp(),
            unit: "x".to_owned(),
            low: Some(interval.low.exp()),
            high: Some(interval.high.exp()),
        });
        Fix {
            name: name.to_owned(),
            what: what.to_owned(),
            unit: unit.to_owned(),
            before: middle(0),
            after: middle(1),
            why: factor.is_none().then(|| match logs.len() {
                1 => "1 pair is too few to judge".to_owned(),
                few => format!("{few} pairs are too few to judge"),
            }),
            factor,
            pairs,
            but: String::new(),
            command: String::new(),
        }
    }

    /// Creates the result of a fix that was not tried.
    #[must_use]
    pub fn untried(name: &str, why: &str) -> Fix {
        Fix {
            why: Some(why.to_owned()),
            ..Fix::tried(name, "", "", Vec::new(), 0)
        }
    }

    /// Adds the fix's cost.
    #[must_use]
    pub fn but(self, but: impl Into<String>) -> Fix {
        Fix {
            but: but.into(),
            ..self
        }
    }

    /// Adds the command to use the fix.
    #[must_use]
    pub fn command(self, command: impl Into<String>) -> Fix {
        Fix {
            command: command.into(),
            ..self
        }
    }

    /// Returns `Some(true)` if the cost is less, and `Some(false)` if it is more; `None` if its interval contains 1,
    /// or nothing is known.
    #[must_use]
    pub fn helps(&self) -> Option<bool> {
        let figure = self.factor.as_ref()?;
        match (figure.low?, figure.high?) {
            (low, _) if low > 1.0 => Some(true),
            (_, high) if high < 1.0 => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_of_pairs_and_has_an_interval() {
        let pairs = vec![
            [10.0, 1.0],
            [22.0, 2.0],
            [27.0, 3.0],
            [10.0, 1.0],
            [11.0, 1.0],
        ];
        let fix = Fix::tried("arena", "a cycle", "ns", pairs, 1);
        let factor = fix.factor.clone().unwrap();
        assert!((factor.value - 10.0).abs() < 1e-9, "{factor:?}");
        assert!(factor.low.unwrap() > 8.0 && factor.high.unwrap() < 12.5);
        assert_eq!((fix.before, fix.after), (Some(11.0), Some(1.0)));
        assert_eq!(fix.helps(), Some(true));
    }

    #[test]
    fn nothing_proven_is_neither_help_nor_harm() {
        let noise = vec![[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [3.0, 2.0], [2.0, 3.0]];
        let fix = Fix::tried("arena", "a cycle", "ns", noise, 1);
        assert!(fix.factor.is_some());
        assert_eq!(fix.helps(), None);
        let worse = Fix::tried("arena", "", "ns", vec![[1.0, 2.0]; 5], 1);
        assert_eq!(worse.helps(), Some(false));
    }

    #[test]
    fn too_little_is_unknown_and_never_0() {
        for pairs in [
            vec![],
            vec![[1.0, 1.0]],
            vec![[1.0, 0.0], [f64::NAN, 1.0], [0.0, 0.0]],
        ] {
            let fix = Fix::tried("arena", "", "ns", pairs, 1);
            assert_eq!((fix.factor.clone(), fix.helps()), (None, None));
            assert!(fix.why.is_some());
        }
        let untried = Fix::untried("locked", "no swap");
        assert_eq!(
            (untried.before, untried.why.as_deref()),
            (None, Some("no swap"))
        );
    }
}
