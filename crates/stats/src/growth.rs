//! How cost grows over N: the number of mappings, of chunks, of held buffers.
//!
//! # Model
//!
//! `cost(N) = a + b * g(N)` with `a, b >= 0`: a floor that every operation pays, and a part that
//! grows. Two fits, both by least squares in *relative* error (a cost of 400 us that is off by
//! 4 us is as wrong as one of 4 us that is off by 40 ns):
//!
//! * a **shape**: the best of g = 1, log N, N, N log N, N^2 by the Bayesian information
//!   criterion, which charges for the slope;
//! * an **exponent**: g = N^p with p between 0 and 3. For each p the best a and b have a closed
//!   form (a non-negative linear problem of two unknowns), so p alone is searched: on a grid,
//!   then by golden section.
//!
//! A point's cost is the geometric mean over its runs. A run that is slow as a whole (its
//! layout, its neighbours on the machine) multiplies all of its points by one factor, which
//! drops out of every ratio and every exponent.
//!
//! # Certainty
//!
//! Intervals are bootstrapped over runs ([`over_runs`]). That covers what varies from run to
//! run; it cannot see that the curve itself is wrong, since every run shows the same curve. So
//! where the points lie further from the curve than the runs' own noise explains, the exponent's
//! interval is widened by the standard error that the excess implies, times Student's t for the
//! points that are left over (one for 4 points, three for 6). The test
//! `exponent_intervals_cover_what_they_promise` measured 96.8 % of 4,000 intervals (5 runs, 6
//! points, 2 % noise, seed 1) to hold the exponent.
//!
//! What the model leaves out: steps (a cache that overflows between two N), costs that fall,
//! and floors that differ between runs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bootstrap::{Interval, LEAST_RUNS, over_runs, t_975};
use crate::verdict::{Verdict, Word, format_interval};

/// Fewest different N that a fit takes.
pub const LEAST_POINTS: usize = 3;
/// Fewest different N that define an exponent: three unknowns pass through any three points.
pub const LEAST_POINTS_EXPONENT: usize = 4;
/// The reference N is the least that is not below this.
pub const REFERENCE: f64 = 1_000.0;
/// The largest exponent that is looked for.
pub const STEEPEST: f64 = 3.0;

/// Flat: cost(largest N) / cost(reference N) is below this.
pub const FLAT_BELOW: f64 = 2.0;
/// Growing: cost(largest N) / cost(reference N) is above this. The largest ratio that a kernel
/// with a logarithmic search showed on a noisy machine was 1.44; a tree that gains a level and
/// tables that leave a cache must not count as growth, nor may log N itself, whose ratio from
/// 1,000 to 60,000 is 1.59 where there is no floor at all (that is then below [`FLAT_BELOW`]).
pub const GROWS_ABOVE: f64 = 1.5;
/// Over a ladder shorter than this, cost that does not double proves nothing: with a factor of
/// 10 at least, whatever grows as N and makes up more than a ninth of the cost at the
/// reference doubles it.
pub const LEAST_SPAN: f64 = 10.0;
/// An exponent that may be below this may be 0, which is no growth.
pub const LEAST_EXPONENT: f64 = 0.01;

/// Least cost in any unit; below it squares of ratios leave the range of numbers.
const LEAST_COST: f64 = 1e-30;
/// Greatest cost in any unit.
const GREATEST_COST: f64 = 1e30;
/// Greatest N.
const GREATEST_N: f64 = 1e18;

/// What one N cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// How many there were: 1 to 10^18.
    pub n: f64,
    /// The cost in each run, in any unit, all greater than 0. `runs[i]` of every point belongs
    /// to run `i`.
    pub runs: Vec<f64>,
}

/// How cost grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The exponent p of `a + b * N^p`, from 0 to 3. `None` where cost does not vary with N
    /// enough to define one, and with fewer than 4 different N.
    pub exponent: Option<Interval>,
    /// The simplest curve that describes it.
    pub shape: Shape,
    /// cost(largest N) / cost(reference N).
    pub ratio: Interval,
    /// The reference: the least N that is at least 1,000; where there is none below the largest
    /// N, the least N.
    pub reference_n: f64,
    /// The largest N.
    pub largest_n: f64,
    /// Cost at the reference, in the points' unit.
    pub reference_cost: f64,
    /// Cost at the largest N, in the points' unit.
    pub largest_cost: f64,
    /// What every operation pays: a of the shape's curve, in the points' unit.
    pub floor: f64,
    /// b of the shape's curve `floor + slope * g(N)`; 0 for [`Shape::Constant`]. Logarithms are
    /// natural.
    pub slope: f64,
}

/// A curve, by what grows in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Nothing.
    Constant,
    /// log N.
    Log,
    /// N.
    Linear,
    /// N log N.
    LinearLog,
    /// N^2.
    Quadratic,
}

