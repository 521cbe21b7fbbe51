//! `stopgap compare` through the command: sides, gates, and what is no comparison.

use std::path::Path;
use std::process::Command;

use crate::common::{Run, STOPGAP, has, text};
use serde_json::{Value, json};
use stopgap_testing::{Skip, skip};

const SCHEMA: &str = "stopgap.compare-1.json";

/// Runs of `level` and up to 2 % more, a line each.
fn numbers(level: f64) -> String {
    let line = |run: u32| format!("{}\n", level * (1.0 + f64::from(run * 7 % 20) / 1_000.0));
    (0..20).map(line).collect()
}

/// A run with these files of numbers.
fn with(files: &[(&str, f64)]) -> Run {
    let run = Run::new();
    for (name, level) in files {
        run.write(name, numbers(*level));
    }
    run
}

#[test]
fn a_directory_is_a_side() {
    let run = Run::new();
    for (side, level) in [("old", 100), ("new", 130)] {
        std::fs::create_dir_all(run.path(side).join("inner")).unwrap();
        for n in 0..6 {
            run.write(&format!("{side}/{n}.txt"), format!("{}\n", level + n));
        }
        run.write(&format!("{side}/.hidden"), "not a run\n");
        run.write(&format!("{side}/check-1.html"), "<!DOCTYPE html>\n");
    }
    let document = run.stopgap("compare old new --json").document(SCHEMA);
    let runs = [&document["before"]["runs"], &document["after"]["runs"]];
    assert_eq!(runs, [6, 6]);
    assert_eq!(document["verdict"]["word"], "regression");
}

