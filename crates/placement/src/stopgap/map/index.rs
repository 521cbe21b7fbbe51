//! The index of short holes by class: what comes into it, what leaves it, and searches in it.

use super::super::class::class_of;
use super::super::tile::{above, below, leaf_of, word_bit};
use super::descent::Short;
use super::{Hole, Map, Place, TILE_END, UNKNOWN, bit_of, highest, lowest, slot, tile_number};

impl Map {
    /// The index gets a hole.
    #[inline]
    pub(super) fn add(&mut self, hole: Hole) {
        let at = self.make_place(hole.start); // exists: it starts there
        self.add_at(hole, at);
    }

    /// As [`Map::add`], where the hole is known to start.
    #[inline]
    pub(super) fn add_at(&mut self, hole: Hole, at: Place) {
        self.tiles[at.tile].set_length(at.bit, hole.pages());
        if hole.is_long() {
            return self.add_long(hole, at);
        }
        let class = class_of(hole.pages());
        if self.top[class].start <= hole.start {
            self.top[class] = hole;
        }
        self.nonempty.insert(class);
        if hole.start >= self.zone {
            self.near.insert(class);
        }
        self.holes[class] += 1;
        let tile = &mut self.tiles[at.tile];
        let had = tile.by_class[class];
        tile.by_class[class] = had | 1 << leaf_of(at.bit);
        if had == 0 {
            let (number, parent) = (tile.number, tile.parent);
            let word = &mut self.nodes[parent as usize].by_class[class];
            let had = *word;
            *word |= 1 << slot(number, 1);
            if had == 0 {
                self.add_above_node(number, parent, class);
            }
        }
    }

    #[inline(never)]
    pub(super) fn add_above_node(&mut self, number: u32, node: u32, class: usize) {
        let mut node = self.nodes[node as usize].parent;
        for level in 2..=self.levels {
            let here = &mut self.nodes[node as usize];
            let had = here.by_class[class];
            here.by_class[class] |= 1 << slot(number, level);
            self.propagated += 1;
            if had != 0 {
                return;
            }
            node = here.parent;
        }
    }

    /// The index loses a hole, which is still in the bits.
    #[inline]
    pub(super) fn remove(&mut self, hole: Hole) {
        let at = self.make_place(hole.start); // exists: it starts there
        self.remove_at(hole, at);
    }

    /// As [`Map::remove`], where the hole is known to start.
    #[inline]
    pub(super) fn remove_at(&mut self, hole: Hole, at: Place) {
        if hole.is_long() {
            return self.remove_long(hole.pages(), at);
        }
        let class = class_of(hole.pages());
        self.holes[class] -= 1;
        if self.holes[class] == 0 {
            self.nonempty.remove(class);
            self.near.remove(class);
            self.top[class] = UNKNOWN;
        } else {
            if self.top[class].start == hole.start {
                self.top[class].end = 0;
            }
            if self.leaf_has_another(at, class) {
                return;
            }
        }
        self.tiles[at.tile].by_class[class] &= !(1 << leaf_of(at.bit));
    }

    /// Whether a hole of `class` starts in the leaf of `at` beside the one there.
    #[inline]
    pub(super) fn leaf_has_another(&self, at: Place, class: usize) -> bool {
        let leaf = leaf_of(at.bit);
        let words = self.tiles[at.tile].candidates(leaf, class);
        for (word, mut left) in words.into_iter().enumerate() {
            while left != 0 {
                let bit = word_bit(leaf, word) + left.trailing_zeros();
                left &= left - 1;
                let tile = at.tile;
                if bit != at.bit && self.is_hole_of(Place { tile, bit }, class) {
                    return true;
                }
            }
        }
        false
    }

    /// The topmost hole of `class` that starts in a leaf, before bit `before` of the tile: its bit.
    #[inline]
    pub(super) fn topmost_in_leaf(
        &self,
        tile: usize,
        leaf: usize,
        class: usize,
        before: u32,
    ) -> Option<u32> {
        let words = self.tiles[tile].candidates(leaf, class);
        for word in [1, 0] {
            let mut left = words[word];
            while left != 0 {
                let bit = word_bit(leaf, word) + 63 - left.leading_zeros();
                left ^= 1 << (bit % 64);
                if self.is_hole_of(Place { tile, bit }, class) && bit < before {
                    return Some(bit);
                }
            }
        }
        None
    }

    /// The lowest hole of `class` that starts in a leaf, from bit `from` of the tile on: its bit.
    #[inline]
    pub(super) fn lowest_in_leaf(
        &self,
        tile: usize,
        leaf: usize,
        class: usize,
        from: u32,
    ) -> Option<u32> {
        let words = self.tiles[tile].candidates(leaf, class);
        for word in [0, 1] {
            let mut left = words[word];
            while left != 0 {
                let bit = word_bit(leaf, word) + left.trailing_zeros();
                left &= left - 1;
                if self.is_hole_of(Place { tile, bit }, class) && bit >= from {
                    return Some(bit);
                }
            }
        }
        None
    }

    /// Whether the hole at `at` is of `class`, and not the victim.
    #[inline]
    pub(super) fn is_hole_of(&self, at: Place, class: usize) -> bool {
        if self.page(at) == self.victim.start {
            return false;
        }
        self.length(at) == class as u64 + 1
    }

