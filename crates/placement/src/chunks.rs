//! A list that moves nothing when it grows: one more takes as long however many there are.

use core::ops::{Index, IndexMut};

use crate::memory::{Box, Memory, Vec, Zeroed, zeroed};

/// A list in chunks of `N`.
#[derive(Clone)]
pub(crate) struct Chunks<T: Zeroed, const N: usize> {
    chunks: Vec<Box<[T; N]>>,
    length: usize,
}

impl<T: Zeroed, const N: usize> Chunks<T, N> {
    /// An empty list.
    pub(crate) const fn new_in(memory: Memory) -> Chunks<T, N> {
        Chunks {
            chunks: Vec::new_in(memory),
            length: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// What is at `at`; a value of zeros where less than a chunk is missing.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        Some(&self.chunks.get(at / N)?[at % N])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .take(self.length)
    }

    /// Adds a value of zeros: its place.
    #[inline]
    pub(crate) fn push(&mut self) -> usize {
        let new = self.length;
        if new == self.chunks.len() * N {
            self.push_chunk();
        }
        self.length = new + 1;
        new
    }

    #[cold]
    fn push_chunk(&mut self) {
        let memory = *self.chunks.allocator();
        self.chunks.push(zeroed(memory));
    }

    /// Bytes of memory, by capacity.
    pub(crate) fn memory(&self) -> usize {
        self.chunks.len() * N * size_of::<T>() + self.chunks.capacity() * size_of::<Box<[T; N]>>()
    }
}

impl<T: Zeroed, const N: usize> Index<usize> for Chunks<T, N> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / N][at % N]
    }
}

impl<T: Zeroed, const N: usize> IndexMut<usize> for Chunks<T, N> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / N][at % N]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_when_it_grows() {
        let mut list: Chunks<u32, 4> = Chunks::new_in(Memory::GLOBAL);
        assert_eq!((list.len(), list.get(0)), (0, None));
        list.push();
        let first = core::ptr::from_ref(&list[0]);
        for at in 1..10 {
            assert_eq!(list.push(), at);
            list[at] = at as u32;
        }
        assert_eq!(core::ptr::from_ref(&list[0]), first);
        let mut copy = list.clone();
        let new = copy.push();
        copy[new] = 10;
        assert!(copy.iter().copied().eq(0..11));
        assert_eq!(
            (list.len(), list.get(9), list.get(10)),
            (10, Some(&9), Some(&0))
        );
        assert_eq!(list.get(12), None);
    }
}
