//! The top of the page: the headline, and each answer as a state, a word and a sentence.

use stopgap_events::question::Question;
use stopgap_stats::compare::{self, Comparison};
use stopgap_stats::overall::{self, State};
use stopgap_stats::record::{Answer, Run};
use stopgap_stats::verdict::Word;

use super::write::{escaped, more};
use super::{Document, Source, explained, history, replays};
use crate::headline::{self, Headline};
use crate::overall::of as overall_of;
use crate::table::join;

/// All states in the order of the legend, each with its sign, its class in the style sheet and its meaning.
const STATES: [(State, &str, &str, &str); 4] = [
    (State::Ok, "ok", "fine", "as it should be"),
    (State::Look, "!", "look", "worth a look"),
    (State::Cause, "!!", "cause", "a likely cause"),
    (State::Unknown, "?", "open", "cannot tell"),
];

/// Returns the sign of a state as HTML, with its meaning for people who cannot see it.
pub(super) fn sign(state: State) -> String {
    let row = STATES.iter().find(|(one, ..)| *one == state);
    let (_, sign, class, means) = row.unwrap_or(&STATES[3]);
    format!("<span class=\"state {class}\" aria-label=\"{means}\">{sign}</span>")
}

/// Returns the sign of a state as text.
pub(super) fn mark(state: State) -> &'static str {
    let row = STATES.iter().find(|(one, ..)| *one == state);
    row.map_or("", |(_, sign, ..)| sign)
}

/// Returns the state of a verdict's word.
pub(super) fn of_word(word: Word) -> State {
    match word {
        Word::Grows | Word::Excess | Word::Stalls => State::Look,
        Word::Flat | Word::Clean => State::Ok,
        Word::Waiting | Word::Unsupported | Word::Inconclusive => State::Unknown,
    }
}

/// Returns the state of a comparison.
pub(super) fn of_comparison(comparison: &Comparison) -> State {
    match comparison.verdict.word {
        compare::Word::Regression => State::Look,
        compare::Word::Improvement | compare::Word::NotWorse | compare::Word::Same => State::Ok,
        compare::Word::NoDifferenceProven | compare::Word::Inconclusive => State::Unknown,
    }
}

/// A row of the page's top.
pub(super) struct Row {
    /// How it stands; `None` where nothing was judged.
    pub(super) state: Option<State>,
    /// Its subject in a word.
    pub(super) word: String,
    /// The answer in a sentence.
    pub(super) text: String,
    /// What to do about it, or what it compares.
    pub(super) more: String,
    /// The command that does it.
    pub(super) command: String,
    /// What to try first, or how far it can be trusted, as a sentence of its own.
    pub(super) first: String,
}

impl Row {
    pub(super) fn new(state: Option<State>, word: &str, text: &str) -> Row {
        let [word, text] = [word, text].map(str::to_owned);
        Row {
            state,
            word,
            text,
            more: String::new(),
            command: String::new(),
            first: String::new(),
        }
    }
}

impl From<overall::Row> for Row {
    fn from(row: overall::Row) -> Row {
        Row {
            more: row.why,
            command: row.command,
            ..Row::new(Some(row.state), &row.about, &row.sentence)
        }
    }
}

/// Returns how an answer of a run stands, with its sentence.
pub(super) fn answer(run: &Run, answer: &Answer) -> Row {
    let word = answer.question.word();
    let mut causes = overall_of(run).causes.into_iter();
    let row = causes.find(|row| row.about == word).map(Row::from);
    row.unwrap_or_else(|| {
        let state = of_word(answer.verdict.word);
        Row::new(Some(state), word, &answer.verdict.text)
    })
}

/// Returns whether a run is one of `check`: all but a probe of one question.
pub(super) fn is_check(run: &Run) -> bool {
    let asked = |question: &&Question| run.answers.iter().any(|a| a.question == **question);
    run.now.is_some() || Question::ALL.iter().filter(asked).count() != 1
}

