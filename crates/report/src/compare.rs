//! A comparison, for people: what makes it unsure, the answer, then a row for each endpoint.

use stopgap_stats::compare::{Comparison, Effect, Looked, Row, Scale, Word};

use crate::headline;
use crate::table::{Screen, Style, Table, UNKNOWN, WIDEST, join, known, known_or};
use crate::text::{command_line, count, level, per_cent, ratio, thousands, uptime};

/// Facts that the screen shows beside the comparison.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// How long a pair of commands took, seconds; `None` of files.
    pub unit_seconds: Option<f64>,
    /// Numbers that are not tested: name, unit, median of each side.
    pub described: &'a [(String, &'static str, f64, f64)],
    /// Where the runs are kept, to be compared again.
    pub runs: Option<&'a str>,
    /// Where the record is, if one was written.
    pub record: Option<&'a str>,
}

/// Returns the text of a comparison.
#[must_use]
pub fn screen(comparison: &Comparison, beside: &Beside<'_>, style: Style) -> String {
    let width = style.width.min(WIDEST);
    let mut screen = Screen::new(Style { width, ..style });
    for warning in &comparison.warnings {
        screen.say_by(9, format!("warning: {warning}"));
    }
    let headline = headline::of_comparison(comparison);
    screen.say_bold(headline.head);
    screen.say(headline.sentence);
    for of in &comparison.conditions {
        screen.say_by(3, of.clone());
    }
    let sides = [
        ("before", &comparison.before),
        ("after ", &comparison.after),
    ];
    for (word, side) in sides {
        let runs = match side.within {
            Some(within) if within != side.runs => format!(
                "{} of {}",
                count(side.runs, "occasion"),
                count(within, "run")
            ),
            _ => count(side.runs, "run"),
        };
        screen.say_by(7, format!("{word} {}, {runs}", side.name));
    }
    if let Some(series) = &comparison.series {
        screen.say_by(3, format!("of {series}"));
    }
    if !comparison.endpoints.is_empty() {
        screen.add("\n");
        screen.wrapped_table(&table(comparison, style.verbose));
        screen.add("\n");
    }
    foot(comparison, beside, &mut screen);
    screen.finish()
}

/// Returns a row for each endpoint, with the probabilities where `all` is asked for.
fn table(comparison: &Comparison, all: bool) -> Table {
    // Several endpoints share the level where runs are looked at as they come.
    let sure = 100.0 * (1.0 - comparison.level);
    let mut table = Table::new(&match all {
        true => {
            format!("endpoint | >before | >after | >effect ({sure:.0} %) | >p | >p adjusted | word")
        }
        false => format!("endpoint | >before | >after | >effect ({sure:.0} %) | word"),
    });
    let p = |p: Option<f64>| match p {
        Some(p) if p < 0.00005 => "<0.0001".to_owned(),
        p => known(p.map(|p| format!("{p:.4}"))),
    };
    for row in &comparison.endpoints {
        let [before, after] =
            [row.before, row.after].map(|side| known(side.map(|side| level(side, &row.unit))));
        let (p, adjusted) = (p(row.p), p(row.p_adjusted()));
        let (name, effect) = (&row.name, &effect(row));
        match all {
            true => table.row(&[name, &before, &after, effect, &p, &adjusted, &row.word]),
            false => table.row(&[name, &before, &after, effect, &row.word]),
        }
    }
    table
}

/// Returns a figure of an effect: a ratio, or a difference with its unit.
pub(crate) fn effect_figure(value: f64, scale: Scale, unit: &str) -> String {
    match scale {
        Scale::Ratio => ratio(value),
        Scale::Difference => level(value, unit),
    }
}

fn effect(row: &Row) -> String {
    effect_shown(row.effect, &row.unit)
}

/// Returns an effect with its interval, as `1.20x (1.10..1.30)`; a dash where there is none.
pub(crate) fn effect_shown(effect: Option<Effect>, unit: &str) -> String {
    let Some(Effect {
        value,
        low,
        high,
        scale,
        infinite,
    }) = effect
    else {
        return UNKNOWN.to_owned();
    };
    let shown = |value| effect_figure(value, scale, unit);
    let sign = if scale == Scale::Ratio { "x" } else { "" };
    let value = match value {
        None if infinite => "infinite".to_owned(),
        value => known(value.map(|value| shown(value) + sign)),
    };
    let [below, above] = [low, high].map(|end| known_or("?", end.map(shown)));
    match (low, high) {
        (None, None) => format!("{value} (n too small)"),
        _ => format!("{value} ({below}..{above})"),
    }
}

