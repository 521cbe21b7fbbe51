//! `vm-allocator` 0.1 of rust-vmm: an interval tree of free and taken ranges, first or last match.

use stopgap_models::placement::{Allocator, Entry, Scene, Start};
use stopgap_placement::{Direction, FreeError, Lack, PlaceError, Request};
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

use super::{no_limits, no_offset};

pub(crate) struct VmAllocator {
    inner: AddressAllocator,
    page: u64,
}

impl VmAllocator {
    pub(crate) fn new(scene: Scene) -> Result<VmAllocator, PlaceError> {
        let window = scene.space.window();
        let inner = AddressAllocator::new(window.start, window.length())
            .map_err(|_| PlaceError::Lacks(Lack::Window))?;
        let page = scene.space.page();
        Ok(VmAllocator { inner, page })
    }
}

impl Allocator for VmAllocator {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        no_limits(request)?;
        no_offset(request)?;
        let size = (request.size + self.page - 1) & !(self.page - 1);
        let policy = match request.direction {
            Direction::TopDown => AllocPolicy::LastMatch,
            Direction::Any | Direction::BottomUp => AllocPolicy::FirstMatch,
        };
        let given = self
            .inner
            .allocate(size, request.alignment.max(self.page), policy)
            .map_err(|_| PlaceError::Exhausted)?;
        Ok(Start::new(given.start()))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        let range =
            RangeInclusive::new(start, start + size - 1).map_err(|_| FreeError::Malformed)?;
        self.inner.free(&range).map_err(|_| FreeError::NotAsGiven)
    }

    fn start(&self, handle: Start) -> u64 {
        handle.address()
    }
}

pub(super) fn entry() -> Entry {
    Entry::new("vm-allocator", None, VmAllocator::new)
}
