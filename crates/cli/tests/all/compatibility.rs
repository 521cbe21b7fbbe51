//! Files that an earlier version wrote are read by this one: `checks/compatibility/VERSION/`.

use std::path::{Path, PathBuf};

use crate::common::{Run, text};

fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../checks/compatibility")
        .join(version)
}

/// Runs the command in the folder of a version and returns what it prints.
fn read(version: &str, words: &[&str]) -> String {
    let run = Run::new();
    let output = run
        .command(words)
        .current_dir(folder(version))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    text(&output.stdout)
}

#[test]
fn traces_of_0_1_0() {
    // The lines are the events and the metadata.
    for (file, lines, first) in [
        (
            "memory.parquet",
            1_718,
            "FOUND NO STALL\nno thread lost 10 ms",
        ),
        ("samples.parquet", 479, "FOUND STALLS\na thread lost "),
        (
            "scheduling.parquet",
            99,
            "CANNOT TELL WHETHER A LONG WAIT WAS A STALL\nsh, ",
        ),
        (
            "unprivileged.parquet",
            63,
            "CANNOT TELL WHETHER A LONG WAIT WAS A STALL\nsh, ",
        ),
        ("workload.parquet", 703, "COULD NOT LOOK\nthe trace has "),
        ("memory.jsonl", 300, "FOUND NO STALL\nno thread lost 10 ms"),
    ] {
        let exported = read("0.1.0", &["export", file, "--to", "jsonl", "-o", "-"]);
        assert_eq!(exported.lines().count(), lines, "{file}");
        let explained = read("0.1.0", &["explain", file]);
        assert!(explained.starts_with(first), "{file}: {explained}");
    }
    let exported = read(
        "0.1.0",
        &["export", "memory.parquet", "--to", "jsonl", "-o", "-"],
    );
    let lines = std::fs::read_to_string(folder("0.1.0").join("memory.jsonl")).unwrap();
    // The first line names the version.
    let (_, events) = lines.split_once('\n').unwrap();
    assert!(exported.contains(events), "an event changed");
    let policies = "linux-3.8,stopgap";
    let replayed = read(
        "0.1.0",
        &[
            "replay",
            "placement",
            "workload.parquet",
            "--policy",
            policies,
        ],
    );
    assert!(replayed.contains("linux-3.8"), "{replayed}");
}

/// Traces of schema 2 hold waits, and nothing of them changes.
#[test]
fn traces_of_schema_2() {
    let of = |file: &str| read("trace-2", &["export", file, "--to", "jsonl", "-o", "-"]);
    for (file, lines, waits) in [
        ("scheduling.parquet", 61, 24),
        ("waits.parquet", 74, 16),
        ("waits.jsonl", 74, 16),
    ] {
        let exported = of(file);
        assert_eq!(exported.lines().count(), lines, "{file}");
        let is_wait = |line: &&str| line.contains("\"kind\":\"wait\"");
        assert_eq!(exported.lines().filter(is_wait).count(), waits, "{file}");
    }
    let lines = std::fs::read_to_string(folder("trace-2").join("waits.jsonl")).unwrap();
    assert_eq!(
        of("waits.parquet"),
        lines,
        "an event or the metadata changed"
    );
    assert_eq!(of("waits.jsonl"), lines);
}

/// Fences of a real driver, of one process, signalled late by another one.
#[test]
fn a_trace_of_late_fences() {
    let said = read("trace-2", &["explain", "fence.parquet"]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let fence = "waited for a fence of vgem (timeline unbound), submitted by submitter";
    assert!(
        said.starts_with("FOUND STALLS waiter lost 1.50 s in "),
        "{said}"
    );
    for line in [
        format!("the longest 500 ms; mostly it {fence}: signaller slept in clock_nanosleep"),
        format!("100 % {fence} (rustix::ioctl"),
        "100 % signaller slept in clock_nanosleep (known::late_fence".to_owned(),
        "100 % on purpose the run of waiter".to_owned(),
    ] {
        assert!(said.contains(&line), "no '{line}' in {said}");
    }
}

#[test]
fn records_of_0_1_0() {
    for (record, line) in [
        ("check.json", "  roundtrip: 2.0 task switches per request"),
        (
            "probe-chunks.json",
            "  chunks: cannot tell: memory is not fragmented",
        ),
        ("probe-placement.json", "  placement: cannot tell: memfd"),
        ("probe-reclaim.json", "  reclaim: cannot tell: without swap"),
        (
            "probe-roundtrip.json",
            "  roundtrip: 2.0 task switches per request",
        ),
        (
            "probe-wakeup.json",
            "  wakeup: a thread that was due woke at most 17.9 ms late",
        ),
        ("replay-chunks.json", "  13 rows;"),
        ("replay-placement.json", "  4 rows;"),
        ("replay-reclaim.json", "  5 rows;"),
        ("replay-roundtrip.json", "  24 rows;"),
        ("compare.json", "  WORSE: value 20.0 % more (19.5..20.5 %)"),
        ("kernels.json", "  longer: 1 of 1 longer by 0.31 %"),
    ] {
        let short = read("0.1.0", &["report", "--terminal", record]);
        assert!(short.contains(line), "{record}: {short}");
        let page = read("0.1.0", &["report", record, "-o", "-"]);
        assert!(page.starts_with("<!DOCTYPE html>"), "{record}");
    }
    let compared = read("0.1.0", &["compare", "compare-run.json"]);
    assert!(
        compared.contains("CANNOT TELL\nelapsed time n too small: 3 pairs prove nothing"),
        "{compared}"
    );
    let words = ["compare", "check.json", "probe-roundtrip.json"];
    let compared = read(
        "0.1.0",
        &[&words[..], &["--question", "roundtrip"]].concat(),
    );
    assert!(compared.contains("1.000x (n too small)"), "{compared}");
}

/// Its words mean other things since.
#[test]
fn an_explanation_of_0_1_0_is_refused() {
    let run = Run::new();
    let output = (run.command(&["report", "--terminal", "explain.json"]))
        .current_dir(folder("0.1.0"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("of an earlier version; since stopgap.explain/2 every call is an operation"),
        "{said}"
    );
}

#[test]
fn a_snapshot_of_0_1_0() {
    let replayed = read(
        "0.1.0",
        &[
            "replay",
            "chunks",
            "snapshot.json",
            "--size",
            "1M",
            "--buffers",
            "2",
        ],
    );
    assert!(
        replayed.contains("snapshot.json: 64 MiB of 4 KiB pages"),
        "{replayed}"
    );
}

/// The folder of a recording that was killed.
#[test]
fn a_spool_of_0_1_0() {
    let run = Run::new();
    let spool = run.directory.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    for entry in std::fs::read_dir(folder("0.1.0").join("spool")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), spool.join(entry.file_name())).unwrap();
    }
    let output = run.output(&["record", "--recover", spool.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = text(&output.stdout);
    assert!(summary.contains("waits     2"), "{summary}");
    assert!(
        summary.contains("events    262: page-fault 66, span 49"),
        "{summary}"
    );
}
