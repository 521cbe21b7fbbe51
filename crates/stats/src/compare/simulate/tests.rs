use super::*;
use stopgap_events::random::Random;

/// The shares that a count of `n` may have where the probability is from `least` to `most`: up to four standard errors
/// beyond.
fn assert_share(counts: &Counts, column: usize, n: u32, least: f64, most: f64) {
    let share = f64::from(counts.counts[column].expect("it is counted")) / f64::from(n);
    let beyond = |p: f64| 4.0 * (p * (1.0 - p) / f64::from(n)).sqrt();
    assert!(
        least - beyond(least) <= share && share <= most + beyond(most),
        "{}, {}: {share:.3} is not from {least} to {most}",
        counts.name,
        CHANGED[column]
    );
}

/// The short form of what `docs/compare.md` has from 4,000 simulations.
#[test]
fn the_tests_are_worth_what_they_say() {
    let plan = Plan {
        resamples: 399,
        permutations: 999,
        ..Plan::new(300, 10, 1)
    };
    println!("seed {}, {} simulations", plan.seed, plan.simulations);
    let outcome = simulate(&plan, |_| true);
    let n = outcome.simulations;
    for counts in &outcome.endpoints {
        assert_share(counts, 0, n, 0.035, 0.065);
    }
    assert_share(&outcome.gate[0], 0, n, 0.0, 0.055);
    let [stall_rate, raw] = [&outcome.endpoints[2], &outcome.peers[2]];
    assert_eq!(
        (&*stall_rate.name, &*raw.name),
        ("stall rate", peers::NAMES[2])
    );
    assert_share(stall_rate, 1, n, 0.55, 1.0);
    // The world must show the faults of the other tests, too. Otherwise it would be too simple.
    assert_share(raw, 0, n, 0.75, 0.85);
    for counts in &outcome.intervals[1..2] {
        assert_share(counts, 0, n, 0.90, 1.0);
    }
}

#[test]
fn the_seed_fixes_the_outcome() {
    let plan = Plan {
        resamples: 50,
        permutations: 50,
        ..Plan::new(3, 5, 9)
    };
    let outcome = simulate(&plan, |_| true);
    assert_eq!(outcome, simulate(&plan, |_| true));
    assert_eq!(simulate(&plan, |done| done < 2).simulations, 2);
}

/// Figures against their definition.
#[test]
fn figures_of_a_run() {
    let mut samples: Vec<f64> = (1..=2_000).map(f64::from).collect();
    // Two episodes: three samples, one.
    for (at, long) in [(10, 2e6), (11, 3e6), (12, 1e6), (500, 9e6)] {
        samples[at] = long;
    }
    let mut shuffled = samples.clone();
    Random::new(1).shuffle(&mut shuffled);
    let figures = figures(&mut samples);
    assert_eq!((figures.long, figures.episodes), (4, 2));
    assert!((figures.stalled - 15e6).abs() < 1e-6);
    samples.sort_unstable_by(f64::total_cmp);
    let bits = |values: [f64; 3]| values.map(f64::to_bits);
    assert_eq!(
        bits([figures.median, figures.p99, figures.p999]),
        bits([samples[999], samples[1_979], samples[1_997]])
    );
    let again = super::figures(&mut shuffled);
    assert!((again.mean - figures.mean).abs() < 1e-6);
    assert!((again.squares / figures.squares - 1.0).abs() < 1e-12);
}
