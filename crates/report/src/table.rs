//! The one way to lay out what a person reads: lines that wrap, tables of columns, and what stands for the unknown.
//!
//! A [`Screen`] is text for a terminal, a [`Table`] goes to a screen or into a page ([`crate::html`]). Both make control characters
//! visible by themselves ([`plain`]), so their callers hand in the texts of records as they are.

use std::fmt::{Display, Write as _};

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};
use stopgap_events::machine::Missing;

use crate::text::{plain, wrap};

/// Wider lines are not read.
pub(crate) const WIDEST: u16 = 100;

/// Stands where something is not known.
pub const UNKNOWN: &str = "-";

/// Returns `value` in words, or [`UNKNOWN`].
#[must_use]
pub fn known(value: Option<impl Display>) -> String {
    known_or(UNKNOWN, value)
}

/// Returns `value` in words, or `otherwise`.
#[must_use]
pub fn known_or(otherwise: &str, value: Option<impl Display>) -> String {
    value.map_or_else(|| otherwise.to_owned(), |value| value.to_string())
}

/// Returns `items` in words with `separator` between them.
pub fn join<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut text = String::new();
    for (index, item) in items.into_iter().enumerate() {
        // A string takes what is written to it.
        let _ = write!(text, "{}{item}", if index == 0 { "" } else { separator });
    }
    text
}

/// How to print.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Columns of the terminal; lines are wrapped to fit.
    pub width: u16,
    /// Whether to use colour.
    pub colour: bool,
    /// Whether to print the evidence, intervals and fixes below the answer (`--verbose`).
    pub verbose: bool,
}

/// Text for a terminal, line by line.
pub(crate) struct Screen {
    pub(crate) style: Style,
    text: String,
}

impl Screen {
    pub(crate) fn new(style: Style) -> Screen {
        let text = String::new();
        Screen { style, text }
    }

    /// Adds a line, wrapped; its later parts are set in by two columns more.
    pub(crate) fn say(&mut self, line: impl AsRef<str>) {
        self.say_by(2, line);
    }

    /// Adds a line, wrapped; its later parts are set in by `indent` columns more.
    pub(crate) fn say_by(&mut self, indent: usize, line: impl AsRef<str>) {
        self.text += &wrap(&plain(line.as_ref()), self.style.width, indent);
    }

    /// Adds a line as [`Screen::say`] does, bold where the style has colour.
    pub(crate) fn say_bold(&mut self, line: impl AsRef<str>) {
        let begin = self.text.len();
        self.say(line);
        if self.style.colour {
            let bold = format!("\u{1b}[1m{}\u{1b}[0m\n", self.text[begin..].trim_end());
            self.text.replace_range(begin.., &bold);
        }
    }

    /// Adds a line that is not wrapped.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text += &plain(line.as_ref());
        self.text.push('\n');
    }

    /// Adds a line for each thing that is not known.
    pub(crate) fn unknown(&mut self, missing: &[Missing]) {
        for Missing { what, why } in missing {
            self.say(format!("unknown: {what}: {why}"));
        }
    }

    /// Adds a table. One that is wider than the screen, or than 100 columns, is cut into several.
    pub(crate) fn table(&mut self, table: &Table) {
        let width = self.style.width.clamp(80, WIDEST);
        for (index, part) in table.in_parts(width).iter().enumerate() {
            self.text += if index > 0 { "\n" } else { "" };
            // Sentences in a cell are wrapped there.
            let style = Style {
                width,
                ..self.style
            };
            let text = part.text(style);
            let fits = text
                .lines()
                .all(|line| line.chars().count() <= usize::from(width) + 10);
            self.text += &match fits {
                true => text,
                false => part.arranged(style, ContentArrangement::Dynamic),
            };
        }
    }

    /// Adds a table, unless it has no row.
    pub(crate) fn table_of_some(&mut self, table: &Table) {
        if !table.rows.is_empty() {
            self.table(table);
        }
    }

    /// Adds a table whose cells are wrapped to the width.
    pub(crate) fn wrapped_table(&mut self, table: &Table) {
        self.text += &table.arranged(self.style, ContentArrangement::Dynamic);
    }

    /// Adds text that is made already.
    pub(crate) fn add(&mut self, text: &str) {
        self.text += text;
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// A table of words and figures.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Heads of columns. On a terminal, a column whose head begins with `>` is aligned to the right.
    head: Vec<String>,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
    /// Indices of the rows to point out.
    pub marked: Vec<usize>,
    /// How many columns at the left say what a row is about, when it is more than one: each part of a table that is cut has them.
    pub keys: usize,
}

