//! Two sides compared: the verdict's endpoints, and what each tenth of the samples did.

use stopgap_stats::bootstrap::Interval;
use stopgap_stats::compare::{Comparison, Effect, Row, RowWord, Scale as Held};

use super::chart::{Axis, Chart, Layer, Scale, Shape};
use super::write::{Table, escaped, list};
use crate::compare::{level, per_cent, ratio};

/// The section of a comparison. Its warnings stand in it where it is not `alone` in the page, which has them at its top.
pub(super) fn section(id: &str, name: &str, comparison: &Comparison, alone: bool) -> String {
    let mut html = format!(
        "<section id=\"{id}\"><h2>compared: {} with {}</h2>\n<p class=\"verdict\">{}</p>\n<p>{}: {} and {} runs, seed {}, \
         margin {} %.</p>\n",
        escaped(&comparison.before.name),
        escaped(&comparison.after.name),
        escaped(&comparison.verdict.text),
        escaped(name),
        comparison.before.runs,
        comparison.after.runs,
        comparison.seed,
        per_cent(comparison.margin)
    );
    if let Some(series) = &comparison.series {
        html.push_str(&format!("<p>Of {}.</p>\n", escaped(series)));
    }
    if !alone {
        html.push_str(&list(&comparison.warnings, "warnings"));
    }
    let mut charts: Vec<Chart> = effects(comparison).into_iter().collect();
    let rows = comparison.endpoints.iter().take(MOST_DOTTED);
    charts.extend(rows.filter_map(|row| dots(comparison, row)));
    charts.extend(shift(comparison));
    charts.extend(deciles(comparison));
    html.push_str(&endpoints(comparison).html("Endpoints"));
    if let (Some(before), Some(after)) = (comparison.before.max, comparison.after.max) {
        let [before, after] = [before, after].map(|max| level(max, &comparison.unit));
        html.push_str(&format!(
            "<p>Longest of all samples, not tested: {} before, {} after.</p>\n",
            escaped(&before),
            escaped(&after)
        ));
    }
    html.push_str("<div class=\"charts\">");
    html.extend(charts.iter().map(Chart::html));
    html.push_str("</div>\n");
    if !comparison.environment.is_empty() {
        let mut table = Table::new(&["setting", "before", "after"]);
        table.rows = comparison
            .environment
            .iter()
            .map(|d| vec![d.what.clone(), d.before.clone(), d.after.clone()])
            .collect();
        table.marked = (0..table.rows.len()).collect();
        html.push_str("<h3>In what the machines differ</h3>");
        html.push_str(&table.html("In what the machines differ"));
    }
    html.push_str("</section>\n");
    html
}

fn shown(effect: Option<&Effect>, unit: &str) -> String {
    let Some(effect) = effect else {
        return "none".to_owned();
    };
    let figure = |value: f64| match effect.scale {
        Held::Ratio => ratio(value),
        Held::Difference => level(value, unit),
    };
    if effect.infinite {
        return match effect.low {
            Some(low) => format!("infinite (more than {}x)", ratio(low)),
            None => "infinite".to_owned(),
        };
    }
    let end = |end: Option<f64>| end.map_or_else(|| "unbounded".to_owned(), figure);
    let value = effect.value.map_or_else(|| "unknown".to_owned(), figure);
    let sign = match effect.scale {
        Held::Ratio => "x",
        Held::Difference => "",
    };
    format!(
        "{value}{sign} ({} .. {})",
        end(effect.low),
        end(effect.high)
    )
}

fn endpoints(comparison: &Comparison) -> Table {
    let mut table = Table::new(&[
        "endpoint",
        "before",
        "after",
        "after over before (95 %)",
        "p",
        "p, Holm",
        "answer",
    ]);
    let probability = |p: Option<f64>| p.map_or_else(String::new, |p| format!("{p:.4}"));
    for row in &comparison.endpoints {
        let level =
            |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |v| level(v, &row.unit));
        // Where there is an effect it stands in its own column.
        let answer = match row.effect {
            Some(_) if row.word != RowWord::Inconclusive => row.word.to_string(),
            _ => format!("{}: {}", row.word, row.text),
        };
        table.rows.push(vec![
            row.name.clone(),
            level(row.before),
            level(row.after),
            shown(row.effect.as_ref(), &row.unit),
            probability(row.p),
            probability(row.p_holm),
            answer,
        ]);
    }
    table
}

