//! `stopgap compare` through the command: sides, gates, and what is no comparison.

use std::path::Path;
use std::process::Command;

use crate::common::{Run, STOPGAP, has, names, text};
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

const NOISE: &str = "70\n80\n90\n100\n110\n120\n130\n140\n75\n99\n105\n";

#[test]
fn the_gate_says_by_its_status_what_it_came_to() {
    let files = [
        ("base", 100.0),
        ("worse", 120.0),
        ("better", 80.0),
        ("same", 100.1),
        ("slightly", 103.0),
    ];
    let run = with(&files);
    run.write("few", "100\n");
    run.write("noise", NOISE);
    for (after, expected, gate, bisect) in [
        ("worse", "regression", 2, 1),
        ("better", "improvement", 0, 0),
        ("same", "not worse", 0, 0),
        ("noise", "no difference proven", 4, 125),
        ("few", "inconclusive", 4, 125),
    ] {
        let document = run
            .stopgap(format!("compare base {after} --json"))
            .document(SCHEMA);
        assert_eq!(document["verdict"]["word"], expected, "{after}");
        // A gate that cannot tell says what would help.
        for (flags, status) in [("--fail-on regression", gate), ("--bisect", bisect)] {
            let line = format!("compare --before base --after {after} {flags}");
            let done = run.stopgap(line).ends(status);
            assert_eq!(done.err.contains("--margin"), after == "noise", "{done:#?}");
        }
        let done = run.stopgap(format!("compare base {after}")).ok();
        assert!(done.out.starts_with(&format!("{expected}: ")), "{done:#?}");
        let fits = |line: &str| line.chars().count() <= 100 || line.contains('/');
        assert!(done.out.lines().all(fits), "{}", done.out);
        assert_eq!(done.err, "", "{after}");
    }
    // A difference that is certain and within the margin is no regression.
    for (margin, status) in [("1%", 2), ("0.05", 0)] {
        let line = format!("compare base slightly --margin {margin} --fail-on regression");
        run.stopgap(line).ends(status);
    }
}

