//! One endpoint: from the runs' figures to level, effect and probability.

use std::collections::BTreeMap;

use stopgap_events::units::Nanos;

use super::order;
use super::permute::{self, Probability, Scores, permutation, ranks};
use super::record::{Effect, Row, RowWord, Scale};
use super::resample::{Cell, Ends, of_median, of_rate, two_sides};
use super::shift::{Rate, hodges_lehmann};
use super::side::{Endpoint, Run, Side};
use super::two::{self, Kind, Tested};
use super::{MOST_RUNS, Options};
use crate::bootstrap::Interval;
use crate::quantile;

/// A figure of a run, or why there is none.
type Figure<T> = Result<T, String>;

/// Whether an endpoint had data.
enum HasData {
    /// A difference or none; by what test, where there are no blocks.
    Tested(Option<Tested>),
    /// That on neither side there was anything.
    Nothing,
}

/// The row of one endpoint; its adjusted probabilities, its interval and its word are for [`judge`](super::judge), the interval
/// from the test that is returned.
pub(super) fn row(
    endpoint: &Endpoint,
    before: &Side,
    after: &Side,
    options: &Options,
) -> (Row, Option<Tested>) {
    let mut row = Row {
        name: endpoint.to_string(),
        unit: match endpoint {
            Endpoint::StallRate => "1/s".to_owned(),
            Endpoint::StallTime => "ms/s".to_owned(),
            Endpoint::Median | Endpoint::P99 | Endpoint::P999 => options.unit.clone(),
            Endpoint::Number(name) | Endpoint::Mean(name) => {
                let own = options.number_units.get(name);
                own.unwrap_or(&options.number_unit).clone()
            }
        },
        before: None,
        before_interval: None,
        after: None,
        after_interval: None,
        before_runs: Vec::new(),
        after_runs: Vec::new(),
        effect: None,
        p: None,
        p_holm: None,
        p_bh: None,
        arrangements: None,
        exact: false,
        word: RowWord::Inconclusive,
        text: String::new(),
    };
    let done = match endpoint {
        Endpoint::StallRate | Endpoint::StallTime => {
            rates(endpoint, before, after, options, &mut row)
        }
        _ => levels(endpoint, before, after, options, &mut row),
    };
    let mut tested = None;
    match done {
        Ok(HasData::Tested(by)) => (row.word, tested) = (RowWord::NoDifferenceProven, by),
        Ok(HasData::Nothing) => (row.word, row.p) = (RowWord::NothingSeen, None),
        Err(why) => row.text = why,
    }
    (row, tested)
}

/// Median, quantile or number of each run.
fn levels(
    endpoint: &Endpoint,
    before: &Side,
    after: &Side,
    options: &Options,
    row: &mut Row,
) -> Result<HasData, String> {
    let figure = |run: &Run| -> Figure<f64> {
        let value = match endpoint {
            Endpoint::Median => run.median,
            Endpoint::P99 => run.p99,
            Endpoint::P999 => run.p999,
            Endpoint::Number(name) | Endpoint::Mean(name) => run.numbers.get(name).copied(),
            Endpoint::StallRate | Endpoint::StallTime => None,
        };
        let value = value.ok_or_else(|| format!("has no {endpoint}"))?;
        if value.is_finite() {
            Ok(value)
        } else {
            Err(format!("{endpoint} is {value}"))
        }
    };
    let cells = gather([before, after], figure)?;
    let each = |side: fn(&Cell<f64>) -> &Vec<f64>| cells.iter().flat_map(side).copied().collect();
    (row.before_runs, row.after_runs) = (each(|cell| &cell.before), each(|cell| &cell.after));
    let blocks = before
        .runs
        .iter()
        .chain(&after.runs)
        .any(|run| run.block.is_some());
    if !blocks {
        let sides = [&row.before_runs, &row.after_runs];
        let likeness = sides.into_iter().find_map(|runs| order::resemble(runs));
        if let (true, Some(likeness)) = (options.in_order, likeness) {
            return Err(format!(
                "neighbouring runs resemble each other (rank correlation {likeness:.2}): they are samples of fewer runs"
            ));
        }
        let kind = match endpoint {
            Endpoint::Mean(_) => Kind::Means,
            _ => Kind::Ranks,
        };
        let scale = scale_of(row.before_runs.iter().chain(&row.after_runs));
        return of_two(kind, scale, row, options);
    }
    let shift = shift(cells, options)?;
    (row.before, row.before_interval) = shift.before;
    (row.after, row.after_interval) = shift.after;
    let (effect, cells) = (shift.effect, shift.both);
    row.effect = effect;
    // Where there are blocks, their levels are taken out before ranks are given (Hodges and Lehmann, *Rank Methods for
    // Combination of Independent Experiments*, 1962): few runs of a block have few ranks of their own.
    let aligned = |cell: &Cell<f64>| {
        let mut all: Vec<f64> = cell.before.iter().chain(&cell.after).copied().collect();
        let middle = quantile::median(all.clone()).unwrap_or(0.0);
        if cells.len() > 1 {
            all.iter_mut().for_each(|value| *value -= middle);
        }
        all
    };
    let values: Vec<f64> = cells.iter().flat_map(aligned).collect();
    test(row, &cells, &ranks(&values), options)?;
    let effect = effect.ok_or(TOO_FAR)?;
    row.text = text(&effect, &row.unit);
    Ok(HasData::Tested(None))
}

