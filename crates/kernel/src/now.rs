//! NOW: the machine as it is before any load of ours.
//!
//! It only reads: nothing is changed, and no process is stopped. What it costs: see [`read`].

mod signs;

use std::path::PathBuf;

use stopgap_events::machine::{Backing, Now, ProcessDetail, ProcessMappings, Stuck, TaskRate};
use stopgap_events::order::SortRows;
use stopgap_events::units::Nanos;

use crate::System;
use crate::budget::meminfo;
use crate::environment::{self, uptime};
use crate::error::{Error, Result};
use crate::files::{read_lossy, read_number};
use crate::notes::Notes;
use crate::proc::{buddyinfo, field, maps, memory, name_of, number_of, switches_of, vmstat};
use crate::tasks::Switches;

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
    let before = signs::Before::read(system);
    let rates = rates(system, &pids, options.interval, first, &mut notes);
    let (pressure, no_pressure) = environment::pressure(system);
    notes.missing.extend(no_pressure);
    let changes = before.changes(system, &pressure, &mut notes);

    // What stands still while we read comes before what costs the machine most to read.
    let unusable_index =
        read_lossy(system, "/proc/buddyinfo").and_then(|text| buddyinfo::unusable_index(&text));
    let since_boot = read_lossy(system, "/proc/vmstat").and_then(|text| vmstat::since_boot(&text));
    let since_boot = notes.keep("reclaim and compaction since boot", since_boot);
    note_lacking_counters(since_boot.as_deref(), &mut notes);

    let (mappings, process) = match (options.pid, process_status) {
        (Some(pid), Some(text)) => {
            let mappings = mappings_of(system, pid, &mut notes);
            let process = detail(
                pid,
                &text,
                mappings.as_ref().map(|m| m.mappings),
                &mut notes,
            );
            (mappings.into_iter().collect(), Some(process))
        }
        _ => (largest(system, &pids, give_up, &mut notes), None),
    };

    let kernel_log = notes.keep("the kernel log", signs::log(system));
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
        waited: changes.waited,
        groups: changes.groups,
        swap: changes.swap,
        disks: changes.disks,
        steal: changes.steal,
        stuck: rates.stuck,
        stuck_count: rates.stuck_count,
        oom_kills: changes.oom_kills,
        kernel_log,
        missing: notes.missing,
    })
}

/// Whether no further process is read; notes then of how many `what` is left out.
fn is_over(
    system: &dyn System,
    give_up: Nanos,
    what: &str,
    (done, all): (usize, usize),
    notes: &mut Notes,
) -> bool {
    let over = system.now() >= give_up;
    if over {
        let left = format!("{what} of {} of {all} processes", all - done);
        notes.add(left, "the time for it was up; ask about one process");
    }
    over
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
    match number_of(&text, "Tgid") {
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
        name: name_of(text),
        threads: number_of(text, "Threads"),
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

/// Returns what is needed to read another user's process (`ptrace_may_access()`).
fn advice(system: &dyn System) -> &'static str {
    if system.uid() == 0 {
        "refused even to root: by a security module, or CAP_SYS_PTRACE was taken away"
    } else {
        "not allowed: needs root (CAP_SYS_PTRACE)"
    }
}

/// The processes with the most mappings, most first. Lines are counted for every process, but
/// only one that is among the first so far is parsed. No further process is read after
/// `give_up`; a single huge one is read to its end (about 1 us a mapping).
fn largest(
    system: &dyn System,
    pids: &[u32],
    give_up: Nanos,
    notes: &mut Notes,
) -> Vec<ProcessMappings> {
    let mut rows: Vec<ProcessMappings> = Vec::new();
    let mut refused = 0;
    let mut odd: Option<Error> = None;
    for (done, &pid) in pids.iter().enumerate() {
        if is_over(system, give_up, "mappings", (done, pids.len()), notes) {
            break;
        }
        let text = match system.read(format!("/proc/{pid}/maps").as_ref()) {
            Ok(text) => text,
            Err(error) if error.is_ended() => continue,
            Err(error) if error.is_refused() => {
                refused += u32::from(has_memory(system, pid));
                continue;
            }
            Err(error) => {
                odd.get_or_insert(error);
                continue;
            }
        };
        let mappings = maps::count(&text);
        let least = rows.get(TOP - 1).map_or(0, |row| row.mappings);
        if mappings > least {
            rows.push(row(system, pid, &text, notes));
            rows.sort_rows_by_key(|row| std::cmp::Reverse(row.mappings)); // stable: lower pid first
            rows.truncate(TOP);
        }
    }
    if refused > 0 {
        let what = match refused {
            1 => "mappings of 1 process".to_owned(),
            many => format!("mappings of {many} processes"),
        };
        notes.add(what, advice(system));
    }
    if let Some(error) = odd {
        notes.add("mappings of some processes", error.to_string());
    }
    rows
}

/// The mappings of one process; `None`, with a note, where they cannot be read.
fn mappings_of(system: &dyn System, pid: u32, notes: &mut Notes) -> Option<ProcessMappings> {
    let what = format!("mappings of process {pid}");
    match system.read(format!("/proc/{pid}/maps").as_ref()) {
        Ok(text) => Some(row(system, pid, &text, notes)),
        Err(error) if error.is_refused() => {
            notes.add(what, advice(system));
            None
        }
        Err(error) => {
            notes.add(what, error.to_string());
            None
        }
    }
}

fn row(system: &dyn System, pid: u32, text: &[u8], notes: &mut Notes) -> ProcessMappings {
    let backing: Result<Vec<Backing>> = maps::backings(text, system.page_size(), TOP)
        .map_err(|reason| Error::parse(format!("/proc/{pid}/maps"), reason));
    let name = read_lossy(system, format!("/proc/{pid}/comm"));
    ProcessMappings {
        pid,
        name: name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned()),
        mappings: maps::count(text),
        backing: notes
            .keep(&format!("backing files of process {pid}"), backing)
            .unwrap_or_default(),
    }
}

