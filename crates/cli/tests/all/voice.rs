//! How much a command prints, in colour or not, and how it ends where its output goes nowhere.

use std::fs::File;
use std::process::Command;

use stopgap_testing::{Skip, skip};

use crate::common::{Done, FILES, Run, STOPGAP, has, may, root, trace_of_threads_named, words};

/// Runs `stopgap LINE` on a terminal of so many columns.
fn on_a_terminal(
    run: &Run,
    columns: u16,
    variables: &[(&str, &str)],
    line: &str,
) -> Option<String> {
    let shell = format!("stty cols {columns}; exec '{STOPGAP}' {line}");
    let mut command = Command::new("script");
    command
        .args(["-qec", &shell, "/dev/null"])
        .current_dir(run.directory.path())
        .env("XDG_STATE_HOME", run.directory.path())
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null());
    match command.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            skip(&Skip::program("script"));
            None
        }
    }
}

/// `-q` leaves errors, and what was asked for by a flag.
#[test]
fn quiet_prints_errors_and_documents_only() {
    let run = Run::new();
    let trace = format!("{FILES}/trace.jsonl");
    run.write("a", "1\n2\n3\n4\n5\n");
    run.write("b", "2\n3\n4\n5\n6\n");
    for line in [
        "check --passive -q",
        "-q doctor",
        "compare a b --quiet",
        "restore -q",
        "snapshot -q -o snapshot.json",
    ] {
        assert_eq!(run.stopgap(line).quiet(), "", "{line}");
    }
    let doctor = run.stopgap("doctor -q --json").quiet();
    has(&doctor, &["stopgap.doctor/1"]);
    let ktap = run.stopgap("compare a b -q --ktap").quiet();
    has(&ktap, &["KTAP"]);
    let wrong = run.stopgap(format!("explain -q {trace}.nowhere")).ends(1);
    has(&wrong.err, &["No such file"]);
    run.refuses("check -q -v", &["--verbose", "--quiet"]);
}

/// Whether a screen has colours is said by the flag, else by the terminal and by `NO_COLOR`.
#[test]
fn colours_are_for_terminals_that_want_them() {
    let run = Run::new();
    let coloured = |text: &str| text.contains("\u{1b}[");
    for (flag, variables, on) in [
        ("", &[][..], true),
        ("--color never", &[], false),
        ("", &[("NO_COLOR", "1")], false),
        ("", &[("TERM", "dumb")], false),
        ("", &[("TERM", "dumb"), ("CI", "true")], false),
        ("--color always", &[("NO_COLOR", "1")], true),
    ] {
        let line = format!("check --passive {flag}");
        let Some(shown) = on_a_terminal(&run, 100, variables, &line) else {
            return;
        };
        assert_eq!(coloured(&shown), on, "{line} {variables:?}: {shown}");
        let help = on_a_terminal(&run, 100, variables, &format!("{flag} --help"));
        assert_eq!(coloured(&help.unwrap()), on, "help {flag} {variables:?}");
    }
    assert!(!coloured(&run.stopgap("check --passive").quiet()));
    let forced = run.stopgap("check --passive --color=always").quiet();
    assert!(coloured(&forced), "{forced}");
}

/// A full disk is an error of each command, help too.
#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    let run = Run::new();
    for line in ["doctor", "--help", "probe placement --help", "--version"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = run.command(&words(line)).stdout(full).output();
        let done = Done::new(line, &output.unwrap()).ends(1);
        has(&done.err, &["cannot write standard output: No space left"]);
    }
}

/// The exit status of `record -- CMD` is the command's, also where nobody reads the summary.
#[test]
fn a_recorded_command_keeps_its_status() {
    if !may("record") {
        return;
    }
    let run = Run::new();
    for (script, status) in [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let line = ["record", "-q", "-o", "t.parquet", "--", "sh", "-c", script];
        let done = Done::new(script, &run.output(&line)).ends(status);
        assert_eq!((&*done.out, &*done.err), ("", ""), "{script}");
    }
    let done = run.unread("record -o t.parquet -- false");
    assert_eq!((done.status, &*done.err), (Some(1), ""));
    run.stopgap("record --onyl -- true").ends(125);
    let done = run.stopgap("record -o t.json -- true").ends(125);
    has(
        &done.err,
        &["record writes Parquet", "-o x.json makes that"],
    );
    let done = Done::new("record", &run.output(&["record", "--", "sleep 1"])).ends(127);
    has(&done.err, &["the words of a command stand apart"]);
    // What sudo makes is root's, and the next command must read it.
    if !root() {
        return;
    }
    let mut command = run.command(&["record", "-o", "t.parquet", "--", "true"]);
    let done = Done::new("sudo", &command.env("SUDO_UID", "1000").output().unwrap());
    has(&done.out, &["next      sudo stopgap explain t.parquet"]);
    run.stopgap("record -o /nowhere/t -- true").ends(125);
    run.stopgap("record -o t.parquet -- /dev/null").ends(126);
    run.stopgap("record -o t.parquet -- ./nowhere").ends(127);
}

