//! Long holes: a list a class, and searches for them by address.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::class::octave_of;
use super::super::tile::{LEAF_WORDS, Link, TILE, above, below, leaf_of, word_of};
use super::descent::{Kind, Long};
use super::{Hole, Map, NONE, Place, highest, lowest, slot, tile_number};
use crate::classes::{class_of as long_class, least_of_class};
use crate::stopgap::tile::WORDS;

/// The number of the word in which `at` lies: the name of the long hole that starts in it.
#[inline]
fn name(at: Place) -> u32 {
    (at.tile * WORDS + word_of(at.bit)) as u32
}

/// A long hole in a list, and where it starts.
#[derive(Clone, Copy)]
pub(in crate::stopgap) struct Found {
    pub(in crate::stopgap) hole: Hole,
    pub(in crate::stopgap) at: Place,
}

impl Map {
    #[inline]
    fn link(&mut self, name: u32) -> &mut Link {
        let name = name as usize;
        &mut self.tiles[name / WORDS].links[name % WORDS]
    }

    /// The long hole of that name.
    #[inline]
    fn named(&self, name: u32) -> Found {
        let (tile, word) = (name as usize / WORDS, name as usize % WORDS);
        let bit = self.tiles[tile].last_cut(word);
        let hole = self.hole(tile, bit);
        let at = Place { tile, bit };
        Found { hole, at }
    }

    /// The index gets a long hole, which starts at `at`. The topmost holes of a class come first, as far as the first in
    /// its list tells.
    #[inline]
    pub(super) fn add_long(&mut self, hole: Hole, at: Place) {
        let class = long_class(hole.pages());
        let octave = octave_of(hole.pages());
        let tile = &mut self.tiles[at.tile];
        let leaf = leaf_of(at.bit);
        if tile.octaves.get(leaf) < octave {
            tile.octaves.set(leaf, octave);
            let (number, parent) = (tile.number, tile.parent);
            self.raise(number, parent, octave);
        }
        self.long_top = self.long_top.max(hole.start);
        let new = name(at);
        let first = self.first[class];
        let mut link = Link {
            next: first,
            previous: NONE,
        };
        if first == NONE {
            self.long.insert(class);
            self.first[class] = new;
        } else {
            let top = &self.tiles[first as usize / WORDS];
            let is_above = (tile_number(hole.start), name(at) as usize % WORDS)
                > (top.number, first as usize % WORDS);
            if is_above {
                self.link(first).previous = new;
                self.first[class] = new;
            } else {
                let second = core::mem::replace(&mut self.link(first).next, new);
                link = Link {
                    next: second,
                    previous: first,
                };
                if second != NONE {
                    self.link(second).previous = new;
                }
            }
        }
        *self.link(new) = link;
        if self.aligned.is_used() {
            self.add_aligned(hole, at);
        }
    }

    /// Notes above the tile `number` that a hole of `octave` starts in it.
    #[inline(never)]
    fn raise(&mut self, number: u32, parent: u32, octave: u8) {
        let mut node = parent;
        for level in 1..=self.levels {
            let here = &mut self.nodes[node as usize];
            let slot = slot(number, level);
            if here.octaves.get(slot) >= octave {
                return;
            }
            here.octaves.set(slot, octave);
            self.propagated += 1;
            node = here.parent;
        }
    }

    /// The index loses a long hole of `pages` pages, which starts at `at`.
    #[inline]
    pub(super) fn remove_long(&mut self, pages: u64, at: Place) {
        if self.aligned.is_used() {
            let start = self.page(at);
            let end = start + pages;
            self.remove_aligned(Hole { start, end }, at);
        }
        let Link { next, previous } = *self.link(name(at));
        if next != NONE {
            self.link(next).previous = previous;
        }
        if previous != NONE {
            self.link(previous).next = next;
        } else {
            let class = long_class(pages);
            self.first[class] = next;
            if next == NONE {
                self.long.remove(class);
            }
        }
    }

    /// The first hole in the list of `class`, which is not empty.
    #[inline]
    pub(in crate::stopgap) fn first_of(&self, class: usize) -> Found {
        self.named(self.first[class])
    }

    /// The hole after the one at `at` in the list of its class.
    pub(in crate::stopgap) fn next_of(&mut self, at: Place) -> Option<Found> {
        let next = self.link(name(at)).next;
        (next != NONE).then(|| self.named(next))
    }

