//! A replay of `placement`, for people: a table a workload, what grows over N, and the model beside the
//! mail.

use stopgap_events::units::Nanos;
use stopgap_stats::replay::{Loops, MailFit, PlacementRow, Replay, Row};

use super::{ending, factor, grouped, quantity};
use crate::table::{Screen, Table, known, known_or};
use crate::text::{number, share, thousands};

/// Adds the whole record.
pub(super) fn say(replay: &Replay, screen: &mut Screen) {
    let rows = replay.rows.iter().filter_map(Row::placement);
    for (workload, rows) in grouped(rows.map(|row| (&row.workload, row))) {
        if let Some(sentence) = fastest(workload, &rows) {
            screen.say_bold(sentence);
        }
        screen.line(format!("{workload}{}", driver(&rows)));
        say_rows(&rows, screen);
        let mut growth = Table::new("over N | of | ");
        for one in replay.growth.iter().filter(|one| one.workload == *workload) {
            growth.row(&[&one.policy, &quantity(one.quantity), &one.text]);
        }
        say_apart(&growth, screen);
        say_why_it_scans(&rows, screen);
        say_apart(&loops(&rows), screen);
        if let Some(text) = beside_mail_003(&rows) {
            screen.say(text);
        }
        if let Some(fit) = replay.mail.as_ref().filter(|fit| fit.workload == *workload) {
            screen.add("\n");
            screen.say(format!(
                "mail 000 (us a step), and {} with a floor of {} us a step and {} ns a visit, both fitted",
                fit.policy,
                number(fit.floor_us),
                number(fit.visit_ns)
            ));
            let mut table = Table::new(">N | >visits a step | >mail us | >model us | >off by");
            add_mail_points(fit, &mut table);
            screen.table(&table);
        }
        screen.add("\n");
    }
    screen.say_by(0, legend(replay));
}

/// Returns the fastest policy of each workload in a sentence.
pub(super) fn sentences(replay: &Replay) -> Vec<String> {
    let rows = replay.rows.iter().filter_map(Row::placement);
    let workloads = grouped(rows.map(|row| (&row.workload, row)));
    let fastest = workloads
        .iter()
        .filter_map(|(workload, rows)| fastest(workload, rows));
    fastest.collect()
}

/// Returns the fastest and the slowest policy beside the most mappings; nothing where there is one policy.
fn fastest(workload: &str, rows: &[&PlacementRow]) -> Option<String> {
    let many = rows.iter().filter_map(|row| row.n).max()?;
    let at = rows
        .iter()
        .filter(|row| row.n == Some(many) && row.lacks.is_none());
    let timed: Vec<(&str, f64)> = at
        .filter_map(|row| Some((&*row.policy, row.ns_per_operation?)))
        .collect();
    let by_time = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
    let (fast, slow) = (timed.iter().min_by(by_time)?, timed.iter().max_by(by_time)?);
    if fast.0 == slow.0 {
        return None;
    }
    let ns = |ns: f64| crate::text::level(ns, "ns");
    Some(format!(
        "{workload}: beside {} mappings {} is the fastest ({} an operation), {} the slowest ({}).",
        thousands(many),
        fast.0,
        ns(fast.1),
        slow.0,
        ns(slow.1)
    ))
}

/// Adds a table with an empty line before it, unless it has no row.
fn say_apart(table: &Table, screen: &mut Screen) {
    if !table.rows.is_empty() {
        screen.add("\n");
        screen.table(table);
    }
}

/// Adds a row for each N of mail 000: visits a step, the mail's time, the model's, and how far it is off.
pub(crate) fn add_mail_points(fit: &MailFit, table: &mut Table) {
    for point in &fit.points {
        let figures = [point.visits_per_step, point.mail_us, point.model_us];
        let [visits, mail, model] = figures.map(number);
        let off = format!("{:+.0} %", point.deviation * 100.0);
        table.row(&[&thousands(point.n), &visits, &mail, &model, &off]);
    }
}

