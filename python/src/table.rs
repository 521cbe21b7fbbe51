//! Rows as an Arrow table, handed to other libraries without a copy.

use std::ffi::CStr;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, FieldRef, SchemaRef};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};

use crate::call::{guarded, held};

/// The names by which the Arrow PyCapsule interface knows a stream and a schema.
const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// Rows in columns. Any library that knows the Arrow PyCapsule interface takes it without a copy: `pyarrow.table(t)`,
/// `polars.DataFrame(t)`, `duckdb.sql("from t")`.
#[pyclass(frozen, module = "stopgap._stopgap")]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    pub(crate) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Table {
        Table { schema, batches }
    }

    /// The table of `rows`, whose columns their type says, so that a table without rows has them, too.
    pub(crate) fn of_rows<T: Serialize + DeserializeOwned>(rows: &[T]) -> PyResult<Table> {
        let options = TracingOptions::default()
            .enums_without_data_as_strings(true)
            .strings_as_large_utf8(false)
            .sequence_as_large_list(false)
            .map_as_struct(false);
        let wrong = |error: serde_arrow::Error| {
            PyRuntimeError::new_err(format!(
                "rows make no table: {error}; this is a fault of stopgap"
            ))
        };
        let fields = Vec::<FieldRef>::from_type::<T>(options).map_err(wrong)?;
        let batch = serde_arrow::to_record_batch(&fields, &rows).map_err(wrong)?;
        Ok(Table::new(batch.schema(), vec![batch]))
    }
}

#[pymethods]
impl Table {
    /// The names of the columns, in their order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        let fields = self.schema.fields();
        fields.iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The rows from `start` on, `length` at most, as JSON: a list of objects.
    fn json(&self, py: Python<'_>, start: usize, length: usize) -> PyResult<String> {
        guarded(py, || {
            let (mut start, mut left) = (start, length);
            let mut rows: Vec<serde_json::Value> = Vec::new();
            for batch in &self.batches {
                let skipped = start.min(batch.num_rows());
                let count = left.min(batch.num_rows() - skipped);
                start -= skipped;
                left -= count;
                let of_batch: Vec<serde_json::Value> =
                    serde_arrow::from_record_batch(&batch.slice(skipped, count))
                        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
                rows.extend(of_batch);
            }
            Ok(serde_json::Value::Array(rows).to_string())
        })
    }

    /// The Arrow PyCapsule interface. A schema that the consumer would rather have is not looked at, which the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        held(|| {
            let batches: Vec<Result<RecordBatch, ArrowError>> =
                self.batches.iter().cloned().map(Ok).collect();
            let reader = RecordBatchIterator::new(batches, self.schema.clone());
            let stream = FFI_ArrowArrayStream::new(Box::new(reader));
            PyCapsule::new_with_value(py, stream, STREAM)
        })
    }

    /// Hands over the schema without rows.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        held(|| {
            let schema = FFI_ArrowSchema::try_from(&*self.schema)
                .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
            PyCapsule::new_with_value(py, schema, SCHEMA)
        })
    }
}
