//! A replay of `chunks`, for people: a sentence, then what building a buffer takes, what the device and the
//! others get, how memory is left, and what the figures would be were the assumptions otherwise.

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::replay::chunks::{
    Bystander, ChunksRow, ChunksSetting, MailKind, MailTime, Sensitivity,
};
use stopgap_stats::replay::{Replay, Row};

use super::lead;
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// A time within this factor of the mail's agrees with it.
const NEAR: f64 = 1.25;

/// Stands where something is not known.
const UNKNOWN: &str = "-";

/// The whole record.
pub(super) fn screen(replay: &Replay, style: Style) -> String {
    let rows: Vec<&ChunksRow> = replay.rows.iter().filter_map(Row::chunks).collect();
    let (Some(setting), Some(first)) = (&replay.chunks, rows.first()) else {
        return String::new();
    };
    let mut text = wrap(&lead::sentence(&rows, setting), style.width, 0);
    text.push_str(&wrap(&scene(first, setting), style.width, 0));
    for table in [
        times(&rows, style),
        mappings(&rows, setting, style),
        memory(&rows, style),
        sensitivity(&rows, setting, style),
    ] {
        text.push('\n');
        text.push_str(&table);
    }
    text.push_str(&notes(&rows, style));
    text.push('\n');
    text.push_str(&legend(replay, setting, style));
    text
}

/// `thread, 2 GiB of 4 KiB pages, kernel 3.14: 100 buffers of 4 MiB, 4 held at a time`.
pub(crate) fn scene(row: &ChunksRow, setting: &ChunksSetting) -> String {
    let memory = if row.workload == setting.memory {
        plain(&setting.memory)
    } else {
        format!(
            "{} on the memory of {}",
            plain(&row.workload),
            plain(&setting.memory)
        )
    };
    let size = setting
        .size_bytes
        .map_or_else(String::new, |size| format!(" of {}", Bytes(size)));
    let live = setting.live.map_or_else(String::new, |live| {
        format!(", {} held at a time", thousands(live))
    });
    format!(
        "{memory}: {} of {} pages, kernel {}; {} buffer{}{size}{live}, device {{{}}}{}",
        Bytes(setting.memory_bytes),
        Bytes(setting.page_bytes),
        plain(&setting.kernel),
        thousands(setting.buffers),
        if setting.buffers == 1 { "" } else { "s" },
        setting.device.join(","),
        if setting.single_pages {
            ", its driver asks for single pages"
        } else {
            ""
        },
    )
}

/// A time in its unit.
pub(crate) fn time(ms: Option<f64>) -> String {
    // Below 584 years, and not negative.
    let text = |ms: f64| Nanos((ms * 1e6).round() as u64).to_string();
    ms.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Three digits; what is nothing at all is 0.
pub(super) fn digits(value: f64) -> String {
    if value.abs() > 0.0 {
        number(value)
    } else {
        "0".to_owned()
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), digits)
}

fn percent(share: Option<f64>) -> String {
    figure(share.map(|share| share * 100.0))
}

/// `part` of `whole`, which counts; nothing where there is no whole.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn times(rows: &[&ChunksRow], style: Style) -> String {
    let with_mail = rows.iter().any(|row| row.mail.is_some());
    let mut head = vec![
        "policy", "mean", "p99", "worst", "tries", "failing", "spent on",
    ];
    if with_mail {
        head.extend(["mail 001", "factor", ""]);
    }
    let cells = rows.iter().map(|row| {
        let mut cells = vec![
            plain(&row.policy),
            time(row.time_ms),
            time(row.time_p99_ms),
            time(row.time_worst_ms),
            digits(row.tries_per_buffer),
            digits(row.failed_tries_per_buffer),
            causes(row),
        ];
        if with_mail {
            cells.extend(mail(row.mail.as_ref()));
        }
        cells
    });
    let right = [
        false, true, true, true, true, true, false, true, true, false,
    ];
    plain_table(&head, cells.collect(), &right, false, style)
}

