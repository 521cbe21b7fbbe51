//! A test of two sides, and the interval that belongs to the test.
//!
//! | statistic | what it asks | lineage |
//! |---|---|---|
//! | [`Kind::Ranks`] | is a later run as often the larger one of two as the smaller one? | Brunner and Munzel, *The nonparametric Behrens-Fisher problem*, 2000 |
//! | [`Kind::Means`] | are the means equal? | Welch 1947 |
//!
//! Both are divided by their own standard error, and judged by all arrangements of the labels if there are at most
//! [`EXACT`], else by a seeded sample of them plus the seen one (Phipson and Smyth 2010). If both sides have one
//! distribution, the level is exact. If only the tested property is equal, and spreads or numbers of runs differ, the
//! level holds in the limit. This is not so for a sum of ranks or a difference of means (Janssen 1997; Neubert and
//! Brunner 2007; Chung and Romano 2013).
//!
//! The interval contains each shift (for logarithms: each ratio) for which the test, at the same critical value,
//! finds no difference after the later side is moved back by the shift. So an interval excludes "the same" exactly if
//! p is at most the level.

use std::rc::Rc;

use stopgap_events::order::SortRows;
use stopgap_events::random::Random;

use super::record::Scale;
use super::resample::Ends;
use super::shift::hodges_lehmann;

/// Most arrangements that are all used: those of 8 runs against 8.
pub(super) const EXACT: u32 = 20_000;

/// The property that a test compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The typical run.
    Ranks,
    /// The mean run.
    Means,
}

/// A statistic over arrangements.
#[derive(Debug, Clone, PartialEq)]
struct Distribution {
    /// How far each arrangement is from "the same", the farthest first.
    far: Vec<f64>,
    /// Whether these are all arrangements, or a sample.
    exact: bool,
}

/// Two sides that were tested.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tested {
    kind: Kind,
    scale: Scale,
    /// For [`Kind::Ranks`]: on the effect's scale and ascending.
    before: Vec<f64>,
    after: Vec<f64>,
    seen: f64,
    distribution: Rc<Distribution>,
    /// If some figures are equal: the distribution for as many different ones, as they are once a side is moved.
    moved: Option<Rc<Distribution>>,
}

/// The distribution of [`Kind::Ranks`] for different figures only. It depends only on the numbers of runs, so many
/// tests share it.
#[derive(Debug, Clone)]
pub(super) struct Untied(Rc<Distribution>);

impl Untied {
    pub(super) fn new([before, after]: [usize; 2], draws: u32, seed: u64) -> Untied {
        let places: Vec<f64> = (0..before + after).map(|place| place as f64).collect();
        let later: Vec<bool> = (0..before + after).map(|place| place >= before).collect();
        let (_, distribution) = Distribution::of(&places, &later, Kind::Ranks, draws, seed);
        Untied(Rc::new(distribution))
    }
}

/// Returns whether `a` is at least `b`, apart from rounding.
fn reaches(a: f64, b: f64) -> bool {
    a >= b - 1e-9 * (1.0 + b.abs()) || (a.is_infinite() && b.is_infinite())
}

/// Returns the probability of an arrangement as far as the seen one, which counts itself unless `exact`: all arrangements were gone
/// through.
pub(super) fn share(as_far: usize, arrangements: usize, exact: bool) -> f64 {
    let own = usize::from(!exact);
    (as_far + own) as f64 / (arrangements + own) as f64
}

/// Returns the distance beyond which the probability is at most `level`, of distances from the farthest on; `None` if there are too
/// few arrangements.
pub(super) fn critical(far: &[f64], exact: bool, level: f64) -> Option<f64> {
    let own = usize::from(!exact);
    let most = (level * (far.len() + own) as f64 + 1e-9).floor() as usize;
    let next = far.get(most.checked_sub(own)?)?;
    next.is_finite().then_some(*next)
}

/// Halves the way from `inside` to `outside`, and returns the last effect that the test does not tell from the sides' own.
fn last_inside(mut inside: f64, mut outside: f64, told: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..64 {
        let middle = f64::midpoint(inside, outside);
        match told(middle) {
            true => outside = middle,
            false => inside = middle,
        }
    }
    inside
}

/// Returns the ends without `same` if the sides differ (`differs`), else with it. The probability need not fall evenly on the way to
/// an end, so that of `same` decides.
pub(super) fn with_same(ends: Ends, value: f64, same: f64, differs: bool) -> Ends {
    match differs {
        true if value > same => Ends {
            low: ends.low.max(same),
            ..ends
        },
        true => Ends {
            high: ends.high.min(same),
            ..ends
        },
        false => Ends {
            low: ends.low.min(same),
            high: ends.high.max(same),
        },
    }
}

