use std::collections::HashSet;

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;

use crate::trace::Text;
use crate::trace::cell::{Get, Value};
use crate::trace::column::{Column, ColumnType};

/// Longest text of one cell.
const LONGEST_TEXT: usize = 64 << 10;
/// Texts that are kept to be shared, and their bytes.
const KEPT_TEXTS: usize = 65_536;
const KEPT_BYTES: usize = 16 << 20;

/// Some rows, decoded, of which one after the other is looked at.
pub(super) struct Decoded {
    columns: Vec<Cells>,
    rows: usize,
    next: usize,
}

/// The cells of one column in them.
#[derive(Default)]
struct Cells {
    /// For each row the number of its value, or [`NULL`]; empty where all are null.
    of_row: Vec<u32>,
    stored: Stored,
    int32s: Vec<i32>,
    int64s: Vec<i64>,
    bools: Vec<bool>,
    texts: Vec<Text>,
    raw_texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

/// Which of the vectors has the values.
#[derive(Default, Clone, Copy)]
enum Stored {
    #[default]
    Int32,
    Int64,
    Bool,
    Text,
}

const NULL: u32 = u32::MAX;

impl Decoded {
    pub(super) fn new() -> Decoded {
        Decoded {
            columns: Column::ALL.iter().map(|_| Cells::default()).collect(),
            rows: 0,
            next: 0,
        }
    }

    /// Whether all rows have been looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.rows
    }

    /// The next row is looked at from now on.
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// All columns have been filled with that many rows; the first is looked at.
    pub(super) fn begin(&mut self, rows: usize) {
        (self.next, self.rows) = (0, rows);
    }

    /// Decodes the next `rows` rows of a column. An error has the row at which it shows, counted
    /// from the first of these.
    pub(super) fn fill(
        &mut self,
        column: Column,
        reader: &mut ColumnReader,
        rows: usize,
        texts: &mut Texts,
    ) -> Result<(), (usize, String)> {
        let cells = &mut self.columns[column as usize];
        cells.clear();
        let levels = Some(&mut cells.levels);
        let (stored, read) = match reader {
            ColumnReader::Int32ColumnReader(reader) => (
                Stored::Int32,
                reader.read_records(rows, levels, None, &mut cells.int32s),
            ),
            ColumnReader::Int64ColumnReader(reader) => (
                Stored::Int64,
                reader.read_records(rows, levels, None, &mut cells.int64s),
            ),
            ColumnReader::BoolColumnReader(reader) => (
                Stored::Bool,
                reader.read_records(rows, levels, None, &mut cells.bools),
            ),
            ColumnReader::ByteArrayColumnReader(reader) => (
                Stored::Text,
                reader.read_records(rows, levels, None, &mut cells.raw_texts),
            ),
            _ => return Err((0, "it is of another type".to_owned())),
        };
        let (records, values, _) = read.map_err(|error| (0, error.to_string()))?;
        if records != rows {
            return Err((records, "it ends before the others".to_owned()));
        }
        cells.stored = stored;
        cells.place(rows, values);
        texts
            .share(&cells.raw_texts, &mut cells.texts)
            .map_err(|(index, why)| {
                let row = cells
                    .of_row
                    .iter()
                    .position(|&value| value as usize == index);
                (row.unwrap_or(0), why)
            })
    }
}

impl Cells {
    fn clear(&mut self) {
        self.of_row.clear();
        self.int32s.clear();
        self.int64s.clear();
        self.bools.clear();
        self.texts.clear();
        self.raw_texts.clear();
        self.levels.clear();
    }

    /// Which value is of which row: a column that may be null has a level of 1 where it is not.
    fn place(&mut self, rows: usize, values: usize) {
        let mut numbers = 0u32..;
        if values == rows {
            self.of_row.extend(numbers.take(rows));
        } else if values > 0 {
            let number = |&level: &i16| {
                if level > 0 {
                    numbers.next().unwrap_or(NULL)
                } else {
                    NULL
                }
            };
            self.of_row.extend(self.levels.iter().map(number));
        }
    }
}

impl Get for Decoded {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        let cells = &self.columns[column as usize];
        let &index = cells.of_row.get(self.next)?;
        if index == NULL {
            return None;
        }
        let index = index as usize;
        match (cells.stored, column.column_type()) {
            (Stored::Text, _) => cells.texts.get(index).map(Value::Text),
            (Stored::Bool, _) => cells.bools.get(index).copied().map(Value::Bool),
            (Stored::Int32, ColumnType::U32) => {
                let number = cells.int32s.get(index)?.cast_unsigned();
                Some(Value::Unsigned(u64::from(number)))
            }
            (Stored::Int64, ColumnType::U64) => {
                let number = cells.int64s.get(index)?.cast_unsigned();
                Some(Value::Unsigned(number))
            }
            // Signed, or made wider or narrower by another tool.
            (Stored::Int32, _) => {
                let number = i64::from(*cells.int32s.get(index)?);
                Some(Value::Signed(number))
            }
            (Stored::Int64, _) => cells.int64s.get(index).copied().map(Value::Signed),
        }
    }
}

/// The texts that came lately: most come again and again.
#[derive(Default)]
pub(super) struct Texts {
    kept: HashSet<Text>,
    bytes: usize,
}

impl Texts {
    /// Appends `raw` to `texts`. An error has the number of the text.
    fn share(&mut self, raw: &[ByteArray], texts: &mut Vec<Text>) -> Result<(), (usize, String)> {
        for (index, raw) in raw.iter().enumerate() {
            let bytes = raw.data();
            let text = match texts.last() {
                Some(last) if last.as_bytes() == bytes => Text::clone(last),
                _ => self.text(bytes).map_err(|why| (index, why))?,
            };
            texts.push(text);
        }
        Ok(())
    }

    fn text(&mut self, bytes: &[u8]) -> Result<Text, String> {
        if bytes.len() > LONGEST_TEXT {
            return Err(format!(
                "a text of {} bytes; at most {LONGEST_TEXT} are read",
                bytes.len()
            ));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())?;
        if let Some(kept) = self.kept.get(text) {
            return Ok(Text::clone(kept));
        }
        if self.kept.len() >= KEPT_TEXTS || self.bytes + bytes.len() > KEPT_BYTES {
            self.kept.clear();
            self.bytes = 0;
        }
        self.bytes += bytes.len();
        let text = Text::from(text);
        self.kept.insert(Text::clone(&text));
        Ok(text)
    }
}
