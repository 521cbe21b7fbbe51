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

/// Words that compare two equal sleeps by their elapsed time.
const SLEEPS: [&str; 7] = [
    "compare",
    "--run",
    "sleep 0.01",
    "--run",
    "sleep 0.01",
    "--endpoint",
    "elapsed time",
];

/// The file of the runs.
fn gathered(run: &Run) -> PathBuf {
    let mut all = run.records().into_iter();
    let found = all.find(|path| path.to_str().unwrap().contains("gather-"));
    found.expect("the runs are kept")
}

/// The letters that the runs appended to a file.
fn log(run: &Run) -> String {
    run.read("log").replace('\n', "")
}

#[test]
fn commands_are_run_in_turn_and_kept() {
    let run = Run::new();
    let words = [
        "compare",
        "--run",
        "echo A >> log",
        "--run",
        "echo B >> log; sleep 0.1",
    ];
    let mut command = run.command(&words);
    command.args(["--endpoint", "elapsed time", "--json", "--seed", "3"]);
    let done = Done::new("compare --endpoint", &command.output().unwrap());
    has(
        &done.err,
        &[
            "runs in turn until it is decided, for 5 min at most",
            "seed 3",
        ],
    );
    let record = done.document(SCHEMA);
    assert_eq!(record["verdict"]["word"], "regression");
    assert_eq!(record["endpoints"][0]["name"], "elapsed time");
    assert_eq!(record["endpoints"][0]["unit"], "s");
    let after = record["endpoints"][0]["after"].as_f64().unwrap();
    assert!(after >= 0.1, "{after}");
    // Decided as soon as anything can be: it takes 100 times as long.
    assert_eq!(record["looked"]["units"], record["looked"]["least"]);

    // One run of each first, then pairs.
    let log = log(&run);
    assert_eq!(&log[..2], "AB");
    let runs = &log[2..];
    for two in runs.as_bytes().chunks(2) {
        assert!([&b"AB"[..], b"BA"].contains(&two), "{log}");
    }
    let kept = gathered(&run);
    let file = std::fs::read_to_string(&kept).unwrap();
    let file = valid("stopgap.gather-1.json", &file);
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
    has(&screen, &[" pairs, in turn\n", "voluntary switches"]);
    let kept = kept.to_string();
    let words = ["compare", &kept, "--endpoint", "minor faults", "--json"];
    let other = Done::new("compare --endpoint", &run.output(&words)).document(SCHEMA);
    assert_eq!(other["endpoints"][0]["name"], "minor faults");
}

/// CPU time is compared side by side; what a second run beside it would change is not.
#[test]
fn commands_run_side_by_side_where_that_is_fair() {
    let run = Run::new();
    let spin = |n: u32| format!("i=0; while [ $i -lt {n} ]; do i=$((i+1)); done");
    let done = compare(&run, &spin(20_000), &spin(40_000), "--json");
    has(&done.err, &["runs side by side on CPU "]);
    let record = done.document(SCHEMA);
    assert_eq!(record["verdict"]["word"], "regression", "{record}");
    assert_eq!(record["endpoints"][0]["name"], "CPU time");
    assert!(record["looked"]["cpu"].is_u64(), "{record}");
    let screen = compare(&run, &spin(20_000), &spin(40_000), "").out;
    has(
        &screen,
        &["WORSE\nCPU time ", " pairs, side by side on CPU "],
    );
    // Only one of it at a time: a second one fails.
    let lone = "exec 9> only; flock -n 9 || exit 7; sleep 0.2";
    let done = compare(&run, lone, lone, "-n 10 --max-time 2m").ok();
    has(
        &done.err,
        &[
            "side by side 'exec 9> only",
            "runs are made in turn",
            "\nstopgap: runs in turn until",
        ],
    );
    for (flags, says) in [
        ("--side-by-side", "says nothing: leave --side-by-side out"),
        ("--side-by-side --in-turn", "cannot be used with"),
        ("--max-time 1ms", "nothing can be decided in 1 s: it takes "),
        ("-n 9", "-n 9 can decide nothing: it takes 10 runs a side"),
    ] {
        let output = run
            .command(&SLEEPS)
            .args(flags.split(' '))
            .output()
            .unwrap();
        has(&Done::new(flags, &output).err, &[says]);
    }
    // Elapsed times of runs that share a CPU say nothing.
    let screen = compare(&run, "true", "true", "-n 10 --verbose").out;
    assert!(
        screen.contains("minor faults") && !screen.contains("elapsed time"),
        "{screen}"
    );
    let unknown = compare(&run, "true", "true", "--endpoint naps").ends(1);
    has(
        &unknown.err,
        &["a command has no 'naps'; there is CPU time, elapsed time"],
    );
}

