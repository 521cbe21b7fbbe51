//! Measures the tests: thousands of comparisons in a world with a known truth.
//!
//! [`simulate`] makes two sides of runs and changes the later side in three ways: not at all; a quarter of the
//! stalls; a body faster by 10 % with four times the stalls. It compares them by [`compare`] and by other common
//! tests, and counts which tests call them different and which intervals contain the truth. The world is in
//! `world.rs`; figures are in `docs/compare.md`, and `stopgap-bench simulate` prints them.
//!
//! The three changes share the runs' bodies and the whole earlier side, so columns are not independent of each other; each
//! simulation is independent of the next.

mod peers;
mod world;

use std::sync::OnceLock;

use stopgap_events::random::Random;

use super::{Endpoint, Options, RowWord, Run, RunStalls, Side, Word, compare};
use crate::quantile::median;
use peers::Sides;
use world::{CHANGES, Change, Figures, SAMPLES, body, changed, figures};

/// Changes of the later side, in the order of every column.
pub const CHANGED: [&str; 3] = ["nothing changed", "stalls / 4", "body -10 %, stalls x 4"];

/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Simulations.
    pub simulations: u32,
    /// Runs per side; at least 5.
    pub runs: usize,
    /// Seed of the first simulation; each next one adds 1.
    pub seed: u64,
    /// [`Options::permutations`].
    pub permutations: u32,
    /// [`Options::resamples`].
    pub resamples: u32,
}

impl Plan {
    /// 1,999 arrangements and 399 draws: a fifth of the defaults of [`compare`].
    #[must_use]
    pub fn new(simulations: u32, runs: usize, seed: u64) -> Plan {
        Plan {
            simulations,
            runs,
            seed,
            permutations: 1_999,
            resamples: 399,
        }
    }
}

/// A row of counts, one for each of [`CHANGED`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Name of the test or of the result.
    pub name: String,
    /// Number of simulations with this result; `None` where it cannot occur.
    pub counts: [Option<u32>; 3],
}

/// Result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// Simulations that were made; fewer where it was stopped.
    pub simulations: u32,
    /// Other tests that called the sides different at 5 %.
    pub peers: Vec<Counts>,
    /// Our endpoints with p of at most 5 %, each by itself.
    pub endpoints: Vec<Counts>,
    /// Verdicts of all endpoints together, at a margin of 5 %, by word; `a difference` is regression or improvement.
    pub gate: Vec<Counts>,
    /// 95 % intervals that contain the truth. Those of a single side are in the first column.
    pub intervals: Vec<Counts>,
}

/// The true values that our intervals should contain.
struct Truth {
    /// p99 of the typical run, and of all samples together.
    run_p99: f64,
    all_p99: f64,
    /// Hodges and Lehmann's ratio for median and p99, and for both rates, by change.
    ratios: [[Option<f64>; 4]; 3],
}

/// The endpoints, in the order in which they are shown.
const ENDPOINTS: [Endpoint; 4] = [
    Endpoint::Median,
    Endpoint::P99,
    Endpoint::StallRate,
    Endpoint::StallTime,
];

/// The names of the verdicts' counts.
const WORDS: [Word; 5] = [
    Word::Regression,
    Word::Improvement,
    Word::NotWorse,
    Word::NoDifferenceProven,
    Word::Inconclusive,
];

/// Simulates. `told` receives the number of finished simulations, and returns whether to continue.
///
/// A simulation takes about 5 ms with 10 runs per side and 15 ms with 30. Before the first one, the truth is computed
/// from 10,000 runs, which takes a second.
#[must_use]
pub fn simulate(plan: &Plan, mut told: impl FnMut(u32) -> bool) -> Outcome {
    let truth = truth();
    let mut tally = Tally::default();
    let mut done = 0;
    while done < plan.simulations && told(done) {
        one(
            plan,
            plan.seed.wrapping_add(u64::from(done)),
            truth,
            &mut tally,
        );
        done += 1;
    }
    tally.outcome(*plan, done, truth)
}

