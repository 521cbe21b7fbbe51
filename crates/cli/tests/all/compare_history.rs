//! `stopgap compare --history` as people run it: lists, records and traces by date, and what is no history.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{Run, has, valid};

const SCHEMA: &str = "stopgap.change-points-1.json";

/// Numbers that look random and are the same for ever, from -1 to 1, most of them near 0.
fn noise(at: u32) -> f64 {
    let part = |salt: u32| {
        let mixed = (at + salt).wrapping_mul(2_654_435_761);
        f64::from((mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519) >> 8) / f64::from(1 << 24)
    };
    part(1) + part(7_919) - 1.0
}

/// Figures around 100, and from `at` on `times` as much.
fn figures(n: u32, at: u32, times: f64) -> impl Iterator<Item = (u32, f64)> {
    let level = move |t: u32| if t < at { 100.0 } else { 100.0 * times };
    (0..n).map(move |t| (t, level(t) * (1.0 + 0.05 * noise(t))))
}

/// The day after so many of January 2026.
fn day(t: u32) -> String {
    format!("2026-{:02}-{:02}", 1 + t / 28, 1 + t % 28)
}

/// Lines of a date, a figure and a commit.
fn list(n: u32, at: u32, times: f64) -> String {
    figures(n, at, times).fold(String::new(), |mut text, (t, value)| {
        let _ = writeln!(text, "{} {value:.3} c{t:03} subject {t}", day(t));
        text
    })
}

#[test]
fn a_step_is_said_and_fails_a_gate() {
    let run = Run::new();
    run.write("nightly", list(90, 60, 1.3));
    let screen = run.stopgap("compare --history nightly").ok().out;
    has(
        &screen,
        &[
            "CHANGED FOR THE WORSE\nvalue ",
            " since 2026-03-05, between c059 and c060\n",
            "90 occasions, 2026-01-01 to 2026-04-06, ",
            "  worse\n",
            "\nrecord ",
        ],
    );
    let line =
        "compare --history nightly --json --fail-on regression --junit j.xml --openmetrics o.prom";
    let document = valid(SCHEMA, &run.stopgap(line).ends(2).out);
    let effect = &document["changes"][0]["effect"];
    let end = |name: &str| effect[name].as_f64().unwrap();
    assert!(end("low") < 1.3 && 1.3 < end("high"), "{effect}");
    assert_eq!(
        (
            &document["changes"][0]["good"],
            &document["changes"][0]["bad"]
        ),
        (&json!(59), &json!(60))
    );
    has(
        &run.read("j.xml"),
        &["failures=\"2\"", "value=\"c059 subject 59\""],
    );
    has(
        &run.read("o.prom"),
        &["stopgap_compare_verdict{comparison=\"o\",word=\"regression\"} 1"],
    );
    let hint = run
        .stopgap("compare --history nightly --bisect-hint")
        .ok()
        .out;
    assert_eq!(hint, "c060\nc059\n");
    // For the better is no regression.
    run.write("better", list(90, 60, 0.7));
    let done = run
        .stopgap("compare --history better --fail-on regression")
        .ok();
    has(&done.out, &["CHANGED FOR THE BETTER"]);
    // A change below the margin is none.
    let done = run
        .stopgap("compare --history nightly --margin 40% --fail-on regression")
        .ok();
    has(&done.out, &["NO CHANGE FOUND"]);
}

#[test]
fn no_step_says_what_would_have_been_found() {
    let run = Run::new();
    run.write("flat", list(90, 90, 1.0));
    let done = run
        .stopgap("compare --history flat --fail-on regression")
        .ok();
    has(
        &done.out,
        &["NO CHANGE FOUND\nno change in 90 occasions; a lasting change to "],
    );
    run.refuses(
        "compare --history flat --bisect-hint",
        &["there is nothing to bisect: no change in 90 occasions"],
    );
    for n in [1, 3, 11] {
        run.write("few", list(n, n, 1.0));
        let done = run
            .stopgap("compare --history few --fail-on regression")
            .ends(4);
        has(
            &done.out,
            &[
                "CANNOT TELL WHETHER IT CHANGED\n",
                "a change shows only in 12 or more",
            ],
        );
    }
}

