use stopgap_events::machine::CheckState::{Absent, Limited, Ok, Unknown};

use super::*;
use crate::environment::THP;
use crate::fake::Fake;

const PSI: &str = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const URING: &str = "/proc/sys/kernel/io_uring_disabled";
const PERF: &str = "switch records";

/// A machine that allows everything, and root on it.
fn machine() -> Fake {
    let mut fake = Fake::default()
        .with_file("/proc/sys/kernel/osrelease", "6.18.44-fc\n")
        .with_file("/proc/self/status", "CapEff:\t000001ffffffffff\n")
        .with_file(
            "/proc/self/limits",
            "Max locked memory  8388608  8388608  bytes\n",
        )
        .with_file(PARANOID, "2\n")
        .with_file("/proc/self/pagemap", [0; 8])
        .with_file("/proc/buddyinfo", "Node 0, zone Normal 1\n")
        .with_file("/proc/pagetypeinfo", "Page block order: 9\n")
        .with_file("/sys/kernel/tracing/events/sched/enable", "0\n")
        .with_file("/sys/kernel/debug/sched/preempt", "none (full)\n")
        .with_file("/proc/sys/kernel/unprivileged_bpf_disabled", "2\n")
        .with_file("/sys/kernel/btf/vmlinux", "types")
        .with_file("/proc/sys/kernel/kptr_restrict", "0\n")
        .with_file("/proc/kallsyms", "ffffffff81000000 T _text\n")
        .with_file(
            "/proc/self/mountinfo",
            "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        )
        .with_file("/proc/self/cgroup", "4:memory:/user\n0::/user\n")
        .with_file("/sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n")
        .with_file(
            "/proc/swaps",
            "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 1\n",
        )
        .with_file(format!("{THP}/enabled"), "always [madvise] never\n")
        .with_file(format!("{THP}/hpage_pmd_size"), "2097152\n")
        .with_file(
            format!("{THP}/hugepages-64kB/enabled"),
            "always [madvise] never\n",
        )
        .with_file(
            format!("{THP}/hugepages-128kB/enabled"),
            "always madvise [never]\n",
        )
        .with_file(
            format!("{THP}/hugepages-2048kB/enabled"),
            "always [inherit] never\n",
        )
        .with_file(
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "8\n",
        )
        .with_file(URING, "0\n");
    for resource in ["cpu", "memory", "io"] {
        fake = fake.with_file(format!("/proc/pressure/{resource}"), PSI);
    }
    fake
}

/// The same for an ordinary user.
fn ordinary(fake: Fake) -> Fake {
    fake.with_file("/proc/self/status", "CapEff:\t0000000000000000\n")
}

fn find(fake: &Fake, what: &str) -> Check {
    let all = read(fake);
    let found = all.iter().find(|check| check.what.contains(what));
    found
        .unwrap_or_else(|| panic!("no check of {what}"))
        .clone()
}

#[test]
fn a_machine_that_allows_everything_costs_nothing() {
    let all = read(&machine());
    assert_eq!(all.len(), 19);
    for check in &all {
        assert_eq!(check.state, Ok, "{check:?}");
        assert!(
            check.costs.is_empty() && check.advice.is_empty(),
            "{check:?}"
        );
        assert!(!check.found.is_empty(), "{check:?}");
    }
    assert_eq!(
        find(&machine(), "multi-size").found,
        "64, 128 KiB, enabled 64 KiB"
    );
}

#[test]
fn a_machine_without_anything_says_what_each_lack_costs() {
    for check in read(&Fake::default().without("/proc").without("/sys")) {
        assert!([Absent, Unknown].contains(&check.state), "{check:?}");
        assert!(
            !check.costs.is_empty() && !check.found.is_empty(),
            "{check:?}"
        );
    }
}

#[test]
fn perf_is_for_whom_the_level_says() {
    let state = |level: &str, fake: Fake| find(&fake.with_file(PARANOID, level), PERF).state;
    let expected = [
        ("-1", Ok),
        ("1", Limited),
        ("2", Limited),
        ("3", Absent),
        ("4", Absent),
    ];
    for (level, expected) in expected {
        assert_eq!(state(level, ordinary(machine())), expected, "level {level}");
        assert_eq!(state(level, machine()), Ok, "level {level} for root");
    }
    assert_eq!(state("high", machine()), Unknown);
    let refused = find(&ordinary(machine()).with_file(PARANOID, "3"), PERF);
    assert!(refused.advice.contains("kernel.perf_event_paranoid=2"));
    assert!(refused.costs.contains("rusage still counts"));
    let perfmon = machine().with_file("/proc/self/status", "CapEff:\t0000004000000000\n");
    assert_eq!(state("3", perfmon), Ok);
}

#[test]
fn what_an_ordinary_user_lacks_is_said() {
    let user = || ordinary(machine());
    let frames = find(&user(), "physical page frames");
    assert_eq!(frames.state, Absent);
    assert!(frames.costs.contains("unknown") && frames.advice.contains("CAP_SYS_ADMIN"));
    let locked = find(&user(), "locked memory");
    assert_eq!((locked.state, locked.found.as_str()), (Limited, "8 MiB"));
    assert_eq!(find(&user(), "BPF").state, Absent);
    let types = find(
        &user().unreadable("/proc/pagetypeinfo", libc::EACCES),
        "block types",
    );
    assert_eq!((types.state, types.advice.as_str()), (Absent, "root"));
    let traces = find(
        &user().unreadable("/sys/kernel/tracing", libc::EACCES),
        "tracefs",
    );
    assert_eq!((traces.state, traces.advice.as_str()), (Absent, "root"));
}

#[test]
fn calls_that_came_later_are_absent_before() {
    let on = |release: &str| machine().with_file("/proc/sys/kernel/osrelease", release);
    assert_eq!(find(&on("6.1.0-13-amd64"), "MADV_COLLAPSE").state, Ok);
    assert_eq!(find(&on("6.0.19"), "MADV_COLLAPSE").state, Absent);
    assert_eq!(find(&on("strange"), "MADV_COLLAPSE").state, Unknown);
    let uring = |release: &str| find(&on(release).without(URING), "io_uring").state;
    assert_eq!(
        (uring("6.18.1"), uring("6.5.0"), uring("5.0.1")),
        (Absent, Ok, Absent)
    );
}

#[test]
fn io_uring_may_be_left_to_root() {
    let state = |level: &str, fake: Fake| find(&fake.with_file(URING, level), "io_uring").state;
    assert_eq!(state("1", machine()), Ok);
    assert_eq!(state("1", ordinary(machine())), Absent);
    assert_eq!(state("2", machine()), Absent);
}

#[test]
fn a_memory_cgroup_must_be_there_and_writable() {
    let with = |mounts: &str| {
        find(
            &machine().with_file("/proc/self/mountinfo", mounts),
            "cgroup",
        )
    };
    let v1 = with("30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    assert_eq!((v1.state, v1.found.as_str()), (Ok, "cgroup1"));
    let sealed = with("30 20 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n");
    assert_eq!(sealed.state, Absent);
    assert!(sealed.found.contains("read-only"));
    assert_eq!(with("30 20 0:5 / /proc rw - proc proc rw\n").state, Absent);
    // The probe would not find a place either, root or not.
    let kept = machine().with_file("/sys/fs/cgroup/cgroup.subtree_control", "cpu\n");
    let kept = find(&kept, "cgroup");
    assert_eq!(kept.state, Absent);
    assert!(kept.found.contains("+memory"), "{kept:?}");
}

#[test]
fn what_is_switched_off_is_limited() {
    let never = "always madvise [never]\n";
    let off = machine()
        .with_file(format!("{THP}/enabled"), never)
        .with_file(format!("{THP}/hugepages-64kB/enabled"), never)
        .with_file(
            "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
            "0\n",
        )
        .with_file("/proc/sys/vm/max_map_count", "1000\n")
        .without("/proc/pressure/io");
    for what in [
        "transparent",
        "multi-size",
        "hugetlb",
        "max_map_count",
        "pressure",
    ] {
        assert_eq!(find(&off, what).state, Limited, "{what}");
    }
    let unmounted = machine()
        .without("/sys/kernel/debug/sched")
        .without("/sys/kernel/tracing/events");
    for what in ["debugfs", "tracefs"] {
        let check = find(&unmounted, what);
        assert_eq!(check.state, Absent);
        assert!(check.advice.contains("mount -t"));
    }
}

#[test]
fn the_running_kernel_can_be_asked() {
    let all = read(&crate::Linux);
    assert_eq!(all.len(), 19);
    assert!(all.iter().all(|check| check.state != Unknown), "{all:?}");
}

/// What `record` takes, why not better, and how to get it.
#[test]
fn the_source_of_record_is_the_best_that_is_allowed() {
    let source = |fake: Fake| {
        let check = find(&fake, "source of record");
        (check.state, check.found, check.advice)
    };
    let best = (
        Ok,
        "BPF: every wait of all threads".to_owned(),
        String::new(),
    );
    assert_eq!(source(machine()), best);
    let two = "CapEff:\t000000c000000000\n";
    let nobody = |mask: &str| source(machine().with_file("/proc/self/status", mask));
    assert_eq!(nobody(two), best, "two capabilities are enough");
    let one = nobody("CapEff:\t0000008000000000\n");
    assert_eq!(one.0, Limited);
    assert!(
        one.1.starts_with("perf: ") && one.1.contains("CAP_BPF"),
        "{one:?}"
    );
    assert!(one.2.contains("setcap cap_bpf,cap_perfmon"), "{one:?}");
    let none = source(ordinary(machine()).with_file(PARANOID, "3\n"));
    assert_eq!(none.0, Absent);
    assert!(none.1.starts_with("counters alone"), "{none:?}");

    for (lacking, why) in [
        (
            machine().without("/sys/kernel/btf"),
            "CONFIG_DEBUG_INFO_BTF",
        ),
        (
            machine().without("/proc/sys/kernel/unprivileged_bpf_disabled"),
            "CONFIG_BPF_SYSCALL",
        ),
        (
            machine().with_file(
                "/sys/kernel/security/lockdown",
                "none integrity [confidentiality]\n",
            ),
            "lockdown",
        ),
        (
            machine().with_file("/proc/sys/kernel/osrelease", "5.10.0\n"),
            "needs 6.1",
        ),
    ] {
        let (state, found, advice) = source(lacking);
        assert_eq!(state, Limited, "{found}");
        assert!(
            found.starts_with("tracefs (no BPF: ") && found.contains(why),
            "{found}"
        );
        assert!(!advice.is_empty(), "{found}");
    }
    let filtered = "CapEff:\t000001ffffffffff\nSeccomp:\t2\n";
    let bpf = find(&machine().with_file("/proc/self/status", filtered), "BPF");
    assert_eq!(bpf.state, Unknown);
    assert!(bpf.found.contains("seccomp"), "{bpf:?}");
    let (state, found, _) = source(machine().with_file("/proc/self/status", filtered));
    assert!(
        state == Ok && found.contains("unless the seccomp filter"),
        "{found}"
    );
}

#[test]
fn names_of_kernel_functions_are_for_whom_the_kernel_says() {
    let names = |fake: Fake, restrict: &str| {
        let fake = fake.with_file("/proc/sys/kernel/kptr_restrict", restrict);
        find(&fake, "names of kernel functions").state
    };
    assert_eq!(names(machine(), "1\n"), Ok);
    assert_eq!(names(machine(), "2\n"), Absent);
    assert_eq!(names(ordinary(machine()), "0\n"), Absent);
    assert_eq!(
        names(ordinary(machine()).with_file(PARANOID, "1\n"), "0\n"),
        Ok
    );
}
