//! One answer in depth: the verdict, its evidence, a table for each measured quantity with the
//! parameters as columns, what was lost and what is missing.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::{label, quantile};
use stopgap_stats::record::{Answer, Parameter, Series};

use crate::fix;
use crate::screen::{Style, plain_table};
use crate::text::{number, plain, thousands, wrap};

/// Tail quantiles that a latency's row shows.
const TAILS: [f64; 2] = [0.99, 0.999];

/// Sentences of evidence that are printed; they are the most important first.
const EVIDENCE: usize = 12;

/// Pieces of advice that are printed.
const ADVICE: usize = 4;

/// Stands where there are too few samples for a quantile.
const TOO_FEW: &str = "-";

/// The text of an answer.
#[must_use]
pub fn answer(answer: &Answer, style: Style) -> String {
    let verdict = format!("{}: {}", answer.question, plain(&answer.verdict.text));
    let mut text = wrap(&verdict, style.width, 2);
    for evidence in answer.evidence.iter().take(EVIDENCE) {
        text.push_str(&wrap(&format!("  {}", plain(evidence)), style.width, 2));
    }
    if answer.evidence.len() > EVIDENCE {
        let more = answer.evidence.len() - EVIDENCE;
        text.push_str(&format!("  and {more} more in the record\n"));
    }
    for fix in answer.fixes.iter().take(ADVICE) {
        text.push_str(&wrap(&format!("  {}", fix::sentence(fix)), style.width, 2));
    }
    for advice in answer.advice.iter().take(ADVICE) {
        text.push_str(&wrap(&format!("  try: {}", plain(advice)), style.width, 2));
    }
    let (none, some): (Vec<_>, Vec<_>) = groups(&answer.series)
        .into_iter()
        .partition(|group| counted_nothing(group));
    for group in some {
        text.push('\n');
        text.push_str(&table(&group, style));
    }
    if !none.is_empty() {
        let names: Vec<String> = none.iter().map(|group| plain(&group[0].name)).collect();
        text.push('\n');
        text.push_str(&wrap(
            &format!("0 throughout: {}", names.join(", ")),
            style.width,
            2,
        ));
    }
    if !answer.series.is_empty() {
        text.push_str(
            "\nleast, middle, most: of the runs' figures; p99 and above: of all samples, - where n is \
             too small.\n",
        );
    }
    if !answer.losses.is_empty() {
        let losses: Vec<String> = answer
            .losses
            .iter()
            .map(|loss| format!("{} {}", plain(&loss.name), thousands(loss.value)))
            .collect();
        text.push_str(&format!("lost: {}\n", losses.join(", ")));
    }
    for missing in &answer.missing {
        let unknown = format!("unknown: {}: {}", plain(&missing.what), plain(&missing.why));
        text.push_str(&wrap(&unknown, style.width, 2));
    }
    text
}