    /// A hole of at least `pages`, from the class of `pages` on: of that class, whose holes may be too short, the shortest
    /// that will do of the first `looks`, of the next one any. Also how many were looked at.
    #[inline]
    pub(in crate::stopgap) fn shortest(&mut self, pages: u64, looks: u32) -> (Option<Found>, u32) {
        let class = long_class(pages);
        let mut looked = 0;
        // One branch: the processor can foresee neither condition by itself.
        let is_unsure = least_of_class(pages) < pages;
        if is_unsure & self.long.contains(class) {
            let mut best: Option<Found> = None;
            let mut least = u64::MAX;
            let mut at = self.first[class];
            while at != NONE && looked < looks {
                looked += 1;
                let found = self.named(at);
                let length = found.hole.pages();
                if length >= pages && length < least {
                    best = Some(found);
                    least = length;
                    if length == pages {
                        break;
                    }
                }
                at = self.link(at).next;
            }
            if best.is_some() {
                return (best, looked);
            }
        }
        let sure = class + usize::from(is_unsure);
        let found = self.long.first_from(sure);
        (found.map(|class| self.first_of(class)), looked + 1)
    }

    /// The holes in the list of `class`, whose links are looked at.
    pub(in crate::stopgap) fn list(&self, class: usize) -> Result<Vec<Hole>, String> {
        let mut list = Vec::new();
        let (mut at, mut before) = (self.first[class], NONE);
        while at != NONE {
            let link = self.tiles[at as usize / WORDS].links[at as usize % WORDS];
            if link.previous != before {
                return Err(format!("long class {class}: the list is broken"));
            }
            list.push(self.named(at).hole);
            (before, at) = (at, link.next);
        }
        Ok(list)
    }

    /// Pages of the longest hole, the victim left out; 0 where there is none.
    pub(in crate::stopgap) fn largest(&self) -> u64 {
        let Some(class) = self.long.last() else {
            return self.nonempty.last().map_or(0, |class| class as u64 + 1);
        };
        let mut most = 0;
        let mut at = self.first[class];
        while at != NONE {
            most = most.max(self.named(at).hole.pages());
            at = self.tiles[at as usize / WORDS].links[at as usize % WORDS].next;
        }
        most
    }

    /// The topmost long hole, if it starts at page `from` or above. Looks at `looks` leaves at most.
    pub(in crate::stopgap) fn topmost_long(&mut self, from: u64, looks: &mut u32) -> Option<Hole> {
        if self.long_top < from || self.long.first_from(0).is_none() {
            return None;
        }
        let hole = self.next_long(octave_of(65), self.long_top + 1, true, looks);
        match hole {
            Some(hole) => {
                self.long_top = hole.start;
                (hole.start >= from).then_some(hole)
            }
            None => None,
        }
    }

    /// The last long hole of `octave` or a later one that starts before `page` (`down`), or the first that starts there or
    /// after it. The victim is none. Takes the leaves that it looks at from `looks`; where that ends so does the search.
    pub(in crate::stopgap) fn next_long(
        &mut self,
        octave: u8,
        page: u64,
        down: bool,
        looks: &mut u32,
    ) -> Option<Hole> {
        let kind = Long(octave);
        // The bound, which is itself allowed.
        let mut bound = if down { page.checked_sub(1)? } else { page };
        loop {
            let number = tile_number(bound);
            let tile = self.descend(kind, number, down)?;
            let here = &self.tiles[tile];
            let first = here.first_page();
            let mut leaves = kind.leaves(here);
            if here.number == number {
                let leaf = leaf_of((bound - first) as u32);
                leaves &= 1 << leaf | if down { below(leaf) } else { above(leaf) };
            }
            while leaves != 0 {
                *looks = looks.checked_sub(1)?;
                let leaf = if down {
                    highest(leaves)
                } else {
                    lowest(leaves)
                };
                leaves &= !(1 << leaf);
                let mut most = 0;
                let mut found = None;
                for word in 0..LEAF_WORDS {
                    let word = if down { LEAF_WORDS - 1 - word } else { word };
                    let Some(bit) = self.tiles[tile].last_hole(leaf, word) else {
                        continue;
                    };
                    let hole = self.hole(tile, bit);
                    if !hole.is_long() || hole.start == self.victim.start {
                        continue;
                    }
                    let of_hole = octave_of(hole.pages());
                    most = most.max(of_hole);
                    let allowed = if down {
                        hole.start <= bound
                    } else {
                        hole.start >= bound
                    };
                    if allowed && of_hole >= octave && found.is_none() {
                        found = Some(hole);
                    }
                }
                self.tiles[tile].octaves.set(leaf, most);
                if found.is_some() {
                    return found;
                }
            }
            bound = if down {
                first.checked_sub(1)?
            } else {
                first + TILE
            };
            if bound > self.pages {
                return None;
            }
        }
    }
}
