use super::*;

mod benchmarks;

use crate::compare::RunStalls;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{V2DeflateSerializer, V2Serializer};
use std::time::Duration;

const CYCLICTEST_Q: &[u8] = include_bytes!("../../fixtures/read/cyclictest-q.txt");
const CYCLICTEST_H: &[u8] = include_bytes!("../../fixtures/read/cyclictest-h.txt");
const CYCLICTEST_JSON: &[u8] = include_bytes!("../../fixtures/read/cyclictest.json");
const CYCLICTEST_N: &[u8] = include_bytes!("../../fixtures/read/cyclictest-n.txt");
const CYCLICTEST_N_JSON: &[u8] = include_bytes!("../../fixtures/read/cyclictest-n.json");
const HYPERFINE: &[u8] = include_bytes!("../../fixtures/read/hyperfine.json");
const TIMERLAT: &[u8] = include_bytes!("../../fixtures/read/rtla-timerlat-hist.txt");
const OSNOISE: &[u8] = include_bytes!("../../fixtures/read/rtla-osnoise-hist.txt");

fn usual(bytes: &[u8]) -> Read {
    read(bytes, &Options::default()).unwrap()
}

fn refused(bytes: &[u8], options: &Options) -> String {
    read(bytes, options).unwrap_err().to_string()
}

fn series(name: &str) -> Options {
    Options {
        series: Some(name.to_owned()),
        ..Options::default()
    }
}

fn question(question: Question) -> Options {
    Options {
        question: Some(question),
        ..Options::default()
    }
}

fn stalls_from(ns: u64) -> Options {
    Options {
        stall_threshold_ns: Some(ns),
        ..Options::default()
    }
}

/// The value of rank `q * n`, from a list of all samples.
fn quantile_of(samples: &[u64], q: f64) -> f64 {
    let rank = (q * samples.len() as f64).ceil() as usize;
    samples[rank.max(1) - 1] as f64
}

#[test]
fn cyclictests_histogram_is_what_it_printed() {
    let read = usual(CYCLICTEST_H);
    assert_eq!((read.format, &*read.unit), (Format::Cyclictest, "us"));
    assert_eq!(read.parameters["threads"], "2");
    // Every sample of both threads, those beyond the histogram as the longest there are.
    let mut samples = Vec::new();
    let text = std::str::from_utf8(CYCLICTEST_H).unwrap();
    for line in text.lines().filter(|line| line.starts_with('0')) {
        let row: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        samples.extend(std::iter::repeat_n(row[0], (row[1] + row[2]) as usize));
    }
    samples.extend([u64::MAX; 51 + 123]);
    assert_eq!(samples.len(), 3_795 + 2_507 + 51 + 123);
    let run = &read.runs[0];
    assert_eq!(run.median, Some(quantile_of(&samples, 0.5)));
    assert_eq!(
        run.deciles.map(|deciles| deciles[7]),
        Some(quantile_of(&samples, 0.8))
    );
    // 174 of 6,476 are beyond: p99 lies among them.
    assert_eq!((run.p99, run.p999), (None, None));
    assert!(
        read.missing.iter().any(|missing| missing.what == "p99"),
        "{:?}",
        read.missing
    );
    assert_eq!(run.max, Some(265_566.0));
}

#[test]
fn cyclictests_json_has_its_machine_time_and_stalls() {
    let options = stalls_from(150_000);
    let read = read(CYCLICTEST_JSON, &options).unwrap();
    assert_eq!(read.format, Format::Cyclictest);
    assert_eq!(read.parameters["interval"], "500");
    let run = &read.runs[0];
    assert_eq!(run.max, Some(10_179.0));
    assert!(
        run.median
            .is_some_and(|median| (60.0..=200.0).contains(&median))
    );
    let stalls = run.stalls.unwrap();
    assert_eq!(stalls.duration_ns, 3_000_000_000);
    assert!(stalls.count > 0 && stalls.time_ns.is_none() && run.episodes.is_none());
    // From the histogram's end on nobody knows.
    assert_eq!(
        super::read(CYCLICTEST_JSON, &stalls_from(5_000_000))
            .unwrap()
            .runs[0]
            .stalls,
        None
    );
}

