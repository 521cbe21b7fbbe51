//! Records in, one self-contained HTML page out: nothing is loaded, no script runs, no link leaves it.
//!
//! The verdicts come first, in words; then a section a question, a replay, a trace or a comparison with the pictures that
//! a person of its field looks at, each with its figures as a table; then the machines and in what they differ, what could
//! not be measured, and the command lines that made it. All text of records is shown and never obeyed. Pictures are inline
//! SVG by `plotters`; the style sheet gives them the colours of light or dark paper.
//!
//! Several runs of one question are shown together, by *side*: a machine in one state of its settings.

mod chart;
mod compared;
mod dots;
mod environment;
mod explained;
pub mod flame;
mod growth;
mod latency;
mod mails;
mod profile;
mod questions;
mod replays;
mod side;
mod stack;
mod write;

use stopgap_events::machine::Missing;
use stopgap_events::question::Question;
use stopgap_stats::compare::{self, Comparison};
use stopgap_stats::explain::Explain;
use stopgap_stats::record::Run;
use stopgap_stats::replay::Replay;
use stopgap_stats::verdict::Word;

use crate::fix;

use side::{Side, sides};
use write::{attribute, list};

pub use write::{Table, escaped};

/// A record of any kind that a report can be made of.
#[derive(Debug, Clone)]
pub enum Document {
    /// A run (`stopgap.run/1`).
    Run(Box<Run>),
    /// A replay (`stopgap.replay/1`).
    Replay(Box<Replay>),
    /// An explained trace (`stopgap.explain/1`).
    Explain(Box<Explain>),
    /// A comparison (`stopgap.compare/1`).
    Compare(Box<Comparison>),
    /// A record whose crate is above this one.
    Other(Box<OtherRecord>),
}

/// What a report shows of a record whose form only its own crate knows.
#[derive(Debug, Clone)]
pub struct OtherRecord {
    /// What it is of, in a word: `kernels`.
    pub kind: &'static str,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Its section of the page as HTML. Texts of the record went through [`escaped`].
    pub html: String,
    /// Its answers.
    pub answers: Vec<OtherAnswer>,
    /// What was not measured, and why.
    pub missing: Vec<Missing>,
    /// A line for the terminal that says what it is of; its answers follow.
    pub line: String,
}

/// An answer of an [`OtherRecord`].
#[derive(Debug, Clone)]
pub struct OtherAnswer {
    /// `bad`, `good`, `open`: a class of the style sheet.
    pub class: &'static str,
    /// The answer in words.
    pub text: String,
    /// What it is about.
    pub about: String,
}

/// A record and what it is called, as its file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name, for people.
    pub name: String,
    /// The record.
    pub document: Document,
}

impl Document {
    /// The command line that made it.
    fn command(&self) -> &[String] {
        match self {
            Document::Run(run) => &run.command,
            Document::Replay(replay) => &replay.command,
            Document::Explain(explain) => &explain.command,
            Document::Compare(comparison) => &comparison.command,
            Document::Other(other) => &other.command,
        }
    }

    /// Seed of its random choices, where it made any.
    fn seed(&self) -> Option<u64> {
        match self {
            Document::Run(run) => Some(run.seed),
            Document::Replay(replay) => Some(replay.seed),
            Document::Explain(_) | Document::Other(_) => None,
            Document::Compare(comparison) => Some(comparison.seed),
        }
    }
}

