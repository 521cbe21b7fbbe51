use std::io::{self, Write};
use std::ops::Range;

use super::{Export, ExportError, Out, buffered};
use crate::Event;
use crate::cell::{Put, Value};
use crate::column::Column;

/// Comma-separated values (RFC 4180, lines end in `\n`): a line of the columns' names, then a line
/// an event, with all columns of [`Column::ALL`].
///
/// A null is nothing, an empty text `""`. Written by hand, because no writer of a library tells the
/// two apart, and because nothing else is difficult. What the trace says of itself has no place
/// here.
pub(super) struct Csv<'w> {
    out: Out<'w>,
    cells: Cells,
}

impl<'w> Csv<'w> {
    /// Writes the line of names.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub(super) fn new(out: impl Write + 'w) -> io::Result<Csv<'w>> {
        let mut out = buffered(out);
        let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
        writeln!(out, "{}", names.join(","))?;
        let of_column = Column::ALL.iter().map(|_| 0..0).collect();
        let text = Vec::new();
        Ok(Csv {
            out,
            cells: Cells { text, of_column },
        })
    }
}

impl Export for Csv<'_> {
    fn write(&mut self, event: Event) -> Result<(), ExportError> {
        let cells = &mut self.cells;
        cells.text.clear();
        cells.of_column.fill(0..0);
        event.put_cells(&mut (cells as &mut dyn Put));
        for (index, of_column) in cells.of_column.iter().enumerate() {
            if index > 0 {
                self.out.write_all(b",")?;
            }
            self.out.write_all(&cells.text[of_column.clone()])?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        Ok(self.out.flush()?)
    }
}

/// The cells of a line, in the order in which they came.
struct Cells {
    text: Vec<u8>,
    /// Where each column's stands.
    of_column: Vec<Range<usize>>,
}

impl Put for Cells {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let start = self.text.len();
        let text = &mut self.text;
        let written = match value {
            Value::Unsigned(number) => write!(text, "{number}"),
            Value::Signed(number) => write!(text, "{number}"),
            Value::Bool(value) => write!(text, "{value}"),
            Value::Text(words) => quoted(text, words),
            Value::Word(word) => quoted(text, word),
        };
        debug_assert!(written.is_ok(), "memory takes everything");
        self.of_column[column as usize] = start..self.text.len();
    }
}

/// In quotes where a reader would take it for something else.
fn quoted(to: &mut Vec<u8>, text: &str) -> io::Result<()> {
    if !text.is_empty() && !text.contains([',', '"', '\r', '\n']) {
        return to.write_all(text.as_bytes());
    }
    write!(to, "\"{}\"", text.replace('"', "\"\""))
}