/// Counts, by name and change.
#[derive(Default)]
struct Tally {
    peers: [[u32; 3]; peers::NAMES.len()],
    endpoints: [[u32; 3]; ENDPOINTS.len()],
    words: [[u32; 3]; WORDS.len()],
    /// For p99: the interval by order statistics; our interval for the typical run, and for all samples.
    p99: [u32; 3],
    ratios: [[u32; 3]; ENDPOINTS.len()],
}

impl Tally {
    fn outcome(&self, plan: Plan, simulations: u32, truth: &Truth) -> Outcome {
        let row = |name: String, counts: [u32; 3]| Counts {
            name,
            counts: counts.map(Some),
        };
        let first = |name: &str, count: u32| Counts {
            name: name.to_owned(),
            counts: [Some(count), None, None],
        };
        let names = || ENDPOINTS.iter().map(ToString::to_string);
        let mut gate = vec![row(
            "a difference".to_owned(),
            [0, 1, 2].map(|change| self.words[0][change] + self.words[1][change]),
        )];
        let words = WORDS.iter().zip(self.words);
        gate.extend(words.map(|(word, counts)| row(word.to_string(), counts)));
        let mut intervals = vec![
            first("p99, order statistics as if independent", self.p99[0]),
            first("p99 of a run, ours", self.p99[1]),
            first(
                "p99 of a run, ours, for the p99 of all samples",
                self.p99[2],
            ),
        ];
        for (at, name) in names().enumerate() {
            intervals.push(Counts {
                name: format!("ratio of {name}"),
                counts: [0, 1, 2]
                    .map(|change| truth.ratios[change][at].map(|_| self.ratios[at][change])),
            });
        }
        Outcome {
            plan,
            simulations,
            peers: peers::NAMES
                .iter()
                .zip(self.peers)
                .map(|(name, counts)| row((*name).to_owned(), counts))
                .collect(),
            endpoints: names()
                .zip(self.endpoints)
                .map(|(name, counts)| row(name, counts))
                .collect(),
            gate,
            intervals,
        }
    }
}

/// One simulation: one earlier side, and the later side with each change.
fn one(plan: &Plan, seed: u64, truth: &Truth, tally: &mut Tally) {
    let mut random = Random::new(seed);
    // The world uses another random stream than the arrangements and draws.
    let own = random.bits();
    let no = CHANGES[0];
    let bodies = |random: &mut Random| (0..plan.runs).map(|_| body(random)).collect::<Vec<_>>();
    let (earlier, later) = (bodies(&mut random), bodies(&mut random));
    let (before, before_samples) = side(&earlier, no, &mut random);
    tally.p99[0] += u32::from(order_statistics(&before_samples, truth.all_p99));

    for (column, &change) in CHANGES.iter().enumerate() {
        let (after, after_samples) = side(&later, change, &mut random);
        let sides = Sides {
            before: &before,
            after: &after,
            before_samples: &before_samples,
            after_samples: &after_samples,
        };
        let rejected = peers::reject(&sides);
        for (counts, rejected) in tally.peers.iter_mut().zip(rejected) {
            counts[column] += u32::from(rejected);
        }
        let options = Options {
            seed: own,
            permutations: plan.permutations,
            resamples: plan.resamples,
            ..Options::default()
        };
        let comparison = compare(&runs("before", &before), &runs("after", &after), &options);
        for (at, endpoint) in ENDPOINTS.iter().enumerate() {
            let name = endpoint.to_string();
            let Some(row) = comparison.endpoints.iter().find(|row| row.name == name) else {
                continue;
            };
            let rejected = row.p.is_some_and(|p| p <= super::LEVEL);
            tally.endpoints[at][column] += u32::from(rejected && row.word != RowWord::Inconclusive);
            // An end without a bound contains everything.
            let holds = |truth: f64| {
                row.effect.is_none_or(|effect| {
                    effect.low.is_none_or(|low| low <= truth)
                        && effect.high.is_none_or(|high| truth <= high)
                })
            };
            if let Some(truth) = truth.ratios[column][at] {
                tally.ratios[at][column] += u32::from(holds(truth));
            }
            if *endpoint == Endpoint::P99 && column == 0 {
                let holds = |truth: f64| {
                    let interval = row.before_interval;
                    interval.is_some_and(|at| at.low <= truth && truth <= at.high)
                };
                tally.p99[1] += u32::from(holds(truth.run_p99));
                tally.p99[2] += u32::from(holds(truth.all_p99));
            }
        }
        let word = WORDS
            .iter()
            .position(|&word| word == comparison.verdict.word);
        if let Some(at) = word {
            tally.words[at][column] += 1;
        }
    }
}

