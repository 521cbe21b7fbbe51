//! Signs of trouble that one look cannot show: what changes within the interval, and what the kernel has logged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use stopgap_events::machine::{DiskUse, GroupShort, LogKind, LogLine, Pressure, SwapUse, Waited};
use stopgap_events::order::SortRows;
use stopgap_events::units::{Bytes, Nanos};

use crate::System;
use crate::budget::meminfo;
use crate::cgroup::{counters, mounts};
use crate::environment::{pressure, read_swap};
use crate::error::{Error, Result};
use crate::files::{read_lossy, read_number};
use crate::notes::Notes;
use crate::proc;

/// Disks and control groups that are shown.
const TOP: usize = 5;
/// Control groups that are looked at. More cost more than 10 ms.
const MOST_GROUPS: usize = 200;
/// Lines of the kernel log that are kept.
const MOST_LINES: usize = 20;
/// Characters of such a line.
const LINE: usize = 200;

/// Counters at the start of the interval.
pub(super) struct Before {
    at: Nanos,
    pressure: Vec<Pressure>,
    vmstat: BTreeMap<String, u64>,
    disks: BTreeMap<String, Disk>,
    cpu: Option<CpuTime>,
    groups: Vec<(Group, u64)>,
}

impl Before {
    pub(super) fn read(system: &dyn System) -> Before {
        let of_group = |group: Group| {
            let count = group.count(system)?;
            Some((group, count))
        };
        Before {
            at: system.now(),
            pressure: pressure(system).0,
            vmstat: counters(system, "/proc/vmstat").unwrap_or_default(),
            disks: disks(system).unwrap_or_default(),
            cpu: cpu_time(system).ok(),
            groups: groups(system).into_iter().filter_map(of_group).collect(),
        }
    }

    /// Reads the counters again and returns what has changed. `pressure` was read just before.
    pub(super) fn changes(
        self,
        system: &dyn System,
        pressure: &[Pressure],
        notes: &mut Notes,
    ) -> Changes {
        let seconds = system.now().saturating_sub(self.at).as_secs_f64().max(1e-3);
        let vmstat = counters(system, "/proc/vmstat").unwrap_or_default();
        let page = system.page_size().0 as f64;
        let rate = |name: &str| {
            let (first, last) = (self.vmstat.get(name), vmstat.get(name));
            let pages = last.unwrap_or(&0).saturating_sub(*first.unwrap_or(&0));
            pages as f64 * page / seconds
        };
        let swap = swap(system, rate("pswpin"), rate("pswpout"));
        let after = notes.keep("disks", disks(system)).unwrap_or_default();
        let cpu = notes.keep("time of the CPUs", cpu_time(system));
        Changes {
            waited: waited(&self.pressure, pressure, seconds),
            groups: shorts(system, self.groups, seconds),
            swap: notes.keep("use of swap", swap),
            disks: disk_use(&self.disks, &after),
            steal: self.cpu.zip(cpu).map(|(first, last)| last.steal(first)),
            oom_kills: vmstat.get("oom_kill").copied(),
        }
    }
}

/// What changed within the interval, as `Now` has it.
pub(super) struct Changes {
    pub(super) waited: Vec<Waited>,
    pub(super) groups: Vec<GroupShort>,
    pub(super) swap: Option<SwapUse>,
    pub(super) disks: Vec<DiskUse>,
    pub(super) steal: Option<f64>,
    pub(super) oom_kills: Option<u64>,
}

/// Returns the share of the interval for which tasks waited, by resource.
fn waited(first: &[Pressure], last: &[Pressure], seconds: f64) -> Vec<Waited> {
    let share = |first: u64, last: u64| {
        (last.saturating_sub(first) as f64 / 1e6 / seconds * 100.0).min(100.0)
    };
    let of = |after: &Pressure| {
        let before = first.iter().find(|one| one.resource == after.resource)?;
        let full = before.full.zip(after.full);
        Some(Waited {
            resource: after.resource.clone(),
            some: share(before.some.total_us, after.some.total_us),
            full: full.map(|(before, after)| share(before.total_us, after.total_us)),
        })
    };
    last.iter().filter_map(of).collect()
}

