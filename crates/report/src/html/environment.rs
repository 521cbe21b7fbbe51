//! The machines: what they are, in what they differ; what could not be learned.

use std::collections::BTreeSet;

use stopgap_events::question::Question;

use super::side::{Side, facts};
use super::write::{Table, escaped};
use super::{Document, Source};
use crate::now;

/// The table of all sides; rows in which they differ are marked, and come first.
pub(super) fn section(sides: &[Side<'_>]) -> String {
    if sides.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["setting"]);
    table
        .head
        .extend(sides.iter().map(|side| side.name.clone()));
    let all: Vec<_> = sides
        .iter()
        .map(|side| facts(&side.runs[0].1.environment))
        .collect();
    let (mut differ, mut same) = (Vec::new(), Vec::new());
    for (index, (what, first)) in all[0].iter().enumerate() {
        let mut row = vec![(*what).to_owned()];
        row.extend(all.iter().map(|facts| facts[index].1.clone()));
        match all.iter().all(|facts| facts[index].1 == *first) {
            true => same.push(row),
            false => {
                row[0].push_str(" (differs)");
                differ.push(row);
            }
        }
    }
    table.marked = (0..differ.len()).collect();
    table.rows = differ;
    table.rows.extend(same);
    let mut html = format!(
        "<section id=\"environment\"><h2>Environment</h2>\n{}",
        table.html("Environment")
    );
    for side in sides {
        for (name, run) in side.runs.iter().take(4) {
            let Some(now) = &run.now else { continue };
            let mut shown = Table::new(&["what", "before any load", "sign of trouble"]);
            for row in now::rows(now) {
                let watch = if row.watch { "WATCH" } else { "" };
                if row.watch {
                    shown.marked.push(shown.rows.len());
                }
                shown
                    .rows
                    .push(vec![row.about.to_owned(), row.text, watch.to_owned()]);
            }
            let title = format!("What the machine showed by itself: {name}");
            html.push_str(&format!(
                "<details><summary>{}</summary>{}</details>\n",
                escaped(&title),
                shown.html(&title)
            ));
        }
    }
    html.push_str("</section>\n");
    html
}

/// What could not be measured, and what was lost; said also where there is nothing.
pub(super) fn missing(sources: &[Source]) -> String {
    let mut table = Table::new(&["record", "about", "what", "why"]);
    let mut said = BTreeSet::new();
    let mut add = |record: &str, about: &str, what: &str, why: &str| {
        // The same of many runs is said once.
        if said.insert([about, what, why].map(str::to_owned)) {
            table
                .rows
                .push([record, about, what, why].map(str::to_owned).to_vec());
        }
    };
    for Source { name, document } in sources {
        match document {
            Document::Run(run) => {
                if run.interrupted {
                    add(
                        name,
                        "run",
                        "all that was planned",
                        "interrupted: less was measured",
                    );
                }
                for missing in &run.environment.missing {
                    add(name, "environment", &missing.what, &missing.why);
                }
                for answer in &run.answers {
                    let about = answer.question.to_string();
                    for missing in &answer.missing {
                        add(name, &about, &missing.what, &missing.why);
                    }
                    for lost in answer.losses.iter().filter(|lost| lost.value > 0) {
                        add(
                            name,
                            &about,
                            &format!("{} {}", lost.value, lost.name),
                            "lost",
                        );
                    }
                }
                for question in Question::FOUR {
                    if !run.answers.iter().any(|answer| answer.question == question) {
                        add(name, question.word(), "this question", "not asked");
                    }
                }
            }
            Document::Explain(explain) => {
                for missing in &explain.findings.missing {
                    add(name, "trace", &missing.what, &missing.why);
                }
            }
            Document::Other(other) => {
                for missing in &other.missing {
                    add(name, other.kind, &missing.what, &missing.why);
                }
            }
            Document::Compare(comparison) => {
                for missing in &comparison.missing {
                    add(name, "comparison", &missing.what, &missing.why);
                }
            }
            Document::Replay(replay) => {
                for row in &replay.rows {
                    let (policy, missing) = match row {
                        stopgap_stats::replay::Row::Placement(row) => (&row.policy, &row.missing),
                        stopgap_stats::replay::Row::Chunks(row) => (&row.policy, &row.missing),
                        stopgap_stats::replay::Row::Roundtrip(row) => (&row.policy, &row.missing),
                        stopgap_stats::replay::Row::Reclaim(row) => (&row.policy, &row.missing),
                    };
                    for missing in missing {
                        add(name, policy, &missing.what, &missing.why);
                    }
                }
            }
        }
    }
    let body = match table.rows.is_empty() {
        true => "<p>These records name nothing that could not be measured.</p>".to_owned(),
        false => table.html("What could not be measured"),
    };
    format!(
        "<section id=\"missing\"><h2>What could not be measured</h2>\n<p>Never tested here: the GPU driver, fences, block \
         I/O, your program.</p>{body}</section>\n"
    )
}