    #[inline]
    pub(super) fn hole(&self, tile: usize, bit: u32) -> Hole {
        let at = Place { tile, bit };
        let start = self.page(at);
        let end = start + self.length(at);
        Hole { start, end }
    }

    /// The packed zone begins at `zone` now. Holes that come into it because it has grown by more than
    /// `much` are noticed.
    #[inline]
    pub(in crate::stopgap) fn move_zone(&mut self, zone: u64, much: u64) {
        self.zone = zone;
        self.near_from = self.near_from.max(zone);
        if zone + much < self.near_from {
            self.near = self.nonempty;
            self.near_from = zone;
        }
    }

    /// The topmost hole of `class`, if it starts at page `least` or above.
    #[inline]
    pub(in crate::stopgap) fn topmost(&mut self, class: usize, least: u64) -> Option<Hole> {
        let top = self.top[class];
        if top.start < least {
            return None;
        }
        if top.end != 0 {
            return Some(top);
        }
        self.lower_top(class, least)
    }

    /// As [`Map::topmost`], where the one that was is gone.
    pub(super) fn lower_top(&mut self, class: usize, least: u64) -> Option<Hole> {
        let tile = self.top_tile(class)?;
        let leaf = highest(self.tiles[tile].by_class[class]);
        let bit = self.topmost_in_leaf(tile, leaf, class, TILE_END)?;
        let hole = self.hole(tile, bit);
        self.top[class] = hole;
        (hole.start >= least).then_some(hole)
    }

    /// The topmost tile with a hole of `class`.
    #[inline]
    pub(super) fn top_tile(&mut self, class: usize) -> Option<usize> {
        let number = tile_number(self.top[class].start);
        let mut node = None;
        if let Some(tile) = self.tile(number) {
            let here = &self.tiles[tile];
            if here.by_class[class] != 0 {
                return Some(tile);
            }
            // It is not above; most often it is near.
            node = Some(here.parent);
        }
        if let Some(node) = node {
            let here = &mut *self.nodes[node as usize];
            let word = &mut here.by_class[class];
            *word &= !above(slot(number, 1));
            while *word != 0 {
                let at = highest(*word);
                let tile = here.child[at] as usize;
                if self.tiles[tile].by_class[class] != 0 {
                    return Some(tile);
                }
                *word ^= 1 << at;
            }
        }
        self.descend(Short(class), u32::MAX, true)
    }

    /// The topmost hole of `class` that starts before `page`.
    pub(in crate::stopgap) fn last_before(&mut self, class: usize, page: u64) -> Option<Hole> {
        let last = page.checked_sub(1)?;
        let number = tile_number(last);
        if last >= self.top[class].start {
            // The usual case: the limit is above all there is.
            return self.topmost(class, 0);
        }
        let tile = self.descend(Short(class), number, true)?;
        if self.tiles[tile].number == number {
            let before = bit_of(last) + 1;
            if let Some(hole) = self.topmost_before(tile, class, before) {
                return Some(hole);
            }
            let tile = self.descend(Short(class), number.checked_sub(1)?, true)?;
            return self.topmost_before(tile, class, TILE_END);
        }
        self.topmost_before(tile, class, TILE_END)
    }

    pub(super) fn topmost_before(&self, tile: usize, class: usize, before: u32) -> Option<Hole> {
        let leaves = self.tiles[tile].by_class[class];
        let leaf = leaf_of(before - 1);
        if leaves >> leaf & 1 == 1
            && let Some(bit) = self.topmost_in_leaf(tile, leaf, class, before)
        {
            return Some(self.hole(tile, bit));
        }
        let earlier = leaves & below(leaf);
        if earlier == 0 {
            return None;
        }
        let bit = self.topmost_in_leaf(tile, highest(earlier), class, TILE_END)?;
        Some(self.hole(tile, bit))
    }

    /// The lowest hole of `class` that starts at `page` or later.
    pub(in crate::stopgap) fn first_from(&mut self, class: usize, page: u64) -> Option<Hole> {
        let number = tile_number(page);
        let tile = self.descend(Short(class), number, false)?;
        if self.tiles[tile].number == number {
            if let Some(hole) = self.lowest_from(tile, class, bit_of(page)) {
                return Some(hole);
            }
            if number >= tile_number(self.pages) {
                return None;
            }
            let tile = self.descend(Short(class), number + 1, false)?;
            return self.lowest_from(tile, class, 0);
        }
        self.lowest_from(tile, class, 0)
    }

    pub(super) fn lowest_from(&self, tile: usize, class: usize, from: u32) -> Option<Hole> {
        let leaves = self.tiles[tile].by_class[class];
        let leaf = leaf_of(from);
        if leaves >> leaf & 1 == 1
            && let Some(bit) = self.lowest_in_leaf(tile, leaf, class, from)
        {
            return Some(self.hole(tile, bit));
        }
        let later = leaves & above(leaf);
        if later == 0 {
            return None;
        }
        let bit = self.lowest_in_leaf(tile, lowest(later), class, 0)?;
        Some(self.hole(tile, bit))
    }
}
