//! Statistics and invariants: everything walked.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::classes::{CLASSES as LONG_CLASSES, class_of as long_class};
use crate::contract::Statistics;

use super::Stopgap;
use super::class::{CLASSES, class_of, octave_of};
use super::magazine::Magazines;
use super::map::{Hole, Map, NO_VICTIM, Place, Start, tile_number};
use super::tile::{Bits, LEAF, LEAF_WORDS, LEAVES, TILE, word_bit};

impl Map {
    /// Starts of ranges and holes, in order.
    pub(super) fn boundaries(&self) -> Vec<(u64, Start)> {
        let mut tiles: Vec<usize> = (0..self.tiles.len()).collect();
        tiles.sort_unstable_by_key(|&tile| self.tiles[tile].number);
        let mut found = Vec::new();
        for tile in tiles {
            let tile = &self.tiles[tile];
            for (leaf, word) in
                (0..LEAVES).flat_map(|leaf| (0..LEAF_WORDS).map(move |word| (leaf, word)))
            {
                let mut left = tile.cut.word(leaf, word);
                while left != 0 {
                    let bit = word_bit(leaf, word) + left.trailing_zeros();
                    left &= left - 1;
                    let start = if tile.hole.get(bit) {
                        Start::Hole
                    } else {
                        Start::Range
                    };
                    found.push((tile.first_page() + u64::from(bit), start));
                }
            }
        }
        found
    }

    /// The segments that the boundaries make: start, end and what it is.
    fn segments(&self) -> Vec<(u64, u64, Start)> {
        let cuts = self.boundaries();
        cuts.windows(2)
            .map(|pair| (pair[0].0, pair[1].0, pair[0].1))
            .collect()
    }

    fn check(&self) -> Result<(), String> {
        let some = |tile| (tile != u32::MAX).then_some(tile);
        let idle = core::iter::successors(some(self.idle), |&tile| {
            some(self.tiles[tile as usize].parent)
        });
        let idle: Vec<u32> = idle.collect();
        if self.used + idle.len() != self.tiles.len() {
            return Err(format!("{} tiles are in use is wrong", self.used));
        }
        for (index, tile) in self.tiles.iter().enumerate() {
            let number = tile.number;
            if idle.contains(&(index as u32)) {
                if tile.cut != Bits::NONE || tile.hole != Bits::NONE || tile.by_class != [0; 64] {
                    return Err(format!("tile {index} is idle, but not empty"));
                }
                continue;
            }
            if self.look_up(number) != Some(index) {
                return Err(format!("tile {number} is not where the nodes say"));
            }
            if tile.occupied == 0 {
                return Err(format!("tile {number} has no boundary, but was kept"));
            }
            for leaf in 0..LEAVES {
                if tile.cut.leaf_is_empty(leaf) == (tile.occupied >> leaf & 1 == 1) {
                    return Err(format!("tile {number}, leaf {leaf}: occupied is wrong"));
                }
            }
        }
        let segments = self.segments();
        let last = segments.last().map(|last| last.1);
        if segments.first().is_none_or(|first| first.0 != 0) || last != Some(self.pages) {
            return Err("the boundaries do not reach from end to end".into());
        }
        for pair in segments.windows(2) {
            if pair[0].2 == Start::Hole && pair[1].2 == Start::Hole {
                return Err(format!(
                    "the holes at pages {:x} and {:x} touch",
                    pair[0].0, pair[1].0
                ));
            }
        }
        for &(start, end, _) in &segments {
            let tile = self
                .look_up(tile_number(start))
                .ok_or("a tile is missing")?;
            let bit = (start % TILE) as u32;
            if start != self.victim.start && self.length(Place { tile, bit }) != end - start {
                return Err(format!("the length of what starts at {start:x} is wrong"));
            }
        }
        self.check_holes(&segments)?;
        self.check_index(&segments)
    }

