//! What this machine allows: each means of measuring and each source of evidence, whether it
//! is there for this user, what is lost where it is not, and what would help.
//!
//! It only reads; nothing is tried out that would change something. So it says what the
//! kernel's settings and our capabilities promise, and a probe may still be refused by a
//! security module or a seccomp filter.

use stopgap_events::machine::{Check, CheckState};

use crate::System;
use crate::cgroup::{Site, Version};
use crate::environment::{Held, THP, memlock_limit, pressure, read_privilege, read_swap};
use crate::error::{Error, Result};
use crate::files::{read_choice, read_number, read_text};
use crate::notes::Notes;
use crate::tracefs::PLACES;

/// All checks, evidence first, then the means of the probes. About 60 small files, 1 ms. It
/// never fails: a check that cannot be made is [`CheckState::Unknown`].
#[must_use]
pub fn read(system: &dyn System) -> Vec<Check> {
    let machine = Machine {
        system,
        // Capabilities that cannot be read count as none: nothing is promised too much.
        held: read_privilege(system, &mut Notes::default()),
        version: version(system),
    };
    let rows = EVIDENCE.iter().chain(MEANS);
    rows.map(|row| (row.check)(row, &machine)).collect()
}

/// Facts that more than one check needs.
struct Machine<'a> {
    system: &'a dyn System,
    held: Held,
    /// Major and minor number of the kernel.
    version: Option<(u32, u32)>,
}

impl Machine<'_> {
    fn is_admin(&self) -> bool {
        self.held.has("CAP_SYS_ADMIN")
    }

    /// The kernel's version as people write it.
    fn linux(&self) -> String {
        match self.version {
            Some((major, minor)) => format!("Linux {major}.{minor}"),
            None => "a kernel of unknown version".to_owned(),
        }
    }
}

