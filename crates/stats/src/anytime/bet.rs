//! Bets that a candidate shift is too small.
//!
//! For a candidate shift, each difference minus the shift has a sign. If the shift is true, that sign is a fair coin,
//! for any magnitude. A bet multiplies its stake by `1 + tanh(rate * score)`, where the score is the scaled
//! difference, clipped. Both signs together give `(1 + tanh x + 1 - tanh x) / 2 = 1`, so the stake is a martingale.
//!
//! `1 + tanh x` is `exp(x) / cosh(x)`, de la Pena's form. It is also the likelihood ratio of a sign under a normal distribution
//! shifted by `rate` deviations, given its magnitude: no bet on that alternative grows faster.
//!
//! All rates are positive, so each factor falls as the shift grows, and so does the average of all stakes. The shifts that
//! are refuted from below are therefore all shifts up to one bound, which halving finds.

/// Where a score is cut off, in scales. The small one is for wild outliers that say nothing, the large one for slow modes
/// whose frequency is the news.
const CLIPS: [f64; 2] = [2.5, 8.0];

/// Rates of each clip: [`LEAST_RATE`] and doublings.
const RATES: usize = 4;

/// The smallest rate. It is the best one for a shift of an eighth of the noise, which takes 700 units to find.
const LEAST_RATE: f64 = 1.0 / 8.0;

/// The share of the stake that each rate has at the beginning, by clip. Chosen by simulation: in no world of
/// [`super::simulate`] does the mixture take more than 1.4 times the units that its best bet alone takes.
const SHARES: [[f64; RATES]; 2] = [[0.0, 0.2, 0.25, 0.1], [0.35, 0.0, 0.0, 0.0]];

/// The share of the bet that stakes everything on each sign: equal signs double it at each unit.
const ALL_IN: f64 = 0.1;

/// A stake grows no further than this, and is nothing below its inverse. Both keep the order of stakes by shift, and neither
/// makes a stake larger.
const CEILING: f64 = 1e290;

/// A bound is close enough if the logarithm of its evidence exceeds the needed one by at most this.
const CLOSE: f64 = 1e-3;

/// One difference, and the scale of those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unit {
    pub(super) d: f64,
    pub(super) scale: Option<f64>,
}

impl Unit {
    /// Returns the difference less `shift` in scales, neither clipped nor necessarily finite; its sign alone without a scale.
    pub(super) fn score(&self, shift: f64) -> f64 {
        let x = self.d - shift;
        match self.scale {
            _ if x == 0.0 => 0.0,
            None => x.signum(),
            Some(scale) => x / scale,
        }
    }
}

/// The stakes of all bets on one candidate shift.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stakes {
    rates: [[f64; RATES]; CLIPS.len()],
    all_in: f64,
}

impl Stakes {
    /// Before the first unit: 1 in all.
    pub(super) const START: Stakes = Stakes {
        rates: SHARES,
        all_in: ALL_IN,
    };

    /// Places all bets on one unit.
    pub(super) fn bet(&mut self, score: f64) {
        for (clip, stakes) in CLIPS.iter().zip(&mut self.rates) {
            // 1 + tanh(x) = 2 / (1 + exp(-2 x)); the next rate is twice this one, so its exponential is this one's square.
            let mut odds = (-2.0 * LEAST_RATE * score.clamp(-clip, *clip)).exp();
            for stake in stakes {
                *stake = bounded(*stake * (2.0 / (1.0 + odds)));
                odds *= odds;
            }
        }
        if score > 0.0 {
            self.all_in = bounded(self.all_in * 2.0);
        } else if score < 0.0 {
            self.all_in = 0.0;
        }
    }

    /// Returns the sum of all stakes: the evidence that the shift is larger than the candidate.
    pub(super) fn sum(&self) -> f64 {
        self.rates.iter().flatten().sum::<f64>() + self.all_in
    }
}

fn bounded(stake: f64) -> f64 {
    if stake < 1.0 / CEILING {
        0.0
    } else {
        stake.min(CEILING)
    }
}

/// Returns the stakes on `shift` after all `units`, whose differences are multiplied by `sign`.
pub(super) fn stakes(units: &[Unit], sign: f64, shift: f64) -> Stakes {
    let mut stakes = Stakes::START;
    for unit in units {
        let unit = Unit {
            d: sign * unit.d,
            ..*unit
        };
        stakes.bet(unit.score(shift));
    }
    stakes
}

