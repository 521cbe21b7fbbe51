//! Steps of a series: found one by one, each in what the others leave.

use std::ops::Range;

use stopgap_events::order::SortRows;

use super::fit::{Best, Step, fit, models, steps};
use crate::quantile::median_of_sorted;

/// Values on each side of a step.
pub(super) const LEAST: usize = 5;

/// Fewer values have no room for a step.
pub const LEAST_POINTS: usize = 2 * LEAST + 2;

/// Values before and after one whose median it is held against.
const HALF: usize = 4;

/// An outlier is moved to so many deviations from the median around it.
const CLIP: f64 = 3.0;

/// A step of a history of up to 50 values counts where it is better than anything without a step by so much; see [`called`].
const EVIDENCE: f64 = 13.0;

/// Evidence added to [`EVIDENCE`] in an endless history.
const EVIDENCE_OF_LENGTH: f64 = 6.0;

/// Evidence added for one of several parts, times the logarithm of their number.
const EVIDENCE_OF_PART: f64 = 3.0;

/// Evidence added beside a trend or a walk.
const EVIDENCE_OF_MOVING: f64 = 5.0;

/// By how much it must be better than a cubic curve: a step of a level, and one beside a trend or a walk.
const BEFORE_CURVE: [f64; 2] = [2.0, 6.0];

/// Places whose cost is higher by less are in the interval of the date.
const DATE: f64 = 9.0;

/// Steps whose cost is higher by less are in the interval of the size.
const SIZE: f64 = 4.0;

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// The first value after it, most probably.
    pub(super) at: usize,
    /// The first and last places where it may be.
    pub(super) places: (usize, usize),
    /// By how much values grew, and its interval.
    pub(super) size: f64,
    pub(super) ends: (f64, f64),
    /// How much better the step explains the values than anything without one.
    pub(super) evidence: f64,
}

/// Values without outliers, and what they are uncertain by.
struct Clean {
    y: Vec<f64>,
    /// The variance of rounding to half of the clock's steps: to whole ones no step of values that else are equal would count.
    floor: f64,
    /// A value's deviation from those around it.
    deviation: f64,
}

pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    median_of_sorted(values).unwrap_or(f64::NAN)
}

/// The least distance of two values that differ; 0 where none do.
pub(super) fn clock_step(x: &[f64]) -> f64 {
    let mut sorted = x.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let gaps = sorted.windows(2).map(|two| two[1] - two[0]);
    let least = gaps.filter(|gap| *gap > 0.0).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 0.0 }
}

fn clean(x: &[f64]) -> Clean {
    let n = x.len();
    let step = clock_step(x);
    let width = (2 * HALF + 1).min(n);
    let around: Vec<f64> = (0..n)
        .map(|at| {
            let from = at.saturating_sub(HALF).min(n - width);
            median(&mut x[from..from + width].to_vec())
        })
        .collect();
    let mut far: Vec<f64> = x.iter().zip(&around).map(|(x, m)| (x - m).abs()).collect();
    // 1.4826 times the median distance is the deviation of normal noise.
    let deviation = (1.4826 * median(&mut far)).max(step);
    let most = CLIP * deviation;
    let clipped = x.iter().zip(&around);
    Clean {
        y: clipped
            .map(|(x, m)| m + (x - m).clamp(-most, most))
            .collect(),
        floor: step * step / 48.0,
        deviation,
    }
}

/// A step of a part of the values.
struct Called {
    part: Range<usize>,
    best: Best,
    evidence: f64,
}

