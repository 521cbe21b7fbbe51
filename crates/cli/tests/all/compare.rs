//! `stopgap compare` through the command: sides, gates, and what is no comparison.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Run, STOPGAP, text, valid};
use serde_json::{Value, json};

/// Runs of `level` and up to 2 % more, a line each.
fn numbers(folder: &Path, name: &str, level: f64) -> PathBuf {
    let path = folder.join(name);
    let line = |run: u32| format!("{}\n", level * (1.0 + f64::from(run * 7 % 20) / 1_000.0));
    std::fs::write(&path, (0..20).map(line).collect::<String>()).unwrap();
    path
}

fn word(output: &Output) -> String {
    let json = text(&output.stdout);
    let document = valid("stopgap.compare-1.json", &json);
    document["verdict"]["word"].as_str().unwrap().to_owned()
}

#[test]
fn the_gate_says_by_its_status_what_it_came_to() {
    let run = Run::new();
    let folder = run.directory.path();
    let base = numbers(folder, "base", 100.0);
    let few = folder.join("few");
    std::fs::write(&few, "100\n").unwrap();
    let noise = folder.join("noise");
    std::fs::write(&noise, "70\n80\n90\n100\n110\n120\n130\n140\n75\n99\n105\n").unwrap();
    for (after, expected, gate, bisect) in [
        (numbers(folder, "worse", 120.0), "regression", 2, 1),
        (numbers(folder, "better", 80.0), "improvement", 0, 0),
        (numbers(folder, "same", 100.1), "not worse", 0, 0),
        (noise, "no difference proven", 4, 125),
        (few, "inconclusive", 4, 125),
    ] {
        let (base, after) = (base.to_str().unwrap(), after.to_str().unwrap());
        let plain = run.output(&["compare", base, after, "--json"]);
        assert_eq!(word(&plain), expected, "{after}");
        assert_eq!(plain.status.code(), Some(0), "{plain:?}");
        let status = |flags: &[&str]| {
            let words = [&["compare", "--before", base, "--after", after][..], flags].concat();
            run.output(&words).status.code()
        };
        assert_eq!(status(&["--fail-on", "regression"]), Some(gate), "{after}");
        assert_eq!(status(&["--bisect"]), Some(bisect), "{after}");
        let screen = text(&run.output(&["compare", base, after]).stdout);
        assert!(screen.starts_with(&format!("{expected}: ")), "{screen}");
        assert!(
            screen
                .lines()
                .all(|line| line.chars().count() <= 100 || line.contains('/')),
            "{screen}"
        );
    }
    // A difference that is certain and within the margin is no regression.
    let slightly = numbers(folder, "slightly", 103.0);
    let slightly = slightly.to_str().unwrap();
    let of = |margin| {
        let words = [
            "compare",
            base.to_str().unwrap(),
            slightly,
            "--margin",
            margin,
            "--fail-on",
            "regression",
        ];
        run.output(&words).status.code()
    };
    assert_eq!((of("1%"), of("0.05")), (Some(2), Some(0)));
}

#[test]
fn the_same_runs_and_seed_give_the_same_record() {
    let run = Run::new();
    let folder = run.directory.path();
    let (a, b) = (numbers(folder, "a", 100.0), numbers(folder, "b", 101.0));
    let [a, b] = [&a, &b].map(|path| path.to_str().unwrap());
    let of = |seed| {
        text(
            &run.output(&["compare", a, b, "--json", "--seed", seed])
                .stdout,
        )
    };
    assert_eq!(of("7"), of("7"));
    assert_ne!(of("7"), of("8"));
    // What was printed is what was kept.
    let kept = run.records();
    let kept: Vec<String> = kept
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(kept.iter().any(|record| *record == of("7").trim_end()));
}

#[test]
fn a_directory_is_a_side() {
    let run = Run::new();
    let folder = run.directory.path();
    let [old, new] = ["old", "new"].map(|name| folder.join(name));
    for (side, level) in [(&old, 100.0), (&new, 130.0)] {
        std::fs::create_dir_all(side.join("inner")).unwrap();
        for run in 0..6 {
            std::fs::write(
                side.join(format!("{run}.txt")),
                format!("{}\n", level + f64::from(run)),
            )
            .unwrap();
        }
        std::fs::write(side.join(".hidden"), "not a run\n").unwrap();
        std::fs::write(side.join("check-1.html"), "<!DOCTYPE html>\n").unwrap();
    }
    let [old, new] = [&old, &new].map(|path| path.to_str().unwrap());
    let output = run.output(&["compare", old, new, "--json"]);
    let document = valid("stopgap.compare-1.json", &text(&output.stdout));
    assert_eq!(
        (&document["before"]["runs"], &document["after"]["runs"]),
        (&Value::from(6), &Value::from(6))
    );
    assert_eq!(document["verdict"]["word"], "regression");
}

