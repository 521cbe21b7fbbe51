//! Where evidence comes from: what the kernel shows.

use stopgap_events::machine::{Check, CheckState};

use super::{Checker, Machine, less, ok, unknown};
use crate::environment::pressure;
use crate::files::read_number;

pub(super) const CHECKS: &[Checker] = &[
    switch_records,
    page_frames,
    pressure_stall,
    free_blocks,
    block_types,
    tracefs,
    debugfs,
    bpf,
];

/// `PERF_RECORD_SWITCH`. Below 3 `perf_event_paranoid` lets everyone look at processes of
/// their own (`kernel/events/core.c`); 3 and 4 are additions of Debian and Ubuntu.
fn switch_records(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "switch records (perf_event_open)";
    const COSTS: &str =
        "the time of each switch, in record without root too; rusage still counts them";
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let level: i32 = match read_number(machine.system, path) {
        Ok(level) => level,
        Err(error) if error.is_absent() => {
            let found = "this kernel has no perf events (CONFIG_PERF_EVENTS)";
            return less(WHAT, CheckState::Absent, found, COSTS, "");
        }
        Err(error) => return unknown(WHAT, &error, COSTS),
    };
    let found = format!("perf_event_paranoid {level}");
    // CAP_PERFMON came with 5.8; a kernel that does not have it cannot grant it.
    if machine.is_admin() || machine.held.has("CAP_PERFMON") || level < 0 {
        ok(WHAT, format!("{found}, any process"))
    } else if level <= 2 {
        let costs = "switches of other users' processes";
        let advice = "root or CAP_PERFMON";
        less(
            WHAT,
            CheckState::Limited,
            format!("{found}, own processes"),
            costs,
            advice,
        )
    } else {
        let advice = "sysctl kernel.perf_event_paranoid=2, or root or CAP_PERFMON";
        less(WHAT, CheckState::Absent, found, COSTS, advice)
    }
}

/// Page frame numbers in `/proc/PID/pagemap`: 0 without `CAP_SYS_ADMIN` since 4.2.
fn page_frames(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "physical page frames (pagemap)";
    const COSTS: &str = "chunks: physical runs and IOMMU entries of a buffer are unknown";
    match machine.system.read_at("/proc/self/pagemap".as_ref(), 0, 8) {
        Ok(_) if machine.is_admin() => ok(WHAT, "frame numbers are shown"),
        Ok(_) => {
            let found = "frame numbers are hidden";
            less(
                WHAT,
                CheckState::Absent,
                found,
                COSTS,
                "root (CAP_SYS_ADMIN)",
            )
        }
        Err(error) if error.is_absent() => {
            let found = "this kernel has no pagemap (CONFIG_PROC_PAGE_MONITOR)";
            less(WHAT, CheckState::Absent, found, COSTS, "")
        }
        Err(error) => unknown(WHAT, &error, COSTS),
    }
}

fn pressure_stall(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "pressure (PSI)";
    let (shown, missing) = pressure(machine.system);
    let Some(first) = missing.first() else {
        return ok(WHAT, "cpu, memory, io");
    };
    let state = match shown.len() {
        0 => CheckState::Absent,
        _ => CheckState::Limited,
    };
    let costs = "how long tasks waited for memory, CPU and I/O";
    less(WHAT, state, format!("no {}", first.what), costs, &first.why)
}

fn free_blocks(machine: &Machine<'_>) -> Check {
    let costs = "the unusable-free-space index: whether memory is fragmented";
    readable(machine, "free blocks (buddyinfo)", "/proc/buddyinfo", costs)
}

/// Readable by root alone since 5.4.
fn block_types(machine: &Machine<'_>) -> Check {
    let costs = "which free blocks are movable, for snapshots";
    let path = "/proc/pagetypeinfo";
    readable(machine, "block types (pagetypeinfo)", path, costs)
}

fn readable(machine: &Machine<'_>, what: &str, path: &str, costs: &str) -> Check {
    match machine.system.read(path.as_ref()) {
        Ok(_) => ok(what, path),
        Err(error) => refused(what, &error, costs, "not in this kernel"),
    }
}

fn tracefs(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "trace events (tracefs)";
    const COSTS: &str =
        "who woke, pre-empted or reclaimed whom: record has switches and counters alone";
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let list = |place: &str| machine.system.list(format!("{place}/events").as_ref());
    if let Some(place) = places.iter().find(|place| list(place).is_ok()) {
        return ok(WHAT, *place);
    }
    if machine.system.tracefs().is_ok() {
        return ok(
            WHAT,
            "not mounted where it belongs; record mounts it for itself",
        );
    }
    match list(places[0]) {
        Ok(_) => ok(WHAT, places[0]),
        Err(error) => {
            let advice = "as root: mount -t tracefs tracefs /sys/kernel/tracing";
            refused(WHAT, &error, COSTS, advice)
        }
    }
}

fn debugfs(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "debugfs";
    const COSTS: &str = "the preemption model in use now; without it the one at boot is shown";
    let path = "/sys/kernel/debug";
    let advice = "as root: mount -t debugfs debugfs /sys/kernel/debug";
    match machine.system.list(path.as_ref()) {
        Ok(names) if names.is_empty() => {
            let found = format!("{path} is empty: not mounted");
            less(WHAT, CheckState::Absent, found, COSTS, advice)
        }
        Ok(_) => ok(WHAT, path),
        Err(error) => refused(WHAT, &error, COSTS, advice),
    }
}

/// BPF programs; their types (BTF) are what tools find kernel structures by.
fn bpf(machine: &Machine<'_>) -> Check {
    const WHAT: &str = "BPF";
    const COSTS: &str = "nothing of stopgap's own; bpftrace and bcc cannot look further";
    let types = machine.system.list("/sys/kernel/btf".as_ref());
    let types = types.is_ok_and(|names| names.iter().any(|name| name == "vmlinux"));
    let path = "/proc/sys/kernel/unprivileged_bpf_disabled";
    match read_number::<_, u32>(machine.system, path) {
        Err(error) if error.is_absent() => {
            let found = "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)";
            less(WHAT, CheckState::Absent, found, COSTS, "")
        }
        Err(error) => unknown(WHAT, &error, COSTS),
        Ok(_) if !machine.is_admin() => {
            let found = "tracing programs are for root";
            less(
                WHAT,
                CheckState::Absent,
                found,
                COSTS,
                "root (CAP_SYS_ADMIN)",
            )
        }
        Ok(_) if types => ok(WHAT, "with kernel types (BTF)"),
        Ok(_) => {
            let found = "without kernel types (CONFIG_DEBUG_INFO_BTF)";
            less(WHAT, CheckState::Limited, found, COSTS, "")
        }
    }
}

/// Absent, because it is not there or not for us; unknown for any other error.
fn refused(what: &str, error: &crate::Error, costs: &str, absent: &str) -> Check {
    let advice = match (error.is_absent(), error.is_refused()) {
        (true, _) => absent,
        (_, true) => "root",
        _ => return unknown(what, error, costs),
    };
    less(what, CheckState::Absent, error.to_string(), costs, advice)
}
