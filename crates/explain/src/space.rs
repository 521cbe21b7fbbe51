//! What each process has mapped, by its system calls: how many mappings over time, and the holes at the end.

use std::collections::BTreeMap;

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;
use stopgap_stats::explain::{AddressSpace, Holes, Live};
use stopgap_trace::{AddressSpaces, Event, Kind, Recorded, Text};

use crate::memory::Followed;

/// Bytes of a page where the trace does not say.
const PAGE: Bytes = Bytes::kib(4);

/// Processes that the record has.
const TOLD: usize = 5;

/// Follows the address spaces of a trace. Memory: about 100 bytes a mapping, and a curve a process.
pub(crate) struct Spaces {
    all: AddressSpaces,
    processes: BTreeMap<Option<u32>, Process>,
}

#[derive(Default)]
struct Process {
    task: Option<Text>,
    calls: u64,
    live: Followed,
    /// The mappings at its end, where it has ended.
    end: Option<Mapped>,
}

#[derive(Clone, Copy)]
struct Mapped {
    mappings: u64,
    bytes: u64,
    holes: Option<stopgap_trace::Holes>,
}

impl Mapped {
    fn from_space(space: &stopgap_trace::AddressSpace) -> Mapped {
        Mapped {
            mappings: space.mappings(),
            bytes: space.bytes().0,
            holes: space.holes(),
        }
    }
}

impl Spaces {
    pub(crate) fn new(page: Option<Bytes>) -> Spaces {
        let page = page.filter(|page| page.0.is_power_of_two());
        Spaces {
            all: AddressSpaces::new(page.unwrap_or(PAGE)),
            processes: BTreeMap::new(),
        }
    }

    /// `at` is since the first event.
    pub(crate) fn event(&mut self, at: u64, event: &Event) {
        let changed = self.all.event(event);
        match &event.kind {
            // Another program begins: the one before no longer matters.
            Kind::Exec { .. } => drop(self.processes.remove(&event.pid)),
            Kind::Exit { .. } if event.pid == event.tid => {
                if let Some(space) = self.all.remove(event.pid)
                    && let Some(process) = self.processes.get_mut(&event.pid)
                {
                    process.end = Some(Mapped::from_space(&space));
                }
            }
            _ if changed && Recorded::is_call(event) => {
                let Some(space) = self.all.process(event.pid) else {
                    return;
                };
                let mappings = i64::try_from(space.mappings()).unwrap_or(i64::MAX);
                let process = self.processes.entry(event.pid).or_default();
                process.calls += 1;
                process.live.add(at, mappings);
                if event.comm.is_some() && process.task != event.comm {
                    process.task.clone_from(&event.comm);
                }
            }
            _ => {}
        }
    }

    /// The processes with calls, the most first.
    fn ranked(&self) -> Vec<(Option<u32>, &Process)> {
        let mut all: Vec<_> = self.processes.iter().map(|(pid, p)| (*pid, p)).collect();
        all.sort_rows_by_key(|(_, process)| std::cmp::Reverse(process.calls));
        all
    }

    /// Mappings over time of the process with the most calls.
    pub(crate) fn live(&self) -> Option<Live> {
        let (pid, process) = *self.ranked().first()?;
        let pid = pid.map_or_else(String::new, |pid| format!(" of process {pid}"));
        let task = process.task.as_deref();
        let task = task.map_or_else(String::new, |task| format!(" ({task})"));
        process.live.to_record(&format!("calls{pid}{task}"))
    }

    pub(crate) fn to_record(&self) -> Option<Vec<AddressSpace>> {
        let ranked = self.ranked();
        let told = ranked.iter().take(TOLD).filter_map(|(pid, process)| {
            let now = || self.all.process(*pid).map(Mapped::from_space);
            let mapped = process.end.or_else(now)?;
            Some(AddressSpace {
                pid: *pid,
                task: process.task.as_deref().map(str::to_owned),
                calls: process.calls,
                mappings: mapped.mappings,
                bytes: mapped.bytes,
                holes: mapped.holes.map(|holes| Holes {
                    count: holes.count,
                    bytes: holes.bytes.0,
                    largest: holes.largest.0,
                }),
            })
        });
        (!ranked.is_empty()).then(|| told.collect())
    }
}