#[test]
fn what_is_no_comparison_is_said_in_one_line() {
    let run = Run::new();
    let folder = run.directory.path();
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = numbers(folder, "good", 100.0);
    let good = good.to_str().unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink(good, &link).unwrap();
    let empty = folder.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let many = folder.join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..5_001 {
        std::fs::write(many.join(n.to_string()), "").unwrap();
    }
    let lines = "1\n".repeat(5_001);
    let large = folder.join("large");
    let sparse = std::fs::File::create(&large).unwrap();
    sparse.set_len((256 << 20) + 1).unwrap();
    let pipe = folder.join("pipe"); // nobody writes to it
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (after, says) in [
        (good, "the same file"),
        (link.to_str().unwrap(), "the same file"),
        ("/nonexistent/runs", "No such file"),
        (&write("nothing", b""), "it is empty"),
        (&write("blank", b" \n\n"), "it is empty"),
        (&write("nan", b"1\nNaN\n"), "NaN"),
        (&write("words", b"1\ntwo\n"), "two"),
        (&write("bytes", b"\xff\xfe\x00"), "no text"),
        (
            &write("gathered", br#"{"schema": "stopgap.gather/1"}"#),
            "give it alone",
        ),
        (&write("samples", lines.as_bytes()), "5000 runs"),
        (empty.to_str().unwrap(), "no file of runs"),
        (many.to_str().unwrap(), "5000 runs"),
        ("/dev/zero", "a device"),
        (large.to_str().unwrap(), "more than 256 MiB"),
        (pipe.to_str().unwrap(), "a named pipe"),
    ] {
        for (words, status) in [
            (vec!["compare", good, after], 1),
            (vec!["compare", good, after, "--fail-on", "regression"], 1),
            (vec!["compare", "--bisect", good, after], 125),
        ] {
            if words.len() > 3 && Path::new(after) == large {
                continue; // once is slow enough
            }
            let output = run.output(&words);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{after}: {error}");
            assert!(error.contains(says), "{after}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(output.stdout.is_empty());
        }
    }
    let broken = write("broken", br#"{"schema": "stopgap.gather/1", "version": 1}"#);
    for (words, says) in [
        (&["compare"][..], "give BEFORE and AFTER"),
        (&["compare", good], "one side only"),
        (&["compare", folder.to_str().unwrap()], "one side only"),
        (&["ministat", pipe.to_str().unwrap()], "a named pipe"),
        (&["report", pipe.to_str().unwrap()], "a named pipe"),
        (&["compare", &broken], "not gathered runs: invalid type"),
        (
            &["compare", good, good, good],
            "--before FILE... --after FILE...",
        ),
        (&["compare", "--before", good], "--after"),
        (&["compare", "--run", "true"], "given twice"),
        (
            &["compare", "--run", "true", "--run", "true", "-n", "1"],
            "1",
        ),
        (&["compare", good, "--run", "true"], "--run"),
        (&["compare", good, good, "--margin", "-5%"], "5% or 0.05"),
        (
            &["compare", good, good, "--junit", "/nonexistent/j.xml"],
            "cannot write /nonexistent/j.xml",
        ),
        (
            &["compare", good, good, "--fail-on", "improvement"],
            "improvement",
        ),
    ] {
        let output = run.output(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
    }
    // An unknown flag is no verdict either.
    assert_eq!(
        run.output(&["compare", "--bisect", "--colour"])
            .status
            .code(),
        Some(125)
    );
}

#[test]
fn the_other_forms_are_files_or_take_the_screens_place() {
    let run = Run::new();
    let folder = run.directory.path();
    let (a, b) = (numbers(folder, "a", 100.0), numbers(folder, "b", 150.0));
    let [a, b] = [&a, &b].map(|path| path.to_str().unwrap());
    let out = folder.join("out");
    std::fs::create_dir(&out).unwrap();
    let [junit, metrics] =
        ["j.xml", "m.prom"].map(|name| out.join(name).to_str().unwrap().to_owned());
    let words = [
        "compare",
        a,
        b,
        "--junit",
        &junit,
        "--openmetrics",
        &metrics,
        "--annotations",
    ];
    let output = run.output(&words);
    let screen = text(&output.stdout);
    assert!(screen.starts_with("regression: "), "{screen}");
    assert!(
        screen.contains("\n::error title=stopgap compare::regression: "),
        "{screen}"
    );
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert!(read(&junit).contains("<failure type=\"regression\""));
    assert!(read(&metrics).ends_with("# EOF\n"));
    assert_eq!(
        std::fs::read_dir(&out).unwrap().count(),
        2,
        "only the two files"
    );
    let ktap = text(&run.output(&["compare", a, b, "--ktap"]).stdout);
    assert!(ktap.starts_with("KTAP version 1\n1..1\n"), "{ktap}");
    assert!(
        ktap.lines()
            .last()
            .unwrap()
            .starts_with("not ok 1 compare # regression: "),
        "{ktap}"
    );
}

/// A file that is compared is nobody's to write.
#[test]
fn an_input_is_not_replaced() {
    let run = Run::new();
    let folder = run.directory.path();
    let (a, b) = (numbers(folder, "a", 100.0), numbers(folder, "b", 150.0));
    let side = folder.join("side");
    std::fs::create_dir(&side).unwrap();
    let inner = numbers(&side, "inner", 150.0);
    let link = folder.join("link");
    std::os::unix::fs::symlink(&b, &link).unwrap();
    let before = std::fs::read(&b).unwrap();
    for (after, over) in [(&b, &b), (&b, &link), (&side, &inner)] {
        for flag in ["--junit", "--openmetrics"] {
            let [a, after, over] = [&a, after, over].map(|path| path.to_str().unwrap());
            let output = run.output(&["compare", a, after, flag, over]);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(
                error.contains("one of the files that are compared"),
                "{error}"
            );
        }
        assert_eq!(std::fs::read(over).unwrap(), before);
    }
}

/// A record of placement with these series of `map`, by N, and one that is no answer to the question; their order is turned.
fn by_n(folder: &Path, name: &str, level: f64, ns: &[u32], turned: usize) -> PathBuf {
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
    let path = folder.join(name);
    std::fs::write(&path, record.to_string()).unwrap();
    path
}

/// A run that ended by time lacks loads that another has, and the order of series is chance: the largest load that both have is
/// compared, and said.
#[test]
fn records_are_compared_by_what_all_of_them_have() {
    let run = Run::new();
    let folder = run.directory.path();
    let whole = by_n(folder, "whole.json", 100.0, &[100, 1_000, 40_000], 1);
    let short = by_n(folder, "short.json", 3_000.0, &[1_000, 100], 0);
    let [whole, short] = [&whole, &short].map(|path| path.to_str().unwrap());
    for sides in [[whole, short], [short, whole]] {
        let output = run.output(&["compare", sides[0], sides[1], "--json"]);
        let document = valid("stopgap.compare-1.json", &text(&output.stdout));
        assert_eq!(
            document["series"], "placement: map n=1000 workload=pbobench",
            "{output:?}"
        );
        let warning = document["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("there is no 'map n=40000 workload=pbobench' in")
                && warning.ends_with("short.json"),
            "{warning}"
        );
        assert_eq!(document["endpoints"].as_array().unwrap().len(), 1);
    }
    let output = run.output(&["compare", whole, short]);
    let screen = text(&output.stdout);
    assert!(
        screen.contains("\nof placement: map n=1000 workload=pbobench\n"),
        "{screen}"
    );
    // Whatever the record is read by says what was compared.
    let record = run.records().pop().unwrap().display().to_string();
    let output = run.output(&["report", "--terminal", &record]);
    let terminal = text(&output.stdout);
    assert!(
        terminal.contains("\nof placement: map n=1000 workload=pbobench\n"),
        "{terminal}"
    );
    let output = run.output(&["report", &record, "-o", "-"]);
    let page = text(&output.stdout);
    for said in [
        "<p>Of placement: map n=1000 workload=pbobench.</p>",
        "\">placement, ",
    ] {
        assert!(page.contains(said), "{said}");
    }
    // What they have not in common is refused by name.
    let other = by_n(folder, "other.json", 100.0, &[7], 0);
    let output = run.output(&["compare", whole, other.to_str().unwrap()]);
    let error = text(&output.stderr);
    assert!(error.contains("the parameter n is 7"), "{error}");
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
        stopgap_kernel::fake::skipped("git is not installed");
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

/// A gate that cannot tell says what would help.
#[test]
fn a_gate_that_cannot_tell_says_what_helps() {
    let run = Run::new();
    let folder = run.directory.path();
    let base = numbers(folder, "base", 100.0);
    let noise = folder.join("noise");
    std::fs::write(&noise, "70\n80\n90\n100\n110\n120\n130\n140\n75\n99\n105\n").unwrap();
    let [base, noise] = [&base, &noise].map(|path| path.to_str().unwrap());
    let said = |flags: &[&str]| {
        let words = [&["compare", base, noise][..], flags].concat();
        text(&run.output(&words).stderr)
    };
    for flags in [&["--bisect"][..], &["--fail-on", "regression"]] {
        assert!(said(flags).contains("--margin"), "{}", said(flags));
    }
    assert_eq!(said(&[]), "");
}

/// Eight commits; from the sixth on it is slower; the fourth cannot be measured.
#[test]
fn git_bisect_run_finds_the_commit() {
    let run = Run::new();
    let folder = run.directory.path();
    let base = numbers(folder, "base", 100.0);
    let Some(git) = repository(folder) else {
        return;
    };
    let repository = folder.join("repository");
    for commit in 1..=8 {
        numbers(
            &repository,
            "runs",
            if commit < 6 { 100.2 } else { 115.0 } + f64::from(commit) / 100.0,
        );
        if commit == 4 {
            std::fs::write(repository.join("runs"), "it does not build\n").unwrap();
        }
        git(&["add", "runs"]);
        git(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    git(&["bisect", "start", "HEAD", "HEAD~7"]);
    let records = folder.to_str().unwrap();
    let found = git(&[
        "bisect",
        "run",
        STOPGAP,
        "compare",
        "--bisect",
        "-o",
        records,
        base.to_str().unwrap(),
        "runs",
    ]);
    assert!(found.contains("is the first bad commit"), "{found}");
    let subject = git(&["log", "-1", "--format=%s", "refs/bisect/bad"]);
    assert_eq!(subject.trim(), "commit 6", "{found}");
}

/// A run record of ten processes that took some switches a round trip.
fn record(folder: &Path, name: &str, level: f64, change: impl Fn(&mut Value)) -> String {
    let blocks: Vec<Value> = (0..10u32)
        .map(|run| {
            let value = level * (1.0 + f64::from(run * 7 % 10) / 500.0);
            json!({"run": run, "start_ns": 0, "samples": 100, "value": value, "histogram": null, "stalls": null})
        })
        .collect();
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
    let path = folder.join(name);
    std::fs::write(&path, record.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn records_are_compared_where_they_answer_the_same_question() {
    let run = Run::new();
    let folder = run.directory.path();
    let before = record(folder, "before", 2.0, |_| {});
    let after = record(folder, "after", 3.8, |record| {
        record["environment"]["kernel"] = json!("6.12");
        record["answers"][0]["parameters"]["runs"] = json!(11);
    });
    let output = run.output(&["compare", &before, &after, "--json"]);
    let document = valid("stopgap.compare-1.json", &text(&output.stdout));
    assert_eq!(document["verdict"]["word"], "regression", "{output:?}");
    assert_eq!(
        document["environment"],
        json!([{"what": "kernel", "before": "6.1", "after": "6.12"}])
    );
    assert_eq!(document["warnings"], json!([]));
    assert_eq!(document["endpoints"][0]["unit"], "switches/rt");

    // Another machine is compared all the same, and that leads the report.
    let other = record(folder, "other", 3.8, |record| {
        record["environment"]["host"] = json!("else\u{1b}[2J");
    });
    let output = run.output(&["compare", &before, &other]);
    let screen = text(&output.stdout);
    assert!(
        screen.starts_with("warning: ") && screen.contains("different machines"),
        "{screen}"
    );
    assert!(
        screen.contains("\nregression: ") && !screen.contains('\u{1b}'),
        "{screen}"
    );

    let whole = std::fs::read_to_string(&before).unwrap();
    let cut = folder.join("cut");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let numbers = numbers(folder, "numbers", 2.0);
    for (after, says) in [
        (
            record(folder, "k", 2.0, |record| {
                record["answers"][0]["parameters"]["k"] = json!(7);
            }),
            "the parameter k is 7",
        ),
        (
            record(folder, "series", 2.0, |record| {
                record["answers"][0]["series"][0]["parameters"]["client"] = json!("read");
            }),
            "client is read",
        ),
        (
            record(folder, "question", 2.0, |record| {
                record["answers"][0]["question"] = json!("reclaim");
            }),
            "the question is reclaim",
        ),
        (
            record(folder, "unit", 2.0, |record| {
                record["answers"][0]["series"][0]["unit"] = json!("ms");
            }),
            "the unit is ms",
        ),
        (
            record(folder, "null", 2.0, |record| {
                record["answers"][0]["series"][0]["blocks"][3]["value"] = Value::Null;
            }),
            "null",
        ),
        (
            record(folder, "none", 2.0, |record| {
                record["answers"] = json!([]);
            }),
            "no question",
        ),
        (cut.to_str().unwrap().to_owned(), "EOF"),
        (numbers.to_str().unwrap().to_owned(), "the form"),
    ] {
        let output = run.output(&["compare", &before, &after]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{after}: {error}");
        assert!(error.contains(says), "{after}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let words = ["compare", &*before, &after, "--series", "naps"];
    let error = text(&run.output(&words).stderr);
    assert!(
        error.contains("no series 'naps'; there is switches"),
        "{error}"
    );
}
