//! Workflow commands, as GitHub Actions reads them from a log: `::error title=...::message`.

use stopgap_stats::compare::{Comparison, RowWord};

use super::{Standing, said};
use crate::text::plain;

/// A line for each warning, for each endpoint that is worse, and for the verdict.
#[must_use]
pub fn annotations(comparison: &Comparison) -> String {
    let mut text = String::new();
    let mut line = |level: &str, title: &str, message: &str| {
        let (title, message) = (property(title), data(message));
        text.push_str(&format!("::{level} title={title}::{message}\n"));
    };
    for warning in &comparison.warnings {
        line("warning", "stopgap compare", warning);
    }
    for row in &comparison.endpoints {
        if row.word == RowWord::Worse {
            line(
                "error",
                &format!("stopgap compare: {}", row.name),
                &said(row),
            );
        }
    }
    let level = match comparison.verdict.word.into() {
        Standing::Good => "notice",
        Standing::Bad => "error",
        Standing::CannotTell => "warning",
    };
    line(level, "stopgap compare", &comparison.verdict.text);
    text
}

/// Escapes a message: a line break ends it, and a percent sign begins an escape.
fn data(text: &str) -> String {
    plain(text).replace('%', "%25")
}

/// Escapes a property, which a comma or a colon ends as well.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
