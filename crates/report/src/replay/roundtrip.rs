//! A replay of `roundtrip`, for people: a sentence, what all rows have in common, a line a row, and what costs what.

use stopgap_stats::record::Parameter;
use stopgap_stats::replay::roundtrip::{RoundtripRow, RoundtripSetting};
use stopgap_stats::replay::{Replay, Row};

use super::chunks::digits;
use super::{ending, notes};
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, wrap};

/// Stands where something is not known.
const UNKNOWN: &str = "-";
/// Modelled over measured where the two differ by at most 25 %.
const NEAR: std::ops::RangeInclusive<f64> = 0.75..=1.25;
/// The flags, in the order of the columns.
const FLAGS: [&str; 12] = [
    "on",
    "client-policy",
    "keyed",
    "preempt",
    "merge",
    "client",
    "server",
    "k",
    "work",
    "think",
    "batch",
    "reply",
];

/// The whole record.
pub(super) fn screen(replay: &Replay, setting: &RoundtripSetting, style: Style) -> String {
    let rows: Vec<&RoundtripRow> = replay.rows.iter().filter_map(Row::roundtrip).collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    let value = |row: &RoundtripRow, flag: &str| match row.parameters.get(flag) {
        Some(Parameter::Word(word)) => plain(word),
        Some(Parameter::Number(number)) => number.to_string(),
        None => UNKNOWN.to_owned(),
    };
    let (varied, common): (Vec<&str>, Vec<&str>) = FLAGS.iter().partition(|flag| {
        let usual = value(first, flag);
        rows.iter().any(|row| value(row, flag) != usual)
    });
    let beside = rows.iter().any(|row| row.measured.is_some());

    let mut head = varied.clone();
    head.extend(["policy", "switches", "p50", "p90", "room"]);
    if beside {
        head.extend(["measured", "factor"]);
    }
    head.push("causes");
    let cells = rows.iter().map(|row| {
        let mut cells: Vec<String> = varied.iter().map(|flag| value(row, flag)).collect();
        let count = |count: Option<u32>| count.map_or(UNKNOWN.to_owned(), |n| n.to_string());
        cells.extend([
            plain(&row.policy),
            figure(row.switches_per_request),
            count(row.switches_p50),
            count(row.switches_p90),
            figure(row.room_wakes),
        ]);
        if beside {
            let measured = row.measured.as_ref();
            let range = measured.map(|measured| {
                let [middle, least, most] =
                    [measured.switches, measured.least, measured.most].map(number);
                format!("{middle} ({least}..{most})")
            });
            let factor = measured.and_then(|measured| measured.factor);
            cells.extend([
                range.unwrap_or_else(|| UNKNOWN.to_owned()),
                factor.map_or_else(|| UNKNOWN.to_owned(), |x| format!("{}x", number(x))),
            ]);
        }
        cells.push(causes(row));
        cells
    });
    let cells = cells.collect();
    let left = [
        "policy",
        "causes",
        "client",
        "server",
        "reply",
        "on",
        "client-policy",
    ];
    let right: Vec<bool> = head.iter().map(|name| !left.contains(name)).collect();

    let common: Vec<String> = common
        .iter()
        .map(|flag| format!("{flag} {}", value(first, flag)))
        .collect();
    let mut text = wrap(&sentence(&rows), style.width, 0);
    text.push_str(&wrap(&common.join(", "), style.width, 0));
    text.push('\n');
    text.push_str(&plain_table(&head, cells, &right, false, style));
    text.push_str(&agreement(&rows, style));
    let missing = rows.iter().flat_map(|row| &row.missing);
    text.push_str(&notes(missing, style));
    text.push('\n');
    text.push_str(&legend(replay, setting, style));
    text
}

/// Of each policy, in how many cells the model is near to what was measured; nothing where nothing was.
fn agreement(rows: &[&RoundtripRow], style: Style) -> String {
    let mut counts: Vec<(&str, usize, usize)> = Vec::new();
    for row in rows {
        let Some(factor) = row.measured.as_ref().and_then(|measured| measured.factor) else {
            continue;
        };
        let near = usize::from(NEAR.contains(&factor));
        match counts.iter_mut().find(|count| count.0 == row.policy) {
            Some(count) => (count.1, count.2) = (count.1 + near, count.2 + 1),
            None => counts.push((&row.policy, near, 1)),
        }
    }
    let lines = counts.iter().map(|(policy, near, all)| {
        let told = format!(
            "{}: {near} of {all} cells within 25 % of what was measured",
            plain(policy)
        );
        wrap(&told, style.width, 0)
    });
    lines.collect()
}

