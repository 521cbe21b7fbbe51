//! One answer in depth: the verdict, its evidence, a row a series, what is missing.

use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{label, quantile};
use stopgap_stats::record::{Answer, Parameter, Series};

use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands};

/// Tail quantiles that a latency's row shows.
const TAILS: [f64; 2] = [0.99, 0.999];

/// The text of an answer.
#[must_use]
pub fn answer(answer: &Answer, style: Style) -> String {
    let mut text = format!("{}: {}\n", answer.question, plain(&answer.verdict.text));
    for evidence in &answer.evidence {
        text.push_str(&format!("  {}\n", plain(evidence)));
    }
    for advice in &answer.advice {
        text.push_str(&format!("  try: {}\n", plain(advice)));
    }
    if !answer.series.is_empty() {
        text.push('\n');
        text.push_str(&series_table(&answer.series, style));
    }
    if !answer.losses.is_empty() {
        let losses: Vec<String> = answer
            .losses
            .iter()
            .map(|loss| format!("{} {}", plain(&loss.name), thousands(loss.value)))
            .collect();
        text.push_str(&format!("\nlost: {}\n", losses.join(", ")));
    }
    for missing in &answer.missing {
        text.push_str(&format!(
            "unknown: {}: {}\n",
            plain(&missing.what),
            plain(&missing.why)
        ));
    }
    text
}

fn series_table(series: &[Series], style: Style) -> String {
    let mut head = vec![
        "series", "unit", "runs", "samples", "least", "middle", "most",
    ];
    let tails = TAILS.map(label);
    head.extend(tails.iter().map(String::as_str));
    head.push("max");
    let mut right = vec![false, false];
    right.resize(head.len(), true);
    let rows = series.iter().map(row).collect();
    let note = "least, middle, most: of the runs' figures. p99 and max: of all samples.\n";
    plain_table(&head, rows, &right, style) + note
}

fn name(series: &Series) -> String {
    let parameters: Vec<String> = series
        .parameters
        .iter()
        .map(|(key, value)| match value {
            Parameter::Number(number) => format!("{key}={number}"),
            Parameter::Word(word) => word.clone(),
        })
        .collect();
    plain(&format!("{} {}", series.name, parameters.join(" ")))
}

fn row(series: &Series) -> Vec<String> {
    let mut cells = vec![name(series)];
    if let Some(error) = &series.error {
        cells.push(plain(error));
        return cells;
    }
    let mut figures: Vec<f64> = series.blocks.iter().map(|block| block.value).collect();
    figures.sort_by(f64::total_cmp);
    let samples: u64 = series.blocks.iter().map(|block| block.samples).sum();
    let at = |index: usize| figures.get(index).map_or_else(String::new, |&v| number(v));
    cells.extend([
        plain(&series.unit),
        figures.len().to_string(),
        thousands(samples),
        at(0),
        at(figures.len().saturating_sub(1) / 2),
        at(figures.len().saturating_sub(1)),
    ]);
    let mut pooled = Histogram::new();
    for histogram in series.blocks.iter().filter_map(|b| b.histogram.as_ref()) {
        pooled.merge(histogram);
    }
    if let Some(max) = pooled.max() {
        cells.extend(TAILS.map(|q| match quantile(&pooled, q) {
            Ok(ns) => thousands(ns),
            Err(_) => "n too small".to_owned(),
        }));
        cells.push(thousands(max));
    }
    cells
}
