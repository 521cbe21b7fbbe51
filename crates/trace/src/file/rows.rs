use std::collections::HashSet;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::Result;

use super::batch::Values;
use super::reason;
use crate::Text;
use crate::cell::Value;
use crate::column::{Column, ColumnType};

/// Longest text of one cell.
const LONGEST_TEXT: usize = 64 << 10;
/// Texts that are kept to be shared, and their bytes.
const KEPT_TEXTS: usize = 65_536;
const KEPT_BYTES: usize = 16 << 20;

/// Some rows of one column, decoded.
pub(super) struct Rows {
    column: Column,
    reader: ColumnReader,
    /// For each row 1, or 0 where it is null; empty where none can be.
    levels: Vec<i16>,
    values: Values,
    /// The texts that came, most of them once, and for each value the index of its own.
    texts: Vec<Text>,
    of_value: Vec<u32>,
    filled: Filled,
    /// Where some are null: for each row the index of its value, or [`NULL`].
    of_row: Vec<u32>,
}

/// How many of the rows are not null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    None,
    Some,
    All,
}

const NULL: u32 = u32::MAX;

impl Rows {
    pub(super) fn new(column: Column, reader: ColumnReader) -> Rows {
        let values = match &reader {
            ColumnReader::BoolColumnReader(_) => Values::Bool(Vec::new()),
            ColumnReader::Int32ColumnReader(_) => Values::Int32(Vec::new()),
            ColumnReader::Int64ColumnReader(_) => Values::Int64(Vec::new()),
            _ => Values::Text(Vec::new()),
        };
        Rows {
            column,
            reader,
            levels: Vec::new(),
            values,
            texts: Vec::new(),
            of_value: Vec::new(),
            filled: Filled::None,
            of_row: Vec::new(),
        }
    }

    pub(super) fn column(&self) -> Column {
        self.column
    }

    /// Decodes the next `rows` rows in place of those before.
    pub(super) fn fill(
        &mut self,
        rows: usize,
        texts: &mut Texts,
    ) -> std::result::Result<(), String> {
        self.levels.clear();
        self.values.clear();
        let levels = &mut self.levels;
        let read = match (&mut self.reader, &mut self.values) {
            (ColumnReader::BoolColumnReader(from), Values::Bool(to)) => {
                read(from, rows, levels, to)
            }
            (ColumnReader::Int32ColumnReader(from), Values::Int32(to)) => {
                read(from, rows, levels, to)
            }
            (ColumnReader::Int64ColumnReader(from), Values::Int64(to)) => {
                read(from, rows, levels, to)
            }
            (ColumnReader::ByteArrayColumnReader(from), Values::Text(to)) => {
                read(from, rows, levels, to)
            }
            _ => unreachable!("the footer was checked for column {}", self.column.name()),
        };
        if read.map_err(reason)? < rows {
            return Err("its pages hold fewer rows than they say".to_owned());
        }
        self.of_row.clear();
        self.filled = match self.values.len() {
            0 => Filled::None,
            all if all == rows => Filled::All,
            _ => Filled::Some,
        };
        if self.filled == Filled::Some {
            let mut next = 0;
            self.of_row.extend(self.levels.iter().map(|&level| {
                if level == 0 {
                    return NULL;
                }
                next += 1;
                next - 1
            }));
        }
        if let Values::Text(found) = &self.values {
            texts.share(found, &mut self.texts, &mut self.of_value)?;
        }
        Ok(())
    }

    /// Whether any of the rows has a value.
    pub(super) fn is_any(&self) -> bool {
        self.filled != Filled::None
    }

    /// The value of a row; `None` where it is null.
    pub(super) fn get(&self, row: usize) -> Option<Value<'_>> {
        let index = match self.filled {
            Filled::None => return None,
            Filled::All => row,
            Filled::Some => *self.of_row.get(row)? as usize, // `NULL` is the index of no value
        };
        // Numbers may be of the other width where another tool wrote them.
        Some(match &self.values {
            Values::Bool(values) => Value::Bool(*values.get(index)?),
            Values::Text(_) => Value::Text(self.texts.get(*self.of_value.get(index)? as usize)?),
            Values::Int32(values) => match *values.get(index)? {
                number if self.column.column_type() == ColumnType::U32 => {
                    Value::Unsigned(number.cast_unsigned().into())
                }
                number => Value::Signed(number.into()),
            },
            Values::Int64(values) => match *values.get(index)? {
                number if self.column.column_type() == ColumnType::U64 => {
                    Value::Unsigned(number.cast_unsigned())
                }
                number => Value::Signed(number),
            },
        })
    }
}

fn read<T: DataType>(
    from: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<usize> {
    from.read_records(rows, Some(levels), None, values)
        .map(|(rows, ..)| rows)
}

/// The texts that came lately: most come again and again.
#[derive(Default)]
pub(super) struct Texts {
    kept: HashSet<Text>,
    bytes: usize,
}

impl Texts {
    /// Makes texts of what was found, in place of those in `to`; `of_value` gets the index of each value's.
    fn share(
        &mut self,
        found: &[ByteArray],
        to: &mut Vec<Text>,
        of_value: &mut Vec<u32>,
    ) -> std::result::Result<(), String> {
        to.clear();
        of_value.clear();
        // A value of a dictionary that comes again is the same memory: its index in `to`, by its address.
        let mut recent: [Option<(&[u8], u32)>; 64] = [None; 64];
        for bytes in found {
            let bytes = bytes.data();
            let last = &mut recent[(bytes.as_ptr() as usize >> 2) % 64];
            let index = match *last {
                Some((same, index)) if std::ptr::eq(bytes, same) => index,
                _ => {
                    let index = to.len() as u32; // a batch has some thousand rows
                    to.push(self.get(bytes)?);
                    *last = Some((bytes, index));
                    index
                }
            };
            of_value.push(index);
        }
        Ok(())
    }

    fn get(&mut self, bytes: &[u8]) -> std::result::Result<Text, String> {
        if bytes.len() > LONGEST_TEXT {
            let length = bytes.len();
            return Err(format!(
                "a text of {length} bytes; at most {LONGEST_TEXT} are read"
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
