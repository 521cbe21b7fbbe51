//! `stopgap record` without root: as nobody where the tests run as root, as this user otherwise.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Run, root, text, wait_for, words};
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::wait::Within;
use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::local_time::utc;
use stopgap_testing::{Skip, skip};
use stopgap_trace::{Event, Input, Kind, Metadata};

struct User {
    run: Run,
}

impl User {
    fn new() -> User {
        User { run: Run::new() }
    }

    fn command(&self, words: &[&str]) -> Command {
        match root() {
            true => self.run.as_nobody(words),
            false => self.run.command(words),
        }
    }

    /// A folder that the user may write to.
    fn folder(&self) -> PathBuf {
        if root() {
            self.run.as_nobody(&[]);
            return self.run.directory.path().join("nobody");
        }
        self.run.directory.path().to_owned()
    }

    fn file(&self) -> PathBuf {
        self.folder().join("t.parquet")
    }

    fn record(&self, words: &[&str]) -> Output {
        let file = self.file();
        let mut all = vec!["record", "-o", file.to_str().unwrap()];
        all.extend(words);
        self.command(&all).output().unwrap()
    }

    fn trace(&self) -> (Metadata, Vec<Event>) {
        let mut input = Input::new(File::open(self.file()).unwrap())
            .unwrap()
            .as_recorded();
        let metadata = input.metadata().clone();
        (metadata, input.by_ref().map(Result::unwrap).collect())
    }
}

/// The last value of a counter of a process.
fn counter(events: &[Event], wanted: &str) -> Option<i64> {
    events.iter().rev().find_map(|event| match &event.kind {
        Kind::Counter { name, value } if &**name == wanted => Some(*value),
        _ => None,
    })
}

fn lacks_switches(metadata: &Metadata) -> bool {
    let switches = |what: &str| what.starts_with("switches, forks");
    let lacks = metadata.missing.iter().find(|one| switches(&one.what));
    lacks
        .inspect(|one| skip(&Skip::machine(&one.why)))
        .is_some()
}

