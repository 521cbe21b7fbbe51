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
//! | `batch` | events in columns, on their way into the file |
//! | `writer` | row groups out |
//! | `reader` | row groups in, a few thousand rows at a time |
//! | `decoded` | those rows, from which events are taken |
//! | `footer` | the file's own description, checked |
//! | `pages` | a column's pages, checked before anything is allocated |
//! | `values`, `hybrid`, `texts` | the values in them |
//! | `compact` | as much of Thrift as these checks need |
//!
//! The `parquet` crate writes the file and reads the footer. Pages are read and decoded here: it
//! reserves what their headers declare (arrow-rs issue 10734; a file of a kilobyte may declare
//! gigabytes) and panics on some that are corrupt.

mod batch;
mod compact;
mod decoded;
mod footer;
mod hybrid;
mod pages;
mod reader;
mod texts;
mod values;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// The key of the schema's name.
pub const KEY_SCHEMA: &str = "stopgap.schema";
/// The key of [`super::Metadata`] as JSON.
pub const KEY_TRACE: &str = "stopgap.trace";

/// How a Parquet file begins and ends.
pub const MAGIC: [u8; 4] = *b"PAR1";

#[cfg(test)]
mod tests;
