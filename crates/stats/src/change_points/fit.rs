//! A step held against everything smooth that could be in its place.
//!
//! Each model is least squares after a filter, whose two numbers are tried on a grid: `phi`, how much of a value's noise is left in
//! the next one (AR(1)), and `theta`, from 0 (the level is a random walk) to 1 (the level stays). The filter is that of
//! exponential smoothing, so a step looks alike wherever it stands, and all its places take one pass from the end to the begin:
//! a fit is O(values) a model.

/// Values of `phi`.
const PHIS: [f64; 7] = [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.88];

/// Values of `phi` beside a level that walks.
const WALK_PHIS: [f64; 3] = [0.0, 0.3, 0.6];

/// Values of `theta` of a level that walks.
const THETAS: [f64; 8] = [0.0, 0.3, 0.5, 0.7, 0.82, 0.9, 0.95, 0.98];

/// How noise and level go on without a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Model {
    pub(super) phi: f64,
    pub(super) theta: f64,
    /// Whether there is a linear trend besides.
    pub(super) trend: bool,
}

impl Model {
    /// Whether the level does not move between steps.
    pub(super) fn stays(&self) -> bool {
        self.theta >= 1.0 && !self.trend
    }
}

/// Every model.
pub(super) fn models() -> impl Iterator<Item = Model> {
    let level = PHIS.into_iter().flat_map(|phi| {
        [false, true].map(|trend| Model {
            phi,
            theta: 1.0,
            trend,
        })
    });
    let walk = WALK_PHIS.into_iter().flat_map(|phi| {
        THETAS.map(|theta| Model {
            phi,
            theta,
            trend: false,
        })
    });
    level.chain(walk)
}

/// The best step of some models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Best {
    pub(super) model: Model,
    /// The first value after it.
    pub(super) at: usize,
    /// -2 times the logarithm of the likelihood, but for a constant.
    pub(super) cost: f64,
}

/// Costs of the best explanations of a series, each as [`Best::cost`].
#[derive(Debug)]
pub(super) struct Fit {
    /// No step: a level, a trend or a walk.
    pub(super) none: f64,
    /// No step: a cubic curve.
    pub(super) curve: f64,
    /// A step of a level that stays.
    pub(super) plain: Best,
    /// A step of a level with a trend or a walk.
    pub(super) moving: Best,
}

/// One model's arithmetic, with a step at each place.
struct Filtered {
    /// Residuals of the model without a step.
    rest: Vec<f64>,
    /// For each place, the product of a step there with `rest`, and the step's squared length after the model's other parts
    /// are taken out of it.
    steps: Vec<(f64, f64)>,
    /// `rest`, squared and added up, with the floor.
    squares: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Takes out of `from` what is along `unit`, which has length 1.
fn take_out(from: &mut [f64], unit: &[f64]) {
    let along = dot(from, unit);
    for (value, unit) in from.iter_mut().zip(unit) {
        *value -= along * unit;
    }
}

fn to_unit(of: &mut [f64]) {
    let length = dot(of, of).sqrt();
    for value in of {
        *value /= length;
    }
}

/// Replaces each value by its distance to what exponential smoothing foretells.
fn smooth(values: &mut [f64], theta: f64) {
    let mut level = 0.0;
    for value in values {
        let error = *value - level;
        level += (1.0 - theta) * error;
        *value = error;
    }
}

/// What a step at each place has in common with `values`: sums of `g[t - place] * values[t]`, where `g` is the filtered step
/// 1, theta - phi, theta (theta - phi), ...
fn along_steps(values: &[f64], model: &Model) -> Vec<f64> {
    let mut sums = vec![0.0; values.len()];
    let mut later = 0.0;
    for (sum, value) in sums.iter_mut().zip(values).rev() {
        let from_here = value + model.theta * later;
        *sum = from_here - model.phi * later;
        later = from_here;
    }
    sums
}

fn filtered(y: &[f64], floor: f64, model: &Model) -> Filtered {
    let Model { phi, theta, trend } = *model;
    let mut rest: Vec<f64> = y.windows(2).map(|two| two[1] - phi * two[0]).collect();
    let mut level = vec![1.0 - phi; rest.len()];
    if theta < 1.0 {
        smooth(&mut rest, theta);
        smooth(&mut level, theta);
    }
    to_unit(&mut level);
    take_out(&mut rest, &level);
    let mut taken = vec![along_steps(&level, model)];
    if trend {
        let time = |t: usize| (1.0 - phi) * t as f64;
        let mut line: Vec<f64> = (0..rest.len()).map(time).collect();
        take_out(&mut line, &level);
        to_unit(&mut line);
        take_out(&mut rest, &line);
        taken.push(along_steps(&line, model));
    }
    let along = along_steps(&rest, model);
    let mut steps = vec![(0.0, 0.0); rest.len()];
    let mut powers = 0.0;
    for (at, step) in steps.iter_mut().enumerate().rev() {
        let own = 1.0 + (theta - phi).powi(2) * powers;
        powers = 1.0 + theta * theta * powers;
        let lost: f64 = taken.iter().map(|taken| taken[at] * taken[at]).sum();
        *step = (along[at], own - lost);
    }
    let squares = dot(&rest, &rest) + rest.len() as f64 * floor;
    Filtered {
        rest,
        steps,
        squares,
    }
}

impl Filtered {
    /// The places of a step that leave `least` values on each side, as index of the first value after it.
    fn places(&self, least: usize) -> std::ops::RangeInclusive<usize> {
        least..=(self.rest.len() + 1).saturating_sub(least)
    }

