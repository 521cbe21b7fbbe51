use crate::machine::OrderIndex;

/// A block of the buddy system: 2^order pages from `frame` on, which is a multiple of 2^order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Number of its first page frame.
    pub frame: u64,
    /// It is 2^order base pages.
    pub order: u32,
}

/// The blocks that `pages` free pages from frame `start` on lie in, in the order of their frames:
/// each the largest that its alignment, the rest of the run and `most` allow. This is what is
/// left where every two free buddies below order `most` have been joined (`mm/page_alloc.c`,
/// `__free_one_page()`, Linux 6.12).
pub fn blocks_in(start: u64, pages: u64, most: u32) -> impl Iterator<Item = Block> {
    let end = start.saturating_add(pages);
    let mut frame = start;
    std::iter::from_fn(move || {
        let left = end.checked_sub(frame).filter(|&left| left > 0)?;
        let order = frame.trailing_zeros().min(left.ilog2()).min(most);
        let block = Block { frame, order };
        frame += 1 << order; // at most `left` more
        Some(block)
    })
}

/// The unusable-free-space index of each order, of free blocks by order, starting at order 0: the share of
/// the free pages that are in blocks smaller than the order; 1 where nothing is free.
///
/// `index = (free pages - sum over k >= order of blocks(k) * 2^k) / free pages`, as
/// `unusable_free_index()` of `mm/vmstat.c` computes it for one zone. Exact while there are fewer
/// than 2^53 free pages.
#[must_use]
pub fn unusable_index(free_blocks: &[u64]) -> Vec<OrderIndex> {
    // Suffix sums from the top, so that order 0, of which all free memory is usable, is an
    // exact 0.
    let mut usable = vec![0.0; free_blocks.len() + 1];
    let mut size = 2f64.powi(i32::try_from(free_blocks.len()).unwrap_or(i32::MAX));
    for order in (0..free_blocks.len()).rev() {
        size /= 2.0;
        usable[order] = usable[order + 1] + free_blocks[order] as f64 * size;
    }
    let free = usable[0];
    let index = |usable: f64| {
        if free > 0.0 {
            (free - usable) / free
        } else {
            1.0
        }
    };
    let orders = 0u32..;
    let of_each = orders.zip(&usable[..free_blocks.len()]);
    of_each
        .map(|(order, &usable)| OrderIndex {
            order,
            index: index(usable),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders(start: u64, pages: u64, most: u32) -> Vec<(u64, u32)> {
        let blocks = blocks_in(start, pages, most);
        blocks.map(|block| (block.frame, block.order)).collect()
    }

    /// ```text
    /// frame   0   4   8   12  16  20
    ///         |   |   |   |   |   |
    /// free      .......................    2 to 25
    /// blocks    [][--][------][------][]
    /// ```
    #[test]
    fn a_run_is_cut_at_its_alignment() {
        assert_eq!(orders(2, 24, 3), [(2, 1), (4, 2), (8, 3), (16, 3), (24, 1)]);
        assert_eq!(orders(8, 16, 10), [(8, 3), (16, 3)]);
        assert_eq!(
            orders(0, 4096, 10),
            [(0, 10), (1024, 10), (2048, 10), (3072, 10)]
        );
        assert!(orders(7, 0, 10).is_empty());
        assert_eq!(orders(u64::MAX - 1, 5, 10), [(u64::MAX - 1, 0)]);
    }

    /// Frees one page after the other and joins free buddies, as the kernel does.
    fn buddy_system(start: u64, pages: u64, most: u32) -> Vec<(u64, u32)> {
        let mut free = std::collections::BTreeSet::new();
        for page in start..start + pages {
            let (mut frame, mut order) = (page, 0);
            while order < most && free.remove(&(frame ^ (1 << order), order)) {
                frame &= !(1 << order);
                order += 1;
            }
            free.insert((frame, order));
        }
        free.into_iter().collect()
    }

    proptest! {
        #[test]
        fn blocks_are_those_of_a_buddy_system(
            start in 0u64..5_000, pages in 0u64..5_000, most in 0u32..=11,
        ) {
            prop_assert_eq!(orders(start, pages, most), buddy_system(start, pages, most));
        }
    }

    #[test]
    #[allow(clippy::float_cmp)] // powers of two: exact
    fn an_order_can_use_blocks_of_its_size_and_larger() {
        let index = |blocks: &[u64]| -> Vec<f64> {
            unusable_index(blocks).iter().map(|one| one.index).collect()
        };
        assert_eq!(index(&[8, 0, 2]), [0.0, 0.5, 0.5]);
        assert_eq!(index(&[0, 0]), [1.0, 1.0]);
        assert_eq!(index(&[4, 0]), [0.0, 1.0]);
        assert!(index(&[]).is_empty());
    }
}