impl Distribution {
    fn of(
        values: &[f64],
        later: &[bool],
        kind: Kind,
        draws: u32,
        seed: u64,
    ) -> (f64, Distribution) {
        let statistic = |later: &[bool]| match kind {
            Kind::Ranks => brunner_munzel(values, later),
            Kind::Means => welch(values, later),
        };
        let seen = statistic(later);
        let n = later.len();
        let chosen = later.iter().filter(|later| **later).count();
        let mut far = Vec::new();
        let exact = arrangements(n - chosen, chosen) <= f64::from(EXACT);
        let mut labels = later.to_vec();
        if exact {
            each_choice(n, chosen, |choice| {
                labels.fill(false);
                choice.iter().for_each(|&at| labels[at] = true);
                far.push(statistic(&labels).abs());
            });
        } else {
            let mut random = Random::new(seed);
            for _ in 0..draws {
                random.shuffle(&mut labels);
                far.push(statistic(&labels).abs());
            }
        }
        far.sort_rows(|a, b| b.total_cmp(a));
        (seen, Distribution { far, exact })
    }

    /// Returns 1 if the seen arrangement must be added to a sample.
    fn own(&self) -> usize {
        usize::from(!self.exact)
    }

    fn p(&self, seen: f64) -> f64 {
        let as_far = self.far.partition_point(|&far| reaches(far, seen));
        share(as_far, self.far.len(), self.exact)
    }

    /// Returns the distance beyond which the probability is at most `level`; `None` if there are too few
    /// arrangements.
    fn critical(&self, level: f64) -> Option<f64> {
        critical(&self.far, self.exact, level)
    }
}

impl Tested {
    /// Tests two sides of finite values. Ratios are logarithms if `kind` is ranks and `scale` is a ratio.
    ///
    /// 9,999 arrangements of 60 runs take about 5 ms, of 10,000 runs 1 s.
    pub(super) fn new(
        kind: Kind,
        scale: Scale,
        [mut before, mut after]: [Vec<f64>; 2],
        draws: u32,
        seed: u64,
    ) -> Tested {
        before.sort_unstable_by(f64::total_cmp);
        after.sort_unstable_by(f64::total_cmp);
        let (values, later) = merged(&before, &after, 0.0);
        let (seen, distribution) = Distribution::of(&values, &later, kind, draws, seed);
        let tied = kind == Kind::Ranks && is_tied(&values);
        let moved = tied.then(|| {
            let places: Vec<f64> = (0..values.len()).map(|place| place as f64).collect();
            Rc::new(Distribution::of(&places, &later, kind, draws, seed).1)
        });
        Tested {
            kind,
            scale,
            before,
            after,
            seen,
            distribution: Rc::new(distribution),
            moved,
        }
    }

    /// The same for ranks and a difference. `untied` must be for the same numbers of runs, draws and seed.
    pub(super) fn ranks(
        untied: &Untied,
        [mut before, mut after]: [Vec<f64>; 2],
        draws: u32,
        seed: u64,
    ) -> Tested {
        before.sort_unstable_by(f64::total_cmp);
        after.sort_unstable_by(f64::total_cmp);
        let (values, later) = merged(&before, &after, 0.0);
        let (seen, distribution, moved) = match is_tied(&values) {
            false => (brunner_munzel(&values, &later), Rc::clone(&untied.0), None),
            true => {
                let (seen, own) = Distribution::of(&values, &later, Kind::Ranks, draws, seed);
                (seen, Rc::new(own), Some(Rc::clone(&untied.0)))
            }
        };
        Tested {
            kind: Kind::Ranks,
            scale: Scale::Difference,
            before,
            after,
            seen,
            distribution,
            moved,
        }
    }

    /// Returns the least probability that any arrangement of these figures has.
    pub(super) fn least_p(&self) -> f64 {
        let far = self.distribution.far.first();
        far.map_or(1.0, |&far| self.distribution.p(far))
    }

    /// Returns whether the later side is larger by ranks.
    pub(super) fn is_more(&self) -> bool {
        self.seen > 0.0
    }

    /// Returns the two-sided probability.
    pub(super) fn p(&self) -> f64 {
        self.distribution.p(self.seen.abs())
    }

    /// Returns the side's figures in ascending order, on the scale of the test.
    pub(super) fn side(&self, later: bool) -> &[f64] {
        match later {
            true => &self.after,
            false => &self.before,
        }
    }

    /// Returns the side's mean.
    pub(super) fn mean(&self, later: bool) -> f64 {
        moments(self.side(later)).0
    }

