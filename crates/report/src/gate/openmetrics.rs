//! OpenMetrics text, version 1.0.0, of gauges alone, so that it is also what node-exporter's textfile collector reads
//! (Prometheus' text format 0.0.4). Times are in seconds, as both ask for.
//!
//! | metric | labels | what |
//! |---|---|---|
//! | `stopgap_compare_verdict` | `word` | 1 for the word that holds, 0 for the others |
//! | `stopgap_compare_runs` | `side` | runs |
//! | `stopgap_compare_margin_ratio` | | the margin |
//! | `stopgap_compare_effect_ratio` | `endpoint`, `bound` | later over earlier: `value`, and `low` and `high` where the data bounds it |
//! | `stopgap_compare_effect_difference` | `endpoint`, `unit`, `bound` | the same of what has no ratio |
//! | `stopgap_compare_p` | `endpoint`, `adjusted` | probability: `no`, `holm`, `westfall-young` |
//! | `stopgap_compare_level_seconds` | `endpoint`, `side` | level of a time |
//! | `stopgap_compare_level` | `endpoint`, `side`, `unit` | level of anything else |
//! | `stopgap_compare_info` | `before`, `after` | 1; the names of the sides, which change from run to run, stand here alone |
//!
//! Every metric has the label `comparison`, so that one directory holds several.

use stopgap_stats::compare::{Comparison, Effect, Row, Scale, Word};

/// A sample's own labels and value.
type Sample = (Vec<(&'static str, String)>, f64);

/// The text of a comparison that is called `name`; it ends with `# EOF`.
#[must_use]
pub fn openmetrics(comparison: &Comparison, name: &str) -> String {
    let called = name;
    let mut text = String::new();
    let mut family = |name: &str, unit: &str, help: &str, samples: Vec<Sample>| {
        if samples.is_empty() {
            return;
        }
        text.push_str(&format!("# TYPE stopgap_compare_{name} gauge\n"));
        if !unit.is_empty() {
            text.push_str(&format!("# UNIT stopgap_compare_{name} {unit}\n"));
        }
        text.push_str(&format!("# HELP stopgap_compare_{name} {help}\n"));
        for (own, value) in samples {
            let labels = [("comparison", called.to_owned())].into_iter().chain(own);
            let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(&value)));
            let labels = labels.collect::<Vec<_>>().join(",");
            text.push_str(&format!(
                "stopgap_compare_{name}{{{labels}}} {}\n",
                shown(value)
            ));
        }
    };
    let sides = [
        ("before", comparison.before.name.clone()),
        ("after", comparison.after.name.clone()),
    ];
    family(
        "info",
        "",
        "The names of the sides.",
        vec![(sides.into(), 1.0)],
    );
    let words = [
        Word::Regression,
        Word::Improvement,
        Word::NotWorse,
        Word::Same,
        Word::NoDifferenceProven,
        Word::Inconclusive,
    ];
    let holds = |word| f64::from(u8::from(word == comparison.verdict.word));
    let verdict = words.map(|word| (vec![("word", word.to_string())], holds(word)));
    family(
        "verdict",
        "",
        "The answer: 1 for the word that holds.",
        verdict.into(),
    );
    let runs = [
        ("before", comparison.before.runs),
        ("after", comparison.after.runs),
    ];
    let runs = runs.map(|(side, runs)| (vec![("side", side.to_owned())], runs as f64));
    family("runs", "", "Runs of each side.", runs.into());
    family(
        "margin_ratio",
        "ratio",
        "By what share the later side may be worse and still be not worse.",
        vec![(Vec::new(), comparison.margin)],
    );
    let of = |scale| effects(&comparison.endpoints, scale);
    family(
        "effect_ratio",
        "ratio",
        "Later over earlier, with the ends of its interval.",
        of(Scale::Ratio),
    );
    family(
        "effect_difference",
        "",
        "Later less earlier, with the ends of its interval.",
        of(Scale::Difference),
    );
    let mut p = Vec::new();
    for row in &comparison.endpoints {
        for (adjusted, value) in [
            ("no", row.p),
            ("holm", row.p_holm),
            ("westfall-young", row.p_westfall_young),
        ] {
            let labels = vec![
                ("endpoint", row.name.clone()),
                ("adjusted", adjusted.to_owned()),
            ];
            p.extend(value.map(|value| (labels, value)));
        }
    }
    family(
        "p",
        "",
        "Probability of a difference at least as large, had nothing changed.",
        p,
    );
    let (mut seconds, mut others) = (Vec::new(), Vec::new());
    for row in &comparison.endpoints {
        for (side, value) in [("before", row.before), ("after", row.after)] {
            let Some(value) = value else { continue };
            let mut labels = vec![("endpoint", row.name.clone()), ("side", side.to_owned())];
            if let Some(factor) = in_seconds(&row.unit) {
                seconds.push((labels, value * factor));
            } else {
                labels.push(("unit", row.unit.clone()));
                others.push((labels, value));
            }
        }
    }
    family(
        "level_seconds",
        "seconds",
        "The time of each side.",
        seconds,
    );
    family("level", "", "The level of each side.", others);
    text.push_str("# EOF\n");
    text
}

fn effects(rows: &[Row], scale: Scale) -> Vec<Sample> {
    let mut samples = Vec::new();
    for row in rows {
        let Some(effect) = row.effect.filter(|effect| effect.scale == scale) else {
            continue;
        };
        for (bound, value) in ends(&effect) {
            let mut labels = vec![("endpoint", row.name.clone())];
            if scale == Scale::Difference {
                labels.push(("unit", row.unit.clone()));
            }
            labels.push(("bound", bound.to_owned()));
            samples.push((labels, value));
        }
    }
    samples
}

fn ends(effect: &Effect) -> impl Iterator<Item = (&'static str, f64)> {
    let value = effect.value.or(effect.infinite.then_some(f64::INFINITY));
    let all = [("value", value), ("low", effect.low), ("high", effect.high)];
    all.into_iter()
        .filter_map(|(bound, value)| Some((bound, value?)))
}

/// Returns one of `unit` in seconds; `None` where it is no time.
fn in_seconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        _ => None,
    }
}

/// A number as both formats write it.
fn shown(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        format!("{value}")
    }
}

/// A label's value between double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
