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

use std::io::{self, BufWriter, Write};

use stopgap_events::units::Nanos;

use super::{Error, Event, Metadata};
use chrome::Chrome;
use csv::Csv;
use perfetto::Perfetto;
use timeline::Timeline;

/// Where an export goes. No export is generic over it, so that each is compiled once, here.
type Out<'w> = BufWriter<Box<dyn Write + 'w>>;

fn buffered<'w>(out: impl Write + 'w) -> Out<'w> {
    BufWriter::with_capacity(64 << 10, Box::new(out))
}

/// Begins comma-separated values (RFC 4180, lines end in `\n`): a line of the columns' names, then a line an event, with all
/// columns of [`Column::ALL`](crate::Column::ALL); a null is nothing, an empty text `""`.
///
/// # Errors
/// Where writing fails; the operating system's reason.
pub fn csv<'w>(out: impl Write + 'w) -> io::Result<Box<dyn Export + 'w>> {
    Ok(Box::new(Csv::new(out)?))
}

/// Begins JSON in the Trace Event Format, which `chrome://tracing` opens.
///
/// # Errors
/// Where writing fails; the operating system's reason.
pub fn chrome<'w>(out: impl Write + 'w, metadata: &Metadata) -> io::Result<Box<dyn Export + 'w>> {
    Ok(Box::new(Timeline::new(Chrome::new(out, metadata)?)))
}

/// Begins a Perfetto trace, which ui.perfetto.dev opens.
pub fn perfetto<'w>(out: impl Write + 'w, metadata: &Metadata) -> Box<dyn Export + 'w> {
    Box::new(Timeline::new(Perfetto::new(out, metadata)))
}

/// A thread, as a drawing names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Who {
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub pid: Option<u32>,
    /// Its name.
    pub name: String,
}

/// A wait that lost time: who ended it, and who caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Who waited.
    pub thread: Who,
    /// The thread that ended it; `None` where none was seen to.
    pub waker: Option<Who>,
    /// When it was made runnable.
    pub woken: Nanos,
    /// When it ran again.
    pub ran: Nanos,
    /// Parts of the wait that somebody or something else caused, in the order of time.
    pub parts: Vec<LostPart>,
}

/// A part of a wait, and who caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPart {
    /// When it began.
    pub begin: Nanos,
    /// How long it lasted.
    pub ns: u64,
    /// Who caused it; `None` of something outside of all threads.
    pub by: Option<Who>,
    /// What that one did, in words.
    pub text: String,
}

/// Somewhere that events go, one after the other.
pub trait Export {
    /// Takes a wait that lost time, whose events it has or will have. A form that has no arrows draws nothing.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn lost(&mut self, _lost: &Lost) -> Result<(), ExportError> {
        Ok(())
    }

    /// Takes an event.
    ///
    /// # Errors
    /// Where writing fails, with the operating system's reason, or the event is wrong.
    fn write(&mut self, event: Event) -> Result<(), ExportError>;

    /// Writes what is left, and flushes.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn finish(self: Box<Self>) -> Result<(), ExportError>;
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
