//! Compares two sides of runs: do they differ?
//!
//! # Contract
//!
//! [`compare`] takes two sides of [`Run`]s and returns a [`Comparison`] (JSON `stopgap.compare/1`): for each endpoint
//! the level of both sides, the effect with its interval and a probability; and one word for all. The unit of
//! evidence is a *run* (a process, a boot, or an occasion of several, [`Run::of_occasion`]), never a sample. Samples
//! of one run resemble each other, and a test of pooled samples calls identical runs different in 80 % of cases
//! ([`simulate`] shows it). The same runs, options and seed always give the same answer. It never panics. An
//! endpoint's row names missing, NaN or infinite figures, a side without runs, and too few runs. These make the
//! verdict `inconclusive` unless another endpoint decides. No outlier is removed. The maximum is described, never
//! tested.
//! # Endpoints
//!
//! Fixed before the data is seen; less is better in all of them.
//!
//! | endpoint | of a run | test | effect |
//! |---|---|---|---|
//! | `median`, `p99`, `p99.9` | its median, p99, p99.9 | ranks | Hodges and Lehmann's ratio |
//! | `p10`, in pairs | its 10th percentile | mean of differences | ratio |
//! | `stall time` | ms in stalls a second | ranks | the same, or a difference where a run has none |
//! | `stall rate` | stall episodes a second | means | ratio of means |
//! | a number | itself | ranks | Hodges and Lehmann's ratio, or difference where one is 0 or less |
//! | the mean of a number | itself | means | ratio, or difference where one is 0 or less |
//!
//! `p99.9` is an endpoint only where the runs of both sides together have at least [`EPISODES`] independent stall episodes a
//! run on average: below that a run's p99.9 is one or two bursts under a name that it did not earn. Both sides count together,
//! so the rule cannot favour a side. Stalls are compared only at one threshold.
//!
//! # Method and lineage
//!
//! * The test (`two.rs`): a permutation of the sides' labels (Fisher, *The Design of Experiments*, 1935) of Brunner and Munzel's
//!   statistic of ranks, or of Welch's of means. Exact up to 20,000 arrangements, else a seeded sample, of which the seen
//!   arrangement is one. Its level is exact where both sides have one distribution, and holds in the limit where only
//!   spreads or numbers of runs differ. Runs of a side must be independent of each other: sides whose neighbouring runs resemble each
//!   other are refused (`order.rs`).
//! * The effect: Hodges and Lehmann 1963, on logarithms. No single run decides it.
//! * The interval: the effects that the same test would not call different, at the level at which Holm's procedure judges the
//!   endpoint. So word, probability and interval agree. Those of one side's level are a bootstrap over runs.
//! * Occasions made in turn ([`in_turn`], `paired.rs`): the sides of each pair are changed. The effect is the mean of the pairs'
//!   differences, of logarithms where it is a ratio; Westfall and Young's procedure judges all endpoints together.
//! * Several endpoints, in no pairs: Holm 1979 for the verdict, Benjamini and Hochberg 1995 beside it, for looking around.
//! * `not worse` is what a non-inferiority trial shows: the upper end of the interval, and a step of the clock (`steps.rs`) beyond
//!   it, are below 1 + margin.
//!
//! The table in `judge.rs` gives the [`Verdict`] of the endpoints. How often the tests are wrong, what they find, and how
//! often the intervals hold the truth is measured by [`simulate`] and stands in `docs/compare.md`.
//!
//! # What it leaves out
//!
//! Drift of the machine between the sides: those that were measured one after the other differ by anything that happened in
//! between. Anything about single samples; the shape of a distribution beyond its quantiles; equality:
//! absence of proof is `no difference proven`, and only an interval within the margin is more. Reading files and gathering
//! runs are elsewhere.

mod adjust;
mod conditions;
mod judge;
pub mod moved;
mod order;
mod paired;
mod power;
mod rate;
mod record;
mod resample;
mod row;
mod shift;
mod side;
pub mod simulate;
mod steps;
mod two;

