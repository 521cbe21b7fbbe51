use super::texts::Texts;
use super::values::{ColumnValues, Values};
use crate::cell::{Get, Value};
use crate::column::{Column, ColumnType};

/// Some rows, decoded, of which one after the other is looked at.
pub(super) struct Decoded {
    columns: Vec<Values>,
    rows: usize,
    next: usize,
}

impl Decoded {
    pub(super) fn new() -> Decoded {
        Decoded {
            columns: Column::ALL.iter().map(|_| Values::default()).collect(),
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
        from: &mut ColumnValues,
        rows: usize,
        texts: &mut Texts,
    ) -> Result<(), (usize, String)> {
        let values = &mut self.columns[column as usize];
        values.clear();
        from.read(rows, values, texts)
            .map_err(|why| (values.of_row.len(), why))
    }
}

impl Get for Decoded {
    fn get(&self, column: Column) -> Option<Value<'_>> {
        let values = &self.columns[column as usize];
        let &number = values.of_row.get(self.next)?;
        if number == Values::NULL {
            return None;
        }
        let number = number as usize;
        let column_type = column.column_type();
        // Numbers may be of the other width where another tool wrote them.
        match column_type {
            ColumnType::Text => values.texts.get(number).map(Value::Text),
            ColumnType::Bool => values.bools.get(number).copied().map(Value::Bool),
            _ if values.int32s.is_empty() => {
                let &number = values.int64s.get(number)?;
                Some(match column_type {
                    ColumnType::U64 => Value::Unsigned(number.cast_unsigned()),
                    _ => Value::Signed(number),
                })
            }
            _ => {
                let &number = values.int32s.get(number)?;
                Some(match column_type {
                    ColumnType::U32 => Value::Unsigned(u64::from(number.cast_unsigned())),
                    _ => Value::Signed(i64::from(number)),
                })
            }
        }
    }
}