#[test]
fn the_same_runs_and_seed_give_the_same_record() {
    let run = with(&[("a", 100.0), ("b", 101.0)]);
    let of = |seed: u32| run.stopgap(format!("compare a b --json --seed {seed}")).out;
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    // The file holds the numbers that were printed.
    let kept = run.records().into_iter().map(std::fs::read_to_string);
    let mut kept = kept.map(Result::unwrap);
    assert!(kept.any(|record| record == of(7).trim_end()));
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
    std::os::unix::fs::symlink("good", run.path("link")).unwrap();
    for folder in ["none", "many"] {
        std::fs::create_dir(run.path(folder)).unwrap();
    }
    for n in 0..5_001 {
        run.write(&format!("many/{n}"), "");
    }
    let large = std::fs::File::create(run.path("large")).unwrap();
    large.set_len((256 << 20) + 1).unwrap();
    let pipe = Command::new("mkfifo").arg(run.path("pipe")).status(); // nobody writes to it
    assert!(pipe.unwrap().success());
    run.write("broken", r#"{"schema": "stopgap.gather/1", "version": 1}"#);
    let samples = "1\n".repeat(5_001);
    for (after, content, says) in [
        ("good", None, "the same file"),
        ("link", None, "the same file"),
        ("/nonexistent/runs", None, "No such file"),
        ("nothing", Some(&b""[..]), "it is empty"),
        ("blank", Some(b" \n\n"), "it is empty"),
        ("nan", Some(b"1\nNaN\n"), "NaN"),
        ("words", Some(b"1\ntwo\n"), "two"),
        ("bytes", Some(b"\xff\xfe\x00"), "no text"),
        (
            "gathered",
            Some(br#"{"schema": "stopgap.gather/1"}"#),
            "give it alone",
        ),
        ("samples", Some(samples.as_bytes()), "5000 runs"),
        ("none", None, "no file of runs"),
        ("many", None, "5000 runs"),
        ("/dev/zero", None, "a device"),
        ("large", None, "more than 256 MiB"),
        ("pipe", None, "a named pipe"),
    ] {
        if let Some(content) = content {
            run.write(after, content);
        }
        run.refuses(format!("compare good {after}"), &[says]);
        if after == "large" {
            continue; // once is slow enough
        }
        run.refuses(
            format!("compare good {after} --fail-on regression"),
            &[says],
        );
        let done = run
            .stopgap(format!("compare --bisect good {after}"))
            .ends(125);
        has(&done.err, &[says]);
    }
    for (line, says) in [
        ("compare", "give BEFORE and AFTER"),
        ("compare good", "one side only"),
        ("compare .", "one side only"),
        ("ministat pipe", "a named pipe"),
        ("report pipe", "a named pipe"),
        ("compare broken", "not gathered runs: invalid type"),
        ("compare good good good", "--before FILE... --after FILE..."),
        ("compare --before good", "--after"),
        ("compare --run true", "given twice"),
        ("compare --run true --run true -n 1", "1"),
        ("compare good good -n 9", "--n"),
        ("compare good --run true", "--run"),
        ("compare good good --margin -5%", "5% or 0.05"),
        (
            "compare good good --junit /nonexistent/j.xml",
            "cannot write /nonexistent/j.xml",
        ),
        ("compare good good --fail-on improvement", "improvement"),
    ] {
        has(&run.stopgap(line).ends(1).err, &[says]);
    }
    // An unknown flag is no verdict either.
    run.stopgap("compare --bisect --colour").ends(125);
}

#[test]
fn the_other_forms_are_files_or_take_the_screens_place() {
    let run = with(&[("a", 100.0), ("b", 150.0)]);
    std::fs::create_dir(run.path("out")).unwrap();
    let line = "compare a b --junit out/j.xml --openmetrics out/m.prom --annotations";
    let screen = run.stopgap(line).out;
    assert!(screen.starts_with("regression: "), "{screen}");
    has(&screen, &["\n::error title=stopgap compare::regression: "]);
    has(&run.read("out/j.xml"), &["<failure type=\"regression\""]);
    assert!(run.read("out/m.prom").ends_with("# EOF\n"));
    assert_eq!(names(&run.path("out")), ["j.xml", "m.prom"]);
    let ktap = run.stopgap("compare a b --ktap").out;
    assert!(ktap.starts_with("KTAP version 1\n1..1\n"), "{ktap}");
    let last = ktap.lines().last().unwrap();
    assert!(
        last.starts_with("not ok 1 compare # regression: "),
        "{ktap}"
    );
}

/// A file that is compared is nobody's to write.
#[test]
fn an_input_is_not_replaced() {
    let run = with(&[("a", 100.0), ("b", 150.0)]);
    std::fs::create_dir(run.path("side")).unwrap();
    run.write("side/inner", numbers(150.0));
    std::os::unix::fs::symlink("b", run.path("link")).unwrap();
    for (after, over) in [("b", "b"), ("b", "link"), ("side", "side/inner")] {
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
        assert_eq!(document["endpoints"].as_array().unwrap().len(), 1);
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
        "<p>Of placement: map n=1000 workload=pbobench.</p>",
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
        "cp source build || exit 125; {STOPGAP} compare --bisect -o {} --endpoint 'minor faults' --margin 25% -n 6 \
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
    let after = record(3.8, |record| {
        record["environment"]["kernel"] = json!("6.12");
        record["answers"][0]["parameters"]["runs"] = json!(11);
    });
    run.write("after", after);
    let document = run.stopgap("compare before after --json").document(SCHEMA);
    assert_eq!(document["verdict"]["word"], "regression", "{document}");
    let kernel = json!([{"what": "kernel", "before": "6.1", "after": "6.12"}]);
    assert_eq!(document["environment"], kernel);
    assert_eq!(document["warnings"], json!([]));
    assert_eq!(document["endpoints"][0]["unit"], "switches/rt");

    // Another machine is compared all the same, and that leads the report.
    let other = |record: &mut Value| record["environment"]["host"] = json!("else\u{1b}[2J");
    run.write("other", record(3.8, other));
    let screen = run.stopgap("compare before other").out;
    assert!(screen.starts_with("warning: "), "{screen}");
    has(&screen, &["different machines", "\nregression: "]);
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
