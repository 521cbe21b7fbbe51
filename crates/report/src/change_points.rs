//! The change points of a history, for people: the answer, the history as bars, and a row for each change.

use stopgap_events::date::utc;
use stopgap_stats::change_points::{Change, ChangePoints, Moved, Word};
use stopgap_stats::compare::Scale;
use stopgap_stats::quantile::low_median;

use crate::compare::effect_shown;
use crate::headline::{Headline, change};
use crate::table::{Screen, Style, Table, WIDEST};
use crate::terminal::BARS;
use crate::text::{command_line, count, level, per_cent};

/// Columns of the history as bars.
const COLUMNS: usize = 60;

/// Changes that are shown, the last ones.
const MOST_CHANGES: usize = 12;

/// Letters of a label that are shown.
const LABEL: usize = 40;

/// Returns the headline of a history.
pub(crate) fn headline(record: &ChangePoints) -> Headline {
    let head = match record.verdict.word {
        Word::Regression => "CHANGED FOR THE WORSE",
        Word::Improvement => "CHANGED FOR THE BETTER",
        Word::NoChange => "NO CHANGE FOUND",
        Word::Inconclusive => "CANNOT TELL WHETHER IT CHANGED",
    };
    let sentence = match (record.last(), record.would_find) {
        (Some(last), _) => {
            let since = match record.points[last.at].date_unix_s {
                Some(_) => format!(" since {}", date(record, last.at)),
                None => String::new(),
            };
            let row = &record.as_comparison().endpoints[0];
            format!("{}{since}, between {}", change(row), between(record, last))
        }
        (None, Some(power)) if record.verdict.word == Word::NoChange => {
            let size = match power.scale {
                // Counts that never vary.
                Scale::Ratio if power.change < 1.0 + 1e-6 => "anything".to_owned(),
                Scale::Ratio => format!("{} %", per_cent(power.change - 1.0)),
                Scale::Difference => level(power.change, &record.unit),
            };
            format!(
                "{}; a lasting change to {size} more would have been found",
                record.verdict.text
            )
        }
        _ => record.verdict.text.clone(),
    };
    Headline {
        head: head.to_owned(),
        sentence,
    }
}

/// Returns the text of a history.
#[must_use]
pub fn screen(record: &ChangePoints, written: Option<&str>, style: Style) -> String {
    let width = style.width.min(WIDEST);
    let mut screen = Screen::new(Style { width, ..style });
    for warning in &record.warnings {
        screen.say_by(9, format!("warning: {warning}"));
    }
    let headline = headline(record);
    screen.say_bold(headline.head);
    screen.say(headline.sentence);
    if let Some(series) = &record.series {
        screen.say_by(3, format!("of {series}"));
    }
    let n = record.points.len();
    if n > 0 {
        let (bars, marks) = bars(record, COLUMNS.min(usize::from(width)));
        screen.line(bars);
        if !record.changes.is_empty() {
            screen.line(marks);
        }
        let values = || record.points.iter().map(|point| point.value);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        screen.say(format!(
            "{}, {} to {}, {}..{}",
            count(n, "occasion"),
            date(record, 0),
            date(record, n - 1),
            level(least, &record.unit),
            level(most, &record.unit)
        ));
    }
    if !record.changes.is_empty() {
        screen.add("\n");
        screen.wrapped_table(&table(record, &record.changes));
        screen.add("\n");
    }
    if let Some(last) = record.last() {
        for moved in &last.moved {
            screen.say(self::moved(moved, &record.unit));
        }
    }
    for of in &record.causes {
        let last = of.changes.last();
        let alone = |change: &&Change| {
            let with = |other: &Change| other.good < change.bad && change.good < other.bad;
            !record.changes.iter().any(with)
        };
        if let Some(last) = last.filter(alone) {
            screen.say(format!(
                "changed alone: {}, {} -> {} between {}",
                doing(&of.cause),
                level(last.before, &record.unit),
                level(last.after, &record.unit),
                between(record, last)
            ));
        }
    }
    screen.unknown(&record.missing);
    if !record.command.is_empty() {
        screen.say(format!("again {}", command_line(&record.command)));
    }
    if let Some(written) = written {
        screen.say(format!("record {written}"));
    }
    screen.finish()
}

/// Returns a cause that moved, in a line.
pub(crate) fn moved(moved: &Moved, unit: &str) -> String {
    let effect = &moved.effect;
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| level(end, unit));
    format!(
        "moved with it: {}, {} -> {}: {} ({}..{})",
        doing(&moved.cause),
        level(moved.before, unit),
        level(moved.after, unit),
        end(effect.value),
        end(effect.low),
        end(effect.high)
    )
}

/// Returns a cause in words.
fn doing(cause: &str) -> &str {
    match cause {
        "something" => "asleep, and nothing says for what",
        other => stopgap_stats::history::doing(other),
    }
}

/// Returns a row for each change, the last ones.
pub(crate) fn table(record: &ChangePoints, changes: &[Change]) -> Table {
    let mut table = Table::new("since | between | >before | >after | >effect (95 %) | word");
    for change in changes.iter().rev().take(MOST_CHANGES).rev() {
        table.row(&[
            &date(record, change.at),
            &between(record, change),
            &level(change.before, &record.unit),
            &level(change.after, &record.unit),
            &effect_shown(Some(change.effect), &record.unit),
            &if change.worse { "worse" } else { "better" },
        ]);
    }
    table
}

