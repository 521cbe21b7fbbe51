//! Memory for `stopgap-placement`'s structures, from a piece of the arena's tables: no malloc in a call that may be
//! malloc's own, or in a signal handler.
//!
//! Pieces are powers of two, cut from the front, and kept by size once they are given back. How much is enough is
//! arithmetic ([`bytes_for`]): tiles and nodes are at most what the window has room for, and a list that grows leaves at
//! most its own size behind.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

use stopgap_placement::memory::{Memory, Source};

/// Sizes: 16 bytes to 2^40.
const CLASSES: usize = 37;
const LEAST: usize = 16;

/// Returns the bytes of a heap for `pages`. A tile of 8,192 pages is 2.8 KiB, a piece of 4 KiB, and 32 bytes in a list that doubles; 63
/// tiles share a node of 1.2 KiB, four times that in its list; the magazines and their list are below 128 KiB. So 0.6
/// bytes a page; twice that is taken, of which only what is used is ever there.
pub(super) fn bytes_for(pages: usize) -> usize {
    pages + pages / 4 + (512 << 10)
}

/// See the module. Used under the lock of the shard whose it is.
pub(super) struct Heap {
    next: Cell<usize>,
    end: usize,
    /// For each class, what was given back last; its first word is the one before.
    free: [Cell<usize>; CLASSES],
    source: UnsafeCell<Option<Source>>,
}

fn class(layout: Layout) -> Option<(usize, usize)> {
    let size = layout
        .size()
        .max(layout.align())
        .max(LEAST)
        .checked_next_power_of_two()?;
    let class = (size / LEAST).trailing_zeros() as usize;
    (class < CLASSES).then_some((class, size))
}

fn take(heap: usize, layout: Layout) -> Option<NonNull<u8>> {
    let heap = std::ptr::with_exposed_provenance::<Heap>(heap);
    // SAFETY: the context is the heap's address (`memory`), and the caller holds the shard's lock.
    let heap = unsafe { &*heap };
    let (class, size) = class(layout)?;
    let first = heap.free[class].get();
    if first != 0 {
        let word = std::ptr::with_exposed_provenance::<usize>(first);
        // SAFETY: `give` wrote the word there, and nobody has had the piece since.
        heap.free[class].set(unsafe { word.read() });
        return NonNull::new(std::ptr::with_exposed_provenance_mut(first));
    }
    let start = heap.next.get().checked_next_multiple_of(size.min(4096))?;
    let end = start.checked_add(size)?;
    if end > heap.end {
        return None;
    }
    heap.next.set(end);
    NonNull::new(std::ptr::with_exposed_provenance_mut(start))
}

unsafe fn give(heap: usize, start: NonNull<u8>, layout: Layout) {
    let heap = std::ptr::with_exposed_provenance::<Heap>(heap);
    // SAFETY: as in `take`.
    let heap = unsafe { &*heap };
    // A piece that was taken by this layout has a class.
    if let Some((class, _)) = class(layout) {
        let word = start.as_ptr().cast::<usize>();
        // SAFETY: the piece is at least 16 bytes, aligned to 16, and the caller's no more.
        unsafe { word.write(heap.free[class].get()) };
        heap.free[class].set(word.expose_provenance());
    }
}

impl Heap {
    /// From `start`, zeroed memory that is readable and writable, to `end`.
    pub(super) fn new(start: usize, end: usize) -> Box<Heap> {
        let heap = Box::new(Heap {
            next: Cell::new(start.next_multiple_of(LEAST)),
            end,
            free: [const { Cell::new(0) }; CLASSES],
            source: UnsafeCell::new(None),
        });
        let context = (&raw const *heap).expose_provenance();
        // SAFETY: pieces lie in what was handed in, are as long as their class, aligned to their size or, above a page,
        // to a page (no layout here asks for more), and overlap nothing: each is cut once.
        let source = unsafe { Source::new(take, give, context) };
        // SAFETY: nobody else knows the heap yet.
        unsafe { *heap.source.get() = Some(source) };
        heap
    }

    /// For structures.
    ///
    /// # Safety
    /// They must be gone before the heap is, and be used by one thread at a time.
    pub(super) unsafe fn memory(&self) -> Memory {
        // SAFETY: set once, in `new`; and the caller makes the lifetime long enough.
        let source = unsafe { (*self.source.get()).as_ref() };
        let source = source.map(|source| &raw const *source);
        // SAFETY: likewise.
        source.map_or(Memory::GLOBAL, |source| Memory::of(unsafe { &*source }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_come_back_and_end() {
        let room = vec![0_u128; 1 << 12];
        let start = room.as_ptr().expose_provenance();
        let heap = Heap::new(start, start + (1 << 16));
        let context = (&raw const *heap).expose_provenance();
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let mut pieces = Vec::new();
        while let Some(piece) = take(context, layout(3_000)) {
            pieces.push(piece.as_ptr().addr());
        }
        assert!(pieces.len() >= 15, "{}", pieces.len());
        assert!(pieces.windows(2).all(|two| two[1] - two[0] >= 3_000));
        assert!(pieces.iter().all(|piece| piece % 16 == 0));
        assert_eq!(take(context, layout(4_000)), None);
        let back = NonNull::new(std::ptr::with_exposed_provenance_mut(pieces[3])).unwrap();
        // SAFETY: it was taken above, and is not used.
        unsafe { give(context, back, layout(2_900)) };
        assert_eq!(take(context, layout(2_500)), Some(back));
        assert_eq!(take(context, layout(2_500)), None);
        assert_eq!(take(context, layout(1 << 50)), None);
    }
}