/// Returns the step of a part where there is one, of so many `parts` that are looked at.
fn called(x: &[f64], part: Range<usize>, parts: usize) -> Option<Called> {
    let clean = clean(&x[part.clone()]);
    let fit = fit(&clean.y, clean.floor, LEAST)?;
    let length = 1.0 - (50.0 / x.len() as f64).min(1.0);
    let least = EVIDENCE + EVIDENCE_OF_LENGTH * length + EVIDENCE_OF_PART * (parts as f64).ln();
    let is = |best: &Best, least: f64, curve: f64| {
        fit.none - best.cost > least && fit.curve - best.cost > curve
    };
    let moving = is(&fit.moving, least + EVIDENCE_OF_MOVING, BEFORE_CURVE[1]);
    let plain = is(&fit.plain, least, BEFORE_CURVE[0]);
    // A trend has to earn its place.
    let best = match (plain, moving) {
        (true, true) if fit.moving.cost + EVIDENCE_OF_MOVING < fit.plain.cost => fit.moving,
        (true, _) => fit.plain,
        (false, true) => fit.moving,
        (false, false) => return None,
    };
    Some(Called {
        part,
        best,
        evidence: fit.none - best.cost,
    })
}

/// Returns the step of `x[within]` that is clearest: in the whole, else in halves that overlap, else in quarters. Several steps look
/// like a walk of the whole, and like steps in its parts.
fn test(x: &[f64], within: Range<usize>, series: usize) -> Option<Called> {
    let whole = called(x, within.clone(), series);
    whole.or_else(|| {
        [2, 4].into_iter().find_map(|cut| {
            let width = within.len() / cut;
            let parts = 2 * cut - 1;
            if width < LEAST_POINTS {
                return None;
            }
            let all = (0..parts).filter_map(|number| {
                let from = within.start + (within.len() - width) * number / (parts - 1);
                called(x, from..from + width, parts * series)
            });
            all.max_by(|a, b| a.evidence.total_cmp(&b.evidence))
        })
    })
}

/// Returns whether there is a step anywhere.
pub(super) fn is_changed(x: &[f64]) -> bool {
    test(x, 0..x.len(), 1).is_some()
}

/// Returns a value's typical distance from those around it.
pub(super) fn deviation(x: &[f64]) -> f64 {
    clean(x).deviation
}

/// Finds all steps of one of so many series.
pub(super) fn find(x: &[f64], series: usize) -> Vec<Found> {
    let mut places = Vec::new();
    split(x, 0..x.len(), series, &mut places);
    places.sort_unstable();
    // A place was found while others were not known: now each is tested between its neighbours.
    loop {
        let segment = |at: usize| {
            let from = at.checked_sub(1).map_or(0, |before| places[before]);
            from..places.get(at + 1).copied().unwrap_or(x.len())
        };
        let mut all = Vec::new();
        let mut gone = None;
        for at in 0..places.len() {
            match test(x, segment(at), series) {
                Some(called) => all.push(described(x, &called)),
                None => {
                    gone = Some(at);
                    break;
                }
            }
        }
        match gone {
            Some(at) => places.remove(at),
            None => {
                // A place may have moved beyond its neighbour's.
                all.sort_rows_by_key(|found| found.at);
                all.dedup_by_key(|found| found.at);
                return all;
            }
        };
    }
}

/// Puts the steps of a part into `places`.
fn split(x: &[f64], within: Range<usize>, series: usize, places: &mut Vec<usize>) {
    if let Some(called) = test(x, within.clone(), series) {
        let at = called.part.start + called.best.at;
        places.push(at);
        split(x, within.start..at, series, places);
        split(x, at..within.end, series, places);
    }
}

/// Says where exactly a step is, and how large.
fn described(x: &[f64], called: &Called) -> Found {
    let (x, from) = (&x[called.part.clone()], called.part.start);
    let clean = clean(x);
    let y = near(x, &clean, called.best.at);
    let of_kind = models().filter(|model| model.stays() == called.best.model.stays());
    let steps: Vec<Step> = of_kind
        .flat_map(|model| steps(&y, clean.floor, LEAST, &model))
        .collect();
    let least = steps.iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
    let best = least.copied().unwrap_or(Step {
        at: called.best.at,
        size: f64::NAN,
        error: f64::NAN,
        cost: 0.0,
    });
    let within = |most: f64| {
        steps
            .iter()
            .filter(move |step| step.cost <= best.cost + most)
    };
    let places = || within(DATE).map(|step| step.at);
    let wide = student(x.len());
    let low = within(SIZE).map(|step| step.size - wide * step.error);
    let high = within(SIZE).map(|step| step.size + wide * step.error);
    Found {
        at: from + best.at,
        places: (
            from + places().min().unwrap_or(best.at),
            from + places().max().unwrap_or(best.at),
        ),
        size: best.size,
        ends: (
            low.fold(f64::INFINITY, f64::min),
            high.fold(f64::NEG_INFINITY, f64::max),
        ),
        evidence: called.evidence,
    }
}

