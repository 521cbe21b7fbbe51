//! Types of pages, blocks and requests.

use stopgap_events::words;

/// Pages of one *block*, the unit that has a migrate type: 2^9, 2 MiB of 4 KiB pages.
pub const BLOCK_PAGES: u64 = 1 << BLOCK_ORDER;

/// The order of such a block (the kernel's `pageblock_order` with 4 KiB pages and 2 MiB huge pages).
pub const BLOCK_ORDER: u32 = 9;

/// Orders of free blocks: 0 to 10.
pub const ORDERS: usize = 11;

/// The largest order (`MAX_PAGE_ORDER` of 6.12, `MAX_ORDER - 1` of 3.4).
pub(super) const MAX_ORDER: u32 = ORDERS as u32 - 1;

/// The migrate type of a block, and of a request all but the last. The kernel's third ordinary type, reclaimable (slab
/// that a shrinker can free), counts as unmovable here: the kernel's `fallbacks` has each of the two look at the
/// other one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// Pages that stay: kernel memory, buffers of devices.
    Unmovable,
    /// Pages that compaction can move: user memory and page cache.
    Movable,
    /// `MIGRATE_RESERVE` (2.6.24 to 4.3): blocks that serve any request for which no other block is large enough. They
    /// keep their type. No request has this type.
    Reserve,
}

words!(Mobility, "mobility", Unmovable "unmovable", Movable "movable", Reserve "reserve");

impl Mobility {
    /// The type whose blocks a request may change when its own lists are empty (`fallbacks`, mm/page_alloc.c).
    #[must_use]
    pub fn fallback(self) -> Option<Mobility> {
        match self {
            Mobility::Unmovable => Some(Mobility::Movable),
            Mobility::Movable => Some(Mobility::Unmovable),
            Mobility::Reserve => None,
        }
    }
}

/// Use of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Use {
    /// On an LRU list: can be reclaimed, and moved.
    Reclaimable,
    /// Can be moved, not reclaimed: mlocked, or anonymous without swap.
    Movable,
    /// The kernel's, or a device's buffer: neither.
    Unmovable,
    /// A movable page that somebody holds a reference to: as long as that lasts, neither. For the fallback
    /// between migrate types it counts as movable, because the kernel cannot tell it from one.
    Pinned,
    /// No memory at this frame.
    Hole,
}

words!(
    Use, "use",
    Reclaimable "reclaimable",
    Movable "movable",
    Unmovable "unmovable",
    Pinned "pinned",
    Hole "hole",
);

impl Use {
    /// Whether the kernel takes such a page for movable when it counts a block's pages
    /// (`PageLRU`, `__PageMovable`).
    pub(super) fn counts_as_movable(self) -> bool {
        matches!(self, Use::Reclaimable | Use::Movable | Use::Pinned)
    }
}

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// In the free block of `order` that begins at frame `head`.
    Free {
        /// The block's order.
        order: u32,
        /// The block's first frame.
        head: u64,
    },
    /// Used.
    Used(Use),
}

/// Why the memory was not made, or not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuddyError {
    /// Memory of no page, or of more than the model holds.
    #[error("memory of {pages} pages: 1 to {most} can be modelled")]
    Size {
        /// Pages asked for.
        pages: u64,
        /// The most.
        most: u64,
    },
    /// No block has this order.
    #[error("order {order}: orders are 0 to {MAX_ORDER}")]
    Order {
        /// The order given.
        order: u32,
    },
    /// The frame is no multiple of the block's size.
    #[error("frame {frame}: a block of order {order} begins at a multiple of {}", 1u64 << order)]
    Unaligned {
        /// The frame given.
        frame: u64,
        /// The order given.
        order: u32,
    },
    /// The frame is not in the memory.
    #[error("frame {frame}: the memory has {pages} pages")]
    Beyond {
        /// The first frame that is not in the memory.
        frame: u64,
        /// Pages of the memory.
        pages: u64,
    },
    /// The page is free, where a used one is needed.
    #[error("frame {frame} is free")]
    IsFree {
        /// The frame.
        frame: u64,
    },
    /// The page is used, where a free one is needed.
    #[error("frame {frame} is used ({of})")]
    IsUsed {
        /// The frame.
        frame: u64,
        /// The value.
        of: Use,
    },
    /// There is no memory at this frame that could be free.
    #[error("frame {frame} is a hole")]
    IsHole {
        /// The frame.
        frame: u64,
    },
}
