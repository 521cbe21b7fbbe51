//! What the probes work with: memory in its forms, limits, calls.

use stopgap_events::machine::{Check, CheckState};

use super::{Checker, Machine, less, ok, unknown};
use crate::cgroup::{Site, Version};
use crate::environment::{THP, privilege, swap};
use crate::error::{Error, Result};
use crate::files::{read_choice, read_number};

pub(super) const CHECKS: &[Checker] = &[
    memory_group,
    swap_space,
    huge_pages,
    multi_size_pages,
    pool,
    collapse,
    locked_memory,
    io_uring,
    mappings,
];

/// A memory cgroup of our own can be made by root where the hierarchy is mounted for writing,
/// and by a user to whom it was delegated.
fn memory_group(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "memory cgroup";
    const COSTS: &str = "reclaim: no pressure can be made without harming others";
    let site = match Site::find(machine.system) {
        Ok(site) => site,
        Err(Error::Unsupported { advice, .. }) => {
            return less(WHAT, CheckState::Absent, advice, COSTS, "");
        }
        Err(error) => return unknown(WHAT, &error, COSTS),
    };
    let (kind, advice) = match site.version {
        Version::V1 => ("cgroup1", "root"),
        Version::V2 => (
            "cgroup2",
            "root, or systemd-run --user --scope -p Delegate=yes stopgap ...",
        ),
    };
    let delegated = || machine.system.is_private(&site.parent).unwrap_or(false);
    if machine.system.uid() == 0 || delegated() {
        return ok(WHAT, kind);
    }
    less(
        WHAT,
        CheckState::Absent,
        format!("{kind}, not writable for us"),
        COSTS,
        advice,
    )
}

