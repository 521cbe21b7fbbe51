//! Records in, one self-contained HTML page out: nothing is loaded, no script runs, no link leaves it.
//!
//! The verdicts come first, in words; then a section a question, a replay, a trace or a comparison with the pictures that
//! a person of its field looks at, each with its figures as a table; then the machines and in what they differ, what could
//! not be measured, and the command lines that made it. All text of records is shown and never obeyed. Pictures are inline
//! SVG; the style sheet gives them the colours of light or dark paper.
//!
//! Several runs of one question are shown together, by *side*: a machine in one state of its settings.

mod chart;
mod compared;
mod dots;
mod environment;
mod explained;
pub mod flame;
mod growth;
mod history;
mod latency;
mod mails;
mod picture;
mod profile;
mod questions;
mod replays;
mod side;
mod stack;
mod waits;
mod write;

use std::collections::BTreeSet;

use stopgap_events::machine::Missing;
use stopgap_events::question::Question;
use stopgap_stats::compare::{self, Comparison};
use stopgap_stats::explain::Explain;
use stopgap_stats::history::Document as History;
use stopgap_stats::record::Run;
use stopgap_stats::replay::Replay;
use stopgap_stats::verdict::Word;

use crate::fix;
use crate::table::join;
use crate::text::{command_line, count};

use side::{Side, sides};
use write::{Section, list, more};

pub use write::escaped;

/// A record of any kind that a report can be made of.
#[derive(Debug, Clone)]
pub enum Document {
    /// A run (`stopgap.run/1`).
    Run(Box<Run>),
    /// A replay (`stopgap.replay/1`).
    Replay(Box<Replay>),
    /// An explained trace (`stopgap.explain/2`).
    Explain(Box<Explain>),
    /// A comparison (`stopgap.compare/1`).
    Compare(Box<Comparison>),
    /// The history of a watch (`stopgap.history/1`).
    History(Box<History>),
    /// A record whose crate is above this one.
    Other(Box<OtherRecord>),
}

/// The parts of a page for a record whose form only its own crate knows.
#[derive(Debug, Clone)]
pub struct OtherRecord {
    /// The kind of record in a word: `kernels`.
    pub kind: &'static str,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Its section of the page as HTML. Texts of the record went through [`escaped`].
    pub html: String,
    /// Its answers.
    pub answers: Vec<OtherAnswer>,
    /// Measurements that are missing, and why.
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
    /// The sides that it compares.
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
    /// Returns the command line that made it, the seed of its random choices where it made any, and the version that wrote it.
    fn origin(&self) -> (&[String], Option<u64>, &str) {
        match self {
            Document::Run(it) => (&it.command, Some(it.seed), &it.version),
            Document::Replay(it) => (&it.command, Some(it.seed), &it.version),
            Document::Explain(it) => (&it.command, None, &it.version),
            Document::Compare(it) => (&it.command, Some(it.seed), &it.version),
            Document::History(it) => (&[], None, &it.version),
            Document::Other(it) => (&it.command, None, &it.version),
        }
    }
}

