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
//! stops with an error where Linux unmaps and returns `EINVAL`. What it leaves out: the entries
//! of the upper levels of the page table, and bits that let a TLB join neighbouring entries.
//!
//! Order matters, which is why a count of runs is not enough:
//!
//! ```text
//!  IOVA      0   4K  8K           64K                 (each letter an entry)
//!  4K last   AAAAAAAAAAAAAAAAAAAAAB                    64K then 4K: 2 entries
//!  4K first  BCDEFGHIJKLMNOPQ..                        4K then 64K: 17 entries, the large
//!                                                      chunk is no longer aligned
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Physical memory without a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First physical address, bytes.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// The page sizes that an IOMMU can map, as in `iommu_domain.pgsize_bitmap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSizes {
    bits: u64,
}

impl PageSizes {
    /// 4 KiB, 2 MiB, 1 GiB: Intel VT-d, AMD-Vi's usual set, Arm with 4 KiB granule.
    pub const K4_M2_G1: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 21 | 1 << 30,
    };
    /// 4 KiB, 64 KiB, 1 MiB, 16 MiB: Arm's short descriptors.
    pub const K4_K64_M1_M16: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 16 | 1 << 20 | 1 << 24,
    };
    /// 4 KiB, 64 KiB, 2 MiB: Arm with 4 KiB granule where sixteen neighbours share an entry.
    pub const K4_K64_M2: PageSizes = PageSizes {
        bits: 1 << 12 | 1 << 16 | 1 << 21,
    };

    /// A set of sizes in bytes.
    ///
    /// # Errors
    /// [`MapError::BadSizes`] where there is none, or one is no power of two.
    pub fn new(sizes: &[u64]) -> Result<PageSizes, MapError> {
        if sizes.is_empty() || !sizes.iter().all(|size| size.is_power_of_two()) {
            return Err(MapError::BadSizes);
        }
        Ok(PageSizes {
            bits: sizes.iter().fold(0, |bits, size| bits | size),
        })
    }

    /// The smallest size, bytes.
    #[must_use]
    pub fn smallest(self) -> u64 {
        1 << self.bits.trailing_zeros() // never empty: every constructor sees to it
    }

    /// The sizes in bytes, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..u64::BITS)
            .map(|bit| 1 << bit)
            .filter(move |size| self.bits & size != 0)
    }
}

/// As `{4K,2M,1G}`.
impl fmt::Display for PageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
        for (at, size) in self.iter().enumerate() {
            let thousands = (size.trailing_zeros() / 10) as usize; // at most 6: u64 has 64 bits
            let comma = if at == 0 { "{" } else { "," };
            write!(f, "{comma}{}{}", size >> (10 * thousands), UNITS[thousands])?;
        }
        f.write_str("}")
    }
}

/// Entries of one size that follow one another in both address spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Device address of the first.
    pub iova: u64,
    /// Physical address of the first.
    pub physical: u64,
    /// Bytes that each maps.
    pub size: u64,
    /// How many; at least 1.
    pub count: u64,
}

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

/// Where `iommu-dma` aligns the IOVA of a buffer of `length` bytes: the length rounded up to a
/// power of two. `None` where there is no such power below 2^64.
///
/// Linux 6.12 `alloc_iova_fast` with `size_aligned` (`drivers/iommu/iova.c`); Arm's own
/// `dma-mapping.c` aligned to 1 MiB at most.
#[must_use]
pub fn iova_alignment(length: u64) -> Option<u64> {
    length.checked_next_power_of_two()
}

/// The batches that map `runs` from `iova` on.
///
/// # Errors
/// [`MapError::NoPageFits`] and [`MapError::TooLong`].
pub fn map(runs: &[Run], sizes: PageSizes, iova: u64) -> Result<Vec<Batch>, MapError> {
    let mut batches = Vec::new();
    let mut at = iova;
    for run in joined(runs)? {
        let end = at.checked_add(run.length).ok_or(MapError::TooLong)?;
        let mut physical = run.start;
        while at < end {
            let batch = next(at, physical, end - at, sizes)?;
            batches.push(batch);
            // No overflow: the batch lies inside the run, whose ends were checked.
            at += batch.size * batch.count;
            physical += batch.size * batch.count;
        }
    }
    Ok(batches)
}

/// Entries by size in bytes that map `runs` from `iova` on.
///
/// # Errors
/// As [`map`].
pub fn entries(runs: &[Run], sizes: PageSizes, iova: u64) -> Result<BTreeMap<u64, u64>, MapError> {
    let mut counts = BTreeMap::new();
    for batch in map(runs, sizes, iova)? {
        *counts.entry(batch.size).or_insert(0) += batch.count;
    }
    Ok(counts)
}

/// Runs that continue one another become one; empty ones go.
fn joined(runs: &[Run]) -> Result<Vec<Run>, MapError> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs.iter().filter(|run| run.length > 0) {
        run.start.checked_add(run.length).ok_or(MapError::TooLong)?;
        match joined.last_mut() {
            // No overflow: the sum was checked when `last` or its part came in.
            Some(last) if last.start + last.length == run.start => last.length += run.length,
            _ => joined.push(*run),
        }
    }
    Ok(joined)
}

/// The batch at the start of `left` bytes; `left` is not 0.
fn next(iova: u64, physical: u64, left: u64, sizes: PageSizes) -> Result<Batch, MapError> {
    // Sizes up to the alignment of both addresses; at address 0 of both, every size.
    let aligned = match iova | physical {
        0 => u64::MAX,
        both => both ^ (both - 1), // the lowest set bit and all below
    };
    let size = sizes
        .iter()
        .take_while(|&size| size & aligned != 0 && size <= left)
        .last()
        .ok_or(MapError::NoPageFits {
            iova,
            physical,
            length: left,
            smallest: sizes.smallest(),
        })?;
    // A larger page becomes possible where both addresses reach its next multiple together,
    // and as much as it needs is left there.
    let until_larger = sizes
        .iter()
        .filter(|&larger| larger > size && (iova ^ physical) & (larger - 1) == 0)
        .map(|larger| (larger, iova.wrapping_neg() & (larger - 1)))
        .filter(|&(larger, offset)| left.checked_sub(offset).is_some_and(|rest| rest >= larger))
        .map(|(_, offset)| offset)
        .min();
    // Multiples of `size` all: the addresses are, and so is a larger page's boundary.
    let count = until_larger.unwrap_or(left) / size;
    Ok(Batch {
        iova,
        physical,
        size,
        count,
    })
}

#[cfg(test)]
mod tests;
