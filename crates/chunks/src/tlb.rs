//! Cost of a mapping for the device that uses it: misses of an IOMMU's TLB.
//!
//! Mail 001 ends in two opinions. Doug Anderson: video decoding reads in one direction, large pages do not
//! matter. Marek Szyprowski: with rotation by 90 degrees they do, and 64 KiB are about as good as 2 MiB.
//! Both can be counted.
//!
//! **Contract.** A [`Tlb`] has entries for each page size, fully associative, the least recently used one
//! replaced. It begins empty; an [`Image`] is read once as [`Access`] says, in bursts of 64 bytes, through
//! a plan of [`iommu::map`](crate::iommu::map). A burst whose page is in no entry is a miss and costs one
//! walk.
//!
//! **Cost.** An access costs O(log batches) to find its page, and O(entries) to find it in the TLB.
//!
//! **Assumptions.** How many entries an IOMMU has and what a walk takes, hardly any manual says:
//! [`Tlb::assumed`] is a guess, and a verdict from it has to hold for half and for twice of both
//! ([`Tlb::scaled`]). Left out: caches of upper levels, other devices behind the same IOMMU, prefetching,
//! and walks that hide behind accesses still under way. So misses are an upper bound of the harm, and
//! comparisons between mappings are what they are for.

mod access;
mod lru;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

pub use access::{Access, BURST, Image};

use crate::iommu::{Batch, PageSizes};
use lru::Lru;

/// Accesses that are counted at most: an image of 16 GiB.
const MOST_ACCESSES: u64 = 1 << 28;

/// An IOMMU's TLB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlb {
    /// Entries by the page size in bytes that they are for.
    pub entries: BTreeMap<u64, u32>,
    /// Price of a miss, nanoseconds.
    pub walk_ns: u64,
}

/// By how much an assumption is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Factor {
    /// 1/2
    Half,
    /// 1
    Same,
    /// 2
    Double,
}

impl Factor {
    /// From the smallest on.
    pub const ALL: [Factor; 3] = [Factor::Half, Factor::Same, Factor::Double];

    fn of(self, value: u64) -> u64 {
        match self {
            Factor::Half => value / 2,
            Factor::Same => value,
            Factor::Double => value.saturating_mul(2),
        }
    }
}

impl Tlb {
    /// What is assumed where nothing is known: 64 entries for the smallest page, 32 for each larger one,
    /// 200 ns a walk.
    #[must_use]
    pub fn assumed(sizes: PageSizes) -> Tlb {
        let entries = |size| if size == sizes.smallest() { 64 } else { 32 };
        Tlb {
            entries: sizes.iter().map(|size| (size, entries(size))).collect(),
            walk_ns: 200,
        }
    }

    /// The same with other assumptions. What has an entry keeps at least one.
    #[must_use]
    pub fn scaled(&self, entries: Factor, walk: Factor) -> Tlb {
        let scale = |(&size, &count): (&u64, &u32)| {
            let scaled = u32::try_from(entries.of(count.into())).unwrap_or(u32::MAX);
            (size, scaled.max(count.min(1)))
        };
        Tlb {
            entries: self.entries.iter().map(scale).collect(),
            walk_ns: walk.of(self.walk_ns),
        }
    }

    /// Reads `image` once through `plan`, whose first address is the image's first byte.
    ///
    /// # Errors
    /// All of [`TlbError`].
    pub fn read(&self, plan: &[Batch], image: Image, access: Access) -> Result<Traffic, TlbError> {
        image.check()?;
        let accesses = image.bursts();
        if accesses > MOST_ACCESSES {
            return Err(TlbError::TooLong { accesses });
        }
        check(plan, image.bytes_read())?;
        let mut sets: Vec<Set> = Vec::new();
        let mut parts: Vec<Part> = Vec::with_capacity(plan.len());
        let mut start = 0;
        for &batch in plan {
            let set = sets.iter().position(|set| set.size == batch.size);
            let set = match set {
                Some(set) => set,
                None => {
                    sets.push(self.set(batch.size)?);
                    sets.len() - 1
                }
            };
            parts.push(Part { start, batch, set });
            start += batch.length(); // no overflow: checked
        }
        let mut last = 0..0;
        let mut part = &parts[0]; // a checked plan is as long as the image, which has a row
        access.each(image, |offset| {
            if !last.contains(&offset) {
                // A part is found: the first one begins at 0.
                part = &parts[parts.partition_point(|part| part.start <= offset) - 1];
                last = part.start..part.start + part.batch.length();
            }
            let entry = (offset - part.start) / part.batch.size;
            let page = part.batch.iova + entry * part.batch.size;
            let set = &mut sets[part.set];
            set.misses += u64::from(!set.lru.touch(page));
        });
        let misses: BTreeMap<u64, u64> = sets.iter().map(|set| (set.size, set.misses)).collect();
        let walks = misses.values().sum::<u64>();
        Ok(Traffic {
            accesses,
            misses,
            cost_ns: walks.saturating_mul(self.walk_ns),
        })
    }

