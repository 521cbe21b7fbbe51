//! KTAP, version 1, as the kernel's `Documentation/dev-tools/ktap.rst` defines it: one test, and in it one for each endpoint.

use stopgap_stats::compare::Comparison;

use super::{Standing, said};
use crate::text::plain;

/// The text, with a line feed at the end.
#[must_use]
pub fn ktap(comparison: &Comparison) -> String {
    let mut text = String::from("KTAP version 1\n1..1\n");
    for warning in &comparison.warnings {
        text.push_str(&format!("# warning: {}\n", plain(warning)));
    }
    if !comparison.endpoints.is_empty() {
        text.push_str("  KTAP version 1\n  # Subtest: compare\n");
        text.push_str(&format!("  1..{}\n", comparison.endpoints.len()));
    }
    for (row, number) in comparison.endpoints.iter().zip(1..) {
        let result = result(row.word.into(), number, &row.name, &said(row));
        text.push_str(&format!("  {result}\n"));
    }
    let verdict = &comparison.verdict;
    let last = result(verdict.word.into(), 1, "compare", &verdict.text);
    text.push_str(&last);
    text.push('\n');
    text
}

/// A result line: `ok 1 median # SKIP no difference proven: ...`.
fn result(standing: Standing, number: usize, name: &str, why: &str) -> String {
    let (result, directive) = match standing {
        Standing::Good => ("ok", ""),
        Standing::Bad => ("not ok", ""),
        Standing::CannotTell => ("ok", "SKIP "),
    };
    // A number sign ends a description.
    let name = plain(name).replace('#', "_");
    format!("{result} {number} {name} # {directive}{}", plain(why))
}
