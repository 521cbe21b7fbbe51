use super::*;
use crate::noise::normal;
use proptest::prelude::*;
use stopgap_events::random::Random;

const LADDER: [f64; 6] = [100.0, 1_000.0, 10_000.0, 20_000.0, 40_000.0, 60_000.0];
/// Mapping memory on Linux 6.18, measured, microseconds.
const LIVE: [f64; 6] = [3.8, 3.6, 4.2, 4.5, 5.5, 5.2];
/// Mail 000: the same in 2011.
const MAIL: [(f64, f64); 5] = [
    (100.0, 17.3),
    (1_000.0, 19.9),
    (10_000.0, 88.5),
    (20_000.0, 205.0),
    (40_000.0, 406.0),
];

/// `runs` runs of `cost`, each with a factor of its own and `noise` at every point.
fn runs_of(costs: &[(f64, f64)], runs: usize, factor: f64, noise: f64, seed: u64) -> Vec<Point> {
    let mut random = Random::new(seed);
    let factors: Vec<f64> = (0..runs)
        .map(|_| (factor * normal(&mut random)).exp())
        .collect();
    costs
        .iter()
        .map(|&(n, cost)| Point {
            n,
            runs: factors
                .iter()
                .map(|factor| cost * factor * (noise * normal(&mut random)).exp())
                .collect(),
        })
        .collect()
}

fn ladder(cost: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    LADDER.iter().map(|&n| (n, cost(n))).collect()
}

fn control() -> Growth {
    fit(
        &runs_of(&ladder(|n| 300.0 + 20.0 * n), 5, 0.05, 0.02, 99),
        1,
    )
    .expect("a fit")
}

#[test]
fn the_live_kernel_is_flat() {
    for seed in 0..20 {
        let costs: Vec<_> = LADDER.into_iter().zip(LIVE).collect();
        let growth = fit(&runs_of(&costs, 5, 0.05, 0.05, seed), seed).expect("a fit");
        let verdict = verdict(&growth, Some(&control()));
        assert_eq!(verdict.word, Word::Flat, "seed {seed}: {}", verdict.text);
        assert!(
            verdict.text.ends_with("from N=1000 to N=60000"),
            "{}",
            verdict.text
        );
    }
}

#[test]
fn constant_cost_has_no_exponent() {
    for seed in 0..20 {
        let growth = fit(&runs_of(&ladder(|_| 4.0), 5, 0.05, 0.05, seed), seed).expect("a fit");
        assert_eq!(growth.exponent, None, "seed {seed}");
        assert_eq!(growth.shape, Shape::Constant);
        assert!((growth.floor / 4.0 - 1.0).abs() < 0.2);
        assert!(growth.ratio.high < 1.3, "seed {seed}: {:?}", growth.ratio);
    }
}

#[test]
fn the_mails_kernel_grows_as_n() {
    for seed in 0..20 {
        let growth = fit(&runs_of(&MAIL, 5, 0.05, 0.05, seed), seed).expect("a fit");
        let p = growth.exponent.expect("it grows");
        assert!(p.low <= 1.0 && 1.0 <= p.high, "seed {seed}: {p:?}");
        let verdict = verdict(&growth, Some(&control()));
        assert_eq!(verdict.word, Word::Grows, "seed {seed}: {}", verdict.text);
        println!(
            "{} shape {} ratio {:?}",
            verdict.text, growth.shape, growth.ratio
        );
    }
}

#[test]
fn shapes_and_exponents_are_found_again() {
    for (shape, p, cost) in [
        (
            Shape::Linear,
            1.0,
            &(|n| 4.0 + 0.01 * n) as &dyn Fn(f64) -> f64,
        ),
        (Shape::Linear, 1.0, &|n| 0.01 * n),
        (Shape::Quadratic, 2.0, &|n| 5.0 + 1e-6 * n * n),
        (Shape::LinearLog, 1.1, &|n| 4.0 + 0.01 * n * n.ln()),
    ] {
        for seed in 0..5 {
            let growth = fit(&runs_of(&ladder(cost), 5, 0.05, 0.01, seed), seed).expect("a fit");
            let found = growth.exponent.expect("it grows");
            assert!(
                (found.value - p).abs() < 0.05,
                "{shape}, seed {seed}: {found:?}"
            );
            assert_eq!(growth.shape, shape, "seed {seed}");
            let at_end = growth.floor + growth.slope * shape.at(60_000.0);
            assert!((at_end / growth.largest_cost - 1.0).abs() < 0.05);
            assert_eq!(verdict(&growth, Some(&control())).word, Word::Grows);
        }
    }
}

