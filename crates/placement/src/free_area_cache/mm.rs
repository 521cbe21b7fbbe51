use alloc::format;
use alloc::string::String;

use crate::contract::{Direction, Merge, Need, Range, Space, Work};
use crate::vmas::{Id, NIL, Plain, Vmas};

/// Where a request goes, and the VMA above it, maybe `NIL`.
pub(crate) type Place = (u64, Id);

/// What the kernel has in mm_struct for placing, and the parts of the search that the versions share.
#[derive(Debug, Clone)]
pub struct Mm {
    pub(super) vmas: Vmas<Plain>,
    pub(super) work: Work,
    /// [`Direction::TopDown`] or [`Direction::BottomUp`].
    layout: Direction,
    window: Range,
    /// TASK_UNMAPPED_BASE: where bottom-up searches begin.
    bottom: u64,
    /// mmap_base.
    base: u64,
    /// free_area_cache: where the next search begins.
    cache: u64,
    /// cached_hole_size: the largest hole passed over between `base` and `cache`, in bytes. A hint: it
    /// stays when that hole is filled, and does not rise when a VMA is freed.
    hole: u64,
    /// Whether the search under way has scanned from where its direction begins.
    scanned: bool,
}

impl Mm {
    /// cached_hole_size after a bottom-up search in a top-down layout: the next request is sure to be no
    /// larger, and so begins at the base.
    pub(crate) const ANY_HOLE: u64 = u64::MAX;

    /// An address space after exec: nothing is mapped, the cache is at the base.
    pub(super) fn new(space: Space, layout: Direction) -> Mm {
        let window = space.window();
        // At most the window's end, because the window is made of whole pages; cannot overflow.
        let third = (window.length() / 3).next_multiple_of(space.page());
        let bottom = window.start + third;
        let (layout, base) = match layout {
            Direction::BottomUp => (layout, bottom),
            Direction::TopDown | Direction::Any => (Direction::TopDown, window.end),
        };
        Mm {
            vmas: Vmas::new(space),
            work: Work::default(),
            layout,
            window,
            bottom,
            base,
            cache: base,
            hole: 0,
            scanned: false,
        }
    }

    /// Which way the address space is laid out.
    pub(super) fn layout(&self) -> Direction {
        self.layout
    }

    /// free_area_cache, an address.
    #[must_use]
    pub fn free_area_cache(&self) -> u64 {
        self.cache
    }

    /// cached_hole_size in bytes; `u64::MAX` sends the next search to the base.
    #[must_use]
    pub fn cached_hole_size(&self) -> u64 {
        self.hole
    }

    /// Bytes from address 0, as the kernel counts, to `address`: the window's first page is page 0.
    fn height(&self, address: u64) -> u64 {
        address - self.window.start
    }

    /// The lowest VMA that ends above `address`. `NIL`, if there is none, "starts" at the window's end.
    fn find(&mut self, address: u64) -> (Id, Range) {
        let (vma, nodes) = self.vmas.find(address);
        self.work.visited += 1;
        self.work.descended += nodes.saturating_sub(1);
        (vma, self.vmas.nodes[vma].range)
    }

    /// The place of `range`, if it is free.
    fn if_free(&mut self, range: Range) -> Option<Place> {
        let (vma, above) = self.find(range.start);
        (range.end <= above.start).then_some((range.start, vma))
    }

    /// Runs `search`, and counts it where it scanned from the base.
    pub(super) fn search(
        &mut self,
        search: impl FnOnce(&mut Mm) -> Option<Place>,
    ) -> Option<Place> {
        self.scanned = false;
        let found = search(self);
        self.work.full_scans += u64::from(self.scanned);
        found
    }

    /// The hint's place, if it is free. Leaves the cache as it is.
    pub(super) fn hinted(&mut self, need: &Need) -> Option<Place> {
        let range = need.hinted(self.vmas.space())?;
        self.if_free(range)
    }

    /// Starts at the base again if a hole that was passed over may hold `size` bytes.
    pub(crate) fn reset_if_a_hole_may_hold(&mut self, size: u64) {
        if size <= self.hole {
            self.hole = 0;
            self.cache = self.base;
            self.work.resets += 1;
        }
    }

    /// The one look at the `size` bytes right under the cache: if they are free they are taken.
    pub(crate) fn probe_under_cache(&mut self, size: u64) -> Option<Place> {
        // The kernel's comparison is strict: it does not give address 0 here.
        if self.height(self.cache) <= size {
            return None;
        }
        let place = self.if_free(Range::new(self.cache - size, self.cache))?;
        self.cache = place.0;
        Some(place)
    }

    /// Scans from the base down.
    pub(crate) fn scan_from_base(&mut self, size: u64) -> Option<Place> {
        self.scan_down(self.base, size)
    }

