//! Cost against N, with the curve that describes it.

use stopgap_stats::growth::{Growth, Point, fit};
use stopgap_stats::quantile::median;

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, alike};
use super::side::{Measured, Side, interval};
use super::write::Table;
use crate::details::figure;
use crate::text::{number, thousands};

/// Points of a drawn curve.
const FINE: u32 = 60;

/// A ladder of N: one quantity, all else the same.
struct Ladder {
    name: String,
    unit: String,
    /// N and the runs' figures.
    points: Vec<(f64, Vec<f64>)>,
}

impl Ladder {
    /// The fitted growth, where there are enough points, each with the same number of runs.
    fn growth(&self) -> Option<Growth> {
        let runs = self.points.iter().map(|(_, runs)| runs.len()).min()?;
        let points: Vec<Point> = self
            .points
            .iter()
            .map(|(n, values)| Point {
                n: *n,
                runs: values[..runs].to_vec(),
            })
            .collect();
        fit(&points, 1).ok()
    }
}

/// A chart a side: groups whose unit is a time and that have three N or more.
pub(super) fn charts(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let mut ladders: Vec<Ladder> = groups
            .iter()
            .filter(|group| group[0].series.unit == "ns")
            .flat_map(|group| ladders(group, index))
            .collect();
        let left_out = ladders.len().saturating_sub(MOST);
        ladders.truncate(MOST);
        if ladders.is_empty() {
            continue;
        }
        let mut about = "Medians of runs with their 95 % interval; the broken line is the fitted curve, floor and slope \
                         of the simplest shape that describes the points."
            .to_owned();
        if left_out > 0 {
            about.push_str(&format!(" {left_out} more are in the record."));
        }
        let of = match sides.len() {
            1 => String::new(),
            _ => format!(", {}", side.name),
        };
        charts.push(Chart {
            title: format!("Cost against N{of}"),
            about,
            x: Axis::new("mappings, N", "", Scale::Log),
            y: Axis::new("time a call", "ns", Scale::Log),
            rows: Vec::new(),
            layers: ladders
                .iter()
                .enumerate()
                .map(|(ink, ladder)| layer(ladder, ink))
                .collect(),
            rule: None,
            table: table(&ladders),
            spans: None,
        });
    }
    alike(&mut charts);
    charts
}

fn ladders(group: &[Measured<'_>], side: usize) -> Vec<Ladder> {
    let mut found: Vec<(Vec<(&String, String)>, Ladder)> = Vec::new();
    for one in group {
        let Some(n) = one.series.number("n") else {
            continue;
        };
        let values: Vec<f64> = one.values(side).into_iter().filter(|v| *v > 0.0).collect();
        if values.is_empty() {
            continue;
        }
        let others: Vec<(&String, String)> = one
            .series
            .parameters
            .iter()
            .filter(|(key, _)| *key != "n")
            .map(|(key, value)| (key, crate::details::word(value)))
            .collect();
        let at = found
            .iter()
            .position(|(known, _)| *known == others)
            .unwrap_or_else(|| {
                let words: Vec<&str> = others.iter().map(|(_, word)| word.as_str()).collect();
                let ladder = Ladder {
                    name: format!(
                        "{} ({})",
                        crate::text::plain(&one.series.name),
                        words.join(", ")
                    ),
                    unit: one.series.unit.clone(),
                    points: Vec::new(),
                };
                found.push((others, ladder));
                found.len() - 1
            });
        found[at].1.points.push((n as f64, values));
    }
    let mut ladders: Vec<Ladder> = found.into_iter().map(|(_, ladder)| ladder).collect();
    ladders.retain(|ladder| ladder.points.len() >= 3);
    for ladder in &mut ladders {
        ladder.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    ladders
}

fn layer(ladder: &Ladder, ink: usize) -> Layer {
    let mut layer = Layer::new(&ladder.name, ink);
    let middles = ladder
        .points
        .iter()
        .filter_map(|(n, runs)| Some((*n, median(runs.clone())?)));
    layer.shapes.push(Shape::Marks(middles.collect()));
    for (n, runs) in &ladder.points {
        if let Some(interval) = interval(runs, 1) {
            layer
                .shapes
                .push(Shape::Upright(*n, interval.low, interval.high));
        }
    }
    if let (Some(growth), Some(first), Some(last)) =
        (ladder.growth(), ladder.points.first(), ladder.points.last())
    {
        let (from, to) = (first.0.max(1.0).ln(), last.0.max(1.0).ln());
        let at = |index: u32| {
            let n = (from + (to - from) * f64::from(index) / f64::from(FINE)).exp();
            (n, growth.floor + growth.slope * growth.shape.at(n))
        };
        layer
            .shapes
            .push(Shape::Dashed((0..=FINE).map(at).collect()));
    }
    layer
}

fn table(ladders: &[Ladder]) -> Table {
    let mut table = Table::new(&[
        "what",
        "N",
        "runs",
        "median",
        "fitted shape",
        "exponent",
        "times from least N of 1,000 on",
    ]);
    for ladder in ladders {
        let growth = ladder.growth();
        for (index, (n, runs)) in ladder.points.iter().enumerate() {
            let n = thousands(*n as u64);
            let once = |text: Option<String>| match (index, text) {
                (0, Some(text)) => text,
                _ => String::new(),
            };
            table.rows.push(vec![
                ladder.name.clone(),
                n,
                runs.len().to_string(),
                median(runs.clone()).map_or_else(String::new, |value| figure(value, &ladder.unit)),
                once(growth.as_ref().map(|growth| growth.shape.to_string())),
                once(growth.as_ref().and_then(|growth| {
                    let exponent = growth.exponent?;
                    Some(format!(
                        "{:.2} ({:.2}..{:.2})",
                        exponent.value, exponent.low, exponent.high
                    ))
                })),
                once(growth.as_ref().map(|growth| number(growth.ratio.value))),
            ]);
        }
    }
    table
}
