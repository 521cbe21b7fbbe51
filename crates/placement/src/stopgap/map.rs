//! The map: where every range and every hole starts, and an index of the holes by class.
//!
//! Tiles and the nodes above them exist only where there is a boundary, so that a range of a terabyte
//! costs no more than the two tiles in which it and its neighbour start.
//!
//! ```text
//! node      by_class[c]: which of 64 children hold a hole of class c     child[]
//!  `- node  ...
//!      `- tile  by_class[c]: which of 64 leaves do                       8,192 pages
//!          `- leaf  cut, hole: a bit a page                              128 pages
//! ```

use alloc::vec::Vec;

use super::class::{CLASSES, class_of};
use super::tile::{LEAF, LEAVES, TILE, Tile};

const NONE: u32 = u32::MAX;
/// Children of a node.
const FAN: u32 = 64;
/// Places in the table of tiles lately used.
const RECENT: usize = 128;

/// See the module.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) by_class: [u64; CLASSES],
    pub(super) child: [u32; FAN as usize],
    /// Children that there are.
    pub(super) occupied: u64,
    pub(super) parent: u32,
}

impl Node {
    fn new(parent: u32) -> Node {
        Node {
            by_class: [0; CLASSES],
            child: [NONE; FAN as usize],
            occupied: 0,
            parent,
        }
    }
}

/// A page's place.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) tile: usize,
    pub(super) leaf: usize,
    pub(super) bit: u32,
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
    levels: u32,
    /// Pages in all.
    pub(super) pages: u64,
    /// Classes of which there is a hole.
    pub(super) nonempty: u128,
    /// For each class, the tile above which there is no hole of it.
    pub(super) top: [u32; CLASSES],
    /// Tile number and where it is in `tiles`, by the number's low bits.
    recent: [(u32, u32); RECENT],
    /// Words of `by_class` changed.
    pub(super) propagated: u64,
}

/// The leaf of a page in its tile, and the page's bit.
#[inline]
#[allow(clippy::cast_possible_truncation)] // below 64 and below 128
fn split(page: u64) -> (usize, u32) {
    (
        ((page / LEAF) % LEAVES as u64) as usize,
        (page % LEAF) as u32,
    )
}

/// The number of a page's tile.
#[inline]
#[allow(clippy::cast_possible_truncation)] // a window has at most 2^44 pages
fn tile_number(page: u64) -> u32 {
    (page / TILE) as u32
}

/// The bits below `slot`.
#[inline]
fn below(slot: u32) -> u64 {
    (1 << slot) - 1
}

/// The bits above `slot`.
#[inline]
fn above(slot: u32) -> u64 {
    (!0 << slot) << 1
}

impl Map {
    /// One hole of `pages` pages: at least 1, at most 2^44.
    pub(super) fn new(pages: u64) -> Map {
        let mut levels = 1;
        while (TILE * u64::from(FAN)) << (6 * (levels - 1)) < pages {
            levels += 1;
        }
        let mut map = Map {
            tiles: Vec::new(),
            nodes: alloc::vec![Node::new(NONE)],
            spare: Vec::new(),
            levels,
            pages,
            nonempty: 0,
            top: [0; CLASSES],
            recent: [(NONE, 0); RECENT],
            propagated: 0,
        };
        let place = map.make_place(0);
        map.set_cut(place);
        map.tiles[place.tile].hole[place.leaf] |= 1 << place.bit;
        map.add(place, class_of(pages));
        map
    }

    // Finding places.

    /// The slot, at `level` (1: above the tiles), of the child that leads to tile `number`.
    #[inline]
    fn slot(number: u32, level: u32) -> u32 {
        (number >> (6 * (level - 1))) % FAN
    }

    /// Where tile `number` is, if it exists.
    #[inline]
    fn tile(&mut self, number: u32) -> Option<usize> {
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
            at = self.nodes[at as usize].child[Map::slot(number, level) as usize];
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
        let (leaf, bit) = split(page);
        Some(Place { tile, leaf, bit })
    }

    /// What starts at `page`, if something does.
    #[inline]
    pub(super) fn start(&self, at: Place) -> Option<Start> {
        let tile = &self.tiles[at.tile];
        if tile.cut[at.leaf] >> at.bit & 1 == 0 {
            None
        } else if tile.hole[at.leaf] >> at.bit & 1 == 0 {
            Some(Start::Range)
        } else {
            Some(Start::Hole)
        }
    }

