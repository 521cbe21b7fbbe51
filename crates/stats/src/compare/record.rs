//! The record of a comparison, JSON `stopgap.compare/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::words;

use crate::bootstrap::Interval;

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.compare/1";

/// Whether two sides differ, by how much, and with which certainty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first; empty if there was no command.
    pub command: Vec<String>,
    /// Seed of the arrangements and draws; each endpoint starts with it.
    pub seed: u64,
    /// Arrangements that are drawn if there are too many to use all.
    pub permutations: u32,
    /// Draws for each interval.
    pub resamples: u32,
    /// Accepted probability of a false alarm: 0.05.
    pub level: f64,
    /// Share by which the later side may be worse and still be `not worse`.
    pub margin: f64,
    /// The compared series of run records, as `placement: map n=200`; absent for other files.
    #[serde(default)]
    pub series: Option<String>,
    /// Unit of median, p99, p99.9, deciles and maximum, as `ns`.
    pub unit: String,
    /// Nanoseconds from which a sample is a stall; absent where no run has stalls, or where runs differ in it.
    pub stall_threshold_ns: Option<u64>,
    /// The earlier side.
    pub before: Summary,
    /// The later side.
    pub after: Summary,
    /// The answer.
    pub verdict: Verdict,
    /// The endpoints that were tested, in the order in which they were fixed.
    pub endpoints: Vec<Row>,
    /// The shift function: the change of each tenth of the samples. Described, not tested.
    pub deciles: Vec<Decile>,
    /// Differences between the machines of the sides, according to their records.
    pub environment: Vec<Difference>,
    /// Conditions in which the sides differed, and whether they may explain a difference; as sentences. Absent before
    /// 0.2.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Reasons to doubt the comparison, most important first.
    pub warnings: Vec<String>,
    /// Endpoints that were not compared, and why.
    pub missing: Vec<Missing>,
    /// Pairs of occasions that were made in turn, whose sides were changed; absent where occasions are in no pairs.
    #[serde(default)]
    pub pairs: Option<usize>,
    /// State of a comparison that is looked at while runs come; absent where the number of runs was fixed.
    #[serde(default)]
    pub looked: Option<Looked>,
}

/// Units of runs, with a look after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Looked {
    /// Number of units: pairs, or before 0.2 blocks of four runs.
    pub units: usize,
    /// The CPU on which the two runs of a pair ran at the same time; absent where runs followed each other.
    pub cpu: Option<u32>,
    /// Expected number of further units for a decision; absent where it is decided, or unknown.
    pub more: Option<usize>,
    /// The fewest units that can decide anything.
    pub least: usize,
}

/// A side as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The name.
    pub name: String,
    /// Number of runs; if the runs of a file are one occasion, number of occasions.
    pub runs: usize,
    /// Number of runs that form its occasions; absent where each run counts by itself.
    #[serde(default)]
    pub within: Option<usize>,
    /// The longest sample of all runs: described, never tested, because it grows with the number of samples.
    pub max: Option<f64>,
}

/// The answer in a word, and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// For scripts.
    pub word: Word,
    /// For people, beginning with the word.
    pub text: String,
}

/// The answer's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Word {
    /// At least one endpoint is worse.
    #[serde(rename = "regression")]
    Regression,
    /// An endpoint is better, and none is known to be worse.
    #[serde(rename = "improvement")]
    Improvement,
    /// Every endpoint is worse by less than the margin, if at all.
    #[serde(rename = "not worse")]
    NotWorse,
    /// Every endpoint differs by less than the margin, either way.
    #[serde(rename = "same")]
    Same,
    /// None of these. It is not proven that they are the same, either.
    #[serde(rename = "no difference proven")]
    NoDifferenceProven,
    /// The runs cannot decide: there are too few, or their figures cannot be compared.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

