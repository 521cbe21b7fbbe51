//! Runs of two commands for a comparison, JSON `stopgap.gather/1`: when each run was made, and its figures.
//!
//! # Design
//!
//! Runs come in units. A unit is a *pair*: both runs at the same time on one CPU, or one after the other. A coin
//! draws for each pair which run comes first ([`order`]). So disturbances of the machine meet both commands alike,
//! and the answer may be looked at after every pair ([`Judge`], [`crate::anytime`]): runs end as soon as each
//! endpoint is decided, or at a limit. Before 0.2 a unit was a block of four runs, `ABBA` or `BAAB`.

mod judge;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Environment;
use stopgap_events::random::Random;
use thiserror::Error;

pub use judge::Judge;

use crate::anytime;
use crate::compare::{Comparison, Options, SCHEMA as COMPARED};
use crate::document::schema_named_in;
use crate::quantile::median;

/// Name and version of the document's format.
pub const SCHEMA: &str = "stopgap.gather/1";

/// The number that is tested by default.
pub const TESTED: &str = "CPU time";

/// Instructions by the CPU's own counter.
pub const INSTRUCTIONS: &str = "instructions";

/// Instructions counted by valgrind. The command runs about 30 times longer, so no other number of such a run is
/// valid.
pub const EMULATED: &str = "emulated instructions";

/// System calls, of all threads and children.
pub const SYSTEM_CALLS: &str = "system calls";

/// Numbers that were tested if a document does not name them (version 0.1).
const TESTED_BEFORE: [&str; 3] = ["elapsed time", "user time", "system time"];

/// Runs of two commands, in the order in which they were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gathered {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Begin of the first run, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Most runs per side.
    pub planned: u32,
    /// How the runs were made and what decides; absent before 0.2, when runs were blocks and their number was fixed.
    #[serde(default)]
    pub plan: Option<Plan>,
    /// Whether it was interrupted: the runs are valid, but fewer than planned.
    pub interrupted: bool,
    /// The machine.
    pub environment: Environment,
    /// The command of the earlier side, as `sh -c` got it.
    pub before: String,
    /// The command of the later side.
    pub after: String,
    /// Runs of the first command against itself; none since 0.2.
    #[serde(default)]
    pub floor: Vec<Measured>,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Measured>,
}

/// How runs are made, and what decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The CPU on which both runs of a pair run at the same time; absent where runs follow each other.
    pub cpu: Option<u32>,
    /// Names of the numbers that decide.
    pub endpoints: Vec<String>,
    /// The largest change that counts as the same, as a share: 0.03 is 3 %.
    pub margin: f64,
    /// The accepted probability of ever calling equal commands different, over all endpoints.
    pub level: f64,
    /// Seconds during which new units begin.
    pub max_seconds: f64,
}

/// The side of a run.
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
    /// Its side.
    pub label: Label,
    /// Its unit, from 0.
    pub block: u32,
    /// From its exec to its end, nanoseconds on the monotonic clock.
    pub elapsed_ns: u64,
    /// CPU time in user mode, nanoseconds, by wait4(2).
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds, by wait4(2).
    pub system_ns: u64,
    /// Number of times that it left the CPU voluntarily.
    pub voluntary_switches: u64,
    /// Number of times that it was pre-empted.
    pub involuntary_switches: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// Most resident memory of one of its processes, bytes.
    pub most_resident: u64,
    /// Instructions by the CPU's counter; absent where they were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Instructions in user mode, counted by valgrind, which makes all other figures invalid; absent where they were
    /// not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated_instructions: Option<u64>,
    /// System calls; absent where they were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_calls: Option<u64>,
}

/// Reason for which a document cannot be read as gathered runs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatherError {
    /// Invalid JSON, a missing field, or a field of the wrong kind. The message ends with line and column, from 1.
    #[error("not gathered runs: {0}")]
    Json(#[from] serde_json::Error),
    /// A document of another kind, or of a version that this program does not know.
    #[error("the document's schema is '{found}', expected '{SCHEMA}'")]
    Schema {
        /// Its version.
        found: String,
    },
}

/// Returns the sides of a pair's runs, in the order of the runs.
#[must_use]
pub fn order(random: &mut Random) -> [Label; 2] {
    match random.below(2) {
        0 => [Label::Before, Label::After],
        _ => [Label::After, Label::Before],
    }
}

/// A number of a run.
#[derive(Debug)]
struct Number {
    name: &'static str,
    unit: &'static str,
    /// Steps in which the kernel gives it.
    step: f64,
    of: fn(&Measured) -> Option<f64>,
}

