//! Which chunks a buffer is made of: the rules of mail 001 and of the kernels since, behind one contract.
//!
//! **Contract.** A policy asks a [`Source`] for naturally aligned chunks of 2^order base pages until a
//! buffer of [`Request::pages`] is complete; it never asks for more than is left. A buffer that cannot be
//! completed is undone: all its chunks are given back, the newest first, and the error says how hard it was
//! tried. What a try costs, the source knows; a policy only decides what to try next, and how hard
//! ([`Effort`]).
//!
//! **Cost.** One call of the source a try; O(1) between two of them, and 16 bytes a chunk.
//!
//! **Rooms.** [`Name`] has all by name. [`Steps`] goes down a list of orders and never back up: `one-page`,
//! `sticky`, `start-64k`, `list`, `list-noreclaim`, `landed` and `ttm` are lists for it. `old`, `fold`,
//! `iommu-dma` and `sorted` have a module each.
//!
//! What is left out: the array of page pointers, the clearing of the pages (a source can time both), contiguous
//! memory set aside at boot (CMA), and TTM's pools of pages that were freed before.

mod buffer;
mod built;
mod fold;
mod iommu_dma;
mod name;
mod old;
mod request;
mod sorted;
mod steps;

pub use built::{BuildError, Built, Tries};
pub use name::Name;
pub use request::Request;
pub use steps::Steps;

/// Orders that can be asked for: 0 to 10, `MAX_ORDER` and `MAX_PAGE_ORDER` of the kernels with 4 KiB pages.
pub const ORDERS: usize = 11;

/// The largest order that can be asked for.
const LARGEST: u32 = ORDERS as u32 - 1;

/// How hard one allocation is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Until it succeeds or memory is at its end: order 0 without a modifier.
    Must,
    /// One round of reclaim and compaction, then it fails: `__GFP_NORETRY`.
    NoRetry,
    /// From what is free, or it fails at once: the bits of `__GFP_RECLAIM` cleared.
    NoReclaim,
}

/// 2^order base pages that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// Number of the first base page. A multiple of 2^order where the source is a buddy allocator.
    pub frame: u64,
    /// 0 to 10.
    pub order: u32,
}

impl Chunk {
    /// Base pages that it has.
    #[must_use]
    pub fn pages(self) -> u64 {
        1 << self.order
    }
}

/// Where chunks come from: a modelled buddy allocator, the arena, a list in a test.
pub trait Source {
    /// Takes 2^`order` base pages and gives the first one's number, or `None` where that fails. `order` is
    /// 0 to 10.
    fn allocate(&mut self, order: u32, effort: Effort) -> Option<u64>;

    /// Frees a chunk that [`allocate`](Source::allocate) returned.
    fn free(&mut self, chunk: Chunk);
}

#[cfg(test)]
mod tests;
