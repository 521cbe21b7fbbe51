//! A part of the window under a lock: buffers from its top.
//!
//! ```text
//! first                      frontier                          end
//!   |  reserved, no access     | b b . b b . . b b b b b b b b b |
//! ```
//!
//! Invariant: `first <= frontier <= end`; what lies from `frontier` on is accessible, in one VMA. The frontier only goes down, in
//! large steps, so that it costs a call of mprotect each doubling and two VMAs in all.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use stopgap_placement::returns::Returns;
use stopgap_placement::{PlaceError, Policy, Range, Request, Space, Stopgap};

use super::cache::Entry;
use super::depot::Depot;
use super::heap::{self, Heap};
use super::lock_free::lock::Lock;
use super::lock_free::marks::{Deferred, Kind, Mark};
use super::window::{BATCH, Old, Run, WORD, Which, Window};
use crate::error::{Error, Result};
use crate::sys::memory::{self as sys, Span};

/// The least step of the frontier, which lies at multiples of it: what a huge page is, or more.
const STEP: usize = 2 << 20;
/// The largest.
const MOST_STEP: usize = 1 << 30;
/// Huge pages are used where at least these bytes are accessible.
const HUGE: usize = 32 << 20;

/// Ranges that [`Returned`] takes without writing to their marks, of which the thread that takes them back would read each from
/// another CPU.
const RING: usize = 256;
/// Requests between two looks at what was returned, where the depot has what is asked for.
const EVERY: u32 = 16;

/// See the module.
pub(super) struct Shard {
    pub(super) lock: Lock,
    pub(super) returned: Returned,
    ranges: UnsafeCell<Ranges>,
}

// SAFETY: what is inside is only used under the lock, or by the one thread of a child after a fork that held it.
unsafe impl Sync for Shard {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shard {}

/// Ranges that threads of other shards freed, whose marks are held. Who places in this shard takes them back; so does the next
/// [`super::Inner::decay`].
pub(super) struct Returned {
    ring: UnsafeCell<Returns<RING>>,
    /// Ranges that came while the ring was full.
    rest: Deferred,
}

impl Returned {
    fn new() -> Returned {
        Returned {
            ring: UnsafeCell::new(Returns::new()),
            rest: Deferred::new(),
        }
    }

    fn ring(&self) -> &Returns<RING> {
        // SAFETY: the only one that is exclusive is in a process of one thread (`begin_again`).
        unsafe { &*self.ring.get() }
    }

    /// Puts a range there, which begins at `page`, whose mark the caller holds.
    pub(super) fn push(&self, window: &Window, page: usize, pages: usize) {
        if self.ring().push(to_range(window, page, pages)).is_err() {
            self.rest.push(&window.marks(), page);
        }
    }

    /// In the child of a fork, where no other thread is: a range that one of the parent's was putting in will never come, and
    /// bars the way to those behind.
    pub(super) fn begin_again(&self) {
        // SAFETY: this thread is the only one, and is not at work on it.
        unsafe { *self.ring.get() = Returns::new() };
    }
}

/// What the lock protects.
pub(super) struct Ranges {
    /// Before `heap`, in which it lies: fields are dropped in their order.
    space: Stopgap,
    _heap: Box<Heap>,
    /// In pages of the window, as all of these.
    first: usize,
    end: usize,
    frontier: usize,
    depot: Depot,
    /// Requests since it looked at what was returned.
    requests: u32,
    /// Pages given out or in caches.
    used: usize,
    /// Whether the kernel was advised to use huge pages, or not to; `None`: neither yet.
    huge: Option<bool>,
}

/// Runs that are the caller's: taken out of a shard, to be given back to the kernel without its lock.
pub(super) struct Batch {
    runs: [Run; BATCH],
    /// Pages of each that held old contents.
    held: [usize; BATCH],
    count: usize,
    /// Pages that there is room for.
    left: usize,
}

impl Batch {
    pub(super) fn new(most: usize) -> Batch {
        Batch {
            runs: [Run::default(); BATCH],
            held: [0; BATCH],
            count: 0,
            left: most,
        }
    }

