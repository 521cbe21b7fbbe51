//! A part of the window under a lock: buffers from its top, files' mappings from its bottom.
//!
//! ```text
//! first          maps_end                  frontier                          end
//!   | m m . m m m |  reserved, no access     | b b . b b . . b b b b b b b b b |
//!   mappings: a VMA each                       one VMA, readable and writable
//! ```
//!
//! Invariants: `first <= maps_end <= frontier <= end`; what lies below `maps_end` is a mapping or reserved, what lies
//! from `frontier` on is accessible. The frontier only goes down, in large steps, so that it costs a call of mprotect
//! each doubling and two VMAs in all. `maps_end` goes back to `first` when the last mapping is gone: until then no buffer
//! goes between mappings, where it would cost two VMAs.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;

use stopgap_placement::{Direction, PlaceError, Policy, Range, Request, Space, Stopgap};

use super::cache::Entry;
use super::heap::{self, Heap};
use super::lock_free::lock::Lock;
use super::window::Window;
use crate::error::{Error, Result};
use crate::sys::memory as sys;

/// The least step of the frontier: what a huge page is, or more.
const STEP: usize = 2 << 20;
/// The largest.
const MOST_STEP: usize = 1 << 30;

/// See the module.
pub(super) struct Shard {
    pub(super) lock: Lock,
    ranges: UnsafeCell<Ranges>,
}

// SAFETY: what is inside is only used under the lock, or by the one thread of a child after a fork that held it.
unsafe impl Sync for Shard {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shard {}

/// What the lock protects.
pub(super) struct Ranges {
    /// Before `heap`, in which it lies: fields are dropped in their order.
    space: Stopgap,
    _heap: Box<Heap>,
    /// In pages of the window, as all of these.
    first: usize,
    end: usize,
    frontier: usize,
    maps_end: usize,
    maps: usize,
    /// Where giving back goes on.
    cursor: usize,
}

/// Nobody will ever unlock: this process is a child that was not made by libc's fork.
pub(super) const GIVEN_UP: Error = Error::unsupported(
    "a window's part whose lock stayed with another process",
    "fork by libc's function",
);

fn to_page(window: &Window, range: Range) -> usize {
    // Addresses of this process.
    let start = range.start as usize;
    (start - window.span.start) >> window.shift
}

fn to_range(window: &Window, page: usize, pages: usize) -> Range {
    let start = window.address(page) as u64;
    Range::new(start, start + ((pages as u64) << window.shift))
}

impl Shard {
    /// Pages `first` to `end`; structures lie in `memory`, from its start on, whose rest is for others.
    pub(super) fn new(
        window: &Window,
        first: usize,
        end: usize,
        memory: &mut usize,
    ) -> Result<Shard> {
        let space = Space::new(to_range(window, first, end - first), 1 << window.shift);
        let space = space.map_err(|_| Error::invalid("the window ends above 2^48"))?;
        let start = *memory;
        *memory += heap::bytes_for(end - first);
        let heap = Heap::new(start, *memory);
        // SAFETY: it goes with the structures, after them, and all is under one lock.
        let of_heap = unsafe { heap.memory() };
        Ok(Shard {
            lock: Lock::new(),
            ranges: UnsafeCell::new(Ranges {
                space: Stopgap::new_in(space, of_heap),
                _heap: heap,
                first,
                end,
                frontier: end,
                maps_end: first,
                maps: 0,
                cursor: first,
            }),
        })
    }

    /// Works on the ranges, under the lock.
    pub(super) fn locked<T>(
        &self,
        is_given_up: impl Fn() -> bool,
        work: impl FnOnce(&mut Ranges) -> T,
    ) -> Result<T> {
        let _locked = self.lock.lock(is_given_up).ok_or(GIVEN_UP)?;
        // SAFETY: under the lock, and `work` knows no shard.
        Ok(work(unsafe { &mut *self.ranges.get() }))
    }

    /// `first`, `maps_end`, `frontier` and `end`.
    #[cfg(test)]
    pub(super) fn bounds(&self) -> [usize; 4] {
        let bounds = |all: &mut Ranges| [all.first, all.maps_end, all.frontier, all.end];
        self.locked(|| false, bounds).unwrap()
    }

    /// Whether all is as it must be.
    #[cfg(test)]
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        self.locked(|| false, |ranges| ranges.space.check())
            .map_err(|error| error.to_string())?
    }
}

