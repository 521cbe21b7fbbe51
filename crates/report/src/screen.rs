//! The screen of `check`: a headline, the states behind it, where the report is; the evidence on request.

use std::fmt::Display;

use stopgap_events::machine::{Environment, Missing, Privilege};
use stopgap_events::question::Question;
use stopgap_events::units::Bytes;
use stopgap_stats::overall::{Row, State};
use stopgap_stats::record::Run;

use crate::table::{Screen, Style, Table, join, known_or};
use crate::text::{plain, uptime, wrap};
use crate::{fix, now, overall};

/// Columns that no line of the screen exceeds on a wider terminal.
const WIDTH: u16 = 80;
/// Columns in front of a row's sentence: state and subject.
const SENTENCE: usize = 16;

/// Returns the screen: at most 24 lines of 80 columns. With [`Style::verbose`] the evidence stands below.
#[must_use]
pub fn first(run: &Run, style: Style) -> String {
    let style = Style {
        width: style.width.min(WIDTH),
        ..style
    };
    let overall = overall::of(run);
    let mut screen = Screen::new(style);
    screen.add(&head(run, style));
    screen.line("");
    screen.say_bold(&overall.text);
    screen.add(&next(&overall.why, &overall.command, style.width));
    let mut part = |title: &str, rows: &[Row], otherwise: &str| {
        screen.line("");
        screen.say_bold(title);
        for row in rows {
            screen.add(&line(row, style));
        }
        if rows.is_empty() {
            screen.say(format!("      {otherwise}"));
        }
    };
    if run.now.is_some() {
        part("RIGHT NOW", &overall.now, "");
    }
    let (title, otherwise) = match run.answers.len() {
        0 if run.interrupted => ("KNOWN CAUSES, NOT TESTED", "interrupted before the first"),
        0 => (
            "KNOWN CAUSES, NOT TESTED",
            "stopgap check tests four in about a minute",
        ),
        4 => ("FOUR KNOWN CAUSES, TESTED", ""),
        _ => ("KNOWN CAUSES, TESTED", ""),
    };
    part(title, &overall.causes, otherwise);
    screen.finish()
}

/// Returns the lines below the screen: what more there is, and the report's place where there is one.
#[must_use]
pub fn more(run: &Run, report: Option<&str>, style: Style) -> String {
    let width = style.width.min(WIDTH);
    let one = match run.now.as_ref().is_some_and(|now| now.process.is_some()) {
        true => "",
        false => "    One program: -p PID.",
    };
    let root = match run.environment.privilege {
        Privilege::Root => "",
        _ => "    More: sudo stopgap check",
    };
    let mut text = String::from("\n");
    if !style.verbose {
        text += &wrap(&format!("Evidence: --verbose.{one}{root}"), width, 2);
    }
    // A path is not broken: it is there to be copied.
    if let Some(report) = report {
        let line = format!("Report: {}", plain(report));
        let fits = line.chars().count() <= usize::from(width);
        text += &if fits {
            line + "\n"
        } else {
            line.replacen("Report: ", "Report:\n", 1) + "\n"
        };
    }
    text
}

/// Returns the machine and what the run was: `stopgap check   vm, Linux 6.18, 2 CPUs ...   52 s, as root`.
fn head(run: &Run, style: Style) -> String {
    let environment = &run.environment;
    let mut parts: Vec<String> = environment.host.iter().cloned().collect();
    let version = |kernel: &String| {
        let end = kernel
            .match_indices('.')
            .nth(1)
            .map_or(kernel.len(), |(at, _)| at);
        format!(
            "Linux {}",
            kernel[..end].split('-').next().unwrap_or_default()
        )
    };
    parts.extend(environment.kernel.as_ref().map(version));
    parts.push(crate::text::count(environment.cpus.len(), "CPU"));
    parts.extend(environment.memory.map(|memory| memory.to_string()));
    parts.extend(environment.swap.as_ref().map(|swap| match &**swap {
        "none" => "no swap".to_owned(),
        kind => format!("swap on {kind}"),
    }));
    let who = match environment.privilege {
        Privilege::Root => "as root",
        Privilege::Some => "not root, with capabilities",
        Privilege::None => "not root",
    };
    let interrupted = if run.interrupted {
        "interrupted after "
    } else {
        ""
    };
    let right = format!("{interrupted}{} s, {who}", run.duration_ms.div_ceil(1_000));
    let left = format!("stopgap check   {}", plain(&parts.join(", ")));
    let room = usize::from(style.width).saturating_sub(left.chars().count());
    match room > right.len() {
        true => format!("{left}{right:>room$}\n"),
        false => wrap(&left, style.width, 2) + &wrap(&right, style.width, 2),
    }
}

