//! `offset-allocator` 0.2: Sebastian Aaltonen's OffsetAllocator in Rust. Bins of sizes 1/8 apart, O(1).
//! It counts 32 bits of units and has no alignment, no limits and no direction.

use offset_allocator::{Allocation, Allocator};
use stopgap_models::placement::{self, Entry, Scene};
use stopgap_placement::{FreeError, Lack, PlaceError, Request};

use super::{no_direction, no_limits};

/// Ranges where nobody knows how many there will be.
const USUAL: u64 = 1 << 20;

/// Bytes of a node and of its place in the list of free nodes, by its source.
const NODE: u64 = 28 + 4;

pub(crate) struct Offsets {
    inner: Allocator<u32>,
    base: u64,
    /// A page is 2 to this power: a division would be as slow as all that the allocator does.
    shift: u32,
    nodes: u32,
}

/// Bytes that an aligned request is made larger by.
pub(crate) fn padding(request: &Request, page: u64) -> u64 {
    request.alignment.max(page) - page
}

impl Offsets {
    pub(crate) fn new(scene: Scene) -> Result<Offsets, PlaceError> {
        let (window, page) = (scene.space.window(), scene.space.page());
        let pages = window.length() / page;
        // What lies beyond its 32 bits stays unused.
        let units = u32::try_from(pages).unwrap_or(u32::MAX);
        // A range and the hole beside it, and the two that it keeps back.
        let nodes = scene.live.unwrap_or(USUAL).saturating_mul(2) + 4;
        let nodes = u32::try_from(nodes)
            .ok()
            .filter(|&nodes| nodes < u32::MAX - 1)
            .ok_or(PlaceError::Lacks(Lack::Window))?;
        Ok(Offsets {
            inner: Allocator::with_max_allocs(units, nodes),
            base: window.start,
            shift: page.trailing_zeros(),
            nodes,
        })
    }
}

impl placement::Allocator for Offsets {
    type Handle = Allocation<u32>;

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Allocation<u32>, PlaceError> {
        no_limits(request)?;
        no_direction(request)?;
        let page = 1 << self.shift;
        let bytes = request.size + padding(request, page) + (page - 1);
        let units = u32::try_from(bytes >> self.shift).map_err(|_| PlaceError::Exhausted)?;
        self.inner.allocate(units).ok_or(PlaceError::Exhausted)
    }

    #[inline]
    fn free(&mut self, handle: Allocation<u32>, _: u64) -> Result<(), FreeError> {
        self.inner.free(handle);
        Ok(())
    }

    fn start(&self, handle: Allocation<u32>) -> u64 {
        self.base + (u64::from(handle.offset) << self.shift)
    }

    fn memory(&self) -> Option<u64> {
        Some(u64::from(self.nodes) * NODE)
    }
}

pub(super) fn entry() -> Entry {
    Entry::new(
        "offset-allocator",
        Some(
            "pads for alignment, at most 2^32 - 1 pages, frees by its own token, takes all its memory in \
             the beginning",
        ),
        Offsets::new,
    )
}