/// Ratios of the endpoints with their intervals; 1 is no change.
fn effects(comparison: &Comparison) -> Option<Chart> {
    let mut layer = Layer::new("", 0);
    let (mut rows, mut table) = (
        Vec::new(),
        Table::new(&["endpoint", "after over before (95 %)"]),
    );
    for row in &comparison.endpoints {
        let Some(effect) = row.effect.filter(|effect| effect.scale == Held::Ratio) else {
            continue;
        };
        let Some(value) = effect.value else { continue };
        let y = rows.len() as f64;
        if let (Some(low), Some(high)) = (effect.low, effect.high) {
            layer.shapes.push(Shape::Level(low, high, y));
        }
        layer.shapes.push(Shape::Marks(vec![(value, y)]));
        rows.push(format!("{}: {}", row.name, row.word));
        table
            .rows
            .push(vec![row.name.clone(), shown(Some(&effect), &row.unit)]);
    }
    (!rows.is_empty()).then(|| Chart {
        title: "What changed, endpoint by endpoint".to_owned(),
        about: "After over before with the 95 % interval over runs: left of 1 is less, which is better. A mark without a line \
                has an interval that the runs do not bound."
            .to_owned(),
        x: Axis::new("after over before", "ratio", Scale::Log),
        y: Axis::new("rows", "", Scale::Rows),
        rows,
        layers: vec![layer],
        rule: Some((1.0, "no change".to_owned())),
        table,
        spans: None,
    })
}

/// Endpoints whose runs are drawn.
const MOST_DOTTED: usize = 8;

/// Runs of a side that are drawn; of more every so many-th by its figure.
const MOST_DOTS: usize = 200;

/// A dot a run, as ministat draws them.
fn dots(comparison: &Comparison, row: &Row) -> Option<Chart> {
    // Axes find the unit of a time that reads best, from nanoseconds.
    let (unit, factor) = match row.unit.as_str() {
        "us" => ("ns", 1e3),
        "ms" => ("ns", 1e6),
        "s" => ("ns", 1e9),
        unit => (unit, 1.0),
    };
    let sides = [
        (&comparison.before, &row.before_runs, row.before_interval),
        (&comparison.after, &row.after_runs, row.after_interval),
    ];
    let mut table = Table::new(&["side", "runs", "least", "median", "most"]);
    let (mut layers, mut least, mut most) = (Vec::new(), f64::INFINITY, 0.0_f64);
    for (index, (side, runs, interval)) in sides.into_iter().enumerate() {
        let mut runs: Vec<f64> = runs.iter().map(|run| run * factor).collect();
        runs.sort_by(f64::total_cmp);
        let (first, last) = (*runs.first()?, *runs.last()?);
        if !(first.is_finite() && last.is_finite()) {
            return None;
        }
        (least, most) = (least.min(first), most.max(last));
        let y = if index == 0 { 0.0 } else { 1.0 };
        let mut layer = Layer::new(&side.name, index);
        if let Some(interval) = interval {
            layer.shapes.push(Shape::Level(
                interval.low * factor,
                interval.high * factor,
                y,
            ));
        }
        let step = runs.len().div_ceil(MOST_DOTS);
        let drawn = runs.iter().step_by(step).chain((step > 1).then_some(&last));
        layer
            .shapes
            .push(Shape::Marks(drawn.map(|&run| (run, y)).collect()));
        layers.push(layer);
        let median = stopgap_stats::quantile::median(runs.clone())?;
        let mut cells = vec![side.name.clone(), runs.len().to_string()];
        cells.extend([first, median, last].map(|value| level(value / factor, &row.unit)));
        table.rows.push(cells);
    }
    let scale = match least > 0.0 && most / least > 8.0 {
        true => Scale::Log,
        false => Scale::Linear,
    };
    Some(Chart {
        title: format!("{}, run by run", row.name),
        about: "A mark is a run, the unit of evidence; a line the 95 % interval of the side."
            .to_owned(),
        x: Axis::new(&row.name, unit, scale),
        y: Axis::new("rows", "", Scale::Rows),
        rows: ["before", "after"].map(str::to_owned).into(),
        layers,
        rule: None,
        table,
        spans: None,
    })
}

