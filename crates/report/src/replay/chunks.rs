//! A replay of `chunks`, for people: a sentence, then what building a buffer takes, what the device and the
//! others get, how memory is left, and what the figures would be were the assumptions otherwise.

use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::replay::chunks::{
    Bystander, ChunksRow, ChunksSetting, MailKind, MailTime, Sensitivity,
};
use stopgap_stats::replay::{Replay, Row};

use super::{ending, factor, grouped, lead};
use crate::table::{Screen, Table, UNKNOWN, join, known, known_or};
use crate::text::{count, number, number_or_0, thousands};

/// A time within this factor of the mail's agrees with it.
const NEAR: f64 = 1.25;

/// Adds the whole record.
pub(super) fn say(replay: &Replay, setting: &ChunksSetting, screen: &mut Screen) {
    let rows: Vec<&ChunksRow> = replay.rows.iter().filter_map(Row::chunks).collect();
    let Some(first) = rows.first() else { return };
    for (at, sentence) in lead::sentences(&rows, setting).iter().enumerate() {
        match at {
            0 => screen.say_bold(sentence),
            _ => screen.say(sentence),
        }
    }
    screen.say_by(0, scene(first, setting));
    screen.add("\n");
    screen.table(&times(&rows));
    for part in mappings(&rows, setting).in_parts(screen.style.width) {
        screen.add("\n");
        screen.table(&part);
    }
    let more = [memory(first, &rows), sensitivity(&rows, setting)];
    if screen.style.verbose {
        for table in &more {
            screen.add("\n");
            screen.table(table);
        }
    }
    say_notes(&rows, screen);
    screen.add("\n");
    screen.say_by(0, legend(replay, first, setting, screen.style.verbose));
}

/// Returns `thread, 2 GiB of 4 KiB pages, kernel 3.14: 100 buffers of 4 MiB, 4 held at a time`.
pub(crate) fn scene(row: &ChunksRow, setting: &ChunksSetting) -> String {
    let on = match row.workload == setting.memory {
        true => String::new(),
        false => format!("{} on the memory of ", row.workload),
    };
    let size = setting
        .size_bytes
        .map(|size| format!(" of {}", Bytes(size)));
    let live = setting
        .live
        .map(|live| format!(", {} held at a time", thousands(live)));
    format!(
        "{on}{}: {} of {} pages, kernel {}; {}{}{}, device {{{}}}{}",
        setting.memory,
        Bytes(setting.memory_bytes),
        Bytes(setting.page_bytes),
        setting.kernel,
        count(setting.buffers as usize, "buffer"),
        known_or("", size),
        known_or("", live),
        setting.device.join(","),
        match setting.single_pages {
            true => ", its driver asks for single pages",
            false => "",
        },
    )
}

/// Returns a time in its unit.
pub(crate) fn time(ms: Option<f64>) -> String {
    // Below 584 years, and not negative.
    known(ms.map(|ms| Nanos((ms * 1e6).round() as u64)))
}

fn percent(share: Option<f64>) -> String {
    known(share.map(|share| number_or_0(share * 100.0)))
}

/// Returns the share of a bystander's tries that fail; `None` where it tried nothing.
pub(super) fn failed_share(other: &Bystander) -> Option<f64> {
    (other.tries > 0).then(|| other.failures as f64 / other.tries as f64)
}

/// Returns the share of a bystander's tries that fail, in per cent.
pub(crate) fn failing(other: &Bystander) -> String {
    percent(failed_share(other))
}

/// Returns the head of a bystander's column, `dwc2:3 %`.
pub(crate) fn percent_of(other: &Bystander) -> String {
    format!("{}:{} %", other.name, other.order)
}

fn times(rows: &[&ChunksRow]) -> Table {
    let with_mail = rows.iter().any(|row| row.mail.is_some());
    let mail_head = if with_mail {
        " | >mail 001 | >factor | "
    } else {
        ""
    };
    let mut table = Table::new(&format!(
        "policy | >mean | >p99 | >worst | >tries | >failing | spent on{mail_head}"
    ));
    for row in rows {
        let mut cells = vec![row.policy.clone()];
        cells.extend([row.time_ms, row.time_p99_ms, row.time_worst_ms].map(time));
        cells.extend([row.tries_per_buffer, row.failed_tries_per_buffer].map(number_or_0));
        cells.push(causes(row));
        if with_mail {
            cells.extend(mail(row.mail.as_ref()));
        }
        table.rows.push(cells);
    }
    table
}

