//! Compares two commands while they run: any number of looks is allowed, and a word stays once it is decided.
//!
//! # Method
//!
//! A *unit* is one pair of runs (side by side, or one after the other in an order drawn by a fair coin) or one block `ABBA` or
//! `BAAB`, drawn likewise. Its figure is `d`: the mean logarithm of the later side less that of the earlier side, or a plain
//! difference where values of 0 occur ([`ratio`], [`difference`]). If the labels do not matter, the sign of `d` is a fair coin,
//! given its magnitude and all units before. Drift, autocorrelation, modes and tails do not change that, because the
//! coin drew the order.
//!
//! Bets on those signs make a martingale of mean 1 (`anytime/bet.rs`). By Ville's inequality it ever reaches `1 / alpha` with a
//! probability of at most `alpha`, however often somebody looks. Half of the level goes to each direction. The same
//! bets on `d - shift` refute a shift. The interval holds the shifts that have not been refuted at any time so far.
//!
//! * `worse`: a shift of 0 is refuted from below; the interval lies above 0.
//! * `better`: the interval lies below 0.
//! * `same`: the interval lies within the margin. Where it also lies beside 0, the word is `same` and the interval says how much.
//! * `undecided`: anything else.
//!
//! Word, interval and evidence come from these bets alone, so they agree. An end may be 0 itself where 0 is refuted and
//! ties leave nothing between it and the next value.
//!
//! Pairs decide with fewer runs than blocks (figures in [`simulate`]).
//!
//! # What the interval assumes
//!
//! False alarms assume nothing but the coin. The interval assumes that the change moves all runs by one factor. Where a
//! slow mode becomes more frequent, no single factor describes the change. Bets with a small clip then see the typical run,
//! those with a large clip the modes. [`Word::Same`] therefore needs two things more:
//!
//! * the plain mean of all `d` must lie within the margin, with 1.64 of its standard errors ([`NotSame::Mean`]). This guard
//!   is no anytime-valid test; the simulation counts how often it lets a changed mode pass.
//! * The resolution of the figure must be at most half the margin ([`NotSame::Resolution`]): a clock with steps of 10 ms
//!   cannot show that 100 ms changed by less than 3 %.
//!
//! # Lineage
//!
//! Ville (1939) for the bound at any time. De la Pena (*A General Class of Exponential Inequalities for Martingales and
//! Ratios*, 1999) for symmetric differences without moments. Howard, Ramdas, McAuliffe and Sekhon (*Time-uniform,
//! nonparametric, nonasymptotic confidence sequences*, 2021) for mixtures of such martingales and confidence sequences.
//! Waudby-Smith and Ramdas (*Estimating means of bounded random variables by betting*, 2024) for bets that learn. Lindon,
//! Ham, Tingley and Bojinov (*Anytime-valid linear models and regression adjusted causal inference in randomized
//! experiments*, 2022) for the same aim with the randomization as the only assumption.
//!
//! [`simulate`] measures what all of this is worth.

mod bet;
mod scale;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::words;
use thiserror::Error;

use crate::quantile::median;
use bet::{Side, Unit};
use scale::Scale;

/// The default level: of 100 comparisons of equal commands, at most one is ever called different.
pub const ALPHA: f64 = 0.01;

/// The default margin.
pub const MARGIN: f64 = 0.03;

/// Largest magnitude of a difference. Larger ones are refused, because sums and ratios of them overflow.
const LARGEST: f64 = 1e100;

/// A forecast of more units than this is not given.
const FARTHEST: f64 = 100_000.0;

/// Standard errors of the mean that must fit into the margin.
const ERRORS: f64 = 1.645;

/// Options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The probability of ever calling equal sides different, over all endpoints; above 0 and below 1.
    pub alpha: f64,
    /// Endpoints that share [`Options::alpha`] equally (Bonferroni); at least 1.
    pub endpoints: usize,
    /// The largest `|d|` that counts as the same: `ln(1 + margin)` for ratios ([`log_margin`]), in the figure's unit for differences.
    pub margin: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            alpha: ALPHA,
            endpoints: 1,
            margin: log_margin(MARGIN),
        }
    }
}

