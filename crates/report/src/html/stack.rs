//! Bars of parts that add up, a row each.

use stopgap_events::order::SortRows;

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape};
use crate::table::Table;
use crate::text::figure;

/// Rows of a picture.
const MOST_ROWS: usize = 20;

/// A row: its label and its parts by name.
pub(super) type Row = (String, Vec<(String, f64)>);

/// Returns the chart; `None` where no part is above 0. Parts add up along `axis`, in `unit`; `row` heads the table's column of
/// rows. Parts keep their ink in all rows; those that come to least in all rows together share the last one.
pub(super) fn chart(
    title: &str,
    about: &str,
    (axis, unit): (&str, &str),
    row: &str,
    mut rows: Vec<Row>,
) -> Option<Chart> {
    let mut table = Table::new(&format!("{row} | part | {unit}"));
    let mut totals: Vec<(&String, f64)> = Vec::new();
    for (label, parts) in &rows {
        for (name, amount) in parts {
            table.row(&[label, name, &figure(*amount, unit)]);
            match totals.iter_mut().find(|(known, _)| *known == name) {
                _ if !drawn(*amount) => {}
                Some((_, total)) => *total += amount,
                None => totals.push((name, *amount)),
            }
        }
    }
    totals.sort_rows(|a, b| b.1.total_cmp(&a.1));
    if totals.is_empty() {
        return None;
    }
    let rest = totals.len() > MOST;
    totals.truncate(if rest { MOST - 1 } else { MOST });
    let names: Vec<String> = totals.iter().map(|(name, _)| (*name).clone()).collect();
    let layers = names
        .iter()
        .cloned()
        .chain(rest.then(|| "all others".to_owned()));
    let mut layers: Vec<Layer> = layers
        .zip(0..)
        .map(|(name, ink)| Layer::new(name, ink))
        .collect();
    let mut about = about.to_owned();
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
        for layer in &mut layers {
            let of_it = |name: &String| match names.contains(name) {
                true => *name == layer.name,
                false => layer.ink == names.len(),
            };
            let amounts = parts
                .iter()
                .filter(|(name, amount)| of_it(name) && drawn(*amount));
            let amount: f64 = amounts.map(|(_, amount)| amount).sum();
            if drawn(amount) {
                layer
                    .shapes
                    .push(Shape::Bar(from, from + amount, index as f64));
                from += amount;
            }
        }
    }
    let x = Axis::new(axis, unit, Scale::Linear);
    let labels = rows.into_iter().map(|(label, _)| label).collect();
    let chart = Chart::of_rows(title, about, x, labels);
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
    fn parts_stand_end_to_end_and_the_least_share_an_ink() {
        let parts = |amounts: &[f64]| -> Vec<(String, f64)> {
            amounts
                .iter()
                .enumerate()
                .map(|(i, a)| (format!("part {i}"), *a))
                .collect()
        };
        let chart = |rows| chart("t", "a", ("time", "ns"), "call", rows);
        let rows = [(
            "mmap".to_owned(),
            parts(&[9.0, 8.0, 7.0, 6.0, 5.0, 2.0, 1.0, f64::NAN, -1.0]),
        )];
        let drawn = chart(rows.into()).expect("parts");
        let ends: Vec<(f64, f64)> = drawn
            .layers
            .iter()
            .flat_map(|layer| &layer.shapes)
            .map(|shape| match shape {
                Shape::Bar(from, to, _) => (*from, *to),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            ends,
            [
                (0.0, 9.0),
                (9.0, 17.0),
                (17.0, 24.0),
                (24.0, 30.0),
                (30.0, 35.0),
                (35.0, 38.0)
            ]
        );
        assert!(chart(vec![("mmap".to_owned(), parts(&[0.0]))]).is_none());
    }
}
