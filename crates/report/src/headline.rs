//! The first line of a screen or a page: what was found, in words that need no other.

use stopgap_stats::compare::{Comparison, Effect, Row, RowWord, Scale, Word as Compared};
use stopgap_stats::explain::Findings;
use stopgap_stats::verdict::Word;

use crate::table::join;
use crate::text::{level, number, per_cent};

/// From this ratio on a change is a multiple: "2.4 times as much" reads better than "140 % more".
const MULTIPLE: f64 = 2.0;

/// The first lines of a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Headline {
    /// In capitals.
    pub(crate) head: String,
    /// The sentence below it.
    pub(crate) sentence: String,
}

impl Headline {
    pub(crate) fn in_a_line(&self) -> String {
        format!("{}: {}", self.head, self.sentence)
    }
}

/// Returns the headline of an explained trace.
pub(crate) fn of_findings(findings: &Findings) -> Headline {
    let verdict = &findings.verdict;
    let head = match verdict.word {
        Word::Stalls => "FOUND STALLS",
        Word::Excess => "FOUND MORE TASK SWITCHES THAN ARE NEEDED",
        Word::Waiting => "CANNOT TELL WHETHER A LONG WAIT WAS A STALL",
        Word::Clean if findings.losses.untold > 0 => "FOUND NO STALL IN WHAT IS KNOWN",
        Word::Clean => "FOUND NO STALL",
        Word::Unsupported => "COULD NOT LOOK",
        Word::Inconclusive | Word::Flat | Word::Grows => "CANNOT TELL",
    };
    Headline {
        head: head.to_owned(),
        sentence: without_word(&verdict.text).to_owned(),
    }
}

/// Returns the headline of a comparison.
pub(crate) fn of_comparison(comparison: &Comparison) -> Headline {
    let verdict = &comparison.verdict;
    let margin = per_cent(comparison.margin);
    let head = match verdict.word {
        Compared::Regression => "WORSE".to_owned(),
        Compared::Improvement => "BETTER".to_owned(),
        Compared::NotWorse => format!("NOT WORSE BY {margin} % OR MORE"),
        Compared::Same => format!("THE SAME WITHIN {margin} %"),
        Compared::NoDifferenceProven => "CANNOT TELL WHETHER IT DIFFERS".to_owned(),
        Compared::Inconclusive => "CANNOT TELL".to_owned(),
    };
    // A mean that moved as its runs did is no news.
    let endpoints = &comparison.endpoints;
    let told_before = |row: &Row| {
        let of = row.name.strip_prefix("mean ");
        of.is_some_and(|of| {
            endpoints
                .iter()
                .any(|other| other.name == of && other.word == row.word)
        })
    };
    let with = |word: RowWord| {
        let of_word = endpoints.iter().filter(move |row| row.word == word);
        of_word.filter(|row| !told_before(row))
    };
    let changes = |word: RowWord| join(with(word).map(change), ", ");
    let rest = [RowWord::NoDifferenceProven, RowWord::Inconclusive].into_iter();
    let rest = join(rest.flat_map(with).map(|row| &row.name), ", ");
    let and = |begin: &str, text: String| match text.is_empty() {
        true => text,
        false => format!("; {begin}{text}"),
    };
    let sentence = match verdict.word {
        Compared::Regression => {
            changes(RowWord::Worse) + &and("better: ", changes(RowWord::Better))
        }
        Compared::Improvement => changes(RowWord::Better) + &and("nothing is proven of ", rest),
        Compared::NotWorse => changes(RowWord::NotWorse),
        Compared::Same => changes(RowWord::Same),
        Compared::NoDifferenceProven if with(RowWord::NoDifferenceProven).next().is_some() => {
            changes(RowWord::NoDifferenceProven)
        }
        Compared::NoDifferenceProven | Compared::Inconclusive => {
            let told = without_word(&verdict.text);
            told.strip_prefix("nor that there is none: ")
                .unwrap_or(told)
                .to_owned()
        }
    };
    Headline { head, sentence }
}