impl Options {
    /// Evidence at which one direction of one endpoint is refuted.
    fn enough(&self) -> f64 {
        2.0 * self.endpoints as f64 / self.alpha
    }
}

/// Returns a margin as a share, such as 0.03, on the scale of logarithms.
#[must_use]
pub fn log_margin(share: f64) -> f64 {
    share.ln_1p()
}

/// Returns how much `after` is larger than `before`, as a logarithm of a ratio. `None` if a side is empty or has a value that
/// is not finite or not positive.
#[must_use]
pub fn ratio(before: &[f64], after: &[f64]) -> Option<f64> {
    let mean = |side: &[f64]| {
        let positive = |x: &f64| *x > 0.0 && x.is_finite();
        let usable = !side.is_empty() && side.iter().all(positive);
        usable.then(|| side.iter().map(|x| x.ln()).sum::<f64>() / side.len() as f64)
    };
    Some(mean(after)? - mean(before)?)
}

/// Returns how much the mean of `after` is larger than that of `before`. `None` if a side is empty or not finite.
#[must_use]
pub fn difference(before: &[f64], after: &[f64]) -> Option<f64> {
    let mean = |side: &[f64]| {
        let mean = side.iter().sum::<f64>() / side.len() as f64;
        mean.is_finite().then_some(mean)
    };
    Some(mean(after)? - mean(before)?)
}

/// Returns the fewest units with which any word but `undecided` can be proven.
#[must_use]
pub fn least_units(alpha: f64, endpoints: usize) -> usize {
    let options = Options {
        alpha,
        endpoints,
        ..Options::default()
    };
    // Every equal sign nearly doubles the evidence, which ends far beyond any level that a number can hold.
    (1..900)
        .find(|&units| bet::most(units) >= options.enough())
        .unwrap_or(900)
}

/// An unusable difference.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("the difference of a unit is {0}; it must be finite and at most 1e100 in magnitude")]
pub struct Refused(pub f64);

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// The later side is larger.
    Worse,
    /// The later side is smaller.
    Better,
    /// The sides differ by no more than the margin.
    Same,
    /// Nothing is proven so far.
    Undecided,
}

words!(Word, "word", Worse "worse", Better "better", Same "same", Undecided "undecided");

/// Why an interval within the margin does not, or would not, prove `same`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotSame {
    /// The figure is measured in steps that are coarser than half the margin.
    Resolution,
    /// The typical run is the same, but rare slow runs leave the mean open.
    Mean,
}

/// What the units so far show. All differences are on the scale of the units: logarithms of ratios, or plain differences.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Look {
    /// The answer; it does not change once it is decided.
    pub word: Word,
    /// Units so far.
    pub units: usize,
    /// Units at which the word was decided.
    pub decided_at: Option<usize>,
    /// The typical difference (Huber's estimate), within the interval. Absent without units.
    pub estimate: Option<f64>,
    /// The mean of all differences. It may lie outside of the interval where rare slow runs make the change.
    pub mean: Option<f64>,
    /// Lower end of the interval; absent as long as there is none.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// Whether one shift of all runs describes the change. If not, the ends have passed each other and are given as one
    /// number.
    pub one_shift: bool,
    /// The most evidence so far that the sides differ; at least `endpoints / alpha` where that is proven. At most 1 in this
    /// many comparisons of equal commands ever shows as much.
    pub e: f64,
    /// Why the word cannot be `same` with this clock, or is not although the interval lies within the margin.
    pub not_same: Option<NotSame>,
    /// Units that are expected to be needed beyond these, within a factor of 2 mostly; absent where decided or unknown.
    pub more: Option<usize>,
}

impl Look {
    /// Returns whether the interval holds `shift`.
    #[must_use]
    pub fn holds(&self, shift: f64) -> bool {
        self.low.is_none_or(|low| low <= shift) && self.high.is_none_or(|high| shift <= high)
    }
}