#[test]
fn a_directory_of_records_is_a_history_of_files() {
    let run = Run::new();
    std::fs::create_dir(run.path("nightly")).unwrap();
    for (t, value) in figures(40, 25, 1.5) {
        let times: Vec<f64> = (0..5)
            .map(|n| value * (1.0 + 0.01 * noise(1_000 + 9 * t + n)))
            .collect();
        let result = json!({"command": "make", "mean": value, "times": times});
        run.write(
            &format!("nightly/{}.json", day(t)),
            json!({"results": [result]}).to_string(),
        );
    }
    run.write("nightly/README.md", "How these were made.\n");
    run.write("nightly/.hidden", "x\n");
    let done = run.stopgap("compare --history nightly").ok();
    has(
        &done.out,
        &[
            "CHANGED FOR THE WORSE\nelapsed",
            "between 2026-01-25 and 2026-01-26",
            "unknown: 1 of 41 files of nightly: nightly/README.md: ",
        ],
    );
    // Files of numbers count once, too: 40 of them are 40 occasions.
    std::fs::create_dir(run.path("numbers")).unwrap();
    for (t, value) in figures(40, 25, 1.5) {
        run.write(
            &format!("numbers/{}.txt", day(t)),
            format!("{value}\n{value}\n1e9\n"),
        );
    }
    let document = run
        .stopgap("compare --history numbers --json")
        .document(SCHEMA);
    assert_eq!(document["points"].as_array().unwrap().len(), 40);
    assert_eq!(document["changes"][0]["at"], 25);
    // Other units have no figure in common.
    let other = json!({"results": [{"command": "make", "mean": 1.0, "times": [1.0]}]});
    run.write("numbers/2026-09-01.json", other.to_string());
    run.refuses(
        "compare --history numbers",
        &["they have no figure in common"],
    );
}

/// A trace of a thread that waits for a CPU and for something else, as ftrace prints it.
fn trace(cpu_ms: f64, other_ms: f64) -> String {
    let mut text = "# tracer: nop\n".to_owned();
    let mut at = 100.0;
    let switch = |from: &str, state: char, to: &str| {
        let side = |side: &str, task: &str| {
            let (name, tid) = task.rsplit_once('-').unwrap();
            format!("{side}_comm={name} {side}_pid={tid} {side}_prio=120")
        };
        format!(
            "sched_switch: {} prev_state={state} ==> {}",
            side("prev", from),
            side("next", to)
        )
    };
    for _ in 0..10 {
        for (task, ms, what) in [
            (
                "<idle>-0",
                0.01,
                "sched_waking: comm=w pid=100 prio=120 target_cpu=000".to_owned(),
            ),
            ("<idle>-0", 2.0, switch("swapper/0-0", 'R', "w-100")),
            ("w-100", cpu_ms, switch("w-100", 'R', "h-200")),
            ("h-200", 100.0, switch("h-200", 'S', "w-100")),
            ("w-100", other_ms, switch("w-100", 'D', "swapper/0-0")),
        ] {
            let _ = writeln!(text, "{task:>16} [000] d..2. {at:.6}: {what}");
            at += ms / 1_000.0;
        }
    }
    text
}

#[test]
fn the_cause_that_moved_in_traces_is_named() {
    let run = Run::new();
    let mut list = String::new();
    for t in 0..30 {
        let other = if t < 17 { 20.0 } else { 40.0 };
        run.write(
            &format!("t{t}.txt"),
            trace(
                15.0 * (1.0 + 0.1 * noise(t)),
                other * (1.0 + 0.1 * noise(50 + t)),
            ),
        );
        let _ = writeln!(list, "{} t{t}.txt c{t}", day(t));
    }
    run.write("list", list);
    let done = run.stopgap("compare --history list").ok();
    has(
        &done.out,
        &[
            "CHANGED FOR THE WORSE\ntime lost waiting ",
            "between c16 and c17",
            "moved with it: asleep, and nothing says for what, ",
        ],
    );
    run.write("list", "2026-01-01 t0.txt a\n2026-01-02 5 b\n");
    run.refuses(
        "compare --history list",
        &["'a' is a trace and 'b' is a value: they have no figure in common"],
    );
    run.write("list", "2026-01-01 none.txt a\n");
    run.refuses(
        "compare --history list",
        &["line 1: 'none.txt' is neither a number nor a date"],
    );
}

