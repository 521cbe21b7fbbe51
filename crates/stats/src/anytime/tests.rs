use super::*;
use bet::stakes;
use proptest::prelude::*;
use stopgap_events::random::Random;

use crate::noise::normal;

fn sequence(units: &[f64], options: Options) -> Sequence {
    let mut sequence = Sequence::new(options);
    for &d in units {
        sequence.push(d).unwrap();
    }
    sequence
}

fn look(units: &[f64]) -> Look {
    sequence(units, Options::default()).look()
}

/// Normal differences.
fn normals(seed: u64, count: usize, mean: f64, deviation: f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| mean + deviation * normal(&mut random))
        .collect()
}

/// All sequences of signs of so many magnitudes, around a shift.
fn all_signs(magnitudes: &[f64], shift: f64) -> impl Iterator<Item = Vec<f64>> + '_ {
    (0..1u32 << magnitudes.len()).map(move |signs| {
        let units = magnitudes.iter().enumerate();
        units
            .map(|(at, d)| shift + if signs >> at & 1 == 1 { *d } else { -*d })
            .collect()
    })
}

/// The oracle: over all signs, which are equally probable where the shift is true, the mean evidence is 1, and it is ever `1 / alpha`
/// in at most `alpha` of them.
#[test]
fn the_mean_evidence_over_all_signs_is_one() {
    let magnitudes = [0.3, 0.01, 1.7, 0.2, 0.25, 40.0, 0.0, 0.3, 0.09, 1.1, 0.6];
    // Exact in binary, so that no difference of equal magnitude is rounded to another one.
    for shift in [0.0, 0.5] {
        let (mut below, mut above, mut alarms, mut count) = (0.0, 0.0, 0u32, 0u32);
        for units in all_signs(&magnitudes, shift) {
            let alpha = 0.1;
            let options = Options {
                alpha,
                ..Options::default()
            };
            let whole = sequence(&units, options);
            below += stakes(&whole.units, 1.0, shift).sum();
            above += stakes(&whole.units, -1.0, -shift).sum();
            let moved: Vec<f64> = units.iter().map(|d| d - shift).collect();
            alarms += u32::from(sequence(&moved, options).look().e >= 1.0 / alpha);
            count += 1;
        }
        let n = f64::from(count);
        assert!((below / n - 1.0).abs() < 1e-12, "{}", below / n);
        assert!((above / n - 1.0).abs() < 1e-12, "{}", above / n);
        println!("shift {shift}: {alarms} of {count} alarms at a level of 0.1");
        assert!(
            alarms > 0 && f64::from(alarms) <= 0.1 * n,
            "{alarms} of {count}"
        );
    }
}

#[test]
fn equal_counts_are_the_same_and_a_constant_step_is_worse() {
    let least = least_units(ALPHA, 1);
    let same = look(&vec![0.0; least]);
    assert_eq!((same.word, same.decided_at), (Word::Same, Some(least)));
    assert!(same.low.unwrap().abs() < 1e-300 && same.high.unwrap().abs() < 1e-300);
    assert_eq!(look(&vec![0.0; least - 1]).word, Word::Undecided);

    let worse = look(&vec![0.05; least]);
    assert_eq!((worse.word, worse.decided_at), (Word::Worse, Some(least)));
    assert!((worse.low.unwrap() - 0.05).abs() < 1e-9 && (worse.high.unwrap() - 0.05).abs() < 1e-9);
    assert_eq!(worse.estimate, Some(0.05));
    assert_eq!(look(&vec![-0.05; least]).word, Word::Better);
    // Proven different, yet within the margin.
    let little = look(&vec![0.001; least]);
    assert_eq!(little.word, Word::Same);
    assert!(little.low.unwrap() > 0.0 && little.e >= 1.0 / ALPHA);
}

#[test]
fn the_fewest_units_by_level_and_endpoints() {
    let least = [(0.05, 1), (0.01, 1), (0.01, 3), (0.001, 1)].map(|(a, n)| least_units(a, n));
    assert_eq!(least, [8, 10, 12, 14]);
    assert_eq!(least_units(1e-300, 1), 900);
}

/// Half of the units are equal: the interval may end at 0 itself, and the word is right all the same.
#[test]
fn ties_at_zero_do_not_hide_a_difference() {
    let units: Vec<f64> = (0..60).map(|at| f64::from(at % 3 == 0)).collect();
    let look = sequence(
        &units,
        Options {
            margin: 0.01,
            ..Options::default()
        },
    )
    .look();
    assert_eq!(look.word, Word::Worse);
    assert!(look.low.unwrap() >= 0.0, "{look:?}");
}