/// Returns a sentence and the command that it ends with. The command is never wrapped: it stands on a line of its own
/// where the last one has no room for it.
fn next(why: &str, command: &str, width: u16) -> String {
    let mut text = wrap(&plain(why), width, 0);
    if command.is_empty() {
        return text;
    }
    text.truncate(text.trim_end().len());
    let last = text.lines().last().map_or(0, |line| line.chars().count());
    let command = plain(command);
    let fits = last + 2 + command.chars().count() <= usize::from(width);
    text + if fits { "  " } else { "\n  " } + &continued(&command, width) + "\n"
}

/// Returns a command for the shell that is broken between words, each line but the last ended by a backslash, where it is wider
/// than `width` less an indent of 2. Quoted words stay whole.
fn continued(command: &str, width: u16) -> String {
    let room = usize::from(width).saturating_sub(2);
    if command.chars().count() <= room {
        return command.to_owned();
    }
    let mut quoted = false;
    let words = command.split(|c: char| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    });
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(last) if last.is_empty() => *last += word,
            Some(last) if last.chars().count() + 1 + word.chars().count() + 2 <= room => {
                *last += " ";
                *last += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join(" \\\n  ")
}

/// Returns a row as ` ok  memory     nobody waited for it in the last 10 s`.
fn line(row: &Row, style: Style) -> String {
    let (mark, colour) = match row.state {
        State::Ok => ("ok", 32),
        State::Look => ("!", 33),
        State::Cause => ("!!", 31),
        State::Unknown => ("?", 36),
    };
    let mark = match style.colour {
        true => format!("\u{1b}[{colour}m{mark:<3}\u{1b}[0m"),
        false => format!("{mark:<3}"),
    };
    let room = usize::from(style.width).saturating_sub(SENTENCE).max(20);
    let sentence = wrap(
        &plain(&row.sentence),
        u16::try_from(room).unwrap_or(WIDTH),
        0,
    );
    let below = format!("\n{:SENTENCE$}", "");
    let sentence = sentence.trim_end().replace('\n', &below);
    format!(" {mark} {:<11}{sentence}\n", plain(&row.about))
}

/// Returns the evidence behind the screen: what the machine shows in numbers, each answer with its interval and the fixes
/// that were tried, what is missing, what the run cost.
#[must_use]
pub fn evidence(run: &Run, style: Style) -> String {
    let mut table = Table::default();
    let mut last = "";
    // The section's name stands in its first row.
    let mut add = |section: &'static str, cells: [&dyn Display; 2]| {
        let head = if last == section { "" } else { section };
        last = section;
        table.row(&[&head, cells[0], cells[1]]);
    };
    for row in run.now.as_ref().map(now::rows).unwrap_or_default() {
        add("NOW", [&row.about, &row.text]);
    }
    for answer in &run.answers {
        add("TESTS", [&answer.question, &answer.verdict.text]);
        let evidence = answer.evidence.iter().cloned();
        let advice = answer.advice.iter().map(|advice| format!("try: {advice}"));
        let fixes = answer.fixes.iter().map(fix::sentence);
        for line in evidence.chain(advice).chain(fixes) {
            add("TESTS", [&"", &line]);
        }
    }
    for (about, text) in not_tested(run) {
        add("NOT TESTED", [&about, &text]);
    }
    let mut screen = Screen::new(style);
    screen.wrapped_table(&table);
    environment_line(&run.environment, style) + &screen.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_too_wide_for_the_terminal_is_continued_outside_of_quotes() {
        let command = "sudo dmesg -T | grep -iE 'out of mem|blocked for|hang|error' | tail";
        assert_eq!(
            next("Read it:", command, 80),
            format!("Read it:\n  {command}\n").replace("Read it:\n  sudo", "Read it:  sudo")
        );
        let narrow = next("Read it:", command, 40);
        assert_eq!(
            narrow,
            "Read it:\n  sudo dmesg -T | grep -iE \\\n  'out of mem|blocked for|hang|error' \\\n  | tail\n"
        );
        assert!(narrow.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn a_path_too_wide_for_the_terminal_has_its_own_line() {
        let run: Run = serde_json::from_str(include_str!(
            "../../../checks/capabilities/files/probe-placement.json"
        ))
        .unwrap();
        let style = |width| Style {
            width,
            colour: false,
            verbose: true,
        };
        let path = "~/.local/state/stopgap/check-1795819503-25278.html";
        assert!(more(&run, Some(path), style(80)).ends_with(&format!("Report: {path}\n")));
        assert!(more(&run, Some(path), style(40)).ends_with(&format!("Report:\n{path}\n")));
    }
}
