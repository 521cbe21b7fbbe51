//! What threads of one number share: the extents that they place in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::contract::{FreeError, PlaceError, Policy, Range, Request, Space, Work};
use crate::stopgap::Stopgap;

use super::exactly;

/// Pages that an extent keeps free beyond an eighth, so that the packed zone of a small one, too, has room
/// below it.
const SPARE: u64 = 512;

/// A piece of the window, whole granules, with a policy of its own.
pub(super) struct Extent {
    pub(super) whole: Range,
    pub(super) inside: Stopgap,
    /// Bytes held.
    pub(super) used: u64,
    /// Bytes that may be held before it is full for [`Shard::place`]: beyond, `Stopgap` has no room left
    /// outside its packed zone, keeps nothing in magazines and searches long.
    comfort: u64,
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
        let pages = whole.length() / page;
        let comfort = pages - pages / 8 - SPARE.min(pages / 8);
        Some(Extent {
            whole,
            inside: Stopgap::new(Space::new(whole, page).ok()?),
            used: 0,
            comfort: comfort * page,
            too_heavy: u64::MAX,
            freed: 0,
        })
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let range = self.inside.place(request)?;
        self.used += range.length();
        Ok(range)
    }

    /// Whether `request` leaves it some room.
    #[inline]
    fn is_comfortable(&self, request: &Request) -> bool {
        self.used.saturating_add(request.size) <= self.comfort
    }

    /// `request` failed.
    fn failed(&mut self, request: &Request) {
        self.too_heavy = weight(request);
        self.freed = 0;
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
        self.used -= range.length();
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
    /// Requests of this [`weight`] or more found no extent lately; a guess, as an extent's.
    too_heavy: u64,
    /// Calls before the central map is asked for an extent.
    asks_in: u64,
    /// Ranges placed.
    pub(super) placed: u64,
}

impl Shard {
    /// Places in the extent that was placed in last, if it is likely to have room.
    #[inline]
    pub(super) fn place(&mut self, request: &Request) -> Option<Range> {
        let extent = self.extents.get_mut(self.current)?.as_deref_mut()?;
        if !extent.is_comfortable(request) || weight(request) >= extent.too_heavy {
            return None;
        }
        let answer = extent.place(request);
        if answer == Err(PlaceError::Exhausted) {
            extent.failed(request);
        }
        let range = answer.ok()?;
        self.placed += 1;
        Some(range)
    }

    /// Places in extent `slot`, which is placed in from now on. `request` is one that the window could
    /// answer; an extent where it fails is not [`Shard::roomiest`] for it any more.
    pub(super) fn place_at(&mut self, slot: usize, request: &Request) -> Option<Range> {
        let extent = self.extent(slot)?;
        let Ok(range) = extent.place(request) else {
            extent.failed(request);
            return None;
        };
        self.current = slot;
        self.placed += 1;
        Some(range)
    }

    /// Frees a range of extent `slot`; whether nothing is held there any more. What is freed is what is
    /// best placed next: it is placed in from now on.
    #[inline]
    pub(super) fn free(&mut self, slot: usize, range: Range) -> Result<bool, FreeError> {
        // It exists: the table said so under the lock.
        let extent = self.extent(slot).ok_or(FreeError::AlreadyFree)?;
        extent.free(range)?;
        let empty = extent.used == 0;
        if extent.used <= extent.comfort {
            self.current = slot;
            self.too_heavy = u64::MAX;
        }
        Ok(empty)
    }

    /// The extent with the most room, of those that `request` leaves some and that the like of it has not
    /// failed in lately.
    pub(super) fn roomiest(&mut self, request: &Request) -> Option<usize> {
        let weight = weight(request);
        if weight >= self.too_heavy {
            return None;
        }
        let slots = self.extents.iter().enumerate();
        let extents = slots.filter_map(|(slot, extent)| Some((slot, extent.as_deref()?)));
        let roomiest = extents
            .filter(|(_, extent)| weight < extent.too_heavy && extent.is_comfortable(request))
            .max_by_key(|(_, extent)| extent.whole.length() - extent.used);
        if roomiest.is_none() {
            self.too_heavy = weight;
        }
        roomiest.map(|(slot, _)| slot)
    }

    /// Whether to ask for an extent now.
    pub(super) fn may_ask(&mut self) -> bool {
        self.asks_in = self.asks_in.saturating_sub(1);
        self.asks_in == 0
    }

    /// No extent was given; `calls` calls go by before the next one asks.
    pub(super) fn asked_in_vain(&mut self, calls: u64) {
        self.asks_in = calls;
    }

    #[inline]
    pub(super) fn extent(&mut self, slot: usize) -> Option<&mut Extent> {
        self.extents.get_mut(slot)?.as_deref_mut()
    }

    /// Takes `extent` in: its slot.
    pub(super) fn adopt(&mut self, extent: Extent) -> usize {
        let extent = Some(Box::new(extent));
        self.too_heavy = u64::MAX;
        match self.extents.iter().position(Option::is_none) {
            Some(slot) => {
                self.extents[slot] = extent;
                slot
            }
            None => {
                self.extents.push(extent);
                self.extents.len() - 1
            }
        }
    }

    /// Extents in which nothing is held.
    pub(super) fn empty(&self) -> usize {
        let extents = self.extents.iter().flatten();
        extents.filter(|extent| extent.used == 0).count()
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
        descended: sum.descended + more.descended,
        propagated: sum.propagated + more.propagated,
        resets: sum.resets + more.resets,
        full_scans: sum.full_scans + more.full_scans,
        flushes: sum.flushes + more.flushes,
    }
}
