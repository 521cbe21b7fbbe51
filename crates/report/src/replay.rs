//! A replay's record, for people.

pub(crate) mod chunks;
mod lead;
mod placement;
mod reclaim;
mod roundtrip;

use std::collections::BTreeMap;

use stopgap_events::machine::Missing;
use stopgap_stats::record::Parameter;
use stopgap_stats::replay::chunks::Assumption;
use stopgap_stats::replay::{Growth, Quantity, Replay, Row};

use crate::table::{Screen, Style, UNKNOWN, join, known_or};
use crate::text::number;

pub(crate) use placement::add_mail_points;

/// Returns the text of the whole record.
#[must_use]
pub fn screen(replay: &Replay, style: Style) -> String {
    let mut screen = Screen::new(style);
    if let Some(setting) = &replay.chunks {
        chunks::say(replay, setting, &mut screen);
    } else if let Some(setting) = &replay.roundtrip {
        roundtrip::say(replay, setting, &mut screen);
    } else if let Some(setting) = &replay.reclaim {
        reclaim::say(replay, setting, &mut screen);
    } else {
        placement::say(replay, &mut screen);
    }
    screen.finish()
}

/// Returns the sentences that say what came out, the first first.
pub(crate) fn sentences(replay: &Replay) -> Vec<String> {
    if let Some(setting) = &replay.chunks {
        let rows: Vec<_> = replay.rows.iter().filter_map(Row::chunks).collect();
        lead::sentences(&rows, setting)
    } else if replay.roundtrip.is_some() {
        let rows: Vec<_> = replay.rows.iter().filter_map(Row::roundtrip).collect();
        roundtrip::sentences(&rows)
    } else if let Some(setting) = &replay.reclaim {
        let both = [&setting.advice, &setting.mail].into_iter();
        both.flatten().cloned().collect()
    } else {
        placement::sentences(replay)
    }
}

/// Returns what grows, in words.
pub(crate) fn quantity(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::WorkPerMap => "work a map",
        Quantity::Time => "time",
    }
}

/// Returns how a quantity of one policy and workload grows, in a sentence.
pub(crate) fn grows(one: &Growth) -> String {
    let what = quantity(one.quantity);
    format!("{}, {}, {what}: {}", one.workload, one.policy, one.text)
}

/// Adds what is not known, once, with how many rows it concerns.
fn say_missing<'a>(missing: impl Iterator<Item = &'a Missing>, screen: &mut Screen) {
    let lines = missing.map(|missing| (format!("{} unknown: {}", missing.what, missing.why), ()));
    for (line, rows) in grouped(lines) {
        screen.say(format!("  {} rows: {line}", rows.len()));
    }
}

/// Returns each key once, in the order in which it first comes, with its values.
pub(crate) fn grouped<K: PartialEq, V>(all: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// The flags of a replay by whose values its rows differ, and those that all rows share.
struct Flags {
    varied: Vec<&'static str>,
    /// `flag value, flag value`.
    common: String,
}

impl Flags {
    /// `value` gives the value of a flag in a row.
    fn split<R>(flags: &[&'static str], rows: &[&R], value: impl Fn(&R, &str) -> String) -> Flags {
        let same = |flag: &&'static str| {
            rows.iter()
                .all(|row| value(row, flag) == value(rows[0], flag))
        };
        let (common, varied): (Vec<&str>, Vec<&str>) = flags.iter().partition(|flag| same(flag));
        let common = common
            .iter()
            .map(|flag| format!("{flag} {}", value(rows[0], flag)));
        let common = join(common, ", ");
        Flags { varied, common }
    }
}

/// Returns a row's value of a flag; `number` writes the numbers.
fn value(
    parameters: &BTreeMap<String, Parameter>,
    flag: &str,
    number: impl Fn(u64) -> String,
) -> String {
    match parameters.get(flag) {
        Some(Parameter::Word(word)) => word.clone(),
        Some(Parameter::Number(value)) => number(*value),
        None => UNKNOWN.to_owned(),
    }
}

/// Returns heads of columns: `left` has those that are not aligned to the right.
fn heads<'h>(head: &[&'h str], left: &[&str]) -> Vec<String> {
    let mark = |head: &&'h str| if left.contains(head) { "" } else { ">" };
    head.iter()
        .map(|head| format!("{}{head}", mark(head)))
        .collect()
}

/// Returns `name value unit`.
fn price(price: &Assumption) -> String {
    let value = known_or("", price.value.map(|value| format!(" {value:.0}")));
    format!("{}{value} {}", price.name, price.unit)
}

/// Returns `1.05x`.
fn factor(factor: f64) -> String {
    format!("{}x", number(factor))
}

/// Returns the end of a legend: what stands beside the model, and that it was interrupted.
fn ending(replay: &Replay, beside: Option<&str>) -> String {
    let beside = beside.map(|beside| {
        format!(
            ". measured: median of the runs (least..most) in {beside}; factor: modelled over measured"
        )
    });
    let interrupted = match replay.interrupted {
        true => ". Interrupted: less than was planned",
        false => "",
    };
    known_or("", beside) + interrupted
}

#[cfg(test)]
pub(crate) mod tests;