/// Nothing is fetched and nothing runs, whatever stands in the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page. Its size is bounded by what pictures and tables show, some hundred KiB a question, whatever the records'.
#[must_use]
pub fn page(sources: &[Source]) -> String {
    let runs: Vec<(&str, &Run)> = sources
        .iter()
        .filter_map(|source| match &source.document {
            Document::Run(run) => Some((source.name.as_str(), run.as_ref())),
            _ => None,
        })
        .collect();
    let sides = sides(&runs);
    let mut sections: Vec<(String, String, String)> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let id = format!("record-{index}");
        let (link, html) = match &source.document {
            Document::Compare(it) => (
                called(it),
                compared::section(&id, &source.name, it, sources.len() == 1),
            ),
            Document::Other(it) => (
                it.kind.to_owned(),
                format!("<section id=\"{id}\">{}</section>\n", it.html),
            ),
            _ => continue,
        };
        sections.push((id, link, html));
    }
    for &question in Question::ALL {
        if let Some(html) = questions::section(question, &sides) {
            sections.push((question.to_string(), question.to_string(), html));
        }
    }
    for (index, source) in sources.iter().enumerate() {
        let id = format!("record-{index}");
        let (link, html) = match &source.document {
            Document::Replay(it) => (
                format!("what if, {}", it.question),
                replays::section(&id, &source.name, it),
            ),
            Document::Explain(it) => (
                "trace".to_owned(),
                explained::section(&id, &source.name, it),
            ),
            Document::Run(_) | Document::Compare(_) | Document::Other(_) => continue,
        };
        sections.push((id, link, html));
    }
    let machine = environment::section(&sides);
    if !machine.is_empty() {
        sections.push(("environment".to_owned(), "environment".to_owned(), machine));
    }
    let missing = environment::missing(sources);
    sections.push(("missing".to_owned(), "not measured".to_owned(), missing));
    sections.push(("again".to_owned(), "reproduce".to_owned(), again(sources)));

    let title = title(&sides, sources);
    let links: String = sections
        .iter()
        .map(|(id, link, _)| {
            format!(
                "<li><a href=\"#{}\">{}</a></li>\n",
                attribute(id),
                escaped(link)
            )
        })
        .collect();
    let body: String = sections.iter().map(|(_, _, html)| html.as_str()).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{}</style></head>\n<body><a class=\"skip\" \
         href=\"#content\">To the answers</a>\n<header><h1>{title}</h1></header>\n<main id=\"content\">\n{}{}\n\
         <nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n{body}</main></body></html>\n",
        include_str!("html/style.css"),
        list(&warnings(&sides, sources), "warnings"),
        answers(sources),
        title = escaped(&title),
    )
}

