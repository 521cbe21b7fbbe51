//! The map: where every range and every hole starts, and an index of the holes by class.
//!
//! Tiles and the nodes above them exist only where there is a boundary, so that a range of a terabyte
//! costs no more than the two tiles in which it and its neighbour start.
//!
//! ```text
//! node      by_class[c]: which of 64 children may hold a hole of class c   child[]
//!  `- node  ...
//!      `- tile  by_class[c]: in which of 64 leaves a hole of class c starts   8,192 pages
//!          `- leaf  cut, hole: a bit a page                                   128 pages
//! ```
//!
//! A tile's index is exact, and so is the number of holes of each class. A node's index is not: a bit is
//! set when a class comes, and cleared when a search follows it in vain. A class that comes and goes in one
//! tile, the common case, then costs nothing above the tile, and a bit that is set is followed in vain once
//! at most.

use alloc::vec::Vec;

use super::class::{CLASSES, Classes, class_of};
use super::tile::{TILE, Tile, above, below, leaf_of, word_bit};

const NONE: u32 = u32::MAX;
/// Children of a node.
const FAN: usize = 64;
/// Places in the table of tiles lately used.
const RECENT: usize = 512;

/// See the module.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) by_class: [u64; CLASSES],
    pub(super) child: [u32; FAN],
    /// Children that there are.
    pub(super) occupied: u64,
    pub(super) parent: u32,
}

impl Node {
    fn new(parent: u32) -> Node {
        Node {
            by_class: [0; CLASSES],
            child: [NONE; FAN],
            occupied: 0,
            parent,
        }
    }
}

/// A page's place: its tile's place in the list, and its bit in the tile.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) tile: usize,
    pub(super) bit: u32,
}

/// A hole: its first page and the one after its last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Stands for a topmost hole that is not known: none starts above page 0.
const UNKNOWN: Hole = Hole { start: 0, end: 0 };
/// Stands for no victim: it has no pages, and neither end is anywhere.
pub(super) const NO_VICTIM: Hole = Hole {
    start: u64::MAX,
    end: u64::MAX,
};

impl Hole {
    #[inline]
    pub(super) fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// What starts at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    Range,
    Hole,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Map {
    pub(super) tiles: Vec<Tile>,
    pub(super) nodes: Vec<Node>,
    /// Nodes that are not in use.
    spare: Vec<u32>,
    /// Levels of nodes; the root is node 0.
    pub(super) levels: u32,
    /// Pages in all. What starts at the page after the last is a range that is never freed, so that
    /// every hole ends at a boundary.
    pub(super) pages: u64,
    /// Classes of which there is a hole.
    pub(super) nonempty: Classes,
    /// Classes of which there may be a hole in the packed zone.
    pub(super) near: Classes,
    /// The packed zone's first page when a search last began.
    pub(super) zone: u64,
    /// The lowest page that a range from the top has; below it a hole ends.
    pub(super) floor: u64,
    /// The highest that it was since `near` last had every class.
    near_from: u64,
    /// For each class, the holes.
    pub(super) holes: [u32; CLASSES],
    /// For each class, the topmost hole. Where `end` is 0 it is gone, and no other starts above it.
    pub(super) top: [Hole; CLASSES],
    /// Tile number and its place in `tiles`, by the number's low bits.
    recent: [(u32, u32); RECENT],
    /// The hole that the index leaves out: what was left when a range was last cut from a hole. The next
    /// range is often cut from it, too, and what is freed often lies beside it; then no index changes.
    pub(super) victim: Hole,
    /// Bits of nodes set and cleared.
    pub(super) propagated: u64,
}

/// The number of a page's tile.
#[inline]
#[allow(clippy::cast_possible_truncation)] // a window has at most 2^44 pages
pub(super) fn tile_number(page: u64) -> u32 {
    (page / TILE) as u32
}

/// A page's bit in its tile.
#[inline]
#[allow(clippy::cast_possible_truncation)] // below 8,192
fn bit_of(page: u64) -> u32 {
    (page % TILE) as u32
}

/// The slot, at `level` (1: above the tiles), of the child that leads to tile `number`.
#[inline]
fn slot(number: u32, level: u32) -> usize {
    (number >> (6 * (level - 1))) as usize % FAN
}

#[inline]
fn lowest(bits: u64) -> usize {
    bits.trailing_zeros() as usize
}

#[inline]
fn highest(bits: u64) -> usize {
    63 - bits.leading_zeros() as usize
}

impl Map {
    /// One hole of `pages` pages: at least 1, at most 2^44.
    pub(super) fn new(pages: u64) -> Map {
        let mut levels = 1;
        while (TILE * FAN as u64) << (6 * (levels - 1)) <= pages {
            levels += 1;
        }
        let mut map = Map {
            tiles: Vec::new(),
            nodes: alloc::vec![Node::new(NONE)],
            spare: Vec::new(),
            levels,
            pages,
            nonempty: Classes::NONE,
            near: Classes::NONE,
            zone: 0,
            near_from: 0,
            floor: pages,
            holes: [0; CLASSES],
            top: [UNKNOWN; CLASSES],
            recent: [(NONE, 0); RECENT],
            victim: NO_VICTIM,
            propagated: 0,
        };
        let end = map.make_place(pages);
        map.tiles[end.tile].set_cut(end.bit);
        map.mark_end(end);
        let at = map.make_place(0);
        map.tiles[at.tile].set_cut(at.bit);
        map.tiles[at.tile].hole.set(at.bit);
        map.victim = Hole {
            start: 0,
            end: pages,
        };
        map
    }

