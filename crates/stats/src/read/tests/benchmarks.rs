//! Readers of benchmark programs.

use super::*;
use proptest::prelude::*;

const CRITERION: &[u8] = include_bytes!("../../../fixtures/read/criterion-sample.json");
const GOOGLE: &[u8] = include_bytes!("../../../fixtures/read/google-benchmark.json");
const GO: &[u8] = include_bytes!("../../../fixtures/read/go-bench.txt");
const PERF_CSV: &[u8] = include_bytes!("../../../fixtures/read/perf-stat-r.csv");
const PERF_JSON: &[u8] = include_bytes!("../../../fixtures/read/perf-stat-r.json");
const PERF_APPEND: &[u8] = include_bytes!("../../../fixtures/read/perf-stat-append.csv");

fn numbers(read: &Read, name: &str) -> Vec<f64> {
    let of_all = read.runs.iter().map(|run| run.numbers[name]);
    of_all.collect()
}

fn lacks<'a>(read: &'a Read, what: &str) -> Option<&'a str> {
    let found = read.missing.iter().find(|missing| missing.what == what);
    found.map(|missing| &*missing.why)
}

fn usually_refused(text: &str) -> String {
    refused(text.as_bytes(), &Options::default())
}

#[test]
fn criterions_samples_are_times_of_an_iteration() {
    let read = usual(CRITERION);
    assert_eq!((read.format, &*read.number_unit), (Format::Criterion, "ns"));
    let times = numbers(&read, "iteration");
    assert_eq!(times.len(), 20);
    assert!((times[1] - 17_945.7 / 432.0).abs() < 1e-9);
    let with = |iters: &str, times: &str| {
        usually_refused(&format!(
            r#"{{"sampling_mode":"Flat","iters":[{iters}],"times":[{times}]}}"#
        ))
    };
    for (iters, times, says) in [
        ("1.0,2.0", "5.0", "2 numbers of iterations, and 1 times"),
        ("1.0,0.0", "5.0,5.0", "sample 2: 0 iterations took 5 ns"),
        ("1.0", "-5.0", "sample 1: 1 iterations took -5 ns"),
        ("", "", "there is no run in it"),
        ("null", "5.0", "not criterion's sample.json"),
    ] {
        let why = with(iters, times);
        assert!(why.contains(says), "'{why}' has no '{says}'");
    }
    let many = vec!["1.0"; crate::compare::MOST_RUNS + 1].join(",");
    assert!(with(&many, &many).contains("5001 samples, at most 5000"));
    assert!(refused(CRITERION, &series("a")).contains("no series 'a'"));
    // Its files beside that one.
    let why = usually_refused(r#"{"mean":{"point_estimate":5.0},"median":null}"#);
    assert!(
        why.ends_with("of criterion's files sample.json is read"),
        "{why}"
    );
}

#[test]
fn google_benchmarks_repetitions_are_runs() {
    let why = refused(GOOGLE, &Options::default());
    assert_eq!(
        why,
        "4 of benchmark, and none is chosen: 'copy/64', 'copy/4096', 'fails', 'count'"
    );
    let read = super::read(GOOGLE, &series("copy/64")).unwrap();
    assert_eq!((read.format, &*read.number_unit), (Format::Google, "ns"));
    assert_eq!(
        numbers(&read, "real time"),
        [
            12.415_141_627_080_779,
            16.778_344_463_574_822,
            17.657_623_676_859_185
        ],
        "without the aggregates"
    );
    assert_eq!(numbers(&read, "cpu time")[..1], [12.276_314_823_693_632]);
    assert!(lacks(&read, "bytes per second").is_some_and(|why| why.contains("more is better")));
    // Another unit in the file, the same one in the figures.
    let document: serde_json::Value = serde_json::from_slice(GOOGLE).unwrap();
    let entries = document["benchmarks"].as_array().unwrap();
    let said =
        |entry: &&serde_json::Value| entry["name"] == "count" && entry["run_type"] == "iteration";
    let entry = entries.iter().find(said).unwrap();
    assert_eq!(entry["time_unit"], "us");
    let count = super::read(GOOGLE, &series("count")).unwrap();
    let expected = entry["cpu_time"].as_f64().unwrap() * 1e3;
    assert_eq!(numbers(&count, "cpu time")[..1], [expected]);
    let why = compatible(&[("a", &read), ("b", &count)]).unwrap_err();
    assert_eq!(why.what, "the parameter benchmark");
}

/// A repetition that ended with an error took 0 ns, and is not the fastest of all.
#[test]
fn google_benchmarks_failures_are_no_evidence() {
    let why = refused(GOOGLE, &series("fails"));
    assert!(
        why.starts_with("all 3 repetitions of 'fails' failed"),
        "{why}"
    );
    let text = std::str::from_utf8(GOOGLE).unwrap();
    for word in ["error_occurred", "skipped"] {
        let mut document: serde_json::Value = serde_json::from_str(text).unwrap();
        document["benchmarks"][1][word] = true.into();
        let read = super::read(document.to_string().as_bytes(), &series("copy/64")).unwrap();
        assert_eq!(read.runs.len(), 2);
        let why = lacks(&read, "repetitions that failed or were skipped");
        assert_eq!(why, Some("1 of 3 are left out"));
    }
    let aggregates = text.replace("\"iteration\"", "\"aggregate\"");
    assert!(usually_refused(&aggregates).contains("aggregates alone"));
    let one = |entry: &str| {
        usually_refused(&format!(
            r#"{{"context": {{}}, "benchmarks": [{{"name": "a", {entry}}}]}}"#
        ))
    };
    for (entry, says) in [
        (
            r#""cpu_time": 1, "real_time": 1"#,
            "'a', repetition 1: it has no time unit",
        ),
        (
            r#""time_unit": "h", "cpu_time": 1, "real_time": 1"#,
            "its time unit is 'h'",
        ),
        (r#""time_unit": "ns", "real_time": 1"#, "it has no cpu time"),
        (
            r#""time_unit": "s", "cpu_time": 1e308, "real_time": 1"#,
            "its cpu time is 1",
        ),
        (
            r#""time_unit": "s", "cpu_time": 1, "real_time": -1"#,
            "its real time is -1",
        ),
    ] {
        let why = one(entry);
        assert!(why.contains(says), "'{why}' has no '{says}'");
    }
    let many = vec![r#"{"name":""}"#; 100_001].join(",");
    let why = usually_refused(&format!(r#"{{"context": {{}}, "benchmarks": [{many}]}}"#));
    assert!(why.contains("more than 100000 entries"), "{why}");
}

#[test]
fn gos_lines_of_one_benchmark_are_runs() {
    let why = refused(GO, &Options::default());
    assert_eq!(
        why,
        "4 of benchmark, and none is chosen: 'BenchmarkFields-2', 'BenchmarkMetric-2', 'BenchmarkSort/n=10-2', 'BenchmarkSort/n=100-2'"
    );
    let read = super::read(GO, &series("BenchmarkFields-2")).unwrap();
    assert_eq!(read.format, Format::Go);
    assert_eq!(numbers(&read, "ns/op"), [2099.0, 1882.0, 2063.0]);
    assert_eq!(numbers(&read, "B/op"), [2048.0; 3]);
    assert_eq!(numbers(&read, "allocs/op"), [1.0; 3]);
    let sort = super::read(GO, &series("BenchmarkSort/n=10-2")).unwrap();
    assert_eq!(numbers(&sort, "ns/op"), [50.17, 47.09, 47.08]);
    assert_eq!(sort.runs[0].numbers.len(), 1);
    let why = lacks(&sort, "MB/s").unwrap();
    assert_eq!(
        why,
        "more of it is better, and compare takes less for better"
    );
    // For a metric of the benchmark's own, only the file can say whether less is better.
    let hits = super::read(GO, &series("BenchmarkMetric-2")).unwrap();
    assert_eq!(hits.runs[0].numbers.len(), 1);
    assert!(
        lacks(&hits, "hits/op")
            .unwrap()
            .contains("'Unit hits/op better=lower'")
    );
    for (way, known) in [("lower", true), ("higher", false)] {
        let said = [format!("Unit hits/op better={way}\n").as_bytes(), GO].concat();
        let hits = super::read(&said, &series("BenchmarkMetric-2")).unwrap();
        assert_eq!(hits.runs[0].numbers.get("hits/op"), known.then_some(&2.5));
    }
}

#[test]
fn gos_failures_and_packages_are_kept_apart() {
    let line = "BenchmarkA-8 \t 100\t 20.5 ns/op\n";
    let read = usual(format!("BenchmarkA\n{line}Benchmarking began\n{line}PASS\n").as_bytes());
    assert_eq!(numbers(&read, "ns/op"), [20.5; 2]);
    let why = usually_refused(&format!(
        "{line}--- FAIL: BenchmarkA\n    a_test.go:3: no\nFAIL\n"
    ));
    assert_eq!(
        why,
        "BenchmarkA-8 failed, and what it measured is no evidence"
    );
    let two = format!("pkg: a\n{line}pkg: b\n{line}{line}");
    assert!(usually_refused(&two).contains("'a BenchmarkA-8', 'b BenchmarkA-8'"));
    let b = super::read(two.as_bytes(), &series("b BenchmarkA-8")).unwrap();
    assert_eq!(b.runs.len(), 2);
    let each = (0..=100_000).map(|number| format!("BenchmarkA{number} 1 1 ns/op\n"));
    let many = each.collect::<String>();
    assert_eq!(
        usually_refused(&many),
        "line 100001: more than 100000 benchmarks"
    );
    for (text, says) in [
        (
            format!("{line}BenchmarkA-8 \t 100\t 20.5\n"),
            "line 2: no result of a benchmark",
        ),
        (
            format!("{line}BenchmarkA-8 hello\n"),
            "line 2: no result of a benchmark",
        ),
        (
            format!("{line}BenchmarkA-8 100 NaN ns/op\n"),
            "line 2: no result of a benchmark",
        ),
        (
            format!("{line}BenchmarkA-8 0 1 ns/op\n"),
            "line 2: no result of a benchmark",
        ),
        (
            line.trim_end().to_owned(),
            "line 1: it ends without a line feed",
        ),
        (
            "goos: linux\nPASS\n".to_owned(),
            "there is no benchmark in it",
        ),
        (
            "BenchmarkA 5 3 MB/s\n".to_owned(),
            "line 1: there is no figure of which less is better",
        ),
        (line.repeat(5_001), "line 5001: 5001 runs, at most 5000"),
    ] {
        let why = usually_refused(&text);
        assert!(why.contains(says), "'{why}' has no '{says}'");
    }
}

#[test]
fn perfs_events_are_numbers() {
    for (file, clock, faults) in [(PERF_CSV, "task-clock", 2), (PERF_JSON, "task-clock", 1)] {
        let read = usual(file);
        assert_eq!((read.format, read.runs.len()), (Format::PerfStat, 1));
        let run = &read.runs[0];
        assert!((0.1..10.0).contains(&run.numbers[clock]), "ms");
        assert!(run.numbers["page-faults"] > 40.0 && run.numbers["context-switches"] < 5.0);
        // An event that is not supported is unknown, not 0.
        assert!(!run.numbers.contains_key("instructions"));
        let why = lacks(&read, "instructions");
        assert_eq!(why, Some("perf could not count it"));
        assert_eq!(read.missing.len(), faults + 1, "{:?}", read.missing);
        assert!(lacks(&read, "each run of -r").is_some());
        assert_eq!(read.number_unit, "", "ms beside numbers without a unit");
        let one = super::read(file, &series("task-clock")).unwrap();
        assert_eq!((&*one.number_unit, one.runs[0].numbers.len()), ("msec", 1));
        assert!(refused(file, &series("instructions")).contains("none of the events"));
        let why = refused(file, &series("faults"));
        assert!(
            why.starts_with("no event 'faults'; there is 'context-switches'"),
            "{why}"
        );
    }
    let read = usual(PERF_APPEND);
    assert_eq!(numbers(&read, "page-faults"), [49.0, 48.0, 50.0]);
    assert!(lacks(&read, "each run of -r").is_none());
}

#[test]
fn perfs_names_shares_and_languages() {
    let names =
        "12,,cpu/event=0xc0,umask=0/u,5.00%,99,43.21,,\n,,,,,0.31,stalled cycles per insn\n";
    let read = usual(names.as_bytes());
    assert_eq!(numbers(&read, "cpu/event=0xc0,umask=0/u"), [12.0]);
    let why = lacks(&read, "cpu/event=0xc0,umask=0/u").unwrap();
    assert!(
        why.starts_with("it was counted for 43.21 % of the time"),
        "{why}"
    );
    let comma = usual(b"0,59;msec;task-clock:u;591507;100,00;0,637;CPUs utilized\n");
    assert_eq!(numbers(&comma, "task-clock:u"), [0.59]);
    let part = "perf stat without -A";
    let interval = "perf stat -I counts intervals";
    let event = r#""event" : "cycles", "unit" : "", "counter-value" : "5.0""#;
    for (text, says) in [
        ("CPU0;7;;context-switches;914757;100.00;;\n", part),
        ("S0,2,7,,context-switches,914757,100.00,,\n", part),
        (
            "     0.100142850,0.74,msec,task-clock,737415,100.00,0.007,CPUs utilized\n",
            interval,
        ),
        (&format!("{{\"interval\" : 0.1, {event}}}\n"), interval),
        (&format!("{{\"cpu\" : \"0\", {event}}}\n"), part),
        (
            &format!("{{{event}}}\n{{{event}}}\n"),
            "line 2: event 'cycles' stands there twice",
        ),
        (
            &format!("{{{event}}}\nhello\n"),
            "line 2: no line of perf stat",
        ),
        (
            &format!("{{{event}}}\n{{\"event\" : \"cyc"),
            "line 2: no line of perf stat",
        ),
        ("# started on Sat\n\n", "there is no event in it"),
        (
            "<not counted>,,cycles,0,100.00,,\n",
            "perf could count none",
        ),
        (
            "# started on Sat\n-5,,cycles,9,100.00,,\n",
            "line 2: no line of perf stat",
        ),
        (
            "# started on Sat\n1e999,,cycles,9,100.00,,\n",
            "line 2: no line of perf stat",
        ),
        (
            "5,,cycles,9,100.00,,",
            "line 1: it ends without a line feed",
        ),
    ] {
        let why = usually_refused(text);
        assert!(why.contains(says), "'{why}' has no '{says}'");
    }
}

/// Each file is known for what it is, whole, on one line and behind Windows' mark, and no other reader takes it.
#[test]
fn no_format_is_taken_for_another() {
    let log = log(true);
    let record = record(3, 200);
    let files: [(&[u8], Format); 16] = [
        (CRITERION, Format::Criterion),
        (GOOGLE, Format::Google),
        (GO, Format::Go),
        (PERF_CSV, Format::PerfStat),
        (PERF_JSON, Format::PerfStat),
        (PERF_APPEND, Format::PerfStat),
        (CYCLICTEST_H, Format::Cyclictest),
        (CYCLICTEST_Q, Format::Cyclictest),
        (CYCLICTEST_N, Format::Cyclictest),
        (CYCLICTEST_JSON, Format::Cyclictest),
        (HYPERFINE, Format::Hyperfine),
        (TIMERLAT, Format::Rtla),
        (OSNOISE, Format::Rtla),
        (&log, Format::HdrLog),
        (record.as_bytes(), Format::Stopgap),
        (b"1\n2 # two\n3\n", Format::Numbers),
    ];
    for (file, format) in files {
        assert_eq!(recognise(file), Ok(format));
        for &other in Format::ALL {
            let options = Options {
                format: Some(other),
                ..Options::default()
            };
            let taken = super::read(file, &options);
            assert!(other == format || taken.is_err(), "{format} as {other}");
        }
        if let Ok(document) = serde_json::from_slice::<serde_json::Value>(file) {
            assert_eq!(recognise(document.to_string().as_bytes()), Ok(format));
        }
    }
    // Without a file, each line of perf's output is a document, and only one is allowed.
    let line = PERF_JSON.split(|&byte| byte == b'\n').nth(2).unwrap();
    assert_eq!(recognise(line), Ok(Format::PerfStat));
    // pytest-benchmark has benchmarks, too.
    let other = recognise(br#"{"machine_info": {}, "benchmarks": []}"#);
    assert!(other.is_err());
}

proptest! {
    /// A written number comes back under its name.
    #[test]
    fn perfs_lines_come_back(
        event in "[a-z][a-z0-9:/=_-]{0,8}(,[a-z][a-z0-9=/]{0,8}){0,2}", counts in 0u64..1 << 50, running in 1u64..=100, mean: bool,
    ) {
        let spread = if mean { "0.50%," } else { "" };
        let csv = format!("{counts},,{event},{spread}5000,{running}.00,,\n");
        let json = serde_json::json!({
            "counter-value": format!("{counts}.000000"), "unit": "", "event": event,
            "event-runtime": 5000, "pcnt-running": running,
        });
        for text in [csv, format!("{json}\n")] {
            let read = usual(text.as_bytes());
            prop_assert_eq!(numbers(&read, &event), [counts as f64]);
            prop_assert_eq!(lacks(&read, &event).is_some(), running < 100);
        }
    }

    #[test]
    fn gos_lines_come_back(times in proptest::collection::vec(0u32..1 << 30, 1..20), noise in "[a-z ]{0,20}") {
        let lines = times.iter().map(|time| format!("BenchmarkX/{time}-2 7 {time} ns/op\n{noise}\nBenchmarkX-2 7 {time} ns/op\n"));
        let text: String = lines.collect();
        let read = super::read(text.as_bytes(), &series("BenchmarkX-2")).unwrap();
        let expected: Vec<f64> = times.iter().map(|&time| f64::from(time)).collect();
        prop_assert_eq!(numbers(&read, "ns/op"), expected);
    }

    /// Any text after a head that is recognised, and any piece of a real file.
    #[test]
    fn any_text_is_runs_or_one_line(
        head in prop::sample::select(vec!["goos: a\n", "BenchmarkA 1 1 ns/op\n", "# started on a\n", "1,,a,1,1,,\n", "{"]),
        text in "[BenchmarkUit0-9.,;|{}%<> \n\t\"-]{0,200}",
        end in 0usize..4_000,
    ) {
        let mut texts = vec![format!("{head}{text}").into_bytes()];
        for file in [CRITERION, GOOGLE, GO, PERF_CSV, PERF_JSON, PERF_APPEND] {
            texts.push([&file[..end % file.len()], text.as_bytes()].concat());
        }
        for text in texts {
            match super::read(&text, &Options::default()) {
                Ok(read) => prop_assert!(read.runs.iter().all(|run| run.numbers.values().all(|number| number.is_finite()))),
                Err(error) => prop_assert!(!error.to_string().contains(char::is_control)),
            }
        }
    }
}
