//! Between a field of an event and its column.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use super::column::Column;
use stopgap_events::memory::{MapId, Merge, Phase, Protection};
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos, Pages};

/// A short text that many events share; by one thread, because a wait shares ten and atomic counts would be half of what decoding it costs.
pub type Text = Rc<str>;

/// The value of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A number of a column without negative ones.
    Unsigned(u64),
    /// A number of a column that may have negative ones.
    Signed(i64),
    /// True or false.
    Bool(bool),
    /// A text of the trace.
    Text(&'a Text),
    /// A word of the schema.
    Word(&'static str),
}

impl<'a> Value<'a> {
    /// Returns the text of a cell that holds one.
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Where an event's cells go. A cell that is not put is null.
pub(super) trait Put {
    /// Puts `value` into `column`, at most once an event.
    fn put_cell(&mut self, column: Column, value: Value<'_>);
}

/// Only the trace file has the code for all kinds compiled for itself. Slower forms share one copy: 50 KB each.
impl Put for &mut dyn Put {
    fn put_cell(&mut self, column: Column, value: Value<'_>) {
        (**self).put_cell(column, value);
    }
}

/// Where an event's cells come from. The value is of the column's type.
pub(super) trait Get {
    /// The cell; `None` where it is null.
    fn get(&self, column: Column) -> Option<Value<'_>>;

    /// Whether the cell is not null.
    fn has(&self, column: Column) -> bool {
        self.get(column).is_some()
    }
}

/// As `Put`.
impl Get for &dyn Get {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        (**self).get(column)
    }

    fn has(&self, column: Column) -> bool {
        (**self).has(column)
    }
}

/// Why cells make no event: a line without the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong(pub(super) String);

// Out of the way: what is decoded of each row has no room for them.
impl Wrong {
    #[cold]
    fn in_column(column: Column, why: impl fmt::Display) -> Wrong {
        Wrong(format!("column {}: {why}", column.name()))
    }

    #[cold]
    pub(super) fn missing(column: Column) -> Wrong {
        Wrong(format!("column {} is null", column.name()))
    }

    #[cold]
    pub(super) fn no_text(column: Column) -> Wrong {
        Wrong::in_column(column, "it holds no text")
    }

    #[cold]
    fn no_number(column: Column) -> Wrong {
        Wrong::in_column(column, "it holds no number")
    }

    #[cold]
    fn no_bool(column: Column) -> Wrong {
        Wrong::in_column(column, "it is neither true nor false")
    }

    #[cold]
    fn negative(column: Column, number: i64) -> Wrong {
        Wrong::in_column(column, format!("{number} is negative"))
    }

    #[cold]
    fn more_than_signed(column: Column, number: u64) -> Wrong {
        Wrong::in_column(column, format!("{number} is more than it holds"))
    }

    #[cold]
    fn wide(column: Column, number: i128) -> Wrong {
        Wrong::in_column(column, format!("{number} does not fit into 32 bits"))
    }
}

/// Something that stands in one column or several.
pub(super) trait Cell: Sized {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put);
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Self, Wrong>;
}

/// Something that stands in one column.
pub(super) trait Scalar: Sized {
    fn value(&self) -> Value<'_>;
    fn from_value(column: Column, value: Value<'_>) -> Result<Self, Wrong>;
}

impl<T: Scalar> Cell for T {
    // Where the column is known, little is left of this.
    #[inline(always)]
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        to.put_cell(columns[0], self.value());
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<T, Wrong> {
        let value = from.get(columns[0]);
        T::from_value(columns[0], value.ok_or_else(|| Wrong::missing(columns[0]))?)
    }
}

impl<T: Scalar> Cell for Option<T> {
    #[inline(always)]
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        if let Some(value) = self {
            to.put_cell(columns[0], value.value());
        }
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<T>, Wrong> {
        let value = from.get(columns[0]);
        value
            .map(|value| T::from_value(columns[0], value))
            .transpose()
    }
}

impl<const N: usize> Cell for [Option<u64>; N] {
    #[inline(always)]
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        for (value, &column) in self.iter().zip(columns) {
            value.put_cells(&[column], to);
        }
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<[Option<u64>; N], Wrong> {
        let mut all = [None; N];
        for (value, &column) in all.iter_mut().zip(columns) {
            *value = Cell::from_cells(&[column], from)?;
        }
        Ok(all)
    }
}

/// A start and an end, or a start and a length.
impl Cell for Option<AddressRange> {
    fn put_cells(&self, columns: &[Column], to: &mut impl Put) {
        let Some(range) = self else { return };
        range.start.put_cells(&columns[..1], to);
        if columns[1] == Column::LengthBytes {
            range.length().put_cells(&columns[1..], to);
        } else {
            range.end.put_cells(&columns[1..], to);
        }
    }
    #[inline(always)]
    fn from_cells(columns: &[Column], from: &impl Get) -> Result<Option<AddressRange>, Wrong> {
        let Some(start) = Cell::from_cells(&columns[..1], from)? else {
            return Ok(None);
        };
        let second: u64 = Cell::from_cells(&columns[1..], from)?;
        let range = if columns[1] == Column::LengthBytes {
            AddressRange::new(start, Bytes(second)).ok_or("it leaves the address space")
        } else if start <= second {
            Ok(AddressRange { start, end: second })
        } else {
            Err("its ends are crossed")
        };
        let range = range.map_err(|why| {
            let (a, b) = (columns[0].name(), columns[1].name());
            Wrong(format!(
                "range of {a} {start:#x} and {b} {second:#x}: {why}"
            ))
        })?;
        Ok(Some(range))
    }
}

/// Which unsigned number a value of the column is; only a reader's fault could give another.
#[inline(always)]
fn unsigned(column: Column, value: Value<'_>) -> Result<u64, Wrong> {
    match value {
        Value::Unsigned(number) => Ok(number),
        Value::Signed(number) => u64::try_from(number).map_err(|_| Wrong::negative(column, number)),
        _ => Err(Wrong::no_number(column)),
    }
}

#[inline(always)]
fn signed(column: Column, value: Value<'_>) -> Result<i64, Wrong> {
    match value {
        Value::Signed(number) => Ok(number),
        Value::Unsigned(number) => {
            i64::try_from(number).map_err(|_| Wrong::more_than_signed(column, number))
        }
        _ => Err(Wrong::no_number(column)),
    }
}

macro_rules! numbers {
    ($($type:ty, $variant:ident, $wide:ty, $read:ident;)+) => {$(
        impl Scalar for $type {
            fn value(&self) -> Value<'_> {
                Value::$variant(<$wide>::from(*self))
            }
            #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<$type, Wrong> {
                let number = $read(column, value)?;
                <$type>::try_from(number).map_err(|_| Wrong::wide(column, number.into()))
            }
        }
    )+};
}