/// Nobody waits an hour to hear that five seconds were too few.
#[test]
fn a_command_that_runs_too_long_is_stopped() {
    let run = Run::new();
    let began = std::time::Instant::now();
    let done = compare(&run, "sleep 3600", "sleep 3600", "--max-time 5s").ends(1);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    let says = "nothing can be decided in 5 s: it takes longer (10 times both commands, and 'sleep 3600' runs for more than 1 s)";
    has(&done.err, &[says, "give a longer --max-time"]);
}

/// What a project chose stands in one file; a flag goes first. A gate that cannot tell does what was chosen.
#[test]
fn settings_of_the_project() {
    let run = Run::new();
    run.write(
        "stopgap.toml",
        "[compare]\nendpoint = [\"minor faults\"]\nmargin = \"0%\"\ncannot-tell = \"pass\"\n",
    );
    let open = |flags: &str| {
        compare(
            &run,
            "true",
            "true",
            &format!("-n 12 --fail-on regression {flags}"),
        )
    };
    let said = open("--endpoint CPU_time").ends(1);
    has(&said.err, &["a command has no 'CPU_time'"]);
    let passed = open("--json");
    let record = passed.document(SCHEMA);
    assert_eq!(
        (&record["margin"], &record["endpoints"][0]["name"]),
        (&0.0.into(), &"minor faults".into())
    );
    let words = [&SLEEPS[..], &["-n", "20", "--fail-on", "regression"]].concat();
    for (flags, status) in [(&[][..], 0), (&["--cannot-tell", "fail"], 4)] {
        let output = run.command(&words).args(flags).output().unwrap();
        let done = Done::new("compare with settings", &output).ends(status);
        has(&done.out, &["CANNOT TELL WHETHER IT DIFFERS\n"]);
    }
    run.write("stopgap.toml", "[compare]\nmargins = \"1%\"\n");
    run.refuses(
        "compare a b",
        &["stopgap.toml: unknown field `margins`, expected one of `endpoint`, `margin`"],
    );
    run.write("stopgap.toml", "[compare]\nmargin = \"much\"\n");
    run.refuses("compare a b", &["stopgap.toml: 'much' is no margin"]);
}

/// A second run would meet them, and after thousands of runs the machine would be full of them.
#[test]
fn processes_that_a_command_leaves_are_ended_and_said() {
    let run = Run::new();
    let leaves = "sleep 77 & echo $! >> left";
    let done = compare(&run, leaves, leaves, "-n 10").ok();
    has(
        &done.err,
        &[
            "warning: 'sleep 77 &",
            "leaves processes behind: their time is not counted",
        ],
    );
    let left = run.read("left");
    assert!(left.lines().count() >= 20, "{left}");
    for pid in left.lines() {
        wait_for("the end of what was left", || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (!state.contains("sleep") || state.contains(") Z ")).then_some(())
        });
    }
    assert!(
        !compare(&run, "true", "true", "-n 10")
            .err
            .contains("leaves")
    );
}

