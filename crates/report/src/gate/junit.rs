//! JUnit's XML as Jenkins reads it: a test suite, a test case for each endpoint, and one for the verdict.

use stopgap_stats::compare::{Comparison, Word};

use super::{Standing, said};
use crate::text::plain;

/// The document, XML 1.0 in UTF-8, with a line feed at the end.
#[must_use]
pub fn junit(comparison: &Comparison) -> String {
    let mut cases: Vec<(&str, Standing, String, String)> = Vec::new();
    for row in &comparison.endpoints {
        let word = row.word.to_string();
        cases.push((&row.name, row.word.into(), word, said(row)));
    }
    let verdict = &comparison.verdict;
    let word = |word: Word| word.to_string();
    cases.push((
        "verdict",
        verdict.word.into(),
        word(verdict.word),
        verdict.text.clone(),
    ));
    let count = |standing| cases.iter().filter(|case| case.1 == standing).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\"",
        cases.len(),
        count(Standing::Bad),
        count(Standing::CannotTell)
    );
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  \
         <testsuite name=\"stopgap compare\" {counts}>\n    <properties>\n"
    );
    for (name, value) in [
        ("before", &comparison.before.name),
        ("after", &comparison.after.name),
        ("seed", &comparison.seed.to_string()),
        ("margin", &comparison.margin.to_string()),
    ] {
        let value = escaped(value);
        text.push_str(&format!(
            "      <property name=\"{name}\" value=\"{value}\"/>\n"
        ));
    }
    text.push_str("    </properties>\n");
    for (name, standing, word, why) in cases {
        let (name, why) = (escaped(name), escaped(&why));
        text.push_str(&format!(
            "    <testcase classname=\"stopgap.compare\" name=\"{name}\""
        ));
        text.push_str(&match standing {
            Standing::Good => format!(">\n      <system-out>{why}</system-out>\n    </testcase>\n"),
            Standing::Bad => format!(
                ">\n      <failure type=\"{word}\" message=\"{why}\">{why}</failure>\n    </testcase>\n"
            ),
            Standing::CannotTell => {
                format!(">\n      <skipped message=\"{why}\"/>\n    </testcase>\n")
            }
        });
    }
    if !comparison.warnings.is_empty() {
        let warnings = comparison.warnings.iter().map(|warning| escaped(warning));
        let warnings = warnings.collect::<Vec<_>>().join("\n");
        text.push_str(&format!("    <system-err>{warnings}</system-err>\n"));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// For text and for attributes in double quotes. XML 1.0 has no form for control characters and for U+FFFE and U+FFFF, so those
/// stand as `\u{1b}`.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}
