//! `stopgap compare --run` through the command: order, what is kept, failures, Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Done, Run, has, root, signal, valid, wait_for};
use stopgap_testing::{Skip, skip};

const SCHEMA: &str = "stopgap.compare-1.json";

/// `compare --run FIRST --run SECOND` and these flags.
fn compare(run: &Run, first: &str, second: &str, flags: &str) -> Done {
    let words = ["compare", "--run", first, "--run", second];
    let output = run.command(&words).args(flags.split_whitespace()).output();
    Done::new(&format!("{words:?} {flags}"), &output.unwrap())
}

/// The file of the runs.
fn gathered(run: &Run) -> PathBuf {
    let mut all = run.records().into_iter();
    let found = all.find(|path| path.to_str().unwrap().contains("gather-"));
    found.expect("the runs are kept")
}

#[test]
fn commands_are_run_in_turn_and_kept() {
    let run = Run::new();
    let flags = "-n 7 --json --seed 3";
    let done = compare(&run, "echo A >> log", "echo B >> log; sleep 0.1", flags);
    has(&done.err, &["26 runs, about ", "seed 3"]);
    let record = done.document(SCHEMA);
    assert_eq!(record["verdict"]["word"], "regression");
    assert_eq!(record["endpoints"][0]["name"], "elapsed time");
    assert_eq!(record["endpoints"][0]["unit"], "s");
    let after = record["endpoints"][0]["after"].as_f64().unwrap();
    assert!(after >= 0.1, "{after}");

    // One run of each first, then A against A, then blocks of four.
    let log = run.read("log").replace('\n', "");
    assert_eq!(log[..14], format!("AB{}", "A".repeat(12)));
    let runs = &log[14..];
    assert_eq!((runs.len(), runs.matches('A').count()), (14, 7));
    for four in runs.as_bytes().chunks(4) {
        assert!(
            [&b"ABBA"[..], b"BAAB", b"AB", b"BA"].contains(&four),
            "{log}"
        );
    }
    let kept = gathered(&run);
    let file = std::fs::read_to_string(&kept).unwrap();
    let file = valid("stopgap.gather-1.json", &file);
    assert_eq!(file["floor"].as_array().unwrap().len(), 12);
    for (made, letter) in file["runs"].as_array().unwrap().iter().zip(runs.chars()) {
        let label = if letter == 'A' { "before" } else { "after" };
        assert_eq!(made["label"], label);
        assert!(made["minor_faults"].as_u64().unwrap() > 0);
        assert!(made["most_resident"].as_u64().unwrap() > 0);
    }
    // Read again, the runs give the same figures.
    let kept = kept.display();
    let mut again = run
        .stopgap(format!("compare {kept} --json"))
        .document(SCHEMA);
    again["command"] = record["command"].clone();
    assert_eq!(again, record);
    let screen = run.stopgap(format!("compare {kept} --verbose")).out;
    let floor = "\n6 runs a side";
    has(&screen, &[floor, "voluntary switches"]);
    let kept = kept.to_string();
    let words = ["compare", &kept, "--endpoint", "minor faults", "--json"];
    let other = Done::new("compare --endpoint", &run.output(&words)).document(SCHEMA);
    assert_eq!(other["endpoints"][0]["name"], "minor faults");
}

#[test]
fn a_command_that_fails_is_named_with_its_last_words() {
    let run = Run::new();
    let fails = "for i in 1 2 3 4 5 6 7; do echo line $i; done; echo no such thing >&2; exit 9";
    let words = "failed with exit status 9; it printed: line 4 | line 5 | line 6 | line 7 | no such thing\n";
    has(&compare(&run, "true", fails, "").ends(1).err, &[words]);
    let done = compare(&run, "kill -SEGV $$", "true", "--bisect").ends(125);
    has(&done.err, &["was killed by signal 11; it printed nothing"]);
    // A command that prints without end fills nothing.
    let loud = "timeout 1 cat /dev/zero; true";
    let done = compare(&run, loud, "echo last; exit 1", "");
    has(&done.err, &["it printed: last\n"]);
    // It fails later: what was measured is kept.
    let later = "echo >> count; test $(wc -l < count) -lt 4";
    let done = compare(&run, "true", later, "-n 6");
    has(&done.err, &["failed with exit status 1"]);
    let kept = done
        .err
        .rsplit_once("the runs before it are in ")
        .unwrap()
        .1;
    let line = format!("compare {} --fail-on regression", kept.trim_end());
    has(
        &run.stopgap(line).ends(4).out,
        &["CANNOT TELL\ninterrupted after "],
    );
}

/// Ends with what was measured, and with everything that was started.
#[test]
fn ctrl_c_reports_what_was_measured() {
    let run = Run::new();
    let hangs = "test -e pid && { sleep 300 & echo $! > pid.new; mv pid.new pid.pid; wait; }; true";
    let words = [
        "compare",
        "--run",
        "sleep 0.005",
        "--run",
        hangs,
        "-n",
        "2000",
    ];
    let mut command = run.command(&[&words[..], &["--fail-on", "regression"]].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let stderr = child.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    has(&line, &["4020 runs"]);
    std::thread::sleep(Duration::from_millis(700));
    run.write("pid", "");
    wait_for("the command that hangs", || {
        run.path("pid.pid").exists().then_some(())
    });
    let sleeper = run.read("pid.pid").trim().to_owned();
    signal("-INT", child.id());
    let mut screen = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut screen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{screen}");
    has(&screen, &["CANNOT TELL\ninterrupted after "]);
    let stat = format!("/proc/{sleeper}/stat");
    wait_for("the end of what was started", || {
        // Nobody reaps here.
        let state = std::fs::read_to_string(&stat).unwrap_or_default();
        (!Path::new(&stat).exists() || state.contains(") Z ")).then_some(())
    });
    gathered(&run);
}

#[test]
fn nobody_may_gather() {
    if !root() {
        return skip(&Skip::root(
            "becoming nobody; this run is unprivileged itself",
        ));
    }
    let run = Run::new();
    let words = ["compare", "--run", "true", "--run", "true", "-n", "2"];
    let output = run.as_nobody(&words).output().unwrap();
    let done = Done::new("compare as nobody", &output).ok();
    assert!(
        done.out
            .starts_with("CANNOT TELL\nelapsed time: n too small"),
        "{done:#?}"
    );
}
