//! A recorded trace as the input of a replay.

use std::fs::File;
use std::path::{Path, PathBuf};

use stopgap_events::machine::Missing;
use stopgap_events::memory::MemoryEvent;
use stopgap_events::trace::{self, Check};
use stopgap_events::workload::Workload;
use stopgap_models::placement::rung::Events;
use stopgap_placement::{Range, Space};
use stopgap_report::text::thousands;

use super::input::{Input, PAGE};
use crate::failure::Failure;
use crate::session::tell;

/// The trace in `path`, read through once: what is wrong with it is said before anything is measured, and
/// how much is live at a time is known.
pub(super) fn input(path: &Path) -> Result<Input, Failure> {
    let named = path.display().to_string();
    let fail = |why: &dyn std::fmt::Display| Failure::error(format!("{named}: {why}"));
    let mut events = open(path).map_err(|why| fail(&why))?;
    let metadata = events.input.metadata().clone();
    let lost: u64 = metadata
        .losses
        .iter()
        .flatten()
        .map(|loss| loss.count)
        .fold(0, u64::saturating_add);
    let mut missing = Vec::new();
    if lost > 0 {
        let what = format!("{} events", thousands(lost));
        tell(&format!("{named}: {what} were lost when it was recorded"));
        missing.push(Missing::new(what, "lost when the trace was recorded"));
    }
    let window = metadata
        .window
        .unwrap_or_else(|| Workload::Pbobench.window(0, 0, 0));
    let page = metadata.page_size.map_or(PAGE, |page| page.0);
    let space = Space::new(Range::new(window.start, window.end), page).map_err(|why| {
        fail(&format_args!(
            "{why} (window {window}, pages of {page} bytes)"
        ))
    })?;

    let (mut live, mut peak, mut operations) = (0u64, 0, 0u64);
    for event in &mut events {
        match event.map_err(|why| fail(&why))? {
            MemoryEvent::Map { .. } => {
                live += 1;
                peak = peak.max(live);
            }
            MemoryEvent::Unmap { .. } => live -= 1,
            MemoryEvent::Protect { .. } => {}
            MemoryEvent::Touch { .. } | MemoryEvent::Begin(_) => continue,
        }
        operations += 1;
    }
    if operations == 0 {
        return Err(fail(&"it has no map, unmap or protection to replay"));
    }
    let path: PathBuf = path.to_owned();
    Ok(Input {
        workload: named,
        n: None,
        space,
        live: Some(peak),
        missing,
        events: Box::new(move || Ok(Box::new(open(&path)?) as Events)),
    })
}

fn open(path: &Path) -> Result<MemoryEvents, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let input = trace::Input::new(file).map_err(|error| error.to_string())?;
    Ok(MemoryEvents {
        input,
        check: Check::new(),
    })
}

/// The memory events of a trace, each checked against those before it.
struct MemoryEvents {
    input: trace::Input<File>,
    check: Check,
}

impl Iterator for MemoryEvents {
    type Item = Result<MemoryEvent, String>;

    fn next(&mut self) -> Option<Result<MemoryEvent, String>> {
        loop {
            let event = match self.input.next()? {
                Err(error) => return Some(Err(error.to_string())),
                Ok(event) => event,
            };
            let Some(event) = event.kind.memory() else {
                continue;
            };
            let checked = self.check.event(self.input.place(), &event);
            return Some(checked.map(|()| event).map_err(|error| error.to_string()));
        }
    }
}
