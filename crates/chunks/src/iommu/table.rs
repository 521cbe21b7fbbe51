//! What a mapping costs in page tables: their bytes, and the descriptors that are written into them.

use super::{Batch, PageSizes};

const K4: u64 = 1 << 12;
const K64: u64 = 1 << 16;
const M1: u64 = 1 << 20;
const M2: u64 = 1 << 21;
const M16: u64 = 1 << 24;
const M32: u64 = 1 << 25;
const G1: u64 = 1 << 30;

/// Neighbouring descriptors that say together one page of 64 KiB, 16 MiB or 32 MiB.
const REPEATED: u64 = 16;

/// How a page table is laid out.
///
/// A domain's page sizes do not name its format. These two are those of the architectures whose sizes they
/// are; that another IOMMU with the same sizes is laid out alike is an assumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Tables of 4 KiB with 512 descriptors, four levels (48 bits): VT-d, and Arm with 4 KiB
    /// granule. Leaves of 4 KiB, 2 MiB and 1 GiB; 64 KiB and 32 MiB are sixteen neighbours with Arm's
    /// contiguous hint.
    Radix,
    /// Arm's short descriptors, 32 bits: a first level of 16 KiB for 4,096 sections of 1 MiB, second levels
    /// of 1 KiB for 256 pages of 4 KiB; a page of 64 KiB and a supersection of 16 MiB are repeated sixteen
    /// times.
    ShortDescriptors,
}

impl Format {
    /// The format that `sizes` imply: 4 KiB and 2 MiB, or 4 KiB and 1 MiB, with none that the format does
    /// not have. `None` is unknown: sets with neither, such as {4K} alone, are those of many formats.
    #[must_use]
    pub fn for_sizes(sizes: PageSizes) -> Option<Format> {
        let all_of = |known: &[u64]| sizes.iter().all(|size| known.contains(&size));
        if !sizes.contains(K4) {
            None
        } else if sizes.contains(M2) && all_of(&[K4, K64, M2, M32, G1]) {
            Some(Format::Radix)
        } else if sizes.contains(M1) && all_of(&[K4, K64, M1, M16]) {
            Some(Format::ShortDescriptors)
        } else {
            None
        }
    }

    /// Bytes of the tables that a domain with nothing but `batches` has, the topmost table among them.
    /// `batches` are as [`map`](super::map) gives them, by ascending device address. `None` where one lies
    /// beyond what the format can address (48 or 32 bits).
    #[must_use]
    pub fn table_bytes(self, batches: &[Batch]) -> Option<u64> {
        let bits = match self {
            Format::Radix => 48,
            Format::ShortDescriptors => 32,
        };
        let beyond = |batch: &Batch| (batch.iova + (batch.length() - 1)) >> bits != 0;
        if batches.iter().any(beyond) {
            return None;
        }
        Some(match self {
            // A table of 2^shift addresses is there where something smaller than that is mapped.
            Format::Radix => {
                let below = [G1 << 9, G1, M2].map(|reach| tables(batches, reach));
                (1 + below.iter().sum::<u64>()) * K4
            }
            Format::ShortDescriptors => (16 << 10) + tables(batches, M1) * (1 << 10),
        })
    }

    /// Descriptors that say `batches`: what is written, and flushed where the IOMMU does not snoop the caches.
    #[must_use]
    pub fn descriptors(self, batches: &[Batch]) -> u64 {
        let each = |size| match (self, size) {
            (Format::Radix, K64 | M32) | (Format::ShortDescriptors, K64 | M16) => REPEATED,
            _ => 1,
        };
        batches
            .iter()
            .map(|batch| batch.count * each(batch.size))
            .sum()
    }
}

/// Tables that cover `reach` bytes each and hold an entry of `batches` that is smaller than that.
fn tables(batches: &[Batch], reach: u64) -> u64 {
    let mut count = 0;
    let mut last_counted = None;
    for batch in batches.iter().filter(|batch| batch.size < reach) {
        let (first, last) = (
            batch.iova / reach,
            (batch.iova + (batch.length() - 1)) / reach,
        );
        count += last - first + u64::from(last_counted != Some(first));
        last_counted = Some(last);
    }
    count
}

#[cfg(test)]
mod tests;
