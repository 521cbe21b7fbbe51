//! The memory of this library itself, straight from the kernel: a library that stands in for mmap may not ask malloc, which
//! may ask mmap.
//!
//! Sizes are rounded up to powers of two from 32 bytes to 16 KiB; freed blocks wait in a list a size for the next of
//! theirs and never go back. What is larger is a mapping of its own. Only the books live here, a few hundred bytes a
//! live map, so nothing cleverer pays. The spin lock is never waited for: all of it happens under the books' own lock.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::{self, PAGE};

const SMALLEST: usize = 5;
const LARGEST: usize = 14;
/// Taken from the kernel at once.
const PIECE: usize = 256 << 10;

struct Lists {
    free: [*mut u8; LARGEST - SMALLEST + 1],
    next: usize,
    end: usize,
}

/// The allocator.
pub(crate) struct Heap {
    busy: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: only the thread that set `busy` touches `lists`.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) const fn new() -> Heap {
        Heap {
            busy: AtomicBool::new(false),
            lists: UnsafeCell::new(Lists {
                free: [std::ptr::null_mut(); LARGEST - SMALLEST + 1],
                next: 0,
                end: 0,
            }),
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Lists) -> T) -> T {
        while self.busy.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: `busy` was false and is ours now.
        let result = work(unsafe { &mut *self.lists.get() });
        self.busy.store(false, Ordering::Release);
        result
    }
}

/// Which list holds blocks of this layout; `None`: a mapping of its own.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(1);
    let class = size.next_power_of_two().trailing_zeros() as usize;
    (class <= LARGEST).then_some(class.saturating_sub(SMALLEST))
}

fn map(length: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mapped = kernel::mmap(0, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    mapped.map_or(std::ptr::null_mut(), |address| address as *mut u8)
}

impl Lists {
    fn take(&mut self, class: usize) -> *mut u8 {
        let head = self.free[class];
        if !head.is_null() {
            // SAFETY: a block in a list holds the next one's address in its first word.
            self.free[class] = unsafe { head.cast::<*mut u8>().read() };
            return head;
        }
        let size = 1_usize << (class + SMALLEST);
        // The start of a piece is a page's, and all sizes are powers of two: aligned to the size.
        let mut start = self.next.next_multiple_of(size);
        if start + size > self.end {
            let piece = map(PIECE) as usize;
            if piece == 0 {
                return std::ptr::null_mut();
            }
            // The rest of the last piece is lost: less than a block.
            start = piece.next_multiple_of(size);
            self.end = piece + PIECE;
        }
        self.next = start + size;
        start as *mut u8
    }

    fn give(&mut self, class: usize, block: *mut u8) {
        // SAFETY: the block is free, at least 32 bytes, aligned to its size.
        unsafe { block.cast::<*mut u8>().write(self.free[class]) };
        self.free[class] = block;
    }
}

// SAFETY: blocks are aligned to their size, disjoint until they are given back, and their memory is never unmapped
// before.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => self.locked(|lists| lists.take(class)),
            None if layout.align() <= PAGE => map(layout.size().next_multiple_of(PAGE)),
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => self.locked(|lists| lists.give(class, block)),
            None => {
                let _ = kernel::munmap(block as usize, layout.size().next_multiple_of(PAGE));
            }
        }
    }
}
