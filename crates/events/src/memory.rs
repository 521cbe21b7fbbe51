//! Memory events: what a program asks of the memory map. A probe carries them out on the
//! running kernel, a model on a policy; both answer the same question.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::range::AddressRange;
use crate::units::Bytes;
use crate::words;

/// A mapping's name within one stream of events. It is never used for two mappings at a time;
/// after an unmap it may be used again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct MapId(pub u32);

/// The access to a mapping.
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

words!(Protection, "protection", None "none", Read "read", Write "write");

/// Whether the kernel may join a mapping with its neighbours into one VMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Merge {
    /// It may: plain anonymous memory. Neighbours of equal protection do merge.
    May,
    /// It must not: a driver's buffers, whose file offsets never continue one another.
    Never,
}

words!(Merge, "merging", May "may", Never "never");

/// Where a mapping may go: what MAP_32BIT, a driver's alignment or an address given to mmap(2) ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Placing {
    /// Its start is `offset` modulo this power of two. What is less than a page (0, too) means a page.
    pub alignment: Bytes,
    /// Its start modulo `alignment`; whole pages.
    pub offset: Bytes,
    /// All of it must lie in here; `None`: anywhere in the address space.
    pub limits: Option<AddressRange>,
    /// An address to be given if it is free.
    pub hint: Option<u64>,
}

impl Placing {
    /// Anywhere.
    pub const ANYWHERE: Placing = Placing {
        alignment: Bytes(0),
        offset: Bytes(0),
        limits: None,
        hint: None,
    };

    /// Whether nothing is asked.
    #[must_use]
    pub fn is_anywhere(&self) -> bool {
        *self == Placing::ANYWHERE
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum MemoryEvent {
    /// Map `length` bytes (the executor rounds up to whole pages), private, at an
    /// address that the policy chooses.
    Map {
        /// The new mapping's name.
        id: MapId,
        /// Bytes asked for, at least 1.
        length: Bytes,
        /// Its access.
        protection: Protection,
        /// Whether it may join its neighbours.
        merge: Merge,
        /// Where it may go.
        #[serde(default, skip_serializing_if = "Placing::is_anywhere")]
        placing: Placing,
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
    /// Not an operation: this part of the workload begins.
    Begin(Phase),
}

/// The parts of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Building the scene: not what the workload asks about.
    Layout,
    /// The part that is measured.
    Steady,
    /// The end of one round, where the workload's own unit is a round (agua: a loop).
    Round,
}

words!(Phase, "phase", Layout "layout", Steady "steady", Round "round");