    /// Returns the shift, or the logarithm of the ratio; infinite if a mean is 0. `None` if it is no number.
    pub(super) fn estimate(&self) -> Option<f64> {
        let value = match (self.kind, self.scale) {
            (Kind::Ranks, _) => hodges_lehmann(&self.before, &self.after)?,
            (Kind::Means, Scale::Difference) => self.mean(true) - self.mean(false),
            (Kind::Means, Scale::Ratio) => (self.mean(true) / self.mean(false)).ln(),
        };
        (!value.is_nan()).then_some(value)
    }

    /// Returns the number of arrangements, and whether these are all.
    pub(super) fn arrangements(&self) -> (u32, bool) {
        let many = self.distribution.far.len() + self.distribution.own();
        (
            u32::try_from(many).unwrap_or(u32::MAX),
            self.distribution.exact,
        )
    }

    /// Returns the interval of the shift or of the logarithm of the ratio around `value` at `level`; `None` if so few
    /// runs give no bound.
    pub(super) fn ends(&self, value: f64, level: f64) -> Option<Ends> {
        Some(match self.kind {
            Kind::Ranks => {
                let moved = self.moved.as_ref().unwrap_or(&self.distribution);
                let differs = self.p() <= level;
                let critical = moved.critical(level);
                self.shifts(
                    value,
                    critical.or(differs.then_some(f64::INFINITY))?,
                    differs,
                )
            }
            Kind::Means => self.means(value, self.distribution.critical(level)?),
        })
    }

    /// Returns the shifts around `value` whose ranks stay within the critical value; without 0 if the sides differ
    /// (`differs`).
    fn shifts(&self, value: f64, critical: f64, differs: bool) -> Ends {
        let told = |shift: f64| {
            let (values, later) = merged(&self.before, &self.after, shift);
            !reaches(critical, brunner_munzel(&values, &later).abs())
        };
        let (Some(first), Some(last)) = (self.before.first(), self.before.last()) else {
            return UNBOUNDED;
        };
        // Beyond these, one side is wholly above the other.
        let (least, most) = (
            self.after[0] - last,
            self.after[self.after.len() - 1] - first,
        );
        let room = (most - least).abs().max(value.abs()).max(1e-12);
        let end = |outside: f64| last_inside(value, outside, told);
        let ends = Ends {
            low: end(least - room * 1e-6),
            high: end(most + room * 1e-6),
        };
        // There may be ties at 0, too.
        with_same(ends, value, 0.0, differs)
    }

    /// Fieller's interval for the ratio of two means (1954), or Welch's for their difference, with the critical value of the
    /// arrangements in place of Student's.
    fn means(&self, value: f64, critical: f64) -> Ends {
        let [(x, x_error), (y, y_error)] = [&self.before, &self.after].map(|side| {
            let (mean, variance) = moments(side);
            (mean, variance / side.len() as f64)
        });
        let c = critical * critical;
        if self.scale == Scale::Difference {
            let half = critical * (x_error + y_error).sqrt();
            let half = if half.is_nan() { 0.0 } else { half };
            return Ends {
                low: value - half,
                high: value + half,
            };
        }
        // |y - r x| < critical * sqrt(y_error + r^2 x_error), squared.
        let (square, linear, constant) = (x * x - c * x_error, x * y, y * y - c * y_error);
        let ends = fieller(square, linear, constant, y / x);
        let log = |ratio: f64| {
            if ratio > 0.0 {
                ratio.ln()
            } else {
                f64::NEG_INFINITY
            }
        };
        Ends {
            low: log(ends.low),
            high: log(ends.high),
        }
    }
}

/// Returns the effects around `value` of which `square * e^2 - 2 * linear * e + constant` is at most 0 (Fieller 1954).
pub(super) fn fieller(square: f64, linear: f64, constant: f64, value: f64) -> Ends {
    let under = (linear * linear - square * constant).max(0.0).sqrt();
    let roots = [(linear - under) / square, (linear + under) / square];
    let (low, high) = (roots[0].min(roots[1]), roots[0].max(roots[1]));
    match () {
        () if !(low.is_finite() && high.is_finite()) => UNBOUNDED,
        () if square > 0.0 => Ends {
            low: low.min(value),
            high: high.max(value),
        },
        // All but what is between the roots.
        () if value >= high => Ends {
            low: high,
            ..UNBOUNDED
        },
        () if value <= low => Ends {
            high: low,
            ..UNBOUNDED
        },
        () => UNBOUNDED,
    }
}

