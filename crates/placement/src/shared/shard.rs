//! What threads of one number share: the extents that they place in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::contract::{FreeError, PlaceError, Policy, Range, Request, Space, Work};
use crate::stopgap::Stopgap;

use super::exactly;

/// A piece of the window, whole granules, with a policy of its own.
pub(super) struct Extent {
    pub(super) whole: Range,
    pub(super) inside: Stopgap,
    /// Ranges held.
    pub(super) held: u64,
    /// Requests of this [`weight`] or more failed lately and are not tried: a failing search is a slow
    /// one. A guess that saves time; who must know tries.
    too_heavy: u64,
    /// Bytes freed since one failed.
    freed: u64,
}

/// What makes a request hard to place, in bytes.
#[inline]
pub(super) fn weight(request: &Request) -> u64 {
    request.size.saturating_add(request.alignment)
}

impl Extent {
    /// `whole` is whole pages, at least one: as the central map gave it.
    pub(super) fn new(whole: Range, page: u64) -> Option<Extent> {
        Some(Extent {
            whole,
            inside: Stopgap::new(Space::new(whole, page).ok()?),
            held: 0,
            too_heavy: u64::MAX,
            freed: 0,
        })
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let range = self.inside.place(request)?;
        self.held += 1;
        Ok(range)
    }

    /// As [`Extent::place`], unless the like failed lately.
    #[inline]
    fn place_if_likely(&mut self, request: &Request) -> Option<Range> {
        let weight = weight(request);
        if weight >= self.too_heavy {
            return None;
        }
        let answer = self.place(request);
        if answer == Err(PlaceError::Exhausted) {
            self.too_heavy = weight;
            self.freed = 0;
        }
        answer.ok()
    }

    /// As [`Extent::place`], what lies inside the extent of the limits.
    pub(super) fn place_within_limits(&mut self, request: &Request) -> Option<Range> {
        let limits = request.limits.unwrap_or(self.whole);
        let limits = Range::new(
            limits.start.max(self.whole.start),
            limits.end.min(self.whole.end),
        );
        self.place(&Request {
            limits: Some(limits),
            ..*request
        })
        .ok()
    }

    /// Takes exactly `range`, if it is free.
    pub(super) fn take(&mut self, range: Range) -> bool {
        self.place(&exactly(range)).is_ok()
    }

    #[inline]
    pub(super) fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.inside.free(range)?;
        self.held -= 1;
        if self.too_heavy != u64::MAX {
            self.freed += range.length();
            if self.freed >= self.too_heavy {
                self.too_heavy = u64::MAX;
            }
        }
        Ok(())
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Shard {
    /// By slot. Boxed, because each is some KiB.
    pub(super) extents: Vec<Option<Box<Extent>>>,
    /// The slot that was placed in last.
    current: usize,
    /// Ranges placed.
    pub(super) placed: u64,
}

impl Shard {
    /// Places in the extent that was placed in last, or else in any of them.
    #[inline]
    pub(super) fn place(&mut self, request: &Request) -> Option<Range> {
        let current = self.extents.get_mut(self.current);
        if let Some(Some(extent)) = current
            && let Some(range) = extent.place_if_likely(request)
        {
            self.placed += 1;
            return Some(range);
        }
        self.place_in_others(request)
    }

    #[inline(never)]
    fn place_in_others(&mut self, request: &Request) -> Option<Range> {
        for (slot, extent) in self.extents.iter_mut().enumerate() {
            if let Some(extent) = extent
                && let Some(range) = extent.place_if_likely(request)
            {
                self.current = slot;
                self.placed += 1;
                return Some(range);
            }
        }
        None
    }

    #[inline]
    pub(super) fn extent(&mut self, slot: usize) -> Option<&mut Extent> {
        self.extents.get_mut(slot)?.as_deref_mut()
    }

    /// Takes `extent` in, to be placed in next: its slot.
    pub(super) fn adopt(&mut self, extent: Extent) -> usize {
        let extent = Some(Box::new(extent));
        let slot = match self.extents.iter().position(Option::is_none) {
            Some(slot) => {
                self.extents[slot] = extent;
                slot
            }
            None => {
                self.extents.push(extent);
                self.extents.len() - 1
            }
        };
        self.current = slot;
        slot
    }

    /// Extents in which nothing is held.
    pub(super) fn empty(&self) -> usize {
        let extents = self.extents.iter().flatten();
        extents.filter(|extent| extent.held == 0).count()
    }

    /// What its extents have done; `placed` is left out.
    pub(super) fn work(&self) -> Work {
        let extents = self.extents.iter().flatten();
        extents.fold(Work::default(), |sum, extent| {
            add(sum, extent.inside.work())
        })
    }
}

/// The sum of what was done, without `placed`: who sums counts that itself, because a range that moves
/// is placed again.
pub(super) fn add(sum: Work, more: Work) -> Work {
    Work {
        placed: 0,
        visited: sum.visited + more.visited,
        propagated: sum.propagated + more.propagated,
        resets: sum.resets + more.resets,
        full_scans: sum.full_scans + more.full_scans,
        flushes: sum.flushes + more.flushes,
    }
}
