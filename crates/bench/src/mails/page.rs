//! Writing what was judged: a page a mail, and the overview.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;
use stopgap_cli::Failure;

use super::claim::{MAILS, Mail};
use super::{Judged, Trial, Verdict, name};
use crate::common::failed;

/// The overview's text above its tables.
const HEAD: &str = include_str!("head.md");
/// As headings of claims end.
const VERDICTS: [&str; 3] = ["agrees", "differs", "cannot be tested here"];

/// Writes the pages of these mails, and the overview of all pages that are there.
pub(super) fn write(folder: &Path, pages: &[(&Mail, String)]) -> Result<(), Failure> {
    let own = folder.join("mails");
    fs::create_dir_all(&own).map_err(failed(own.display()))?;
    for (mail, text) in pages {
        let path = own.join(format!("{}.md", mail.number));
        fs::write(&path, text).map_err(failed(path.display()))?;
    }
    let path = folder.join("mails.md");
    fs::write(&path, overview(&own)).map_err(failed(path.display()))
}

/// Returns the page of a mail: its conclusions, what was judged in short, and each claim.
pub(super) fn page<'a>(
    mail: &Mail,
    judged: &[Judged<'_>],
    trials: &[Trial],
    records: impl Iterator<Item = &'a Value>,
) -> String {
    let mut text = format!("# Mail {}: {}\n\n", mail.number, mail.title);
    for judged in judged.iter().filter(|judged| judged.claim.conclusion) {
        let (id, title, word) = (&judged.id, &judged.claim.title, judged.verdict.word());
        let failing = judged.seen.iter().find(|(.., holds)| !holds);
        let printed = failing
            .or(judged.seen.first())
            .map(|(name, text, _)| match &**name {
                "" => format!(" Printed: {text}."),
                name => format!(" Printed {name}: {text}."),
            });
        let printed = printed.unwrap_or_default();
        text += &match judged.verdict {
            Verdict::Differs => format!(
                "**Conclusion {id} {word}**: {title}.{printed} It differs because {}.\n\n",
                judged.claim.because
            ),
            _ => format!("Conclusion {id} {word}: {title}.{printed}\n\n"),
        };
    }
    let counts = counts(judged.iter().map(|judged| judged.verdict.word()));
    let [all, agree, differ, lacks] = counts;
    let _ = writeln!(
        text,
        "Of {all} claims {agree} agree, {differ} differ, and {lacks} cannot be tested here. `cargo run --release -p \
         stopgap-bench -- mails` wrote this page; [the overview](../mails.md) says how. Models ran {}.{}\n",
        trials
            .iter()
            .map(|&trial| name(trial))
            .collect::<Vec<_>>()
            .join(", "),
        machine(records)
    );
    text += "| claim | | verdict |\n|---|---|---|\n";
    for judged in judged {
        let (id, title, word) = (&judged.id, &judged.claim.title, judged.verdict.word());
        let _ = writeln!(text, "| {id} | {title} | {word} |");
    }
    text + &judged.iter().map(section).collect::<String>()
}

/// Counts all verdicts, and those of each word.
fn counts<'a>(words: impl Iterator<Item = &'a str>) -> [usize; 4] {
    let words: Vec<&str> = words.collect();
    let count = |wanted| words.iter().filter(|word| **word == wanted).count();
    let [agree, differ, lacks] = VERDICTS.map(count);
    [words.len(), agree, differ, lacks]
}

/// Says on which machine the probes ran, if any did.
fn machine<'a>(mut records: impl Iterator<Item = &'a Value>) -> String {
    let Some(found) = records.find_map(|record| record.get("environment")) else {
        return String::new();
    };
    let text = |key: &str| found[key].as_str().unwrap_or("unknown");
    format!(
        " Probes (*live*) ran on Linux {}, {} CPUs ({}, {}), as {}.",
        text("kernel"),
        found["cpus"].as_array().map_or(0, Vec::len),
        text("cpu"),
        text("hypervisor"),
        text("privilege")
    )
}

fn section(judged: &Judged<'_>) -> String {
    let claim = judged.claim;
    let word = judged.verdict.word();
    let mut text = format!("\n## {} {}: {word}\n\n", judged.id, claim.title);
    let lines = if claim.lines.contains('-') {
        "lines"
    } else {
        "line"
    };
    let _ = writeln!(text, "> {} ({lines} {})\n", claim.quote, claim.lines);
    if !claim.figures.is_empty() {
        let _ = writeln!(text, "* The mail: {}.", claim.figures);
    }
    for command in &judged.commands {
        let live = if command.contains(" probe ") {
            " (*live*)"
        } else {
            ""
        };
        let _ = writeln!(text, "* `{command}`{live}");
    }
    let mut seen = judged.seen.clone();
    if seen.len() > 1 && seen.iter().all(|(_, prints, _)| *prints == seen[0].1) {
        seen.truncate(1);
        seen[0].0 = "each time".to_owned();
    }
    for (name, prints, holds) in seen {
        let colon = if name.is_empty() { "" } else { ": " };
        let holds = if holds { "" } else { " (**does not hold**)" };
        let _ = writeln!(text, "  * {name}{colon}{prints}{holds}");
    }
    let mut point = |word: &str, what: &str| {
        if !what.is_empty() {
            let _ = writeln!(text, "* {word} {what}.");
        }
    };
    match &judged.verdict {
        Verdict::Lacks(what) => point("Missing here:", what),
        Verdict::Differs => {
            point("It would agree if", &claim.holds_if);
            point("It differs because", &claim.because);
        }
        Verdict::Agrees | Verdict::NotJudged(_) => point("It agrees if", &claim.holds_if),
    }
    point("More:", &claim.more);
    text
}

/// Returns the overview: what the pages in the folder say.
fn overview(folder: &Path) -> String {
    let (mut text, mut conclusions, mut sum) = (HEAD.to_owned(), String::new(), [0; 4]);
    text += "| mail | claims | agree | differ | cannot be tested here |\n|---|---|---|---|---|\n";
    for mail in MAILS.iter() {
        let number = &mail.number;
        let page = fs::read_to_string(folder.join(format!("{number}.md"))).unwrap_or_default();
        let headings = page.lines().filter(|line| line.starts_with("## "));
        let words = headings.filter_map(|line| Some(line.rsplit_once(": ")?.1));
        let counts = counts(words);
        sum = std::array::from_fn(|at| sum[at] + counts[at]);
        let _ = writeln!(text, "| [{number}](mails/{number}.md) | {} |", row(counts));
        let lines = page
            .lines()
            .map(|line| (line, line.trim_start_matches('*')));
        for (line, _) in lines.filter(|(_, bare)| bare.starts_with("Conclusion ")) {
            let _ = writeln!(conclusions, "* {line}");
        }
    }
    let all = row(sum);
    let _ = write!(
        text,
        "| all | {all} |\n\n## The conclusions\n\n{conclusions}"
    );
    text
}

fn row(counts: [usize; 4]) -> String {
    counts.map(|count| count.to_string()).join(" | ")
}