#[test]
fn cyclictests_summary_has_an_average_alone() {
    let read = usual(CYCLICTEST_Q);
    let run = &read.runs[0];
    let average = (6_801.0 * 175.0 + 3_727.0 * 173.0) / (6_801.0 + 3_727.0);
    assert!((run.numbers["average"] - average).abs() < 1e-9);
    assert_eq!((run.max, run.median), (Some(35_470.0), None));
    assert_eq!(read.missing.len(), 2);
}

/// One run of `-N`, in both of its forms.
#[test]
fn cyclictests_text_agrees_with_its_json() {
    let (text, json) = (usual(CYCLICTEST_N), usual(CYCLICTEST_N_JSON));
    assert_eq!((&*text.unit, &*text.number_unit), ("ns", "ns"));
    assert_eq!(text.parameters, json.parameters);
    assert_eq!(text.parameters["interval"], "500");
    let warnings = compatible(&[("a.txt", &text), ("b.json", &json)]).unwrap();
    let says =
        "fraction of the average: of 1 of 2 files, as a.txt: cyclictest's text rounds it down";
    assert!(warnings[0].starts_with(says), "{warnings:?}");
    let [printed, kept] = [&text, &json].map(|read| read.runs[0].numbers["average"]);
    assert!((0.0..1.0).contains(&(kept - printed)), "{printed} {kept}");
    assert_eq!(text.runs[0].max, json.runs[0].max);
    // Microseconds never mix with nanoseconds.
    let us = usual(CYCLICTEST_Q);
    assert_eq!(us.unit, "us");
    let why = compatible(&[("a.txt", &us), ("b.json", &json)]).unwrap_err();
    assert_eq!(
        why.to_string(),
        "b.json: the unit of its latencies is ns, and in a.txt us: they cannot be compared"
    );
    // The command line of a run without -i has no interval.
    let without = std::str::from_utf8(CYCLICTEST_N_JSON)
        .unwrap()
        .replace("-i 500 ", "");
    assert_eq!(usual(without.as_bytes()).parameters["interval"], "1000");
}

/// A text of a histogram does not say its interval, and often not its unit.
#[test]
fn what_cyclictests_histogram_does_not_say() {
    let rows = "# Histogram
000900 000003
000901 000009
# Total: 12
# Max Latencies: 901
# Histogram Overflows: 0
";
    let unknown = usual(rows.as_bytes());
    assert_eq!(unknown.unit, "");
    let json = |resolution: u64, interval: u64| {
        let text = format!(
            "{{\"cmdline:\": \"cyclictest -h 2000 -i {interval}\", \"resolution_in_ns\": {resolution}, \"thread\": {{\"0\": {{\"cycles\": 12, \"histogram\": {{\"900\": 12}}}}}}}}"
        );
        usual(text.as_bytes())
    };
    for json in [json(0, 1_000), json(1, 1_000)] {
        let why = compatible(&[("a.txt", &unknown), ("b.json", &json)]).unwrap_err();
        let (other, unit) = (
            compatible(&[("b.json", &json), ("a.txt", &unknown)]),
            &json.unit,
        );
        let says = format!(
            "a.txt does not say the unit of its latencies, and in b.json it is {unit}: they cannot be compared; pass --unit ns if cyclictest ran with -N, else --unit us"
        );
        assert_eq!(why.to_string(), says);
        assert_eq!(other.unwrap_err().to_string(), says);
    }
    let given = |unit| Options {
        unit: Some(unit),
        ..Options::default()
    };
    let ns = read(rows.as_bytes(), &given(Unit::Ns)).unwrap();
    let (json, other) = (json(1, 1_000), json(1, 500));
    assert_eq!(
        compatible(&[("a.txt", &ns), ("b.json", &json)]),
        Ok(vec![
            "interval: a.txt does not say it; taken for 1000, as in b.json".to_owned()
        ])
    );
    // A value that the first file does not have is compared between the other files.
    let why = compatible(&[("a.txt", &ns), ("b.json", &json), ("c.json", &other)]);
    assert_eq!(why.unwrap_err().what, "the parameter interval");
    // Nothing wakes up within 25 ns.
    let us = usual(CYCLICTEST_H);
    assert_eq!(
        (&*us.unit, &*us.unsaid),
        ("us", &["interval".to_owned()][..])
    );
    for (file, unit) in [
        (CYCLICTEST_H, Unit::Ns),
        (CYCLICTEST_N, Unit::Us),
        (CYCLICTEST_JSON, Unit::Ns),
    ] {
        let why = refused(file, &given(unit));
        assert!(why.ends_with(&format!("the unit given is {unit}")), "{why}");
    }
    assert!(refused(HYPERFINE, &given(Unit::Ns)).contains("no unit 'ns' can be given"));
    // The average of one and the quantiles of the other.
    let why = compatible(&[("a.txt", &us), ("b.txt", &usual(CYCLICTEST_Q))]).unwrap_err();
    assert_eq!(
        why.to_string(),
        "b.txt: the kind of figures is numbers, and in a.txt quantiles: they cannot be compared"
    );
}

