//! The mappings of a trace as buffers.

use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_events::memory::MemoryEvent;
use stopgap_events::units::Bytes;
use stopgap_kernel::signals;
use stopgap_models::chunks::experiment::Step;
use stopgap_report::text::thousands;

use crate::failure::Failure;
use crate::replay::memory_events::MemoryEvents;
use crate::replay::placement::calls::Calls;

/// More mappings than anybody can wait for, and than need be held.
const MOST_STEPS: usize = 4_000_000;

/// Reads the trace in `path`: a buffer of whole pages of `page` bytes is built where something is mapped, and given
/// back where that is unmapped. None may be larger than `memory` bytes. Also gives the events that were lost in recording.
pub(super) fn read(
    path: &Path,
    page: u64,
    memory: u64,
) -> Result<(Vec<Step>, Vec<Missing>), Failure> {
    let named = path.display().to_string();
    let fail = |why: &dyn std::fmt::Display| Failure::error(format!("{named}: {why}"));
    let mut events = MemoryEvents::open(path).map_err(|why| fail(&why))?;
    let missing = events.losses(&named);
    let mut steps = Vec::new();
    while let Some(event) = events.next() {
        match event.map_err(|why| fail(&why))? {
            MemoryEvent::Map { id, length, .. } => {
                if length.0 > memory {
                    let why = format!(
                        "a mapping of {length} is larger than the modelled memory of {}",
                        Bytes(memory)
                    );
                    return Err(fail(&stopgap_trace::Error::new(events.input.place(), why)));
                }
                let pages = length.0.div_ceil(page);
                steps.push(Step::Build { id: id.0, pages });
            }
            MemoryEvent::Unmap { id } => steps.push(Step::Release { id: id.0 }),
            MemoryEvent::Protect { .. } | MemoryEvent::Touch { .. } | MemoryEvent::Begin(_) => {}
        }
        if steps.len() > MOST_STEPS {
            return Err(fail(&format_args!(
                "more than {} mappings and unmappings: a replay of them would take too long; give a part of it",
                thousands(MOST_STEPS as u64)
            )));
        }
    }
    if signals::interrupted() {
        return Err(fail(&"interrupted before anything was measured"));
    }
    if !steps.iter().any(|step| matches!(step, Step::Build { .. })) {
        return Err(fail(
            &match Calls::read(path).map_err(|why| fail(&why))?.is_empty() {
                true => "it maps nothing, so there is no buffer to build",
                false => {
                    "it has system calls that map, but no memory events, which would be its buffers, so there is none to build; \
                     stopgap replay placement carries out the calls"
                }
            },
        ));
    }
    Ok((steps, missing))
}
