use alloc::vec;
use alloc::vec::Vec;

use super::buffer::Buffer;
use super::{BuildError, Built, Effort, LARGEST, Request, Source};

const K64: u64 = 1 << 16;
const M1: u64 = 1 << 20;
const M2: u64 = 1 << 21;

/// Orders to go down, and never back up: the next one is for good as soon as one failed or is more than
/// what is left. Order 0 is tried as hard as can be ([`Effort::Must`]).
///
/// Robin Murphy's change of the second mail from him in mail 001 ("once allocation fails at a given order
/// that's going to remain the case in the near future"); with orders 9, 8, 4 and 0 it is what landed in
/// `arch/arm/mm/dma-mapping.c` (4.6; read in 6.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    /// Descending, from at most 10; the last is 0.
    pub orders: Vec<u32>,
    /// How hard the orders above 0 are tried.
    pub effort: Effort,
}

impl Steps {
    /// Single pages only: Doug Anderson's first patch.
    pub(super) fn single() -> Steps {
        Steps {
            orders: vec![0],
            effort: Effort::NoRetry,
        }
    }

    /// Every order from `from` on.
    pub(super) fn all_from(from: u32) -> Steps {
        Steps {
            orders: (0..=from).rev().collect(),
            effort: Effort::NoRetry,
        }
    }

    /// Every order there is.
    pub(super) fn all() -> Steps {
        Steps::all_from(LARGEST)
    }

    /// Every order from 64 KiB on: Marek Szyprowski's proposal.
    pub(super) fn from_64k(request: &Request) -> Steps {
        Steps::all_from(request.order_of(K64))
    }

    /// 2 MiB, 1 MiB, 64 KiB, one base page: Robin Murphy's list, Linux's `iommu_order_array`. There it is
    /// the constant {9, 8, 4, 0}; here the orders are those of the sizes, so that it means the same with
    /// larger base pages.
    pub(super) fn list(request: &Request, effort: Effort) -> Steps {
        let mut orders: Vec<u32> = [M2, M1, K64]
            .iter()
            .map(|&size| request.order_of(size))
            .collect();
        orders.push(0);
        orders.dedup();
        Steps { orders, effort }
    }

    /// Builds a buffer.
    ///
    /// # Errors
    /// [`BuildError::Orders`], those of a request that makes no sense, and [`BuildError::Exhausted`].
    pub fn build(&self, request: &Request, source: &mut dyn Source) -> Result<Built, BuildError> {
        request.check()?;
        let descending = self.orders.windows(2).all(|pair| pair[0] > pair[1]);
        let ends = (self.orders.first(), self.orders.last());
        let (Some(&first), Some(0)) = ends else {
            return Err(BuildError::Orders);
        };
        if !descending || first > LARGEST {
            return Err(BuildError::Orders);
        }
        let mut buffer = Buffer::new(request.pages, source);
        for &order in &self.orders {
            let effort = if order == 0 {
                Effort::Must
            } else {
                self.effort
            };
            while buffer.left() >> order > 0 && buffer.allocate(order, effort) {}
        }
        if buffer.left() > 0 {
            return Err(buffer.exhausted());
        }
        Ok(buffer.done())
    }
}