/// Series of the same quantity, in the order in which it first comes.
fn groups(series: &[Series]) -> Vec<Vec<&Series>> {
    let mut groups: Vec<Vec<&Series>> = Vec::new();
    for one in series {
        let same = groups
            .iter_mut()
            .find(|group| group[0].name == one.name && group[0].unit == one.unit);
        match same {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Whether a group is a count a buffer that was measured everywhere and was 0 everywhere.
fn counted_nothing(group: &[&Series]) -> bool {
    group.iter().all(|series| {
        let mut blocks = series.blocks.iter();
        let counted = series.unit.ends_with("/buffer") && series.error.is_none();
        counted && !series.blocks.is_empty() && blocks.all(|block| block.value == 0.0)
    })
}

/// The table of one quantity. A parameter that all its series share stands in the title.
fn table(group: &[&Series], style: Style) -> String {
    let keys: BTreeSet<&str> = group
        .iter()
        .flat_map(|series| series.parameters.keys().map(String::as_str))
        .collect();
    let same = |key: &&&str| {
        let first = group[0].parameters.get(**key);
        group
            .iter()
            .all(|series| series.parameters.get(**key) == first)
    };
    let (shared, own): (Vec<&str>, Vec<&str>) = keys.iter().partition(same);

    let mut title = format!("{}, {}", plain(&group[0].name), plain(&group[0].unit));
    for key in shared {
        if let Some(value) = group[0].parameters.get(key) {
            title.push_str(&format!(", {} {}", plain(key), word(value)));
        }
    }

    let mut sorted = group.to_vec();
    sorted.sort_by(|a, b| compare(a, b, &own));
    let (failed, measured): (Vec<&Series>, Vec<&Series>) = sorted
        .into_iter()
        .partition(|series| series.error.is_some());

    let latencies: Vec<Histogram> = measured.iter().map(|series| series.pooled()).collect();
    let latency = latencies.iter().any(|all| !all.is_empty());
    // A tail that no series has samples enough for is left out.
    let tails: Vec<f64> = TAILS
        .into_iter()
        .filter(|&q| latencies.iter().any(|all| quantile(all, q).is_ok()))
        .collect();
    let labels: Vec<String> = tails.iter().map(|&q| label(q)).collect();
    let mut head = own.clone();
    head.extend(["runs", "samples", "least", "middle", "most"]);
    if latency {
        head.extend(labels.iter().map(String::as_str));
        head.push("max");
    }
    let right: Vec<bool> = (0..head.len()).map(|column| column >= own.len()).collect();
    let mut text = format!("{title}\n");
    if !measured.is_empty() {
        let rows = measured.iter().map(|series| row(series, &own, &tails));
        text.push_str(&plain_table(&head, rows.collect(), &right, false, style));
    }
    for series in failed {
        let names: Vec<String> = own.iter().map(|key| cell(series, key)).collect();
        let error = series.error.as_deref().unwrap_or_default();
        text.push_str(&format!("{}: {}\n", names.join(" "), plain(error)));
    }
    text
}

pub(crate) fn word(value: &Parameter) -> String {
    match value {
        Parameter::Number(number) => thousands(*number),
        Parameter::Word(word) => plain(word),
    }
}

fn cell(series: &Series, key: &str) -> String {
    series
        .parameters
        .get(key)
        .map_or_else(|| "-".to_owned(), word)
}

/// By parameter; numbers, sizes and durations by value.
pub(crate) fn compare(a: &Series, b: &Series, keys: &[&str]) -> Ordering {
    let value = |series: &Series, key: &str| match series.parameters.get(key) {
        None => (0, String::new()),
        Some(Parameter::Number(number)) => (*number, String::new()),
        Some(Parameter::Word(word)) => {
            let size = word.parse::<Bytes>().map(|size| size.0);
            let time = word.parse::<Nanos>().map(|time| time.0);
            match size.or(time) {
                Ok(quantity) => (quantity, String::new()),
                Err(_) => (0, word.clone()),
            }
        }
    };
    keys.iter()
        .map(|key| value(a, key).cmp(&value(b, key)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// A figure in its unit: times in the unit that suits each.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    if unit == "ns" && value >= 100.0 {
        Nanos(value.round() as u64).to_string()
    } else {
        number(value)
    }
}

fn row(series: &Series, own: &[&str], tails: &[f64]) -> Vec<String> {
    let mut cells: Vec<String> = own.iter().map(|key| cell(series, key)).collect();
    let mut figures: Vec<f64> = series.blocks.iter().map(|block| block.value).collect();
    figures.sort_by(f64::total_cmp);
    let samples: u64 = series.blocks.iter().map(|block| block.samples).sum();
    let at = |index: usize| {
        figures
            .get(index)
            .map_or_else(String::new, |&value| figure(value, &series.unit))
    };
    cells.extend([
        figures.len().to_string(),
        thousands(samples),
        at(0),
        at(figures.len().saturating_sub(1) / 2),
        at(figures.len().saturating_sub(1)),
    ]);
    let pooled = series.pooled();
    cells.extend(tails.iter().map(|&q| {
        quantile(&pooled, q).map_or_else(|_| TOO_FEW.to_owned(), |ns| Nanos(ns).to_string())
    }));
    cells.extend(pooled.max().map(|ns| Nanos(ns).to_string()));
    cells
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
        };
        let text = table(&groups[0], style);
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
        };
        let text = super::answer(&answer, style);
        assert!(
            text.contains("\n0 throughout: moved, reclaimed\n"),
            "{text}"
        );
        assert!(text.contains("\nscanned, pages/buffer"), "{text}");
        assert!(text.contains("\nnot known, pages/buffer"), "{text}");
        assert!(!text.contains("moved, pages"), "{text}");
    }
}
