//! Where evidence comes from: what the kernel shows.

use stopgap_events::machine::{Check, CheckState};

use super::{Machine, Row};
use crate::environment::pressure;
use crate::files::read_number;
use crate::tracefs::PLACES;

pub(super) const ROWS: &[Row] = &[
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
        costs: "who woke, pre-empted or reclaimed whom: record has switches and counters alone",
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
    // BPF programs; their types (BTF) are what tools find kernel structures by.
    Row {
        what: "BPF",
        costs: "nothing of stopgap's own; bpftrace and bcc cannot look further",
        check: bpf,
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
    match list(PLACES[0]) {
        Ok(_) => row.ok(PLACES[0]),
        Err(error) => {
            let advice = "as root: mount -t tracefs tracefs /sys/kernel/tracing";
            row.refused(&error, advice)
        }
    }
}

fn bpf(row: &Row, machine: &Machine<'_>) -> Check {
    let types = machine.system.list("/sys/kernel/btf".as_ref());
    let types = types.is_ok_and(|names| names.iter().any(|name| name == "vmlinux"));
    let path = "/proc/sys/kernel/unprivileged_bpf_disabled";
    match read_number::<_, u32>(machine.system, path) {
        Err(error) => row.unless_there(&error, "this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)"),
        Ok(_) if !machine.is_admin() => {
            row.absent("tracing programs are for root", "root (CAP_SYS_ADMIN)")
        }
        Ok(_) if types => row.ok("with kernel types (BTF)"),
        Ok(_) => row.limited("without kernel types (CONFIG_DEBUG_INFO_BTF)", ""),
    }
}