use std::collections::{BTreeMap, BTreeSet};

use stopgap_events::machine::Missing;
use stopgap_events::order::Inserted as _;

pub use adjust::{benjamini_hochberg, holm};
pub use conditions::Occasion;
pub use paired::{Paired, in_turn, paired, pairs_suffice};
pub use power::detectable;
pub use record::{
    Comparison, Decile, Difference, Effect, Looked, Row, RowWord, SCHEMA, Scale, Summary, Verdict,
    Word,
};
pub use row::text as effect_text;
pub use side::{Endpoint, Run, RunStalls, Side};

/// Accepted probability of a false alarm.
pub const LEVEL: f64 = 0.05;

/// Independent stall episodes per run, on average over both sides, from which p99.9 is an endpoint.
pub const EPISODES: u64 = 10;

/// Most runs per side. More are refused, because they are samples under another name.
pub const MOST_RUNS: usize = 5_000;

/// Options of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Seed of arrangements and draws.
    pub seed: u64,
    /// Number of arrangements to draw if there are more than 20,000. The least probability is 1 / (`permutations` +
    /// 1).
    pub permutations: u32,
    /// Number of draws for each interval.
    pub resamples: u32,
    /// Share by which the later side may be worse and still be `not worse`: 0.05 is 5 %.
    pub margin: f64,
    /// Endpoints to test; empty for all that the runs have.
    pub endpoints: Vec<Endpoint>,
    /// Whether the runs of a side are in the order in which they were made. That order shows whether runs are
    /// independent.
    pub in_order: bool,
    /// Whether the runs of the same place are a pair ([`in_turn`]); both sides then have as many.
    pub in_pairs: bool,
    /// Nanoseconds from which a sample is a stall; `None`: the value of the first run. Runs with another value are
    /// refused.
    pub stall_threshold_ns: Option<u64>,
    /// Unit of median, p99, p99.9, deciles and maximum.
    pub unit: String,
    /// Unit of numbers.
    pub number_unit: String,
    /// Numbers that are means of a record's setups ([`together`](crate::read::together())), and the unit of each.
    pub of_setups: BTreeMap<String, String>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl Default for Options {
    /// Seed 1, 9,999 arrangements, 2,000 draws, a margin of 5 %, every endpoint, nanoseconds.
    fn default() -> Options {
        Options {
            seed: 1,
            permutations: 9_999,
            resamples: 2_000,
            margin: 0.05,
            endpoints: Vec::new(),
            in_order: true,
            in_pairs: false,
            stall_threshold_ns: None,
            unit: "ns".to_owned(),
            number_unit: String::new(),
            of_setups: BTreeMap::new(),
            command: Vec::new(),
        }
    }
}

/// Compares the runs of two sides.
///
/// 60 runs take about 0.1 s, mostly for intervals. Time grows with the number of runs times
/// ([`Options::permutations`] + [`Options::resamples`]).
#[must_use]
pub fn compare(before: &Side, after: &Side, options: &Options) -> Comparison {
    let sizes = [before.runs.len(), after.runs.len()];
    let options = &Options {
        in_pairs: options.in_pairs && sizes[0] == sizes[1] && pairs_suffice(sizes[0]),
        ..options.clone()
    };
    let mut missing = Vec::new();
    let asked = endpoints(before, after, options, &mut missing);
    let (mut endpoints, tests): (Vec<Row>, Vec<_>) = asked
        .iter()
        .map(|endpoint| row::row(endpoint, before, after, options))
        .unzip();
    let verdict = judge::judge(&mut endpoints, &tests, options.margin, sizes);

    let mut warnings = Vec::new();
    for row in &endpoints {
        let equal = |runs: &[f64]| {
            runs.len() > 1 && runs.windows(2).all(|two| two[0].total_cmp(&two[1]).is_eq())
        };
        let mean = matches!(
            asked
                .iter()
                .find(|endpoint| endpoint.to_string() == row.name),
            Some(Endpoint::Mean(_))
        );
        if !mean && equal(&row.before_runs) && equal(&row.after_runs) {
            warnings.push(format!(
                "{}: the runs of each side are equal to each other: is it measured finely enough?",
                row.name
            ));
        }
    }
    let threshold = |run: &Run| run.stalls.map(|stalls| stalls.threshold_ns);
    let runs = || before.runs.iter().chain(&after.runs);
    let thresholds: BTreeSet<u64> = runs().filter_map(threshold).inserted();
    Comparison {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        seed: options.seed,
        permutations: options.permutations,
        resamples: options.resamples,
        level: LEVEL,
        margin: options.margin,
        series: None,
        unit: options.unit.clone(),
        stall_threshold_ns: thresholds
            .first()
            .copied()
            .filter(|_| thresholds.len() == 1),
        before: summary(before),
        after: summary(after),
        verdict,
        endpoints,
        deciles: (1..=9)
            .filter_map(|tenth| row::decile(tenth, before, after, options))
            .collect(),
        environment: Vec::new(),
        conditions: Vec::new(),
        warnings,
        missing,
        pairs: options.in_pairs.then_some(before.runs.len()),
        looked: None,
    }
}

