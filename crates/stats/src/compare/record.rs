//! The record of a comparison, JSON `stopgap.compare/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::words;

use crate::bootstrap::Interval;

/// The name and version of the record's form.
pub const SCHEMA: &str = "stopgap.compare/1";

/// Whether two sides differ, by how much, and how certain that is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first; empty where it was no command.
    pub command: Vec<String>,
    /// Seed of the arrangements and draws; each endpoint begins with it anew.
    pub seed: u64,
    /// Arrangements that were drawn where there are too many to go through all.
    pub permutations: u32,
    /// Draws behind each interval.
    pub resamples: u32,
    /// The probability of a false alarm that is accepted: 0.05.
    pub level: f64,
    /// By what share the later side may be worse and still be `not worse`.
    pub margin: f64,
    /// The series of run records that was compared, as `placement: map n=200`, from the reader of the files. Absent for other files.
    #[serde(default)]
    pub series: Option<String>,
    /// Unit of median, p99, p99.9, deciles and maximum, as `ns`.
    pub unit: String,
    /// From what length on it was a stall, nanoseconds; absent where no run has stalls, or not all the same.
    pub stall_threshold_ns: Option<u64>,
    /// The earlier side.
    pub before: Summary,
    /// The later side.
    pub after: Summary,
    /// The answer.
    pub verdict: Verdict,
    /// The endpoints that were tested, in the order in which they were fixed.
    pub endpoints: Vec<Row>,
    /// The shift function: what each tenth of the samples did. Described, not tested.
    pub deciles: Vec<Decile>,
    /// Differences between the machines of the sides, from the reader of their records.
    pub environment: Vec<Difference>,
    /// Conditions in which the sides differed, and whether they may explain a difference, in sentences. Absent before 0.2.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Reasons why the comparison is less certain than it looks, most important first.
    pub warnings: Vec<String>,
    /// Endpoints that were not compared, and why.
    pub missing: Vec<Missing>,
    /// How runs were looked at as they came; absent where their number was fixed.
    #[serde(default)]
    pub looked: Option<Looked>,
}

/// Units of runs, each of which was looked at when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Looked {
    /// How many units there were: pairs, or before 0.2 blocks of four runs.
    pub units: usize,
    /// The CPU on which the two runs of a pair ran at the same time; absent where runs followed each other.
    pub cpu: Option<u32>,
    /// Units more that are expected to decide; absent where it is decided, and where nobody can say.
    pub more: Option<usize>,
    /// The fewest units that can decide anything.
    pub least: usize,
}

/// A side as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The name.
    pub name: String,
    /// How many runs it has; where those of one file are an occasion, how many occasions.
    pub runs: usize,
    /// How many runs its occasions are made of; absent where runs stand for themselves.
    #[serde(default)]
    pub within: Option<usize>,
    /// The longest sample of all runs: described, never tested, since it grows with every sample that is taken.
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
    /// An endpoint is worse. The others do not matter.
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
    /// None of these. That they are the same is not proven either.
    #[serde(rename = "no difference proven")]
    NoDifferenceProven,
    /// The runs cannot tell: there are too few, or their figures cannot be compared.
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
    /// The earlier side: the median of its runs, of a rate all amounts over all time. Absent where no run has it.
    pub before: Option<f64>,
    /// Its 95 % interval over runs; absent where the data does not bound it.
    pub before_interval: Option<Interval>,
    /// The later side.
    pub after: Option<f64>,
    /// Its 95 % interval over runs; absent where the data does not bound it.
    pub after_interval: Option<Interval>,
    /// Each earlier run's figure, in their order; empty where one has none.
    #[serde(default)]
    pub before_runs: Vec<f64>,
    /// Each later run's figure, in their order; empty where one has none.
    #[serde(default)]
    pub after_runs: Vec<f64>,
    /// The later side relative to the earlier one.
    pub effect: Option<Effect>,
    /// The probability of a difference at least as large, had nothing changed. It ignores the other endpoints.
    pub p: Option<f64>,
    /// The same, adjusted by Holm for all endpoints: what the verdict goes by.
    pub p_holm: Option<f64>,
    /// The same, adjusted by Benjamini and Hochberg: for looking around.
    pub p_bh: Option<f64>,
    /// From how many arrangements `p` is.
    pub arrangements: Option<u32>,
    /// Whether those are all that there are.
    pub exact: bool,
    /// The endpoint's result.
    pub word: RowWord,
    /// The effect in words, or why there is none.
    pub text: String,
}

impl Row {
    /// A row of which nothing is known yet.
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
            p_bh: None,
            arrangements: None,
            exact: false,
            word: RowWord::Inconclusive,
            text: String::new(),
        }
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
    /// There was nothing on either side: no stall. It says nothing for or against.
    #[serde(rename = "nothing seen")]
    NothingSeen,
    /// The runs cannot tell.
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
    /// Lower end of its 95 % interval; absent where the data does not bound it.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval; absent where the data does not bound it.
    pub high: Option<f64>,
    /// Which of the two.
    pub scale: Scale,
    /// Whether the ratio is infinite: something came where nothing was.
    pub infinite: bool,
}

/// How sides are held against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Later over earlier.
    Ratio,
    /// Later less earlier, where a figure is zero or negative and has no ratio.
    Difference,
}

/// One tenth of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decile {
    /// The share of a run's samples at or below: 0.1 to 0.9.
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

/// In what the machines differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The setting or property, by its name in the run record.
    pub what: String,
    /// Value in the earlier side's records.
    pub before: String,
    /// Value in the later side's records.
    pub after: String,
}