#[test]
fn log_n_is_no_linear_growth() {
    for seed in 0..10 {
        let growth = fit(
            &runs_of(&ladder(|n| 0.5 * n.ln()), 5, 0.05, 0.01, seed),
            seed,
        )
        .expect("a fit");
        assert_eq!(growth.shape, Shape::Log, "seed {seed}");
        let p = growth.exponent.expect("it doubles over the whole ladder");
        assert!(p.high < 0.5, "seed {seed}: {p:?}");
        assert_eq!(verdict(&growth, Some(&control())).word, Word::Flat);
    }
}

#[test]
fn nothing_is_said_without_a_control_that_grew() {
    let growth = fit(&runs_of(&ladder(|_| 4.0), 5, 0.0, 0.02, 1), 1).expect("a fit");
    let squared = fit(&runs_of(&ladder(|n| n * n), 5, 0.0, 0.01, 1), 1).expect("a fit");
    for control in [None, Some(&growth), Some(&squared)] {
        let verdict = verdict(&growth, control);
        assert_eq!(verdict.word, Word::Inconclusive);
        let start = "inconclusive: the positive control did not grow as N (exponent ";
        assert!(verdict.text.starts_with(start), "{}", verdict.text);
    }
    assert_eq!(verdict_without_control(&growth).word, Word::Flat);
}

fn growth(ratio: [f64; 3], exponent: Option<[f64; 3]>, n: [f64; 2]) -> Growth {
    let interval = |[value, low, high]: [f64; 3]| Interval { value, low, high };
    Growth {
        exponent: exponent.map(interval),
        shape: Shape::Linear,
        ratio: interval(ratio),
        reference_n: n[0],
        largest_n: n[1],
        reference_cost: 1.0,
        largest_cost: ratio[0],
        floor: 1.0,
        slope: 1.0,
    }
}

#[test]
fn the_words() {
    let n = [1e3, 6e4];
    let p = Some([0.97, 0.94, 1.01]);
    for (growth, text) in [
        (
            growth([1.2, 1.1, 1.3], None, n),
            "flat 1.2x (1.1..1.3) from N=1000 to N=60000",
        ),
        (
            growth([1.2, 1.1, 1.987], p, n),
            "flat 1.200x (1.100..1.987) from N=1000 to N=60000",
        ),
        (
            growth([40.0, 35.0, 45.0], p, n),
            "grows ~N^0.97 (0.94..1.01)",
        ),
        (
            growth([40.0, 35.0, 45.0], None, n),
            "inconclusive: 40.0x (35.0..45.0) from N=1000 to N=60000, but too few N, \
             or too little rise over all of them, for an exponent",
        ),
        (
            growth([2.4, 1.6, 3.0], Some([0.3, 0.0, 3.0]), n),
            "inconclusive: 2.4x (1.6..3.0) from N=1000 to N=60000, but not as a power of N \
             (exponent 0.30 (0.00..3.00))",
        ),
        (
            growth([2.0, 1.2, 3.2], p, n),
            "inconclusive: 2.00x (1.20..3.20) from N=1000 to N=60000: \
             neither below 2 nor above 1.5",
        ),
        (
            growth([1.5, 1.4, 1.6], None, [1e3, 1.5e3]),
            "inconclusive: from N=1000 to N=1500 is too short a way to see growth \
             (a factor of 10 is needed)",
        ),
    ] {
        assert_eq!(verdict_without_control(&growth).text, text);
    }
}

#[test]
fn the_reference_is_never_the_largest_n() {
    let point = |n: f64| Point {
        n,
        runs: vec![n; 3],
    };
    let short = fit(&[1e3, 10.0, 100.0].map(point), 1).expect("a fit");
    assert!((short.ratio.value - 100.0).abs() < 1e-9);
    assert!((short.reference_n - 10.0).abs() < 1e-9);
    let long = fit(&[1e3, 10.0, 4e3].map(point), 1).expect("a fit");
    assert!((long.ratio.value - 4.0).abs() < 1e-9);
    assert_eq!(long.exponent, None, "three points define none");
}