    // Where a page is.

    /// Where tile `number` is, if it exists.
    #[inline]
    pub(super) fn tile(&mut self, number: u32) -> Option<usize> {
        let (known, tile) = self.recent[number as usize % RECENT];
        if known == number {
            return Some(tile as usize);
        }
        self.tile_by_descent(number)
    }

    #[cold]
    fn tile_by_descent(&mut self, number: u32) -> Option<usize> {
        let found = self.look_up(number)?;
        self.remember(number, found);
        Some(found)
    }

    #[allow(clippy::cast_possible_truncation)] // fewer tiles than tile numbers
    fn remember(&mut self, number: u32, tile: usize) {
        self.recent[number as usize % RECENT] = (number, tile as u32);
    }

    /// As [`Map::tile`], by descent alone.
    pub(super) fn look_up(&self, number: u32) -> Option<usize> {
        let mut at = 0;
        for level in (1..=self.levels).rev() {
            at = self.nodes[at as usize].child[slot(number, level)];
            if at == NONE {
                return None;
            }
        }
        Some(at as usize)
    }

    /// Where `page` is, if its tile exists.
    #[inline]
    pub(super) fn place(&mut self, page: u64) -> Option<Place> {
        let tile = self.tile(tile_number(page))?;
        let bit = bit_of(page);
        Some(Place { tile, bit })
    }

    /// What starts at a place, if something does.
    #[inline]
    pub(super) fn start(&self, at: Place) -> Option<Start> {
        let tile = &self.tiles[at.tile];
        if !tile.cut.get(at.bit) {
            None
        } else if tile.hole.get(at.bit) {
            Some(Start::Hole)
        } else {
            Some(Start::Range)
        }
    }

    /// Pages from the boundary at `at` to the next one.
    #[inline]
    pub(super) fn length(&self, at: Place) -> u64 {
        let near = self.tiles[at.tile].cut.from(at.bit) >> 1;
        if near != 0 {
            u64::from(near.trailing_zeros()) + 1
        } else {
            self.far_length(at)
        }
    }

    #[inline]
    fn far_length(&self, at: Place) -> u64 {
        match self.tiles[at.tile].next_far(at.bit) {
            Some(next) => u64::from(next - at.bit),
            None => self.length_beyond(at),
        }
    }

    #[inline(never)]
    fn length_beyond(&self, at: Place) -> u64 {
        self.after_tile(at.tile) - self.page(at)
    }

    /// The page of a place.
    #[inline]
    fn page(&self, at: Place) -> u64 {
        self.tiles[at.tile].first_page() + u64::from(at.bit)
    }

