//! What a machine allows, for people.

use stopgap_events::machine::{Check, CheckState, Environment};

use crate::screen::{Style, environment_line, plain_table};
use crate::text::plain;

/// One row a check; what is lost and what would help stand under what was found.
#[must_use]
pub fn screen(environment: &Environment, checks: &[Check], style: Style) -> String {
    let rows = checks
        .iter()
        .map(|check| {
            let state = match check.state {
                CheckState::Ok => "ok",
                CheckState::Limited => "limited",
                CheckState::Absent => "absent",
                CheckState::Unknown => "unknown",
            };
            let mut said = vec![plain(&check.found)];
            if check.state != CheckState::Ok {
                let more = [("costs", &check.costs), ("try", &check.advice)];
                said.extend(
                    more.into_iter()
                        .filter(|(_, text)| !text.is_empty())
                        .map(|(name, text)| format!("{name}: {}", plain(text))),
                );
            }
            vec![plain(&check.what), state.to_owned(), said.join("\n")]
        })
        .collect();
    format!(
        "{}{}",
        environment_line(environment, style),
        plain_table(&["what", "state", "found"], rows, &[], true, style)
    )
}