// Control groups.

/// A control group of the memory controller.
struct Group {
    directory: PathBuf,
    path: String,
    /// Version 1 counts how often the limit was met, version 2 how long tasks waited.
    version_1: bool,
}

impl Group {
    /// Returns how often it was at its limit, or for how many microseconds some task of it waited.
    fn count(&self, system: &dyn System) -> Option<u64> {
        if self.version_1 {
            return read_number(system, self.directory.join("memory.failcnt")).ok();
        }
        let file = self.directory.join("memory.pressure");
        let pressure = proc::pressure::read_file(system, "memory", &file).ok()?;
        Some(pressure.some.total_us)
    }
}

/// Prefixes of the kernel's own files in a control group, which are no directories.
const FILES: [&str; 17] = [
    "memory.",
    "cgroup.",
    "cpu.",
    "cpuacct.",
    "cpuset.",
    "io.",
    "blkio.",
    "pids.",
    "hugetlb.",
    "rdma.",
    "misc.",
    "dmem.",
    "irq.",
    "tasks",
    "notify_on_release",
    "release_agent",
    "freezer.",
];

/// Returns the control groups of the memory controller below its root; at most [`MOST_GROUPS`].
fn groups(system: &dyn System) -> Vec<Group> {
    let Ok(mounts) = mounts(system) else {
        return Vec::new();
    };
    let version_1 = |mount: &procfs_core::process::MountInfo| {
        mount.fs_type == "cgroup" && mount.super_options.contains_key("memory")
    };
    let found = mounts
        .iter()
        .find(|mount| version_1(mount))
        .or_else(|| mounts.iter().find(|mount| mount.fs_type == "cgroup2"));
    let Some(mount) = found else {
        return Vec::new();
    };
    let version_1 = version_1(mount);
    let mut all: Vec<Group> = Vec::new();
    let mut open = vec![(mount.mount_point.clone(), String::new())];
    while let Some((directory, path)) = open.pop() {
        for name in system.list(&directory).unwrap_or_default() {
            if FILES.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let below = directory.join(&name);
            let entry = system.entry(&below);
            if !entry.is_ok_and(|entry| entry.kind == crate::files::Kind::Directory) {
                continue;
            }
            if all.len() == MOST_GROUPS {
                return all;
            }
            let path = format!("{path}/{name}");
            open.push((below.clone(), path.clone()));
            all.push(Group {
                directory: below,
                path,
                version_1,
            });
        }
    }
    all
}

/// Returns the groups that were short of memory within the interval, those that waited most first; of a group and
/// those above it, which wait whenever it does, the one below.
fn shorts(system: &dyn System, before: Vec<(Group, u64)>, seconds: f64) -> Vec<GroupShort> {
    let mut rows: Vec<(f64, GroupShort)> = Vec::new();
    for (group, first) in before {
        let more = group.count(system).unwrap_or(first).saturating_sub(first);
        if more == 0 {
            continue;
        }
        let some = (more as f64 / 1e6 / seconds * 100.0).min(100.0);
        let weight = if group.version_1 { more as f64 } else { some };
        rows.push((
            weight,
            GroupShort {
                path: group.path,
                some: (!group.version_1).then_some(some),
                at_limit: group.version_1.then_some(more),
            },
        ));
    }
    let causes = |above: &GroupShort, weight: f64| {
        let below = format!("{}/", above.path);
        rows.iter()
            .any(|(other, row)| row.path.starts_with(&below) && *other >= 0.8 * weight)
    };
    let mut shown: Vec<(f64, GroupShort)> = rows
        .iter()
        .filter(|(weight, row)| !causes(row, *weight))
        .cloned()
        .collect();
    shown.sort_rows(|a, b| b.0.total_cmp(&a.0).then(a.1.path.cmp(&b.1.path)));
    shown.truncate(TOP);
    shown.into_iter().map(|(_, row)| row).collect()
}

