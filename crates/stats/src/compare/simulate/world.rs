//! A simulated world with a known truth: runs of samples with the difficulties of real ones.
//!
//! * A run as a whole is faster or slower than the next, by 5 % (layout, neighbours): its samples resemble each other.
//! * Within a run samples are log-normal around [`BODY_NS`].
//! * Stalls come in bursts: on average [`BURSTS`] a run of [`SAMPLES`] samples, more in some runs than in others, each of
//!   [`LENGTH`] samples on average, and each sample of a burst longer by a Pareto variable of at least [`STALL_NS`] whose
//!   variance is infinite.
//!
//! The numbers are chosen so that other common tests give the same results as in an earlier simulation, which is not
//! kept.

use stopgap_events::random::Random;

/// Samples of a run.
pub(super) const SAMPLES: usize = 2_000;
/// The run's effect: deviation of the logarithm.
const RUN: f64 = 0.05;
/// The median of all samples without stalls, nanoseconds.
const BODY_NS: f64 = 100_000.0;
/// Deviation of the logarithm of a sample within its run.
const SPREAD: f64 = 0.28;
/// Bursts a run, on average.
const BURSTS: f64 = 2.4;
/// Deviation of the logarithm of a run's rate of bursts.
const UNEVEN: f64 = 0.5;
/// Samples of a burst, on average (geometric).
const LENGTH: f64 = 4.0;
/// The least that a stall adds to a sample, nanoseconds.
const STALL_NS: f64 = 6_000_000.0;
/// Pareto's exponent: the mean is six times the least, the variance infinite.
const TAIL: f64 = 1.2;
/// Nanoseconds from which a sample is a stall.
pub(super) const THRESHOLD_NS: f64 = 1_000_000.0;
/// Nanoseconds between samples.
const PERIOD_NS: u64 = 1_000_000;

/// A change of the later side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    /// Factor of samples without stalls.
    pub(super) body: f64,
    /// Factor of the rate of bursts.
    pub(super) bursts: f64,
}

/// The changes: none, a quarter of the stalls, and the one that a mean of samples applauds.
pub(super) const CHANGES: [Change; 3] = [
    Change {
        body: 1.0,
        bursts: 1.0,
    },
    Change {
        body: 1.0,
        bursts: 0.25,
    },
    Change {
        body: 0.9,
        bursts: 4.0,
    },
];

/// Length of a run in nanoseconds.
pub(super) const DURATION_NS: u64 = SAMPLES as u64 * PERIOD_NS;

/// The samples of a run without its stalls, nanoseconds.
pub(super) fn body(random: &mut Random) -> Vec<f64> {
    let mut samples = Vec::with_capacity(SAMPLES + 1);
    let (of_run, _) = two_normal(random);
    let scale = BODY_NS.ln() + RUN * of_run;
    while samples.len() < SAMPLES {
        let (one, other) = two_normal(random);
        samples.push((scale + SPREAD * one).exp());
        samples.push((scale + SPREAD * other).exp());
    }
    samples
}

/// Changes the body, and puts stalls into it.
pub(super) fn changed(body: &[f64], change: Change, random: &mut Random) -> Vec<f64> {
    let mut samples: Vec<f64> = body.iter().map(|ns| ns * change.body).collect();
    let (uneven, _) = two_normal(random);
    // The mean of a log-normal factor is 1.
    let factor = (UNEVEN * uneven - UNEVEN * UNEVEN / 2.0).exp();
    for _ in 0..poisson(BURSTS * change.bursts * factor, random) {
        let mut at = random.index(SAMPLES);
        while at < SAMPLES {
            samples[at] += STALL_NS * unit(random).powf(-1.0 / TAIL);
            at += 1;
            if unit(random) < 1.0 / LENGTH {
                break;
            }
        }
    }
    samples
}

/// From 0 to 1, both excluded.
fn unit(random: &mut Random) -> f64 {
    ((random.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Two independent draws from the normal distribution with mean 0 and deviation 1 (Box and Muller).
fn two_normal(random: &mut Random) -> (f64, f64) {
    let radius = (-2.0 * unit(random).ln()).sqrt();
    let (sine, cosine) = (std::f64::consts::TAU * unit(random)).sin_cos();
    (radius * sine, radius * cosine)
}

/// A draw from Poisson's distribution (Knuth), for means of some tens at most.
fn poisson(mean: f64, random: &mut Random) -> u32 {
    let limit = (-mean).exp();
    let (mut count, mut product) = (0, unit(random));
    while product > limit {
        count += 1;
        product *= unit(random);
    }
    count
}

/// A run with that many samples, reduced to the tested figures; all in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    pub(super) mean: f64,
    /// Sum of squared distances from the mean.
    pub(super) squares: f64,
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    /// Samples of at least [`THRESHOLD_NS`].
    pub(super) long: u32,
    /// Episodes: such samples without a shorter one in between.
    pub(super) episodes: u32,
    /// Sum of their lengths.
    pub(super) stalled: f64,
}

/// Returns the figures of one run. Reorders its samples.
pub(super) fn figures(samples: &mut [f64]) -> Figures {
    let mean = samples.iter().sum::<f64>() / SAMPLES as f64;
    let squares = samples.iter().map(|ns| (ns - mean) * (ns - mean)).sum();
    let (mut long, mut episodes, mut stalled, mut within) = (0, 0, 0.0, false);
    for &ns in &*samples {
        let is = ns >= THRESHOLD_NS;
        if is {
            long += 1;
            stalled += ns;
            episodes += u32::from(!within);
        }
        within = is;
    }
    // The value that so many of 2,000 samples do not exceed: number 1,000, 1,980 and 1,998.
    let median = *samples.select_nth_unstable_by(999, f64::total_cmp).1;
    let p99 = *samples[999..]
        .select_nth_unstable_by(1_979 - 999, f64::total_cmp)
        .1;
    let p999 = *samples[1_979..]
        .select_nth_unstable_by(1_997 - 1_979, f64::total_cmp)
        .1;
    Figures {
        mean,
        squares,
        median,
        p99,
        p999,
        long,
        episodes,
        stalled,
    }
}
