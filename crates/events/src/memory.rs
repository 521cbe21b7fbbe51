//! Memory events: what a program asks of the memory map. A probe carries them out on the
//! running kernel, a model on a policy; both answer the same question.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A mapping's name within one stream of events. It is never used for two mappings at a time;
/// after an unmap it may be used again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct MapId(pub u32);

/// What may be done with a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Nothing (`PROT_NONE`).
    None,
    /// Reading.
    Read,
    /// Writing. On every architecture that matters here it includes reading.
    Write,
}

/// Whether the kernel may join a mapping with its neighbours into one VMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Merge {
    /// It may: plain anonymous memory. Neighbours of equal protection do merge.
    May,
    /// It must not: a driver's buffers, whose file offsets never continue one another.
    Never,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum MemoryEvent {
    /// Map `length` bytes (rounded up to whole pages by whoever carries it out), private, at an
    /// address that the policy chooses.
    Map {
        /// The mapping's name from now on.
        id: MapId,
        /// Bytes asked for, at least 1.
        length: Bytes,
        /// What may be done with it.
        protection: Protection,
        /// Whether it may join its neighbours.
        merge: Merge,
    },
    /// Unmap the whole mapping.
    Unmap {
        /// Which.
        id: MapId,
    },
    /// Change the protection of its first `length` bytes, rounded up to whole pages.
    Protect {
        /// Which.
        id: MapId,
        /// Bytes from its start.
        length: Bytes,
        /// The new protection.
        protection: Protection,
    },
    /// Use every page of it for the first time.
    Touch {
        /// Which.
        id: MapId,
    },
    /// Not an operation: from here on, this part of the workload.
    Begin(Phase),
}

/// The parts of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Building the scene: not what the workload asks about.
    Layout,
    /// What is measured.
    Steady,
    /// The end of one round, where the workload's own unit is a round (agua: a loop).
    Round,
}
