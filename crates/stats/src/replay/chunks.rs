//! What a replay of `chunks` tells: a row is one policy, which builds the same buffers as every other
//! policy from a memory of its own, made alike.
//!
//! Times are modelled, not measured: counts of what the allocator did, each at a stated price. The prices
//! are [`Assumption`]s, and [`Sensitivity`] says what a figure would be with half and twice of one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::Bytes;

/// The setting that all policies share.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ChunksSetting {
    /// Whose memory: a scenario's name, or the snapshot's file.
    pub memory: String,
    /// Bytes of that memory.
    pub memory_bytes: u64,
    /// The kernel whose slow path is modelled: `3.4`, `3.14`, `6.12`.
    pub kernel: String,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// Bytes of each buffer; absent where a trace gives each its own.
    pub size_bytes: Option<u64>,
    /// Buffers that each policy is asked for.
    pub buffers: u64,
    /// How many of them are held at a time at most; the oldest is given back first. Absent where a trace
    /// says when.
    pub live: Option<u64>,
    /// Page sizes that the device's IOMMU maps, ascending, as `64K`.
    pub device: Vec<String>,
    /// How the device goes over a buffer, each pattern by itself.
    pub access: Vec<String>,
    /// Whether its driver says that large chunks do not help it (`DMA_ATTR_ALLOC_SINGLE_PAGES`), as that of
    /// a device does that goes over its buffers row by row and in no other way.
    pub single_pages: bool,
    /// How the bystanders fare where every buffer is a single page: what they lack then is no policy's doing.
    pub bystanders_alone: Vec<Bystander>,
    /// What is not known and was chosen, with why; [`ChunksRow::sensitivity`] varies it.
    pub assumptions: Vec<Assumption>,
}

impl ChunksSetting {
    /// Why not every buffer can be built, where those that are held at a time are larger than the memory.
    #[must_use]
    pub fn too_much(&self) -> Option<String> {
        let (live, size) = (self.live?, self.size_bytes?);
        let all = live.checked_mul(size)?;
        (all > self.memory_bytes).then(|| {
            format!(
                "{live} held at a time are {}, and the memory has {}",
                Bytes(all),
                Bytes(self.memory_bytes)
            )
        })
    }
}

/// A figure that no source gives exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assumption {
    /// Its name, as `reclaim a page`.
    pub name: String,
    /// What was taken for it; absent where it is no number, and then its name says what was taken.
    pub value: Option<f64>,
    /// Its unit: `us a page`, `ns`.
    pub unit: String,
    /// Why that: `fit: one-page 0.25 s in mail 001`, `assumption`.
    pub why: String,
}

impl Assumption {
    /// An assumption with a number.
    #[must_use]
    pub fn new(name: &str, value: f64, unit: &str, why: &str) -> Assumption {
        Assumption {
            name: name.to_owned(),
            value: Some(value),
            unit: unit.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// The figures of one policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ChunksRow {
    /// The scenario, or the file of a snapshot or a trace.
    pub workload: String,
    /// The policy.
    pub policy: String,
    /// Always absent: buffers have no ladder.
    pub n: Option<u64>,
    /// Buffers that were asked for.
    pub operations: u64,
    /// Buffers that could not be built: memory was exhausted. All that they had was given back.
    pub failures: u64,
    /// Tries of the allocator for a buffer, the mean over those that were asked for.
    pub tries_per_buffer: f64,
    /// Those that failed, the mean.
    pub failed_tries_per_buffer: f64,
    /// Tries for one such buffer (of a trace, for its largest) where no two free pages are adjacent: how bad it
    /// may become where memory is worse than here.
    pub tries_per_buffer_at_worst: u64,
    /// Mean tries for a buffer by order, starting with order 0.
    pub tries_per_buffer_by_order: Vec<f64>,
    /// Mean failed tries for a buffer by order, starting with order 0.
    pub failed_tries_per_buffer_by_order: Vec<f64>,
    /// Milliseconds a buffer, the mean of those that were built. Modelled.
    pub time_ms: Option<f64>,
    /// 99 % of the buffers that were built took no longer, in milliseconds; absent where there are too few.
    pub time_p99_ms: Option<f64>,
    /// The longest in milliseconds.
    pub time_worst_ms: Option<f64>,
    /// Milliseconds a buffer by what they were spent on, means: they add up to `time_ms`.
    pub time_by_cause_ms: BTreeMap<String, f64>,
    /// IOMMU entries a buffer by page size, means over the buffers that were built.
    pub entries: BTreeMap<String, f64>,
    /// Bytes of page table a buffer, the mean; absent where the set of page sizes implies no known format.
    pub table_bytes: Option<f64>,
    /// Misses of the IOMMU's TLB over accesses, by the first pattern of [`ChunksSetting::access`].
    pub tlb_misses_per_access: Option<f64>,
    /// The same by pattern, with what it costs.
    pub tlb: Vec<TlbFigures>,
    /// Allocations that others tried beside the buffers, at orders that they need.
    pub bystander_tries: u64,
    /// Those that failed.
    pub bystander_failures: u64,
    /// The same by bystander and order.
    pub bystanders: Vec<Bystander>,
    /// Blocks of order 3 that free memory had and has no more, for each MiB delivered; a larger block
    /// counts as the many that it can be split into. Below 0 where reclaim and compaction made more.
    pub large_blocks_per_mib: Option<f64>,
    /// Share of free memory in blocks too small for an order, from order 0 on, before the first buffer;
    /// absent where nothing is free.
    pub unusable_before: Vec<Option<f64>>,
    /// The same after the last.
    pub unusable_after: Vec<Option<f64>>,
    /// Figures with half and with twice of an assumption.
    pub sensitivity: Vec<Sensitivity>,
    /// The time beside that of mail 001, where the mail measured the policy in this scenario, or where it
    /// is a prediction for it.
    pub mail: Option<MailTime>,
    /// Unknown figures, and why.
    pub missing: Vec<Missing>,
}

/// The IOMMU's TLB while the device goes over a buffer once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlbFigures {
    /// The pattern: `linear`, `rotate-90`, `random`.
    pub access: String,
    /// Accesses of one pass over a buffer, the mean.
    pub accesses: f64,
    /// Misses over accesses.
    pub misses_per_access: f64,
    /// Milliseconds of page-table walks in one pass over a buffer, the mean.
    pub pass_ms: f64,
}

/// Somebody else who needs memory in one piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bystander {
    /// Who: `dwc2`, `mwifiex`.
    pub name: String,
    /// The order that they need.
    pub order: u32,
    /// Tries.
    pub tries: u64,
    /// Those that failed.
    pub failures: u64,
}

/// A figure under another assumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sensitivity {
    /// [`Assumption::name`], or what is assumed instead.
    pub assumption: String,
    /// The factor of the assumption; absent where another assumption replaces it.
    pub factor: Option<f64>,
    /// The figure: `time_ms`, or `misses_per_access` or `pass_ms` of the pattern in `access`.
    pub quantity: String,
    /// The pattern of access, where the figure has one.
    pub access: Option<String>,
    /// The figure then.
    pub value: f64,
}

/// A modelled time beside the mail's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MailTime {
    /// Milliseconds in the mail; absent where the mail has none.
    pub mail_ms: Option<f64>,
    /// The model's over the mail's.
    pub factor: Option<f64>,
    /// How far the comparison can be trusted.
    pub kind: MailKind,
}

/// How far a comparison with the mail can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MailKind {
    /// A price was chosen so that this time agrees.
    Fitted,
    /// No price was chosen for this time.
    Compared,
    /// The mail has no time of this policy.
    Absent,
}
