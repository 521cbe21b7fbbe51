//! `stopgap replay placement`: what it prints, what it writes, and what it refuses.

use std::path::Path;
use std::process::Stdio;

use crate::common::{Run, text};
use serde_json::Value;
use stopgap_events::workload::Workload;
use stopgap_trace::{Event, Metadata, file};

/// Fails unless the document fits the schema that is checked in.
fn valid(json: &str) -> Value {
    crate::common::valid("stopgap.replay-1.json", json)
}

fn replay(run: &Run, words: &[&str]) -> Value {
    let words = [&["replay", "placement"], words, &["--json"]].concat();
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    valid(&text(&output.stdout))
}

/// Fails with one line on standard error that has all of `words`, and nothing is written.
fn refused(words: &[&str], expected: &[&str]) {
    let run = Run::new();
    let arguments = [&["replay", "placement"], words].concat();
    let output = run.output(&arguments);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{words:?}: {line}");
    for word in expected {
        assert!(line.contains(word), "{words:?}: no '{word}' in: {line}");
    }
    assert_eq!(text(&output.stdout), "", "{words:?}");
    assert!(run.records().is_empty(), "{words:?}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// The old search looks at more the more is mapped, a tree hardly does; what is not known says why.
#[test]
fn growth_over_n() {
    let run = Run::new();
    let words = ["pbobench", "--policy", "linux-2.6.35,linux-3.8", "--ops"];
    let words = [&words[..], &["3k", "--n", "50,100,300,1k"]].concat();
    let document = replay(&run, &words);
    assert_eq!(document["schema"], "stopgap.replay/1");
    assert_eq!(document["interrupted"], false);
    assert_eq!(document["mail"], Value::Null);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    let row = |policy: &str, n: u64| {
        let found = rows.iter().find(|r| r["policy"] == policy && r["n"] == n);
        found.unwrap_or_else(|| panic!("{policy} at {n}"))
    };
    let old = row("linux-2.6.35", 1_000);
    let share = number(&old["visited"]) / number(&old["maps"]) / 1_000.0;
    assert!((0.36..0.50).contains(&share), "{share}");
    let tree = row("linux-3.8", 1_000);
    assert_eq!(tree["stopped"], Value::Null);
    assert_eq!(tree["operations"], 3_000);
    // Too few for a p99.99: unknown, with its reason, and not 0.
    assert_eq!(tree["p9999_ns"], Value::Null);
    let missing = tree["missing"].as_array().unwrap();
    assert!(missing.iter().any(|m| m["what"] == "p9999_ns"), "{tree}");
    assert!(number(&tree["worst_ns"]) > 0.0);
    assert!(number(&tree["bytes_per_range"]) > 8.0);
    assert!(number(&tree["span_over_live"]) >= 1.0);

    let growth = document["growth"].as_array().unwrap();
    let of = |policy: &str| {
        let same = |g: &&Value| g["policy"] == policy && g["quantity"] == "work_per_map";
        growth.iter().find(same).unwrap()
    };
    assert_eq!(of("linux-2.6.35")["word"], "grows");
    let exponent = number(&of("linux-2.6.35")["exponent"]["value"]);
    // N visits, each through a tree as deep as the logarithm of N.
    assert!((0.85..1.3).contains(&exponent), "{exponent}");
    assert_ne!(of("linux-3.8")["word"], "grows");
    assert_eq!(growth.len(), 4);
}

#[test]
fn the_same_seed_counts_the_same_and_the_record_is_what_is_printed() {
    let run = Run::new();
    let words = ["frag", "--n", "300", "--ops", "2000"];
    let counts = |document: &Value| -> Vec<Value> {
        let rows = document["rows"].as_array().unwrap().iter();
        rows.map(|r| serde_json::json!([r["policy"], r["visited"], r["maps"], r["span_over_live"]]))
            .collect()
    };
    let first = replay(&run, &words);
    assert_eq!(counts(&first), counts(&replay(&run, &words)));
    let other = replay(&run, &[&words[..], &["--seed", "2"]].concat());
    assert_ne!(counts(&first), counts(&other));
    let records = run.records();
    assert!(!records.is_empty());
    for record in records {
        valid(&std::fs::read_to_string(record).unwrap());
    }
}

/// All forms of a workload by one word; who lacks something says so and has no figures.
#[test]
fn words_for_several_and_what_is_lacking() {
    let run = Run::new();
    let document = replay(&run, &["freegap", "--ops", "500", "--policy", "linux-3.8"]);
    let rows = document["rows"].as_array().unwrap();
    let workloads: Vec<&str> = rows
        .iter()
        .map(|r| r["workload"].as_str().unwrap())
        .collect();
    let forms = ["freegap-posted", "freegap-innermprot", "freegap-innerremap"];
    assert_eq!(workloads, forms);
    // Nothing is mapped where protections change alone.
    assert_eq!(rows[1]["work_per_map"], Value::Null);
    assert!(number(&rows[1]["propagated"]) > 0.0);

    let limits = [
        "limits",
        "--n",
        "200",
        "--ops",
        "400",
        "--policy",
        "linux-3.4",
    ];
    let document = replay(&run, &limits);
    let row = &document["rows"][0];
    assert_eq!(row["lacks"], "limits of a request");
    assert_eq!(row["ns_per_operation"], Value::Null);
    let up = replay(
        &run,
        &[
            "tight",
            "--n",
            "200",
            "--ops",
            "400",
            "--direction",
            "bottom-up",
        ],
    );
    assert!(up["rows"].as_array().unwrap().len() > 10);
}

#[test]
fn tables_are_for_people() {
    let run = Run::new();
    let words = [
        "replay",
        "placement",
        "pbobench",
        "--n",
        "10,20,40",
        "--ops",
        "500",
    ];
    let output = run.output(&words);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for word in ["work/map", "over N", "linux-6.12", "driver", "record "] {
        assert!(screen.contains(word), "no '{word}' in\n{screen}");
    }
    assert!(!screen.contains("mail 000"), "{screen}");
}

/// What the command says by default of `input` on these policies: the screen, and the record's rows.
fn by_default(input: &str, policies: &str) -> (String, Vec<Value>) {
    let run = Run::new();
    let output = run.output(&["replay", "placement", input, "--policy", policies]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let record = std::fs::read_to_string(&run.records()[0]).unwrap();
    let rows = valid(&record)["rows"].as_array().unwrap().clone();
    // As one line, wherever the screen wraps.
    let screen = text(&output.stdout);
    (
        screen.split_whitespace().collect::<Vec<_>>().join(" "),
        rows,
    )
}

/// Mail 003: keeping the gaps right makes each round of freegap slower, 0.80 -> 1.71 s. Both policies are on one
/// structure, so that time follows the steps. At the command's own size.
#[test]
fn freegap_costs_more_with_gaps_kept_as_in_mail_003() {
    let (screen, rows) = by_default("freegap", "linux-3.4,van-riel-v1");
    assert_eq!(rows.len(), 6);
    for pair in rows.chunks(2) {
        let [before, after] = pair else {
            unreachable!()
        };
        assert_eq!(before["operations"], 1_000_000);
        assert_eq!(before["propagated"], 0);
        assert!(number(&after["propagated"]) > 5e6, "{after}");
        let ns = |row: &Value| number(&row["ns_per_operation"]);
        assert!(ns(after) > 1.1 * ns(before), "{before} {after}");
        let mail = |row: &Value| number(&row["mail_003"]["elapsed_s"]);
        assert!(mail(after) > mail(before), "{before} {after}");
    }
    assert_eq!(
        screen.matches("agrees with mail 003: van-riel-v1").count(),
        3,
        "{screen}"
    );
    assert!(!screen.contains("differs"), "{screen}");
}

/// Mail 003: agua's loop takes 294 ms without the tree and 38 with it. At the command's own size, where each loop is a
/// sample; there is no chance in agua.
#[test]
fn agua_is_slower_without_the_tree_as_in_mail_003() {
    let (screen, rows) = by_default("agua", "linux-3.4,van-riel-v1");
    let [old, tree] = &rows[..] else {
        panic!("{rows:?}")
    };
    for row in [old, tree] {
        assert_eq!(row["stopped"], Value::Null);
        assert!(row["loops"]["count"].as_u64() >= Some(200), "{row}");
    }
    let loops = |row: &Value, what: &str| number(&row["loops"][what]);
    assert!(
        loops(old, "avg_ms") > 2.0 * loops(tree, "avg_ms"),
        "{rows:?}"
    );
    assert!(
        loops(old, "max_ms") > 2.0 * loops(tree, "max_ms"),
        "{rows:?}"
    );
    assert!(loops(old, "sd_ms") > loops(tree, "sd_ms"), "{rows:?}");
    assert_eq!(old["mail_003"]["loops"]["avg_ms"], 294.0);
    // In one unit: nodes.
    let work = |row: &Value| number(&row["work_per_map"]);
    assert!(work(old) > 2.0 * work(tree), "{rows:?}");
    for words in [
        "agrees with mail 003: van-riel-v1",
        "sd exceeds 10",
        "mail 003 - 6.00 294 609 113",
    ] {
        assert!(screen.contains(words), "no '{words}' in {screen}");
    }
}

/// Mail 000 took resets of the cache for the cause of nearly half of the scans; most scan without one.
#[test]
fn most_full_scans_come_without_a_reset() {
    let (screen, rows) = by_default("pbobench", "linux-2.6.35");
    let share = |row: &Value, what: &str| number(&row[what]) / number(&row["maps"]);
    for row in rows.iter().filter(|row| row["maps"].as_u64() > Some(2_000)) {
        let (scans, resets) = (share(row, "full_scans"), share(row, "resets"));
        assert!(
            (0.74..0.84).contains(&scans) && (0.16..0.24).contains(&resets),
            "{row}"
        );
    }
    for words in [
        "full scans for another reason than a reset are the larger cause",
        "maps that N scan from the base",
    ] {
        assert!(screen.contains(words), "no '{words}' in {screen}");
    }
}

#[test]
fn figures_that_make_no_sense() {
    refused(&["gpu"], &["'gpu'", "pbobench", "tight", "no such file"]);
    refused(
        &["frag", "--policy", "frist-fit"],
        &["'frist-fit'", "linux-3.8"],
    );
    refused(&["frag", "--n", "0"], &["N of 0"]);
    refused(&["frag", "--ops", "0"], &["--ops 0"]);
    refused(
        &["frag", "--ops", "99999999999999"],
        &["at most 100,000,000"],
    );
    refused(&["frag", "--n", "99g"], &["67,108,864"]);
    refused(
        &["frag", "--n", "60m"],
        &["--memory", "--policy", "60,000,000"],
    );
    refused(&["frag", "--n", "1m", "--memory", "1M"], &["--memory"]);
    refused(&["frag", "--n", "99999999999999999999"], &["no count"]);
    refused(&["frag", "--n", "many"], &["'many' is no count"]);
    refused(&["freegap", "--n", "5"], &["leave out --n"]);
    refused(&["frag", "--direction", "up"], &["'up'", "bottom-up"]);
    refused(&[], &["WORKLOAD|TRACE"]);
}

/// A trace file of `frag` in `folder`.
fn frag_trace(folder: &Path) -> std::path::PathBuf {
    let mut writer = file::Writer::new(Vec::new()).unwrap();
    for (index, event) in (0..).zip(Workload::Frag.events(300, 2_000, 1)) {
        writer.write(&Event::of_workload(index, event)).unwrap();
    }
    let path = folder.join("frag.parquet");
    std::fs::write(&path, writer.finish(&Metadata::default()).unwrap()).unwrap();
    path
}

/// What a workload does, its trace does: the same operations, the same visits.
#[test]
fn a_trace_is_replayed_as_what_it_was_recorded_from() {
    let run = Run::new();
    let path = frag_trace(run.directory.path());
    let policies = ["--policy", "linux-3.8,best-fit"];
    let trace = replay(&run, &[&[path.to_str().unwrap()], &policies[..]].concat());
    let words = ["frag", "--n", "300", "--ops", "2000"];
    let workload = replay(&run, &[&words[..], &policies[..]].concat());
    for (a, b) in trace["rows"]
        .as_array()
        .unwrap()
        .iter()
        .zip(workload["rows"].as_array().unwrap())
    {
        assert_eq!(a["n"], Value::Null);
        for field in [
            "policy",
            "operations",
            "maps",
            "visited",
            "live",
            "span_over_live",
        ] {
            assert_eq!(a[field], b[field], "{field}");
        }
    }
    assert_eq!(trace["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn a_trace_that_makes_no_sense_names_file_row_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |name: &str, lines: &[&str]| {
        let path = folder.path().join(name);
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let header = r#"{"schema":"stopgap.trace/1"}"#;
    let map = r#"{"time_ns":1,"kind":"map","id":3,"length_bytes":4096,"protection":"write","merge":"never"}"#;
    let unmap = r#"{"time_ns":2,"kind":"unmap","id":3}"#;

    let path = lines("double.jsonl", &[header, map, unmap, unmap]);
    refused(&[&path], &["double.jsonl", "line 4", "not mapped"]);
    let path = lines("twice.jsonl", &[header, map, map]);
    refused(&[&path], &["twice.jsonl", "line 3", "mapped already"]);
    let huge = map.replace("4096", "18446744073709551615");
    let path = lines("huge.jsonl", &[header, &huge]);
    refused(&[&path], &["huge.jsonl", "line 2", "larger than"]);
    // Of events between which others stand, the line is told, not which of the mappings' it is.
    let mark = r#"{"time_ns":1,"kind":"mark","name":"frame"}"#;
    let more = map.replace("map", "protect").replace("4096", "4097");
    let path = lines("more.jsonl", &[header, mark, map, mark, &more]);
    refused(&[&path], &["more.jsonl", "line 5", "more of 3"]);
    let layout = r#"{"time_ns":0,"kind":"begin","phase":"layout"}"#;
    let path = lines("layout.jsonl", &[header, layout, map, unmap]);
    refused(&[&path], &["layout.jsonl", "all of it is layout"]);
    let none = map.replace("4096", "0");
    let path = lines("none.jsonl", &[header, &none]);
    refused(&[&path], &["none.jsonl", "line 2", "0 bytes"]);
    let path = lines("empty.jsonl", &[header]);
    refused(&[&path], &["empty.jsonl", "no map"]);
    let path = lines("noise.jsonl", &["not a trace"]);
    refused(&[&path], &["noise.jsonl", "it is no trace"]);
    let path = lines("good.jsonl", &[header, map, unmap]);
    refused(&[&path, "--n", "5"], &["good.jsonl", "leave out --n"]);
    refused(&[folder.path().to_str().unwrap()], &["directory"]);
    let window = |text: &str| header.replace('}', &format!(",{text}}}"));
    let bytes = window(r#""page_size":1,"window":{"start":0,"end":281474976710656}"#);
    let path = lines("bytes.jsonl", &[&bytes, map, unmap]);
    refused(&[&path], &["bytes.jsonl", "more than 2^44 pages"]);
    let crossed = window(r#""window":{"start":8192,"end":4096}"#);
    let path = lines("crossed.jsonl", &[&crossed, map, unmap]);
    refused(&[&path], &["crossed.jsonl", "crossed"]);

    let whole = std::fs::read(frag_trace(folder.path())).unwrap();
    let cut = folder.path().join("cut.parquet");
    for length in [4, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        refused(&[cut.to_str().unwrap()], &["cut.parquet"]);
    }
}

/// What a trace has lost is said, and stands in the record.
#[test]
fn lost_events_are_in_the_record() {
    let run = Run::new();
    let lines = [
        r#"{"schema":"stopgap.trace/1","losses":[{"what":"cpu 0","count":1500},{"what":"cpu 1","count":1}]}"#,
        r#"{"time_ns":1,"kind":"map","id":3,"length_bytes":4096,"protection":"write","merge":"never"}"#,
    ];
    let path = run.directory.path().join("lossy.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let path = path.to_str().unwrap();
    let words = ["replay", "placement", path, "--policy", "stopgap", "--json"];
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("1,501 events were lost"));
    let document = valid(&text(&output.stdout));
    let missing = document["rows"][0]["missing"].as_array().unwrap();
    let lost =
        |m: &Value| m["what"] == "1,501 events" && m["why"].as_str().unwrap().contains("lost");
    assert!(missing.iter().any(lost), "{missing:?}");
}

/// What is not a file is not waited for.
#[test]
fn a_trace_that_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [pipe.to_str().unwrap(), "/dev/zero"] {
        refused(&[path], &[path, "a pipe or a device"]);
    }
    // Nobody can look there: that says something else than that there is none.
    let below_a_file = "/proc/self/status/trace.parquet";
    refused(&[below_a_file], &[below_a_file, "Not a directory"]);
}

/// Ctrl-C while a scene is laid out, and while a long trace is read for the first time, in which no policy
/// has anything to do: there is nothing to report.
#[test]
fn an_interrupt_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks.jsonl");
    let marks = "{\"time_ns\":1,\"kind\":\"mark\",\"name\":\"frame\"}\n".repeat(3_000_000);
    std::fs::write(&path, marks).unwrap();
    let trace = [path.to_str().unwrap()];
    let layout = ["frag", "--n", "6m", "--policy", "stopgap", "--memory", "3G"];
    for words in [&trace[..], &layout] {
        let run = Run::new();
        let child = run
            .command(&[&["replay", "placement"], words].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let pid = child.id().to_string();
        let kill = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        let line = text(&output.stderr);
        assert!(line.contains("interrupted before"), "{words:?}: {line}");
        assert!(run.records().is_empty(), "{words:?}");
    }
}

/// A reader that goes away has seen enough, and the record is there.
#[test]
fn a_closed_pipe() {
    let run = Run::new();
    let words = [
        "replay",
        "placement",
        "frag",
        "--n",
        "100",
        "--ops",
        "500",
        "--json",
    ];
    let mut child = run
        .command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(run.records().len(), 1);
}

/// Ctrl-C reports what was done until then.
#[test]
fn an_interrupt_loses_nothing() {
    let run = Run::new();
    let words = [
        "replay",
        "placement",
        "frag",
        "--ops",
        "100m",
        "--policy",
        "stopgap",
        "--json",
    ];
    let child = run
        .command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document = valid(&text(&output.stdout));
    assert_eq!(document["interrupted"], true);
    let row = &document["rows"][0];
    assert!(number(&row["operations"]) > 1_000.0, "{row}");
    assert!(number(&row["ns_per_operation"]) > 0.0, "{row}");
}

/// What a recorded program asked of its memory map: calls of one process, whatever else is in the trace.
#[test]
fn a_recorded_program_is_replayed() {
    let run = Run::new();
    let call = |time: u64, pid: u32, name: &str, arguments: [u64; 4], result: i64| {
        let [a, b, c, d] = arguments;
        let head = format!(
            r#""pid":{pid},"tid":{pid},"comm":"prog{pid}","syscall":1,"syscall_name":"{name}""#
        );
        format!(
            "{{\"time_ns\":{time},\"kind\":\"syscall-enter\",{head},\"argument0\":{a},\"argument1\":{b},\"argument2\":{c},\"argument3\":{d}}}\n\
             {{\"time_ns\":{time},\"kind\":\"syscall-exit\",{head},\"result\":{result}}}\n"
        )
    };
    let mut lines = String::new();
    for n in 0..200_u64 {
        let start = 0x7000_0000_0000 + n * 65_536;
        let result = start.cast_signed();
        lines += &call(n, 800, "mmap", [0, 32_768, 3, 0x22], result);
        lines += &call(n, 801, "mmap", [0, 4_096, 3, 0x22], result);
        if n % 2 == 1 {
            lines += &call(n, 800, "munmap", [start - 65_536, 32_768, 0, 0], 0);
        }
    }
    lines += &call(300, 800, "munmap", [0x1000, 4_096, 0, 0], 0);
    let path = run.directory.path().join("recorded.jsonl");
    std::fs::write(&path, lines).unwrap();
    let path = path.to_str().unwrap();
    refused(
        &[path],
        &[
            "800 prog800 (301 calls)",
            "801 prog801 (200 calls)",
            "--pid",
        ],
    );
    refused(&[path, "--pid", "7"], &["process 7", "800 prog800"]);
    refused(&["frag", "--pid", "7"], &["frag is a workload", "--pid"]);

    let words = [
        "replay",
        "placement",
        path,
        "--pid",
        "800",
        "--policy",
        "stopgap",
        "--json",
    ];
    let output = run.output(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("301 memory calls of process 800 (prog800)"));
    assert!(said.contains("not replayed as it was: 1 unmaps"), "{said}");
    let document = valid(&text(&output.stdout));
    let row = &document["rows"][0];
    assert_eq!(row["operations"], 300);
    let missing = row["missing"].to_string();
    assert!(
        missing.contains("1 unmaps, moves or protections"),
        "{missing}"
    );
    assert!(missing.contains("what was mapped before"), "{missing}");
}
