//! Finds change points in a history: a figure with one value per occasion, by date.
//!
//! # Contract
//!
//! [`change_points`] takes points in the order of their dates and returns a [`ChangePoints`] (JSON
//! `stopgap.change-points/1`): each lasting change of the level, with an interval for its size and for its place; or
//! no change, and the change that would have been found. It never panics, and is deterministic. A value that is not
//! finite is left out and named. Less is better.
//!
//! # Method and lineage
//!
//! A history has drift, neighbouring occasions resemble each other, and some are outliers. A test of two halves calls
//! all of these a change. So a step counts only if it explains the values better than any smooth model does
//! (`fit.rs`): a level with correlated noise, the same with a trend, a level that walks, a cubic curve. Level shifts
//! within such models are Tsay's (*Outliers, Level Shifts, and Variance Changes in Time Series*, 1988) and Chen and
//! Liu's (1993); ours are likelihood ratios over a grid of models. Outliers are moved to three deviations from the
//! median around them. Binary segmentation finds the steps. If the whole shows no step, its halves and quarters are
//! searched, too. Each step is tested again between its neighbours (`segments.rs`).
//!
//! The interval of the place contains the places whose likelihood is close to the best one. From the maximum of a
//! two-sided random walk with drift it follows that -2 ln of the ratio stays below 7.4 in 95 %; ours is 9, because of
//! the search. The interval of the size is Student's, over all models and places that are nearly as likely.
//!
//! The margin by which a step must be better was calibrated by simulation (`stopgap-bench change-points`): at most 5
//! % of whole histories without a step are called changed.
//!
//! # What it leaves out
//!
//! Changes of fewer than [`segments::LEAST`](LEAST_POINTS) occasions, changes of spread or of shape, and slow
//! changes: a drift to another level does not count.

mod fit;
pub mod lines;
mod segments;
pub mod simulate;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::order::SortRows;
use stopgap_events::words;

use crate::compare::{self, Comparison, Effect, Row, RowWord, Scale};
use segments::{Found, deviation, find, is_changed, jump, median};

pub use segments::LEAST_POINTS;

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.change-points/1";

/// Most points of a history. More are refused.
pub const MOST_POINTS: usize = 20_000;

/// Number of places at which a change is planted, to find out which change would have been found.
const PLANTED: usize = 10;

/// Number of these that may be missed.
const MISSED: usize = 1;

/// The history of a figure, and when it changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangePoints {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// The figure, as `median`.
    pub what: String,
    /// Its unit; empty where it is unknown.
    pub unit: String,
    /// The series of run records, as `placement: map n=200`.
    #[serde(default)]
    pub series: Option<String>,
    /// The answer.
    pub verdict: Verdict,
    /// The occasions, the earliest first.
    pub points: Vec<Point>,
    /// The changes, the earliest first.
    pub changes: Vec<Change>,
    /// Index of the change that the verdict is about.
    #[serde(default)]
    pub last: Option<usize>,
    /// If no change was found: the smallest lasting change for the worse that would have been found.
    #[serde(default)]
    pub would_find: Option<Power>,
    /// Causes of the figure that changed themselves, and when.
    #[serde(default)]
    pub causes: Vec<OfCause>,
    /// Reasons to doubt it, most important first.
    pub warnings: Vec<String>,
    /// Points that were left out, and why.
    pub missing: Vec<Missing>,
}

/// One occasion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Time of the occasion, seconds since 1970.
    pub date_unix_s: Option<u64>,
    /// Name of the measured thing: a commit, a version, a file.
    pub label: String,
    /// The figure.
    pub value: f64,
}

/// The answer in a word and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// For scripts.
    pub word: Word,
    /// For people.
    pub text: String,
}

/// The answer's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Word {
    /// The last change was for the worse.
    #[serde(rename = "regression")]
    Regression,
    /// The last change was for the better.
    #[serde(rename = "improvement")]
    Improvement,
    /// No change was found. [`ChangePoints::would_find`] has the change that would have been found.
    #[serde(rename = "no change found")]
    NoChange,
    /// The history is too short or too noisy to find one.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

words!(Word, "verdict", Regression "regression", Improvement "improvement", NoChange "no change found", Inconclusive "inconclusive");

