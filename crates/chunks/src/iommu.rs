//! How many entries of which size an IOMMU needs to map a buffer.
//!
//! **Contract.** Physical [`Run`]s, in the order in which the device shall see them, are mapped
//! from a device address (IOVA) on. Runs that continue one another are one run. At each
//! position the largest supported page is taken that is neither longer than what is left of the
//! run nor larger than the alignment of the two addresses together (the lowest set bit of
//! `iova | physical`); as many follow in one [`Batch`] as there are until a larger page becomes
//! possible.
//!
//! **Cost.** A batch costs O(sizes); there are at most 2 x sizes batches a run.
//!
//! **Lineage.** Linux 6.12: `iommu_map_sg` joins consecutive segments, `iommu_pgsize` chooses
//! size and count (`drivers/iommu/iommu.c`). Ours differs in that it only counts, and that it
//! stops with an error where Linux unmaps and returns `EINVAL`. What it leaves out: bits that let a TLB
//! join neighbouring entries. What the page table costs, [`Format`] says; [`log`] writes the plan down as
//! the kernel would.
//!
//! Order matters, which is why a count of runs is not enough:
//!
//! ```text
//!  IOVA      0   4K  8K           64K                 (each letter an entry)
//!  4K last   AAAAAAAAAAAAAAAAAAAAAB                    64K then 4K: 2 entries
//!  4K first  BCDEFGHIJKLMNOPQ..                        4K then 64K: 17 entries, the large
//!                                                      chunk is no longer aligned
//! ```

mod alignment;
mod log;
mod offset;
mod plan;
mod sizes;
mod table;

use core::fmt;

pub use alignment::{Alignment, iova_alignment};
pub use log::{Line, log};
pub use offset::best_offset;
pub use plan::{Batch, Run, entries, map};
pub use sizes::PageSizes;
pub use table::Format;

/// Why something cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// A set of page sizes was empty, or held a size that is no power of two.
    BadSizes,
    /// No supported page fits here: an address or the end of the run is not a multiple of the
    /// smallest one. So it is where the IOMMU's smallest page is larger than the CPU's base
    /// page and the buffer is scattered.
    NoPageFits {
        /// Device address.
        iova: u64,
        /// Physical address.
        physical: u64,
        /// Bytes left of the run.
        length: u64,
        /// The smallest supported page, bytes.
        smallest: u64,
    },
    /// A run or the buffer ends beyond the last 64-bit address.
    TooLong,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::BadSizes => f.write_str("page sizes must be powers of two, and at least one"),
            MapError::NoPageFits {
                iova,
                physical,
                length,
                smallest,
            } => write!(
                f,
                "{length} bytes at physical {physical:#x} cannot be mapped at {iova:#x}: \
                 the smallest page has {smallest} bytes"
            ),
            MapError::TooLong => f.write_str("a run ends beyond the last 64-bit address"),
        }
    }
}

impl core::error::Error for MapError {}

#[cfg(test)]
mod tests;