/// The unit is in the width of the columns, which numbers may fill and editors may squeeze.
#[test]
fn columns_that_do_not_tell_the_unit_do_not_guess_it() {
    let line = |rest: &str| {
        let text = format!("T: 0 (    1) P: 0 I:1000 C:      9 {rest}\n");
        usual(text.as_bytes()).unit
    };
    assert_eq!(line("Min:     26 Act:   88 Avg:  175 Max:   35377"), "us");
    assert_eq!(line("Min:     26 Act:1234567 Avg:  175 Max:   35377"), "us");
    assert_eq!(line("Min:     26 Act:123456 Avg:123456 Max: 9935377"), "us");
    assert_eq!(
        line("Min:     26 Act:      88 Avg:     175 Max:   35377"),
        "ns"
    );
    assert_eq!(
        line("Min:     26 Act:12345678 Avg:     175 Max:12345678"),
        "ns"
    );
    assert_eq!(
        line("Min:     26 Act:12345678 Avg:12345678 Max:12345678"),
        ""
    );
    assert_eq!(line("Min: 26 Act: 7512 Avg: 7512 Max: 35377"), "");
}

/// `--histofall` prints one column more, the sum of all.
#[test]
fn a_column_of_sums_is_not_counted_twice() {
    let text = |rows: &str, total: &str| {
        format!(
            "# Histogram\n{rows}# Total: {total}\n# Max Latencies: 9 9\n# Histogram Overflows: 0 0 0\n"
        )
    };
    let with = text(
        "000001 000004 000006 000010\n000002 000001 000000 000001\n",
        "5 6 11",
    );
    let without = text("000001 000004 000006\n000002 000001 000000\n", "5 6");
    assert_eq!(usual(with.as_bytes()), usual(without.as_bytes()));
}

#[test]
fn hyperfines_times_are_runs() {
    let read = read(HYPERFINE, &series("sleep 0.012")).unwrap();
    assert_eq!((read.format, &*read.number_unit), (Format::Hyperfine, "s"));
    assert_eq!(read.runs.len(), 12);
    let first = read.runs[0].numbers.get("elapsed").copied();
    assert_eq!(first, Some(0.011_921_670_600_000_003));
    let why = refused(HYPERFINE, &Options::default());
    assert_eq!(
        why,
        "2 of command, and none is chosen: 'sleep 0.01', 'sleep 0.012'"
    );
    let why = refused(HYPERFINE, &series("make"));
    assert!(
        why.starts_with("no command 'make'; there is 'sleep 0.01'"),
        "{why}"
    );
}