/// The shift function: the ratio of each tenth.
fn shift(comparison: &Comparison) -> Option<Chart> {
    let mut layer = Layer::new("", 0);
    let (mut line, mut table) = (
        Vec::new(),
        Table::new(&["tenth", "after over before (95 %)"]),
    );
    let mut unit = "ratio";
    for decile in &comparison.deciles {
        let Some(effect) = decile.effect else {
            continue;
        };
        if effect.scale == Held::Difference {
            unit = comparison.unit.as_str();
        }
        let Some(value) = effect.value else { continue };
        let share = decile.share * 100.0;
        line.push((share, value));
        if let (Some(low), Some(high)) = (effect.low, effect.high) {
            layer.shapes.push(Shape::Upright(share, low, high));
        }
        table.rows.push(vec![
            format!("{share:.0} %"),
            shown(Some(&effect), &comparison.unit),
        ]);
    }
    if line.is_empty() {
        return None;
    }
    let (low, high) = (0.0, 100.0);
    let (same, scale) = match unit {
        "ratio" => (1.0, Scale::Log),
        _ => (0.0, Scale::Linear),
    };
    layer.shapes.push(Shape::Line(line.clone()));
    layer.shapes.push(Shape::Marks(line));
    let mut none = Layer::new("no change", 5);
    none.shapes
        .push(Shape::Dashed(vec![(low, same), (high, same)]));
    layer.name = "after over before".to_owned();
    Some(Chart {
        title: "Shift function".to_owned(),
        about: "What each tenth of a run's samples did, from the fastest to the slowest, with 95 % intervals over runs. \
                Described, not tested."
            .to_owned(),
        x: Axis::new("share of samples at or below", "%", Scale::Linear),
        y: Axis::new("after against before", unit, scale),
        rows: Vec::new(),
        layers: vec![none, layer],
        rule: None,
        table,
        spans: None,
    })
}

/// The tenths of both sides.
fn deciles(comparison: &Comparison) -> Option<Chart> {
    let sides = [&comparison.before.name, &comparison.after.name];
    let mut layers: Vec<Layer> = sides
        .iter()
        .enumerate()
        .map(|(ink, name)| Layer::new(*name, ink))
        .collect();
    let mut lines = [Vec::new(), Vec::new()];
    let mut table = Table::new(&["tenth", "before", "after"]);
    let unit = &comparison.unit;
    for decile in &comparison.deciles {
        let share = decile.share * 100.0;
        let figures: [(Option<f64>, Option<Interval>); 2] = [
            (decile.before, decile.before_interval),
            (decile.after, decile.after_interval),
        ];
        let mut cells = vec![format!("{share:.0} %")];
        for (side, (value, interval)) in figures.into_iter().enumerate() {
            // Side by side, so that bars do not hide each other.
            let x = share + if side == 0 { -0.8 } else { 0.8 };
            lines[side].extend(value.map(|value| (x, value)));
            layers[side]
                .shapes
                .extend(interval.map(|i| Shape::Upright(x, i.low, i.high)));
            cells.push(value.map_or_else(String::new, |value| level(value, unit)));
        }
        table.rows.push(cells);
    }
    if lines.iter().all(Vec::is_empty) {
        return None;
    }
    for (layer, line) in layers.iter_mut().zip(lines) {
        layer.shapes.push(Shape::Line(line.clone()));
        layer.shapes.push(Shape::Marks(line));
    }
    Some(Chart {
        title: "Tenths of both sides".to_owned(),
        about: "Medians over runs with their 95 % intervals.".to_owned(),
        x: Axis::new("share of samples at or below", "%", Scale::Linear),
        y: Axis::new("figure", unit, Scale::Log),
        rows: Vec::new(),
        layers,
        rule: None,
        table,
        spans: None,
    })
}
