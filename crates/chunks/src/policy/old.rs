//! Arm until 4.6 changed it (`landed`): for every chunk all orders again, from the largest that is not more
//! than what is left.
//!
//! `arch/arm/mm/dma-mapping.c`, `__iommu_alloc_buffer`, as mail 001's first patch removes it.
//! Where nothing is contiguous, a buffer of n pages makes the sum of floor(log2 i) + 1 over i = 1..n tries.

use super::buffer::Buffer;
use super::{BuildError, Built, Effort, Request, Source};

pub(super) fn build(request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
    let mut buffer = Buffer::new(request.pages, source);
    while buffer.left() > 0 {
        let mut large = (1..=buffer.largest()).rev();
        let taken = large.any(|order| buffer.allocate(order, Effort::NoRetry));
        if !taken && !buffer.allocate(0, Effort::Must) {
            return Err(buffer.exhausted());
        }
    }
    Ok(buffer.done())
}