#[test]
fn rtlas_columns_are_pooled_by_kind() {
    let timerlat = usual(TIMERLAT);
    assert_eq!(timerlat.question.as_deref(), Some("rtla timerlat"));
    let run = &timerlat.runs[0];
    // 622 + 854 + 2,950 + 3,127 are below the 10,001st of 20,002.
    assert_eq!((run.median, run.p99), (Some(3.0), Some(5.0)));
    assert_eq!(run.max, Some(312.0));
    let irq = read(TIMERLAT, &series("IRQ")).unwrap();
    assert_eq!(
        (irq.runs[0].median, irq.runs[0].max),
        (Some(1.0), Some(16.0))
    );
    let options = stalls_from(16_000);
    let stalls = read(TIMERLAT, &options).unwrap().runs[0].stalls.unwrap();
    let expected = RunStalls {
        count: 9 + 8 + 1 + 1 + 2 + 1,
        time_ns: None,
        threshold_ns: 16_000,
        duration_ns: 10_000_000_000,
    };
    assert_eq!(stalls, expected);
    let osnoise = usual(OSNOISE);
    assert_eq!(osnoise.runs[0].median, Some(0.0));
    assert_eq!(osnoise.parameters["column"], "CPU");
}

/// Two intervals without a tag and one with, as the crate writes them.
fn log(deflate: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Histogram log format version 1.3]");
    let mut histograms = Vec::new();
    for base in [0u64, 5_000, 900_000] {
        let mut histogram = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        (1..=1_000).for_each(|i| histogram.record(base + i).unwrap());
        histograms.push(histogram);
    }
    let second = Duration::from_secs(1);
    let (mut plain, mut compressed) = (V2Serializer::new(), V2DeflateSerializer::new());
    macro_rules! write {
        ($serializer:expr) => {{
            let mut writer = builder.begin_log_with(&mut bytes, $serializer).unwrap();
            for (at, histogram) in (0..).zip(&histograms) {
                let tag = (at == 2).then(|| Tag::new("other").unwrap());
                writer
                    .write_histogram(histogram, second * at, second, tag)
                    .unwrap();
            }
        }};
    }
    if deflate {
        write!(&mut compressed);
    } else {
        write!(&mut plain);
    }
    bytes
}

#[test]
fn intervals_of_a_log_are_one_run() {
    let options = stalls_from(5_001);
    for deflate in [false, true] {
        let read = read(&log(deflate), &options).unwrap();
        assert_eq!(read.format, Format::HdrLog);
        let run = &read.runs[0];
        assert_eq!(run.median, Some(1_000.0));
        assert!((run.p99.unwrap() / 5_980.0 - 1.0).abs() < 0.001);
        let stalls = run.stalls.unwrap();
        assert_eq!((stalls.count, stalls.duration_ns), (1_000, 2_000_000_000));
        let other = super::read(&log(deflate), &series("other")).unwrap();
        assert!(other.runs[0].median.unwrap() > 900_000.0);
    }
}

/// A run record with `runs` blocks of `samples` samples each.
fn record(runs: u32, samples: u64) -> String {
    use crate::histogram::Recorder;
    let blocks: Vec<_> = (0..runs)
        .map(|run| {
            let mut recorder = Recorder::new(100_000);
            for i in 0..samples {
                let ns = if i % 500 == 0 {
                    200_000
                } else {
                    1_000 + u64::from(run) + i % 97
                };
                recorder.record(i * 1_000_000, ns);
            }
            recorder.into_block(run, 0).unwrap()
        })
        .collect();
    let environment = serde_json::json!({
        "host": "a", "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    let series = serde_json::json!([
        {"name": "switches", "unit": "switches/rt", "parameters": {"n": 1},
         "blocks": [{"run": 0, "start_ns": 0, "samples": 5, "value": 2.5, "histogram": null, "stalls": null}], "error": null},
        {"name": "map", "unit": "ns", "parameters": {"n": 7, "workload": "pbobench"}, "blocks": [], "error": "no memory"},
        {"name": "map", "unit": "ns", "parameters": {"n": 9, "workload": "pbobench"}, "blocks": blocks, "error": null},
        {"name": "map", "unit": "ns", "parameters": {"n": 99, "workload": "agua"}, "blocks": blocks, "error": null},
    ]);
    serde_json::json!({
        "schema": "stopgap.run/1", "environment": environment,
        "answers": [{"question": "placement", "parameters": {"workload": "frag", "seed": 3, "runs": runs}, "series": series}],
    })
    .to_string()
}

