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

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::order::SortRows;
use stopgap_events::words;
use thiserror::Error;

use crate::bootstrap::{Interval, LEAST_RUNS, over_runs, t_975};
use crate::verdict::{Verdict, Word, format_interval, runs_text};

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
/// Least ratio of the largest to the reference N at which cost that does not double proves that there is no growth.
/// With a factor of at least 10, a part that grows as N and is more than a ninth of the cost at the reference doubles
/// the cost.
pub const LEAST_SPAN: f64 = 10.0;
/// Exponents that may be below this may be 0, which is no growth.
pub const LEAST_EXPONENT: f64 = 0.01;

/// Least cost in any unit; squares of smaller ratios leave the range of numbers.
const LEAST_COST: f64 = 1e-30;
/// Greatest cost in any unit.
const GREATEST_COST: f64 = 1e30;
/// Greatest N.
const GREATEST_N: f64 = 1e18;

/// Cost at one N.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The number of things: 1 to 10^18.
    pub n: f64,
    /// The cost in each run, in any unit, all greater than 0. `runs[i]` of every point belongs
    /// to run `i`.
    pub runs: Vec<f64>,
}

/// How cost grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The exponent p of `a + b * N^p`, from 0 to 3. `None` if cost varies too little with N, and with fewer than 4
    /// different N.
    pub exponent: Option<Interval>,
    /// The simplest curve that describes it.
    pub shape: Shape,
    /// cost(largest N) / cost(reference N).
    pub ratio: Interval,
    /// The reference: the least N that is at least 1,000; the least N if none below the largest one is.
    pub reference_n: f64,
    /// The largest N.
    pub largest_n: f64,
    /// Cost at the reference, in the points' unit.
    pub reference_cost: f64,
    /// Cost at the largest N, in the points' unit.
    pub largest_cost: f64,
    /// Cost of every operation: a of the shape's curve, in the points' unit.
    pub floor: f64,
    /// b of the shape's curve `floor + slope * g(N)`; 0 for [`Shape::Constant`]. Logarithms are
    /// natural.
    pub slope: f64,
}

/// A curve, by its growing part.
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
    /// Returns g(N), for N from 1; 0 for [`Shape::Constant`].
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

words!(Shape, "shape", Constant "constant", Log "log N", Linear "N", LinearLog "N log N", Quadratic "N^2");

/// Reason for which there is no fit.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum FitError {
    /// Too few N: measure at more N.
    #[error("{have} different N, a fit needs {LEAST_POINTS}")]
    TooFewPoints {
        /// Number of different N.
        have: usize,
    },
    /// Too few runs: measure more often.
    #[error("{}, an interval needs {LEAST_RUNS}", runs_text(*have))]
    TooFewRuns {
        /// Number of runs.
        have: usize,
    },
    /// A run is missing at one N. Leave it out at all of them.
    #[error("{} at N={n}, {expected} at the first N", runs_text(*have))]
    UnequalRuns {
        /// The N.
        n: f64,
        /// Number of runs at this N.
        have: usize,
        /// Number of runs at the first N.
        expected: usize,
    },
    /// Two points have the same N. Make them one point with more runs.
    #[error("N={n} comes twice")]
    SameN {
        /// The N.
        n: f64,
    },
    /// An N that is not a number from 1 to 10^18.
    #[error("N={n} is not between 1 and 1e18")]
    N {
        /// The value.
        n: f64,
    },
    /// A cost that is zero, negative or no number. A failed step is no measurement.
    #[error("cost {cost} at N={n} in run {run} is not between 1e-30 and 1e30")]
    Cost {
        /// The N.
        n: f64,
        /// The run, from 0.
        run: usize,
        /// The value.
        cost: f64,
    },
}

