//! Freeing.

use super::words::{BLOCK_ORDER, MAX_ORDER, Use};
use super::{Buddy, BuddyError, Cell};

impl Buddy {
    /// Frees the block of `order` at `frame`. Its pages must be used; they need not have been taken at once.
    ///
    /// As long as the buddy, at `frame` XOR 2^order, is a free block of the same order, the two become one of the next
    /// order (`__free_one_page`); that one is put first on the list of its migrate type. A block of order 10 is freed as two
    /// of order 9 (`split_large_buddy`), and where blocks of 2 MiB of two types become one of 4 MiB, the type of
    /// the one that was freed last is that of both. O(2^order) for the pages' bytes, O(orders) for the lists.
    ///
    /// # Errors
    /// [`BuddyError::Order`], [`BuddyError::Unaligned`], [`BuddyError::Beyond`], [`BuddyError::IsFree`],
    /// [`BuddyError::IsHole`] of the first page that is so; nothing was changed then.
    pub fn free(&mut self, frame: u64, order: u32) -> Result<(), BuddyError> {
        if order > MAX_ORDER {
            return Err(BuddyError::Order { order });
        }
        let place = self.frame(frame)?;
        if !frame.is_multiple_of(1 << order) {
            return Err(BuddyError::Unaligned { frame, order });
        }
        // It cannot leave 64 bits: `frame` is in the memory.
        self.frame(frame + (1 << order) - 1)
            .map_err(|_| BuddyError::Beyond {
                frame: self.pages(),
                pages: self.pages(),
            })?;
        let mut given = [0; Use::ALL.len()];
        for page in place..place + (1 << order) {
            let frame = u64::from(page);
            match self.cells.get(page).usage() {
                None => return Err(BuddyError::IsFree { frame }),
                Some(Use::Hole) => return Err(BuddyError::IsHole { frame }),
                Some(of) => given[of as usize] += 1,
            }
        }
        for (used, given) in self.used.iter_mut().zip(given) {
            *used -= given;
        }
        self.cells.fill(place, 1 << order, Cell::INSIDE);
        let each = order.min(BLOCK_ORDER);
        for part in (place..place + (1 << order)).step_by(1 << each) {
            self.coalesce(part, each);
        }
        Ok(())
    }

    /// Puts the block of `order` at `frame`, which is on no list, where it belongs.
    fn coalesce(&mut self, mut frame: u32, mut order: u32) {
        let mobility = self.mobility(frame);
        while order < MAX_ORDER {
            let buddy = frame ^ (1 << order);
            // A buddy that begins in the memory and is a free block is all in it.
            if buddy >= self.cells.len() {
                break;
            }
            match self.cells.get(buddy).heads() {
                Some((free, _)) if free == order => self.remove(buddy),
                _ => break,
            };
            if order >= BLOCK_ORDER {
                self.note_mobility(buddy, order, mobility);
            }
            frame &= !(1 << order);
            order += 1;
        }
        self.insert(frame, order, mobility);
    }
}
