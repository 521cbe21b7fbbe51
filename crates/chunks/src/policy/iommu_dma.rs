//! `iommu-dma` since Linux 4.7: only orders that are pages of the IOMMU, each until it fails for the first
//! time.
//!
//! Linux 6.12 `drivers/iommu/dma-iommu.c`, `__iommu_dma_alloc_noncontiguous` (which orders: the domain's
//! page sizes, the base page always among them, and it alone with `DMA_ATTR_ALLOC_SINGLE_PAGES`) and
//! `__iommu_dma_alloc_pages` (the mask whose bits are cleared for good by a failure, or by less being
//! left). The form of 2015 that printed the lines of mail 001's Juno example had every order, as `sticky`
//! has.
//!
//! Where nothing is smaller than the lowest order in the mask, it is tried as hard as can be: that is order
//! 0 here, because a request whose IOMMU cannot map a base page is refused.

use alloc::vec::Vec;

use super::{BuildError, Built, Effort, LARGEST, Request, Source, Steps};

pub(super) fn build(request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
    if request.single_pages {
        return Steps::single().build(request, source);
    }
    let order = |size: u64| {
        size.trailing_zeros()
            .checked_sub(request.page.trailing_zeros())
    };
    let mut orders: Vec<u32> = request.sizes.iter().filter_map(order).collect();
    orders.retain(|order| (1..=LARGEST).contains(order));
    orders.reverse();
    orders.push(0);
    let effort = Effort::NoRetry;
    Steps { orders, effort }.build(request, source)
}
