//! Physical memory as it lies at one moment: which zones, what is free in which blocks, and where
//! it could be read, what each page is. `stopgap snapshot` writes it, a model of the buddy system
//! starts from it.
//!
//! The file is one JSON document, schema `stopgap.snapshot/1` (`docs/schema`). Reading is in
//! `read`: a file may be cut short or say what cannot be, and then says where, never panics.
//!
//! What no kernel tells, and what is therefore in no snapshot: the migrate type of a page (of
//! each 2 MiB block: only how many there are of each), and whether references pin a page. Both
//! stand in [`Snapshot::missing`]; a replay that needs them assumes values, and prints them.

mod agree;
mod free;
mod kind;
mod layout;
mod read;
#[cfg(test)]
mod tests;

pub use agree::{Apart, LAYOUT_OF_SAME_MOMENT, TYPES_OF_SAME_MOMENT};
pub use free::{Block, blocks_in, unusable_index};
pub use kind::Kind;
pub use layout::{Builder, Layout, Run, Runs};
pub use read::{Error, MOST_BYTES};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{Missing, OrderIndex};
use crate::units::{Bytes, Pages};

/// The schema of the file.
pub const SCHEMA: &str = "stopgap.snapshot/1";

/// A machine's physical memory at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// `stopgap.snapshot/1`.
    pub schema: String,
    /// Version of stopgap that took it.
    pub version: String,
    /// When, in seconds since 1970.
    pub taken_unix_s: u64,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// Size of a base page.
    pub page_bytes: Bytes,
    /// Order of the blocks that have one migrate type each (9, 2 MiB, on x86-64).
    pub pageblock_order: Option<u32>,
    /// The zones that have memory, by node and start.
    pub zones: Vec<Zone>,
    /// Unknown facts, and why they are unknown.
    pub missing: Vec<Missing>,
}

/// One zone of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Zone {
    /// Node, 0 where there is one only.
    pub node: u32,
    /// The kernel's name: `DMA`, `DMA32`, `Normal`, `Movable`.
    pub name: String,
    /// Frame number of the first page that it spans.
    pub start_frame: u64,
    /// Pages from its first to its last, holes included.
    pub pages: Pages,
    /// Pages among them that are memory.
    pub present: Pages,
    /// Pages among those that the buddy system manages; the rest was reserved at boot, was given
    /// back to the host or is not in use yet.
    pub managed: Pages,
    /// Free pages at which the kernel acts.
    pub watermarks: Watermarks,
    /// Free pages that CPUs keep for themselves: in no free block, though in use by nobody.
    pub per_cpu: Option<Pages>,
    /// Free blocks of each order, starting at order 0 (`/proc/buddyinfo`). Its length says how many orders
    /// this kernel has (11 with 4 KiB pages).
    pub free_blocks: Vec<u64>,
    /// The same by migrate type (`/proc/pagetypeinfo`), read a moment later.
    pub by_type: Option<Vec<TypeBlocks>>,
    /// The kind of each page (`/proc/kpageflags`), read a moment later.
    pub layout: Option<Layout>,
    /// Pages of the layout that some page table maps (`/proc/kpagecount` above 0): whoever moves
    /// or reclaims one must undo its mappings first.
    pub mapped: Option<Pages>,
}

/// A zone's watermarks, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Watermarks {
    /// Below it only the kernel's most urgent allocations get memory.
    pub min: Pages,
    /// Below it kswapd is woken.
    pub low: Pages,
    /// When kswapd has freed as much, it sleeps.
    pub high: Pages,
}

/// One migrate type's part of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TypeBlocks {
    /// The kernel's name: `Unmovable`, `Movable`, `Reclaimable`, `HighAtomic`, `CMA`, `Isolate`.
    pub name: String,
    /// Free blocks of each order, starting at order 0; null where the kernel stopped counting (at 100,000).
    pub free_blocks: Vec<Option<u64>>,
    /// Blocks of [`Snapshot::pageblock_order`] that are of this type, free or not.
    pub pageblocks: u64,
}

impl Snapshot {
    /// Refuses a snapshot whose base pages are not of `page` bytes: its orders and blocks mean
    /// other sizes. Reading such a snapshot is fine; a model of `page` cannot start from it.
    ///
    /// # Errors
    /// Where the sizes differ, both of which the error names.
    pub fn require_page(&self, page: Bytes) -> Result<(), Error> {
        if self.page_bytes == page {
            return Ok(());
        }
        Err(Error::page_size(self.page_bytes, page))
    }

    /// Free blocks of each order, of all zones together.
    #[must_use]
    pub fn free_blocks(&self) -> Vec<u64> {
        sum(self.zones.iter().map(|zone| zone.free_blocks.clone()))
    }

    /// Free blocks of each order as the layouts have them, of all zones together; `None` where
    /// a zone has no layout.
    #[must_use]
    pub fn free_blocks_of_layout(&self) -> Option<Vec<u64>> {
        let zones = self.zones.iter().map(Zone::free_blocks_of_layout);
        Some(sum(zones.collect::<Option<Vec<_>>>()?.into_iter()))
    }

    /// The unusable-free-space index of each order, over all zones: [`unusable_index`] of
    /// [`Snapshot::free_blocks`].
    #[must_use]
    pub fn unusable_index(&self) -> Vec<OrderIndex> {
        unusable_index(&self.free_blocks())
    }
}

impl Zone {
    /// The largest order of a free block.
    #[must_use]
    pub fn largest_order(&self) -> u32 {
        // At most 64: a snapshot that has more is refused.
        self.free_blocks.len().saturating_sub(1) as u32
    }

    /// What its pages are, run by run from [`Zone::start_frame`] on; neighbours are of
    /// different kinds. `None` without a layout. Where the layout was never checked and is
    /// broken, the runs end at the fault.
    #[must_use]
    pub fn runs(&self) -> Option<Runs<'_>> {
        Some(self.layout.as_ref()?.runs(self.start_frame))
    }

    /// Its free blocks by the layout, in the order of their frames; `None` without a layout.
    ///
    /// The kernel says of a page that it is free, not in what block. But its buddy system joins
    /// two free buddies at once, so that a free run can lie in one way only: in the largest
    /// blocks, each aligned to its size ([`blocks_in`]). Exceptions, all rare: blocks larger
    /// than a pageblock of the types `Isolate`, `HighAtomic` and `CMA` are not joined with
    /// those of other types.
    pub fn blocks(&self) -> Option<impl Iterator<Item = Block> + '_> {
        let most = self.largest_order();
        let free = self.runs()?.filter(|run| run.kind == Kind::Free);
        Some(free.flat_map(move |run| blocks_in(run.start, run.pages.0, most)))
    }

    /// Free blocks of each order, counted from [`Zone::blocks`].
    #[must_use]
    pub fn free_blocks_of_layout(&self) -> Option<Vec<u64>> {
        let mut counts = vec![0; self.free_blocks.len()];
        for block in self.blocks()? {
            // An order above the largest is never given; no orders at all, no count.
            if let Some(count) = counts.get_mut(block.order as usize) {
                *count += 1;
            }
        }
        Some(counts)
    }
}

/// Counts by order, added up; as many orders as the longest has.
fn sum(all: impl Iterator<Item = Vec<u64>>) -> Vec<u64> {
    let mut total: Vec<u64> = Vec::new();
    for counts in all {
        if total.len() < counts.len() {
            total.resize(counts.len(), 0);
        }
        for (total, count) in total.iter_mut().zip(counts) {
            *total = total.saturating_add(count);
        }
    }
    total
}
