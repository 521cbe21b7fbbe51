use parquet::data_type::ByteArray;

use crate::cell::{Put, Text, Value};
use crate::column::{Column, ColumnType};

/// Rows that wait to be written, by column. Nulls take nothing: a column knows its rows.
pub(super) struct Batch {
    columns: Vec<Cells>,
    rows: u32,
    text_bytes: usize,
    texts: Texts,
}

/// Texts that came lately, as Parquet has them: most rows repeat names, calls and stacks of rows before, and to copy each is half
/// of the time that writing takes.
struct Texts(Vec<Option<(Text, ByteArray)>>);

/// A power of two.
const TEXTS: usize = 1024;

impl Texts {
    fn bytes(&mut self, text: &Text) -> ByteArray {
        let slot = (text.as_ptr() as usize >> 4) & (TEXTS - 1);
        if let Some((known, bytes)) = &self.0[slot]
            && std::ptr::eq(&raw const **known, &raw const **text)
        {
            return bytes.clone();
        }
        let bytes = ByteArray::from(text.as_bytes().to_vec());
        self.0[slot] = Some((Text::clone(text), bytes.clone()));
        bytes
    }
}

/// The cells of one column that are not null.
pub(super) struct Cells {
    pub(super) rows: Vec<u32>,
    pub(super) values: Values,
}

/// As Parquet stores them.
pub(super) enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
}

impl Values {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Values::Int32(values) => values.len(),
            Values::Int64(values) => values.len(),
            Values::Bool(values) => values.len(),
            Values::Text(values) => values.len(),
        }
    }

    /// Empties it, and keeps what it has allocated.
    pub(super) fn clear(&mut self) {
        match self {
            Values::Int32(values) => values.clear(),
            Values::Int64(values) => values.clear(),
            Values::Bool(values) => values.clear(),
            Values::Text(values) => values.clear(),
        }
    }
}

impl Batch {
    pub(super) fn new() -> Batch {
        let cells = |column: &Column| Cells {
            rows: Vec::new(),
            values: match column.column_type() {
                ColumnType::U32 | ColumnType::I32 => Values::Int32(Vec::new()),
                ColumnType::U64 | ColumnType::I64 => Values::Int64(Vec::new()),
                ColumnType::Bool => Values::Bool(Vec::new()),
                ColumnType::Text => Values::Text(Vec::new()),
            },
        };
        Batch {
            columns: Column::ALL.iter().map(cells).collect(),
            rows: 0,
            text_bytes: 0,
            texts: Texts(vec![None; TEXTS]),
        }
    }

    /// Rows in it.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    /// Bytes of text in it.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
    }

    pub(super) fn column(&self, column: Column) -> &Cells {
        &self.columns[column as usize]
    }

    /// Empties it, and keeps what it has allocated.
    pub(super) fn clear(&mut self) {
        (self.rows, self.text_bytes) = (0, 0);
        for cells in &mut self.columns {
            cells.rows.clear();
            cells.values.clear();
        }
    }
}

impl Put for Batch {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let cells = &mut self.columns[column as usize];
        match (&mut cells.values, value) {
            (Values::Int32(to), Value::Unsigned(number)) => to.push((number as u32).cast_signed()),
            (Values::Int32(to), Value::Signed(number)) => to.push(number as i32),
            (Values::Int64(to), Value::Unsigned(number)) => to.push(number.cast_signed()),
            (Values::Int64(to), Value::Signed(number)) => to.push(number),
            (Values::Bool(to), Value::Bool(value)) => to.push(value),
            (Values::Text(to), Value::Text(text)) => {
                self.text_bytes += text.len();
                to.push(self.texts.bytes(text));
            }
            (Values::Text(to), Value::Word(word)) => {
                to.push(bytes::Bytes::from_static(word.as_bytes()).into());
            }
            _ => unreachable!("a field of column {} is of another type", column.name()),
        }
        cells.rows.push(self.rows);
    }
}
