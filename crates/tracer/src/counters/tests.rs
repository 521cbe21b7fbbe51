//! Against a machine in memory, and against the running kernel with processes of our own.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::fake::Fake;
use stopgap_kernel::files::Files;

/// No such process on any machine: the largest id is 2^22.
const PID: u32 = 5_000_000;

fn stat(pid: u32, state: &str, faults: u64, start: u64) -> String {
    format!("{pid} (x y) {state} 1 7 7 0 -1 0 {faults} 0 3 0 0 0 0 0 20 0 1 0 {start} 9 12 0")
}

fn status(voluntary: u64) -> String {
    format!("Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t2\n")
}

fn machine() -> Fake {
    let child = PID + 1;
    Fake::default()
        .with_file(format!("/proc/{PID}/stat"), stat(PID, "S", 100, 42))
        .with_file(format!("/proc/{PID}/task/{PID}/status"), status(7))
        .with_file(
            format!("/proc/{PID}/task/{PID}/children"),
            format!("{child} "),
        )
        .with_file(format!("/proc/{child}/stat"), stat(child, "R", 5, 43))
        .with_file(format!("/proc/{child}/task/{child}/status"), status(1))
        .with_file(format!("/proc/{child}/task/{child}/children"), "")
}

fn all(folder: &Path) -> (Vec<Event>, Vec<Missing>) {
    let mut rows = Rows::open(&Folder::open(folder).unwrap(), true)
        .unwrap()
        .unwrap();
    let mut events = Vec::new();
    while let Some(event) = rows.next_event().unwrap() {
        events.push(event);
    }
    (events, rows.report().missing)
}

/// Rows as `(pid, name, value)`.
fn rows(folder: &Path) -> Vec<(Option<u32>, String, i64)> {
    let (events, missing) = all(folder);
    assert!(missing.is_empty(), "{missing:?}");
    assert!(events.is_sorted_by_key(|event| event.time));
    let row = |event: Event| match event.kind {
        Kind::Counter { name, value } => (event.pid, name.to_string(), value),
        other => panic!("{other:?}"),
    };
    events.into_iter().map(row).collect()
}

fn of(rows: &[(Option<u32>, String, i64)], pid: u32, name: &str) -> Vec<i64> {
    let these = rows
        .iter()
        .filter(|row| row.0 == Some(pid) && row.1 == name);
    these.map(|row| row.2).collect()
}

#[test]
fn a_process_and_its_child_are_counted_and_what_stays_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let fake = machine();
    let mut counters = Counters::create(&fake, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(PID);
    for _ in 0..3 {
        counters.step().unwrap();
        fake.sleep_until(fake.now() + ROUND);
    }
    // Read while it is written, as after a crash.
    let rows = rows(folder.path());
    for (pid, faults, voluntary) in [(PID, 100, 7), (PID + 1, 5, 1)] {
        assert_eq!(of(&rows, pid, names::MINOR_FAULTS), [faults]);
        assert_eq!(of(&rows, pid, names::VOLUNTARY), [voluntary]);
        assert_eq!(of(&rows, pid, names::INVOLUNTARY), [2]);
    }
    assert!(
        of(&rows, PID, names::MAPPINGS).is_empty(),
        "unknown is not 0"
    );
}

/// Beside a busy neighbour the recorder waits 40 ms for a CPU while it reads the first file; a command of
/// 50 ms is counted nevertheless.
#[test]
fn a_wait_for_a_cpu_does_not_leave_the_rest_uncounted() {
    let folder = tempfile::tempdir().unwrap();
    let fake = machine().with_waiting_reads(format!("/proc/{PID}/stat"), Nanos::millis(40));
    let mut counters = Counters::create(&fake, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(PID);
    counters.step().unwrap();
    assert!(fake.now() >= Nanos::millis(40) && fake.now() < Nanos::millis(50));
    let rows = rows(folder.path());
    assert_eq!(of(&rows, PID, names::VOLUNTARY), [7]);
    assert_eq!(of(&rows, PID + 1, names::VOLUNTARY), [1]);
}

#[test]
fn another_process_of_the_same_id_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("/proc/{PID}/stat");
    let fake = machine();
    let mut counters = Counters::create(&fake, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(PID);
    counters.step().unwrap();
    fake.write(path.as_ref(), stat(PID, "S", 9_000, 99).as_bytes())
        .unwrap();
    fake.sleep_until(fake.now() + ROUND);
    counters.step().unwrap();
    counters.finish().unwrap();
    assert_eq!(of(&rows(folder.path()), PID, names::MINOR_FAULTS), [100]);
}

#[test]
fn what_a_kernel_does_not_have_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let fake = machine().without(format!("/proc/{PID}/task/{PID}/children"));
    let mut counters = Counters::create(&fake, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(PID);
    for _ in 0..3 {
        counters.step().unwrap();
        fake.sleep_until(fake.now() + ROUND);
    }
    let missing = counters.finish().unwrap();
    let fork = missing.iter().filter(|one| one.what.contains("fork"));
    assert_eq!(fork.count(), 1, "{missing:?}");
    assert!(
        missing.iter().any(|one| one.what.contains("pressure")),
        "{missing:?}"
    );
}

#[test]
fn a_row_that_is_cut_off_ends_the_rows_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let fake = machine();
    let mut counters = Counters::create(&fake, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(PID);
    counters.step().unwrap();
    drop(counters);
    let path = folder.path().join(COUNTERS);
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 9]).unwrap();
    let (events, missing) = all(folder.path());
    assert!(events.len() > 3);
    let line = format!("{COUNTERS}, line {}:", events.len() + 2);
    assert!(missing[0].why.starts_with(&line), "{missing:?} {line}");
}

/// A shell with a child, which both wait until this is dropped.
struct Family(Child);

impl Drop for Family {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // they end at the end of their input
    }
}

#[test]
fn running_processes_have_the_mappings_that_their_maps_have_lines() {
    let mut command = Command::new("sh");
    command.args(["-c", "cat; :"]).stdin(Stdio::piped());
    let family = Family(command.spawn().unwrap());
    let pid = family.0.id();
    let child = || {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let reads = |pid: u32| {
        let wchan = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        wchan.is_ok_and(|name| name == "cat\n")
    };
    let deadline = Linux.now() + Nanos::secs(20);
    while !child().is_some_and(reads) {
        assert!(Linux.now() < deadline);
        Linux.sleep_until(Linux.now() + Nanos::millis(5));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut counters = Counters::create(&Linux, &Folder::open(folder.path()).unwrap()).unwrap();
    counters.follow(pid);
    // Until cat has loaded its libraries and stands still, its last count is that of its file.
    let cat = child().unwrap();
    let lines = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        i64::try_from(text.lines().count()).unwrap()
    };
    loop {
        counters.step().unwrap();
        let rows = rows(folder.path());
        let agrees = |pid| of(&rows, pid, names::MAPPINGS).last() == Some(&lines(pid));
        if agrees(pid) && agrees(cat) {
            break;
        }
        assert!(Linux.now() < deadline, "{rows:?}");
        Linux.sleep_until(Linux.now() + Nanos::millis(10));
    }
    let rows = rows(folder.path());
    assert!(
        of(&rows, cat, names::RESIDENT)
            .iter()
            .all(|&bytes| bytes > 0)
    );
    assert!(!of(&rows, pid, names::VOLUNTARY).is_empty());
    drop(family);
    counters.step().unwrap();
    counters.finish().unwrap();
}
