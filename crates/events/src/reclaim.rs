//! The loads of `probe reclaim` and `replay reclaim`, which make memory short.

use crate::words;

/// A load that makes memory short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// One task reads a file slightly larger than its room, round and round: each page is gone when its turn comes
    /// again, and the kernel sees that.
    Refault,
    /// One task reads what it never reads again.
    Stream,
    /// One task populates blocks of anonymous memory, together slightly larger than the room, and unmaps the oldest
    /// for each new one. Needs swap.
    Populate,
    /// [`Load::Refault`], and beside it one block at a time is populated and unmapped.
    Mixed,
    /// Mail 004, which only the model has: each CPU drops a 16 MiB object as DONTNEED and makes a new one, one task
    /// streams, and each CPU times mapping, touching and unmapping 2 MiB.
    GemSyslatency,
}
words!(Load, "load", Refault "refault", Stream "stream", Populate "populate", Mixed "mixed", GemSyslatency "gem-syslatency");

impl Load {
    /// The loads that the probe runs on a live kernel.
    pub const LIVE: &'static [Load] = &[Load::Refault, Load::Stream, Load::Populate, Load::Mixed];

    /// Returns whether a file is read.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Load::Populate
    }

    /// Returns whether blocks are populated.
    #[must_use]
    pub fn populates(self) -> bool {
        matches!(self, Load::Populate | Load::Mixed | Load::GemSyslatency)
    }
}