pub(super) const UNBOUNDED: Ends = Ends {
    low: f64::NEG_INFINITY,
    high: f64::INFINITY,
};

/// Returns the number of arrangements, possibly infinite.
pub(super) fn arrangements(before: usize, after: usize) -> f64 {
    let (n, k) = (before + after, before.min(after));
    let choose = (1..=k).fold(1.0, |product, i| product * (n - k + i) as f64 / i as f64);
    choose.round()
}

/// Returns both sides in ascending order, and which values are the later side's. The later side is moved back by
/// `shift`.
fn merged(before: &[f64], after: &[f64], shift: f64) -> (Vec<f64>, Vec<bool>) {
    let n = before.len() + after.len();
    let (mut values, mut later) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let (mut left, mut right) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(&&x), Some(&&y)) if x <= y - shift => (x, false),
            (_, Some(&&y)) => (y - shift, true),
            (Some(&&x), None) => (x, false),
            (None, None) => return (values, later),
        };
        match next.1 {
            true => right.next(),
            false => left.next(),
        };
        values.push(next.0);
        later.push(next.1);
    }
}

/// Returns whether two of the ascending values are equal.
fn is_tied(values: &[f64]) -> bool {
    values.windows(2).any(|two| two[0] >= two[1])
}

/// Visits all choices of `chosen` places out of `n`.
fn each_choice(n: usize, chosen: usize, mut told: impl FnMut(&[usize])) {
    let mut choice: Vec<usize> = (0..chosen).collect();
    loop {
        told(&choice);
        // The last place that can still move on.
        let Some(at) = (0..chosen).rev().find(|&at| choice[at] < n - chosen + at) else {
            return;
        };
        choice[at] += 1;
        for after in at + 1..chosen {
            choice[after] = choice[after - 1] + 1;
        }
    }
}

/// Brunner and Munzel's statistic of values in ascending order; infinite where one side lies wholly above the other.
fn brunner_munzel(values: &[f64], later: &[bool]) -> f64 {
    // For each run, the number of lower runs of the other side, half for equal ones: sums and sums of squares.
    let (mut sums, mut squares) = ([0.0; 2], [0.0; 2]);
    let mut below = [0.0; 2];
    let mut at = 0;
    while at < values.len() {
        let mut own = [0.0; 2];
        let value = values[at];
        while at < values.len() && values[at] <= value {
            own[usize::from(later[at])] += 1.0;
            at += 1;
        }
        for side in [0, 1] {
            let place: f64 = below[1 - side] + own[1 - side] / 2.0;
            sums[side] += own[side] * place;
            squares[side] += own[side] * place * place;
        }
        below[0] += own[0];
        below[1] += own[1];
    }
    let [n, m] = below;
    let spread = |side: usize, many: f64| {
        let variance = (squares[side] - sums[side] * sums[side] / many) / (many - 1.0);
        // Sums of halves are exact. A tiny rest is the difference of equal numbers.
        if variance > 1e-9 { variance } else { 0.0 }
    };
    let difference = (sums[1] / m + m / 2.0) - (sums[0] / n + n / 2.0);
    let error = (n * spread(0, n) + m * spread(1, m)).sqrt() * (n + m) / (n * m);
    quotient(difference, error)
}

/// Welch's statistic.
fn welch(values: &[f64], later: &[bool]) -> f64 {
    let (mut many, mut sums, mut squares) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    // Values are taken relative to one of them. Otherwise sums of squares of large numbers would be mere rounding.
    let about = values.get(values.len() / 2).copied().unwrap_or(0.0);
    for (value, later) in values.iter().zip(later) {
        let side = usize::from(*later);
        let value = value - about;
        many[side] += 1.0;
        sums[side] += value;
        squares[side] += value * value;
    }
    let error = [0, 1].map(|side: usize| {
        let n: f64 = many[side];
        let variance = (squares[side] - sums[side] * sums[side] / n) / (n - 1.0);
        if variance > 1e-12 * squares[side] / n {
            variance / n
        } else {
            0.0
        }
    });
    quotient(
        sums[1] / many[1] - sums[0] / many[0],
        (error[0] + error[1]).sqrt(),
    )
}

fn quotient(difference: f64, error: f64) -> f64 {
    match difference.abs() > 0.0 {
        true => difference / error,
        false => 0.0,
    }
}

