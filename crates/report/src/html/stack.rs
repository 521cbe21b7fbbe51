//! Bars of parts that add up, a row each.

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape};
use super::write::Table;
use crate::details::figure;

/// Rows of a picture.
const MOST_ROWS: usize = 20;

/// A row: its label and its parts by name.
pub(super) type Row = (String, Vec<(String, f64)>);

/// What a stack of parts is of.
pub(super) struct Words<'a> {
    pub(super) title: &'a str,
    pub(super) about: &'a str,
    /// Title of the axis that parts add up along.
    pub(super) axis: &'a str,
    /// Their unit.
    pub(super) unit: &'a str,
    /// What a row is.
    pub(super) row: &'a str,
}

/// The chart; `None` where no part is above 0. Parts keep their ink in all rows; those that come to least in all rows
/// together share the last one.
pub(super) fn chart(words: &Words<'_>, rows: &[Row]) -> Option<Chart> {
    let mut totals: Vec<(String, f64)> = Vec::new();
    for (name, amount) in rows.iter().flat_map(|(_, parts)| parts) {
        let amount = if *amount > 0.0 && amount.is_finite() {
            *amount
        } else {
            0.0
        };
        match totals.iter_mut().find(|(known, _)| known == name) {
            Some((_, total)) => *total += amount,
            None => totals.push((name.clone(), amount)),
        }
    }
    totals.retain(|(_, total)| *total > 0.0);
    totals.sort_by(|a, b| b.1.total_cmp(&a.1));
    if totals.is_empty() {
        return None;
    }
    let rest = totals.len() > MOST;
    let own = if rest { MOST - 1 } else { totals.len() };
    let names: Vec<String> = totals
        .iter()
        .take(own)
        .map(|(name, _)| name.clone())
        .collect();
    let mut layers: Vec<Layer> = names
        .iter()
        .enumerate()
        .map(|(ink, name)| Layer::new(name, ink))
        .collect();
    if rest {
        layers.push(Layer::new("all others", MOST - 1));
    }
    let mut chosen: Vec<&Row> = rows.iter().collect();
    if rows.len() > MOST_ROWS {
        let all = |row: &Row| -> f64 { row.1.iter().map(|(_, amount)| amount).sum() };
        chosen.sort_by(|a, b| all(b).total_cmp(&all(a)));
    }
    let shown = &chosen[..rows.len().min(MOST_ROWS)];
    for (index, (_, parts)) in shown.iter().enumerate() {
        let y = index as f64;
        let mut from = 0.0;
        for layer in &mut layers {
            let of_it = |name: &String| match names.contains(name) {
                true => *name == layer.name,
                false => rest && layer.ink == MOST - 1,
            };
            let amount: f64 = parts
                .iter()
                .filter(|(name, amount)| of_it(name) && *amount > 0.0)
                .map(|(_, amount)| amount)
                .sum();
            if amount > 0.0 && amount.is_finite() {
                layer.shapes.push(Shape::Bar(from, from + amount, y));
                from += amount;
            }
        }
    }
    let mut about = words.about.to_owned();
    if rows.len() > shown.len() {
        about.push_str(&format!(
            " {} of {} rows, the largest first; the rest is in the record.",
            shown.len(),
            rows.len()
        ));
    }
    let mut table = Table::new(&[words.row, "part", words.unit]);
    for (label, parts) in rows {
        for (name, amount) in parts {
            let cells = [label.clone(), name.clone(), figure(*amount, words.unit)];
            table.rows.push(cells.to_vec());
        }
    }
    Some(Chart {
        title: words.title.to_owned(),
        about,
        x: Axis::new(words.axis, words.unit, Scale::Linear),
        y: Axis::new("rows", "", Scale::Rows),
        rows: shown.iter().map(|(label, _)| label.clone()).collect(),
        layers,
        rule: None,
        table,
        spans: None,
    })
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
        let words = Words {
            title: "t",
            about: "a",
            axis: "time",
            unit: "ns",
            row: "call",
        };
        let rows = [(
            "mmap".to_owned(),
            parts(&[9.0, 8.0, 7.0, 6.0, 5.0, 2.0, 1.0, f64::NAN, -1.0]),
        )];
        let chart = chart(&words, &rows).expect("parts");
        let ends: Vec<(f64, f64)> = chart
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
        assert!(super::chart(&words, &[("mmap".to_owned(), parts(&[0.0]))]).is_none());
    }
}
