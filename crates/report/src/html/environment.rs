//! The machines: what they are, in what they differ; what could not be learned.

use std::collections::BTreeSet;

use stopgap_events::machine::Missing;
use stopgap_events::question::Question;
use stopgap_stats::replay::Row;

use super::side::Side;
use super::write::Section;
use super::{Document, Source};
use crate::now;
use crate::screen::environment_line;
use crate::table::{Style, Table};

/// Runs of a side of which the page says what the machine showed by itself.
const MOST_RUNS: usize = 4;

/// Returns the table of all sides. Rows in which they differ are marked, and come first. `None` where there is no run.
pub(super) fn section(sides: &[Side<'_>]) -> Option<String> {
    let first = sides.first()?;
    let names = sides.iter().map(|side| side.name.clone());
    let mut table = Table::with_heads(["setting".to_owned()].into_iter().chain(names));
    let mut same = Vec::new();
    for (index, (what, value)) in first.facts.iter().enumerate() {
        let differs = sides.iter().any(|side| side.facts[index].1 != *value);
        let mark = if differs { " (differs)" } else { "" };
        let values = sides.iter().map(|side| side.facts[index].1.clone());
        let row = [format!("{what}{mark}")]
            .into_iter()
            .chain(values)
            .collect();
        if differs { &mut table.rows } else { &mut same }.push(row);
    }
    table.marked = (0..table.rows.len()).collect();
    table.rows.extend(same);
    let mut section = Section::new("environment", "Machine");
    for (_, run) in sides.iter().filter_map(|side| side.runs.first()) {
        let style = Style {
            width: u16::MAX,
            colour: false,
            verbose: false,
        };
        section.paragraph(environment_line(&run.environment, style).trim_end());
    }
    let differing = table.marked.len();
    if differing > 0 {
        let mut differs = table.clone();
        differs.rows.truncate(differing);
        section.table("In what the machines differ", &differs);
        table.rows.drain(..differing);
        table.marked.clear();
    }
    section.folded_table("Settings", &table);
    for (name, run) in sides
        .iter()
        .flat_map(|side| side.runs.iter().take(MOST_RUNS))
    {
        let Some(now) = &run.now else { continue };
        let mut table = Table::new("what | before any load");
        for row in now::rows(now) {
            table.row(&[&row.about, &row.text]);
        }
        section.folded_table(
            &format!("What the machine showed by itself: {name}"),
            &table,
        );
    }
    Some(section.finish())
}

/// Returns what could not be measured, and what was lost; `None` where there is nothing and no run was made.
pub(super) fn missing(sources: &[Source]) -> Option<String> {
    let mut table = Table::new("record | about | what | why");
    let mut said = BTreeSet::new();
    for Source { name, document } in sources {
        let mut add_all = |about: &str, all: &[Missing]| {
            for Missing { what, why } in all {
                // One line, though many runs lack the same.
                if said.insert([about, what, why].map(str::to_owned)) {
                    table.row(&[name, &about, what, why]);
                }
            }
        };
        match document {
            Document::Run(run) => {
                if run.interrupted {
                    let missing =
                        Missing::new("all that was planned", "interrupted: less was measured");
                    add_all("run", &[missing]);
                }
                add_all("environment", &run.environment.missing);
                for answer in &run.answers {
                    let about = answer.question.word();
                    add_all(about, &answer.missing);
                    for lost in answer.losses.iter().filter(|lost| lost.value > 0) {
                        let lost = format!("{} {}", lost.value, lost.name);
                        add_all(about, &[Missing::new(lost, "lost")]);
                    }
                }
                let asked = |question| run.answers.iter().any(|answer| answer.question == question);
                for question in Question::FOUR
                    .into_iter()
                    .filter(|&question| !asked(question))
                {
                    add_all(
                        question.word(),
                        &[Missing::new("this question", "not asked")],
                    );
                }
            }
            Document::Explain(explain) => add_all("trace", &explain.findings.missing),
            Document::Other(other) => add_all(other.kind, &other.missing),
            Document::Compare(comparison) => add_all("comparison", &comparison.missing),
            Document::History(_) => {} // its own section says what it lacks
            Document::Replay(replay) => {
                for row in &replay.rows {
                    match row {
                        Row::Placement(row) => add_all(&row.policy, &row.missing),
                        Row::Chunks(row) => add_all(&row.policy, &row.missing),
                        Row::Roundtrip(row) => add_all(&row.policy, &row.missing),
                        Row::Reclaim(row) => add_all(&row.policy, &row.missing),
                    }
                }
            }
        }
    }
    let mut section = Section::new("missing", "What could not be measured");
    let runs = |source: &Source| matches!(source.document, Document::Run(_));
    let runs = sources.iter().any(runs);
    if !runs && table.rows.is_empty() {
        return None;
    }
    if runs {
        section.paragraph(
            "stopgap tests no GPU driver, no fences, no block I/O and none of your programs.",
        );
    }
    match table.rows.len() {
        0 => section.paragraph("These records name nothing that could not be measured."),
        all => section.folded_table(
            &format!("What could not be measured, and why: {all}"),
            &table,
        ),
    }
    Some(section.finish())
}