/// The trace says where, when and of what it was recorded, and what the machine did besides.
#[test]
fn a_trace_says_what_it_is_of() {
    let user = User::new();
    let before = Linux.unix_seconds();
    let labels = ["--label", "rack=b 7", "--label", "build=x=y"];
    let spin = "timeout 0.3 sh -c 'while :; do :; done'; exit 0";
    let output = user.record(&[&labels[..], &["--", "sh", "-c", spin]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (metadata, _) = user.trace();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(metadata.host.as_deref(), Some(host.trim()));
    assert_eq!(metadata.program.as_deref(), Some("sh"));
    assert_eq!(metadata.source, Some(format!("sh -c {spin}")));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(metadata.stopgap.as_deref(), Some(version));
    let start = metadata.start.as_deref().unwrap();
    let moment = utc(before)..=utc(Linux.unix_seconds());
    assert!(moment.contains(&start.to_owned()), "{start} {moment:?}");
    let machine = metadata.machine.unwrap();
    assert!(machine.cpus >= Some(1) && machine.memory > Some(Bytes::mib(16)));
    let given = metadata
        .labels
        .iter()
        .map(|(key, value)| (&**key, &**value));
    assert!(given.eq([("build", "x=y"), ("rack", "b 7")]));
    let conditions = metadata.conditions.unwrap();
    let all = conditions.cpu_time_ns.unwrap();
    assert!(
        (Nanos::millis(200)..Nanos::secs(600)).contains(&all),
        "{all}"
    );
    assert!(conditions.others_ns.unwrap() + conditions.steal_ns.unwrap() <= all);

    let file = user.file();
    let words = ["export", file.to_str().unwrap(), "--to", "jsonl", "-o", "-"];
    let lines = text(&user.command(&words).output().unwrap().stdout);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["schema"], "stopgap.trace/2");
    assert_eq!(first["labels"]["rack"], "b 7");
    assert_eq!(first["conditions"]["cpu_time_ns"], all.0);

    let output = user.record(&["--label", "a=1", "--label", "a=2", "--", "true"]);
    let said = text(&output.stderr);
    assert!(said.contains("'a' is given twice"), "{said}");
}

/// Two processes that answer each other: the records of perf and the kernel's own count.
#[test]
fn switches_are_those_of_rusage() {
    const ROUNDTRIPS: u64 = 2_000;
    let user = User::new();
    let pipe = |name: &str| user.folder().join(name).display().to_string();
    let (there, back) = (pipe("there"), pipe("back"));
    let script = format!(
        "mkfifo {there} {back}; \
         dd bs=1 count={ROUNDTRIPS} <{there} >{back} 2>/dev/null & \
         exec 3>{there} 4<{back}; printf x >&3; \
         dd bs=1 count={} <&4 >&3 2>/dev/null; dd bs=1 count=1 <&4 >/dev/null 2>&1; wait",
        ROUNDTRIPS - 1
    );
    let output = user.record(&["--", "sh", "-c", &script]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        said.contains("kernel events") && said.contains("as root"),
        "{said}"
    );
    let (metadata, events) = user.trace();
    assert!(events.is_sorted_by_key(|event| event.time));
    let count = |name: &str| u64::try_from(counter(&events, name).unwrap()).unwrap();
    let counted = count("rusage voluntary switches") + count("rusage involuntary switches");
    assert!(counted > ROUNDTRIPS, "{counted}");
    assert!(count("mappings") > 3 && count("rusage minor faults") > 100);
    if lacks_switches(&metadata) {
        return;
    }
    let mut left = (0_u64, 0_u64);
    for event in &events {
        if let Kind::Wait(wait) = &event.kind
            && !wait.began_before
            && wait.within != Some(Within::New)
        {
            assert!(event.pid.is_some() && event.comm.is_some(), "{event:?}");
            left.0 += 1;
            left.1 += u64::from(wait.preempted.unwrap());
        }
    }
    println!("records {left:?}, rusage {counted}");
    assert_eq!(metadata.losses, Some(Vec::new()));
    let ratio = left.0 as f64 / counted as f64;
    assert!((0.98..=1.02).contains(&ratio), "{left:?} of {counted}");
    // The screen counts the exits that perf missed: explain and rusage differ by as many.
    let exits = metadata
        .missing
        .iter()
        .find(|one| one.what.starts_with("switches in the exit"));
    match counted.checked_sub(left.0) {
        Some(lacks @ 1..) => {
            let said = format!(
                "counts {counted} switches, the trace has {}: {lacks} at least are",
                left.0
            );
            assert!(
                exits.is_some_and(|one| one.why.contains(&said)),
                "{said}: {exits:?}"
            );
        }
        _ => assert_eq!(exits, None),
    }
    let words = |word: &str| events.iter().filter(|e| e.kind.word() == word).count();
    assert_eq!(words("exec"), 5, "sh, mkfifo and three times dd");
    assert_eq!((words("fork"), words("exit")), (4, 5));

    let file = user.file();
    let explained = user
        .command(&["explain", "--verbose", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = text(&explained.stdout);
    assert_eq!(explained.status.code(), Some(0), "{explained:?}");
    for part in [
        format!("{} switch-outs", thousands(left.0)),
        "blocked in an unknown call".to_owned(),
        "live mappings (mappings of process".to_owned(),
        "who wakes whom".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}

fn thousands(number: u64) -> String {
    format!("{},{:03}", number / 1000, number % 1000)
}

/// A flag that needs root is refused; a user may sample his own code.
#[test]
fn flags_are_heeded_or_it_is_said_that_they_are_not() {
    let user = User::new();
    let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let flags = words("--events scheduling --buffer 8M --samples 999");
    let output = user.record(&[&flags[..], &["--", "sh", "-c", spin]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    let (metadata, events) = user.trace();
    for flag in ["--events", "--buffer"] {
        let line = format!("missing   what {flag} asks for: ");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
    assert!(metadata.kernel.is_some());
    if lacks_switches(&metadata) {
        return;
    }
    let stacks = events.iter().filter_map(|event| match &event.kind {
        Kind::Sample { stack } => Some(stack),
        _ => None,
    });
    let of_user =
        |stack: &&stopgap_trace::Stack| stack.frames().any(|frame| !frame.ends_with("_[k]"));
    let (total, own) = (
        stacks.clone().count(),
        stacks.clone().filter(of_user).count(),
    );
    println!("{total} samples, {own} with a user's frame");
    assert!(total > 20 && own * 10 > total * 9, "{own} of {total}");
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    if level.trim() == "2" {
        let kernel =
            |stack: &stopgap_trace::Stack| stack.frames().any(|frame| frame.ends_with("_[k]"));
        assert!(!stacks.clone().any(kernel), "a user may not see them");
        assert!(
            said.contains("missing   samples of time in the kernel: "),
            "{said}"
        );
    }
}

/// Ends the processes that a test leaves behind.
struct Ends(u32);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.to_string()).status();
    }
}

/// `timeout` sends its signal twice. The command gets no signal and goes on, and the screen says so.
#[test]
fn two_signals_end_it_once_and_the_command_goes_on() {
    let user = User::new();
    let (file, pid) = (user.file(), user.folder().join("pid"));
    let script = format!(
        "exec >/dev/null 2>&1; echo $$ >{}; exec sleep 30",
        pid.display()
    );
    let words = [
        "record",
        "-o",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut command = user.command(&words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid: u32 = wait_for("its beginning", || {
        std::fs::read_to_string(&pid).ok()?.trim().parse().ok()
    });
    let sleeper = Ends(pid);
    // Meanwhile nobody else may record into the same file.
    let second = user.record(&["--", "true"]);
    assert_eq!(second.status.code(), Some(125), "{second:?}");
    let told = text(&second.stderr);
    assert!(
        told.contains("is writing it; wait for its end, or name another file"),
        "{told}"
    );
    for _ in 0..2 {
        Command::new("kill")
            .arg(child.id().to_string())
            .status()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.contains("ended     interrupted after "), "{said}");
    let line = format!("command   goes on as process {pid}, not recorded");
    assert!(said.contains(&line), "{said}");
    drop(sleeper);
    let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().unwrap());
    assert_eq!(
        mode & 0o777,
        0o600,
        "what others' processes did is nobody else's business"
    );
    let left = std::fs::read_dir(user.folder()).unwrap();
    let left = left.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".t.")
    });
    assert_eq!(left.count(), 0);
}

/// Killed: the next recording and `restore` say so, and the file is made where it was to be.
#[test]
fn a_killed_recording_is_told_of_and_recovered_beside() {
    let _alone = Run::alone(); // other commands would put back what the killed run left
    let user = User::new();
    let file = user.file();
    let words = ["record", "-o", file.to_str().unwrap(), "--", "sleep", "300"];
    let mut child = user.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let spool = user
        .folder()
        .join(format!(".t.parquet.{}.spool", child.id()));
    wait_for("its beginning", || {
        let counters = std::fs::metadata(spool.join("counters.jsonl")).ok()?;
        (spool.join("spool.json").exists() && counters.len() > 0).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let advice = format!("stopgap record --recover {}", spool.display());
    let next = user.folder().join("next.parquet");
    let words = ["record", "-o", next.to_str().unwrap(), "--", "true"];
    let output = user.command(&words).output().unwrap();
    assert!(text(&output.stderr).contains(&advice), "{output:?}");
    let output = user
        .command(&["restore"])
        .current_dir(user.folder())
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).contains(".spool makes t.parquet of it"),
        "{output:?}"
    );
    let output = user
        .command(&["record", "--recover", spool.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(file.exists() && !spool.exists());
}

/// A process that is there already, of the same user: the trace has its children, and the process goes on undisturbed.
#[test]
fn an_own_process_is_recorded() {
    let user = User::new();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "while :; do sleep 0.02; done"])
        .stdin(Stdio::null());
    if root() {
        use std::os::unix::process::CommandExt;
        shell.uid(crate::common::NOBODY).gid(crate::common::NOBODY);
    }
    let mut child = shell.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let output = user.record(&["-p", &child.id().to_string(), "-d", "700ms"]);
    let lives = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(lives);
    let (metadata, events) = user.trace();
    let of_it = |event: &&Event| event.pid == Some(child.id());
    let own: Vec<Event> = events.iter().filter(of_it).cloned().collect();
    assert!(counter(&own, "mappings").is_some_and(|count| count > 3));
    assert!(counter(&own, "voluntary switches").is_some_and(|count| count > 0));
    assert_eq!(
        counter(&events, "rusage minor faults"),
        None,
        "it is not our child"
    );
    if !lacks_switches(&metadata) {
        assert!(events.iter().any(|event| event.kind.word() == "fork"));
    }
}

#[test]
fn what_is_not_ours_is_refused_and_nothing_is_left() {
    let user = User::new();
    let error = |output: &Output, status: i32, what: &str| {
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains(what) && told.lines().count() == 1, "{told}");
    };
    let folder = user.folder();
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let before = files();
    let directory = folder.display().to_string();
    // Process 1 is root's, but in a container that is all this user's.
    if root() || std::fs::read_link("/proc/1/exe").is_err() {
        let refused = user.record(&["-p", "1"]);
        error(
            &refused,
            3,
            "process 1: it is the kernel's or another user's",
        );
    }
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        // No container.
        error(
            &user.record(&["-p", "2"]),
            3,
            "process 2: it is the kernel's",
        );
    }
    for pid in ["0", "4194999"] {
        error(&user.record(&["-p", pid]), 1, &format!("no process {pid}"));
    }
    let nothing = user.record(&["--", "/nonexistent/x"]);
    error(&nothing, 127, "exec /nonexistent/x: No such file");
    error(&user.record(&["--", &directory]), 126, "not yours to run");
    let at = |path: &str| {
        user.command(&["record", "-o", path, "--", "true"])
            .output()
            .unwrap()
    };
    error(&at(&directory), 125, "name a file in it");
    error(&at("-"), 125, "name a file");
    error(
        &user.record(&["-d", "0", "--", "true"]),
        125,
        "nothing is recorded",
    );
    let other = user.record(&["--recover", &directory]);
    error(&other, 1, "not the folder of a recording");
    error(&at("/proc/1/t"), 125, "cannot write /proc/1/t");
    error(&at("/nonexistent/t"), 125, "the directory must exist");
    let recorder = format!("exec \"$0\" record -o {directory}/t -p $$ -d 100ms");
    let stopgap = user.command(&[]);
    let mut shell = user.command(&[]);
    let program = stopgap.get_program().to_owned();
    let mut own = Command::new("sh");
    own.arg("-c").arg(recorder).arg(program);
    for (name, value) in shell.env("HOME", &folder).get_envs() {
        own.env(name, value.unwrap_or_default());
    }
    error(&own.output().unwrap(), 1, "this recorder itself");
    assert_eq!(
        files(),
        before + usize::from(folder.join(".local").exists())
    );
}

