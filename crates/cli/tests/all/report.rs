//! `stopgap report`: records of several kinds into one page, and what is none of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Run, has, names, records};

/// A replay on a small workload, as a record.
fn replay(run: &Run) -> String {
    run.stopgap("replay placement pbobench --policy linux-6.12,stopgap --n 100,300,1k --ops 1k")
        .ok();
    run.records()[0].display().to_string()
}

#[test]
fn check_writes_a_page_beside_its_record_and_report_makes_the_same() {
    let run = Run::new();
    let said = run.stopgap("check --passive").ok().out;
    let record = run.records().pop().expect("a record");
    let page = record.with_extension("html");
    let place = fs::canonicalize(&page).unwrap();
    has(&said, &[&format!("report {}", place.display())]);
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("<!DOCTYPE html>"));
    has(&written, &["What the machine showed by itself"]);
    // It tells of this machine: nobody else may read it.
    let mode = fs::metadata(&page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let line = format!("report {} -o again.html", record.display());
    run.stopgap(line).ok();
    assert_eq!(run.read("again.html"), written);
}

#[test]
fn records_of_several_kinds_go_into_one_page() {
    let run = Run::new();
    let replay = replay(&run);
    run.stopgap("check --passive -o .").ok();
    let check = records(run.directory.path()).pop().expect("a record");
    let line = format!("report {} {replay}", check.display());
    let said = run.stopgap(line).ok().out;
    let place = run.path("report.html");
    assert_eq!(said, format!("report {}\n", place.display()));
    let parts = [
        "2 records",
        "Time an operation, by policy",
        "Environment",
        "stopgap replay placement pbobench",
    ];
    has(&run.read("report.html"), &parts);
    let terminal = run.stopgap(format!("report --terminal {replay}")).out;
    has(&terminal, &["what if, placement"]);
    let page = run.stopgap(format!("report {replay} -o -")).out;
    assert!(page.starts_with("<!DOCTYPE html>"));
}

/// A comparison of commands that were really run, and of files: doubts lead, and times of milliseconds are no 0.00 s.
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
        "-n",
        "6",
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
        "user time",
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
    let parts = ["runs are equal to each other", "regression: value"];
    let [doubt, answer] = parts.map(|part| numbers.find(part));
    assert!(doubt.unwrap() < answer.unwrap(), "{numbers}");
}

#[test]
fn what_is_no_record_is_refused_with_file_and_reason() {
    let run = Run::new();
    fs::create_dir(run.path("folder")).unwrap();
    for (name, content, why) in [
        (
            "empty.json",
            &b""[..],
            "not a record of stopgap's: EOF while parsing",
        ),
        ("list.json", b"[1, 2]", "not a record of stopgap's"),
        ("none.json", b"{\"a\": 1}", "missing field `schema`"),
        (
            "advise.json",
            b"{\"schema\": \"stopgap.advise/1\"}",
            "its schema is 'stopgap.advise/1'; a report is made of stopgap.run/1,",
        ),
        (
            "cut.json",
            b"{\"schema\": \"stopgap.run/1\"}",
            "not a run record: missing field",
        ),
        (
            "replay.json",
            b"{\"schema\": \"stopgap.replay/1\"}",
            "not a record of 'stopgap.replay/1': missing field",
        ),
        (
            "explain.json",
            b"{\"schema\": \"stopgap.explain/1\", \"version\": 3}",
            "not a record of 'stopgap.explain/1'",
        ),
        (
            "compare.json",
            b"{\"schema\": \"stopgap.compare/1\"}",
            "not a record of 'stopgap.compare/1'",
        ),
        (
            "bytes.json",
            b"{\"schema\": \"\xff\"}",
            "it is no text (byte 12)",
        ),
        ("folder", b"", "it is a directory"),
        ("gone.json", b"", "No such file"),
        ("/dev/zero", b"", "it is a named pipe or a device"),
    ] {
        if name == "empty.json" || !content.is_empty() {
            run.write(name, content);
        }
        run.refuses(format!("report {name}"), &[name, why]);
    }
    assert!(
        names(run.directory.path())
            .iter()
            .all(|name| !name.ends_with(".html"))
    );
}

#[test]
fn a_record_is_never_written_over_and_too_many_are_refused() {
    let run = Run::new();
    let record = replay(&run);
    let before = fs::read(&record).unwrap();
    let line = format!("report {record} -o {record}");
    run.refuses(line, &["it is one of the records"]);
    assert_eq!(fs::read(&record).unwrap(), before);
    let many = format!("report {}", [&*record; 201].join(" "));
    run.refuses(many, &["201 records; a report shows at most 200"]);
}