impl Shape {
    /// All that are tried, simplest first.
    pub const ALL: [Shape; 5] = [
        Shape::Constant,
        Shape::Log,
        Shape::Linear,
        Shape::LinearLog,
        Shape::Quadratic,
    ];

    /// g(N), for N from 1; 0 for [`Shape::Constant`].
    #[must_use]
    pub fn at(self, n: f64) -> f64 {
        match self {
            Shape::Constant => 0.0,
            Shape::Log => n.ln(),
            Shape::Linear => n,
            Shape::LinearLog => n * n.ln(),
            Shape::Quadratic => n * n,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Shape::Constant => "constant",
            Shape::Log => "log N",
            Shape::Linear => "N",
            Shape::LinearLog => "N log N",
            Shape::Quadratic => "N^2",
        })
    }
}

/// Why there is no fit.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum FitError {
    /// Measure at more N.
    #[error("{have} different N, a fit needs {LEAST_POINTS}")]
    TooFewPoints {
        /// How many there are.
        have: usize,
    },
    /// Measure more often.
    #[error("{have} runs, an interval needs {LEAST_RUNS}")]
    TooFewRuns {
        /// How many there are.
        have: usize,
    },
    /// A run is missing at one N; leave it out at all of them.
    #[error("{have} runs at N={n}, {expected} at the first N")]
    UnequalRuns {
        /// Where.
        n: f64,
        /// How many there are.
        have: usize,
        /// How many the first point has.
        expected: usize,
    },
    /// Two points have the same N; they should be one, or runs of one.
    #[error("N={n} comes twice")]
    SameN {
        /// Which.
        n: f64,
    },
    /// An N that is not a number from 1 to 10^18.
    #[error("N={n} is not between 1 and 1e18")]
    N {
        /// What it is.
        n: f64,
    },
    /// A cost that is zero, negative or no number: a failed step is no measurement.
    #[error("cost {cost} at N={n} in run {run} is not between 1e-30 and 1e30")]
    Cost {
        /// Where.
        n: f64,
        /// In which run, from 0.
        run: usize,
        /// What it is.
        cost: f64,
    },
}

/// How the cost of `points` grows; their order does not matter.
///
/// Takes some 2,000 fits, a few milliseconds; the same seed gives the same answer.
///
/// # Errors
/// [`FitError`] where the points are too few, do not belong together or are no measurements.
pub fn fit(points: &[Point], seed: u64) -> Result<Growth, FitError> {
    let ladder = Ladder::new(points)?;
    let runs: Vec<usize> = (0..ladder.runs()).collect();
    let all: Vec<&usize> = runs.iter().collect();
    let too_few = FitError::TooFewRuns { have: runs.len() };

    let last = ladder.n.len() - 1;
    let reference = ladder
        .n
        .iter()
        .position(|&n| n >= REFERENCE)
        .filter(|&at| at < last)
        .unwrap_or(0);
    let rise = |from: usize| {
        over_runs(&runs, seed, |drawn| {
            Some(ladder.log_cost(last, drawn) - ladder.log_cost(from, drawn))
        })
        .map(|logarithm| logarithm.map(f64::exp))
    };
    let ratio = rise(reference).ok_or(too_few.clone())?;
    let whole = rise(0).ok_or(too_few)?;

    let costs = ladder.costs(&all);
    // Without this, noise alone would have an exponent: b N^p fits it better than nothing.
    let varies = whole.value > 1.25 && whole.low > 1.1;
    let exponent = if varies && ladder.n.len() >= LEAST_POINTS_EXPONENT {
        exponent(&ladder, &runs, seed)
    } else {
        None
    };
    let candidates: &[Shape] = if varies {
        &Shape::ALL
    } else {
        &[Shape::Constant]
    };
    let (shape, curve) = best_shape(&ladder.n, &costs, candidates);
    let scale = ladder.middle.exp();
    Ok(Growth {
        exponent,
        shape,
        ratio,
        reference_n: ladder.n[reference],
        largest_n: ladder.n[last],
        reference_cost: costs[reference] * scale,
        largest_cost: costs[last] * scale,
        floor: curve.floor * scale,
        slope: curve.slope * scale,
    })
}

/// Points in order, checked.
struct Ladder {
    /// N, ascending.
    n: Vec<f64>,
    /// Logarithms of the costs by point and run, less [`Ladder::middle`].
    logs: Vec<Vec<f64>>,
    /// Mean of the logarithms: costs are fitted as multiples of their geometric mean, so that
    /// no unit brings squares out of range.
    middle: f64,
}

