//! Two sides compared: the verdict's endpoints, and what each tenth of the samples did.

use stopgap_stats::compare::{Comparison, Effect, Row, RowWord, Scale as Held};
use stopgap_stats::quantile::median;

use super::chart::{Axis, Chart, Layer, Scale, Shape, scale};
use super::top;
use super::write::Section;
use crate::compare::effect_figure;
use crate::table::{Table, known_or};
use crate::text::{level, nanoseconds, per_cent, ratio};

/// Endpoints whose runs are drawn.
const MOST_DOTTED: usize = 8;

/// Runs of a side that are drawn; of more every so many-th by its figure.
const MOST_DOTS: usize = 200;

/// Returns the section of a comparison. Its verdict and its warnings stand in it where it is not `alone` in the page, which has them at its top.
pub(super) fn section(id: &str, name: &str, comparison: &Comparison, alone: bool) -> String {
    let (before, after) = (&comparison.before, &comparison.after);
    let mut section = Section::new(
        id,
        &format!("compared: {} with {}", before.name, after.name),
    );
    if !alone {
        section.verdict(
            Some(top::of_comparison(comparison)),
            &comparison.verdict.text,
        );
    }
    section.paragraph(&format!(
        "{name}: {} and {} runs, seed {}, margin {} %.",
        before.runs,
        after.runs,
        comparison.seed,
        per_cent(comparison.margin)
    ));
    if let Some(series) = &comparison.series {
        section.paragraph(&format!("Compared: {series}."));
    }
    if !alone {
        section.list(&comparison.warnings, "warnings");
    }
    section.list(&comparison.conditions, "evidence");
    let mut charts: Vec<Chart> = effects(comparison).into_iter().collect();
    let rows = comparison.endpoints.iter().take(MOST_DOTTED);
    charts.extend(rows.filter_map(|row| dots(comparison, row)));
    charts.extend(shift(comparison));
    charts.extend(deciles(comparison));
    section.charts(&charts);
    section.folded_table("Endpoints", &endpoints(comparison));
    if let (Some(before), Some(after)) = (before.max, after.max) {
        let [before, after] = [before, after].map(|max| level(max, &comparison.unit));
        section.paragraph(&format!(
            "Longest of all samples: {before} before, {after} after. This difference was not tested."
        ));
    }
    if !comparison.environment.is_empty() {
        let mut table = Table::new("setting | before | after");
        for differs in &comparison.environment {
            table.marked.push(table.rows.len());
            table.row(&[&differs.what, &differs.before, &differs.after]);
        }
        section.folded_table("In what the machines differ", &table);
    }
    section.finish()
}

/// Returns an effect with its interval.
fn shown(effect: &Effect, unit: &str) -> String {
    let figure = |value: f64| effect_figure(value, effect.scale, unit);
    if effect.infinite {
        let low = effect
            .low
            .map(|low| format!(" (more than {}x)", ratio(low)));
        return format!("infinite{}", known_or("", low));
    }
    let sign = if effect.scale == Held::Ratio { "x" } else { "" };
    let [low, high] = [effect.low, effect.high].map(|end| known_or("unbounded", end.map(figure)));
    format!(
        "{}{sign} ({low} .. {high})",
        known_or("unknown", effect.value.map(figure))
    )
}

fn endpoints(comparison: &Comparison) -> Table {
    let mut table = Table::new(
        "endpoint | before | after | after over before (95 %) | p | p, adjusted | answer",
    );
    for row in &comparison.endpoints {
        let [before, after] = [row.before, row.after]
            .map(|value| known_or("none", value.map(|v| level(v, &row.unit))));
        let [p, adjusted] =
            [row.p, row.p_adjusted()].map(|p| known_or("", p.map(|p| format!("{p:.4}"))));
        // Where there is an effect it stands in its own column.
        let answer = match row.effect {
            Some(_) if row.word != RowWord::Inconclusive => row.word.to_string(),
            _ => format!("{}: {}", row.word, row.text),
        };
        let effect = known_or(
            "none",
            row.effect.as_ref().map(|effect| shown(effect, &row.unit)),
        );
        table.row(&[&row.name, &before, &after, &effect, &p, &adjusted, &answer]);
    }
    table
}

/// Returns ratios of the endpoints with their intervals; 1 is no change.
fn effects(comparison: &Comparison) -> Option<Chart> {
    let (mut layer, mut rows) = (Layer::new("", 0), Vec::new());
    let mut undrawn = Vec::new();
    let mut table = Table::new("endpoint | after over before (95 %)");
    for row in &comparison.endpoints {
        let ratio = row.effect.filter(|effect| effect.scale == Held::Ratio);
        let Some((effect, value)) = ratio.and_then(|effect| Some((effect, effect.value?))) else {
            undrawn.push(format!("{} ({})", row.name, row.word));
            continue;
        };
        let y = rows.len() as f64;
        let ends = effect.low.zip(effect.high);
        layer
            .shapes
            .extend(ends.map(|(low, high)| Shape::Level(low, high, y)));
        layer.shapes.push(Shape::Marks(vec![(value, y)]));
        rows.push(format!("{}: {}", row.name, row.word));
        table.row(&[&row.name, &shown(&effect, &row.unit)]);
    }
    let mut about = "After divided by before, with the 95 % interval over runs. Left of 1 is less, which is better. A mark without a line: \
                     the runs give no interval."
        .to_owned();
    if !undrawn.is_empty() {
        about += &format!(" Without a ratio, and not drawn: {}.", undrawn.join(", "));
    }
    let x = Axis::new("after over before", "ratio", Scale::Log);
    (!rows.is_empty()).then(|| Chart {
        layers: vec![layer],
        rule: Some((1.0, "no change".to_owned())),
        table,
        ..Chart::of_rows("What changed, endpoint by endpoint", about, x, rows)
    })
}