/// One lasting change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Index of the last point that was certainly (95 %) before the change.
    pub good: usize,
    /// Index of the first point that was certainly (95 %) after it.
    pub bad: usize,
    /// Index of the most likely first point after it.
    pub at: usize,
    /// Median from the previous change to this one.
    pub before: f64,
    /// Median from this change to the next.
    pub after: f64,
    /// Size of the change, with its 95 % interval.
    pub effect: Effect,
    /// Whether the figure increased.
    pub worse: bool,
    /// Evidence for the step against every model without a step: -2 times the logarithm of the likelihood ratio.
    pub evidence: f64,
    /// Causes that certainly moved with it (5 %, Holm), the largest first.
    #[serde(default)]
    pub moved: Vec<Moved>,
}

/// A cause that moved when the figure did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The cause, as `io`.
    pub cause: String,
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
    /// The difference, in the figure's unit.
    pub effect: Effect,
    /// Probability of a difference at least as large if the cause had not moved, adjusted by Holm over all causes.
    pub p: f64,
}

/// The changes of one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfCause {
    /// The cause.
    pub cause: String,
    /// Its changes, the earliest first.
    pub changes: Vec<Change>,
}

/// A change that would have been found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    /// Size: a ratio or a difference.
    pub change: f64,
    /// Scale of the size.
    pub scale: Scale,
    /// Number of places at which it was planted into this very history and found.
    pub found: usize,
    /// Number of places tried, spread over the middle three fifths.
    pub of: usize,
}

/// A history to search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// The figure.
    pub what: String,
    /// Its unit.
    pub unit: String,
    /// The points, the earliest first.
    pub points: Vec<Point>,
    /// Parts of the figure by cause: one value per point, in the figure's unit.
    pub causes: Vec<(String, Vec<f64>)>,
    /// Share below which a last change counts as none for the verdict; 0 counts every change.
    pub margin: f64,
}

impl ChangePoints {
    /// Returns the last change as a comparison of before and after, for the formats of gates. Without a change,
    /// returns "same" within the change that would have been found.
    #[must_use]
    pub fn as_comparison(&self) -> Comparison {
        let sides = [
            self.last().map(|last| last.good),
            self.last().map(|last| last.bad),
        ];
        let [before, after] = sides.map(|at| compare::Side {
            name: at.map_or_else(String::new, |at| self.points[at].label.clone()),
            runs: Vec::new(),
        });
        let mut of = compare::compare(&before, &after, &compare::Options::default());
        let mut row = Row::new(self.what.clone(), self.unit.clone());
        row.text.clone_from(&self.verdict.text);
        (of.verdict.word, row.word) = match self.verdict.word {
            Word::Regression => (compare::Word::Regression, RowWord::Worse),
            Word::Improvement => (compare::Word::Improvement, RowWord::Better),
            Word::NoChange => (compare::Word::NotWorse, RowWord::NotWorse),
            Word::Inconclusive => (compare::Word::Inconclusive, RowWord::Inconclusive),
        };
        if let Some(last) = self.last() {
            row.effect = Some(last.effect);
            (row.before, row.after) = (Some(last.before), Some(last.after));
            of.before.runs = last.good + 1;
            of.after.runs = self.points.len() - last.bad;
        }
        of.margin = match self.would_find {
            Some(power) if power.scale == Scale::Ratio => power.change - 1.0,
            _ => 0.0,
        };
        of.verdict.text = format!("{}: {}", self.verdict.word, self.verdict.text);
        of.command.clone_from(&self.command);
        of.warnings.clone_from(&self.warnings);
        of.missing.clone_from(&self.missing);
        of.endpoints = vec![row];
        of
    }

    /// Returns the change that the verdict is about.
    #[must_use]
    pub fn last(&self) -> Option<&Change> {
        self.changes.get(self.last?)
    }
}

/// Scale of values: their logarithms, or the values as parts of the largest.
struct Values {
    scale: Scale,
    unit: f64,
    all: Vec<f64>,
}

impl Values {
    fn new(values: &[f64], scale: Scale) -> Values {
        let most = values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let unit = if most > 0.0 { most } else { 1.0 };
        let on = |x: &f64| match scale {
            Scale::Ratio => x.ln(),
            Scale::Difference => x / unit,
        };
        Values {
            scale,
            unit,
            all: values.iter().map(on).collect(),
        }
    }