words!(Word, "verdict", Regression "regression", Improvement "improvement", NotWorse "not worse", Same "same", NoDifferenceProven "no difference proven", Inconclusive "inconclusive");

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// `median`, `p99`, `p99.9`, `stall rate`, `stall time`, or a number's name.
    pub name: String,
    /// Unit of `before` and `after`.
    pub unit: String,
    /// The earlier side: the median of its runs; for a rate, all amounts over all time. Absent where no run has it.
    pub before: Option<f64>,
    /// Its 95 % interval over runs; absent where the data gives no bound.
    pub before_interval: Option<Interval>,
    /// The later side.
    pub after: Option<f64>,
    /// Its 95 % interval over runs; absent where the data gives no bound.
    pub after_interval: Option<Interval>,
    /// Figure of each earlier run, in the order of runs; empty where a run has none.
    #[serde(default)]
    pub before_runs: Vec<f64>,
    /// Figure of each later run, in the order of runs; empty where a run has none.
    #[serde(default)]
    pub after_runs: Vec<f64>,
    /// The later side relative to the earlier one.
    pub effect: Option<Effect>,
    /// Probability of a difference at least as large if nothing had changed. It ignores the other endpoints.
    pub p: Option<f64>,
    /// The same, adjusted by Holm for all endpoints. The verdict depends on this one, unless the next is there.
    pub p_holm: Option<f64>,
    /// The same, adjusted by Westfall and Young, where occasions are in pairs. The verdict then depends on this one. Absent before
    /// 0.2.
    #[serde(default)]
    pub p_westfall_young: Option<f64>,
    /// The same, adjusted by Benjamini and Hochberg, for exploration.
    pub p_bh: Option<f64>,
    /// Number of arrangements behind `p`.
    pub arrangements: Option<u32>,
    /// Whether these are all possible arrangements.
    pub exact: bool,
    /// The endpoint's result.
    pub word: RowWord,
    /// The effect in words, or why there is none.
    pub text: String,
}

impl Row {
    /// Returns a row without results.
    pub(crate) fn new(name: String, unit: String) -> Row {
        Row {
            name,
            unit,
            before: None,
            before_interval: None,
            after: None,
            after_interval: None,
            before_runs: Vec::new(),
            after_runs: Vec::new(),
            effect: None,
            p: None,
            p_holm: None,
            p_westfall_young: None,
            p_bh: None,
            arrangements: None,
            exact: false,
            word: RowWord::Inconclusive,
            text: String::new(),
        }
    }
}

impl Row {
    /// Returns the probability by which the verdict is made.
    #[must_use]
    pub fn p_adjusted(&self) -> Option<f64> {
        self.p_westfall_young.or(self.p_holm)
    }
}

/// Result of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RowWord {
    /// Proven worse, and not known to be within the margin.
    #[serde(rename = "worse")]
    Worse,
    /// Proven better.
    #[serde(rename = "better")]
    Better,
    /// Its interval ends below the margin.
    #[serde(rename = "not worse")]
    NotWorse,
    /// Its interval lies within the margin, either way.
    #[serde(rename = "same")]
    Same,
    /// None of these.
    #[serde(rename = "no difference proven")]
    NoDifferenceProven,
    /// Nothing happened on either side, such as no stall. This says nothing for or against.
    #[serde(rename = "nothing seen")]
    NothingSeen,
    /// The runs cannot decide.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

words!(
    RowWord, "result",
    Worse "worse",
    Better "better",
    NotWorse "not worse",
    Same "same",
    NoDifferenceProven "no difference proven",
    NothingSeen "nothing seen",
    Inconclusive "inconclusive",
);

/// The later side relative to the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// A ratio (1 is the same) or a difference (0 is the same). Absent where it is infinite.
    pub value: Option<f64>,
    /// Lower end of its 95 % interval; absent where the data gives no bound.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval; absent where the data gives no bound.
    pub high: Option<f64>,
    /// The scale of the value.
    pub scale: Scale,
    /// Whether the ratio is infinite: there was nothing before, and something after.
    pub infinite: bool,
}

/// Scale on which sides are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Later divided by earlier.
    Ratio,
    /// Later minus earlier, for figures that are zero or negative and have no ratio.
    Difference,
}

/// One tenth of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decile {
    /// The tenth: the share of a run's samples at or below it, 0.1 to 0.9.
    pub share: f64,
    /// The median over the earlier runs.
    pub before: Option<f64>,
    /// Its 95 % interval over runs.
    pub before_interval: Option<Interval>,
    /// The median over the later runs.
    pub after: Option<f64>,
    /// Its 95 % interval over runs.
    pub after_interval: Option<Interval>,
    /// The later side relative to the earlier one.
    pub effect: Option<Effect>,
}

/// A difference between the machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The setting or property, by its name in the run record.
    pub what: String,
    /// Value in the earlier side's records.
    pub before: String,
    /// Value in the later side's records.
    pub after: String,
}
