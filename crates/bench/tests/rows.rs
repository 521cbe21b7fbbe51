//! Peers are rows of the same table and schema as our policies.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(words)
        .env("XDG_STATE_HOME", folder.path())
        .output()
        .unwrap()
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
fn who_has_no_limits_says_so() {
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
    let words = ["soak", "--ops", "4k", "--seed", "5", "--policy"];
    let output = bench(&[&words[..], &["best-fit,linux-3.4"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("seed 5, 2000 steps a policy"), "{text}");
    assert!(text.contains("best-fit"), "{text}");
    assert!(
        text.ends_with("4000 steps in all without a difference\n"),
        "{text}"
    );
    let output = bench(&["soak", "--ops", "0"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_soak_of_chunks_tells_what_it_met() {
    let output = bench(&["soak", "chunks", "--ops", "4k", "--seed", "5"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("seed 5, 4000 steps\n"), "{text}");
    assert!(
        text.ends_with("\n4000 steps in all without a difference\n"),
        "{text}"
    );
    let help = bench(&["soak", "--help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    for what in ["chunks", "kernel's memory", "placement", "--policy"] {
        assert!(help.contains(what), "{help}");
    }
}

/// As with `stopgap`: one line, and a status that means an error.
#[test]
fn flags_that_make_no_sense() {
    for words in [
        &["frag", "--n", "x"][..],
        &["--bogus"],
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
    let mut child = Command::new(env!("CARGO_BIN_EXE_stopgap-bench"))
        .args(["soak", "--ops", "100m"])
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