    /// Returns a size on the scale as an effect.
    fn effect(&self, size: f64, (low, high): (f64, f64)) -> Effect {
        let back = |size: f64| {
            let value = match self.scale {
                Scale::Ratio => size.exp(),
                Scale::Difference => size * self.unit,
            };
            Some(value).filter(|value| value.is_finite())
        };
        Effect {
            value: back(size),
            low: back(low),
            high: back(high),
            scale: self.scale,
            infinite: false,
        }
    }
}

/// Searches a history for changes.
///
/// 500 points take about 10 ms, 5,000 about 0.3 s.
#[must_use]
pub fn change_points(history: &History, command: &[String]) -> ChangePoints {
    let mut missing = Vec::new();
    let kept: Vec<usize> = (0..history.points.len())
        .filter(|&at| {
            let point = &history.points[at];
            let finite = point.value.is_finite();
            if !finite {
                let why = format!("its figure is {}", point.value);
                missing.push(Missing::new(point.label.clone(), why));
            }
            finite
        })
        .collect();
    let points: Vec<Point> = kept.iter().map(|&at| history.points[at].clone()).collect();
    let raw: Vec<f64> = points.iter().map(|point| point.value).collect();
    let scale = match raw.iter().all(|x| *x > 0.0) {
        true => Scale::Ratio,
        false => Scale::Difference,
    };
    let values = Values::new(&raw, scale);
    let mut changes = changes(&raw, &values, 1);
    let parts: Vec<(&str, Vec<f64>)> = history
        .causes
        .iter()
        .map(|(cause, all)| {
            let of = kept.iter().map(|&at| all.get(at).copied());
            (&**cause, of.map(|x| x.unwrap_or(0.0)).collect())
        })
        .collect();
    let bounds: Vec<(usize, usize)> = (0..changes.len())
        .map(|at| bounds(&changes, at, raw.len()))
        .collect();
    for (change, bounds) in changes.iter_mut().zip(bounds) {
        change.moved = moved(&parts, bounds, change.at);
    }
    let causes = parts.iter().map(|(cause, all)| OfCause {
        cause: (*cause).to_owned(),
        changes: self::changes(all, &Values::new(all, Scale::Difference), parts.len()),
    });
    let mut found = ChangePoints {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.to_vec(),
        what: history.what.clone(),
        unit: history.unit.clone(),
        series: None,
        verdict: Verdict {
            word: Word::Inconclusive,
            text: String::new(),
        },
        causes: causes.filter(|of| !of.changes.is_empty()).collect(),
        points,
        changes,
        last: None,
        would_find: None,
        warnings: Vec::new(),
        missing,
    };
    judge(&mut found, &values, history.margin);
    let step = segments::clock_step(&raw);
    let fine = |change: &Change| (change.after - change.before).abs() > 1.5 * step;
    if !found.changes.iter().all(fine) {
        found.warnings.push(
            "a change is as small as the steps in which values come: a drift across one looks like it"
                .to_owned(),
        );
    }
    found
}

fn judge(found: &mut ChangePoints, values: &Values, margin: f64) {
    let counts = |change: &Change| {
        let value = change.effect.value.unwrap_or(f64::INFINITY);
        match change.effect.scale {
            Scale::Ratio => (value - 1.0).abs() >= margin,
            Scale::Difference => value.abs() >= margin * change.before.abs(),
        }
    };
    let n = found.points.len();
    found.last = found.changes.iter().rposition(counts);
    let (word, text) = if let Some(last) = found.last() {
        let word = match last.worse {
            true => Word::Regression,
            false => Word::Improvement,
        };
        let effect = compare::effect_text(&last.effect, &found.unit);
        let [good, bad] = [last.good, last.bad].map(|at| &found.points[at].label);
        (
            word,
            format!("{} {effect} between {good} and {bad}", found.what),
        )
    } else if n < LEAST_POINTS {
        let s = if n == 1 { "" } else { "s" };
        let why = format!("{n} occasion{s}; a change shows only in {LEAST_POINTS} or more");
        (Word::Inconclusive, why)
    } else {
        found.would_find = power(values);
        match found.would_find {
            Some(power) if power.scale == Scale::Difference || power.change <= 2.0 => {
                let of = match found.changes.is_empty() {
                    true => String::new(),
                    false => format!(" of {} % or more", 100.0 * margin),
                };
                (Word::NoChange, format!("no change{of} in {n} occasions"))
            }
            _ => (
                Word::Inconclusive,
                format!(
                    "{n} occasions are too few or too noisy: even a change to twice as much could be missed"
                ),
            ),
        }
    };
    found.verdict = Verdict { word, text };
}

