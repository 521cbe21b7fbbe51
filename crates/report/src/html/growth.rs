//! Cost against N, with the curve that describes it.

use stopgap_stats::bootstrap::median_over_runs;
use stopgap_stats::growth::{Growth, Point, fit};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Parameter, Series};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, alike};
use super::side::{Measured, Side};
use crate::details::word;
use crate::table::{Table, join, known_or};
use crate::text::{figure, number, thousands};

/// Points of a drawn curve.
const FINE: u32 = 60;

/// One quantity by N, all else the same.
struct Ladder<'a> {
    series: &'a Series,
    name: String,
    /// N and the runs' figures.
    points: Vec<Point>,
    /// The fitted growth, where there are enough points, each with the same number of runs.
    growth: Option<Growth>,
}

/// Returns a chart for each side: groups whose unit is a time and that have three N or more.
pub(super) fn charts(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let times = groups.iter().filter(|group| group[0].series.unit == "ns");
        let mut ladders: Vec<Ladder<'_>> = times.flat_map(|group| ladders(group, index)).collect();
        let left_out = ladders.len().saturating_sub(MOST);
        ladders.truncate(MOST);
        if ladders.is_empty() {
            continue;
        }
        let more = match left_out {
            0 => String::new(),
            more => format!(" {more} more are in the record."),
        };
        let about = format!(
            "Medians of runs with their 95 % interval; the broken line is the fitted curve, floor and slope \
             of the simplest shape that describes the points.{more}"
        );
        let x = Axis::new("mappings, N", "", Scale::Log);
        let y = Axis::new("time a call", "ns", Scale::Log);
        charts.push(Chart {
            layers: ladders
                .iter()
                .zip(0..)
                .map(|(ladder, ink)| layer(ladder, ink))
                .collect(),
            table: table(&ladders),
            ..Chart::new(format!("Cost against N{}", side.of), about, x, y)
        });
    }
    alike(&mut charts);
    charts
}

/// Returns the parameters of a series but N.
fn others(series: &Series) -> impl Iterator<Item = (&String, &Parameter)> {
    series.parameters.iter().filter(|(key, _)| *key != "n")
}

fn ladders<'a>(group: &[Measured<'a>], side: usize) -> Vec<Ladder<'a>> {
    let mut found: Vec<Ladder<'a>> = Vec::new();
    for one in group {
        let Some(n) = one.series.number("n") else {
            continue;
        };
        let runs: Vec<f64> = one.values(side).into_iter().filter(|v| *v > 0.0).collect();
        if runs.is_empty() {
            continue;
        }
        let point = Point { n: n as f64, runs };
        let same = |ladder: &&mut Ladder<'_>| others(ladder.series).eq(others(one.series));
        let words = join(others(one.series).map(|(_, value)| word(value)), ", ");
        match found.iter_mut().find(same) {
            Some(ladder) => ladder.points.push(point),
            None => found.push(Ladder {
                series: one.series,
                name: format!("{} ({words})", one.series.name),
                points: vec![point],
                growth: None,
            }),
        }
    }
    found.retain(|ladder| ladder.points.len() >= 3);
    for Ladder { points, growth, .. } in &mut found {
        points.sort_by(|a, b| a.n.total_cmp(&b.n));
        let runs = points
            .iter()
            .map(|point| point.runs.len())
            .min()
            .unwrap_or(0);
        let alike = points.iter().map(|point| Point {
            n: point.n,
            runs: point.runs[..runs].to_vec(),
        });
        *growth = fit(&alike.collect::<Vec<_>>(), 1).ok();
    }
    found
}

fn layer(ladder: &Ladder<'_>, ink: usize) -> Layer {
    let mut layer = Layer::new(&ladder.name, ink);
    let middle = |point: &Point| Some((point.n, median(point.runs.clone())?));
    layer.shapes.push(Shape::Marks(
        ladder.points.iter().filter_map(middle).collect(),
    ));
    for point in &ladder.points {
        let interval = median_over_runs(&point.runs, 1);
        layer
            .shapes
            .extend(interval.map(|i| Shape::Upright(point.n, i.low, i.high)));
    }
    if let (Some(growth), [first, .., last]) = (&ladder.growth, &ladder.points[..]) {
        let (from, to) = (first.n.max(1.0).ln(), last.n.max(1.0).ln());
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

fn table(ladders: &[Ladder<'_>]) -> Table {
    let mut table = Table::new(
        "what | N | runs | median | fitted shape | exponent | times from least N of 1,000 on",
    );
    for ladder in ladders {
        for (index, point) in ladder.points.iter().enumerate() {
            // The growth stands in the first row of its ladder.
            let growth = ladder.growth.as_ref().filter(|_| index == 0);
            let exponent = growth.and_then(|growth| growth.exponent.as_ref());
            let exponent =
                exponent.map(|e| format!("{:.2} ({:.2}..{:.2})", e.value, e.low, e.high));
            let middle = median(point.runs.clone()).map(|value| figure(value, &ladder.series.unit));
            table.row(&[
                &ladder.name,
                &thousands(point.n as u64),
                &point.runs.len(),
                &known_or("", middle),
                &known_or("", growth.map(|growth| &growth.shape)),
                &known_or("", exponent),
                &known_or("", growth.map(|growth| number(growth.ratio.value))),
            ]);
        }
    }
    table
}
