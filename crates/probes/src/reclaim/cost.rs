//! Measures what it costs to take, to keep and to release held memory, a page.
//!
//! ```text
//!           populate   take       pass 1 .. n             release
//!  memory:  |--------|  |-------|  |----| touch |----| ...  |-------|
//!  counted:              ^ unevictable ^ unevictable
//! ```
//!
//! A *pass* is one `MADV_PAGEOUT` over all of it: reclaim as it meets these pages and no others.
//! The memory is touched between two passes (not timed), as its owner would: else the first
//! pass would leave nothing mapped for the second. Where a memory cgroup could be made, one
//! forced reclaim of the group follows: the only way to see what an mlocked set costs reclaim,
//! because the kernel refuses `MADV_PAGEOUT` there.

use serde::{Deserialize, Serialize};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::cgroup::{self, MemoryGroup};
use stopgap_kernel::holds::{Segment, Way};
use stopgap_kernel::memory::{Advice, MapKind, MapRequest, Mapping};
use stopgap_kernel::{Error, Result, System, environment};

use super::Mode;

/// Share of a set's pages on the unevictable list at which the set counts as being on it. Not 1:
/// the kernel adds up per-CPU counts with a delay of up to some hundred pages.
const OFF_THE_LISTS: f64 = 0.5;

/// Measurements to make of each mode.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) mode: Mode,
    pub(super) bytes: Bytes,
    pub(super) passes: u32,
}

/// One figure, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// Which task, counted from 0.
    pub(super) task: usize,
    /// Name of the step.
    pub(super) name: String,
    /// Thread CPU time and elapsed time, ns a page.
    pub(super) value: std::result::Result<(f64, f64), String>,
    /// When, on the monotonic clock.
    pub(super) start_ns: u64,
}

/// `RLIMIT_MEMLOCK` of this process; `None`: unlimited, or not to be read.
pub(super) fn memlock_limit(system: &dyn System) -> Option<Bytes> {
    environment::memlock_limit(system).ok().flatten()
}

/// Memory to be held.
enum Memory {
    Mapped(Mapping),
    Segment(Segment),
}

impl Memory {
    fn mapping(&self) -> &Mapping {
        match self {
            Memory::Mapped(mapping) => mapping,
            Memory::Segment(segment) => segment.mapping(),
        }
    }
}

/// Makes all of it resident, in base pages.
pub(super) fn populate(system: &dyn System, mapping: &Mapping) -> Result<()> {
    let length = mapping.range().length();
    match system.advise(mapping, Bytes(0), length, Advice::PopulateWrite) {
        // Before 5.14.
        Err(error) if error.is_invalid() => system.touch(mapping, Bytes(0), length),
        other => other,
    }
}

/// An anonymous private mapping whose pages are not to be joined to huge ones: figures are a
/// base page.
pub(super) fn map(system: &dyn System, bytes: Bytes) -> Result<Mapping> {
    let mapping = system.map(&MapRequest::writable(bytes, MapKind::Anonymous))?;
    base_pages(system, &mapping);
    Ok(mapping)
}

/// A mapping of a memfd of its own: shmem, as a driver's objects are. In base pages.
pub(super) fn shared(system: &dyn System, bytes: Bytes) -> Result<Mapping> {
    let file = system.mem_file(bytes)?;
    let mapping = system.map(&MapRequest::writable(
        bytes,
        MapKind::File {
            file: &file,
            offset: Bytes(0),
        },
    ))?;
    base_pages(system, &mapping);
    Ok(mapping)
}

pub(super) fn base_pages(system: &dyn System, mapping: &Mapping) {
    // A kernel without huge pages refuses, and then there is nothing to ask for.
    let _ = system.advise(
        mapping,
        Bytes(0),
        mapping.range().length(),
        Advice::NoHugePage,
    );
}

struct Experiment<'a> {
    system: &'a dyn System,
    group: Option<&'a MemoryGroup>,
    task: usize,
    pages: f64,
    rows: Vec<Row>,
}

