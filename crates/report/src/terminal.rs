//! Records of any kind in short, for a terminal: every verdict, and of latencies a line that shows how they are spread.

use stopgap_events::units::Nanos;
use stopgap_stats::histogram::Histogram;
use stopgap_stats::quantile::quantile;
use stopgap_stats::record::Run;

use crate::details::word;
use crate::html::{Document, Source};
use crate::replay::grows;
use crate::screen::environment_line;
use crate::table::{Screen, Style, Table, join, known, known_or};
use crate::text::thousands;
use crate::{headline, overall};

/// Heights of a bar, lowest first.
pub(crate) const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a spread.
const COLUMNS: usize = 24;

/// Latencies that are shown of a run and question.
const LATENCIES: usize = 4;

/// Returns the screen.
#[must_use]
pub fn screen(sources: &[Source], style: Style) -> String {
    let mut screen = Screen::new(style);
    for Source { name, document } in sources {
        screen.line(name);
        let mut verdicts: Vec<String> = Vec::new();
        match document {
            Document::Run(run) => {
                screen.add(&environment_line(&run.environment, style));
                let answers = run.answers.iter();
                let sentence = |one| overall::of_answer(one).sentence;
                verdicts.extend(answers.map(|one| format!("{}: {}", one.question, sentence(one))));
            }
            Document::Compare(it) => {
                screen.line(format!("{} against {}", it.after.name, it.before.name));
                if let Some(series) = &it.series {
                    screen.line(format!("of {series}"));
                }
                // Doubts lead.
                verdicts.extend(
                    it.warnings
                        .iter()
                        .map(|warning| format!("warning: {warning}")),
                );
                verdicts.push(headline::of_comparison(it).in_a_line());
                let rows = it.endpoints.iter();
                verdicts
                    .extend(rows.map(|row| format!("{}: {}: {}", row.name, row.word, row.text)));
            }
            Document::Other(it) => {
                screen.line(&it.line);
                verdicts.extend(it.answers.iter().map(|answer| answer.text.clone()));
            }
            Document::Explain(it) => {
                let findings = &it.findings;
                screen.line(format!(
                    "trace of {}",
                    known_or("", findings.trace.source.as_ref())
                ));
                verdicts.push(headline::of_findings(findings).in_a_line());
                verdicts.extend(findings.advice.iter().map(|a| format!("try: {}", a.text)));
            }
            Document::History(it) => {
                screen.line("history of a watch");
                verdicts.push(it.history.verdict.clone());
            }
            Document::Replay(it) => {
                screen.line(format!("what if, {}", it.question));
                let rows = it.rows.len();
                verdicts.push(format!(
                    "{rows} rows; stopgap report without --terminal shows them"
                ));
                verdicts.extend(it.growth.iter().map(grows));
            }
        }
        for verdict in verdicts {
            screen.say(format!("  {verdict}"));
        }
        if let Document::Run(run) = document {
            screen.table_of_some(&latencies(run));
        }
    }
    screen.finish()
}

/// Returns a row for each latency: quantiles, and how samples are spread.
fn latencies(run: &Run) -> Table {
    let mut table =
        Table::new("latency | under | >samples | >least | spread, log | >longest | >p50 | >p99");
    for answer in &run.answers {
        let leads = answer.question.facts().led_by;
        let series = answer.series.iter().filter(|series| series.name == leads);
        let pooled = series.map(|series| (series, series.pooled()));
        for (series, pooled) in pooled.filter(|(_, all)| !all.is_empty()).take(LATENCIES) {
            let name = format!("{} {}", answer.question, series.name);
            let under = join(series.parameters.values().map(word), " ");
            let samples = thousands(pooled.len());
            let [p50, p99] = [0.5, 0.99].map(|q| known(quantile(&pooled, q).ok().map(Nanos)));
            let [least, most] = [pooled.min(), pooled.max()].map(|ns| known(ns.map(Nanos)));
            let spread = spread(&pooled);
            table.row(&[&name, &under, &samples, &least, &spread, &most, &p50, &p99]);
        }
    }
    table
}

/// Returns samples from the shortest to the longest by logarithm. Any column that has a sample shows it, and a column of a
/// thousand times as many is not a thousand times as high: heights are logarithms too.
fn spread(histogram: &Histogram) -> String {
    let (Some(least), Some(most)) = (histogram.min(), histogram.max()) else {
        return String::new();
    };
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let (low, high) = (log(least), log(most));
    let mut columns = [0_u64; COLUMNS];
    for (ns, count) in histogram.buckets() {
        let share = (log(ns) - low) / (high - low).max(1e-9);
        let at = (share.clamp(0.0, 1.0) * (COLUMNS - 1) as f64).round() as usize;
        columns[at] += count;
    }
    let tallest = columns.iter().copied().max().unwrap_or(1).max(1) as f64;
    let most = BARS.len() - 1;
    let bar = |&count: &u64| match count {
        0 => BARS[0],
        count => {
            let height = (count as f64).ln_1p() / tallest.ln_1p() * most as f64;
            BARS[(height.round() as usize).clamp(1, most)]
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
