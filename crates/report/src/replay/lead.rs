//! The sentence that a replay of `chunks` leads with.

use stopgap_stats::replay::{ChunksRow, ChunksSetting};

use super::chunks::{digits, share, time};
use crate::text::{number, plain, thousands};

/// Which policy takes least and which most time, which needs fewest entries, beside which each of the
/// others fails least and most. For a single policy it gives its figures.
pub(super) fn sentence(rows: &[&ChunksRow], setting: &ChunksSetting) -> String {
    let mut parts = Vec::new();
    let timed = Ends::of(rows, |row| row.time_ms);
    match &timed {
        None => parts.push(format!("no policy could build a buffer{}", why(setting))),
        Some(ends) if ends.same() => {
            parts.push(format!(
                "{} a buffer with {}",
                time(Some(ends.least)),
                ends.least_names()
            ));
        }
        Some(ends) => parts.push(format!(
            "{} a buffer with {}, {} with {} ({}x)",
            time(Some(ends.least)),
            ends.least_names(),
            time(Some(ends.most)),
            ends.most_names(),
            number(ends.most / ends.least)
        )),
    }
    parts.extend(timed.and_then(|_| not_built(rows, setting)));
    let entries =
        |row: &ChunksRow| (!row.entries.is_empty()).then(|| row.entries.values().sum::<f64>());
    if let Some(ends) = Ends::of(rows, entries) {
        parts.push(if ends.same() {
            format!("{} IOMMU entries", number(ends.least))
        } else {
            format!(
                "{} IOMMU entries with {}, {} with {}",
                number(ends.least),
                ends.least_names(),
                number(ends.most),
                ends.most_names()
            )
        });
    }
    parts.extend(setting.bystanders_alone.iter().filter_map(|alone| {
        let failing = |row: &ChunksRow| {
            let one = row.bystanders.iter().find(|one| one.name == alone.name)?;
            share(one.failures, one.tries)
        };
        let ends = Ends::of(rows, failing)?;
        let percent = |share: f64| format!("{} %", digits(share * 100.0));
        let without = share(alone.failures, alone.tries).map_or_else(String::new, |share| {
            format!("{} without a buffer, ", percent(share))
        });
        let most = if ends.same() {
            String::new()
        } else {
            format!(", {} beside {}", percent(ends.most), ends.most_names())
        };
        Some(format!(
            "{} fails in {without}{} beside {}{most}",
            plain(&alone.name),
            percent(ends.least),
            ends.least_names(),
        ))
    }));
    format!("{}: {}", plain(&setting.memory), parts.join("; "))
}

/// How many buffers could not be built, and why where that is plain: figures of the others are of those that could.
fn not_built(rows: &[&ChunksRow], setting: &ChunksSetting) -> Option<String> {
    let failed: Vec<&&ChunksRow> = rows.iter().filter(|row| row.failures > 0).collect();
    let least = failed.iter().map(|row| row.failures).min()?;
    let most = failed.iter().map(|row| row.failures).max()?;
    let count = if least == most {
        thousands(most)
    } else {
        format!("{} to {}", thousands(least), thousands(most))
    };
    let whose = if failed.len() == rows.len() {
        String::new()
    } else {
        let policies: Vec<&str> = failed.iter().map(|row| row.policy.as_str()).collect();
        format!(" with {}", names(&policies))
    };
    let all = thousands(setting.buffers);
    let why = why(setting);
    Some(format!("{count} of {all} buffers NOT built{whose}{why}"))
}

/// Why buffers cannot be built, in brackets; nothing where it is not plain.
fn why(setting: &ChunksSetting) -> String {
    let why = setting.too_much();
    why.map_or_else(String::new, |why| format!(" ({why})"))
}

/// The least and the most of a figure, and whose they are.
struct Ends<'a> {
    least: f64,
    most: f64,
    of_least: Vec<&'a str>,
    of_most: Vec<&'a str>,
}

impl<'a> Ends<'a> {
    fn of(rows: &[&'a ChunksRow], figure: impl Fn(&ChunksRow) -> Option<f64>) -> Option<Ends<'a>> {
        let known: Vec<(&str, f64)> = rows
            .iter()
            .filter_map(|row| Some((row.policy.as_str(), figure(row)?)))
            .collect();
        let least = known.iter().map(|one| one.1).reduce(f64::min)?;
        let most = known.iter().map(|one| one.1).reduce(f64::max)?;
        // What would be printed alike is the same to a reader.
        let at = |end: f64| {
            let same = known.iter().filter(|one| number(one.1) == number(end));
            same.map(|one| one.0).collect()
        };
        Some(Ends {
            least,
            most,
            of_least: at(least),
            of_most: at(most),
        })
    }

    fn same(&self) -> bool {
        number(self.least) == number(self.most)
    }

    fn least_names(&self) -> String {
        names(&self.of_least)
    }

    fn most_names(&self) -> String {
        names(&self.of_most)
    }
}

/// The first two and how many more.
fn names(names: &[&str]) -> String {
    let shown = names.iter().take(2).map(|name| plain(name));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len() {
        0..=2 => shown,
        more => format!("{shown} and {} more", more - 2),
    }
}