/// The two causes that most of the time goes to, in per cent.
fn causes(row: &ChunksRow) -> String {
    let all: f64 = row.time_by_cause_ms.values().sum();
    if all <= 0.0 {
        return UNKNOWN.to_owned();
    }
    let mut causes: Vec<(&String, f64)> = row
        .time_by_cause_ms
        .iter()
        .map(|(cause, ms)| (cause, ms / all * 100.0))
        .filter(|(_, share)| *share >= 0.5)
        .collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts = causes
        .iter()
        .take(2)
        .map(|(cause, share)| format!("{} {share:.0} %", plain(cause)));
    texts.collect::<Vec<_>>().join(", ")
}

fn mail(mail: Option<&MailTime>) -> [String; 3] {
    let Some(mail) = mail else {
        return [UNKNOWN.to_owned(), String::new(), String::new()];
    };
    let near = |factor: f64| (1.0 / NEAR..=NEAR).contains(&factor);
    let kind = match mail.kind {
        MailKind::Fitted => "fitted",
        MailKind::Compared if mail.factor.is_some_and(near) => "agrees",
        MailKind::Compared => "differs",
        MailKind::Absent => "not in the mail",
    };
    [
        time(mail.mail_ms),
        mail.factor
            .map_or_else(String::new, |factor| format!("{}x", number(factor))),
        kind.to_owned(),
    ]
}