#[test]
fn what_cannot_be_used_is_refused_and_not_counted() {
    let mut sequence = sequence(&[0.1, 0.2], Options::default());
    for d in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e101] {
        assert!(sequence.push(d).is_err());
    }
    let refused = sequence.push(f64::NAN).unwrap_err().to_string();
    assert!(refused.contains("NaN"), "{refused}");
    assert_eq!(sequence.look().units, 2);
    sequence.push(-1e100).unwrap();
    sequence.push(1e100).unwrap();
    assert!(sequence.look().estimate.unwrap().is_finite());
    assert_eq!(ratio(&[1.0], &[0.0]), None);
    assert_eq!(ratio(&[], &[1.0]), None);
    assert_eq!(difference(&[f64::INFINITY], &[1.0]), None);
    assert_eq!(difference(&[1.0, 3.0], &[0.0, 6.0]), Some(1.0));
    assert!((ratio(&[1.0, 4.0], &[6.0]).unwrap() - 3.0f64.ln()).abs() < 1e-15);
}

#[test]
fn a_coarse_clock_proves_nothing_the_same() {
    let units = normals(1, 60, 0.0, 0.005);
    let mut sequence = Sequence::new(Options::default());
    sequence.set_resolution(0.02);
    units.iter().for_each(|&d| sequence.push(d).unwrap());
    let coarse = sequence.look();
    assert_eq!(coarse.word, Word::Undecided);
    assert_eq!(coarse.not_same, Some(NotSame::Resolution));
    // A finer figure proves it at the next unit.
    sequence.set_resolution(0.01);
    sequence.push(0.0).unwrap();
    assert_eq!(sequence.look().word, Word::Same);
    assert_eq!(sequence.look().not_same, None);
    // A coarse clock hides no large difference.
    sequence = Sequence::new(Options::default());
    sequence.set_resolution(f64::NAN);
    units.iter().for_each(|&d| sequence.push(d + 0.1).unwrap());
    assert_eq!(sequence.look().word, Word::Worse);
}

/// Half of the pairs have one slow run, mostly of the later side: the typical run is the same.
#[test]
fn slow_runs_keep_the_word_from_being_same() {
    let mut units = normals(5, 40, 0.0, 0.005);
    for (at, d) in units.iter_mut().enumerate().filter(|(at, _)| at % 4 == 1) {
        *d += if at % 12 == 1 { -0.7 } else { 0.7 };
    }
    let look = look(&units);
    assert_eq!(
        (look.word, look.not_same),
        (Word::Undecided, Some(NotSame::Mean)),
        "{look:?}"
    );
}

#[test]
fn a_thousand_looks_are_fast() {
    let units = normals(3, 1_000, 0.001, 0.05);
    let mut sequence = Sequence::new(Options::default());
    let mut last = sequence.look();
    for &d in &units {
        sequence.push(d).unwrap();
        let look = sequence.look();
        // Ends only move towards each other, and a word once said stays.
        assert!(look.low >= last.low && (last.high.is_none() || look.high <= last.high));
        assert!(last.word == Word::Undecided || look.word == last.word);
        last = look;
    }
    println!("{last:?}");
    assert_eq!(last.word, Word::Same);
}

/// Half of the way to a decision, three of four forecasts are within a factor of 2 of what all units are in the end.
#[test]
fn forecasts_are_of_the_right_order() {
    let (mut near, mut all) = (0, 0);
    for (mean, deviation) in [(0.0, 0.03), (0.0, 0.07), (0.05, 0.07), (0.02, 0.03)] {
        for seed in 0..20 {
            let units = normals(seed, 2_000, mean, deviation);
            let decided = look(&units).decided_at.expect("2,000 units are enough");
            let now = decided / 2;
            let forecast = now + look(&units[..now]).more.expect("there are units");
            all += 1;
            near += u32::from(forecast <= 2 * decided && 2 * forecast >= decided);
        }
    }
    println!("{near} of {all} forecasts within a factor of 2");
    assert!(4 * near >= 3 * all, "{near} of {all}");
    assert_eq!(look(&[0.1, 0.2]).more, None);
    // Nothing is ever proven of a mean at the margin itself, and the same of nothing that a clock cannot show.
    assert_eq!(
        look(&[log_margin(MARGIN), -log_margin(MARGIN)].repeat(9)).word,
        Word::Undecided
    );
    let mut coarse = sequence(&[0.0, 1e-6, -1e-6, 0.0], Options::default());
    coarse.set_resolution(1.0);
    assert_eq!(coarse.look().more, None);
    assert_eq!(coarse.look().not_same, Some(NotSame::Resolution));
    let least = least_units(ALPHA, 1);
    assert_eq!(look(&[0.5; 5]).more, Some(least - 5));
    // The mean of slow runs takes longer than the typical run.
    let modes: Vec<f64> = (0..40)
        .map(|at| {
            if at % 10 == 0 {
                0.7
            } else if at % 10 == 5 {
                -0.7
            } else {
                0.001
            }
        })
        .collect();
    let more = look(&modes).more.expect("a mean of 0 fits at some time");
    assert!((200..600).contains(&more), "{more}");
}

