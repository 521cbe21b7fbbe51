//! A trace as lanes, slices and points, for every file format that draws them.

mod name;
mod order;
mod runs;
mod slices;

use super::{Export, ExportError, Lost};
use crate::{Activity, Event, Text};
use order::InOrder;
pub(super) use runs::{Run, Runs};
use slices::Slices;
use stopgap_events::units::Nanos;

/// Where something is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// A thread's lane. Its process is the one that the trace named last.
    Thread {
        /// Its process.
        pid: Option<u32>,
        /// Which.
        tid: u32,
    },
    /// An activity of a thread that is known at its end only, so that it cannot nest in what the thread does.
    Span {
        /// Which thread; `None`: unknown.
        tid: Option<u32>,
        /// Which activity.
        what: Activity,
        /// Which of those that the thread is in at the same time, from 0.
        lane: u32,
    },
    /// Requests that a block device has, of which none overlap.
    Device {
        /// Which device, `major:minor`.
        device: Text,
        /// Which of those that it has at the same time, from 0.
        lane: u32,
    },
    /// A counter.
    Counter {
        /// The process that it counts for; `None`: the machine.
        pid: Option<u32>,
        /// The counter's name.
        name: Text,
    },
    /// Events of no known thread.
    Machine,
}

/// One thing to draw. On one track times do not go back, and slices nest: each that begins ends, the
/// last first.
#[derive(Debug)]
pub(super) struct Step<'a> {
    /// When.
    pub time: Nanos,
    /// Where.
    pub track: Track,
    /// What.
    pub what: What,
    /// Whose fields are its arguments; `None` where a slice is closed for want of an end.
    pub event: Option<&'a Event>,
}

/// The slice, point or value to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A slice begins.
    Begin(Label),
    /// The slice that began last on its track ends.
    End,
    /// Something without a length.
    Point(Label),
    /// A counter's new value.
    Count(i64),
}

/// The text on a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    /// Its name.
    pub name: String,
    /// One of few words by which a viewer chooses.
    pub category: &'static str,
}

/// A file of a drawing.
pub(super) trait Form {
    /// Draws.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn step(&mut self, step: &Step<'_>) -> std::io::Result<()>;

    /// Draws a wait or a sample, of which every form has its own way; and hears of
    /// every other, before its steps. `track` is the one of its thread.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn event(&mut self, event: &Event, track: &Track) -> std::io::Result<()>;

    /// Draws who ended a wait that lost time, and who caused it; nothing, where the form has no arrows.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn lost(&mut self, _lost: &Lost) -> std::io::Result<()> {
        Ok(())
    }

    /// Nothing comes after `end`, the time of the last event.
    ///
    /// # Errors
    /// Where writing fails; the operating system's reason.
    fn finish(self, end: Nanos) -> std::io::Result<()>;
}

/// Draws events in a [`Form`].
///
/// Events may come out of order by as much as 65,536 of them; more is an error. A system call without an
/// end is closed where its thread ends or calls again, or with the trace; an end without a beginning is a point.
pub(super) struct Timeline<F> {
    form: F,
    order: InOrder,
    slices: Slices,
    end: Nanos,
}

impl<F: Form> Timeline<F> {
    /// Nothing is drawn yet.
    pub(super) fn new(form: F) -> Timeline<F> {
        Timeline {
            form,
            order: InOrder::new(),
            slices: Slices::default(),
            end: Nanos(0),
        }
    }

    fn draw(&mut self, event: &Event) -> std::io::Result<()> {
        self.end = event.time;
        let track = self.slices.track(event);
        self.form.event(event, &track)?;
        for step in self.slices.steps_of(event, track) {
            self.form.step(&step)?;
        }
        Ok(())
    }
}

impl<F: Form> Export for Timeline<F> {
    fn write(&mut self, event: Event) -> Result<(), ExportError> {
        match self.order.push(event).map_err(ExportError::Trace)? {
            Some(first) => Ok(self.draw(&first)?),
            None => Ok(()),
        }
    }

    fn lost(&mut self, lost: &Lost) -> Result<(), ExportError> {
        Ok(self.form.lost(lost)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), ExportError> {
        while let Some(event) = self.order.pop() {
            self.draw(&event)?;
        }
        for step in self.slices.close_all(self.end) {
            self.form.step(&step)?;
        }
        Ok(self.form.finish(self.end)?)
    }
}
