//! A replay of `reclaim`, for people: the advice, what all rows have in common, a line a row, and what costs what.

use stopgap_events::units::Bytes;
use stopgap_stats::replay::{Allocation, ReclaimRow, ReclaimSetting, Replay, Row};
use stopgap_stats::verdict::runs_text;

use super::{Flags, ending, heads, price, say_missing, value};
use crate::table::{Screen, Table, join, known, or};
use crate::text::number;

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
/// Columns of words.
const LEFT: [&str; 6] = ["policy", "release", "load", "lru", "kernel", "most time"];

/// Adds the whole record.
pub(super) fn say(replay: &Replay, setting: &ReclaimSetting, screen: &mut Screen) {
    let rows: Vec<&ReclaimRow> = replay.rows.iter().filter_map(Row::reclaim).collect();
    if rows.is_empty() {
        return;
    }
    let flag = |row: &ReclaimRow, flag: &str| {
        let size = SIZES.contains(&flag);
        let number = |n| {
            if size {
                Bytes(n).to_string()
            } else {
                n.to_string()
            }
        };
        value(&row.parameters, flag, number)
    };
    let flags = Flags::of(&FLAGS, &rows, flag);
    let mut columns = COLUMNS.to_vec();
    columns.retain(|(_, shown, _)| rows.iter().any(|row| shown(row)));
    let mut head = flags.varied.clone();
    head.push("policy");
    head.extend(columns.iter().map(|(name, ..)| *name));
    let mut table = Table::of(heads(&head, &LEFT));
    for row in &rows {
        let mut cells: Vec<String> = flags.varied.iter().map(|name| flag(row, name)).collect();
        cells.push(row.policy.clone());
        cells.extend(columns.iter().map(|(_, _, cell)| cell(row)));
        table.rows.push(cells);
    }
    for sentence in [&setting.mail, &setting.advice].into_iter().flatten() {
        screen.say(sentence);
    }
    if let Some(why) = &setting.not_validated {
        screen.say(format!("not validated: {why}"));
    }
    screen.say_by(0, &flags.common);
    screen.add("\n");
    screen.table(&table);
    say_missing(rows.iter().flat_map(|row| &row.missing), screen);
    screen.add("\n");
    let prices = setting
        .prices
        .iter()
        .map(|one| format!("{} ({})", price(one), one.why));
    screen.say_by(0, format!(
        "Modelled. scan/recl: pages scanned a page reclaimed, the median of {} (least..most); ms/GiB: in reclaim a GiB read; mean, p50, p99, max: of \
         mapping, touching and unmapping 2 MiB; irq off, unpre-empted: the longest with interrupts off, and in which \
         nobody else may run; first: until reclaim was first needed. Prices: {}. seed {}{}",
        runs_text(replay.repetitions as usize),
        join(prices, ", "),
        replay.seed,
        ending(replay, setting.beside.as_deref())
    ));
}

fn number_of(value: Option<f64>) -> String {
    known(value.map(number))
}

fn times(row: &ReclaimRow, time: fn(&Allocation) -> Option<f64>) -> String {
    number_of(row.allocation.as_ref().and_then(time))
}

/// A column of figures: its head, whether a row has it (a column that no row has is left out), and its cell.
type Column = (
    &'static str,
    fn(&ReclaimRow) -> bool,
    fn(&ReclaimRow) -> String,
);

const COLUMNS: [Column; 14] = [
    (
        "release",
        |row| row.release.is_some(),
        |row| known(row.release.as_ref()),
    ),
    (
        "scan/recl",
        |_| true,
        |row| {
            let ends = row
                .scanned_per_reclaimed_least
                .zip(row.scanned_per_reclaimed_most);
            let ends = ends.filter(|_| row.runs > 1);
            let ends = or(
                "",
                ends.map(|(least, most)| format!(" ({least:.2}..{most:.2})")),
            );
            known(
                row.scanned_per_reclaimed
                    .map(|middle| format!("{middle:.2}{ends}")),
            )
        },
    ),
    (
        "measured",
        |row| row.measured.is_some(),
        |row| {
            known(row.measured.as_ref().map(|measured| {
                let (least, most) = (measured.least, measured.most);
                format!(
                    "{:.2} ({least:.2}..{most:.2})",
                    measured.scanned_per_reclaimed
                )
            }))
        },
    ),
    (
        "factor",
        |row| row.measured.is_some(),
        |row| {
            let factor = row.measured.as_ref().and_then(|measured| measured.factor);
            known(factor.map(|x| format!("{x:.2}x")))
        },
    ),
    ("ms/GiB", |_| true, |row| number_of(row.reclaim_ms_per_gib)),
    (
        "mean us",
        |row| row.allocation.is_some(),
        |row| times(row, |times| Some(times.mean_us)),
    ),
    (
        "p50",
        |row| row.allocation.is_some(),
        |row| times(row, |times| Some(times.p50_us)),
    ),
    (
        "p99",
        |row| row.allocation.is_some(),
        |row| times(row, |times| times.p99_us),
    ),
    (
        "max",
        |row| row.allocation.is_some(),
        |row| times(row, |times| Some(times.max_us)),
    ),
    (
        "irq off us",
        |_| true,
        |row| number(row.longest_interrupts_off_us),
    ),
    (
        "unpre-empted us",
        |_| true,
        |row| number(row.longest_unpreempted_us),
    ),
    ("first ms", |_| true, |row| number_of(row.first_reclaim_ms)),
    (
        "out of memory",
        |row| row.out_of_memory.is_some(),
        |row| {
            or(
                "no",
                row.out_of_memory.as_ref().map(|point| {
                    format!(
                        "{} ms, {} held",
                        number(point.at_ms),
                        Bytes(point.held_bytes)
                    )
                }),
            )
        },
    ),
    (
        "most time",
        |_| true,
        |row| {
            let most = row.causes_ms.iter().max_by(|a, b| a.1.total_cmp(b.1));
            known(most.map(|(cause, _)| cause))
        },
    ),
];
