//! A replay of `placement`, for people: a table a workload, what grows over N, and the model beside the
//! mail.

use stopgap_events::units::Nanos;
use stopgap_stats::replay::{Growth, Loops, MailFit, PlacementRow, Quantity, Replay, Row};

use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// Stands where something is not known.
const UNKNOWN: &str = "-";

/// The whole record.
pub(super) fn screen(replay: &Replay, style: Style) -> String {
    let mut text = String::new();
    let rows: Vec<&PlacementRow> = replay.rows.iter().filter_map(Row::placement).collect();
    let mut workloads: Vec<&str> = Vec::new();
    for row in &rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    for workload in workloads {
        let rows: Vec<&PlacementRow> = of(&rows, |row| row.workload == workload)
            .into_iter()
            .copied()
            .collect();
        let growth: Vec<&Growth> = of(&replay.growth, |one| one.workload == workload);
        text.push_str(&table(workload, &rows, style));
        text.push_str(&growth_table(&growth, style));
        text.push_str(&why_it_scans(&rows, style));
        text.push_str(&loops_table(&rows, style));
        text.push_str(&beside_mail_003(&rows, style));
        if let Some(mail) = replay.mail.as_ref().filter(|fit| fit.workload == workload) {
            text.push('\n');
            text.push_str(&mail_table(mail, style));
        }
        text.push('\n');
    }
    text.push_str(&legend(replay, style));
    text
}

fn of<T>(all: &[T], which: impl Fn(&T) -> bool) -> Vec<&T> {
    all.iter().filter(|one| which(one)).collect()
}

fn table(workload: &str, rows: &[&PlacementRow], style: Style) -> String {
    let head = [
        "policy",
        "N",
        "ops",
        "ns/op",
        "(least..most)",
        "work/map",
        "steps/op",
        "p99.99",
        "worst",
        "span/live",
        "failed",
        "B/range",
    ];
    let right: Vec<bool> = (0..head.len()).map(|column| column > 0).collect();
    let (able, unable): (Vec<&PlacementRow>, Vec<&PlacementRow>) =
        rows.iter().copied().partition(|row| row.lacks.is_none());
    let mut text = format!("{}{}\n", plain(workload), driver(rows));
    if !able.is_empty() {
        let cells = able.iter().map(|row| cells(row)).collect();
        text.push_str(&plain_table(&head, cells, &right, false, style));
    }
    let mut said: Vec<String> = Vec::new();
    let mut say = |line: String| {
        if !said.contains(&line) {
            said.push(line);
        }
    };
    for row in &able {
        if let Some(stopped) = &row.stopped {
            say(format!(
                "  {}{} stopped {}",
                plain(&row.policy),
                at(row),
                plain(stopped)
            ));
        }
    }
    for row in unable {
        let lacks = row.lacks.as_deref().unwrap_or_default();
        say(format!("  {} lacks {}", plain(&row.policy), plain(lacks)));
    }
    for row in rows {
        if let Some(note) = &row.note {
            say(format!("  {}: {}", plain(&row.policy), plain(note)));
        }
    }
    text.extend(said.iter().map(|line| wrap(line, style.width, 2)));
    text
}

/// What the driver took, from the least N to the most.
fn driver(rows: &[&PlacementRow]) -> String {
    let known = rows.iter().filter_map(|row| row.driver_ns);
    let low = known.clone().reduce(f64::min);
    let high = known.reduce(f64::max);
    match low.zip(high) {
        None => String::new(),
        Some((low, high)) if number(low) == number(high) => {
            format!(", driver {} ns taken off", number(low))
        }
        Some((low, high)) => format!(", driver {}..{} ns taken off", number(low), number(high)),
    }
}

fn at(row: &PlacementRow) -> String {
    row.n
        .map_or_else(String::new, |n| format!(" at N={}", thousands(n)))
}