    /// The entries for pages of `size` bytes, empty.
    fn set(&self, size: u64) -> Result<Set, TlbError> {
        let entries = self
            .entries
            .get(&size)
            .copied()
            .filter(|&entries| entries > 0);
        let entries = entries.ok_or(TlbError::NoEntries { size })?;
        Ok(Set {
            size,
            lru: Lru::new(entries as usize),
            misses: 0,
        })
    }
}

/// The entries for one page size.
struct Set {
    size: u64,
    lru: Lru,
    misses: u64,
}

/// A batch of the plan, and what is needed to find it.
struct Part {
    /// Where in the image it begins.
    start: u64,
    batch: Batch,
    /// Index of the set for its size.
    set: usize,
}

/// Whether `plan` is one piece of device addresses that is not shorter than `image` bytes.
fn check(plan: &[Batch], image: u64) -> Result<(), TlbError> {
    let mut mapped = 0;
    let mut expected = plan.first().map_or(0, |batch| batch.iova);
    for batch in plan {
        let bad = TlbError::BadPlan { iova: batch.iova };
        let length = batch.size.checked_mul(batch.count).ok_or(bad)?;
        if length == 0 || batch.iova != expected {
            return Err(bad);
        }
        expected = batch.iova.checked_add(length).ok_or(bad)?;
        mapped += length; // no overflow: it is what lies between two addresses
    }
    if mapped < image {
        return Err(TlbError::Uncovered { mapped, image });
    }
    Ok(())
}

/// TLB misses of one pass over an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Bursts that were read.
    pub accesses: u64,
    /// Misses by page size in bytes; every size of the plan is there.
    pub misses: BTreeMap<u64, u64>,
    /// All walks together, nanoseconds.
    pub cost_ns: u64,
}

impl Traffic {
    /// All misses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.misses.values().sum()
    }

    /// Misses for each access: 0 to 1.
    #[must_use]
    pub fn misses_per_access(&self) -> f64 {
        self.total() as f64 / self.accesses as f64 // never 0 accesses: an image has a burst
    }
}

/// Why nothing can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlbError {
    /// A row's pitch is no multiple of a burst, or is 0.
    Pitch {
        /// Bytes from a row to the next.
        pitch: u64,
    },
    /// The buffer is smaller than one row.
    NoRow {
        /// Bytes of the buffer.
        bytes: u64,
        /// Bytes of a row.
        pitch: u64,
    },
    /// More than 2^28 accesses.
    TooLong {
        /// How many it would be.
        accesses: u64,
    },
    /// The plan maps less than the image has, perhaps nothing.
    Uncovered {
        /// Bytes that are mapped.
        mapped: u64,
        /// Bytes of the image.
        image: u64,
    },
    /// A batch is empty, ends beyond the last address, or does not begin where the one before ends.
    BadPlan {
        /// Its device address.
        iova: u64,
    },
    /// The plan has pages of a size for which the TLB has no entry.
    NoEntries {
        /// The size, bytes.
        size: u64,
    },
}

impl fmt::Display for TlbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlbError::Pitch { pitch } => {
                write!(
                    f,
                    "a row of {pitch} bytes: it has to be a multiple of {BURST} bytes"
                )
            }
            TlbError::NoRow { bytes, pitch } => write!(
                f,
                "a buffer of {bytes} bytes is smaller than one row of {pitch} bytes"
            ),
            TlbError::TooLong { accesses } => {
                write!(f, "{accesses} accesses: more than 2^28 are not counted")
            }
            TlbError::Uncovered { mapped, image } => {
                write!(f, "the plan maps {mapped} bytes, the image has {image}")
            }
            TlbError::BadPlan { iova } => write!(
                f,
                "the plan's entries at {iova:#x} are none, or do not continue the ones before"
            ),
            TlbError::NoEntries { size } => write!(
                f,
                "the TLB has no entry for pages of {size} bytes, which the plan uses"
            ),
        }
    }
}

impl core::error::Error for TlbError {}

#[cfg(test)]
mod tests;
