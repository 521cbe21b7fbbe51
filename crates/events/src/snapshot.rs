//! Physical memory at one moment: its zones, its free blocks, and, where it could be read, the kind of each page.
//! `stopgap snapshot` writes it, and a model of the buddy system starts from it.
//!
//! The file is one JSON document, schema `stopgap.snapshot/1` (`docs/schema`). `read` reads it. A damaged or
//! impossible file is an error that names the place, never a panic.
//!
//! No kernel shows the migrate type of a single page (only the number of 2 MiB blocks of each type), or whether
//! references pin a page. Both are listed in [`Snapshot::missing`]. A replay that needs them assumes values, and
//! prints them.

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
    /// Time of the snapshot, in seconds since 1970.
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
    /// Pages that the buddy system manages. The other present pages were reserved at boot, were returned to the host,
    /// or are not in use yet.
    pub managed: Pages,
    /// Free pages at which the kernel acts.
    pub watermarks: Watermarks,
    /// Free pages on the CPUs' own lists. They are in no free block, though nobody uses them.
    pub per_cpu: Option<Pages>,
    /// Free blocks of each order, starting at order 0 (`/proc/buddyinfo`). Its length says how many orders
    /// this kernel has (11 with 4 KiB pages).
    pub free_blocks: Vec<u64>,
    /// The same by migrate type (`/proc/pagetypeinfo`), read a moment later.
    pub by_type: Option<Vec<TypeBlocks>>,
    /// The kind of each page (`/proc/kpageflags`), read a moment later.
    pub layout: Option<Layout>,
    /// Pages of the layout that a page table maps (`/proc/kpagecount` above 0). Moving or reclaiming such a page
    /// means to undo its mappings first.
    pub mapped: Option<Pages>,
}

/// A zone's watermarks, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Watermarks {
    /// Below it only the most urgent allocations of the kernel succeed.
    pub min: Pages,
    /// Below it kswapd is woken.
    pub low: Pages,
    /// When kswapd has freed up to it, kswapd sleeps.
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
    /// Refuses a snapshot whose base pages do not have `page` bytes, because its orders and blocks mean other sizes.
    /// Such a snapshot can be read, but a model of `page` cannot start from it.
    ///
    /// # Errors
    /// If the sizes differ. The error names both.
    pub fn require_page(&self, page: Bytes) -> Result<(), Error> {
        if self.page_bytes == page {
            return Ok(());
        }
        Err(Error::page_size(self.page_bytes, page))
    }

    /// Returns the number of free blocks by order, over all zones.
    #[must_use]
    pub fn free_blocks(&self) -> Vec<u64> {
        sum(self.zones.iter().map(|zone| zone.free_blocks.clone()))
    }

    /// Returns the number of free blocks by order according to the layouts, over all zones; `None` if a zone has no
    /// layout.
    #[must_use]
    pub fn free_blocks_of_layout(&self) -> Option<Vec<u64>> {
        let zones = self.zones.iter().map(Zone::free_blocks_of_layout);
        Some(sum(zones.collect::<Option<Vec<_>>>()?.into_iter()))
    }

    /// Returns the unusable-free-space index of each order, over all zones: [`unusable_index`] of
    /// [`Snapshot::free_blocks`].
    #[must_use]
    pub fn unusable_index(&self) -> Vec<OrderIndex> {
        unusable_index(&self.free_blocks())
    }
}

impl Zone {
    /// Returns the largest order of a free block.
    #[must_use]
    pub fn largest_order(&self) -> u32 {
        // At most 64: larger snapshots are refused.
        self.free_blocks.len().saturating_sub(1) as u32
    }

    /// Returns the runs of pages of one kind, from [`Zone::start_frame`]. Neighbouring runs have different kinds.
    /// `None` without a layout. If the layout was never checked and is damaged, the runs end at the damage.
    #[must_use]
    pub fn runs(&self) -> Option<Runs<'_>> {
        Some(self.layout.as_ref()?.runs(self.start_frame))
    }

    /// Returns the free blocks by the layout, in the order of their frames; `None` without a layout.
    ///
    /// The kernel shows that a page is free, but not in which block. But its buddy system joins two free buddies at
    /// once. So only one arrangement of a free run is possible: the largest blocks, each aligned to its size
    /// ([`blocks_in`]). There are rare exceptions: blocks larger than a pageblock of the types `Isolate`,
    /// `HighAtomic` and `CMA` are not joined with those of other types.
    pub fn blocks(&self) -> Option<impl Iterator<Item = Block> + '_> {
        let most = self.largest_order();
        let free = self.runs()?.filter(|run| run.kind == Kind::Free);
        Some(free.flat_map(move |run| blocks_in(run.start, run.pages.0, most)))
    }

    /// Returns the number of free blocks by order, counted from [`Zone::blocks`].
    #[must_use]
    pub fn free_blocks_of_layout(&self) -> Option<Vec<u64>> {
        let mut counts = vec![0; self.free_blocks.len()];
        for block in self.blocks()? {
            // No order above the largest occurs. Without any order there is no count.
            if let Some(count) = counts.get_mut(block.order as usize) {
                *count += 1;
            }
        }
        Some(counts)
    }
}

/// Adds up counts by order, for as many orders as the longest list has.
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