/// Adds the figures of the rows, and below them why some have none.
fn say_rows(rows: &[&PlacementRow], screen: &mut Screen) {
    let mut table = Table::new(
        "policy | >N | >ops | >ns/op | >(least..most) | >work/map | >steps/op | >p99.99 | >worst | >span/live | >failed | >B/range",
    );
    let figure = |value: Option<f64>| known(value.map(number));
    let time = |ns: Option<u64>| known(ns.map(Nanos));
    let mut notes: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| row.lacks.is_none()) {
        // Time lost in the driver's own: the policy does nothing in this workload.
        let driver = row.driver_ns.unwrap_or(0.0);
        let lost = row.ns_per_operation.is_some_and(|ns| ns < driver / 10.0);
        let ns = if lost {
            "~0".to_owned()
        } else {
            figure(row.ns_per_operation)
        };
        let spread = row.spread.filter(|_| !lost);
        let spread = spread.map(|all| format!("({}..{})", number(all.low), number(all.high)));
        let propagated = row.propagated.filter(|_| row.operations > 0);
        let steps = propagated.map(|steps| steps as f64 / row.operations as f64);
        table.row(&[
            &row.policy,
            &known(row.n.map(thousands)),
            &thousands(row.operations),
            &ns,
            &known_or("", spread),
            &figure(row.work_per_map),
            &figure(steps),
            &time(row.p9999_ns),
            &time(row.worst_ns),
            &figure(row.span_over_live),
            &thousands(row.failures),
            &figure(row.bytes_per_range),
        ]);
        let stopped = row.stopped.as_ref();
        notes.extend(stopped.map(|why| format!("  {}{} stopped {why}", row.policy, at(row))));
    }
    table.keys = 2;
    screen.table_of_some(&table);
    let lacks = rows
        .iter()
        .filter_map(|row| Some((row, row.lacks.as_ref()?)));
    notes.extend(lacks.map(|(row, lacks)| format!("  {} lacks {lacks}", row.policy)));
    let noted = rows
        .iter()
        .filter_map(|row| Some((row, row.note.as_ref()?)));
    notes.extend(noted.map(|(row, note)| format!("  {}: {note}", row.policy)));
    for (note, _) in grouped(notes.into_iter().map(|note| (note, ()))) {
        screen.say(note);
    }
}

/// Returns what the driver took, from the least N to the most.
fn driver(rows: &[&PlacementRow]) -> String {
    let ends = rows
        .iter()
        .filter_map(|row| row.driver_ns)
        .map(|ns| (ns, ns));
    let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let text = ends.map(|(low, high)| match [number(low), number(high)] {
        [low, high] if low == high => format!(", driver {low} ns taken off"),
        [low, high] => format!(", driver {low}..{high} ns taken off"),
    });
    known_or("", text)
}

fn at(row: &PlacementRow) -> String {
    known_or("", row.n.map(|n| format!(" at N={}", thousands(n))))
}

/// Adds how many of the maps began at the base again, and how many looked at all from there: for the policies
/// that have a cache to begin at.
fn say_why_it_scans(rows: &[&PlacementRow], screen: &mut Screen) {
    let mut table = Table::new("maps that | >N | >scan from the base | >reset | >scan, not reset");
    // The N of linux-2.6.35 with the most maps has the surest share.
    let mut surest: Option<&PlacementRow> = None;
    for row in rows {
        let (scans, resets) = (row.full_scans.unwrap_or(0), row.resets.unwrap_or(0));
        if row.maps == 0 || scans == 0 {
            continue;
        }
        // A reset that finds room at once scans nothing, so that others may be more than this.
        let others = scans.saturating_sub(resets);
        let percent = |part| format!("{} %", share(part, row.maps));
        let (n, scan) = (known(row.n.map(thousands)), percent(scans));
        table.row(&[&row.policy, &n, &scan, &percent(resets), &percent(others)]);
        // Mail 000 has 100 to 40,000 mappings.
        let in_mail = row.policy == "linux-2.6.35" && row.n.is_none_or(|n| n >= 100);
        if in_mail && surest.is_none_or(|surest| surest.maps < row.maps) {
            surest = Some(row);
        }
    }
    say_apart(&table, screen);
    if let Some(row) = surest {
        let (scans, resets) = (row.full_scans.unwrap_or(0), row.resets.unwrap_or(0));
        let larger = match scans.saturating_sub(resets) > resets {
            true => "full scans for another reason than a reset are the larger cause",
            false => "resets are the larger cause of full scans",
        };
        screen.say(format!(
            "{larger}: {} % of the maps of linux-2.6.35{} scan from the base, and {} % reset the cache; mail 000 \
             guessed that almost half do",
            share(scans, row.maps),
            at(row),
            share(resets, row.maps)
        ));
    }
}