/// Units of one endpoint, one after the other.
#[derive(Debug, Clone)]
pub struct Sequence {
    options: Options,
    /// Steps in which the figure is measured, on the scale of the units; 0 where unknown.
    resolution: f64,
    units: Vec<Unit>,
    scale: Scale,
    /// Refutes shifts that are too small, and shifts that are too large.
    from_below: Side,
    from_above: Side,
    decided: Option<(Word, usize)>,
}

impl Sequence {
    /// Begins without units.
    #[must_use]
    pub fn new(options: Options) -> Sequence {
        Sequence {
            options,
            resolution: 0.0,
            units: Vec::new(),
            scale: Scale::default(),
            from_below: Side::new(1.0, options.enough()),
            from_above: Side::new(-1.0, options.enough()),
            decided: None,
        }
    }

    /// Says in which steps the figure is measured: of a ratio the step over the typical value, of a difference the step.
    /// With steps coarser than half the margin, `same` is never proven.
    pub fn set_resolution(&mut self, resolution: f64) {
        self.resolution = resolution;
    }

    /// Takes the difference of the next unit, and decides as soon as possible.
    ///
    /// # Errors
    /// [`Refused`] where the difference is not finite; the unit is then not counted.
    pub fn push(&mut self, d: f64) -> Result<(), Refused> {
        if d.is_nan() || d.abs() > LARGEST {
            return Err(Refused(d));
        }
        self.units.push(Unit {
            d,
            scale: self.scale.get(),
        });
        self.scale.push(d);
        self.from_below.push(&self.units);
        self.from_above.push(&self.units);
        if self.decided.is_none() {
            let word = self.judge();
            self.decided = (word != Word::Undecided).then_some((word, self.units.len()));
        }
        Ok(())
    }

    /// Returns whether the sides have been proven to differ, for any word.
    #[must_use]
    pub fn is_different(&self) -> bool {
        self.from_below.refutes_zero() || self.from_above.refutes_zero()
    }

    /// Ends of the interval as they are, possibly infinite and possibly beyond each other.
    fn ends(&self) -> (f64, f64) {
        (self.from_below.bound, -self.from_above.bound)
    }

    fn is_within_margin(&self) -> bool {
        let (low, high) = self.ends();
        -self.options.margin <= low && high <= self.options.margin
    }

    fn judge(&self) -> Word {
        if self.is_within_margin() && self.not_same().is_none() {
            return Word::Same;
        }
        let (larger, smaller) = (&self.from_below, &self.from_above);
        match (larger.refutes_zero(), smaller.refutes_zero()) {
            (false, false) => Word::Undecided,
            (true, false) => Word::Worse,
            (false, true) => Word::Better,
            // Both at one look: the shapes differ. The stronger evidence gives the direction.
            (true, true) if larger.against_zero > smaller.against_zero => Word::Worse,
            (true, true) if larger.against_zero < smaller.against_zero => Word::Better,
            (true, true) => Word::Undecided,
        }
    }

    /// Returns why an interval within the margin would not prove that the sides are the same.
    fn not_same(&self) -> Option<NotSame> {
        if self.resolution.is_nan() || self.resolution > self.options.margin / 2.0 {
            return Some(NotSame::Resolution);
        }
        let (mean, error) = self.mean_and_error()?;
        (mean.abs() + ERRORS * error > self.options.margin).then_some(NotSame::Mean)
    }

    /// Returns how many units more bring the mean within the margin, if mean and spread stay as they are.
    fn until_mean_fits(&self) -> f64 {
        let Some((mean, error)) = self.mean_and_error() else {
            return f64::INFINITY;
        };
        let room = self.options.margin - mean.abs();
        if room <= 0.0 {
            return f64::INFINITY;
        }
        // The error falls with the square root of the units.
        self.units.len() as f64 * ((ERRORS * error / room).powi(2) - 1.0)
    }

    /// Returns the mean of all differences and its standard error.
    fn mean_and_error(&self) -> Option<(f64, f64)> {
        let mean = self.mean()?;
        let n = self.units.len() as f64;
        let squares: f64 = self.units.iter().map(|unit| (unit.d - mean).powi(2)).sum();
        Some((mean, (squares / (n * (n - 1.0).max(1.0))).sqrt()))
    }

