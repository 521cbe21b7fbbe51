use super::{BuildError, LARGEST};
use crate::iommu::PageSizes;

const MOST_PAGES: u64 = 1 << 40;
const LEAST_PAGE: u64 = 1 << 12;
const MOST_PAGE: u64 = 1 << 18;

/// A buffer that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Base pages: 1 to 2^40.
    pub pages: u64,
    /// Bytes of a base page: a power of two from 4 KiB to 256 KiB, the range of Linux's architectures.
    pub page: u64,
    /// What the device's IOMMU can map. Smaller than the base page is no harm; at least one has to be as small.
    pub sizes: PageSizes,
    /// The driver said that large chunks do not help it: `DMA_ATTR_ALLOC_SINGLE_PAGES`.
    pub single_pages: bool,
}

impl Request {
    /// Bytes of the buffer. No overflow for a request that [`Name::build`](super::Name::build) accepts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.saturating_mul(self.page)
    }

    /// # Errors
    /// Returns the [`BuildError`] that is known before anything is allocated.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let &Request { pages, page, .. } = self;
        if pages == 0 {
            return Err(BuildError::Zero);
        }
        if pages > MOST_PAGES {
            return Err(BuildError::TooLong { pages });
        }
        if !page.is_power_of_two() || !(LEAST_PAGE..=MOST_PAGE).contains(&page) {
            return Err(BuildError::PageSize { page });
        }
        let smallest = self.sizes.smallest();
        if smallest > page {
            return Err(BuildError::NoBasePage { smallest, page });
        }
        Ok(())
    }

    /// Whether the IOMMU has a page that is larger than the base page.
    pub(super) fn maps_larger(&self) -> bool {
        self.sizes.largest() > self.page
    }

    /// The order of a chunk of `bytes`, a power of two; 0 where a base page is as large or larger.
    pub(super) fn order_of(&self, bytes: u64) -> u32 {
        let order = bytes
            .trailing_zeros()
            .saturating_sub(self.page.trailing_zeros());
        order.min(LARGEST)
    }
}
