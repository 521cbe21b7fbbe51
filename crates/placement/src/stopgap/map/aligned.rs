//! Long holes by alignment: for requests whose alignment few holes have.
//!
//! Of a hole's pages one is a multiple of a larger power of two than all others: its *best* page. What asks for that power or a
//! smaller one fits if it is no longer than what follows the best page. So a hole stands in one list: in the row of that power, and
//! there in the class of the pages from the best one on. A request looks for the lowest class that is sure to do in all rows from
//! its own on, and touches no hole but the one that it takes.
//!
//! Programs that ask for no such alignment pay nothing: the index begins with the first such request, and has the holes that
//! came since.

use alloc::format;
use alloc::string::String;

use super::super::tile::{Link, WORDS, word_of};
use super::{Hole, Map, Place, TILES};
use crate::chunks::Chunks;
use crate::classes::{self, class_of as long_class};
use crate::memory::{Box, Memory, Zeroed, zeroed};

/// The power of the first row: any long hole has a page that is a multiple of 64.
const LEAST: u32 = 6;
/// Rows: of each power a row, of the last and all above one.
const ROWS: usize = 16;
/// The highest power that a request may ask for.
const MOST: u32 = LEAST + ROWS as u32 - 1;
/// A class here is 2 to this power of the lists' classes: 8 an octave.
const COARSE: u32 = 4;
const CLASSES: usize = (classes::CLASSES >> COARSE) + 1;
const SETS: usize = CLASSES.div_ceil(64);

/// The lists, by row and class.
#[derive(Clone)]
struct Table {
    /// For each 64 classes, and of them for each row: those that have a hole.
    sets: [[u64; ROWS]; SETS],
    /// The name of the first hole, from 1 on; 0 where there is none.
    first: [[u32; CLASSES]; ROWS],
}

#[allow(unsafe_code)]
// SAFETY: all fields are integers.
unsafe impl Zeroed for Table {}

/// For each word of a tile, the neighbours of the long hole that starts in it. Names count from 1, 0 is none.
#[derive(Clone)]
struct Links {
    links: [Link; WORDS],
    tile: u32,
}

#[allow(unsafe_code)]
// SAFETY: all fields are integers.
unsafe impl Zeroed for Links {}

/// See the module.
#[derive(Clone)]
pub(super) struct ByAlignment {
    table: Option<Box<Table>>,
    links: Chunks<Links, TILES>,
    /// The address of the window's first page, in pages: what alignments count from.
    base: u64,
}

impl ByAlignment {
    pub(super) const fn new_in(memory: Memory) -> ByAlignment {
        ByAlignment {
            table: None,
            links: Chunks::new_in(memory),
            base: 0,
        }
    }

    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.table.is_some()
    }

    pub(super) fn memory(&self) -> usize {
        self.table.as_ref().map_or(0, |_| size_of::<Table>()) + self.links.memory()
    }

    /// The row and class of a long hole.
    #[inline]
    fn key(&self, hole: Hole) -> (usize, usize) {
        let (before, last) = (
            (hole.start + self.base).wrapping_sub(1),
            hole.end - 1 + self.base,
        );
        // The highest bit in which they differ: the best page has it, and none below.
        let log = (before ^ last).ilog2();
        let best = last >> log << log;
        let row = (log.saturating_sub(LEAST) as usize).min(ROWS - 1);
        (row, coarse(long_class(last - best + 1)))
    }

    #[inline]
    fn link(&mut self, name: u32) -> &mut Link {
        let at = name as usize - 1;
        &mut self.links[at / WORDS].links[at % WORDS]
    }
}

/// The class here of a class of the lists.
#[inline]
pub(in crate::stopgap) fn coarse(class: usize) -> usize {
    class >> COARSE
}

impl Map {
    /// From here on the index has what comes. `base` is the address of the window's first page, in pages.
    pub(in crate::stopgap) fn index_alignments(&mut self, base: u64) {
        if !self.aligned.is_used() {
            self.aligned.table = Some(zeroed(*self.nodes.allocator()));
            self.aligned.base = base;
        }
    }

    /// Whether there is an index.
    pub(in crate::stopgap) fn indexes_alignments(&self) -> bool {
        self.aligned.is_used()
    }