/// Returns how the cost of `points` grows, in any order of points.
///
/// Takes about 2,000 fits, a few milliseconds. The same seed gives the same answer.
///
/// # Errors
/// [`FitError`] if there are too few points, or if they do not belong together or are no measurements.
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
    // Without this, mere noise would have an exponent, because b N^p fits noise better than nothing.
    let varies = whole.value > 1.25 && whole.low > 1.1;
    let exponent = if varies && ladder.n.len() >= LEAST_POINTS_EXPONENT {
        exponent(&ladder, &runs, seed)
    } else {
        None
    };
    let candidates: &[Shape] = if varies {
        Shape::ALL
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

/// Checked points in order.
struct Ladder {
    /// N, ascending.
    n: Vec<f64>,
    /// Logarithms of the costs by point and run, minus [`Ladder::middle`].
    logs: Vec<Vec<f64>>,
    /// Mean of the logarithms: costs are fitted as multiples of their geometric mean, so that
    /// no unit brings squares out of range.
    middle: f64,
}

impl Ladder {
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
        order.sort_rows(|a, b| a.n.total_cmp(&b.n));
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

    /// Returns the logarithm of a point's cost in the drawn runs.
    fn log_cost(&self, point: usize, drawn: &[&usize]) -> f64 {
        let logs = &self.logs[point];
        drawn.iter().map(|&&run| logs[run]).sum::<f64>() / drawn.len() as f64
    }

    /// Returns the points' costs in the drawn runs.
    fn costs(&self, drawn: &[&usize]) -> Vec<f64> {
        (0..self.n.len())
            .map(|point| self.log_cost(point, drawn).exp())
            .collect()
    }

    /// Returns the variance of a point's relative cost over runs, without each run's own factor, divided by the
    /// number of runs: how far a point's mean may be from the truth.
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

/// `floor + slope * g`, and the error of the fit.
#[derive(Debug, Clone, Copy)]
struct Curve {
    floor: f64,
    slope: f64,
    /// Sum of squared relative errors.
    error: f64,
}

/// The sums of the normal equations for `floor + slope * g` in relative error.
#[derive(Default)]
struct Sums {
    uu: f64,
    uv: f64,
    vv: f64,
    u1: f64,
    v1: f64,
}

impl Sums {
    fn of_points(costs: &[f64], g: &[f64]) -> Sums {
        let mut sums = Sums::default();
        for (&cost, &g) in costs.iter().zip(g) {
            let (u, v) = (1.0 / cost, g / cost);
            sums.uu += u * u;
            sums.uv += u * v;
            sums.vv += v * v;
            sums.u1 += u;
            sums.v1 += v;
        }
        sums
    }

    fn line(&self) -> Option<(f64, f64)> {
        let Sums { uu, uv, vv, u1, v1 } = self;
        let determinant = uu * vv - uv * uv;
        // Below this limit the two columns are parallel except for rounding, and either one is enough.
        let solve = || {
            let floor = (u1 * vv - v1 * uv) / determinant;
            (floor, (v1 * uu - u1 * uv) / determinant)
        };
        (determinant > 1e-12 * uu * vv).then(solve)
    }
}

/// Returns the floor and the slope with the least squares of `(floor + slope * g) / cost - 1`; `None` if all `g` are
/// equal, so that no slope is better than another.
#[must_use]
pub fn line(costs: &[f64], g: &[f64]) -> Option<(f64, f64)> {
    Sums::of_points(costs, g).line()
}

/// Returns the best non-negative floor and slope for growth `g` at points with these `costs`.
///
/// This is a convex problem of two unknowns. If the unbounded solution is negative in one of them, the bounded one is
/// on one of the two axes. There it cannot be negative, because all costs and all g are positive or 0.
fn curve(costs: &[f64], g: &[f64]) -> Curve {
    let sums = Sums::of_points(costs, g);
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
    if let Some((floor, slope)) = sums.line()
        && floor >= 0.0
        && slope >= 0.0
    {
        return error(floor, slope);
    }
    let Sums { uu, vv, u1, v1, .. } = sums;
    let flat = error(u1 / uu, 0.0);
    if vv > 0.0 {
        let pure = error(0.0, v1 / vv);
        if pure.error < flat.error {
            return pure;
        }
    }
    flat
}

/// Returns the candidate with the least Bayesian information criterion, and its curve.
fn best_shape(n: &[f64], costs: &[f64], candidates: &[Shape]) -> (Shape, Curve) {
    let points = n.len() as f64;
    let mut best: Option<(f64, Shape, Curve)> = None;
    for &shape in candidates {
        // Relative to the largest, to stay within the range of numbers. The slope is scaled back.
        let scale = shape.at(n[n.len() - 1]).max(f64::MIN_POSITIVE);
        let g: Vec<f64> = n.iter().map(|&n| shape.at(n) / scale).collect();
        let mut curve = curve(costs, &g);
        curve.slope /= scale;
        let unknowns = if shape == Shape::Constant { 1.0 } else { 2.0 };
        // A histogram is exact to 0.1 %. Curves that are closer than that are equally good.
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

    /// Returns the best exponent: within 10^-4 of the least error, next to the best step of the grid.
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

/// Returns the exponent and its interval, from the runs and from how well the curve describes the points.
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

/// Returns the half width that the exponent's interval needs because the points are further from the curve than
/// `noise` (a variance of relative error) explains; 0 if they are not.
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
    // How the curve changes with p, in the part that the floor and the slope cannot follow.
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

/// Removes from `vector` its part along `direction`.
fn remove(vector: &mut [f64], direction: &[f64]) {
    let length = dot(direction, direction);
    if length > 0.0 {
        let share = dot(vector, direction) / length;
        for (v, d) in vector.iter_mut().zip(direction) {
            *v -= share * d;
        }
    }
}

/// Returns the verdict: `flat`, `grows` or `inconclusive`.
///
/// `control` is the growth of something that is known to cost N, measured in the same process over the same ladder. A
/// measurement that does not show that growth would show no other.
///
/// 1. `inconclusive` unless the control grew as N: its exponent is between 0.8 and 1.25, and its interval overlaps
///    0.9 to 1.1.
/// 2. Otherwise the result of [`verdict_without_control`].
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

/// Returns the verdict on exact costs, as a model counts them, where nothing can hide growth.
///
/// 1. `flat` if the ratio's interval is below [`FLAT_BELOW`] and the ladder spans at least [`LEAST_SPAN`].
/// 2. `grows` if the ratio's interval is above [`GROWS_ABOVE`] and the exponent's above [`LEAST_EXPONENT`].
/// 3. `inconclusive` otherwise, with the reason.
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

/// Returns an exponent as text: `0.97 (0.94..1.01)`.
fn exponent_text(p: Interval) -> String {
    format!("{:.2} ({:.2}..{:.2})", p.value, p.low, p.high)
}

/// Returns a ratio as text: `1.2x (1.1..1.3)`; with more digits if an end below [`FLAT_BELOW`] would show as 2.0.
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
mod tests;
