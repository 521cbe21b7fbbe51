//! The sentences that a replay of `chunks` leads with.

use stopgap_stats::replay::{ChunksRow, ChunksSetting};

use super::chunks::{failed_share, time};
use super::factor;
use crate::table::known_or;
use crate::text::{number, number_or_0, thousands};

/// Returns which policy takes least and which most time, which needs fewest entries, beside which each of the
/// others fails least and most. For a single policy it gives its figures.
pub(super) fn sentences(rows: &[&ChunksRow], setting: &ChunksSetting) -> Vec<String> {
    let mut parts = Vec::new();
    let ms = |ms: f64| time(Some(ms));
    match Ends::among(rows, |row| row.time_ms) {
        None => parts.push(format!("no policy could build a buffer{}", why(setting))),
        Some(ends) => {
            let (least, names) = (ms(ends.least), &ends.of_least);
            let slowest = ends.most_text(|most, names| {
                let factor = factor(most / ends.least);
                format!("; slowest with {names}, in {} ({factor})", ms(most))
            });
            parts.push(match slowest.is_empty() {
                true => format!("a buffer is built in {least} with {names}"),
                false => format!("a buffer is built fastest with {names}, in {least}{slowest}"),
            });
            parts.extend(not_built(rows, setting));
        }
    }
    let entries =
        |row: &ChunksRow| (!row.entries.is_empty()).then(|| row.entries.values().sum::<f64>());
    if let Some(ends) = Ends::among(rows, entries) {
        let most = ends.most_text(|most, names| format!("; most with {names}, {}", number(most)));
        let (least, names) = (number(ends.least), &ends.of_least);
        parts.push(match most.is_empty() {
            true => format!("it takes {least} IOMMU entries with {names}"),
            false => format!("it takes fewest IOMMU entries with {names}, {least}{most}"),
        });
    }
    for alone in &setting.bystanders_alone {
        let failing = |row: &ChunksRow| {
            failed_share(row.bystanders.iter().find(|one| one.name == alone.name)?)
        };
        let Some(ends) = Ends::among(rows, failing) else {
            continue;
        };
        let percent = |share: f64| format!("{} %", number_or_0(share * 100.0));
        let without = failed_share(alone);
        parts.push(format!(
            "{} fails in {}{} beside {}{}",
            alone.name,
            known_or(
                "",
                without.map(|share| format!("{} without a buffer, ", percent(share)))
            ),
            percent(ends.least),
            ends.of_least,
            ends.most_text(|most, names| format!(", {} beside {names}", percent(most)))
        ));
    }
    if let Some(first) = parts.first_mut() {
        *first = format!("{}: {first}", setting.memory);
    }
    parts
}

/// Returns how many buffers could not be built, and why where that is plain: figures of the others are of those that could.
fn not_built(rows: &[&ChunksRow], setting: &ChunksSetting) -> Option<String> {
    let failed: Vec<&&ChunksRow> = rows.iter().filter(|row| row.failures > 0).collect();
    let least = failed.iter().map(|row| row.failures).min()?;
    let most = failed.iter().map(|row| row.failures).max()?;
    let count = match least == most {
        true => thousands(most),
        false => format!("{} to {}", thousands(least), thousands(most)),
    };
    let policies: Vec<&str> = failed.iter().map(|row| &*row.policy).collect();
    let whose = match failed.len() == rows.len() {
        true => String::new(),
        false => format!(" with {}", names(&policies)),
    };
    let (all, why) = (thousands(setting.buffers), why(setting));
    Some(format!("{count} of {all} buffers NOT built{whose}{why}"))
}

/// Returns why buffers cannot be built, in brackets; nothing where it is not plain.
fn why(setting: &ChunksSetting) -> String {
    known_or("", setting.too_much().map(|why| format!(" ({why})")))
}

/// The least and the most of a figure, and the names of the policies that have it.
struct Ends {
    least: f64,
    most: f64,
    of_least: String,
    of_most: String,
}

impl Ends {
    fn among(rows: &[&ChunksRow], figure: impl Fn(&ChunksRow) -> Option<f64>) -> Option<Ends> {
        let known = rows
            .iter()
            .filter_map(|row| Some((&*row.policy, figure(row)?)));
        let known: Vec<(&str, f64)> = known.collect();
        let least = known.iter().map(|one| one.1).reduce(f64::min)?;
        let most = known.iter().map(|one| one.1).reduce(f64::max)?;
        // Figures that print alike are the same to a reader.
        let at = |end: f64| {
            let same = known.iter().filter(|one| number(one.1) == number(end));
            names(&same.map(|one| one.0).collect::<Vec<_>>())
        };
        let (of_least, of_most) = (at(least), at(most));
        Some(Ends {
            least,
            most,
            of_least,
            of_most,
        })
    }

    /// Returns the most in words; nothing where it reads like the least.
    fn most_text(&self, text: impl Fn(f64, &str) -> String) -> String {
        match number(self.least) == number(self.most) {
            true => String::new(),
            false => text(self.most, &self.of_most),
        }
    }
}

/// Returns the first two and how many more.
fn names(names: &[&str]) -> String {
    match names {
        [first, second, _, ..] => format!("{first}, {second} and {} more", names.len() - 2),
        few => few.join(", "),
    }
}
