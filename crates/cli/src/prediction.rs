//! The model's word beside a measurement: what the same buffers would cost on a memory that was taken
//! over page by page from the machine just before.

use std::collections::BTreeMap;

use stopgap_chunks::policy::Effort;
use stopgap_events::question::Question;
use stopgap_events::snapshot::{Kind, Snapshot, Zone};
use stopgap_events::units::Bytes;
use stopgap_models::chunks::cost::Counts;
use stopgap_models::chunks::faults::Faults;
use stopgap_models::chunks::machine::Setting;
use stopgap_models::chunks::scenario::Scenario;
use stopgap_models::chunks::scenario::snapshot::{Assumptions, Frames, machine};
use stopgap_probes::chunks::{Ranking, Strategy};
use stopgap_stats::prices::{Row, fit};
use stopgap_stats::record::{Answer, Block, Parameter, Series};

use crate::failure::Failure;
use crate::session::Session;
use crate::{output, prices, snapshot};

/// Name of the series of what the model predicts.
const PREDICTED: &str = "take by the model";

/// The model's work for a buffer.
struct Predicted {
    strategy: Strategy,
    ns: f64,
    counts: Counts,
}

/// Keeps the prices that a probe of `chunks` shows and its snapshots as files beside its record, if it writes one, and adds what the model
/// makes of the first snapshot to the last answer.
pub(crate) fn add(session: &mut Session, snapshots: &[Snapshot]) -> Result<(), Failure> {
    let answer = session.run.answers.last();
    let Some(answer) = answer.filter(|answer| answer.question == Question::Chunks) else {
        return Ok(());
    };
    let mut evidence = Vec::new();
    let mut rows = Vec::new();
    if let Some((prices, buffers)) = prices::fitted(session, answer) {
        evidence.extend(prices::keep(session, &prices)?);
        rows = buffers;
    } else {
        evidence.push("prices here: unknown: it takes three runs".to_owned());
    }
    let kept = session.records.iter().flat_map(|directory| {
        let snapshots = snapshots.iter().zip(["before", "after"]);
        snapshots.map(move |(snapshot, when)| (directory, snapshot, when))
    });
    for (directory, snapshot, when) in kept {
        let name = format!("snapshot-{when}");
        let path = directory.join(output::name(&name, session.run.started_unix_s));
        snapshot::save(snapshot, &path)?;
        evidence.push(format!("snapshot {when}: {}", path.display()));
    }
    let swap = session
        .environment()
        .swap_size
        .is_some_and(|size| size > Bytes(0));
    let Some(answer) = session.run.answers.last_mut() else {
        return Ok(());
    };
    if let Some(snapshot) = snapshots.first() {
        let lines = predictions(snapshot, swap, answer, &rows);
        answer.evidence.extend(lines);
    }
    answer.evidence.extend(evidence);
    Ok(())
}

/// One line a buffer size; its times become series of the answer.
fn predictions(snapshot: &Snapshot, swap: bool, answer: &mut Answer, rows: &[Row]) -> Vec<String> {
    let assumptions = Assumptions {
        swap,
        ..Assumptions::default()
    };
    let pinned = pinned(snapshot, answer);
    let sizes: BTreeMap<u64, Vec<Strategy>> = measured(answer);
    let mut lines = Vec::new();
    for (size, strategies) in sizes {
        let size = Bytes(size);
        let predicted = match predict(snapshot, &assumptions, &pinned, size, &strategies, rows) {
            Ok(predicted) => predicted,
            Err(why) => {
                lines.push(format!("the model: unknown: {why}"));
                continue;
            }
        };
        lines.push(told(answer, size, &predicted));
        answer
            .series
            .extend(predicted.iter().flat_map(|one| series(size, one)));
    }
    lines
}

/// The frames that the probe pinned: of single pages between free ones, every k-th. A snapshot does not
/// tell pins; the probe knows its own.
fn pinned(snapshot: &Snapshot, answer: &Answer) -> Vec<u64> {
    let counted = |name: &str| answer.counters.iter().find(|of| of.name == name);
    let made = counted("kept_one_in").zip(counted("pinned_bytes"));
    let Some((kept, _)) = made.filter(|(_, pinned)| pinned.value > 0) else {
        return Vec::new();
    };
    let runs = snapshot.zones.iter().filter_map(Zone::runs).flatten();
    runs.filter(|run| run.kind == Kind::Anonymous && run.pages.0 < kept.value)
        .flat_map(|run| run.start..run.start + run.pages.0)
        .filter(|frame| frame.is_multiple_of(kept.value))
        .collect()
}

/// Strategies by buffer size, as far as both were taken.
fn measured(answer: &Answer) -> BTreeMap<u64, Vec<Strategy>> {
    let mut sizes: BTreeMap<u64, Vec<Strategy>> = BTreeMap::new();
    for series in answer.series.iter().filter(|series| series.name == "take") {
        let size: Option<Bytes> = series.word("size").and_then(|word| word.parse().ok());
        let strategy: Option<Strategy> = series.word("strategy").and_then(|word| word.parse().ok());
        if let (Some(size), Some(strategy), false) = (size, strategy, series.blocks.is_empty()) {
            sizes.entry(size.0).or_default().push(strategy);
        }
    }
    sizes
}

