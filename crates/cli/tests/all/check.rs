//! The main job as its users run it.

use std::time::Duration;

use crate::common::{Run, assert_valid, has, root, text};
use serde_json::Value;
use stopgap_testing::{Skip, skip};

/// Each question with its first fix.
const QUESTIONS: [(&str, &str); 4] = [
    ("placement", "arena"),
    ("roundtrip", "batch-client"),
    ("chunks", "chunked"),
    ("reclaim", "locked"),
];

/// Every question has figures or says why not; nothing is silently zero. Each has its fixes: tried, with both figures and a factor
/// in an interval, or not, and why.
pub(crate) fn assert_answered(record: &Value) {
    let answers = record["answers"].as_array().unwrap();
    assert_eq!(answers.len(), QUESTIONS.len());
    for (answer, (question, lead)) in answers.iter().zip(QUESTIONS) {
        assert_eq!(answer["question"], question);
        let verdict = &answer["verdict"];
        let series = answer["series"].as_array().unwrap();
        let blocks = |series: &Value| series["blocks"].as_array().unwrap().clone();
        let figures = series.iter().any(|series| !blocks(series).is_empty());
        assert!(
            figures || verdict["word"] == "unsupported",
            "{question}: {verdict}"
        );
        let text = verdict["text"].as_str().unwrap();
        assert!(
            text.starts_with(verdict["word"].as_str().unwrap()),
            "{text}"
        );
        for series in series {
            let failed = series["error"].is_string();
            assert!(failed || !blocks(series).is_empty(), "{question}: {series}");
            let sampled = |block: &Value| block["samples"].as_u64() > Some(0);
            assert!(blocks(series).iter().all(sampled), "{question}: {series}");
        }
        let fixes = answer["fixes"].as_array().unwrap();
        assert_eq!(fixes[0]["name"], lead, "{question}");
        for fix in fixes {
            if fix["factor"].is_null() {
                assert!(fix["why"].is_string(), "{question}: {fix}");
            } else {
                let factor = |end: &str| fix["factor"][end].as_f64().unwrap();
                assert!(factor("low") <= factor("value") && factor("value") <= factor("high"));
                assert!(fix["before"].as_f64() > Some(0.0) && fix["after"].as_f64() > Some(0.0));
            }
        }
    }
    let factor = &answers[0]["fixes"][0]["factor"];
    // Some 20 to 150 times, also in a debug build on a busy machine.
    assert!(factor["low"].as_f64() > Some(2.0), "the arena: {factor}");
}

#[test]
fn nobody_gets_an_answer_to_every_question() {
    if !root() {
        return skip(&Skip::root(
            "becoming nobody; this run is unprivileged itself",
        ));
    }
    let run = Run::new();
    let nobody = |words: &[&str]| {
        let output = run.as_nobody(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
        text(&output.stdout)
    };
    let record = assert_valid(&nobody(&["check", "--quick", "--json"]));
    assert_answered(&record);
    assert_eq!(record["environment"]["privilege"], "none");
    // The screen names what root would add.
    has(
        &nobody(&["check", "--quick", "--only", "chunks"]),
        &["root"],
    );
}

/// Asserts that a screen is read without scrolling on a terminal of 80 by 24, and without wrapping.
fn assert_one_screen(screen: &str) {
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() <= 24, "{} lines:\n{screen}", lines.len());
    for line in lines {
        // A path is not cut: it is there to be copied.
        let wide = line.chars().count() > 80 && !line.starts_with("Report: ");
        assert!(!wide, "'{line}' in:\n{screen}");
    }
    assert!(screen.starts_with("stopgap check   "), "{screen}");
    let headline = screen.lines().nth(2).unwrap();
    let known = [
        "FOUND A LIKELY CAUSE: ",
        "FOUND SOMETHING WORTH A LOOK: ",
        "FOUND NOTHING THAT EXPLAINS",
    ];
    assert!(
        known.iter().any(|one| headline.starts_with(one)),
        "{screen}"
    );
    has(screen, &["RIGHT NOW", "Evidence: --verbose", "Report: "]);
}

#[test]
fn the_answer_is_one_screen() {
    let run = Run::new();
    let pid = std::process::id().to_string();
    let mut ways = vec![vec!["check", "--quick"], vec!["check", "--passive"]];
    ways.push(vec!["check", "--passive", "-p", &pid]);
    ways.push(vec!["check", "--quick", "--only", "placement", "-p", &pid]);
    for words in ways {
        let output = run.output(&words);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_one_screen(&text(&output.stdout));
        if root() && words.len() == 2 {
            let output = run.as_nobody(&words).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let screen = text(&output.stdout);
            assert_one_screen(&screen);
            has(&screen, &["sudo stopgap check"]);
        }
    }
}

/// The headline is in the record, and follows from its rows.
#[test]
fn the_record_has_the_headline() {
    let run = Run::new();
    let record = assert_valid(&text(&run.output(&["check", "--passive", "--json"]).stdout));
    let verdict = &record["verdict"];
    let states = verdict["now"].as_array().unwrap().iter();
    let states: Vec<&str> = states.map(|row| row["state"].as_str().unwrap()).collect();
    let expected = if states.contains(&"cause") {
        "likely_cause"
    } else if states.contains(&"look") {
        "worth_a_look"
    } else {
        "nothing_found"
    };
    assert_eq!(verdict["headline"], expected, "{verdict}");
    assert_eq!(verdict["causes"].as_array().unwrap().len(), 0);
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let run = Run::new();
    let started = run.start("check --only placement --json");
    let done = started.interrupt_after(Duration::from_secs(3)).ok();
    let record = assert_valid(&done.out);
    assert_eq!(record["interrupted"], true);
    let series = record["answers"][0]["series"].as_array().unwrap();
    assert!(!series.is_empty(), "what was measured is lost");
}
