//! The first screen of `check`: one line of environment, NOW, TEST, NOT TESTED, NEXT.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use stopgap_events::machine::{Environment, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::record::{Answer, Run};
use stopgap_stats::verdict::Word;

use crate::fix;
use crate::now;
use crate::text::{plain, uptime, wrap};

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Columns; lines are wrapped to fit.
    pub width: u16,
    /// Whether to use colour.
    pub colour: bool,
}

/// The screen.
#[must_use]
pub fn first(run: &Run, style: Style) -> String {
    let mut table = table(style);
    let now_rows = run.now.as_ref().map(now::rows).unwrap_or_default();
    let mut section = Section::new("NOW");
    for row in now_rows {
        let mark = if row.watch { "WATCH" } else { "" };
        table.add_row([
            section.head(),
            row.about.to_owned(),
            row.text,
            mark.to_owned(),
        ]);
    }
    let mut section = Section::new("TEST");
    if run.environment.privilege == Privilege::Root && !run.answers.is_empty() {
        let more = "also physical layout, huge-page knobs (put back), pressure in a memory cgroup";
        table.add_row([
            section.head(),
            "as root".to_owned(),
            more.to_owned(),
            String::new(),
        ]);
    }
    if run.answers.iter().any(|answer| !answer.fixes.is_empty()) {
        let head = "with the fix";
        let nothing = String::new;
        table.add_row([section.head(), nothing(), nothing(), head.to_owned()]);
    }
    for answer in &run.answers {
        for (about, text, fix) in answer_rows(answer) {
            table.add_row([section.head(), about, text, fix]);
        }
    }
    let mut section = Section::new("NOT TESTED");
    for (about, text) in not_tested(run) {
        table.add_row([section.head(), about, text, String::new()]);
    }
    let mut section = Section::new("NEXT");
    for (command, why) in next(run) {
        table.add_row([
            section.head(),
            String::new(),
            format!("{command}   # {why}"),
            String::new(),
        ]);
    }
    let body = paint(&trimmed(&table), style);
    environment_line(&run.environment, style) + &body
}

/// A table without lines that fits the width.
fn table(style: Style) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(style.width);
    table
}

/// The table's text without white space at the ends of lines.
fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    // The border that is not there leaves a space in front of each line.
    let lines = lines
        .iter()
        .map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The section's name in its first row, nothing in the others.
