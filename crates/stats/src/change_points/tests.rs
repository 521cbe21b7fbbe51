use proptest::prelude::*;
use stopgap_events::random::Random;

use super::fit::{fit, models, steps};
use super::*;
use crate::noise::normal;

fn history(values: &[f64]) -> History {
    let point = |(at, &value): (usize, &f64)| Point {
        date_unix_s: Some(86_400 * at as u64),
        label: format!("c{at}"),
        value,
    };
    History {
        what: "median".to_owned(),
        unit: "ns".to_owned(),
        points: values.iter().enumerate().map(point).collect(),
        ..History::default()
    }
}

fn look(values: &[f64]) -> ChangePoints {
    change_points(&history(values), &[])
}

/// Noise of 5 % around 1,000, and from `at` on `times` as much.
fn stepped(n: usize, at: usize, times: f64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let value =
        |t: usize| 1_000.0 * (0.05 * normal(&mut random)).exp() * if t < at { 1.0 } else { times };
    (0..n).map(value).collect()
}

/// Least squares by normal equations, of a level, a trend where there is one, and a step, all filtered by the model's own recursion
/// written out.
fn brute(y: &[f64], phi: f64, theta: f64, trend: bool, at: Option<usize>) -> f64 {
    let filter = |column: &dyn Fn(usize) -> f64| {
        let mut level = 0.0;
        let each = (1..y.len()).map(|t| {
            let z = column(t) - phi * column(t - 1);
            let error = z - level;
            level += (1.0 - theta) * error;
            error
        });
        each.collect::<Vec<f64>>()
    };
    let mut columns = vec![filter(&|_| 1.0)];
    if trend {
        columns.push(filter(&|t| t as f64));
    }
    if let Some(at) = at {
        columns.push(filter(&|t| f64::from(u8::from(t >= at))));
    }
    let mut rest = filter(&|t| y[t]);
    // Gram and Schmidt, twice for the digits.
    for _ in 0..2 {
        let mut units: Vec<Vec<f64>> = Vec::new();
        for column in &columns {
            let mut unit = column.clone();
            for other in &units {
                let along: f64 = unit.iter().zip(other).map(|(a, b)| a * b).sum();
                unit.iter_mut()
                    .zip(other)
                    .for_each(|(a, b)| *a -= along * b);
            }
            let length = unit.iter().map(|a| a * a).sum::<f64>().sqrt();
            unit.iter_mut().for_each(|a| *a /= length);
            let along: f64 = rest.iter().zip(&unit).map(|(a, b)| a * b).sum();
            rest.iter_mut()
                .zip(&unit)
                .for_each(|(a, b)| *a -= along * b);
            units.push(unit);
        }
    }
    let n = rest.len() as f64;
    n * rest.iter().map(|a| a * a).sum::<f64>().ln()
}

#[test]
fn the_fast_fit_is_least_squares_of_every_model_at_every_place() {
    let mut random = Random::new(1);
    let y: Vec<f64> = (0..24)
        .map(|t| normal(&mut random) + f64::from(u8::from(t > 10)))
        .collect();
    for model in models() {
        for step in steps(&y, 0.0, 5, &model) {
            let brute = brute(&y, model.phi, model.theta, model.trend, Some(step.at));
            assert!(
                (step.cost - brute).abs() < 1e-6,
                "{model:?} {step:?} {brute}"
            );
        }
    }
    let best = |at: Option<usize>| {
        let costs = models().map(|m| brute(&y, m.phi, m.theta, m.trend, at));
        costs.fold(f64::INFINITY, f64::min)
    };
    let fit = fit(&y, 0.0, 5).unwrap();
    assert!((fit.none - best(None)).abs() < 1e-6);
    let with = (5..=19)
        .map(|at| best(Some(at)))
        .fold(f64::INFINITY, f64::min);
    assert!((fit.plain.cost.min(fit.moving.cost) - with).abs() < 1e-6);
}

#[test]
fn a_step_is_found_with_its_size_and_its_place() {
    let found = look(&stepped(120, 70, 1.24, 3));
    let [change] = &found.changes[..] else {
        panic!("{found:?}")
    };
    assert!(
        change.good < 70 && change.bad >= 70 && change.bad - change.good <= 4,
        "{change:?}"
    );
    assert!(
        change.effect.low.unwrap() < 1.24 && 1.24 < change.effect.high.unwrap(),
        "{change:?}"
    );
    assert_eq!(change.effect.scale, Scale::Ratio);
    assert!(change.worse && (change.before / 1_000.0 - 1.0).abs() < 0.02);
    assert_eq!(
        (found.verdict.word, found.last),
        (Word::Regression, Some(0))
    );
    assert_eq!(found.would_find, None);
    let better = look(&stepped(120, 70, 0.8, 3));
    assert_eq!(better.verdict.word, Word::Improvement);
}

#[test]
fn several_steps_are_found_though_together_they_look_like_a_walk() {
    let mut values = stepped(120, 40, 1.5, 5);
    values[80..].iter_mut().for_each(|x| *x /= 1.5);
    let found = look(&values);
    let places: Vec<usize> = found.changes.iter().map(|change| change.at).collect();
    assert!(matches!(places[..], [39..=41, 79..=81]), "{places:?}");
    assert_eq!(found.verdict.word, Word::Improvement, "the last one counts");
}

