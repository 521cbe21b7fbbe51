//! Descents from the root to a tile with a hole of a kind.

use super::super::tile::{Tile, above, below};
use super::{Map, Node, highest, lowest, slot};
use crate::memory::Box;

/// A kind of holes, by which a descent looks.
pub(in crate::stopgap) trait Kind: Copy {
    /// The leaves of a tile that may have such a hole.
    fn leaves(self, tile: &Tile) -> u64;
    /// The children of a node that may.
    fn children(self, node: &Node) -> u64;
    /// Child `slot` of `node`, which is `tile`, has none.
    fn none_in_tile(self, node: &mut Node, slot: usize, tile: &Tile);
    /// Child `slot` of node `node` has none.
    fn none_below(self, nodes: &mut [Box<Node>], node: u32, slot: usize);
}

/// Short holes of a class.
#[derive(Clone, Copy)]
pub(in crate::stopgap) struct Short(pub(in crate::stopgap) usize);

impl Kind for Short {
    #[inline]
    fn leaves(self, tile: &Tile) -> u64 {
        tile.by_class[self.0]
    }
    #[inline]
    fn children(self, node: &Node) -> u64 {
        node.by_class[self.0]
    }
    #[inline]
    fn none_in_tile(self, node: &mut Node, slot: usize, _: &Tile) {
        node.by_class[self.0] &= !(1 << slot);
    }
    #[inline]
    fn none_below(self, nodes: &mut [Box<Node>], node: u32, slot: usize) {
        nodes[node as usize].by_class[self.0] &= !(1 << slot);
    }
}

/// Long holes of an octave or a later one.
#[derive(Clone, Copy)]
pub(in crate::stopgap) struct Long(pub(in crate::stopgap) u8);

impl Kind for Long {
    #[inline]
    fn leaves(self, tile: &Tile) -> u64 {
        tile.octaves.at_least(self.0)
    }
    #[inline]
    fn children(self, node: &Node) -> u64 {
        node.octaves.at_least(self.0)
    }
    #[inline]
    fn none_in_tile(self, node: &mut Node, slot: usize, tile: &Tile) {
        node.octaves.set(slot, tile.octaves.max());
    }
    #[inline]
    fn none_below(self, nodes: &mut [Box<Node>], node: u32, slot: usize) {
        let child = nodes[node as usize].child[slot];
        let most = nodes[child as usize].octaves.max();
        nodes[node as usize].octaves.set(slot, most);
    }
}

impl Map {
    /// Returns the last tile up to number `bound` (`down`), or the first from `bound` up, that may have a hole of `kind`:
    /// `u32::MAX` is no bound. What nodes say too much is corrected on the way.
    pub(super) fn descend<K: Kind>(&mut self, kind: K, bound: u32, down: bool) -> Option<usize> {
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
            let all = kind.children(&self.nodes[node as usize]);
            let left = all & allowed;
            if left == 0 {
                if level == self.levels {
                    return None;
                }
                level += 1;
                let (parent, allowed, _) = &mut path[level as usize];
                // The child that had nothing is the one that was tried, the first of those allowed.
                let tried = kind.children(&self.nodes[*parent as usize]) & *allowed;
                let at = if down { highest(tried) } else { lowest(tried) };
                *allowed &= !(1 << at);
                if all == 0 {
                    kind.none_below(&mut self.nodes, *parent, at);
                    self.propagated += 1;
                }
                continue;
            }
            let at = if down { highest(left) } else { lowest(left) };
            let child = self.nodes[node as usize].child[at];
            if level == 1 {
                let tile = &self.tiles[child as usize];
                if kind.leaves(tile) != 0 {
                    return Some(child as usize);
                }
                kind.none_in_tile(&mut self.nodes[node as usize], at, tile);
                self.propagated += 1;
                continue;
            }
            let bounded = bounded && at == slot(bound, level);
            level -= 1;
            path[level as usize] = (child, limit(level, bounded), bounded);
        }
    }
}
