//! `stopgap replay reclaim`: what it prints, what stands beside it, and what it refuses.

use crate::common::{Run, text};
use serde_json::{Value, json};

const SMALL: [&str; 6] = ["--limit", "64M", "--pinned", "32M", "--time", "200ms"];

fn replay(run: &Run, words: &[&str]) -> Value {
    let words = [&["replay", "reclaim"], &SMALL[..], words, &["--json"]].concat();
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    crate::common::valid("stopgap.replay-1.json", &text(&output.stdout))
}

/// Fails with one line on standard error that has `expected`, and nothing is written.
fn refused(words: &[&str], expected: &str) {
    let run = Run::new();
    let output = run.output(&[&["replay", "reclaim"], words].concat());
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
    assert!(
        line.contains(expected),
        "{words:?}: no '{expected}' in: {line}"
    );
    assert!(run.records().is_empty(), "{words:?}");
}

/// A record of a probe that held 32 MiB of 64.
fn record() -> String {
    let parameters = json!({
        "mode": "vmsplice", "pinned": 32 << 20, "limit": 64 << 20, "room": 32 << 20, "load": "mixed",
        "swap": "file", "lru": "classic",
    });
    let block = |run: u32, value: f64| json!({"run": run, "start_ns": 0, "samples": 1000, "value": value, "histogram": null, "stalls": null});
    json!({
        "schema": "stopgap.run/1", "version": "0.1.0", "command": ["stopgap"], "started_unix_s": 0,
        "duration_ms": 1, "seed": 1, "memory_budget": 1, "interrupted": false, "peak_memory": null, "now": null,
        "environment": {
            "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "root",
            "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
        },
        "answers": [{
            "question": "reclaim", "parameters": {},
            "verdict": {"word": "excess", "text": "excess 2.4x"},
            "figure": null, "evidence": [], "advice": [], "privilege": "root",
            "series": [{
                "name": "scanned per reclaimed", "unit": "pages/page", "parameters": parameters, "error": null,
                "blocks": [block(0, 2.0), block(1, 2.4), block(2, 2.2)],
            }],
            "counters": [], "losses": [], "missing": [],
        }],
    })
    .to_string()
}

#[test]
fn the_measured_share_stands_beside_and_the_rest_says_why_not() {
    let run = Run::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.json");
    std::fs::write(&file, record()).unwrap();
    let document = replay(&run, &["--beside", file.to_str().unwrap()]);
    assert_eq!(document["question"], "reclaim");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "a row a policy");
    let row = |policy: &str| rows.iter().find(|row| row["policy"] == policy).unwrap();
    let held = row("held");
    assert_eq!(held["measured"]["scanned_per_reclaimed"], 2.2);
    assert_eq!(held["measured"]["runs"], 3);
    let scanned = held["scanned_per_reclaimed"].as_f64().unwrap();
    let factor = held["measured"]["factor"].as_f64().unwrap();
    assert!((factor - scanned / 2.2).abs() < 1e-9);
    let mlock = row("mlock");
    assert_eq!(mlock["measured"], Value::Null);
    assert_eq!(mlock["missing"][0]["what"], "measured");
    assert!(scanned > 1.2 * mlock["scanned_per_reclaimed"].as_f64().unwrap());
    let advice = document["reclaim"]["advice"].as_str().unwrap();
    assert!(!advice.starts_with("use held"), "{advice}");
}

