//! A replay of `reclaim`, for people: the advice, what all rows have in common, a line a row, and what costs what.

use stopgap_events::units::Bytes;
use stopgap_stats::record::Parameter;
use stopgap_stats::replay::{ReclaimRow, ReclaimSetting, Replay, Row};
use stopgap_stats::verdict::runs_text;

use super::{ending, notes};
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, wrap};

/// Stands where something is not known.
const UNKNOWN: &str = "-";
/// The flags, in the order of the columns.
const FLAGS: [&str; 9] = [
    "load",
    "pinned",
    "limit",
    "file",
    "swap",
    "swappiness",
    "lru",
    "kernel",
    "time",
];
/// Flags whose numbers are bytes.
const SIZES: [&str; 4] = ["pinned", "limit", "file", "swap"];

/// The whole record.
pub(super) fn screen(replay: &Replay, setting: &ReclaimSetting, style: Style) -> String {
    let rows: Vec<&ReclaimRow> = replay.rows.iter().filter_map(Row::reclaim).collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    let (varied, common): (Vec<&str>, Vec<&str>) = FLAGS.iter().partition(|flag| {
        rows.iter()
            .any(|row| value(row, flag) != value(first, flag))
    });
    let columns = columns(&rows);
    let mut head = varied.clone();
    head.push("policy");
    head.extend(columns.iter().map(|(name, _)| *name));
    let cells = rows.iter().map(|row| {
        let mut cells: Vec<String> = varied.iter().map(|flag| value(row, flag)).collect();
        cells.push(plain(&row.policy));
        cells.extend(columns.iter().map(|(_, cell)| cell(row)));
        cells
    });
    let cells = cells.collect();
    let left = ["policy", "release", "load", "lru", "kernel", "most time"];
    let right: Vec<bool> = head.iter().map(|name| !left.contains(name)).collect();

    let common: Vec<String> = common
        .iter()
        .map(|flag| format!("{flag} {}", value(first, flag)))
        .collect();
    let mut text = String::new();
    for sentence in [&setting.mail, &setting.advice].into_iter().flatten() {
        text.push_str(&wrap(&plain(sentence), style.width, 2));
    }
    if let Some(why) = &setting.not_validated {
        text.push_str(&wrap(
            &format!("not validated: {}", plain(why)),
            style.width,
            2,
        ));
    }
    text.push_str(&wrap(&common.join(", "), style.width, 0));
    text.push('\n');
    text.push_str(&plain_table(&head, cells, &right, false, style));
    let missing = rows.iter().flat_map(|row| &row.missing);
    text.push_str(&notes(missing, style));
    text.push('\n');
    text.push_str(&legend(replay, setting, style));
    text
}

fn value(row: &ReclaimRow, flag: &str) -> String {
    match row.parameters.get(flag) {
        Some(Parameter::Word(word)) => plain(word),
        Some(Parameter::Number(bytes)) if SIZES.contains(&flag) => Bytes(*bytes).to_string(),
        Some(Parameter::Number(number)) => number.to_string(),
        None => UNKNOWN.to_owned(),
    }
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), number)
}

type Column = (&'static str, fn(&ReclaimRow) -> String);

/// The columns of figures that some row has.
fn columns(rows: &[&ReclaimRow]) -> Vec<Column> {
    let any = |has: fn(&ReclaimRow) -> bool| rows.iter().any(|row| has(row));
    let all: [(bool, Column); 14] = [
        (
            any(|row| row.release.is_some()),
            ("release", |row| {
                row.release
                    .as_deref()
                    .map_or_else(|| UNKNOWN.to_owned(), plain)
            }),
        ),
        (
            true,
            ("scan/recl", |row| {
                let [middle, least, most] = [
                    row.scanned_per_reclaimed,
                    row.scanned_per_reclaimed_least,
                    row.scanned_per_reclaimed_most,
                ];
                match (middle, least, most) {
                    (Some(x), Some(least), Some(most)) if row.runs > 1 => {
                        format!("{x:.2} ({least:.2}..{most:.2})")
                    }
                    (Some(x), ..) => format!("{x:.2}"),
                    _ => UNKNOWN.to_owned(),
                }
            }),
        ),
        (
            any(|row| row.measured.is_some()),
            ("measured", |row| {
                row.measured.as_ref().map_or_else(
                    || UNKNOWN.to_owned(),
                    |measured| {
                        let [middle, least, most] = [
                            measured.scanned_per_reclaimed,
                            measured.least,
                            measured.most,
                        ];
                        format!("{middle:.2} ({least:.2}..{most:.2})")
                    },
                )
            }),
        ),
        (
            any(|row| row.measured.is_some()),
            ("factor", |row| {
                let factor = row.measured.as_ref().and_then(|measured| measured.factor);
                factor.map_or_else(|| UNKNOWN.to_owned(), |x| format!("{x:.2}x"))
            }),
        ),
        (true, ("ms/GiB", |row| known(row.reclaim_ms_per_gib))),
        (
            any(|row| row.allocation.is_some()),
            ("mean us", |row| {
                known(row.allocation.as_ref().map(|times| times.mean_us))
            }),
        ),
        (
            any(|row| row.allocation.is_some()),
            ("p50", |row| {
                known(row.allocation.as_ref().map(|times| times.p50_us))
            }),
        ),
        (
            any(|row| row.allocation.is_some()),
            ("p99", |row| {
                known(row.allocation.as_ref().and_then(|times| times.p99_us))
            }),
        ),
        (
            any(|row| row.allocation.is_some()),
            ("max", |row| {
                known(row.allocation.as_ref().map(|times| times.max_us))
            }),
        ),
        (
            true,
            ("irq off us", |row| number(row.longest_interrupts_off_us)),
        ),
        (
            true,
            ("unpre-empted us", |row| number(row.longest_unpreempted_us)),
        ),
        (true, ("first ms", |row| known(row.first_reclaim_ms))),
        (
            any(|row| row.out_of_memory.is_some()),
            ("out of memory", |row| {
                row.out_of_memory.as_ref().map_or_else(
                    || "no".to_owned(),
                    |point| {
                        format!(
                            "{} ms, {} held",
                            number(point.at_ms),
                            Bytes(point.held_bytes)
                        )
                    },
                )
            }),
        ),
        (
            true,
            ("most time", |row| {
                let most = row.causes_ms.iter().max_by(|a, b| a.1.total_cmp(b.1));
                most.map_or_else(|| UNKNOWN.to_owned(), |(cause, _)| plain(cause))
            }),
        ),
    ];
    all.into_iter()
        .filter(|(shown, _)| *shown)
        .map(|(_, column)| column)
        .collect()
}

fn legend(replay: &Replay, setting: &ReclaimSetting, style: Style) -> String {
    let prices = setting.prices.iter().map(|price| {
        let value = price
            .value
            .map_or_else(String::new, |value| format!(" {value:.0}"));
        format!(
            "{}{value} {} ({})",
            plain(&price.name),
            plain(&price.unit),
            plain(&price.why)
        )
    });
    let mut text = format!(
        "Modelled. scan/recl: pages scanned a page reclaimed, the median of {} (least..most); ms/GiB: in reclaim a GiB read; mean, p50, p99, max: of \
         mapping, touching and unmapping 2 MiB; irq off, unpre-empted: the longest with interrupts off, and in which \
         nobody else may run; first: until reclaim was first needed. Prices: {}. seed {}",
        runs_text(replay.repetitions as usize),
        prices.collect::<Vec<_>>().join(", "),
        replay.seed
    );
    text.push_str(&ending(replay, setting.beside.as_deref()));
    wrap(&text, style.width, 0)
}