// Swap, disks, CPUs.

fn swap(system: &dyn System, in_per_s: f64, out_per_s: f64) -> Result<SwapUse> {
    let total = meminfo(system, "SwapTotal")?;
    let free = meminfo(system, "SwapFree")?;
    let kind = read_swap(system)?.kind;
    Ok(SwapUse {
        total,
        used: Bytes(total.0.saturating_sub(free.0)),
        on_disk: kind.split('+').any(|one| one != "zram" && one != "none"),
        in_per_s,
        out_per_s,
    })
}

/// Counters of a disk since boot.
#[derive(Clone, Copy)]
struct Disk {
    completed: u64,
    /// Milliseconds of all requests together.
    ms: u64,
    in_flight: u64,
}

/// Reads `/proc/diskstats` (`Documentation/admin-guide/iostats.rst`): whole disks, no loop devices and no memory.
fn disks(system: &dyn System) -> Result<BTreeMap<String, Disk>> {
    const FILE: &str = "/proc/diskstats";
    let text = match read_lossy(system, FILE) {
        // A kernel without block devices.
        Err(error) if error.is_absent() => return Ok(BTreeMap::new()),
        text => text?,
    };
    let whole = system.list(Path::new("/sys/block")).unwrap_or_default();
    let mut disks = BTreeMap::new();
    proc::each_line(FILE, &text, |line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = *words
            .get(2)
            .ok_or_else(|| format!("'{line}' has no name"))?;
        let memory = ["loop", "ram", "zram"]
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(is_number));
        if memory || !whole.iter().any(|one| one == name) {
            return Ok(());
        }
        // Reads, writes, discards (4.18), flushes (5.5): what older kernels lack counts nothing.
        let number = |index: usize| words.get(index).map_or(Ok(0), |word| word.parse::<u64>());
        let read = || {
            Ok::<_, std::num::ParseIntError>(Disk {
                completed: number(3)? + number(7)? + number(14)? + number(18)?,
                ms: number(6)? + number(10)? + number(17)? + number(19)?,
                in_flight: number(11)?,
            })
        };
        let disk = read().map_err(|_| format!("'{line}' has no counts"))?;
        disks.insert(name.to_owned(), disk);
        Ok(())
    })?;
    Ok(disks)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn disk_use(before: &BTreeMap<String, Disk>, after: &BTreeMap<String, Disk>) -> Vec<DiskUse> {
    let mut rows: Vec<DiskUse> = Vec::new();
    for (name, last) in after {
        let Some(first) = before.get(name) else {
            continue;
        };
        let completed = last.completed.saturating_sub(first.completed);
        let open = first.in_flight > 0 && last.in_flight > 0;
        if completed == 0 && !open {
            continue;
        }
        let ms = last.ms.saturating_sub(first.ms) as f64;
        rows.push(DiskUse {
            name: name.clone(),
            completed,
            mean_ms: (completed > 0).then(|| ms / completed as f64),
            in_flight: last.in_flight,
        });
    }
    // One that answers nothing is slower than any other.
    let slow = |row: &DiskUse| row.mean_ms.unwrap_or(f64::INFINITY);
    rows.sort_rows(|a, b| slow(b).total_cmp(&slow(a)));
    rows.truncate(TOP);
    rows
}

/// Time of all CPUs since boot, in ticks.
#[derive(Clone, Copy)]
struct CpuTime {
    all: u64,
    steal: u64,
}

impl CpuTime {
    fn steal(self, since: CpuTime) -> f64 {
        let all = self.all.saturating_sub(since.all).max(1);
        self.steal.saturating_sub(since.steal) as f64 / all as f64 * 100.0
    }
}