    pub(super) fn runs(&self) -> &[Run] {
        self.runs.get(..self.count).unwrap_or_default()
    }
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
            returned: Returned::new(),
            ranges: UnsafeCell::new(Ranges {
                // Nobody can make room elsewhere: a request fails only where no hole fits.
                space: Stopgap::new_in(space, of_heap).certain(),
                _heap: heap,
                first,
                end,
                frontier: end,
                depot: Depot::new(),
                requests: 0,
                used: 0,
                huge: None,
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

    /// `first`, `frontier` and `end`.
    #[cfg(test)]
    pub(super) fn bounds(&self) -> [usize; 3] {
        let bounds = |all: &mut Ranges| [all.first, all.frontier, all.end];
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
    /// Places up to `entries.len()` ranges of `pages` pages, at least one of them or an error: how many, and the old contents
    /// of the first.
    pub(super) fn place_some(
        &mut self,
        window: &Window,
        pages: usize,
        align: usize,
        entries: &mut [Entry],
    ) -> Result<(usize, Old)> {
        let (mut count, mut first) = (0, Old::default());
        let mut kept = 0;
        for entry in entries {
            let again = match align <= 1 << window.shift {
                true => self.depot.pop(pages),
                false => None,
            };
            let (placed, old) = match again {
                Some(entry) => {
                    kept += pages;
                    let page = entry.page;
                    (entry, Old::one(Run { page, pages }))
                }
                None => match self.place(window, pages, align) {
                    Ok(placed) => placed,
                    Err(_) if count > 0 => break,
                    Err(error) => return Err(error),
                },
            };
            if count == 0 {
                first = old;
            }
            *entry = placed;
            count += 1;
        }
        if kept > 0 {
            self.used += kept;
            window.counts.used.fetch_add(kept, Ordering::Relaxed);
            window.counts.kept.fetch_sub(kept, Ordering::Relaxed);
        }
        Ok((count, first))
    }

    /// Takes a range back; `dirty` says that it holds old contents.
    pub(super) fn put(&mut self, window: &Window, page: usize, pages: usize, dirty: bool) {
        let kept = self.take_back(window, page, pages, dirty);
        self.count_back(window, pages, kept);
    }

    /// As [`Ranges::put`], but for what [`Ranges::count_back`] counts: the pages that the depot keeps.
    fn take_back(&mut self, window: &Window, page: usize, pages: usize, dirty: bool) -> usize {
        // Before: as soon as it is back, somebody else may be given it. And the marks of all ranges that come from another CPU are on their way
        // at the same time; else each would be awaited when its range is given out again.
        (window.marks()).set(page, Mark::new(Kind::Free, pages));
        let room = Depot::room(self.used, window.shift);
        if dirty && self.depot.push(page, pages, room) {
            return pages;
        }
        self.free(to_range(window, page, pages));
        if dirty {
            window.keep(page, pages);
        }
        0
    }

    /// Counts pages taken back, some of which the depot keeps.
    fn count_back(&mut self, window: &Window, pages: usize, kept: usize) {
        self.used -= pages;
        window.counts.used.fetch_sub(pages, Ordering::Relaxed);
        if kept > 0 {
            window.counts.kept.fetch_add(kept, Ordering::Relaxed);
        }
    }

    /// Takes back what threads of other shards freed, each with a guard of so many pages: the pages.
    pub(super) fn take_returned(
        &mut self,
        window: &Window,
        returned: &Returned,
        guard: usize,
    ) -> usize {
        let (mut all, mut kept) = (0, 0);
        returned.ring().take(RING, |range| {
            let pages = ((range.end - range.start) >> window.shift) as usize; // of this process
            all += pages;
            kept += self.take_back(window, to_page(window, range), pages, true);
        });
        if !returned.rest.is_empty() {
            returned.rest.take(&window.marks(), |page, mark| {
                let pages = mark.pages() + guard;
                all += pages;
                kept += self.take_back(window, page, pages, true);
            });
        }
        if all > 0 {
            self.count_back(window, all, kept);
        }
        all
    }

    /// As [`Ranges::take_returned`], from time to time, and where the depot has no range of `pages`.
    pub(super) fn look_at_returned(
        &mut self,
        window: &Window,
        returned: &Returned,
        guard: usize,
        pages: usize,
    ) -> usize {
        self.requests += 1;
        if self.requests < EVERY && self.depot.has(pages) {
            return 0;
        }
        self.requests = 0;
        self.take_returned(window, returned, guard)
    }

    /// Gives to the policy what the depot keeps; false where that is nothing.
    pub(super) fn empty_depot(&mut self, window: &Window) -> bool {
        let mut depot = core::mem::replace(&mut self.depot, Depot::new());
        window
            .counts
            .kept
            .fetch_sub(depot.pages(), Ordering::Relaxed);
        let any = depot.pages() > 0;
        depot.drain(|page, pages| {
            self.free(to_range(window, page, pages));
            window.keep(page, pages);
        });
        any
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

    fn place(&mut self, window: &Window, pages: usize, align: usize) -> Result<(Entry, Old)> {
        let bytes = pages << window.shift;
        let mut request = Request::of(bytes as u64);
        request.alignment = align as u64;
        let mut range = match self.find(&request) {
            Err(Error::NoRoom { .. }) if self.empty_depot(window) => self.find(&request)?,
            found => found?,
        };
        let held = window.held(to_page(window, range), pages);
        if held <= pages / 2
            && align <= 1 << window.shift
            && window.counts.kept.load(Ordering::Relaxed) >= held + pages + self.depot.pages()
        {
            range = self.find_resident(window, range, pages);
        }
        let page = to_page(window, range);
        let accessible = self.reach(window, page);
        if let Err(error) = accessible {
            self.free(range);
            return Err(error);
        }
        self.used += pages;
        window.counts.used.fetch_add(pages, Ordering::Relaxed);
        let old = match window.held(page, pages) {
            0 => Old::default(),
            held if held == pages => Old::one(Run { page, pages }),
            _ => window.old(page, pages),
        };
        let dirty = window.forget(page, pages) > 0;
        Ok((Entry { page, dirty }, old))
    }

    /// Instead of `range`, of whose pages at least half would fault: one that holds old contents.
    #[cold]
    fn find_resident(&mut self, window: &Window, range: Range, pages: usize) -> Range {
        let Some(run) = window.resident(self.frontier, self.end, pages) else {
            return range;
        };
        // The upper end of what is there, so that what is held moves up.
        let better = to_range(window, run.page + run.pages - pages, pages);
        match self.take(better) {
            true => {
                self.free(range);
                better
            }
            // The run may be what is left of where `range` lies.
            false => range,
        }
    }

    /// Takes exactly a range that is free; false where it is not.
    fn take(&mut self, range: Range) -> bool {
        let mut request = Request::of(range.end - range.start);
        request.hint = Some(range.start);
        request.limits = Some(range);
        self.space.place(&request).is_ok()
    }

    #[inline]
    fn find(&mut self, request: &Request) -> Result<Range> {
        self.space.place(request).map_err(|error| match error {
            PlaceError::Exhausted | PlaceError::Impossible(_) => {
                // Cannot fail: the request has whole pages of this process.
                let bytes = usize::try_from(request.size).unwrap_or(usize::MAX);
                Error::NoRoom {
                    bytes,
                    largest: None,
                }
            }
            PlaceError::Lacks(_) | _ => Error::invalid("an alignment that cannot be"),
        })
    }

    /// Moves the frontier down to `page` at least.
    #[inline]
    fn reach(&mut self, window: &Window, page: usize) -> Result<()> {
        if page >= self.frontier {
            return Ok(());
        }
        let held = (self.end - self.frontier) << window.shift;
        let step = (held / 8).next_multiple_of(STEP).clamp(STEP, MOST_STEP) >> window.shift;
        let lower = page.min(self.frontier.saturating_sub(step));
        // The window itself starts at any page.
        let above = (window.address(lower) % STEP) >> window.shift;
        let lower = lower.saturating_sub(above).max(self.first);
        let new = window.span_of(lower, self.frontier - lower);
        sys::protect(new, true)?;
        self.frontier = lower;
        self.advise(window, new);
        Ok(())
    }

    /// Lets the kernel use huge pages, of which a fault makes 512 pages resident, while most of what is accessible is used.
    /// Where that is no longer so they must not come back: khugepaged would make them of any page that is left. `new` became
    /// accessible just now.
    fn advise(&mut self, window: &Window, new: Span) {
        let accessible = self.accessible();
        let huge = match self.huge {
            Some(true) => self.used >= accessible / 8 * 3,
            _ => accessible << window.shift >= HUGE && self.used >= accessible / 8 * 5,
        };
        let span = match self.huge {
            _ if !window.may_be_huge => return,
            None if !huge => return,
            Some(was) if was == huge => new,
            _ => window.span_of(self.frontier, accessible),
        };
        self.huge = Some(huge);
        if span.bytes > 0 {
            // A kernel without huge pages refuses.
            let _ = sys::advise_huge(span, huge);
        }
    }

    /// Takes runs that hold old contents out, from page `from` on, where the next call goes on; so many as `batch` has room for.
    pub(super) fn take_kept(
        &mut self,
        window: &Window,
        from: &mut usize,
        which: Which,
        batch: &mut Batch,
    ) {
        *from = self.frontier.max(*from);
        while batch.left > 0 && *from < self.end {
            let Some(place) = batch.runs.get_mut(batch.count) else {
                return;
            };
            let Some(run) = window.first_kept(*from, self.end, batch.left, which) else {
                *from = self.end;
                return;
            };
            *from = run.page + run.pages;
            // It is free, so one of these is not refused.
            let more = self.with_huge(window, run, which);
            let taken = more
                .into_iter()
                .find(|run| self.take(to_range(window, run.page, run.pages)));
            if let Some(run) = taken {
                *from = (run.page + run.pages).max(*from);
                batch.held[batch.count] = window.forget(run.page, run.pages);
                *place = run;
                batch.count += 1;
                batch.left = batch.left.saturating_sub(run.pages);
            }
        }
    }

    /// The run, with what lies beside it in its first and last huge pages, if nothing of that is to be kept: a fault made it
    /// resident, though nobody had it. The longest first; the last is the run itself.
    fn with_huge(&self, window: &Window, run: Run, which: Which) -> [Run; 4] {
        if self.huge.is_none() {
            return [run; 4];
        }
        let start = window.address(run.page);
        let end = window.address(run.page + run.pages);
        let below = (start % STEP) >> window.shift;
        let above = (end.next_multiple_of(STEP) - end) >> window.shift;
        let below = run.page - run.page.saturating_sub(below).max(self.frontier);
        let above = above.min(self.end - run.page - run.pages);
        [(below, above), (below, 0), (0, above), (0, 0)].map(|(below, above)| {
            let more = Run {
                page: run.page - below,
                pages: run.pages + below + above,
            };
            if which == Which::All || window.held(more.page, more.pages) == run.pages {
                more
            } else {
                run
            }
        })
    }

    /// Puts the runs of a batch back, of which the first `clean` hold nothing any more: the pages that these held.
    pub(super) fn put_kept(&mut self, window: &Window, batch: &Batch, clean: usize) -> usize {
        for (number, run) in batch.runs().iter().enumerate() {
            self.free(to_range(window, run.page, run.pages));
            if number >= clean {
                window.keep(run.page, run.pages);
            }
        }
        let held = batch.held.iter().take(clean.min(batch.count));
        held.sum()
    }

    /// Gives to the policy what the depot kept since the last call, as old as what [`Ranges::age`] made older.
    pub(super) fn age_depot(&mut self, window: &Window) {
        let mut depot = core::mem::replace(&mut self.depot, Depot::new());
        let before = depot.pages();
        depot.take_unused(|page, pages| {
            self.free(to_range(window, page, pages));
            window.keep_as(Which::Aged, page, pages);
        });
        let unused = before - depot.pages();
        window.counts.kept.fetch_sub(unused, Ordering::Relaxed);
        self.depot = depot;
    }

    /// Pages that the depot keeps.
    #[cfg(test)]
    pub(super) fn in_depot(&self) -> usize {
        self.depot.pages()
    }

    /// Makes all that is kept now older.
    pub(super) fn age(&mut self, window: &Window) {
        window.age(self.frontier / WORD * WORD, self.end);
    }

    /// Looks again at whether huge pages are worth it, after pages were given back.
    pub(super) fn advise_again(&mut self, window: &Window) {
        self.advise(window, Span::new(0, 0));
    }

    /// Pages of the longest hole.
    pub(super) fn largest(&mut self, window: &Window) -> usize {
        self.empty_depot(window);
        (self.space.statistics().largest_hole >> window.shift) as usize
    }
}