/// Returns a row's effect as a reader says it: `value 9.1 % more (7.6..10.5 %)`, `value between 2.6 % less and 24.8 % more`.
pub(crate) fn change(row: &Row) -> String {
    let name = &row.name;
    let Some(Effect {
        value: Some(value),
        low: Some(low),
        high: Some(high),
        scale,
        ..
    }) = row.effect
    else {
        return format!("{name} {}", row.text);
    };
    let none = match scale {
        Scale::Ratio => 1.0,
        Scale::Difference => 0.0,
    };
    if scale == Scale::Ratio && high <= 0.0 {
        return format!("{name} {}", row.text);
    }
    let word = |value: f64| if value < none { "less" } else { "more" };
    let size = |value: f64| match scale {
        Scale::Ratio if value >= MULTIPLE => format!("{} times as much", number(value)),
        Scale::Ratio => format!("{} % {}", share(value), word(value)),
        Scale::Difference => format!("{} {}", level((value - none).abs(), &row.unit), word(value)),
    };
    let [middle, least, most] = [value, low, high].map(|value| value.total_cmp(&none));
    if least.is_eq() && most.is_eq() {
        return format!("{name} unchanged");
    }
    if (least.is_lt() && most.is_gt()) || middle.is_eq() {
        return format!("{name} between {} and {}", size(low), size(high));
    }
    let ends = match scale {
        Scale::Ratio if value >= MULTIPLE => format!("{}..{}", number(low), number(high)),
        Scale::Ratio => {
            let (least, most) = if value < none {
                (high, low)
            } else {
                (low, high)
            };
            format!("{}..{} %", share(least), share(most))
        }
        Scale::Difference => {
            let ends = [low, high].map(f64::abs);
            let [least, most] = if value < none {
                [ends[1], ends[0]]
            } else {
                ends
            };
            format!("{}..{}", level(least, &row.unit), level(most, &row.unit))
        }
    };
    format!("{name} {} ({ends})", size(value))
}

/// Returns how far a ratio is from 1, in per cent.
fn share(ratio: f64) -> String {
    number((ratio - 1.0).abs() * 100.0)
}

/// Returns the text of a verdict without its word and figure: the headline says them.
fn without_word(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_stats::compare::{Options, Run, Side, compare};

    fn side(level: f64, spread: f64) -> Side {
        let run = |n: u32| {
            let mut run = Run::new(format!("{n}"));
            run.median = Some(level * (1.0 + f64::from(n * 7 % 12) * spread));
            run
        };
        Side {
            name: "side".to_owned(),
            runs: (0..12).map(run).collect(),
        }
    }

    fn told(before: f64, after: f64, spread: f64) -> (String, String) {
        let sides = [before, after].map(|level| side(level, spread));
        let Headline { head, sentence } =
            of_comparison(&compare(&sides[0], &sides[1], &Options::default()));
        (head, sentence)
    }

    #[test]
    fn a_change_is_told_by_how_much_and_how_sure() {
        let (head, sentence) = told(1_000.0, 1_100.0, 0.002);
        assert_eq!(head, "WORSE");
        assert!(sentence.starts_with("median 10"), "{sentence}");
        assert!(sentence.contains(" % more (9."), "{sentence}");
        let (head, sentence) = told(1_000.0, 900.0, 0.002);
        assert_eq!(head, "BETTER");
        assert!(sentence.starts_with("median 10"), "{sentence}");
        assert!(sentence.contains(" % less (9."), "{sentence}");
        let (_, sentence) = told(1_000.0, 2_500.0, 0.002);
        assert!(
            sentence.starts_with("median 2.50 times as much (2."),
            "{sentence}"
        );
        let (head, _) = told(1_000.0, 1_000.0, 0.001);
        assert_eq!(head, "NOT WORSE BY 5 % OR MORE");
        let (head, sentence) = told(1_000.0, 1_000.0, 0.1);
        assert_eq!(head, "CANNOT TELL WHETHER IT DIFFERS");
        assert!(
            sentence.contains(" % less and ") && sentence.ends_with(" % more"),
            "{sentence}"
        );
    }
}