/// The status is the command's, as a shell has it. Where stopgap fails itself, it is 125, of a command that cannot be run 126, of one
/// that is not there 127, as timeout(1) has them.
#[test]
fn the_exit_status_is_the_commands() {
    let user = User::new();
    let at = |path: &str, words: &[&str]| {
        let mut all = vec!["record", "-o", path];
        all.extend(words);
        let output = user.command(&all).output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    let plain = user.folder().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    // It ends after this test.
    let goes_on =
        format!("exec >/dev/null 2>&1; while [ -e {plain} ]; do sleep 0.05; done; exit 3");
    for (words, wanted) in [
        (&["--", "true"][..], 0),
        (&["--", "sh", "-c", "exit 3"], 3),
        (&["--", "sh", "-c", "exit 125"], 125),
        (&["--", "sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["-d", "100ms", "--", "sh", "-c", &goes_on], 0),
        (&["--", plain], 126),
        (&["--", "no-such-program"], 127),
        (&["--label", "rack", "--", "true"], 125),
        (&["--label", "rack"], 1),
        (&["-p", "0"], 1),
    ] {
        let (status, said) = at("t.parquet", words);
        assert_eq!(status, wanted, "{words:?}: {said}");
    }
    assert_eq!(at("no/t.parquet", &["--", "true"]).0, 125);
}