fn title(sides: &[Side<'_>], sources: &[Source]) -> String {
    let records = match sources.len() {
        1 => "1 record".to_owned(),
        several => format!("{several} records"),
    };
    match sides {
        [] => format!("stopgap: {records}"),
        [one] => format!("stopgap: {}, {records}", one.name),
        several => format!("stopgap: {} machines or settings, {records}", several.len()),
    }
}

/// What a link to a comparison says: of records their question, and the sides.
fn called(comparison: &Comparison) -> String {
    let [after, before] = [&comparison.after, &comparison.before].map(|side| short(&side.name));
    let question = comparison.series.as_deref();
    let question = question.and_then(|series| Some(series.split_once(':')?.0));
    let question = question.map_or_else(String::new, |question| format!("{question}, "));
    format!("{question}{after} against {before}")
}

/// A side's name in a link: its end tells most, as of a path.
fn short(name: &str) -> String {
    const MOST: usize = 40;
    let skip = name.chars().count().saturating_sub(MOST);
    if skip == 0 {
        return name.to_owned();
    }
    let end: String = name.chars().skip(skip + 1).collect();
    format!("\u{2026}{end}")
}

/// Warnings of comparisons that are shown at the top.
const MOST_WARNINGS: usize = 20;

/// What makes everything below it doubtful.
fn warnings(sides: &[Side<'_>], sources: &[Source]) -> Vec<String> {
    let mut warnings = Vec::new();
    if sides.len() > 1 {
        let names: Vec<&str> = sides
            .iter()
            .take(chart::MOST)
            .map(|side| side.name.as_str())
            .collect();
        warnings.push(format!(
            "these runs are of {} different machines or settings ({}): what differs between them stands under Environment, \
             and any of it may be why figures differ",
            sides.len(),
            names.join("; ")
        ));
    }
    for Source { name, document } in sources {
        let Document::Compare(it) = document else {
            continue;
        };
        let whose = match sources.len() {
            1 => String::new(),
            _ => format!("{name}: "),
        };
        let each = it.warnings.iter().take(MOST_WARNINGS);
        warnings.extend(each.map(|warning| format!("{whose}{warning}")));
    }
    warnings
}

/// Answers in words that are shown at the top; the rest is in its section.
const MOST_ANSWERS: usize = 40;

/// Every verdict in words.
fn answers(sources: &[Source]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut item = |class: &str, what: &str, text: &str, more: &str| {
        items.push(format!(
            "<li class=\"{class}\"><b>{}</b> {}<small>{}</small></li>\n",
            escaped(what),
            escaped(text),
            escaped(more)
        ));
    };
    let class = |word: Word| match word {
        Word::Grows | Word::Excess | Word::Stalls => "bad",
        Word::Flat | Word::Clean => "good",
        Word::Unsupported | Word::Inconclusive => "open",
    };
    // What was asked of several runs together leads.
    let compares = |source: &&Source| matches!(source.document, Document::Compare(_));
    let (first, rest): (Vec<&Source>, Vec<&Source>) = sources.iter().partition(compares);
    for Source { name, document } in first.into_iter().chain(rest) {
        match document {
            Document::Compare(it) => {
                let class = match it.verdict.word {
                    compare::Word::Regression => "bad",
                    compare::Word::Improvement | compare::Word::NotWorse => "good",
                    compare::Word::NoDifferenceProven | compare::Word::Inconclusive => "open",
                };
                let sides = format!("{} against {}; {name}", it.after.name, it.before.name);
                item(class, "comparison", &it.verdict.text, &sides);
            }
            Document::Run(run) => {
                for answer in &run.answers {
                    let first = answer.evidence.first().map_or("", String::as_str);
                    let more = match (first, sources.len()) {
                        ("", _) => name.clone(),
                        (first, 1) => first.to_owned(),
                        (first, _) => format!("{first}; {name}"),
                    };
                    let fix = fix::lead(&answer.fixes);
                    let more = match fix.as_str() {
                        "" => more,
                        fix => format!("with the fix: {fix}; {more}"),
                    };
                    let verdict = &answer.verdict;
                    item(
                        class(verdict.word),
                        answer.question.word(),
                        &verdict.text,
                        &more,
                    );
                }
                if run.answers.is_empty() {
                    item(
                        "open",
                        "looked at only",
                        "no question was put to the test",
                        name,
                    );
                }
            }
            Document::Other(it) => {
                for answer in &it.answers {
                    let more = format!("{}; {name}", answer.about);
                    item(answer.class, it.kind, &answer.text, &more);
                }
            }
            Document::Explain(it) => {
                let verdict = &it.findings.verdict;
                item(class(verdict.word), "trace", &verdict.text, name);
            }
            Document::Replay(it) => {
                let rows = match it.rows.len() {
                    1 => "1 row".to_owned(),
                    several => format!("{several} rows"),
                };
                let what = format!("what if, {}", it.question);
                item(
                    "open",
                    &what,
                    &format!("{rows}, carried out by a model"),
                    name,
                );
            }
        }
    }
    let more = match items.len().saturating_sub(MOST_ANSWERS) {
        0 => String::new(),
        more => format!("<p>and {more} more, in the sections</p>\n"),
    };
    items.truncate(MOST_ANSWERS);
    format!(
        "<ul class=\"answers\" aria-label=\"Answers\">{}</ul>\n{more}",
        items.concat()
    )
}

/// Command lines that are shown.
const MOST_COMMANDS: usize = 100;

/// How to do it again.
fn again(sources: &[Source]) -> String {
    let line = |source: &Source| {
        let words: Vec<String> = source
            .document
            .command()
            .iter()
            .map(|word| quoted(word))
            .collect();
        let seed = source
            .document
            .seed()
            .map_or_else(String::new, |seed| format!(" --seed {seed}"));
        let given = source
            .document
            .command()
            .iter()
            .any(|word| word.starts_with("--seed"));
        match words.is_empty() {
            true => format!("# {}: no command is recorded\n", source.name),
            false if given => format!("{}\n", words.join(" ")),
            false => format!("{}{seed}\n", words.join(" ")),
        }
    };
    let lines: Vec<String> = sources.iter().take(MOST_COMMANDS).map(line).collect();
    let commands: String = lines
        .iter()
        .map(|line| escaped(line.trim_end()) + "\n")
        .collect();
    let versions: std::collections::BTreeSet<&str> = sources
        .iter()
        .map(|source| match &source.document {
            Document::Run(it) => it.version.as_str(),
            Document::Replay(it) => it.version.as_str(),
            Document::Explain(it) => it.version.as_str(),
            Document::Compare(it) => it.version.as_str(),
            Document::Other(it) => it.version.as_str(),
        })
        .collect();
    let more = match sources.len().saturating_sub(MOST_COMMANDS) {
        0 => String::new(),
        more => format!("<p>and {more} more, in the records</p>\n"),
    };
    let versions: Vec<&str> = versions.into_iter().collect();
    let files: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    format!(
        "<section id=\"again\"><h2>How to reproduce</h2>\n<p>stopgap {}. A seed fixes every random choice; times still vary \
         with the machine, counts of a model do not.</p>\n<pre tabindex=\"0\">{commands}</pre>{more}\
         <details><summary>Records read</summary>{}</details></section>\n",
        escaped(&versions.join(", ")),
        list(&files, "files"),
    )
}

/// A word of a command line as a shell takes it.
fn quoted(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
