//! NOW: the machine as it is before any load of ours.
//!
//! It only reads: nothing is changed, and no process is stopped. What it costs: see [`read`].

mod mappings;
mod switches;

use stopgap_events::machine::{Now, ProcessDetail};
use stopgap_events::units::Nanos;

use crate::System;
use crate::budget::meminfo;
use crate::environment::{self, uptime};
use crate::error::{Error, Result};
use crate::files::{read_lossy, read_number};
use crate::notes::Notes;
use crate::proc::{buddyinfo, memory, status, vmstat};

/// How many processes, tasks and backing files are shown of each kind.
const TOP: usize = 5;

/// How to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Over how long switch rates are taken. It passes even where there is nothing to count.
    pub interval: Nanos,
    /// No further process is read this long after the start; what was left out is a
    /// `Missing`. Where it is longer than `interval` it bounds the whole, but for the one
    /// process that is being read when it comes (about 1 us a mapping).
    pub deadline: Nanos,
    /// Process to read, with its threads; `None`: the whole machine.
    pub pid: Option<u32>,
}

impl Default for Options {
    /// Half a second of rates, 1.5 s in all, the whole machine.
    fn default() -> Options {
        Options {
            interval: Nanos::millis(500),
            deadline: Nanos::millis(1_500),
            pid: None,
        }
    }
}

/// Reads NOW.
///
/// When the whole machine is read, this process is left out: it is not what freezes. It can be asked for
/// with [`Options::pid`]. Tasks that switched not once in the interval are not listed, nor are
/// tasks that began or ended in it. Names of tasks are what they call themselves and need not
/// be unique.
///
/// Cost, measured on Linux 6.18 with 2 CPUs: CPU time of one thread, the interval asleep.
///
/// | machine | CPU time | in all, with half a second of rates |
/// |---|---|---|
/// | 15 processes | 5 ms | 0.51 s |
/// | 2,000 processes with 4,000 threads, five more with 60,000 mappings each | 0.7 s | 1.2 s |
///
/// That is about 23 us a thread and reading of it, 1 us a mapping, 50 us a small process.
/// Reading maps takes the lock of that process's address space for reading, a few dozen
/// mappings at a time; a process that maps memory meanwhile may wait that long. Rates are
/// taken before, so that they do not show our own work.
///
/// # Errors
/// [`Error::NoProcess`] where the process that is asked for does not exist. All else that
/// cannot be read is in `missing`.
pub fn read(system: &dyn System, options: &Options) -> Result<Now> {
    let start = system.now();
    let give_up = start + options.deadline;
    let mut notes = Notes::default();

    let process_status = options
        .pid
        .map(|pid| process_status(system, pid))
        .transpose()?;
    let pids = match options.pid {
        Some(pid) => vec![pid],
        None => others(system, &mut notes),
    };

    // Each task is read twice, and the mappings come last: a third of the time for each.
    let first = start + Nanos(options.deadline.saturating_sub(options.interval).0 / 3);
    let rates = switches::rates(system, &pids, options.interval, first, &mut notes);

    // What stands still while we read comes before what costs the machine most to read.
    let unusable_index =
        read_lossy(system, "/proc/buddyinfo").and_then(|text| buddyinfo::unusable_index(&text));
    let since_boot = read_lossy(system, "/proc/vmstat").and_then(|text| vmstat::since_boot(&text));
    let since_boot = notes.keep("reclaim and compaction since boot", since_boot);
    note_lacking_counters(since_boot.as_deref(), &mut notes);
    let (pressure, no_pressure) = environment::pressure(system);
    notes.missing.extend(no_pressure);

    let (mappings, process) = match (options.pid, process_status) {
        (Some(pid), Some(text)) => {
            let mappings = mappings::read(system, pid, &mut notes);
            let process = detail(
                pid,
                &text,
                mappings.as_ref().map(|m| m.mappings),
                &mut notes,
            );
            (mappings.into_iter().collect(), Some(process))
        }
        _ => (mappings::largest(system, &pids, give_up, &mut notes), None),
    };

    Ok(Now {
        interval_ms: options.interval.0 / 1_000_000,
        mappings,
        max_map_count: notes.keep(
            "max_map_count",
            read_number(system, "/proc/sys/vm/max_map_count"),
        ),
        unusable_index: notes
            .keep("unusable-free-space index", unusable_index)
            .unwrap_or_default(),
        uptime_s: notes.keep("uptime", uptime(system)),
        since_boot: since_boot.unwrap_or_default(),
        pressure,
        unevictable: notes.keep("unevictable memory", meminfo(system, "Unevictable")),
        mlocked: notes.keep("mlocked memory", meminfo(system, "Mlocked")),
        voluntary: rates.voluntary,
        involuntary: rates.involuntary,
        process,
        missing: notes.missing,
    })
}

/// All processes but ourselves, ascending.
fn others(system: &dyn System, notes: &mut Notes) -> Vec<u32> {
    let names = notes.keep("processes", system.list("/proc".as_ref()));
    let mut pids: Vec<u32> = names
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter(|&pid| pid != system.pid())
        .collect();
    pids.sort_unstable();
    pids
}

/// The status file of the process that was asked for.
fn process_status(system: &dyn System, pid: u32) -> Result<String> {
    let text = read_lossy(system, format!("/proc/{pid}/status"))
        .map_err(|_| Error::no_process(pid, ""))?;
    match status::number(&text, "Tgid") {
        // A thread has a directory in /proc too, though /proc does not list it.
        Some(process) if process != u64::from(pid) => Err(Error::no_process(
            pid,
            format!(": it is a thread of process {process}"),
        )),
        _ => Ok(text),
    }
}

fn detail(pid: u32, text: &str, mappings: Option<u64>, notes: &mut Notes) -> ProcessDetail {
    // A kernel thread prints no memory at all: nothing of it is unknown.
    let has_memory = memory(text, "VmSize").is_some();
    if !has_memory {
        notes.add(
            format!("memory of process {pid}"),
            "a kernel thread, or a zombie, has none",
        );
    }
    let mut amount = |name: &str| {
        if !has_memory {
            return None;
        }
        let value = memory(text, name).ok_or_else(|| {
            Error::parse(
                format!("/proc/{pid}/status"),
                format!("no line '{name}: ... kB'"),
            )
        });
        notes.keep(&format!("{name} of process {pid}"), value)
    };
    ProcessDetail {
        pid,
        name: status::name(text),
        threads: status::number(text, "Threads"),
        mappings,
        resident: amount("VmRSS"),
        locked: amount("VmLck"),
        pinned: amount("VmPin"),
        swapped: amount("VmSwap"),
    }
}

/// A counter that this kernel does not keep is unknown, not 0.
fn note_lacking_counters(counters: Option<&[stopgap_events::machine::Counter]>, notes: &mut Notes) {
    let Some(counters) = counters else {
        return; // noted already
    };
    for (prefix, why) in [
        (
            "allocstall",
            "/proc/vmstat does not have it (CONFIG_VM_EVENT_COUNTERS)",
        ),
        (
            "compact_",
            "/proc/vmstat does not have it (CONFIG_COMPACTION)",
        ),
    ] {
        if !counters
            .iter()
            .any(|counter| counter.name.starts_with(prefix))
        {
            notes.add(prefix, why);
        }
    }
}

#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod tests;
