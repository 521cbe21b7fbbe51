//! `stopgap replay placement`: Ctrl-C, and traces that it refuses.

use std::time::Duration;

use crate::common::{Run, has};
use serde_json::Value;
use stopgap_events::workload::Workload;
use stopgap_trace::{Event, Metadata, file};

const SCHEMA: &str = "stopgap.replay-1.json";

/// Fails unless it is refused in one line that has all of `parts`, and writes nothing.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("replay placement {line}"), parts);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_trace_that_makes_no_sense_names_file_row_and_reason() {
    let run = Run::new();
    let header = r#"{"schema":"stopgap.trace/1"}"#;
    let map = r#"{"time_ns":1,"kind":"map","id":3,"length_bytes":4096,"protection":"write","merge":"never"}"#;
    let unmap = r#"{"time_ns":2,"kind":"unmap","id":3}"#;
    let huge = map.replace("4096", "18446744073709551615");
    // An error names the line of an event, not its number among the mappings' events.
    let mark = r#"{"time_ns":1,"kind":"mark","name":"frame"}"#;
    let more = map.replace("map", "protect").replace("4096", "4097");
    let layout = r#"{"time_ns":0,"kind":"begin","phase":"layout"}"#;
    let none = map.replace("4096", "0");
    let with = |text: &str| header.replace('}', &format!(",{text}}}"));
    let bytes = with(r#""page_size":1,"window":{"start":0,"end":281474976710656}"#);
    let crossed = with(r#""window":{"start":8192,"end":4096}"#);
    for (lines, parts) in [
        (&[header, map, map][..], &["line 3", "mapped already"][..]),
        (&[header, &huge], &["line 2", "larger than"]),
        (&[header, mark, map, mark, &more], &["line 5", "more of 3"]),
        (&[header, layout, map, unmap], &["all of it is layout"]),
        (&[header, &none], &["line 2", "0 bytes"]),
        (&[header], &["no map"]),
        (&[&bytes, map, unmap], &["more than 2^44 pages"]),
        (&[&crossed, map, unmap], &["crossed"]),
    ] {
        run.write("bad", lines.join("\n") + "\n");
        refused(&run, "bad", &[&["bad"], parts].concat());
    }
    let mut writer = file::Writer::new(Vec::new()).unwrap();
    for (index, event) in (0..).zip(Workload::Frag.events(300, 2_000, 1)) {
        writer.write(&Event::of_workload(index, event)).unwrap();
    }
    let whole = writer.finish(&Metadata::default()).unwrap();
    for length in [4, 100, whole.len() / 2, whole.len() - 1] {
        run.write("cut", &whole[..length]);
        refused(&run, "cut", &["cut"]);
    }
    // Nobody can look there: that says something else than that there is none.
    let below_a_file = "/proc/self/status/trace.parquet";
    refused(&run, below_a_file, &[below_a_file, "Not a directory"]);
}

/// Ctrl-C while a scene is laid out, and while a long trace is read for the first time, in which no policy has anything to do:
/// there is nothing to report.
#[test]
fn an_interrupt_before_anything_is_measured() {
    let run = Run::new();
    let mark = "{\"time_ns\":1,\"kind\":\"mark\",\"name\":\"frame\"}\n";
    run.write("marks.jsonl", mark.repeat(3_000_000));
    for line in ["marks.jsonl", "frag --n 6m --policy stopgap --memory 3G"] {
        let started = run.start(&format!("replay placement {line}"));
        let done = started.interrupt_after(Duration::from_millis(200)).ends(1);
        has(&done.err, &["interrupted before"]);
        assert!(run.records().is_empty(), "{line}");
    }
}

/// Ctrl-C reports what was done until then.
#[test]
fn an_interrupt_loses_nothing() {
    let run = Run::new();
    let started = run.start("replay placement frag --ops 100m --policy stopgap --json");
    let done = started.interrupt_after(Duration::from_millis(1_500));
    let document = done.document(SCHEMA);
    assert_eq!(document["interrupted"], true);
    let row = &document["rows"][0];
    assert!(number(&row["operations"]) > 1_000.0, "{row}");
    assert!(number(&row["ns_per_operation"]) > 0.0, "{row}");
}