    /// The first boundary after `page`, which is at `at`; the end of the map if there is none.
    #[inline]
    pub(super) fn next(&self, page: u64, at: Place) -> u64 {
        match self.tiles[at.tile].length_in_leaf(at.leaf, at.bit) {
            Some(length) => page + length,
            None => self.next_leaf(at),
        }
    }

    fn next_leaf(&self, at: Place) -> u64 {
        let tile = &self.tiles[at.tile];
        #[allow(clippy::cast_possible_truncation)] // below 64
        let later = tile.occupied & above(at.leaf as u32);
        if later != 0 {
            let leaf = later.trailing_zeros();
            return self.first_cut(at.tile, leaf);
        }
        let (mut node, number) = (tile.parent, tile.number);
        for level in 1..=self.levels {
            let here = &self.nodes[node as usize];
            let later = here.occupied & above(Map::slot(number, level));
            if later != 0 {
                let mut at = here.child[later.trailing_zeros() as usize];
                for _ in 1..level {
                    let node = &self.nodes[at as usize];
                    at = node.child[node.occupied.trailing_zeros() as usize];
                }
                let leaf = self.tiles[at as usize].occupied.trailing_zeros();
                return self.first_cut(at as usize, leaf);
            }
            node = here.parent;
        }
        self.pages
    }

    fn first_cut(&self, tile: usize, leaf: u32) -> u64 {
        let tile = &self.tiles[tile];
        let bit = tile.cut[leaf as usize].trailing_zeros();
        tile.first_page() + u64::from(leaf) * LEAF + u64::from(bit)
    }

    /// The last boundary before `page`, whose place need not exist; `None` at page 0, which always is one.
    #[inline]
    pub(super) fn previous(&mut self, page: u64) -> Option<(u64, Place)> {
        let (leaf, bit) = split(page);
        if let Some(tile) = self.tile(tile_number(page)) {
            let here = &self.tiles[tile];
            let earlier = here.cut[leaf] & ((1 << bit) - 1);
            if earlier != 0 {
                let found = 127 - earlier.leading_zeros();
                let place = Place {
                    tile,
                    leaf,
                    bit: found,
                };
                return Some((page - u64::from(bit - found), place));
            }
            #[allow(clippy::cast_possible_truncation)] // below 64
            let earlier = here.occupied & below(leaf as u32);
            if earlier != 0 {
                return Some(self.last_cut(tile, 63 - earlier.leading_zeros()));
            }
        }
        self.previous_tile(tile_number(page))
    }

    /// The last boundary before tile `number`.
    fn previous_tile(&self, number: u32) -> Option<(u64, Place)> {
        // The last child before the path to the tile, at the deepest level that has one.
        let (mut node, mut found) = (0, None);
        for level in (1..=self.levels).rev() {
            let here = &self.nodes[node as usize];
            let slot = Map::slot(number, level);
            let earlier = here.occupied & below(slot);
            if earlier != 0 {
                let child = here.child[63 - earlier.leading_zeros() as usize];
                found = Some((level, child));
            }
            node = here.child[slot as usize];
            if node == NONE || level == 1 {
                break;
            }
        }
        let (level, mut at) = found?;
        for _ in 1..level {
            let node = &self.nodes[at as usize];
            at = node.child[63 - node.occupied.leading_zeros() as usize];
        }
        let leaf = 63 - self.tiles[at as usize].occupied.leading_zeros();
        Some(self.last_cut(at as usize, leaf))
    }

    fn last_cut(&self, tile: usize, leaf: u32) -> (u64, Place) {
        let here = &self.tiles[tile];
        let bit = 127 - here.cut[leaf as usize].leading_zeros();
        let page = here.first_page() + u64::from(leaf) * LEAF + u64::from(bit);
        let leaf = leaf as usize;
        (page, Place { tile, leaf, bit })
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
        let (leaf, bit) = split(page);
        Place { tile, leaf, bit }
    }

