//! The screen of `doctor`: the checks of a machine.

use stopgap_events::machine::{Check, CheckState, Environment};

use crate::screen::environment_line;
use crate::table::{Screen, Style, Table};

/// Returns what is limited or absent, each with what is lost by it and what would help; on request also what is there.
/// `kept` says how much lies where records go.
#[must_use]
pub fn screen(environment: &Environment, checks: &[Check], kept: &Check, style: Style) -> String {
    let mut table = Table::new("what | state | found");
    let mut short = Vec::new();
    for check in checks {
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Absent => "absent",
            CheckState::Unknown => "unknown",
        };
        if check.state == CheckState::Ok && !style.verbose {
            continue;
        }
        table.row(&[&check.what, &state, &check.found]);
        if check.state == CheckState::Ok {
            continue;
        }
        short.push(check.what.split(" (").next().unwrap_or(&check.what));
        for (name, text) in [("costs", &check.costs), ("try", &check.advice)] {
            if !text.is_empty() {
                table.row(&[&"", &"", &format!("{name}: {text}")]);
            }
        }
    }
    let mut screen = Screen::new(style);
    let all = checks.len();
    screen.say_bold(match short.len() {
        0 => format!("This machine and this user allow all {all} things that stopgap uses."),
        some => format!(
            "This machine and this user allow {} of {all} things that stopgap uses; limited: {}.",
            all - some,
            short.join(", ")
        ),
    });
    screen.add(&environment_line(environment, style));
    screen.wrapped_table(&table);
    screen.say(format!("{}: {}", kept.what, kept.found));
    if !style.verbose {
        screen.say("--verbose prints also what is there");
    }
    screen.finish()
}