fn mappings(rows: &[&ChunksRow], setting: &ChunksSetting, style: Style) -> String {
    let mut head = vec!["policy".to_owned(), "entries".to_owned()];
    head.extend(setting.device.iter().cloned());
    head.push("tables".to_owned());
    head.extend(setting.access.iter().map(|access| format!("{access} %")));
    let others = rows.first().map_or(&[][..], |row| &row.bystanders);
    head.extend(others.iter().map(|other| format!("{} %", named(other))));
    head.push("blocks/MiB".to_owned());
    let cells = rows.iter().map(|row| {
        let built = !row.entries.is_empty();
        let mut cells = vec![
            plain(&row.policy),
            figure(built.then(|| row.entries.values().sum())),
        ];
        cells.extend(
            setting
                .device
                .iter()
                .map(|size| figure(built.then(|| row.entries.get(size).copied().unwrap_or(0.0)))),
        );
        cells.push(row.table_bytes.map_or_else(
            || UNKNOWN.to_owned(),
            |bytes| format!("{} K", number(bytes / 1_024.0)),
        ));
        cells.extend(setting.access.iter().map(|access| {
            let of = row.tlb.iter().find(|tlb| tlb.access == *access);
            percent(of.map(|tlb| tlb.misses_per_access))
        }));
        cells.extend(row.bystanders.iter().map(failing));
        cells.push(figure(row.large_blocks_per_mib));
        cells
    });
    let mut cells: Vec<Vec<String>> = cells.collect();
    if !others.is_empty() {
        let before = head.len() - 1 - others.len();
        cells.push(nothing_built(setting, before, head.len()));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    in_parts(&head, &cells, style)
}

/// A table of figures, in several one below the other where its columns are wider than the screen: each has the first
/// column.
fn in_parts(head: &[&str], cells: &[Vec<String>], style: Style) -> String {
    let width = |column: usize| {
        let below = cells.iter().filter_map(|row| row.get(column));
        let below = below.map(|cell| cell.chars().count()).max().unwrap_or(0);
        2 + below.max(head[column].chars().count())
    };
    let mut parts = vec![vec![0]];
    let mut used = width(0);
    for column in 1..head.len() {
        if used + width(column) > usize::from(style.width) {
            parts.push(vec![0]);
            used = width(0);
        }
        used += width(column);
        parts.last_mut().unwrap_or(&mut vec![]).push(column);
    }
    let table = |columns: &Vec<usize>| {
        let head: Vec<&str> = columns.iter().map(|&column| head[column]).collect();
        let rows = cells.iter().map(|row| {
            let cell = |&column: &usize| row.get(column).cloned().unwrap_or_default();
            columns.iter().map(cell).collect()
        });
        let right: Vec<bool> = columns.iter().map(|&column| column > 0).collect();
        plain_table(&head, rows.collect(), &right, false, style)
    };
    parts.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// `dwc2:3`.
pub(crate) fn named(other: &Bystander) -> String {
    format!("{}:{}", plain(&other.name), other.order)
}

/// Of 100 tries of a bystander, so many fail.
pub(crate) fn failing(other: &Bystander) -> String {
    percent(share(other.failures, other.tries))
}

/// The line of a table for what is where nothing is built: of its `columns` only those of the others, after the first
/// `before`, have something to say.
pub(crate) fn nothing_built(setting: &ChunksSetting, before: usize, columns: usize) -> Vec<String> {
    let mut cells = vec!["(nothing)".to_owned()];
    cells.resize(before, String::new());
    cells.extend(setting.bystanders_alone.iter().map(failing));
    cells.resize(columns, String::new());
    cells
}

/// The unusable index by order. All policies find the same memory, so one line tells how it was before.
fn memory(rows: &[&ChunksRow], style: Style) -> String {
    let Some(first) = rows.first() else {
        return String::new();
    };
    let orders = first.unusable_before.len();
    let mut head = vec!["unusable index of order".to_owned()];
    head.extend((1..orders).map(|order| order.to_string()));
    let line = |name: &str, index: &[Option<f64>]| {
        let mut cells = vec![name.to_owned()];
        let figure = |index: &Option<f64>| {
            index.map_or_else(|| UNKNOWN.to_owned(), |index| format!("{index:.2}"))
        };
        cells.extend(index.iter().skip(1).map(figure));
        cells
    };
    let mut cells = vec![line("before", &first.unusable_before)];
    cells.extend(
        rows.iter()
            .map(|row| line(&plain(&row.policy), &row.unusable_after)),
    );
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let right: Vec<bool> = (0..head.len()).map(|column| column > 0).collect();
    plain_table(&head, cells, &right, false, style)
}

fn sensitivity(rows: &[&ChunksRow], setting: &ChunksSetting, style: Style) -> String {
    let mut head = vec![
        "x1/2..x2 of".to_owned(),
        "what matters most".to_owned(),
        "mean".to_owned(),
    ];
    let entries = "TLB entries: ";
    head.extend(
        setting
            .access
            .iter()
            .enumerate()
            .map(|(at, access)| format!("{}{access} %", if at == 0 { entries } else { "" })),
    );
    let cells = rows.iter().map(|row| {
        let mut cells = vec![plain(&row.policy)];
        cells.extend(match decisive(row) {
            Some((name, low, high)) => [
                plain(name),
                format!("{}..{}", time(Some(low)), time(Some(high))),
            ],
            None => [UNKNOWN.to_owned(), UNKNOWN.to_owned()],
        });
        cells.extend(setting.access.iter().map(|access| {
            let of = |one: &&Sensitivity| {
                one.quantity == "misses_per_access" && one.access.as_ref() == Some(access)
            };
            let values = row.sensitivity.iter().filter(of).map(|one| one.value);
            range(values).map_or_else(
                || UNKNOWN.to_owned(),
                |(low, high)| match (digits(low * 100.0), digits(high * 100.0)) {
                    (low, high) if low == high => low,
                    (low, high) => format!("{low}..{high}"),
                },
            )
        }));
        cells
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let right: Vec<bool> = (0..head.len()).map(|column| column > 1).collect();
    plain_table(&head, cells.collect(), &right, false, style)
}

/// The assumption that moves the mean time most, with the time that its half and its twice give.
fn decisive(row: &ChunksRow) -> Option<(&str, f64, f64)> {
    let times: Vec<&Sensitivity> = row
        .sensitivity
        .iter()
        .filter(|one| one.quantity == "time_ms")
        .collect();
    times
        .iter()
        .filter_map(|one| {
            let same = |other: &&&Sensitivity| other.assumption == one.assumption;
            let (low, high) = range(times.iter().filter(same).map(|one| one.value))?;
            Some((one.assumption.as_str(), low, high))
        })
        .max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)))
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let low = values.clone().reduce(f64::min)?;
    Some((low, values.reduce(f64::max)?))
}

/// Each thing that could not be told, once, with the policies it concerns.
fn notes(rows: &[&ChunksRow], style: Style) -> String {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    let mut note = |text: String, policy| match notes.iter_mut().find(|(said, _)| *said == text) {
        Some((_, policies)) => policies.push(policy),
        None => notes.push((text, vec![policy])),
    };
    for row in rows {
        if row.failures > 0 {
            let (failed, all) = (thousands(row.failures), thousands(row.operations));
            let text = format!("could not build {failed} of {all} buffers: memory was at its end");
            note(text, row.policy.as_str());
        }
        for missing in &row.missing {
            let text = format!("{} unknown: {}", plain(&missing.what), plain(&missing.why));
            note(text, row.policy.as_str());
        }
    }
    let mut text = String::new();
    for (said, policies) in notes {
        let whose = if policies.len() == rows.len() {
            "all policies".to_owned()
        } else {
            policies
                .iter()
                .map(|word| plain(word))
                .collect::<Vec<_>>()
                .join(", ")
        };
        text.push_str(&wrap(&format!("  {whose}: {said}"), style.width, 2));
    }
    text
}

/// `reclaim 244 us a page (fitted ...), ...`.
pub(crate) fn assumptions(setting: &ChunksSetting) -> String {
    let texts = setting.assumptions.iter().map(|one| {
        let value = one.value.map_or_else(String::new, |value| {
            let whole = value.fract().abs() < 1e-9 && value.abs() < 1e15;
            let shown = if whole {
                format!("{value:.0}")
            } else {
                number(value)
            };
            format!(" {shown} {}", plain(&one.unit))
        });
        format!("{}{value} ({})", plain(&one.name), plain(&one.why))
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Whether times stand beside the mail's.
fn rows_beside_mail(replay: &Replay) -> bool {
    let mut rows = replay.rows.iter().filter_map(Row::chunks);
    rows.any(|row| row.mail.is_some())
}

fn legend(replay: &Replay, setting: &ChunksSetting, style: Style) -> String {
    let mut text = format!(
        "Times are modelled: what the allocator did, at stated prices. mean, p99, worst: of a buffer; tries, failing: \
         of the allocator, a buffer. entries: of the IOMMU for a buffer, mean; tables: their page tables, KiB. {} %: \
         TLB misses in 100 accesses of that pattern. {} blocks/MiB: blocks of order 3 that free memory lost for each \
         MiB delivered. unusable index: share of free memory in blocks too small. {UNKNOWN}: unknown, which the \
         record explains. Assumed: {}. seed {}",
        setting.access.join(", "),
        replay
            .rows
            .iter()
            .find_map(Row::chunks)
            .map_or_else(String::new, |row| {
                let others = row
                    .bystanders
                    .iter()
                    .map(|other| format!("{} %", named(other)));
                let others = others.collect::<Vec<_>>().join(", ");
                if others.is_empty() {
                    others
                } else {
                    format!("{others}: failures in 100 tries of others at that order; (nothing): without any buffer.")
                }
            }),
        assumptions(setting),
        replay.seed
    );
    if rows_beside_mail(replay) {
        text.push_str(
            ". mail 001: fitted: the price of reclaim was chosen so that it agrees; agrees, differs: at that price, within \
             a factor of 1.25 of the mail or not",
        );
    }
    if replay.interrupted {
        text.push_str(". Interrupted: less than was planned");
    }
    wrap(&text, style.width, 0)
}