    #[cold]
    #[allow(clippy::cast_possible_truncation)] // fewer tiles and nodes than tile numbers
    fn make_tile(&mut self, number: u32) -> usize {
        let mut node = 0;
        for level in (2..=self.levels).rev() {
            let slot = Map::slot(number, level);
            let mut child = self.nodes[node as usize].child[slot as usize];
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
        self.adopt(node, Map::slot(number, 1), tile as u32);
        self.remember(number, tile);
        tile
    }

    fn adopt(&mut self, node: u32, slot: u32, child: u32) {
        let node = &mut self.nodes[node as usize];
        node.child[slot as usize] = child;
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
            let slot = Map::slot(number, 1) as usize;
            self.nodes[parent as usize].child[slot] = tile as u32;
            if self.recent[number as usize % RECENT].0 == number {
                self.remember(number, tile);
            }
        }
        let mut node = gone.parent;
        for level in 1..=self.levels {
            let slot = Map::slot(gone.number, level);
            let here = &mut self.nodes[node as usize];
            here.child[slot as usize] = NONE;
            here.occupied &= !(1 << slot);
            if here.occupied != 0 || node == 0 {
                break;
            }
            self.spare.push(node);
            node = here.parent;
        }
        if self.tiles.capacity() > self.tiles.len() + self.tiles.len() / 4 + 8 {
            self.tiles
                .shrink_to(self.tiles.len() + self.tiles.len() / 8);
        }
    }

    // The bits.

    #[inline]
    fn set_cut(&mut self, at: Place) {
        let tile = &mut self.tiles[at.tile];
        tile.cut[at.leaf] |= 1 << at.bit;
        tile.occupied |= 1 << at.leaf;
    }

    /// Removes a boundary. Its tile stays, even if it is empty now.
    #[inline]
    fn clear(&mut self, at: Place) {
        let tile = &mut self.tiles[at.tile];
        tile.cut[at.leaf] &= !(1 << at.bit);
        tile.hole[at.leaf] &= !(1 << at.bit);
        if tile.cut[at.leaf] == 0 {
            tile.occupied &= !(1 << at.leaf);
        }
    }

    // The index of holes.

    /// A hole of `class` starts at `at`.
    #[inline]
    fn add(&mut self, at: Place, class: usize) {
        let tile = &mut self.tiles[at.tile];
        let had = tile.by_class[class];
        tile.by_class[class] = had | 1 << at.leaf;
        let number = tile.number;
        if number > self.top[class] {
            self.top[class] = number;
        }
        if had == 0 {
            let parent = tile.parent;
            self.add_above(number, parent, class);
        }
    }

    fn add_above(&mut self, number: u32, mut node: u32, class: usize) {
        for level in 1..=self.levels {
            let here = &mut self.nodes[node as usize];
            let had = here.by_class[class];
            here.by_class[class] = had | 1 << Map::slot(number, level);
            self.propagated += 1;
            if had != 0 {
                return;
            }
            node = here.parent;
        }
        self.nonempty |= 1 << class;
    }

    /// A hole of `class` started in the leaf of `at` and does no more; the bits say so already.
    #[inline]
    fn remove(&mut self, at: Place, class: usize) {
        let tile = &self.tiles[at.tile];
        let last = tile.open_hole(at.leaf).map(|bit| {
            let page = tile.first_page() + at.leaf as u64 * LEAF + u64::from(bit);
            class_of(self.next_leaf(at) - page)
        });
        if tile.leaf_has(at.leaf, class, last) {
            return;
        }
        let tile = &mut self.tiles[at.tile];
        tile.by_class[class] &= !(1 << at.leaf);
        if tile.by_class[class] == 0 {
            let (number, parent) = (tile.number, tile.parent);
            self.remove_above(number, parent, class);
        }
    }

    fn remove_above(&mut self, number: u32, mut node: u32, class: usize) {
        for level in 1..=self.levels {
            let here = &mut self.nodes[node as usize];
            here.by_class[class] &= !(1 << Map::slot(number, level));
            self.propagated += 1;
            if here.by_class[class] != 0 {
                return;
            }
            node = here.parent;
        }
        self.nonempty &= !(1 << class);
    }

    // Changes.

