//! Which source `stopgap record` takes, and what it says where that is not the best one.

use std::process::{Command, Output};

use stopgap_testing::{Skip, skip};
use stopgap_trace::{Event, Input, Kind, Metadata};

use crate::common::{Run, has, root, text};

/// The way to a shell in which the command is refused something.
fn as_nobody_with(run: &Run, capabilities: &str, words: &[&str]) -> Command {
    run.as_nobody(&[]);
    let folder = run.path("nobody");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(format!("--inh-caps={capabilities}"))
        .arg(format!("--ambient-caps={capabilities}"))
        .arg(folder.join("stopgap"))
        .args(words)
        .current_dir(&folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &folder);
    command
}

fn trace(run: &Run, name: &str) -> (Metadata, Vec<Event>) {
    let file = std::fs::File::open(run.path(name)).unwrap();
    let mut input = Input::new(file).unwrap().as_recorded();
    let metadata = input.metadata().clone();
    (metadata, input.by_ref().map(Result::unwrap).collect())
}

fn said(output: &Output) -> (String, String) {
    (text(&output.stdout), text(&output.stderr))
}

/// Returns whether BPF records here as root; skips the test where it does not.
fn bpf() -> bool {
    if !root() {
        skip(&Skip::root("record by BPF"));
        return false;
    }
    let run = Run::new();
    let tried = run.stopgap("record --source bpf -o t.parquet -- true");
    if tried.status != Some(0) {
        skip(&Skip::machine(tried.err));
        return false;
    }
    true
}

const SLEEP: [&str; 4] = ["-o", "t.parquet", "--", "sh"];

/// Two capabilities are all that it takes: every wait of the command, in its call, with its waker and kernel stack.
#[test]
fn nobody_with_two_capabilities_records_as_root() {
    if !bpf() {
        return;
    }
    let run = Run::new();
    let words = [
        "record",
        "--source",
        "bpf",
        "-o",
        "t.parquet",
        "--",
        "sh",
        "-c",
        "sleep 0.1; true",
    ];
    let output = as_nobody_with(&run, "+bpf,+perfmon", &words)
        .output()
        .unwrap();
    let (out, err) = said(&output);
    assert_eq!((output.status.code(), &*err), (Some(0), ""), "{out}");
    has(&out, &["lost      none"]);
    let (metadata, events) = trace(&run, "nobody/t.parquet");
    // A locked-down kernel lets nobody attach programs to its functions; a fence's names come by tracefs, which is root's.
    let known = ["address-space", "fence-names"];
    let parts: Vec<_> = metadata
        .missing
        .iter()
        .filter(|one| !one.what.contains("names of kernel") && !known.contains(&&*one.what))
        .collect();
    assert!(parts.is_empty(), "{parts:?}");
    // Others sleep on this machine, too; they have no stacks.
    let slept = events.iter().find_map(|event| match &event.kind {
        Kind::Wait(wait)
            if event.comm.as_deref() == Some("sleep")
                && wait.stack.is_some()
                && wait
                    .call
                    .as_ref()
                    .is_some_and(|call| call.name.as_deref() == Some("clock_nanosleep")) =>
        {
            Some(wait.clone())
        }
        _ => None,
    });
    let slept = slept.expect("the sleep");
    assert!(slept.waker.is_some(), "{slept:?}");
    let others = events
        .iter()
        .any(|event| event.kind.word() == "wait" && event.comm.as_deref() == Some("stopgap"));
    assert!(others, "waits of other threads are kept");
}

