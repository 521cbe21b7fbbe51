//! Whether the memory has enough left, and how much of it is of use.

use super::Buddy;
use super::words::ORDERS;

impl Buddy {
    /// The test of 3.4 and 3.14 (`__zone_watermark_ok`) for a request of `order` against a watermark of `min` free
    /// pages and a `reserve` that is kept from requests which may have a higher zone (`lowmem_reserve`): what would be
    /// left must exceed both together, and for each lower order, what would be left without that order's blocks and
    /// those below must exceed `min` halved as often. So the reserve holds back pages, but no large blocks.
    ///
    /// It says no of an order above 10. O(orders).
    #[must_use]
    pub fn watermark_ok_3_4(&self, order: u32, min: u64, reserve: u64) -> bool {
        let Some(mut left) = self.left(order, min.saturating_add(reserve)) else {
            return false;
        };
        let mut min = i128::from(min);
        for lower in 0..order {
            left -= i128::from(self.free_blocks(lower) << lower);
            min >>= 1;
            if left <= min {
                return false;
            }
        }
        true
    }

    /// The test of 6.12 (so since 4.4): what would be left must exceed `min` and `reserve`, and some free block must be
    /// large enough.
    ///
    /// It says no of an order above 10. O(orders).
    #[must_use]
    pub fn watermark_ok_6_12(&self, order: u32, min: u64, reserve: u64) -> bool {
        self.left(order, min.saturating_add(reserve)).is_some()
            && (order == 0 || (order..ORDERS as u32).any(|o| self.free_blocks(o) > 0))
    }

    /// What both ask first: free pages less 2^order - 1; `None` where that does not exceed `min`.
    fn left(&self, order: u32, min: u64) -> Option<i128> {
        if order as usize >= ORDERS {
            return None;
        }
        let left = i128::from(self.free_pages()) - ((1 << order) - 1);
        (left > i128::from(min)).then_some(left)
    }

    /// The share of the free pages that is in blocks smaller than `order`, 0 to 1: the *unusable index* (Gorman and
    /// Whitcroft 2005; `extfrag/unusable_index` in debugfs, there in thousandths). `None` with nothing free.
    #[must_use]
    pub fn unusable_index(&self, order: u32) -> Option<f64> {
        let free = self.free_pages();
        if free == 0 {
            return None;
        }
        let lower = 0..order.min(ORDERS as u32);
        let unusable: u64 = lower.map(|o| self.free_blocks(o) << o).sum();
        Some(unusable as f64 / free as f64)
    }
}
