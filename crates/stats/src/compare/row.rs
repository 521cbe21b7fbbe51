//! One endpoint: from the runs' figures to level, effect and probability.

use stopgap_events::units::Nanos;

use super::order;
use super::paired::{OfAll, Pairs, judged};
use super::rate::Rate;
use super::record::{Effect, Row, RowWord, Scale};
use super::resample::{Ends, of_median, of_rate};
use super::side::{Endpoint, Run, Side};
use super::two::{self, Kind, Tested};
use super::{MOST_RUNS, Options};
use crate::bootstrap::Interval;
use crate::quantile;

/// A figure of a run, or the reason why there is none.
type Figure<T> = Result<T, String>;

/// The test of an endpoint.
pub(super) enum Test {
    /// Occasions in no pairs.
    Sides(Tested),
    /// Occasions made in turn.
    Pairs(Pairs),
}

/// Whether an endpoint had data.
enum HasData {
    /// The data was tested.
    Tested(Test),
    /// Nothing happened on either side.
    Nothing,
}

/// Returns the row of one endpoint, and its test. [`judge`](super::judge) adds the adjusted probabilities, the word,
/// and the interval from that test.
pub(super) fn row(
    endpoint: &Endpoint,
    before: &Side,
    after: &Side,
    options: &Options,
) -> (Row, Option<Test>) {
    let unit = match endpoint {
        Endpoint::StallRate => "1/s",
        Endpoint::StallTime => "ms/s",
        Endpoint::Median | Endpoint::P10 | Endpoint::P99 | Endpoint::P999 => &options.unit,
        Endpoint::Number(name) | Endpoint::Mean(name) => {
            let own = options.of_setups.get(name);
            own.unwrap_or(&options.number_unit)
        }
    };
    let mut row = Row::new(endpoint.to_string(), unit.to_owned());
    let done = match endpoint {
        Endpoint::StallRate | Endpoint::StallTime => {
            rates(endpoint, before, after, options, &mut row)
        }
        _ => levels(endpoint, before, after, options, &mut row),
    };
    let mut tested = None;
    match done {
        Ok(HasData::Tested(by)) => (row.word, tested) = (RowWord::NoDifferenceProven, Some(by)),
        Ok(HasData::Nothing) => (row.word, row.p) = (RowWord::NothingSeen, None),
        Err(why) => row.text = why,
    }
    (row, tested)
}

/// Returns the median, quantile or number of each run.
fn levels(
    endpoint: &Endpoint,
    before: &Side,
    after: &Side,
    options: &Options,
    row: &mut Row,
) -> Result<HasData, String> {
    let figure = |run: &Run| -> Figure<f64> {
        let value = endpoint
            .value(run)
            .ok_or_else(|| format!("has no {endpoint}"))?;
        if value.is_finite() {
            Ok(value)
        } else {
            Err(format!("{endpoint} is {value}"))
        }
    };
    [row.before_runs, row.after_runs] = gather([before, after], figure)?;
    let sides = [&row.before_runs, &row.after_runs];
    let likeness = sides.into_iter().find_map(|runs| order::resemble(runs));
    if let (true, false, Some(likeness)) = (options.in_order, options.in_pairs, likeness) {
        return Err(format!(
            "neighbouring runs resemble each other (rank correlation {likeness:.2}): they are samples of fewer runs"
        ));
    }
    let kind = match endpoint {
        Endpoint::Mean(_) => Kind::Means,
        _ => Kind::Ranks,
    };
    let scale = scale_of(sides.into_iter().flatten());
    of_two(kind, scale, row, options)
}

