//! One answer in depth: the verdict in plain words and in figures, its evidence; on request a table for each measured quantity with the
//! parameters as columns, what was lost and what is missing.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use stopgap_events::order::{Inserted as _, SortRows};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{label, low_median, quantile};
use stopgap_stats::record::{Answer, Parameter, Series};

use crate::table::{Screen, Style, Table, UNKNOWN, join, known, known_or};
use crate::text::{figure, thousands};
use crate::{fix, overall};

/// Tail quantiles that a latency's row shows.
const TAILS: [f64; 2] = [0.99, 0.999];

/// Sentences of evidence that are printed; they are the most important first.
const EVIDENCE: usize = 12;

/// Pieces of advice that are printed.
const ADVICE: usize = 4;

/// The same without `--verbose`.
const SHORT: usize = 5;
const SHORT_ADVICE: usize = 2;

/// Returns the text of an answer.
#[must_use]
pub fn answer(answer: &Answer, style: Style) -> String {
    let mut screen = Screen::new(style);
    let row = overall::of_answer(answer);
    screen.say_bold(format!("{}: {}", answer.question, row.sentence));
    let (evidence, advice) = match style.verbose {
        true => (EVIDENCE, ADVICE),
        false => (SHORT, SHORT_ADVICE),
    };
    if row.sentence != answer.verdict.text {
        screen.say(format!("  {}", answer.verdict.text));
    }
    for evidence in answer.evidence.iter().take(evidence) {
        screen.say(format!("  {evidence}"));
    }
    if answer.evidence.len() > evidence {
        let more = answer.evidence.len() - evidence;
        screen.line(format!("  and {more} more in the record"));
    }
    for fix in answer.fixes.iter().take(advice) {
        screen.say(format!("  {}", fix::sentence(fix)));
    }
    for advice in answer.advice.iter().take(advice) {
        screen.say(format!("  try: {advice}"));
    }
    if !style.verbose {
        let lost: u64 = answer.losses.iter().map(|loss| loss.value).sum();
        if lost > 0 {
            say_losses(answer, &mut screen);
        }
        screen.unknown(&answer.missing);
        let series = answer.series.len();
        if series > 0 {
            screen.say(format!(
                "--verbose prints the figures of {series} series, run by run"
            ));
        }
        return screen.finish();
    }
    let groups = groups(&answer.series);
    let (none, some): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| counted_nothing(group));
    for group in some {
        screen.add("\n");
        say_group(&group, &mut screen);
    }
    if !none.is_empty() {
        let names = join(none.iter().map(|group| &group[0].name), ", ");
        screen.add("\n");
        screen.say(format!("0 throughout: {names}"));
    }
    if !answer.series.is_empty() {
        screen.add(
            "\nleast, middle, most: of the runs' figures; p99 and above: of all samples, - where n is too small.\n",
        );
    }
    if !answer.losses.is_empty() {
        say_losses(answer, &mut screen);
    }
    screen.unknown(&answer.missing);
    screen.finish()
}

fn say_losses(answer: &Answer, screen: &mut Screen) {
    let losses = answer.losses.iter();
    let losses = losses.map(|loss| format!("{} {}", loss.name, thousands(loss.value)));
    screen.line(format!("lost: {}", join(losses, ", ")));
}

