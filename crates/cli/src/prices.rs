//! What the page allocator's work costs here: a file that `probe chunks` writes and `replay chunks --prices` reads.

use std::path::Path;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::memory::Memory;
use stopgap_models::chunks::cost::Costs;
use stopgap_stats::prices::{Fitted, NAMES, Prices, Row, SCHEMA, judged};
use stopgap_stats::record::{Answer, Series};

use crate::failure::Failure;
use crate::session::Session;
use crate::{input_file, output};

/// The most that is read of such a file: one has some 3 KB.
const LARGEST: Bytes = Bytes::mib(1);

/// The series of a probe that count the work of each of [`NAMES`].
const COUNTED: [&[&str]; 5] = [
    &["faults"],
    &[],
    &["scanned by compaction"],
    &["moved"],
    &["reclaimed directly"],
];

/// The prices that the buffers of `answer` show, if they show any, and the buffers.
pub(crate) fn fitted(session: &Session, answer: &Answer) -> Option<(Prices, Vec<Row>)> {
    let page = Linux.page_size();
    let rows = rows(answer, page);
    let (prices, strategies) = judged(&rows);
    if prices.is_empty() {
        return None;
    }
    let prices = Prices {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: session.environment().kernel.clone(),
        started_unix_s: session.run.started_unix_s,
        page_bytes: page.0,
        prices,
        strategies,
    };
    Some((prices, rows))
}

/// The buffers of strategies that take them by faults alone, with what was counted meanwhile.
fn rows(answer: &Answer, page: Bytes) -> Vec<Row> {
    let mut rows = Vec::new();
    let cells = |name: &str| {
        let name = name.to_owned();
        answer.series.iter().filter(move |one| one.name == name)
    };
    for take in cells("take") {
        let (Some(size), Some(strategy)) = (take.word("size"), take.word("strategy")) else {
            continue;
        };
        let Ok(bytes) = size.parse::<Bytes>() else {
            continue;
        };
        if ["collapse", "hugetlb"].contains(&strategy) {
            continue;
        }
        let same = |one: &&Series| {
            one.word("size") == Some(size) && one.word("strategy") == Some(strategy)
        };
        for block in &take.blocks {
            let count = |names: &[&str]| -> f64 {
                let of = |name: &&str| {
                    let blocks = cells(name).find(same)?.blocks.iter();
                    Some(
                        blocks
                            .filter(|other| other.run == block.run)
                            .map(|other| other.value)
                            .sum::<f64>(),
                    )
                };
                names.iter().filter_map(of).sum()
            };
            let mut counts = COUNTED.map(count);
            counts[1] = bytes.pages(page).0 as f64;
            rows.push(Row {
                size_bytes: bytes.0,
                strategy: strategy.to_owned(),
                run: block.run,
                time_ns: block.value,
                counts,
            });
        }
    }
    rows
}

/// Writes `prices` beside the record, if there is one; gives the lines that say what they are, how far they are off, and where they lie.
pub(crate) fn keep(session: &Session, prices: &Prices) -> Result<Vec<String>, Failure> {
    let name = output::name("prices", session.run.started_unix_s);
    let text = output::json(prices);
    let kept = session.records.as_deref();
    let path = kept.map(|directory| output::record(&text, &name, directory));
    let path = path.transpose()?;
    let each: Vec<String> = prices
        .prices
        .iter()
        .map(|price| {
            let told = |ns: f64| time(ns).to_string();
            if price.value <= 0.0 {
                return format!("{} in the others", spoken(&price.name));
            }
            format!(
                "{} {} ({}..{})",
                spoken(&price.name),
                told(price.value),
                told(price.least),
                told(price.greatest)
            )
        })
        .collect();
    let checks: Vec<String> = prices
        .strategies
        .iter()
        .map(|check| {
            let strategy = &check.strategy;
            let size = Bytes(check.size_bytes).short();
            match check.ratio() {
                Some(ratio) => format!("{strategy} {size} {ratio:.2}x"),
                None => format!("{strategy} {size} unknown"),
            }
        })
        .collect();
    let mut lines = vec![
        format!("prices here: {}", each.join(", ")),
        format!(
            "what was counted at these prices, over the time measured, each strategy at prices fitted without it: {}",
            checks.join(", ")
        ),
    ];
    lines.extend(path.map(|path| format!("prices: {} (replay chunks --prices)", path.display())));
    Ok(lines)
}

/// A price as people say it.
fn spoken(name: &str) -> &str {
    match name {
        "fault_ns" => "a page fault",
        "clear_page_ns" => "clearing a page",
        "scan_block_ns" => "scanning 512 pages",
        "move_page_ns" => "moving a page",
        "reclaim_page_ns" => "reclaiming a page",
        other => other,
    }
}

pub(crate) fn time(ns: f64) -> Nanos {
    Nanos(ns.round() as u64)
}

/// Reads a file that `probe chunks` wrote.
pub(crate) fn read(path: &Path, page: u64) -> Result<Prices, Failure> {
    let name = path.display();
    let fail = |why: &dyn std::fmt::Display| Failure::error(format!("--prices {name}: {why}"));
    let text = input_file::whole(path, LARGEST).map_err(|error| fail(&error))?;
    let prices: Prices = serde_json::from_slice(&text).map_err(|error| {
        fail(&format_args!(
            "not prices of probe chunks ({SCHEMA}): {error}"
        ))
    })?;
    if prices.schema != SCHEMA {
        let schema = &prices.schema;
        return Err(fail(&format_args!(
            "its form is {schema}; {SCHEMA} is read"
        )));
    }
    if prices.page_bytes != page {
        let (theirs, ours) = (Bytes(prices.page_bytes), Bytes(page));
        return Err(fail(&format_args!(
            "prices of {theirs} pages; the model has {ours} pages"
        )));
    }
    for price in &prices.prices {
        let known = NAMES.contains(&price.name.as_str());
        if !known || !(0.0..1e12).contains(&price.value) {
            let (name, value) = (&price.name, price.value);
            return Err(fail(&format_args!("{name} of {value} ns is no price")));
        }
    }
    Ok(prices)
}

/// `costs` with those of `prices` in their place.
pub(crate) fn applied(costs: Costs, prices: &Prices) -> Costs {
    let named = prices
        .prices
        .iter()
        .map(|price| (price.name.as_str(), price.value));
    in_place(costs, named)
}

/// The same with what was fitted.
pub(crate) fn with_fitted(costs: Costs, fitted: &Fitted) -> Costs {
    let named = NAMES.into_iter().zip(fitted);
    in_place(
        costs,
        named.filter_map(|(name, value)| Some((name, (*value)?))),
    )
}

fn in_place<'a>(costs: Costs, named: impl Iterator<Item = (&'a str, f64)>) -> Costs {
    named.fold(costs, |costs, (name, mut value)| {
        if name == "fault_ns" {
            // The fitted price includes the allocator's call, which has a price of its own.
            value = (value - costs.call_ns).max(0.0);
        }
        costs.with(name, value).unwrap_or(costs)
    })
}
