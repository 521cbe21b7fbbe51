//! What one writes in an afternoon: holes by start in one tree and by size in another, best fit.
//! O(log holes), but for aligned and limited requests, which may look at every hole that is large enough.

use std::collections::{BTreeMap, BTreeSet};

use stopgap_models::placement::{Allocator, Entry, Scene, Start};
use stopgap_placement::{FreeError, PlaceError, Range, Request, Space};

pub(crate) struct TreePair {
    space: Space,
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_size: BTreeSet<(u64, u64)>,
}

impl TreePair {
    pub(crate) fn new(scene: Scene) -> TreePair {
        let mut pair = TreePair {
            space: scene.space,
            by_start: BTreeMap::new(),
            by_size: BTreeSet::new(),
        };
        pair.add(scene.space.window());
        pair
    }

    fn add(&mut self, hole: Range) {
        if hole.start < hole.end {
            self.by_start.insert(hole.start, hole.end);
            self.by_size.insert((hole.length(), hole.start));
        }
    }

    fn remove(&mut self, hole: Range) {
        self.by_start.remove(&hole.start);
        self.by_size.remove(&(hole.length(), hole.start));
    }
}

impl Allocator for TreePair {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        let need = self.space.need(request)?;
        let (hole, given) = self
            .by_size
            .range((need.size, 0)..)
            .find_map(|&(length, start)| {
                let hole = Range::new(start, start + length);
                Some((hole, need.within(hole)?))
            })
            .ok_or(PlaceError::Exhausted)?;
        self.remove(hole);
        self.add(Range::new(hole.start, given.start));
        self.add(Range::new(given.end, hole.end));
        Ok(Start::new(given.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        let mut hole = Range::new(start, start + size);
        let below = self.by_start.range(..start).next_back();
        if let Some((&start, &end)) = below.filter(|(_, end)| **end == hole.start) {
            self.remove(Range::new(start, end));
            hole.start = start;
        }
        if let Some(&end) = self.by_start.get(&hole.end) {
            self.remove(Range::new(hole.end, end));
            hole.end = end;
        }
        self.add(hole);
        Ok(())
    }

    fn start(&self, handle: Start) -> u64 {
        handle.address()
    }
}

pub(super) fn entry() -> Entry {
    Entry::new("btree-pair", None, |scene| Ok(TreePair::new(scene)))
}