#[test]
fn faults_in_the_data_are_named() {
    type Change = fn(&mut Vec<Point>);
    let with = |change: Change| {
        let point = |n| Point {
            n,
            runs: vec![1.0; 3],
        };
        let mut points = [1.0, 2.0, 3.0].map(point).to_vec();
        change(&mut points);
        fit(&points, 1).map_or_else(|error| error.to_string(), |_| "a fit".to_owned())
    };
    let changes: [(&str, Change); 11] = [
        ("a fit", |_| ()),
        ("0 different N, a fit needs 3", |points| points.clear()),
        ("2 different N, a fit needs 3", |points| points.truncate(2)),
        ("N=2 comes twice", |points| points[2].n = 2.0),
        ("N=NaN is not between 1 and 1e18", |points| {
            points[0].n = f64::NAN;
        }),
        ("N=0.5 is not between 1 and 1e18", |points| {
            points[0].n = 0.5;
        }),
        (
            "cost 0 at N=2 in run 1 is not between 1e-30 and 1e30",
            |points| points[1].runs[1] = 0.0,
        ),
        ("2 runs at N=3, 3 at the first N", |points| {
            points[2].runs.truncate(2);
        }),
        ("2 runs, an interval needs 3", |points| truncate(points, 2)),
        ("1 run, an interval needs 3", |points| truncate(points, 1)),
        ("1 run at N=3, 3 at the first N", |points| {
            points[2].runs.truncate(1);
        }),
    ];
    for (text, change) in changes {
        assert_eq!(with(change), text);
    }
}

/// Leaves so many runs at each point.
fn truncate(points: &mut [Point], runs: usize) {
    for point in points {
        point.runs.truncate(runs);
    }
}

/// How often the exponent's interval holds the exponent, over floors and exponents.
#[test]
fn exponent_intervals_cover_what_they_promise() {
    let seed = 1;
    let experiments: u32 = std::env::var("COVERAGE_EXPERIMENTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(40);
    println!("seed {seed}, {experiments} experiments");
    let mut random = Random::new(seed);
    let mut covered = 0;
    for _ in 0..experiments {
        let p = [0.5, 1.0, 1.5, 2.0][random.index(4)];
        let floor = [0.0, 0.01, 0.1][random.index(3)];
        let costs = ladder(|n| floor + (n / 60_000.0).powf(p));
        let points = runs_of(&costs, 5, 0.05, 0.02, random.bits());
        let found = fit(&points, random.bits())
            .expect("a fit")
            .exponent
            .expect("it grows");
        covered += u32::from(found.low <= p && p <= found.high);
    }
    let share = 100.0 * f64::from(covered) / f64::from(experiments);
    println!("{share:.1} % covered");
    assert!(share > 85.0, "{share} %");
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.5f64..1e6,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![
            0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE,
            f64::MAX, 1e-30, 1e30, 1e18, 1.0,
        ]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_numbers_give_a_fit_or_an_error(points in prop::collection::vec((number(), prop::collection::vec(number(), 3..5)), 0..7), seed in any::<u64>()) {
        let points: Vec<Point> = points.into_iter().map(|(n, runs)| Point { n, runs }).collect();
        if let Ok(growth) = fit(&points, seed) {
            prop_assert!(growth.ratio.low <= growth.ratio.high);
            let _ = verdict(&growth, Some(&growth));
            let _ = verdict_without_control(&growth);
        }
    }

    /// As above, but all of it valid, however wild.
    #[test]
    fn valid_numbers_give_a_fit(points in prop::collection::btree_map(0u32..60, prop::collection::vec(-99i32..100, 3), 3..8), seed in any::<u64>()) {
        let points: Vec<Point> = points.into_iter().map(|(n, runs)| Point {
            n: 2f64.powi(i32::try_from(n).unwrap() - 1).max(1.0) + f64::from(n) / 64.0,
            runs: runs.into_iter().map(|power| 2f64.powi(power)).collect(),
        }).collect();
        let growth = fit(&points, seed).unwrap();
        prop_assert!(growth.ratio.low <= growth.ratio.high);
        prop_assert!(growth.floor >= 0.0 && growth.floor.is_finite());
        prop_assert!(growth.slope >= 0.0 && growth.slope.is_finite());
        if let Some(p) = growth.exponent {
            prop_assert!(0.0 <= p.low && p.low <= p.value && p.value <= p.high && p.high <= STEEPEST);
        }
        let _ = verdict_without_control(&growth);
    }

    /// A floor from nothing to half of the largest cost, 2 % noise. The bound on the error
    /// is loose where the floor hides the growing part's lower half.
    #[test]
    fn exponents_are_recovered(p in prop::sample::select(vec![0.5, 1.0, 1.5, 2.0]), floor in 0.0f64..1.0, scale in 1e-3f64..1e6, seed in any::<u64>()) {
        let costs = ladder(|n| scale * (floor + (n / 60_000.0).powf(p)));
        let growth = fit(&runs_of(&costs, 5, 0.05, 0.02, seed), seed).unwrap();
        let found = growth.exponent.unwrap();
        prop_assert!((found.value - p).abs() < 0.3, "{:?}", found);
        prop_assert!(found.low - 0.15 <= p && p <= found.high + 0.15, "{:?}", found);
    }
}