/// Returns series of the same quantity, in the order in which it first comes.
fn groups(series: &[Series]) -> Vec<Vec<&Series>> {
    let mut groups: Vec<Vec<&Series>> = Vec::new();
    for one in series {
        let same =
            |group: &&mut Vec<&Series>| (&group[0].name, &group[0].unit) == (&one.name, &one.unit);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Returns whether a group is a count per buffer that was measured everywhere and was 0 everywhere.
fn counted_nothing(group: &[&Series]) -> bool {
    group.iter().all(|series| {
        let mut blocks = series.blocks.iter();
        let counted = series.unit.ends_with("/buffer") && series.error.is_none();
        counted && !series.blocks.is_empty() && blocks.all(|block| block.value == 0.0)
    })
}

/// Adds the table of one quantity. A parameter that all its series share stands in the title.
fn say_group(group: &[&Series], screen: &mut Screen) {
    let keys: BTreeSet<&String> = group
        .iter()
        .flat_map(|series| series.parameters.keys())
        .inserted();
    let first = group[0];
    let same = |key: &&String| {
        let value = first.parameters.get(*key);
        group
            .iter()
            .all(|series| series.parameters.get(*key) == value)
    };
    let (shared, own): (Vec<&String>, Vec<&String>) = keys.into_iter().partition(same);
    let mut title = format!("{}, {}", first.name, first.unit);
    for key in shared {
        title += &known_or(
            "",
            first
                .parameters
                .get(key)
                .map(|value| format!(", {key} {}", word(value))),
        );
    }
    screen.line(title);

    let mut sorted = group.to_vec();
    sorted.sort_rows(|a, b| compare(a, b, &own));
    let (failed, measured): (Vec<&Series>, Vec<&Series>) = sorted
        .into_iter()
        .partition(|series| series.error.is_some());
    let pooled: Vec<Histogram> = measured.iter().map(|series| series.pooled()).collect();
    // A tail that no series has samples enough for is left out.
    let mut tails = TAILS.to_vec();
    tails.retain(|&q| pooled.iter().any(|all| quantile(all, q).is_ok()));
    let mut head: Vec<String> = own.iter().copied().cloned().collect();
    head.extend([">runs", ">samples", ">least", ">middle", ">most"].map(str::to_owned));
    if pooled.iter().any(|all| !all.is_empty()) {
        head.extend(tails.iter().map(|&q| format!(">{}", label(q))));
        head.push(">max".to_owned());
    }
    let mut table = Table::with_heads(head);
    for (series, pooled) in measured.iter().zip(&pooled) {
        let figures = || series.blocks.iter().map(|block| block.value);
        let samples: u64 = series.blocks.iter().map(|block| block.samples).sum();
        let ends = [
            figures().min_by(f64::total_cmp),
            low_median(figures().collect()),
            figures().max_by(f64::total_cmp),
        ];
        let mut cells: Vec<String> = own.iter().map(|key| cell(series, key)).collect();
        cells.extend([series.blocks.len().to_string(), thousands(samples)]);
        cells.extend(ends.map(|end| known_or("", end.map(|value| figure(value, &series.unit)))));
        cells.extend(
            tails
                .iter()
                .map(|&q| known(quantile(pooled, q).ok().map(Nanos))),
        );
        cells.extend(pooled.max().map(|ns| Nanos(ns).to_string()));
        table.rows.push(cells);
    }
    table.keys = own.len();
    screen.table_of_some(&table);
    for series in failed {
        let names = join(own.iter().map(|key| cell(series, key)), " ");
        let error = series.error.as_deref().unwrap_or_default();
        screen.line(format!("{names}: {error}"));
    }
}

/// Returns a parameter's value in words.
pub(crate) fn word(value: &Parameter) -> String {
    match value {
        Parameter::Number(number) => thousands(*number),
        Parameter::Word(word) => word.clone(),
    }
}

fn cell(series: &Series, key: &str) -> String {
    series
        .parameters
        .get(key)
        .map_or_else(|| UNKNOWN.to_owned(), word)
}

/// Compares series by the parameters `keys`: numbers, sizes and durations by value.
pub(crate) fn compare(a: &Series, b: &Series, keys: &[impl AsRef<str>]) -> Ordering {
    let value = |series: &Series, key: &str| match series.parameters.get(key) {
        None => (0, String::new()),
        Some(Parameter::Number(number)) => (*number, String::new()),
        Some(Parameter::Word(word)) => {
            let size = word.parse::<Bytes>().map(|size| size.0);
            match size.or(word.parse::<Nanos>().map(|time| time.0)) {
                Ok(quantity) => (quantity, String::new()),
                Err(_) => (0, word.clone()),
            }
        }
    };
    let orders = keys
        .iter()
        .map(|key| value(a, key.as_ref()).cmp(&value(b, key.as_ref())));
    orders.fold(Ordering::Equal, Ordering::then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use stopgap_events::machine::Privilege;
    use stopgap_events::question::Question;
    use stopgap_stats::record::Block;
    use stopgap_stats::verdict::Verdict;

    fn series(strategy: &str, size: &str, value: Option<f64>) -> Series {
        let blocks = value.map(|value| Block {
            run: 0,
            start_ns: 0,
            samples: 3,
            value,
            histogram: None,
            stalls: None,
        });
        Series {
            name: "take".to_owned(),
            unit: "ns".to_owned(),
            parameters: [
                ("block".to_owned(), "2M".into()),
                ("size".to_owned(), size.into()),
                ("strategy".to_owned(), strategy.into()),
            ]
            .into(),
            blocks: blocks.into_iter().collect(),
            error: value.is_none().then(|| "needs root".to_owned()),
        }
    }

    #[test]
    fn parameters_are_columns_and_shared_ones_stand_above() {
        let all = [
            series("thp", "64M", Some(5_600_000.0)),
            series("base", "4M", Some(1_200_000.0)),
            series("mthp", "4M", None),
        ];
        let groups = groups(&all);
        assert_eq!(groups.len(), 1);
        let style = Style {
            width: 100,
            colour: false,
            verbose: false,
        };
        let mut screen = Screen::new(style);
        say_group(&groups[0], &mut screen);
        let text = screen.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "take, ns, block 2M");
        assert!(lines[1].starts_with("size"), "{text}");
        assert!(
            lines[2].starts_with("4M") && lines[2].contains("1.20 ms"),
            "{text}"
        );
        assert!(lines[3].starts_with("64M"), "{text}");
        assert_eq!(lines[4], "4M mthp: needs root");
    }

    #[test]
    fn counts_that_are_0_throughout_have_a_line_and_no_table() {
        let count = |name: &str, strategy: &str, value| Series {
            name: name.to_owned(),
            unit: "pages/buffer".to_owned(),
            ..series(strategy, "4M", value)
        };
        let answer = Answer {
            question: Question::Chunks,
            parameters: BTreeMap::new(),
            verdict: Verdict::inconclusive("not fragmented"),
            figure: None,
            evidence: Vec::new(),
            advice: Vec::new(),
            privilege: Privilege::Root,
            counters: Vec::new(),
            losses: Vec::new(),
            missing: Vec::new(),
            series: vec![
                count("moved", "base", Some(0.0)),
                count("moved", "thp", Some(0.0)),
                count("reclaimed", "base", Some(0.0)),
                count("scanned", "base", Some(0.0)),
                count("scanned", "thp", Some(2.0)),
                count("not known", "base", None),
            ],
            fixes: Vec::new(),
        };
        let style = Style {
            width: 100,
            colour: false,
            verbose: false,
        };
        let short = super::answer(&answer, style);
        assert!(!short.contains("throughout"), "{short}");
        assert!(
            short.contains("--verbose prints the figures of 6 series"),
            "{short}"
        );
        let text = super::answer(
            &answer,
            Style {
                verbose: true,
                ..style
            },
        );
        assert!(
            text.contains("\n0 throughout: moved, reclaimed\n"),
            "{text}"
        );
        assert!(text.contains("\nscanned, pages/buffer"), "{text}");
        assert!(text.contains("\nnot known, pages/buffer"), "{text}");
        assert!(!text.contains("moved, pages"), "{text}");
    }
}