/// Returns a dot a run of an endpoint, as ministat draws them.
fn dots(comparison: &Comparison, row: &Row) -> Option<Chart> {
    // Axes find the unit of a time that reads best, from nanoseconds.
    let (unit, factor) = match nanoseconds(&row.unit) {
        Some(factor) => ("ns", factor),
        None => (&*row.unit, 1.0),
    };
    let sides = [
        (&comparison.before, &row.before_runs, row.before_interval),
        (&comparison.after, &row.after_runs, row.after_interval),
    ];
    let mut table = Table::new("side | runs | least | median | most");
    let (mut layers, mut all) = (Vec::new(), Vec::new());
    for (index, (side, runs, interval)) in sides.into_iter().enumerate() {
        let mut runs: Vec<f64> = runs.iter().map(|run| run * factor).collect();
        runs.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*runs.first()?, *runs.last()?);
        if !(first.is_finite() && last.is_finite()) {
            return None;
        }
        let y = index as f64;
        let mut layer = Layer::new(&side.name, index);
        let interval = interval.map(|i| Shape::Level(i.low * factor, i.high * factor, y));
        layer.shapes.extend(interval);
        let step = runs.len().div_ceil(MOST_DOTS);
        let drawn = runs.iter().step_by(step).chain((step > 1).then_some(&last));
        layer
            .shapes
            .push(Shape::Marks(drawn.map(|&run| (run, y)).collect()));
        layers.push(layer);
        let figures = [first, median(runs.clone())?, last];
        let [first, middle, last] = figures.map(|value| level(value / factor, &row.unit));
        table.row(&[&side.name, &runs.len(), &first, &middle, &last]);
        all.extend(runs);
    }
    let about = "A mark is a run, a line the 95 % interval of the side.";
    let x = Axis::new(&row.name, unit, scale(all.iter().copied()));
    let rows = ["before", "after"].map(str::to_owned).into();
    let chart = Chart::of_rows(format!("{}, run by run", row.name), about, x, rows);
    Some(Chart {
        layers,
        table,
        ..chart
    })
}

/// Returns the axis of tenths.
fn tenths() -> Axis {
    Axis::new("share of samples at or below", "%", Scale::Linear)
}

/// Returns the shift function: the ratio of each tenth.
fn shift(comparison: &Comparison) -> Option<Chart> {
    let mut layer = Layer::new("after over before", 0);
    let mut line = Vec::new();
    let mut table = Table::new("tenth | after over before (95 %)");
    let mut unit = "ratio";
    for decile in &comparison.deciles {
        let Some(effect) = decile.effect else {
            continue;
        };
        if effect.scale == Held::Difference {
            unit = &comparison.unit;
        }
        let Some(value) = effect.value else { continue };
        let share = decile.share * 100.0;
        line.push((share, value));
        let ends = effect.low.zip(effect.high);
        layer
            .shapes
            .extend(ends.map(|(low, high)| Shape::Upright(share, low, high)));
        table.row(&[&format!("{share:.0} %"), &shown(&effect, &comparison.unit)]);
    }
    if line.is_empty() {
        return None;
    }
    let (same, scale) = match unit {
        "ratio" => (1.0, Scale::Log),
        _ => (0.0, Scale::Linear),
    };
    layer.marked_line(line);
    let mut none = Layer::new("no change", 5);
    none.shapes
        .push(Shape::Dashed(vec![(0.0, same), (100.0, same)]));
    let about = "Each tenth of a run's samples, from the fastest to the slowest: after divided by before, with 95 % intervals over runs. \
                 A description, not a test.";
    let y = Axis::new("after against before", unit, scale);
    Some(Chart {
        layers: vec![none, layer],
        table,
        ..Chart::new("Shift function", about, tenths(), y)
    })
}

/// Returns the tenths of both sides.
fn deciles(comparison: &Comparison) -> Option<Chart> {
    let mut layers = [
        Layer::new(&comparison.before.name, 0),
        Layer::new(&comparison.after.name, 1),
    ];
    let mut lines = [Vec::new(), Vec::new()];
    let mut table = Table::new("tenth | before | after");
    let unit = &comparison.unit;
    for decile in &comparison.deciles {
        let share = decile.share * 100.0;
        // Side by side, so that bars do not hide each other.
        let sides = [
            (share - 0.8, decile.before, decile.before_interval),
            (share + 0.8, decile.after, decile.after_interval),
        ];
        for (side, (x, value, interval)) in sides.into_iter().enumerate() {
            lines[side].extend(value.map(|value| (x, value)));
            let interval = interval.map(|i| Shape::Upright(x, i.low, i.high));
            layers[side].shapes.extend(interval);
        }
        let [before, after] =
            sides.map(|(_, value, _)| known_or("", value.map(|v| level(v, unit))));
        table.row(&[&format!("{share:.0} %"), &before, &after]);
    }
    if lines.iter().all(Vec::is_empty) {
        return None;
    }
    for (layer, line) in layers.iter_mut().zip(lines) {
        layer.marked_line(line);
    }
    let about = "Medians over runs with their 95 % intervals.";
    let y = Axis::new("figure", unit, Scale::Log);
    Some(Chart {
        layers: layers.into(),
        table,
        ..Chart::new("Tenths of both sides", about, tenths(), y)
    })
}