    /// The bits in `hole` are those of the holes' first and last pages.
    fn check_holes(&self, segments: &[(u64, u64, Start)]) -> Result<(), String> {
        let mut right: Vec<Bits> = alloc::vec![Bits::NONE; self.tiles.len()];
        for &(page, end, start) in segments {
            if start == Start::Hole {
                let mut set = |page: u64| {
                    if let Some(tile) = self.look_up(tile_number(page)) {
                        right[tile].set((page % TILE) as u32);
                    }
                };
                set(page);
                if end % TILE != 0 {
                    set(end - 1);
                }
            }
        }
        for (tile, right) in self.tiles.iter().zip(&right) {
            if tile.hole != *right {
                return Err(format!("tile {}: the bits of holes are wrong", tile.number));
            }
        }
        Ok(())
    }

    /// The index says of every tile exactly, and of every node at least, which classes start in it, and every long hole
    /// is in the list of its class.
    fn check_index(&self, segments: &[(u64, u64, Start)]) -> Result<(), String> {
        let mut tiles: Vec<[u64; CLASSES]> = alloc::vec![[0; CLASSES]; self.tiles.len()];
        let mut holes = [0; CLASSES];
        let mut long = 0;
        for &(start, end, what) in segments {
            let hole = Hole { start, end };
            if what != Start::Hole || hole == self.victim {
                continue;
            }
            let at = self
                .look_up(tile_number(start))
                .ok_or("a tile is missing")?;
            let leaf = (start % TILE / u64::from(LEAF)) as usize;
            if hole.is_long() {
                long += 1;
                let most = self.tiles[at].octaves.get(leaf);
                if most < octave_of(hole.pages()) || self.long_top < start {
                    return Err(format!("the long hole at {start:x} would not be found"));
                }
                continue;
            }
            let class = class_of(hole.pages());
            tiles[at][class] |= 1 << leaf;
            holes[class] += 1;
            let top = self.top[class];
            if top.start < start || (top.start == start && top.end != end && top.end != 0) {
                return Err(format!("class {class}: the topmost hole is wrong"));
            }
        }
        let victim = (self.victim.start, self.victim.end, Start::Hole);
        if self.victim != NO_VICTIM && !segments.contains(&victim) {
            return Err("the victim is no hole".into());
        }
        for (tile, right) in self.tiles.iter().zip(&tiles) {
            if let Some(class) = (0..CLASSES).find(|&class| tile.by_class[class] != right[class]) {
                return Err(format!(
                    "tile {}, class {class}: leaves {:x}, but {:x} is right",
                    tile.number, tile.by_class[class], right[class]
                ));
            }
        }
        if holes != self.holes {
            return Err(format!(
                "{:?} holes by class, but {holes:?} is right",
                self.holes
            ));
        }
        for (class, top) in self.top.iter().enumerate() {
            if top.end != 0 && !segments.contains(&(top.start, top.end, Start::Hole)) {
                return Err(format!("class {class}: the topmost hole is none"));
            }
        }
        for (class, &holes) in holes.iter().enumerate() {
            if (holes > 0) != (self.nonempty.contains(class)) {
                return Err(format!("class {class}: nonempty is wrong"));
            }
        }
        if self.check_lists(segments)? != long {
            return Err(format!("{long} long holes, but not as many in lists"));
        }
        let holes = segments.iter().filter(|one| one.2 == Start::Hole);
        let holes: Vec<Hole> = holes
            .map(|&(start, end, _)| Hole { start, end })
            .filter(|hole| *hole != self.victim)
            .collect();
        self.check_aligned(&holes)?;
        self.check_node(0, self.levels).map(|_| ())
    }

    /// What stands in the lists is a hole of the class, and is linked both ways: how many there are.
    fn check_lists(&self, segments: &[(u64, u64, Start)]) -> Result<usize, String> {
        let mut found = 0;
        for class in 0..LONG_CLASSES {
            let list: Vec<Hole> = self.list(class)?;
            if list.is_empty() == self.long.contains(class) {
                return Err(format!(
                    "long class {class}: whether there are any is wrong"
                ));
            }
            for hole in &list {
                let segment = (hole.start, hole.end, Start::Hole);
                let is_hole = segments.binary_search_by_key(&hole.start, |one| one.0);
                if is_hole.is_ok_and(|at| segments[at] != segment)
                    || is_hole.is_err()
                    || long_class(hole.pages()) != class
                    || *hole == self.victim
                {
                    return Err(format!("long class {class}: {:x} is none", hole.start));
                }
            }
            found += list.len();
        }
        Ok(found)
    }

