//! Ranges taken from holes and given back, and the victim.

use super::{Hole, Map, NO_VICTIM, Place, Start, TILE_END};

impl Map {
    /// A hole ends before the boundary at `at`.
    #[inline]
    pub(super) fn mark_end(&mut self, at: Place) {
        if at.bit > 0 {
            self.tiles[at.tile].hole.set(at.bit - 1);
        }
    }

    /// Takes the last `pages` of the victim, which has as many: their start.
    #[inline]
    pub(in crate::stopgap) fn take_from_victim(&mut self, pages: u64) -> u64 {
        let start = self.victim.end - pages;
        self.floor = self.floor.min(start);
        let after = self.make_place(self.victim.end);
        self.cut(self.victim, start, self.victim.end, after);
        self.victim.end = start;
        if start == self.victim.start {
            self.victim = NO_VICTIM;
        }
        start
    }

    /// Takes the pages `start..end` of the victim. The index gets what is left on the shorter side.
    pub(in crate::stopgap) fn take_within_victim(&mut self, start: u64, end: u64) {
        let hole = self.victim;
        self.floor = self.floor.min(start);
        let after = self.make_place(end);
        self.cut(hole, start, end, after);
        let below = Hole { end: start, ..hole };
        let above = Hole { start: end, ..hole };
        // The longer rest stays the victim.
        let (longer, shorter) = if above.pages() > below.pages() {
            (above, below)
        } else {
            (below, above)
        };
        self.victim = if longer.pages() > 0 {
            longer
        } else {
            NO_VICTIM
        };
        if shorter.pages() > 0 {
            self.add(shorter);
        }
    }

    /// Takes the last `pages` of a hole that the index has: their start. What is left is the victim, if that
    /// was no longer.
    #[inline]
    pub(in crate::stopgap) fn take_top(&mut self, hole: Hole, pages: u64) -> u64 {
        let at = self.make_place(hole.start); // exists: it starts there
        self.take_top_at(hole, at, pages)
    }

    /// As [`Map::take_top`], where the hole is known to start.
    #[inline]
    pub(in crate::stopgap) fn take_top_at(&mut self, hole: Hole, at: Place, pages: u64) -> u64 {
        let start = hole.end - pages;
        self.floor = self.floor.min(start);
        self.remove_at(hole, at);
        let after = self.near(hole.end, at); // exists: something starts there
        self.cut(hole, start, hole.end, after);
        if start > hole.start {
            let left = Hole { end: start, ..hole };
            // The longer one stays the victim: what goes to no hole is cut from it, at the top.
            if self.victim != NO_VICTIM && self.victim.pages() > left.pages() {
                self.add_at(left, at);
            } else {
                self.retire();
                self.victim = left;
            }
        }
        start
    }

    /// Takes the pages `start..end` of a hole that the index has. What is left on either side the index gets.
    pub(in crate::stopgap) fn take(&mut self, hole: Hole, start: u64, end: u64) {
        if hole.end == self.floor {
            self.floor = start;
        }
        self.remove(hole);
        let after = self.make_place(end);
        self.cut(hole, start, end, after);
        if hole.start < start {
            self.add(Hole { end: start, ..hole });
        }
        if end < hole.end {
            self.add(Hole { start: end, ..hole });
        }
    }

    /// Gives the index the victim, because searches must find all holes there.
    #[inline]
    pub(in crate::stopgap) fn retire(&mut self) {
        if self.victim != NO_VICTIM {
            self.add(self.victim);
            self.victim = NO_VICTIM;
        }
    }

    /// Makes a range of the pages `start..end` of a hole; `after` is the place of `end`. Changes nothing but the bits, the
    /// range's length and the count of pages.
    ///
    /// ```text
    /// before   |. . . . . . . .|
    /// after    |. .|R R R|. . .|     either side may be empty
    /// ```
    #[inline(always)]
    fn cut(&mut self, hole: Hole, start: u64, end: u64, after: Place) {
        self.taken += end - start;
        if end < hole.end {
            let tile = &mut self.tiles[after.tile];
            tile.set_cut(after.bit);
            tile.hole.set(after.bit);
        } else if after.bit > 0 {
            self.tiles[after.tile].hole.clear(after.bit - 1);
        }
        let used = self.near(start, after);
        let tile = &mut self.tiles[used.tile];
        tile.set_length(used.bit, end - start);
        if start == hole.start {
            tile.hole.clear(used.bit);
        } else {
            tile.set_cut(used.bit);
            if used.bit > 0 {
                tile.hole.set(used.bit - 1);
            }
        }
    }

    /// Makes a hole of the range `start..end`, which is at `at`, joining it with the holes beside it.
    ///
    /// ```text
    /// before   |. .|R R R|. . .|     either side may be a range
    /// after    |. . . . . . . .|
    /// ```
    #[inline(always)]
    pub(in crate::stopgap) fn give(&mut self, start: u64, end: u64, at: Place) {
        self.taken -= end - start;
        let mut hole = Hole { start, end };
        let mut first = at;
        let mut victim = false;
        let next = self.near(end, at); // exists: something starts there
        if self.tiles[next.tile].hole.get(next.bit) {
            if end == self.victim.start {
                hole.end = self.victim.end;
                victim = true;
            } else {
                hole.end = end + self.length(next);
                self.remove_at(Hole { start: end, ..hole }, next);
            }
            let tile = &mut self.tiles[next.tile];
            tile.clear_cut(next.bit);
            if hole.end - end > 1 || next.bit == TILE_END - 1 {
                tile.hole.clear(next.bit);
            }
            if tile.occupied == 0 {
                self.drop_tile(next.tile);
            }
        }
        let hole_below = if at.bit > 0 {
            self.tiles[at.tile].hole.get(at.bit - 1)
        } else {
            self.hole_ends_at(start)
        };
        if hole_below {
            if start == self.victim.end {
                hole.start = self.victim.start;
                victim = true;
            } else if let Some((below, place)) = self.previous_to(at) {
                hole.start = below;
                first = place;
                self.remove_at(
                    Hole {
                        start: below,
                        end: start,
                    },
                    place,
                );
            }
            let tile = &mut self.tiles[at.tile];
            tile.clear_cut(at.bit);
            if at.bit > 0 && start - hole.start > 1 {
                tile.hole.clear(at.bit - 1);
            }
            if tile.occupied == 0 {
                self.drop_tile(at.tile);
            }
        } else {
            self.tiles[at.tile].hole.set(at.bit);
        }
        if hole.start <= self.floor && self.floor < hole.end {
            self.floor = hole.end;
        }
        if hole.end == end {
            // Not before: of a single page it would make a hole that no one knows.
            self.mark_end(next);
        }
        if victim {
            self.victim = hole;
        } else {
            self.add_at(hole, first);
        }
    }

    /// Makes two ranges of the one from `start` to `end`, which has `page`, not as its first.
    pub(in crate::stopgap) fn divide(&mut self, start: u64, page: u64, end: u64) {
        let at = self.make_place(page);
        self.tiles[at.tile].set_cut(at.bit);
        self.tiles[at.tile].set_length(at.bit, end - page);
        let first = self.make_place(start);
        self.tiles[first.tile].set_length(first.bit, page - start);
    }

    /// Whether a hole ends at `page`, the first of a tile.
    #[cold]
    pub(super) fn hole_ends_at(&mut self, page: u64) -> bool {
        let before = self.previous(page);
        before.is_some_and(|(_, at)| self.start(at) == Some(Start::Hole))
    }
}