    /// What a step at this place explains, squared and added up; 0 where the model has it already.
    fn gain(&self, at: usize) -> f64 {
        let (along, own) = self.steps[at - 1];
        if own > 1e-9 { along * along / own } else { 0.0 }
    }

    fn cost(&self, gain: f64, floor: f64) -> f64 {
        let n = self.rest.len() as f64;
        n * (self.squares - gain)
            .max(n * floor)
            .max(f64::MIN_POSITIVE)
            .ln()
    }
}

/// Fits every model to `y`, with a step that leaves `least` values on each side. `floor` is the variance of a value's rounding.
///
/// `None` where there are fewer than twice `least` and two values.
pub(super) fn fit(y: &[f64], floor: f64, least: usize) -> Option<Fit> {
    if y.len() < 2 * least + 2 {
        return None;
    }
    let [mut plain, mut moving]: [Option<Best>; 2] = [None, None];
    let mut none = f64::INFINITY;
    for model in models() {
        let filtered = filtered(y, floor, &model);
        none = none.min(filtered.cost(0.0, floor));
        let gains = filtered.places(least).map(|at| (at, filtered.gain(at)));
        let (at, gain) = gains.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let cost = filtered.cost(gain, floor);
        let best = if model.stays() {
            &mut plain
        } else {
            &mut moving
        };
        if best.is_none_or(|best| cost < best.cost) {
            *best = Some(Best { model, at, cost });
        }
    }
    Some(Fit {
        none,
        curve: curve(y, floor),
        plain: plain?,
        moving: moving?,
    })
}

/// The cost of a cubic curve.
fn curve(y: &[f64], floor: f64) -> f64 {
    let n = y.len() as f64 - 1.0;
    let cost = |phi: f64| {
        let mut rest: Vec<f64> = y.windows(2).map(|two| two[1] - phi * two[0]).collect();
        let mut units: Vec<Vec<f64>> = Vec::new();
        for power in 0..4 {
            let height = |t: usize| (2.0 * t as f64 / n - 1.0).powi(power);
            let mut unit: Vec<f64> = (1..y.len())
                .map(|t| height(t) - phi * height(t - 1))
                .collect();
            for other in &units {
                take_out(&mut unit, other);
            }
            to_unit(&mut unit);
            take_out(&mut rest, &unit);
            units.push(unit);
        }
        n * (dot(&rest, &rest) + n * floor).max(f64::MIN_POSITIVE).ln()
    };
    PHIS.into_iter().map(cost).fold(f64::INFINITY, f64::min)
}

/// A step at one place under one model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) at: usize,
    pub(super) size: f64,
    /// Its standard error.
    pub(super) error: f64,
    pub(super) cost: f64,
}

/// The steps of one model at every place.
pub(super) fn steps(y: &[f64], floor: f64, least: usize, model: &Model) -> Vec<Step> {
    let filtered = filtered(y, floor, model);
    let free = (filtered.rest.len() as f64 - 2.0 - f64::from(u8::from(model.trend))).max(1.0);
    let places = filtered
        .places(least)
        .filter(|&at| filtered.steps[at - 1].1 > 1e-9);
    let step = |at: usize| {
        let (along, own) = filtered.steps[at - 1];
        let gain = filtered.gain(at);
        let left = (filtered.squares - gain).max(filtered.rest.len() as f64 * floor);
        Step {
            at,
            size: along / own,
            error: (left / free / own).sqrt(),
            cost: filtered.cost(gain, floor),
        }
    };
    places.map(step).collect()
}
