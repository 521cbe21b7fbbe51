use stopgap_events::machine::{Missing, Now};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_testing::assert_contains;

use super::*;
use crate::fake::Fake;

const BUDDYINFO: &str = "Node 0, zone   Normal      8      4      0      1\n";
const VMSTAT: &str =
    "nr_free_pages 1\nallocstall_normal 3\nallocstall_movable 4\ncompact_stall 5\n";
const MEMINFO: &str =
    "MemTotal: 1024 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nUnevictable:  40 kB\nMlocked:  16 kB\n";
const PSI: &str = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=0.10 avg60=0.20 avg300=0.30 total=5\n";

fn machine() -> Fake {
    let mut fake = Fake::default()
        .with_file("/proc/buddyinfo", BUDDYINFO)
        .with_file("/proc/vmstat", VMSTAT)
        .with_file("/proc/meminfo", MEMINFO)
        .with_file("/proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n")
        .with_file("/proc/uptime", "93784.25 100.00\n");
    for resource in ["cpu", "memory", "io"] {
        fake = fake.with_file(format!("/proc/pressure/{resource}"), PSI);
    }
    fake
}

fn status(name: &str, pid: u32, voluntary: u64, involuntary: u64) -> String {
    format!(
        "Name:\t{name}\nTgid:\t{pid}\nThreads:\t3\nVmSize:\t 900 kB\nVmLck:\t 8 kB\nVmPin:\t 4 kB\n\
         VmRSS:\t 100 kB\nVmSwap:\t 0 kB\nvoluntary_ctxt_switches:\t{voluntary}\n\
         nonvoluntary_ctxt_switches:\t{involuntary}\n"
    )
}

/// One-page mappings of `file`, two pages apart.
fn maps(count: u64, file: &str) -> String {
    let line = |i: u64| {
        format!(
            "{:x}-{:x} rw-s 0 00:06 77   {file}\n",
            i * 8192,
            i * 8192 + 4096
        )
    };
    (1..=count).map(line).collect()
}

trait WithProcess {
    fn with_process(self, pid: u32, name: &str, maps: &str) -> Self;
    fn switches_later(self, task: (u32, u32), name: &str, voluntary: u64, other: u64) -> Self;
}

/// After half a second.
const HALF: Nanos = Nanos::millis(500);

impl WithProcess for Fake {
    fn with_process(self, pid: u32, name: &str, maps: &str) -> Fake {
        self.with_file(format!("/proc/{pid}/maps"), maps)
            .with_file(format!("/proc/{pid}/comm"), format!("{name}\n"))
            .with_file(format!("/proc/{pid}/statm"), "225 25 0 0 0 0 0\n")
            .with_file(format!("/proc/{pid}/status"), status(name, pid, 100, 10))
            .with_file(
                format!("/proc/{pid}/task/{pid}/status"),
                status(name, pid, 100, 10),
            )
    }

    fn switches_later(
        self,
        (pid, tid): (u32, u32),
        name: &str,
        voluntary: u64,
        other: u64,
    ) -> Fake {
        let text = status(name, pid, voluntary, other);
        self.later(HALF, format!("/proc/{pid}/task/{tid}/status"), Some(&text))
    }
}

fn now(fake: &Fake) -> Now {
    read(fake, &Options::default()).unwrap()
}

fn missing<'a>(now: &'a Now, what: &str) -> &'a Missing {
    let found = now.missing.iter().find(|one| one.what.contains(what));
    found.unwrap_or_else(|| panic!("nothing about {what} in {:?}", now.missing))
}

#[test]
fn a_whole_machine_lacks_nothing() {
    let now = now(&machine().with_process(20, "Xorg", &maps(3, "/dev/dri/card0")));
    assert_eq!(now.missing, []);
    assert_eq!(now.max_map_count, Some(65_530));
    assert_eq!(now.uptime_s, Some(93_784));
    assert_eq!(now.unevictable, Some(Bytes::kib(40)));
    assert_eq!(now.mlocked, Some(Bytes::kib(16)));
    let counters: Vec<_> = now
        .since_boot
        .iter()
        .map(|c| (c.name.as_str(), c.value))
        .collect();
    assert_eq!(counters, [("allocstall", 7), ("compact_stall", 5)]);
    let resources: Vec<_> = now.pressure.iter().map(|p| p.resource.as_str()).collect();
    assert_eq!(resources, ["cpu", "memory", "io"]);
    // 8 * 1 + 4 * 2 + 1 * 8 = 24 free pages.
    let index: Vec<_> = now
        .unusable_index
        .iter()
        .map(|o| (o.index * 24.0).round())
        .collect();
    assert_eq!(index, [0.0, 8.0, 16.0, 16.0]);
}