/// Tests the figures of the runs.
fn of_two(kind: Kind, scale: Scale, row: &mut Row, options: &Options) -> Result<HasData, String> {
    let sides = [&row.before_runs, &row.after_runs];
    let logs = kind == Kind::Ranks && scale == Scale::Ratio;
    // A ratio of means is the same in any unit, but sums and squares of the largest numbers would overflow.
    let most = sides.into_iter().flatten().copied().fold(0.0, f64::max);
    let unit = match (kind, scale) {
        (Kind::Means, Scale::Ratio) if most > 0.0 => most,
        _ => 1.0,
    };
    let on_scale = |side: &Vec<f64>| -> Vec<f64> {
        let value = |value: &f64| match logs {
            true => value.ln(),
            false => value / unit,
        };
        side.iter().map(value).collect()
    };
    let [before, after] = sides.map(on_scale);
    let test = match options.in_pairs {
        true => {
            let of = match logs {
                true => sides.map(|side| &side[..]),
                false => [&before[..], &after[..]],
            };
            let pairs = Pairs::new(kind, scale, of, options).ok_or(TOO_FAR)?;
            if let (true, Some(likeness)) =
                (options.in_order, order::resemble(&pairs.differences()))
            {
                return Err(format!(
                    "differences of neighbouring pairs resemble each other (rank correlation {likeness:.2}): let a coin draw which \
                     of a pair comes first"
                ));
            }
            Test::Pairs(pairs)
        }
        false => Test::Sides(Tested::new(
            kind,
            scale,
            [before.clone(), after.clone()],
            options.permutations,
            options.seed,
        )),
    };
    let (p, (arrangements, exact)) = match &test {
        Test::Sides(test) => (test.p(), test.arrangements()),
        Test::Pairs(test) => (test.p(), test.arrangements()),
    };
    (row.p, row.arrangements, row.exact) = (Some(p), Some(arrangements), exact);
    [
        (row.before, row.before_interval),
        (row.after, row.after_interval),
    ] = [before, after].map(|mut side| {
        side.sort_unstable_by(f64::total_cmp);
        match kind {
            Kind::Ranks => {
                let ends = of_median(&side, options.resamples, options.seed);
                let back = |value: f64| match logs {
                    true => value.exp(),
                    false => value,
                };
                let value = quantile::median_of_sorted(&side).map(back);
                let value = value.filter(|value| value.is_finite());
                (value, interval(value, ends, back))
            }
            Kind::Means => {
                let mean = side.iter().sum::<f64>() / side.len() as f64 * unit;
                (Some(mean).filter(|mean| mean.is_finite()), None)
            }
        }
    });
    let value = match &test {
        Test::Sides(test) => test.estimate(),
        Test::Pairs(test) => test.estimate(),
    };
    let value = value.ok_or(TOO_FAR)?;
    // The judge adds the bounds, because it knows the number of endpoints.
    row.effect = Some(match value {
        f64::INFINITY => Effect {
            value: None,
            low: None,
            high: None,
            scale,
            infinite: true,
        },
        value => effect(value, None, scale).ok_or(TOO_FAR)?,
    });
    let least = 2.0 / two::arrangements(row.before_runs.len(), row.after_runs.len());
    if least > super::LEVEL {
        return Err(too_few(row.before_runs.len(), row.after_runs.len(), least));
    }
    Ok(HasData::Tested(test))
}

const TOO_FAR: &str = "the figures are too far apart for a number";

/// Returns the sentence that so few runs cannot prove anything.
fn too_few(before: usize, after: usize, least: f64) -> String {
    format!(
        "n too small: {before} and {after} runs cannot give a p below {:.2}",
        least.min(1.0)
    )
}

/// Returns ratios if every figure has one.
fn scale_of<'a>(mut values: impl Iterator<Item = &'a f64>) -> Scale {
    match values.all(|&value| value > 0.0) {
        true => Scale::Ratio,
        false => Scale::Difference,
    }
}

impl Test {
    /// Returns the test of pairs.
    pub(super) fn pairs(&self) -> Option<&Pairs> {
        match self {
            Test::Sides(_) => None,
            Test::Pairs(pairs) => Some(pairs),
        }
    }

    /// Returns the effect on its scale (a ratio as its logarithm), whether it is proven, and its interval: at `level`, or as all
    /// endpoints in the same pairs say.
    fn interval(&self, level: f64, of_all: Option<&OfAll>) -> Option<(f64, bool, Option<Ends>)> {
        Some(match self {
            Test::Sides(test) => {
                let value = test.estimate()?;
                let ends = value.is_finite().then(|| test.ends(value, level));
                (value, test.p() <= level, ends.flatten())
            }
            Test::Pairs(test) => {
                let of_all = of_all?;
                let ends = Some(test.interval(of_all));
                (test.estimate()?, of_all.p <= super::LEVEL, ends)
            }
        })
    }
}

/// Puts the interval of a tested row into its effect.
pub(super) fn bound(row: &mut Row, test: &Test, level: f64, of_all: Option<&OfAll>) {
    let Some(((estimate, proven, ends), own)) = test.interval(level, of_all).zip(row.effect) else {
        return;
    };
    // A ratio of 0 or infinity has no interval. The test says only on which side of 1 it is.
    let proven = proven.then_some(1.0);
    if own.infinite {
        row.effect = Some(Effect { low: proven, ..own });
    } else if estimate.is_infinite() {
        row.effect = Some(Effect {
            high: proven,
            ..own
        });
    } else if let Some(bounded) = effect(estimate, ends, own.scale) {
        row.effect = Some(bounded);
    }
    if let Some(effect) = &row.effect {
        row.text = text(effect, &row.unit);
    }
}