fn cells(row: &PlacementRow) -> Vec<String> {
    let figure = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
    let time = |ns: Option<u64>| ns.map_or_else(|| UNKNOWN.to_owned(), |ns| Nanos(ns).to_string());
    vec![
        plain(&row.policy),
        row.n.map_or_else(|| UNKNOWN.to_owned(), thousands),
        thousands(row.operations),
        row.ns_per_operation.map_or_else(
            || UNKNOWN.to_owned(),
            |ns| {
                if lost(row) {
                    "~0".to_owned()
                } else {
                    number(ns)
                }
            },
        ),
        row.spread
            .filter(|_| !lost(row))
            .map_or_else(String::new, |spread| {
                format!("({}..{})", number(spread.low), number(spread.high))
            }),
        figure(row.work_per_map),
        figure(steps(row)),
        time(row.p9999_ns),
        time(row.worst_ns),
        figure(row.span_over_live),
        thousands(row.failures),
        figure(row.bytes_per_range),
    ]
}

/// Whether it takes so little that it cannot be told from the driver: it does nothing in this workload.
fn lost(row: &PlacementRow) -> bool {
    let driver = row.driver_ns.unwrap_or(0.0);
    row.ns_per_operation.is_some_and(|ns| ns < driver / 10.0)
}

/// Nodes recomputed for an operation.
fn steps(row: &PlacementRow) -> Option<f64> {
    let propagated = row.propagated.filter(|_| row.operations > 0)?;
    Some(propagated as f64 / row.operations as f64)
}

fn growth_table(growth: &[&Growth], style: Style) -> String {
    if growth.is_empty() {
        return String::new();
    }
    let rows = growth.iter().map(|one| {
        let quantity = match one.quantity {
            Quantity::WorkPerMap => "work a map",
            Quantity::Time => "time",
        };
        vec![plain(&one.policy), quantity.to_owned(), plain(&one.text)]
    });
    let head = ["over N", "of", ""];
    format!(
        "\n{}",
        plain_table(&head, rows.collect(), &[], false, style)
    )
}

/// How many of the maps began at the base again, and how many looked at all from there: for the policies
/// that have a cache to begin at.
fn why_it_scans(rows: &[&PlacementRow], style: Style) -> String {
    let share = |part: Option<u64>, row: &PlacementRow| part.unwrap_or(0) as f64 / row.maps as f64;
    let scanning = |row: &&&PlacementRow| row.maps > 0 && row.full_scans.unwrap_or(0) > 0;
    let mut cells = Vec::new();
    let mut lead: Option<(f64, String)> = None;
    for row in rows.iter().filter(scanning) {
        let scans = share(row.full_scans, row);
        let resets = share(row.resets, row);
        // A reset that finds room at once scans nothing, so that others may be more than this.
        let others = (scans - resets).max(0.0);
        let percent = |share: f64| format!("{} %", number(share * 100.0));
        cells.push(vec![
            plain(&row.policy),
            row.n.map_or_else(|| UNKNOWN.to_owned(), thousands),
            percent(scans),
            percent(resets),
            percent(others),
        ]);
        // Mail 000 has 100 to 40,000 mappings.
        if row.policy == "linux-2.6.35" && row.n.is_none_or(|n| n >= 100) {
            let larger = if others > resets {
                "full scans for another reason than a reset are the larger cause"
            } else {
                "resets are the larger cause of full scans"
            };
            let text = format!(
                "{larger}: {} of the maps of linux-2.6.35{} scan from the base, and {} reset the cache; mail 000 \
                 guessed that almost half do",
                percent(scans),
                at(row),
                percent(resets)
            );
            // The N with the most maps has the surest share.
            if lead
                .as_ref()
                .is_none_or(|(maps, _)| *maps < row.maps as f64)
            {
                lead = Some((row.maps as f64, text));
            }
        }
    }
    if cells.is_empty() {
        return String::new();
    }
    let head = [
        "maps that",
        "N",
        "scan from the base",
        "reset",
        "scan, not reset",
    ];
    let right = [false, true, true, true, true];
    let said = lead.map_or_else(String::new, |(_, text)| wrap(&text, style.width, 2));
    format!(
        "\n{}{said}",
        plain_table(&head, cells, &right, false, style)
    )
}

