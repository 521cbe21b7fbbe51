//! Allocating.

use super::words::{MAX_ORDER, Mobility, ORDERS, PageState, Use};
use super::{Buddy, BuddyError, Cell};

impl Buddy {
    /// Takes a block of `order` for a request of migrate type `mobility`; its pages are then used as `of`.
    /// Its first frame, or `None` where no block is left that is large enough (of an order above 10 there never
    /// is one).
    ///
    /// The smallest sufficient block of the request's own type is split, the one freed last (`__rmqueue_smallest`);
    /// the low half is kept each time and the high one returned (`expand`). Where that type has none, the other
    /// type's must serve: see [`super::Fallbacks`]; and where these have none, the reserve. No watermark is looked at.
    ///
    /// O(2^order) for the pages' bytes, O(orders) for the lists; a fallback looks at the up to 512 pages of a block.
    pub fn allocate(&mut self, order: u32, mobility: Mobility, of: Use) -> Option<u64> {
        if order > MAX_ORDER {
            return None;
        }
        let frame = self
            .smallest(order, mobility)
            .or_else(|| self.fallback(order, mobility))
            .or_else(|| self.smallest(order, Mobility::Reserve))?;
        self.cells.fill(frame, 1 << order, Cell::used(of));
        self.used[of as usize] += 1 << order;
        Some(u64::from(frame))
    }

    /// Takes the one free page at `frame`, wherever in a free block it is. The rest of that block stays free, halved
    /// around it: the halves go to the lists from the largest to the smallest (6.12: `take_page_off_buddy`).
    /// O(orders).
    ///
    /// # Errors
    /// [`BuddyError::Beyond`], [`BuddyError::IsUsed`].
    pub fn allocate_at(&mut self, frame: u64, of: Use) -> Result<(), BuddyError> {
        let place = self.frame(frame)?;
        let head = match self.state(place) {
            PageState::Used(of) => return Err(BuddyError::IsUsed { frame, of }),
            PageState::Free { head, .. } => self.frame(head)?,
        };
        let Some((_, mobility)) = self.cells.get(head).heads() else {
            unreachable!("a free page's head heads a free block");
        };
        let mut order = self.remove(head);
        while order > 0 {
            order -= 1;
            self.insert(place >> order << order ^ 1 << order, order, mobility);
        }
        self.cells.set(place, Cell::used(of));
        self.used[of as usize] += 1;
        Ok(())
    }

    /// The block of `order` from the smallest sufficient one of `mobility`, off all lists.
    pub(super) fn smallest(&mut self, order: u32, mobility: Mobility) -> Option<u32> {
        let larger = (order..ORDERS as u32).find(|&o| self.free_blocks_of(o, mobility) > 0)?;
        self.split_first(larger, order, mobility)
    }

    /// The low part of `to` of the first block of `from` and `mobility`, off all lists; the rest goes to the lists of
    /// the same type.
    pub(super) fn split_first(&mut self, from: u32, to: u32, mobility: Mobility) -> Option<u32> {
        let frame = self.first(from, mobility)?;
        self.remove(frame);
        self.expand(frame, from, to, mobility);
        Some(frame)
    }

    /// Returns the high halves of the block of `from` at `frame`, which is on no list, until `to` is left.
    pub(super) fn expand(&mut self, frame: u32, from: u32, to: u32, mobility: Mobility) {
        for order in (to..from).rev() {
            self.insert(frame + (1 << order), order, mobility);
        }
    }

    /// The first block of a list.
    pub(super) fn first(&mut self, order: u32, mobility: Mobility) -> Option<u32> {
        let head = Cell::head(order, mobility);
        self.lists[order as usize][mobility as usize].first(head, &self.cells)
    }
}
