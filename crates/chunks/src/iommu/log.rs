//! What a kernel with its debugging prints on prints while it maps a buffer, in the form of mail 001's Juno
//! example.
//!
//! The lines are those of `iommu_map` (`drivers/iommu/iommu.c`, 2015), one `map:` a call and one `mapping:`
//! an entry, and of Robin Murphy's own prints in `iommu_dma_alloc` and `__iommu_dma_alloc_pages`.
//! `iommu_map_sg` calls `iommu_map` once for chunks that follow one another physically, so there may be
//! fewer `map:` lines than chunks.

use alloc::vec::Vec;
use core::fmt;
use core::iter;

use super::plan::{joined, map_one};
use super::{Batch, MapError, PageSizes, Run};

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A buffer is wanted.
    Wanted {
        /// Its bytes.
        bytes: u64,
        /// Its base pages.
        pages: u64,
    },
    /// A chunk was allocated.
    Allocated {
        /// It has 2^order base pages.
        order: u32,
    },
    /// A run is mapped.
    Map {
        /// Its device address.
        iova: u64,
        /// The run.
        run: Run,
    },
    /// An entry is written.
    Mapping {
        /// Device address.
        iova: u64,
        /// Physical address.
        physical: u64,
        /// Bytes.
        size: u64,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Wanted { bytes, pages } => {
                write!(f, "iommu_dma_alloc: alloc size {bytes:#x}, {pages} pages")
            }
            Line::Allocated { order } => {
                write!(f, "__iommu_dma_alloc_pages: allocated at order {order}")
            }
            Line::Map { iova, run } => write!(
                f,
                "iommu: map: iova {iova:#x} pa {:#018x} size {:#x}",
                run.start, run.length
            ),
            Line::Mapping {
                iova,
                physical,
                size,
            } => write!(
                f,
                "iommu: mapping: iova {iova:#x} pa {physical:#018x} pgsize {size:#x}"
            ),
        }
    }
}

/// The lines of mapping `runs` from `iova` on. Memory: that of [`map`](super::map)'s batches, not that of
/// the entries.
///
/// # Errors
/// As [`map`](super::map).
pub fn log(
    runs: &[Run],
    sizes: PageSizes,
    iova: u64,
) -> Result<impl Iterator<Item = Line> + use<>, MapError> {
    let mut calls = Vec::new();
    let mut at = iova;
    for run in joined(runs)? {
        let mut batches = Vec::new();
        map_one(run, sizes, at, |batch| batches.push(batch))?;
        calls.push((Line::Map { iova: at, run }, batches));
        at += run.length; // no overflow: it could be mapped there
    }
    let lines = |(call, batches): (Line, Vec<Batch>)| {
        iter::once(call).chain(batches.into_iter().flat_map(entries))
    };
    Ok(calls.into_iter().flat_map(lines))
}

fn entries(batch: Batch) -> impl Iterator<Item = Line> {
    (0..batch.count).map(move |entry| Line::Mapping {
        iova: batch.iova + entry * batch.size,
        physical: batch.physical + entry * batch.size,
        size: batch.size,
    })
}