/// Prints the times of loops as `agua_frag_test` does, beside those of mail 003.
fn loops_table(rows: &[&PlacementRow], style: Style) -> String {
    let line = |policy: String, loops: &Loops| {
        vec![
            policy,
            loops.count.map_or_else(|| UNKNOWN.to_owned(), thousands),
            number(loops.min_ms),
            number(loops.avg_ms),
            number(loops.max_ms),
            number(loops.sd_ms),
            if loops.is_steady() {
                "checks pass".to_owned()
            } else {
                format!("sd exceeds {}", Loops::MOST_SD_MS)
            },
        ]
    };
    let mut cells = Vec::new();
    for row in rows {
        let Some(loops) = &row.loops else { continue };
        cells.push(line(plain(&row.policy), loops));
        if let Some(mail) = row.mail_003.and_then(|mail| mail.loops) {
            cells.push(line("  mail 003".to_owned(), &mail));
        }
    }
    if cells.is_empty() {
        return String::new();
    }
    let head = [
        "maps of a loop, ms",
        "loops",
        "min",
        "avg",
        "max",
        "sd",
        "agua says",
    ];
    let right = [false, true, true, true, true, true, false];
    format!("\n{}", plain_table(&head, cells, &right, false, style))
}

/// Whether the two policies that mail 003 measured differ here as they did there.
fn beside_mail_003(rows: &[&PlacementRow], style: Style) -> String {
    let told: Vec<&&PlacementRow> = rows.iter().filter(|row| row.mail_003.is_some()).collect();
    let [before, after] = told[..] else {
        return String::new();
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
    let (Some(was), Some(became)) = (mail(before), mail(after)) else {
        return String::new();
    };
    let (Some(old), Some(new)) = (model(before), model(after)) else {
        return String::new();
    };
    let (in_mail, here) = (became.0 / was.0, new.0 / old.0);
    let verdict = if (in_mail > 1.0) == (here > 1.0) {
        "agrees"
    } else {
        "differs"
    };
    let times = |ratio: f64| {
        let (factor, word) = if ratio < 1.0 {
            (1.0 / ratio, "faster")
        } else {
            (ratio, "slower")
        };
        format!("{}x {word}", number(factor))
    };
    let text = format!(
        "{verdict} with mail 003: {} is {} than {} here ({} -> {} {}), {} there ({} -> {} {}, with the system calls \
         around it)",
        plain(&after.policy),
        times(here),
        plain(&before.policy),
        number(old.0),
        number(new.0),
        old.1,
        times(in_mail),
        number(was.0),
        number(became.0),
        was.1
    );
    wrap(&text, style.width, 2)
}

fn mail_table(fit: &MailFit, style: Style) -> String {
    let title = format!(
        "mail 000 (us a step), and {} with a floor of {} us a step and {} ns a visit, both fitted",
        plain(&fit.policy),
        number(fit.floor_us),
        number(fit.visit_ns)
    );
    let head = ["N", "visits a step", "mail us", "model us", "off by"];
    let rows = fit.points.iter().map(|point| {
        vec![
            thousands(point.n),
            number(point.visits_per_step),
            number(point.mail_us),
            number(point.model_us),
            format!("{:+.0} %", point.deviation * 100.0),
        ]
    });
    let table = plain_table(&head, rows.collect(), &[true; 5], false, style);
    format!("{}{table}", wrap(&title, style.width, 2))
}

fn legend(replay: &Replay, style: Style) -> String {
    let mut text = format!(
        "ns/op: CPU time of this implementation, {}interleaved, fresh state each; the driver's is taken off. \
         work: what was looked at and what was recomputed (steps). \
         p99.99 and worst: of operations timed alone{}; - where unknown, which the record explains. \
         span/live: from the first byte held to the last over bytes held, at the end. \
         failed: maps for which no place was left. B/range: memory for each range held. \
         ~0: too little to be told from the driver. seed {}",
        match replay.repetitions {
            1 => String::new(),
            more => format!("median of {more} repetitions (agua: one), "),
        },
        replay
            .clock_ns
            .map_or_else(String::new, |ns| format!(", {ns} ns of clock taken off")),
        replay.seed
    );
    if replay.interrupted {
        text.push_str(". Interrupted: less than was planned");
    }
    wrap(&text, style.width, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_events::question::Question;
    use stopgap_stats::replay::{MailPoint, SCHEMA, Spread};
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
        };
        let text = screen(&replay, style);
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