    /// The first boundary after a tile; the end of the map if there is none.
    fn after_tile(&self, tile: usize) -> u64 {
        let tile = &self.tiles[tile];
        let mut node = tile.parent;
        for level in 1..=self.levels {
            let here = &self.nodes[node as usize];
            let later = here.occupied & above(slot(tile.number, level));
            if later != 0 {
                let mut at = here.child[lowest(later)];
                for _ in 1..level {
                    let node = &self.nodes[at as usize];
                    at = node.child[lowest(node.occupied)];
                }
                let tile = &self.tiles[at as usize];
                return tile.first_page() + u64::from(tile.cut.first_in(lowest(tile.occupied)));
            }
            node = here.parent;
        }
        self.pages
    }

    /// The last boundary before `page`; `None` before page 0.
    #[inline]
    pub(super) fn previous(&mut self, page: u64) -> Option<(u64, Place)> {
        let bit = bit_of(page);
        if let Some(tile) = self.tile(tile_number(page))
            && let Some(found) = self.tiles[tile].previous(bit)
        {
            let page = page - u64::from(bit - found);
            return Some((page, Place { tile, bit: found }));
        }
        self.before_tile(tile_number(page))
    }

    /// The last boundary before tile `number`, which need not exist.
    fn before_tile(&self, number: u32) -> Option<(u64, Place)> {
        // The last child before the path to the tile, at the deepest level that has one.
        let (mut node, mut found) = (0, None);
        for level in (1..=self.levels).rev() {
            let here = &self.nodes[node as usize];
            let earlier = here.occupied & below(slot(number, level));
            if earlier != 0 {
                found = Some((level, here.child[highest(earlier)]));
            }
            node = here.child[slot(number, level)];
            if node == NONE {
                break;
            }
        }
        let (level, mut at) = found?;
        for _ in 1..level {
            let node = &self.nodes[at as usize];
            at = node.child[highest(node.occupied)];
        }
        let tile = at as usize;
        let here = &self.tiles[tile];
        let bit = here.cut.last_in(highest(here.occupied));
        Some((here.first_page() + u64::from(bit), Place { tile, bit }))
    }

    // Tiles that come and go.

    /// The place of `page`; its tile is made if it does not exist.
    #[inline]
    fn make_place(&mut self, page: u64) -> Place {
        let number = tile_number(page);
        let tile = match self.tile(number) {
            Some(tile) => tile,
            None => self.make_tile(number),
        };
        let bit = bit_of(page);
        Place { tile, bit }
    }

    #[cold]
    #[allow(clippy::cast_possible_truncation)] // fewer tiles and nodes than tile numbers
    fn make_tile(&mut self, number: u32) -> usize {
        let mut node = 0;
        for level in (2..=self.levels).rev() {
            let slot = slot(number, level);
            let mut child = self.nodes[node as usize].child[slot];
            if child == NONE {
                child = match self.spare.pop() {
                    Some(spare) => {
                        self.nodes[spare as usize] = Node::new(node);
                        spare
                    }
                    None => {
                        self.nodes.push(Node::new(node));
                        self.nodes.len() as u32 - 1
                    }
                };
                self.adopt(node, slot, child);
            }
            node = child;
        }
        if self.tiles.len() == self.tiles.capacity() {
            // By a sixteenth: doubling would waste as much memory as all the ranges need.
            self.tiles.reserve_exact(self.tiles.len() / 16 + 1);
        }
        let tile = self.tiles.len();
        self.tiles.push(Tile::new(number, node));
        self.adopt(node, slot(number, 1), tile as u32);
        self.remember(number, tile);
        tile
    }

    fn adopt(&mut self, node: u32, slot: usize, child: u32) {
        let node = &mut self.nodes[node as usize];
        node.child[slot] = child;
        node.occupied |= 1 << slot;
    }

