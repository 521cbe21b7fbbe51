//! Runs of two commands that were gathered to be compared, JSON `stopgap.gather/1`: when which was run, and what each run took.
//!
//! # Design
//!
//! Runs come in blocks of four, `ABBA` or `BAAB` by a draw ([`order`]), so that a drift of the machine within a block meets both
//! sides alike, and a drift between blocks neither. How many runs there will be is fixed before the first: there is no early stop,
//! because a test that is looked at again and again until it says something says it too often.
//!
//! Before that the first command is run against itself in the same way: the *noise floor* ([`Gathered::floor`]). The same test
//! judges it, and the spread of runs within their blocks says how small a difference the runs to come can show at all.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Environment;
use stopgap_events::random::Random;
use thiserror::Error;

use crate::compare::{Comparison, Endpoint, Options, Run, Side, compare};
use crate::document::schema_named_in;
use crate::quantile::median;

/// The name and version of the document's form.
pub const SCHEMA: &str = "stopgap.gather/1";

/// Fewest and most runs a label of the noise floor; between them a third of the runs a side. Three blocks are the fewest that
/// the test can call different.
pub const FLOOR: (u32, u32) = (6, 10);

/// Numbers of a run that are tested unless others are asked for, all in seconds.
pub const TESTED: [&str; 3] = ["elapsed time", "user time", "system time"];

/// Two sides of runs, as they were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gathered {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Runs a side that were planned.
    pub planned: u32,
    /// Whether it was interrupted: what is here was measured, but less than was planned.
    pub interrupted: bool,
    /// The machine.
    pub environment: Environment,
    /// The command of the earlier side, as `sh -c` got it.
    pub before: String,
    /// The command of the later side.
    pub after: String,
    /// Runs of the earlier side's command under both labels.
    pub floor: Vec<Measured>,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Measured>,
}

/// Whose run it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// The earlier side, A.
    Before,
    /// The later side, B.
    After,
}

/// One run of a command: the process and those of its children that it waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Whose it is.
    pub label: Label,
    /// Its block, from 0; runs of one block were made one after the other.
    pub block: u32,
    /// From its exec to its end, nanoseconds on the monotonic clock.
    pub elapsed_ns: u64,
    /// CPU time in user mode, nanoseconds, by wait4(2).
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds, by wait4(2).
    pub system_ns: u64,
    /// Times that it left the CPU by itself.
    pub voluntary_switches: u64,
    /// Times that it was pre-empted.
    pub involuntary_switches: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// The most memory that one process of it had resident, bytes.
    pub most_resident: u64,
}

/// Why a document holds no gathered runs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatherError {
    /// It is no JSON, or a field is missing or of the wrong kind. The message ends with line and column, from 1.
    #[error("not gathered runs: {0}")]
    Json(#[from] serde_json::Error),
    /// It is a document of another kind, or of a version that this program does not know.
    #[error("the document's schema is '{found}', expected '{SCHEMA}'")]
    Schema {
        /// Its version.
        found: String,
    },
}

/// How quiet the machine is, by one command run against itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// The command against itself.
    pub comparison: Comparison,
    /// Unit of each tested number.
    pub noise: Vec<Noise>,
}

/// The noise of one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Noise {
    /// The number's name.
    pub name: String,
    /// Standard deviation of its logarithm within blocks, about the share by which a run differs from its neighbours.
    pub spread: f64,
    /// The least change, as a share of the level, that four comparisons of five would find with the planned runs.
    pub visible: f64,
}

/// Which runs to make, block by block: `runs` a side. If `runs` is odd, the last block is a pair.
#[must_use]
pub fn order(runs: u32, random: &mut Random) -> Vec<(u32, Label)> {
    let mut order = Vec::new();
    for block in 0..runs.div_ceil(2) {
        let (first, second) = match random.below(2) {
            0 => (Label::Before, Label::After),
            _ => (Label::After, Label::Before),
        };
        let four = [first, second, second, first];
        let left = if 2 * block + 1 == runs { 2 } else { 4 };
        order.extend(four[..left].iter().map(|&label| (block, label)));
    }
    order
}

/// Runs a label of the noise floor where `runs` a side are planned; even.
#[must_use]
pub fn floor_runs(runs: u32) -> u32 {
    (runs / 3).next_multiple_of(2).clamp(FLOOR.0, FLOOR.1)
}

/// A number of a run: its name, its unit, and where it stands.
type Number = (&'static str, &'static str, fn(&Measured) -> f64);

/// All of them. The first three are tested.
const NUMBERS: [Number; 8] = [
    (TESTED[0], "s", |run| run.elapsed_ns as f64 / 1e9),
    (TESTED[1], "s", |run| run.user_ns as f64 / 1e9),
    (TESTED[2], "s", |run| run.system_ns as f64 / 1e9),
    ("voluntary switches", "", |run| {
        run.voluntary_switches as f64
    }),
    ("involuntary switches", "", |run| {
        run.involuntary_switches as f64
    }),
    ("minor faults", "", |run| run.minor_faults as f64),
    ("major faults", "", |run| run.major_faults as f64),
    ("most resident", "bytes", |run| run.most_resident as f64),
];