/// Returns the times of loops as `agua_frag_test` prints them, beside those of mail 003.
fn loops(rows: &[&PlacementRow]) -> Table {
    let mut table =
        Table::new("maps of a loop, ms | >loops | >min | >avg | >max | >sd | agua says");
    let mut add = |policy: &str, loops: &Loops| {
        let times = [loops.min_ms, loops.avg_ms, loops.max_ms, loops.sd_ms];
        let [min, avg, max, sd] = times.map(number);
        let says = match loops.is_steady() {
            true => "checks pass".to_owned(),
            false => format!("sd exceeds {}", Loops::MOST_SD_MS),
        };
        let count = known(loops.count.map(thousands));
        table.row(&[&policy, &count, &min, &avg, &max, &sd, &says]);
    };
    for row in rows {
        let Some(loops) = &row.loops else { continue };
        add(&row.policy, loops);
        if let Some(mail) = row.mail_003.and_then(|mail| mail.loops) {
            add("  mail 003", &mail);
        }
    }
    table
}

/// Returns whether the two policies that mail 003 measured differ here as they did there.
fn beside_mail_003(rows: &[&PlacementRow]) -> Option<String> {
    let both: Vec<&&PlacementRow> = rows.iter().filter(|row| row.mail_003.is_some()).collect();
    let [before, after] = both[..] else {
        return None;
    };
    let mail = |row: &PlacementRow| {
        let mail = row.mail_003?;
        match mail.loops {
            Some(loops) => Some((loops.avg_ms, "ms a loop")),
            None => Some((mail.elapsed_s?, "s")),
        }
    };
    let model = |row: &PlacementRow| match (&row.loops, row.mail_003?.loops) {
        (Some(loops), Some(_)) => Some((loops.avg_ms, "ms a loop")),
        (None, Some(_)) => None,
        (_, None) => Some((row.ns_per_operation?, "ns an operation")),
    };
    let (was, became) = (mail(before)?, mail(after)?);
    let (old, new) = (model(before)?, model(after)?);
    let (in_mail, here) = (became.0 / was.0, new.0 / old.0);
    let agrees = (in_mail > 1.0) == (here > 1.0);
    let times = |ratio: f64| match ratio < 1.0 {
        true => format!("{} faster", factor(1.0 / ratio)),
        false => format!("{} slower", factor(ratio)),
    };
    Some(format!(
        "{} with mail 003: {} is {} than {} here ({} -> {} {}), {} there ({} -> {} {}, with the system calls \
         around it)",
        if agrees { "agrees" } else { "differs" },
        after.policy,
        times(here),
        before.policy,
        number(old.0),
        number(new.0),
        old.1,
        times(in_mail),
        number(was.0),
        number(became.0),
        was.1
    ))
}

