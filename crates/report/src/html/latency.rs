//! Latency as a distribution: which share took at most so long, and the tail by percentile.

use stopgap_events::units::Nanos;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{BEYOND, label, quantile};

use super::chart::{Axis, Chart, Layer, MOST, Scale, Shape, alike};
use super::side::{Measured, Side, interval};
use super::write::Table;

/// Percentiles that get an interval.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Both pictures of each side, which have the same axes on all of them.
pub(super) fn charts(what: &str, group: &[&Measured<'_>], sides: &[Side<'_>]) -> Vec<Chart> {
    let (mut shares, mut tails) = (Vec::new(), Vec::new());
    for (index, side) in sides.iter().enumerate() {
        let with: Vec<(&Measured<'_>, Histogram)> = group
            .iter()
            .map(|one| (*one, pooled(one, index)))
            .filter(|(_, histogram)| !histogram.is_empty())
            .collect();
        if with.is_empty() {
            continue;
        }
        let shown = spread(&with);
        let of = match sides.len() {
            1 => String::new(),
            _ => format!(", {}", side.name),
        };
        let left_out = match with.len() - shown.len() {
            0 => String::new(),
            more => format!(" {more} more are in the table."),
        };
        let chart = |title: String, about: String, x: Axis, y: Axis, layers: Vec<Layer>| Chart {
            title,
            about: about + &left_out,
            x,
            y,
            rows: Vec::new(),
            layers,
            rule: None,
            table: table(&with),
            spans: None,
        };
        shares.push(chart(
            format!("{what}: how many took how long{of}"),
            "Share of all samples of all runs that took at most so long (ECDF); a steep line is steady, a shelf at \
             the top is a tail."
                .to_owned(),
            Axis::new("latency", "ns", Scale::Log),
            Axis::new("share of samples at or below", "%", Scale::Linear),
            shown.iter().enumerate().map(|(ink, one)| ecdf(one, ink)).collect(),
        ));
        tails.push(chart(
            format!("{what}: the tail{of}"),
            format!(
                "Latency by percentile, each nine as wide as the one before (HDR plot). Broken lines have fewer than \
                 {BEYOND} samples beyond them; marks with bars are medians of the runs' percentiles with their 95 % \
                 interval."
            ),
            Axis::new("share of samples at or below", "%", Scale::Tail),
            Axis::new("latency", "ns", Scale::Log),
            shown
                .iter()
                .enumerate()
                .map(|(ink, one)| percentiles(one, index, ink))
                .collect(),
        ));
    }
    alike(&mut shares);
    alike(&mut tails);
    shares.extend(tails);
    shares
}

/// All samples of a side.
fn pooled(measured: &Measured<'_>, side: usize) -> Histogram {
    let mut pooled = Histogram::new();
    for histogram in measured.blocks[side]
        .iter()
        .filter_map(|block| block.histogram.as_ref())
    {
        pooled.merge(histogram);
    }
    pooled
}

/// As many as a picture can hold, evenly from the first to the last.
fn spread<T>(all: &[T]) -> Vec<&T> {
    if all.len() <= MOST {
        return all.iter().collect();
    }
    (0..MOST)
        .map(|index| &all[index * (all.len() - 1) / (MOST - 1)])
        .collect()
}

/// Latency and the share of samples at or below it.
fn steps(histogram: &Histogram) -> Vec<(f64, f64)> {
    let all = histogram.len() as f64;
    let mut below = 0_u64;
    let step = |(ns, count): (u64, u64)| {
        below += count;
        (ns.max(1) as f64, below as f64 / all)
    };
    histogram.buckets().map(step).collect()
}

fn ecdf((measured, histogram): &(&Measured<'_>, Histogram), ink: usize) -> Layer {
    let mut layer = Layer::new(&measured.label, ink);
    let steps = steps(histogram);
    // Each value begins where the share before it ends.
    let mut line = Vec::with_capacity(2 * steps.len());
    let mut share = 0.0;
    for &(ns, at) in &steps {
        line.push((ns, 100.0 * share));
        line.push((ns, 100.0 * at));
        share = at;
    }
    layer.shapes.push(Shape::Line(line));
    // One mark a quarter tells lines apart that cross.
    let quarters = [0.25, 0.5, 0.75].into_iter().filter_map(|quarter| {
        let (ns, _) = steps.iter().find(|(_, share)| *share >= quarter)?;
        Some((*ns, 100.0 * quarter))
    });
    layer.shapes.push(Shape::Marks(quarters.collect()));
    layer
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
            let beyond = (1.0 - share) * all;
            if beyond >= BEYOND as f64 {
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
    layer.shapes.push(Shape::Line(sure));
    layer.shapes.push(Shape::Dashed(thin));
    let mut marks = Vec::new();
    for q in PERCENTILES {
        let runs: Vec<f64> = measured.blocks[side]
            .iter()
            .filter_map(|block| quantile(block.histogram.as_ref()?, q).ok())
            .map(|ns| ns.max(1) as f64)
            .collect();
        if let Some(interval) = interval(&runs, 1) {
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
    let mut head = vec!["what".to_owned(), "samples".to_owned(), "least".to_owned()];
    head.extend(PERCENTILES.iter().map(|&q| label(q)));
    head.push("longest".to_owned());
    let show =
        |ns: Option<u64>| ns.map_or_else(|| "n too small".to_owned(), |ns| Nanos(ns).to_string());
    let row = |(measured, histogram): &(&Measured<'_>, Histogram)| {
        let mut row = vec![
            measured.label.clone(),
            crate::text::thousands(histogram.len()),
            show(histogram.min()),
        ];
        row.extend(
            PERCENTILES
                .iter()
                .map(|&q| show(quantile(histogram, q).ok())),
        );
        row.push(show(histogram.max()));
        row
    };
    Table {
        head,
        rows: all.iter().map(row).collect(),
        marked: Vec::new(),
    }
}