/// The browser fetches nothing and runs nothing, even if a record's text got into the page as markup.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Returns the page: some hundred KiB a question, however large the records are.
#[must_use]
pub fn page(sources: &[Source]) -> String {
    let runs = sources.iter().filter_map(|source| match &source.document {
        Document::Run(run) => Some((&*source.name, &**run)),
        _ => None,
    });
    let sides = sides(&runs.collect::<Vec<_>>());
    let title = title(&sides, sources);
    let (mut links, mut body) = (String::new(), String::new());
    for (id, link, html) in sections(sources, &sides) {
        links += &format!(
            "<li><a href=\"#{}\">{}</a></li>\n",
            escaped(&id),
            escaped(&link)
        );
        body += &html;
    }
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

/// Returns the sections in the order of the page: id, what a link to it says, and HTML. Comparisons lead: they are
/// about several runs.
fn sections(sources: &[Source], sides: &[Side<'_>]) -> Vec<(String, String, String)> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (index, Source { name, document }) in sources.iter().enumerate() {
        let id = format!("record-{index}");
        match document {
            Document::Run(_) => {}
            Document::Compare(it) => {
                let html = compared::section(&id, name, it, sources.len() == 1);
                first.push((id, called(it), html));
            }
            Document::Other(it) => {
                let html = format!("<section id=\"{id}\">{}</section>\n", it.html);
                first.push((id, it.kind.to_owned(), html));
            }
            Document::Replay(it) => {
                let html = replays::section(&id, name, it);
                last.push((id, format!("what if, {}", it.question), html));
            }
            Document::Explain(it) => {
                let html = explained::section(&id, name, it);
                last.push((id, "trace".to_owned(), html));
            }
            Document::History(it) => {
                let html = history::section(&id, name, it);
                last.push((id, "history".to_owned(), html));
            }
        }
    }
    let questions = Question::ALL.iter().filter_map(|&question| {
        let html = questions::section(question, sides)?;
        Some((question.to_string(), question.to_string(), html))
    });
    let environment = environment::section(sides).map(|html| ("environment", "environment", html));
    let missing = ("missing", "not measured", environment::missing(sources));
    let again = ("again", "reproduce", again(sources));
    let frame = environment.into_iter().chain([missing, again]);
    let frame = frame.map(|(id, link, html)| (id.to_owned(), link.to_owned(), html));
    first
        .into_iter()
        .chain(questions)
        .chain(last)
        .chain(frame)
        .collect()
}

fn title(sides: &[Side<'_>], sources: &[Source]) -> String {
    let records = count(sources.len(), "record");
    match sides {
        [] => format!("stopgap: {records}"),
        [one] => format!("stopgap: {}, {records}", one.name),
        several => format!("stopgap: {} machines or settings, {records}", several.len()),
    }
}

/// Returns what a link to a comparison says: of records their question, and the sides.
fn called(comparison: &Comparison) -> String {
    let [after, before] = [&comparison.after, &comparison.before].map(|side| short(&side.name));
    let question = comparison
        .series
        .as_ref()
        .and_then(|series| series.split_once(':'));
    let question = question.map_or_else(String::new, |(question, _)| format!("{question}, "));
    format!("{question}{after} against {before}")
}

/// Returns a side's name in a link: its end tells most, as of a path.
fn short(name: &str) -> String {
    const MOST: usize = 40;
    match name.chars().count().saturating_sub(MOST) {
        0 => name.to_owned(),
        skip => format!(
            "\u{2026}{}",
            name.chars().skip(skip + 1).collect::<String>()
        ),
    }
}

/// Warnings of comparisons that are shown at the top.
const MOST_WARNINGS: usize = 20;

/// Returns what makes everything below it doubtful.
fn warnings(sides: &[Side<'_>], sources: &[Source]) -> Vec<String> {
    let mut warnings = Vec::new();
    if sides.len() > 1 {
        warnings.push(format!(
            "these runs are of {} different machines or settings ({}): what differs between them stands under Environment, \
             and any of it may be why figures differ",
            sides.len(),
            join(sides.iter().take(chart::MOST).map(|side| &side.name), "; ")
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

/// Returns every verdict in words.
fn answers(sources: &[Source]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut item = |class: &str, what: &str, text: &str, more: &str| {
        let [what, text, more] = [what, text, more].map(escaped);
        items.push(format!(
            "<li class=\"{class}\"><b>{what}</b> {text}<small>{more}</small></li>\n"
        ));
    };
    let class = |word: Word| match word {
        Word::Grows | Word::Excess | Word::Stalls => "bad",
        Word::Flat | Word::Clean => "good",
        Word::Waiting | Word::Unsupported | Word::Inconclusive => "open",
    };
    // Comparisons lead: they are about several runs.
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
            Document::Run(run) if run.answers.is_empty() => {
                item(
                    "open",
                    "looked at only",
                    "no question was put to the test",
                    name,
                );
            }
            Document::Run(run) => {
                for answer in &run.answers {
                    let fix = fix::lead(&answer.fixes);
                    let fix = (!fix.is_empty()).then(|| format!("with the fix: {fix}"));
                    let evidence = answer.evidence.iter().filter(|first| !first.is_empty());
                    let evidence = evidence.take(1).cloned();
                    let named =
                        answer.evidence.first().is_none_or(String::is_empty) || sources.len() > 1;
                    let name = named.then(|| name.clone());
                    let more = join(fix.into_iter().chain(evidence).chain(name), "; ");
                    let verdict = &answer.verdict;
                    item(
                        class(verdict.word),
                        answer.question.word(),
                        &verdict.text,
                        &more,
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
            Document::History(it) => item("open", "history", &it.history.verdict, name),
            Document::Replay(it) => {
                let rows = format!("{}, carried out by a model", count(it.rows.len(), "row"));
                item("open", &format!("what if, {}", it.question), &rows, name);
            }
        }
    }
    let more = more(items.len(), MOST_ANSWERS, ", in the sections");
    items.truncate(MOST_ANSWERS);
    let items = items.concat();
    format!("<ul class=\"answers\" aria-label=\"Answers\">{items}</ul>\n{more}")
}

/// Command lines that are shown.
const MOST_COMMANDS: usize = 100;

/// Returns how to do it again.
fn again(sources: &[Source]) -> String {
    let mut commands = String::new();
    for Source { name, document } in sources.iter().take(MOST_COMMANDS) {
        let (command, seed, _) = document.origin();
        let given = command.iter().any(|word| word.starts_with("--seed"));
        let seed = seed.filter(|_| !given);
        let seed = seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
        let line = match command {
            [] => format!("# {name}: no command is recorded"),
            words => command_line(words) + &seed,
        };
        commands += &format!("{}\n", escaped(&line));
    }
    let versions: BTreeSet<&str> = sources
        .iter()
        .map(|source| source.document.origin().2)
        .collect();
    let files: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let mut section = Section::new("again", "How to reproduce");
    section.paragraph(&format!(
        "stopgap {}. A seed fixes every random choice; times still vary with the machine, counts of a model do not.",
        join(versions, ", ")
    ));
    section.add(&format!("<pre tabindex=\"0\">{commands}</pre>"));
    section.add(&more(sources.len(), MOST_COMMANDS, ", in the records"));
    let files = list(&files, "files");
    section.add(&format!(
        "<details><summary>Records read</summary>{files}</details>"
    ));
    section.finish()
}
