//! `stopgap probe wakeup` and `probe reclaim --as-gem-syslatency`, and what reads what they write. As any user.

use std::path::Path;
use std::process::Output;

use crate::common::{Run, text};
use serde_json::Value;

fn succeeds(output: &Output) -> &Output {
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&succeeds(output).stdout).unwrap()
}

/// A probe of 1 s in a folder of its own; the record.
fn probe(run: &Run, name: &str) -> String {
    let folder = run.directory.path().join(name);
    let words = ["probe", "wakeup", "-d", "1s", "--runs", "3", "-o"];
    let output = run.command(&words).arg(&folder).output().unwrap();
    let screen = text(&succeeds(&output).stdout);
    assert!(screen.contains("\nwakeup: "), "{screen}");
    let mut all = std::fs::read_dir(&folder).unwrap();
    let record = all.find_map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name()?.to_str()?;
        name.starts_with("probe-wakeup-")
            .then(|| path.display().to_string())
    });
    record.expect("a record")
}

#[test]
fn records_are_whole_compared_and_drawn() {
    let run = Run::new();
    let [before, after] = ["before", "after"].map(|name| probe(&run, name));
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&before).unwrap()).unwrap();
    let answer = &record["answers"][0];
    assert_eq!(answer["question"], "wakeup");
    let series = &answer["series"][0];
    assert_eq!(series["name"], "wake-up");
    let samples: u64 = series["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["samples"].as_u64().unwrap())
        .sum();
    // A wake-up a millisecond on every CPU, in three runs of 333 ms: none is left out, however late it is.
    let cpus = record["environment"]["cpus"].as_array().unwrap().len() as u64;
    assert!(samples >= 999 * cpus, "{samples}");

    let compared = json(&run.output(&["compare", &before, &after, "--json"]));
    let endpoints = compared["endpoints"].as_array().unwrap();
    assert!(!endpoints.is_empty(), "{compared}");
    let looked = compared["warnings"].to_string();
    assert!(!looked.contains("question"), "{looked}");

    let page = run.directory.path().join("page.html");
    let page = page.to_str().unwrap();
    succeeds(&run.output(&["report", &before, &after, "-o", page]));
    let page = std::fs::read_to_string(page).unwrap();
    for drawn in [
        "How late does a thread wake",
        "A wake-up: how many took how long",
        "A wake-up: the tail",
        "A wake-up, by CPU",
    ] {
        assert!(
            page.to_lowercase().contains(&drawn.to_lowercase()),
            "no '{drawn}'"
        );
    }
    let terminal = run.output(&["report", "--terminal", &before]);
    let terminal = text(&succeeds(&terminal).stdout);
    assert!(
        terminal.contains("wakeup: ") && terminal.contains("wake-up"),
        "{terminal}"
    );
}

#[test]
fn what_says_nothing_is_refused_or_decides_nothing() {
    let run = Run::new();
    let of = |words: &[&str]| run.output(&[&["probe", "wakeup"], words].concat());
    let refused = of(&["--policy", "other", "--priority", "5", "-d", "1s"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--policy fifo alone"));
    // Three wake-ups on each CPU: that none of them is late is no news.
    let short = of(&["-d", "0", "--interval", "1ms"]);
    let said = text(&succeeds(&short).stdout);
    assert!(said.contains("inconclusive: "), "{said}");
}

#[test]
fn check_asks_it_only_when_told() {
    let run = Run::new();
    let of = |words: &[&str]| text(&succeeds(&run.output(words)).stdout);
    assert!(!of(&["check", "--dry-run"]).contains("wakeup"));
    let only = of(&["check", "--dry-run", "--only", "wakeup"]);
    assert!(only.contains("wakeup Wakes a thread on each"), "{only}");
}

#[test]
fn numbers_of_the_mails_protocol_are_for_ministat() {
    let run = Run::new();
    let file = |name: &str, field: &str| {
        let mut numbers = String::new();
        for _ in 0..3 {
            let words = [
                "probe",
                "reclaim",
                "--as-gem-syslatency",
                "-t",
                "1",
                "-m",
                "-f",
                field,
            ];
            let output = run.output(&words);
            let number = text(&succeeds(&output).stdout);
            assert!(
                number
                    .trim()
                    .parse::<f64>()
                    .is_ok_and(|number| number >= 0.0),
                "'{number}'"
            );
            numbers += &number;
        }
        let path = run.directory.path().join(name);
        std::fs::write(&path, numbers).unwrap();
        path.display().to_string()
    };
    let means = file("means", "1");
    assert!(
        std::fs::read_to_string(&means)
            .unwrap()
            .lines()
            .all(|line| line.contains('.')),
        "%.3f"
    );
    let again = file("again", "1");
    let record = run.records().pop().expect("a record");
    succeeds(&run.output(&["ministat", &means, &again]));
    succeeds(&run.output(&["compare", &means, &again]));
    let record: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(&record)).unwrap()).unwrap();
    assert_eq!(
        record["answers"][0]["series"][0]["name"],
        "2 MiB allocation"
    );
    let line = record["answers"][0]["evidence"][0].as_str().unwrap();
    assert!(line.starts_with("gem_syslatency: cycles="), "{line}");
    for wrong in [
        &["-f", "3"][..],
        &["-t", "0"],
        &["--mode", "mlock"],
        &["--limit", "1G"],
        &["--swap", "1G"],
        &["--shrinker", "x"],
        &["--no-load"],
    ] {
        let words = [&["probe", "reclaim", "--as-gem-syslatency"], wrong].concat();
        assert_eq!(run.output(&words).status.code(), Some(1), "{wrong:?}");
    }
    assert_eq!(
        run.output(&["probe", "reclaim", "-m"]).status.code(),
        Some(1)
    );
}
