//! `stopgap compare --run` through the command: order, what is kept, failures, Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Run, text, valid};

#[test]
fn commands_are_run_in_turn_and_kept() {
    let run = Run::new();
    let folder = run.directory.path();
    let log = folder.join("log");
    let quick = format!("echo A >> {}", log.display());
    let slow = format!("echo B >> {}; sleep 0.1", log.display());
    let words = [
        "compare", "--run", &quick, "--run", &slow, "-n", "7", "--json", "--seed", "3",
    ];
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = text(&output.stderr);
    assert!(
        told.contains("26 runs, about ") && told.contains("seed 3"),
        "{told}"
    );
    let record = valid("stopgap.compare-1.json", &text(&output.stdout));
    assert_eq!(record["verdict"]["word"], "regression");
    assert_eq!(record["endpoints"][0]["name"], "elapsed time");
    assert_eq!(record["endpoints"][0]["unit"], "s");
    let after = record["endpoints"][0]["after"].as_f64().unwrap();
    assert!((0.1..60.0).contains(&after), "{after}");

    // One run of each first, then A against A, then blocks of four.
    let log = std::fs::read_to_string(&log).unwrap().replace('\n', "");
    assert_eq!(log[..14], format!("AB{}", "A".repeat(12)));
    let runs = &log[14..];
    assert_eq!((runs.len(), runs.matches('A').count()), (14, 7));
    for four in runs.as_bytes().chunks(4) {
        assert!(
            [&b"ABBA"[..], b"BAAB", b"AB", b"BA"].contains(&four),
            "{log}"
        );
    }
    let kept = run.records();
    let kept = kept
        .iter()
        .find(|path| path.to_str().unwrap().contains("gather-"))
        .unwrap();
    let gathered = valid(
        "stopgap.gather-1.json",
        &std::fs::read_to_string(kept).unwrap(),
    );
    assert_eq!(gathered["floor"].as_array().unwrap().len(), 12);
    for (made, letter) in gathered["runs"]
        .as_array()
        .unwrap()
        .iter()
        .zip(runs.chars())
    {
        assert_eq!(
            made["label"],
            if letter == 'A' { "before" } else { "after" }
        );
        assert!(made["minor_faults"].as_u64().unwrap() > 0);
        assert!(made["most_resident"].as_u64().unwrap() > 0);
    }
    // Read again, the runs give the same figures.
    let again = run.output(&["compare", kept.to_str().unwrap(), "--json"]);
    let mut again = valid("stopgap.compare-1.json", &text(&again.stdout));
    again["command"] = record["command"].clone();
    assert_eq!(again, record);
    let screen = text(&run.output(&["compare", kept.to_str().unwrap()]).stdout);
    assert!(
        screen.contains("noise floor, the first command against itself, 6 runs each: "),
        "{screen}"
    );
    assert!(screen.contains("voluntary switches"), "{screen}");
    let words = [
        "compare",
        kept.to_str().unwrap(),
        "--endpoint",
        "minor faults",
        "--json",
    ];
    let other = valid("stopgap.compare-1.json", &text(&run.output(&words).stdout));
    assert_eq!(other["endpoints"][0]["name"], "minor faults");
}

#[test]
fn a_command_that_fails_is_named_with_its_last_words() {
    let run = Run::new();
    let fails = "for i in 1 2 3 4 5 6 7; do echo line $i; done; echo no such thing >&2; exit 9";
    let output = run.output(&["compare", "--run", "true", "--run", fails]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("failed with exit status 9; it printed: line 4 | line 5 | line 6 | line 7 | no such thing\n"), "{error}");
    let output = run.output(&[
        "compare",
        "--bisect",
        "--run",
        "kill -SEGV $$",
        "--run",
        "true",
    ]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(
        error.contains("was killed by signal 11; it printed nothing"),
        "{error}"
    );
    // It fails later: what was measured is kept.
    let count = run.directory.path().join("count");
    let later = format!("echo >> {0}; test $(wc -l < {0}) -lt 4", count.display());
    let output = run.output(&["compare", "--run", "true", "--run", &later, "-n", "6"]);
    let error = text(&output.stderr);
    assert!(error.contains("failed with exit status 1"), "{error}");
    let kept = error
        .rsplit_once("the runs before it are in ")
        .unwrap()
        .1
        .trim_end();
    let words = ["compare", kept, "--fail-on", "regression"];
    let again = run.output(&words);
    assert_eq!(again.status.code(), Some(4));
    assert!(
        text(&again.stdout).contains("inconclusive: interrupted after "),
        "{again:?}"
    );
}

#[test]
fn a_command_that_prints_without_end_fills_nothing() {
    let run = Run::new();
    let loud = "timeout 1 cat /dev/zero; true";
    let output = run.output(&["compare", "--run", loud, "--run", "echo last; exit 1"]);
    assert!(
        text(&output.stderr).contains("it printed: last\n"),
        "{output:?}"
    );
}

/// Ends with what was measured, and with everything that was started.
#[test]
fn ctrl_c_reports_what_was_measured() {
    let run = Run::new();
    let pid = run.directory.path().join("pid");
    let hangs = format!(
        "test -e {0} && {{ sleep 300 & echo $! > {0}.new; mv {0}.new {0}.pid; wait; }}; true",
        pid.display()
    );
    let start = |first: &str, second: &str| {
        run.command(&[
            "compare",
            "--run",
            first,
            "--run",
            second,
            "-n",
            "2000",
            "--fail-on",
            "regression",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
    };
    let mut child = start("sleep 0.005", &hangs);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("4020 runs"), "{line}");
    std::thread::sleep(Duration::from_millis(700));
    std::fs::write(&pid, "").unwrap();
    let started = Instant::now();
    let sleeper = loop {
        match std::fs::read_to_string(pid.with_extension("pid")) {
            Ok(text) => break text.trim().to_owned(),
            Err(_) => assert!(started.elapsed() < Duration::from_secs(60), "it never ran"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let mut screen = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut screen)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{screen}");
    assert!(
        screen.contains("inconclusive: interrupted after "),
        "{screen}"
    );
    let gone = Instant::now();
    while Path::new(&format!("/proc/{sleeper}/stat")).exists() {
        let state = std::fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
        if state.contains(") Z ") {
            break; // nobody reaps here
        }
        assert!(
            gone.elapsed() < Duration::from_secs(20),
            "left behind: {state}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        run.records()
            .iter()
            .any(|path| path.to_str().unwrap().contains("gather-"))
    );
}

#[test]
fn nobody_may_gather() {
    let run = Run::new();
    if !crate::common::root() {
        stopgap_kernel::fake::skipped("who is not root tests it by every other test here");
        return;
    }
    let output = run
        .as_nobody(&["compare", "--run", "true", "--run", "true", "-n", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout).starts_with("inconclusive: elapsed time: n too small"),
        "{output:?}"
    );
}