/// CPU time is counted in nanoseconds and given in microseconds, once each for user and system time. Its division
/// into the two is sampled at ticks (kernel/sched/cputime.c, cputime_adjust).
const NUMBERS: [Number; 12] = [
    Number {
        name: TESTED,
        unit: "s",
        step: 2e-6,
        of: |run| Some((run.user_ns + run.system_ns) as f64 / 1e9),
    },
    Number {
        name: "elapsed time",
        unit: "s",
        step: 1e-6,
        of: |run| Some(run.elapsed_ns as f64 / 1e9),
    },
    Number {
        name: "user time",
        unit: "s",
        step: TICK,
        of: |run| Some(run.user_ns as f64 / 1e9),
    },
    Number {
        name: "system time",
        unit: "s",
        step: TICK,
        of: |run| Some(run.system_ns as f64 / 1e9),
    },
    Number {
        name: "voluntary switches",
        unit: "",
        step: 1.0,
        of: |run| Some(run.voluntary_switches as f64),
    },
    Number {
        name: "involuntary switches",
        unit: "",
        step: 1.0,
        of: |run| Some(run.involuntary_switches as f64),
    },
    Number {
        name: "minor faults",
        unit: "",
        step: 1.0,
        of: |run| Some(run.minor_faults as f64),
    },
    Number {
        name: "major faults",
        unit: "",
        step: 1.0,
        of: |run| Some(run.major_faults as f64),
    },
    Number {
        name: "most resident",
        unit: "bytes",
        step: 4_096.0,
        of: |run| Some(run.most_resident as f64),
    },
    Number {
        name: INSTRUCTIONS,
        unit: "",
        step: 1.0,
        of: |run| run.instructions.map(|count| count as f64),
    },
    Number {
        name: EMULATED,
        unit: "",
        step: 1.0,
        of: |run| run.emulated_instructions.map(|count| count as f64),
    },
    Number {
        name: SYSTEM_CALLS,
        unit: "",
        step: 1.0,
        of: |run| run.system_calls.map(|count| count as f64),
    },
];

/// A tick of 250 Hz, in seconds.
const TICK: f64 = 0.004;

fn number(name: &str) -> Option<&'static Number> {
    NUMBERS.iter().find(|number| number.name == name)
}

/// Numbers that another command on the same CPU changes.
const ALONE: [&str; 2] = ["elapsed time", "involuntary switches"];

/// Returns whether the number is invalid for a command that shares its CPU with another one.
#[must_use]
pub fn needs_own_cpu(name: &str) -> bool {
    ALONE.contains(&name)
}

/// Returns the names of the numbers that a run has.
pub fn names() -> impl Iterator<Item = &'static str> {
    NUMBERS.iter().map(|number| number.name)
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

    /// Compares both sides. `options` has the command line, and endpoints that replace those of the document.
    #[must_use]
    pub fn compare(&self, options: &Options) -> Comparison {
        let mut plan = self.plan.clone().unwrap_or_else(|| Plan {
            cpu: None,
            endpoints: TESTED_BEFORE.map(str::to_owned).to_vec(),
            margin: options.margin,
            level: anytime::ALPHA,
            max_seconds: 0.0,
        });
        if !options.endpoints.is_empty() {
            plan.endpoints = options.endpoints.iter().map(ToString::to_string).collect();
        }
        let mut judge = Judge::new(&plan);
        let mut units: BTreeMap<u32, Vec<Measured>> = BTreeMap::new();
        for run in &self.runs {
            units.entry(run.block).or_default().push(run.clone());
        }
        units.values().for_each(|unit| judge.push(unit));
        let mut comparison = judge.comparison([&self.before, &self.after], self.interrupted);
        comparison.command.clone_from(&options.command);
        comparison.seed = self.seed;
        comparison
    }

    /// Returns the median of each side for the numbers that are not tested: name, unit, before, after.
    #[must_use]
    pub fn described(&self, tested: &Comparison) -> Vec<(String, &'static str, f64, f64)> {
        let middle = |number: &Number, label| {
            let of = self.runs.iter().filter(|run| run.label == label);
            median(of.filter_map(number.of).collect())
        };
        let emulated = self
            .runs
            .iter()
            .any(|run| run.emulated_instructions.is_some());
        let shared = self.plan.as_ref().is_some_and(|plan| plan.cpu.is_some());
        let other = |number: &&Number| {
            let is_other = tested.endpoints.iter().all(|row| row.name != number.name);
            is_other && !emulated && (!shared || !needs_own_cpu(number.name))
        };
        NUMBERS
            .iter()
            .filter(other)
            .filter_map(|number| {
                let [before, after] =
                    [Label::Before, Label::After].map(|label| middle(number, label));
                Some((number.name.to_owned(), number.unit, before?, after?))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
