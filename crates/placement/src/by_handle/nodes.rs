//! Nodes: one for each range and each hole.

use crate::chunks::Chunks;
use crate::memory::{Memory, Zeroed};

/// Names no node in lists. It is the name of [`EDGE`], which is in none.
pub(super) const NONE: u32 = 0;
/// The hole at the window's start, which may have no pages.
pub(super) const EDGE: u32 = 0;
/// A range of no pages at the window's end, never freed.
pub(super) const END: u32 = 1;

/// Bits of a generation.
const GENERATION_BITS: u32 = 20;
/// The last generation of a node.
pub(super) const LAST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

/// See the module. 32 bytes: two lie in a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Node {
    /// First page, and below it the generation: odd while a range is held.
    word: u64,
    pub(super) pages: u64,
    /// The range or hole that ends where this one starts.
    pub(super) before: u32,
    /// The range or hole that starts where this one ends.
    pub(super) after: u32,
    /// Of a hole: the next of its class. Of a node that is not in use: the next such. Of a range: its first pages that nobody was
    /// given.
    pub(super) next: u32,
    /// Of a hole that is not the first of its class: the one before it there. Of a range: its last pages that nobody was given.
    pub(super) previous: u32,
}

#[allow(unsafe_code)]
// SAFETY: all fields are integers.
unsafe impl Zeroed for Node {}

impl Node {
    /// A hole that has no neighbour and is in no list.
    pub(super) const EMPTY: Node = Node {
        word: 0,
        pages: 0,
        before: NONE,
        after: NONE,
        next: NONE,
        previous: NONE,
    };

    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.word >> GENERATION_BITS
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start() + self.pages
    }

    #[inline]
    pub(super) fn set_start(&mut self, page: u64) {
        self.word = page << GENERATION_BITS | u64::from(self.generation());
    }

    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.word as u32 & LAST_GENERATION
    }

    pub(super) fn set_generation(&mut self, generation: u32) {
        self.word = self.start() << GENERATION_BITS | u64::from(generation);
    }

    #[inline]
    pub(super) fn is_hole(&self) -> bool {
        self.word & 1 == 0
    }

    /// Makes a range of a node that is not in use, or of a hole.
    #[inline]
    pub(super) fn begin(&mut self, start: u64, pages: u64, [before, after]: [u32; 2]) {
        self.word = start << GENERATION_BITS | u64::from(self.generation() + 1);
        self.pages = pages;
        (self.before, self.after) = (before, after);
        self.pad([0, 0]);
    }

    /// Says how many of a range's first and last pages nobody is given.
    #[inline]
    pub(super) fn pad(&mut self, [first, last]: [u32; 2]) {
        (self.next, self.previous) = (first, last);
    }

    /// First page of a range, and the pages, without padding.
    #[inline]
    pub(super) fn given(&self) -> (u64, u64) {
        let [first, last] = [self.next, self.previous].map(u64::from);
        (self.start() + first, self.pages - first - last)
    }

    /// Makes a hole of what has only begun to be a range.
    pub(super) fn turn_back(&mut self) {
        self.word -= 1;
    }

    /// Makes a range of a hole, or a hole of a range that is not of the last generation.
    #[inline]
    pub(super) fn turn(&mut self) {
        self.word += 1;
    }
}

/// Nodes in a chunk: 16 KiB.
const CHUNK: usize = 512;

/// All nodes, by number.
#[derive(Clone)]
pub(super) struct Nodes {
    list: Chunks<Node, CHUNK>,
    /// The first of those that are not in use.
    spare: u32,
}

impl Nodes {
    /// No nodes.
    pub(super) fn new() -> Nodes {
        let list = Chunks::new_in(Memory::GLOBAL);
        Nodes { list, spare: NONE }
    }

    /// The node of that number. One that was never made is a hole.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Node> {
        self.list.get(number as usize)
    }

    /// Adds a node, or uses one again; `None` where there are 2^32 - 1.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        match self.spare {
            NONE => self.more(),
            spare => {
                self.spare = self[spare].next;
                Some(spare)
            }
        }
    }

    pub(super) fn more(&mut self) -> Option<u32> {
        // Fewer than 2^32, so that each number has 32 bits.
        let room = self.list.len() < u32::MAX as usize;
        room.then(|| self.list.push() as u32)
    }

    /// A node is no longer in use. It is a hole's.
    #[inline]
    pub(super) fn give(&mut self, number: u32) {
        self[number].next = self.spare;
        self.spare = number;
    }

    /// Bytes of memory, by capacity.
    pub(super) fn memory(&self) -> usize {
        self.list.memory()
    }
}

impl core::ops::Index<u32> for Nodes {
    type Output = Node;

    #[inline]
    fn index(&self, number: u32) -> &Node {
        &self.list[number as usize]
    }
}

impl core::ops::IndexMut<u32> for Nodes {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Node {
        &mut self.list[number as usize]
    }
}
