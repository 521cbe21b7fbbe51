//! Text of other tools: `perf script`, `trace-cmd report`, and the kernel's own file `trace`.
//!
//! ```text
//!   rt 11770 [000] 33758.116660: raw_syscalls:sys_exit: NR 59 = 0                  perf script
//!   rt-13349 [001] 33828.533979: sys_exit:             NR 59 = 0                  trace-cmd report
//!   rt-13349 [001] ..... 33828.533979: sys_exit: NR 59 = 0                        trace
//! ```
//!
//! Events are those that `stopgap record` captures, and mean the same; others are counted in the metadata's `missing`.
//! A text names threads: a process is known where perf or the kernel print it, or where a fork (with
//! `task:task_newtask`) or an exec was seen. Times are on a clock that nobody names. Formats: Linux 2.6.35 to 6.18, the
//! kernel's `TP_printk` of each event, libtraceevent's plug-in for scheduling events.
//!
//! * `header`: what stands before an event's fields. `fields`: `name=value`.
//! * `events`: switches, system calls and requests to disks; the others are those of [`crate::kernel_event`].
//! * `stack_window`: stacks, which come after their events. `context`: names and processes.
//! * `report`: losses, and what was passed over.

mod context;
mod events;
mod fields;
mod header;
mod report;
mod stack_window;

use std::io::{BufRead, Read};

use context::Context;
use header::{Header, Tool};
use report::TextReport;
use stack_window::{Window, ftrace_frame, perf_frame};

use super::{Error, Event, Kind, Metadata, Place, Stack};

/// Longest line that is read.
const LONGEST: u64 = 64 << 10;

/// Bytes of the beginning by which a text is recognised.
pub(super) const HEAD: u64 = 64 << 10;

/// Whether what begins with `head` is such a text: its first line that is no comment begins an event, or is one that
/// only these tools print.
pub(super) fn is_text(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    for line in head.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("# tracer:") || line.starts_with("cpus=") {
            return true;
        }
        if !line.starts_with('#') && !is_preamble(line) {
            let lost = TextReport::default().loss(line);
            return !line.starts_with('{') && (lost || Header::parse(line).is_some());
        }
    }
    false
}

/// Lines of trace-cmd beside events.
fn is_preamble(line: &str) -> bool {
    line.starts_with("cpus=")
        || line.starts_with("version =")
        || (line.starts_with("CPU ") && line.ends_with("is empty"))
        || (line.starts_with("CPU:") && line.ends_with("SUBBUFFER STARTED]"))
}

/// Reads a text to its end for what it says of itself: losses, and what was passed over. What is wrong with it,
/// reading its events says.
pub(super) fn survey(source: impl BufRead) -> Metadata {
    let mut reader = Reader::new(source, Metadata::default());
    reader.by_ref().for_each(drop);
    let Reader {
        report, context, ..
    } = reader;
    report.metadata(&context)
}

/// Reads events of a text. It holds a line, of up to 64 KiB, up to 256 events that wait for a stack, and what is known
/// of threads. An error ends it.
pub struct Reader<R> {
    source: R,
    metadata: Metadata,
    buffer: Vec<u8>,
    line: u64,
    /// The line of the event that came last.
    place: u64,
    window: Window,
    context: Context,
    report: TextReport,
    /// Whether the event before was passed over: a line that is none may belong to it.
    passed: bool,
    /// The end or the error that follows the events before it.
    end: Option<Option<Error>>,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(source: R, metadata: Metadata) -> Reader<R> {
        Reader {
            source,
            metadata,
            buffer: Vec::new(),
            line: 0,
            place: 0,
            window: Window::default(),
            context: Context::default(),
            report: TextReport::default(),
            passed: false,
            end: None,
        }
    }

