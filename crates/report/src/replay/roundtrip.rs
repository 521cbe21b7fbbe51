//! A replay of `roundtrip`, for people: a sentence, what all rows have in common, a line a row, and what costs what.

use stopgap_events::order::SortRows;
use stopgap_stats::replay::roundtrip::{RoundtripRow, RoundtripSetting};
use stopgap_stats::replay::{Replay, Row};

use super::{Flags, ending, factor, grouped, heads, price, say_missing, value};
use crate::table::{Screen, Table, join, known};
use crate::text::{number, number_or_0};

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
/// Columns of words.
const LEFT: [&str; 7] = [
    "policy",
    "causes",
    "client",
    "server",
    "reply",
    "on",
    "client-policy",
];

/// Adds the whole record.
pub(super) fn say(replay: &Replay, setting: &RoundtripSetting, screen: &mut Screen) {
    let rows: Vec<&RoundtripRow> = replay.rows.iter().filter_map(Row::roundtrip).collect();
    if rows.is_empty() {
        return;
    }
    let flag = |row: &RoundtripRow, flag: &str| value(&row.parameters, flag, |n| n.to_string());
    let flags = Flags::split(&FLAGS, &rows, flag);
    let beside = rows.iter().any(|row| row.measured.is_some());
    let mut head = flags.varied.clone();
    head.extend(["policy", "switches", "p50", "p90", "room"]);
    head.extend(
        beside
            .then_some(["measured", "factor"])
            .into_iter()
            .flatten(),
    );
    head.push("causes");
    let mut table = Table::with_heads(heads(&head, &LEFT));
    for row in &rows {
        let figure = |value: Option<f64>| known(value.map(|value| format!("{value:.2}")));
        let mut cells: Vec<String> = flags.varied.iter().map(|name| flag(row, name)).collect();
        cells.extend([row.policy.clone(), figure(row.switches_per_request)]);
        cells.extend([row.switches_p50, row.switches_p90].map(known));
        cells.push(figure(row.room_wakes));
        if beside {
            let measured = row.measured.as_ref();
            cells.push(known(measured.map(|measured| {
                let figures = [measured.switches, measured.least, measured.most];
                let [middle, least, most] = figures.map(number);
                format!("{middle} ({least}..{most})")
            })));
            cells.push(known(
                measured.and_then(|measured| measured.factor).map(factor),
            ));
        }
        cells.push(causes(row));
        table.rows.push(cells);
    }
    for (at, sentence) in sentences(&rows).iter().enumerate() {
        match at {
            0 => screen.say_bold(sentence),
            _ => screen.say(sentence),
        }
    }
    screen.say_by(0, &flags.common);
    screen.add("\n");
    table.keys = flags.varied.len() + 1;
    screen.table(&table);
    let factors = rows
        .iter()
        .filter_map(|row| Some((&row.policy, row.measured.as_ref()?.factor?)));
    for (policy, factors) in grouped(factors) {
        let near = factors
            .iter()
            .filter(|factor| NEAR.contains(*factor))
            .count();
        let all = factors.len();
        screen.say_by(
            0,
            format!("{policy}: {near} of {all} cells within 25 % of what was measured"),
        );
    }
    say_missing(rows.iter().flat_map(|row| &row.missing), screen);
    screen.add("\n");
    let more = match screen.style.verbose {
        true => format!(
            "Prices: {}. seed {}",
            join(setting.prices.iter().map(price), ", "),
            replay.seed
        ),
        false => "--verbose adds the prices of calls and switches".to_owned(),
    };
    screen.say_by(0, format!(
        "Modelled: switch-outs of client and server a round trip, mean, p50 and p90; room: wake-ups of a sleeper \
         because there was room to write, a round trip. causes: those of at least 2 %; the record has all. {more}{}",
        ending(replay, setting.beside.as_deref())
    ));
}

/// Says that the model does not fit what was measured, where no policy comes near all of it.
fn misfit(rows: &[&RoundtripRow]) -> Option<String> {
    let factors = rows
        .iter()
        .filter_map(|row| Some((&row.policy, row.measured.as_ref()?.factor?)));
    let near = |factors: &Vec<f64>| factors.iter().filter(|one| NEAR.contains(*one)).count();
    let by_policy = grouped(factors).into_iter();
    let (policy, factors) = by_policy.max_by_key(|(_, factors)| near(factors))?;
    let (near, all) = (near(&factors), factors.len());
    let far = |factor: &f64| factor.ln().abs();
    let farthest = factors
        .iter()
        .copied()
        .max_by(|a, b| far(a).total_cmp(&far(b)))?;
    (near < all).then(|| {
        format!(
            "the model does not fit: {policy} is within 25 % of {near} of {all} measured cells, the farthest at {} of \
             what was measured. Do not rely on its other figures",
            factor(farthest)
        )
    })
}

/// Returns whether the model fits where it does not, then which cell takes least and which most.
pub(super) fn sentences(rows: &[&RoundtripRow]) -> Vec<String> {
    let misfit = misfit(rows);
    let ends = ends(rows);
    misfit.into_iter().chain(ends).collect()
}

/// Returns which cell takes least and which most.
fn ends(rows: &[&RoundtripRow]) -> Vec<String> {
    let known = || {
        rows.iter()
            .filter_map(|row| Some((row.switches_per_request?, row)))
    };
    let least = known().min_by(|a, b| a.0.total_cmp(&b.0));
    let most = known().max_by(|a, b| a.0.total_cmp(&b.0));
    let text = |(switches, row): (f64, &&RoundtripRow)| {
        format!(
            "{} task switches a round trip: {}, {}",
            number_or_0(switches),
            row.workload,
            row.policy
        )
    };
    match (least, most) {
        (Some(least), Some(most)) if most.0 > least.0 * 1.05 => vec![
            format!("fewest, {}", text(least)),
            format!("most, {}", text(most)),
        ],
        (Some(least), _) => vec![text(least)],
        _ => vec!["nothing was counted".to_owned()],
    }
}

/// Returns what makes at least a fiftieth of the switches, the most first.
fn causes(row: &RoundtripRow) -> String {
    let all: f64 = row.causes.values().sum();
    let enough = row.causes.iter().filter(|(_, count)| **count >= all / 50.0);
    let mut causes: Vec<(&String, &f64)> = enough.collect();
    causes.sort_rows(|a, b| b.1.total_cmp(a.1));
    join(
        causes
            .iter()
            .map(|(cause, count)| format!("{count:.2} {cause}")),
        "; ",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Style;
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

    #[test]
    fn a_model_that_does_not_fit_is_the_first_line() {
        let beside = |factor| Beside {
            runs: 3,
            switches: 3.8,
            least: 3.7,
            most: 3.9,
            factor: Some(factor),
            shares: BTreeMap::new(),
        };
        let fits = row("read", Some(4.0), Some(beside(1.05)));
        let not = row("poll", Some(4.0), Some(beside(0.42)));
        let told = sentences(&[&fits, &not]);
        assert_eq!(
            told[0],
            "the model does not fit: linux-6.12 is within 25 % of 1 of 2 measured cells, the farthest at 0.42x of what was \
             measured. Do not rely on its other figures"
        );
        assert_eq!(sentences(&[&fits, &fits]).len(), 1, "it fits");
        // Another kernel's policy need not fit.
        let other = RoundtripRow {
            policy: "linux-2.6.35".to_owned(),
            ..not
        };
        assert_eq!(sentences(&[&fits, &other]).len(), 1, "one fits");
    }

    /// Flags that vary are columns, the others stand in one line; an unknown figure is no 0.
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
            verbose: false,
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