/// Which cell takes least and which most.
fn sentence(rows: &[&RoundtripRow]) -> String {
    let known = || {
        rows.iter()
            .filter_map(|row| Some((row.switches_per_request?, row)))
    };
    let least = known().min_by(|a, b| a.0.total_cmp(&b.0));
    let most = known().max_by(|a, b| a.0.total_cmp(&b.0));
    let told = |(switches, row): (f64, &&RoundtripRow)| {
        format!(
            "{} ({}, {})",
            digits(switches),
            plain(&row.workload),
            plain(&row.policy)
        )
    };
    match (least, most) {
        (Some(least), Some(most)) if most.0 > least.0 * 1.05 => {
            format!(
                "from {} to {} switches a round trip",
                told(least),
                told(most)
            )
        }
        (Some(least), _) => format!("{} switches a round trip", told(least)),
        _ => "nothing was counted".to_owned(),
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.2}"))
}

/// What makes at least a fiftieth of the switches, the most first.
fn causes(row: &RoundtripRow) -> String {
    let all: f64 = row.causes.values().sum();
    let mut causes: Vec<(&String, f64)> = row
        .causes
        .iter()
        .map(|(cause, &count)| (cause, count))
        .filter(|(_, count)| *count >= all / 50.0)
        .collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts = causes
        .iter()
        .map(|(cause, count)| format!("{count:.2} {}", plain(cause)));
    texts.collect::<Vec<_>>().join("; ")
}

fn legend(replay: &Replay, setting: &RoundtripSetting, style: Style) -> String {
    let prices = setting.prices.iter().map(|price| {
        let value = price
            .value
            .map_or_else(String::new, |value| format!(" {value:.0}"));
        format!("{}{value} {}", plain(&price.name), plain(&price.unit))
    });
    let mut text = format!(
        "Modelled: switch-outs of client and server a round trip, mean, p50 and p90; room: wake-ups of a sleeper \
         because there was room to write, a round trip. causes: those of at least 2 %; the record has all. Prices: {}. \
         seed {}",
        prices.collect::<Vec<_>>().join(", "),
        replay.seed
    );
    text.push_str(&ending(replay, setting.beside.as_deref()));
    wrap(&text, style.width, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stopgap_events::machine::Missing;
    use stopgap_events::question::Question;
    use stopgap_stats::replay::{Beside, SCHEMA};

    fn row(client: &str, switches: Option<f64>, measured: Option<Beside>) -> RoundtripRow {
        RoundtripRow {
            workload: format!("{client} client"),
            policy: "linux-6.12".to_owned(),
            n: None,
            operations: 2_000,
            parameters: [("client", client), ("server", "poll")]
                .map(|(name, word)| (name.to_owned(), word.into()))
                .into(),
            switches_per_request: switches,
            switches_p50: None,
            switches_p90: switches.map(|_| 4),
            causes: BTreeMap::from([("client blocks".to_owned(), 2.0), ("rare".to_owned(), 0.01)]),
            data_wakes: None,
            room_wakes: Some(1.0),
            cpu_us: None,
            measured,
            missing: vec![Missing::new("measured", "it was not")],
        }
    }

    /// What varies is a column, what does not is said once; what is not known is no 0.
    #[test]
    fn columns_are_what_varies() {
        let beside = Beside {
            runs: 3,
            switches: 3.8,
            least: 3.7,
            most: 3.9,
            factor: Some(1.05),
            shares: BTreeMap::new(),
        };
        let replay = Replay {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            question: Question::Roundtrip,
            seed: 9,
            repetitions: 1,
            clock_ns: None,
            interrupted: true,
            rows: vec![
                Row::Roundtrip(row("read", Some(4.0), Some(beside))),
                Row::Roundtrip(row("poll", None, None)),
            ],
            growth: Vec::new(),
            mail: None,
            chunks: None,
            roundtrip: Some(RoundtripSetting {
                prices: Vec::new(),
                beside: Some("a\u{1b}file".to_owned()),
            }),
            reclaim: None,
        };
        let style = Style {
            width: 120,
            colour: false,
        };
        let text = crate::replay::screen(&replay, style);
        let line = |client: &str| {
            let lines = text.lines().filter(|line| line.starts_with(client));
            let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.collect::<Vec<_>>().join(&" ").join(" ")
        };
        let read = "read linux-6.12 4.00 - 4 1.00 3.80 (3.70..3.90) 1.05x 2.00 client blocks";
        assert_eq!(line("read"), read, "{text}");
        assert_eq!(
            line("poll"),
            "poll linux-6.12 - - - 1.00 - - 2.00 client blocks"
        );
        assert!(text.contains("server poll"), "{text}");
        let near = "linux-6.12: 1 of 1 cells within 25 % of what was measured";
        assert!(text.contains(near), "{text}");
        assert!(
            text.contains("2 rows: measured unknown: it was not"),
            "{text}"
        );
        assert!(text.contains("Interrupted"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