/// With `--no-record` no file stays, and no screen names one.
#[test]
fn without_a_record_nothing_is_written() {
    let run = Run::new();
    run.write("a", "1\n2\n3\n4\n5\n");
    run.write("b", "2\n3\n4\n5\n6\n");
    for line in [
        "check --passive",
        "probe roundtrip --client poll --server poll --k 1 --work 0 --round-trips 50 --runs 1 -d 1s",
        "probe chunks --size 1M --strategy base --buffers 1 --runs 3 -d 1s",
        "replay placement frag --policy linux-6.12 --n 100 --ops 100",
        "replay roundtrip --client poll --server poll --k 1 --work 0 --policy linux-6.12",
        "advise chunks --device 4K,64K --access linear --buffers 1 --policy old",
        "compare a b",
        "compare --run true --run true -n 10",
        "run --fix batch-client --measure -n 2 -- true",
    ] {
        let line = match line.split_once(" -- ") {
            None => format!("{line} --no-record"),
            Some((flags, command)) => format!("{flags} --no-record -- {command}"),
        };
        let before = every_file(&run);
        let done = run.stopgap(&line).ok();
        assert_eq!(every_file(&run), before, "{line}");
        let directory = run.directory.path().display().to_string();
        assert!(!done.out.contains(&directory), "{line}: {}", done.out);
        assert!(!done.out.contains("\nrecord "), "{line}: {}", done.out);
        run.refuses(
            line.replace("--no-record", "--no-record -o x"),
            &["--no-record"],
        );
    }
}

/// Files below the run's directory.
fn every_file(run: &Run) -> Vec<std::path::PathBuf> {
    fn below(directory: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => below(&path, files),
                false => files.push(path),
            }
        }
    }
    let mut files = Vec::new();
    below(run.directory.path(), &mut files);
    files.sort();
    files
}

/// Commands that print a screen, for files that [`hostile`] writes.
const SCREENS: [&str; 15] = [
    "check --passive",
    "check --passive -v",
    "doctor",
    "explain hostile.jsonl",
    "explain -v hostile.jsonl",
    "compare a b",
    "ministat a b",
    "replay placement frag --policy linux-6.12 --n 100 --ops 100",
    "replay chunks --policy old --buffers 2",
    "replay roundtrip --client poll --server poll --k 1 --work 0 --policy linux-6.12",
    "replay reclaim --policy held --limit 64M --time 50ms --runs 1",
    "advise chunks --device 4K,64K --access linear --buffers 2 --policy old",
    "probe roundtrip --client poll --server poll --k 1 --work 0 --round-trips 20 --runs 3 -d 1s",
    "probe placement --help",
    "--help",
];

/// Writes a trace whose threads and files have names with escape sequences, line breaks and HTML, and columns of numbers.
fn hostile(run: &Run) {
    let name = "\\u001b]0;x\\u0007\\n<b>\\u001b[2J";
    run.write("hostile.jsonl", trace_of_threads_named(name));
    run.write("a", "1\n2\n3\n4\n5\n");
    run.write("b", "2\n3\n4\n5\n6\n");
}

/// A narrow terminal, one that only prints lines, and no locale: each screen comes whole, and sends the terminal nothing but
/// text.
#[test]
fn screens_are_harmless_on_every_terminal() {
    let run = Run::new();
    hostile(&run);
    for (columns, variables) in [
        (40, &[("TERM", "dumb")][..]),
        (80, &[("LC_ALL", "C"), ("LANG", "")]),
        (1, &[]),
    ] {
        for line in SCREENS {
            let Some(shown) = on_a_terminal(&run, columns, variables, line) else {
                return;
            };
            assert!(shown.len() > 100, "{line}: {shown}");
            for bad in ["\u{1b}]", "\u{7}", "\u{1b}[2J", "panicked"] {
                assert!(!shown.contains(bad), "{columns} {line}: {bad:?}: {shown:?}");
            }
            let dumb = variables.contains(&("TERM", "dumb"));
            assert!(!dumb || !shown.contains('\u{1b}'), "{line}: {shown:?}");
        }
    }
}

/// Screens in a pipe: no control sequence of a name, nor of ours.
#[test]
fn screens_in_a_pipe_have_no_control_characters() {
    let run = Run::new();
    hostile(&run);
    for line in SCREENS {
        let done = run.stopgap(line).ok();
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!done.out.contains(control), "{line}: {:?}", done.out);
        assert!(!done.err.contains(control), "{line}: {:?}", done.err);
    }
}
