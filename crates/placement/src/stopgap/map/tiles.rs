//! Tiles that come and go, and the nodes above them.

use super::{Map, NONE, Place, RECENT, bit_of, slot, tile_number};
use crate::memory::{Box, push_zeroed, zeroed};
use crate::stopgap::tile::Tile;

impl Map {
    /// The place of `page`; its tile is made if it does not exist.
    #[inline]
    pub(super) fn make_place(&mut self, page: u64) -> Place {
        let number = tile_number(page);
        let tile = match self.tile(number) {
            Some(tile) => tile,
            None => self.make_tile(number),
        };
        let bit = bit_of(page);
        Place { tile, bit }
    }

    #[cold]
    pub(super) fn make_tile(&mut self, number: u32) -> usize {
        let mut node = 0;
        for level in (2..=self.levels).rev() {
            let slot = slot(number, level);
            let mut child = self.nodes[node as usize].child[slot];
            if child == NONE {
                child = match self.spare.pop() {
                    Some(spare) => {
                        self.nodes[spare as usize].renew(node);
                        spare
                    }
                    None => {
                        push_zeroed(&mut self.nodes).renew(node);
                        self.nodes.len() as u32 - 1
                    }
                };
                self.adopt(node, slot, child);
            }
            node = child;
        }
        let tile = self.tiles.len();
        let memory = *self.tiles.allocator();
        let mut made: Box<Tile> = zeroed(memory);
        (made.number, made.parent) = (number, node);
        self.tiles.push(made);
        self.adopt(node, slot(number, 1), tile as u32);
        self.remember(number, tile);
        tile
    }

    pub(super) fn adopt(&mut self, node: u32, slot: usize, child: u32) {
        let node = &mut self.nodes[node as usize];
        node.child[slot] = child;
        node.occupied |= 1 << slot;
    }

    /// Gives tile `tile`, which has no boundary, back, and the nodes that it alone held.
    #[cold]
    pub(super) fn drop_tile(&mut self, tile: usize) {
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
    }
}
