use super::*;
use crate::document::Document;
use proptest::prelude::*;

/// A side of runs whose median is given, p99 ten times that.
fn side(name: &str, medians: &[f64]) -> Side {
    let run = |(number, &median): (usize, &f64)| Run {
        median: Some(median),
        p99: Some(median * 10.0),
        max: Some(median * 100.0),
        ..Run::new(number.to_string())
    };
    Side {
        name: name.to_owned(),
        runs: medians.iter().enumerate().map(run).collect(),
    }
}

/// Ten levels within 2 % of 100, in no order.
const LEVELS: [f64; 10] = [
    100.3, 99.1, 100.9, 98.7, 101.3, 99.9, 100.1, 98.9, 101.1, 99.6,
];

fn times(factor: f64) -> Vec<f64> {
    // Another order, and not the very same values.
    let shifted = |(i, level): (usize, &f64)| level * factor * (1.0 + 0.000_1 * i as f64);
    LEVELS.iter().rev().enumerate().map(shifted).collect()
}

/// Compares two sides as usual.
fn usual(before: &Side, after: &Side) -> Comparison {
    compare(before, after, &Options::default())
}

/// Compares two sides of medians.
fn compared_medians(before: &[f64], after: &[f64]) -> Comparison {
    usual(&side("before", before), &side("after", after))
}

fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a Row {
    let mut rows = comparison.endpoints.iter();
    rows.find(|row| row.name == name).expect("it is tested")
}

#[test]
fn the_words() {
    for (factor, word, begins) in [
        (1.10, Word::Regression, "regression: median 1.10x ("),
        (0.90, Word::Improvement, "improvement: median 0.900x ("),
        (
            1.0,
            Word::NotWorse,
            "not worse: by 5 % or more: median 1.00x (",
        ),
        // Certain, and smaller than the margin.
        (
            1.03,
            Word::NotWorse,
            "not worse: by 5 % or more: median 1.03x (",
        ),
    ] {
        let comparison = compared_medians(&LEVELS, &times(factor));
        let verdict = &comparison.verdict;
        assert_eq!(verdict.word, word, "{factor}: {}", verdict.text);
        assert!(verdict.text.starts_with(begins), "{}", verdict.text);
        let effect = row(&comparison, "median").effect.unwrap();
        let (low, high) = (effect.low.unwrap(), effect.high.unwrap());
        assert!(low < factor && factor < high, "{factor}: {effect:?}");
    }
    // Runs that scatter by a half tell nothing of 5 %.
    let wide: Vec<f64> = (0..10)
        .map(|i| 50.0 + 10.0 * f64::from(i * 7 % 10))
        .collect();
    let other: Vec<f64> = wide.iter().rev().map(|x| x + 1.0).collect();
    assert_eq!(
        compared_medians(&wide, &other).verdict.word,
        Word::NoDifferenceProven
    );
}

/// A program that ranks anew in each of the 924 arrangements counts 36 that are as far, by Brunner and Munzel's definition.
#[test]
fn p_is_brunners_and_munzels() {
    let side = |numbers: [f64; 6]| Side {
        name: "a side".to_owned(),
        runs: numbers.map(|x| Run::of_number("r", "s", x)).to_vec(),
    };
    let before = side([-1.1, 2.2, 3.3, 4.4, 5.5, 6.6]);
    let comparison = usual(&before, &side([3.5, 4.6, 5.7, 6.8, 7.9, 9.0]));
    let row = row(&comparison, "s");
    assert_eq!((row.arrangements, row.exact), (Some(924), true));
    assert!((row.p.unwrap() - 36.0 / 924.0).abs() < 1e-9, "{row:?}");
    let effect = row.effect.unwrap();
    assert_eq!(effect.scale, Scale::Difference);
    assert_eq!(row.before, Some(3.85));
}

