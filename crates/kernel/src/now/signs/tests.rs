use stopgap_testing::assert_contains;

use super::super::{Options, read};
use super::*;
use crate::fake::Fake;

const HALF: Nanos = Nanos::millis(500);

fn machine() -> Fake {
    Fake::default()
        .with_file("/proc/vmstat", "pswpin 100\npswpout 50\noom_kill 2\n")
        .with_file(
            "/proc/meminfo",
            "SwapTotal: 1024 kB\nSwapFree: 768 kB\nUnevictable: 0 kB\nMlocked: 0 kB\n",
        )
        .with_file(
            "/proc/swaps",
            "Filename Type Size Used Priority\n/swap file 1024 256 -2\n",
        )
        .with_file("/proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n")
        .with_file("/proc/uptime", "900.25 100.00\n")
}

fn now(fake: &Fake) -> stopgap_events::machine::Now {
    read(fake, &Options::default()).expect("the whole machine")
}

/// A record of the kernel log, so many seconds after boot.
fn record(priority: u32, seconds: u64, text: &str) -> String {
    format!("{priority},1,{},-;{text}\n", seconds * 1_000_000)
}

#[test]
fn swap_and_steal_are_rates_over_the_interval() {
    let fake = machine()
        .later(
            HALF,
            "/proc/vmstat",
            Some("pswpin 356\npswpout 50\noom_kill 3\n"),
        )
        .later(HALF, "/proc/stat", Some("cpu  20 0 20 140 0 0 0 20 0 0\n"));
    let now = now(&fake);
    let swap = now.swap.expect("read");
    assert_eq!((swap.total, swap.used), (Bytes::kib(1024), Bytes::kib(256)));
    // 256 pages of 4 KiB in half a second.
    assert_eq!((swap.in_per_s, swap.out_per_s), (2_097_152.0, 0.0));
    assert!(swap.on_disk);
    assert_eq!(now.steal, Some(20.0));
    assert_eq!(now.oom_kills, Some(3));
}

#[test]
fn zram_is_no_disk() {
    let fake = machine().with_file(
        "/proc/swaps",
        "Filename Type Size Used Priority\n/dev/zram0 partition 1024 256 100\n",
    );
    assert!(!now(&fake).swap.expect("read").on_disk);
}

#[test]
fn a_disk_is_as_slow_as_its_requests_and_one_that_answers_none_leads() {
    let lines = |reads: u64, ms: u64, open: u64| {
        format!(
            "   8 0 sda {reads} 0 0 {ms} 0 0 0 0 0 0 0\n   8 1 sda1 9 0 0 9 0 0 0 0 0 0 0\n   8 16 sdb 5 0 0 5 0 0 0 0 {open} 0 0\n\
             \u{20}  7 0 loop0 {reads} 0 0 {ms} 0 0 0 0 0 0 0\n   8 32 sdc 5 0 0 5 0 0 0 0 0 0 0\n"
        )
    };
    let mut fake = machine().with_file("/proc/diskstats", lines(10, 100, 1));
    for disk in ["sda", "sdb", "sdc", "loop0"] {
        fake = fake.with_file(format!("/sys/block/{disk}/size"), "1\n");
    }
    let fake = fake.later(HALF, "/proc/diskstats", Some(&lines(14, 500, 2)));
    let now = now(&fake);
    let rows: Vec<_> = now
        .disks
        .iter()
        .map(|disk| {
            (
                disk.name.as_str(),
                disk.completed,
                disk.mean_ms,
                disk.in_flight,
            )
        })
        .collect();
    assert_eq!(rows, [("sdb", 0, None, 2), ("sda", 4, Some(100.0), 0)]);
}