/// The runs' figures, and all their samples in ascending order.
fn side(bodies: &[Vec<f64>], change: Change, random: &mut Random) -> (Vec<Figures>, Vec<u32>) {
    let mut samples = Vec::with_capacity(bodies.len() * SAMPLES);
    let figures = bodies
        .iter()
        .map(|body| {
            let mut run = changed(body, change, random);
            samples.extend(run.iter().map(|&ns| ns as u32));
            figures(&mut run)
        })
        .collect();
    samples.sort_unstable();
    (figures, samples)
}

/// Makes the side that [`compare`] reads.
fn runs(name: &str, figures: &[Figures]) -> Side {
    let run = |(number, figures): (usize, &Figures)| {
        let run = Run {
            median: Some(figures.median),
            p99: Some(figures.p99),
            p999: Some(figures.p999),
            ..Run::new(number.to_string())
        };
        run.with_stalls(RunStalls {
            count: u64::from(figures.episodes),
            time_ns: Some(figures.stalled as u64),
            threshold_ns: world::THRESHOLD_NS as u64,
            duration_ns: world::DURATION_NS,
        })
    };
    Side {
        name: name.to_owned(),
        runs: figures.iter().enumerate().map(run).collect(),
    }
}

/// Returns whether the 95 % interval for p99 that is valid for independent samples contains the truth.
fn order_statistics(samples: &[u32], truth: f64) -> bool {
    let n = samples.len() as f64;
    let half = crate::bootstrap::Z_975 * (n * 0.99 * 0.01).sqrt();
    let at = |place: f64| f64::from(samples[(place as usize).min(samples.len() - 1)]);
    at(n * 0.99 - half) <= truth && truth <= at(n * 0.99 + half)
}

/// The truth, from 10,000 runs of each kind; a constant of the world.
fn truth() -> &'static Truth {
    static TRUTH: OnceLock<Truth> = OnceLock::new();
    TRUTH.get_or_init(look_up)
}

fn look_up() -> Truth {
    const RUNS: usize = 10_000;
    let mut random = Random::new(0x7472_7574_6800);
    let mut all_samples = Vec::new();
    let mut columns: Vec<Vec<Figures>> = vec![Vec::new(); CHANGES.len()];
    for number in 0..RUNS {
        let body = body(&mut random);
        for (column, &change) in columns.iter_mut().zip(&CHANGES) {
            let mut run = changed(&body, change, &mut random);
            if change == CHANGES[0] && number % 10 == 0 {
                all_samples.extend_from_slice(&run);
            }
            column.push(figures(&mut run));
        }
    }
    let place = all_samples.len() / 100 * 99;
    let all_p99 = *all_samples.select_nth_unstable_by(place, f64::total_cmp).1;
    // The ratio of two runs drawn at random. A run and its neighbour are independent.
    let ratio = |column: &[Figures], of: fn(&Figures) -> f64| {
        let before = columns[0].iter().cycle().skip(1).map(of);
        let logs = column.iter().map(of).zip(before);
        median(logs.map(|(after, before)| (after / before).ln()).collect()).map(f64::exp)
    };
    let of = |at: usize| {
        let (column, change) = (&columns[at], CHANGES[at]);
        [
            ratio(column, |run| run.median),
            ratio(column, |run| run.p99),
            Some(change.bursts),
            // Runs without a stall have no ratio: the effect is a difference.
            None,
        ]
    };
    Truth {
        run_p99: median(columns[0].iter().map(|run| run.p99).collect()).unwrap_or(f64::NAN),
        all_p99,
        ratios: [0, 1, 2].map(of),
    }
}

#[cfg(test)]
mod tests;
