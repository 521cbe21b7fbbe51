//! The likely mistakes: one line that says what and what to do, exit status 1 or 3, nothing
//! lost that had been measured.

mod common;

use std::process::Stdio;

use common::{Run, root, text};
use stopgap_kernel::fake::skipped as skip;

/// Fails with one line on standard error that has all of `words`.
fn refused(run: &Run, arguments: &[&str], words: &[&str]) {
    let output = run.output(arguments);
    let line = text(&output.stderr);
    let status = output.status.code();
    assert!(
        matches!(status, Some(1 | 3)),
        "{arguments:?}: {status:?} {line}"
    );
    assert_eq!(line.trim_end().lines().count(), 1, "{arguments:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{arguments:?}: no '{word}' in: {line}");
    }
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
}

#[test]
fn a_question_that_there_is_not() {
    let run = Run::new();
    let known = ["gpu", "placement", "roundtrip", "chunks", "reclaim"];
    refused(&run, &["probe", "gpu"], &known);
    refused(&run, &["check", "--only", "gpu"], &known);
}

#[test]
fn figures_that_make_no_sense() {
    let run = Run::new();
    let placement = |flags: &[&str], words: &[&str]| {
        let arguments = [&["probe", "placement"], flags].concat();
        refused(&run, &arguments, words);
    };
    placement(&["--n", "0"], &["N of 0"]);
    placement(&["--n", "4000000000"], &["sysctl vm.max_map_count="]);
    placement(&["--runs", "0"], &["at least 1"]);
    placement(
        &["--n", "100", "--threads", "5000"],
        &["5000 threads", "CPUs"],
    );
    placement(&["--cpus", "4000"], &["CPU 4000", "may use CPUs"]);
    placement(&["--memory", "lots"], &["'lots' is no size", "2G"]);
    placement(&["--memory", "1M"], &["budget", "--memory"]);
}

#[test]
fn a_process_that_is_gone() {
    let run = Run::new();
    refused(&run, &["check", "--passive", "-p", "4194304"], &["4194304"]);
    refused(&run, &["check", "-p", "x"], &["'x'"]);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let run = Run::new();
    refused(
        &run,
        &["check", "--passive", "-o", "/proc/stopgap"],
        &["/proc/stopgap", "another directory"],
    );
}

/// The disk fills while the record is written: it is found elsewhere, whole.
#[test]
fn a_full_disk_loses_nothing() {
    if !root() {
        return skip("a full disk: mounting a small one needs root");
    }
    let run = Run::new();
    let small = run.directory.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k", "stopgap-test"])
        .arg(&small)
        .status()
        .unwrap();
    assert!(mounted.success());
    let elsewhere = run.directory.path().join("tmp");
    std::fs::create_dir(&elsewhere).unwrap();
    let output = run
        .command(&["check", "--passive", "-o", small.to_str().unwrap()])
        .env("TMPDIR", &elsewhere)
        .output()
        .unwrap();
    std::process::Command::new("umount")
        .arg(&small)
        .status()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("No space left") && said.contains("the record is in"),
        "{said}"
    );
    let records = common::records(&elsewhere.join("stopgap-0"));
    assert_eq!(records.len(), 1);
    common::assert_valid(&std::fs::read_to_string(&records[0]).unwrap());
}

/// `stopgap check --json | head -c 0`: no panic; the record is on the disk and named.
#[test]
fn a_reader_that_closes_the_pipe() {
    let run = Run::new();
    let mut child = run
        .command(&["check", "--passive", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("standard output") && said.contains("the record is in"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(run.records().len(), 1);
}

#[test]
fn help_and_version_are_no_errors() {
    let run = Run::new();
    for words in [
        &["--help"][..],
        &["--version"],
        &["check", "--help"],
        &["probe", "--help"],
    ] {
        let output = run.output(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(run.output(&[]).status.code(), Some(1));
}