#[test]
fn a_records_blocks_are_runs() {
    let text = record(3, 2_000);
    let read = usual(text.as_bytes());
    assert_eq!(read.question.as_deref(), Some("placement"));
    let parameters: Vec<String> = read
        .parameters
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(parameters, ["n=9", "series=map", "workload=pbobench"]);
    assert_eq!(read.runs.len(), 3);
    let stalls = read.runs[2].stalls.unwrap();
    assert_eq!((stalls.count, stalls.threshold_ns), (4, 100_000));
    assert_eq!(read.runs[2].episodes, Some(4));
    let longer = super::read(text.as_bytes(), &stalls_from(300_000)).unwrap();
    assert_eq!(longer.runs[0].stalls.unwrap().count, 0);
    let read = super::read(text.as_bytes(), &stalls_from(10)).unwrap();
    assert!(read.runs[0].stalls.is_none() && read.missing[0].what == "stalls");
    let numbers = super::read(text.as_bytes(), &series("switches")).unwrap();
    assert_eq!(numbers.runs[0].numbers.get("switches").copied(), Some(2.5));
    assert_eq!(numbers.number_unit, "switches/rt");
    let why = refused(text.as_bytes(), &series("fault"));
    assert_eq!(
        why,
        "no series 'fault'; there is switches n=1, map n=7 workload=pbobench, map n=9 workload=pbobench, map n=99 workload=agua"
    );
    let many = text.replace("\"map\"", &format!("\"{}\"", "m".repeat(90)));
    let why = refused(many.as_bytes(), &series("fault"));
    assert!(why.ends_with(" and 2 more"), "whole names: {why}");
    let why = refused(text.as_bytes(), &series("map n=7"));
    assert_eq!(
        why,
        "series map n=7 workload=pbobench has no figure: no memory"
    );
    let agua = super::read(text.as_bytes(), &series("map workload=agua")).unwrap();
    assert_eq!(agua.parameters["n"], "99");
    let chunks = question(Question::Chunks);
    assert!(refused(text.as_bytes(), &chunks).contains("no question with figures 'chunks'"));
    let damaged = text.replace("HIST", "HISU");
    let why = refused(damaged.as_bytes(), &Options::default());
    assert!(
        why.starts_with("series map, run 0: not a histogram"),
        "{why}"
    );
}

/// Wake-ups a millisecond apart were looked at for all of that time, not for the sum of their lateness.
#[test]
fn periodic_samples_were_looked_at_all_the_time() {
    let text = record(3, 2_000).replace("\"n\":9,", "\"interval-ns\":1000000,\"n\":9,");
    let by_n = series("map n=9");
    let read = super::read(text.as_bytes(), &by_n).unwrap();
    assert_eq!(read.parameters["interval-ns"], "1000000");
    assert_eq!(read.runs[0].stalls.unwrap().duration_ns, 2_000_000_000);
    let other = super::read(record(3, 2_000).as_bytes(), &by_n).unwrap();
    assert!(
        other.runs[0].stalls.unwrap().duration_ns < 4_000_000,
        "calls that follow each other"
    );
}

/// A record's series in any order: the same one is compared, and the others of its name follow it.
#[test]
fn which_series_is_compared_is_no_chance() {
    let document: serde_json::Value = serde_json::from_str(&record(3, 2_000)).unwrap();
    let all = document["answers"][0]["series"].as_array().unwrap().clone();
    let with = |series: &str, n: u32, workload: &str| {
        let mut one = all[2].clone();
        one["name"] = series.into();
        one["parameters"] = serde_json::json!({"n": n, "workload": workload});
        one
    };
    let mut series = vec![
        with("read /proc/self/maps", 64_000, "control"),
        with("fault", 64_000, "threads"),
        with("map", 9, "pbobench"),
        with("map", 99, "agua"),
        with("map", 100, "pbobench"),
    ];
    let order = ["map n=100 workload=pbobench", "map n=9 workload=pbobench"];
    for _ in 0..series.len() {
        series.rotate_left(1);
        let mut record = document.clone();
        record["answers"][0]["series"] = series.clone().into();
        let text = record.to_string();
        let read = usual(text.as_bytes());
        assert_eq!(read.series, order);
        assert_eq!(read.parameters["n"], "100");
        let asked = super::read(text.as_bytes(), &self::series(order[1])).unwrap();
        assert_eq!(asked.parameters["n"], "9");
    }
}

