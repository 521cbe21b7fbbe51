//! The memory events of a trace file, or what its system calls say of a memory map.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::memory::MemoryEvent;
use stopgap_kernel::signals;
use stopgap_report::text::thousands;
use stopgap_trace::{Check, Recorded};

use crate::input_file;
use crate::session::tell;

/// The memory events of a trace, each checked against those before it, until Ctrl-C: of billions of other
/// events nobody else could be asked between two of them.
pub(super) struct MemoryEvents {
    pub(super) input: stopgap_trace::Input<input_file::Trace>,
    check: Check,
    /// Turns calls into memory events, where the trace has no memory events of its own.
    recorded: Option<Recorded>,
    /// Result of the call that was read last.
    waiting: VecDeque<MemoryEvent>,
}

impl MemoryEvents {
    /// Opens the trace in `path` and reads its head; a bar shows how far its events are read.
    pub(super) fn open(path: &Path) -> Result<MemoryEvents, String> {
        MemoryEvents::from_trace(input_file::trace(path))
    }

    /// The same without a bar, where another one is shown.
    pub(super) fn open_quietly(path: &Path) -> Result<MemoryEvents, String> {
        MemoryEvents::from_trace(input_file::quiet_trace(path))
    }

    fn from_trace(file: io::Result<input_file::Trace>) -> Result<MemoryEvents, String> {
        let file = file.map_err(|error| error.to_string())?;
        let input =
            stopgap_trace::Input::new(file).map_err(|error| match signals::interrupted() {
                true => "interrupted before anything was measured".to_owned(),
                false => error.to_string(),
            })?;
        Ok(MemoryEvents {
            input,
            check: Check::new(),
            recorded: None,
            waiting: VecDeque::new(),
        })
    }

    /// Every event of the trace, until Ctrl-C.
    pub(super) fn every(
        self,
    ) -> impl Iterator<Item = Result<stopgap_trace::Event, stopgap_trace::Error>> {
        self.input.take_while(|_| !signals::interrupted())
    }

    /// Takes them from the calls of a process instead.
    pub(super) fn of_calls(mut self, recorded: Recorded) -> MemoryEvents {
        self.recorded = Some(recorded);
        self
    }

    /// Returns effects of the calls so far that memory events cannot express.
    pub(super) fn unsaid(&self) -> Vec<Missing> {
        self.recorded
            .as_ref()
            .map_or_else(Vec::new, Recorded::missing)
    }

    /// Returns the events lost in recording, for the record, and warns of them at once. `named` is the file.
    pub(super) fn losses(&self, named: &str) -> Vec<Missing> {
        let losses = self.input.metadata().losses.iter().flatten();
        let lost = losses.map(|loss| loss.count).fold(0, u64::saturating_add);
        if lost == 0 {
            return Vec::new();
        }
        let what = format!("{} events", thousands(lost));
        tell(&format!("{named}: {what} were lost when it was recorded"));
        vec![Missing::new(what, "lost when the trace was recorded")]
    }

    fn checked(&mut self, event: MemoryEvent) -> Result<MemoryEvent, String> {
        let checked = self.check.event(self.input.place(), &event);
        checked.map(|()| event).map_err(|error| error.to_string())
    }
}

impl Iterator for MemoryEvents {
    type Item = Result<MemoryEvent, String>;

    fn next(&mut self) -> Option<Result<MemoryEvent, String>> {
        loop {
            if signals::interrupted() {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(self.checked(event));
            }
            let event = match self.input.next()? {
                Err(_) if signals::interrupted() => return None,
                Err(error) => return Some(Err(error.to_string())),
                Ok(event) => event,
            };
            if let Some(recorded) = &mut self.recorded {
                recorded.event(&event, &mut self.waiting);
            } else if let Some(event) = event.kind.memory() {
                return Some(self.checked(event));
            }
        }
    }
}
