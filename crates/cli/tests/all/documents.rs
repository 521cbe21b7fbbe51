//! Documents that commands print fit the schemas that are checked in, for scripts. What they say: `checks/capabilities`.

use crate::common::{FILES, Run};

#[test]
fn every_document_fits_its_schema() {
    let run = Run::new();
    for (schema, line) in [
        ("run", "check --passive"),
        ("replay", "replay placement frag --n 100 --ops 500"),
        ("replay", "replay chunks --policy fold,list --buffers 1"),
        (
            "replay",
            "replay chunks FILES/snapshot.json --size 1M --buffers 1",
        ),
        (
            "replay",
            "replay roundtrip --round-trips 50 --beside FILES/probe-roundtrip.json",
        ),
        ("replay", "replay roundtrip FILES/roundtrips.jsonl"),
        (
            "replay",
            "replay reclaim --limit 64M --time 200ms --runs 1 --beside FILES/probe-reclaim.json",
        ),
        (
            "replay",
            "replay reclaim --load gem-syslatency --policy none,held --time 100ms",
        ),
        (
            "advise",
            "advise chunks kept-1/4 --buffers 2 --device 4K,2M --access rotate-90",
        ),
        ("explain", "explain FILES/roundtrips.jsonl"),
        ("explain", "explain FILES/samples.jsonl --top 0"),
        ("compare", "compare FILES/before.txt FILES/worse.txt"),
        ("doctor", "doctor"),
        ("restore", "restore"),
    ] {
        let line = line.replace("FILES", FILES);
        let done = run.stopgap(format!("{line} --json"));
        let version = if schema == "explain" { 2 } else { 1 };
        done.document(&format!("stopgap.{schema}-{version}.json"));
    }
    let snapshot = run.stopgap("snapshot -o -");
    snapshot.document("stopgap.snapshot-1.json");
}

/// The old search looks at more the more is mapped, a tree hardly does; what is not known says why, and is not 0.
#[test]
fn a_replay_says_what_grows_and_what_is_unknown() {
    let run = Run::new();
    let line = "replay placement pbobench --policy linux-2.6.35,linux-3.8 --ops 3k --n 50,100,300,1k --json";
    let document = run.stopgap(line).document("stopgap.replay-1.json");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &document["mail"]),
        (8, &serde_json::Value::Null)
    );
    for row in rows {
        assert_eq!(row["p9999_ns"], serde_json::Value::Null, "too few samples");
        let missing = row["missing"].as_array().unwrap();
        assert!(missing.iter().any(|m| m["what"] == "p9999_ns"), "{row}");
    }
    let growth = document["growth"].as_array().unwrap();
    assert_eq!(growth.len(), 4);
    for one in growth
        .iter()
        .filter(|one| one["quantity"] == "work_per_map")
    {
        assert_eq!(
            one["word"] == "grows",
            one["policy"] == "linux-2.6.35",
            "{one}"
        );
    }
}
