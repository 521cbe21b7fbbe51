//! `stopgap explain`: the screen, the document and its schema, damaged traces.

use std::fmt::Write as _;

use crate::common::{Run, has};
use serde_json::Value;

/// Round trips of a client and a server on one CPU, as JSON lines: two switches each, and at last an mmap of 40 ms.
fn trace(trips: u64) -> String {
    let mut lines =
        String::from("{\"schema\":\"stopgap.trace/1\",\"clock\":\"monotonic\",\"losses\":[]}\n");
    let mut now = 1_000_u64;
    let mut event = |tid: u32, comm: &str, rest: &str| {
        now += 2_000;
        let cpu = 0;
        writeln!(
            lines,
            "{{\"time_ns\":{now},\"cpu\":{cpu},\"tid\":{tid},\"comm\":\"{comm}\",{rest}}}"
        )
        .unwrap();
    };
    let enter = |call: &str| {
        format!(
            "\"kind\":\"syscall-enter\",\"syscall\":1,\"syscall_name\":\"{call}\",\"argument0\":5"
        )
    };
    let exit = |call: &str| {
        format!("\"kind\":\"syscall-exit\",\"syscall\":1,\"syscall_name\":\"{call}\",\"result\":8")
    };
    let to = |state: &str, next: u32| {
        format!("\"kind\":\"switch\",\"state\":\"{state}\",\"next_tid\":{next}")
    };
    let wake = |whom: u32| format!("\"kind\":\"waking\",\"target_tid\":{whom}");
    event(0, "swapper", &to("R", 11));
    for _ in 0..trips {
        event(11, "asker", &enter("write"));
        event(11, "asker", &wake(12));
        event(11, "asker", &exit("write"));
        event(11, "asker", &enter("read"));
        event(11, "asker", &to("S", 12));
        event(12, "answerer", &exit("epoll_wait"));
        event(12, "answerer", &enter("write"));
        event(12, "answerer", &wake(11));
        event(12, "answerer", &exit("write"));
        event(12, "answerer", &enter("epoll_wait"));
        event(12, "answerer", &to("S", 11));
        event(11, "asker", &exit("read"));
    }
    event(11, "asker", &enter("mmap"));
    now += 40_000_000;
    let last = format!("\"tid\":11,\"comm\":\"asker\",{}", exit("mmap"));
    writeln!(lines, "{{\"time_ns\":{now},{last}}}").unwrap();
    lines
}

#[test]
fn the_document_has_what_scripts_rely_on() {
    let run = Run::new();
    run.write("trace.jsonl", trace(150));
    let done = run.stopgap("explain trace.jsonl --json --frame-marker read");
    let document = done.document("stopgap.explain-1.json");
    assert_eq!(document["schema"], "stopgap.explain/1");
    let switches = &document["switches"];
    assert_eq!(switches["roundtrips"], 150);
    assert_eq!(switches["total"], 300);
    assert_eq!(switches["per_roundtrip"]["p50"], 2);
    assert_eq!(switches["per_roundtrip"]["p90"], 2);
    assert_eq!(switches["frames"]["count"], 149);
    let causes = switches["causes"].as_array().unwrap();
    let counts: u64 = causes
        .iter()
        .map(|cause| cause["count"].as_u64().unwrap())
        .sum();
    assert_eq!(counts, 300);
    assert_eq!(causes[0]["task"], "answerer");
    assert_eq!(causes[0]["cause"], "blocked in epoll_wait");
    assert_eq!(document["slow"][0]["call"], "mmap");
    assert_eq!(document["losses"]["lost"], 0);
    assert!(document["memory"].is_object() && document["advice"].is_array());
}

#[test]
fn the_screen_and_top() {
    let run = Run::new();
    run.write("trace.jsonl", trace(20));
    let screen = run.stopgap("explain trace.jsonl").out;
    let parts = [
        "stalls: 1 operation",
        "SWITCHES",
        "asker",
        "blocked in read",
        "UNKNOWN",
    ];
    has(&screen, &parts);
    let document = run.stopgap("explain trace.jsonl --json --top 0").out;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["slow"], Value::Array(Vec::new()));
}

#[test]
fn a_damaged_trace_is_explained_as_far_as_it_goes() {
    let run = Run::new();
    let whole = trace(20);
    run.write("trace.jsonl", &whole[..whole.len() - 30]);
    let done = run.stopgap("explain trace.jsonl --json").ends(1);
    has(&done.err, &["line 244"]);
    assert_eq!(done.err.trim_end().lines().count(), 1, "{done:#?}");
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(document["verdict"]["word"], "inconclusive");
    assert_eq!(document["switches"]["roundtrips"], 20);
    for (content, parts) in [
        ("", &["trace.jsonl: it is empty"][..]),
        (
            "no trace",
            &["trace.jsonl: it is no trace: neither Parquet, nor"],
        ),
        ("{no trace", &["trace.jsonl: line 1: "]),
        (
            "PAR1 cut off",
            &["stopgap record --recover", "none of it can be read"],
        ),
    ] {
        run.write("trace.jsonl", content);
        run.refuses("explain trace.jsonl", parts);
    }
}

/// As they are: no step between `perf script > file` and this.
#[test]
fn text_of_other_tools_is_a_trace() {
    let texts = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/fixtures/text");
    let run = Run::new();
    for (name, source) in [
        ("perf.txt", "text of perf script"),
        ("trace-cmd.txt", "text of ftrace"),
    ] {
        let document = run
            .stopgap(format!("explain {texts}/{name} --json"))
            .ok()
            .out;
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(document["trace"]["source"], source);
        let causes = document["switches"]["causes"].as_array().unwrap();
        assert!(
            causes.iter().any(|cause| cause["call"] == "read"),
            "{causes:?}"
        );
    }
    let text = "a-7 [000] 1.000001: sched_process_exit: comm=a pid=7 prio=1\nwhat is this\n";
    run.write("trace.jsonl", text);
    let done = run.stopgap("explain trace.jsonl").ends(1);
    has(&done.err, &["trace.jsonl: line 2: neither an event"]);
}