/// More GiB read a second is better: a comparison for which less is better would turn the answer round.
#[test]
fn what_more_is_better_of_is_not_compared() {
    let text = record(3, 2_000).replace("switches/rt", "GiB/s");
    let why = refused(text.as_bytes(), &series("switches"));
    assert_eq!(
        why,
        "series switches n=1 is GiB/s, of which more is better; compare takes less for better"
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    for file in [CYCLICTEST_H, CYCLICTEST_JSON, TIMERLAT, b"1\n2\n"] {
        let with = [b"\xef\xbb\xbf", file].concat();
        assert_eq!(usual(&with), usual(file));
    }
}

#[test]
fn a_choice_that_a_file_does_not_have_is_refused() {
    let placement = question(Question::Placement);
    assert_eq!(
        refused(b"1\n2\n", &placement),
        "it is of format numbers, which has no question 'placement'"
    );
    assert!(refused(HYPERFINE, &placement).contains("no question 'placement'"));
    for file in [CYCLICTEST_Q, b"1\n2\n"] {
        assert!(refused(file, &series("map")).contains("no series 'map'"));
    }
}

#[test]
fn what_is_damaged_is_said_with_its_line() {
    let cut = |bytes: &[u8], share: usize| bytes[..bytes.len() * share / 100].to_vec();
    let log = log(true);
    let mut broken = log.clone();
    let at = broken.len() - 30;
    broken[at] = b'!';
    let number = b"1\n2 # two\n\nthree\n";
    let both = b"# Histogram\n000001 000002\n000001 000003\n# Total: 5\n";
    for (bytes, says) in [
        (&b""[..], "it is empty"),
        (b" \n\t\n", "it is empty"),
        (number, "line 4: 'three' is no number"),
        (b"1\nNaN\n", "line 2: NaN cannot be compared"),
        (b"1\n-inf\n", "line 2: -inf cannot be compared"),
        (b"1\n\xff\n", "line 2: it is no text"),
        (b"1\n\x1b[2J\n", "line 2: '?[2J' is no number"),
        (b"# nothing\n", "there is no run in it"),
        (b"{\"a\": 1}", "JSON of no known tool"),
        (
            b"{\"schema\": \"stopgap.explain/2\"}",
            "expected 'stopgap.run/1'",
        ),
        (b"{\"results\": []}", "there is no command in it"),
        (
            b"{\"results\": [{\"command\": \"a\", \"mean\": 1}]}",
            "no time of each run",
        ),
        (b"{\"thread\": {\"0\": {\"cycles\": 0}}}", "no average"),
        (
            b"{\"thread\": {\"0\": {\"cycles\": 1, \"histogram\": {\"5\": 7}}}}",
            "more samples than cycles",
        ),
        (
            b"{\"thread\": {\"0\": {\"cycles\": 18446744073709551615, \"histogram\": {\"5\": 7}}}}",
            "more than 2^53",
        ),
        (both, "line 3: the latency does not grow"),
        (
            &cut(CYCLICTEST_H, 20),
            "a row of another width: it is cut off",
        ),
        (&cut(CYCLICTEST_JSON, 50), "not whole JSON: EOF"),
        (&cut(HYPERFINE, 50), "not whole JSON: EOF"),
        (&cut(TIMERLAT, 60), "cut off"),
        (&cut(CYCLICTEST_Q, 70), "line 3: it is no line of a thread"),
        (&cut(&log, 60), "line "),
        (&broken, "line 4: not base64"),
    ] {
        let shown = refused(bytes, &Options::default());
        assert!(shown.contains(says), "'{shown}' has no '{says}'");
    }
    // A count that was changed.
    let text = std::str::from_utf8(TIMERLAT)
        .unwrap()
        .replace("4218", "4219");
    assert!(refused(text.as_bytes(), &Options::default()).contains("cut off or damaged"));
    let named = Options {
        format: Some(Format::Rtla),
        ..Options::default()
    };
    assert!(refused(b"1\n2\n", &named).contains("line 1: it stands before the line 'Index'"));
    let many = "1\n".repeat(crate::compare::MOST_RUNS + 1);
    assert!(
        refused(many.as_bytes(), &Options::default()).starts_with("line 5001: more than 5000 runs")
    );
}

/// An interval of a few bytes that says it holds gigabytes.
#[test]
fn sizes_are_checked_before_they_are_believed() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let line = |digits: u32, low: u64, high: u64, length: u32, payload: &[u8]| {
        let mut bytes = Vec::new();
        for word in [0x1c84_9313, length, 0, digits] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(low.to_be_bytes());
        bytes.extend(high.to_be_bytes());
        bytes.extend(1f64.to_be_bytes());
        bytes.extend(payload);
        refused(
            format!("0.0,1.0,1.0,{}\n", STANDARD.encode(bytes)).as_bytes(),
            &Options::default(),
        )
    };
    assert!(line(3, 1, 1 << 40, 1 << 31, b"\x02").contains("says that it has 2147483648 bytes"));
    assert!(line(5, 1, 1 << 62, 1, b"\x00").contains("no sample"));
    assert!(line(9, 1, 1 << 40, 1, b"\x02").contains("no such histogram"));
    assert!(line(3, 0, 1 << 40, 1, b"\x02").contains("no such histogram"));
    assert!(line(3, 1, 1 << 40, 9, &[0xff; 9]).contains("more than"));
    assert!(line(3, 1, 1 << 40, 1, b"\x80").contains("cut off"));
}

