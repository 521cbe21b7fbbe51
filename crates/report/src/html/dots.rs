//! A dot a run, as ministat draws them: whether sides lie apart is seen before anything is tested.

use stopgap_stats::quantile::median;

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape};
use super::side::{Measured, Side, interval};
use super::write::Table;
use crate::details::figure;

/// Rows of a picture; more are in the record.
const MOST_ROWS: usize = 24;

/// Room that sides of one row share.
const ROOM: f64 = 0.36;

/// Largest over least from which on an axis is logarithmic.
const WIDE: f64 = 8.0;

/// The chart of a group: a row each, a dot a run, with the interval of the median. `rule` is what they are held
/// against.
pub(super) fn chart(
    title: &str,
    about: &str,
    group: &[&Measured<'_>],
    sides: &[Side<'_>],
    rule: Option<(f64, &str)>,
) -> Option<Chart> {
    let mut with_runs: Vec<&&Measured<'_>> = group.iter().filter(|one| one.any()).collect();
    let first = *with_runs.first()?;
    if with_runs.len() > MOST_ROWS {
        let middle = |one: &Measured<'_>| {
            let values = (0..sides.len()).flat_map(|side| one.values(side)).collect();
            median(values).unwrap_or(f64::NEG_INFINITY)
        };
        with_runs.sort_by(|a, b| middle(b).total_cmp(&middle(a)));
    }
    let unit = first.series.unit.clone();
    let shown = &with_runs[..with_runs.len().min(MOST_ROWS)];
    let all: Vec<f64> = shown
        .iter()
        .flat_map(|one| (0..sides.len()).flat_map(|side| one.values(side)))
        .collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    let scale = match least > 0.0 && most / least > WIDE {
        true => Scale::Log,
        false => Scale::Linear,
    };
    let mut layers = Vec::new();
    let drawn = sides.len().min(MOST);
    for (side, one) in sides.iter().enumerate().take(MOST) {
        let mut layer = Layer::new(if sides.len() > 1 { &one.name } else { "" }, side);
        for (row, measured) in shown.iter().enumerate() {
            let y = place(row, side, drawn);
            let values = measured.values(side);
            if let Some(interval) = interval(&values, 1) {
                layer
                    .shapes
                    .push(Shape::Level(interval.low, interval.high, y));
            }
            let dots = values.into_iter().map(|value| (value, y)).collect();
            layer.shapes.push(Shape::Marks(dots));
        }
        layers.push(layer);
    }
    let mut about = format!(
        "{about} A mark is a run, a line the 95 % interval of their median (from 3 runs on)."
    );
    if !first.told_by.is_empty() {
        about.push_str(&format!(" A row is a set of: {}.", first.told_by));
    }
    if with_runs.len() > shown.len() {
        about.push_str(&format!(
            " {} of {} rows, the largest first; the rest is in the record.",
            shown.len(),
            with_runs.len()
        ));
    }
    if sides.len() > MOST {
        about.push_str(&format!(" The first {MOST} of {} sides.", sides.len()));
    }
    Some(Chart {
        title: title.to_owned(),
        about,
        x: Axis::new(&first.series.name, &unit, scale),
        y: Axis::new("rows", "", Scale::Rows),
        rows: shown.iter().map(|one| one.label.clone()).collect(),
        layers,
        rule: rule.map(|(at, label)| (at, label.to_owned())),
        table: table(&with_runs, sides),
        spans: None,
    })
}

/// The y of one side in a row.
pub(super) fn place(row: usize, side: usize, sides: usize) -> f64 {
    let middle = (sides.max(1) - 1) as f64 / 2.0;
    row as f64 + (side as f64 - middle) * ROOM / sides.max(2) as f64
}

fn table(group: &[&&Measured<'_>], sides: &[Side<'_>]) -> Table {
    let mut table = Table::new(&[
        "what",
        "machine",
        "runs",
        "least",
        "median",
        "most",
        "95 % interval of the median",
    ]);
    for measured in group {
        for (index, side) in sides.iter().enumerate() {
            let mut values = measured.values(index);
            values.sort_by(f64::total_cmp);
            let (Some(&least), Some(&most)) = (values.first(), values.last()) else {
                continue;
            };
            let unit = &measured.series.unit;
            let show = |value: f64| figure(value, unit);
            let between = interval(&values, 1).map_or_else(
                || "too few runs".to_owned(),
                |interval| format!("{} .. {}", show(interval.low), show(interval.high)),
            );
            table.rows.push(vec![
                measured.label.clone(),
                side.name.clone(),
                values.len().to_string(),
                show(least),
                median(values).map_or_else(String::new, show),
                show(most),
                between,
            ]);
        }
    }
    table
}
