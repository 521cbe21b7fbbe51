use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use super::batch::Batch;
use super::chunk::Encoder;
use super::{KEY_SCHEMA, KEY_TRACE, reason};
use crate::column::{Column, ColumnType};
use crate::{Error, Event, Metadata, Place, SCHEMA};

/// Rows of one row group.
const GROUP_ROWS: u32 = 65_536;
/// Text of one row group at which it is written early (stacks can be long).
const GROUP_TEXT: usize = 32 << 20;

/// Writes a trace file, a row group at a time; between two it holds up to 65,536 events or 32 MiB
/// of their text.
///
/// A file is complete after [`Writer::finish`] and no file before. 2 million memory events a
/// second and core are usual, of 10 bytes each.
pub struct Writer<W: Write + Send> {
    out: SerializedFileWriter<W>,
    batch: Batch,
    encoder: Encoder,
    schema: SchemaDescriptor,
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn new(out: W) -> Result<Writer<W>, Error> {
        let schema = schema()?;
        let out = SerializedFileWriter::new(out, Arc::clone(&schema), Arc::new(properties()));
        let out = out.map_err(failed)?;
        Ok(Writer {
            out,
            batch: Batch::new(),
            encoder: Encoder::new(),
            schema: SchemaDescriptor::new(schema),
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Where writing fails, with the operating system's reason; the file is incomplete then.
    pub fn write(&mut self, event: &Event) -> Result<(), Error> {
        event.put_cells(&mut self.batch);
        self.batch.end_row();
        if self.batch.rows() >= GROUP_ROWS || self.batch.text_bytes() >= GROUP_TEXT {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the rest and the footer, with the trace's description of itself; returns what
    /// was written to.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    pub fn finish(mut self, metadata: &Metadata) -> Result<W, Error> {
        if self.batch.rows() > 0 {
            self.flush()?;
        }
        let text = serde_json::to_string(metadata)
            .map_err(|error| Error::new(Place::File, error.to_string()))?;
        let mut add = |key: &str, value: String| {
            self.out
                .append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        };
        add(KEY_SCHEMA, SCHEMA.to_owned());
        add(KEY_TRACE, text);
        self.out.into_inner().map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut group = self.out.next_row_group().map_err(failed)?;
        for (index, &column) in Column::ALL.iter().enumerate() {
            let chunk = self.encoder.chunk(
                column,
                required(column),
                self.batch.column(column),
                self.batch.rows(),
                &self.schema.column(index),
            );
            chunk
                .and_then(|chunk| group.append_column(&chunk.bytes, chunk.close))
                .map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.batch.clear();
        Ok(())
    }
}

/// The columns of which no cell is null.
pub(super) fn required(column: Column) -> bool {
    matches!(column, Column::TimeNs | Column::Kind)
}

fn schema() -> Result<TypePtr, Error> {
    let field = |&column: &Column| -> Result<TypePtr, ParquetError> {
        let integer = |bits, signed| Some(LogicalType::integer(bits, signed));
        let (physical, logical) = match column.column_type() {
            ColumnType::U32 => (Physical::INT32, integer(32, false)),
            ColumnType::I32 => (Physical::INT32, integer(32, true)),
            ColumnType::U64 => (Physical::INT64, integer(64, false)),
            ColumnType::I64 => (Physical::INT64, integer(64, true)),
            ColumnType::Bool => (Physical::BOOLEAN, None),
            ColumnType::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if required(column) {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let field = Type::primitive_type_builder(column.name(), physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()?;
        Ok(Arc::new(field))
    };
    let fields = Column::ALL.iter().map(field).collect::<Result<Vec<_>, _>>();
    fields
        .and_then(|fields| {
            Type::group_type_builder("trace")
                .with_fields(fields)
                .build()
        })
        .map(Arc::new)
        .map_err(failed)
}

fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_created_by(concat!("stopgap ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_offset_index_disabled(true)
        .build()
}

fn failed(error: ParquetError) -> Error {
    Error::new(Place::File, reason(error))
}
