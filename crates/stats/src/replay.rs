//! The record of a replay: events through models, JSON `stopgap.replay/1`.
//!
//! A row is one policy on one workload, of [`placement`] at one N. What a question has no use for stays
//! away from its rows, and an unknown figure is `null` with a reason in `missing`, never 0.
//! Changes within a version only add.

pub mod chunks;
pub mod placement;
pub mod reclaim;
pub mod roundtrip;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::question::Question;

pub use chunks::{ChunksRow, ChunksSetting};
pub use placement::{Growth, Loops, Mail003, MailFit, MailPoint, PlacementRow, Quantity, Spread};
pub use reclaim::{Allocation, MeasuredScans, OutOfMemory, ReclaimRow, ReclaimSetting};
pub use roundtrip::{Beside, RoundtripRow, RoundtripSetting};

/// The name and version of the record's form.
pub const SCHEMA: &str = "stopgap.replay/1";

/// One replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
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
    /// How often each row was carried out, with fresh state each time.
    pub repetitions: u32,
    /// Cost of reading the clock twice, in nanoseconds, which is taken off the time of each single
    /// operation; absent where no single operation was timed.
    pub clock_ns: Option<u64>,
    /// Whether it was interrupted: what is here was measured, but less than was planned.
    pub interrupted: bool,
    /// The figures.
    pub rows: Vec<Row>,
    /// How figures grow over N; nothing where there are fewer than three N.
    pub growth: Vec<Growth>,
    /// The model held against mail 000; absent where the rows that it needs are not here.
    pub mail: Option<MailFit>,
    /// Setting of a replay of chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<ChunksSetting>,
    /// Setting of a replay of roundtrip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roundtrip: Option<RoundtripSetting>,
    /// Setting of a replay of reclaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimSetting>,
}

/// A row; which kind, its question says, and a reader sees by its fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Row {
    /// One policy on one workload at one N.
    Placement(PlacementRow),
    /// One policy on one scenario's memory.
    Chunks(ChunksRow),
    /// One policy on one cell of client and server.
    Roundtrip(RoundtripRow),
    /// One policy under one load.
    Reclaim(ReclaimRow),
}

impl Row {
    /// The row of `placement`, if it is one.
    #[must_use]
    pub fn placement(&self) -> Option<&PlacementRow> {
        match self {
            Row::Placement(row) => Some(row),
            _ => None,
        }
    }

    /// The row of `chunks`, if it is one.
    #[must_use]
    pub fn chunks(&self) -> Option<&ChunksRow> {
        match self {
            Row::Chunks(row) => Some(row),
            _ => None,
        }
    }

    /// The row of `roundtrip`, if it is one.
    #[must_use]
    pub fn roundtrip(&self) -> Option<&RoundtripRow> {
        match self {
            Row::Roundtrip(row) => Some(row),
            _ => None,
        }
    }

    /// The row of `reclaim`, if it is one.
    #[must_use]
    pub fn reclaim(&self) -> Option<&ReclaimRow> {
        match self {
            Row::Reclaim(row) => Some(row),
            _ => None,
        }
    }
}

impl Replay {
    /// Returns a record without rows, of `command` in version `version` of the tool.
    #[must_use]
    pub fn new(question: Question, version: &str, command: Vec<String>) -> Replay {
        Replay {
            schema: SCHEMA.to_owned(),
            version: version.to_owned(),
            command,
            question,
            seed: 1,
            repetitions: 1,
            clock_ns: None,
            interrupted: false,
            rows: Vec::new(),
            growth: Vec::new(),
            mail: None,
            chunks: None,
            roundtrip: None,
            reclaim: None,
        }
    }
}