/// Mean and variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if n > 1.0 { squares / (n - 1.0) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(kind: Kind, scale: Scale, before: &[f64], after: &[f64]) -> Tested {
        Tested::new(kind, scale, [before.to_vec(), after.to_vec()], 9_999, 1)
    }

    fn ranks(before: &[f64], after: &[f64]) -> Tested {
        tested(Kind::Ranks, Scale::Difference, before, after)
    }

    /// SciPy's `brunnermunzel` of its own example gives 3.1374674823029505.
    #[test]
    fn the_statistic_is_brunners_and_munzels() {
        let x = [
            1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 1.0, 1.0,
        ];
        let y = [3.0, 3.0, 4.0, 3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 4.0];
        let seen = ranks(&x, &y).seen;
        assert!((seen - 3.137_467_482_302_950_5).abs() < 1e-12, "{seen}");
    }

    #[test]
    fn all_arrangements_are_counted() {
        let apart = ranks(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(apart.arrangements(), (252, true));
        assert!((apart.p() - 2.0 / 252.0).abs() < 1e-12);
        let one = ranks(&[1.0], &[2.0]);
        assert!((one.p() - 1.0).abs() < 1e-12 && one.ends(1.0, 0.05).is_none());
        assert!((ranks(&[4.0; 5], &[4.0; 5]).p() - 1.0).abs() < 1e-12);
        let mut choices = 0;
        each_choice(9, 4, |choice| {
            choices += 1;
            assert!(choice.windows(2).all(|two| two[0] < two[1]));
        });
        assert_eq!(choices, 126);
        assert!((arrangements(30, 30) / 118_264_581_564_861_424.0 - 1.0).abs() < 1e-9);
        assert!(arrangements(5_000, 5_000).is_infinite());
    }

    /// Only the two arrangements of 4 against 4 runs with no overlap reach 5 %. The interval contains the shifts with
    /// an overlap.
    #[test]
    fn the_interval_of_few_runs_is_where_the_sides_overlap() {
        let few = ranks(&[1.0, 2.0, 3.0, 4.0], &[11.0, 12.0, 13.0, 14.0]);
        let ends = few.ends(10.0, 0.05).expect("4 a side bound it");
        assert!(
            (ends.low - 7.0).abs() < 1e-9 && (ends.high - 13.0).abs() < 1e-9,
            "{ends:?}"
        );
        assert!(few.ends(10.0, 0.02).is_none());
    }

    /// Word, probability and interval never contradict each other, also with ties and unequal numbers of runs.
    #[test]
    fn the_interval_leaves_out_the_same_where_p_is_at_most_the_level() {
        let seed = 1;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for round in 0..600 {
            let grain = [3, 12, 1_000_000][round % 3];
            let mut side = |least: usize| -> Vec<f64> {
                let shift = random.below(3) as f64 / 6.0;
                let many = least + random.index(8);
                (0..many)
                    .map(|_| 1.0 + shift + random.below(grain) as f64 / grain as f64)
                    .collect()
            };
            let (before, after) = (side(3), side(3));
            for (kind, scale) in [
                (Kind::Ranks, Scale::Difference),
                (Kind::Means, Scale::Difference),
                (Kind::Means, Scale::Ratio),
            ] {
                let tested = Tested::new(kind, scale, [before.clone(), after.clone()], 499, 1);
                let value = tested.estimate().expect("finite");
                for level in [0.05, 0.0125] {
                    let Some(ends) = tested.ends(value, level) else {
                        assert!(tested.p() > level);
                        continue;
                    };
                    // An end may be the point itself.
                    let leaves_out = ends.low > 1e-9 || ends.high < -1e-9;
                    let touches = ends.low.abs() < 1e-9 || ends.high.abs() < 1e-9;
                    assert!(
                        leaves_out == (tested.p() <= level) || touches,
                        "round {round} {kind:?} {scale:?} {level}: {ends:?}, p {}, {before:?} {after:?}",
                        tested.p()
                    );
                }
            }
        }
    }

    /// For many runs it is Welch's 95 % interval of R's `t.test`, because all distributions agree there.
    #[test]
    fn the_interval_of_means_is_near_welchs() {
        let mut random = Random::new(1);
        // A sum of twelve uniform numbers is normal enough.
        let mut normal = || {
            (0..12)
                .map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30))
                .sum::<f64>()
        };
        let mut side = |mean: f64| -> Vec<f64> { (0..200).map(|_| mean + normal()).collect() };
        let (before, after) = (side(20.0), side(22.0));
        let tested = tested(Kind::Means, Scale::Difference, &before, &after);
        let [(x, xs), (y, ys)] = [moments(&before), moments(&after)];
        let half = 1.966 * ((xs + ys) / 200.0).sqrt();
        let ends = tested.ends(y - x, 0.05).expect("bounded");
        assert!(
            (ends.high - ends.low - 2.0 * half).abs() < 0.04 * half,
            "{ends:?} {half}"
        );
    }
}
