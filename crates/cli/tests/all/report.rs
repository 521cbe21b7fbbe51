//! `stopgap report`: records of several kinds into one page, and what is none of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Run, text};

/// A replay on a small workload, as a record.
fn replay(run: &Run) -> String {
    let made = run.output(&[
        "replay",
        "placement",
        "pbobench",
        "--policy",
        "linux-6.12,stopgap",
        "--n",
        "100,300,1k",
        "--ops",
        "1k",
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    run.records()[0].display().to_string()
}

#[test]
fn check_writes_a_page_beside_its_record_and_report_makes_the_same() {
    let run = Run::new();
    let output = run.output(&["check", "--passive"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = run.records().pop().expect("a record");
    let page = record.with_extension("html");
    assert!(text(&output.stdout).contains(&format!(
        "report {}",
        fs::canonicalize(&page).unwrap().display()
    )));
    let written = fs::read_to_string(&page).unwrap();
    assert!(
        written.starts_with("<!DOCTYPE html>")
            && written.contains("What the machine showed by itself")
    );
    // It tells of this machine: nobody else may read it.
    assert_eq!(
        fs::metadata(&page).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let again = run.directory.path().join("again.html");
    let output = run.output(&[
        "report",
        record.to_str().unwrap(),
        "-o",
        again.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&again).unwrap(), written);
}

#[test]
fn records_of_several_kinds_go_into_one_page() {
    let run = Run::new();
    let replay = replay(&run);
    let output = run.output(&[
        "check",
        "--passive",
        "-o",
        run.directory.path().to_str().unwrap(),
    ]);
    assert!(output.status.success());
    let check = crate::common::records(run.directory.path())
        .pop()
        .expect("a record");
    let output = run.output(&["report", check.to_str().unwrap(), &replay]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let place = run.directory.path().join("report.html");
    assert_eq!(
        text(&output.stdout),
        format!("report {}\n", place.display())
    );
    let page = fs::read_to_string(&place).unwrap();
    for said in [
        "2 records",
        "Time an operation, by policy",
        "Environment",
        "stopgap replay placement pbobench",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let output = run.output(&["report", "--terminal", &replay]);
    assert!(text(&output.stdout).contains("what if, placement"));
    let output = run.output(&["report", &replay, "-o", "-"]);
    assert!(text(&output.stdout).starts_with("<!DOCTYPE html>"));
}

/// A comparison of commands that were really run, and of files: doubts lead, and times of milliseconds are no 0.00 s.
#[test]
fn a_comparison_has_a_page() {
    let run = Run::new();
    let folder = run.directory.path();
    let place = |name: &str| folder.join(name).display().to_string();
    let page = |record: &str| {
        let output = run.output(&["report", record, "-o", &place("page.html")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        fs::read_to_string(place("page.html")).unwrap()
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
        &place("runs"),
    ];
    let output = run.output(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let records = crate::common::records(&folder.join("runs"));
    let record = records
        .iter()
        .find(|path| path.to_string_lossy().contains("/compare-"));
    let gathered = page(record.unwrap().to_str().unwrap());
    for said in [
        "elapsed time",
        " ms</td>",
        "sleep 0.02 against sleep 0.002",
        "elapsed time, run by run",
        "user time",
    ] {
        assert!(gathered.contains(said), "{said}\n{gathered}");
    }
    assert!(
        !gathered.contains("0.00 s") && !gathered.contains("-0.00"),
        "{gathered}"
    );

    fs::write(place("a"), "1e308\n".repeat(6)).unwrap();
    fs::write(place("b"), "1.7e308\n".repeat(6)).unwrap();
    let output = run.output(&["compare", &place("a"), &place("b"), "-o", &place("numbers")]);
    let screen = text(&output.stdout);
    assert!(
        screen.contains("1.00e308") && screen.starts_with("warning: "),
        "{screen}"
    );
    assert!(screen.lines().all(|line| line.len() < 150), "{screen}");
    let record = crate::common::records(&folder.join("numbers"))
        .pop()
        .unwrap();
    let numbers = page(record.to_str().unwrap());
    let [doubt, answer] =
        ["runs are equal to each other", "regression: value"].map(|part| numbers.find(part));
    assert!(doubt.unwrap() < answer.unwrap(), "{numbers}");
}

#[test]
fn what_is_no_record_is_refused_with_file_and_reason() {
    let run = Run::new();
    let folder = run.directory.path();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let cases = [
        (
            file("empty.json", b""),
            "not a record of stopgap's: EOF while parsing",
        ),
        (file("list.json", b"[1, 2]"), "not a record of stopgap's"),
        (file("none.json", b"{\"a\": 1}"), "missing field `schema`"),
        (
            file("advise.json", b"{\"schema\": \"stopgap.advise/1\"}"),
            "its schema is 'stopgap.advise/1'; a report is made of stopgap.run/1,",
        ),
        (
            file("cut.json", b"{\"schema\": \"stopgap.run/1\"}"),
            "not a run record: missing field",
        ),
        (
            file("replay.json", b"{\"schema\": \"stopgap.replay/1\"}"),
            "not a record of 'stopgap.replay/1': missing field",
        ),
        (
            file(
                "explain.json",
                b"{\"schema\": \"stopgap.explain/1\", \"version\": 3}",
            ),
            "not a record of 'stopgap.explain/1'",
        ),
        (
            file("compare.json", b"{\"schema\": \"stopgap.compare/1\"}"),
            "not a record of 'stopgap.compare/1'",
        ),
        (
            file("bytes.json", b"{\"schema\": \"\xff\"}"),
            "it is no text (byte 12)",
        ),
        (folder.display().to_string(), "it is a directory"),
        (
            folder.join("gone.json").display().to_string(),
            "No such file",
        ),
        ("/dev/zero".to_owned(), "it is a named pipe or a device"),
    ];
    for (path, why) in cases {
        let output = run.output(&["report", &path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{path}: {said}");
        assert!(
            said.contains(&path) && said.contains(why),
            "{path}: {said}\nexpected: {why}"
        );
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    assert!(
        fs::read_dir(folder)
            .unwrap()
            .all(|entry| entry.unwrap().path().extension() != Some("html".as_ref()))
    );
}

#[test]
fn a_record_is_never_written_over_and_too_many_are_refused() {
    let run = Run::new();
    let record = replay(&run);
    let before = fs::read(&record).unwrap();
    let output = run.output(&["report", &record, "-o", &record]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("it is one of the records"));
    assert_eq!(fs::read(&record).unwrap(), before);

    let many: Vec<&str> = std::iter::once("report")
        .chain(std::iter::repeat_n(record.as_str(), 201))
        .collect();
    let output = run.output(&many);
    assert!(text(&output.stderr).contains("201 records; a report shows at most 200"));
}