/// Tests the figures of the runs of two sides without blocks.
fn of_two(kind: Kind, scale: Scale, row: &mut Row, options: &Options) -> Result<HasData, String> {
    let sides = [&row.before_runs, &row.after_runs];
    let logs = kind == Kind::Ranks && scale == Scale::Ratio;
    // A ratio of means is the same in any unit; sums and squares of the largest numbers are not.
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
    let tested = Tested::new(
        kind,
        scale,
        sides.map(on_scale),
        options.permutations,
        options.seed,
    );
    (row.p, (row.arrangements, row.exact)) = (Some(tested.p()), {
        let (arrangements, exact) = tested.arrangements();
        (Some(arrangements), exact)
    });
    match kind {
        Kind::Ranks => {
            let level = |side: &[f64]| {
                let ends = of_median(side, options.resamples, options.seed);
                let back = |value: f64| match logs {
                    true => value.exp(),
                    false => value,
                };
                let value = quantile::median_of_sorted(side).map(back);
                let value = value.filter(|value| value.is_finite());
                (value, interval(value, ends, back))
            };
            (row.before, row.before_interval) = level(tested.side(false));
            (row.after, row.after_interval) = level(tested.side(true));
        }
        Kind::Means => {
            [row.before, row.after] = [false, true].map(|later| Some(tested.mean(later) * unit))
        }
    }
    let value = tested.estimate().ok_or(TOO_FAR)?;
    // Bounded by the judge, who knows how many endpoints there are.
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
    Ok(HasData::Tested(Some(tested)))
}

const TOO_FAR: &str = "the figures are too far apart for a number";

/// Says that so few runs cannot prove anything.
fn too_few(before: usize, after: usize, least: f64) -> String {
    format!(
        "n too small: {before} and {after} runs cannot give a p below {:.2}",
        least.min(1.0)
    )
}

/// Ratios where every figure has one.
fn scale_of<'a>(mut values: impl Iterator<Item = &'a f64>) -> Scale {
    match values.all(|&value| value > 0.0) {
        true => Scale::Ratio,
        false => Scale::Difference,
    }
}

/// Puts the interval of a tested row at `level` into its effect.
pub(super) fn bound(row: &mut Row, tested: &Tested, level: f64) {
    let Some((estimate, own)) = tested.estimate().zip(row.effect) else {
        return;
    };
    // Of a ratio of 0 or infinity all that is known is on which side of 1 it is, if the test says so.
    let proven = (tested.p() <= level).then_some(1.0);
    if own.infinite {
        row.effect = Some(Effect { low: proven, ..own });
    } else if estimate.is_infinite() {
        row.effect = Some(Effect {
            high: proven,
            ..own
        });
    } else if let Some(bounded) = effect(estimate, tested.ends(estimate, level), own.scale) {
        row.effect = Some(bounded);
    }
    if let Some(effect) = &row.effect {
        row.text = text(effect, &row.unit);
    }
}

