//! Whom `stopgap record` records: processes with their children, names, control groups, the whole machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stopgap_trace::{Event, Input, Metadata};

use crate::common::{self, Done, Run, begun, has, root, text, wait_for};
use stopgap_testing::{Skip, skip};

/// A program of ours, ended with its test.
pub(crate) struct Program(Child);

impl Program {
    /// Starts `sh -c SCRIPT`, by a copy of the shell that has this name.
    pub(crate) fn start(run: &Run, name: &str, script: &str) -> Program {
        let shell = run.path(name);
        if !shell.exists() {
            stopgap_kernel::fake::install(Path::new("/bin/sh"), &shell);
        }
        let mut command = Command::new(shell);
        command
            .args(["-c", script])
            .current_dir(run.directory.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Program(child.unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end; its number.
    fn ends(mut self) -> u32 {
        self.0.wait().unwrap();
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Counts its sleeps in a file that has its name.
const SLEEPS: &str = "i=0; while :; do i=$((i+1)); echo $i >\"${0##*/}.round\"; sleep 0.01; done";

/// Records until each of these programs of [`SLEEPS`] has slept ten times more: on a busy machine no time is long enough.
fn record_sleeps(run: &Run, words: &[&str], of: &[&str]) -> String {
    let mut all = vec!["record", "-o", "t.parquet"];
    all.extend(words);
    let mut command = run.command(&all);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let recorder = begun(run, command.spawn().unwrap());
    sleep_ten_times(run, of);
    common::signal("-INT", recorder.id());
    Done::new(&words.join(" "), &recorder.wait_with_output().unwrap()).quiet()
}

fn sleep_ten_times(run: &Run, of: &[&str]) {
    for name in of {
        let round = || run_number(run, &format!("{name}.round"));
        let first = wait_for("its sleeps", round);
        wait_for("ten sleeps", || (round()? > first + 10).then_some(()));
    }
}

fn trace(file: &Path) -> (Metadata, Vec<Event>) {
    let mut input = Input::new(File::open(file).unwrap()).unwrap().as_recorded();
    let metadata = input.metadata().clone();
    (metadata, input.by_ref().map(Result::unwrap).collect())
}

/// Processes that waited or left a CPU.
fn ran(events: &[Event]) -> BTreeSet<u32> {
    let waits = |event: &&Event| matches!(event.kind.word(), "wait" | "switch");
    events
        .iter()
        .filter(waits)
        .filter_map(|event| event.pid)
        .collect()
}

/// Sources that record here, each with flags by which it records what is asked for and no more.
fn sources() -> Vec<&'static str> {
    common::sources(
        "--source bpf --only",
        &["--source tracefs --events scheduling", "--source perf"],
    )
}

/// A process that waits for its child: the child is recorded, and what it starts.
#[test]
fn children_that_exist_are_recorded() {
    let run = Run::new();
    let parent = Program::start(
        &run,
        "parent",
        &format!("./parent -c '{SLEEPS}; :' & echo $! >pid; wait"),
    );
    let child = wait_for("the child", || run_number(&run, "pid"));
    let child = Kill(child);
    for source in sources() {
        let pid = parent.pid().to_string();
        let words = [&common::words(source)[..], &["-p", &pid]].concat();
        let summary = record_sleeps(&run, &words, &["parent"]);
        has(&summary, &[&format!("process {pid}: ")]);
        let (metadata, events) = trace(&run.path("t.parquet"));
        let ran = ran(&events);
        assert!(ran.contains(&child.0), "{source}: {ran:?} {metadata:?}");
        assert!(ran.len() > 5, "{source}: what the child starts: {ran:?}");
        assert!(!ran.contains(&std::process::id()), "{source}: {ran:?}");
    }
}

/// Ends a process that is nobody's child any more.
struct Kill(u32);

impl Drop for Kill {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.to_string()).status();
    }
}

fn run_number(run: &Run, name: &str) -> Option<u32> {
    fs::read_to_string(run.path(name)).ok()?.trim().parse().ok()
}

#[test]
fn several_processes_are_recorded_until_the_last_ends() {
    let run = Run::new();
    let stays = Program::start(&run, "stays", SLEEPS);
    for source in sources() {
        let other = Program::start(&run, "other", SLEEPS);
        let (first, both) = (
            other.pid().to_string(),
            format!("{},{}", stays.pid(), other.pid()),
        );
        let words = [&common::words(source)[..], &["-p", &first, "-p", &both]].concat();
        record_sleeps(&run, &words, &["stays", "other"]);
        let ran = ran(&trace(&run.path("t.parquet")).1);
        assert!(
            ran.contains(&other.pid()) && ran.contains(&stays.pid()),
            "{source}: {ran:?}"
        );
    }
    if sources().is_empty() {
        return;
    }
    let until = "until [ -e over ]; do sleep 0.05; done";
    let (one, two) = (
        Program::start(&run, "ends", until),
        Program::start(&run, "ends", until),
    );
    let line = format!("record -p {} -p {} -o t.parquet", one.pid(), two.pid());
    let mut recorder = run.start(&line);
    recorder.child = begun(&run, recorder.child);
    run.write("over", "");
    let summary = recorder.end().quiet();
    has(&summary, &["what was recorded ended after"]);
}

#[test]
fn processes_of_a_name_are_recorded_those_that_come_too() {
    let run = Run::new();
    // As the kernel cuts it; nobody else's process has it.
    let name = format!("h {}", std::process::id());
    let there = Program::start(&run, &name, SLEEPS);
    let other = Program::start(&run, "other", SLEEPS);
    for source in sources() {
        if source == "--source perf" {
            continue;
        }
        let mut words: Vec<&str> = vec!["record"];
        words.extend(source.split(' '));
        words.extend(["--comm", &name, "-o", "t.parquet"]);
        let recorder = run
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let recorder = begun(&run, recorder.unwrap());
        let late = Program::start(&run, &name, SLEEPS);
        let short: Vec<u32> = (0..5)
            .map(|_| Program::start(&run, &name, ":").ends())
            .collect();
        // Without BPF they are looked for ten times in a second.
        std::thread::sleep(Duration::from_secs(1));
        common::signal("-INT", recorder.id());
        let done = Done::new(source, &recorder.wait_with_output().unwrap());
        has(&done.quiet(), &[&format!("processes named {name}")]);
        let events = trace(&run.path("t.parquet")).1;
        let ran = ran(&events);
        // The kernel's programs see each exec; without them a look at all processes finds a process that lives for a while.
        let execs = events.iter().filter(|event| event.kind.word() == "exec");
        let execs: BTreeSet<u32> = execs.filter_map(|event| event.pid).collect();
        if source.contains("bpf") {
            assert!(
                short.iter().all(|pid| execs.contains(pid)),
                "{short:?} {execs:?}"
            );
        }
        assert!(ran.contains(&there.pid()), "{source}: {ran:?}");
        assert!(
            ran.contains(&late.pid()),
            "{source}: {ran:?} {}",
            late.pid()
        );
        assert!(!ran.contains(&other.pid()), "{source}: {ran:?}");
    }
}

/// A control group of the test's, removed with it.
pub(crate) struct Group(pub(crate) PathBuf);

impl Group {
    pub(crate) fn make(parent: &Path, name: &str) -> Option<Group> {
        let path = parent.join(format!("stopgap-test-{name}-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Group(path)),
            Err(error) => {
                skip(&Skip::machine(format!("{}: {error}", path.display())));
                None
            }
        }
    }

    pub(crate) fn put(&self, below: &str, pid: u32) {
        fs::create_dir_all(self.0.join(below)).unwrap();
        fs::write(self.0.join(below).join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_for("the end of its processes", || {
            let _ = fs::remove_dir(self.0.join("below"));
            fs::remove_dir(&self.0).ok()
        });
    }
}

/// Hierarchies of both versions that are mounted here.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found: Vec<PathBuf> = Vec::new();
    for version in ["cgroup", "cgroup2"] {
        let of_version = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let mount = of_version.into_iter().find(|words| {
            // The pids controller changes nothing for its processes.
            words[2] == version && (version == "cgroup2" || words[1].ends_with("/pids"))
        });
        found.extend(mount.map(|words| words[1].into()));
    }
    found
}

#[test]
fn a_control_group_is_recorded_with_what_comes_into_it() {
    if !root() {
        return skip(&Skip::root("a control group"));
    }
    let hierarchies = hierarchies();
    for (place, source) in hierarchies
        .iter()
        .flat_map(|place| sources().into_iter().map(move |source| (place, source)))
    {
        if source == "--source perf" {
            continue;
        }
        let run = Run::new();
        let Some(group) = Group::make(place, "record") else {
            continue;
        };
        let (inside, moved, outside) = (
            Program::start(&run, "inside", SLEEPS),
            Program::start(&run, "moved", SLEEPS),
            Program::start(&run, "outside", SLEEPS),
        );
        group.put("below", inside.pid());
        let line = format!(
            "record {source} --cgroup {} -o t.parquet",
            group.0.display()
        );
        let mut started = run.start(&line);
        started.child = begun(&run, started.child);
        group.put("", moved.pid());
        // It is looked for ten times in a second.
        std::thread::sleep(Duration::from_secs(1));
        sleep_ten_times(&run, &["inside", "moved"]);
        let done = started.interrupt();
        has(
            &done.quiet(),
            &[&format!("control group {}", group.0.display())],
        );
        let ran = ran(&trace(&run.path("t.parquet")).1);
        assert!(ran.contains(&inside.pid()), "{line}: {ran:?}");
        assert!(ran.contains(&moved.pid()), "{line}: {ran:?}");
        assert!(!ran.contains(&outside.pid()), "{line}: {ran:?}");
        drop((inside, moved, outside));
    }
}

#[test]
fn everything_is_recorded_while_a_command_runs_or_for_a_time() {
    let run = Run::new();
    let other = Program::start(&run, "other", SLEEPS);
    for source in sources() {
        let source = source.trim_end_matches(" --only");
        if source == "--source perf" {
            run.refuses(
                "record --source perf -a -d 1s -o t.parquet",
                &["-a", "perf follows processes; name them with -p"],
            );
            continue;
        }
        for what in ["-d 1s", "-- sleep 1"] {
            let summary = run
                .stopgap(format!("record {source} -a -o t.parquet {what}"))
                .quiet();
            assert_eq!(
                summary.contains("all processes"),
                what.starts_with("-d"),
                "{summary}"
            );
            let events = trace(&run.path("t.parquet")).1;
            let ran = ran(&events);
            assert!(ran.contains(&other.pid()), "{source} {what}: {ran:?}");
        }
    }
}

#[test]
fn what_cannot_be_recorded_is_refused_in_a_line() {
    let run = Run::new();
    run.write("plain", "");
    let gone = {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let mut ended = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    // The end of its output comes with its own, so it is a zombie then, or soon.
    std::io::copy(&mut ended.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    wait_for("the end of a process", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", ended.id())).unwrap();
        stat.contains(") Z ").then_some(())
    });
    for (words, parts) in [
        (format!("-p {gone}"), vec![format!("no process {gone}")]),
        (
            format!("-p {}", ended.id()),
            vec![format!(
                "no process {}: it has ended, and its parent has not waited for it",
                ended.id()
            )],
        ),
        (
            format!("-p {} -p {gone}", std::process::id()),
            vec![format!("no process {gone}")],
        ),
        (
            "--comm a-name-of-more-than-15".to_owned(),
            vec!["write 'a-name-of-more-than-15' as 'a-name-of-more-'".to_owned()],
        ),
        (
            "--cgroup nowhere".to_owned(),
            vec!["--cgroup nowhere: No such file".to_owned()],
        ),
        (
            "--cgroup .".to_owned(),
            vec!["it is no control group; name a folder below /sys/fs/cgroup".to_owned()],
        ),
        (
            "--cgroup plain".to_owned(),
            vec!["it is no control group".to_owned()],
        ),
        (
            "-a -p 1".to_owned(),
            vec!["'--all' cannot be used with '--pid <PID>'".to_owned()],
        ),
        (
            "-a --only".to_owned(),
            vec!["'--all' cannot be used with '--only'".to_owned()],
        ),
        (
            "--comm sh -- true".to_owned(),
            vec!["'--comm <NAME>' cannot be used with '[CMD]...'".to_owned()],
        ),
    ] {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        run.refuses(format!("record -o t.parquet -d 1s {words}"), &parts);
    }
    ended.wait().unwrap();
    let output = run.output(&["record", "-o", "t.parquet", "--comm", ""]);
    assert_eq!(output.status.code(), Some(1));
    has(
        &text(&output.stderr),
        &["'' is no name of a process; give one as ps -o comm prints it"],
    );
}

/// A name that nobody has: it may come.
#[test]
fn a_name_that_nobody_has_is_said() {
    if sources().is_empty() {
        return;
    }
    let run = Run::new();
    let done = run
        .stopgap("record --comm nobody-has-it -d 300ms -o t.parquet")
        .ok();
    has(
        &done.err,
        &["no process is named 'nobody-has-it': one that comes is recorded"],
    );
}