/// Returns the two causes that most of the time goes to, in per cent.
fn causes(row: &ChunksRow) -> String {
    let all: f64 = row.time_by_cause_ms.values().sum();
    if all <= 0.0 {
        return UNKNOWN.to_owned();
    }
    let shares = row
        .time_by_cause_ms
        .iter()
        .map(|(cause, ms)| (cause, ms / all * 100.0));
    let mut causes: Vec<(&String, f64)> = shares.filter(|(_, share)| *share >= 0.5).collect();
    causes.sort_rows(|a, b| b.1.total_cmp(&a.1));
    join(
        causes
            .iter()
            .take(2)
            .map(|(cause, share)| format!("{cause} {share:.0} %")),
        ", ",
    )
}

fn mail(mail: Option<&MailTime>) -> [String; 3] {
    let Some(mail) = mail else {
        return [UNKNOWN, "", ""].map(str::to_owned);
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
        known_or("", mail.factor.map(factor)),
        kind.to_owned(),
    ]
}

fn mappings(rows: &[&ChunksRow], setting: &ChunksSetting) -> Table {
    let others = rows.first().map_or(&[][..], |row| &row.bystanders);
    let mut head: Vec<String> = ["policy", ">entries"].map(str::to_owned).into();
    head.extend(setting.device.iter().map(|size| format!(">{size}")));
    head.push(">tables".to_owned());
    head.extend(setting.access.iter().map(|access| format!(">{access} %")));
    let before = head.len();
    head.extend(others.iter().map(|other| format!(">{}", percent_of(other))));
    head.push(">blocks/MiB".to_owned());
    let mut table = Table::with_heads(head);
    for row in rows {
        let built = |count: f64| known((!row.entries.is_empty()).then(|| number_or_0(count)));
        let of_size = |size: &String| built(row.entries.get(size).copied().unwrap_or(0.0));
        let of_access = |access: &String| {
            let of = row.tlb.iter().find(|tlb| tlb.access == *access);
            percent(of.map(|tlb| tlb.misses_per_access))
        };
        let tables = row
            .table_bytes
            .map(|bytes| format!("{} K", number(bytes / 1_024.0)));
        let mut cells = vec![row.policy.clone(), built(row.entries.values().sum())];
        cells.extend(setting.device.iter().map(of_size));
        cells.push(known(tables));
        cells.extend(setting.access.iter().map(of_access));
        cells.extend(row.bystanders.iter().map(failing));
        cells.push(known(row.large_blocks_per_mib.map(number_or_0)));
        table.rows.push(cells);
    }
    if !others.is_empty() {
        add_nothing_built(&mut table, setting, before);
    }
    table
}

/// Adds a row for what is where nothing is built: only the bystanders' columns, after the first `before`, have a figure.
pub(crate) fn add_nothing_built(table: &mut Table, setting: &ChunksSetting, before: usize) {
    let mut cells = vec!["(nothing)".to_owned()];
    cells.resize(before, String::new());
    cells.extend(setting.bystanders_alone.iter().map(failing));
    cells.resize(table.heads().count(), String::new());
    table.rows.push(cells);
}

/// Returns the unusable index by order. All policies find the same memory, so one line tells how it was before.
fn memory(first: &ChunksRow, rows: &[&ChunksRow]) -> Table {
    let orders = (1..first.unusable_before.len()).map(|order| format!(">{order}"));
    let mut table = Table::with_heads(
        ["unusable index of order".to_owned()]
            .into_iter()
            .chain(orders),
    );
    let before = ("before", &first.unusable_before);
    let after = rows.iter().map(|row| (&*row.policy, &row.unusable_after));
    for (name, index) in [before].into_iter().chain(after) {
        let mut cells = vec![name.to_owned()];
        let figures = index.iter().skip(1);
        cells.extend(figures.map(|index| known(index.map(|index| format!("{index:.2}")))));
        table.rows.push(cells);
    }
    table
}