fn foot(comparison: &Comparison, beside: &Beside<'_>, screen: &mut Screen) {
    if let Some(looked) = &comparison.looked {
        screen.say(units(comparison, looked, beside.unit_seconds));
    }
    if let Some(pairs) = comparison.pairs {
        screen.say(format!("{}, made in turn", count(pairs, "pair")));
    }
    if !comparison.environment.is_empty() {
        let each = comparison.environment.iter();
        let each = each.map(|of| format!("{} {} -> {}", of.what, of.before, of.after));
        screen.say(format!("the machines differ in: {}", join(each, "; ")));
    }
    screen.unknown(&comparison.missing);
    if screen.style.verbose {
        evidence(comparison, beside, screen);
    }
    if let Some(runs) = beside.runs {
        let quoted = command_line(&[runs.to_owned()]);
        screen.say(format!("runs {runs} (stopgap compare {quoted})"));
    } else if !comparison.command.is_empty() {
        screen.say(format!("again {}", command_line(&comparison.command)));
    }
    if let Some(record) = beside.record {
        screen.say(format!("record {record}"));
    }
    if !screen.style.verbose {
        screen.say("--verbose adds probabilities and what was not tested");
    }
}

/// Says what was seen and not tested, and by what method the rest was.
fn evidence(comparison: &Comparison, beside: &Beside<'_>, screen: &mut Screen) {
    let longest = [comparison.before.max, comparison.after.max];
    if longest.iter().any(Option::is_some) {
        let shown = |max: f64| level(max, &comparison.unit);
        let [before, after] = longest.map(|max| known_or("unknown", max.map(shown)));
        screen.say(format!(
            "longest of all samples, not tested: {before} -> {after}"
        ));
    }
    if !beside.described.is_empty() {
        let each = beside.described.iter().map(|(name, unit, before, after)| {
            format!("{name} {} -> {}", level(*before, unit), level(*after, unit))
        });
        screen.say(format!("medians, not tested: {}", join(each, ", ")));
    }
    let method = match comparison.looked {
        Some(_) => format!(
            "p holds at any time, of all endpoints together; level {} %",
            per_cent(comparison.level)
        ),
        None => {
            let (of, by) = match comparison.pairs {
                Some(_) => ("pairs", "Westfall and Young"),
                None => ("runs", "Holm"),
            };
            let most = thousands(u64::from(comparison.permutations));
            format!("p: of up to {most} arrangements of {of}, adjusted by {by}")
        }
    };
    screen.say(format!(
        "{method}; margin {} %; seed {}; less is better",
        per_cent(comparison.margin),
        comparison.seed
    ));
}

/// Returns how many units there were, and what more of them would take where that is not enough.
fn units(comparison: &Comparison, looked: &Looked, unit_seconds: Option<f64>) -> String {
    let runs = comparison.before.runs.max(looked.units);
    let named = |units: usize| match runs == looked.units {
        true => count(units, "pair"),
        false => count(units, "block") + " of 4 runs",
    };
    let how = match looked.cpu {
        Some(cpu) => format!("side by side on CPU {cpu}"),
        None => "in turn".to_owned(),
    };
    let made = format!("{}, {how}", named(looked.units));
    let open = matches!(
        comparison.verdict.word,
        Word::NoDifferenceProven | Word::Inconclusive
    );
    let more = match looked.more {
        _ if !open => return made,
        None => return format!("{made}; how many would decide it is unknown"),
        Some(more) => more,
    };
    let time = unit_seconds.map(|seconds| uptime((seconds * more as f64).ceil() as u64));
    let time = time.map_or(String::new(), |time| format!(", some {time}"));
    format!("{made}; about {} more would decide it{time}", named(more))
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
            record: Some("/tmp/a.json"),
            ..Beside::default()
        };
        let style = Style {
            width: 120,
            colour: false,
            verbose: true,
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
        assert!(text.starts_with("WORSE\nmedian 20"), "{text}");
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
        let may = "steal was 0.1 % in before and 4.0 % in after: it may explain the difference";
        comparison.conditions.push(may.to_owned());
        let text = shown(&comparison);
        let (answer, rest) = text.split_once(may).unwrap();
        assert_eq!(
            (answer.lines().count(), rest.starts_with("\nbefore old")),
            (3, true)
        );
        assert!(
            text.starts_with("warning: different machines: cpu\nWORSE\n"),
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
            text.starts_with("CANNOT TELL\nthere is nothing to compare\nbefore , 0 runs\n"),
            "{text}"
        );
    }
}
