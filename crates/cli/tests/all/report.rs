//! `stopgap report`: records of several kinds into one page, and what is none of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{FILES, Run, has, names, records};

#[test]
fn check_writes_a_page_beside_its_record_and_report_makes_the_same() {
    let run = Run::new();
    let said = run.stopgap("check --passive").ok().out;
    let record = run.records().pop().expect("a record");
    let page = record.with_extension("html");
    let place = fs::canonicalize(&page).unwrap();
    has(&said, &[&format!("Report: {}", place.display())]);
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("<!DOCTYPE html>"));
    has(&written, &["What the machine showed by itself"]);
    // It tells of this machine: nobody else may read it.
    let mode = fs::metadata(&page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let line = format!("report {} -o again.html", record.display());
    run.stopgap(line).ok();
    assert_eq!(run.read("again.html"), written);

    let line = format!("report {} -o again.PDF", record.display());
    let said = run.stopgap(line).ends(1).err;
    has(&said, &["again.PDF: report writes an HTML page"]);
    assert!(!run.path("again.PDF").exists());
}

/// A comparison of commands that were really run, and of files: doubts follow the answer at once, and times of milliseconds are no 0.00 s.
#[test]
fn a_comparison_has_a_page() {
    let run = Run::new();
    let page = |folder: &str| {
        let all = records(&run.path(folder)).into_iter();
        let mut record = all.map(|path| path.display().to_string());
        let record = record.find(|path| path.contains("/compare-")).unwrap();
        run.stopgap(format!("report {record} -o page.html")).ok();
        run.read("page.html")
    };
    let words = [
        "compare",
        "--run",
        "sleep 0.002",
        "--run",
        "sleep 0.02",
        "--endpoint",
        "elapsed time,CPU time",
        "-o",
        "runs",
    ];
    assert!(run.output(&words).status.success());
    let gathered = page("runs");
    let parts = [
        "elapsed time",
        " ms</td>",
        "sleep 0.02 against sleep 0.002",
        "elapsed time, run by run",
        "CPU time",
    ];
    has(&gathered, &parts);
    for zero in ["0.00 s", "-0.00"] {
        assert!(!gathered.contains(zero), "{gathered}");
    }

    run.write("a", "1e308\n".repeat(6));
    run.write("b", "1.7e308\n".repeat(6));
    let screen = run.stopgap("compare a b -o numbers").out;
    assert!(screen.starts_with("warning: "), "{screen}");
    has(&screen, &["1.00e308"]);
    assert!(screen.lines().all(|line| line.len() < 150), "{screen}");
    let numbers = page("numbers");
    let parts = ["WORSE", "are equal to each other", "<section"];
    let parts = parts.map(|part| numbers.find(part).unwrap());
    assert!(parts.is_sorted(), "{numbers}");
}

#[test]
fn a_record_that_is_named_twice_is_shown_once() {
    let run = Run::new();
    let record = format!("{FILES}/check.json");
    let once = run.stopgap(format!("report --terminal {record}")).quiet();
    let twice = run
        .stopgap(format!("report --terminal {record} {record}"))
        .ok();
    assert_eq!(twice.out, once);
    has(&twice.err, &["check.json: named twice; it is shown once"]);
}

#[test]
fn what_is_no_record_is_refused_with_file_and_reason() {
    let run = Run::new();
    for (content, why) in [
        ("[1, 2]", "not a record of stopgap's"),
        ("{\"a\": 1}", "it names no schema"),
        ("12.5\n", "it names no schema"),
        ("\n", "it is empty"),
        (
            "{\"schema\":\"stopgap.trace/2\"}\n",
            "it is a trace; a report is made of records: stopgap explain TRACE --json",
        ),
        (
            "{\"schema\": \"stopgap.advise/1\"}",
            "its schema is 'stopgap.advise/1'; a report is made of",
        ),
        (
            "{\"schema\": \"stopgap.run/1\"}",
            "not a run record: missing field",
        ),
        (
            "{\"schema\": \"stopgap.replay/1\"}",
            "not a record of 'stopgap.replay/1': missing field",
        ),
        (
            "{\"schema\": \"stopgap.explain/2\", \"version\": 3}",
            "not a record of 'stopgap.explain/2'",
        ),
        (
            "{\"schema\": \"stopgap.compare/1\"}",
            "not a record of 'stopgap.compare/1'",
        ),
    ] {
        run.write("bad.json", content);
        run.refuses("report bad.json", &["bad.json", why]);
    }
    run.write("bad.json", b"{\"schema\": \"\xff\"}");
    run.refuses("report bad.json", &["it is no text (byte 12)"]);
    assert_eq!(names(run.directory.path()), ["bad.json"]);
}