fn summary(side: &Side) -> Summary {
    let longest = side.runs.iter().filter_map(|run| run.max);
    Summary {
        name: side.name.clone(),
        runs: side.runs.len(),
        within: Some(side.runs.iter().map(|run| run.within).sum()).filter(|within| *within > 0),
        max: longest.filter(|max| max.is_finite()).max_by(f64::total_cmp),
    }
}

/// Returns the endpoints to test: the requested ones, or all that any run has. Looks only at which figures exist, not
/// at their values; for p99.9 also at the number of episodes of both sides together.
fn endpoints(
    before: &Side,
    after: &Side,
    options: &Options,
    missing: &mut Vec<Missing>,
) -> Vec<Endpoint> {
    let runs = || before.runs.iter().chain(&after.runs);
    let mut asked = Vec::new();
    if options.endpoints.is_empty() {
        let usual = Endpoint::USUAL.into_iter();
        asked.extend(usual.filter(|endpoint| match endpoint {
            Endpoint::P10 => options.in_pairs && runs().all(|run| endpoint.is_in(run)),
            _ => runs().any(|run| endpoint.is_in(run)),
        }));
        let numbers: BTreeSet<&String> = runs().flat_map(|run| run.numbers.keys()).inserted();
        for name in numbers {
            asked.push(Endpoint::Number(name.clone()));
            // A figure that is a mean already has no slow mode to show, and each further endpoint demands more of the
            // others.
            if !options.of_setups.contains_key(name) {
                asked.push(Endpoint::Mean(name.clone()));
            }
        }
    } else {
        for endpoint in &options.endpoints {
            // A number may have the name "mean of ..." itself.
            let own = Endpoint::Number(endpoint.to_string());
            let endpoint = match runs().any(|run| own.is_in(run)) {
                true => &own,
                false => endpoint,
            };
            if !asked.contains(endpoint) {
                asked.push(endpoint.clone());
            }
        }
    }
    if let Some(at) = asked
        .iter()
        .position(|endpoint| *endpoint == Endpoint::P999)
    {
        let mut episodes = runs().map(|run| run.episodes);
        let sum = episodes.try_fold(0u64, |sum, some| Some(sum.saturating_add(some?)));
        let n = (before.runs.len() + after.runs.len()) as u64;
        let why = match sum {
            None => {
                Some("not every run knows how many independent stall episodes it had".to_owned())
            }
            Some(sum) if sum < EPISODES.saturating_mul(n) => Some(format!(
                "{sum} independent stall episodes in {n} runs; it needs {EPISODES} a run"
            )),
            Some(_) => None,
        };
        if let Some(why) = why {
            asked.remove(at);
            missing.push(Missing::new("p99.9", why));
        }
    }
    asked
}

#[cfg(test)]
mod tests;
