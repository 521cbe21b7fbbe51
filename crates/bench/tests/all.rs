//! The command as a user runs it.

#[path = "all/live.rs"]
mod live;
#[path = "all/mails.rs"]
mod mails;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use stopgap_testing::{Skip, skip};

/// Returns the right to measure the machine or to change its settings: one test at a time has it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command with these words; its records go to `folder`.
fn command(words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"));
    command.args(words).env("XDG_STATE_HOME", folder);
    command
}

fn bench(words: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command(words, folder.path()).output().unwrap()
}

/// Runs a command; returns its output and its exit status.
fn said(words: &[&str]) -> (String, Option<i32>) {
    let output = bench(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}{errors}");
    (text, output.status.code())
}

/// Whether the `stopgap` beside the command is missing; the test is skipped then.
fn stopgap_is_missing() -> bool {
    let bench = Path::new(env!("CARGO_BIN_EXE_stopgap-bench"));
    let missing = !bench.with_file_name("stopgap").exists();
    if missing {
        skip(&Skip::program("stopgap beside stopgap-bench (cargo build)"));
    }
    missing
}

fn rows(words: &[&str]) -> Vec<Value> {
    let output = bench(&[words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let schema = std::fs::read_to_string(path.join("stopgap.replay-1.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert!(jsonschema::is_valid(&schema, &document), "{document}");
    document["rows"].as_array().unwrap().clone()
}

const PEERS: [&str; 4] = [
    "offset-allocator",
    "range-alloc",
    "vm-allocator",
    "btree-pair",
];

/// Peers are rows of the same table and schema as our policies.
#[test]
fn peers_stand_beside_ours() {
    let rows = rows(&["aligned", "--n", "200", "--ops", "600"]);
    for name in ["stopgap", "linux-6.12"].iter().chain(&PEERS) {
        let row = rows.iter().find(|row| row["policy"] == *name).unwrap();
        assert_eq!(row["lacks"], Value::Null, "{row}");
        assert_eq!(row["operations"], 600, "{row}");
        assert_eq!(row["failures"], 0, "{row}");
        assert!(row["span_over_live"].as_f64().unwrap() >= 1.0, "{row}");
        let peer = PEERS.contains(name);
        assert_eq!(row["work_per_map"].is_null(), peer, "{row}");
    }
    let padding = rows.iter().find(|row| row["policy"] == PEERS[0]).unwrap();
    assert!(padding["note"].as_str().unwrap().contains("pads"));
}

#[test]
fn a_peer_without_limits_says_so() {
    let rows = rows(&["limits", "--n", "200", "--ops", "600"]);
    for name in PEERS {
        let row = rows.iter().find(|row| row["policy"] == name).unwrap();
        let able = name == "btree-pair";
        assert_eq!(row["lacks"].is_null(), able, "{row}");
        assert_eq!(row["ns_per_operation"].is_null(), !able, "{row}");
    }
}

#[test]
fn a_soak_tells_what_it_met() {
    let policies = ["--policy", "best-fit,linux-3.4"];
    for (words, begin, contains) in [
        (&policies[..], "seed 5, 2000 steps a policy", "best-fit"),
        (&["chunks"], "seed 5, 4000 steps\n", "blocks taken"),
    ] {
        // `chunks` is a sub-command, with flags of its own.
        let steps = ["--ops", "4k", "--seed", "5"];
        let (text, status) = said(&[&["soak"], words, &steps].concat());
        assert_eq!(status, Some(0), "{text}");
        assert!(text.starts_with(begin) && text.contains(contains), "{text}");
        assert!(
            text.ends_with("\n4000 steps in all without a difference\n"),
            "{text}"
        );
    }
    let (help, _) = said(&["soak", "--help"]);
    for what in ["chunks", "kernel's memory", "placement", "--policy"] {
        assert!(help.contains(what), "{help}");
    }
}

#[test]
fn a_soak_in_parts_takes_ten_times_as_many_steps_of_ours() {
    let words = "soak --policy stopgap,best-fit --ops 1210k";
    let (text, status) = said(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(status, Some(0), "{text}");
    for line in [
        "best-fit               110000 steps",
        "stopgap                1100000 steps",
        "\n1210000 steps in all",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// Returns the lines that say of a goal whether it holds; the status must agree with them.
fn verdicts(text: &str, status: Option<i32>) -> Vec<&str> {
    let word = |line: &&str| line.starts_with("holds ") || line.starts_with("BROKEN");
    let verdicts: Vec<&str> = text.lines().filter(word).collect();
    let broken = verdicts.iter().any(|line| line.starts_with("BROKEN"));
    let right = if broken {
        &[Some(2)][..]
    } else {
        &[Some(0), Some(4)]
    };
    assert!(right.contains(&status), "{status:?}: {text}");
    verdicts
}

/// A row for each allocator on each shape, and a word for each goal.
#[test]
fn shapes_stand_beside_their_peers_and_goals() {
    let words = "shapes --operations 2k --repetitions 1 --only lifo,wide-1.05,half-full";
    let words: Vec<&str> = words.split(' ').collect();
    let (text, status) = said(&words);
    assert!(text.starts_with("seed 1, 2,000 operations"), "{text}");
    for policy in ["stopgap", "stopgap-handle", "best-fit", "linux-6.12"]
        .iter()
        .chain(&PEERS)
    {
        let rows = text
            .lines()
            .filter(|line| line.split(' ').next() == Some(policy));
        assert_eq!(rows.count(), 3, "{policy}: {text}");
    }
    let verdicts = verdicts(&text, status);
    for goal in [
        "frees by address",
        "frees by handle",
        "maps fail",
        "span over live",
        "longest operation",
        "stopped",
        "half-full at most",
    ] {
        let lines = verdicts.iter().filter(|line| line.contains(goal));
        assert_eq!(lines.count(), 1, "{goal}: {text}");
    }
    let (text, status) = said(&["shapes", "--only", "x"]);
    assert_eq!((text.as_str(), status), ("", Some(1)));
}

/// What `shapes` runs where an operation took long, which no test can ask for.
#[test]
fn a_shape_runs_in_a_process_of_its_own() {
    let run = |shape| {
        let words = format!("shape-run --shape {shape} --operations 2000 --repetitions 1 --seed 1");
        said(&words.split(' ').collect::<Vec<_>>())
    };
    let (text, status) = run("lifo");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.trim().parse::<u64>().is_ok_and(|ns| ns > 0), "{text}");
    assert_eq!(run("nothing").1, Some(1));
}

#[test]
fn pairs_are_placed_and_freed_on_two_cpus() {
    let _alone = alone();
    let words = "shapes --pair --operations 2k --repetitions 1";
    let (text, status) = said(&words.split(' ').collect::<Vec<_>>());
    if text.starts_with("pair skipped") {
        assert_eq!(status, Some(0), "{text}");
        return;
    }
    for way in ["ring", "mutex", "returns", "arena", "glibc"] {
        let there = text.lines().any(|line| line.split(' ').next() == Some(way));
        assert!(there, "{way}: {text}");
    }
    assert_eq!(verdicts(&text, status).len(), 2, "{text}");
}

#[test]
fn a_cache_has_a_row_for_each_allocator_and_load() {
    let _alone = alone();
    let words = "cache --rounds 1 --buffers 20 --after 20";
    let (text, status) = said(&words.split(' ').collect::<Vec<_>>());
    for peer in ["arena", "mimalloc", "jemalloc", "glibc", "mmap"] {
        let rows = text
            .lines()
            .filter(|line| line.split(' ').next() == Some(peer));
        let skipped = text.contains(&format!(
            "{peer} skipped: not installed (Debian's package lib{peer}"
        ));
        assert_eq!(rows.count(), if skipped { 1 } else { 3 }, "{peer}: {text}");
    }
    let verdicts = verdicts(&text, status);
    for goal in [
        "filled: held",
        "touched: held",
        "small: held",
        "memfd filled",
        "memfd touched",
    ] {
        assert!(
            verdicts.iter().any(|line| line.contains(goal)),
            "{goal}: {text}"
        );
    }
}

/// As with `stopgap`: one line, and a status that means an error.
#[test]
fn flags_that_make_no_sense() {
    for words in [
        &["frag", "--n", "x"][..],
        &["--bogus"],
        &["soak", "--ops", "0"],
        &["soak", "--policy", "x"],
        &["soak", "chunks", "--ops", "0"],
        &["soak", "chunks", "--policy", "best-fit"],
        &["soak", "--ops", "2k", "chunks"],
        &[],
    ] {
        let output = bench(words);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
    }
}

/// `stopgap-bench soak | head -n 0`.
#[test]
fn a_reader_that_goes_away_ends_a_soak() {
    let mut child = command(&["soak", "--ops", "100m"], &std::env::temp_dir())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{line}");
    assert!(!line.contains("Broken pipe"), "{line}");
}

/// Runs an attack in its short form on the `stopgap` that was built beside this test; its lines of faults contain `fault`.
fn attack(words: &[&str], fault: &str) {
    if stopgap_is_missing() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let output = command(
        &[&["attack"], words, &["--seed", "1"]].concat(),
        folder.path(),
    )
    .current_dir(folder.path())
    .env("TMPDIR", folder.path())
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(said.starts_with("seed 1, "), "{output:?}");
    let faults: Vec<&str> = said.lines().filter(|line| line.contains(fault)).collect();
    assert!(
        faults.is_empty() && output.status.success(),
        "{faults:#?}: {output:?}"
    );
}

#[test]
fn commands_that_are_killed_leave_nothing() {
    let words = ["kills", "--rounds", "20", "--only", "check-passive,compare"];
    attack(&words, ", round ");
}

#[test]
fn changed_files_are_read_or_refused() {
    attack(&["mutants", "--per-format", "10"], "attack-mutants/");
}
