//! Drivers that need large blocks at once, and what becomes of them beside a buffer.
//!
//! **Source.** Mail 001: the dwc2 USB controller's bounce buffers fail at order 3 while buffers are built from large
//! chunks, and mwifiex drops packets of 33,024 bytes, order 4. How many they hold at a time, the mail does not say:
//! assumed are 8 transfers and 4 packets. They may not wait: no reclaim, no compaction, and they may go below the min mark
//! ([`Watermarks::atomic`](super::watermarks::Watermarks::atomic)).

use super::buddy::ORDERS;

/// One driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bystander {
    /// Its name.
    pub name: &'static str,
    /// Order of its blocks: 0 to 10.
    pub order: u32,
    /// How many it wants at a time: so many tries after each buffer, given back when all had theirs.
    pub blocks: u32,
}

/// Those of mail 001.
pub const THREAD: [Bystander; 2] = [
    Bystander {
        name: "dwc2",
        order: 3,
        blocks: 8,
    },
    Bystander {
        name: "mwifiex",
        order: 4,
        blocks: 4,
    },
];

/// How they fared, by order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fared {
    /// Blocks that they asked for.
    pub tries: [u64; ORDERS],
    /// Those that they did not get.
    pub failed: [u64; ORDERS],
}

impl Fared {
    /// All tries.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tries.iter().sum()
    }

    /// All that failed.
    #[must_use]
    pub fn total_failed(&self) -> u64 {
        self.failed.iter().sum()
    }
}

impl std::ops::AddAssign for Fared {
    fn add_assign(&mut self, other: Fared) {
        for order in 0..ORDERS {
            self.tries[order] += other.tries[order];
            self.failed[order] += other.failed[order];
        }
    }
}