impl Ranges {
    /// Places up to `entries.len()` ranges of `pages` pages, at least one of them or an error: how many.
    pub(super) fn place_some(
        &mut self,
        window: &Window,
        pages: usize,
        align: usize,
        entries: &mut [Entry],
    ) -> Result<usize> {
        let mut count = 0;
        for entry in entries {
            match self.place(window, pages, align) {
                Ok(placed) => *entry = placed,
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
            count += 1;
        }
        Ok(count)
    }

    /// Takes a range back, buffer or mapping; of a buffer, `dirty` says that it holds old contents.
    pub(super) fn put(&mut self, window: &Window, page: usize, pages: usize, dirty: bool) {
        self.free(to_range(window, page, pages));
        if page < self.frontier {
            self.maps = self.maps.saturating_sub(1);
            if self.maps == 0 {
                self.maps_end = self.first;
            }
        } else if dirty {
            window.keep(page, pages);
        }
    }

    /// Pages that are accessible.
    pub(super) fn accessible(&self) -> usize {
        self.end - self.frontier
    }

    fn free(&mut self, range: Range) {
        let freed = self.space.free(range);
        // It was placed, or its mark said that it is held, as long as this.
        debug_assert_eq!(freed, Ok(()));
    }

    fn place(&mut self, window: &Window, pages: usize, align: usize) -> Result<Entry> {
        let bytes = pages << window.shift;
        let mut request = Request::of(bytes as u64);
        request.alignment = align as u64;
        let mut range = self.find(&request)?;
        if to_page(window, range) < self.maps_end {
            range = self.find_above_maps(window, request, range)?;
        }
        let page = to_page(window, range);
        let accessible = self.reach(window, page);
        if let Err(error) = accessible {
            self.free(range);
            return Err(error);
        }
        let held = window.forget(page, pages);
        Ok(Entry {
            page,
            dirty: held > 0,
            sparse: held < pages - pages / 4,
        })
    }

    #[inline]
    fn find(&mut self, request: &Request) -> Result<Range> {
        self.space.place(request).map_err(|error| match error {
            PlaceError::Exhausted | PlaceError::Impossible(_) => {
                // Cannot fail: the request has whole pages of this process.
                let bytes = usize::try_from(request.size).unwrap_or(usize::MAX);
                Error::NoRoom { bytes }
            }
            PlaceError::Lacks(_) | _ => Error::invalid("an alignment that cannot be"),
        })
    }

    /// Instead of `range`, which lies where mappings were: what fits best in the whole part may be there.
    #[cold]
    fn find_above_maps(
        &mut self,
        window: &Window,
        mut request: Request,
        range: Range,
    ) -> Result<Range> {
        self.free(range);
        request.limits = Some(to_range(window, self.maps_end, self.end - self.maps_end));
        self.find(&request)
    }

    /// Moves the frontier down to `page`, which is at `maps_end` or above, at least.
    #[inline]
    fn reach(&mut self, window: &Window, page: usize) -> Result<()> {
        if page >= self.frontier {
            return Ok(());
        }
        let held = (self.end - self.frontier) << window.shift;
        let step = (held / 8).next_multiple_of(STEP).clamp(STEP, MOST_STEP) >> window.shift;
        let lower = page
            .min(self.frontier.saturating_sub(step))
            .max(self.maps_end);
        sys::protect(window.span_of(lower, self.frontier - lower), true)?;
        self.frontier = lower;
        Ok(())
    }

    /// Places a file's mapping.
    pub(super) fn place_map(&mut self, window: &Window, pages: usize) -> Result<usize> {
        let bytes = pages << window.shift;
        if self.frontier - self.first < pages {
            return Err(Error::NoRoom { bytes });
        }
        let mut request = Request::of(bytes as u64);
        request.direction = Direction::BottomUp;
        request.limits = Some(to_range(window, self.first, self.frontier - self.first));
        let range = self
            .space
            .place(&request)
            .map_err(|_| Error::NoRoom { bytes })?;
        let page = to_page(window, range);
        self.maps += 1;
        self.maps_end = self.maps_end.max(page + pages);
        Ok(page)
    }

    /// Gives back up to `most` pages that are free and hold old contents: how many.
    pub(super) fn give_back(&mut self, window: &Window, most: usize) -> Result<usize> {
        let mut given = 0;
        let mut wrapped = false;
        self.cursor = self.cursor.max(self.frontier);
        while given < most {
            let Some((page, pages)) = window.first_kept(self.cursor, self.end, most - given) else {
                if wrapped {
                    break;
                }
                wrapped = true;
                self.cursor = self.frontier;
                continue;
            };
            // SAFETY: these are free, so nobody needs what is in them, and nobody is given them under this lock.
            unsafe { window.release(page, pages) }?;
            given += window.forget(page, pages);
            self.cursor = page + pages;
        }
        Ok(given)
    }
}
