//! Samples -> the answer. Pure.
//!
//! | seen | verdict |
//! |---|---|
//! | the device gave back other data | `inconclusive`: what was mapped is not what it reached |
//! | the smallest pages cost at least twice the largest, in all of the interval | `excess` |
//! | their interval ends below 2 | `clean` |
//! | else | `inconclusive` |

use std::collections::BTreeMap;

use stopgap_events::machine::Privilege;
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::bootstrap::over_runs;
use stopgap_stats::quantile::median;
use stopgap_stats::record::{Answer, Figure, Parameter, Series};
use stopgap_stats::verdict::{Verdict, Word, format_interval};

use super::probe::{COPIED, ENTRIES, RUNS, STEPS, TABLES, VfioProbe, WRONG};
use crate::contract::{Judgement, Measured, Parameters};

/// From what factor on small pages cost more than they must.
const EXCESS: f64 = 2.0;

pub(super) fn judge(
    probe: &VfioProbe,
    measured: Measured,
    parameters: Parameters,
    seed: u64,
    privilege: Privilege,
) -> Answer {
    let costs: Vec<(Bytes, BTreeMap<u32, f64>)> = {
        let mut pages = probe.pages.clone();
        pages.sort_unstable();
        let of = pages
            .into_iter()
            .map(|page| (page, cost(&measured.series, page)));
        of.filter(|(_, runs)| !runs.is_empty()).collect()
    };
    let (mut verdict, figure) = compare(probe, &costs, seed);
    if let Some(wrong) = measured
        .missing
        .iter()
        .find(|missing| missing.what.starts_with(WRONG))
    {
        let why = format!(
            "{}: {}: the device did not reach what was mapped",
            wrong.what, wrong.why
        );
        verdict = Verdict::inconclusive(&why);
    }
    let evidence = costs
        .iter()
        .map(|(page, runs)| sentence(&measured.series, *page, runs))
        .collect();
    let advice = match verdict.word {
        Word::Excess => vec!["take buffers for devices in the largest pages that are to be had: stopgap advise chunks".to_owned()],
        _ => Vec::new(),
    };
    let judgement = Judgement {
        verdict: measured.without_figures().unwrap_or(verdict),
        figure,
        evidence,
        advice,
    };
    measured.into_answer(Question::Chunks, parameters, privilege, judgement)
}

fn is_of(series: &Series, name: &str, page: Bytes) -> bool {
    series.is(name, &[("page", page.short().into())])
}

/// What mapping and unmapping cost in pages of this size: the sum of both medians, by run, of runs that have both.
fn cost(series: &[Series], page: Bytes) -> BTreeMap<u32, f64> {
    let mut runs: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
    for step in STEPS {
        for one in series.iter().filter(|one| is_of(one, step.word(), page)) {
            for block in &one.blocks {
                let (sum, parts) = runs.entry(block.run).or_default();
                *sum += block.value;
                *parts += 1;
            }
        }
    }
    let whole = runs
        .into_iter()
        .filter(|(_, (_, parts))| *parts == STEPS.len());
    whole.map(|(run, (sum, _))| (run, sum)).collect()
}

/// The smallest pages against the largest, run by run.
fn compare(
    probe: &VfioProbe,
    costs: &[(Bytes, BTreeMap<u32, f64>)],
    seed: u64,
) -> (Verdict, Option<Figure>) {
    let [(small, of_small), .., (large, of_large)] = costs else {
        return (
            Verdict::inconclusive("fewer than two sizes of page could be measured"),
            None,
        );
    };
    let ratios: Vec<f64> = of_small
        .iter()
        .filter_map(|(run, small)| Some(small / of_large.get(run)?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    let Some(value) = median(ratios.clone()) else {
        return (Verdict::inconclusive("no run has both"), None);
    };
    let interval = over_runs(&ratios, seed, |runs| {
        median(runs.iter().map(|ratio| ratio.ln()).collect())
    });
    let figure = Figure {
        low: interval.map(|interval| interval.low.exp()),
        high: interval.map(|interval| interval.high.exp()),
        ..Figure::new(value, "x")
    };
    let what = format!(
        "{} for DMA in pages of {} cost that of pages of {}",
        probe.size.short(),
        small.short(),
        large.short()
    );
    let verdict = match (figure.low, figure.high) {
        (Some(low), Some(high)) => {
            let times = format_interval(value, low, high, "x");
            match (low >= EXCESS, high < EXCESS) {
                (true, _) => Verdict::new(Word::Excess, format!("excess {times}: {what}")),
                (_, true) => Verdict::new(Word::Clean, format!("clean: {what}, {times}")),
                _ => Verdict::inconclusive(&format!("{what}, {times}")),
            }
        }
        _ => Verdict::inconclusive(&format!(
            "{what}, {value:.1}x, in too few runs for an interval"
        )),
    };
    (verdict, Some(figure))
}

/// `pages of 4K: 812.3 us to map and unmap 4M, 1024 entries (computed), 3 pages of tables, 32 KiB copied and compared`.
fn sentence(series: &[Series], page: Bytes, runs: &BTreeMap<u32, f64>) -> String {
    let us = median(runs.values().copied().collect()).unwrap_or(f64::NAN) / 1_000.0;
    let first = |name: &str| series.iter().find(|one| is_of(one, name, page));
    let number = |one: &Series| one.blocks.first().map(|block| block.value);
    let mut text = format!("pages of {}: {us:.1} us to map and unmap", page.short());
    match first(ENTRIES).and_then(|one| Some((number(one)?, one.parameters.get("source")?))) {
        Some((entries, Parameter::Word(source))) => {
            text.push_str(&format!(", {entries} IOMMU entries ({source})"));
        }
        _ => text.push_str(", IOMMU entries unknown"),
    }
    if let Some(runs) = first(RUNS).and_then(number) {
        text.push_str(&format!(", {runs} {RUNS}"));
    }
    if let Some(pages) = first(TABLES).and_then(number) {
        text.push_str(&format!(", {pages} {TABLES}"));
    }
    if let Some(bytes) = first(COPIED).and_then(number) {
        text.push_str(&format!(", {} {COPIED}", Bytes(bytes as u64)));
    }
    text
}
