//! The events of a trace as a table.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Int32Builder, Int64Builder, StringBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use stopgap_cli::Failure;
use stopgap_cli::library::{self, Told};
use stopgap_trace::{Column, ColumnType, Event, Input, Value};

use crate::call::of_command;
use crate::table::Table;

/// Rows of a batch: what is built at a time.
const ROWS: usize = 1 << 16;

/// The events of the trace at `path`, with the columns named, in that order; all of them where none is.
#[pyfunction]
pub(crate) fn read_trace(
    py: Python<'_>,
    path: PathBuf,
    columns: Vec<String>,
) -> PyResult<(Table, Vec<String>)> {
    of_command(py, move || {
        let name = path.display();
        let wrong = |why: &dyn std::fmt::Display| Failure::error(format!("{name}: {why}"));
        let columns = named(&columns)?;
        let file = library::open(&path).map_err(|error| wrong(&error))?;
        let mut events = Input::new(file).map_err(|error| wrong(&error))?;
        let fields = columns
            .iter()
            .map(|&column| Field::new(column.name(), data_type(column), true));
        let schema = SchemaRef::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut batches = Vec::new();
        loop {
            if library::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            let mut batch = Batch::new(&columns);
            for event in events.by_ref().take(ROWS) {
                batch.add(&event.map_err(|error| wrong(&error))?);
            }
            if batch.rows == 0 {
                break;
            }
            let arrays = batch.finish(&columns);
            batches
                .push(RecordBatch::try_new(schema.clone(), arrays).map_err(|error| wrong(&error))?);
        }
        Ok(Told {
            value: Table::new(schema, batches),
            notes: Vec::new(),
        })
    })
}

/// The names of all columns, in the order of the trace file.
#[pyfunction]
pub(crate) fn columns() -> Vec<&'static str> {
    Column::ALL.iter().map(|column| column.name()).collect()
}

/// The columns of these names, each once.
fn named(names: &[String]) -> Result<Vec<Column>, Failure> {
    if names.is_empty() {
        return Ok(Column::ALL.to_vec());
    }
    let mut columns = Vec::new();
    for name in names {
        let column = Column::named(name)
            .ok_or_else(|| Failure::error(format!("columns: a trace has no '{name}'")))?;
        if columns.contains(&column) {
            return Err(Failure::error(format!("columns: '{name}' is named twice")));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn data_type(column: Column) -> DataType {
    match column.column_type() {
        ColumnType::U32 => DataType::UInt32,
        ColumnType::I32 => DataType::Int32,
        ColumnType::U64 => DataType::UInt64,
        ColumnType::I64 => DataType::Int64,
        ColumnType::Bool => DataType::Boolean,
        ColumnType::Text => DataType::Utf8,
    }
}

/// Rows of which columns are made. A column that none of them has takes no memory until it is read.
struct Batch {
    rows: usize,
    /// By the column's number; `None`: it is not asked for.
    columns: Vec<Option<Cells>>,
}

impl Batch {
    fn new(asked: &[Column]) -> Batch {
        let mut columns: Vec<Option<Cells>> = Column::ALL.iter().map(|_| None).collect();
        for &column in asked {
            columns[column as usize] = Some(Cells::None);
        }
        Batch { rows: 0, columns }
    }

    fn add(&mut self, event: &Event) {
        let row = self.rows;
        event.each_cell(&mut |column, value| {
            if let Some(cells) = &mut self.columns[column as usize] {
                cells.put(row, column, value);
            }
        });
        self.rows += 1;
    }

    fn finish(mut self, order: &[Column]) -> Vec<ArrayRef> {
        let mut take = |column: Column| {
            let cells = self.columns[column as usize].take().unwrap_or(Cells::None);
            cells.finish(self.rows, column)
        };
        order.iter().map(|&column| take(column)).collect()
    }
}

/// The cells of a column so far. It ends with the last row that has one.
enum Cells {
    None,
    U32(UInt32Builder),
    I32(Int32Builder),
    U64(UInt64Builder),
    I64(Int64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
}

/// Applies to whichever builder it is.
macro_rules! each {
    ($cells:expr, $none:expr, $builder:ident => $do:expr) => {
        match $cells {
            Cells::None => $none,
            Cells::U32($builder) => $do,
            Cells::I32($builder) => $do,
            Cells::U64($builder) => $do,
            Cells::I64($builder) => $do,
            Cells::Bool($builder) => $do,
            Cells::Text($builder) => $do,
        }
    };
}

impl Cells {
    fn put(&mut self, row: usize, column: Column, value: Value<'_>) {
        if let Cells::None = self {
            *self = match column.column_type() {
                ColumnType::U32 => Cells::U32(UInt32Builder::new()),
                ColumnType::I32 => Cells::I32(Int32Builder::new()),
                ColumnType::U64 => Cells::U64(UInt64Builder::new()),
                ColumnType::I64 => Cells::I64(Int64Builder::new()),
                ColumnType::Bool => Cells::Bool(BooleanBuilder::new()),
                ColumnType::Text => Cells::Text(StringBuilder::new()),
            };
        }
        self.fill(row);
        match (&mut *self, value) {
            // The trace has checked that the number fits its column.
            (Cells::U32(cells), Value::Unsigned(value)) => cells.append_value(value as u32),
            (Cells::I32(cells), Value::Signed(value)) => cells.append_value(value as i32),
            (Cells::U64(cells), Value::Unsigned(value)) => cells.append_value(value),
            (Cells::I64(cells), Value::Signed(value)) => cells.append_value(value),
            (Cells::Bool(cells), Value::Bool(value)) => cells.append_value(value),
            (Cells::Text(cells), value) => cells.append_option(value.text()),
            (cells, _) => each!(cells, (), cells => cells.append_null()),
        }
    }

    /// Adds nulls until there are `rows`.
    fn fill(&mut self, rows: usize) {
        use arrow_array::builder::ArrayBuilder as _;
        each!(self, (), cells => for _ in cells.len()..rows {
            cells.append_null();
        });
    }

    fn finish(mut self, rows: usize, column: Column) -> ArrayRef {
        self.fill(rows);
        each!(self, new_null_array(&data_type(column), rows), mut_cells => {
            let mut cells = mut_cells;
            Arc::new(cells.finish())
        })
    }
}