    /// Scans from the cache down; having found nothing, once more from the base if that is elsewhere.
    pub(crate) fn scan_from_cache(&mut self, size: u64) -> Option<Place> {
        let from = self.cache;
        let found = self.scan_down(from, size);
        if found.is_some() || from == self.base {
            return found;
        }
        self.cache = self.base;
        self.hole = 0;
        self.scan_down(self.base, size)
    }

    /// Probes the `size` bytes under `from`, then those under the lowest VMA in the way, and so on. One
    /// step thus passes over all VMAs of a probe but the lowest, and over the holes between them.
    fn scan_down(&mut self, from: u64, size: u64) -> Option<Place> {
        self.scanned |= from == self.base;
        if self.height(from) < size {
            return None;
        }
        let mut address = from - size;
        loop {
            let (vma, Range { start, .. }) = self.find(address);
            if address + size <= start {
                self.cache = address;
                return Some((address, vma));
            }
            self.hole = larger_hole(self.hole, address, start);
            // Strict: a scan does not reach address 0 either, unless it begins there.
            if self.height(start) <= size {
                return None;
            }
            address = start - size;
        }
    }

    /// arch_get_unmapped_area(): the hint, then from the cache up, then once from the bottom up. A
    /// 64-bit task's search does not look at cached_hole_size.
    pub(super) fn bottom_up(&mut self, need: &Need) -> Option<Place> {
        if let Some(place) = self.hinted(need) {
            return Some(place);
        }
        let from = self.cache.max(self.bottom);
        if let Some(found) = self.scan_up(from, need.size) {
            return Some(found);
        }
        if from == self.bottom {
            return None;
        }
        self.hole = 0;
        self.scan_up(self.bottom, need.size)
    }

    fn scan_up(&mut self, from: u64, size: u64) -> Option<Place> {
        self.scanned |= from == self.bottom;
        // A request larger than the window was refused, so this cannot be below 0.
        let last = self.window.end - size;
        let mut address = from;
        let (mut vma, _) = self.find(address);
        loop {
            if address > last {
                return None;
            }
            let node = &self.vmas.nodes[vma];
            if address + size <= node.range.start {
                self.cache = address + size;
                return Some((address, vma));
            }
            self.hole = larger_hole(self.hole, address, node.range.start);
            address = node.range.end;
            vma = node.next;
            self.work.visited += 1;
        }
    }

    /// A top-down layout's last resort: bottom-up from TASK_UNMAPPED_BASE. Afterwards the next search is
    /// sent to the base.
    pub(super) fn fall_back(&mut self, need: &Need) -> Option<Place> {
        self.cache = self.bottom;
        self.hole = Mm::ANY_HOLE;
        let found = self.bottom_up(need);
        self.cache = self.base;
        self.hole = Mm::ANY_HOLE;
        found
    }

    pub(super) fn take(&mut self, range: Range, merge: Merge, above: Id) {
        self.vmas.map(range, merge, above);
        self.work.placed += 1;
    }

    /// What munmap(2) does after it made a hole below `above`, maybe `NIL`. Top-down
    /// (arch_unmap_area_topdown()), a hole above the cache moves the cache to the hole's top. Bottom-up
    /// (arch_unmap_area()), a hole below the cache moves it to the hole's bottom, and with `forget_holes`
    /// the hole size becomes [`Mm::ANY_HOLE`].
    pub(super) fn unmapped(&mut self, above: Id, forget_holes: bool) {
        let node = &self.vmas.nodes[above];
        if self.layout == Direction::TopDown {
            // Top-down the base is the window's end, where `NIL` "starts".
            self.cache = self.cache.max(node.range.start);
            return;
        }
        let low = match node.prev {
            NIL => self.base,
            below => self.vmas.nodes[below].range.end,
        };
        if (self.bottom..self.cache).contains(&low) {
            self.cache = low;
            if forget_holes {
                self.hole = Mm::ANY_HOLE;
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.vmas.check()?;
        let inside = match self.layout {
            Direction::BottomUp => self.bottom..=self.window.end,
            Direction::TopDown | Direction::Any => self.window.start..=self.base,
        };
        if !inside.contains(&self.cache) {
            return Err(format!("free_area_cache is {:x}", self.cache));
        }
        if self.hole > self.window.length() && self.hole != Mm::ANY_HOLE {
            return Err(format!("cached_hole_size is {:x}", self.hole));
        }
        Ok(())
    }
}

/// cached_hole_size after a probe at `probe` met a VMA that starts at `vma_start`. A hole is measured
/// from the probe to the VMA, not from VMA to VMA: top-down it is always less than what was asked for.
/// The addition wraps, as the kernel's does: any hole after [`Mm::ANY_HOLE`] replaces it.
fn larger_hole(hole: u64, probe: u64, vma_start: u64) -> u64 {
    if probe.wrapping_add(hole) < vma_start {
        vma_start - probe
    } else {
        hole
    }
}