/// Evidence after `units` equal signs that are as far away as a score can be: the most that they can show.
pub(super) fn most(units: usize) -> f64 {
    let mut stakes = Stakes::START;
    for at in 0..units {
        stakes.bet(if at < super::scale::LEAST {
            1.0
        } else {
            f64::INFINITY
        });
    }
    stakes.sum()
}

/// Bets from one side, on two candidates: no shift, and the bound up to which every shift is refuted.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// 1 refutes small shifts, -1 large ones: differences and shifts are multiplied by it.
    sign: f64,
    /// Evidence at which a candidate is refuted.
    enough: f64,
    /// Every shift up to it has been refuted at some time; minus infinity before any was.
    pub(super) bound: f64,
    at_bound: Stakes,
    pub(super) at_zero: Stakes,
    /// The most evidence that there has been against no shift.
    pub(super) against_zero: f64,
}

impl Side {
    pub(super) fn new(sign: f64, enough: f64) -> Side {
        Side {
            sign,
            enough,
            bound: f64::NEG_INFINITY,
            at_bound: Stakes::START,
            at_zero: Stakes::START,
            against_zero: 1.0,
        }
    }

    /// Returns whether no shift is refuted, that is: the shift is larger than 0 in this side's direction.
    pub(super) fn refutes_zero(&self) -> bool {
        self.against_zero >= self.enough
    }

    /// Takes the last of `units`.
    pub(super) fn push(&mut self, units: &[Unit]) {
        let Some(&last) = units.last() else { return };
        let last = Unit {
            d: self.sign * last.d,
            ..last
        };
        self.at_zero.bet(last.score(0.0));
        self.against_zero = self.against_zero.max(self.at_zero.sum());
        self.at_bound.bet(if self.bound == f64::NEG_INFINITY {
            if last.scale.is_some() {
                f64::INFINITY
            } else {
                1.0
            }
        } else {
            last.score(self.bound)
        });
        if self.at_bound.sum() >= self.enough {
            self.raise(units);
        }
        if self.refutes_zero() && self.bound < 0.0 {
            // Rounding of two ways to the same number.
            self.bound = 0.0;
            self.at_bound = self.at_zero;
        }
    }

    /// Moves the bound up to the largest shift that is refuted now, or to one whose evidence is hardly more than enough.
    fn raise(&mut self, units: &[Unit]) {
        // How far the evidence is beyond what is enough, as a logarithm.
        let beyond = |stakes: &Stakes| (stakes.sum() / self.enough).ln();
        let on = |shift: f64| stakes(units, self.sign, shift);
        let differences = || units.iter().map(|unit| self.sign * unit.d);
        // No score is positive at the largest difference, where the evidence is at most 1.
        let mut above = differences().fold(f64::NEG_INFINITY, f64::max);
        let mut beyond_above = -self.enough.ln();
        let (mut below, mut refuted) = (self.bound, self.at_bound);
        if below == f64::NEG_INFINITY {
            // Every score is at its most this far below.
            let reach = |unit: &Unit| CLIPS[1] * unit.scale.unwrap_or(0.0) * (1.0 + 1e-9);
            let farthest = differences().zip(units).map(|(d, unit)| d - reach(unit));
            below = farthest.fold(above, f64::min).next_down();
            refuted = on(below);
        }
        let mut beyond_below = beyond(&refuted);
        let scale = units.last().and_then(|unit| unit.scale).unwrap_or(0.0);
        let n = units.len() as f64;
        let fine = (scale / n.sqrt() * 1e-4).max((above.abs() + below.abs()) * 1e-14);
        // The bound mostly moves by little: try a little more than what the evidence's usual slope says.
        let mut next = below + 1.5 * beyond_below * scale / (2.0 * n * self.enough.ln()).sqrt();
        let mut tries = 0;
        while beyond_below > CLOSE && above - below > fine {
            if !(below < next && next < above) {
                next = f64::midpoint(below, above);
                if next <= below || next >= above {
                    break;
                }
            }
            let stakes = on(next);
            let beyond_next = beyond(&stakes);
            if beyond_next >= 0.0 {
                (below, refuted, beyond_below) = (next, stakes, beyond_next);
            } else {
                (above, beyond_above) = (next, beyond_next);
            }
            tries += 1;
            // By the straight line, a little below where it meets enough; by halves where the evidence jumps.
            next = if tries % 3 == 0 {
                f64::NAN
            } else {
                let aim = beyond_below - CLOSE / 2.0;
                below + (above - below) * aim / (beyond_below - beyond_above)
            };
        }
        self.bound = below;
        self.at_bound = refuted;
    }
}