/// Seven pairs through a drift that is six times the change: found in pairs, with its interval; nothing otherwise. An endpoint without a
/// figure in one run is named as it is without pairs.
#[test]
fn pairs_see_through_a_drift() {
    let drift = |at: usize| 100.0 * 1.1_f64.powi(at as i32);
    // The first of each pair is now one side, now the other.
    let (mut earlier, mut later) = (Vec::new(), Vec::new());
    for (pair, level) in LEVELS[..7].iter().enumerate() {
        let (first, second) = (drift(2 * pair) * level, drift(2 * pair) * 1.01 * level);
        let (before, after) = if pair % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        earlier.push(before);
        later.push(after * 1.1);
    }
    let with = |in_pairs| {
        let options = Options {
            in_pairs,
            ..Options::default()
        };
        compare(&side("before", &earlier), &side("after", &later), &options)
    };
    let apart = with(false);
    assert_eq!(
        (apart.verdict.word, apart.pairs),
        (Word::NoDifferenceProven, None)
    );
    let pairs = with(true);
    assert_eq!(
        (pairs.verdict.word, pairs.pairs),
        (Word::Regression, Some(7)),
        "{pairs:?}"
    );
    for name in ["median", "p99"] {
        let row = row(&pairs, name);
        assert_eq!((row.arrangements, row.exact), (Some(64), true));
        assert_eq!(row.p_adjusted(), row.p_westfall_young);
        let effect = row.effect.unwrap();
        let (low, high) = (effect.low.unwrap(), effect.high.unwrap());
        assert!(
            1.08 < low && low < 1.1 && 1.1 < high && high < 1.12,
            "{row:?}"
        );
    }
    // A side that has one run more is in no pairs, nor are five.
    for (before, after) in [(&earlier[..6], &later[..7]), (&earlier[..5], &later[..5])] {
        let options = Options {
            in_pairs: true,
            ..Options::default()
        };
        let comparison = compare(&side("before", before), &side("after", after), &options);
        assert_eq!(comparison.pairs, None);
    }
    let mut lacks = side("after", &later);
    lacks.runs[3].p99 = None;
    let options = Options {
        in_pairs: true,
        ..Options::default()
    };
    let comparison = compare(&side("before", &earlier), &lacks, &options);
    assert_eq!(comparison.verdict.word, Word::Regression);
    assert!(row(&comparison, "p99").text.ends_with("has no p99"));
}

#[test]
fn sides_swapped_invert_the_ratio() {
    let (there, back) = (
        compared_medians(&LEVELS, &times(1.07)),
        compared_medians(&times(1.07), &LEVELS),
    );
    let (there, back) = (row(&there, "p99"), row(&back, "p99"));
    let product = there.effect.unwrap().value.unwrap() * back.effect.unwrap().value.unwrap();
    assert!((product - 1.0).abs() < 1e-12);
    assert_eq!(there.before, back.after);
    let near = there.p.unwrap() - back.p.unwrap();
    assert!(near.abs() < 0.01, "two samples of arrangements: {near}");
}

#[test]
fn the_seed_fixes_everything() {
    let with = |seed| {
        let options = Options {
            seed,
            ..Options::default()
        };
        let (a, b) = (side("a", &LEVELS), side("b", &times(1.02)));
        compare(&a, &b, &options)
    };
    assert_eq!(with(7), with(7));
    assert_ne!(with(7).endpoints, with(8).endpoints);
}

