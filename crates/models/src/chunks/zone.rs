//! A part of the memory with lists, marks and scanners of its own.

use super::buddy::Buddy;
use super::compaction::Compaction;
use super::kernel::Kernel;
use super::reclaim::Lru;
use super::watermarks::Watermarks;

/// How far down a request may take what is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The low mark: requests of the fast path stop there.
    Low,
    /// The min mark: requests of the slow path stop there.
    Min,
    /// The mark of requests that must not wait.
    Atomic,
}

/// One zone of a [`Machine`](super::machine::Machine).
#[derive(Clone)]
pub(super) struct Zone {
    /// The machine's number of its first frame.
    pub(super) base: u64,
    pub(super) buddy: Buddy,
    pub(super) marks: Watermarks,
    /// Free pages that requests for a higher zone leave here beside the mark: `lowmem_reserve`.
    pub(super) reserve: u64,
    pub(super) lru: Lru,
    pub(super) compaction: Compaction,
}

impl Zone {
    pub(super) fn mark(&self, mark: Mark) -> u64 {
        match mark {
            Mark::Low => self.marks.low,
            Mark::Min => self.marks.min,
            Mark::Atomic => self.marks.atomic(),
        }
    }

    /// Whether 2^`order` pages may go down to `mark` and `reserve`, as `kernel` tests it.
    pub(super) fn is_ok(&self, kernel: Kernel, order: u32, mark: u64, reserve: u64) -> bool {
        if kernel.is_old() {
            self.buddy.watermark_ok_3_4(order, mark, reserve)
        } else {
            self.buddy.watermark_ok_6_12(order, mark, reserve)
        }
    }
}