/// Returns the day of a point, with the time where not all are of midnight; its number where it has no date.
pub(crate) fn date(record: &ChangePoints, at: usize) -> String {
    let days = |point: &stopgap_stats::change_points::Point| {
        point.date_unix_s.is_none_or(|date| date % 86_400 == 0)
    };
    match record.points[at].date_unix_s {
        None => format!("occasion {}", at + 1),
        Some(date) => {
            let text = utc(date);
            match record.points.iter().all(days) {
                true => text[..text.len() - "T00:00:00Z".len()].to_owned(),
                false => text[..text.len() - ":00Z".len()].replace('T', " "),
            }
        }
    }
}

/// Returns the points between which a change lies, by the first word of their labels: the rest may be a commit's subject.
pub(crate) fn between(record: &ChangePoints, change: &Change) -> String {
    let named = |at: usize| {
        let label = record.points[at].label.split_whitespace().next();
        match label {
            None => date(record, at),
            Some(word) if word.chars().count() > LABEL => {
                word.chars().take(LABEL - 1).chain(['…']).collect()
            }
            Some(word) => word.to_owned(),
        }
    };
    format!("{} and {}", named(change.good), named(change.bad))
}

/// Returns the history as bars, and a line with a mark under each change. A bar is the median of its occasions; the lowest is the
/// least median but one in twenty, so that a change of a few per cent is seen.
fn bars(record: &ChangePoints, columns: usize) -> (String, String) {
    let n = record.points.len();
    let columns = columns.min(n);
    let column = |at: usize| at * columns / n;
    let mut levels = Vec::new();
    for parts in 0..columns {
        let within = record.points.iter().enumerate();
        let values = within
            .filter(|(at, _)| column(*at) == parts)
            .map(|(_, point)| point.value);
        levels.extend(low_median(values.collect()));
    }
    // One that is far out does not press all else together.
    let mut sorted = levels.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let far = columns / 20;
    let (least, most) = (sorted[far], sorted[columns - 1 - far]);
    let steps = (BARS.len() - 2) as f64;
    let bar = |level: &f64| {
        let share = (level - least) / (most - least);
        // Equal levels have no share.
        BARS[1 + (share * steps).round().clamp(0.0, steps) as usize]
    };
    let mut marks = vec![' '; columns];
    for change in &record.changes {
        marks[column(change.at)] = '^';
    }
    let marks: String = marks.into_iter().collect();
    (
        levels.iter().map(bar).collect(),
        marks.trim_end().to_owned(),
    )
}

/// Returns what would have been found, and how that was tried.
pub(crate) fn power(record: &ChangePoints) -> Option<String> {
    let power = record.would_find?;
    let size = match power.scale {
        Scale::Ratio => format!("{} % more", per_cent(power.change - 1.0)),
        Scale::Difference => format!("{} more", level(power.change, &record.unit)),
    };
    Some(format!(
        "A lasting change to {size} was put into this history at {} places of its middle three fifths, and found at {}.",
        power.of, power.found
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::change_points::{History, Point, change_points};

    fn record(n: usize, at: usize, times: f64) -> ChangePoints {
        let point = |t: usize| Point {
            date_unix_s: Some(86_400 * (20_000 + t as u64)),
            label: format!("c{t}\u{1b}[2J"),
            value: 1e6 * (1.0 + (t * 7 % 13) as f64 / 200.0) * if t < at { 1.0 } else { times },
        };
        let history = History {
            what: "median".to_owned(),
            unit: "ns".to_owned(),
            points: (0..n).map(point).collect(),
            ..History::default()
        };
        change_points(&history, &[])
    }

    fn shown(record: &ChangePoints) -> String {
        let style = Style {
            width: 100,
            colour: false,
            verbose: false,
        };
        screen(record, Some("/tmp/r.json"), style)
    }

    #[test]
    fn the_answer_leads_then_the_history_and_its_changes() {
        let text = shown(&record(80, 50, 1.3));
        let begins = "CHANGED FOR THE WORSE\nmedian 30.";
        assert!(text.starts_with(begins), "{text}");
        for part in [
            " % more (2",
            " since 2024-11-23, between c49\\u{1b}[2J and c50\\u{1b}[2J\n",
            "80 occasions, 2024-10-04 to 2024-12-22, 1 ms..1.38 ms\n",
            "worse\n",
            "record /tmp/r.json\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let marks = text.lines().find(|line| line.trim() == "^").unwrap();
        assert_eq!(marks.len(), 1 + 50 * 60 / 80, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn no_change_says_what_would_have_been_found() {
        let record = record(80, 80, 1.0);
        let text = shown(&record);
        assert!(
            text.starts_with("NO CHANGE FOUND\nno change in 80 occasions; a lasting change to "),
            "{text}"
        );
        assert!(text.contains(" % more would have been found\n"), "{text}");
        assert!(power(&record).unwrap().contains("at 10 places"));
        let few = shown(&self::record(3, 3, 1.0));
        assert!(
            few.starts_with(
                "CANNOT TELL WHETHER IT CHANGED\n3 occasions; a change shows only in 12 or more"
            ),
            "{few}"
        );
        let none = shown(&self::record(0, 0, 1.0));
        assert!(none.contains("\n0 occasions; "), "{none}");
    }
}
