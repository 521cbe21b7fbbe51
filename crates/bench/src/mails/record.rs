//! Reading figures out of what a command printed.

use serde_json::Value;
use stopgap_report::text::number as n;
use stopgap_stats::quantile::median;

use super::claim::Claim;
use super::expression::{Figures, filled, value};

/// The output of a command: a record, or text.
pub(super) struct Record {
    /// The command, as one types it.
    pub(super) command: String,
    pub(super) value: Value,
}

/// What is seen of a claim: the figures as text, and whether the criterion holds.
pub(super) type Seen = (String, bool);

/// Judges a claim by the records of its commands.
///
/// # Errors
/// Where a record lacks a figure; with `inconclusive` at the beginning where a probe could not tell.
pub(super) fn look(claim: &Claim, records: &[Record]) -> Result<Seen, String> {
    if let Some(name) = &claim.look {
        return special(name, &records[0]);
    }
    let mut figures = Figures::new();
    for (name, path) in &claim.read {
        figures.insert(name.clone(), figure(records, path)?);
    }
    let holds = value(&claim.holds, &figures)? > 0.0;
    Ok((filled(&claim.prints, &figures)?, holds))
}

/// Returns the figure at a path.
///
/// ```text
/// environment.max_map_count                    keys
/// [policy=held n=100].live                     the row with these values, its parameters among them
/// mail.points[n=1000].model_us                 the same in another list
/// [policy=held].visited/maps                   one figure over another
/// [policy=held].entries.4K+64K?                a sum, where what is missing is 0
/// series pass 1[mode=mlock]                    the median over runs of a probe's series
/// 2: ...                                       in the record of the second command
/// ```
pub(super) fn figure(records: &[Record], path: &str) -> Result<f64, String> {
    let (record, path) = match path.strip_prefix("2: ") {
        Some(path) => (&records[1], path),
        None => (&records[0], path),
    };
    match path
        .strip_prefix("series ")
        .and_then(|path| path.split_once('['))
    {
        Some((name, wanted)) => record.series(name, wanted.trim_end_matches(']')),
        None => record.number(path),
    }
}

/// Returns a part of a value: a key, or an index of a list.
fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Array(values) => values.get(key.parse::<usize>().ok()?),
        value => value.get(key),
    }
}

/// Whether a row has these values, as `policy=held n=100`, itself or among its parameters.
fn has(row: &Value, wanted: &str) -> bool {
    let is = |found: Option<&Value>, wanted: &str| match found {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => text == wanted,
        Some(value) => {
            let text = value.to_string();
            text == wanted
        }
    };
    let pairs = wanted
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    pairs.into_iter().all(|(key, wanted)| {
        let key = key.trim_start_matches("parameters.");
        is(row.get(key), wanted) || is(row["parameters"].get(key), wanted)
    })
}

impl Record {
    fn lacks(&self, what: &str) -> String {
        format!("the record of `{}` has no {what}", self.command)
    }

    fn part(&self, path: &str) -> Result<&Value, String> {
        let (mut found, mut rest) = (Some(&self.value), path);
        if path.starts_with('[') {
            found = self.value.get("rows");
        }
        while !rest.is_empty() {
            if let Some(filter) = rest.strip_prefix('[') {
                let (wanted, after) = filter.split_once(']').unwrap_or((filter, ""));
                let rows = found.and_then(Value::as_array).into_iter().flatten();
                found = rows.into_iter().find(|row| has(row, wanted));
                rest = after;
            } else {
                let keys = rest.trim_start_matches('.');
                let (key, after) = keys.split_at(keys.find(['.', '[']).unwrap_or(keys.len()));
                found = found.and_then(|value| step(value, key));
                rest = after;
            }
        }
        found.ok_or_else(|| self.lacks(path))
    }

    fn number(&self, path: &str) -> Result<f64, String> {
        let (path, optional) = match path.strip_suffix('?') {
            Some(path) => (path, true),
            None => (path, false),
        };
        let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = self.part(parent)?;
        let one = |name: &str| match step(parent, name).and_then(Value::as_f64) {
            None if optional => Ok(0.0),
            number => number.ok_or_else(|| self.lacks(path)),
        };
        match last.split_once('/') {
            Some((over, under)) => Ok(one(over)? / one(under)?),
            None => last.split('+').map(one).sum(),
        }
    }

    fn text(&self, path: &str) -> Result<&str, String> {
        let text = self.part(path)?.as_str();
        text.ok_or_else(|| self.lacks(path))
    }

    fn list(&self, path: &str) -> Result<&[Value], String> {
        let list = self.part(path)?.as_array();
        list.map(Vec::as_slice).ok_or_else(|| self.lacks(path))
    }

    fn series(&self, name: &str, wanted: &str) -> Result<f64, String> {
        let mut series = self.list("answers.0.series")?.iter();
        let series = series.find(|series| series["name"] == *name && has(series, wanted));
        let blocks = series
            .and_then(|series| series["blocks"].as_array())
            .into_iter();
        let values = blocks.flatten().filter_map(|block| block["value"].as_f64());
        median(values.collect()).ok_or_else(|| self.lacks(&format!("series {name} with {wanted}")))
    }
}