    /// Makes a range of the pages `start..end` of the hole `hole..hole_end`, which is at `at`.
    ///
    /// ```text
    /// before   |. . . . . . . .|
    /// after    |. .|R R R|. . .|     either side may be empty
    /// ```
    #[inline]
    pub(super) fn take(&mut self, hole: u64, hole_end: u64, at: Place, start: u64, end: u64) {
        let class = class_of(hole_end - hole);
        if start == hole {
            self.tiles[at.tile].hole[at.leaf] &= !(1 << at.bit);
        } else {
            let used = self.make_place(start);
            self.set_cut(used);
        }
        if end < hole_end {
            let rest = self.make_place(end);
            self.set_cut(rest);
            self.tiles[rest.tile].hole[rest.leaf] |= 1 << rest.bit;
            self.add(rest, class_of(hole_end - end));
        }
        let left = start - hole;
        if left > 0 && class_of(left) == class {
            return; // the index says so already
        }
        if left > 0 {
            self.add(at, class_of(left));
        }
        self.remove(at, class);
    }

    /// Makes a hole of the range `start..end`, which is at `at`, joining it with the holes beside it.
    ///
    /// ```text
    /// before   |. .|R R R|. . .|     either side may be a range
    /// after    |. . . . . . . .|
    /// ```
    #[inline]
    pub(super) fn give(&mut self, start: u64, end: u64, at: Place) {
        let mut at = at;
        let mut hole_end = end;
        if end < self.pages
            && let Some(next) = self.place(end)
            && self.start(next) == Some(Start::Hole)
        {
            hole_end = self.next(end, next);
            self.clear(next);
            self.remove(next, class_of(hole_end - end));
            if self.tiles[next.tile].occupied == 0 {
                self.drop_tile(next.tile);
                at = self.make_place(start); // its tile exists, but may have moved
            }
        }
        match self.previous(start) {
            Some((hole, mut place)) if self.start(place) == Some(Start::Hole) => {
                self.clear(at);
                if self.tiles[at.tile].occupied == 0 {
                    self.drop_tile(at.tile);
                    place = self.make_place(hole); // as above
                }
                let (was, is) = (class_of(start - hole), class_of(hole_end - hole));
                if was != is {
                    self.add(place, is);
                    self.remove(place, was);
                }
            }
            _ => {
                self.tiles[at.tile].hole[at.leaf] |= 1 << at.bit;
                self.add(at, class_of(hole_end - start));
            }
        }
    }

    // Searches.

    /// The tile with the topmost hole of `class`, if there is one.
    #[inline]
    pub(super) fn top_tile(&mut self, class: usize) -> Option<usize> {
        if let Some(tile) = self.tile(self.top[class])
            && self.tiles[tile].by_class[class] != 0
        {
            return Some(tile);
        }
        self.top_tile_by_descent(class)
    }

    fn top_tile_by_descent(&mut self, class: usize) -> Option<usize> {
        if self.nonempty >> class & 1 == 0 {
            return None;
        }
        let mut at = 0;
        for _ in 0..self.levels {
            let node = &self.nodes[at as usize];
            at = node.child[63 - node.by_class[class].leading_zeros() as usize];
        }
        let tile = at as usize;
        self.top[class] = self.tiles[tile].number;
        Some(tile)
    }

    /// The topmost hole of `class` in `tile`, which has one: its place, start and end.
    #[inline]
    pub(super) fn topmost(&self, tile: usize, class: usize) -> (Place, u64, u64) {
        let leaf = 63 - self.tiles[tile].by_class[class].leading_zeros() as usize;
        self.topmost_in_leaf(tile, leaf, class, u128::MAX)
            .unwrap_or_else(|| unreachable!("the index says that the leaf has a hole of the class"))
    }

    /// The topmost hole of `class` in a leaf that starts at a bit of `among`.
    #[inline]
    fn topmost_in_leaf(
        &self,
        tile: usize,
        leaf: usize,
        class: usize,
        among: u128,
    ) -> Option<(Place, u64, u64)> {
        let here = &self.tiles[tile];
        let first = here.first_page() + leaf as u64 * LEAF;
        if let Some(bit) = here.open_hole(leaf).filter(|&bit| among >> bit & 1 == 1) {
            let page = first + u64::from(bit);
            let place = Place { tile, leaf, bit };
            let end = self.next_leaf(place);
            if class_of(end - page) == class {
                return Some((place, page, end));
            }
        }
        let bit = here.topmost_in_leaf(leaf, class, among)?;
        let page = first + u64::from(bit);
        let place = Place { tile, leaf, bit };
        Some((place, page, self.next(page, place)))
    }