/// The words of the mail and of the first design for the same two release paths.
#[test]
fn a_release_path_goes_by_both_names() {
    let run = Run::new();
    let words = ["--policy", "mapping", "--release", "two-pass,page"];
    let document = replay(&run, &words);
    let rows = document["rows"].as_array().unwrap();
    let policies: Vec<_> = rows
        .iter()
        .map(|row| row["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies.len(), 2, "{policies:?}");
    assert!(
        rows.iter()
            .any(|row| row.to_string().contains("second-pass")),
        "{rows:?}"
    );
    assert!(
        rows.iter().any(|row| row.to_string().contains("single")),
        "{rows:?}"
    );
}

/// Rows of the mail's four ways, as the command prints them for `seed` and `time`; the sentence about the mail.
fn mails(seed: u32, time: &[&str]) -> (Vec<f64>, String) {
    let run = Run::new();
    let seed = seed.to_string();
    let words = [
        &["replay", "reclaim", "--load", "gem-syslatency", "--policy"][..],
        &["none,mlock,held,mapping", "--release", "second-pass"],
        &["--seed", &seed, "--json"],
        time,
    ];
    let output = run.output(&words.concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = crate::common::valid("stopgap.replay-1.json", &text(&output.stdout));
    let rows = document["rows"].as_array().unwrap().iter();
    let means = rows.map(|row| row["allocation"]["mean_us"].as_f64().unwrap());
    let mail = document["reclaim"]["mail"].as_str().unwrap();
    let [record, page] = ["record.json", "page.html"].map(|name| run.directory.path().join(name));
    std::fs::write(&record, &output.stdout).unwrap();
    let words = [record.as_os_str(), "-o".as_ref(), page.as_os_str()];
    let words = words.map(|word| word.to_str().unwrap());
    let made = run.output(&[&["report"][..], &words].concat());
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let page = std::fs::read_to_string(&page).unwrap();
    let first: String = mail.chars().take_while(|c| *c != ':').collect();
    assert!(page.contains(&first), "the report lacks: {first}");
    (means.collect(), mail.to_owned())
}

/// The model has stock (the second row) worse than the second pass (the last), the mail the other way round: the command
/// must say that, and must not say it where it is not so.
fn check_mail(seed: u32, time: &[&str]) {
    let (means, mail) = mails(seed, time);
    println!("seed {seed} {time:?}: {means:?}: {mail}");
    let [none, held, mlock, second] = means[..] else {
        panic!("{means:?}")
    };
    assert!(none < mlock && mlock < held, "seed {seed}: {means:?}");
    assert!(second < held, "seed {seed}: {means:?}");
    assert!(mail.starts_with("CONTRADICTS mail 004"), "{mail}");
    let factor = format!("takes {:.2} times", second / held);
    assert!(mail.contains(&factor), "{factor}: {mail}");
    assert!(mail.contains("in the mail 1.53 times"), "{mail}");
}

#[test]
fn the_mails_order_is_denied_where_the_model_has_another() {
    check_mail(1, &["--time", "400ms"]);
}

/// The very command, at its default length and at twice that, three seeds each.
#[test]
#[ignore = "two minutes of CPU: cargo test --release -p stopgap-cli --test all replay_reclaim:: -- --ignored --nocapture"]
fn the_mails_order_at_the_default_length_and_twice_that() {
    for seed in 1..=3 {
        check_mail(seed, &[]);
        check_mail(seed, &["--time", "8s"]);
    }
}

#[test]
fn the_screen_has_the_advice_and_the_prices_with_their_sources() {
    let run = Run::new();
    let words = [&["replay", "reclaim"], &SMALL[..]].concat();
    let screen = text(&run.output(&words).stdout);
    let told = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in ["use ", "mapping-late", "scan/recl", "fault", "record "] {
        let word = if word == "fault" {
            "populating 1000 ns a page (measured by probe reclaim: a block of 2 MiB in 0.6 ms)"
        } else {
            word
        };
        assert!(told.contains(word), "no '{word}' in {screen}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    refused(&["--policy", "pinned"], "mapping-late");
    refused(&["--release", "never"], "batch-resched");
    refused(&["--pinned", "2G"], "raise the limit");
    refused(&["--load", "mixed,gem-syslatency"], "replay it alone");
    refused(&["--limit", "100T"], "at most");
    refused(&["--beside", "/nonexistent"], "nonexistent");
    refused(&["--swap", "1G", "--no-swap"], "--no-swap");
    refused(&["--folio", "12K"], "a power of two");
    refused(
        &["--load", "gem-syslatency", "--folio", "64K"],
        "gem-syslatency has 4 KiB",
    );
    refused(&["--runs", "0"], "1..=1000");
}
