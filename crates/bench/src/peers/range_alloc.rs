//! `range-alloc` 0.1, of the gfx-rs family: a sorted list of free ranges, best fit, O(holes).

use range_alloc::RangeAllocator;
use stopgap_models::placement::{Allocator, Entry, Scene, Start};
use stopgap_placement::{FreeError, PlaceError, Request};

use super::{no_direction, no_limits, no_offset};

pub(crate) struct RangeAlloc {
    inner: RangeAllocator<u64>,
    page: u64,
}

impl RangeAlloc {
    pub(crate) fn new(scene: Scene) -> RangeAlloc {
        let window = scene.space.window();
        RangeAlloc {
            inner: RangeAllocator::new(window.start..window.end),
            page: scene.space.page(),
        }
    }
}

impl Allocator for RangeAlloc {
    type Handle = Start;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Start, PlaceError> {
        no_limits(request)?;
        no_direction(request)?;
        no_offset(request)?;
        let size = (request.size + self.page - 1) & !(self.page - 1);
        let given = if request.alignment > self.page {
            self.inner.allocate_range_aligned(size, request.alignment)
        } else {
            self.inner.allocate_range(size)
        };
        let given = given.map_err(|_| PlaceError::Exhausted)?;
        Ok(Start::new(given.start))
    }

    #[inline]
    fn free(&mut self, handle: Start, size: u64) -> Result<(), FreeError> {
        let start = handle.address();
        self.inner.free_range(start..start + size);
        Ok(())
    }

    fn start(&self, handle: Start) -> u64 {
        handle.address()
    }
}

pub(super) fn entry() -> Entry {
    Entry::new("range-alloc", None, |scene| Ok(RangeAlloc::new(scene)))
}
