//! `stopgap replay placement`: what it prints, what it writes, and what it refuses.

use std::time::Duration;

use crate::common::{Done, Run, has, valid};
use serde_json::Value;
use stopgap_events::workload::Workload;
use stopgap_trace::{Event, Metadata, file};

const SCHEMA: &str = "stopgap.replay-1.json";

/// The document of a replay that has nothing to say on standard error.
fn replay(run: &Run, line: &str) -> Value {
    let json = run.stopgap(format!("replay placement {line} --json"));
    valid(SCHEMA, &json.quiet())
}

/// Fails unless it is refused in one line that has all of `parts`, and writes nothing.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("replay placement {line}"), parts);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

/// The old search looks at more the more is mapped, a tree hardly does; what is not known says why.
#[test]
fn growth_over_n() {
    let run = Run::new();
    let line = "pbobench --policy linux-2.6.35,linux-3.8 --ops 3k --n 50,100,300,1k";
    let document = replay(&run, line);
    assert_eq!(document["schema"], "stopgap.replay/1");
    assert_eq!(document["interrupted"], false);
    assert_eq!(document["mail"], Value::Null);
    assert_eq!(rows(&document).len(), 8);
    let row = |policy: &str, n: u64| {
        let mut all = rows(&document).iter();
        let found = all.find(|r| r["policy"] == policy && r["n"] == n);
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
    let counts = |more: &str| -> Vec<Value> {
        let document = replay(&run, &format!("frag --n 300 --ops 2000{more}"));
        let count = |r: &Value| {
            serde_json::json!([r["policy"], r["visited"], r["maps"], r["span_over_live"]])
        };
        rows(&document).iter().map(count).collect()
    };
    let first = counts("");
    assert_eq!(first, counts(""));
    assert_ne!(first, counts(" --seed 2"));
    let records = run.records();
    assert!(!records.is_empty());
    for record in records {
        valid(SCHEMA, &std::fs::read_to_string(record).unwrap());
    }
}

/// All forms of a workload by one word; who lacks something says so and has no figures.
#[test]
fn words_for_several_and_what_is_lacking() {
    let run = Run::new();
    let document = replay(&run, "freegap --ops 500 --policy linux-3.8");
    let forms: Vec<&Value> = rows(&document).iter().map(|r| &r["workload"]).collect();
    assert_eq!(
        forms,
        ["freegap-posted", "freegap-innermprot", "freegap-innerremap"]
    );
    // A trace that only changes protections maps nothing.
    assert_eq!(rows(&document)[1]["work_per_map"], Value::Null);
    assert!(number(&rows(&document)[1]["propagated"]) > 0.0);

    let document = replay(&run, "limits --n 200 --ops 400 --policy linux-3.4");
    assert_eq!(document["rows"][0]["lacks"], "limits of a request");
    assert_eq!(document["rows"][0]["ns_per_operation"], Value::Null);
    let up = replay(&run, "tight --n 200 --ops 400 --direction bottom-up");
    assert!(rows(&up).len() > 10);
}

#[test]
fn tables_are_for_people() {
    let run = Run::new();
    let screen = run
        .stopgap("replay placement pbobench --n 10,20,40 --ops 500")
        .ok()
        .out;
    has(
        &screen,
        &["work/map", "over N", "linux-6.12", "driver", "record "],
    );
    assert!(!screen.contains("mail 000"), "{screen}");
}

/// What the command says by default of `input` on these policies: the screen, and the record's rows.
fn by_default(input: &str, policies: &str) -> (String, Vec<Value>) {
    let run = Run::new();
    let done = run
        .stopgap(format!("replay placement {input} --policy {policies}"))
        .ok();
    let record = valid(SCHEMA, &std::fs::read_to_string(&run.records()[0]).unwrap());
    // As one line, wherever the screen wraps.
    let screen: Vec<&str> = done.out.split_whitespace().collect();
    (screen.join(" "), rows(&record).to_vec())
}

/// Mail 003: keeping the gaps right makes each round of freegap slower, 0.80 -> 1.71 s. Both policies are on one structure, so
/// that the price is steps: none against millions. At the command's own size.
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
        let mail = |row: &Value| number(&row["mail_003"]["elapsed_s"]);
        assert!(mail(after) > mail(before), "{before} {after}");
    }
    assert_eq!(
        screen.matches("mail 003: van-riel-v1").count(),
        3,
        "{screen}"
    );
}

