//! The mappings of each process, by its system calls: their number over time, and the holes at the end.

use std::collections::BTreeMap;

use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;
use stopgap_stats::explain::{AddressSpace, Holes, Live};
use stopgap_trace::{AddressSpaces, Event, Kind, Recorded, Text};

use crate::memory::Followed;

/// Size of a page if the trace does not give it.
const PAGE: Bytes = Bytes::kib(4);

/// Most processes in the record.
const TOLD: usize = 5;

/// Follows the address spaces of a trace. Takes about 100 bytes per mapping, and a curve per process.
pub(crate) struct Spaces {
    all: AddressSpaces,
    processes: BTreeMap<Option<u32>, Process>,
}

#[derive(Default)]
struct Process {
    task: Option<Text>,
    calls: u64,
    live: Followed,
    /// The mappings at the end of the process, if it has ended.
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

    /// Takes an event, `at` nanoseconds after the first event.
    pub(crate) fn event(&mut self, at: u64, event: &Event) {
        let changed = self.all.event(event);
        match &event.kind {
            // The process executes another program, so its earlier mappings no longer matter.
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

    /// Returns the processes that have calls, the most calls first.
    fn ranked(&self) -> Vec<(Option<u32>, &Process)> {
        let mut all: Vec<_> = self.processes.iter().map(|(pid, p)| (*pid, p)).collect();
        all.sort_rows_by_key(|(_, process)| std::cmp::Reverse(process.calls));
        all
    }

    /// Returns the mappings over time of the process with the most calls.
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
