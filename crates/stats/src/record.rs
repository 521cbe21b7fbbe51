//! The run record: one run (a process or a boot), what was asked, of what machine, what was
//! measured and what it shows. JSON, versioned by [`SCHEMA`]; within a version it only grows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::{Counter, Environment, Missing, Now, Privilege};
use stopgap_events::question::Question;

use crate::histogram::Histogram;
use crate::verdict::Verdict;

/// The name and version of the record's form.
pub const SCHEMA: &str = "stopgap.run/1";

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Seed of every random choice.
    pub seed: u64,
    /// Memory that the probes were allowed to use, in bytes.
    pub memory_budget: u64,
    /// The machine.
    pub environment: Environment,
    /// What the machine showed before any load; absent where it was not looked at.
    pub now: Option<Now>,
    /// One answer a question that was asked.
    pub answers: Vec<Answer>,
    /// Whether it was interrupted: what is here was measured, but less than was planned.
    pub interrupted: bool,
    /// Peak resident memory of the tool and of its largest load child together, in bytes;
    /// absent where it is not known.
    pub peak_memory: Option<u64>,
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// What was asked in particular: every parameter of the probe, by its flag's name.
    pub parameters: BTreeMap<String, Parameter>,
    /// The answer in words.
    pub verdict: Verdict,
    /// The answer as a number, where there is one.
    pub figure: Option<Figure>,
    /// Short sentences that support the verdict, most important first; the first one stands
    /// beside the verdict on the first screen.
    pub evidence: Vec<String>,
    /// The command or the change that would help, where the evidence names one.
    pub advice: Vec<String>,
    /// With what privilege it was measured.
    pub privilege: Privilege,
    /// The measurements.
    pub series: Vec<Series>,
    /// Counters, by name.
    pub counters: Vec<Counter>,
    /// What was lost (ring-buffer overruns, missed periods), by name; all zero is said as such.
    pub losses: Vec<Counter>,
    /// What could not be measured, and why.
    pub missing: Vec<Missing>,
}

/// A parameter's value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Parameter {
    /// A count or a size in the unit that the name says.
    Number(u64),
    /// A word.
    Word(String),
}

impl From<u64> for Parameter {
    fn from(number: u64) -> Parameter {
        Parameter::Number(number)
    }
}
impl From<u32> for Parameter {
    fn from(number: u32) -> Parameter {
        Parameter::Number(u64::from(number))
    }
}
impl From<&str> for Parameter {
    fn from(word: &str) -> Parameter {
        Parameter::Word(word.to_owned())
    }
}
impl From<String> for Parameter {
    fn from(word: String) -> Parameter {
        Parameter::Word(word)
    }
}

/// A number with its unit and its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// The estimate.
    pub value: f64,
    /// Its unit, as `us`, `switches/rt`, `x`.
    pub unit: String,
    /// Lower end of its 95 % interval; absent where the data cannot bound it.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval; absent where the data cannot bound it.
    pub high: Option<f64>,
}

/// Measurements of one quantity under one set of parameters, a block a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// What was measured, as `map`, `first touch`, `switches`.
    pub name: String,
    /// Unit of every number in it, as `ns`, `switches/rt`.
    pub unit: String,
    /// Under what parameters, as `n`, `backend`, `cpus`.
    pub parameters: BTreeMap<String, Parameter>,
    /// The runs; empty where [`Series::error`] says why.
    pub blocks: Vec<Block>,
    /// Why there is no number; a failed step is an error here, never a number.
    pub error: Option<String>,
}

/// One run's share of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Number of the run within the process, from 0. Blocks with the same number were taken
    /// in the same run.
    pub run: u32,
    /// When it began, nanoseconds on the monotonic clock.
    pub start_ns: u64,
    /// How many samples are behind it.
    pub samples: u64,
    /// The run's figure: the median of a latency, the mean of a count. In the series' unit.
    pub value: f64,
    /// All samples of a latency, in nanoseconds.
    pub histogram: Option<Histogram>,
    /// Samples above the threshold, as episodes; a count has none.
    pub stalls: Option<Stalls>,
}

/// Stall episodes of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stalls {
    /// From what length on it counts as a stall, nanoseconds.
    pub threshold_ns: u64,
    /// The first [`Stalls::KEPT`] episodes.
    pub episodes: Vec<Stall>,
    /// How many there were in all.
    pub count: u64,
}

impl Stalls {
    /// Episodes kept a block: enough to see when, not enough to fill a disk.
    pub const KEPT: usize = 100;
}

/// One stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// When it began, nanoseconds on the monotonic clock.
    pub start_ns: u64,
    /// How long it lasted, nanoseconds.
    pub length_ns: u64,
}
