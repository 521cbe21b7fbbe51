//! `stopgap replay roundtrip`: what it prints, what stands beside it, and what it refuses.

use crate::common::{Run, text};
use serde_json::{Value, json};

/// Fails unless the document fits the schema that is checked in.
fn valid(json: &str) -> Value {
    crate::common::valid("stopgap.replay-1.json", json)
}

fn replay(run: &Run, words: &[&str]) -> Value {
    let words = [&["replay", "roundtrip"], words, &["--json"]].concat();
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    valid(&text(&output.stdout))
}

/// Fails with one line on standard error that has all of `words`, and nothing is written.
fn refused(words: &[&str], expected: &[&str]) {
    let run = Run::new();
    let output = run.output(&[&["replay", "roundtrip"], words].concat());
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
    for word in expected {
        assert!(line.contains(word), "{words:?}: no '{word}' in: {line}");
    }
    assert!(run.records().is_empty(), "{words:?}");
}

/// A record of a probe that measured a blocking reader.
fn record(question: &str) -> String {
    let parameters = json!({
        "client": "read", "server": "poll", "k": 1, "work": "50us", "batch": 1,
        "reply": "together", "on": "one", "policy": "other",
    });
    let block = |run: u32, value: f64| json!({"run": run, "start_ns": 0, "samples": 1000, "value": value, "histogram": null, "stalls": null});
    let series = |name: &str, values: [f64; 3]| {
        json!({
            "name": name, "unit": "switches/rt", "parameters": parameters, "error": null,
            "blocks": [block(0, values[0]), block(1, values[1]), block(2, values[2])],
        })
    };
    json!({
        "schema": "stopgap.run/1", "version": "0.1.0", "command": ["stopgap"], "started_unix_s": 0,
        "duration_ms": 1, "seed": 1, "memory_budget": 1, "interrupted": false, "peak_memory": null, "now": null,
        "environment": {
            "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
            "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
        },
        "answers": [{
            "question": question, "parameters": {},
            "verdict": {"word": "excess", "text": "excess 1.9x"},
            "figure": null, "evidence": [], "advice": [], "privilege": "none",
            "series": [series("switches", [3.7, 3.9, 3.8]), series("server pre-empted", [1.7, 1.8, 1.9])],
            "counters": [], "losses": [], "missing": [],
        }],
    })
    .to_string()
}

#[test]
fn rows_add_up_and_the_measured_cell_stands_beside() {
    let run = Run::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.json");
    std::fs::write(&file, record("roundtrip")).unwrap();
    let words = ["--client", "poll,read", "--work", "50us", "--beside"];
    let document = replay(&run, &[&words[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(document["question"], "roundtrip");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let causes = row["causes"].as_object().unwrap().values();
        let sum: f64 = causes.map(|count| count.as_f64().unwrap()).sum();
        let switches = row["switches_per_request"].as_f64().unwrap();
        assert!((sum - switches).abs() < 1e-9, "{row}");
        assert_eq!(row["operations"], 2_000);
    }
    let row = |client: &str, policy: &str| {
        let same = |row: &&Value| row["parameters"]["client"] == client && row["policy"] == policy;
        rows.iter().find(same).unwrap()
    };
    let reader = row("read", "linux-6.12");
    let measured = &reader["measured"];
    assert_eq!(measured["switches"], 3.8);
    assert_eq!(measured["least"], 3.7);
    assert_eq!(measured["shares"]["server pre-empted"], 1.8);
    let factor = measured["factor"].as_f64().unwrap();
    assert!((0.77..1.3).contains(&factor), "{factor}");
    // Not measured: unknown, with its reason, and not 0.
    let poller = row("poll", "linux-6.12");
    assert_eq!(poller["measured"], Value::Null);
    assert_eq!(poller["missing"][0]["what"], "measured");
}

#[test]
fn the_screen_has_what_varies_and_the_same_words_give_the_same() {
    let run = Run::new();
    let words = [
        "replay",
        "roundtrip",
        "--policy",
        "linux-6.12",
        "--work",
        "0",
    ];
    let screen = text(&run.output(&words).stdout);
    assert!(screen.contains("blocking-read client"), "{screen}");
    assert!(screen.contains("work 0s"), "{screen}");
    assert!(!screen.contains("measured"), "{screen}");
    let figures = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with("record"))
            .collect::<String>()
    };
    assert_eq!(figures(&screen), figures(&text(&run.output(&words).stdout)));
}