/// Student's 97.5 % point of so many values less four, near enough.
fn student(values: usize) -> f64 {
    let free = values as f64 - 4.0;
    1.96 + 2.4 / free + 3.0 / (free * free)
}

/// How far values moved at a place that was chosen before.
pub(super) struct Jump {
    pub(super) size: f64,
    error: f64,
    values: usize,
}

impl Jump {
    /// The ends of its 95 % interval.
    pub(super) fn ends(&self) -> (f64, f64) {
        let half = student(self.values) * self.error;
        (self.size - half, self.size + half)
    }

    /// The probability of one as large, had nothing moved.
    pub(super) fn p(&self) -> f64 {
        if self.size == 0.0 {
            return 1.0;
        }
        // As if normal, with the distance shortened as Student's is at 5 %.
        let far = self.size.abs() / self.error * 1.96 / student(self.values);
        two_sided(far)
    }
}

/// The probability that a normal value is as far out, on either side. The bound of Chernoff where the series ends.
fn two_sided(far: f64) -> f64 {
    // Abramowitz and Stegun 26.2.17: off by 7.5e-8 at most.
    const FACTORS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * far);
    let sum = FACTORS
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let density = (-far * far / 2.0).exp() / std::f64::consts::TAU.sqrt();
    (2.0 * density * sum).clamp(0.0, 1.0)
}

/// Returns how far values moved at a place; `None` where there are too few, or none moved.
pub(super) fn jump(x: &[f64], at: usize) -> Option<Jump> {
    let clean = clean(x);
    let y = near(x, &clean, at);
    // The model that explains them best with a step there; a level that moves has to earn its place.
    let best = models()
        .filter_map(|model| {
            let price = if model.stays() {
                0.0
            } else {
                EVIDENCE_OF_MOVING
            };
            let here = steps(&y, clean.floor, 1, &model);
            let here = here.into_iter().find(|step| step.at == at);
            here.map(|step| (step.cost + price, step))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Jump {
        size: best.1.size,
        error: best.1.error,
        values: x.len(),
    })
    .filter(|jump| jump.size.is_finite() && jump.error > 0.0)
}

/// The values, where those around the step are held against the level before it and after it, not against a median over both. One
/// that fits to neither is put between, where it says nothing of the place.
fn near(x: &[f64], clean: &Clean, at: usize) -> Vec<f64> {
    const AROUND: usize = 2 * HALF + 1;
    let mut y = clean.y.clone();
    let zone = at.saturating_sub(HALF)..(at + HALF).min(x.len());
    let before = match zone.start {
        0..LEAST => &x[..at],
        start => &x[start.saturating_sub(AROUND)..start],
    };
    let after = match x.len() - zone.end {
        0..LEAST => &x[at..],
        _ => &x[zone.end..(zone.end + AROUND).min(x.len())],
    };
    let levels = [before, after].map(|level| median(&mut level.to_vec()));
    let most = CLIP * clean.deviation;
    for t in zone {
        let fits = levels.iter().any(|level| (x[t] - level).abs() <= most);
        let between = levels[0].min(levels[1]) <= x[t] && x[t] <= levels[0].max(levels[1]);
        y[t] = if fits || between {
            x[t]
        } else {
            f64::midpoint(levels[0], levels[1])
        };
    }
    y
}
