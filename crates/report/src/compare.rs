//! A comparison, for people: what makes it unsure, the answer, then a row for each endpoint.

use stopgap_events::units::Nanos;
use stopgap_stats::compare::{Comparison, Effect, Row, Scale};
use stopgap_stats::gather::Floor;

use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// Wider lines are not read.
const WIDEST: u16 = 100;

/// What is known beside the comparison itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The first command against itself, where commands were run.
    pub floor: Option<&'a Floor>,
    /// Numbers that are not tested: name, unit, median of each side.
    pub described: &'a [(String, &'static str, f64, f64)],
    /// Where the runs are kept, to be compared again.
    pub runs: Option<&'a str>,
    /// Where the record is.
    pub record: &'a str,
}

/// The text of a comparison.
#[must_use]
pub fn screen(comparison: &Comparison, beside: &Beside<'_>, style: Style) -> String {
    let style = Style {
        width: style.width.min(WIDEST),
        ..style
    };
    let say = |line: &str, indent: usize| wrap(&plain(line), style.width, indent);
    let mut text = String::new();
    for warning in &comparison.warnings {
        text.push_str(&say(&format!("warning: {warning}"), 9));
    }
    let verdict = say(&comparison.verdict.text, 2);
    text.push_str(&if style.colour {
        format!("\u{1b}[1m{}\u{1b}[0m\n", verdict.trim_end())
    } else {
        verdict
    });
    for (word, side) in [
        ("before", &comparison.before),
        ("after ", &comparison.after),
    ] {
        let runs = thousands(side.runs as u64);
        let s = if side.runs == 1 { "" } else { "s" };
        text.push_str(&say(&format!("{word} {}, {runs} run{s}", side.name), 7));
    }
    if let Some(series) = &comparison.series {
        text.push_str(&say(&format!("of {series}"), 3));
    }
    if !comparison.endpoints.is_empty() {
        text.push('\n');
        text.push_str(&table(comparison, style));
        text.push('\n');
    }
    for line in foot(comparison, beside) {
        text.push_str(&say(&line, 2));
    }
    text
}

fn table(comparison: &Comparison, style: Style) -> String {
    let p = |p: Option<f64>| match p {
        None => "-".to_owned(),
        Some(p) if p < 0.00005 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    };
    let some =
        |value: Option<f64>, unit: &str| value.map_or("-".to_owned(), |value| level(value, unit));
    let rows = comparison.endpoints.iter().map(|row| {
        vec![
            plain(&row.name),
            some(row.before, &row.unit),
            some(row.after, &row.unit),
            effect(row),
            p(row.p),
            p(row.p_holm),
            row.word.to_string(),
        ]
    });
    plain_table(
        &[
            "endpoint",
            "before",
            "after",
            "effect (95 %)",
            "p",
            "p adjusted",
            "word",
        ],
        rows.collect(),
        &[false, true, true, true, true, true],
        true,
        style,
    )
}

/// The effect with its interval, as `1.20x (1.10..1.30)`; a dash where there is none.
fn effect(row: &Row) -> String {
    let Some(Effect {
        value,
        low,
        high,
        scale,
        infinite,
    }) = row.effect
    else {
        return "-".to_owned();
    };
    let shown = |value: f64| match scale {
        // Ratios near 1 differ in what follows the point.
        Scale::Ratio => ratio(value),
        Scale::Difference => level(value, &row.unit),
    };
    let sign = if scale == Scale::Ratio { "x" } else { "" };
    let value = match value {
        Some(value) => format!("{}{sign}", shown(value)),
        None if infinite => "infinite".to_owned(),
        None => "-".to_owned(),
    };
    match (low, high) {
        (None, None) => format!("{value} (n too small)"),
        _ => {
            let end = |end: Option<f64>| end.map_or("?".to_owned(), shown);
            format!("{value} ({}..{})", end(low), end(high))
        }
    }
}

fn foot(comparison: &Comparison, beside: &Beside<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let longest = [comparison.before.max, comparison.after.max];
    if longest.iter().any(Option::is_some) {
        let [before, after] =
            longest.map(|max| max.map_or("unknown".to_owned(), |max| level(max, &comparison.unit)));
        lines.push(format!(
            "longest of all samples, not tested: {before} -> {after}"
        ));
    }
    if !beside.described.is_empty() {
        let each = beside.described.iter().map(|(name, unit, before, after)| {
            format!("{name} {} -> {}", level(*before, unit), level(*after, unit))
        });
        let each = each.collect::<Vec<_>>().join(", ");
        lines.push(format!("medians, not tested: {each}"));
    }
    if let Some(floor) = beside.floor {
        lines.push(noise(floor));
    }
    if !comparison.environment.is_empty() {
        let each = comparison.environment.iter();
        let each = each.map(|of| format!("{} {} -> {}", of.what, of.before, of.after));
        let each = each.collect::<Vec<_>>().join("; ");
        lines.push(format!("the machines differ in: {each}"));
    }
    for missing in &comparison.missing {
        lines.push(format!("unknown: {}: {}", missing.what, missing.why));
    }
    let arrangements = thousands(u64::from(comparison.permutations));
    lines.push(format!(
        "p: of up to {arrangements} arrangements of runs, adjusted by Holm; margin {} %; seed {}; less is better",
        per_cent(comparison.margin),
        comparison.seed
    ));
    if let Some(runs) = beside.runs {
        lines.push(format!("runs {runs} (stopgap compare {})", quoted(runs)));
    } else if !comparison.command.is_empty() {
        let words: Vec<String> = comparison.command.iter().map(|word| quoted(word)).collect();
        lines.push(format!("again {}", words.join(" ")));
    }
    lines.push(format!("record {}", beside.record));
    lines
}

