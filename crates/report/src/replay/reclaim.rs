//! A replay of `reclaim`, for people: the advice, what all rows have in common, a line a row, and what costs what.

use stopgap_events::units::Bytes;
use stopgap_stats::replay::{MeasuredScans, ReclaimRow, ReclaimSetting, Replay, Row};
use stopgap_stats::verdict::runs_text;

use super::{Flags, ending, heads, price, say_missing, value};
use crate::table::{Screen, Table, join, known, known_or};
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
    let flags = Flags::split(&FLAGS, &rows, flag);
    // Columns that no row has a figure for are left out.
    let any = |has: fn(&ReclaimRow) -> bool| rows.iter().any(|row| has(row));
    let release = any(|row| row.release.is_some());
    let measured = any(|row| row.measured.is_some());
    let allocation = any(|row| row.allocation.is_some());
    let out_of_memory = any(|row| row.out_of_memory.is_some());
    let columns: [(bool, &[&str]); 8] = [
        (true, &["policy"]),
        (release, &["release"]),
        (true, &["scan/recl"]),
        (measured, &["measured", "factor"]),
        (true, &["ms/GiB"]),
        (allocation, &["mean us", "p50", "p99", "max"]),
        (true, &["irq off us", "unpre-empted us", "first ms"]),
        (out_of_memory, &["out of memory"]),
    ];
    let mut head = flags.varied.clone();
    let shown = columns.iter().filter(|(shown, _)| *shown);
    head.extend(shown.flat_map(|(_, names)| *names));
    head.push("most time");
    let mut table = Table::with_heads(heads(&head, &LEFT));
    for row in &rows {
        let mut cells: Vec<String> = flags.varied.iter().map(|name| flag(row, name)).collect();
        cells.push(row.policy.clone());
        if release {
            cells.push(known(row.release.as_ref()));
        }
        cells.push(scans(row));
        if measured {
            let measured = row.measured.as_ref();
            let factor = measured.and_then(|measured| measured.factor);
            cells.push(known(measured.map(beside)));
            cells.push(known(factor.map(|x| format!("{x:.2}x"))));
        }
        cells.push(figure(row.reclaim_ms_per_gib));
        if allocation {
            let times = row.allocation.as_ref();
            cells.extend([
                figure(times.map(|times| times.mean_us)),
                figure(times.map(|times| times.p50_us)),
                figure(times.and_then(|times| times.p99_us)),
                figure(times.map(|times| times.max_us)),
            ]);
        }
        cells.push(number(row.longest_interrupts_off_us));
        cells.push(number(row.longest_unpreempted_us));
        cells.push(figure(row.first_reclaim_ms));
        if out_of_memory {
            let point = row.out_of_memory.as_ref();
            cells.push(known_or(
                "no",
                point.map(|point| {
                    format!(
                        "{} ms, {} held",
                        number(point.at_ms),
                        Bytes(point.held_bytes)
                    )
                }),
            ));
        }
        let most = row.causes_ms.iter().max_by(|a, b| a.1.total_cmp(b.1));
        cells.push(known(most.map(|(cause, _)| cause)));
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
    let keys = table.heads().position(|head| head == "scan/recl");
    table.keys = keys.unwrap_or(1);
    screen.table(&table);
    say_missing(rows.iter().flat_map(|row| &row.missing), screen);
    screen.add("\n");
    let prices = setting
        .prices
        .iter()
        .map(|one| format!("{} ({})", price(one), one.why));
    let prices = match screen.style.verbose {
        true => format!("Prices: {}.", join(prices, ", ")),
        false => "--verbose prints the prices.".to_owned(),
    };
    screen.say_by(0, format!(
        "Modelled, not measured. scan/recl: pages scanned per page reclaimed, the median of {} (least..most); ms/GiB: time in reclaim per GiB \
         read; mean, p50, p99, max: time to map, touch and unmap 2 MiB; irq off, unpre-empted: the longest time with \
         interrupts off, and in which nobody else may run; first: when reclaim was first needed. {prices} seed {}{}",
        runs_text(replay.repetitions as usize),
        replay.seed,
        ending(replay, setting.beside.as_deref())
    ));
}

fn figure(value: Option<f64>) -> String {
    known(value.map(number))
}

/// Returns pages scanned a page reclaimed: the median of the runs, and of several runs the ends.
fn scans(row: &ReclaimRow) -> String {
    let ends = row
        .scanned_per_reclaimed_least
        .zip(row.scanned_per_reclaimed_most);
    let ends = ends.filter(|_| row.runs > 1);
    let ends = known_or(
        "",
        ends.map(|(least, most)| format!(" ({least:.2}..{most:.2})")),
    );
    known(
        row.scanned_per_reclaimed
            .map(|middle| format!("{middle:.2}{ends}")),
    )
}

fn beside(measured: &MeasuredScans) -> String {
    let (least, most) = (measured.least, measured.most);
    format!(
        "{:.2} ({least:.2}..{most:.2})",
        measured.scanned_per_reclaimed
    )
}
