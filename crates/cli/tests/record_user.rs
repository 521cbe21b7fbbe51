//! `stopgap record` without root: as nobody where the tests run as root, as this user otherwise.

mod common;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Run, root, text};
use stopgap_events::trace::{Event, Input, Kind, Metadata};
use stopgap_kernel::fake::skipped;

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
        let mut input = Input::new(File::open(self.file()).unwrap()).unwrap();
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
    lacks.inspect(|one| skipped(&one.why)).is_some()
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
        if let (Kind::Switch { preempted, .. }, Some(_)) = (&event.kind, event.tid) {
            assert!(event.pid.is_some() && event.comm.is_some(), "{event:?}");
            left.0 += 1;
            left.1 += u64::from(preempted.unwrap());
        }
    }
    println!("records {left:?}, rusage {counted}");
    assert_eq!(metadata.losses, Some(Vec::new()));
    #[allow(clippy::cast_precision_loss)]
    let ratio = left.0 as f64 / counted as f64;
    assert!((0.98..=1.02).contains(&ratio), "{left:?} of {counted}");
    let words = |word: &str| events.iter().filter(|e| e.kind.word() == word).count();
    assert_eq!(words("exec"), 5, "sh, mkfifo and three times dd");
    assert_eq!((words("fork"), words("exit")), (4, 5));

    let file = user.file();
    let explained = user
        .command(&["explain", file.to_str().unwrap()])
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

/// A process that is there already, of the same user: what it forks is seen, and it is left alone.
#[test]
fn an_own_process_is_recorded() {
    let user = User::new();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "while :; do sleep 0.02; done"])
        .stdin(Stdio::null());
    if root() {
        use std::os::unix::process::CommandExt;
        shell.uid(common::NOBODY).gid(common::NOBODY);
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
    error(&nothing, 1, "exec /nonexistent/x: No such file");
    error(&user.record(&["--", &directory]), 1, "not yours to run");
    let at = |path: &str| {
        user.command(&["record", "-o", path, "--", "true"])
            .output()
            .unwrap()
    };
    error(&at(&directory), 1, "name a file in it");
    error(&at("/proc/1/t"), 1, "cannot write /proc/1/t");
    error(&at("/nonexistent/t"), 1, "its folder is to be there");
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