/// Mail 003: agua's loop takes 294 ms without the tree and 38 with it, in one unit: nodes. At the command's own size, where
/// each loop is a sample; there is no chance in agua.
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
    assert_eq!(old["mail_003"]["loops"]["avg_ms"], 294.0);
    let work = |row: &Value| number(&row["work_per_map"]);
    assert!(work(old) > 2.0 * work(tree), "{rows:?}");
    has(
        &screen,
        &["mail 003: van-riel-v1", "mail 003 - 6.00 294 609 113"],
    );
}

/// Mail 000 took resets of the cache for the cause of nearly half of the scans; most scan without one.
#[test]
fn most_full_scans_come_without_a_reset() {
    let (screen, rows) = by_default("pbobench", "linux-2.6.35");
    let share = |row: &Value, what: &str| number(&row[what]) / number(&row["maps"]);
    for row in rows.iter().filter(|row| row["maps"].as_u64() > Some(2_000)) {
        let (scans, resets) = (share(row, "full_scans"), share(row, "resets"));
        let (all, few) = (
            (0.74..0.84).contains(&scans),
            (0.16..0.24).contains(&resets),
        );
        assert!(all && few, "{row}");
    }
    let parts = [
        "full scans for another reason than a reset are the larger cause",
        "maps that N scan from the base",
    ];
    has(&screen, &parts);
}

/// A trace file of `frag` in the run's folder.
fn frag_trace(run: &Run) -> Vec<u8> {
    let mut writer = file::Writer::new(Vec::new()).unwrap();
    for (index, event) in (0..).zip(Workload::Frag.events(300, 2_000, 1)) {
        writer.write(&Event::of_workload(index, event)).unwrap();
    }
    let trace = writer.finish(&Metadata::default()).unwrap();
    run.write("frag.parquet", &trace);
    trace
}