/// Rows under a title; the title may be empty.
pub(super) type Part = (&'static str, Vec<Row>);

/// Returns a record's headline and its rows. A record of one answer has no rows: its headline is that answer.
fn of(document: &Document) -> (Row, Vec<Part>) {
    match document {
        Document::Run(run) if is_check(run) => {
            let overall = overall_of(run);
            let states = overall
                .now
                .iter()
                .chain(&overall.causes)
                .map(|row| row.state);
            let worst = match overall::Headline::of(states) {
                overall::Headline::LikelyCause => State::Cause,
                overall::Headline::WorthALook => State::Look,
                overall::Headline::NothingFound => State::Ok,
                overall::Headline::CouldNotLook => State::Unknown,
            };
            let head = Row {
                more: overall.why,
                command: overall.command.clone(),
                ..Row::new(Some(worst), "check", &overall.text)
            };
            let tested = match overall.causes.len() {
                4 => "Four known causes, tested",
                _ => "Known causes, tested",
            };
            // The headline has its command already.
            let row = |row: overall::Row| match row.command == overall.command {
                true => Row::new(Some(row.state), &row.about, &row.sentence),
                false => Row::from(row),
            };
            let rows = |rows: Vec<overall::Row>| rows.into_iter().map(row).collect();
            let parts = [
                ("Right now", rows(overall.now)),
                (tested, rows(overall.causes)),
            ];
            (head, parts.into())
        }
        Document::Run(run) => match run.answers.first() {
            Some(one) => (answer(run, one), Vec::new()),
            None => (Row::new(None, "run", "The run has no answer"), Vec::new()),
        },
        Document::Compare(it) => {
            let state = Some(of_comparison(it));
            let Headline { head, sentence } = headline::of_comparison(it);
            let head = Row::new(state, "comparison", &head);
            let more = format!("{} against {}: {sentence}", it.after.name, it.before.name);
            (Row { more, ..head }, Vec::new())
        }
        Document::Explain(it) => explained::top(&it.findings),
        Document::History(it) => history::top(it),
        Document::Replay(it) => (replays::top(it), Vec::new()),
        Document::Other(it) => {
            let state = |class: &str| match class {
                "bad" => State::Look,
                "good" => State::Ok,
                _ => State::Unknown,
            };
            let rows = it.answers.iter().map(|answer| Row {
                more: answer.about.clone(),
                ..Row::new(Some(state(answer.class)), it.kind, &answer.head)
            });
            let mut rows: Vec<Row> = rows.collect();
            match rows.len() {
                1 => (rows.remove(0), Vec::new()),
                _ => (Row::new(None, it.kind, &it.line), vec![("", rows)]),
            }
        }
    }
}

/// Rows of a part at the top of a page; the sections have the others.
const MOST_ROWS: usize = 40;

/// Returns the top of the page: one record's headline and rows, or the headlines and rows of all records. `warnings`, as HTML,
/// follow the one headline, or stand before all of them.
pub(super) fn html(sources: &[Source], warnings: &str) -> String {
    let each = sources.iter().map(|source| (source, of(&source.document)));
    let mut each: Vec<(&Source, (Row, Vec<Part>))> = each.collect();
    let mut html = String::new();
    let parts = match each.len() {
        1 => {
            let (_, (head, parts)) = each.remove(0);
            let sign = head
                .state
                .map_or_else(String::new, |state| sign(state) + " ");
            html += &format!("<p class=\"headline\">{sign}{}</p>\n", escaped(&head.text));
            html += &next(&head);
            html += warnings;
            parts
        }
        _ => {
            html += warnings;
            let mut rows = Vec::new();
            for (source, (head, parts)) in each {
                // A command follows the sentence that ends with a colon: the record's name stands before both.
                let next = [&head.more, &head.command];
                let next = join(next.iter().filter(|text| !text.is_empty()), " ");
                let named = [&source.name, &next];
                let more = join(named.iter().filter(|text| !text.is_empty()), ": ");
                let command = String::new();
                rows.push(Row {
                    more,
                    command,
                    ..head
                });
                // The section of machines has the rest.
                let answers = parts.into_iter().last();
                rows.extend(answers.into_iter().flat_map(|(_, rows)| rows));
            }
            vec![("", rows)]
        }
    };
    for (title, rows) in parts {
        html += &part(title, &rows);
    }
    if !html.contains("<span class=\"state ") {
        return html;
    }
    let legend = STATES
        .iter()
        .map(|(state, _, _, means)| format!("<li>{} {means}</li>", sign(*state)));
    let legend: String = legend.collect();
    html + &format!("<ul class=\"legend\" aria-label=\"Legend of the signs\">{legend}</ul>\n")
}

/// Returns what to do about an answer, and the command to copy.
pub(super) fn next(row: &Row) -> String {
    let mut html = String::new();
    for text in [&row.more, &row.first] {
        if !text.is_empty() {
            html += &format!("<p>{}</p>\n", escaped(text));
        }
    }
    if !row.command.is_empty() {
        html += &format!("<pre tabindex=\"0\">{}</pre>\n", escaped(&row.command));
    }
    html
}

/// Returns rows below their title.
fn part(title: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let item = |row: &Row| {
        let [word, text] = [&row.word, &row.text].map(|text| escaped(text));
        let more = [&row.more, &row.command].map(|text| escaped(text));
        let more = join(more.iter().filter(|text| !text.is_empty()), " ");
        let state = row
            .state
            .map_or_else(|| "<span class=\"state\"></span>".to_owned(), sign);
        let more = match more.is_empty() {
            true => more,
            false => format!("<small>{more}</small>"),
        };
        format!("<li>{state}<b>{word}</b><span>{text}{more}</span></li>\n")
    };
    let items: String = rows.iter().take(MOST_ROWS).map(item).collect();
    let title = match title {
        "" => String::new(),
        title => format!("<h3>{title}</h3>\n"),
    };
    let more = more(rows.len(), MOST_ROWS, " below");
    format!("{title}<ul class=\"answers\">{items}</ul>\n{more}")
}