#[test]
fn the_five_with_most_mappings_come_most_first_and_we_are_not_among_them() {
    let mut fake = machine().with_process(1, "stopgap", &maps(99, "/memfd:own (deleted)"));
    for pid in 20..30 {
        let many = u64::from(pid * 7 % 10);
        fake = fake.with_process(pid, "many", &maps(many, "/dev/dri/card0"));
    }
    let now = now(&fake);
    let counts: Vec<_> = now.mappings.iter().map(|p| p.mappings).collect();
    assert_eq!(counts, [9, 8, 7, 6, 5]);
    let first = &now.mappings[0];
    assert_eq!((first.pid, first.name.as_str()), (27, "many"));
    assert_eq!(first.backing.len(), 1);
    assert_eq!(first.backing[0].file, "/dev/dri/card0");
    assert_eq!(
        (first.backing[0].mappings, first.backing[0].one_page),
        (9, 9)
    );
}

#[test]
fn rates_are_switches_over_the_interval_by_thread() {
    let fake = machine()
        .with_process(1, "stopgap", "")
        .with_process(20, "idle", "")
        .with_process(30, "busy", "")
        .with_file("/proc/30/task/31/status", status("worker", 30, 0, 0))
        .with_process(40, "ends", "")
        .switches_later((1, 1), "stopgap", 9_999, 9_999)
        .switches_later((30, 30), "busy", 150, 10)
        .switches_later((30, 31), "worker", 600, 7)
        .later(HALF, "/proc/40", None)
        .switches_later((50, 50), "begins", 1_000, 0);
    let now = now(&fake);
    let rows = |rates: &[stopgap_events::machine::TaskRate]| -> Vec<(u32, u32, String, f64)> {
        let row =
            |r: &stopgap_events::machine::TaskRate| (r.pid, r.tid, r.name.clone(), r.per_second);
        rates.iter().map(row).collect()
    };
    let voluntary = [
        (30, 31, "worker".to_owned(), 1200.0),
        (30, 30, "busy".to_owned(), 100.0),
    ];
    assert_eq!(rows(&now.voluntary), voluntary);
    assert_eq!(
        rows(&now.involuntary),
        [(30, 31, "worker".to_owned(), 14.0)]
    );
    assert_eq!(now.interval_ms, 500);
    assert_eq!(now.missing, []); // one that ended is no gap
}

#[test]
fn a_process_that_was_asked_for_is_spoken_of_alone() {
    let fake = machine()
        .with_process(20, "Xorg", &maps(3, "/dev/dri/card0"))
        .with_process(30, "other", &maps(9, "/dev/dri/card0"))
        .switches_later((20, 20), "Xorg", 101, 10)
        .switches_later((30, 30), "other", 900, 10);
    let options = Options {
        pid: Some(20),
        ..Options::default()
    };
    let now = read(&fake, &options).unwrap();
    assert_eq!(now.mappings.iter().map(|p| p.pid).collect::<Vec<_>>(), [20]);
    assert_eq!(
        now.voluntary.iter().map(|t| t.tid).collect::<Vec<_>>(),
        [20]
    );
    let process = now.process.unwrap();
    assert_eq!((process.pid, process.name.as_str()), (20, "Xorg"));
    assert_eq!((process.threads, process.mappings), (Some(3), Some(3)));
    assert_eq!(process.resident, Some(Bytes::kib(100)));
    assert_eq!(process.locked, Some(Bytes::kib(8)));
    assert_eq!(process.pinned, Some(Bytes::kib(4)));
    assert_eq!(process.swapped, Some(Bytes(0)));
}

#[test]
fn a_process_that_does_not_exist_is_an_error() {
    let ask = |fake: &Fake, pid| {
        let options = Options {
            pid: Some(pid),
            ..Options::default()
        };
        read(fake, &options).unwrap_err().to_string()
    };
    assert_eq!(ask(&machine(), 12_345), "no process 12345");
    let thread = machine().with_file("/proc/12346/status", status("worker", 12_345, 0, 0));
    assert_eq!(
        ask(&thread, 12_346),
        "no process 12346: it is a thread of process 12345"
    );
}