/// Levels of both sides and the shift between them.
pub(super) struct Shift {
    before: (Option<f64>, Option<Interval>),
    after: (Option<f64>, Option<Interval>),
    effect: Option<Effect>,
    /// The blocks that have runs of both sides, on the effect's scale.
    both: Vec<Cell<f64>>,
}

impl Shift {
    /// A decile of the shift function; `None` where a run lacks it.
    pub(super) fn of_decile(
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
        let shift = shift(gather([before, after], figure).ok()?, options).ok()?;
        Some(super::record::Decile {
            share: u32::try_from(tenth).map_or(f64::NAN, f64::from) / 10.0,
            before: shift.before.0,
            before_interval: shift.before.1,
            after: shift.after.0,
            after_interval: shift.after.1,
            effect: shift.effect,
        })
    }
}

fn shift(mut cells: Vec<Cell<f64>>, options: &Options) -> Result<Shift, String> {
    let all = cells
        .iter()
        .flat_map(|cell| cell.before.iter().chain(&cell.after));
    let scale = scale_of(all);
    for cell in &mut cells {
        for side in [&mut cell.before, &mut cell.after] {
            if scale == Scale::Ratio {
                side.iter_mut().for_each(|value| *value = value.ln());
            }
            side.sort_unstable_by(f64::total_cmp);
        }
    }
    let back = |value: f64| match scale {
        Scale::Ratio => value.exp(),
        Scale::Difference => value,
    };
    let level = |side: fn(&Cell<f64>) -> &Vec<f64>| {
        let mut all: Vec<f64> = cells.iter().flat_map(side).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        let ends = of_median(&all, options.resamples, options.seed);
        let value = quantile::median_of_sorted(&all).map(back);
        let value = value.filter(|value| value.is_finite());
        (value, interval(value, ends, back))
    };
    let (before, after) = (level(|cell| &cell.before), level(|cell| &cell.after));

    let both = of_both(cells)?;
    let effect = hodges_lehmann(&both).and_then(|value| {
        // A draw has no other values than these, whose differences are finite.
        let statistic = |drawn: &[Cell<f64>]| hodges_lehmann(drawn).unwrap_or(f64::NAN);
        let ends = two_sides(&both, value, options.resamples, options.seed, statistic);
        effect(value, ends, scale)
    });
    Ok(Shift {
        before,
        after,
        effect,
        both,
    })
}

/// Stalls a second, or milliseconds in them.
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
    let cells = gather([before, after], figure)?;
    let each = |side: fn(&Cell<Rate>) -> &Vec<Rate>| {
        let rates = cells.iter().flat_map(side);
        rates.map(|rate| rate.amount / rate.duration).collect()
    };
    (row.before_runs, row.after_runs) = (each(|cell| &cell.before), each(|cell| &cell.after));
    let level = |side: fn(&Cell<Rate>) -> &Vec<Rate>| {
        let all: Vec<Rate> = cells.iter().flat_map(side).copied().collect();
        let ends = of_rate(&all, options.resamples, options.seed);
        let value = Some(Rate::pooled(&all)).filter(|value| value.is_finite());
        (value, interval(value, ends, f64::exp))
    };
    (row.before, row.before_interval) = level(|cell| &cell.before);
    (row.after, row.after_interval) = level(|cell| &cell.after);

    // A single stall may be most of the time of all: times are tested by ranks, numbers by their means.
    let (kind, scale) = match endpoint {
        Endpoint::StallTime => (
            Kind::Ranks,
            scale_of(row.before_runs.iter().chain(&row.after_runs)),
        ),
        _ => (Kind::Means, Scale::Ratio),
    };
    let seen = |side: &[f64]| side.iter().any(|rate| *rate > 0.0);
    if !seen(&row.before_runs) && !seen(&row.after_runs) {
        let runs = cells
            .iter()
            .flat_map(|cell| cell.before.iter().chain(&cell.after));
        let looked: f64 = runs.map(|run| run.duration).sum();
        row.text = format!("no stall on either side in {looked:.0} s: n too small for a ratio");
        return Ok(HasData::Nothing);
    }
    let levels = (
        row.before,
        row.before_interval,
        row.after,
        row.after_interval,
    );
    let done = of_two(kind, scale, row, options);
    (
        row.before,
        row.before_interval,
        row.after,
        row.after_interval,
    ) = levels;
    done
}

