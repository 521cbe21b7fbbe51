use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::iter;

use super::{Chunk, ORDERS, Request, Source};
use crate::iommu::{self, Line, MapError, Run};

/// How often each order was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tries {
    /// All tries, by order.
    pub tries: [u64; ORDERS],
    /// Those of them that failed, by order.
    pub failed: [u64; ORDERS],
}

impl Tries {
    /// All tries.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tries.iter().sum()
    }

    /// All tries that failed.
    #[must_use]
    pub fn total_failed(&self) -> u64 {
        self.failed.iter().sum()
    }
}

impl core::ops::AddAssign for Tries {
    fn add_assign(&mut self, other: Tries) {
        for order in 0..ORDERS {
            self.tries[order] += other.tries[order];
            self.failed[order] += other.failed[order];
        }
    }
}

/// A buffer that is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Built {
    /// Its chunks in the order in which the device sees them, each as it was taken.
    pub chunks: Vec<Chunk>,
    /// Tries for them.
    pub tries: Tries,
}

impl Built {
    /// Base pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.pages()).sum()
    }

    /// Its chunks as the planner of [`iommu`](crate::iommu) takes them; `page` is the bytes of a base page.
    /// Neighbours are not joined yet: the planner does that.
    ///
    /// # Errors
    /// [`MapError::TooLong`] where a chunk has no 64-bit physical address.
    pub fn runs(&self, page: u64) -> Result<Vec<Run>, MapError> {
        let run = |chunk: &Chunk| {
            let start = chunk.frame.checked_mul(page)?;
            let length = chunk.pages().checked_mul(page)?;
            Some(Run { start, length })
        };
        let runs = self
            .chunks
            .iter()
            .map(|chunk| run(chunk).ok_or(MapError::TooLong));
        runs.collect()
    }

    /// What a kernel with its debugging prints on would have printed: the buffer, its chunks, and their
    /// mapping from `iova` on.
    ///
    /// # Errors
    /// As [`iommu::map`].
    pub fn log(
        &self,
        request: &Request,
        iova: u64,
    ) -> Result<impl Iterator<Item = Line>, MapError> {
        let (bytes, pages) = (request.bytes(), request.pages);
        let orders = self
            .chunks
            .iter()
            .map(|chunk| Line::Allocated { order: chunk.order });
        let mapping = iommu::log(&self.runs(request.page)?, request.sizes, iova)?;
        Ok(iter::once(Line::Wanted { bytes, pages })
            .chain(orders)
            .chain(mapping))
    }

    /// Gives all chunks back, the newest first.
    pub fn give_back(self, source: &mut dyn Source) {
        for chunk in self.chunks.into_iter().rev() {
            source.free(chunk);
        }
    }
}

/// Why there is no buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A chunk without which the buffer could not be completed was refused: memory is at its end. All was
    /// given back.
    Exhausted {
        /// Tries until then. In a box because it is large and the error rare.
        tries: Box<Tries>,
        /// Base pages that were there before they were given back.
        pages: u64,
    },
    /// A buffer of no page.
    Zero,
    /// More than 2^40 pages.
    TooLong {
        /// How many.
        pages: u64,
    },
    /// The base page is no power of two from 4 KiB to 256 KiB.
    PageSize {
        /// Its bytes.
        page: u64,
    },
    /// The IOMMU's smallest page is larger than the base page: it cannot map a single one. Linux refuses as
    /// well.
    NoBasePage {
        /// The IOMMU's smallest page, bytes.
        smallest: u64,
        /// The base page, bytes.
        page: u64,
    },
    /// The orders of [`Steps`](super::Steps) do not go down from at most 10 to 0.
    Orders,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Exhausted { tries, pages } => write!(
                f,
                "memory was at its end after {pages} pages and {} tries; all pages were given back",
                tries.total()
            ),
            BuildError::Zero => f.write_str("a buffer needs at least one page"),
            BuildError::TooLong { pages } => {
                write!(
                    f,
                    "a buffer of {pages} pages: more than 2^40 are not modelled"
                )
            }
            BuildError::PageSize { page } => write!(
                f,
                "a base page of {page} bytes: it has to be a power of two from 4 KiB to 256 KiB"
            ),
            BuildError::NoBasePage { smallest, page } => write!(
                f,
                "the device's smallest page has {smallest} bytes and cannot map a base page of {page} bytes"
            ),
            BuildError::Orders => {
                f.write_str("orders have to go down from at most 10, and to end with 0")
            }
        }
    }
}

impl core::error::Error for BuildError {}