fn swap_space(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "swap";
    const COSTS: &str = "reclaim: anonymous memory cannot be reclaimed, only files";
    match swap::read(machine.system) {
        Ok(swap) if swap.kind == "none" => less(
            WHAT,
            CheckState::Absent,
            "none",
            COSTS,
            "zram, or a swap file",
        ),
        Ok(swap) => ok(WHAT, format!("{}, {}", swap.kind, swap.size)),
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}

fn huge_pages(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "transparent huge pages";
    const COSTS: &str = "chunks: the strategies with huge pages";
    match read_choice(machine.system, format!("{THP}/enabled")) {
        Ok(word) if word == "never" => {
            let advice = "as root the probe switches them on and back; or: \
                          echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
            less(WHAT, CheckState::Limited, word, COSTS, advice)
        }
        Ok(word) => ok(WHAT, word),
        Err(error) if error.is_absent() => {
            let found = "not in this kernel (CONFIG_TRANSPARENT_HUGEPAGE)";
            less(WHAT, CheckState::Absent, found, COSTS, "")
        }
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}

/// Sizes between a base page and a PMD, 6.8 on.
fn multi_size_pages(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "multi-size THP";
    const COSTS: &str = "chunks: the strategies with pages between base page and PMD";
    let sizes = match sizes_in(machine, THP) {
        Ok(sizes) => sizes,
        Err(error) if error.is_absent() => Vec::new(),
        Err(error) => return unknown(WHAT, &error, COSTS),
    };
    let largest: u64 = read_number(machine.system, format!("{THP}/hpage_pmd_size"))
        .map_or(u64::MAX, |bytes: u64| bytes / 1024);
    let sizes: Vec<u64> = sizes.into_iter().filter(|&kib| kib < largest).collect();
    if sizes.is_empty() {
        let found = format!("none in {} (6.8 on)", machine.linux());
        return less(WHAT, CheckState::Absent, found, COSTS, "");
    }
    let all: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let on = |kib: &&u64| {
        let file = format!("{THP}/hugepages-{kib}kB/enabled");
        read_choice(machine.system, file).is_ok_and(|word| word != "never")
    };
    let enabled: Vec<String> = sizes.iter().filter(on).map(u64::to_string).collect();
    if enabled.is_empty() {
        let found = format!("{} KiB, all never", all.join(", "));
        let advice = "as root the probe switches them on and back";
        return less(WHAT, CheckState::Limited, found, COSTS, advice);
    }
    ok(
        WHAT,
        format!("{} KiB, enabled {} KiB", all.join(", "), enabled.join(", ")),
    )
}

/// The sizes of `hugepages-NkB` in a directory, KiB, ascending.
fn sizes_in(machine: &Machine<'_>, directory: &str) -> Result<Vec<u64>> {
    let names = machine.system.list(directory.as_ref())?;
    let size = |name: &String| {
        name.strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()
    };
    let mut sizes: Vec<u64> = names.iter().filter_map(size).collect();
    sizes.sort_unstable();
    Ok(sizes)
}

fn pool(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "hugetlb pools";
    const COSTS: &str = "chunks: the strategy with reserved huge pages";
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let sizes = match sizes_in(machine, POOLS) {
        Ok(sizes) => sizes,
        Err(error) if error.is_absent() => {
            let found = "not in this kernel (CONFIG_HUGETLBFS)";
            return less(WHAT, CheckState::Absent, found, COSTS, "");
        }
        Err(error) => return unknown(WHAT, &error, COSTS),
    };
    let mut free = Vec::new();
    for &kib in &sizes {
        let file = format!("{POOLS}/hugepages-{kib}kB/free_hugepages");
        match read_number::<_, u64>(machine.system, file) {
            Ok(0) => {}
            Ok(count) => free.push(format!("{count} free of {kib} KiB")),
            Err(error) => return unknown(WHAT, &error, COSTS),
        }
    }
    if free.is_empty() {
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let found = format!("no free page of {} KiB", sizes.join(", "));
        return less(
            WHAT,
            CheckState::Limited,
            found,
            COSTS,
            "as root: sysctl vm.nr_hugepages=64",
        );
    }
    ok(WHAT, free.join(", "))
}

fn collapse(machine: &Machine<'_>) -> Check {
    since(
        machine,
        "MADV_COLLAPSE",
        (6, 1),
        "chunks: making huge pages of small ones on demand",
    )
}

/// A call that came with a kernel version.
fn since(machine: &Machine<'_>, what: &str, first: (u32, u32), costs: &str) -> Check {
    let found = format!("{}; came with {}.{}", machine.linux(), first.0, first.1);
    match machine.version {
        Some(version) if version >= first => ok(what, found),
        Some(_) => less(what, CheckState::Absent, found, costs, "a newer kernel"),
        None => less(what, CheckState::Unknown, found, costs, ""),
    }
}

/// What the *locked* sets of the reclaim probe may take: with `CAP_IPC_LOCK` anything.
fn locked_memory(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "locked memory (RLIMIT_MEMLOCK)";
    const COSTS: &str = "reclaim: locked sets are no larger than that";
    if machine.held.has("CAP_IPC_LOCK") {
        return ok(WHAT, "no limit (CAP_IPC_LOCK)");
    }
    match privilege::memlock_limit(machine.system) {
        Ok(None) => ok(WHAT, "unlimited"),
        Ok(Some(limit)) => {
            let advice = "root, or a higher ulimit -l";
            less(WHAT, CheckState::Limited, limit.to_string(), COSTS, advice)
        }
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}

/// `kernel.io_uring_disabled` (6.6 on): 1 leaves it to `CAP_SYS_ADMIN` and a group.
fn io_uring(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "io_uring";
    const COSTS: &str = "reclaim: the pinned set of registered buffers";
    let path = "/proc/sys/kernel/io_uring_disabled";
    match read_number::<_, u32>(machine.system, path) {
        Ok(0) => ok(WHAT, "enabled"),
        Ok(1) if machine.is_admin() => ok(WHAT, "enabled for root"),
        Ok(level) => {
            let found = format!("io_uring_disabled {level}");
            let advice = "as root: sysctl kernel.io_uring_disabled=0";
            less(WHAT, CheckState::Absent, found, COSTS, advice)
        }
        // Before that there was no switch; whether it was built in, only trying would tell.
        Err(error) if error.is_absent() => match machine.version {
            Some(version) if version >= (6, 6) => {
                let found = "not in this kernel (CONFIG_IO_URING)";
                less(WHAT, CheckState::Absent, found, COSTS, "")
            }
            _ => since(machine, WHAT, (5, 1), COSTS),
        },
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}

/// The default of the kernel is 65530 (`include/linux/mm.h`); distributions raise it.
fn mappings(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "mappings a process (max_map_count)";
    const COSTS: &str = "placement: its ladder of N ends there";
    match read_number::<_, u64>(machine.system, "/proc/sys/vm/max_map_count") {
        Ok(limit) if limit >= 65_530 => ok(WHAT, limit.to_string()),
        Ok(limit) => {
            let advice = "as root: sysctl vm.max_map_count=65530";
            less(WHAT, CheckState::Limited, limit.to_string(), COSTS, advice)
        }
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}
