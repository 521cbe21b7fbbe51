//! Where `stopgap`'s own structures lie: the global allocator, or a source that is handed in.
//!
//! Whoever stands in for mmap must not call malloc while it places: malloc may be what called mmap, or what a signal
//! interrupted. Such a user hands in a [`Source`] of its own.
//!
//! [`Memory`] is a value and no type parameter, so that nothing else of the crate becomes generic; the containers are
//! those of `allocator-api2`, the standard library's with an allocator on a stable compiler. Memory is taken where a
//! tile of the map is made, some KiB at a time, so one branch more for each is nothing.

#![allow(unsafe_code)]

use alloc::alloc::Layout;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator, Global};

pub(crate) type Box<T> = allocator_api2::boxed::Box<T, Memory>;
pub(crate) type Vec<T> = allocator_api2::vec::Vec<T, Memory>;

/// Two functions that take and give memory.
#[derive(Debug)]
pub struct Source {
    take: fn(usize, Layout) -> Option<NonNull<u8>>,
    give: unsafe fn(usize, NonNull<u8>, Layout),
    context: usize,
}

impl Source {
    /// `take(context, layout)` gives memory, or `None`, which ends the process as the global allocator's does: a source
    /// must have enough. `give(context, memory, layout)` takes it back.
    ///
    /// # Safety
    /// What `take` gives must be as long and as aligned as `layout` says, overlap nothing else in use, and stay until
    /// `give` is called with it, on any thread.
    #[must_use]
    pub const unsafe fn new(
        take: fn(usize, Layout) -> Option<NonNull<u8>>,
        give: unsafe fn(usize, NonNull<u8>, Layout),
        context: usize,
    ) -> Source {
        Source {
            take,
            give,
            context,
        }
    }
}

/// Types for which memory filled with zeros is a value.
///
/// # Safety
/// Each field is an integer, or an array or structure of such.
pub(crate) unsafe trait Zeroed {}

// SAFETY: an integer, and an array of such types.
unsafe impl Zeroed for u32 {}
// SAFETY: likewise.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// Returns a value of zeros. It is never on the stack, which may have less room than a value is long.
pub(crate) fn zeroed<T: Zeroed>(memory: Memory) -> Box<T> {
    // SAFETY: by the trait.
    unsafe { Box::new_zeroed_in(memory).assume_init() }
}

/// Where structures lie. The default is the global allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory(Option<&'static Source>);

impl Memory {
    /// The global allocator.
    pub const GLOBAL: Memory = Memory(None);

    /// From `source`.
    #[must_use]
    pub const fn of(source: &'static Source) -> Memory {
        Memory(Some(source))
    }
}

// SAFETY: copies of a `Memory` refer to one source, or to the global allocator, so that any of them may give back what
// another one took; the source keeps the rest of the contract, as `Source::new` demands.
unsafe impl Allocator for Memory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(source) = self.0 else {
            return Global.allocate(layout);
        };
        let start = (source.take)(source.context, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if self.0.is_none() {
            // Which need not touch new memory.
            return Global.allocate_zeroed(layout);
        }
        let new = self.allocate(layout)?;
        // SAFETY: the memory is as long as the layout says.
        unsafe { new.cast::<u8>().write_bytes(0, layout.size()) };
        Ok(new)
    }

    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if self.0.is_none() {
            // Which need not copy a long list.
            // SAFETY: the caller gives what `allocate` gave for this layout, and a layout that is no smaller.
            return unsafe { Global.grow(start, old, new) };
        }
        let grown = self.allocate(new)?;
        // SAFETY: the new memory is as long at least, and apart from the old, which is given back as the caller says.
        unsafe {
            start.copy_to_nonoverlapping(grown.cast(), old.size());
            self.deallocate(start, old);
        }
        Ok(grown)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match self.0 {
            // SAFETY: the caller gives back what `allocate` gave for this layout.
            None => unsafe { Global.deallocate(start, layout) },
            // SAFETY: likewise, by this source.
            Some(source) => unsafe { (source.give)(source.context, start, layout) },
        }
    }
}