    /// Checks what is below `node`; the classes that start there, and the highest octave.
    fn check_node(&self, node: u32, level: u32) -> Result<([bool; CLASSES], u8), String> {
        let here = &self.nodes[node as usize];
        let mut any = [false; CLASSES];
        let mut highest = 0;
        for (slot, &child) in here.child.iter().enumerate() {
            if (child != u32::MAX) != (here.occupied >> slot & 1 == 1) {
                return Err(format!("node {node}, slot {slot}: occupied is wrong"));
            }
            let (below, octave) = if child == u32::MAX {
                ([false; CLASSES], 0)
            } else if level == 1 {
                let tile = &self.tiles[child as usize];
                if tile.parent != node {
                    return Err(format!("tile {}: the parent is wrong", tile.number));
                }
                (tile.by_class.map(|leaves| leaves != 0), tile.octaves.max())
            } else {
                if self.nodes[child as usize].parent != node {
                    return Err(format!("node {child}: the parent is wrong"));
                }
                self.check_node(child, level - 1)?
            };
            for class in 0..CLASSES {
                // A bit may be left over, but none may be missing or lead to an absent child.
                let bit = here.by_class[class] >> slot & 1 == 1;
                if (below[class] && !bit) || (bit && child == u32::MAX) {
                    return Err(format!("node {node}, slot {slot}, class {class}: wrong"));
                }
                any[class] |= bit;
            }
            let said = here.octaves.get(slot);
            if said < octave || (child == u32::MAX && said != 0) {
                return Err(format!("node {node}, slot {slot}: octave {said} is wrong"));
            }
            highest = highest.max(said);
        }
        Ok((any, highest))
    }
}

impl Stopgap {
    /// The segments, with what magazines keep made free and joined.
    fn free_and_held(&self) -> Vec<(u64, u64, Start)> {
        let mut kept: Vec<u64> = self.kept().map(|(_, start)| start).collect();
        kept.sort_unstable();
        let mut segments = self.map.segments();
        for segment in &mut segments {
            if kept.binary_search(&segment.0).is_ok() {
                segment.2 = Start::Hole;
            }
        }
        segments.dedup_by(|above, below| {
            let join = above.2 == Start::Hole && below.2 == Start::Hole;
            if join {
                below.1 = above.1;
            }
            join
        });
        segments
    }

    pub(super) fn walk(&self) -> Statistics {
        let magazines = self.bottom.as_ref().map_or(0, |_| size_of::<Magazines>());
        let mut statistics = Statistics {
            memory: (size_of::<Stopgap>() + self.map.memory() + magazines) as u64,
            ..Statistics::default()
        };
        for (start, end, what) in self.free_and_held() {
            let range = self.range(start, end - start);
            if what == Start::Hole {
                statistics.add_hole(range);
            } else {
                statistics.add_range(range);
            }
        }
        statistics
    }

    pub(super) fn check_all(&self) -> Result<(), String> {
        self.map.check()?;
        let segments = self.map.segments();
        let mut kept: Vec<(u64, u64)> = self.kept().collect();
        kept.sort_unstable();
        if kept.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a range is kept twice".into());
        }
        let taken: u64 = segments
            .iter()
            .filter(|segment| segment.2 == Start::Range)
            .map(|segment| segment.1 - segment.0)
            .sum();
        if taken != self.map.taken {
            return Err(format!(
                "{taken} pages are in no hole, but {} were counted",
                self.map.taken
            ));
        }
        for (pages, start) in kept {
            if !segments.contains(&(start, start + pages, Start::Range)) {
                return Err(format!(
                    "{pages} pages at {start:x} are kept, but were not taken"
                ));
            }
        }
        let held = self.free_and_held();
        let live: u64 = held
            .iter()
            .filter(|segment| segment.2 == Start::Range)
            .map(|segment| segment.1 - segment.0)
            .sum();
        if live != self.live {
            return Err(format!(
                "{live} pages are held, but {} were counted",
                self.live
            ));
        }
        Ok(())
    }
}