fn legend(replay: &Replay) -> String {
    let repetitions = match replay.repetitions {
        1 => String::new(),
        more => format!("median of {more} repetitions (agua: one), "),
    };
    format!(
        "ns/op: CPU time of this implementation, {repetitions}interleaved, fresh state each; the driver's is taken off. \
         work: what was looked at and what was recomputed (steps). \
         p99.99 and worst: of operations timed alone{}; - where unknown, which the record explains. \
         span/live: from the first byte held to the last over bytes held, at the end. \
         failed: maps for which no place was left. B/range: memory for each range held. \
         ~0: too little to be told from the driver. seed {}{}",
        known_or(
            "",
            replay
                .clock_ns
                .map(|ns| format!(", {ns} ns of clock taken off"))
        ),
        replay.seed,
        ending(replay, None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Style;
    use stopgap_events::question::Question;
    use stopgap_stats::replay::{Growth, MailPoint, Quantity, SCHEMA, Spread};
    use stopgap_stats::verdict::Word;

    fn row(policy: &str, n: u64) -> PlacementRow {
        PlacementRow {
            workload: "pbobench".to_owned(),
            policy: policy.to_owned(),
            n: Some(n),
            operations: 200_000,
            maps: 100_000,
            ns_per_operation: Some(12.34),
            spread: Some(Spread {
                low: 12.0,
                high: 15.5,
            }),
            driver_ns: Some(4.9),
            work_per_map: Some(4_123.4),
            visited: Some(1),
            descended: Some(0),
            propagated: Some(1),
            resets: Some(1),
            full_scans: Some(1),
            flushes: Some(0),
            p9999_ns: None,
            worst_ns: Some(1_500_000),
            span_over_live: Some(1.062),
            failures: 0,
            live: 1_050,
            bytes_per_range: Some(16.0),
            loops: None,
            mail_003: None,
            stopped: Some("after 10 visits".to_owned()),
            lacks: None,
            note: None,
            missing: Vec::new(),
        }
    }

    #[test]
    fn unknown_figures_are_dashes_and_reasons_stand_below() {
        let lacking = PlacementRow {
            lacks: Some("limits of a request".to_owned()),
            note: Some("pads\u{1b}[31m".to_owned()),
            ..row("peer", 1_000)
        };
        let replay = Replay {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            question: Question::Placement,
            seed: 7,
            repetitions: 5,
            clock_ns: Some(25),
            interrupted: true,
            rows: vec![
                Row::Placement(row("linux-2.6.35", 1_000)),
                Row::Placement(lacking),
            ],
            growth: vec![Growth {
                workload: "pbobench".to_owned(),
                policy: "linux-2.6.35".to_owned(),
                quantity: Quantity::WorkPerMap,
                word: Word::Grows,
                exponent: None,
                text: "grows ~N^1.00 (0.99..1.01)".to_owned(),
            }],
            mail: Some(MailFit {
                workload: "pbobench".to_owned(),
                policy: "linux-2.6.35".to_owned(),
                floor_us: 15.0,
                visit_ns: 42.0,
                points: vec![MailPoint {
                    n: 40_000,
                    visits_per_step: 8_240.0,
                    mail_us: 406.0,
                    model_us: 361.0,
                    deviation: -0.11,
                }],
            }),
            chunks: None,
            roundtrip: None,
            reclaim: None,
        };
        let style = Style {
            width: 120,
            colour: false,
            verbose: false,
        };
        let text = crate::replay::screen(&replay, style);
        let line = |word: &str| {
            let found = text.lines().find(|line| line.contains(word));
            found.unwrap_or_else(|| panic!("no '{word}' in\n{text}"))
        };
        let first = line("12.3");
        for cell in ["4,123", " - ", "1.50 ms", "1.06", "(12.0..15.5)"] {
            assert!(first.contains(cell), "no '{cell}' in {first}");
        }
        assert!(line("stopped").contains("at N=1,000 stopped after 10 visits"));
        assert!(line("peer lacks").ends_with("limits of a request"));
        assert!(line("pads").contains("\\u{1b}"));
        assert!(line("grows").contains("work a map"));
        assert!(line("-11 %").contains("8,240"));
        assert!(line("Interrupted").contains("less than"));
    }
}