    /// The lowest hole of `class` in a leaf that starts at a bit of `among`.
    fn lowest_in_leaf(
        &self,
        tile: usize,
        leaf: usize,
        class: usize,
        among: u128,
    ) -> Option<(Place, u64, u64)> {
        let here = &self.tiles[tile];
        let first = here.first_page() + leaf as u64 * LEAF;
        let bit = here
            .lowest_in_leaf(leaf, class, among)
            .or_else(|| here.open_hole(leaf).filter(|&bit| among >> bit & 1 == 1))?;
        let page = first + u64::from(bit);
        let place = Place { tile, leaf, bit };
        let end = self.next(page, place);
        (class_of(end - page) == class).then_some((place, page, end))
    }

    /// The topmost hole of `class` that starts before `page`.
    pub(super) fn last_before(&self, class: usize, page: u64) -> Option<(Place, u64, u64)> {
        let (leaf, bit) = split(page);
        let number = tile_number(page);
        let (mut node, mut found) = (0, None);
        for level in (1..=self.levels).rev() {
            let here = &self.nodes[node as usize];
            let slot = Map::slot(number, level);
            let earlier = here.by_class[class] & below(slot);
            if earlier != 0 {
                found = Some((level, here.child[63 - earlier.leading_zeros() as usize]));
            }
            node = here.child[slot as usize];
            if here.by_class[class] >> slot & 1 == 0 {
                node = NONE;
                break;
            }
        }
        if node != NONE {
            let tile = node as usize;
            let leaves = self.tiles[tile].by_class[class];
            if leaves >> leaf & 1 == 1
                && let Some(hole) = self.topmost_in_leaf(tile, leaf, class, (1 << bit) - 1)
            {
                return Some(hole);
            }
            #[allow(clippy::cast_possible_truncation)] // below 64
            let earlier = leaves & below(leaf as u32);
            if earlier != 0 {
                let leaf = 63 - earlier.leading_zeros() as usize;
                return self.topmost_in_leaf(tile, leaf, class, u128::MAX);
            }
        }
        let (level, mut at) = found?;
        for _ in 1..level {
            let node = &self.nodes[at as usize];
            at = node.child[63 - node.by_class[class].leading_zeros() as usize];
        }
        Some(self.topmost(at as usize, class))
    }

    /// The lowest hole of `class` that starts at `page` or later.
    pub(super) fn first_from(&self, class: usize, page: u64) -> Option<(Place, u64, u64)> {
        let (leaf, bit) = split(page);
        let number = tile_number(page);
        let (mut node, mut found) = (0, None);
        for level in (1..=self.levels).rev() {
            let here = &self.nodes[node as usize];
            let slot = Map::slot(number, level);
            let later = here.by_class[class] & above(slot);
            if later != 0 {
                found = Some((level, here.child[later.trailing_zeros() as usize]));
            }
            node = here.child[slot as usize];
            if here.by_class[class] >> slot & 1 == 0 {
                node = NONE;
                break;
            }
        }
        if node != NONE {
            let tile = node as usize;
            let leaves = self.tiles[tile].by_class[class];
            if leaves >> leaf & 1 == 1
                && let Some(hole) = self.lowest_in_leaf(tile, leaf, class, !0 << bit)
            {
                return Some(hole);
            }
            #[allow(clippy::cast_possible_truncation)] // below 64
            let later = leaves & above(leaf as u32);
            if later != 0 {
                let leaf = later.trailing_zeros() as usize;
                return self.lowest_in_leaf(tile, leaf, class, u128::MAX);
            }
        }
        let (level, mut at) = found?;
        for _ in 1..level {
            let node = &self.nodes[at as usize];
            at = node.child[node.by_class[class].trailing_zeros() as usize];
        }
        let tile = at as usize;
        let leaf = self.tiles[tile].by_class[class].trailing_zeros() as usize;
        self.lowest_in_leaf(tile, leaf, class, u128::MAX)
    }

    /// Levels of nodes.
    pub(super) fn levels(&self) -> u32 {
        self.levels
    }

    /// Bytes of memory, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.tiles.capacity() * size_of::<Tile>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.spare.capacity() * size_of::<u32>()
    }
}