/// Returns a decile of the shift function; `None` where a run lacks it.
pub(super) fn decile(
    tenth: usize,
    before: &Side,
    after: &Side,
    options: &Options,
) -> Option<super::record::Decile> {
    let figure = |run: &Run| -> Figure<f64> {
        let value = run.deciles.map(|deciles| deciles[tenth - 1]);
        value
            .filter(|value| value.is_finite())
            .ok_or_else(String::new)
    };
    let mut row = Row::new(String::new(), options.unit.clone());
    [row.before_runs, row.after_runs] = gather([before, after], figure).ok()?;
    let scale = scale_of(row.before_runs.iter().chain(&row.after_runs));
    // Described, not tested: so few runs may leave it without an interval.
    if let Ok(HasData::Tested(test)) = of_two(Kind::Ranks, scale, &mut row, options) {
        let alone = test.pairs().and_then(|pairs| judged(&[pairs]).pop());
        bound(&mut row, &test, super::LEVEL, alone.as_ref());
    }
    Some(super::record::Decile {
        share: u32::try_from(tenth).map_or(f64::NAN, f64::from) / 10.0,
        before: row.before,
        before_interval: row.before_interval,
        after: row.after,
        after_interval: row.after_interval,
        effect: row.effect,
    })
}

/// Stalls per second, or milliseconds in stalls per second.
fn rates(
    endpoint: &Endpoint,
    before: &Side,
    after: &Side,
    options: &Options,
    row: &mut Row,
) -> Result<HasData, String> {
    let threshold = options.stall_threshold_ns.or_else(|| {
        let mut runs = before.runs.iter().chain(&after.runs);
        runs.find_map(|run| Some(run.stalls?.threshold_ns))
    });
    let figure = |run: &Run| -> Figure<Rate> {
        let stalls = run.stalls.ok_or("has no stalls, and none is not known")?;
        if Some(stalls.threshold_ns) != threshold {
            return Err(format!(
                "counts stalls from {} ns on, others from {} ns on",
                stalls.threshold_ns,
                threshold.unwrap_or(0)
            ));
        }
        if stalls.duration_ns == 0 {
            return Err("looked for stalls for 0 ns".to_owned());
        }
        let amount = match endpoint {
            Endpoint::StallTime => {
                stalls
                    .time_ns
                    .ok_or("did not keep the time of every stall")? as f64
                    / 1e6
            }
            _ => stalls.count as f64,
        };
        Ok(Rate {
            amount,
            duration: stalls.duration_ns as f64 / 1e9,
        })
    };
    let sides = gather([before, after], figure)?;
    [row.before_runs, row.after_runs] =
        [0, 1].map(|side: usize| sides[side].iter().map(Rate::each).collect());
    let level = |side: &[Rate]| {
        let ends = of_rate(side, options.resamples, options.seed);
        let value = Some(Rate::pooled(side)).filter(|value| value.is_finite());
        (value, interval(value, ends, f64::exp))
    };
    let levels = [level(&sides[0]), level(&sides[1])];
    [
        (row.before, row.before_interval),
        (row.after, row.after_interval),
    ] = levels;

    // A single stall may be most of the time of all stalls. So times are tested by ranks, and counts by their means.
    let (kind, scale) = match endpoint {
        Endpoint::StallTime => (
            Kind::Ranks,
            scale_of(row.before_runs.iter().chain(&row.after_runs)),
        ),
        _ => (Kind::Means, Scale::Ratio),
    };
    let seen = |side: &[f64]| side.iter().any(|rate| *rate > 0.0);
    if !seen(&row.before_runs) && !seen(&row.after_runs) {
        let runs = sides.iter().flatten();
        let looked: f64 = runs.map(|run| run.duration).sum();
        row.text = format!("no stall on either side in {looked:.0} s: n too small for a ratio");
        return Ok(HasData::Nothing);
    }
    let done = of_two(kind, scale, row, options);
    [
        (row.before, row.before_interval),
        (row.after, row.after_interval),
    ] = levels;
    done
}

