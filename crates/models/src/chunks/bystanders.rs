//! Drivers that need large blocks at once, and what becomes of them beside a buffer.
//!
//! **Source.** Mail 001: the dwc2 USB controller's bounce buffers fail at order 3 while buffers are built from large
//! chunks, and mwifiex drops packets of 33,024 bytes, order 4, with "single skb allocated fail". dwc2 asks with the
//! flags of the transfer's driver (`dwc2_alloc_dma_aligned_buffer`), for a network adapter `GFP_ATOMIC`. Where mwifiex
//! prints that line it asks with `GFP_KERNEL | GFP_DMA` (`mwifiex_sdio_card_to_host_mp_aggr`), so it reclaims and compacts
//! first. Both get memory from the lowest zone only.
//!
//! The mail does not say how many blocks they hold at a time, nor how often they ask: assumed are 8 transfers and 4
//! packets, once a second while a buffer is built, and right after it.

use super::buddy::ORDERS;

/// One driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bystander {
    /// Its name.
    pub name: &'static str,
    /// Order of its blocks: 0 to 10.
    pub order: u32,
    /// How many it wants at a time: so many tries each time, given back when all had theirs.
    pub blocks: u32,
    /// Whether it may reclaim and compact for one (`GFP_KERNEL`), or may not wait and takes what there is down to
    /// [`Watermarks::atomic`](super::watermarks::Watermarks::atomic).
    pub waits: bool,
}

/// Those of mail 001.
pub const THREAD: [Bystander; 2] = [
    Bystander {
        name: "dwc2",
        order: 3,
        blocks: 8,
        waits: false,
    },
    Bystander {
        name: "mwifiex",
        order: 4,
        blocks: 4,
        waits: true,
    },
];

/// Nanoseconds between two rounds of tries while a buffer is built. Assumed.
pub const EVERY_NS: f64 = 1e9;

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

impl std::ops::Sub for Fared {
    type Output = Fared;
    /// The tries since `earlier`, counts of the same machine.
    fn sub(mut self, earlier: Fared) -> Fared {
        for order in 0..ORDERS {
            self.tries[order] -= earlier.tries[order];
            self.failed[order] -= earlier.failed[order];
        }
        self
    }
}