/// `noise floor, A against A, 10 runs each: no difference proven: ...`.
fn noise(floor: &Floor) -> String {
    let each = floor.noise.iter().map(|noise| {
        let (spread, visible) = (per_cent(noise.spread), per_cent(noise.visible));
        format!("{} {visible} % (a run's spread {spread} %)", noise.name)
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let seen = if each.is_empty() {
        String::new()
    } else {
        format!("; a change that four comparisons of five would show: {each}")
    };
    let tested = floor.comparison.endpoints.iter().map(|row| &*row.name);
    let unknown: Vec<&str> = tested
        .filter(|name| floor.noise.iter().all(|noise| noise.name != *name))
        .collect();
    let unknown = if unknown.is_empty() {
        String::new()
    } else {
        let names = unknown.join(", ");
        format!("; unknown of {names}, which some runs had none of")
    };
    format!(
        "noise floor, the first command against itself, {} runs each: {}{seen}{unknown}",
        floor.comparison.before.runs, floor.comparison.verdict.word
    )
}

/// A ratio: those near 1 differ in what follows the point, and a small one is not 0.
#[must_use]
pub fn ratio(value: f64) -> String {
    if (0.1..10.0).contains(&value) {
        format!("{value:.3}")
    } else if value < 0.1 {
        digits(value, 3)
    } else {
        number(value)
    }
}

/// A share in per cent, with two digits that count.
pub(crate) fn per_cent(share: f64) -> String {
    digits(share * 100.0, 2)
}

/// A figure with its unit: a time in the unit that reads best, anything else with three digits that count.
#[must_use]
pub fn level(value: f64, unit: &str) -> String {
    let factor = match unit {
        "ns" => Some(1.0),
        "us" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        _ => None,
    };
    let ns = factor.map_or(f64::NAN, |factor| (value * factor).abs());
    if (1.0..1e18).contains(&ns) {
        let time = Nanos(ns.round() as u64);
        return format!("{}{time}", if value < 0.0 { "-" } else { "" });
    }
    let value = if value.abs() < 999.5 {
        digits(value, 3)
    } else {
        number(value)
    };
    format!("{value} {unit}").trim_end().to_owned()
}

/// `value` with so many digits that count, without zeros at its end.
fn digits(value: f64, count: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let places = (f64::from(count - 1) - value.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::compare::{Difference, Options, Run, Side, compare};

    fn side(name: &str, level: f64) -> Side {
        let run = |n: u32| Run {
            median: Some(level * (1.0 + f64::from(n * 7 % 10) / 200.0)),
            max: Some(level * 90.0),
            ..Run::new(format!("{n}"))
        };
        Side {
            name: name.to_owned(),
            runs: (0..10).map(run).collect(),
        }
    }

    fn shown(comparison: &Comparison) -> String {
        let described = [("minor faults".to_owned(), "", 100.0, 120_000.0)];
        let beside = Beside {
            described: &described,
            record: "/tmp/a.json",
            ..Beside::default()
        };
        let style = Style {
            width: 120,
            colour: false,
        };
        screen(comparison, &beside, style)
    }

    #[test]
    fn the_answer_leads_unless_something_makes_it_unsure() {
        let options = Options {
            command: ["stopgap", "compare", "a b", "it's"]
                .map(str::to_owned)
                .into(),
            ..Options::default()
        };
        let mut comparison = compare(&side("old", 3_600.0), &side("new", 4_320.0), &options);
        let text = shown(&comparison);
        assert!(text.starts_with("regression: median 1.2"), "{text}");
        for part in [
            "before old, 10 runs\n",
            "3.68 us",
            "longest of all samples, not tested: 324 us -> 389 us",
            "minor faults 100 -> 120,000",
            "margin 5 %; seed 1;",
            "again stopgap compare 'a b' 'it'\\''s'",
            "record /tmp/a.json\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        comparison
            .warnings
            .push("different machines: cpu".to_owned());
        comparison.environment.push(Difference {
            what: "cpu".to_owned(),
            before: "x".to_owned(),
            after: "y\u{1b}[2J".to_owned(),
        });
        let text = shown(&comparison);
        assert!(
            text.starts_with("warning: different machines: cpu\nregression"),
            "{text}"
        );
        assert!(
            text.contains("the machines differ in: cpu x -> y\\u{1b}[2J"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_shown_as_nothing() {
        let none = compare(&Side::default(), &Side::default(), &Options::default());
        let text = shown(&none);
        assert!(
            text.starts_with("inconclusive: there is nothing to compare\nbefore , 0 runs\n"),
            "{text}"
        );
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(level(0.001_234, "s"), "1.23 ms");
        assert_eq!(level(-3_600.0, "ns"), "-3.60 us");
        assert_eq!(level(0.000_12, ""), "0.00012");
        assert_eq!(level(0.0, "s"), "0 s");
        assert_eq!(level(1_234_567.0, "bytes"), "1,234,567 bytes");
        assert_eq!(per_cent(0.05), "5");
        assert_eq!(per_cent(0.012_34), "1.2");
        assert_eq!(per_cent(0.25), "25");
    }
}