#[test]
fn too_few_runs_are_said() {
    for (runs, begins) in [
        (1, "inconclusive: measured once a side: "),
        (2, "inconclusive: measured twice a side: "),
        (
            3,
            "inconclusive: median: n too small: 3 and 3 runs cannot give a p below 0.10",
        ),
    ] {
        let comparison = compared_medians(&LEVELS[..runs], &times(1.5)[..runs]);
        assert!(
            comparison.verdict.text.starts_with(begins),
            "{}",
            comparison.verdict.text
        );
    }
    let four =
        "inconclusive: n too small: of 2 endpoints together so few runs cannot give a p below 0.06";
    for (before, after, text) in [
        (4, 4, four),
        (0, 9, "inconclusive: median: before has no run"),
        (9, 0, "inconclusive: median: after has no run"),
        (0, 0, "inconclusive: there is nothing to compare"),
    ] {
        let comparison = compared_medians(&LEVELS[..before], &times(1.5)[..after]);
        assert_eq!(comparison.verdict.text, text);
    }
    assert_eq!(
        compared_medians(&LEVELS[..5], &times(1.5)[..5])
            .verdict
            .word,
        Word::Regression
    );
    let many = vec![1.0; MOST_RUNS + 1];
    assert_eq!(
        compared_medians(&many, &LEVELS).verdict.text,
        "inconclusive: median: before has 5001 runs, more than 5000: are these samples of few runs?"
    );
}

#[test]
fn figures_that_are_none() {
    let mut after = side("after", &times(1.0));
    after.runs[3].p99 = Some(f64::NAN);
    let before = side("before", &LEVELS);
    let comparison = usual(&before, &after);
    assert_eq!(
        comparison.verdict.text,
        "inconclusive: p99: after, run 3: p99 is NaN"
    );
    after.runs[3].p99 = None;
    let comparison = usual(&before, &after);
    assert_eq!(row(&comparison, "p99").text, "after, run 3: has no p99");
    // A proven endpoint decides.
    let mut slower = side("after", &times(1.3));
    slower.runs[3].p99 = Some(f64::INFINITY);
    let comparison = usual(&before, &slower);
    assert_eq!(comparison.verdict.word, Word::Regression);
    // An endpoint that was asked for and that no run has.
    let options = Options {
        endpoints: vec![Endpoint::from("elapsed"), Endpoint::from("median")],
        ..Options::default()
    };
    let comparison = compare(&before, &slower, &options);
    assert_eq!(
        comparison.endpoints[0].text,
        "before, run 0: has no elapsed"
    );
    assert_eq!(comparison.endpoints[1].name, "median");
    assert_eq!(comparison.endpoints.len(), 2);
}

#[test]
fn runs_that_are_equal() {
    // The step may be 1, which is more than 5 % of 7.
    let coarse = compared_medians(&[7.0; 9], &[7.0; 9]);
    assert_eq!(coarse.verdict.word, Word::NoDifferenceProven);
    let comparison = compared_medians(&[7.25; 9], &[7.25; 9]);
    assert_eq!(comparison.verdict.word, Word::NotWorse);
    assert_eq!(row(&comparison, "median").p, Some(1.0));
    assert!(comparison.warnings[0].starts_with("median: the runs of each side are equal"));
    let zero = compared_medians(&[0.0; 9], &[0.0; 9]);
    assert_eq!(zero.verdict.word, Word::NoDifferenceProven, "5 % of 0 is 0");
}

/// Runs of 10 s with so many stalls of 2 ms, from 1 ms on.
fn stalling(name: &str, counts: &[u64]) -> Side {
    let run = |(number, &count): (usize, &u64)| {
        Run::new(number.to_string()).with_stalls(RunStalls {
            count,
            time_ns: Some(count * 2_000_000),
            threshold_ns: 1_000_000,
            duration_ns: 10_000_000_000,
        })
    };
    Side {
        name: name.to_owned(),
        runs: counts.iter().enumerate().map(run).collect(),
    }
}