impl Table {
    /// Returns a table without rows; `head` has the columns' heads between `|`: `task | >count`.
    #[must_use]
    pub fn new(head: &str) -> Table {
        Table::with_heads(head.split('|').map(str::trim))
    }

    /// Returns a table without rows, whose heads are computed.
    pub fn with_heads<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Table {
        Table {
            head: head.into_iter().map(Into::into).collect(),
            ..Table::default()
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows
            .push(cells.iter().map(ToString::to_string).collect());
    }

    /// Returns the heads without their marks.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &str> {
        let unmarked = |head: &'_ String| head.strip_prefix('>').map_or(0, |_| 1);
        self.head.iter().map(move |head| &head[unmarked(head)..])
    }

    /// Returns the table for a terminal; its lines may be longer than the width.
    #[must_use]
    pub fn text(&self, style: Style) -> String {
        self.arranged(style, ContentArrangement::Disabled)
    }

    fn arranged(&self, style: Style, arrangement: ContentArrangement) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_preset(presets::NOTHING)
            .set_content_arrangement(arrangement)
            .set_width(style.width);
        if !self.head.is_empty() {
            table.set_header(self.heads().map(plain).map(Cell::new));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| plain(cell)));
        }
        for (column, head) in table.column_iter_mut().zip(&self.head) {
            if head.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        // The empty border leaves a space in front of each line.
        let line = |line: String| {
            line.trim_end()
                .strip_prefix(' ')
                .unwrap_or(line.trim_end())
                .to_owned()
                + "\n"
        };
        table.lines().map(line).collect()
    }

    /// Returns the table cut into several, each with the columns of its keys, none wider than `width` columns of a terminal.
    pub(crate) fn in_parts(&self, width: u16) -> Vec<Table> {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let wide = |column: usize| {
            let head = self
                .head
                .get(column)
                .map_or("", |head| head.trim_start_matches('>'));
            let all = cells(column).map(String::as_str).chain([head]);
            2 + all.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let columns = self
            .rows
            .iter()
            .map(Vec::len)
            .chain([self.head.len()])
            .max();
        let keys = self.keys.max(1);
        let first: Vec<usize> = (0..keys).collect();
        let least: usize = first.iter().map(|&column| wide(column)).sum();
        let (mut parts, mut used) = (vec![first.clone()], least);
        for column in keys..columns.unwrap_or(0) {
            // The space behind the last column is not printed; a column without a head belongs to the one before it.
            let own = self.head.get(column).is_none_or(|head| !head.is_empty());
            if own && used + wide(column) > usize::from(width) + 2 && used > least {
                parts.push(first.clone());
                used = least;
            }
            used += wide(column);
            parts.last_mut().unwrap_or(&mut vec![]).push(column);
        }
        let pick = |row: &Vec<String>, columns: &[usize]| {
            let cell = |&column: &usize| row.get(column).cloned().unwrap_or_default();
            columns.iter().map(cell).collect()
        };
        let part = |columns: Vec<usize>| Table {
            head: pick(&self.head, &columns),
            rows: self.rows.iter().map(|row| pick(row, &columns)).collect(),
            marked: Vec::new(),
            keys: self.keys,
        };
        parts.into_iter().map(part).collect()
    }
}
