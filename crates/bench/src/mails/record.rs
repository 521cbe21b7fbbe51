//! Reading figures out of what a command printed.

use serde_json::Value;
use stopgap_events::units::Nanos;
pub(super) use stopgap_report::text::number as n;
use stopgap_report::text::thousands;

use super::claim::Seen;

/// The output of a command, or a part of it: a record, or text.
#[derive(Clone)]
pub(super) struct Record {
    /// The command, as one types it.
    pub(super) command: String,
    pub(super) value: Value,
}

impl Record {
    fn at(&self, path: &str) -> Option<&Value> {
        fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
            match value {
                Value::Array(values) => values.get(key.parse::<usize>().ok()?),
                value => value.get(key),
            }
        }
        let mut keys = path.split('.').filter(|key| !key.is_empty());
        keys.try_fold(&self.value, step)
    }

    fn lacks(&self, what: &str) -> String {
        format!("the record of `{}` has no {what}", self.command)
    }

    fn of(&self, value: &Value) -> Record {
        let (command, value) = (self.command.clone(), value.clone());
        Record { command, value }
    }

    pub(super) fn part(&self, path: &str) -> Result<Record, String> {
        let value = self.at(path).ok_or_else(|| self.lacks(path))?;
        Ok(self.of(value))
    }

    /// Returns a number; the part itself where the path is empty.
    pub(super) fn f(&self, path: &str) -> Result<f64, String> {
        let value = self.at(path).and_then(Value::as_f64);
        value.ok_or_else(|| self.lacks(path))
    }

    /// Returns a number, 0 where the record leaves it out.
    pub(super) fn or_0(&self, path: &str) -> f64 {
        self.f(path).unwrap_or(0.0)
    }

    pub(super) fn s(&self, path: &str) -> Result<&str, String> {
        let value = self.at(path).and_then(Value::as_str);
        value.ok_or_else(|| self.lacks(path))
    }

    pub(super) fn all(&self, path: &str) -> Result<Vec<Record>, String> {
        let values = self.at(path).and_then(Value::as_array);
        let values = values.ok_or_else(|| self.lacks(path))?;
        Ok(values.iter().map(|value| self.of(value)).collect())
    }

    fn is(&self, path: &str, wanted: &str) -> bool {
        match self.at(path) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => text == wanted,
            Some(value) => {
                let text = value.to_string();
                text == wanted
            }
        }
    }

    /// Finds what has these values in a list, as `policy=held n=100`, its parameters among them.
    pub(super) fn find(&self, list: &str, wanted: &str) -> Result<Record, String> {
        let has = |part: &Record| {
            wanted
                .split_whitespace()
                .filter_map(|pair| pair.split_once('='))
                .all(|(key, value)| {
                    part.is(key, value) || part.is(&format!("parameters.{key}"), value)
                })
        };
        let found = self.all(list)?.into_iter().find(has);
        found.ok_or_else(|| self.lacks(&format!("{list} with {wanted}")))
    }

    pub(super) fn row(&self, wanted: &str) -> Result<Record, String> {
        self.find("rows", wanted)
    }

    /// Returns the median over runs of a probe's series.
    pub(super) fn series(&self, name: &str, wanted: &str) -> Result<f64, String> {
        let all = self.all("answers.0.series")?.into_iter();
        let value = all
            .filter(|part| part.is("name", name))
            .map(|part| part.value)
            .collect();
        let named = Record {
            value,
            ..self.clone()
        }
        .find("", wanted);
        let series = named.map_err(|_| self.lacks(&format!("series {name} with {wanted}")))?;
        let blocks = series.all("blocks")?.into_iter();
        let mut values: Vec<f64> = blocks.filter_map(|block| block.f("value").ok()).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.get(values.len() / 2).copied();
        middle.ok_or_else(|| self.lacks(&format!("value of {name}")))
    }
}

/// Says what was seen.
pub(super) fn seen(holds: bool, prints: impl Into<String>) -> Result<Seen, String> {
    let prints = prints.into();
    Ok(Seen { prints, holds })
}

/// Whether two positive figures differ by at most this factor.
pub(super) fn within(factor: f64, a: f64, b: f64) -> bool {
    a > 0.0 && b > 0.0 && (a / b).max(b / a) <= factor
}

/// Prints a count.
pub(super) fn count(value: f64) -> String {
    thousands(value.max(0.0).round() as u64)
}

/// Prints a time in nanoseconds.
pub(super) fn ns(value: f64) -> String {
    Nanos(value.max(0.0).round() as u64).to_string()
}

pub(super) fn us(value: f64) -> String {
    ns(value * 1e3)
}

pub(super) fn ms(value: f64) -> String {
    ns(value * 1e6)
}