    fn mean(&self) -> Option<f64> {
        let n = self.units.len();
        (n > 0).then(|| self.units.iter().map(|unit| unit.d).sum::<f64>() / n as f64)
    }

    /// Returns Huber's estimate: the mean, where a difference further away than 2.5 scales counts as one that far away.
    fn typical(&self) -> Option<f64> {
        let middle = median(self.units.iter().map(|unit| unit.d).collect())?;
        let Some(scale) = self.scale.get().filter(|&scale| scale > 0.0) else {
            return Some(middle);
        };
        let reach = 2.5 * scale;
        let mut estimate = middle;
        for _ in 0..30 {
            let clipped = self
                .units
                .iter()
                .map(|unit| (unit.d - estimate).clamp(-reach, reach));
            let step = clipped.sum::<f64>() / self.units.len() as f64;
            estimate += step;
            if step.abs() <= 1e-9 * scale {
                break;
            }
        }
        Some(estimate)
    }

    /// Returns what the units so far show.
    #[must_use]
    pub fn look(&self) -> Look {
        let (word, decided_at) = match self.decided {
            Some((word, at)) => (word, Some(at)),
            None => (Word::Undecided, None),
        };
        let (mut low, mut high) = self.ends();
        let one_shift = low <= high;
        if !one_shift {
            // Ends pass each other only where the sides are proven to differ: the end that proves it stays.
            match word {
                Word::Worse => high = low,
                Word::Better => low = high,
                Word::Same | Word::Undecided => std::mem::swap(&mut low, &mut high),
            }
        }
        let estimate = self.typical().map(|typical| typical.max(low).min(high));
        let undecided = word == Word::Undecided;
        Look {
            word,
            units: self.units.len(),
            decided_at,
            estimate,
            mean: self.mean(),
            low: Some(low).filter(|end| end.is_finite()),
            high: Some(high).filter(|end| end.is_finite()),
            one_shift,
            e: self
                .from_below
                .against_zero
                .max(self.from_above.against_zero)
                / 2.0,
            not_same: self.not_same().filter(|&why| {
                undecided && (why == NotSame::Resolution || self.is_within_margin())
            }),
            more: estimate
                .filter(|_| undecided)
                .and_then(|estimate| self.more(estimate)),
        }
    }

    /// Returns how many units more are expected to be needed: the evidence that is missing, over what a unit is expected to add to
    /// it if all differences are normal around the estimate.
    fn more(&self, estimate: f64) -> Option<usize> {
        let scale = self.scale.get()?;
        let enough = self.options.enough();
        let units = |evidence: f64, distance: f64| {
            if distance <= 0.0 {
                return f64::INFINITY;
            }
            let deviations = distance / scale;
            // The best rate adds the square's half for few deviations, and at most the logarithm of 2.
            let most = std::f64::consts::LN_2;
            let growth = most * (1.0 - (-deviations * deviations / (2.0 * most)).exp());
            // A bad beginning is a part of the stake lost, not all of it.
            (enough / evidence.max(1e-3)).ln().max(0.0) / growth
        };
        let side = if estimate > 0.0 {
            &self.from_below
        } else {
            &self.from_above
        };
        let differ = units(side.at_zero.sum(), estimate.abs());

        let margin = self.options.margin;
        let end = |sign: f64, side: &Side| {
            if side.bound >= -margin {
                return 0.0;
            }
            let evidence = bet::stakes(&self.units, sign, -margin).sum();
            units(evidence, margin + sign * estimate)
        };
        let same = match self.not_same() {
            Some(NotSame::Resolution) => f64::INFINITY,
            Some(NotSame::Mean) => self.until_mean_fits(),
            None => 0.0,
        };
        let same = same
            .max(end(1.0, &self.from_below))
            .max(end(-1.0, &self.from_above));
        let more = differ.min(same);
        let at_least = least_units(self.options.alpha, self.options.endpoints)
            .saturating_sub(self.units.len())
            .max(1);
        (more <= FARTHEST).then(|| (more.ceil() as usize).max(at_least))
    }
}

pub mod simulate;

#[cfg(test)]
mod tests;
