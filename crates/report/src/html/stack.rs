//! Bars of parts that add up, a row each. One name has one ink in all charts of a section.

use stopgap_events::order::SortRows;

use super::chart::{Axis, Chart, INKS, Layer, Scale, Shape};
use crate::table::Table;
use crate::text::figure;

/// Rows of a picture.
const MOST_ROWS: usize = 20;

/// A row: its label and its parts by name.
pub(super) type Row = (String, Vec<(String, f64)>);

/// A chart to be drawn. Parts add up along `axis`, in `unit`.
pub(super) struct Given<'a> {
    pub(super) title: String,
    pub(super) about: &'a str,
    /// Title and unit of the axis.
    pub(super) axis: (&'a str, &'a str),
    /// Heads the table's column of rows.
    pub(super) row: &'a str,
    pub(super) rows: Vec<Row>,
}

/// Returns the charts; without those where no part is above 0. A part of one name has one ink in all of them. Where there are more names
/// than inks, those that come to least in every chart share the last one.
pub(super) fn charts<'a>(all: impl IntoIterator<Item = Given<'a>>) -> Vec<Chart> {
    charts_beside(&mut 0, all)
}

/// [`charts`] beside those that took the first `taken` inks and have other names; adds what these take. An ink comes again only where there
/// is none left.
pub(super) fn charts_beside<'a>(
    taken: &mut usize,
    all: impl IntoIterator<Item = Given<'a>>,
) -> Vec<Chart> {
    let all: Vec<Given<'_>> = all.into_iter().collect();
    let mut weights: Vec<(String, f64)> = Vec::new();
    for given in &all {
        let mut totals: Vec<(&String, f64)> = Vec::new();
        for (name, amount) in given.rows.iter().flat_map(|(_, parts)| parts) {
            match totals.iter_mut().find(|(known, _)| *known == name) {
                _ if !drawn(*amount) => {}
                Some((_, total)) => *total += amount,
                None => totals.push((name, *amount)),
            }
        }
        let sum: f64 = totals.iter().map(|(_, total)| total).sum();
        for (name, total) in totals {
            let share = total / sum;
            match weights.iter_mut().find(|(known, _)| known == name) {
                Some((_, weight)) => *weight = weight.max(share),
                None => weights.push((name.clone(), share)),
            }
        }
    }
    weights.sort_rows(|a, b| b.1.total_cmp(&a.1));
    if weights.len() >= INKS.len() {
        weights.truncate(INKS.len() - 1);
    }
    let names: Vec<String> = weights.into_iter().map(|(name, _)| name).collect();
    let first = *taken;
    *taken += names.len();
    let drawn = all.into_iter().map(|given| chart(given, &names, first));
    drawn.flatten().collect()
}

/// Draws one chart, with the inks of `names` by their places, from `first` on. What is not among them has the last ink.
fn chart(given: Given<'_>, names: &[String], first: usize) -> Option<Chart> {
    let last = INKS.len() - 1;
    let (axis, unit) = given.axis;
    let mut rows = given.rows;
    let mut table = Table::new(&format!("{} | part | {unit}", given.row));
    for (label, parts) in &rows {
        for (name, amount) in parts {
            table.row(&[label, name, &figure(*amount, unit)]);
        }
    }
    let mut layers: Vec<Layer> = names
        .iter()
        .zip(first..)
        .map(|(name, ink)| Layer::new(name, ink % last))
        .collect();
    layers.push(Layer::new("all others", last));
    let mut about = given.about.to_owned();
    if rows.len() > MOST_ROWS {
        let all = |row: &Row| -> f64 { row.1.iter().map(|(_, amount)| amount).sum() };
        rows.sort_rows(|a, b| all(b).total_cmp(&all(a)));
        about += &format!(
            " The picture has the {MOST_ROWS} largest of {} rows, Figures has all.",
            rows.len()
        );
        rows.truncate(MOST_ROWS);
    }
    for (index, (_, parts)) in rows.iter().enumerate() {
        let mut from = 0.0;
        for (place, layer) in layers.iter_mut().enumerate() {
            let is_its = |name: &String| match names.iter().position(|known| known == name) {
                Some(known) => known == place,
                None => place == names.len(),
            };
            let amounts = parts
                .iter()
                .filter(|(name, amount)| is_its(name) && drawn(*amount));
            let amount: f64 = amounts.map(|(_, amount)| amount).sum();
            if drawn(amount) {
                layer
                    .shapes
                    .push(Shape::Bar(from, from + amount, index as f64));
                from += amount;
            }
        }
    }
    layers.retain(|layer| !layer.shapes.is_empty());
    if layers.is_empty() {
        return None;
    }
    let x = Axis::new(axis, unit, Scale::Linear);
    let labels = rows.into_iter().map(|(label, _)| label).collect();
    let chart = Chart::of_rows(given.title, about, x, labels);
    Some(Chart {
        layers,
        table,
        ..chart
    })
}

/// Returns whether a picture can hold the amount.
fn drawn(amount: f64) -> bool {
    amount > 0.0 && amount.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_end_to_end_and_keep_their_ink() {
        let parts = |amounts: &[f64]| -> Vec<(String, f64)> {
            amounts
                .iter()
                .enumerate()
                .map(|(i, a)| (format!("part {i}"), *a))
                .collect()
        };
        let given = |title: &str, rows| Given {
            title: String::from(title),
            about: "a",
            axis: ("time", "ns"),
            row: "call",
            rows,
        };
        let amounts = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, f64::NAN, -1.0];
        let rows = vec![("mmap".to_owned(), parts(&amounts))];
        let drawn = charts([given("t", rows)]);
        let bars = |chart: &Chart| -> Vec<(usize, f64, f64)> {
            let of = |layer: &Layer| {
                let bar = |shape: &Shape| match shape {
                    Shape::Bar(from, to, _) => (layer.ink, *from, *to),
                    other => panic!("{other:?}"),
                };
                layer.shapes.iter().map(bar).collect::<Vec<_>>()
            };
            chart.layers.iter().flat_map(of).collect()
        };
        assert_eq!(
            bars(&drawn[0]),
            [
                (0, 0.0, 9.0),
                (1, 9.0, 17.0),
                (2, 17.0, 24.0),
                (3, 24.0, 30.0),
                (4, 30.0, 35.0),
                (5, 35.0, 39.0),
                (6, 39.0, 42.0),
                (7, 42.0, 45.0)
            ]
        );
        assert_eq!(drawn[0].layers[7].name, "all others");
        let none = vec![("mmap".to_owned(), parts(&[0.0]))];
        assert!(charts([given("t", none)]).is_empty());
        // The second chart lacks the largest part of the first one, and keeps the others' inks.
        let one = vec![("a".to_owned(), parts(&[9.0, 3.0, 1.0]))];
        let mut other = one.clone();
        other[0].1.remove(0);
        let both = charts([given("one", one), given("other", other)]);
        let inks = |chart: &Chart| -> Vec<(String, usize)> {
            let layers = chart.layers.iter();
            layers
                .map(|layer| (layer.name.clone(), layer.ink))
                .collect()
        };
        let first = inks(&both[0]);
        assert_eq!(first.len(), 3);
        assert!(
            inks(&both[1]).iter().all(|one| first.contains(one)),
            "{first:?}"
        );
    }
}