#[test]
fn a_look_is_json_without_infinities() {
    let text = serde_json::to_string(&look(&[0.1])).unwrap();
    assert!(
        text.contains(r#""word":"undecided""#) && text.contains(r#""low":null"#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<Look>(&text).unwrap(), look(&[0.1]));
}

/// Differences with ties, zeros and outliers.
fn units() -> impl Strategy<Value = Vec<f64>> {
    let unit = prop_oneof![
        4 => -100i32..150,
        2 => Just(0),
        2 => Just(7),
        1 => -100_000i32..100_000,
    ];
    (prop::collection::vec(unit, 0..80), 1u32..60).prop_map(|(units, step)| {
        // Steps of a power of two are exact.
        let step = 0.5f64.powi(step as i32 % 20);
        units.into_iter().map(|d| f64::from(d) * step).collect()
    })
}

fn opposite(word: Word) -> Word {
    match word {
        Word::Worse => Word::Better,
        Word::Better => Word::Worse,
        Word::Same | Word::Undecided => word,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn swapping_the_sides_mirrors_the_look(units in units()) {
        let own = look(&units);
        let swapped = look(&units.iter().map(|d| -d).collect::<Vec<_>>());
        prop_assert_eq!(own, Look {
            word: opposite(swapped.word),
            estimate: swapped.estimate.map(|d| -d),
            mean: swapped.mean.map(|d| -d),
            low: swapped.high.map(|d| -d),
            high: swapped.low.map(|d| -d),
            ..swapped
        });
    }

    #[test]
    fn the_scale_does_not_matter(units in units(), power in -30i32..30) {
        let factor = 2f64.powi(power);
        let margin = log_margin(MARGIN);
        let own = look(&units);
        let scaled = sequence(
            &units.iter().map(|d| d * factor).collect::<Vec<_>>(),
            Options { margin: margin * factor, ..Options::default() },
        ).look();
        let by = |d: Option<f64>| d.map(|d| d * factor);
        // The ends of equal units are the next number beside them, whose distance has no scale.
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) + 1e-300,
            (a, b) => a.is_none() && b.is_none(),
        };
        prop_assert_eq!((own.word, own.decided_at), (scaled.word, scaled.decided_at));
        prop_assert_eq!(own.e.to_bits(), scaled.e.to_bits());
        prop_assert!(near(by(own.low), scaled.low) && near(by(own.high), scaled.high), "{:?} {:?}", own, scaled);
        prop_assert!(near(by(own.estimate), scaled.estimate));
    }

    #[test]
    fn a_constant_moves_the_interval(units in units(), constant in -64i32..64) {
        let constant = f64::from(constant) / 16.0;
        let own = sequence(&units, Options::default());
        let moved = sequence(&units.iter().map(|d| d + constant).collect::<Vec<_>>(), Options::default());
        for (sign, own, moved) in [(1.0, &own.from_below, &moved.from_below), (-1.0, &own.from_above, &moved.from_above)] {
            // Rounding may move a bound by what the search leaves open.
            let widest = own.bound.abs() + units.iter().fold(0.0f64, |most, d| most.max(d.abs()));
            let open = 1e-6 * constant.abs() + 1e-3 * widest;
            let is_near = (own.bound + sign * constant - moved.bound).abs() <= open;
            prop_assert!(is_near || own.bound.to_bits() == moved.bound.to_bits(), "{} {}", own.bound, moved.bound);
        }
    }

    /// From scratch: at some prefix the evidence against the bound is enough, and just beyond the bound it never is.
    #[test]
    fn the_evidence_at_the_ends_is_just_enough(units in units()) {
        let whole = sequence(&units, Options::default());
        let enough = Options::default().enough();
        let widest = whole.units.iter().filter_map(|unit| unit.scale).fold(0.0, f64::max);
        for (sign, side) in [(1.0, &whole.from_below), (-1.0, &whole.from_above)] {
            let most = |shift: f64| {
                let prefixes = (1..=units.len()).map(|n| stakes(&whole.units[..n], sign, shift).sum());
                prefixes.fold(0.0, f64::max) / enough
            };
            let all_below = if side.bound == f64::NEG_INFINITY {
                f64::MIN
            } else {
                prop_assert!(most(side.bound) >= 1.0 - 1e-9);
                side.bound
            };
            let beyond = all_below + 2e-4 * widest + 1e-9 * all_below.abs().min(1e9);
            prop_assert!(most(beyond) <= 1.002, "{} at {}", most(beyond), beyond);
        }
    }

    #[test]
    fn word_interval_and_evidence_agree(units in units()) {
        let mut sequence = Sequence::new(Options::default());
        for &d in &units {
            sequence.push(d).unwrap();
            let look = sequence.look();
            let (low, high) = (look.low.unwrap_or(f64::NEG_INFINITY), look.high.unwrap_or(f64::INFINITY));
            let estimate = look.estimate.unwrap();
            prop_assert!(low <= estimate && estimate <= high, "{:?}", look);
            match look.word {
                Word::Worse => prop_assert!(low >= 0.0 && look.e >= 1.0 / ALPHA),
                Word::Better => prop_assert!(high <= 0.0 && look.e >= 1.0 / ALPHA),
                Word::Same => prop_assert!(-log_margin(MARGIN) <= low && high <= log_margin(MARGIN)),
                Word::Undecided => prop_assert!(look.e < 1.0 / ALPHA && low <= 0.0 && high >= 0.0),
            }
        }
    }
}
