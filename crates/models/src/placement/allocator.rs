//! Allocators that can replay operations: policies, and those of other projects.

use std::num::NonZeroU64;

use stopgap_placement::registry::{Name, Visit};
use stopgap_placement::{
    Direction, FreeError, Merge, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};

use super::execution::{Execute, Execution, Limits};

/// Something that places ranges. Unlike a [`Policy`] it may want back what it gave as it likes: a
/// token, where a policy takes the range alone. The driver keeps that [`Allocator::Handle`] in the
/// range's slot; for all allocators here it is 8 bytes, so that all share one cost.
pub trait Allocator {
    /// Handle that frees a range.
    type Handle: Copy;

    /// Places a range.
    ///
    /// # Errors
    /// [`PlaceError`]; nothing has changed then.
    fn place(&mut self, request: &Request) -> Result<Self::Handle, PlaceError>;

    /// Frees a range of `size` bytes, whole pages.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    fn free(&mut self, handle: Self::Handle, size: u64) -> Result<(), FreeError>;

    /// Changes what the first `size` bytes of a range merge with. It is nothing to what keeps no
    /// VMAs.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    fn protect(&mut self, handle: Self::Handle, size: u64, merge: Merge) -> Result<(), FreeError> {
        let _ = (handle, size, merge);
        Ok(())
    }

    /// Where a range starts, for those that keep no statistics; `None` where it does not know.
    fn start(&self, handle: Self::Handle) -> Option<u64> {
        let _ = handle;
        None
    }

    /// Returns its work so far; `None` where it does not count.
    fn work(&self) -> Option<Work> {
        None
    }

    /// Returns statistics of the ranges it holds; `None` where it keeps none.
    fn statistics(&self) -> Option<Statistics> {
        None
    }

    /// Bytes of memory that its structures take, for those without statistics; `None` where it does
    /// not know.
    fn memory(&self) -> Option<u64> {
        None
    }
}

/// A policy, which is given back ranges.
#[derive(Debug)]
pub struct ByRange<P>(pub P);

/// A start address in 8 bytes that are never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start(NonZeroU64);

impl Start {
    /// `address`, which lies below 2^48, as all of a [`Space`] do.
    #[must_use]
    pub fn new(address: u64) -> Start {
        Start(NonZeroU64::MIN.saturating_add(address))
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.0.get() - 1
    }
}

impl<P: Policy> Allocator for ByRange<P> {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        Ok(Start::new(self.0.place(request)?.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        self.0.free(Range::new(start, start + size))
    }

    fn protect(&mut self, handle: Start, size: u64, merge: Merge) -> Result<(), FreeError> {
        let start = handle.address();
        self.0.protect(Range::new(start, start + size), merge)
    }

    #[inline]
    fn work(&self) -> Option<Work> {
        Some(self.0.work())
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.0.statistics())
    }
}

/// Hands out any number for an address and forgets what it is given back: what reading an operation, its
/// slot and the loop cost. Every other allocator's time has this taken off.
#[derive(Debug, Default)]
pub struct Driver {
    next: u64,
}

impl Allocator for Driver {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        let start = Start::new(self.next);
        // Depends on all that was read, so that none of it is optimised away; halved, it stays in bounds.
        self.next = self.next.wrapping_add(request.size) >> 1;
        Ok(start)
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        // So that the slot is read as by any other.
        self.next ^= handle.address() ^ size;
        self.next >>= 1;
        Ok(())
    }
}

/// An allocator by name, made anew for every repetition.
pub struct Entry {
    name: String,
    note: Option<String>,
    make: Box<Make>,
}

/// Address space and rules that an allocator is made for.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// Addresses to place in.
    pub space: Space,
    /// From which end every map looks.
    pub direction: Direction,
    /// Ranges live at a time at most; `None` where only carrying it out tells. For those that take all
    /// their memory in the beginning.
    pub live: Option<u64>,
}

/// Makes an allocator with its slots; an error says which part of the contract it lacks for the scene.
type Make = dyn Fn(Scene, Limits) -> Result<Box<dyn Execute>, PlaceError>;

impl Entry {
    /// A policy of the registry.
    #[must_use]
    pub fn policy(name: Name) -> Entry {
        struct IntoExecution(Limits);
        impl Visit for IntoExecution {
            type Output = Box<dyn Execute>;
            fn visit<P: Policy + Send + 'static>(self, policy: P) -> Box<dyn Execute> {
                Box::new(Execution::new(ByRange(policy), self.0))
            }
        }
        Entry {
            name: name.word().to_owned(),
            note: None,
            make: Box::new(move |scene, limits| {
                Ok(name.visit(scene.space, scene.direction, IntoExecution(limits)))
            }),
        }
    }

    /// Any other: `note` says what one should know of its way of doing it, `make` makes it for a
    /// scene or says what it lacks.
    pub fn new<C, M>(name: &str, note: Option<&str>, make: M) -> Entry
    where
        C: Allocator + 'static,
        M: Fn(Scene) -> Result<C, PlaceError> + 'static,
    {
        Entry {
            name: name.to_owned(),
            note: note.map(str::to_owned),
            make: Box::new(move |scene, limits| Ok(Box::new(Execution::new(make(scene)?, limits)))),
        }
    }

    /// Its name in rows.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the note for its row.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    pub(super) fn make(
        &self,
        scene: Scene,
        limits: Limits,
    ) -> Result<Box<dyn Execute>, PlaceError> {
        (self.make)(scene, limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_eight_bytes() {
        assert_eq!(size_of::<Option<Start>>(), 8);
        for address in [0, 0x1000, Space::HIGHEST] {
            assert_eq!(Start::new(address).address(), address);
        }
    }
}
