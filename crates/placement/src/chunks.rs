//! A list that moves nothing when it grows: one more takes as long however many there are.

use core::ops::{Index, IndexMut};

use crate::memory::{Memory, Vec, Zeroed, push_zeroed};

/// A list in chunks of `N`.
pub(crate) struct Chunks<T, const N: usize> {
    /// All but the last are full.
    chunks: Vec<Vec<T>>,
    /// What a chunk has room for.
    room: usize,
}

impl<T, const N: usize> Chunks<T, N> {
    /// An empty list.
    pub(crate) const fn new_in(memory: Memory) -> Chunks<T, N> {
        Chunks {
            chunks: Vec::new_in(memory),
            room: N,
        }
    }

    /// Takes less memory than a chunk where there will never be more than `most`.
    pub(crate) fn limit(&mut self, most: u64) {
        self.room = usize::try_from(most).map_or(N, |most| most.min(N));
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        let last = self.chunks.last().map_or(N, Vec::len);
        // Of no chunks none is full.
        (self.chunks.len() * N + last).wrapping_sub(N)
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / N)?.get(at % N)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// The chunk to which the next is added.
    #[inline]
    fn last(&mut self) -> &mut Vec<T> {
        let at = self.len() / N;
        if at == self.chunks.len() {
            let memory = *self.chunks.allocator();
            self.chunks.push(Vec::with_capacity_in(self.room, memory));
        }
        &mut self.chunks[at]
    }

    #[inline]
    pub(crate) fn push(&mut self, new: T) {
        self.last().push(new);
    }

    /// Adds a value of zeros.
    pub(crate) fn push_zeroed(&mut self)
    where
        T: Zeroed,
    {
        push_zeroed(self.last());
    }

    /// Bytes of memory, by capacity.
    pub(crate) fn memory(&self) -> usize {
        let room: usize = self.chunks.iter().map(Vec::capacity).sum();
        room * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

impl<T, const N: usize> Index<usize> for Chunks<T, N> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / N][at % N]
    }
}

impl<T, const N: usize> IndexMut<usize> for Chunks<T, N> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / N][at % N]
    }
}

impl<T: Clone, const N: usize> Clone for Chunks<T, N> {
    /// A copy's last chunk has room for as many more.
    fn clone(&self) -> Chunks<T, N> {
        let memory = *self.chunks.allocator();
        let mut chunks = Vec::with_capacity_in(self.chunks.len(), memory);
        for chunk in &self.chunks {
            let mut copy = Vec::with_capacity_in(self.room, memory);
            copy.extend_from_slice(chunk);
            chunks.push(copy);
        }
        Chunks { chunks, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_when_it_grows() {
        let mut list: Chunks<u32, 4> = Chunks::new_in(Memory::GLOBAL);
        assert_eq!((list.len(), list.get(0)), (0, None));
        list.push(0);
        let first = core::ptr::from_ref(&list[0]);
        for at in 1..10 {
            list.push(at);
            assert_eq!(list.len(), at as usize + 1);
        }
        assert_eq!(core::ptr::from_ref(&list[0]), first);
        let mut copy = list.clone();
        copy.push(10);
        assert!(copy.iter().copied().eq(0..11));
        assert!(copy.chunks.iter().all(|chunk| chunk.capacity() == 4));
        assert_eq!((list.get(9), list.get(10), copy[10]), (Some(&9), None, 10));
    }
}
