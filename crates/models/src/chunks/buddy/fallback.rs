//! Serves a request when its own migrate type has nothing left.

use super::words::{BLOCK_ORDER, BLOCK_PAGES, MAX_ORDER, Mobility, ORDERS};
use super::{Buddy, Piece};

/// Requests that the other migrate type's pages had to serve (the kernel's trace point `mm_page_alloc_extfrag`).
///
/// The rule is that of Linux 6.12, `__rmqueue_fallback` and `steal_suitable_fallback`; a page of the
/// other type comes from its *largest* free block, newest first:
///
/// * A block of order 9 or 10: its 2 MiB blocks change their type, and what is not taken is free under the new one.
/// * A smaller one, and the request is unmovable, or the free block is of order 4 (half of 9, rounded down) or above:
///   if at least 256 of the 2 MiB block's 512 pages are free or *alike* (for a movable request, those that are movable;
///   for an unmovable one, those used pages that are not), the 2 MiB block changes its type, its free pages
///   move to the other lists, and the request is served from these. Otherwise only the piece is taken, and what is
///   split off it stays where it was. So it is for a 2 MiB block of which the memory has only a part, too.
/// * A smaller one of order below 4, and the request is movable: no change of type; the *smallest* free block that suffices
///   is split, because movable pages in a foreign block do no lasting harm.
///
/// By the rule of 3.14 ([`Buddy::of_3_14`]; `try_to_steal_freepages`, and `expand` with the type that it answers) the
/// middle case asks for order 4 for all requests, counts only the free pages, and moves these even where the 2 MiB block
/// keeps its type, all but what is split off the piece; the last case takes the largest. In 3.4 what is split off goes
/// to the lists of the request's type, too; here it does not.
///
/// When pages move, 6.12 appends them to the other lists, lowest first; here they are put first on them, lowest
/// first: the same for the request at hand, because all lists that could serve it were empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fallbacks {
    /// Those for which 2 MiB blocks changed their type.
    pub claimed: u64,
    /// Those for which only the piece was taken.
    pub pieces: u64,
}

impl Buddy {
    /// A block of `order` for `mobility` from the other type's, off all lists.
    pub(super) fn fallback(&mut self, order: u32, mobility: Mobility) -> Option<u32> {
        let other = mobility.fallback()?;
        let has = |o: &u32| self.free_blocks_of(*o, other) > 0;
        let largest = (order..ORDERS as u32).rev().find(has)?;
        let whole = largest >= BLOCK_ORDER / 2 || mobility == Mobility::Unmovable && !self.old;
        let from = if whole || self.old {
            largest
        } else {
            (order..=largest).find(has)?
        };
        let frame = self.first(from, other)?;
        if from >= BLOCK_ORDER {
            self.fallbacks.claimed += 1;
            self.remove(frame);
            self.note_mobility(frame, from, mobility);
            self.expand(frame, from, order, mobility);
            return Some(frame);
        }
        let claimed = whole && self.is_claimable(frame, mobility);
        if claimed && !self.old {
            self.fallbacks.claimed += 1;
            self.change_block(frame, mobility);
            return self.smallest(order, mobility);
        }
        if self.old && whole && block_of(frame).end <= self.pages() {
            self.move_block(frame, mobility);
            self.remove(frame);
            if claimed {
                self.fallbacks.claimed += 1;
                self.note_mobility(frame, 0, mobility);
            } else {
                self.fallbacks.pieces += 1;
            }
            self.expand(frame, from, order, self.mobility(frame));
            return Some(frame);
        }
        self.fallbacks.pieces += 1;
        self.split_first(from, order, other)
    }

    /// Whether enough of the 2 MiB block around `frame`, of the other type, is free or alike.
    fn is_claimable(&self, frame: u32, mobility: Mobility) -> bool {
        let block = block_of(frame);
        if block.end > self.pages() {
            return false;
        }
        let (mut free, mut movable) = (0, 0);
        for piece in self.walk(block) {
            match piece {
                Piece::Free { order, .. } => free += 1 << order,
                Piece::Used { of, .. } => movable += u64::from(of.counts_as_movable()),
            }
        }
        let alike = match mobility {
            _ if self.old => 0,
            Mobility::Movable => movable,
            Mobility::Unmovable | Mobility::Reserve => BLOCK_PAGES - free - movable,
        };
        free + alike >= BLOCK_PAGES / 2
    }

    /// Gives the 2 MiB block around `frame`, in which no free block is larger than itself, a migrate type, and moves its
    /// free blocks to that type's lists.
    pub(super) fn change_block(&mut self, frame: u32, mobility: Mobility) {
        if self.mobility(frame) == mobility {
            return;
        }
        self.note_mobility(frame, 0, mobility);
        self.move_block(frame, mobility);
    }

    /// Moves the free blocks of the 2 MiB block around `frame`, none of which is larger, to the lists of `mobility`.
    fn move_block(&mut self, frame: u32, mobility: Mobility) {
        let block = block_of(frame);
        let (start, mut end) = (block.start as u32, block.end.min(self.pages()) as u32);
        // From the last to the first, so that the lowest is the first of its list.
        while end > start {
            end -= 1;
            if let Some((order, _)) = self.cells.get(end).heads() {
                debug_assert!(order <= MAX_ORDER.min(BLOCK_ORDER));
                self.remove(end);
                self.insert(end, order, mobility);
            }
        }
    }
}

/// The frames of the 2 MiB block around `frame`; the memory may end before it does.
fn block_of(frame: u32) -> std::ops::Range<u64> {
    let start = u64::from(frame >> BLOCK_ORDER << BLOCK_ORDER);
    start..start + BLOCK_PAGES
}
