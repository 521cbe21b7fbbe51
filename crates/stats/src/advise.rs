//! The record of advice, JSON `stopgap.advise/1`: the policy for a device's buffers, and why.
//!
//! [`rule`] decides.

pub mod rule;
pub mod sentence;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::question::Question;

use crate::replay::{ChunksRow, ChunksSetting};

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.advise/1";

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advise {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// The question.
    pub question: Question,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether it was interrupted: not every policy was compared, so none is advised. The last of `rows` may be
    /// incomplete.
    pub interrupted: bool,
    /// The setting that all policies share.
    pub chunks: ChunksSetting,
    /// The advice.
    pub advice: Advice,
    /// The figures behind the advice, as in `stopgap.replay/1`.
    pub rows: Vec<ChunksRow>,
}

/// The advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The word and the sentence.
    pub verdict: AdviceVerdict,
    /// Number of times that the device goes over a buffer during the buffer's life.
    pub passes: u64,
    /// The policy to use; absent where none can build the buffers, or not all were compared. It costs least, or is as
    /// good as the cheapest.
    pub policy: Option<String>,
    /// Other policies whose buffers cost at most [`rule::AS_GOOD`] more.
    pub as_good: Vec<String>,
    /// The cheapest policy that is not as good; absent where all are.
    pub runner_up: Option<String>,
    /// The policy if bystanders did not count, where it differs.
    pub without_bystanders: Option<String>,
    /// The policy by number of passes, starting with 0, by the same rule as `policy`.
    pub stretches: Vec<Stretch>,
    /// Every policy, the cheapest first. Policies that are set aside come last.
    pub candidates: Vec<Candidate>,
    /// The choice under other assumptions.
    pub variants: Vec<Variant>,
}

/// The advice in a word, and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceVerdict {
    /// For scripts.
    pub word: AdviceWord,
    /// For people, beginning with the word.
    pub text: String,
}

/// The advice's one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdviceWord {
    /// Use [`Advice::policy`].
    Use,
    /// An assumption, halved or doubled, gives another policy; or none can build the buffers; or not all were
    /// compared.
    Inconclusive,
}

/// A policy, and the cost of a buffer's life with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The policy.
    pub policy: String,
    /// Milliseconds to build a buffer.
    pub build_ms: Option<f64>,
    /// Milliseconds of page-table walks in one pass over it.
    pub pass_ms: Option<f64>,
    /// Both together, over all passes.
    pub life_ms: Option<f64>,
    /// Share of the tries of all bystanders together that failed beside it, so a bystander with more tries counts
    /// more. The rows have it by bystander. Absent where there was no try.
    pub bystanders_failing: Option<f64>,
    /// Why it must not be used although it is cheap.
    pub set_aside: Option<String>,
}

/// A range of passes for which a policy is used: from this number up to the next range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// The least number of passes.
    pub from_passes: u64,
    /// The policy.
    pub policy: String,
}

/// The choice under another assumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// The assumption, or what is assumed instead.
    pub assumption: String,
    /// The factor of the assumption; absent where another assumption replaces it.
    pub factor: Option<f64>,
    /// The policy that would be used then.
    pub policy: String,
    /// Whether the advice stands: the advised policy costs at most twice [`rule::AS_GOOD`] more than that one.
    pub holds: bool,
    /// The policy by number of passes then.
    pub stretches: Vec<Stretch>,
}
