//! A recorded trace as the input of a replay.

use std::fs::File;
use std::path::{Path, PathBuf};

use stopgap_events::machine::Missing;
use stopgap_events::memory::MemoryEvent;
use stopgap_events::trace::{self, Check};
use stopgap_events::workload::Workload;
use stopgap_kernel::signals;
use stopgap_models::placement::operation::Wrong;
use stopgap_models::placement::rung::Events;
use stopgap_models::placement::{Batch, Compiler};
use stopgap_placement::{Direction, Range, Space};
use stopgap_report::text::thousands;

use super::input::{Input, PAGE};
use crate::failure::Failure;
use crate::input_file;
use crate::session::tell;

/// The trace in `path`, read through once: what is wrong with it is said before anything is measured, and
/// how much is live at a time is known.
pub(super) fn input(path: &Path, direction: Direction) -> Result<Input, Failure> {
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

    let mut compiler = Compiler::new(space, direction);
    let (mut batch, mut any, mut measured) = (Batch::default(), false, false);
    loop {
        match compiler.fill(&mut events, &mut batch) {
            Ok(false) => break,
            Ok(true) => {}
            // It ends at the event that came last, whose row tells more than its number.
            Err(error) => {
                return Err(match error.what {
                    Wrong::Unreadable(why) => fail(&why),
                    what => fail(&trace::Error::new(events.input.place(), what.to_string())),
                });
            }
        }
        any |= !batch.operations.is_empty();
        measured |= any && batch.measured;
    }
    if signals::interrupted() {
        return Err(fail(&"interrupted before anything was measured"));
    }
    if !any {
        return Err(fail(&"it has no map, unmap or protection to replay"));
    }
    if !measured {
        return Err(fail(&"all of it is layout, which is not measured"));
    }
    let path: PathBuf = path.to_owned();
    Ok(Input {
        workload: named,
        n: None,
        space,
        live: Some(compiler.slots() as u64),
        missing,
        events: Box::new(move || Ok(Box::new(open(&path)?) as Events)),
    })
}

fn open(path: &Path) -> Result<MemoryEvents, String> {
    let file = input_file::open(path).map_err(|error| error.to_string())?;
    let input = trace::Input::new(file).map_err(|error| error.to_string())?;
    Ok(MemoryEvents {
        input,
        check: Check::new(),
    })
}

/// The memory events of a trace, each checked against those before it, until Ctrl-C: of billions of other
/// events nobody else could be asked between two of them.
struct MemoryEvents {
    input: trace::Input<File>,
    check: Check,
}

impl Iterator for MemoryEvents {
    type Item = Result<MemoryEvent, String>;

    fn next(&mut self) -> Option<Result<MemoryEvent, String>> {
        loop {
            if signals::interrupted() {
                return None;
            }
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