    /// Gives tile `tile`, which has no boundary, back, and the nodes that it alone held.
    #[cold]
    #[allow(clippy::cast_possible_truncation)] // fewer tiles than tile numbers
    fn drop_tile(&mut self, tile: usize) {
        let gone = self.tiles.swap_remove(tile);
        let place = gone.number as usize % RECENT;
        if self.recent[place].0 == gone.number {
            self.recent[place].0 = NONE;
        }
        if let Some(moved) = self.tiles.get(tile) {
            let (number, parent) = (moved.number, moved.parent);
            self.nodes[parent as usize].child[slot(number, 1)] = tile as u32;
            if self.recent[number as usize % RECENT].0 == number {
                self.remember(number, tile);
            }
        }
        let mut node = gone.parent;
        for level in 1..=self.levels {
            let slot = slot(gone.number, level);
            let here = &mut self.nodes[node as usize];
            here.child[slot] = NONE;
            here.occupied &= !(1 << slot);
            for word in &mut here.by_class {
                *word &= !(1 << slot);
            }
            if here.occupied != 0 || node == 0 {
                break;
            }
            self.spare.push(node);
            node = here.parent;
        }
        if self.tiles.capacity() > self.tiles.len() + self.tiles.len() / 8 + 8 {
            self.tiles
                .shrink_to(self.tiles.len() + self.tiles.len() / 16);
        }
    }

    // The index of holes.

