use super::*;
use crate::compare::{RowWord, Scale, Word};
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
        instructions: None,
        emulated_instructions: None,
        system_calls: None,
    }
}

fn gathered(runs: Vec<Measured>, plan: Option<Plan>) -> Gathered {
    let environment = serde_json::json!({
        "page_size": 4096, "cpus": [0, 1], "mitigations": [], "privilege": "none",
        "capabilities": [], "pressure_before": [], "pressure_after": [], "missing": [],
    });
    Gathered {
        schema: SCHEMA.to_owned(),
        version: "0.2.0".to_owned(),
        command: vec!["stopgap".to_owned()],
        started_unix_s: 1_700_000_000,
        seed: 1,
        planned: 5_000,
        plan,
        interrupted: false,
        environment: serde_json::from_value(environment).expect("all options may be absent"),
        before: "a".to_owned(),
        after: "b".to_owned(),
        floor: Vec::new(),
        runs,
    }
}

fn plan(endpoints: &[&str]) -> Plan {
    Plan {
        cpu: None,
        endpoints: endpoints.iter().map(|&name| name.to_owned()).collect(),
        margin: 0.03,
        level: anytime::ALPHA,
        max_seconds: 60.0,
    }
}

/// Units of runs with a spread of 3 % within units and of 20 % between them; B takes `effect` times as long.
fn noisy(units: u32, effect: f64, random: &mut Random) -> Vec<Measured> {
    let mut runs = Vec::new();
    for unit in 0..units {
        let level = 0.2 * normal(random);
        for label in order(random) {
            let shift = match label {
                Label::After => effect.ln(),
                Label::Before => 0.0,
            };
            runs.push(measured(
                label,
                unit,
                (level + shift + 0.03 * normal(random)).exp(),
            ));
        }
    }
    runs
}

#[test]
fn a_coin_draws_who_is_first() {
    let mut random = Random::new(3);
    let mut firsts = [0, 0];
    for _ in 0..200 {
        let two = order(&mut random);
        assert_ne!(two[0], two[1]);
        firsts[usize::from(two[0] == Label::After)] += 1;
    }
    assert!(firsts.iter().all(|&times| times > 70), "{firsts:?}");
}

#[test]
fn gathered_runs_read_back_and_are_compared_by_unit() {
    let seed = 5;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let runs = noisy(40, 1.1, &mut random);
    let document = gathered(runs, Some(plan(&["elapsed time", "CPU time"])));
    let text = document.to_json();
    assert!(Gathered::is_named_in(&text));
    let again = Gathered::from_json(&text).expect("reads back");
    assert_eq!(again.to_json(), text);
    let compared = again.compare(&Options::default());
    assert_eq!(
        compared.verdict.word,
        Word::Regression,
        "{}",
        compared.verdict.text
    );
    for row in &compared.endpoints {
        // Units differ by 20 %, sides by 10 %: without units the interval would be too wide to tell.
        let effect = row.effect.expect("a ratio");
        let (low, high) = (effect.low.expect("bounded"), effect.high.expect("bounded"));
        assert!(
            1.0 < low && low < 1.1 && 1.1 < high && high < 1.15,
            "{low}..{high}"
        );
        assert_eq!((row.word, row.before_runs.len()), (RowWord::Worse, 40));
        assert!(row.p_holm <= Some(0.01), "{row:?}");
    }
    let described = again.described(&compared);
    assert!(described.contains(&("voluntary switches".to_owned(), "", 7.0, 7.0)));
    assert!(!described.iter().any(|of| of.0 == "CPU time"));
    // Another question of the same runs; a unit of one side tells nothing.
    let mut other = again.clone();
    other.runs.push(measured(Label::After, 77, 1.0));
    let options = Options {
        endpoints: vec!["minor faults".into()],
        ..Options::default()
    };
    let compared = other.compare(&options);
    assert_eq!(
        compared.verdict.word,
        Word::Same,
        "{}",
        compared.verdict.text
    );
    assert_eq!(compared.looked.map(|looked| looked.units), Some(40));
}

#[test]
fn what_cannot_be_decided_says_why() {
    let mut random = Random::new(5);
    let runs = noisy(40, 1.0, &mut random);
    let of = |runs: &[Measured], endpoint: &str| {
        gathered(runs.to_vec(), Some(plan(&[endpoint]))).compare(&Options::default())
    };
    let text = of(&runs, "naps").verdict.text;
    assert_eq!(text, "inconclusive: naps is no number of a run");
    let few = of(&runs[..8], "elapsed time");
    assert!(
        few.verdict.text.starts_with(
            "inconclusive: elapsed time n too small: 4 pairs prove nothing, it takes "
        ),
        "{}",
        few.verdict.text
    );
    // 50 ms in steps of a tick are not known to 3 %.
    let mut equal = runs.clone();
    equal.iter_mut().for_each(|run| run.user_ns = 50_000_000);
    let coarse = of(&equal, "user time");
    assert_eq!(coarse.verdict.word, Word::NoDifferenceProven);
    assert!(
        coarse.warnings[0].contains("too coarse for this margin"),
        "{:?}",
        coarse.warnings
    );
    // A figure of 0 has no ratio.
    let mut zero = runs;
    zero.iter_mut()
        .for_each(|run| run.major_faults = u64::from(run.label == Label::After));
    let faults = of(&zero, "major faults");
    assert_eq!(faults.verdict.word, Word::Regression);
    assert_eq!(
        faults.endpoints[0].effect.map(|effect| effect.scale),
        Some(Scale::Difference)
    );
    // Two commands without a fault have the same number of faults.
    zero.iter_mut().for_each(|run| run.major_faults = 0);
    let none = of(&zero, "major faults");
    assert_eq!(none.verdict.text, "same: within 3 %: major faults 0 (0..0)");
    let interrupted = Gathered {
        interrupted: true,
        ..gathered(noisy(12, 1.02, &mut random), Some(plan(&["elapsed time"])))
    };
    let compared = interrupted.compare(&Options::default());
    assert!(
        compared
            .verdict
            .text
            .starts_with("inconclusive: interrupted after 12 pairs; "),
        "{}",
        compared.verdict.text
    );
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