/// Looks that no expression says.
fn special(name: &str, record: &Record) -> Result<Seen, String> {
    match name {
        "mail-fit" => mail_fit(record),
        "flat" => match (
            record.text("answers.0.verdict.word")?,
            record.text("answers.0.verdict.text")?,
        ) {
            ("inconclusive", text) => Err(text.to_owned()),
            (word, text) => Ok((text.to_owned(), word == "flat")),
        },
        "orders" => orders(record),
        "stretches" => {
            let stretches = record.list("advice.stretches")?;
            let texts: Vec<String> = stretches
                .iter()
                .map(|stretch| {
                    let policy = stretch["policy"].as_str().unwrap_or_default();
                    format!("{policy} from {} passes on", stretch["from_passes"])
                })
                .collect();
            Ok((texts.join(", "), texts.len() > 1))
        }
        "differs" | "greater" | "less" => Ok(difference(name, record.text("")?)),
        _ => Err(format!("no look '{name}'")),
    }
}

/// Judges whether each point of the mail is within 20 % of the fit.
fn mail_fit(record: &Record) -> Result<Seen, String> {
    let (mut holds, mut texts) = (true, Vec::new());
    for at in 0..record.list("mail.points")?.len() {
        let figure = |name| record.number(&format!("mail.points.{at}.{name}"));
        holds &= figure("deviation")?.abs() <= 0.2;
        texts.push(format!(
            "{} at N = {}",
            n(figure("model_us")?),
            n(figure("n")?)
        ));
    }
    let (floor, price) = (
        n(record.number("mail.floor_us")?),
        n(record.number("mail.visit_ns")?),
    );
    let texts = texts.join(", ");
    Ok((
        format!("{texts} us; floor {floor} us, {price} ns a visit"),
        holds,
    ))
}

/// Judges which orders the old policy tried for Juno's framebuffer, the largest first.
fn orders(record: &Record) -> Result<Seen, String> {
    let tries = record.list("[policy=old].tries_per_buffer_by_order")?;
    let tries = tries.iter().map(|tries| tries.as_f64().unwrap_or(0.0));
    let mut orders: Vec<String> = tries
        .enumerate()
        .filter(|(_, tries)| *tries > 0.0)
        .map(|(order, tries)| match (tries - 1.0).abs() < 0.01 {
            true => order.to_string(),
            false => format!("{order} (not one each)"),
        })
        .collect();
    orders.reverse();
    let text = orders.join(", ");
    let failed = record.number("[policy=old].failed_tries_per_buffer")?;
    let holds = text == "10, 9, 8, 6, 4, 1, 0" && failed == 0.0;
    Ok((text, holds))
}

/// Judges whether ministat found a difference, and on which side.
fn difference(wanted: &str, text: &str) -> Seen {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    match lines
        .iter()
        .position(|line| line.starts_with("Difference at"))
    {
        Some(at) => {
            let text = lines[at..lines.len().min(at + 2)]
                .join(" ")
                .replace('\t', " ");
            let less = text.contains("confidence -");
            (text, wanted == "differs" || (wanted == "less") == less)
        }
        None => {
            let line = lines
                .iter()
                .rev()
                .find(|line| line.starts_with("No difference"));
            ((*line.unwrap_or(&"nothing")).to_owned(), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_paths() {
        let value = serde_json::json!({
            "environment": {"max": 9},
            "rows": [
                {"policy": "linux-3.4", "n": 100, "live": 5.0},
                {"policy": "linux-3.4", "n": 200, "live": 8.0, "maps": 2, "entries": {"4K": 1.0, "2M": 2.0}},
                {"policy": "held", "parameters": {"batch": 32}, "live": 7.0},
            ],
            "answers": [{"series": [
                {"name": "pass 1", "parameters": {"mode": "mlock"}, "blocks": [{"value": 1.0}, {"value": 4.0}, {"value": 2.0}]},
            ]}],
        });
        let command = "stopgap x".to_owned();
        let records = [Record { command, value }];
        for (path, wanted) in [
            ("environment.max", 9.0),
            ("[policy=linux-3.4 n=200].live/maps", 4.0),
            ("[policy=linux-3.4 n=200].entries.4K+64K+2M?", 3.0),
            ("[parameters.batch=32].live", 7.0),
            ("series pass 1[mode=mlock]", 2.0),
        ] {
            assert_eq!(figure(&records, path), Ok(wanted), "{path}");
        }
        let error = figure(&records, "[policy=linux-3.4 n=200].entries.64K").unwrap_err();
        assert_eq!(
            error,
            "the record of `stopgap x` has no [policy=linux-3.4 n=200].entries.64K"
        );
        assert!(figure(&records, "series pass 2[mode=mlock]").is_err());
    }
}