#[test]
fn what_is_no_comparison_is_said_in_one_line() {
    let run = with(&[("good", 100.0)]);
    std::fs::create_dir(run.path("many")).unwrap();
    for n in 0..5_001 {
        run.write(&format!("many/{n}"), "");
    }
    run.write("blank", " \n\n");
    run.write("bytes", b"\xff\xfe\x00");
    run.write("gathered", r#"{"schema": "stopgap.gather/1"}"#);
    for (line, says) in [
        ("good blank", "it is empty"),
        ("good bytes", "no text"),
        ("good gathered", "give it alone"),
        ("good many", "5000 runs"),
        (".", "one side only"),
        ("good good -n 9", "--n"),
        ("good good --margin -5%", "5% or 0.05"),
    ] {
        run.refuses(format!("compare {line}"), &[says]);
        has(
            &run.stopgap(format!("compare --bisect {line}"))
                .ends(125)
                .err,
            &[says],
        );
    }
}

/// A file that is compared is nobody's to write.
#[test]
fn an_input_is_not_replaced() {
    let run = with(&[("a", 100.0), ("b", 150.0)]);
    std::fs::create_dir(run.path("side")).unwrap();
    run.write("side/inner", numbers(150.0));
    std::os::unix::fs::symlink("b", run.path("link")).unwrap();
    for (after, over) in [("b", "link"), ("side", "side/inner")] {
        for flag in ["--junit", "--openmetrics"] {
            let done = run
                .stopgap(format!("compare a {after} {flag} {over}"))
                .ends(1);
            has(&done.err, &["one of the files that are compared"]);
        }
        assert_eq!(run.read(over), numbers(150.0));
    }
}

/// A record of placement with these series of `map`, by N, and one that is no answer to the question; their order is turned.
fn by_n(level: f64, ns: &[u32], turned: usize) -> String {
    let block = |run: u32, level: f64| json!({"run": run, "start_ns": 0, "samples": 5, "value": level + f64::from(run), "histogram": null, "stalls": null});
    let of = |name: &str, n: u32, workload: &str| {
        let blocks: Vec<Value> = (0..6).map(|run| block(run, level + f64::from(n))).collect();
        json!({"name": name, "unit": "ns", "parameters": {"n": n, "workload": workload}, "blocks": blocks, "error": null})
    };
    let mut series = vec![of("fault", 5_000, "threads")];
    series.extend(ns.iter().map(|&n| of("map", n, "pbobench")));
    series.rotate_left(turned);
    let environment = json!({
        "host": "a", "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    let record = json!({
        "schema": "stopgap.run/1", "environment": environment,
        "answers": [{"question": "placement", "parameters": {"backend": "memfd,anonymous"}, "series": series}],
    });
    record.to_string()
}

/// A run that ended by time lacks loads that another has, and the order of series is chance: the largest load that both have is
/// compared, and said.
#[test]
fn records_are_compared_by_what_all_of_them_have() {
    let run = Run::new();
    run.write("whole.json", by_n(100.0, &[100, 1_000, 40_000], 1));
    run.write("short.json", by_n(3_000.0, &[1_000, 100], 0));
    for sides in ["whole.json short.json", "short.json whole.json"] {
        let document = run
            .stopgap(format!("compare {sides} --json"))
            .document(SCHEMA);
        assert_eq!(
            document["series"],
            "placement: map n=1000 workload=pbobench"
        );
        let warning = document["warnings"][0].as_str().unwrap();
        has(warning, &["there is no 'map n=40000 workload=pbobench' in"]);
        assert!(warning.ends_with("short.json"), "{warning}");
        // Two of the one series, and one of the two loads that both have.
        let names = document["endpoints"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["map", "mean map", "map, 2 setups"]);
    }
    let line = "\nof placement: map n=1000 workload=pbobench\n";
    has(&run.stopgap("compare whole.json short.json").out, &[line]);
    // Whatever the record is read by says what was compared.
    let record = run.records().pop().unwrap().display().to_string();
    has(
        &run.stopgap(format!("report --terminal {record}")).out,
        &[line],
    );
    let page = run.stopgap(format!("report {record} -o -")).out;
    let parts = [
        "<p>Compared: placement: map n=1000 workload=pbobench.</p>",
        "\">placement, ",
    ];
    has(&page, &parts);
    // The error names what the two sides do not share.
    run.write("other.json", by_n(100.0, &[7], 0));
    has(
        &run.stopgap("compare whole.json other.json").err,
        &["the parameter n is 7"],
    );
}

/// A git repository in `folder`; `None` where there is no git.
fn repository(folder: &Path) -> Option<impl Fn(&[&str]) -> String> {
    let repository = folder.join("repository");
    std::fs::create_dir(&repository).unwrap();
    let git = move |words: &[&str]| {
        let user = [
            "user.name=a",
            "user.email=a@localhost",
            "commit.gpgsign=false",
        ];
        Command::new("git")
            .args(user.iter().flat_map(|user| ["-c", user]))
            .args(words)
            .current_dir(&repository)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
    };
    if git(&["init", "-q"]).is_err() {
        skip(&Skip::program("git"));
        return None;
    }
    Some(move |words: &[&str]| {
        let output = git(words).unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        text(&output.stdout)
    })
}

/// The manual's way: each commit is built and run beside the good build. Page faults stand for the time, which a busy machine
/// would move.
#[test]
fn git_bisect_run_with_commands_finds_the_commit() {
    let run = Run::new();
    let folder = run.directory.path();
    let Some(git) = repository(folder) else {
        return;
    };
    let source = folder.join("repository/source");
    let good = "x=$(head -c 100000 /dev/zero | tr '\\0' a)";
    for commit in 1..=8 {
        let twice = if commit < 6 {
            ""
        } else {
            "; y=$x$x$x$x$x$x$x$x$x$x"
        };
        std::fs::write(&source, format!("{good}{twice} # {commit}\n")).unwrap();
        git(&["add", "source"]);
        git(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    git(&["bisect", "start", "HEAD", "HEAD~7"]);
    let good_build = folder.join("good-build");
    std::fs::write(&good_build, format!("{good}\n")).unwrap();
    let step = format!(
        "cp source build || exit 125; {STOPGAP} compare --bisect -o {} --endpoint 'minor faults' --margin 25% \
         --run 'sh {}' --run 'sh ./build'",
        folder.display(),
        good_build.display()
    );
    let found = git(&["bisect", "run", "sh", "-c", &step]);
    assert!(found.contains("is the first bad commit"), "{found}");
    let subject = git(&["log", "-1", "--format=%s", "refs/bisect/bad"]);
    assert_eq!(subject.trim(), "commit 6", "{found}");
}

/// Eight commits; from the sixth on it is slower; the fourth cannot be measured.
#[test]
fn git_bisect_run_finds_the_commit() {
    let run = Run::new();
    let folder = run.directory.path();
    run.write("base", numbers(100.0));
    let Some(git) = repository(folder) else {
        return;
    };
    for commit in 1..=8 {
        let level = if commit < 6 { 100.2 } else { 115.0 };
        let runs = match commit {
            4 => "it does not build\n".to_owned(),
            _ => numbers(level + f64::from(commit) / 100.0),
        };
        run.write("repository/runs", runs);
        git(&["add", "runs"]);
        git(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    git(&["bisect", "start", "HEAD", "HEAD~7"]);
    let [records, base] = ["", "base"].map(|name| run.path(name).display().to_string());
    let step = [
        STOPGAP, "compare", "--bisect", "-o", &records, &base, "runs",
    ];
    let found = git(&[&["bisect", "run"], &step[..]].concat());
    assert!(found.contains("is the first bad commit"), "{found}");
    let subject = git(&["log", "-1", "--format=%s", "refs/bisect/bad"]);
    assert_eq!(subject.trim(), "commit 6", "{found}");
}

/// A run record of ten processes that took some switches a round trip.
fn record(level: f64, change: impl Fn(&mut Value)) -> String {
    let block = |run: u32| {
        let value = level * (1.0 + f64::from(run * 7 % 10) / 500.0);
        json!({"run": run, "start_ns": 0, "samples": 100, "value": value, "histogram": null, "stalls": null})
    };
    let blocks: Vec<Value> = (0..10).map(block).collect();
    let mut record = json!({
        "schema": "stopgap.run/1", "version": "0.1.0", "command": ["stopgap"], "started_unix_s": 1, "duration_ms": 1,
        "seed": 1, "memory_budget": 1, "now": null, "interrupted": false, "peak_memory": null,
        "environment": {
            "host": "box", "kernel": "6.1", "cpu": "x", "page_size": 4096, "cpus": [0, 1], "mitigations": [],
            "privilege": "none", "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
        },
        "answers": [{
            "question": "roundtrip", "parameters": {"k": 1, "runs": 10}, "verdict": {"word": "flat", "text": "flat"},
            "figure": null, "evidence": [], "advice": [], "privilege": "none", "counters": [], "losses": [], "missing": [],
            "series": [{"name": "switches", "unit": "switches/rt", "parameters": {"client": "poll"}, "blocks": blocks, "error": null}],
        }],
    });
    change(&mut record);
    record.to_string()
}

#[test]
fn records_are_compared_where_they_answer_the_same_question() {
    let run = with(&[("numbers", 2.0)]);
    run.write("before", record(2.0, |_| {}));
    let newer = |level: f64| {
        record(level, |record| {
            record["environment"]["kernel"] = json!("6.12");
            record["answers"][0]["parameters"]["runs"] = json!(11);
        })
    };
    run.write("after", newer(3.8));
    // Ten runs of one occasion share its luck.
    let once = run.stopgap("compare before after --json").document(SCHEMA);
    assert_eq!(once["verdict"]["word"], "inconclusive", "{once}");
    assert_eq!(
        (&once["before"]["runs"], &once["before"]["within"]),
        (&json!(1), &json!(10))
    );
    has(
        &run.stopgap("compare before after").out,
        &[
            "CANNOT TELL\nmeasured once a side: ",
            "before before, 1 occasion of 10 runs\n",
            " 1.900x (n too small)",
        ],
    );
    let five = |side: &str, of: &dyn Fn(f64) -> String, level: f64| -> String {
        let occasion = |n: u32| {
            let name = format!("{side}-{n}");
            run.write(&name, of(level + f64::from(n * 3 % 5) / 50.0));
            name
        };
        (1..=5).map(occasion).collect::<Vec<_>>().join(" ")
    };
    let older = |level| record(level, |_| {});
    let [before, after] = [five("before", &older, 2.0), five("after", &newer, 3.8)];
    let document = run
        .stopgap(format!("compare --before {before} --after {after} --json"))
        .document(SCHEMA);
    assert_eq!(document["verdict"]["word"], "regression", "{document}");
    let kernel = json!([{"what": "kernel", "before": "6.1", "after": "6.12"}]);
    assert_eq!(document["environment"], kernel);
    assert_eq!(document["warnings"], json!([]));
    let later = |level: f64| record(level, |record| record["started_unix_s"] = json!(99));
    let after = five("later", &later, 2.0);
    let line = format!("compare --before {before} --after {after}");
    has(
        &run.stopgap(line).out,
        &["warning: all of one side was made before the other"],
    );
    assert_eq!(document["endpoints"][0]["unit"], "switches/rt");

    // What differs beside the kernel, and that each side had a boot.
    let busy = |level: f64, boot: &str, steal: f64| {
        record(level, |record| {
            let conditions = json!({"steal": steal + level, "others": 0.1, "frequency_mhz": null, "temperature_c": null});
            record["environment"]["conditions"] = conditions;
            record["environment"]["boot_id"] = json!(boot);
        })
    };
    let calm = five("calm", &|level| busy(level, "a", 0.0), 2.0);
    let stolen = five("stolen", &|level| busy(level, "b", 9.0), 3.8);
    let screen = run
        .stopgap(format!("compare --before {calm} --after {stolen}"))
        .out;
    let screen = screen.replace("\n  ", "");
    has(
        &screen,
        &[
            "warning: all of before ran in one boot and all of after in another: whatever else",
            "\nsteal was 2.0 % of CPU time in before and 13 % of CPU time in after: it may explain",
        ],
    );
    let same = five("same", &|level| busy(level, "a", 0.0), 2.0);
    let screen = run
        .stopgap(format!("compare --before {calm} --after {same}"))
        .out;
    assert!(
        !screen.contains("steal") && !screen.contains("boot"),
        "{screen}"
    );

    // Another machine is compared all the same, and that leads the report.
    let other = |record: &mut Value| record["environment"]["host"] = json!("else\u{1b}[2J");
    run.write("other", record(3.8, other));
    let screen = run.stopgap("compare before other").out;
    assert!(screen.starts_with("warning: "), "{screen}");
    has(&screen, &["different machines", "\nCANNOT TELL\n"]);
    assert!(!screen.contains('\u{1b}'), "{screen}");

    for (place, value, says) in [
        ("/answers/0/parameters/k", json!(7), "the parameter k is 7"),
        (
            "/answers/0/series/0/parameters/client",
            json!("read"),
            "client is read",
        ),
        (
            "/answers/0/question",
            json!("reclaim"),
            "the question is reclaim",
        ),
        ("/answers/0/series/0/unit", json!("ms"), "the unit is ms"),
        ("/answers/0/series/0/blocks/3/value", Value::Null, "null"),
        ("/answers", json!([]), "no question"),
    ] {
        let change = |record: &mut Value| *record.pointer_mut(place).unwrap() = value.clone();
        run.write("changed", record(2.0, change));
        run.refuses("compare before changed", &[says]);
    }
    let whole = run.read("before");
    run.write("cut", &whole[..whole.len() / 2]);
    for (line, says) in [
        ("compare before cut", "EOF"),
        ("compare before numbers", "the form"),
        (
            "compare before after --series naps",
            "no series 'naps'; there is switches",
        ),
    ] {
        run.refuses(line, &[says]);
    }
}

/// Occasions that drift by 5 % each hide a change of 10 %, unless neighbours in time are compared as pairs. The files' names do not
/// matter. Where one side is always first, the drift would look like a change, and the files are in no pairs.
#[test]
fn files_made_in_turn_are_pairs() {
    let run = Run::new();
    let made = |folder: &str, turns: &str, factor: f64| -> String {
        let mut of: [Vec<String>; 2] = [Vec::new(), Vec::new()];
        for (time, turn) in (0..).zip(turns.chars()) {
            let side = usize::from(turn == 'b');
            let level = 1.05_f64.powi(time)
                * [2.0, 2.0 * factor][side]
                * (1.0 + f64::from(time * 5 % 7) / 500.0);
            // Names in another order than times.
            let name = format!("{folder}/{turn}-{}.json", 99 - time);
            std::fs::create_dir_all(run.path(folder)).unwrap();
            run.write(
                &name,
                record(level, |record| record["started_unix_s"] = json!(100 + time)),
            );
            of[side].push(name);
        }
        let [before, after] = of.map(|side| side.join(" "));
        format!("compare --before {before} --after {after}")
    };
    let worse = made("worse", "abbabaababbaab", 1.1);
    let document = run.stopgap(format!("{worse} --json")).document(SCHEMA);
    assert_eq!(document["verdict"]["word"], "regression", "{document}");
    assert_eq!(document["pairs"], 7);
    let row = &document["endpoints"][0];
    assert_eq!(
        (&row["p_westfall_young"], &row["exact"]),
        (&json!(2.0 / 128.0), &json!(true))
    );
    has(
        &run.stopgap(format!("{worse} --verbose")).out,
        &[
            "WORSE\n",
            "\n7 pairs, made in turn\n",
            "arrangements of pairs, adjusted by Westfall and Young",
        ],
    );
    let same = made("same", "abbabaababbaab", 1.0);
    let document = run.stopgap(format!("{same} --json")).document(SCHEMA);
    assert_ne!(document["verdict"]["word"], "regression", "{document}");
    let first = made("first", "ababababababab", 1.1);
    let document = run.stopgap(format!("{first} --json")).document(SCHEMA);
    assert_eq!(
        document["verdict"]["word"], "no difference proven",
        "{document}"
    );
    assert_eq!(document["pairs"], Value::Null);
}

/// A histogram of cyclictest does not say whether it is in us or ns.
#[test]
fn the_unit_of_a_text_can_be_said() {
    let run = Run::new();
    // Samples of some 1,000 to 1,400, which may be either.
    let text = |shift: u32| -> String {
        let bins = (0..400).map(|bin| format!("{:06} {:06}\n", 1_000 + bin + shift, 9));
        let bins: String = bins.collect();
        format!(
            "# Histogram\n{bins}# Total: 000003600\n# Min Latencies: {}\n# Avg Latencies: {}\n# Max Latencies: {}\n\
             # Histogram Overflows: 00000\n",
            1_000 + shift,
            1_199 + shift,
            1_399 + shift
        )
    };
    run.write("a.txt", text(0));
    run.write("b.txt", text(1));
    for (unit, median) in [("us", "1.20 ms"), ("ns", "1.20 us")] {
        let said = run
            .stopgap(format!("compare a.txt b.txt --unit {unit}"))
            .ok();
        has(&said.out, &["\nmedian ", median]);
    }
    let unknown = run.stopgap("compare a.txt b.txt --unit fathoms").ends(1);
    has(&unknown.err, &["fathoms"]);
}