fn version(system: &dyn System) -> Option<(u32, u32)> {
    let release = read_text(system, "/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// One check.
struct Row {
    /// The thing looked at.
    what: &'static str,
    /// The price of its absence.
    costs: &'static str,
    check: fn(&Row, &Machine<'_>) -> Check,
}

impl Row {
    fn is(
        &self,
        state: CheckState,
        found: impl Into<String>,
        costs: &str,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            what: self.what.to_owned(),
            state,
            found: found.into(),
            costs: costs.to_owned(),
            advice: advice.into(),
        }
    }

    /// It is there.
    fn ok(&self, found: impl Into<String>) -> Check {
        self.is(CheckState::Ok, found, "", "")
    }

    /// It is there in part.
    fn limited(&self, found: impl Into<String>, advice: impl Into<String>) -> Check {
        self.is(CheckState::Limited, found, self.costs, advice)
    }

    /// Returns the check of something missing, or refused to this user.
    fn absent(&self, found: impl Into<String>, advice: impl Into<String>) -> Check {
        self.is(CheckState::Absent, found, self.costs, advice)
    }

    /// A file that tells it says something else than expected, or cannot be read.
    fn unknown(&self, error: &Error) -> Check {
        self.is(CheckState::Unknown, error.to_string(), self.costs, "")
    }

    /// Unknown, or absent with these words where the file does not exist.
    fn unless_there(&self, error: &Error, lacks: &str) -> Check {
        match error.is_absent() {
            true => self.absent(lacks, ""),
            false => self.unknown(error),
        }
    }

    /// Absent, because it is missing (with this advice) or refused to us; unknown for any other error.
    fn refused(&self, error: &Error, advice: &str) -> Check {
        match (error.is_absent(), error.is_refused()) {
            (true, _) => self.absent(error.to_string(), advice),
            (_, true) => self.absent(error.to_string(), "root"),
            _ => self.unknown(error),
        }
    }
}

// Where evidence comes from: what the kernel shows.

const EVIDENCE: &[Row] = &[
    Row {
        what: "source of record",
        costs: "",
        check: source_of_record,
    },
    Row {
        what: "switch records (perf_event_open)",
        costs: "the time of each switch, in record without root too; rusage still counts them",
        check: switch_records,
    },
    // Page frame numbers in `/proc/PID/pagemap`: 0 without `CAP_SYS_ADMIN` since 4.2.
    Row {
        what: "physical page frames (pagemap)",
        costs: "chunks: physical runs and IOMMU entries of a buffer are unknown",
        check: |row, machine| match machine.system.read_at("/proc/self/pagemap".as_ref(), 0, 8) {
            Ok(_) if machine.is_admin() => row.ok("frame numbers are shown"),
            Ok(_) => row.absent("frame numbers are hidden", "root (CAP_SYS_ADMIN)"),
            Err(error) => {
                let lacks = "this kernel has no pagemap (CONFIG_PROC_PAGE_MONITOR)";
                row.unless_there(&error, lacks)
            }
        },
    },
    Row {
        what: "pressure (PSI)",
        costs: "how long tasks waited for memory, CPU and I/O",
        check: |row, machine| {
            let (shown, missing) = pressure(machine.system);
            match (missing.first(), shown.len()) {
                (None, _) => row.ok("cpu, memory, io"),
                (Some(first), 0) => row.absent(format!("no {}", first.what), &first.why),
                (Some(first), _) => row.limited(format!("no {}", first.what), &first.why),
            }
        },
    },
    Row {
        what: "free blocks (buddyinfo)",
        costs: "the unusable-free-space index: whether memory is fragmented",
        check: |row, machine| readable(row, machine, "/proc/buddyinfo"),
    },
    // Readable by root alone since 5.4.
    Row {
        what: "block types (pagetypeinfo)",
        costs: "which free blocks are movable, for snapshots",
        check: |row, machine| readable(row, machine, "/proc/pagetypeinfo"),
    },
    Row {
        what: "trace events (tracefs)",
        costs: "record --source tracefs, watch: who woke, pre-empted or reclaimed whom",
        check: tracefs,
    },
    Row {
        what: "debugfs",
        costs: "the preemption model in use now; without it the one at boot is shown",
        check: |row, machine| {
            let path = "/sys/kernel/debug";
            let advice = "as root: mount -t debugfs debugfs /sys/kernel/debug";
            match machine.system.list(path.as_ref()) {
                Ok(names) if names.is_empty() => {
                    row.absent(format!("{path} is empty: not mounted"), advice)
                }
                Ok(_) => row.ok(path),
                Err(error) => row.refused(&error, advice),
            }
        },
    },
    Row {
        what: "BPF",
        costs: "record: every wait of every thread in its call, with its waker and stacks",
        check: |row, machine| match bpf_refused(machine) {
            Some(Lack { found, advice }) => row.absent(found, advice),
            None if filtered(machine) => row.is(
                CheckState::Unknown,
                "allowed, but this process is under a seccomp filter, which may refuse bpf(2)",
                row.costs,
                "without the filter (outside of the container)",
            ),
            None => row.ok("with kernel types (BTF)"),
        },
    },
    // Addresses in `/proc/kallsyms` (`kallsyms_show_value()`, kernel/ksyms_common.c).
    Row {
        what: "names of kernel functions (kallsyms)",
        costs: "stacks of the kernel in traces are addresses",
        check: kernel_names,
    },
];

/// `PERF_RECORD_SWITCH`. Below 3 `perf_event_paranoid` lets everyone look at processes of
/// their own (`kernel/events/core.c`); 3 and 4 are additions of Debian and Ubuntu.
fn switch_records(row: &Row, machine: &Machine<'_>) -> Check {
    let level: i32 = match read_number(machine.system, crate::switches::PARANOID) {
        Ok(level) => level,
        Err(error) => {
            let lacks = "this kernel has no perf events (CONFIG_PERF_EVENTS)";
            return row.unless_there(&error, lacks);
        }
    };
    let found = format!("perf_event_paranoid {level}");
    // CAP_PERFMON came with 5.8; a kernel that does not have it cannot grant it.
    if machine.is_admin() || machine.held.has("CAP_PERFMON") || level < 0 {
        row.ok(format!("{found}, any process"))
    } else if level <= 2 {
        let found = format!("{found}, own processes");
        let costs = "switches of other users' processes";
        row.is(CheckState::Limited, found, costs, "root or CAP_PERFMON")
    } else {
        let advice = "sysctl kernel.perf_event_paranoid=2, or root or CAP_PERFMON";
        row.absent(found, advice)
    }
}

fn readable(row: &Row, machine: &Machine<'_>, path: &str) -> Check {
    match machine.system.read(path.as_ref()) {
        Ok(_) => row.ok(path),
        Err(error) => row.refused(&error, "not in this kernel"),
    }
}

fn tracefs(row: &Row, machine: &Machine<'_>) -> Check {
    let list = |place: &str| machine.system.list(format!("{place}/events").as_ref());
    if let Some(place) = PLACES.iter().find(|place| list(place).is_ok()) {
        return row.ok(*place);
    }
    if machine.system.tracefs().is_ok() {
        return row.ok("not mounted where it belongs; record mounts it for itself");
    }
    if is_confidential(machine) {
        return row.absent("lockdown 'confidentiality' leaves it empty", INTEGRITY);
    }
    match list(PLACES[0]) {
        Ok(_) => row.ok(PLACES[0]),
        Err(error) => {
            let advice = "as root: mount -t tracefs tracefs /sys/kernel/tracing";
            row.refused(&error, advice)
        }
    }
}

/// How a kernel lets its memory be read.
const INTEGRITY: &str = "boot with lockdown=integrity";

/// A thing that is missing, and how to get it.
struct Lack {
    found: String,
    advice: &'static str,
}

/// Which source `record` takes. Where that is not BPF, why, and what is unknown by the one that it takes.
fn source_of_record(row: &Row, machine: &Machine<'_>) -> Check {
    let Some(Lack { found, advice }) = bpf_refused(machine) else {
        let unless = if filtered(machine) {
            ", unless the seccomp filter of this process refuses bpf(2)"
        } else {
            ""
        };
        return row.ok(format!("BPF: every wait of all threads{unless}"));
    };
    if machine.is_admin() && !in_pid_namespace(machine) && machine.system.tracefs().is_ok() {
        let costs = "what threads of other programs wait for, and the program's own stacks";
        let found = format!("tracefs (no BPF: {found})");
        return row.is(CheckState::Limited, found, costs, advice);
    }
    let costs = "who wakes a thread, and in which call, for which lock or disk it waits";
    let (state, source) = match switch_records(row, machine).state {
        CheckState::Ok | CheckState::Limited => {
            (CheckState::Limited, "perf: switches and counters")
        }
        _ => (CheckState::Absent, "counters alone, perf is refused"),
    };
    row.is(state, format!("{source} (no BPF: {found})"), costs, advice)
}

/// Why the programs of `record` cannot be loaded; `None` where nothing is known that speaks against it.
fn bpf_refused(machine: &Machine<'_>) -> Option<Lack> {
    let lack = |found: String, advice| Some(Lack { found, advice });
    let path = "/proc/sys/kernel/unprivileged_bpf_disabled";
    match read_number::<_, u32>(machine.system, path) {
        Err(error) if error.is_absent() => {
            let found = "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)";
            return lack(found.to_owned(), "a kernel with CONFIG_BPF_SYSCALL");
        }
        Err(error) => return lack(error.to_string(), ""),
        Ok(_) => {}
    }
    let types = machine.system.list("/sys/kernel/btf".as_ref());
    if !types.is_ok_and(|names| names.iter().any(|name| name == "vmlinux")) {
        let found =
            "no types of kernel structures (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)";
        return lack(found.to_owned(), "a kernel with CONFIG_DEBUG_INFO_BTF");
    }
    if in_pid_namespace(machine) {
        let found =
            "in a PID namespace, processes have other numbers than the kernel's programs see";
        return lack(found.to_owned(), "run it outside of the container");
    }
    if is_confidential(machine) {
        let found = "lockdown 'confidentiality' lets nobody read the kernel's memory";
        return lack(found.to_owned(), INTEGRITY);
    }
    let both = machine.held.has("CAP_BPF") && machine.held.has("CAP_PERFMON");
    if !machine.is_admin() && !both {
        let advice =
            "root, or as root: setcap cap_bpf,cap_perfmon,cap_syslog+ep FILE, of stopgap's file";
        return lack("CAP_BPF and CAP_PERFMON are not held".to_owned(), advice);
    }
    match machine.version {
        Some(version) if version < (6, 1) => lack(
            format!("{}; it needs 6.1", machine.linux()),
            "a newer kernel",
        ),
        _ => None,
    }
}

fn is_confidential(machine: &Machine<'_>) -> bool {
    let lockdown = read_choice(machine.system, "/sys/kernel/security/lockdown");
    lockdown.is_ok_and(|word| word == "confidentiality")
}

/// Whether processes have other numbers here than the kernel's own (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
fn in_pid_namespace(machine: &Machine<'_>) -> bool {
    const FIRST: &str = "pid:[4026531836]";
    let namespace = machine.system.link("/proc/self/ns/pid".as_ref());
    namespace.is_ok_and(|namespace| namespace.as_os_str() != FIRST)
}

/// Whether a filter decides which system calls this process may make.
fn filtered(machine: &Machine<'_>) -> bool {
    let status = read_text(machine.system, "/proc/self/status").unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

fn kernel_names(row: &Row, machine: &Machine<'_>) -> Check {
    let path = "/proc/kallsyms";
    let number = |path: &str| read_number::<_, i32>(machine.system, path);
    let restrict = match number("/proc/sys/kernel/kptr_restrict") {
        Ok(restrict) => restrict,
        Err(error) => return row.unless_there(&error, "this kernel has no such setting"),
    };
    if let Err(error) = machine.system.read_at(path.as_ref(), 0, 64) {
        return row.unless_there(
            &error,
            "this kernel has no /proc/kallsyms (CONFIG_KALLSYMS)",
        );
    }
    let paranoid = number(crate::switches::PARANOID).unwrap_or(2);
    if machine.held.has("CAP_SYSLOG") && restrict < 2 {
        return row.ok("shown (CAP_SYSLOG)");
    }
    if restrict == 0 && paranoid <= 1 {
        return row.ok("shown");
    }
    let advice = match restrict {
        2.. => "as root: sysctl kernel.kptr_restrict=1",
        _ => "root or CAP_SYSLOG",
    };
    row.absent(format!("hidden (kptr_restrict {restrict})"), advice)
}

// Checks of the means that probes need: memory in its forms, limits, calls.

const MEANS: &[Row] = &[
    // The probe makes a memory cgroup of its own as root only, where the hierarchy is mounted for writing.
    Row {
        what: "memory cgroup",
        costs: "reclaim: no pressure can be made without harming others",
        check: |row, machine| match Site::find(machine.system) {
            Ok(site) => {
                let kind = match site.version {
                    Version::V1 => "cgroup1",
                    Version::V2 => "cgroup2",
                };
                match machine.system.uid() {
                    0 => row.ok(kind),
                    _ => row.absent(format!("{kind}, but only root makes one"), "root"),
                }
            }
            Err(Error::Unsupported { advice, .. }) => row.absent(advice, ""),
            Err(error) => row.unknown(&error),
        },
    },
    Row {
        what: "swap",
        costs: "reclaim: anonymous memory cannot be reclaimed, only files",
        check: |row, machine| match read_swap(machine.system) {
            Ok(swap) if swap.kind == "none" => row.absent("none", "zram, or a swap file"),
            Ok(swap) => row.ok(format!("{}, {}", swap.kind, swap.size)),
            Err(error) => row.unknown(&error),
        },
    },
    Row {
        what: "transparent huge pages",
        costs: "chunks: the strategies with huge pages",
        check: |row, machine| match read_choice(machine.system, format!("{THP}/enabled")) {
            Ok(word) if word == "never" => {
                let advice = "as root the probe switches them on and back; or: \
                              echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
                row.limited(word, advice)
            }
            Ok(word) => row.ok(word),
            Err(error) => {
                row.unless_there(&error, "not in this kernel (CONFIG_TRANSPARENT_HUGEPAGE)")
            }
        },
    },
    // Sizes between a base page and a PMD, 6.8 on.
    Row {
        what: "multi-size THP",
        costs: "chunks: the strategies with pages between base page and PMD",
        check: multi_size_pages,
    },
    Row {
        what: "hugetlb pools",
        costs: "chunks: the strategy with reserved huge pages",
        check: pool,
    },
    Row {
        what: "MADV_COLLAPSE",
        costs: "chunks: making huge pages of small ones on demand",
        check: |row, machine| since(row, machine, (6, 1)),
    },
    // What the *locked* sets of the reclaim probe may take: with `CAP_IPC_LOCK` anything.
    Row {
        what: "locked memory (RLIMIT_MEMLOCK)",
        costs: "reclaim: locked sets are no larger than that",
        check: |row, machine| match memlock_limit(machine.system) {
            _ if machine.held.has("CAP_IPC_LOCK") => row.ok("no limit (CAP_IPC_LOCK)"),
            Ok(None) => row.ok("unlimited"),
            Ok(Some(limit)) => row.limited(limit.to_string(), "root, or a higher ulimit -l"),
            Err(error) => row.unknown(&error),
        },
    },
    Row {
        what: "io_uring",
        costs: "reclaim: the pinned set of registered buffers",
        check: io_uring,
    },
    // The default of the kernel is 65530 (`include/linux/mm.h`); distributions raise it.
    Row {
        what: "mappings a process (max_map_count)",
        costs: "placement: its ladder of N ends there",
        check: |row, machine| {
            let limit = read_number::<_, u64>(machine.system, "/proc/sys/vm/max_map_count");
            match limit {
                Ok(limit) if limit >= 65_530 => row.ok(limit.to_string()),
                Ok(limit) => {
                    row.limited(limit.to_string(), "as root: sysctl vm.max_map_count=65530")
                }
                Err(error) => row.unknown(&error),
            }
        },
    },
];

fn multi_size_pages(row: &Row, machine: &Machine<'_>) -> Check {
    let sizes = match sizes_in(machine, THP) {
        Err(error) if !error.is_absent() => return row.unknown(&error),
        sizes => sizes.unwrap_or_default(),
    };
    let largest: u64 = read_number(machine.system, format!("{THP}/hpage_pmd_size"))
        .map_or(u64::MAX, |bytes: u64| bytes / 1024);
    let sizes: Vec<u64> = sizes.into_iter().filter(|&kib| kib < largest).collect();
    if sizes.is_empty() {
        return row.absent(format!("none in {} (6.8 on)", machine.linux()), "");
    }
    let all: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let all = all.join(", ");
    let on = |kib: &&u64| {
        let file = format!("{THP}/hugepages-{kib}kB/enabled");
        read_choice(machine.system, file).is_ok_and(|word| word != "never")
    };
    let enabled: Vec<String> = sizes.iter().filter(on).map(u64::to_string).collect();
    if enabled.is_empty() {
        let advice = "as root the probe switches them on and back";
        return row.limited(format!("{all} KiB, all never"), advice);
    }
    row.ok(format!("{all} KiB, enabled {} KiB", enabled.join(", ")))
}

/// Returns the sizes of `hugepages-NkB` in a directory, KiB, ascending.
fn sizes_in(machine: &Machine<'_>, directory: &str) -> Result<Vec<u64>> {
    let names = machine.system.list(directory.as_ref())?;
    let size = |name: &String| {
        let number = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        number.parse().ok()
    };
    let mut sizes: Vec<u64> = names.iter().filter_map(size).collect();
    sizes.sort_unstable();
    Ok(sizes)
}

fn pool(row: &Row, machine: &Machine<'_>) -> Check {
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let sizes = match sizes_in(machine, POOLS) {
        Ok(sizes) => sizes,
        Err(error) => return row.unless_there(&error, "not in this kernel (CONFIG_HUGETLBFS)"),
    };
    let mut free = Vec::new();
    for &kib in &sizes {
        let file = format!("{POOLS}/hugepages-{kib}kB/free_hugepages");
        match read_number::<_, u64>(machine.system, file) {
            Ok(0) => {}
            Ok(count) => free.push(format!("{count} free of {kib} KiB")),
            Err(error) => return row.unknown(&error),
        }
    }
    if free.is_empty() {
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let found = format!("no free page of {} KiB", sizes.join(", "));
        return row.limited(found, "as root: sysctl vm.nr_hugepages=64");
    }
    row.ok(free.join(", "))
}

/// Checks a call that came with a kernel version.
fn since(row: &Row, machine: &Machine<'_>, first: (u32, u32)) -> Check {
    let found = format!("{}; came with {}.{}", machine.linux(), first.0, first.1);
    match machine.version {
        Some(version) if version >= first => row.ok(found),
        Some(_) => row.absent(found, "a newer kernel"),
        None => row.is(CheckState::Unknown, found, row.costs, ""),
    }
}

/// `kernel.io_uring_disabled` (6.6 on): 1 leaves it to `CAP_SYS_ADMIN` and a group.
fn io_uring(row: &Row, machine: &Machine<'_>) -> Check {
    let path = "/proc/sys/kernel/io_uring_disabled";
    match read_number::<_, u32>(machine.system, path) {
        Ok(0) => row.ok("enabled"),
        Ok(1) if machine.is_admin() => row.ok("enabled for root"),
        Ok(level) => {
            let advice = "as root: sysctl kernel.io_uring_disabled=0";
            row.absent(format!("io_uring_disabled {level}"), advice)
        }
        // Before that there was no switch; whether it was built in, only trying would tell.
        Err(error) if error.is_absent() && machine.version < Some((6, 6)) => {
            since(row, machine, (5, 1))
        }
        Err(error) => row.unless_there(&error, "not in this kernel (CONFIG_IO_URING)"),
    }
}

#[cfg(test)]
mod tests;
