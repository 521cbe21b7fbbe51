//! Checks of the means that probes need: memory in its forms, limits, calls.

use stopgap_events::machine::{Check, CheckState};

use super::{Machine, Row};
use crate::cgroup::{Site, Version};
use crate::environment::{THP, privilege, swap};
use crate::error::{Error, Result};
use crate::files::{read_choice, read_number};

pub(super) const ROWS: &[Row] = &[
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
        check: |row, machine| match swap::read(machine.system) {
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
        check: |row, machine| match privilege::memlock_limit(machine.system) {
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