/// The runs' figures by block; the first run without one is the error.
fn gather<T>(
    sides: [&Side; 2],
    figure: impl Fn(&Run) -> Figure<T>,
) -> Result<Vec<Cell<T>>, String> {
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
    let mut blocks: BTreeMap<Option<u32>, Cell<T>> = BTreeMap::new();
    for (side, later) in sides.into_iter().zip([false, true]) {
        for run in &side.runs {
            let value =
                figure(run).map_err(|why| format!("{}, run {}: {why}", side.name, run.name))?;
            let cell = blocks.entry(run.block).or_insert_with(|| Cell {
                before: Vec::new(),
                after: Vec::new(),
            });
            if later {
                cell.after.push(value);
            } else {
                cell.before.push(value);
            }
        }
    }
    Ok(blocks.into_values().collect())
}

/// The blocks in which both sides have runs.
fn of_both<T>(mut cells: Vec<Cell<T>>) -> Result<Vec<Cell<T>>, String> {
    cells.retain(|cell| !cell.before.is_empty() && !cell.after.is_empty());
    if cells.is_empty() {
        return Err("no block has runs of both sides".to_owned());
    }
    Ok(cells)
}

/// The permutation test of `scores`, which are those of the runs of `cells`, block by block, the earlier side's first.
/// Puts the probability into the row; the error is that there are too few runs for any.
fn test<T>(
    row: &mut Row,
    cells: &[Cell<T>],
    scores: &[f64],
    options: &Options,
) -> Result<(), String> {
    let mut rest = scores;
    let mut blocks = Vec::with_capacity(cells.len());
    for cell in cells {
        let before = rest.split_off(..cell.before.len());
        let after = rest.split_off(..cell.after.len());
        blocks.push(Scores::new(
            before.unwrap_or_default(),
            after.unwrap_or_default(),
        ));
    }
    let sizes = || {
        cells
            .iter()
            .map(|cell| (cell.before.len(), cell.after.len()))
    };
    let Probability {
        p,
        arrangements,
        exact,
    } = permutation(&mut blocks, options.permutations, options.seed);
    row.p = Some(p);
    row.arrangements = Some(arrangements);
    row.exact = exact;
    // Both extremes are as far: of N arrangements 2 / N is the least.
    let least = 2.0 / permute::arrangements(sizes());
    if least > super::LEVEL {
        let [before, after] = sizes().fold([0, 0], |[a, b], (c, d)| [a + c, b + d]);
        return Err(too_few(before, after, least));
    }
    Ok(())
}

/// The effect of a finite value on its scale (ratios as logarithms); `None` where that is beyond what a number can hold.
fn effect(value: f64, ends: Option<Ends>, scale: Scale) -> Option<Effect> {
    let back = |value: f64| match scale {
        Scale::Ratio => value.exp(),
        Scale::Difference => value,
    };
    let value = Some(back(value)).filter(|value| value.is_finite())?;
    // A ratio of 0 or infinity is an end that the data does not bound.
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

/// `0.91x (0.88..0.94)`, `infinite (more than 1.00x)`, `0x (n too small for a bound)`, `12 ns (3 ns..21 ns)`.
fn text(effect: &Effect, unit: &str) -> String {
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

/// From here on a number is not read digit by digit.
const READABLE: f64 = 1e15;

/// A number with its unit: a time in the unit that reads best, anything else with three digits that count.
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
