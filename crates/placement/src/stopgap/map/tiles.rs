//! Tiles that come and go, and the nodes above them.

use super::{Map, NONE, Place, RECENT_MOST, bit_of, slot, tile_number};
use crate::memory::zeroed;

impl Map {
    /// The place of `page`; its tile is made if it does not exist.
    #[inline]
    pub(in crate::stopgap) fn make_place(&mut self, page: u64) -> Place {
        let number = tile_number(page);
        let tile = match self.tile(number) {
            Some(tile) => tile,
            None => self.make_tile(number),
        };
        let bit = bit_of(page);
        Place { tile, bit }
    }

    /// As [`Map::make_place`], for a page that is likely to be in the tile of `by`.
    #[inline]
    pub(super) fn near(&mut self, page: u64, by: Place) -> Place {
        if self.tiles[by.tile].number == tile_number(page) {
            let bit = bit_of(page);
            return Place { bit, ..by };
        }
        self.make_place(page)
    }

    /// A node without children: its place in the list.
    pub(super) fn make_node(&mut self, parent: u32) -> u32 {
        let node = match self.spare.pop() {
            Some(spare) => spare,
            None => {
                let memory = *self.nodes.allocator();
                self.nodes.push(zeroed(memory));
                self.nodes.len() as u32 - 1
            }
        };
        self.nodes[node as usize].renew(parent);
        node
    }

    #[cold]
    pub(super) fn make_tile(&mut self, number: u32) -> usize {
        let mut node = 0;
        for level in (2..=self.levels).rev() {
            let slot = slot(number, level);
            let mut child = self.nodes[node as usize].child[slot];
            if child == NONE {
                child = self.make_node(node);
                self.adopt(node, slot, child);
            }
            node = child;
        }
        self.used += 1;
        let tile = match self.idle {
            NONE => {
                let new = self.tiles.push();
                let room = self.recent.len();
                if self.tiles.len() > room && room < RECENT_MOST {
                    self.recent.clear();
                    self.recent.resize(2 * room, (NONE, 0));
                }
                new
            }
            idle => {
                self.idle = self.tiles[idle as usize].parent;
                idle as usize
            }
        };
        let here = &mut self.tiles[tile];
        (here.number, here.parent) = (number, node);
        self.adopt(node, slot(number, 1), tile as u32);
        self.remember(number, tile);
        tile
    }

    pub(super) fn adopt(&mut self, node: u32, slot: usize, child: u32) {
        let node = &mut self.nodes[node as usize];
        node.child[slot] = child;
        node.occupied |= 1 << slot;
    }

    /// Tile `tile` has no boundary any more: nor do the nodes that it alone held.
    ///
    /// It keeps its memory and its place, by which lists name its words, until a tile is needed. Where a stack
    /// grows and shrinks tiles come and go by the thousand.
    #[cold]
    pub(super) fn drop_tile(&mut self, tile: usize) {
        let gone = &mut self.tiles[tile];
        gone.octaves.clear();
        let (number, mut node) = (gone.number, gone.parent);
        gone.parent = core::mem::replace(&mut self.idle, tile as u32);
        self.used -= 1;
        let at = self.recent_at(number);
        if self.recent[at].0 == number {
            self.recent[at].0 = NONE;
        }
        for level in 1..=self.levels {
            let slot = slot(number, level);
            let here = &mut self.nodes[node as usize];
            here.child[slot] = NONE;
            here.occupied &= !(1 << slot);
            here.octaves.set(slot, 0);
            for word in &mut here.by_class {
                *word &= !(1 << slot);
            }
            if here.occupied != 0 || node == 0 {
                break;
            }
            self.spare.push(node);
            node = here.parent;
        }
    }
}
