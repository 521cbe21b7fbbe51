//! A dot per run, as ministat draws them: whether sides lie apart is seen before anything is tested.

use stopgap_events::order::SortRows;
use stopgap_stats::bootstrap::median_over_runs;
use stopgap_stats::quantile::median;

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, scale};
use super::side::{Measured, Side};
use super::words;
use crate::table::{Table, known_or};
use crate::text::{figure, number};

/// Rows of a picture; more are in the record.
const MOST_ROWS: usize = 24;

/// Share of a row that the marks of its sides spread over.
const ROOM: f64 = 0.8;

/// Returns the chart of a group: a row each, a dot per run, with the interval of the median. `rule` is what they are held
/// against.
pub(super) fn chart(
    title: &str,
    about: &str,
    group: &[Measured<'_>],
    sides: &[Side<'_>],
    rule: Option<(f64, &str)>,
) -> Option<Chart> {
    let any = |one: &&Measured<'_>| one.blocks.iter().any(|blocks| !blocks.is_empty());
    let mut rows: Vec<&Measured<'_>> = group.iter().filter(any).collect();
    let first = *rows.first()?;
    let all = rows.len();
    let mut about =
        format!("{about} A mark is a run; a line is the 95 % interval of their median.");
    if all > MOST_ROWS {
        let middle = |one: &Measured<'_>| median(one.all_values().collect());
        let middle = |one: &Measured<'_>| middle(one).unwrap_or(f64::NEG_INFINITY);
        rows.sort_rows(|a, b| middle(b).total_cmp(&middle(a)));
        about +=
            &format!(" The picture has the {MOST_ROWS} largest of {all} rows, Figures has all.");
    }
    let table = table(&rows, sides);
    rows.truncate(MOST_ROWS);
    if sides.len() > MOST {
        about += &format!(" The picture has {MOST} of {} machines.", sides.len());
    }
    let drawn = sides.len().min(MOST);
    let layers = sides.iter().take(MOST).enumerate().map(|(side, one)| {
        let mut layer = Layer::new(if sides.len() > 1 { &*one.name } else { "" }, side);
        for (row, measured) in rows.iter().enumerate() {
            let y = place(row, side, drawn);
            let values = measured.values(side);
            let interval = median_over_runs(&values, 1);
            layer
                .shapes
                .extend(interval.map(|i| Shape::Level(i.low, i.high, y)));
            layer.shapes.push(Shape::Marks(
                values.into_iter().map(|value| (value, y)).collect(),
            ));
        }
        layer
    });
    let scale = scale(rows.iter().flat_map(|one| one.all_values()));
    let (quantity, unit) = words::quantity(first.series);
    let x = Axis::new(quantity, unit, scale);
    let labels = rows.iter().map(|one| one.label.clone()).collect();
    Some(Chart {
        layers: layers.collect(),
        rule: rule.map(|(at, label)| (at, label.to_owned())),
        table,
        ..Chart::of_rows(title, about, x, labels)
    })
}

/// Returns a picture of rows with a mark for each figure, as HTML: of records that only their own crate knows. Figures lie along an
/// axis (its title and unit) with a line at what they are held against. Empty where there is no figure.
#[must_use]
pub fn marks(
    title: &str,
    about: &str,
    (axis, unit): (&str, &str),
    (at, against): (f64, &str),
    rows: Vec<(String, Vec<f64>)>,
) -> String {
    let mut layer = Layer::new("", 0);
    let mut table = Table::new(&format!(
        "row | marks | least, {unit} | median, {unit} | most, {unit}"
    ));
    let mut about = about.to_owned();
    if rows.len() > MOST_ROWS {
        let all = rows.len();
        about += &format!(" The picture has the first {MOST_ROWS} of {all} rows, Figures has all.");
    }
    for (row, (label, values)) in rows.iter().enumerate() {
        let least = values.iter().copied().reduce(f64::min);
        let most = values.iter().copied().reduce(f64::max);
        let [least, middle, most] =
            [least, median(values.clone()), most].map(|value| known_or("", value.map(number)));
        table.row(&[label, &values.len(), &least, &middle, &most]);
        if row < MOST_ROWS {
            let points = values.iter().map(|value| (*value, row as f64));
            layer.shapes.push(Shape::Marks(points.collect()));
        }
    }
    let labels = rows.into_iter().take(MOST_ROWS).map(|(label, _)| label);
    Chart {
        layers: vec![layer],
        rule: Some((at, against.to_owned())),
        table,
        ..Chart::of_rows(
            title,
            about,
            Axis::new(axis, unit, Scale::Linear),
            labels.collect(),
        )
    }
    .html()
}

/// Returns the y of one side in a row.
fn place(row: usize, side: usize, sides: usize) -> f64 {
    let middle = (sides.max(1) - 1) as f64 / 2.0;
    row as f64 + (side as f64 - middle) * ROOM / sides.max(2) as f64
}

fn table(group: &[&Measured<'_>], sides: &[Side<'_>]) -> Table {
    let alone = sides.len() == 1;
    let mut table = Table::new(match alone {
        true => "row | runs | least | median | most | 95 % interval of the median",
        false => "row | machine | runs | least | median | most | 95 % interval of the median",
    });
    for measured in group {
        let show = |value: f64| figure(value, &measured.series.unit);
        for (index, side) in sides.iter().enumerate() {
            let values = measured.values(index);
            let least = values.iter().copied().reduce(f64::min);
            let most = values.iter().copied().reduce(f64::max);
            let (Some(least), Some(most)) = (least, most) else {
                continue;
            };
            let interval = median_over_runs(&values, 1);
            let interval = interval.map(|i| format!("{} .. {}", show(i.low), show(i.high)));
            let mut cells = vec![measured.label.clone()];
            if !alone {
                cells.push(side.name.clone());
            }
            cells.extend([
                values.len().to_string(),
                show(least),
                known_or("", measured.median(index).map(show)),
                show(most),
                known_or("too few runs", interval),
            ]);
            table.rows.push(cells);
        }
    }
    table
}
