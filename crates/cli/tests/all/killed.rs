//! What a run that is killed at once leaves goes with `stopgap restore`, or with the next run of any command; a recorded
//! command ends with its recorder. And two runs that would write one file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Run, STOPGAP, may, names, root, text, wait_for};
use stopgap_testing::{Skip, skip};

fn kill(mut child: Child) {
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
}

/// Whether the process runs; one that nobody has waited for does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    matches!(state, Some(Some(state)) if !"ZX".contains(state))
}

#[test]
fn half_a_snapshot_goes_with_the_next_run() {
    if !root() {
        return skip(&Skip::root(
            "a snapshot that takes long enough to be killed",
        ));
    }
    let run = Run::alone();
    let folder = tempfile::tempdir().unwrap();
    for next in [&["restore"][..], &["doctor"]] {
        let begun = || {
            let mut command = run.command(&["snapshot", "-o", "s.json"]);
            command.current_dir(folder.path()).stdout(Stdio::null());
            let mut child = command.spawn().unwrap();
            let partial = format!(".s.json.{}.partial", child.id());
            let ended = wait_for("the file on its way", || {
                let is_there = folder.path().join(&partial).exists();
                let ended = child.try_wait().unwrap().is_some();
                (is_there || ended).then_some(ended)
            });
            (!ended).then_some((child, partial))
        };
        // A test that has no CPU for a while sees a snapshot that is whole: then the next one is killed.
        let partial = wait_for("half a snapshot", || {
            let (child, partial) = begun()?;
            kill(child);
            let _ = fs::remove_file(folder.path().join("s.json"));
            (names(folder.path()) == [&*partial]).then_some(partial)
        });
        assert!(folder.path().join(partial).exists());
        // In another folder.
        let mut command = run.command(next);
        let output = command.current_dir("/").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(names(folder.path()), [""; 0], "{next:?}: {output:?}");
    }
}

/// A folder of `kernels` whose owner was killed: his file is there, its lock is not.
#[test]
fn folders_of_kernels_go_with_the_next_run() {
    let run = Run::alone();
    let temporary = tempfile::tempdir().unwrap();
    for next in [&["restore"][..], &["doctor"], &["ministat", "/dev/null"]] {
        let left = temporary.path().join("stopgap-emulate-left");
        fs::create_dir(&left).unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["owner", "vmlinuz"] {
            fs::write(left.join(name), "").unwrap();
        }
        let mut command = run.command(next);
        command.env("TMPDIR", temporary.path()).output().unwrap();
        assert_eq!(names(temporary.path()), [""; 0], "{next:?}");
    }
}

/// Starts a recording of a command that says its process id in a file; both.
fn recording(mut recorder: Command, pid: &Path) -> (Child, u32) {
    recorder.stdout(Stdio::null()).stderr(Stdio::null());
    let recorder = recorder.spawn().unwrap();
    let command = wait_for("the command", || {
        let text = fs::read_to_string(pid).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    });
    (recorder, command)
}

#[test]
fn a_recorded_command_ends_with_its_recorder() {
    let run = Run::alone();
    let at = |name: &str| run.directory.path().join(name);
    for (number, script) in [
        "echo $$ >pid; exec sleep 300",
        "trap '' TERM; echo $$ >pid; while :; do sleep 0.2; done",
    ]
    .into_iter()
    .enumerate()
    {
        let mut command = run.command(&["record", "-o", &format!("{number}.parquet"), "--"]);
        command
            .args(["sh", "-c", script])
            .current_dir(run.directory.path());
        let (recorder, command) = recording(command, &at("pid"));
        assert!(runs(command));
        kill(recorder);
        wait_for("its end", || (!runs(command)).then_some(()));
        fs::remove_file(at("pid")).unwrap();
    }
    run.output(&["restore"]);
}

/// The kernel forgets what a process asked for at its parent's death when it gains rights.
#[test]
fn a_recorded_command_that_gains_rights_ends_with_its_recorder() {
    if !root() {
        return skip(&Skip::root("a set-user-ID program"));
    }
    let run = Run::alone();
    let folder = run.directory.path().join("nobody");
    run.as_nobody(&["doctor"]).output().unwrap();
    let program = folder.join("sleeps");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let script = "echo $$ >pid; exec ./sleeps 300";
    let command = run.as_nobody(&["record", "-o", "t.parquet", "--", "sh", "-c", script]);
    let (recorder, command) = recording(command, &folder.join("pid"));
    wait_for("its exec", || {
        let name = fs::read_to_string(format!("/proc/{command}/comm")).ok()?;
        (name.trim() == "sleeps").then_some(())
    });
    kill(recorder);
    wait_for("its end", || (!runs(command)).then_some(()));
}