#[test]
fn a_kernel_thread_has_no_memory_that_could_be_unknown() {
    let status = "Name:\tkswapd0\nTgid:\t9\nThreads:\t1\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t0\n";
    let fake = machine()
        .with_file("/proc/9/status", status)
        .with_file("/proc/9/maps", "")
        .with_file("/proc/9/comm", "kswapd0\n");
    let now = read(
        &fake,
        &Options {
            pid: Some(9),
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!(now.process.as_ref().unwrap().resident, None);
    assert_eq!(now.missing.len(), 1);
    assert_contains(
        &missing(&now, "memory of process 9").why,
        &["kernel thread"],
    );
}

#[test]
fn processes_of_others_are_counted_and_kernel_threads_are_not() {
    let fake = machine()
        .with_process(20, "mine", &maps(2, "/lib/a"))
        .with_process(30, "theirs", &maps(9, "/lib/a"))
        .with_process(31, "theirs", &maps(9, "/lib/a"))
        .with_process(40, "kthread", "")
        .with_file("/proc/40/statm", "0 0 0 0 0 0 0\n")
        .unreadable("/proc/30/maps", libc::EACCES)
        .unreadable("/proc/31/maps", libc::EACCES)
        .unreadable("/proc/40/maps", libc::EACCES);
    let now = now(&fake);
    assert_eq!(now.mappings.iter().map(|p| p.pid).collect::<Vec<_>>(), [20]);
    assert_eq!(now.missing.len(), 1);
    assert_contains(&missing(&now, "mappings of 2 processes").why, &["root"]);
}

#[test]
fn a_process_that_vanishes_while_it_is_read_is_no_gap() {
    let fake = machine()
        .with_process(20, "ends", &maps(2, "/lib/a"))
        .unreadable("/proc/20", libc::ESRCH);
    let now = now(&fake);
    assert_eq!((now.mappings.len(), now.missing.len()), (0, 0));
}

#[test]
fn what_the_deadline_leaves_out_is_said() {
    let fake = machine()
        .with_process(20, "a", &maps(2, "/lib/a"))
        .with_process(30, "b", &maps(2, "/lib/a"));
    let options = Options {
        deadline: Nanos(0),
        ..Options::default()
    };
    let now = read(&fake, &options).unwrap();
    assert!(now.mappings.is_empty() && now.voluntary.is_empty());
    assert_contains(
        &missing(&now, "mappings of 2 of 2 processes").why,
        &["time"],
    );
    assert_contains(
        &missing(&now, "switch rates of 2 of 2 processes").why,
        &["time"],
    );
}

#[test]
fn a_kernel_without_psi_is_told_how_to_get_it() {
    let without = now(&machine().without("/proc/pressure"));
    let off = now(&machine().unreadable("/proc/pressure", libc::EOPNOTSUPP));
    for now in [without, off] {
        assert!(now.pressure.is_empty());
        assert_eq!(now.missing.len(), 1, "{:?}", now.missing);
        assert!(missing(&now, "pressure").why.contains("psi=1"));
    }
}

#[test]
fn broken_files_are_named_and_the_rest_is_read() {
    let fake = machine()
        .with_process(20, "odd", "nonsense\n")
        .with_file("/proc/20/task/20/status", "Name:\todd\n")
        .with_file("/proc/buddyinfo", "Node 0, zone Normal 1 x\n")
        .with_file("/proc/vmstat", "allocstall_normal many\n")
        .with_file("/proc/meminfo", "Mlocked: 16 kB\n")
        .with_file("/proc/uptime", "long\n")
        .with_file("/proc/pressure/io", "some\n")
        .with_file("/proc/sys/vm/max_map_count", "lots\n");
    let now = now(&fake);
    for (what, file) in [
        ("backing files of process 20", "/proc/20/maps: line 1"),
        ("switch rates", "/proc/20/task/20/status: "),
        ("unusable-free-space index", "/proc/buddyinfo: line 1"),
        ("reclaim and compaction", "/proc/vmstat: line 1"),
        ("unevictable", "/proc/meminfo: "),
        ("use of swap", "/proc/meminfo: "),
        ("uptime", "/proc/uptime: 'long'"),
        ("io pressure", "/proc/pressure/io: "),
        ("max_map_count", "/proc/sys/vm/max_map_count: 'lots'"),
    ] {
        assert!(
            missing(&now, what).why.starts_with(file),
            "{:?}",
            missing(&now, what)
        );
    }
    assert_eq!(now.missing.len(), 9);
    assert_eq!(now.mlocked, Some(Bytes::kib(16)));
    assert_eq!(now.pressure.len(), 2);
    assert_eq!(now.mappings[0].mappings, 1);
}

#[test]
fn counters_that_the_kernel_does_not_keep_are_unknown() {
    let now = now(&machine().with_file("/proc/vmstat", "pgfault 1\n"));
    assert!(now.since_boot.is_empty());
    assert!(missing(&now, "compact_").why.contains("CONFIG_COMPACTION"));
    assert_contains(
        &missing(&now, "allocstall").why,
        &["CONFIG_VM_EVENT_COUNTERS"],
    );
}

#[test]
fn an_empty_proc_is_all_unknown_and_no_panic() {
    let now = read(&Fake::default().without("/proc"), &Options::default()).unwrap();
    assert!(now.missing.len() >= 7, "{:?}", now.missing);
    assert_eq!(now.max_map_count, None);
}