#[test]
fn what_would_have_been_found_is_found() {
    let values = stepped(100, 100, 1.0, 8);
    let found = look(&values);
    assert_eq!(found.verdict.word, Word::NoChange, "{found:?}");
    let power = found.would_find.unwrap();
    assert!(
        (1.05..1.25).contains(&power.change) && power.found >= 9 && power.of == 10,
        "{power:?}"
    );
    // Less than half of it is not.
    let mut with = values;
    with[50..]
        .iter_mut()
        .for_each(|x| *x *= power.change.powf(0.3));
    assert!(look(&with).changes.is_empty());
}

#[test]
fn counts_that_never_vary_show_any_change() {
    let same = look(&[1_000.0; 40]);
    assert_eq!(same.verdict.word, Word::NoChange);
    assert!(same.would_find.unwrap().change < 1.000_01);
    let mut values = [1_000.0; 40];
    values[25..].fill(1_001.0);
    let found = look(&values);
    assert_eq!(
        (
            found.changes.len(),
            found.changes[0].good,
            found.changes[0].bad
        ),
        (1, 24, 25),
        "{found:?}"
    );
}

#[test]
fn too_few_and_too_wild() {
    for n in [0, 1, 3, LEAST_POINTS - 1] {
        let found = look(&stepped(n, n, 1.0, 1));
        assert_eq!(found.verdict.word, Word::Inconclusive);
        assert!(
            found
                .verdict
                .text
                .ends_with("; a change shows only in 12 or more")
        );
    }
    let mut random = Random::new(1);
    let wild: Vec<f64> = (0..30).map(|_| (2.0 * normal(&mut random)).exp()).collect();
    let found = look(&wild);
    assert_eq!(found.verdict.word, Word::Inconclusive, "{found:?}");
}

#[test]
fn a_figure_that_is_no_number_is_left_out_and_named() {
    let mut values = stepped(60, 30, 2.0, 1);
    values[10] = f64::NAN;
    values[50] = f64::INFINITY;
    let found = look(&values);
    assert_eq!((found.points.len(), found.missing.len()), (58, 2));
    assert_eq!(found.missing[0], Missing::new("c10", "its figure is NaN"));
    assert_eq!(found.points[found.changes[0].at].label, "c30");
}

#[test]
fn values_of_0_are_held_against_each_other_by_their_difference() {
    let values: Vec<f64> = stepped(60, 30, 2.0, 1)
        .iter()
        .map(|x| x - 1_000.0)
        .collect();
    let found = look(&values);
    let effect = found.changes[0].effect;
    assert_eq!(effect.scale, Scale::Difference);
    assert!(
        effect.low.unwrap() < 1_000.0 && 1_000.0 < effect.high.unwrap(),
        "{effect:?}"
    );
}

#[test]
fn the_cause_that_moved_is_named() {
    let mut random = Random::new(2);
    let n = 60;
    let mut part = |level: f64, step: f64| -> Vec<f64> {
        (0..n)
            .map(|t| level + 10.0 * normal(&mut random) + if t < 35 { 0.0 } else { step })
            .collect()
    };
    let (io, lock, cpu) = (part(100.0, 120.0), part(300.0, 0.0), part(500.0, -30.0));
    let total: Vec<f64> = (0..n).map(|t| io[t] + lock[t] + cpu[t]).collect();
    let history = History {
        causes: [
            ("io", io),
            ("lock", lock),
            ("on-cpu", cpu),
            ("idle", vec![0.0; n]),
        ]
        .map(|(cause, all)| (cause.to_owned(), all))
        .into(),
        ..history(&total)
    };
    let found = change_points(&history, &[]);
    let moved: Vec<&str> = found.changes[0]
        .moved
        .iter()
        .map(|moved| &*moved.cause)
        .collect();
    assert_eq!(moved, ["io", "on-cpu"]);
    let io = &found.changes[0].moved[0];
    assert!(
        io.effect.low.unwrap() < 120.0 && 120.0 < io.effect.high.unwrap(),
        "{io:?}"
    );
    let own: Vec<&str> = found.causes.iter().map(|of| &*of.cause).collect();
    assert_eq!(own, ["io", "on-cpu"]);
}

#[test]
fn a_last_change_below_the_margin_is_none() {
    let history = History {
        margin: 0.3,
        ..history(&stepped(120, 70, 1.24, 3))
    };
    let found = change_points(&history, &[]);
    assert_eq!((found.changes.len(), found.last), (1, None));
    assert_eq!(found.verdict.word, Word::NoChange);
}

#[test]
fn a_record_reads_back() {
    use crate::document::Document;
    let found = look(&stepped(60, 30, 2.0, 1));
    assert_eq!(
        serde_json::from_str::<ChangePoints>(&found.to_json()).unwrap(),
        found
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Another unit is no other history.
    #[test]
    fn the_unit_does_not_matter(seed in 0u64..1_000, times in 1.0f64..2.0, unit in -9i32..9) {
        let values = stepped(60, 31, times, seed);
        let factor = 10f64.powi(unit);
        let scaled: Vec<f64> = values.iter().map(|x| x * factor).collect();
        let places = |values: &[f64]| -> Vec<(usize, usize, usize)> {
            look(values).changes.iter().map(|change| (change.good, change.at, change.bad)).collect()
        };
        prop_assert_eq!(places(&values), places(&scaled));
    }

    /// Whatever comes, places are in order and within the history.
    #[test]
    fn any_numbers(values in prop::collection::vec(prop::num::f64::ANY, 0..60)) {
        let found = look(&values);
        let n = found.points.len();
        for change in &found.changes {
            prop_assert!(change.good < change.at && change.at <= change.bad && change.bad < n);
        }
    }
}
