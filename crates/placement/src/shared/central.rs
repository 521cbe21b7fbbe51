//! What is not of an extent, and the extents as a whole.

use crate::contract::{FreeError, PlaceError, Policy, Range, Request, Space, Work};
use crate::stopgap::Stopgap;

use super::exactly;

/// One part of the window in so many is kept from extents, for what is large, and so that a window that
/// is nearly full is one map and not many nearly full ones.
const KEPT: u64 = 4;
/// Of what is free beyond that, an extent gets at most one part in so many.
const SHARE: u64 = 4;
/// See the module.
pub(super) struct Central {
    /// Over the whole window; each extent is one range of it.
    pub(super) inside: Stopgap,
    /// Bytes that are neither held nor an extent's.
    pub(super) free: u64,
    /// Ranges placed that are no extents.
    pub(super) placed: u64,
    /// What extents did that are no more.
    pub(super) retired: Work,
    /// Calls answered.
    calls: u64,
    /// Calls answered, after no extent could be given out or one was taken apart, before the next one
    /// is given out. As many more as ranges were moved: so a range is moved once for each time that
    /// it, or another one, was placed.
    pause: u64,
    /// No extent is given out before so many calls.
    pause_until: u64,
}

impl Central {
    pub(super) fn new(space: Space, pause: u64) -> Central {
        Central {
            inside: Stopgap::new(space),
            free: space.window().length(),
            placed: 0,
            retired: Work::default(),
            calls: 0,
            pause,
            pause_until: 0,
        }
    }

    pub(super) fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        self.calls += 1;
        let range = self.inside.place(request)?;
        self.free -= range.length();
        self.placed += 1;
        Ok(range)
    }

    /// Takes exactly `range`, if it is free.
    pub(super) fn take(&mut self, range: Range) -> bool {
        self.place(&exactly(range)).is_ok()
    }

    pub(super) fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.calls += 1;
        self.inside.free(range)?;
        self.free += range.length();
        Ok(())
    }

    /// An extent's place: a power of two of `granule` bytes, from `least` to `most` bytes.
    pub(super) fn give_out(&mut self, least: u64, most: u64, granule: u64) -> Option<Range> {
        let window = self.inside.space().window();
        let spare = self.free.saturating_sub(window.length() / KEPT);
        let most = most.min(spare / SHARE);
        if self.calls < self.pause_until || most < least.max(granule) {
            return None;
        }
        let mut request = Request::of(1 << most.ilog2());
        request.alignment = granule;
        request.offset = window.start & (granule - 1);
        while request.size >= least.max(granule) {
            if let Ok(range) = self.inside.place(&request) {
                self.free -= range.length();
                return Some(range);
            }
            request.size /= 2;
        }
        self.wait(0);
        None
    }

    /// Takes an extent's place back.
    pub(super) fn take_back(&mut self, whole: Range) {
        // It is held: `give_out` took it, and only this frees it.
        let freed = self.inside.free(whole);
        debug_assert_eq!(freed, Ok(()));
        self.free += whole.length();
    }

    /// Takes a range in that was an extent's.
    pub(super) fn take_over(&mut self, range: Range) {
        // It is free: `take_back` freed all of the extent, whose ranges do not overlap.
        let taken = self.inside.place(&exactly(range));
        debug_assert_eq!(taken, Ok(range));
        self.free -= range.length();
    }

    /// An extent could not be given out, or was taken apart and `moved` ranges taken over.
    pub(super) fn wait(&mut self, moved: u64) {
        self.pause_until = self.calls + self.pause + moved;
    }
}
