use std::collections::HashMap;

use crate::cell::{Put, Text, Value};
use crate::column::{Column, ColumnType};

/// Rows that wait to be written, by column. Nulls take nothing: a column knows its rows.
pub(super) struct Batch {
    columns: Vec<Cells>,
    rows: u32,
    text_bytes: usize,
}

/// The cells of one column that are not null.
pub(super) struct Cells {
    /// A bit for each row, the first in the lowest bit: whether it is not null. What is beyond is null.
    pub(super) filled: Vec<u8>,
    pub(super) held: Held,
}

impl Cells {
    /// How many are not null.
    pub(super) fn count(&self) -> usize {
        match &self.held {
            Held::Int32(values) => values.len(),
            Held::Int64(values) => values.len(),
            Held::Bool(values) => values.len(),
            Held::Text(texts) => texts.places.len(),
        }
    }

    #[inline(always)]
    fn fills(&mut self, row: u32) {
        let (at, bit) = ((row / 8) as usize, 1 << (row % 8));
        match self.filled.get_mut(at) {
            Some(rows) => *rows |= bit,
            None => self.grows(at, bit),
        }
    }

    #[cold]
    fn grows(&mut self, at: usize, bits: u8) {
        let room = (at + 1).next_multiple_of(GROWS);
        self.filled.resize(room, 0);
        self.filled[at] |= bits;
    }
}

/// Bytes by which the bits of a column grow.
const GROWS: usize = 1 << 10;

/// Values that wait to be written.
pub(super) enum Held {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Bool(Vec<bool>),
    Text(Texts),
}

/// Texts of a column. Most rows repeat names, calls and stacks of rows before, and share their memory: then a text's place is
/// found by its address.
#[derive(Default)]
pub(super) struct Texts {
    pub(super) dictionary: Vec<Text>,
    /// For each cell, where in the dictionary its text is.
    pub(super) places: Vec<u32>,
    known: HashMap<Text, u32>,
    /// What came lately, by its address.
    recent: Vec<Option<(Text, u32)>>,
    words: Vec<Option<(&'static str, u32)>>,
}

/// A power of two.
const RECENT: usize = 256;
const WORDS: usize = 32;

impl Texts {
    fn put(&mut self, text: &Text) {
        if self.recent.is_empty() {
            self.recent.resize(RECENT, None);
        }
        let slot = (text.as_ptr() as usize >> 4) & (RECENT - 1);
        let place = match &self.recent[slot] {
            Some((known, place)) if std::ptr::eq(&raw const **known, &raw const **text) => *place,
            _ => {
                let place = self.place(text);
                self.recent[slot] = Some((Text::clone(text), place));
                place
            }
        };
        self.places.push(place);
    }

    fn put_word(&mut self, word: &'static str) {
        if self.words.is_empty() {
            self.words.resize(WORDS, None);
        }
        let slot = (word.as_ptr() as usize ^ word.len()) & (WORDS - 1);
        let place = match self.words[slot] {
            Some((known, place)) if std::ptr::eq(known, word) => place,
            _ => {
                let place = self.place(&Text::from(word));
                self.words[slot] = Some((word, place));
                place
            }
        };
        self.places.push(place);
    }

    fn place(&mut self, text: &Text) -> u32 {
        if let Some(&place) = self.known.get(text) {
            return place;
        }
        let place = self.dictionary.len() as u32;
        self.dictionary.push(Text::clone(text));
        self.known.insert(Text::clone(text), place);
        place
    }

    fn clear(&mut self) {
        self.dictionary.clear();
        self.places.clear();
        self.known.clear();
        self.recent.clear();
        self.words.clear();
    }
}

impl Batch {
    pub(super) fn new() -> Batch {
        let cells = |column: &Column| Cells {
            filled: Vec::new(),
            held: match column.column_type() {
                ColumnType::U32 | ColumnType::I32 => Held::Int32(Vec::new()),
                ColumnType::U64 | ColumnType::I64 => Held::Int64(Vec::new()),
                ColumnType::Bool => Held::Bool(Vec::new()),
                ColumnType::Text => Held::Text(Texts::default()),
            },
        };
        Batch {
            columns: Column::ALL.iter().map(cells).collect(),
            rows: 0,
            text_bytes: 0,
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
            cells.filled.clear();
            match &mut cells.held {
                Held::Int32(values) => values.clear(),
                Held::Int64(values) => values.clear(),
                Held::Bool(values) => values.clear(),
                Held::Text(texts) => texts.clear(),
            }
        }
    }
}

impl Put for Batch {
    // Where the column and the kind of the value are known, little is left of this.
    #[inline(always)]
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        let cells = &mut self.columns[column as usize];
        match (&mut cells.held, value) {
            (Held::Int32(to), Value::Unsigned(number)) => to.push((number as u32).cast_signed()),
            (Held::Int32(to), Value::Signed(number)) => to.push(number as i32),
            (Held::Int64(to), Value::Unsigned(number)) => to.push(number.cast_signed()),
            (Held::Int64(to), Value::Signed(number)) => to.push(number),
            (Held::Bool(to), Value::Bool(value)) => to.push(value),
            (Held::Text(to), Value::Text(text)) => {
                self.text_bytes += text.len();
                to.put(text);
            }
            (Held::Text(to), Value::Word(word)) => to.put_word(word),
            _ => unreachable!("a field of column {} is of another type", column.name()),
        }
        cells.fills(self.rows);
    }
}