/// Returns the runs' figures, or the error of the first run without one.
fn gather<T>(sides: [&Side; 2], figure: impl Fn(&Run) -> Figure<T>) -> Result<[Vec<T>; 2], String> {
    for side in sides {
        if side.runs.is_empty() {
            return Err(format!("{} has no run", side.name));
        }
        if side.runs.len() > MOST_RUNS {
            return Err(format!(
                "{} has {} runs, more than {MOST_RUNS}: are these samples of few runs?",
                side.name,
                side.runs.len()
            ));
        }
    }
    let of = |side: &Side| -> Result<Vec<T>, String> {
        let named = |run: &Run| {
            figure(run).map_err(|why| format!("{}, run {}: {why}", side.name, run.name))
        };
        side.runs.iter().map(named).collect()
    };
    Ok([of(sides[0])?, of(sides[1])?])
}

/// Returns the effect of a finite value on its scale (ratios as logarithms); `None` if a number cannot hold it.
fn effect(value: f64, ends: Option<Ends>, scale: Scale) -> Option<Effect> {
    let back = |value: f64| match scale {
        Scale::Ratio => value.exp(),
        Scale::Difference => value,
    };
    let value = Some(back(value)).filter(|value| value.is_finite())?;
    // For a ratio of 0 or infinity, the data gives no bound for that end.
    let bound = |end: f64| {
        let back = back(end);
        (end.is_finite() && back.is_finite() && (scale == Scale::Difference || back > 0.0))
            .then_some(back)
    };
    let ends = |end: fn(Ends) -> f64| ends.and_then(|ends| bound(end(ends)));
    Some(Effect {
        value: Some(value),
        // Going to the logarithm and back may have moved an end by a bit.
        low: ends(|ends| ends.low).map(|low| low.min(value)),
        high: ends(|ends| ends.high).map(|high| high.max(value)),
        scale,
        infinite: false,
    })
}

fn interval(value: Option<f64>, ends: Option<Ends>, back: impl Fn(f64) -> f64) -> Option<Interval> {
    let (value, ends) = (value?, ends?);
    let (low, high) = (back(ends.low), back(ends.high));
    (ends.low.is_finite() && ends.high.is_finite() && low.is_finite() && high.is_finite())
        // Going to the logarithm and back may have moved an end by a bit.
        .then(|| Interval {
            value,
            low: low.min(value),
            high: high.max(value),
        })
}

/// Returns an effect as text: `0.91x (0.88..0.94)`, `infinite (more than 1.00x)`, `0x (n too small for a bound)`, `12
/// ns (3 ns..21 ns)`.
#[must_use]
pub fn text(effect: &Effect, unit: &str) -> String {
    let Some(value) = effect.value else {
        return match effect.low {
            Some(low) => format!("infinite (more than {low:.2}x)"),
            None => "infinite (n too small for a bound)".to_owned(),
        };
    };
    let largest = [Some(value), effect.low, effect.high]
        .into_iter()
        .flatten()
        .fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let ends = (effect.low, effect.high);
    let shown = if effect.scale == Scale::Difference || largest >= READABLE {
        let unit = match effect.scale {
            Scale::Ratio => "x",
            Scale::Difference => unit,
        };
        let amount = |value| amount(value, unit);
        match ends {
            (Some(low), Some(high)) => {
                format!("{} ({}..{})", amount(value), amount(low), amount(high))
            }
            (Some(low), None) => format!("{} (at least {})", amount(value), amount(low)),
            (None, Some(high)) => format!("{} (at most {})", amount(value), amount(high)),
            (None, None) => amount(value),
        }
    } else {
        crate::verdict::figure_text(&crate::record::Figure {
            value,
            unit: "x".to_owned(),
            low: effect.low,
            high: effect.high,
        })
    };
    if ends == (None, None) {
        format!("{shown} (n too small for a bound)")
    } else {
        shown
    }
}

/// Numbers of at least this are not shown digit by digit.
const READABLE: f64 = 1e15;

/// Returns a number with its unit: a time in the most readable unit, other numbers with three significant digits.
fn amount(value: f64, unit: &str) -> String {
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => f64::NAN,
    };
    let ns = (value * factor).abs();
    if (1.0..1e18).contains(&ns) {
        let time = Nanos(ns.round() as u64);
        return format!("{}{time}", if value < 0.0 { "-" } else { "" });
    }
    let (size, value) = (value.abs(), value + 0.0); // -0 is 0
    let number = if size >= READABLE || (size > 0.0 && size < 1e-6) {
        format!("{value:.2e}")
    } else {
        let places = crate::verdict::decimals(value);
        format!("{value:.places$}")
    };
    let space = if unit.is_empty() || unit == "x" {
        ""
    } else {
        " "
    };
    format!("{number}{space}{unit}")
}