#[test]
fn other_questions_and_parameters_are_refused_by_name() {
    let base = usual(record(1, 100).as_bytes());
    assert_eq!(compatible(&[]), Ok(Vec::new()));
    assert_eq!(compatible(&[("a", &base), ("b", &base)]), Ok(Vec::new()));
    let mut other = base.clone();
    other.parameters.insert("n".to_owned(), "40000".to_owned());
    let why = compatible(&[("a.json", &base), ("b.json", &other)]).unwrap_err();
    assert_eq!(
        why.to_string(),
        "b.json: the parameter n is 40000, and in a.json 9: they cannot be compared"
    );
    other.parameters.remove("n");
    let differs = |other: &Read| compatible(&[("a", &base), ("b", other)]).unwrap_err();
    let why = differs(&other);
    assert_eq!(
        (&*why.what, why.after.as_deref()),
        ("the parameter n", None)
    );
    assert_eq!(
        why.to_string(),
        "b does not say the parameter n, and in a it is 9: they cannot be compared"
    );
    let mut other = base.clone();
    other.question = Some("chunks".to_owned());
    assert_eq!(differs(&other).what, "the question");
    assert_eq!(differs(&usual(b"1\n2\n")).what, "the format");

    // Another machine is named first of all.
    let mut other = base.clone();
    other.environment.as_mut().unwrap().host = Some("b".to_owned());
    other.missing.push(Missing::new("p99", "too far"));
    let warnings = compatible(&[("a", &base), ("b", &other)]).unwrap();
    assert!(
        warnings[0].starts_with("measured on 2 different machines"),
        "{warnings:?}"
    );
    assert_eq!(warnings[1], "p99: of 1 of 2 files, as b: too far");
    let mut kernel = base.clone();
    kernel.environment.as_mut().unwrap().kernel = Some("6.18".to_owned());
    assert_eq!(compatible(&[("a", &base), ("b", &kernel)]), Ok(Vec::new()));
}

/// Writes the log that the changed files begin with: `STOPGAP_WRITE=1 cargo test -p stopgap-stats written`.
#[test]
fn the_log_among_the_fixtures_is_as_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/read/histogram.hlog");
    if std::env::var_os("STOPGAP_WRITE").is_some() {
        std::fs::write(path, log(true)).unwrap();
    }
    let written = usual(&std::fs::read(path).unwrap());
    assert_eq!(written, usual(&log(true)));
}
