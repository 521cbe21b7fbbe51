use super::*;
use crate::compare::{RowWord, Word};
use crate::document::Document;
use crate::noise::normal;

fn measured(label: Label, block: u32, elapsed_s: f64) -> Measured {
    let elapsed_ns = (elapsed_s * 1e9) as u64;
    Measured {
        label,
        block,
        elapsed_ns,
        user_ns: elapsed_ns / 2,
        system_ns: elapsed_ns / 4,
        voluntary_switches: 7,
        involuntary_switches: 0,
        minor_faults: 100,
        major_faults: 0,
        most_resident: 1 << 20,
    }
}

fn gathered(runs: Vec<Measured>, floor: Vec<Measured>, planned: u32) -> Gathered {
    let environment = serde_json::json!({
        "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    Gathered {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        command: vec!["stopgap".to_owned()],
        started_unix_s: 1_700_000_000,
        seed: 1,
        planned,
        interrupted: false,
        environment: serde_json::from_value(environment).expect("all options may be absent"),
        before: "a".to_owned(),
        after: "b".to_owned(),
        floor,
        runs,
    }
}

/// Runs with a spread of 3 % within blocks and of 20 % between them; B takes `effect` times as long.
fn noisy(n: u32, effect: f64, random: &mut Random) -> Vec<Measured> {
    let mut block_of = BTreeMap::new();
    let runs = order(n, random);
    let mut take = |(block, label)| {
        let level: f64 = *block_of
            .entry(block)
            .or_insert_with(|| 0.2 * normal(random));
        let shift = if label == Label::After {
            effect.ln()
        } else {
            0.0
        };
        measured(label, block, (level + shift + 0.03 * normal(random)).exp())
    };
    runs.into_iter().map(&mut take).collect()
}

#[test]
fn blocks_are_abba_or_baab_by_a_draw() {
    for n in [1, 2, 5, 30] {
        let order = order(n, &mut Random::new(3));
        for label in [Label::Before, Label::After] {
            assert_eq!(
                order.iter().filter(|run| run.1 == label).count(),
                n as usize
            );
        }
        for four in order.chunks(4) {
            assert!(four.iter().all(|run| run.0 == four[0].0));
            let labels: Vec<Label> = four.iter().map(|run| run.1).collect();
            assert_ne!(labels[0], labels[1]);
            if labels.len() == 4 {
                assert_eq!((labels[0], labels[1]), (labels[3], labels[2]));
            }
        }
    }
    let firsts: Vec<Label> = order(40, &mut Random::new(3))
        .chunks(4)
        .map(|four| four[0].1)
        .collect();
    assert!(firsts.contains(&Label::Before) && firsts.contains(&Label::After));
    assert_eq!([3, 12, 24, 30, 1_000].map(floor_runs), [6, 6, 8, 10, 10]);
}

#[test]
fn gathered_runs_read_back_and_are_compared_by_block() {
    let mut random = Random::new(5);
    let runs = noisy(20, 1.1, &mut random);
    let text = gathered(runs, Vec::new(), 20).to_json();
    assert!(Gathered::is_named_in(&text));
    let again = Gathered::from_json(&text).expect("reads back");
    assert_eq!(again.to_json(), text);
    assert!(again.floor(&Options::default()).is_none());
    let [before, after] = again.sides();
    assert_eq!((before.runs.len(), after.runs.len()), (20, 20));
    let options = Gathered::options(&Options::default());
    let compared = compare(&before, &after, &options);
    assert_eq!(compared.verdict.word, Word::Regression);
    let names: Vec<(&str, &str)> = compared
        .endpoints
        .iter()
        .map(|row| (&*row.name, &*row.unit))
        .collect();
    assert_eq!(names, TESTED.map(|name| (name, "s")));
    assert!(
        compared
            .endpoints
            .iter()
            .all(|row| row.word == RowWord::Worse)
    );
    // Blocks differ by 20 %, sides by 10 %: without blocks the interval would be too wide to tell.
    let effect = compared.endpoints[0].effect.expect("a ratio");
    let (low, high) = (effect.low.expect("bounded"), effect.high.expect("bounded"));
    assert!(1.05 < low && high < 1.15, "{low}..{high}");
    let described = again.described(&options.endpoints);
    assert!(described.contains(&("voluntary switches".to_owned(), "", 7.0, 7.0)));
    assert!(!described.iter().any(|of| of.0 == "user time"));
}

#[test]
fn a_document_of_another_kind_is_named() {
    let error = |text: &str| Gathered::from_json(text).expect_err(text).to_string();
    assert_eq!(
        error(r#"{"schema": "stopgap.run/1"}"#),
        "the document's schema is 'stopgap.run/1', expected 'stopgap.gather/1'"
    );
    assert!(error(r#"{"schema": "stopgap.gather/1"}"#).contains("missing field `version`"));
    assert!(error("").starts_with("not gathered runs: EOF"));
    assert!(Gathered::is_named_in(r#"{"schema": "stopgap.gather/9"}"#));
    assert!(!Gathered::is_named_in("1\n2\n"));
}

#[test]
fn the_floor_says_what_can_be_seen() {
    let mut random = Random::new(11);
    let floor = noisy(10, 1.0, &mut random);
    let spread = super::spread(&floor, "elapsed time").expect("blocks of four");
    assert!((0.02..0.045).contains(&spread), "{spread}");
    assert_eq!(super::spread(&floor, "major faults"), None);
    let gathered = gathered(Vec::new(), floor, 30);
    let floor = gathered
        .floor(&Options::default())
        .expect("runs of both labels");
    assert_eq!(floor.comparison.before.name, floor.comparison.after.name);
    assert_eq!(floor.noise.len(), 3);
    assert!((floor.noise[0].spread - spread).abs() < 1e-12);
}

/// A change of the visible size is found about four times of five, and half of it seldom.
#[test]
fn what_is_said_to_be_visible_is_seen() {
    let (n, rounds, seed) = (20, 150, 7);
    println!("seed {seed}");
    let options = Options {
        permutations: 999,
        resamples: 50,
        margin: 0.0,
        endpoints: vec![Endpoint::from("elapsed time")],
        ..Options::default()
    };
    let change = visible(0.03, n, 1);
    let mut random = Random::new(seed);
    let mut found = |effect: f64| {
        (0..rounds)
            .filter(|_| {
                let gathered = gathered(noisy(n, effect, &mut random), Vec::new(), n);
                let [before, after] = gathered.sides();
                compare(&before, &after, &options).endpoints[0].p <= Some(0.05)
            })
            .count()
    };
    let (whole, half) = (found(1.0 + change), found(1.0 + change / 2.0));
    println!("{whole} and {half} of {rounds}");
    assert!((105..=145).contains(&whole), "{whole} of {rounds}");
    assert!(half < 75, "{half} of {rounds}");
}