    /// The index gets a hole.
    #[inline]
    fn add(&mut self, hole: Hole) {
        let at = self.make_place(hole.start); // exists: it starts there
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
    fn add_above_node(&mut self, number: u32, node: u32, class: usize) {
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
    fn remove(&mut self, hole: Hole) {
        let at = self.make_place(hole.start); // exists: it starts there
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
    fn leaf_has_another(&self, at: Place, class: usize) -> bool {
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
    fn topmost_in_leaf(&self, tile: usize, leaf: usize, class: usize, before: u32) -> Option<u32> {
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
    fn lowest_in_leaf(&self, tile: usize, leaf: usize, class: usize, from: u32) -> Option<u32> {
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
    fn is_hole_of(&self, at: Place, class: usize) -> bool {
        if self.page(at) == self.victim.start {
            return false;
        }
        let near = self.tiles[at.tile].cut.from(at.bit) >> 1;
        if near != 0 {
            return near.trailing_zeros() as usize == class;
        }
        class >= 63 && class_of(self.far_length(at)) == class || self.ends_beyond(at, class)
    }

    /// Whether the hole at `at`, the last boundary in its tile, ends in another tile and is of an exact
    /// `class`, however short.
    #[cold]
    fn ends_beyond(&self, at: Place, class: usize) -> bool {
        class < 63 && class_of(self.far_length(at)) == class
    }

    #[inline]
    fn hole(&self, tile: usize, bit: u32) -> Hole {
        let at = Place { tile, bit };
        let start = self.page(at);
        let end = start + self.length(at);
        Hole { start, end }
    }

    /// The packed zone begins at `zone` now. Holes that come into it because it has grown by more than
    /// `much` are noticed.
    #[inline]
    pub(super) fn move_zone(&mut self, zone: u64, much: u64) {
        self.zone = zone;
        self.near_from = self.near_from.max(zone);
        if zone + much < self.near_from {
            self.near = self.nonempty;
            self.near_from = zone;
        }
    }

    // Changes.

    /// A hole ends before the boundary at `at`.
    #[inline]
    fn mark_end(&mut self, at: Place) {
        if at.bit > 0 {
            self.tiles[at.tile].hole.set(at.bit - 1);
        }
    }

    /// Takes the last `pages` of the victim, which has as many: their start.
    #[inline]
    pub(super) fn take_from_victim(&mut self, pages: u64) -> u64 {
        let start = self.victim.end - pages;
        self.floor = self.floor.min(start);
        self.cut(self.victim, start, self.victim.end);
        self.victim.end = start;
        if start == self.victim.start {
            self.victim = NO_VICTIM;
        }
        start
    }

    /// Takes the pages `start..end` of the victim. What is left above them the index gets.
    pub(super) fn take_within_victim(&mut self, start: u64, end: u64) {
        let hole = self.victim;
        self.floor = self.floor.min(start);
        self.cut(hole, start, end);
        self.victim = if start > hole.start {
            Hole { end: start, ..hole }
        } else {
            NO_VICTIM
        };
        if end < hole.end {
            self.add(Hole { start: end, ..hole });
        }
    }

    /// Takes the last `pages` of a hole that the index has: their start. What is left is the victim.
    #[inline]
    pub(super) fn take_top(&mut self, hole: Hole, pages: u64) -> u64 {
        let start = hole.end - pages;
        self.floor = self.floor.min(start);
        self.remove(hole);
        self.cut(hole, start, hole.end);
        if start > hole.start {
            self.retire();
            self.victim = Hole { end: start, ..hole };
        }
        start
    }

    /// Takes the pages `start..end` of a hole that the index has. What is left on either side the index gets.
    pub(super) fn take(&mut self, hole: Hole, start: u64, end: u64) {
        if hole.end == self.floor {
            self.floor = start;
        }
        self.remove(hole);
        self.cut(hole, start, end);
        if hole.start < start {
            self.add(Hole { end: start, ..hole });
        }
        if end < hole.end {
            self.add(Hole { start: end, ..hole });
        }
    }

    /// Gives the index the victim: whoever searches must find all holes there.
    #[inline]
    pub(super) fn retire(&mut self) {
        if self.victim != NO_VICTIM {
            self.add(self.victim);
            self.victim = NO_VICTIM;
        }
    }

    /// Makes a range of the pages `start..end` of a hole, in the bits alone.
    ///
    /// ```text
    /// before   |. . . . . . . .|
    /// after    |. .|R R R|. . .|     either side may be empty
    /// ```
    #[inline(always)]
    fn cut(&mut self, hole: Hole, start: u64, end: u64) {
        let after = self.make_place(end); // exists, if the hole ends there: something starts there
        if end < hole.end {
            let tile = &mut self.tiles[after.tile];
            tile.set_cut(after.bit);
            tile.hole.set(after.bit);
        } else if after.bit > 0 {
            self.tiles[after.tile].hole.clear(after.bit - 1);
        }
        let used = self.make_place(start);
        if start == hole.start {
            self.tiles[used.tile].hole.clear(used.bit);
        } else {
            self.tiles[used.tile].set_cut(used.bit);
            self.mark_end(used);
        }
    }

    /// Makes a hole of the range `start..end`, which is at `at`, joining it with the holes beside it.
    ///
    /// ```text
    /// before   |. .|R R R|. . .|     either side may be a range
    /// after    |. . . . . . . .|
    /// ```
    #[inline(always)]
    pub(super) fn give(&mut self, start: u64, end: u64, at: Place) {
        let mut at = at;
        let mut hole = Hole { start, end };
        let mut victim = false;
        let next = self.make_place(end); // exists: something starts there
        if self.tiles[next.tile].hole.get(next.bit) {
            if end == self.victim.start {
                hole.end = self.victim.end;
                victim = true;
            } else {
                hole.end = end + self.length(next);
                self.remove(Hole { start: end, ..hole });
            }
            let tile = &mut self.tiles[next.tile];
            tile.clear_cut(next.bit);
            if hole.end - end > 1 || next.bit == TILE_END - 1 {
                tile.hole.clear(next.bit);
            }
            if tile.occupied == 0 {
                self.drop_tile(next.tile);
                at = self.make_place(start); // its tile exists, but may have moved
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
            } else if let Some((below, _)) = self.previous(start) {
                hole.start = below;
                self.remove(Hole {
                    start: below,
                    end: start,
                });
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
            let next = self.make_place(end);
            self.mark_end(next);
        }
        if victim {
            self.victim = hole;
        } else {
            self.add(hole);
        }
    }

    /// Whether a hole ends at `page`, the first of a tile.
    #[cold]
    fn hole_ends_at(&mut self, page: u64) -> bool {
        let before = self.previous(page);
        before.is_some_and(|(_, at)| self.start(at) == Some(Start::Hole))
    }

    // Searches.

    /// The topmost hole of `class`, if it starts at page `least` or above.
    #[inline]
    pub(super) fn topmost(&mut self, class: usize, least: u64) -> Option<Hole> {
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
    fn lower_top(&mut self, class: usize, least: u64) -> Option<Hole> {
        let tile = self.top_tile(class)?;
        let leaf = highest(self.tiles[tile].by_class[class]);
        let bit = self.topmost_in_leaf(tile, leaf, class, TILE_END)?;
        let hole = self.hole(tile, bit);
        self.top[class] = hole;
        (hole.start >= least).then_some(hole)
    }

    /// The topmost tile with a hole of `class`.
    #[inline]
    fn top_tile(&mut self, class: usize) -> Option<usize> {
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
            let here = &mut self.nodes[node as usize];
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
        self.descend(class, u32::MAX, true)
    }

    /// The last tile up to number `bound` (`down`), or the first from it on, with a hole of `class`.
    /// Bits of nodes that lead nowhere are cleared.
    fn descend(&mut self, class: usize, bound: u32, down: bool) -> Option<usize> {
        if !self.nonempty.contains(class) {
            return None;
        }
        // At each level: the node, and which of its children may still be tried.
        let mut path = [(0u32, 0u64, false); 8];
        let mut level = self.levels;
        let limit = |level: u32, bounded: bool| match (bounded, down) {
            (false, _) => !0,
            (true, true) => below(slot(bound, level)) | 1 << slot(bound, level),
            (true, false) => above(slot(bound, level)) | 1 << slot(bound, level),
        };
        let bounded = bound != u32::MAX;
        path[level as usize] = (0, limit(level, bounded), bounded);
        loop {
            let (node, allowed, bounded) = path[level as usize];
            let left = self.nodes[node as usize].by_class[class] & allowed;
            if left == 0 {
                let empty = self.nodes[node as usize].by_class[class] == 0;
                if level == self.levels {
                    return None;
                }
                level += 1;
                let (parent, allowed, _) = &mut path[level as usize];
                let here = &mut self.nodes[*parent as usize];
                // The child just left in vain is the one that was tried, the first of those allowed.
                let tried = here.by_class[class] & *allowed;
                let bit = 1 << if down { highest(tried) } else { lowest(tried) };
                *allowed &= !bit;
                if empty {
                    here.by_class[class] &= !bit;
                    self.propagated += 1;
                }
                continue;
            }
            let at = if down { highest(left) } else { lowest(left) };
            let child = self.nodes[node as usize].child[at];
            if level == 1 {
                if self.tiles[child as usize].by_class[class] != 0 {
                    return Some(child as usize);
                }
                self.nodes[node as usize].by_class[class] &= !(1 << at);
                self.propagated += 1;
                continue;
            }
            let bounded = bounded && at == slot(bound, level);
            level -= 1;
            path[level as usize] = (child, limit(level, bounded), bounded);
        }
    }

    /// The topmost hole of `class` that starts before `page`.
    pub(super) fn last_before(&mut self, class: usize, page: u64) -> Option<Hole> {
        let last = page.checked_sub(1)?;
        let number = tile_number(last);
        if last >= self.top[class].start {
            // The usual case: the limit is above all there is.
            return self.topmost(class, 0);
        }
        let tile = self.descend(class, number, true)?;
        if self.tiles[tile].number == number {
            let before = bit_of(last) + 1;
            if let Some(hole) = self.topmost_before(tile, class, before) {
                return Some(hole);
            }
            let tile = self.descend(class, number.checked_sub(1)?, true)?;
            return self.topmost_before(tile, class, TILE_END);
        }
        self.topmost_before(tile, class, TILE_END)
    }

    fn topmost_before(&self, tile: usize, class: usize, before: u32) -> Option<Hole> {
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
    pub(super) fn first_from(&mut self, class: usize, page: u64) -> Option<Hole> {
        let number = tile_number(page);
        let tile = self.descend(class, number, false)?;
        if self.tiles[tile].number == number {
            if let Some(hole) = self.lowest_from(tile, class, bit_of(page)) {
                return Some(hole);
            }
            if number >= tile_number(self.pages) {
                return None;
            }
            let tile = self.descend(class, number + 1, false)?;
            return self.lowest_from(tile, class, 0);
        }
        self.lowest_from(tile, class, 0)
    }

    fn lowest_from(&self, tile: usize, class: usize, from: u32) -> Option<Hole> {
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

    /// Bytes of memory, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.tiles.capacity() * size_of::<Tile>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.spare.capacity() * size_of::<u32>()
    }
}

/// One past a tile's last bit.
#[allow(clippy::cast_possible_truncation)] // 8,192
const TILE_END: u32 = TILE as u32;
