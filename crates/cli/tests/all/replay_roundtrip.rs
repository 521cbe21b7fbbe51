//! `stopgap replay roundtrip`: what it prints, what stands beside it, and what it refuses.

use crate::common::{Run, has, valid};
use serde_json::{Value, json};

fn replay(run: &Run, line: &str) -> Value {
    let json = run.stopgap(format!("replay roundtrip {line} --json"));
    valid("stopgap.replay-1.json", &json.quiet())
}

/// Fails unless it is refused in one line that has all of `parts`, and writes nothing.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("replay roundtrip {line}"), parts);
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
    run.write("probe.json", record("roundtrip"));
    let document = replay(&run, "--client poll,read --work 50us --beside probe.json");
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
    let line = "replay roundtrip --policy linux-6.12 --work 0";
    let screen = run.stopgap(line).out;
    has(&screen, &["blocking-read client", "work 0s"]);
    assert!(!screen.contains("measured"), "{screen}");
    let figures = |text: &str| -> String {
        let lines = text.lines().filter(|line| !line.starts_with("record"));
        lines.collect()
    };
    assert_eq!(figures(&screen), figures(&run.stopgap(line).out));
}

#[test]
fn bad_input_says_what() {
    let run = Run::new();
    for (line, parts) in [
        (
            "--policy linux-1.0",
            &["linux-1.0", "linux-2.6.35, linux-6.12, all"][..],
        ),
        ("--batch 0", &["batch of 0", "1 to 256"]),
        ("--k 0", &["K of 0"]),
        ("--work 2s", &["at most 1 s"]),
        ("--round-trips 0", &["0 round trips"]),
        ("--beside /nonexistent/file", &["/nonexistent/file"]),
    ] {
        refused(&run, line, parts);
    }
    for (content, part) in [
        ("{".to_owned(), "not a run record"),
        (r#"{"schema": "other/1"}"#.to_owned(), "other/1"),
        (record("placement"), "stopgap probe roundtrip"),
    ] {
        run.write("file.json", content);
        refused(&run, "--beside file.json", &["file.json", part]);
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
    run.write("trace.jsonl", trace(40));
    let document = replay(&run, "trace.jsonl");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "a row a policy");
    for row in rows {
        let of = |name: &str| row["parameters"][name].clone();
        let said = [of("client"), of("server"), of("on"), of("k"), of("batch")];
        let seen = [
            json!("read"),
            json!("poll"),
            json!("one"),
            json!(3),
            json!(1),
        ];
        assert_eq!(said, seen);
        // 50 us, less the 1.29 us that the model's server takes of its own.
        assert_eq!(of("work"), json!("48710ns"));
        assert_eq!(row["measured"]["switches"], 2.0);
        has(
            row["workload"].as_str().unwrap(),
            &["asker (11) asks answerer (12): "],
        );
        let missing = row["missing"].as_array().unwrap();
        for what in ["requests a flush", "the client's policy"] {
            assert!(
                missing.iter().any(|missing| missing["what"] == what),
                "{row}"
            );
        }
    }
    let screen = run.stopgap("replay roundtrip trace.jsonl").out;
    has(&screen, &["measured", "2.00 (2.00..2.00)"]);
    // Replays the cells under another kernel's rules.
    let document = replay(&run, "trace.jsonl --keyed yes,no --policy linux-6.12");
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);

    let run = Run::new();
    run.write("trace.jsonl", trace(3));
    refused(
        &run,
        "trace.jsonl",
        &["trace.jsonl: no two threads", "stopgap record"],
    );
    run.write("trace.jsonl", "no trace");
    refused(&run, "trace.jsonl", &["trace.jsonl: it is no trace"]);
    refused(&run, "/nonexistent/trace", &["/nonexistent/trace"]);
    refused(&run, "trace.jsonl --work 5us", &["--work"]);
}