impl Ladder {
    #[allow(clippy::cast_precision_loss)] // counts of points and runs
    fn new(points: &[Point]) -> Result<Ladder, FitError> {
        let expected = points.first().map_or(0, |point| point.runs.len());
        for point in points {
            let n = point.n;
            if !(1.0..=GREATEST_N).contains(&n) {
                return Err(FitError::N { n });
            }
            let have = point.runs.len();
            if have != expected {
                return Err(FitError::UnequalRuns { n, have, expected });
            }
            for (run, &cost) in point.runs.iter().enumerate() {
                if !(LEAST_COST..=GREATEST_COST).contains(&cost) {
                    return Err(FitError::Cost { n, run, cost });
                }
            }
        }
        let mut order: Vec<&Point> = points.iter().collect();
        order.sort_by(|a, b| a.n.total_cmp(&b.n));
        // Within the sorted, checked N "not less" is "the same".
        if let Some(pair) = order.windows(2).find(|pair| pair[0].n >= pair[1].n) {
            return Err(FitError::SameN { n: pair[1].n });
        }
        if order.len() < LEAST_POINTS {
            return Err(FitError::TooFewPoints { have: order.len() });
        }
        if expected < LEAST_RUNS {
            return Err(FitError::TooFewRuns { have: expected });
        }
        let mut logs: Vec<Vec<f64>> = order
            .iter()
            .map(|point| point.runs.iter().map(|cost| cost.ln()).collect())
            .collect();
        let count = (order.len() * expected) as f64;
        let middle = logs.iter().flatten().sum::<f64>() / count;
        logs.iter_mut().flatten().for_each(|log| *log -= middle);
        Ok(Ladder {
            n: order.iter().map(|point| point.n).collect(),
            logs,
            middle,
        })
    }

    fn runs(&self) -> usize {
        self.logs[0].len()
    }

    /// Logarithm of a point's cost in the drawn runs.
    #[allow(clippy::cast_precision_loss)] // number of runs
    fn log_cost(&self, point: usize, drawn: &[&usize]) -> f64 {
        let logs = &self.logs[point];
        drawn.iter().map(|&&run| logs[run]).sum::<f64>() / drawn.len() as f64
    }

    /// The points' costs in the drawn runs.
    fn costs(&self, drawn: &[&usize]) -> Vec<f64> {
        (0..self.n.len())
            .map(|point| self.log_cost(point, drawn).exp())
            .collect()
    }

    /// Variance of a point's relative cost over runs, after each run's own factor is taken out,
    /// divided by the number of runs: how far a point's mean may lie from the truth.
    #[allow(clippy::cast_precision_loss)] // counts of points and runs
    fn noise(&self) -> f64 {
        let (points, runs) = (self.logs.len() as f64, self.runs() as f64);
        let mut squares = 0.0;
        for run in 0..self.runs() {
            let factor = self.logs.iter().map(|logs| logs[run]).sum::<f64>() / points;
            for logs in &self.logs {
                // The grand mean is 0.
                let point = logs.iter().sum::<f64>() / runs;
                squares += (logs[run] - point - factor).powi(2);
            }
        }
        squares / ((points - 1.0) * (runs - 1.0)) / runs
    }
}

/// `floor + slope * g`, and how badly it fits.
#[derive(Debug, Clone, Copy)]
struct Curve {
    floor: f64,
    slope: f64,
    /// Sum of squared relative errors.
    error: f64,
}