#[test]
fn stalls_where_there_were_none() {
    let some = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
    let compared = |before: &[u64], after: &[u64]| {
        usual(&stalling("before", before), &stalling("after", after))
    };
    let worse = compared(&[0; 10], &some);
    assert_eq!(
        worse.verdict.text,
        "regression: stall rate infinite (more than 1.00x), stall time 0.700 ms/s (0.400 ms/s..1.00 ms/s)"
    );
    let rate = row(&worse, "stall rate");
    assert_eq!((rate.before, rate.after), (Some(0.0), Some(0.39)));
    assert_eq!(row(&worse, "stall time").after, Some(0.78));
    assert!(rate.effect.unwrap().infinite);
    let better = compared(&some, &[0; 10]);
    assert_eq!(better.verdict.word, Word::Improvement);
    assert_eq!(row(&better, "stall rate").text, "0x (at most 1.00)");
    // One stall is not bounded by anything.
    let one = compared(&[0; 10], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(one.verdict.word, Word::NoDifferenceProven);
    assert_eq!(
        row(&one, "stall rate").text,
        "infinite (n too small for a bound)"
    );
    let none = compared(&[0; 10], &[0; 10]);
    assert_eq!(none.verdict.word, Word::NoDifferenceProven);
    assert_eq!(row(&none, "stall rate").word, RowWord::NothingSeen);
    assert_eq!(
        row(&none, "stall rate").text,
        "no stall on either side in 200 s: n too small for a ratio"
    );
    // Nothing seen does not stand in the way of the other endpoints.
    let with = |mut side: Side, levels: &[f64]| {
        for (run, &level) in side.runs.iter_mut().zip(levels) {
            run.median = Some(level);
        }
        side
    };
    let quiet = || stalling("s", &[0; 10]);
    let comparison = usual(&with(quiet(), &LEVELS), &with(quiet(), &times(1.0)));
    assert_eq!(comparison.verdict.word, Word::NotWorse);
    assert!(
        comparison
            .verdict
            .text
            .contains("; stall rate, stall time: no stall")
    );
    // Two thresholds are two questions.
    let mut other = stalling("after", &some);
    if let Some(stalls) = &mut other.runs[2].stalls {
        stalls.threshold_ns = 5;
    }
    let refused = usual(&stalling("before", &some), &other);
    assert_eq!(
        refused.verdict.text,
        "inconclusive: stall rate: after, run 2: counts stalls from 5 ns on, others from 1000000 ns on"
    );
    assert_eq!(refused.stall_threshold_ns, None);
}

#[test]
fn p999_needs_episodes() {
    let with = |episodes: Option<u64>| {
        let mut side = side("s", &LEVELS);
        for run in &mut side.runs {
            run.p999 = run.p99.map(|p99| p99 * 3.0);
            run.episodes = episodes;
        }
        side
    };
    let tested = usual(&with(Some(15)), &with(Some(5)));
    assert!(tested.endpoints.iter().any(|row| row.name == "p99.9"));
    let few = usual(&with(Some(15)), &with(Some(4)));
    assert_eq!(few.endpoints.len(), 2);
    assert_eq!(
        few.missing[0].why,
        "190 independent stall episodes in 20 runs; it needs 10 a run"
    );
    let unknown = usual(&with(None), &with(Some(50)));
    assert!(unknown.missing[0].why.starts_with("not every run knows"));
}

#[test]
fn the_shift_function_has_nine_steps() {
    let with = |levels: &[f64], factor: f64| {
        let mut side = side("s", levels);
        for (run, level) in side.runs.iter_mut().zip(levels) {
            let tenth = |i: u32| level * (1.0 + f64::from(i) * factor);
            run.deciles = Some([1, 2, 3, 4, 5, 6, 7, 8, 9].map(tenth));
        }
        side
    };
    let comparison = usual(&with(&LEVELS, 0.1), &with(&times(1.0), 0.2));
    assert_eq!(comparison.deciles.len(), 9);
    let last = &comparison.deciles[8];
    assert!((last.share - 0.9).abs() < 1e-12);
    let ratio = last.effect.unwrap();
    assert!((ratio.value.unwrap() - 2.8 / 1.9).abs() < 0.02);
    assert!(last.before_interval.unwrap().low < last.before.unwrap());
    // Described: it does not change the verdict.
    assert!(comparison.endpoints.iter().all(|row| row.name != "p90"));
    assert_eq!(comparison.before.max, Some(101.3 * 100.0));
}

/// Any figure at all, often the same ones.
fn figure() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        any::<f64>().prop_map(Some),
        prop::sample::select(vec![
            0.0,
            -0.0,
            1.0,
            -1.0,
            5e-324,
            f64::MAX,
            f64::MIN,
            f64::NAN
        ])
        .prop_map(Some),
        (1.0..2.0).prop_map(Some),
        (1.0..2.0).prop_map(Some),
        (1.0..2.0).prop_map(Some),
    ]
}

