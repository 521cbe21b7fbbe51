//! The first screen of `check`: one line of environment, NOW, TEST, NOT TESTED, NEXT.

use std::fmt::Display;

use stopgap_events::machine::{Environment, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::record::{Answer, Run};
use stopgap_stats::verdict::Word;

use crate::table::{Screen, Style, Table, join, known_or};
use crate::text::{plain, uptime, wrap};
use crate::{fix, now};

/// Sections in the order of the screen.
const SECTIONS: [&str; 4] = ["NOW", "TEST", "NOT TESTED", "NEXT"];

/// Returns the screen.
#[must_use]
pub fn first(run: &Run, style: Style) -> String {
    let mut table = Table::default();
    let mut last = "";
    // The section's name stands in its first row.
    let mut add = |section: &'static str, cells: [&dyn Display; 3]| {
        let head = if last == section { "" } else { section };
        last = section;
        table.row(&[&head, cells[0], cells[1], cells[2]]);
    };
    for row in run.now.as_ref().map(now::rows).unwrap_or_default() {
        let mark = if row.watch { "WATCH" } else { "" };
        add("NOW", [&row.about, &row.text, &mark]);
    }
    if run.environment.privilege == Privilege::Root && !run.answers.is_empty() {
        let more = "also physical layout, huge-page knobs (put back), pressure in a memory cgroup";
        add("TEST", [&"as root", &more, &""]);
    }
    if run.answers.iter().any(|answer| !answer.fixes.is_empty()) {
        add("TEST", [&"", &"", &"with the fix"]);
    }
    for answer in &run.answers {
        let fix = fix::lead(&answer.fixes);
        add("TEST", [&answer.question, &answer.verdict.text, &fix]);
        let evidence = answer.evidence.first().cloned();
        for line in evidence
            .into_iter()
            .chain(answer.fixes.iter().map(fix::sentence))
        {
            add("TEST", [&"", &line, &""]);
        }
    }
    for (about, text) in not_tested(run) {
        add("NOT TESTED", [&about, &text, &""]);
    }
    for (command, why) in next(run) {
        add("NEXT", [&"", &format!("{command}   # {why}"), &""]);
    }
    let mut screen = Screen::new(style);
    screen.wrapped_table(&table);
    environment_line(&run.environment, style) + &paint(screen.finish(), style)
}

/// Makes section names bold and what to watch yellow. Words carry the meaning; colour only helps the eye.
fn paint(text: String, style: Style) -> String {
    if !style.colour {
        return text;
    }
    let mut painted = String::new();
    for line in text.lines() {
        let heads = SECTIONS.into_iter().filter(|head| line.starts_with(head));
        let (head, rest) = line.split_at(heads.map(str::len).max().unwrap_or(0));
        if !head.is_empty() {
            painted += &format!("\u{1b}[1m{head}\u{1b}[0m");
        }
        match rest.strip_suffix("WATCH") {
            Some(start) => painted += &format!("{start}\u{1b}[33mWATCH\u{1b}[0m"),
            None => painted += rest,
        }
        painted.push('\n');
    }
    painted
}

/// Returns `host box, Linux 6.18, preempt=lazy, mglru=on, swap=zram, cgroup2, 4 KiB pages, up 9 d, root`.
#[must_use]
pub fn environment_line(environment: &Environment, style: Style) -> String {
    let word = |word: &Option<String>| known_or("unknown", word.as_ref());
    let mut parts = vec![
        format!("host {}", word(&environment.host)),
        format!("Linux {}", word(&environment.kernel)),
        format!("preempt={}", word(&environment.preemption)),
        format!(
            "mglru={}",
            known_or("unknown", environment.mglru.map(on_or_off))
        ),
        format!("swap={}", word(&environment.swap)),
        match environment.memory_cgroup.as_deref() {
            Some("none") => "no memory cgroup".to_owned(),
            Some(kind) => kind.to_owned(),
            None => "memory cgroup unknown".to_owned(),
        },
        format!("{} pages", environment.page_size),
        crate::text::count(environment.cpus.len(), "CPU"),
    ];
    parts.extend(environment.memory.map(|memory| memory.to_string()));
    parts.extend(environment.uptime_s.map(|s| format!("up {}", uptime(s))));
    parts.push(match environment.privilege {
        Privilege::Root => "root".to_owned(),
        Privilege::Some => format!("not root ({})", environment.capabilities.join(" ")),
        Privilege::None => "not root".to_owned(),
    });
    wrap(&plain(&parts.join(", ")), style.width, 2)
}

pub(crate) fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn not_tested(run: &Run) -> Vec<(String, String)> {
    let mut rows = vec![(
        String::new(),
        "the GPU driver, fences, block I/O, your program".to_owned(),
    )];
    let asked = |question| run.answers.iter().any(|a| a.question == question);
    let left = Question::FOUR
        .into_iter()
        .filter(|&question| !asked(question));
    let left = join(left, ", ");
    let why = match (left.is_empty(), run.interrupted) {
        (false, true) => format!("interrupted, not reached or not asked: {left}"),
        (false, false) => format!("not asked: {left}"),
        (true, true) => "interrupted: less was measured than was planned".to_owned(),
        (true, false) => String::new(),
    };
    if !why.is_empty() {
        rows.push((String::new(), why));
    }
    for answer in &run.answers {
        let row = |Missing { what, why }: &Missing| {
            (answer.question.to_string(), format!("{what}: {why}"))
        };
        rows.extend(answer.missing.iter().map(row));
    }
    rows
}

/// Returns commands to type next and why, most useful first.
fn next(run: &Run) -> Vec<(String, String)> {
    let mut commands = Vec::new();
    let mut add = |command: String, why: &str| commands.push((command, why.to_owned()));
    for answer in &run.answers {
        if matches!(
            answer.verdict.word,
            Word::Grows | Word::Excess | Word::Stalls
        ) {
            let why = answer.advice.first().map_or("in depth", String::as_str);
            let (question, flags) = (answer.question, answer.question.facts().probe_flags);
            add(format!("stopgap probe {question}{flags}"), why);
        }
    }
    if let Some(now) = run.now.as_ref().filter(|now| now.process.is_none())
        && now::rows(now)
            .iter()
            .any(|row| row.watch && row.about == "mappings")
        && let Some(process) = now.mappings.first()
    {
        add(
            format!("stopgap check -p {}", process.pid),
            &format!("about {}", process.name),
        );
    }
    let open = |answer: &Answer| {
        matches!(answer.verdict.word, Word::Inconclusive | Word::Unsupported)
            || !answer.missing.is_empty()
    };
    if run.environment.privilege != Privilege::Root && run.answers.iter().any(open) {
        let why = "root sees physical layout and can make memory pressure";
        add("sudo stopgap check".to_owned(), why);
    }
    if run.answers.is_empty() {
        let why = "the questions under test: about a minute, no root needed";
        add("stopgap check".to_owned(), why);
    } else if commands.is_empty() {
        let why = "what this machine lets us see";
        commands.push(("stopgap doctor".to_owned(), why.to_owned()));
    }
    commands
}

/// Returns the lines under the screen: what it cost, and where the record is, if one was written.
#[must_use]
pub fn foot(run: &Run, record: Option<&str>) -> String {
    let memory = run.peak_memory.map(Bytes);
    let record = record.map(|record| format!("record {}\n", plain(record)));
    format!(
        "took {} s, peak memory {} of a budget of {}, seed {}\n{}",
        run.duration_ms / 1_000,
        known_or("unknown", memory),
        Bytes(run.memory_budget),
        run.seed,
        record.unwrap_or_default()
    )
}