    /// Returns the text's description of itself, and what of it the reader passes over.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The line of the event that came last, for errors about what it means.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Line(self.place)
    }

    /// Reads a line; whether there was one.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.line += 1;
        self.buffer.clear();
        let wrong = |why: String| Error::new(Place::Line(self.line), why);
        let read = self
            .source
            .by_ref()
            .take(LONGEST + 1)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| wrong(error.to_string()))?;
        if read as u64 > LONGEST {
            return Err(wrong(format!("it has more than {LONGEST} bytes")));
        }
        if read > 0 && !self.buffer.ends_with(b"\n") {
            let why = "it ends without a line feed: the text is cut off";
            return Err(wrong(why.to_owned()));
        }
        Ok(read > 0)
    }

    fn step(&mut self) -> Result<bool, Error> {
        if !self.next_line()? {
            return Ok(false);
        }
        let buffer = std::mem::take(&mut self.buffer);
        let line = String::from_utf8_lossy(&buffer);
        let taken = self.parse_line(line.trim_end());
        self.buffer = buffer;
        let place = Place::Line(self.line);
        taken.map(|()| true).map_err(|why| Error::new(place, why))
    }

    fn parse_line(&mut self, line: &str) -> Result<(), String> {
        let text = line.trim_start();
        if text.is_empty() {
            return Ok(());
        }
        if text.starts_with('#') {
            self.report.comment(text);
            return Ok(());
        }
        if let Some(header) = Header::parse(line) {
            return self.event(&header);
        }
        if text.starts_with("=>") {
            self.window.frame(|| ftrace_frame(text).unwrap_or_default());
            return Ok(());
        }
        if self.window.open
            && let Some(frame) = perf_frame(text)
        {
            self.window.frame(|| frame);
            return Ok(());
        }
        if self.report.loss(text) || is_preamble(text) || self.passed {
            return Ok(());
        }
        let start: String = text.chars().take(60).collect();
        Err(format!(
            "neither an event of perf script or trace-cmd report, nor a stack or a comment: '{start}'"
        ))
    }

    fn event(&mut self, header: &Header<'_>) -> Result<(), String> {
        self.report.header(header);
        if header.event == "kernel_stack" {
            self.window.stack(header.cpu, header.tid);
            self.passed = false;
            return Ok(());
        }
        self.window.header(header.tool, header.cpu);
        self.passed = false;
        self.context.tasks.tid = header.tid;
        if header.tool == Tool::Perf {
            self.window.open = true;
            if let (Some(tid), Some(pid)) = (header.tid, header.pid) {
                self.context.tasks.process(tid, Some(pid));
            }
        }
        let kind = if events::is_sample(header.event) {
            let stack = Stack::new(perf_frame(header.fields).as_deref());
            Some(Kind::Sample { stack })
        } else if header.fields.contains("[FAILED TO PARSE]") {
            self.report.unparsed();
            None
        } else if header.event == "PERF_RECORD_LOST" {
            let count = header.fields.split_ascii_whitespace().nth(1);
            let count = count.and_then(fields::number);
            self.report.lose("perf's buffers".to_owned(), count);
            None
        } else {
            match events::make(header.event, header.fields, &mut self.context) {
                Some(made) => made.map_err(|why| format!("event {}: {why}", header.event))?,
                None => {
                    self.report.skipped(header.event);
                    self.passed = true;
                    None
                }
            }
        };
        let Some(kind) = kind else {
            return Ok(());
        };
        let (pid, comm) = self.context.actor(header);
        self.report.process(pid);
        let event = Event {
            time: header.time,
            cpu: header.cpu,
            pid,
            tid: header.tid,
            comm,
            kind,
        };
        self.window.push(header.tool, event, self.line);
        Ok(())
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some((event, line)) = self.window.pop(self.end.is_some()) {
                self.place = line;
                if matches!(&event.kind, Kind::Sample { stack } if stack.0.is_empty()) {
                    self.report.without_stack();
                    continue;
                }
                return Some(Ok(event));
            }
            if let Some(error) = &mut self.end {
                return error.take().map(Err);
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => self.end = Some(None),
                Err(error) => self.end = Some(Some(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