impl Measured {
    /// Returns the run's numbers, by name: times in seconds, memory in bytes.
    #[must_use]
    pub fn numbers(&self) -> BTreeMap<String, f64> {
        NUMBERS
            .map(|(name, _, number)| (name.to_owned(), number(self)))
            .into()
    }
}

impl Gathered {
    /// Returns whether the text names the schema of gathered runs, of any version.
    #[must_use]
    pub fn is_named_in(text: &str) -> bool {
        schema_named_in(text).is_ok_and(|name| name.starts_with("stopgap.gather/"))
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`GatherError`], which names the place.
    pub fn from_json(text: &str) -> Result<Gathered, GatherError> {
        let found = schema_named_in(text)?;
        if found != SCHEMA {
            let found = found.chars().take(80).collect(); // enough of it to recognise
            return Err(GatherError::Schema { found });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The runs by side, called as their commands.
    #[must_use]
    pub fn sides(&self) -> [Side; 2] {
        [
            side(&self.before, Label::Before, &self.runs),
            side(&self.after, Label::After, &self.runs),
        ]
    }

    /// `options` for these runs: the numbers that are tested unless others are asked for, and the units of all.
    #[must_use]
    pub fn options(options: &Options) -> Options {
        let mut options = options.clone();
        if options.endpoints.is_empty() {
            options.endpoints = TESTED.map(Endpoint::from).to_vec();
        }
        options.number_units = NUMBERS
            .map(|(name, unit, _)| (name.to_owned(), unit.to_owned()))
            .into();
        options
    }

    /// What the first command's runs against itself say; `None` where there are none.
    #[must_use]
    pub fn floor(&self, options: &Options) -> Option<Floor> {
        let before = side(&self.before, Label::Before, &self.floor);
        let after = side(&self.before, Label::After, &self.floor);
        if before.runs.is_empty() || after.runs.is_empty() {
            return None;
        }
        let options = Gathered::options(options);
        let noise = options.endpoints.iter();
        let noise = noise.filter_map(|endpoint| {
            let name = endpoint.to_string();
            let spread = spread(&self.floor, &name)?;
            Some(Noise {
                visible: visible(spread, self.planned, options.endpoints.len()),
                name,
                spread,
            })
        });
        Some(Floor {
            noise: noise.collect(),
            comparison: compare(&before, &after, &options),
        })
    }

    /// The median of each side of the numbers that are not tested: name, unit, before, after.
    #[must_use]
    pub fn described(&self, tested: &[Endpoint]) -> Vec<(String, &'static str, f64, f64)> {
        let middle = |name: &str, label| {
            let of = self.runs.iter().filter(|run| run.label == label);
            median(of.filter_map(|run| run.numbers().remove(name)).collect())
        };
        let mut numbers = NUMBERS;
        numbers.sort_unstable_by_key(|(name, ..)| *name);
        numbers
            .into_iter()
            .filter(|(name, ..)| !tested.contains(&Endpoint::from(*name)))
            .filter_map(|(name, unit, _)| {
                let (before, after) = (middle(name, Label::Before)?, middle(name, Label::After)?);
                Some((name.to_owned(), unit, before, after))
            })
            .collect()
    }
}

fn side(name: &str, label: Label, runs: &[Measured]) -> Side {
    let of = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| run.label == label);
    Side {
        name: name.to_owned(),
        runs: of
            .map(|(index, run)| Run {
                block: Some(run.block),
                numbers: run.numbers(),
                ..Run::new(format!("run {}", index + 1))
            })
            .collect(),
    }
}

/// Standard deviation of the logarithm within blocks; `None` where a value is 0 or no block has two runs.
fn spread(runs: &[Measured], name: &str) -> Option<f64> {
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let value = run.numbers().remove(name).filter(|value| *value > 0.0)?;
        blocks.entry(run.block).or_default().push(value.ln());
    }
    let (mut squares, mut free) = (0.0, 0);
    for logs in blocks.values() {
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        free += logs.len() - 1;
    }
    (free > 0).then(|| (squares / free as f64).sqrt())
}

/// The least change that a test of two sides of `runs` runs each finds with power 80 %, as a share of the level: for normal
/// logarithms (z at LEVEL / 2 / `endpoints` plus z at 80 %) times the standard error of the difference, and by the 5 % more
/// runs that ranks need (Hodges and Lehmann 1956: an efficiency of 3 / pi).
fn visible(spread: f64, runs: u32, endpoints: usize) -> f64 {
    /// Upper quantiles of the normal distribution at 0.05 / 2 / k.
    const Z: [f64; 8] = [1.960, 2.241, 2.394, 2.498, 2.576, 2.638, 2.690, 2.734];
    const POWER: f64 = 0.842;
    let z = Z[endpoints.clamp(1, Z.len()) - 1] + POWER;
    let error = spread * (2.0 / f64::from(runs.max(1)) * std::f64::consts::PI / 3.0).sqrt();
    (z * error).exp_m1()
}

#[cfg(test)]
mod tests;
