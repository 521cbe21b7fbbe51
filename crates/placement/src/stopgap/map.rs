//! The map: where every range and every hole starts, and an index of the holes.
//!
//! Tiles and the nodes above them are made where there is a boundary, so that a range of a terabyte
//! costs no more than the two tiles in which it and its neighbour start.
//!
//! ```text
//! node      by_class[c]: which of 64 children may hold a short hole of class c   octaves   child[]
//!  `- node  ...
//!      `- tile  by_class[c]: in which of 64 leaves a short hole of class c starts   octaves   8,192 pages
//!          `- leaf  cut, hole: a bit a page                                         128 pages
//! ```
//!
//! Short holes, up to 64 pages, are found by address: a tile's index of them is exact, and so is the number of holes
//! of each class. A node's index is not: a bit is set when a class comes, and cleared when a search follows it and finds
//! nothing. A class that comes and goes in one tile, the common case, then costs nothing above the tile, and a bit that
//! is set misleads one search at most.
//!
//! Long holes are found by length: each class has a list (`lists`). Requests that not every hole can serve find them by
//! address as well: `octaves` says for each leaf and child which octave no long hole there exceeds. It rises when a hole
//! comes and falls when a search finds that it is too high.

mod aligned;
mod change;
mod descent;
mod index;
mod lists;
mod tiles;

use crate::chunks::Chunks;
use crate::classes;
use crate::memory::{Box, Memory, Vec, Zeroed};

use super::class::{CLASSES, Classes, EXACT, Octaves};
use super::tile::{BEYOND, TILE, Tile, WORDS, above, below};

const NONE: u32 = u32::MAX;
/// Tiles in a chunk.
const TILES: usize = 4;
/// Children of a node.
const FAN: usize = 64;
/// Places in the table of tiles lately used, at least and at most: as many as there are tiles, which often are side by side.
const RECENT_LEAST: usize = 256;
const RECENT_MOST: usize = 1 << 12;
/// Tiles at most: a word of a tile has a number of 32 bits. They would take 120 GB.
const MOST_TILES: usize = u32::MAX as usize / WORDS - 8;

/// See the module.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) by_class: [u64; CLASSES],
    pub(super) octaves: Octaves,
    pub(super) child: [u32; FAN],
    /// Children that there are.
    pub(super) occupied: u64,
    pub(super) parent: u32,
}

#[allow(unsafe_code)]
// SAFETY: all fields are integers.
unsafe impl Zeroed for Node {}

impl Node {
    /// Makes a node of zeros, or one that is no longer used, one without children.
    fn renew(&mut self, parent: u32) {
        self.by_class.fill(0);
        self.octaves.clear();
        self.child.fill(NONE);
        self.occupied = 0;
        self.parent = parent;
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

    #[inline]
    pub(super) fn is_long(&self) -> bool {
        self.pages() > EXACT
    }
}

pub(super) use aligned::coarse;
pub(super) use lists::Found;

/// A range or a hole that starts at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    Range,
    Hole,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Map {
    /// Those without a boundary wait in a list of their own.
    pub(super) tiles: Chunks<Tile, TILES>,
    /// The first tile that is not in use; all its bits are 0, and its `parent` is the next such.
    pub(super) idle: u32,
    /// Tiles that are in use.
    pub(super) used: usize,
    #[allow(clippy::vec_box)]
    // to move a list of them when it grows would take longer than any search
    pub(super) nodes: Vec<Box<Node>>,
    /// Nodes that are not in use.
    spare: Vec<u32>,
    /// Levels of nodes; the root is node 0.
    pub(super) levels: u32,
    /// Pages in all. What starts at the page after the last is a range that is never freed, so that
    /// every hole ends at a boundary.
    pub(super) pages: u64,
    /// Classes of which there is a short hole.
    pub(super) nonempty: Classes,
    /// Classes of which there may be a short hole in the packed zone.
    pub(super) near: Classes,
    /// The packed zone's first page when a search last began.
    pub(super) zone: u64,
    /// The lowest page that a range from the top has; below it a hole ends.
    pub(super) floor: u64,
    /// The highest that it was since `near` last had every class.
    near_from: u64,
    /// For each class of short holes, how many there are.
    pub(super) holes: [u32; CLASSES],
    /// For each class of short holes, the topmost. Where `end` is 0 it is gone, and no other starts above it.
    pub(super) top: [Hole; CLASSES],
    /// Classes of which there is a long hole.
    pub(super) long: classes::Set,
    /// For each class of long holes, the first in its list, or [`NONE`].
    pub(super) first: Vec<u32>,
    /// No long hole starts above this page.
    pub(super) long_top: u64,
    /// Long holes by alignment.
    aligned: aligned::ByAlignment,
    /// Tile number and its place in `tiles`, by the number's low bits.
    recent: Vec<(u32, u32)>,
    /// The hole that the index leaves out: what was left when a range was last cut from a hole. The next
    /// range is often cut from it, too, and what is freed often lies beside it; then no index changes.
    pub(super) victim: Hole,
    /// Bits of nodes set and cleared.
    pub(super) propagated: u64,
    /// Pages that are in no hole.
    pub(super) taken: u64,
}

/// The number of a page's tile.
#[inline]
pub(super) fn tile_number(page: u64) -> u32 {
    (page / TILE) as u32
}

/// A page's bit in its tile.
#[inline]
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
    /// Returns a map of no pages, to be opened.
    pub(super) const fn closed(memory: Memory) -> Map {
        Map {
            tiles: Chunks::new_in(memory),
            idle: NONE,
            used: 0,
            nodes: Vec::new_in(memory),
            spare: Vec::new_in(memory),
            levels: 1,
            pages: 0,
            nonempty: Classes::NONE,
            near: Classes::NONE,
            zone: 0,
            near_from: 0,
            floor: 0,
            holes: [0; CLASSES],
            top: [UNKNOWN; CLASSES],
            long: classes::Set::NONE,
            first: Vec::new_in(memory),
            long_top: 0,
            aligned: aligned::ByAlignment::new_in(memory),
            recent: Vec::new_in(memory),
            victim: NO_VICTIM,
            propagated: 0,
            taken: 0,
        }
    }