#[test]
fn a_process_that_ran_already_goes_on() {
    let run = Run::alone();
    let mut asleep = Command::new("sleep").arg("300").spawn().unwrap();
    let pid = asleep.id();
    let mut command = run.command(&["record", "-o", "t.parquet", "-p", &pid.to_string()]);
    command.current_dir(run.directory.path());
    let recorder = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the recording", || {
        let names = names(run.directory.path());
        names
            .iter()
            .any(|name| name.ends_with(".spool"))
            .then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    kill(recorder);
    std::thread::sleep(Duration::from_millis(300));
    assert!(runs(pid));
    asleep.kill().unwrap();
    asleep.wait().unwrap();
    run.output(&["restore"]);
}

/// Begun at once: one records, the other says so. None is lost without a word.
#[test]
fn two_recordings_into_one_file_are_one_and_a_refusal() {
    let run = Run::alone();
    for _ in 0..3 {
        let record = |word: &str| {
            let mut command = run.command(&["record", "-o", "t.parquet", "--", "sh", "-c"]);
            command.arg(format!(
                "while [ ! -e over ]; do sleep 0.05; done; : {word}"
            ));
            command.current_dir(run.directory.path());
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            child.unwrap()
        };
        let _ = fs::remove_file(run.path("over"));
        let mut children = ["first", "second"].map(record);
        wait_for("the end of one", || {
            let mut both = children.iter_mut();
            both.any(|child| child.try_wait().unwrap().is_some())
                .then_some(())
        });
        run.write("over", "");
        let outputs: Vec<Output> = children
            .into_iter()
            .map(|child| child.wait_with_output().unwrap())
            .collect();
        let (ended, refused): (Vec<&Output>, Vec<&Output>) =
            outputs.iter().partition(|output| output.status.success());
        assert_eq!((ended.len(), refused.len()), (1, 1), "{outputs:?}");
        assert_eq!(refused[0].status.code(), Some(125));
        let told = text(&refused[0].stderr);
        assert!(told.contains("is writing it; wait for its end"), "{told}");
        assert_eq!(
            names(run.directory.path())
                .iter()
                .filter(|name| name.contains("t.parquet"))
                .count(),
            1
        );
    }
}

/// Without `/proc` nobody can tell a run that goes on from one that was killed.
#[test]
fn restore_without_proc_leaves_a_run_alone_and_says_so() {
    if !may("restore without /proc") {
        return;
    }
    let run = Run::alone();
    let words = "record --source tracefs -o t.parquet -- sleep 300";
    let mut command = run.command(&crate::common::words(words));
    command.current_dir(run.directory.path());
    let recorder = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = PathBuf::from(format!("/run/stopgap/{}.json", recorder.id()));
    wait_for("the journal", || journal.exists().then_some(()));
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        "mount -t tmpfs none /proc && exec \"$0\" restore",
        STOPGAP,
    ]);
    let output = command
        .env("XDG_STATE_HOME", run.directory.path())
        .output()
        .unwrap();
    let kept = journal.exists();
    kill(recorder);
    run.output(&["restore"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("without /proc"), "{output:?}");
    assert!(kept, "{output:?}");
}

/// The trace is made by a second process while the recording runs. It ends with its recorder.
#[test]
fn what_makes_the_trace_ends_with_its_recorder_and_the_spool_is_whole() {
    let run = Run::alone();
    let folder = run.directory.path();
    let script = "echo $$ >pid; i=0; while :; do i=$((i+1)); echo $i >round; sleep 0.01; done";
    let mut command = run.command(&["record", "--source", "bpf", "-o", "t.parquet", "--"]);
    command.args(["sh", "-c", script]);
    if !may("waits by BPF") {
        return;
    }
    let (recorder, _) = recording(command, &folder.join("pid"));
    let pid = recorder.id();
    let converter = wait_for("the converter", || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(children).ok()?;
        let mut children = children.split(' ').filter_map(|child| child.parse().ok());
        children.find(|child: &u32| {
            let line = fs::read_to_string(format!("/proc/{child}/cmdline"));
            line.is_ok_and(|line| line.contains("--convert"))
        })
    });
    wait_for("fifty sleeps", || {
        let round = fs::read_to_string(folder.join("round")).ok()?;
        let round: u64 = round.trim().parse().ok()?;
        (round > 50).then_some(())
    });
    // The recorder moves waits to its spool many times in a second.
    std::thread::sleep(Duration::from_millis(500));
    kill(recorder);
    wait_for("its end", || (!runs(converter)).then_some(()));
    let spool = format!(".t.parquet.{pid}.spool");
    let output = run.output(&["record", "--recover", &spool]);
    assert!(output.status.success(), "{output:?}");
    let waits = |line: &str| line.strip_prefix("waits")?.trim().parse::<u64>().ok();
    let told = text(&output.stdout);
    let waits = told.lines().find_map(waits);
    assert!(waits.is_some_and(|waits| waits > 50), "{told}");
    assert!(folder.join("t.parquet").is_file());
    let mut left = names(folder);
    left.retain(|name| !["pid", "round", "stopgap", "t.parquet"].contains(&name.as_str()));
    assert_eq!(left, [""; 0]);
}