fn sensitivity(rows: &[&ChunksRow], setting: &ChunksSetting) -> Table {
    let mut head = vec![
        "x1/2..x2 of".to_owned(),
        "what matters most".to_owned(),
        ">mean".to_owned(),
    ];
    let access = setting.access.iter().enumerate();
    head.extend(access.map(|(at, access)| match at {
        0 => format!(">TLB entries: {access} %"),
        _ => format!(">{access} %"),
    }));
    let mut table = Table::with_heads(head);
    for row in rows {
        let decisive = decisive(row);
        let mut cells = vec![row.policy.clone(), known(decisive.map(|(name, ..)| name))];
        cells.push(known(decisive.map(|(_, low, high)| {
            format!("{}..{}", time(Some(low)), time(Some(high)))
        })));
        cells.extend(setting.access.iter().map(|access| {
            let of = |one: &&Sensitivity| {
                one.quantity == "misses_per_access" && one.access.as_ref() == Some(access)
            };
            let range = range(row.sensitivity.iter().filter(of).map(|one| one.value));
            let range = range.map(|(low, high)| [low, high].map(|end| number_or_0(end * 100.0)));
            known(range.map(|[low, high]| match low == high {
                true => low,
                false => format!("{low}..{high}"),
            }))
        }));
        table.rows.push(cells);
    }
    table
}

/// Returns the assumption that moves the mean time most, with the time that its half and its twice give.
fn decisive(row: &ChunksRow) -> Option<(&str, f64, f64)> {
    let times = row
        .sensitivity
        .iter()
        .filter(|one| one.quantity == "time_ms");
    let ranges = grouped(times.map(|one| (&*one.assumption, one.value))).into_iter();
    let ranges = ranges.filter_map(|(name, values)| {
        let (low, high) = range(values.into_iter())?;
        Some((name, low, high))
    });
    ranges.max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)))
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let low = values.clone().reduce(f64::min)?;
    Some((low, values.reduce(f64::max)?))
}

/// Adds each thing that is not known, once, with the policies it concerns.
fn say_notes(rows: &[&ChunksRow], screen: &mut Screen) {
    let notes = rows.iter().flat_map(|row| {
        let (failed, all) = (thousands(row.failures), thousands(row.operations));
        let failed = (row.failures > 0)
            .then(|| format!("could not build {failed} of {all} buffers: memory was at its end"));
        let missing = row.missing.iter();
        let missing = missing.map(|missing| format!("{} unknown: {}", missing.what, missing.why));
        failed
            .into_iter()
            .chain(missing)
            .map(|note| (note, &*row.policy))
    });
    for (note, policies) in grouped(notes) {
        let whose = match policies.len() == rows.len() {
            true => "all policies".to_owned(),
            false => policies.join(", "),
        };
        screen.say(format!("  {whose}: {note}"));
    }
}

/// Returns `reclaim 244 us a page (fitted ...), ...`.
pub(crate) fn assumptions(setting: &ChunksSetting) -> String {
    let texts = setting.assumptions.iter().map(|one| {
        let value = one.value.map(|value| {
            let whole = value.fract().abs() < 1e-9 && value.abs() < 1e15;
            let shown = if whole {
                format!("{value:.0}")
            } else {
                number(value)
            };
            format!(" {shown} {}", one.unit)
        });
        format!("{}{} ({})", one.name, known_or("", value), one.why)
    });
    join(texts, ", ")
}

/// Says what the columns are; with `all` also the further tables, and what the model assumes.
fn legend(replay: &Replay, first: &ChunksRow, setting: &ChunksSetting, all: bool) -> String {
    let others = match &first.bystanders[..] {
        [] => String::new(),
        others => format!(
            " {}: failures in 100 tries of others at that order; (nothing): without any buffer.",
            join(others.iter().map(percent_of), ", ")
        ),
    };
    let mut mails = replay
        .rows
        .iter()
        .filter_map(Row::chunks)
        .map(|row| row.mail.is_some());
    let mail = match mails.any(|mail| mail) {
        true => {
            " mail 001: fitted: the price of reclaim was chosen so that it agrees; agrees, differs: at that price, within \
             a factor of 1.25 of the mail or not."
        }
        false => "",
    };
    let more = match all {
        true => format!(
            " unusable index: share of free memory in blocks too small. {UNKNOWN}: unknown, which the record explains. \
             Assumed: {}. seed {}",
            assumptions(setting),
            replay.seed
        ),
        false => {
            " --verbose adds what the model assumes, and what free memory is left like".to_owned()
        }
    };
    format!(
        "Times are modelled: what the allocator did, at assumed prices. mean, p99, worst: of a buffer; tries, failing: \
         of the allocator, a buffer. entries: of the IOMMU for a buffer, mean; tables: their page tables, KiB. {} %: TLB \
         misses in 100 accesses of that pattern.{others} blocks/MiB: blocks of order 3 that free memory lost for each MiB \
         delivered.{mail}{more}{}",
        setting.access.join(", "),
        ending(replay, None)
    )
}