    /// Makes a closed map one hole of `pages` pages: at least 1, at most 2^44.
    pub(super) fn open(&mut self, pages: u64) {
        while (TILE * FAN as u64) << (6 * (self.levels - 1)) <= pages {
            self.levels += 1;
        }
        self.pages = pages;
        self.floor = pages;
        self.recent.resize(RECENT_LEAST, (NONE, 0));
        self.first.reserve_exact(classes::CLASSES);
        self.first.resize(classes::CLASSES, NONE);
        self.make_node(NONE);
        let end = self.make_place(pages);
        self.tiles[end.tile].set_cut(end.bit);
        self.mark_end(end);
        let at = self.make_place(0);
        self.tiles[at.tile].set_cut(at.bit);
        self.tiles[at.tile].hole.set(at.bit);
        self.victim = Hole {
            start: 0,
            end: pages,
        };
    }

    // Where a page is.

    /// Where tile `number` is, if it exists.
    #[inline]
    pub(super) fn tile(&mut self, number: u32) -> Option<usize> {
        let (known, tile) = self.recent[self.recent_at(number)];
        if known == number {
            return Some(tile as usize);
        }
        self.tile_by_descent(number)
    }

    /// The place in the table that a tile has.
    #[inline]
    fn recent_at(&self, number: u32) -> usize {
        // Its length is a power of two.
        number as usize & self.recent.len().wrapping_sub(1)
    }

    #[cold]
    fn tile_by_descent(&mut self, number: u32) -> Option<usize> {
        let found = self.look_up(number)?;
        self.remember(number, found);
        Some(found)
    }

    fn remember(&mut self, number: u32, tile: usize) {
        let at = self.recent_at(number);
        self.recent[at] = (number, tile as u32);
    }

    /// Finds a tile like [`Map::tile`], but always by descent.
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

    /// Returns whether a range or a hole starts at a place.
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

    /// Returns whether a range of `pages`, at most 64, starts at `page`; also `false` where that takes more than a look.
    #[inline]
    pub(super) fn is_short_range(&self, page: u64, pages: u64) -> bool {
        let number = tile_number(page);
        let (known, tile) = self.recent[self.recent_at(number)];
        let bit = bit_of(page);
        known == number && self.tiles[tile as usize].is_short_range(bit, pages)
    }

    /// Pages from the boundary at `at`, which is not the victim's, to the next one.
    #[inline]
    pub(super) fn length(&self, at: Place) -> u64 {
        match self.tiles[at.tile].length(at.bit) {
            BEYOND => self.length_beyond(at),
            pages => u64::from(pages),
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

    /// The last boundary before the one at `at`.
    #[inline]
    pub(super) fn previous_to(&self, at: Place) -> Option<(u64, Place)> {
        let tile = &self.tiles[at.tile];
        match tile.previous(at.bit) {
            Some(bit) => {
                let page = tile.first_page() + u64::from(bit);
                Some((page, Place { bit, ..at }))
            }
            None => self.before_tile(tile.number),
        }
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

    /// Whether there are as many tiles as there may be, but for those that one request makes.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used > MOST_TILES
    }

    /// Bytes of memory, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.tiles.memory()
            + self.aligned.memory()
            + self.nodes.len() * size_of::<Node>()
            + self.nodes.capacity() * size_of::<Box<Node>>()
            + (self.spare.capacity() + self.first.capacity()) * size_of::<u32>()
            + self.recent.capacity() * size_of::<(u32, u32)>()
    }
}

/// One past a tile's last bit.
const TILE_END: u32 = TILE as u32;
