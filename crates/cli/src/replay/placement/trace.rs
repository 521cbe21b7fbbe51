//! A recorded trace as the input of a replay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stopgap_events::memory::MemoryEvent;
use stopgap_events::workload::Workload;
use stopgap_kernel::signals;
use stopgap_models::placement::experiment::Events;
use stopgap_models::placement::operation::Wrong;
use stopgap_models::placement::{Batch, Compiler};
use stopgap_placement::{Direction, Range, Space};
use stopgap_trace::Recorded;
use stopgap_tracer::waits::Part;

use super::calls::{self, Calls};
use super::input::{Input, PAGE};
use crate::failure::Failure;
use crate::replay::memory_events::MemoryEvents;
use crate::session::tell;

/// Memory events of a recording that are kept: 100 MiB of them. A longer one is read again each time.
const MOST_KEPT: usize = 1 << 20;
/// A trace of so many operations is long enough for three repetitions.
const LONG: usize = 500_000;

/// Reads the trace in `path` once, so that its errors are reported before anything is measured, and
/// how much is live at a time is known. Where it has system calls that change a memory map, those of one process
/// are what is replayed: of `pid`, or of the only one.
pub(super) fn input(path: &Path, direction: Direction, pid: Option<u32>) -> Result<Input, Failure> {
    let named = path.display().to_string();
    let fail = |why: &dyn std::fmt::Display| Failure::error(format!("{named}: {why}"));
    let calls = Calls::read(path).map_err(|why| fail(&why))?;
    let process = calls.process(pid).map_err(|why| fail(&why))?;
    let mut events = MemoryEvents::open(path).map_err(|why| fail(&why))?;
    let metadata = events.input.metadata().clone();
    let mut missing = events.losses(&named);
    let window = metadata
        .window
        .unwrap_or_else(|| Workload::Pbobench.window(0, 0, 0));
    let page = metadata.page_size.map_or(PAGE, |page| page.0);
    let space = Space::new(Range::new(window.start, window.end), page).map_err(|why| {
        fail(&format_args!(
            "{why} (window {window}, pages of {page} bytes)"
        ))
    })?;

    // That a page's bytes are a power of two, the space has checked.
    let open = move |path: &Path| {
        let events = MemoryEvents::open_quietly(path)?;
        Ok::<_, String>(match process {
            Some(process) => events.of_calls(Recorded::new(process, page)),
            None => events,
        })
    };
    if let Some(process) = process {
        events = open(path).map_err(|why| fail(&why))?;
        calls::tell_which(&named, process, &calls);
    }
    // So that it is read only once; most rows of a recording are of other kinds.
    let mut kept = Some(Vec::new());
    let mut compiler = Compiler::new(space, direction);
    let (mut batch, mut operations, mut measured) = (Batch::default(), 0, false);
    loop {
        let mut seen = events.by_ref().inspect(|event| {
            if let (Some(list), Ok(event)) = (&mut kept, event) {
                list.push(*event);
            }
        });
        match compiler.fill(&mut seen, &mut batch) {
            Ok(false) => break,
            Ok(true) => {}
            // It ends at the event that came last, whose row tells more than its number.
            Err(error) => {
                return Err(match error.what {
                    Wrong::Unreadable(why) => fail(&why),
                    what => fail(&stopgap_trace::Error::new(
                        events.input.place(),
                        what.to_string(),
                    )),
                });
            }
        }
        if kept.as_ref().is_some_and(|list| list.len() > MOST_KEPT) {
            kept = None;
        }
        operations += batch.operations.len();
        measured |= operations > 0 && batch.measured;
    }
    if signals::interrupted() {
        return Err(fail(&"interrupted before anything was measured"));
    }
    let unsaid = events.unsaid();
    if !unsaid.is_empty() {
        let all: Vec<&str> = unsaid.iter().map(|missing| &*missing.what).collect();
        tell(&format!(
            "{named}: not replayed as it was: {}; the record says how",
            all.join("; ")
        ));
    }
    missing.extend(unsaid);
    if operations == 0 {
        let metadata = events.input.metadata();
        let mut lacks = metadata.missing.iter();
        let lacks = lacks.find(|one| one.what == Part::AddressSpace.word());
        let calls = |on: &Vec<String>| on.iter().any(|event| event.ends_with(":sys_exit"));
        let why = match (lacks, &metadata.events) {
            (Some(one), _) => format!(": {}", one.why),
            (None, Some(on)) if !calls(on) => {
                "; it has no system calls: stopgap record --events all takes them".to_owned()
            }
            _ => String::new(),
        };
        let what = "it has no map, unmap or protection to replay";
        return Err(fail(&format!("{what}{why}")));
    }
    if !measured {
        return Err(fail(&"all of it is layout, which is not measured"));
    }
    let path: PathBuf = path.to_owned();
    let kept: Option<Arc<[MemoryEvent]>> = kept.map(Arc::from);
    Ok(Input {
        workload: named,
        n: None,
        space,
        repetitions: if operations > LONG {
            super::REPETITIONS_OF_LONG
        } else {
            super::REPETITIONS
        },
        live: Some(compiler.slots() as u64),
        missing,
        events: Box::new(move || {
            Ok(match &kept {
                Some(kept) => {
                    let kept = Arc::clone(kept);
                    Box::new((0..kept.len()).map(move |index| Ok(kept[index]))) as Events
                }
                None => Box::new(open(&path)?) as Events,
            })
        }),
    })
}
