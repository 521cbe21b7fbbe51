//! Nodes: one for each range and each hole.

use alloc::vec::Vec;

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
    /// Of a hole: the next of its class. Of a node that is not in use: the next such.
    pub(super) next: u32,
    /// Of a hole that is not the first of its class: the one before it there.
    pub(super) previous: u32,
}

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

    /// Makes a range of a hole, or a hole of a range that is not of the last generation.
    #[inline]
    pub(super) fn turn(&mut self) {
        self.word += 1;
    }
}

/// Nodes in a chunk: 128 KiB.
const CHUNK: usize = 4_096;

/// All nodes, by number. What is there never moves: one more takes the same time however many there are.
pub(super) struct Nodes {
    /// All but the last are full.
    chunks: Vec<Vec<Node>>,
    /// The first of those that are not in use.
    spare: u32,
    /// Nodes that a chunk has room for.
    room: usize,
}

impl Clone for Nodes {
    /// A copy has room for as many more.
    fn clone(&self) -> Nodes {
        let copied = |chunk: &Vec<Node>| {
            let mut copy = Vec::with_capacity(self.room);
            copy.extend_from_slice(chunk);
            copy
        };
        Nodes {
            chunks: self.chunks.iter().map(copied).collect(),
            ..*self
        }
    }
}

impl Nodes {
    /// No nodes, of a window of `pages`.
    pub(super) fn new(pages: u64) -> Nodes {
        Nodes {
            chunks: Vec::new(),
            spare: NONE,
            // Each page, and the two ends.
            room: usize::try_from(pages).map_or(CHUNK, |pages| (pages + 2).min(CHUNK)),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Node> {
        let number = number as usize;
        self.chunks.get(number / CHUNK)?.get(number % CHUNK)
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
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(self.room));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.last_mut()?;
        let number = u32::try_from(full + last.len()).ok()?;
        last.push(Node::EMPTY);
        Some(number)
    }

    /// A node is no longer in use. It is a hole's.
    #[inline]
    pub(super) fn give(&mut self, number: u32) {
        self[number].next = self.spare;
        self.spare = number;
    }

    /// Bytes of memory, by capacity.
    pub(super) fn memory(&self) -> usize {
        let nodes: usize = self.chunks.iter().map(Vec::capacity).sum();
        nodes * size_of::<Node>() + self.chunks.capacity() * size_of::<Vec<Node>>()
    }
}

impl core::ops::Index<u32> for Nodes {
    type Output = Node;

    #[inline]
    fn index(&self, number: u32) -> &Node {
        let number = number as usize;
        &self.chunks[number / CHUNK][number % CHUNK]
    }
}

impl core::ops::IndexMut<u32> for Nodes {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Node {
        let number = number as usize;
        &mut self.chunks[number / CHUNK][number % CHUNK]
    }
}