impl Experiment<'_> {
    /// Times `step` and keeps it, or its error; what it returned, and its CPU time a page.
    fn timed<T>(
        &mut self,
        name: &str,
        step: impl FnOnce() -> Result<T>,
    ) -> Option<(T, (f64, f64))> {
        let start = self.system.now();
        let cpu = self.system.thread_cpu();
        let done = step();
        let cpu = self.system.thread_cpu().saturating_sub(cpu);
        let wall = self.system.now().saturating_sub(start);
        let cost = (self.a_page(cpu), self.a_page(wall));
        let value = done.as_ref().map(|_| cost).map_err(|e| self.words(e));
        self.keep(name, start, value);
        done.ok().map(|value| (value, cost))
    }

    /// Returns the text in a row instead of a number.
    fn words(&self, error: &Error) -> String {
        let Error::Call { call, source, .. } = error else {
            return error.to_string();
        };
        if error.is_invalid() && call.starts_with("madvise") {
            return "n/a: kernel refuses (EINVAL)".to_owned();
        }
        let over = error.is_refused() || source.kind() == std::io::ErrorKind::OutOfMemory;
        match memlock_limit(self.system) {
            Some(limit) if over => {
                format!("{error}; RLIMIT_MEMLOCK is {limit}: raise it (ulimit -l)")
            }
            _ => error.to_string(),
        }
    }

    fn a_page(&self, time: Nanos) -> f64 {
        time.0 as f64 / self.pages
    }

    fn keep(&mut self, name: &str, start: Nanos, value: std::result::Result<(f64, f64), String>) {
        self.rows.push(Row {
            task: self.task,
            name: name.to_owned(),
            value,
            start_ns: start.0,
        });
    }

    /// Pages on the unevictable list: of the group where there is one, else of the system.
    fn unevictable(&self) -> Option<f64> {
        let page = self.system.page_size().0 as f64;
        if let Some(group) = self.group {
            let stat = group.stat(self.system).ok()?;
            return stat.get("unevictable").map(|&bytes| bytes as f64 / page);
        }
        let vmstat = cgroup::counters(self.system, "/proc/vmstat").ok()?;
        vmstat.get("nr_unevictable").map(|&pages| pages as f64)
    }

    fn carry_out(&mut self, task: &Task) -> Result<()> {
        let system = self.system;
        let memory = match task.mode {
            Mode::Held(Way::ShmLock) => {
                let segment = system.segment(task.bytes)?;
                base_pages(system, segment.mapping());
                Memory::Segment(segment)
            }
            _ => Memory::Mapped(shared(system, task.bytes)?),
        };
        self.hold_and_release(task, &memory);
        match memory {
            Memory::Mapped(mapping) => system.unmap(mapping),
            Memory::Segment(segment) => system.unmap(segment.into_mapping()),
        }
    }

    fn hold_and_release(&mut self, task: &Task, memory: &Memory) {
        let system = self.system;
        let mapping = memory.mapping();
        self.timed("populate", || populate(system, mapping));

        let before = self.unevictable();
        let taken = match (task.mode, memory) {
            (Mode::None | Mode::Plain | Mode::ShmChurn, _) => None,
            (Mode::Held(_), Memory::Segment(segment)) => {
                self.timed("take", || system.shm_lock(segment))
            }
            (Mode::Held(way), Memory::Mapped(mapping)) => {
                self.timed("take", || system.hold(mapping, way))
            }
        };
        if taken.is_some() || task.mode == Mode::Plain {
            let take = taken.as_ref().map(|(_, cost)| *cost);
            self.pass(task, mapping, take, before);
        }
        if let Some((held, _)) = taken {
            self.timed("release", || held.release());
        }
    }

    /// All passes of reclaim, and from when on the pages were off the lists that it scans.
    fn pass(
        &mut self,
        task: &Task,
        mapping: &Mapping,
        take: Option<(f64, f64)>,
        before: Option<f64>,
    ) {
        let system = self.system;
        let length = mapping.range().length();
        let start = system.now();
        let mut spent = take.unwrap_or_default();
        let mut off = self.are_off(before).then_some(spent);
        for pass in 1..=task.passes {
            if pass > 1 {
                let _ = system.touch(mapping, Bytes(0), length); // fails only outside of it
            }
            let name = format!("pass {pass}");
            let page_out = || system.advise(mapping, Bytes(0), length, Advice::PageOut);
            if let Some(((), cost)) = self.timed(&name, page_out) {
                spent = (spent.0 + cost.0, spent.1 + cost.1);
            }
            if off.is_none() && self.are_off(before) {
                off = Some(spent);
            }
        }
        if take.is_some() {
            let never = format!(
                "never: still on the scanned lists after {} passes",
                task.passes
            );
            let unknown = "unknown: the kernel does not say how much is unevictable".to_owned();
            let why = if before.is_some() { never } else { unknown };
            self.keep("off the scanned lists", start, off.ok_or(why));
        }
        if let Some(group) = self.group {
            let _ = system.touch(mapping, Bytes(0), length);
            self.timed("forced reclaim", || group.reclaim(system, length));
        }
    }

    fn are_off(&self, before: Option<f64>) -> bool {
        let now = self.unevictable();
        let Some((before, now)) = before.zip(now) else {
            return false;
        };
        (now - before) / self.pages >= OFF_THE_LISTS
    }
}