/// A workload and its trace give the same operations and the same visits.
#[test]
fn a_trace_is_replayed_as_what_it_was_recorded_from() {
    let run = Run::new();
    frag_trace(&run);
    let trace = replay(&run, "frag.parquet --policy linux-3.8,best-fit");
    let workload = replay(&run, "frag --n 300 --ops 2000 --policy linux-3.8,best-fit");
    assert_eq!(rows(&trace).len(), 2);
    for (a, b) in rows(&trace).iter().zip(rows(&workload)) {
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
}

#[test]
fn figures_that_make_no_sense() {
    let run = Run::new();
    for (line, parts) in [
        ("gpu", &["'gpu'", "pbobench", "tight", "no such file"][..]),
        ("frag --policy frist-fit", &["'frist-fit'", "linux-3.8"]),
        ("frag --n 0", &["N of 0"]),
        ("frag --ops 0", &["--ops 0"]),
        ("frag --ops 99999999999999", &["at most 100,000,000"]),
        ("frag --n 99g", &["67,108,864"]),
        ("frag --n 60m", &["--memory", "--policy", "60,000,000"]),
        ("frag --n 1m --memory 1M", &["--memory"]),
        ("frag --n 99999999999999999999", &["no count"]),
        ("frag --n many", &["'many' is no count"]),
        ("freegap --n 5", &["leave out --n"]),
        ("frag --direction up", &["'up'", "bottom-up"]),
        ("frag --pid 7", &["frag is a workload", "--pid"]),
        ("", &["WORKLOAD|TRACE"]),
    ] {
        refused(&run, line, parts);
    }
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
    for (name, lines, parts) in [
        (
            "double",
            &[header, map, unmap, unmap][..],
            &["line 4", "not mapped"][..],
        ),
        ("twice", &[header, map, map], &["line 3", "mapped already"]),
        ("huge", &[header, &huge], &["line 2", "larger than"]),
        (
            "more",
            &[header, mark, map, mark, &more],
            &["line 5", "more of 3"],
        ),
        (
            "layout",
            &[header, layout, map, unmap],
            &["all of it is layout"],
        ),
        ("none", &[header, &none], &["line 2", "0 bytes"]),
        ("empty", &[header], &["no map"]),
        ("noise", &["not a trace"], &["it is no trace"]),
        ("bytes", &[&bytes, map, unmap], &["more than 2^44 pages"]),
        ("crossed", &[&crossed, map, unmap], &["crossed"]),
    ] {
        run.write(name, lines.join("\n") + "\n");
        refused(&run, name, &[&[name], parts].concat());
    }
    run.write("good", [header, map, unmap].join("\n") + "\n");
    refused(&run, "good --n 5", &["good", "leave out --n"]);
    refused(&run, ".", &["directory"]);
    let whole = frag_trace(&run);
    for length in [4, 100, whole.len() / 2, whole.len() - 1] {
        run.write("cut", &whole[..length]);
        refused(&run, "cut", &["cut"]);
    }
}

/// The screen and the record name what a trace has lost.
#[test]
fn lost_events_are_in_the_record() {
    let run = Run::new();
    let lines = [
        r#"{"schema":"stopgap.trace/1","losses":[{"what":"cpu 0","count":1500},{"what":"cpu 1","count":1}]}"#,
        r#"{"time_ns":1,"kind":"map","id":3,"length_bytes":4096,"protection":"write","merge":"never"}"#,
    ];
    run.write("lossy", lines.join("\n") + "\n");
    let done = run.stopgap("replay placement lossy --policy stopgap --json");
    has(&done.err, &["1,501 events were lost"]);
    let document = done.document(SCHEMA);
    let missing = document["rows"][0]["missing"].as_array().unwrap();
    let lost =
        |m: &Value| m["what"] == "1,501 events" && m["why"].as_str().unwrap().contains("lost");
    assert!(missing.iter().any(lost), "{missing:?}");
}

/// The command does not wait for a pipe.
#[test]
fn a_trace_that_is_no_file() {
    let run = Run::new();
    let made = std::process::Command::new("mkfifo")
        .arg(run.path("pipe"))
        .status();
    assert!(made.unwrap().success());
    for path in ["pipe", "/dev/zero"] {
        refused(&run, path, &[path, "a pipe or a device"]);
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

/// A reader that goes away has seen enough, and the record is there.
#[test]
fn a_closed_pipe() {
    let run = Run::new();
    let mut started = run.start("replay placement frag --n 100 --ops 500 --json");
    drop(started.child.stdout.take());
    started.end().quiet();
    assert_eq!(run.records().len(), 1);
}

/// Ctrl-C reports what was done until then.
#[test]
fn an_interrupt_loses_nothing() {
    let run = Run::new();
    let started = run.start("replay placement frag --ops 100m --policy stopgap --json");
    let done: Done = started.interrupt_after(Duration::from_millis(1_500));
    let document = done.document(SCHEMA);
    assert_eq!(document["interrupted"], true);
    let row = &document["rows"][0];
    assert!(number(&row["operations"]) > 1_000.0, "{row}");
    assert!(number(&row["ns_per_operation"]) > 0.0, "{row}");
}

/// What a recorded program asked of its memory map: calls of one process, beside any other events of the trace.
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
    run.write("calls", lines);
    let both = [
        "800 prog800 (301 calls)",
        "801 prog801 (200 calls)",
        "--pid",
    ];
    refused(&run, "calls", &both);
    refused(&run, "calls --pid 7", &["process 7", "800 prog800"]);

    let done = run.stopgap("replay placement calls --pid 800 --policy stopgap --json");
    let said = [
        "301 memory calls of process 800 (prog800)",
        "not replayed as it was: 1 unmaps",
    ];
    has(&done.err, &said);
    let document = done.document(SCHEMA);
    let row = &document["rows"][0];
    assert_eq!(row["operations"], 300);
    let missing = ["1 unmaps, moves or protections", "what was mapped before"];
    has(&row["missing"].to_string(), &missing);
}