#[test]
fn threads_that_stand_still_in_state_d_are_stuck_and_those_of_the_kernel_are_not() {
    let status = |state: &str, switches: u32, kthread: u32| {
        format!(
            "Name:\tdd\nState:\t{state}\nTgid:\t20\nVmSize:\t9 kB\nKthread:\t{kthread}\n\
             voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
    };
    let mut fake = machine();
    for (pid, state, kthread) in [
        (20, "D (disk sleep)", 0),
        (21, "S (sleeping)", 0),
        (22, "D (disk sleep)", 1),
        (23, "D (disk sleep)", 0),
    ] {
        fake = fake
            .with_file(format!("/proc/{pid}/status"), status(state, 5, kthread))
            .with_file(
                format!("/proc/{pid}/task/{pid}/status"),
                status(state, 5, kthread),
            )
            .with_file(format!("/proc/{pid}/task/{pid}/wchan"), "io_schedule");
    }
    // One that was in D at both looks and ran in between.
    let fake = fake.later(
        HALF,
        "/proc/23/task/23/status",
        Some(&status("D (disk sleep)", 6, 0)),
    );
    let now = now(&fake);
    let rows: Vec<_> = now
        .stuck
        .iter()
        .map(|one| (one.tid, one.function.as_deref()))
        .collect();
    assert_eq!(
        (rows, now.stuck_count),
        (vec![(20, Some("io_schedule"))], 1)
    );
}

#[test]
fn waiting_within_the_interval_is_apart_from_the_averages() {
    let text = |some: u64, full: u64| {
        format!(
            "some avg10=9.00 avg60=2.00 avg300=3.00 total={some}\nfull avg10=8.00 avg60=0.20 avg300=0.30 total={full}\n"
        )
    };
    let mut fake = machine();
    for resource in ["cpu", "memory", "io"] {
        fake = fake.with_file(format!("/proc/pressure/{resource}"), text(1_000, 1_000));
    }
    let fake = fake.later(HALF, "/proc/pressure/io", Some(&text(126_000, 51_000)));
    let now = now(&fake);
    let rows: Vec<_> = now
        .waited
        .iter()
        .map(|one| (one.resource.as_str(), one.some, one.full))
        .collect();
    assert_eq!(
        rows,
        [
            ("cpu", 0.0, Some(0.0)),
            ("memory", 0.0, Some(0.0)),
            ("io", 25.0, Some(10.0))
        ]
    );
}

#[test]
fn the_log_tells_of_stalls_newest_first_and_programs_cannot_write_there() {
    let log = record(6, 100, "Linux version 6.18")
        + &record(
            3,
            200,
            "INFO: task dd:12 blocked for more than 122 seconds.",
        )
        + &record(11, 300, "Out of memory: Killed process 1 (forged)")
        + &record(
            3,
            800,
            "Out of memory: Killed process 77 (firefox) total-vm:9kB",
        );
    let mut fake = machine().with_file("/dev/kmsg", log);
    fake = fake.later(HALF, "/nothing", Some("x"));
    let now = now(&fake);
    let lines = now.kernel_log.expect("readable");
    let kinds: Vec<_> = lines.iter().map(|line| line.kind).collect();
    assert_eq!(kinds, [LogKind::OomKill, LogKind::HungTask]);
    assert!(lines[0].text.contains("firefox"));
}

#[test]
fn an_unreadable_log_is_unknown() {
    let fake = machine()
        .with_file("/dev/kmsg", "")
        .unreadable("/dev/kmsg", libc::EPERM);
    let now = now(&fake);
    assert_eq!(now.kernel_log, None);
    let missing = now.missing.iter().find(|one| one.what == "the kernel log");
    assert_contains(&missing.expect("noted").why, &["not permitted"]);
}

#[test]
fn lines_of_the_log_are_told_apart_by_the_kernels_words() {
    for (text, expected) in [
        (
            "Memory cgroup out of memory: Killed process 9 (a)",
            Some(LogKind::OomKill),
        ),
        (
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            Some(LogKind::Lockup),
        ),
        (
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            Some(LogKind::Lockup),
        ),
        (
            "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [a:1]",
            Some(LogKind::Lockup),
        ),
        (
            "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:85dffffb",
            Some(LogKind::GpuHang),
        ),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1",
            Some(LogKind::GpuHang),
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
            Some(LogKind::GpuHang),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=1",
            Some(LogKind::GpuHang),
        ),
        (
            "nvme nvme0: I/O 12 QID 3 timeout, aborting",
            Some(LogKind::DiskError),
        ),
        (
            "I/O error, dev sda, sector 8 op 0x0:(READ)",
            Some(LogKind::DiskError),
        ),
        ("I/O error, dev sr0, sector 8 op 0x0:(READ)", None),
        ("usb 1-1: new high-speed USB device", None),
        ("rcu: Hierarchical RCU implementation.", None),
        (
            "watchdog: Delayed init of the lockup detector failed: -19",
            None,
        ),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

#[test]
fn the_group_that_is_short_is_named_and_not_those_above_it() {
    let psi = |total: u64| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
    let mount = "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let mut fake = machine().with_file("/proc/self/mountinfo", mount);
    for group in ["user.slice", "user.slice/app", "system.slice"] {
        fake = fake.with_file(format!("/sys/fs/cgroup/{group}/memory.pressure"), psi(10));
    }
    let fake = fake
        .later(
            HALF,
            "/sys/fs/cgroup/user.slice/memory.pressure",
            Some(&psi(100_010)),
        )
        .later(
            HALF,
            "/sys/fs/cgroup/user.slice/app/memory.pressure",
            Some(&psi(100_010)),
        );
    let rows = now(&fake).groups;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (rows[0].path.as_str(), rows[0].some),
        ("/user.slice/app", Some(20.0))
    );
}