/// Carries the tasks out, one after another, in this process.
pub(super) fn carry_out(
    system: &dyn System,
    group: Option<&MemoryGroup>,
    tasks: &[(usize, Task)],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, task) in tasks {
        let mut experiment = Experiment {
            system,
            group,
            task: *number,
            pages: task.bytes.pages(system.page_size()).0 as f64,
            rows: Vec::new(),
        };
        let start = system.now();
        if let Err(error) = experiment.carry_out(task) {
            experiment.keep("memory", start, Err(error.to_string()));
        }
        rows.append(&mut experiment.rows);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::{Fake, HoldCosts};

    const BYTES: Bytes = Bytes::mib(4);

    fn rows(fake: &Fake, mode: Mode) -> Vec<Row> {
        let task = Task {
            mode,
            bytes: BYTES,
            passes: 3,
        };
        carry_out(fake, None, &[(0, task)])
    }

    fn cost(rows: &[Row], name: &str) -> std::result::Result<f64, String> {
        let row = rows.iter().find(|row| row.name == name);
        row.unwrap_or_else(|| panic!("no '{name}' in {rows:?}"))
            .value
            .clone()
            .map(|(cpu, _)| cpu)
    }

    fn machine() -> Fake {
        Fake::default().with_file("/proc/vmstat", "nr_unevictable 17\n")
    }

    /// A call's own cost is spread over 1024 pages: within 6 ns a page.
    fn assert_close(found: f64, expected: u64) {
        let expected = expected as f64;
        assert!(
            (found - expected).abs() < 6.0,
            "{found} instead of {expected}"
        );
    }

    #[test]
    fn the_costs_of_a_known_kernel_are_found_again() {
        for &way in Way::ALL {
            let rows = rows(&machine(), Mode::Held(way));
            let costs = HoldCosts::of(way);
            assert_close(cost(&rows, "take").unwrap(), costs.take);
            assert_close(cost(&rows, "release").unwrap(), costs.release);
            if way == Way::Mlock {
                let refused = cost(&rows, "pass 1").unwrap_err();
                assert_eq!(refused, "n/a: kernel refuses (EINVAL)");
                continue;
            }
            assert_close(cost(&rows, "pass 1").unwrap(), costs.first_pass);
            assert_close(cost(&rows, "pass 2").unwrap(), costs.later_pass);
            assert_close(cost(&rows, "pass 3").unwrap(), costs.later_pass);
        }
    }

    #[test]
    fn when_pages_leave_the_lists_is_seen_and_not_assumed() {
        let off = |fake: &Fake, way| cost(&rows(fake, Mode::Held(way)), "off the scanned lists");
        let fake = machine();
        assert_close(off(&fake, Way::Mlock).unwrap(), 341);
        assert_close(off(&fake, Way::ShmLock).unwrap(), 375);
        assert!(off(&fake, Way::Vmsplice).unwrap_err().starts_with("never"));
        let blind = Fake::default();
        assert!(off(&blind, Way::Mlock).unwrap_err().starts_with("unknown"));
    }

    #[test]
    fn a_hold_that_failed_is_an_error_and_no_number() {
        let no_limit = machine().with_memlock_limit(Bytes(0));
        for way in [Way::Mlock, Way::ShmLock, Way::IoUring] {
            let rows = rows(&no_limit, Mode::Held(way));
            assert!(cost(&rows, "take").is_err(), "{way}");
            assert!(cost(&rows, "populate").is_ok(), "{way}");
            assert_eq!(
                rows.len(),
                2,
                "nothing is measured of what is not held: {rows:?}"
            );
        }
        let no_ring = machine().refusing(Way::IoUring, 38); // ENOSYS
        let why = cost(&rows(&no_ring, Mode::Held(Way::IoUring)), "take").unwrap_err();
        assert!(why.contains("io_uring"), "{why}");
    }

    #[test]
    fn plain_memory_is_passed_over_but_not_taken() {
        let rows = rows(&machine(), Mode::Plain);
        assert_close(cost(&rows, "pass 1").unwrap(), HoldCosts::PLAIN.first_pass);
        assert!(
            rows.iter()
                .all(|row| row.name != "take" && row.name != "release")
        );
    }
}
