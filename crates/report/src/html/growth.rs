//! Cost against N, with the curve that describes it.

use stopgap_events::order::SortRows;
use stopgap_stats::bootstrap::median_over_runs;
use stopgap_stats::growth::{Growth, Point, fit};
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Parameter, Series};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, alike};
use super::side::{Measured, Side, named};
use super::words;
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

/// The calls of a cycle, and the series of the control, whose cost grows with N on every kernel.
const CYCLE: [&str; 3] = ["map", "first touch", "unmap"];
const CONTROL: &str = "read /proc/self/maps";

/// Returns a chart of whole cycles for each side, with the control.
pub(super) fn cycles(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let about = "A mark is the median of the runs with its 95 % interval, a broken line the fitted curve. Reading /proc/self/maps is the control: \
                 its cost has to grow with the number of mappings.";
    let of = |side: usize| {
        let parts = CYCLE.map(|name| ladders(named(groups, name), side));
        let mut all = sums(parts);
        if !all.is_empty() {
            all.extend(ladders(named(groups, CONTROL), side));
        }
        all
    };
    let title = "Time to map, touch and unmap beside N mappings";
    charts(title, "time per cycle", about, sides, of)
}

/// Returns a chart of single calls for each side.
pub(super) fn calls(groups: &[Vec<Measured<'_>>], sides: &[Side<'_>]) -> Vec<Chart> {
    let about = "A mark is the median of the runs with its 95 % interval, a broken line a floor and a slope of the simplest shape \
                 that describes the points.";
    let of = |side: usize| {
        let times = groups.iter().filter(|group| group[0].series.unit == "ns");
        times.flat_map(|group| ladders(group, side)).collect()
    };
    charts(
        "Time per call beside N mappings",
        "time per call",
        about,
        sides,
        of,
    )
}

/// Returns a chart of the ladders of each side.
fn charts<'a>(
    title: &str,
    time: &str,
    about: &str,
    sides: &[Side<'_>],
    of: impl Fn(usize) -> Vec<Ladder<'a>>,
) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let mut ladders = of(index);
        let left_out = ladders.len().saturating_sub(MOST);
        ladders.truncate(MOST);
        if ladders.is_empty() {
            continue;
        }
        let more = match left_out {
            0 => String::new(),
            more => format!(" The record has {more} more."),
        };
        let x = Axis::new("mappings, N", "", Scale::Log);
        let y = Axis::new(time, "ns", Scale::Log);
        charts.push(Chart {
            layers: ladders
                .iter()
                .zip(0..)
                .map(|(ladder, ink)| layer(ladder, ink))
                .collect(),
            table: table(&ladders),
            ..Chart::new(
                format!("{title}{}", side.of),
                format!("{about}{more}"),
                x,
                y,
            )
        });
    }
    alike(&mut charts);
    charts
}

/// Returns the sums of the calls of a cycle, run by run; only where each call has a figure of each run.
fn sums([maps, touches, unmaps]: [Vec<Ladder<'_>>; 3]) -> Vec<Ladder<'_>> {
    let mut cycles = maps;
    for part in [touches, unmaps] {
        cycles.retain_mut(|cycle| {
            let same = |ladder: &&Ladder<'_>| others(ladder.series).eq(others(cycle.series));
            let Some(ladder) = part.iter().find(same) else {
                return false;
            };
            let as_many = cycle.points.len() == ladder.points.len();
            let mut pairs = cycle.points.iter_mut().zip(&ladder.points);
            as_many
                && pairs.all(|(sum, more)| {
                    for (sum, more) in sum.runs.iter_mut().zip(&more.runs) {
                        *sum += more;
                    }
                    sum.n.total_cmp(&more.n).is_eq() && sum.runs.len() == more.runs.len()
                })
        });
    }
    for cycle in &mut cycles {
        cycle.name = named_with("map, touch and unmap", cycle.series);
        cycle.fit();
    }
    cycles
}

/// Returns a quantity with the parameters of a series in words, but N.
fn named_with(what: &str, series: &Series) -> String {
    let words = others(series).filter_map(|(key, value)| words::parameter(key, value));
    match join(words, ", ") {
        none if none.is_empty() => what.to_owned(),
        words => format!("{what} ({words})"),
    }
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
        match found.iter_mut().find(same) {
            Some(ladder) => ladder.points.push(point),
            None => found.push(Ladder {
                series: one.series,
                name: named_with(&one.series.name, one.series),
                points: vec![point],
                growth: None,
            }),
        }
    }
    found.retain(|ladder| ladder.points.len() >= 3);
    for ladder in &mut found {
        ladder.points.sort_rows(|a, b| a.n.total_cmp(&b.n));
        ladder.fit();
    }
    found
}

impl Ladder<'_> {
    /// Fits the curve to as many runs as every point has.
    fn fit(&mut self) {
        let runs = self.points.iter().map(|point| point.runs.len()).min();
        let alike = self.points.iter().map(|point| Point {
            n: point.n,
            runs: point.runs[..runs.unwrap_or(0)].to_vec(),
        });
        self.growth = fit(&alike.collect::<Vec<_>>(), 1).ok();
    }
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
        "what | N | runs | median | fitted shape | exponent | cost at the largest N over cost at 1,000",
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
