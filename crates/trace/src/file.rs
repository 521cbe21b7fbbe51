//! The trace file: Parquet, one row an event, so that DuckDB, pandas and Spark read it as it is.
//!
//! The columns are those of [`super::Column`]; the key-value metadata holds the schema's name
//! (`stopgap.schema`) and what the trace says of itself (`stopgap.trace`, [`super::Metadata`] as
//! JSON). Pages are compressed with snappy. A reader also takes files that another tool wrote or
//! filtered, with these columns or some of them: PLAIN or dictionary encoding, snappy or no
//! compression; further columns are ignored, and without `stopgap.schema` the version is taken to
//! be this one.
//!
//! | module | what |
//! |---|---|
//! | `writer`, `batch`, `chunk` | row groups out, from events in columns, each encoded |
//! | `reader` | row groups in, some 500 rows at a time; columns here or in another thread |
//! | `footer` | the file's own description, checked |
//! | `pages` | a column's pages, checked before anything is allocated for them |
//! | `rows`, `hybrid` | rows of a column, decoded |
//! | `compact` | as much of Thrift as these checks need |
//!
//! The `parquet` crate writes the file around the columns, and reads the footer and the headers of pages.

mod batch;
mod chunk;
mod compact;
mod footer;
mod hybrid;
mod pages;
mod reader;
mod rows;
mod texts;
mod writer;

use parquet::errors::ParquetError;

pub use reader::{Ahead, Batch, Columns, Reader};
pub use writer::Writer;

/// The key of the schema's name.
pub const KEY_SCHEMA: &str = "stopgap.schema";
/// The key of [`super::Metadata`] as JSON.
pub const KEY_TRACE: &str = "stopgap.trace";

/// How a Parquet file begins and ends.
pub const MAGIC: [u8; 4] = *b"PAR1";

/// Returns the reason in an error of the library, without its prefix.
fn reason(error: ParquetError) -> String {
    match error {
        ParquetError::External(inner) => inner.to_string(),
        ParquetError::General(why) | ParquetError::EOF(why) => why,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
