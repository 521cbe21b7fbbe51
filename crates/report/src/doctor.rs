//! The screen of `doctor`: the checks of a machine.

use stopgap_events::machine::{Check, CheckState, Environment};

use crate::screen::environment_line;
use crate::table::{Screen, Style, Table};

/// Returns a row for each check. Below what was found stand what is lost by it and what would help.
#[must_use]
pub fn screen(environment: &Environment, checks: &[Check], style: Style) -> String {
    let mut table = Table::new("what | state | found");
    for check in checks {
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Absent => "absent",
            CheckState::Unknown => "unknown",
        };
        table.row(&[&check.what, &state, &check.found]);
        for (name, text) in [("costs", &check.costs), ("try", &check.advice)] {
            if check.state != CheckState::Ok && !text.is_empty() {
                table.row(&[&"", &"", &format!("{name}: {text}")]);
            }
        }
    }
    let mut screen = Screen::new(style);
    screen.add(&environment_line(environment, style));
    screen.wrapped_table(&table);
    screen.finish()
}