/// The screen says what one capability lacks, and the next source is taken where none was chosen.
/// A priority that changes in the midst of a thread's life: a wait has the one with which the thread left.
#[test]
fn a_wait_has_the_priority_of_its_time() {
    if !bpf() || !crate::common::may("record") {
        return;
    }
    let run = Run::new();
    let script = "renice -n 5 -p $$ > /dev/null; sleep 0.05; sleep 0.05";
    let words = [
        "record",
        "--source",
        "bpf",
        "-o",
        "t.parquet",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = run.command(&words).output().unwrap();
    assert!(output.status.success(), "{}", said(&output).1);
    let lines = run
        .command(&["export", "t.parquet", "--to", "jsonl", "-o", "-"])
        .output()
        .unwrap();
    let lines = said(&lines).0;
    let waits = lines
        .lines()
        .filter(|line| line.contains("\"comm\":\"sh\"") && line.contains("wait4"));
    let waits: Vec<&str> = waits.collect();
    let nicer = waits
        .iter()
        .filter(|line| line.contains("\"priority\":125,"));
    assert!(nicer.count() >= 2, "{waits:#?}");
}

#[test]
fn nobody_is_told_what_is_missing() {
    if !bpf() {
        return;
    }
    let run = Run::new();
    for capabilities in ["-all", "-all,+perfmon", "-all,+bpf"] {
        let words = [&["record", "--source", "bpf"][..], &SLEEP, &["-c", ":"]].concat();
        let output = as_nobody_with(&run, capabilities, &words).output().unwrap();
        let (out, err) = said(&output);
        assert_eq!(
            (output.status.code(), &*out),
            (Some(125), ""),
            "{capabilities}: {err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        has(&err, &["it needs CAP_BPF and CAP_PERFMON, or root"]);

        let words = [&["record"][..], &SLEEP, &["-c", ":"]].concat();
        let output = as_nobody_with(&run, capabilities, &words).output().unwrap();
        let (out, err) = said(&output);
        assert_eq!(output.status.code(), Some(0), "{capabilities}: {err}");
        has(
            &err,
            &[
                "stopgap: recording by perf, because there is no ",
                "; not known is who wakes a thread",
            ],
        );
        has(&err, BEST);
        has(&out, &["missing   kernel events: no "]);
        let words = [&["record", "--only"][..], &SLEEP, &["-c", ":"]].concat();
        let output = as_nobody_with(&run, capabilities, &words).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
    }
}

/// The line about the best source where nobody may use it.
const BEST: &[&str] = &["there is no bpf: ", "no tracefs: needs root"];

/// Runs `record` as root under a seccomp filter that refuses bpf(2): what a thread starts has its filter.
fn without_bpf(run: &Run, line: &'static str) -> Output {
    under(run, line, stopgap_kernel::fake::refuse_bpf)
}

/// Runs a command as root under a filter.
fn under(
    run: &Run,
    line: &'static str,
    filter: impl FnOnce() -> stopgap_kernel::Result<()> + Send + 'static,
) -> Output {
    let mut command = run.command(&crate::common::words(line));
    std::thread::spawn(move || {
        filter().unwrap();
        command.output().unwrap()
    })
    .join()
    .unwrap()
}

/// A kernel that takes all programs and runs no iterator over threads: found before anything is recorded.
#[test]
fn where_the_iterator_fails_another_source_is_taken() {
    const ITER_CREATE: u32 = 33;
    if !bpf() || !crate::common::may("record") {
        return;
    }
    let refuse = || stopgap_kernel::fake::refuse_bpf_command(ITER_CREATE, 22);
    let run = Run::new();
    let output = under(&run, "record -o t.parquet -- true", refuse);
    let (_, err) = said(&output);
    assert_eq!(
        (output.status.code(), err.lines().count()),
        (Some(0), 1),
        "{err}"
    );
    has(
        &err,
        &[
            "recording by tracefs, because there is no bpf: the iterator over threads: Invalid argument",
        ],
    );
    let output = under(&run, "record --source bpf -o t.parquet -- true", refuse);
    let (_, err) = said(&output);
    assert_eq!(output.status.code(), Some(125), "{err}");
    has(&err, &["the iterator over threads: Invalid argument"]);
}

/// Before Linux 5.11 a map that is larger than RLIMIT_MEMLOCK fails with EPERM, as one fails without the capability.
#[test]
fn a_map_that_is_refused_names_the_limit_of_locked_memory() {
    const MAP_CREATE: u32 = 0;
    if !bpf() {
        return;
    }
    let refuse = || stopgap_kernel::fake::refuse_bpf_command(MAP_CREATE, 1);
    let run = Run::new();
    let output = under(&run, "record --source bpf -o t.parquet -- true", refuse);
    let (_, err) = said(&output);
    assert_eq!(
        (output.status.code(), err.lines().count()),
        (Some(125), 1),
        "{err}"
    );
    has(
        &err,
        &["Operation not permitted", "RLIMIT_MEMLOCK (ulimit -l)"],
    );
}

#[test]
fn where_bpf_is_refused_it_is_said() {
    if !bpf() || !crate::common::may("record") {
        return;
    }
    let run = Run::new();
    let output = without_bpf(&run, "record --source bpf -o t.parquet -- true");
    let (out, err) = said(&output);
    assert_eq!((output.status.code(), &*out), (Some(125), ""), "{err}");
    has(&err, &["Permission denied"]);
    // The next source is taken, with the reason.
    let output = without_bpf(&run, "record -o t.parquet -- true");
    let (out, err) = said(&output);
    assert_eq!(
        (output.status.code(), err.lines().count()),
        (Some(0), 1),
        "{err}"
    );
    has(
        &err,
        &[
            "stopgap: recording by tracefs, because there is no bpf: ",
            "Permission denied",
            "; not known is what threads of other programs wait for",
        ],
    );
    has(&out, &["missing   what threads of other programs wait for"]);
    let events = trace(&run, "t.parquet").0.events.unwrap();
    assert!(
        events.contains(&"raw_syscalls:sys_exit".to_owned()),
        "{events:?}"
    );
    let output = without_bpf(&run, "record --only -o t.parquet -- true");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

/// A kernel without types of its structures: an empty folder over the one that has them.
#[test]
fn where_types_are_missing_it_is_said() {
    if !bpf() || !crate::common::may("record") {
        return;
    }
    let run = Run::new();
    let record = |line: &str| {
        let stopgap = crate::common::STOPGAP;
        let script = format!("mount -t tmpfs none /sys/kernel/btf && exec {stopgap} {line}");
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .current_dir(run.directory.path());
        command
            .env("XDG_STATE_HOME", run.directory.path())
            .output()
            .unwrap()
    };
    let output = record("record --source bpf -o t.parquet -- true");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    has(
        &said(&output).1,
        &["this kernel's BTF cannot be read (/sys/kernel/btf/vmlinux)"],
    );
    let output = record("record -o t.parquet -- true");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    has(
        &said(&output).1,
        &["recording by tracefs, because there is no bpf: this kernel's BTF cannot be read"],
    );
}

/// Since Linux 5.11 maps are charged to the memory cgroup, and the limit of locked memory does not matter.
#[test]
fn the_limit_of_locked_memory_does_not_matter() {
    if !bpf() {
        return;
    }
    let run = Run::new();
    run.as_nobody(&[]);
    let script = "ulimit -l 0; exec ./stopgap record --source bpf -o t.parquet -- true";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "--inh-caps=+bpf,+perfmon",
            "--ambient-caps=+bpf,+perfmon",
            "sh",
            "-c",
            script,
        ])
        .current_dir(run.path("nobody"))
        .env("HOME", run.path("nobody"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
