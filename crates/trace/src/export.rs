//! A trace in the forms of other tools, to look at or to calculate with.
//!
//! | module | what |
//! |---|---|
//! | `csv` | every column of every event, one row an event |
//! | `timeline` | what a drawing shows: slices, points, counters on tracks, in order of time |
//! | `chrome` | that as JSON in the Trace Event Format |
//! | `perfetto` | that as a Perfetto trace, scheduling and samples in its own messages |
//!
//! All are written as the events come: what is held is a window of events in which they are put in
//! order, the slices that are open, and names. None can be read back here: the trace file and JSON
//! lines are for that.

mod chrome;
mod csv;
mod perfetto;
mod timeline;

pub use chrome::Chrome;
pub use csv::Csv;
pub use perfetto::Perfetto;
pub use timeline::Timeline;

use std::io;

use super::{Error, Event};

/// Somewhere that events go, one after the other.
pub trait Export {
    /// Takes an event.
    ///
    /// # Errors
    /// Where writing fails, with the operating system's reason, or the event is wrong.
    fn write(&mut self, event: Event) -> Result<(), ExportError>;

    /// Writes what is left, and flushes.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn finish(self) -> Result<(), ExportError>;
}

/// Why an export ends early.
#[derive(Debug)]
pub enum ExportError {
    /// The events make no such picture.
    Trace(Error),
    /// They cannot be written.
    Write(io::Error),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> ExportError {
        ExportError::Write(error)
    }
}

#[cfg(test)]
mod tests;