/// Whether a process has memory of its own: kernel threads have none, and nothing about them
/// is missing when they cannot be read. `statm` is readable by everyone.
fn has_memory(system: &dyn System, pid: u32) -> bool {
    let statm = read_lossy(system, format!("/proc/{pid}/statm"));
    statm.map_or(true, |text| !text.starts_with("0 "))
}

/// A task's counts at one point in time.
struct Sample {
    pid: u32,
    tid: u32,
    at: Nanos,
    switches: Switches,
    uninterruptible: bool,
}

/// Highest rates, highest first, and who stood still in state D.
struct Rates {
    voluntary: Vec<TaskRate>,
    involuntary: Vec<TaskRate>,
    stuck: Vec<Stuck>,
    stuck_count: u64,
}

/// Returns whether a thread of a process, not of the kernel, is in uninterruptible sleep. Kernel threads of healthy
/// drivers sleep so while they have nothing to do.
fn is_uninterruptible(status: &str) -> bool {
    let kernel = match field(status, "Kthread") {
        Some(word) => word == "1", // since 6.8
        None => memory(status, "VmSize").is_none(),
    };
    field(status, "State").is_some_and(|state| state.starts_with('D')) && !kernel
}

/// Switch rates of all threads of `pids` over `interval`, each over the time between its own
/// two readings. Nothing else is done meanwhile: what would use the CPU would show in the
/// figures of others. No further process is read after `give_up`.
fn rates(
    system: &dyn System,
    pids: &[u32],
    interval: Nanos,
    give_up: Nanos,
    notes: &mut Notes,
) -> Rates {
    let before = samples(system, pids, give_up, notes);
    // The last task read is the one whose interval is the shortest.
    system.sleep_until(system.now() + interval);
    let mut all = Vec::with_capacity(before.len());
    let (mut stuck, mut stuck_count) = (Vec::new(), 0);
    for task in &before {
        let Ok(text) = read_lossy(system, task_file(task.pid, task.tid)) else {
            continue; // it has ended
        };
        let Some(now) = switches_of(&text) else {
            continue; // noted when it was read first
        };
        let seconds = system.now().saturating_sub(task.at).as_secs_f64();
        let more = now.since(task.switches);
        if more.total() == 0 && task.uninterruptible && is_uninterruptible(&text) {
            stuck_count += 1;
            if stuck.len() < TOP {
                stuck.push(Stuck {
                    pid: task.pid,
                    tid: task.tid,
                    name: name_of(&text),
                    function: sleeps_in(system, task.pid, task.tid),
                });
            }
        }
        if seconds > 0.0 && more.total() > 0 {
            let rate = |count: u64| TaskRate {
                pid: task.pid,
                tid: task.tid,
                name: name_of(&text),
                per_second: count as f64 / seconds,
            };
            all.push((rate(more.voluntary), rate(more.involuntary)));
        }
    }
    let (voluntary, involuntary) = all.into_iter().unzip();
    Rates {
        voluntary: top(voluntary),
        involuntary: top(involuntary),
        stuck,
        stuck_count,
    }
}

/// Returns the kernel function in which a thread sleeps. The kernel gives `0` to who may not trace it.
fn sleeps_in(system: &dyn System, pid: u32, tid: u32) -> Option<String> {
    let text = read_lossy(system, format!("/proc/{pid}/task/{tid}/wchan")).ok()?;
    let name = text.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

fn task_file(pid: u32, tid: u32) -> PathBuf {
    format!("/proc/{pid}/task/{tid}/status").into()
}

fn samples(system: &dyn System, pids: &[u32], give_up: Nanos, notes: &mut Notes) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(pids.len() * 2);
    let mut broken: Option<Error> = None;
    for (done, &pid) in pids.iter().enumerate() {
        if is_over(system, give_up, "switch rates", (done, pids.len()), notes) {
            break;
        }
        // A thread that has ended by now is left out.
        let tids = system
            .list(format!("/proc/{pid}/task").as_ref())
            .unwrap_or_default();
        for tid in tids.iter().filter_map(|name| name.parse().ok()) {
            let file = task_file(pid, tid);
            let Ok(text) = read_lossy(system, &file) else {
                continue;
            };
            match switches_of(&text) {
                Some(switches) => samples.push(Sample {
                    pid,
                    tid,
                    at: system.now(),
                    switches,
                    uninterruptible: is_uninterruptible(&text),
                }),
                None => {
                    broken.get_or_insert_with(|| {
                        Error::parse(file.display(), "no counts of context switches")
                    });
                }
            }
        }
    }
    if let Some(error) = broken {
        notes.add("switch rates of some tasks", error.to_string());
    }
    samples
}

fn top(mut rates: Vec<TaskRate>) -> Vec<TaskRate> {
    rates.retain(|rate| rate.per_second > 0.0);
    rates.sort_rows_by_key(|rate| rate.tid);
    rates.sort_rows(|a, b| b.per_second.total_cmp(&a.per_second));
    rates.truncate(TOP);
    rates
}

#[cfg(test)]
mod fake_tests;
#[cfg(test)]
mod tests;
