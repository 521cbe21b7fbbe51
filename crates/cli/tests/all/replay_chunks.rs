//! `stopgap replay chunks` and `stopgap advise chunks`: mail 001, Ctrl-C, and what they refuse.

use std::time::Duration;

use crate::common::{FILES, Run, has, valid};
use serde_json::{Value, json};

/// The document of `COMMAND chunks LINE`, run in a folder of its own.
fn document(command: &str, line: &str) -> Value {
    document_of(&Run::new(), command, line)
}

fn document_of(run: &Run, command: &str, line: &str) -> Value {
    let json = run.stopgap(format!("{command} chunks {line} --json"));
    valid(&format!("stopgap.{command}-1.json"), &json.quiet())
}

fn row<'a>(document: &'a Value, policy: &str) -> &'a Value {
    let rows = document["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["policy"] == policy);
    found.unwrap_or_else(|| panic!("no {policy} in {rows:#?}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Fails unless it is refused in one line that has all of `parts`, and writes nothing.
fn refused(run: &Run, line: &str, parts: &[&str]) {
    run.refuses(format!("replay chunks {line}"), parts);
}

/// Without an input it is mail 001's machine; its times stand beside the mail's.
#[test]
fn the_thread_stands_beside_the_mail() {
    let document = document("replay", "--policy one-page,fold,list --buffers 2");
    assert_eq!(document["rows"].as_array().unwrap().len(), 3);
    // fold is the farthest from the mail (docs/questions/chunks.md).
    for (policy, kind, ms, least, most) in [
        ("one-page", "fitted", json!(250.0), 0.9, 1.1),
        ("fold", "compared", Value::Null, 0.6, 3.0),
    ] {
        let mail = &row(&document, policy)["mail"];
        assert_eq!(mail["kind"], kind, "{mail}");
        assert!(ms.is_null() || mail["mail_ms"] == ms, "{mail}");
        assert!((least..most).contains(&number(&mail["factor"])), "{mail}");
    }
    let mail = &row(&document, "list")["mail"];
    assert_eq!(
        (&mail["mail_ms"], &mail["kind"]),
        (&Value::Null, &json!("absent"))
    );
    let mut assumed = document["chunks"]["assumptions"].as_array().unwrap().iter();
    assert!(assumed.any(|one| one["name"] == "reclaim" && one["value"] == 244.0));
    let sensitivity = row(&document, "fold")["sensitivity"].as_array().unwrap();
    let walk = |one: &&Value| one["assumption"] == "walk" && one["access"] == "rotate-90";
    assert_eq!(sensitivity.iter().filter(walk).count(), 2);
}

/// Mail 001: single pages harm nobody, and large chunks take what USB and Wi-Fi need. At the command's default length; the
/// model's own tests have three seeds, twice the length, and the other policies.
#[test]
fn large_chunks_harm_the_drivers_and_single_pages_do_not() {
    for seed in 1..=3 {
        let document = document(
            "replay",
            &format!("--policy one-page,start-64k --seed {seed}"),
        );
        assert_eq!(document["chunks"]["buffers"], 50);
        let failing = |drivers: &Value| {
            let drivers = drivers.as_array().unwrap();
            let share = |one: &Value| number(&one["failures"]) / number(&one["tries"]);
            drivers.iter().map(share).collect::<Vec<f64>>()
        };
        let alone = failing(&document["chunks"]["bystanders_alone"]);
        assert_eq!(alone, [0.0, 0.0], "seed {seed}");
        let single = failing(&row(&document, "one-page")["bystanders"]);
        assert_eq!(single, [0.0, 0.0], "seed {seed}");
        let large = failing(&row(&document, "start-64k")["bystanders"]);
        assert!(large[0] > 0.2 && large[1] > 0.5, "seed {seed}: {large:?}");
    }
}

/// Lists in the help are the lists that there are.
#[test]
fn the_help_names_what_there_is() {
    for command in ["replay", "advise"] {
        let help = Run::new().stopgap(format!("{command} chunks --help")).out;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let policies = stopgap_chunks::policy::Name::ALL.iter();
        let scenarios = stopgap_models::chunks::scenario::Scenario::ALL.iter();
        let patterns = stopgap_models::chunks::experiment::Pattern::ALL.iter();
        let kernels = stopgap_models::chunks::kernel::Kernel::ALL.iter();
        let words = policies.map(ToString::to_string);
        let words = words.chain(scenarios.map(ToString::to_string));
        let words = words.chain(patterns.map(ToString::to_string));
        for word in words.chain(kernels.map(ToString::to_string)) {
            assert!(help.contains(&word), "{command}: no {word} in {help}");
        }
    }
}

const HEADER: &str = r#"{"schema":"stopgap.trace/1"}"#;

fn map(id: u32, bytes: u64) -> String {
    format!(
        r#"{{"time_ns":1,"kind":"map","id":{id},"length_bytes":{bytes},"protection":"write","merge":"never"}}"#
    )
}

#[test]
fn what_makes_no_sense_is_refused() {
    let run = Run::new();
    run.write("large", format!("{HEADER}\n{}\n", map(1, 3 << 30)));
    run.write("video", format!("{HEADER}\n{}\n", map(1, 4_096)));
    for (line, parts) in [
        ("./large", &["large", "line 2", "larger than", "2 GiB"][..]),
        ("./video --buffers 4", &["leave out --size"]),
        ("--device=", &["power of two"]),
        ("--device 1,4K", &["{1,4K}", "no pages below 4K"]),
        ("--device 4K,16E", &["'16E'", "64 bits"]),
    ] {
        refused(&run, line, parts);
    }
    for other in [
        "\n",
        "[]",
        "{}",
        "{\"schema\":\"stopgap.run/1\"}",
        " [1,\n2]\n",
    ] {
        run.write("other.json", other);
        let parts = ["other.json", "stopgap.snapshot/1", "stopgap.trace/2"];
        refused(&run, "other.json", &parts);
    }
}

/// Long enough that the command is at work, and not done.
const LATER: Duration = Duration::from_millis(1_500);

/// The policy that Ctrl-C found at work is not the best for being the only one.
#[test]
fn an_interrupted_advice_names_no_policy() {
    let run = Run::new();
    let started =
        run.start("advise chunks --buffers 1m --json --device 4K,64K,2M --access rotate-90");
    let document = started
        .interrupt_after(LATER)
        .document("stopgap.advise-1.json");
    let advice = &document["advice"];
    assert_eq!(advice["verdict"]["word"], "inconclusive");
    assert_eq!(advice["policy"], Value::Null);
    let said = "inconclusive: interrupted, 0 of 13 policies compared";
    assert_eq!(advice["verdict"]["text"], said);
}

/// One buffer of 1 GiB by `old` takes minutes of ours in `thread`: the command ends before the buffer is built.
#[test]
fn an_interrupt_is_heard_within_a_buffer() {
    let run = Run::new();
    let started = run.start("replay chunks --size 1G --policy old");
    let done = started.interrupt_after(LATER).ends(1);
    has(&done.err, &["interrupted before anything"]);
}

/// Ctrl-C reports what was built until then.
#[test]
fn an_interrupt_loses_nothing() {
    let run = Run::new();
    let started = run.start("replay chunks --buffers 1m --json");
    let document = started
        .interrupt_after(LATER)
        .document("stopgap.replay-1.json");
    assert_eq!(document["interrupted"], true);
    let rows = document["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.len() < 13, "{}", rows.len());
    assert!(number(&rows[0]["time_ms"]) > 0.0);
}

/// A file that has a scenario's name must be given as `./NAME`.
#[test]
fn a_scenarios_name_wins_over_a_file() {
    let run = Run::new();
    run.write("aged", "not a trace\n");
    run.stopgap("replay chunks aged --policy list").ok();
    let done = run.stopgap("replay chunks ./aged --policy list").ends(1);
    has(&done.err, &["./aged: it is no trace"]);
}

#[test]
fn prices_that_make_no_sense_are_refused() {
    let usual = std::fs::read_to_string(format!("{FILES}/prices.json")).unwrap();
    valid("stopgap.prices-1.json", &usual);
    let usual: Value = serde_json::from_str(&usual).unwrap();
    let run = Run::new();
    for (change, value, part) in [
        (
            "/schema",
            json!("stopgap.prices/9"),
            "stopgap.prices/1 is read",
        ),
        ("/page_bytes", json!(16_384), "16 KiB pages"),
        ("/prices/0/name", json!("tea"), "tea of 1000 ns is no price"),
        (
            "/prices/0/value",
            json!(-1.0),
            "clear_page_ns of -1 ns is no price",
        ),
    ] {
        let mut changed = usual.clone();
        *changed.pointer_mut(change).unwrap() = value;
        run.write("changed.json", changed.to_string());
        refused(
            &run,
            "unfragmented --prices changed.json",
            &["--prices", part],
        );
    }
}