struct Section(&'static str);

impl Section {
    fn new(name: &'static str) -> Section {
        Section(name)
    }
    fn head(&mut self) -> String {
        std::mem::take(&mut self.0).to_owned()
    }
}

/// Colour: section names bold, what to watch yellow. Words carry the meaning; colour only
/// helps the eye.
fn paint(text: &str, style: Style) -> String {
    if !style.colour {
        return text.to_owned();
    }
    let mut painted = String::new();
    for line in text.lines() {
        let head = ["NOW", "TEST", "NOT TESTED", "NEXT"]
            .into_iter()
            .filter(|head| line.starts_with(head))
            .max_by_key(|head| head.len());
        let (head, rest) = line.split_at(head.map_or(0, str::len));
        if !head.is_empty() {
            painted.push_str(&format!("\u{1b}[1m{head}\u{1b}[0m"));
        }
        match rest.strip_suffix("WATCH") {
            Some(start) => painted.push_str(&format!("{start}\u{1b}[33mWATCH\u{1b}[0m")),
            None => painted.push_str(rest),
        }
        painted.push('\n');
    }
    painted
}

/// `host box, Linux 6.18, preempt=lazy, mglru=on, swap=zram, cgroup2, 4 KiB pages, up 9 d, root`.
#[must_use]
pub fn environment_line(environment: &Environment, style: Style) -> String {
    let unknown = || "unknown".to_owned();
    let word = |word: &Option<String>| word.as_deref().map_or_else(unknown, plain);
    let mut parts = vec![
        format!("host {}", word(&environment.host)),
        format!("Linux {}", word(&environment.kernel)),
        format!("preempt={}", word(&environment.preemption)),
        match environment.mglru {
            Some(on) => format!("mglru={}", if on { "on" } else { "off" }),
            None => "mglru=unknown".to_owned(),
        },
        format!("swap={}", word(&environment.swap)),
        match environment.memory_cgroup.as_deref() {
            Some("none") => "no memory cgroup".to_owned(),
            Some(kind) => plain(kind),
            None => "memory cgroup unknown".to_owned(),
        },
        format!("{} pages", environment.page_size),
        match environment.cpus.len() {
            1 => "1 CPU".to_owned(),
            cpus => format!("{cpus} CPUs"),
        },
    ];
    parts.extend(environment.memory.map(|memory| memory.to_string()));
    parts.extend(environment.uptime_s.map(|s| format!("up {}", uptime(s))));
    parts.push(privilege(environment));
    wrap(&parts.join(", "), style.width, 2)
}

fn privilege(environment: &Environment) -> String {
    match environment.privilege {
        Privilege::Root => "root".to_owned(),
        Privilege::Some => format!("not root ({})", environment.capabilities.join(" ")),
        Privilege::None => "not root".to_owned(),
    }
}

/// Rows of a question: the verdict, and in the last column what the fix that leads would bring; then the first evidence,
/// then a line a fix.
fn answer_rows(answer: &Answer) -> Vec<(String, String, String)> {
    let fix = fix::lead(&answer.fixes);
    let verdict = plain(&answer.verdict.text);
    let mut rows = vec![(answer.question.to_string(), verdict, fix)];
    let evidence = answer.evidence.first().map(|evidence| plain(evidence));
    let lines = evidence
        .into_iter()
        .chain(answer.fixes.iter().map(fix::sentence));
    rows.extend(lines.map(|line| (String::new(), line, String::new())));
    rows
}

fn not_tested(run: &Run) -> Vec<(String, String)> {
    let mut rows = vec![(
        String::new(),
        "the GPU driver, fences, block I/O, your program".to_owned(),
    )];
    let asked = |question| run.answers.iter().any(|a| a.question == question);
    let left: Vec<&str> = Question::FOUR
        .into_iter()
        .filter(|&question| !asked(question))
        .map(Question::word)
        .collect();
    if !left.is_empty() {
        let why = if run.interrupted {
            "interrupted, not reached or not asked"
        } else {
            "not asked"
        };
        rows.push((String::new(), format!("{why}: {}", left.join(", "))));
    } else if run.interrupted {
        let less = "interrupted: less was measured than was planned";
        rows.push((String::new(), less.to_owned()));
    }
    for answer in &run.answers {
        for Missing { what, why } in &answer.missing {
            let text = format!("{}: {}", plain(what), plain(why));
            rows.push((answer.question.to_string(), text));
        }
    }
    rows
}

/// The command that shows in depth what `check` found.
fn command(question: Question) -> String {
    let flags = match question {
        // Both patterns that cost switches, beside those that do not.
        Question::Roundtrip => {
            " --client poll,read --server poll --k 1 --work 0,50us --batch 1,32 --reply together,each"
        }
        Question::Placement | Question::Chunks | Question::Reclaim | Question::Wakeup => "",
    };
    format!("stopgap probe {question}{flags}")
}

/// Commands to type next, most useful first.
fn next(run: &Run) -> Vec<(String, String)> {
    let mut commands = Vec::new();
    for answer in &run.answers {
        let question = answer.question;
        match answer.verdict.word {
            Word::Grows | Word::Excess | Word::Stalls => {
                let advice = answer.advice.first();
                let why = advice.map_or_else(|| "in depth".to_owned(), |a| plain(a));
                commands.push((command(question), why));
            }
            Word::Flat | Word::Clean | Word::Unsupported | Word::Inconclusive => {}
        }
    }
    let busiest = run.now.as_ref().and_then(|now| {
        let watched = now::rows(now)
            .iter()
            .any(|row| row.watch && row.about == "mappings");
        let first = now
            .mappings
            .first()
            .filter(|_| watched && now.process.is_none());
        first.map(|process| (process.pid, plain(&process.name)))
    });
    commands.extend(
        busiest.map(|(pid, name)| (format!("stopgap check -p {pid}"), format!("about {name}"))),
    );
    let open = |answer: &Answer| {
        matches!(answer.verdict.word, Word::Inconclusive | Word::Unsupported)
            || !answer.missing.is_empty()
    };
    if run.environment.privilege != Privilege::Root && run.answers.iter().any(open) {
        commands.push((
            "sudo stopgap check".to_owned(),
            "root sees physical layout and can make memory pressure".to_owned(),
        ));
    }
    if run.answers.is_empty() {
        let test = "the questions under test: about a minute, no root needed";
        commands.push(("stopgap check".to_owned(), test.to_owned()));
    } else if commands.is_empty() {
        let why = "what this machine lets us see";
        commands.push(("stopgap doctor".to_owned(), why.to_owned()));
    }
    commands
}

/// A table with a head; right-aligned where `right` says so. Where cells are not wrapped, lines
/// may be longer than the width: figures are read along their line.
#[must_use]
pub fn plain_table(
    head: &[&str],
    rows: Vec<Vec<String>>,
    right: &[bool],
    wrap: bool,
    style: Style,
) -> String {
    let mut table = table(style);
    if !wrap {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(head.iter().map(Cell::new));
    for row in rows {
        table.add_row(row);
    }
    for (column, &right) in table.column_iter_mut().zip(right) {
        if right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    trimmed(&table)
}

/// `what` in plain words for the line under the screen: where the record is, what it cost.
#[must_use]
pub fn foot(run: &Run, record: &str) -> String {
    let seconds = run.duration_ms / 1_000;
    let memory = run.peak_memory.map_or_else(
        || "peak memory unknown".to_owned(),
        |bytes| format!("peak memory {}", Bytes(bytes)),
    );
    format!(
        "took {seconds} s, {memory} of a budget of {}, seed {}\nrecord {}\n",
        Bytes(run.memory_budget),
        run.seed,
        plain(record)
    )
}
