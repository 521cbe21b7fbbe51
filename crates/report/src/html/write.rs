//! Text into HTML. Whatever comes from a record goes through [`escaped`] or [`attribute`].

use crate::text::{plain, thousands};

/// Letters of one text that are shown: a record's may be of any length.
const LONGEST: usize = 2_000;

/// Rows of a table that are shown.
const MOST_ROWS: usize = 150;

/// Columns of a table that are shown.
const MOST_COLUMNS: usize = 40;

/// Text as the content of an element: shown, never obeyed. Control characters and bidirectional marks are made visible.
#[must_use]
pub fn escaped(text: &str) -> String {
    let shown = short(text, LONGEST);
    let mut html = String::with_capacity(shown.len());
    for letter in plain(&shown).chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Text as the value of an attribute between quotes.
pub(super) fn attribute(text: &str) -> String {
    escaped(text)
}

/// The first `letters` of a text; what is cut is shown as cut.
pub(super) fn short(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        None => text.to_owned(),
        Some((_, _)) => {
            let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

/// A table of words and figures.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Heads of columns.
    pub head: Vec<String>,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
    /// Rows to point out, by index.
    pub marked: Vec<usize>,
}

/// Bytes from which on a cell is read as a sentence, and is not squeezed on a narrow screen.
const SENTENCE: usize = 40;

impl Table {
    /// Makes an empty table under these heads.
    #[must_use]
    pub fn new(head: &[&str]) -> Table {
        Table {
            head: head.iter().map(|&head| head.to_owned()).collect(),
            ..Table::default()
        }
    }

    /// The table in a region of its own that can be scrolled, also by keys. `title` names it.
    #[must_use]
    pub fn html(&self, title: &str) -> String {
        let cells = |tag: &str, scope: &str, cells: &[String]| -> String {
            let cell = |(column, text): (usize, &String)| {
                let (tag, scope) = match (tag, column) {
                    ("td", 0) => ("th", " scope=\"row\""),
                    _ => (tag, scope),
                };
                let class = if is_figure(text) {
                    " class=\"n\""
                } else if !scope.contains("col") && text.len() > SENTENCE {
                    " class=\"w\""
                } else {
                    ""
                };
                format!("<{tag}{scope}{class}>{}</{tag}>", escaped(text))
            };
            cells
                .iter()
                .take(MOST_COLUMNS)
                .enumerate()
                .map(cell)
                .collect()
        };
        let rows: String = self
            .rows
            .iter()
            .take(MOST_ROWS)
            .enumerate()
            .map(|(index, row)| {
                let marked = self.marked.contains(&index);
                let class = if marked { " class=\"differs\"" } else { "" };
                format!("<tr{class}>{}</tr>\n", cells("td", "", row))
            })
            .collect();
        let more = match self.rows.len().saturating_sub(MOST_ROWS) {
            0 => String::new(),
            more => format!(
                "<p>and {} more rows in the record</p>",
                thousands(more as u64)
            ),
        };
        format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>{}</tr></thead>\
             <tbody>{rows}</tbody></table></div>{more}\n",
            attribute(title),
            cells("th", " scope=\"col\"", &self.head),
        )
    }
}

/// Whether a cell is a figure, which is read along its column.
fn is_figure(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
        && text.chars().filter(char::is_ascii_alphabetic).count() <= 4
}

/// A list of sentences; empty where there are none.
pub(super) fn list(sentences: &[String], class: &str) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let items: String = sentences
        .iter()
        .take(MOST_ROWS)
        .map(|sentence| format!("<li>{}</li>\n", escaped(sentence)))
        .collect();
    let more = match sentences.len().saturating_sub(MOST_ROWS) {
        0 => String::new(),
        more => format!(
            "<li>and {} more in the records</li>\n",
            thousands(more as u64)
        ),
    };
    format!("<ul class=\"{class}\">{items}{more}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_and_never_obeyed() {
        assert_eq!(
            escaped("<script>\"'&\u{202e}\n"),
            "&lt;script&gt;&quot;&#39;&amp;\\u{202e}\\u{a}"
        );
        assert_eq!(short("größe", 5), "größe");
        assert_eq!(short("größer", 5), "größ…");
    }

    #[test]
    fn a_long_table_says_what_it_leaves_out() {
        let mut table = Table::new(&["a", "b"]);
        table.rows = vec![vec!["x".to_owned(), "1.5 ms".to_owned()]; MOST_ROWS + 3];
        let html = table.html("t");
        assert!(html.contains("and 3 more rows in the record"));
        assert!(html.contains("<td class=\"n\">1.5 ms</td>"), "{html}");
    }
}
