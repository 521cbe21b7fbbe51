//! Latency by percentile, each nine as wide as the one before.

use stopgap_events::units::Nanos;
use stopgap_stats::bootstrap::median_over_runs;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{BEYOND, label, quantile};

use super::chart::{Axis, Chart, Layer, MOST, Point, Scale, Shape, alike};
use super::side::{Measured, Side};
use crate::table::{Table, known_or};
use crate::text::thousands;

/// Percentiles that get an interval.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Returns the picture of each side. All have the same axes.
pub(super) fn charts(what: &str, group: &[Measured<'_>], sides: &[Side<'_>]) -> Vec<Chart> {
    let mut tails = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let with = group.iter().map(|one| (one, one.pooled(index)));
        let with: Vec<(&Measured<'_>, Histogram)> =
            with.filter(|(_, all)| !all.is_empty()).collect();
        if with.is_empty() {
            continue;
        }
        let shown = spread(&with);
        let left_out = match with.len() - shown.len() {
            0 => String::new(),
            more => format!(" Figures has {more} more."),
        };
        let about = format!(
            "The share of samples that took at most so long (HDR plot). A broken line has fewer than {BEYOND} samples \
             beyond it. A mark with a bar is the median of the runs' percentiles with its 95 % interval.{left_out}"
        );
        let x = Axis::new("share of samples at or below", "%", Scale::Tail);
        let y = Axis::new("latency", "ns", Scale::Log);
        tails.push(Chart {
            layers: shown
                .iter()
                .zip(0..)
                .map(|(one, ink)| percentiles(one, index, ink))
                .collect(),
            table: table(&with),
            ..Chart::new(format!("{what}, by percentile{}", side.of), about, x, y)
        });
    }
    alike(&mut tails);
    tails
}

/// Returns as many as a picture can hold, evenly from the first to the last.
fn spread<T>(all: &[T]) -> Vec<&T> {
    if all.len() <= MOST {
        return all.iter().collect();
    }
    (0..MOST)
        .map(|index| &all[index * (all.len() - 1) / (MOST - 1)])
        .collect()
}

/// Returns latency and the share of samples at or below it.
fn steps(histogram: &Histogram) -> Vec<Point> {
    let all = histogram.len() as f64;
    let mut below = 0_u64;
    let step = |(ns, count): (u64, u64)| {
        below += count;
        (ns.max(1) as f64, below as f64 / all)
    };
    histogram.buckets().map(step).collect()
}

fn percentiles(
    (measured, histogram): &(&Measured<'_>, Histogram),
    side: usize,
    ink: usize,
) -> Layer {
    let mut layer = Layer::new(&measured.label, ink);
    let all = histogram.len() as f64;
    let (mut sure, mut thin) = (Vec::new(), Vec::new());
    let mut before = 0.0;
    for (ns, share) in steps(histogram) {
        // A step spans shares; the last of them has half a sample beyond it.
        for share in [before, share.min(1.0 - 0.5 / all)] {
            if (1.0 - share) * all >= BEYOND as f64 {
                sure.push((share, ns));
            } else {
                if thin.is_empty() {
                    thin.extend(sure.last().copied());
                }
                thin.push((share, ns));
            }
        }
        before = share;
    }
    layer
        .shapes
        .extend([Shape::Line(sure), Shape::Dashed(thin)]);
    let mut marks = Vec::new();
    for q in PERCENTILES {
        let runs = measured.blocks[side].iter();
        let runs = runs.filter_map(|block| quantile(block.histogram.as_ref()?, q).ok());
        let runs: Vec<f64> = runs.map(|ns| ns.max(1) as f64).collect();
        if let Some(interval) = median_over_runs(&runs, 1) {
            layer
                .shapes
                .push(Shape::Upright(q, interval.low, interval.high));
            marks.push((q, interval.value));
        }
    }
    layer.shapes.push(Shape::Marks(marks));
    layer
}

fn table(all: &[(&Measured<'_>, Histogram)]) -> Table {
    let percentiles = PERCENTILES.iter().map(|&q| label(q));
    let head = ["what", "samples", "least"].map(str::to_owned).into_iter();
    let mut table = Table::with_heads(head.chain(percentiles).chain(["longest".to_owned()]));
    for (measured, histogram) in all {
        let tail = PERCENTILES.iter().map(|&q| quantile(histogram, q).ok());
        let times = [histogram.min()]
            .into_iter()
            .chain(tail)
            .chain([histogram.max()]);
        let mut row = vec![measured.label.clone(), thousands(histogram.len())];
        row.extend(times.map(|ns| known_or("n too small", ns.map(Nanos))));
        table.rows.push(row);
    }
    table
}