#[test]
fn bad_input_says_what() {
    refused(
        &["--policy", "linux-1.0"],
        &["linux-1.0", "linux-2.6.35, linux-6.12, all"],
    );
    refused(&["--batch", "0"], &["batch of 0", "1 to 256"]);
    refused(&["--k", "0"], &["K of 0"]);
    refused(&["--work", "2s"], &["at most 1 s"]);
    refused(&["--round-trips", "0"], &["0 round trips"]);
    refused(&["--beside", "/nonexistent/file"], &["/nonexistent/file"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.json");
    for (content, expected) in [
        ("{".to_owned(), "not a run record"),
        (r#"{"schema": "other/1"}"#.to_owned(), "other/1"),
        (record("placement"), "stopgap probe roundtrip"),
    ] {
        std::fs::write(&file, content).unwrap();
        refused(
            &["--beside", file.to_str().unwrap()],
            &["file.json", expected],
        );
    }
}

/// Round trips of a client that blocks in read and a server that waits by poll of 3 and works 50 us, on one CPU.
fn trace(trips: u32) -> String {
    use std::fmt::Write as _;
    let mut text =
        String::from("{\"schema\":\"stopgap.trace/1\",\"clock\":\"monotonic\",\"losses\":[]}\n");
    let mut now = 1_000;
    let mut event = |after: u64, tid: u32, rest: &str| {
        now += after;
        let comm = if tid == 11 { "asker" } else { "answerer" };
        writeln!(
            text,
            "{{\"time_ns\":{now},\"cpu\":0,\"tid\":{tid},\"comm\":\"{comm}\",{rest}}}"
        )
        .unwrap();
    };
    let enter = |call: &str, second: u32| {
        format!(
            "\"kind\":\"syscall-enter\",\"syscall\":1,\"syscall_name\":\"{call}\",\"argument0\":5,\"argument1\":{second}"
        )
    };
    let exit = |call: &str| {
        format!("\"kind\":\"syscall-exit\",\"syscall\":1,\"syscall_name\":\"{call}\",\"result\":8")
    };
    let to = |next: u32| format!("\"kind\":\"switch\",\"state\":\"S\",\"next_tid\":{next}");
    let wake = |whom: u32| format!("\"kind\":\"waking\",\"target_tid\":{whom}");
    event(0, 0, &to(11));
    for _ in 0..trips {
        event(100, 11, &enter("write", 0));
        event(1_000, 11, &wake(12));
        event(100, 11, &exit("write"));
        event(0, 11, &enter("read", 0));
        event(500, 11, &to(12));
        event(1_000, 12, &exit("poll"));
        event(0, 12, &enter("read", 0));
        event(500, 12, &exit("read"));
        event(50_000, 12, &enter("write", 0));
        event(500, 12, &wake(11));
        event(500, 12, &exit("write"));
        event(0, 12, &enter("poll", 3));
        event(500, 12, &to(11));
        event(500, 11, &exit("read"));
    }
    text
}

#[test]
fn the_pairs_of_a_trace_are_replayed_as_they_were_seen_to_talk() {
    let run = Run::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.jsonl");
    let path = file.to_str().unwrap();
    std::fs::write(&file, trace(40)).unwrap();
    let document = replay(&run, &[path]);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "a row a policy");
    for row in rows {
        let of = |name: &str| row["parameters"][name].clone();
        assert_eq!(
            (of("client"), of("server"), of("on")),
            (json!("read"), json!("poll"), json!("one"))
        );
        assert_eq!((of("k"), of("batch")), (json!(3), json!(1)));
        // 50 us, less the 1.29 us that the model's server takes of its own.
        assert_eq!(of("work"), json!("48710ns"));
        assert_eq!(row["measured"]["switches"], 2.0);
        let workload = row["workload"].as_str().unwrap();
        assert!(
            workload.starts_with("asker (11) asks answerer (12): "),
            "{workload}"
        );
        let missing = row["missing"].as_array().unwrap();
        let says = |what: &str| missing.iter().any(|missing| missing["what"] == what);
        assert!(
            says("requests a flush") && says("the client's policy"),
            "{row}"
        );
    }
    let screen = text(&run.output(&["replay", "roundtrip", path]).stdout);
    assert!(
        screen.contains("measured") && screen.contains("2.00 (2.00..2.00)"),
        "{screen}"
    );
    // What if the kernel were another.
    let document = replay(&run, &[path, "--keyed", "yes,no", "--policy", "linux-6.12"]);
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);

    std::fs::write(&file, trace(3)).unwrap();
    refused(&[path], &["trace.jsonl: no two threads", "stopgap record"]);
    std::fs::write(&file, "no trace").unwrap();
    refused(&[path], &["trace.jsonl: it is no trace"]);
    refused(&["/nonexistent/trace"], &["/nonexistent/trace"]);
    refused(&[path, "--work", "5us"], &["--work"]);
}