    /// The index gets a long hole, which starts at `at`, first in its list.
    #[inline(never)]
    pub(super) fn add_aligned(&mut self, hole: Hole, at: Place) {
        let mut slot = self.tiles[at.tile].aligned;
        if slot == 0 {
            let new = self.aligned.links.push();
            self.aligned.links[new].tile = at.tile as u32;
            slot = new as u32 + 1;
            self.tiles[at.tile].aligned = slot;
        }
        let (row, class) = self.aligned.key(hole);
        let Some(table) = &mut self.aligned.table else {
            return;
        };
        let name = (slot - 1) * WORDS as u32 + word_of(at.bit) as u32 + 1;
        let next = core::mem::replace(&mut table.first[row][class], name);
        if next == 0 {
            table.sets[class / 64][row] |= 1 << (class % 64);
        } else {
            self.aligned.link(next).previous = name;
        }
        *self.aligned.link(name) = Link { next, previous: 0 };
    }

    /// The index loses a long hole, which starts at `at`, if it has it.
    #[inline(never)]
    pub(super) fn remove_aligned(&mut self, hole: Hole, at: Place) {
        let slot = self.tiles[at.tile].aligned;
        if slot == 0 {
            return;
        }
        let name = (slot - 1) * WORDS as u32 + word_of(at.bit) as u32 + 1;
        let Link { next, previous } = core::mem::replace(self.aligned.link(name), Link::NONE);
        if previous != 0 {
            self.aligned.link(previous).next = next;
        } else {
            let (row, class) = self.aligned.key(hole);
            let Some(table) = &mut self.aligned.table else {
                return;
            };
            if table.first[row][class] != name {
                // It was there before the index.
                return;
            }
            table.first[row][class] = next;
            if next == 0 {
                table.sets[class / 64][row] &= !(1 << (class % 64));
            }
        }
        if next != 0 {
            self.aligned.link(next).previous = previous;
        }
    }

    /// The hole of the lowest class, of these the least aligned, in which `pages` fit from a multiple of 2 to the power of `log` on; with
    /// the class.
    pub(in crate::stopgap) fn aligned_hole(&self, log: u32, pages: u64) -> Option<(usize, Hole)> {
        let table = self.aligned.table.as_ref()?;
        if log > MOST {
            return None;
        }
        let row = log.saturating_sub(LEAST) as usize;
        // Of a class above that of a page less all are long enough.
        let sure = coarse(long_class(pages - 1)) + 1;
        let mut mask = !0 << (sure % 64);
        for (at, sets) in table.sets.iter().enumerate().skip(sure / 64) {
            let any = sets[row..].iter().fold(0, |any, set| any | set) & mask;
            if any != 0 {
                let bit = any.trailing_zeros() as usize;
                let row = row + sets[row..].iter().position(|set| set >> bit & 1 == 1)?;
                let class = at * 64 + bit;
                return Some((class, self.hole_named(table.first[row][class])));
            }
            mask = !0;
        }
        None
    }

    /// The hole of that name.
    fn hole_named(&self, name: u32) -> Hole {
        let at = name as usize - 1;
        let tile = self.aligned.links[at / WORDS].tile as usize;
        self.hole(tile, self.tiles[tile].last_cut(at % WORDS))
    }

    /// What stands in the lists is a long hole of the row and class, and is linked both ways.
    pub(in crate::stopgap) fn check_aligned(&self, holes: &[Hole]) -> Result<(), String> {
        let Some(table) = &self.aligned.table else {
            return Ok(());
        };
        for (row, firsts) in table.first.iter().enumerate() {
            for (class, &first) in firsts.iter().enumerate() {
                if (first != 0) != (table.sets[class / 64][row] >> (class % 64) & 1 == 1) {
                    return Err(format!(
                        "row {row}, class {class}: whether there are any is wrong"
                    ));
                }
                let (mut name, mut before) = (first, 0);
                while name != 0 {
                    let hole = self.hole_named(name);
                    if self.aligned.key(hole) != (row, class)
                        || holes
                            .binary_search_by_key(&hole.start, |one| one.start)
                            .is_err()
                    {
                        return Err(format!(
                            "row {row}, class {class}: {:x} is none",
                            hole.start
                        ));
                    }
                    let at = name as usize - 1;
                    let link = self.aligned.links[at / WORDS].links[at % WORDS];
                    if link.previous != before {
                        return Err(format!("row {row}, class {class}: the list is broken"));
                    }
                    (before, name) = (name, link.next);
                }
            }
        }
        Ok(())
    }
}