#[test]
fn commands_that_print_different_text_are_refused_where_that_is_asked() {
    let run = Run::new();
    let done = compare(
        &run,
        "echo same; echo a",
        "echo same; echo b",
        "--same-output",
    )
    .ends(1);
    has(
        &done.err,
        &["the commands print different text: 'a' and 'b'"],
    );
    compare(
        &run,
        "echo same",
        "printf 'same\\n'",
        "--same-output -n 9 --in-turn",
    )
    .ends(1);
    compare(
        &run,
        "echo same",
        "printf 'same\\n'",
        "--same-output -n 10 --in-turn",
    )
    .ok();
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
    let done = compare(&run, "true", later, "--in-turn");
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
        hangs,
        "--run",
        hangs,
        "--in-turn",
        "--margin",
        "0",
    ];
    let mut command = run.command(&[&words[..], &["--fail-on", "regression"]].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let stderr = child.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut line).unwrap();
    has(&line, &["runs in turn until it is decided"]);
    std::thread::sleep(Duration::from_millis(200));
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
    let words = [
        "compare", "--run", "true", "--run", "true", "-n", "10", "--margin", "0",
    ];
    let output = run.as_nobody(&words).output().unwrap();
    let done = Done::new("compare as nobody", &output).ok();
    assert!(
        done.out
            .starts_with("CANNOT TELL WHETHER IT DIFFERS\nCPU time "),
        "{done:#?}"
    );
}

/// A loop of `dd` makes two system calls a block.
fn blocks(count: u32) -> String {
    format!("dd if=/dev/zero of=/dev/null bs=1 count={count} 2>/dev/null")
}

#[test]
fn one_more_system_call_in_a_loop_is_counted_exactly() {
    if !root() {
        return skip(&Skip::root("counting system calls"));
    }
    let run = Run::new();
    let asked = |second: &str| {
        let words = ["compare", "--run", &blocks(1_000), "--run", second];
        let mut command = run.command(&words);
        command.args([
            "--endpoint",
            "system calls",
            "--fail-on",
            "regression",
            "--json",
        ]);
        Done::new("compare system calls", &command.output().unwrap())
    };
    let worse = valid(SCHEMA, &asked(&blocks(1_500)).ends(2).out);
    let row = &worse["endpoints"][0];
    let [before, after] = ["before", "after"].map(|side| row[side].as_f64().unwrap());
    assert!((after - before - 1_000.0).abs() < 0.5, "{row}");
    assert!(before > 2_000.0, "{row}");
    let same = valid(SCHEMA, &asked(&blocks(1_000)).ok().out);
    assert_eq!(same["verdict"]["word"], "same");
    let output = run
        .as_nobody(&[
            "compare",
            "--run",
            "true",
            "--run",
            "true",
            "--endpoint",
            "system calls",
        ])
        .output()
        .unwrap();
    let done = Done::new("compare system calls as nobody", &output).ends(3);
    has(
        &done.err,
        &["counting system calls: it needs root and tracefs"],
    );
}

#[test]
fn valgrind_counts_instructions_where_they_are_asked_for() {
    if std::process::Command::new("valgrind")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip(&Skip::program("valgrind"));
    }
    let run = Run::new();
    let sum = |to: u32| format!("i=0; while [ $i -lt {to} ]; do i=$((i+1)); done");
    let words = ["compare", "--run", &sum(2_000), "--run", &sum(3_000)];
    let mut command = run.command(&words);
    command.args(["--endpoint", "emulated instructions"]);
    let done = Done::new("compare emulated instructions", &command.output().unwrap()).ok();
    assert!(
        done.out.starts_with("WORSE\nemulated instructions "),
        "{done:#?}"
    );
    // Times under valgrind are valgrind's.
    assert!(!done.out.contains("CPU time"), "{done:#?}");
    let mut command = run.command(&words);
    command.args(["--endpoint", "emulated instructions,CPU time"]);
    let done = Done::new("compare both", &command.output().unwrap()).ends(1);
    has(&done.err, &["must be the only --endpoint"]);
    // Without valgrind.
    let mut command = run.command(&words);
    command
        .args(["--endpoint", "emulated instructions"])
        .env("PATH", "/nowhere");
    let done = Done::new("compare without valgrind", &command.output().unwrap()).ends(1);
    has(&done.err, &["it is not installed"]);
}