/// Returns how faults carry a strategy out; `None` where it takes more than faults.
fn faults(strategy: Strategy, page: Bytes) -> Option<Faults> {
    let order = |size: Bytes| (size.0 / page.0).checked_ilog2();
    // A table of the page's size with 8-byte entries, as the probe has it.
    let pmd = order(Bytes(page.0 * (page.0 / 8)))?;
    let (orders, effort) = match strategy {
        Strategy::Base => (Vec::new(), Effort::NoReclaim),
        Strategy::Mthp(size) => (vec![order(size)?], Effort::Must),
        // The smallest of these pages has four base pages.
        Strategy::MthpUpTo(size) => ((2..=order(size)?).rev().collect(), Effort::Must),
        Strategy::ThpDirect => (vec![pmd], Effort::Must),
        Strategy::ThpNoReclaim => (vec![pmd], Effort::NoReclaim),
        Strategy::EveryMthp | Strategy::Collapse | Strategy::Hugetlb => return None,
    };
    Some(Faults { orders, effort })
}

/// Nanoseconds of a buffer by each strategy, each on a memory of its own, at prices that the buffers of the other
/// strategies show.
fn predict(
    snapshot: &Snapshot,
    assumptions: &Assumptions,
    pinned: &[u64],
    size: Bytes,
    strategies: &[Strategy],
    rows: &[Row],
) -> Result<Vec<Predicted>, String> {
    let page = snapshot.page_bytes;
    let setting = Setting {
        page: page.0,
        ..Scenario::Unfragmented.setting(1)
    };
    let mut fresh = machine(snapshot, assumptions, &setting).map_err(|error| error.to_string())?;
    let frames = Frames::from_snapshot(snapshot).map_err(|error| error.to_string())?;
    for frame in pinned.iter().filter_map(|&frame| frames.model_frame(frame)) {
        fresh.pin(frame);
    }
    let mut predicted = Vec::new();
    for &strategy in strategies {
        let Some(faults) = faults(strategy, page) else {
            continue;
        };
        let word = strategy.to_string();
        let others: Vec<Row> = rows
            .iter()
            .filter(|row| row.strategy != word)
            .cloned()
            .collect();
        let costs = prices::with_fitted(setting.costs, &fit(&others));
        let mut memory = fresh.clone().with_costs(costs);
        let taken = faults.take(&mut memory, size.pages(page).0, 512);
        let taken = taken.ok_or("memory ends before the buffer is whole")?;
        predicted.push(Predicted {
            strategy,
            ns: taken.time_ns,
            counts: taken.counts,
        });
    }
    Ok(predicted)
}

/// `the model on the snapshot before, over the time measured, 64M: base 17 ms 0.98x, ...; in the measured order`
fn told(answer: &Answer, size: Bytes, predicted: &[Predicted]) -> String {
    let times: Vec<String> = predicted
        .iter()
        .map(|&Predicted { strategy, ns, .. }| {
            let time = prices::time(ns);
            match mean(answer, size, strategy) {
                Some(measured) => format!("{strategy} {time} {:.2}x", ns / measured),
                None => format!("{strategy} {time}"),
            }
        })
        .collect();
    let by_strategy: Vec<_> = predicted.iter().map(|one| (one.strategy, one.ns)).collect();
    let order = match Ranking::of(&answer.series, size) {
        None => "one strategy has no order".to_owned(),
        Some(ranking) if ranking.disagree.is_some() => {
            "its order cannot be checked: repeats of the measurement disagree".to_owned()
        }
        Some(ranking) => match ranking.contradicted(&by_strategy) {
            None => "in the measured order".to_owned(),
            Some((quick, slow)) => format!("NOT in the measured order: {quick} after {slow}"),
        },
    };
    format!(
        "the model on the snapshot before, over the time measured, {}: {}; {order}",
        size.short(),
        times.join(", ")
    )
}

/// Nanoseconds a buffer of a strategy, the mean of the runs.
fn mean(answer: &Answer, size: Bytes, strategy: Strategy) -> Option<f64> {
    let (size, strategy) = (size.short(), strategy.to_string());
    let series = answer.series.iter().find(|series| {
        series.name == "take"
            && series.word("size") == Some(&size)
            && series.word("strategy") == Some(&strategy)
    })?;
    let sum: f64 = series.blocks.iter().map(|block| block.value).sum();
    (!series.blocks.is_empty()).then(|| sum / series.blocks.len() as f64)
}

/// The time and the work of a buffer by the model.
fn series(size: Bytes, predicted: &Predicted) -> [Series; 4] {
    let counts = &predicted.counts;
    [
        (PREDICTED, "ns", predicted.ns),
        (
            "scanned by compaction, by the model",
            "pages/buffer",
            counts.scanned as f64,
        ),
        ("moved, by the model", "pages/buffer", counts.moved as f64),
        (
            "reclaimed directly, by the model",
            "pages/buffer",
            counts.reclaimed as f64,
        ),
    ]
    .map(|(name, unit, value)| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        parameters: BTreeMap::from([
            ("size".to_owned(), Parameter::from(size.short())),
            (
                "strategy".to_owned(),
                Parameter::from(predicted.strategy.to_string()),
            ),
        ]),
        blocks: vec![Block {
            run: 0,
            start_ns: 0,
            samples: 1,
            value,
            histogram: None,
            stalls: None,
        }],
        error: None,
    })
}
