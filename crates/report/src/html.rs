//! Records in, one self-contained HTML page out: nothing is loaded, no script runs, no link leaves it.
//!
//! The answers come first: a headline, and each answer as a state and a sentence. Then a section for each question, replay,
//! trace or comparison: its sentence, the one picture that shows it, and everything else folded. At the end the machines and in
//! what they differ, what could not be measured, and the command lines that made it. All text of records is shown and never
//! obeyed. Pictures are inline SVG; the style sheet gives them the colours of light or dark paper.
//!
//! Several runs of one question are shown together, by *side*: a machine in one state of its settings.

mod change_points;
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
pub mod moved;
mod picture;
mod profile;
mod questions;
mod replays;
mod side;
mod stack;
mod top;
mod waits;
mod words;
mod write;

use std::collections::BTreeSet;

use stopgap_events::date::utc;
use stopgap_events::machine::{Missing, Privilege};
use stopgap_events::order::Inserted as _;
use stopgap_events::question::Question;
use stopgap_stats::compare::Comparison;
use stopgap_stats::explain::Explain;
use stopgap_stats::history::Document as History;
use stopgap_stats::record::Run;
use stopgap_stats::replay::Replay;

use crate::table::join;
use crate::text::{command_line, count};

use side::{Side, sides};
use write::{Section, list, more};

pub use change_points::change_points;
pub use dots::marks;
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
    /// The headline, in capitals.
    pub head: String,
    /// The verdict in a line.
    pub text: String,
    /// The sides that it compares, and the sentence below the headline.
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
         href=\"#content\">To the answers</a>\n<header><h1>{title}</h1>{}</header>\n<main id=\"content\">\n{}\n\
         <nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n{body}</main></body></html>\n",
        include_str!("html/style.css"),
        subtitle(sources),
        top::html(sources, &list(&warnings(&sides, sources), "warnings")),
        title = escaped(&title),
    )
}

/// Returns the sections in the order of the page: id, what a link to it says, and HTML. Comparisons lead: they are
/// about several runs.
fn sections(sources: &[Source], sides: &[Side<'_>]) -> Vec<(String, String, String)> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let alone = sources.len() == 1;
    for (index, Source { name, document }) in sources.iter().enumerate() {
        let id = format!("record-{index}");
        match document {
            Document::Run(_) => {}
            Document::Compare(it) => {
                let html = compared::section(&id, name, it, alone);
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
                let html = explained::section(&id, name, it, alone);
                last.push((id, "trace".to_owned(), html));
            }
            Document::History(it) => {
                let html = history::section(&id, name, it, alone);
                last.push((id, "history".to_owned(), html));
            }
        }
    }
    let questions = Question::ALL.iter().filter_map(|&question| {
        let html = questions::section(question, sides)?;
        Some((question.to_string(), question.to_string(), html))
    });
    let environment = environment::section(sides).map(|html| ("environment", "machine", html));
    let missing = environment::missing(sources).map(|html| ("missing", "not measured", html));
    let again = again(sources).map(|html| ("again", "reproduce", html));
    let frame = environment.into_iter().chain(missing).chain(again);
    let frame = frame.map(|(id, link, html)| (id.to_owned(), link.to_owned(), html));
    first
        .into_iter()
        .chain(questions)
        .chain(last)
        .chain(frame)
        .collect()
}

/// Returns the page's title: what was done, and on which machine.
fn title(sides: &[Side<'_>], sources: &[Source]) -> String {
    let records = count(sources.len(), "record");
    match (sources, sides) {
        ([one], _) => match (&one.document, sides) {
            (Document::Run(run), [side]) if top::is_check(run) => {
                format!("stopgap check: {}", side.name)
            }
            (Document::Run(run), [side]) => {
                let question = run.answers.first().map_or("run", |it| it.question.word());
                format!("stopgap probe {question}: {}", side.name)
            }
            (Document::Compare(_), _) => "stopgap compare".to_owned(),
            (Document::Explain(_), _) => "stopgap explain".to_owned(),
            (Document::History(_), _) => "stopgap watch: history".to_owned(),
            (Document::Replay(it), _) => format!("stopgap replay {}", it.question),
            (Document::Other(it), _) => format!("stopgap {}", it.kind),
            (Document::Run(_), _) => format!("stopgap: {records}"),
        },
        (_, []) => format!("stopgap: {records}"),
        (_, [one]) => format!("stopgap: {records} of {}", one.name),
        (_, several) => format!(
            "stopgap: {records} of {} machines or settings",
            several.len()
        ),
    }
}

/// Returns a line on the one record of a page: the machine, when, how long; empty for several records.
fn subtitle(sources: &[Source]) -> String {
    let [Source { name, document }] = sources else {
        return String::new();
    };
    let line = match document {
        Document::Run(run) => {
            let e = &run.environment;
            let memory = e.memory.map(|memory| memory.to_string());
            let swap = match e.swap.as_deref() {
                Some("none") => Some("no swap".to_owned()),
                swap => swap.map(|kind| format!("swap: {kind}")),
            };
            let who = match e.privilege {
                Privilege::Root => "as root",
                Privilege::Some => "not root, with capabilities",
                Privilege::None => "not root",
            };
            let parts = [
                Some(minute(run.started_unix_s)),
                Some(count(e.cpus.len(), "CPU")),
                memory,
                swap,
                Some(who.to_owned()),
                Some(format!("took {} s", run.duration_ms / 1_000)),
            ];
            join(parts.into_iter().flatten(), ", ")
        }
        _ => name.clone(),
    };
    format!("<p class=\"soft\">{}</p>", escaped(&line))
}

/// Returns `2026-11-27 20:17 UTC`.
fn minute(unix_s: u64) -> String {
    let time = utc(unix_s).replace('T', " ");
    let seconds = time.rfind(':').unwrap_or(time.len());
    format!("{} UTC", &time[..seconds])
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
            "these runs come from {} different machines or settings ({}). The section Machine lists what differs; any of it may \
             explain a difference of figures",
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

/// Command lines that are shown.
const MOST_COMMANDS: usize = 100;

/// Returns how to do it again; `None` where no record has a command.
fn again(sources: &[Source]) -> Option<String> {
    if sources
        .iter()
        .all(|source| source.document.origin().0.is_empty())
    {
        return None;
    }
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
        .inserted();
    let files: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let mut section = Section::new("again", "How to reproduce");
    section.add(&format!("<pre tabindex=\"0\">{commands}</pre>"));
    section.add(&more(sources.len(), MOST_COMMANDS, ", in the records"));
    section.paragraph(&format!(
        "stopgap {}. A seed fixes every random choice. Times still vary with the machine; counts of a model do not.",
        join(versions, ", ")
    ));
    section.fold("Records read", &list(&files, "files"));
    Some(section.finish())
}
