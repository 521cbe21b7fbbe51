//! Whose system calls of a trace are replayed.

use std::collections::BTreeMap;
use std::path::Path;

use stopgap_events::order::SortRows;
use stopgap_report::text::{plain, thousands};
use stopgap_trace::{Recorded, Text};

use crate::replay::memory_events::MemoryEvents;
use crate::session::tell;

/// Processes that are named where there are several.
const NAMED: usize = 5;

/// How many calls that change a memory map each process of a trace makes, and what it is called last.
pub(crate) struct Calls {
    processes: BTreeMap<Option<u32>, (u64, Option<Text>)>,
}

impl Calls {
    /// Reads the trace in `path` through.
    pub(crate) fn read(path: &Path) -> Result<Calls, String> {
        let mut processes = BTreeMap::<_, (u64, Option<Text>)>::new();
        for event in MemoryEvents::open(path)?.every() {
            let event = event.map_err(|error| error.to_string())?;
            if Recorded::is_call(&event) {
                let (count, comm) = processes.entry(event.pid).or_default();
                *count += 1;
                *comm = event.comm.or_else(|| comm.take());
            }
        }
        Ok(Calls { processes })
    }

    /// Whether the trace has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// The process with most calls, where there are several that have a pid.
    pub(crate) fn busiest(&self) -> Option<u32> {
        let most = (self.processes.iter()).max_by_key(|(pid, (count, _))| (*count, **pid));
        most.filter(|_| self.processes.len() > 1)
            .and_then(|(pid, _)| *pid)
    }

    /// The process to replay, which may be the one that rows do not name; `None` where the trace has no such calls,
    /// so that its memory events are replayed.
    pub(super) fn process(&self, pid: Option<u32>) -> Result<Option<Option<u32>>, String> {
        match (pid, self.processes.len()) {
            (Some(pid), 0) => Err(format!(
                "it has no system calls of mmap's kind, so there is nothing of process {pid} to choose; leave out --pid"
            )),
            (Some(pid), _) if self.processes.contains_key(&Some(pid)) => Ok(Some(Some(pid))),
            (Some(pid), _) => Err(format!(
                "process {pid} makes no call that maps or unmaps; there are {}",
                self.names()
            )),
            (None, 0) => Ok(None),
            (None, 1) => Ok(self.processes.keys().next().copied()),
            (None, count) => Err(format!(
                "it has calls of {count} processes, and one memory map is replayed at a time: {}; choose with --pid",
                self.names()
            )),
        }
    }

    /// Those with most calls.
    fn names(&self) -> String {
        let mut all: Vec<_> = self.processes.iter().collect();
        all.sort_rows_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        let name = |(pid, (count, comm)): &(&Option<u32>, &(u64, Option<Text>))| {
            let pid = pid.map_or_else(|| "rows without a pid".to_owned(), |pid| pid.to_string());
            let comm = comm
                .as_ref()
                .map_or_else(String::new, |comm| format!(" {}", plain(comm)));
            format!("{pid}{comm} ({} calls)", thousands(*count))
        };
        let mut names: Vec<String> = all.iter().take(NAMED).map(name).collect();
        if all.len() > NAMED {
            names.push(format!("{} more", all.len() - NAMED));
        }
        names.join(", ")
    }
}

/// Says whose calls are replayed.
pub(super) fn tell_which(named: &str, process: Option<u32>, calls: &Calls) {
    let (count, comm) = &calls.processes[&process];
    let pid = process.map_or_else(String::new, |pid| format!(" of process {pid}"));
    let comm = comm
        .as_ref()
        .map_or_else(String::new, |comm| format!(" ({})", plain(comm)));
    tell(&format!(
        "{named}: {} memory calls{pid}{comm} are replayed",
        thousands(*count)
    ));
}
