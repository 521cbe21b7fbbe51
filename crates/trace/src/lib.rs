//! Traces: what happened on a machine, event by event, of every kind.
//!
//! * [`Event`] and [`Kind`]: what a trace consists of. Memory events ([`stopgap_events::memory`]) are one
//!   kind, so a workload is a trace and a recorded program can be replayed.
//! * [`Column`] and [`KINDS`]: the columns of a file; a test holds
//!   `docs/schema/stopgap.trace-2.md` against them.
//! * [`Check`]: whether a trace's memory events make sense together.
//! * [`AddressSpaces`]: what each process has mapped, by its system calls.
//! * [`Recorded`]: what a recorded program asked of its memory map, as memory events.
//! * [`file`]: the Parquet file, one row an event.
//! * [`lines`]: JSON lines, one event a line, with the same names; the form for what other tools
//!   recorded.
//! * [`kernel_event`]: what the fields of the kernel's events mean, for records and texts alike.
//! * [`text`]: what `perf script`, `trace-cmd report` and the kernel print.
//! * [`Waits`]: waits made of switches and wake-ups.
//! * [`trace_id`]: what a trace is known by, made from its content.
//! * [`Input`]: any of them, whichever it is.
//! * [`Anonymous`]: a trace without names, to be given away.
//! * [`export`]: the forms of other tools, to look at.
//!
//! Readers take nothing on trust: what is wrong is an [`Error`] with its row or line and a reason.

mod address_space;
mod anonymous;
mod cell;
mod check;
mod column;
mod error;
pub mod export;
pub mod file;
mod identity;
mod input;
pub mod kernel_event;
mod kind;
pub mod lines;
mod memory;
mod metadata;
mod recorded;
mod row;
pub mod text;
mod waits;

pub use address_space::{AddressSpace, AddressSpaces, HEAP_END, Holes};
pub use anonymous::Anonymous;
pub use cell::{Text, Value};
pub use check::Check;
pub use column::{Column, ColumnType};
pub use error::{Error, Place};
pub use identity::trace_id;
pub use input::{Input, is_trace};
pub use kind::{KINDS, Kind, Reclaimer, Stack};
pub use metadata::{Clock, Conditions, Loss, Machine, MappedFile, Metadata, NOBODY};
pub use recorded::Recorded;
pub use row::{Activity, Moment, Span, TaskCounts};
pub use waits::Waits;

use cell::{Cell, Get, Put, Wrong};

use stopgap_events::memory::MemoryEvent;
use stopgap_events::units::Nanos;

/// The version of the columns and the metadata, as files name it. What is added within a version
/// is ignored by readers that do not know it.
pub const SCHEMA: &str = "stopgap.trace/2";
/// The version before, which is read too. It has no waits: it has the switches and wake-ups of which they are made.
const SCHEMA_BEFORE: &str = "stopgap.trace/1";

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, on the clock that the trace's [`Metadata`] names.
    pub time: Nanos,
    /// On which CPU.
    pub cpu: Option<u32>,
    /// In which process (thread group).
    pub pid: Option<u32>,
    /// In which thread; of a switch the one that leaves.
    pub tid: Option<u32>,
    /// That thread's name.
    pub comm: Option<Text>,
    /// What.
    pub kind: Kind,
}

impl Event {
    /// The `index`-th event of a workload, in which nothing has a time: its number is its time
    /// ([`Clock::Order`]).
    #[must_use]
    pub fn of_workload(index: u64, event: MemoryEvent) -> Event {
        Event {
            time: Nanos(index),
            cpu: None,
            pid: None,
            tid: None,
            comm: None,
            kind: Kind::from(event),
        }
    }

    /// Calls `take` with each column that is not null and its value: the row of the trace file.
    pub fn each_cell(&self, take: &mut dyn FnMut(Column, Value<'_>)) {
        struct Each<'t>(&'t mut dyn FnMut(Column, Value<'_>));
        impl Put for Each<'_> {
            fn put_cell(&mut self, column: Column, value: Value<'_>) {
                (self.0)(column, value);
            }
        }
        self.put_cells(&mut (&mut Each(take) as &mut dyn Put));
    }

    fn put_cells(&self, to: &mut impl Put) {
        self.time.put_cells(&[Column::TimeNs], to);
        to.put_cell(Column::Kind, Value::Word(self.kind.word()));
        self.cpu.put_cells(&[Column::Cpu], to);
        self.pid.put_cells(&[Column::Pid], to);
        self.tid.put_cells(&[Column::Tid], to);
        self.comm.put_cells(&[Column::Comm], to);
        self.kind.put_cells(to);
    }

    fn from_cells(from: &impl Get) -> Result<Event, Wrong> {
        let kind = from.get(Column::Kind);
        let kind = kind.ok_or_else(|| Wrong::missing(Column::Kind))?;
        let Some(kind) = kind.text() else {
            return Err(Wrong::no_text(Column::Kind));
        };
        Ok(Event {
            time: Cell::from_cells(&[Column::TimeNs], from)?,
            cpu: Cell::from_cells(&[Column::Cpu], from)?,
            pid: Cell::from_cells(&[Column::Pid], from)?,
            tid: Cell::from_cells(&[Column::Tid], from)?,
            comm: Cell::from_cells(&[Column::Comm], from)?,
            kind: Kind::from_cells(kind, from)?,
        })
    }
}

#[cfg(test)]
mod tests;
