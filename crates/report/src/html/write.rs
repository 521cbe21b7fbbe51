//! Text into HTML. Whatever comes from a record goes through [`escaped`].

use stopgap_stats::overall::State;

use super::chart::Chart;
use super::top;
use crate::table::Table;
use crate::text::{plain, thousands};

/// Letters of one text that are shown: a record's may be of any length.
const LONGEST: usize = 2_000;

/// Rows of a table and sentences of a list that are shown.
const MOST_ROWS: usize = 150;

/// Columns of a table that are shown.
const MOST_COLUMNS: usize = 40;

/// A cell with more bytes is a sentence, and is not squeezed.
const SENTENCE: usize = 40;

/// Columns that fit beside each other on a narrow screen. A row of more stands there as a block, a line per cell.
const NARROW: usize = 3;

/// Returns text as the content of an element or the value of an attribute between quotes: shown, never obeyed. Control characters
/// and bidirectional marks are made visible.
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

/// Returns the first `letters` of a text; what is cut is shown as cut.
pub(super) fn short(text: &str, letters: usize) -> String {
    if text.chars().nth(letters).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A section of the page, part by part.
pub(super) struct Section {
    html: String,
}

impl Section {
    pub(super) fn new(id: &str, title: &str) -> Section {
        let (id, title) = (escaped(id), escaped(title));
        Section {
            html: format!("<section id=\"{id}\"><h2>{title}</h2>\n"),
        }
    }

    /// Adds the verdict, after the sign of its state.
    pub(super) fn verdict(&mut self, state: Option<State>, text: &str) {
        let sign = state.map_or_else(String::new, |state| top::sign(state) + " ");
        self.html += &format!("<p class=\"verdict\">{sign}{}</p>\n", escaped(text));
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.html += &format!("<p>{}</p>\n", escaped(text));
    }

    /// Adds a list of sentences; nothing where there are none.
    pub(super) fn list(&mut self, sentences: &[String], class: &str) {
        self.html += &list(sentences, class);
    }

    /// Adds the first picture, and folds the others.
    pub(super) fn charts(&mut self, charts: &[Chart]) {
        let drawn: Vec<String> = charts.iter().map(Chart::html).collect();
        let mut drawn = drawn.into_iter().filter(|html| !html.is_empty());
        self.html += &drawn.next().unwrap_or_default();
        let others: String = drawn.collect();
        self.fold_pictures(&others);
    }

    /// Adds pictures that are folded together; nothing where there are none.
    pub(super) fn fold_pictures(&mut self, pictures: &str) {
        if !pictures.is_empty() {
            self.fold(
                "More pictures",
                &format!("<div class=\"charts\">{pictures}</div>"),
            );
        }
    }

    /// Adds HTML that is folded under a title; nothing where it is empty.
    pub(super) fn fold(&mut self, title: &str, html: &str) {
        if !html.is_empty() {
            let title = escaped(title);
            self.html += &format!("<details><summary>{title}</summary>{html}</details>\n");
        }
    }

    /// Adds a table; `title` names it to people who cannot see it.
    pub(super) fn table(&mut self, title: &str, table: &Table) {
        self.html += &table.html(title);
    }

    /// Adds a table that is folded under its title.
    pub(super) fn folded_table(&mut self, title: &str, table: &Table) {
        self.fold(title, &table.html(title));
    }

    /// Adds HTML that is made already.
    pub(super) fn add(&mut self, html: &str) {
        self.html += html;
    }

    pub(super) fn finish(self) -> String {
        self.html + "</section>\n"
    }
}

impl Table {
    /// Returns the table in a region of its own that can be scrolled, also by keys. `title` names it.
    #[must_use]
    pub fn html(&self, title: &str) -> String {
        let class = |text: &str| match text {
            text if is_figure(text) => " class=\"n\"",
            text if text.len() > SENTENCE => " class=\"w\"",
            _ => "",
        };
        // A head stands over its figures.
        let head = |(column, text): (usize, &str)| {
            let below = self.rows.first().and_then(|row| row.get(column));
            let class = match is_figure(text) || below.is_some_and(|cell| is_figure(cell)) {
                true => " class=\"n\"",
                false => "",
            };
            format!("<th scope=\"col\"{class}>{}</th>", escaped(text))
        };
        let columns: Vec<String> = self.heads().map(escaped).collect();
        let stacked = columns.len() > NARROW;
        let cell = |(column, text): (usize, &String)| {
            let (class, shown) = (class(text), escaped(text));
            match columns.get(column).filter(|_| stacked) {
                _ if column == 0 => format!("<th scope=\"row\"{class}>{shown}</th>"),
                Some(_) if text.is_empty() => "<td></td>".to_owned(),
                Some(head) => format!("<td data-h=\"{head}\"{class}>{shown}</td>"),
                None => format!("<td{class}>{shown}</td>"),
            }
        };
        let row = |(index, row): (usize, &Vec<String>)| {
            let marked = self.marked.contains(&index);
            let class = if marked { " class=\"differs\"" } else { "" };
            let cells: String = row
                .iter()
                .take(MOST_COLUMNS)
                .enumerate()
                .map(cell)
                .collect();
            format!("<tr{class}>{cells}</tr>\n")
        };
        let heads: String = self
            .heads()
            .take(MOST_COLUMNS)
            .enumerate()
            .map(head)
            .collect();
        let rows: String = self
            .rows
            .iter()
            .take(MOST_ROWS)
            .enumerate()
            .map(row)
            .collect();
        let stack = if stacked { " class=\"stack\"" } else { "" };
        format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table{stack}><thead><tr>{heads}</tr></thead>\
             <tbody>{rows}</tbody></table></div>{}\n",
            escaped(title),
            more(self.rows.len(), MOST_ROWS, " rows in the record"),
        )
    }
}

/// Returns whether a cell is a figure, which is read along its column.
fn is_figure(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
        && text.chars().filter(char::is_ascii_alphabetic).count() <= 4
}

/// Returns `and 3 more` and `place` where of `all` only `shown` are shown; else nothing.
pub(super) fn more(all: usize, shown: usize, place: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!("<p>and {} more{place}</p>", thousands(more as u64)),
    }
}

/// Returns a list of sentences; empty where there are none.
pub(super) fn list(sentences: &[String], class: &str) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let shown = sentences.iter().take(MOST_ROWS);
    let items: String = shown
        .map(|text| format!("<li>{}</li>\n", escaped(text)))
        .collect();
    let more = more(sentences.len(), MOST_ROWS, " in the records");
    format!("<ul class=\"{class}\">{items}</ul>{more}\n")
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
        let mut table = Table::new("a | b");
        table.rows = vec![vec!["x".to_owned(), "1.5 ms".to_owned()]; MOST_ROWS + 3];
        let html = table.html("t");
        assert!(html.contains("and 3 more rows in the record"));
        assert!(html.contains("<td class=\"n\">1.5 ms</td>"), "{html}");
    }

    #[test]
    fn a_wide_table_names_each_cell_for_narrow_screens() {
        let mut table = Table::new("a | b | \"c | d");
        table.row(&[&"x", &"1", &"2", &""]);
        let html = table.html("t");
        assert!(html.contains("<table class=\"stack\">"), "{html}");
        assert!(
            html.contains("<td data-h=\"&quot;c\" class=\"n\">2</td><td></td>"),
            "{html}"
        );
    }
}
