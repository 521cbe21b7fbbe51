//! Records of any kind in short, for a terminal: every verdict, and of latencies a line that shows how they are spread.

use stopgap_events::question::Question;
use stopgap_events::units::Nanos;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_stats::record::Run;

use crate::html::{Document, Source};
use crate::screen::{Style, plain_table};
use crate::text::{plain, thousands, wrap};

/// Heights of a bar, lowest first.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a spread.
const COLUMNS: usize = 24;

/// Latencies that are shown of a run and question.
const LATENCIES: usize = 4;

/// The screen.
#[must_use]
pub fn screen(sources: &[Source], style: Style) -> String {
    let mut text = String::new();
    for Source { name, document } in sources {
        let (what, verdicts): (String, Vec<String>) = match document {
            Document::Run(run) => {
                let verdicts = run.answers.iter();
                let verdict = |answer: &stopgap_stats::record::Answer| {
                    format!("{}: {}", answer.question, plain(&answer.verdict.text))
                };
                let machine = crate::screen::environment_line(&run.environment, style);
                (machine, verdicts.map(verdict).collect())
            }
            Document::Compare(it) => {
                let mut sides = format!(
                    "{} against {}\n",
                    plain(&it.after.name),
                    plain(&it.before.name)
                );
                if let Some(series) = &it.series {
                    sides.push_str(&format!("of {}\n", plain(series)));
                }
                let row = |row: &stopgap_stats::compare::Row| {
                    format!("{}: {}: {}", plain(&row.name), row.word, plain(&row.text))
                };
                // What makes it doubtful leads.
                let warnings = it.warnings.iter();
                let mut verdicts: Vec<String> = warnings
                    .map(|warning| format!("warning: {}", plain(warning)))
                    .collect();
                verdicts.push(plain(&it.verdict.text));
                verdicts.extend(it.endpoints.iter().map(row));
                (sides, verdicts)
            }
            Document::Other(it) => {
                let verdicts = it.answers.iter().map(|answer| plain(&answer.text));
                (format!("{}\n", it.line), verdicts.collect())
            }
            Document::Explain(it) => {
                let source = it
                    .findings
                    .trace
                    .source
                    .as_deref()
                    .map_or_else(String::new, plain);
                let mut verdicts = vec![plain(&it.findings.verdict.text)];
                verdicts.extend(
                    it.findings
                        .advice
                        .iter()
                        .map(|a| format!("try: {}", plain(&a.text))),
                );
                (format!("trace of {source}\n"), verdicts)
            }
            Document::Replay(it) => {
                let growth = it.growth.iter();
                let line = |g: &stopgap_stats::replay::Growth| {
                    format!(
                        "{}, {}: {}",
                        plain(&g.workload),
                        plain(&g.policy),
                        plain(&g.text)
                    )
                };
                let mut verdicts = vec![format!(
                    "{} rows; stopgap report without --terminal shows them",
                    it.rows.len()
                )];
                verdicts.extend(growth.map(line));
                (format!("what if, {}\n", it.question), verdicts)
            }
        };
        text.push_str(&format!("{}\n{what}", plain(name)));
        for verdict in verdicts {
            text.push_str(&wrap(&format!("  {verdict}"), style.width, 2));
        }
        if let Document::Run(run) = document {
            text.push_str(&latencies(run, style));
        }
    }
    text
}

/// The quantity whose latency a question is judged by.
fn led_by(question: Question) -> &'static str {
    match question {
        Question::Placement => "map",
        Question::Roundtrip => "latency",
        Question::Chunks => "block",
        Question::Reclaim => "populate a block",
        Question::Wakeup => "wake-up",
    }
}

/// A row a latency: quantiles, and how samples are spread.
fn latencies(run: &Run, style: Style) -> String {
    let mut rows = Vec::new();
    for answer in &run.answers {
        let with = answer
            .series
            .iter()
            .filter(|series| series.name == led_by(answer.question))
            .map(|series| (series, series.pooled()))
            .filter(|(_, pooled)| !pooled.is_empty());
        for (series, pooled) in with.take(LATENCIES) {
            let words: Vec<String> = series
                .parameters
                .values()
                .map(crate::details::word)
                .collect();
            let at = |q: f64| {
                quantile(&pooled, q).map_or_else(|_| "-".to_owned(), |ns| Nanos(ns).to_string())
            };
            let end =
                |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns).to_string());
            rows.push(vec![
                format!("{} {}", answer.question, plain(&series.name)),
                crate::text::plain(&words.join(" ")),
                thousands(pooled.len()),
                end(pooled.min()),
                spread(&pooled),
                end(pooled.max()),
                at(0.5),
                at(0.99),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "latency",
        "under",
        "samples",
        "least",
        "spread, log",
        "longest",
        "p50",
        "p99",
    ];
    let right = [false, false, true, true, false, true, true, true];
    plain_table(&head, rows, &right, false, style)
}

/// Samples from the shortest to the longest by logarithm; any column that has a sample shows it, and a column of a thousand
/// times as many is not a thousand times as high: heights are logarithms too.
fn spread(histogram: &Histogram) -> String {
    let (Some(least), Some(most)) = (histogram.min(), histogram.max()) else {
        return String::new();
    };
    let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
    let mut columns = [0_u64; COLUMNS];
    for (ns, count) in histogram.buckets() {
        let share = ((ns.max(1) as f64).ln() - low) / (high - low).max(1e-9);
        let at = (share.clamp(0.0, 1.0) * (COLUMNS - 1) as f64).round() as usize;
        columns[at] += count;
    }
    let tallest = columns.iter().copied().max().unwrap_or(1).max(1);
    let bar = |&count: &u64| match count {
        0 => BARS[0],
        count => {
            let height = ((count as f64).ln_1p() / (tallest as f64).ln_1p()
                * (BARS.len() - 1) as f64)
                .round();
            BARS[(height as usize).clamp(1, BARS.len() - 1)]
        }
    };
    columns.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_shows_a_single_stall_beside_a_million() {
        let mut histogram = Histogram::new();
        for _ in 0..1_000 {
            histogram.record(1_000);
        }
        histogram.record(1_000_000);
        let shown = spread(&histogram);
        assert_eq!(shown.chars().count(), COLUMNS);
        assert!(shown.starts_with('█') && shown.ends_with('▁'), "{shown}");
        assert_eq!(spread(&Histogram::new()), "");
    }
}