/// The best non-negative floor and slope for growth `g` at points that cost `costs`.
///
/// A convex problem of two unknowns: if the unbounded solution is negative somewhere, the
/// bounded one lies on one of the two axes. On an axis it cannot be negative, since all costs
/// and all g are positive or 0.
fn curve(costs: &[f64], g: &[f64]) -> Curve {
    let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (&cost, &g) in costs.iter().zip(g) {
        let (u, v) = (1.0 / cost, g / cost);
        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    let error = |floor: f64, slope: f64| {
        let error = costs
            .iter()
            .zip(g)
            .map(|(&cost, &g)| ((floor + slope * g) / cost - 1.0).powi(2))
            .sum();
        Curve {
            floor,
            slope,
            error,
        }
    };
    let determinant = uu * vv - uv * uv;
    // Below this the two columns are parallel to within rounding, and either one serves.
    if determinant > 1e-12 * uu * vv {
        let floor = (u1 * vv - v1 * uv) / determinant;
        let slope = (v1 * uu - u1 * uv) / determinant;
        if floor >= 0.0 && slope >= 0.0 {
            return error(floor, slope);
        }
    }
    let flat = error(u1 / uu, 0.0);
    if vv > 0.0 {
        let pure = error(0.0, v1 / vv);
        if pure.error < flat.error {
            return pure;
        }
    }
    flat
}

/// The candidate with the least Bayesian information criterion, and its curve.
#[allow(clippy::cast_precision_loss)] // number of points
fn best_shape(n: &[f64], costs: &[f64], candidates: &[Shape]) -> (Shape, Curve) {
    let points = n.len() as f64;
    let mut best: Option<(f64, Shape, Curve)> = None;
    for &shape in candidates {
        // Relative to the largest, to stay in range; the slope is scaled back.
        let scale = shape.at(n[n.len() - 1]).max(f64::MIN_POSITIVE);
        let g: Vec<f64> = n.iter().map(|&n| shape.at(n) / scale).collect();
        let mut curve = curve(costs, &g);
        curve.slope /= scale;
        let unknowns = if shape == Shape::Constant { 1.0 } else { 2.0 };
        // A histogram is exact to 0.1 %: curves that are closer than that are equally good.
        let score = points * (curve.error / points + 1e-6).ln() + unknowns * points.ln();
        if best.is_none_or(|(least, ..)| score < least) {
            best = Some((score, shape, curve));
        }
    }
    let (_, shape, curve) = best.expect("at least one shape is a candidate");
    (shape, curve)
}

/// Steps of the grid over the exponent.
const STEPS: usize = 60;

/// Searches p of `floor + slope * (N / largest)^p`.
struct Profile {
    /// ln(N / largest N), at most 0.
    depth: Vec<f64>,
    /// `(p, (N / largest)^p)` for the grid.
    grid: Vec<(f64, Vec<f64>)>,
}

impl Profile {
    #[allow(clippy::cast_precision_loss)] // sixty steps
    fn new(n: &[f64]) -> Profile {
        let largest = n[n.len() - 1];
        let depth: Vec<f64> = n.iter().map(|n| (n / largest).ln()).collect();
        let grid = (0..=STEPS)
            .map(|step| {
                let p = STEEPEST * step as f64 / STEPS as f64;
                (p, powers(&depth, p))
            })
            .collect();
        Profile { depth, grid }
    }

    fn at(&self, costs: &[f64], p: f64) -> Curve {
        curve(costs, &powers(&self.depth, p))
    }

    /// The best exponent: within 10^-4 of the least error next to the best step of the grid.
    fn best(&self, costs: &[f64]) -> f64 {
        let mut least = f64::INFINITY;
        let mut middle = 0.0;
        for (p, g) in &self.grid {
            let error = curve(costs, g).error;
            if error < least {
                (least, middle) = (error, *p);
            }
        }
        let step = self.grid[1].0;
        let (mut low, mut high) = ((middle - step).max(0.0), (middle + step).min(STEEPEST));
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let (mut left, mut right) = (high - golden * (high - low), low + golden * (high - low));
        let (mut at_left, mut at_right) = (self.at(costs, left).error, self.at(costs, right).error);
        while high - low > 1e-4 {
            if at_left < at_right {
                (high, right, at_right) = (right, left, at_left);
                left = high - golden * (high - low);
                at_left = self.at(costs, left).error;
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + golden * (high - low);
                at_right = self.at(costs, right).error;
            }
        }
        f64::midpoint(low, high)
    }
}

fn powers(depth: &[f64], p: f64) -> Vec<f64> {
    depth.iter().map(|depth| (p * depth).exp()).collect()
}

/// The exponent and its interval, from runs and from how well the curve describes the points.
fn exponent(ladder: &Ladder, runs: &[usize], seed: u64) -> Option<Interval> {
    let profile = Profile::new(&ladder.n);
    let runs = over_runs(runs, seed, |drawn| Some(profile.best(&ladder.costs(drawn))))?;
    let all: Vec<usize> = (0..ladder.runs()).collect();
    let costs = ladder.costs(&all.iter().collect::<Vec<_>>());
    let misfit = misfit(&profile, &costs, runs.value, ladder.noise());
    let wider = |half: f64| half.hypot(misfit);
    Some(Interval {
        value: runs.value,
        low: (runs.value - wider(runs.value - runs.low)).max(0.0),
        high: (runs.value + wider(runs.high - runs.value)).min(STEEPEST),
    })
}

/// Half the width that the exponent's interval needs because the points lie further from the
/// curve than `noise` (a variance of relative error) explains. 0 where they do not.
#[allow(clippy::cast_precision_loss)] // number of points
fn misfit(profile: &Profile, costs: &[f64], p: f64, noise: f64) -> f64 {
    let g = powers(&profile.depth, p);
    let curve = curve(costs, &g);
    let has_floor = curve.floor > 0.0;
    let freedom = costs.len() - 2 - usize::from(has_floor);
    if freedom == 0 {
        return 0.0;
    }
    let excess = curve.error / freedom as f64 - noise;
    if excess <= 0.0 {
        return 0.0;
    }
    // How the curve moves with p, where the floor and the slope cannot follow.
    let relative = |column: &dyn Fn(usize) -> f64| -> Vec<f64> {
        (0..costs.len()).map(|at| column(at) / costs[at]).collect()
    };
    let mut basis = vec![relative(&|at| g[at])];
    if has_floor {
        basis.push(relative(&|_| 1.0));
    }
    let mut moves = relative(&|at| curve.slope * g[at] * profile.depth[at]);
    for at in 0..basis.len() {
        let (done, rest) = basis.split_at_mut(at);
        for other in done.iter() {
            remove(&mut rest[0], other);
        }
        remove(&mut moves, &basis[at]);
    }
    let information = dot(&moves, &moves);
    if information > 0.0 {
        (t_975(freedom) * (excess / information).sqrt()).min(STEEPEST)
    } else {
        STEEPEST
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Takes out of `vector` what points along `direction`.
fn remove(vector: &mut [f64], direction: &[f64]) {
    let length = dot(direction, direction);
    if length > 0.0 {
        let share = dot(vector, direction) / length;
        for (v, d) in vector.iter_mut().zip(direction) {
            *v -= share * d;
        }
    }
}

/// The verdict, in the words of the project: `flat`, `grows` or `inconclusive`.
///
/// `control` is the growth of something that is known to cost N, measured in the same process
/// over the same ladder: who does not see that one grow would not see any other.
///
/// 1. `inconclusive` unless the control grew as N: its exponent is between 0.8 and 1.25, and
///    its interval overlaps 0.9 to 1.1.
/// 2. The rest is [`verdict_without_control`].
#[must_use]
pub fn verdict(growth: &Growth, control: Option<&Growth>) -> Verdict {
    let Some(control) = control else {
        return Verdict::inconclusive(
            "the positive control did not grow as N (exponent unknown: there was no control)",
        );
    };
    match control.exponent {
        Some(p) if (0.8..=1.25).contains(&p.value) && p.low <= 1.1 && p.high >= 0.9 => {
            verdict_without_control(growth)
        }
        Some(p) => Verdict::inconclusive(&format!(
            "the positive control did not grow as N (exponent {})",
            exponent_text(p)
        )),
        None => Verdict::inconclusive(
            "the positive control did not grow as N (exponent unknown: its cost hardly varied)",
        ),
    }
}

/// The verdict on exact costs, as a model counts them, where nothing can hide growth.
///
/// 1. `flat` if the ratio's interval lies below [`FLAT_BELOW`] and the ladder spans
///    [`LEAST_SPAN`].
/// 2. `grows` if the ratio's interval lies above [`GROWS_ABOVE`] and the exponent's above
///    [`LEAST_EXPONENT`].
/// 3. `inconclusive` otherwise, saying why.
#[must_use]
pub fn verdict_without_control(growth: &Growth) -> Verdict {
    let ratio = growth.ratio;
    let ladder = format!("from N={} to N={}", growth.reference_n, growth.largest_n);
    if ratio.high < FLAT_BELOW {
        if growth.largest_n / growth.reference_n < LEAST_SPAN {
            return Verdict::inconclusive(&format!(
                "{ladder} is too short a way to see growth (a factor of {LEAST_SPAN} is needed)"
            ));
        }
        return Verdict::new(Word::Flat, format!("flat {} {ladder}", ratio_text(ratio)));
    }
    if ratio.low <= GROWS_ABOVE {
        return Verdict::inconclusive(&format!(
            "{} {ladder}: neither below {FLAT_BELOW} nor above {GROWS_ABOVE}",
            format_interval(ratio.value, ratio.low, ratio.high, "x")
        ));
    }
    match growth.exponent {
        Some(p) if p.low >= LEAST_EXPONENT => {
            Verdict::new(Word::Grows, format!("grows ~N^{}", exponent_text(p)))
        }
        Some(p) => Verdict::inconclusive(&format!(
            "{} {ladder}, but not as a power of N (exponent {})",
            ratio_text(ratio),
            exponent_text(p)
        )),
        None => Verdict::inconclusive(&format!(
            "{} {ladder}, but too few N, or too little rise over all of them, for an exponent",
            ratio_text(ratio)
        )),
    }
}

/// `0.97 (0.94..1.01)`.
fn exponent_text(p: Interval) -> String {
    format!("{:.2} ({:.2}..{:.2})", p.value, p.low, p.high)
}

/// `1.2x (1.1..1.3)`; with more digits where an end below [`FLAT_BELOW`] would show as 2.0.
fn ratio_text(ratio: Interval) -> String {
    if ratio.high >= 100.0 || ratio.value < 0.1 {
        return format_interval(ratio.value, ratio.low, ratio.high, "x");
    }
    let digits = if (1.95..2.0).contains(&ratio.high) {
        3
    } else {
        1
    };
    format!(
        "{:.digits$}x ({:.digits$}..{:.digits$})",
        ratio.value, ratio.low, ratio.high
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::normal;
    use proptest::prelude::*;
    use stopgap_events::random::Random;

    const LADDER: [f64; 6] = [100.0, 1_000.0, 10_000.0, 20_000.0, 40_000.0, 60_000.0];
    /// numbers.md, section 2: mapping memory on Linux 6.18, microseconds.
    const LIVE: [f64; 6] = [3.8, 3.6, 4.2, 4.5, 5.5, 5.2];
    /// Mail 000: the same in 2011.
    const MAIL: [(f64, f64); 5] = [
        (100.0, 17.3),
        (1_000.0, 19.9),
        (10_000.0, 88.5),
        (20_000.0, 205.0),
        (40_000.0, 406.0),
    ];

    /// `runs` runs of `cost`, each with a factor of its own and `noise` at every point.
    fn runs_of(
        costs: &[(f64, f64)],
        runs: usize,
        factor: f64,
        noise: f64,
        seed: u64,
    ) -> Vec<Point> {
        let mut random = Random::new(seed);
        let factors: Vec<f64> = (0..runs)
            .map(|_| (factor * normal(&mut random)).exp())
            .collect();
        costs
            .iter()
            .map(|&(n, cost)| Point {
                n,
                runs: factors
                    .iter()
                    .map(|factor| cost * factor * (noise * normal(&mut random)).exp())
                    .collect(),
            })
            .collect()
    }

    fn ladder(cost: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        LADDER.iter().map(|&n| (n, cost(n))).collect()
    }

    fn control() -> Growth {
        fit(
            &runs_of(&ladder(|n| 300.0 + 20.0 * n), 5, 0.05, 0.02, 99),
            1,
        )
        .expect("a fit")
    }

    #[test]
    fn the_live_kernel_is_flat() {
        for seed in 0..20 {
            let costs: Vec<_> = LADDER.into_iter().zip(LIVE).collect();
            let growth = fit(&runs_of(&costs, 5, 0.05, 0.05, seed), seed).expect("a fit");
            let verdict = verdict(&growth, Some(&control()));
            assert_eq!(verdict.word, Word::Flat, "seed {seed}: {}", verdict.text);
            assert!(
                verdict.text.ends_with("from N=1000 to N=60000"),
                "{}",
                verdict.text
            );
        }
    }

    #[test]
    fn constant_cost_has_no_exponent() {
        for seed in 0..20 {
            let growth = fit(&runs_of(&ladder(|_| 4.0), 5, 0.05, 0.05, seed), seed).expect("a fit");
            assert_eq!(growth.exponent, None, "seed {seed}");
            assert_eq!(growth.shape, Shape::Constant);
            assert!((growth.floor / 4.0 - 1.0).abs() < 0.2);
            assert!(growth.ratio.high < 1.3, "seed {seed}: {:?}", growth.ratio);
        }
    }

    #[test]
    fn the_mails_kernel_grows_as_n() {
        for seed in 0..20 {
            let growth = fit(&runs_of(&MAIL, 5, 0.05, 0.05, seed), seed).expect("a fit");
            let p = growth.exponent.expect("it grows");
            assert!(p.low <= 1.0 && 1.0 <= p.high, "seed {seed}: {p:?}");
            let verdict = verdict(&growth, Some(&control()));
            assert_eq!(verdict.word, Word::Grows, "seed {seed}: {}", verdict.text);
            println!(
                "{} shape {} ratio {:?}",
                verdict.text, growth.shape, growth.ratio
            );
        }
    }

    #[test]
    fn shapes_and_exponents_are_found_again() {
        for (shape, p, cost) in [
            (
                Shape::Linear,
                1.0,
                &(|n| 4.0 + 0.01 * n) as &dyn Fn(f64) -> f64,
            ),
            (Shape::Linear, 1.0, &|n| 0.01 * n),
            (Shape::Quadratic, 2.0, &|n| 5.0 + 1e-6 * n * n),
            (Shape::LinearLog, 1.1, &|n| 4.0 + 0.01 * n * n.ln()),
        ] {
            for seed in 0..5 {
                let growth =
                    fit(&runs_of(&ladder(cost), 5, 0.05, 0.01, seed), seed).expect("a fit");
                let found = growth.exponent.expect("it grows");
                assert!(
                    (found.value - p).abs() < 0.05,
                    "{shape}, seed {seed}: {found:?}"
                );
                assert_eq!(growth.shape, shape, "seed {seed}");
                let at_end = growth.floor + growth.slope * shape.at(60_000.0);
                assert!((at_end / growth.largest_cost - 1.0).abs() < 0.05);
                assert_eq!(verdict(&growth, Some(&control())).word, Word::Grows);
            }
        }
    }

    #[test]
    fn log_n_is_no_linear_growth() {
        for seed in 0..10 {
            let growth = fit(
                &runs_of(&ladder(|n| 0.5 * n.ln()), 5, 0.05, 0.01, seed),
                seed,
            )
            .expect("a fit");
            assert_eq!(growth.shape, Shape::Log, "seed {seed}");
            let p = growth.exponent.expect("it doubles over the whole ladder");
            assert!(p.high < 0.5, "seed {seed}: {p:?}");
            assert_eq!(verdict(&growth, Some(&control())).word, Word::Flat);
        }
    }

    #[test]
    fn nothing_is_said_without_a_control_that_grew() {
        let growth = fit(&runs_of(&ladder(|_| 4.0), 5, 0.0, 0.02, 1), 1).expect("a fit");
        let squared = fit(&runs_of(&ladder(|n| n * n), 5, 0.0, 0.01, 1), 1).expect("a fit");
        for control in [None, Some(&growth), Some(&squared)] {
            let verdict = verdict(&growth, control);
            assert_eq!(verdict.word, Word::Inconclusive);
            let start = "inconclusive: the positive control did not grow as N (exponent ";
            assert!(verdict.text.starts_with(start), "{}", verdict.text);
        }
        assert_eq!(verdict_without_control(&growth).word, Word::Flat);
    }

    fn growth(ratio: [f64; 3], exponent: Option<[f64; 3]>, n: [f64; 2]) -> Growth {
        let interval = |[value, low, high]: [f64; 3]| Interval { value, low, high };
        Growth {
            exponent: exponent.map(interval),
            shape: Shape::Linear,
            ratio: interval(ratio),
            reference_n: n[0],
            largest_n: n[1],
            reference_cost: 1.0,
            largest_cost: ratio[0],
            floor: 1.0,
            slope: 1.0,
        }
    }

    #[test]
    fn the_words() {
        let n = [1e3, 6e4];
        let p = Some([0.97, 0.94, 1.01]);
        for (growth, text) in [
            (
                growth([1.2, 1.1, 1.3], None, n),
                "flat 1.2x (1.1..1.3) from N=1000 to N=60000",
            ),
            (
                growth([1.2, 1.1, 1.987], p, n),
                "flat 1.200x (1.100..1.987) from N=1000 to N=60000",
            ),
            (
                growth([40.0, 35.0, 45.0], p, n),
                "grows ~N^0.97 (0.94..1.01)",
            ),
            (
                growth([40.0, 35.0, 45.0], None, n),
                "inconclusive: 40.0x (35.0..45.0) from N=1000 to N=60000, but too few N, \
                 or too little rise over all of them, for an exponent",
            ),
            (
                growth([2.4, 1.6, 3.0], Some([0.3, 0.0, 3.0]), n),
                "inconclusive: 2.4x (1.6..3.0) from N=1000 to N=60000, but not as a power of N \
                 (exponent 0.30 (0.00..3.00))",
            ),
            (
                growth([2.0, 1.2, 3.2], p, n),
                "inconclusive: 2.00x (1.20..3.20) from N=1000 to N=60000: \
                 neither below 2 nor above 1.5",
            ),
            (
                growth([1.5, 1.4, 1.6], None, [1e3, 1.5e3]),
                "inconclusive: from N=1000 to N=1500 is too short a way to see growth \
                 (a factor of 10 is needed)",
            ),
        ] {
            assert_eq!(verdict_without_control(&growth).text, text);
        }
    }

    #[test]
    fn the_reference_is_never_the_largest_n() {
        let point = |n: f64| Point {
            n,
            runs: vec![n; 3],
        };
        let short = fit(&[1e3, 10.0, 100.0].map(point), 1).expect("a fit");
        assert!((short.ratio.value - 100.0).abs() < 1e-9);
        assert!((short.reference_n - 10.0).abs() < 1e-9);
        let long = fit(&[1e3, 10.0, 4e3].map(point), 1).expect("a fit");
        assert!((long.ratio.value - 4.0).abs() < 1e-9);
        assert_eq!(long.exponent, None, "three points define none");
    }

    #[test]
    fn faults_in_the_data_are_named() {
        let good = || -> Vec<Point> {
            [1.0, 2.0, 3.0]
                .map(|n| Point {
                    n,
                    runs: vec![1.0; 3],
                })
                .to_vec()
        };
        let with = |change: &dyn Fn(&mut Vec<Point>)| {
            let mut points = good();
            change(&mut points);
            fit(&points, 1).map_or_else(|error| error.to_string(), |_| "a fit".to_owned())
        };
        for (text, change) in [
            (
                "a fit",
                &(|_: &mut Vec<Point>| ()) as &dyn Fn(&mut Vec<Point>),
            ),
            ("0 different N, a fit needs 3", &|points| points.clear()),
            ("2 different N, a fit needs 3", &|points| {
                points.pop();
            }),
            ("N=2 comes twice", &|points| points[2].n = 2.0),
            ("N=NaN is not between 1 and 1e18", &|points| {
                points[0].n = f64::NAN;
            }),
            ("N=0.5 is not between 1 and 1e18", &|points| {
                points[0].n = 0.5;
            }),
            (
                "cost 0 at N=2 in run 1 is not between 1e-30 and 1e30",
                &|points| {
                    points[1].runs[1] = 0.0;
                },
            ),
            ("2 runs at N=3, 3 at the first N", &|points| {
                points[2].runs.pop();
            }),
            ("2 runs, an interval needs 3", &|points| {
                for point in points {
                    point.runs.pop();
                }
            }),
        ] {
            assert_eq!(with(change), text);
        }
    }

    /// How often the exponent's interval holds the exponent, over floors and exponents.
    #[test]
    fn exponent_intervals_cover_what_they_promise() {
        let seed = 1;
        let experiments: u32 = std::env::var("COVERAGE_EXPERIMENTS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(40);
        println!("seed {seed}, {experiments} experiments");
        let mut random = Random::new(seed);
        let mut covered = 0;
        for _ in 0..experiments {
            let p = [0.5, 1.0, 1.5, 2.0][random.index(4)];
            let floor = [0.0, 0.01, 0.1][random.index(3)];
            let costs = ladder(|n| floor + (n / 60_000.0).powf(p));
            let points = runs_of(&costs, 5, 0.05, 0.02, random.bits());
            let found = fit(&points, random.bits())
                .expect("a fit")
                .exponent
                .expect("it grows");
            covered += u32::from(found.low <= p && p <= found.high);
        }
        let share = 100.0 * f64::from(covered) / f64::from(experiments);
        println!("{share:.1} % covered");
        assert!(share > 85.0, "{share} %");
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => 0.5f64..1e6,
            1 => any::<f64>(),
            1 => prop::sample::select(vec![
                0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE,
                f64::MAX, 1e-30, 1e30, 1e18, 1.0,
            ]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn any_numbers_give_a_fit_or_an_error(points in prop::collection::vec((number(), prop::collection::vec(number(), 3..5)), 0..7), seed in any::<u64>()) {
            let points: Vec<Point> = points.into_iter().map(|(n, runs)| Point { n, runs }).collect();
            if let Ok(growth) = fit(&points, seed) {
                prop_assert!(growth.ratio.low <= growth.ratio.high);
                let _ = verdict(&growth, Some(&growth));
                let _ = verdict_without_control(&growth);
            }
        }

        /// As above, but all of it valid, however wild.
        #[test]
        fn valid_numbers_give_a_fit(points in prop::collection::btree_map(0u32..60, prop::collection::vec(-99i32..100, 3), 3..8), seed in any::<u64>()) {
            let points: Vec<Point> = points.into_iter().map(|(n, runs)| Point {
                n: 2f64.powi(i32::try_from(n).unwrap() - 1).max(1.0) + f64::from(n) / 64.0,
                runs: runs.into_iter().map(|power| 2f64.powi(power)).collect(),
            }).collect();
            let growth = fit(&points, seed).unwrap();
            prop_assert!(growth.ratio.low <= growth.ratio.high);
            prop_assert!(growth.floor >= 0.0 && growth.floor.is_finite());
            prop_assert!(growth.slope >= 0.0 && growth.slope.is_finite());
            if let Some(p) = growth.exponent {
                prop_assert!(0.0 <= p.low && p.low <= p.value && p.value <= p.high && p.high <= STEEPEST);
            }
            let _ = verdict_without_control(&growth);
        }

        /// A floor from nothing to half of the largest cost, 2 % noise. The bound on the error
        /// is loose where the floor hides the growing part's lower half.
        #[test]
        fn exponents_are_recovered(p in prop::sample::select(vec![0.5, 1.0, 1.5, 2.0]), floor in 0.0f64..1.0, scale in 1e-3f64..1e6, seed in any::<u64>()) {
            let costs = ladder(|n| scale * (floor + (n / 60_000.0).powf(p)));
            let growth = fit(&runs_of(&costs, 5, 0.05, 0.02, seed), seed).unwrap();
            let found = growth.exponent.unwrap();
            prop_assert!((found.value - p).abs() < 0.3, "{:?}", found);
            prop_assert!(found.low - 0.15 <= p && p <= found.high + 0.15, "{:?}", found);
        }
    }
}