numbers! {
    u32, Unsigned, u64, unsigned;
    i32, Signed, i64, signed;
}

impl Scalar for u64 {
    fn value(&self) -> Value<'_> {
        Value::Unsigned(*self)
    }
    #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<u64, Wrong> {
        unsigned(column, value)
    }
}

impl Scalar for i64 {
    fn value(&self) -> Value<'_> {
        Value::Signed(*self)
    }
    #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<i64, Wrong> {
        signed(column, value)
    }
}

macro_rules! wrapped {
    ($($type:ident)+) => {$(
        impl Scalar for $type {
            fn value(&self) -> Value<'_> {
                self.0.value()
            }
            #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<$type, Wrong> {
                Scalar::from_value(column, value).map($type)
            }
        }
    )+};
}

wrapped!(Bytes Nanos Pages MapId);

impl Scalar for bool {
    fn value(&self) -> Value<'_> {
        Value::Bool(*self)
    }
    #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<bool, Wrong> {
        match value {
            Value::Bool(value) => Ok(value),
            _ => Err(Wrong::no_bool(column)),
        }
    }
}

impl Scalar for Text {
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
    #[inline(always)]
    fn from_value(column: Column, value: Value<'_>) -> Result<Text, Wrong> {
        match value {
            Value::Text(text) => Ok(Text::clone(text)),
            Value::Word(word) => Ok(Text::from(word)),
            _ => Err(Wrong::no_text(column)),
        }
    }
}

/// The word in a cell.
pub(super) fn word<T: FromStr<Err = String>>(column: Column, value: Value<'_>) -> Result<T, Wrong> {
    let text = value.text().ok_or_else(|| Wrong::no_text(column))?;
    text.parse().map_err(|why| Wrong::in_column(column, why))
}

macro_rules! word_cells {
    ($($type:ty)+) => {$(
        impl $crate::cell::Scalar for $type {
            fn value(&self) -> $crate::cell::Value<'_> {
                $crate::cell::Value::Word(self.word())
            }
            fn from_value(
                column: $crate::column::Column,
                value: $crate::cell::Value<'_>,
            ) -> Result<$type, $crate::cell::Wrong> {
                $crate::cell::word(column, value)
            }
        }
    )+};
}
pub(super) use word_cells;

word_cells!(Protection Merge Phase);