/// Returns the stretch between the neighbours of a change.
fn bounds(changes: &[Change], at: usize, n: usize) -> (usize, usize) {
    let from = at.checked_sub(1).map_or(0, |before| changes[before].at);
    (from, changes.get(at + 1).map_or(n, |next| next.at))
}

/// Returns the changes of one of `of` series.
fn changes(raw: &[f64], values: &Values, of: usize) -> Vec<Change> {
    let found = find(&values.all, of);
    let mut changes: Vec<Change> = found.iter().map(|found| change(found, values)).collect();
    for at in 0..changes.len() {
        let (from, to) = bounds(&changes, at, raw.len());
        let here = changes[at].at;
        changes[at].before = median(&mut raw[from..here].to_vec());
        changes[at].after = median(&mut raw[here..to].to_vec());
    }
    changes
}

fn change(found: &Found, values: &Values) -> Change {
    Change {
        good: found.places.0.saturating_sub(1),
        bad: found.places.1,
        at: found.at,
        before: 0.0,
        after: 0.0,
        effect: values.effect(found.size, found.ends),
        worse: found.size > 0.0,
        evidence: found.evidence,
        moved: Vec::new(),
    }
}

/// Returns the parts that moved at a place.
fn moved(parts: &[(&str, Vec<f64>)], (from, to): (usize, usize), at: usize) -> Vec<Moved> {
    let mut all: Vec<Moved> = parts
        .iter()
        .filter_map(|(cause, all)| {
            let values = Values::new(all, Scale::Difference);
            let jump = jump(&values.all[from..to], at - from)?;
            Some(Moved {
                cause: (*cause).to_owned(),
                before: median(&mut all[from..at].to_vec()),
                after: median(&mut all[at..to].to_vec()),
                effect: values.effect(jump.size, jump.ends()),
                p: jump.p(),
            })
        })
        .collect();
    let adjusted = compare::holm(&all.iter().map(|moved| moved.p).collect::<Vec<_>>());
    for (moved, p) in all.iter_mut().zip(adjusted) {
        moved.p = p;
    }
    all.retain(|moved| moved.p <= compare::LEVEL);
    let size = |moved: &Moved| moved.effect.value.unwrap_or(0.0).abs();
    all.sort_rows(|a, b| size(b).total_cmp(&size(a)));
    all
}

/// Returns the smallest change for the worse that is found when it is planted into these very values, at all but
/// [`MISSED`] of [`PLANTED`] places.
fn power(values: &Values) -> Option<Power> {
    let x = &values.all;
    let n = x.len();
    let places: Vec<usize> = (0..PLANTED)
        .map(|at| n / 5 + 3 * n * at / 5 / (PLANTED - 1))
        .collect();
    let found = |size: f64| {
        let mut left = MISSED + 1;
        let mut found = 0;
        for &place in &places {
            let mut with = x.clone();
            for value in &mut with[place..] {
                *value += size;
            }
            if is_changed(&with) {
                found += 1;
            } else {
                left -= 1;
                if left == 0 {
                    return None;
                }
            }
        }
        Some(found)
    };
    // If all values are equal, any change shows.
    let unit = deviation(x).max(1e-9);
    let mut high = unit;
    let mut best = loop {
        match found(high) {
            Some(best) => break best,
            None if high > 100.0 * unit => return None,
            None => high *= 2.0,
        }
    };
    let mut low = high / 2.0;
    for _ in 0..4 {
        let middle = f64::midpoint(low, high);
        match found(middle) {
            Some(found) => (high, best) = (middle, found),
            None => low = middle,
        }
    }
    let change = values.effect(high, (high, high)).value?;
    Some(Power {
        change,
        scale: values.scale,
        found: best,
        of: PLANTED,
    })
}

#[cfg(test)]
mod tests;
