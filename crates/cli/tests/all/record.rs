//! `stopgap record` as its users run it. Captures need root, BPF and tracefs; otherwise skipped, and said.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{self, Run, STOPGAP, has, may, names, text, wait_for, words};
use stopgap_kernel::Linux;
use stopgap_kernel::files::Files;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{Event, Input, Kind, Metadata};

fn read(path: &Path) -> (Metadata, Vec<Event>) {
    let mut input = Input::new(File::open(path).unwrap()).unwrap().as_recorded();
    let metadata = input.metadata().clone();
    let events = input.by_ref().map(Result::unwrap).collect();
    (metadata, events)
}

/// Instances of the process `pid`.
fn instances(pid: u32) -> usize {
    let tracefs = Linux.tracefs().unwrap();
    let names = Linux.list(&tracefs.path().join("instances")).unwrap();
    let own = format!("stopgap-{pid}");
    names.iter().filter(|name| **name == own).count()
}

/// Sources that record here what is forked and executed, each with flags that record only the command.
fn sources() -> Vec<&'static str> {
    common::sources("--source bpf --only", &["--source tracefs"])
}

struct Folder {
    folder: tempfile::TempDir,
    run: Run,
}

impl Folder {
    fn new() -> Folder {
        Folder {
            folder: tempfile::tempdir().unwrap(),
            run: Run::new(),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("trace.parquet")
    }

    /// `record -o FILE` with these words after it.
    fn record(&self, words: &[&str]) -> std::process::Output {
        let file = self.file();
        let mut all = vec!["record", "-o", file.to_str().unwrap()];
        all.extend(words);
        self.run.output(&all)
    }
}

#[test]
fn a_command_is_recorded_and_only_its_file_is_left() {
    if !may("record") {
        return;
    }
    let folder = Folder::new();
    let output = folder.record(&["--", "sh", "-c", "/bin/true; kill -TERM $$"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert!(said.contains("killed by signal 15"), "{said}");
    assert!(said.contains("lost      none"), "{said}");
    assert_eq!(names(folder.folder.path()), ["trace.parquet"]);
    let (metadata, events) = read(&folder.file());
    assert_eq!(metadata.losses, Some(Vec::new()));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(metadata.kernel.unwrap().starts_with(release.trim()));
    assert!(metadata.boot_id.is_some() && metadata.source.unwrap().starts_with("sh -c"));
    assert!(
        events
            .iter()
            .filter(|event| event.kind.word() == "exec")
            .count()
            >= 2
    );
}

#[test]
fn it_stops_in_time_and_leaves_the_command_alone() {
    if !may("record") {
        return;
    }
    let folder = Folder::new();
    let inside = |name: &str| folder.folder.path().join(name);
    let (go, done) = (inside("go"), inside("done"));
    // Its standard output is ours, which would not end before it does.
    let script = format!(
        "exec >/dev/null 2>&1; while [ ! -e {} ]; do sleep 0.05; done; touch {}",
        go.display(),
        done.display()
    );
    let output = folder.record(&[
        "-d",
        "300ms",
        "--events",
        "scheduling",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("its time was over"));
    std::fs::write(go, "").unwrap();
    let (_, events) = read(&folder.file());
    assert!(
        events
            .iter()
            .all(|event| event.kind.word() != "syscall-enter")
    );
    wait_for("the end of what was left alone", || {
        done.exists().then_some(())
    });
}

/// A thousand children, each of them seen.
#[test]
fn what_is_forked_is_followed() {
    for source in sources() {
        let folder = Folder::new();
        let script = "i=0; while [ $i -lt 1000 ]; do (:); i=$((i+1)); done";
        let mut all = words(source);
        all.extend(["--events", "scheduling", "--", "sh", "-c", script]);
        let output = folder.record(&all);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let (metadata, events) = read(&folder.file());
        assert_eq!(metadata.losses, Some(Vec::new()));
        let count = |word: &str| {
            events
                .iter()
                .filter(|event| event.kind.word() == word)
                .count()
        };
        assert_eq!(
            (count("fork"), count("exit")),
            (1_000, 1_001),
            "{source}: {metadata:?}"
        );
        let unknown = |event: &&Event| event.kind.word() == "exit" && event.pid.is_none();
        assert_eq!(events.iter().find(unknown), None);
    }
}

/// Two at once, each on its own program: each file has its own alone, and nothing is left of either.
#[test]
fn two_at_once_do_not_meet() {
    for source in sources() {
        two_at_once(source);
    }
}

fn two_at_once(source: &str) {
    let folders = [Folder::new(), Folder::new()];
    let programs = ["/bin/true", "/bin/echo"];
    let go = folders[0].run.path("go");
    let mut children: Vec<_> = folders
        .iter()
        .zip(programs)
        .map(|(folder, program)| {
            let script = format!(
                "while [ ! -e {} ]; do sleep 0.02; done; \
                 i=0; while [ $i -lt 30 ]; do {program} >/dev/null; sleep 0.02; i=$((i+1)); done",
                go.display()
            );
            let file = folder.file();
            let file = file.to_str().unwrap();
            let mut all = words("record");
            all.extend(words(source));
            all.extend(["-o", file, "--", "sh", "-c", &script]);
            let mut command = folder.run.command(&all);
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    // Both are at work at the same time: two spools, by tracefs two instances.
    let pids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
    wait_for("both at work at the same time", || {
        let mut both = pids.iter().zip(&folders);
        let spool = |pid: u32| format!(".trace.parquet.{pid}.spool/spool.json");
        let works = |(&pid, folder): (&u32, &Folder)| {
            folder.folder.path().join(spool(pid)).exists()
                && (source.contains("bpf") || instances(pid) > 0)
        };
        both.all(works).then_some(())
    });
    std::fs::write(go, "").unwrap();
    for (child, folder) in children.drain(..).zip(&folders) {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(names(folder.folder.path()), ["trace.parquet"]);
    }
    assert_eq!(pids.iter().map(|&pid| instances(pid)).sum::<usize>(), 0);
    for (number, folder) in folders.iter().enumerate() {
        let (metadata, events) = read(&folder.file());
        assert_eq!(metadata.losses, Some(Vec::new()));
        let executed = |program: &str| {
            let is = |event: &&Event| match &event.kind {
                Kind::Exec { filename, .. } => filename.as_deref() == Some(program),
                _ => false,
            };
            events.iter().filter(is).count()
        };
        assert_eq!(
            (executed(programs[number]), executed(programs[1 - number])),
            (30, 0),
            "{source}"
        );
    }
}

/// A thread that does not lead its process execs: the process goes on as its leader's id.
#[test]
fn an_exec_from_another_thread_is_followed() {
    const SAID: &str = "STOPGAP_TEST_EXECS";
    if std::env::var_os(SAID).is_some() {
        // Each test runs in a thread of its own.
        use std::os::unix::process::CommandExt;
        let error = std::process::Command::new("/bin/sh")
            .args(["-c", "/bin/true"])
            .exec();
        panic!("{error}");
    }
    for source in sources() {
        exec_from_another_thread(source, SAID);
    }
}

fn exec_from_another_thread(source: &str, said: &str) {
    let folder = Folder::new();
    let this = std::env::current_exe().unwrap();
    let file = folder.file();
    let mut all = words("record");
    all.extend(words(source));
    all.extend(["-o", file.to_str().unwrap(), "--", this.to_str().unwrap()]);
    let mut command = folder.run.command(&all);
    let name = "record::an_exec_from_another_thread_is_followed";
    // With two test threads the harness runs it in a thread of its own, with one perhaps in the first.
    let command = command.args([name, "--exact", "--test-threads=2"]);
    let output = command.env(said, "1").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (metadata, events) = read(&file);
    assert_eq!(metadata.losses, Some(Vec::new()));
    let from_another = events.iter().find_map(|event| match &event.kind {
        Kind::Exec {
            filename,
            old_tid: Some(old),
        } => Some((
            filename.as_deref().map(str::to_owned),
            *old,
            event.pid,
            event.tid,
        )),
        _ => None,
    });
    let (filename, old, pid, tid) = from_another.expect("an exec from another thread");
    assert_eq!(filename.as_deref(), Some("/bin/sh"));
    assert!(pid.is_some() && pid == tid && Some(old) != tid);
    // The trace has all events of the new program under the leader's id.
    let ends = |event: &Event| event.kind.word() == "exit" && event.tid == tid;
    assert!(events.iter().any(ends));
    let comm = events
        .iter()
        .rev()
        .find(|event| event.tid == tid)
        .and_then(|event| event.comm.clone());
    assert!(matches!(comm.as_deref(), Some("sh" | "true")), "{comm:?}");
}

/// A recording of another machine: its addresses are not looked up in this kernel.
#[test]
fn functions_of_another_machine_keep_their_addresses() {
    let folder = Folder::new();
    for boot in ["\"00000000-0000-0000-0000-000000000000\"", "null"] {
        let spool = folder.folder.path().join("spool");
        crate::common::spool(&spool);
        let description = std::fs::read_to_string(spool.join("spool.json")).unwrap();
        let metadata = "\"metadata\": {";
        assert!(description.contains(metadata));
        let said = format!("{metadata} \"boot_id\": {boot},");
        let changed = description.replace(metadata, &said);
        std::fs::write(spool.join("spool.json"), changed).unwrap();
        let output = folder.record(&["--recover", spool.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let (metadata, events) = read(&folder.file());
        let unnamed = metadata
            .missing
            .iter()
            .any(|missing| missing.what.contains("kernel functions"));
        assert!(unnamed, "{:?}", metadata.missing);
        let mut stacks = 0;
        for event in &events {
            if let Kind::Wait(wait) = &event.kind
                && let Some(stack) = &wait.stack
            {
                let mut frames = stack.frames.split(';');
                assert!(frames.all(|frame| frame.starts_with("0xffff")), "{stack:?}");
                stacks += 1;
            }
        }
        assert!(stacks > 0);
    }
}

/// Killed in the middle: the next run removes the instance, and the file is made of what there is.
#[test]
fn a_killed_recording_is_recovered() {
    let _alone = Run::alone(); // other commands would put back what the killed run left
    if !may("record") {
        return;
    }
    let folder = Folder::new();
    let file = folder.file();
    let words = [
        "record",
        "--source",
        "tracefs",
        "-o",
        file.to_str().unwrap(),
        "--",
        "sleep",
        "300",
    ];
    let mut command = folder.run.command(&words);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let spool = folder
        .folder
        .path()
        .join(format!(".trace.parquet.{pid}.spool"));
    wait_for("its beginning", || {
        let there = ["cpu0.raw", "spool.json"].map(|name| spool.join(name).exists());
        (there == [true, true]).then_some(())
    });
    let early = folder.record(&["--recover", spool.to_str().unwrap()]);
    assert_eq!(early.status.code(), Some(1), "{early:?}");
    assert!(text(&early.stderr).contains("still records"), "{early:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(instances(pid), 1);
    let restored = folder.run.output(&["restore"]);
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    assert_eq!(instances(pid), 0);
    let output = folder.record(&["--recover", spool.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout).contains("it was cut off"),
        "{output:?}"
    );
    assert_eq!(names(folder.folder.path()), ["trace.parquet"]);
    let (metadata, _) = read(&file);
    assert_eq!(
        metadata.losses, None,
        "nobody knows what was lost at the end"
    );
}

/// A small file system of its own, which nobody else sees: what was captured before it was full is
/// read back elsewhere.
#[test]
fn a_full_disk_leaves_what_was_captured() {
    for source in common::sources(
        "--source bpf --only --events all",
        &["--source tracefs --events all"],
    ) {
        recorded_onto_a_full_disk(source);
    }
}

fn recorded_onto_a_full_disk(source: &str) {
    let folder = Folder::new();
    let (small, large) = (folder.folder.path().join("small"), folder.file());
    std::fs::create_dir(&small).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=3m none {small} || exit 77; \
         {STOPGAP} record {source} -o {small}/t.parquet -- dd if=/dev/zero of=/dev/null bs=1 count=300000; \
         echo status $?; {STOPGAP} record --recover {small}/.t.*.spool -o {large}; echo status $?",
        small = small.display(),
        large = large.display(),
    );
    let mut command = std::process::Command::new("unshare");
    let output = command
        .args(["-m", "sh", "-c", &script])
        .env("XDG_STATE_HOME", folder.run.directory.path())
        .output()
        .unwrap();
    if output.status.code() == Some(77) || !output.status.success() {
        skip(&Skip::machine(format!(
            "mounting a small file system: {output:?}"
        )));
        return;
    }
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(told.contains("--recover"), "{told} {said}");
    assert!(
        said.contains("status 125\n") && said.ends_with("status 0\n"),
        "{said} {told}"
    );
    assert!(
        said.contains("cut off") || said.contains("missing"),
        "{said}"
    );
    let (metadata, events) = read(&large);
    assert!(events.len() > 1_000, "{} {metadata:?}", events.len());
    assert!(!metadata.missing.is_empty());
}

/// The trace has events of the command and its children, for every choice of events.
#[test]
fn counters_stand_beside_the_events() {
    if !may("record") {
        return;
    }
    for set in ["all", "scheduling"] {
        let folder = Folder::new();
        let output = folder.record(&["--events", set, "--", "sh", "-c", "sleep 1; :"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let (_, events) = read(&folder.file());
        let mut pairs = events.windows(2);
        let late = pairs.find(|pair| pair[1].time < pair[0].time);
        assert_eq!(late, None, "the second came later than it happened");
        let mut mapped = std::collections::BTreeSet::new();
        let mut names = std::collections::BTreeSet::new();
        for event in &events {
            if let Kind::Counter { name, value } = &event.kind {
                names.insert(name.to_string());
                if &**name == "mappings" {
                    assert!(*value > 0);
                    mapped.insert(event.pid.unwrap());
                }
            }
        }
        assert_eq!(mapped.len(), 2, "sh and sleep: {events:?}");
        for name in stopgap_tracer::counters::NAMES {
            let here = names.contains(name) || name.contains("pressure");
            assert!(here, "{name} of {names:?}");
        }
    }
}

/// A process that runs already: the trace begins with what it had mapped, and a replay with that layout.
#[test]
fn a_running_process_is_replayed_from_what_it_had_mapped() {
    if !may("record") {
        return;
    }
    // More than the C library ever takes from its heap: a map and an unmap each time.
    let script = "while (1) { my $x = 'x' x 40e6; undef $x; select undef, undef, undef, 0.02 }";
    let perl = std::process::Command::new("perl")
        .args(["-e", script])
        .spawn();
    let child = match perl {
        Ok(child) => child,
        Err(error) => return skip(&Skip::program(format_args!("perl: {error}"))),
    };
    let pid = child.id();
    let _ended = Ended(child);
    for source in sources() {
        replayed_from_its_layout(source, pid);
    }
}

/// Ends a process with its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn replayed_from_its_layout(source: &str, pid: u32) {
    let folder = Folder::new();
    let number = pid.to_string();
    let mut all = words(source);
    all.extend(["--events", "all", "-d", "1500ms", "-p", &number]);
    let output = folder.record(&all);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (_, events) = read(&folder.file());
    // Rows of other programs may come before.
    let layout = events.iter().filter(|event| event.kind.word() == "map");
    assert!(layout.clone().count() > 10, "{:?}", events.first());
    assert!(layout.clone().all(|event| event.pid == Some(pid)));
    let file = folder.file();
    let file = file.to_str().unwrap();
    let words = [
        "replay",
        "placement",
        file,
        "--policy",
        "linux-6.12",
        "--json",
    ];
    let output = folder.run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    assert!(!said.contains("what was mapped before"), "{said}");
}

/// By BPF calls that do not wait are not recorded, and what needs them says how to get them.
#[test]
fn what_needs_all_calls_says_how_to_get_them() {
    if sources().len() < 2 {
        return;
    }
    let run = Run::new();
    let command = "-- sh -c sleep\t0.02;sleep\t0.02;:";
    let recorded = run.stopgap(format!("record -o t.parquet {command}"));
    assert_eq!(
        (recorded.status, &*recorded.err),
        (Some(0), ""),
        "{recorded:#?}"
    );
    // Some kernels let programs attach to the calls that change an address space.
    let (metadata, _) = read(&run.path("t.parquet"));
    let lacks = |one: &stopgap_events::machine::Missing| one.what == "address-space";
    let replayed = run.stopgap("replay placement t.parquet");
    assert_eq!(replayed.status, Some(1), "{replayed:#?}");
    match metadata.missing.iter().any(lacks) {
        true => has(
            &replayed.err,
            &["no map, unmap or protection", "--events all records each"],
        ),
        false => has(&replayed.err, &["choose with --pid"]),
    }
    let explained = run.stopgap("explain t.parquet --verbose --frame-marker close");
    has(
        &explained.out,
        &[
            "system calls that did not wait: ",
            "the marker close did not come twice; a system call can be one in a trace of stopgap record --events all",
        ],
    );
    run.stopgap(format!("record --events all -o t.parquet {command}"))
        .quiet();
    let replayed = run.stopgap("replay placement t.parquet --policy linux-6.12");
    assert_eq!(replayed.status, Some(1), "several processes: {replayed:#?}");
    has(&replayed.err, &["choose with --pid"]);
    let explained = run.stopgap("explain t.parquet --verbose --frame-marker close");
    assert!(!explained.out.contains("did not"), "{explained:#?}");
}

/// There, the ids that tracefs wants are others than those that processes have: none of a stranger's is recorded.
#[test]
fn in_a_pid_namespace_it_is_recorded_without_tracefs() {
    if !may("record") {
        return;
    }
    let folder = Folder::new();
    let mut command = std::process::Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc"]);
    command
        .arg(STOPGAP)
        .env("XDG_STATE_HOME", folder.run.directory.path());
    command.args(["record", "-o"]).arg(folder.file());
    command.args(["--", "sh", "-c", "sleep 0.05; sleep 0.05"]);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&Skip::program(format_args!("unshare: {error}"))),
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (metadata, events) = read(&folder.file());
    let said = |missing: &stopgap_events::machine::Missing| missing.why.contains("PID namespace");
    assert!(metadata.missing.iter().any(said), "{metadata:?}");
    let why = "recording by perf, because there is no bpf and no tracefs: in a PID namespace";
    has(&text(&output.stderr), &[why]);
    assert!(events.iter().any(|event| event.kind.word() == "wait"));
    assert!(
        events
            .iter()
            .all(|event| event.kind.word() != "syscall-enter")
    );
}

/// In a mount namespace of its own, so that nobody else misses it.
#[test]
fn tracefs_may_be_nowhere_elsewhere_or_in_debugfs() {
    if !may("record") {
        return;
    }
    let unshare = |script: &str, words: &[&std::ffi::OsStr]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).args(words);
        command.stdin(Stdio::null());
        command
    };
    match unshare("umount --help", &[]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skip(&Skip::machine(text(&output.stderr))),
        Err(error) => return skip(&Skip::program(format!("unshare: {error}"))),
    }
    const GONE: &str = "for place in tracing debug/tracing debug; do \
                        while umount /sys/kernel/$place 2>/dev/null; do :; done; done; ";
    for (place, mount) in [
        ("nowhere", ""),
        ("elsewhere", "mkdir $2 && mount -t tracefs tracefs $2 && "),
        ("debugfs", "mount -t debugfs debugfs /sys/kernel/debug && "),
        ("hidden", "mount -t tmpfs tmpfs /sys/kernel/tracing && "),
    ] {
        let folder = Folder::new();
        let (file, other) = (folder.file(), folder.folder.path().join("other"));
        let words = [STOPGAP.as_ref(), other.as_os_str(), file.as_os_str()];
        // No fork on the way: the process is the one that we start.
        let script = format!("{GONE}{mount}exec $1 record --source tracefs -o $3 -- true");
        let script = script.replace("$1", "\"$1\"").replace("$2", "\"$2\"");
        let child = unshare(&script, &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{place}: {output:?}");
        let said = text(&output.stdout);
        assert!(said.contains("lost      none"), "{place}: {said}");
        let (metadata, events) = read(&file);
        let kernel = |one: &stopgap_events::machine::Missing| one.what == "kernel events";
        assert!(
            !metadata.missing.iter().any(kernel),
            "{place}: {metadata:?}"
        );
        assert!(events.iter().any(|event| event.kind.word() == "exec"));
        assert_eq!(instances(pid), 0, "{place}");
    }
    let script = format!("{GONE}exec \"$1\" watch -d 500ms -o \"$2\"");
    let folder = tempfile::tempdir().unwrap();
    let stalls = folder.path().join("stalls");
    let output = unshare(&script, &[STOPGAP.as_ref(), stalls.as_os_str()]);
    let output = { output }.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let script = format!("{GONE}exec \"$1\" doctor --verbose");
    let output = unshare(&script, &[STOPGAP.as_ref()]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("record mounts it for itself"), "{said}");
}

/// The trace is written while the command runs; where that fails, `record` says so and writes it afterwards.
#[test]
fn a_recording_by_bpf_has_its_trace_when_it_ends() {
    if !may("waits by BPF") {
        return;
    }
    let run = Run::new();
    let done = run.stopgap("record --source bpf -o t.parquet -- sleep 0.5");
    assert_eq!((done.status, &*done.err), (Some(0), ""), "{done:#?}");
    has(&done.out, &["waits ", "lost      none"]);
    let done = run.stopgap("export t.parquet --to jsonl -o -");
    has(
        &done.out,
        &["\"kind\":\"wait\"", "rusage voluntary switches"],
    );
}