fn stalls() -> impl Strategy<Value = Option<RunStalls>> {
    let number = || prop_oneof![Just(0), 0u64..9, any::<u64>()];
    let time = prop_oneof![Just(None), number().prop_map(Some)];
    let parts = (
        number(),
        time,
        prop::sample::select(vec![7u64, 7, 7, 8]),
        number(),
    );
    prop::option::of(
        parts.prop_map(|(count, time_ns, threshold_ns, duration_ns)| RunStalls {
            count,
            time_ns,
            threshold_ns,
            duration_ns,
        }),
    )
}

prop_compose! {
    fn any_run()(
        median in figure(),
        p99 in figure(),
        p999 in figure(),
        max in figure(),
        decile in figure(),
        number in figure(),
        stalls in stalls(),
        episodes in prop::option::of(any::<u64>()),
    ) -> Run {
        Run {
            name: "r".to_owned(),
            within: 0,
            median,
            p10: decile,
            p99,
            p999,
            max,
            deciles: decile.map(|value| [value; 9]),
            stalls,
            episodes,
            numbers: number.map(|value| ("x".to_owned(), value)).into_iter().collect(),
        }
    }
}

/// Sides of which every run is hostile, and sides that differ from a sound one in a single figure: the former seldom get
/// past the first check.
fn any_side() -> impl Strategy<Value = Side> {
    let hostile = prop::collection::vec(any_run(), 0..12);
    let nearly = (3usize..12, any::<prop::sample::Index>(), figure(), figure()).prop_map(
        |(runs, at, one, scale)| {
            let scale = scale.filter(|scale| scale.is_finite()).unwrap_or(1.0);
            let levels: Vec<f64> = (0..runs).map(|i| scale * (1.0 + i as f64)).collect();
            let mut side = side("s", &levels);
            side.runs[at.index(runs)].median = one;
            side.runs
        },
    );
    prop_oneof![hostile, nearly].prop_map(|runs| Side {
        name: "s".to_owned(),
        runs,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_runs_give_an_answer(
        before in any_side(), mut after in any_side(), seed in any::<u64>(), margin in any::<f64>(), in_pairs in any::<bool>(),
    ) {
        if in_pairs {
            after.runs.truncate(before.runs.len());
        }
        let options = Options { seed, margin, in_pairs, permutations: 50, resamples: 50, ..Options::default() };
        let comparison = compare(&before, &after, &options);
        let text = &comparison.verdict.text;
        prop_assert!(text.starts_with(&comparison.verdict.word.to_string()), "{}", text);
        for row in &comparison.endpoints {
            prop_assert!(!row.text.is_empty());
            if let Some(p) = row.p {
                prop_assert!(p > 0.0 && p <= 1.0);
                prop_assert!(row.p_adjusted().unwrap() >= p && row.p_holm.unwrap() >= p && row.p_bh.unwrap() >= p);
            }
            if let Some(effect) = row.effect {
                let value = effect.value.unwrap_or(f64::INFINITY);
                prop_assert!(effect.low.is_none_or(|low| low <= value && low.is_finite()), "{:?}", row);
                prop_assert!(effect.high.is_none_or(|high| high >= value && high.is_finite()), "{:?}", row);
            }
        }
        // The margin may be anything here; all else must have a form in JSON.
        let comparison = Comparison { margin: 0.05, ..comparison };
        let read: Comparison = serde_json::from_str(&comparison.to_json()).expect("reads back");
        prop_assert_eq!(read, comparison);
    }
}