#[test]
fn whatever_a_list_holds() {
    let run = Run::new();
    // The last day first, two of one day, a figure that is none, and a label that would clear the screen.
    let mut lines: Vec<String> = list(60, 30, 1.4).lines().map(str::to_owned).collect();
    lines.reverse();
    lines[5] = format!("{} NaN broken\u{1b}[2J", day(54));
    lines[6] = lines[6].replace(&day(53), &day(52));
    for line in &mut lines {
        *line = line.replace(" subject", "\u{1b}[2J subject");
    }
    run.write("list", lines.join("\n"));
    let done = run.stopgap("compare --history list").ok();
    has(
        &done.out,
        &[
            "warning: occasions of one date (1) stay in the order in which they were given\n",
            "between c029\\u{1b}[2J and c030\\u{1b}[2J\n",
            "59 occasions, 2026-01-01 to ",
            "unknown: broken\\u{1b}[2J: its figure is NaN",
        ],
    );
    assert!(!done.out.contains('\u{1b}'));
    for (content, says) in [
        ("", "it is no history: there is no occasion in it"),
        ("# nothing\n", "there is no occasion in it"),
        ("2026-01-01\n", "line 1: 2026-01-01 has no figure"),
        (
            "5\n04/03/2026 5\n",
            "line 2: '04/03/2026' is neither a number nor a date (as 2026-03-04) nor a file beside it",
        ),
        (
            "5\n2026-01-01 5\n",
            "1 of 2 occasions have a date: give all of them one, or none",
        ),
        ("list\n", "list: it is no trace: "),
        ("\u{0}\n", "neither a number nor a date"),
    ] {
        let says = says.strip_prefix("it is no history: ").unwrap_or(says);
        run.write("wrong", content);
        run.refuses("compare --history wrong", &[says]);
    }
    run.write("bytes", b"\xff\xfe\x00");
    run.write("good", list(20, 20, 1.0));
    for (line, says) in [
        ("bytes", "it is no text"),
        ("good good", "it is named twice"),
        ("none", "No such file"),
        ("good --endpoint p99", "--endpoint p99 is of records"),
        ("good --run true", "--run"),
    ] {
        run.refuses(format!("compare --history {line}"), &[says]);
    }
    run.refuses("compare --bisect-hint", &["--history"]);
    run.stopgap("compare --history good --bisect").ends(125);
    // No label names a commit, or one that git would take for a flag.
    for label in ["", "--upload-pack=x"] {
        let lines = figures(40, 20, 2.0).map(|(t, value)| format!("{} {value} {label}\n", day(t)));
        run.write("list", lines.collect::<String>());
        run.refuses(
            "compare --history list --bisect-hint",
            &["has no label that names a commit"],
        );
    }
}

#[test]
fn five_thousand_occasions_take_no_time() {
    let run = Run::new();
    let lines = figures(5_000, 5_000, 1.0).map(|(_, value)| format!("{value}\n"));
    run.write("many", lines.collect::<String>());
    let begin = Instant::now();
    let done = run.stopgap("compare --history many").ok();
    let took = begin.elapsed();
    println!("5,000 occasions: {took:.2?}");
    has(&done.out, &["NO CHANGE FOUND\n"]);
    // A second here; other builds run beside tests.
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A record of ours is read as such, too.
#[test]
fn a_report_shows_the_picture() {
    let run = Run::new();
    run.write("nightly", list(90, 60, 1.3));
    let json = run.stopgap("compare --history nightly --json").ok().out;
    run.write("h.json", json);
    run.stopgap("report h.json -o h.html").ok();
    has(
        &run.read("h.html"),
        &[
            "CHANGED FOR THE WORSE: value",
            "where the change lies (95 %)",
            "opacity=\".35\"",
        ],
    );
    let terminal = run.stopgap("report h.json --terminal").ok().out;
    has(&terminal, &["CHANGED FOR THE WORSE: value "]);
}