fn cpu_time(system: &dyn System) -> Result<CpuTime> {
    const FILE: &str = "/proc/stat";
    let text = read_lossy(system, FILE)?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let numbers: Option<Vec<u64>> = line.and_then(|line| {
        let words = line.split_ascii_whitespace();
        // The time of guests is part of user and nice.
        words.take(8).map(|word| word.parse().ok()).collect()
    });
    let numbers = numbers.ok_or_else(|| Error::parse(FILE, "no line 'cpu' of numbers"))?;
    Ok(CpuTime {
        all: numbers.iter().sum(),
        steal: numbers.get(7).copied().unwrap_or(0),
    })
}

// The kernel log.

/// Returns what the kernel log tells of stalls, newest first.
pub(super) fn log(system: &dyn System) -> Result<Vec<LogLine>> {
    let now = system.now();
    let records = system.kernel_log()?;
    let lines = records.iter().rev().filter_map(|record| line(record, now));
    Ok(lines.take(MOST_LINES).collect())
}

/// Returns a record as a line, where it tells of a stall and comes from the kernel itself.
fn line(record: &str, now: Nanos) -> Option<LogLine> {
    let (head, text) = record.split_once(';')?;
    let text = text.lines().next()?;
    let mut head = head.split(',');
    let priority: u32 = head.next()?.parse().ok()?;
    let at: u64 = head.nth(1)?.parse().ok()?;
    // Programs write to the log, too, with a facility of their own.
    if priority >> 3 != 0 {
        return None;
    }
    Some(LogLine {
        kind: kind(text)?,
        seconds_ago: (now.0 / 1_000).saturating_sub(at) / 1_000_000,
        text: text.chars().take(LINE).collect(),
    })
}

/// Returns of what a line tells, by the words of Linux 4.0 to 6.18.
fn kind(text: &str) -> Option<LogKind> {
    let has = |word: &str| text.contains(word);
    // `oom_kill_process()`: "Out of memory: Killed process", "Memory cgroup out of memory: Killed process".
    if has("ut of memory: Kill") {
        return Some(LogKind::OomKill);
    }
    // `check_hung_task()`.
    if has("INFO: task ") && has("blocked for more than") {
        return Some(LogKind::HungTask);
    }
    // `watchdog_timer_fn()`, `watchdog_hardlockup_check()`, `print_other_cpu_stall()`, `print_cpu_stall()`.
    if has("soft lockup") || has("hard LOCKUP") || (has("rcu") && has("detected") && has("stall")) {
        return Some(LogKind::Lockup);
    }
    let gpu = [
        "GPU HANG",          // i915
        "GPU hang",          // xe, radeon
        "Timedout job",      // xe
        "GPU reset begin",   // amdgpu
        "gpu lockup",        // msm
        "GPU for hang",      // v3d, vc4
        "gpu sched timeout", // panfrost, lima
        "recover hung GPU",  // etnaviv
        "NVRM: Xid",         // the driver of NVIDIA
    ];
    let ring =
        has("ring ") && has(" timeout") && ["amdgpu", "drm", "radeon"].iter().any(|d| has(d));
    let nouveau = has("nouveau") && (has("killed") || has("timeout") || has("fault"));
    if gpu.iter().any(|word| has(word)) || ring || nouveau {
        return Some(LogKind::GpuHang);
    }
    // `blk_print_req_error()`, `nvme_timeout()`, `ata_eh_link_report()`, `mmc`. An empty drive fails at each look.
    let empty_drive = has("dev fd") || has("dev sr");
    let disk = has("I/O error, dev ")
        || (has("nvme") && has("timeout"))
        || (has("ata") && has("exception Emask"))
        || (has("mmc") && has("Timeout waiting for hardware"));
    (disk && !empty_drive).then_some(LogKind::DiskError)
}

#[cfg(test)]
mod tests;
