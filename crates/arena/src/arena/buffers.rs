//! Buffers: given out from the thread's cache, else from a shard, some at a time; taken back into the cache, else to the
//! shard, kept or given back.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::Inner;
use super::cache::{self, Cache, Entry};
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::shard::{Ranges, Shard};
use super::statistics::Counted;
use super::threads::{self, Inside};
use super::window::{Old, Run};
use crate::error::{Error, Result};

impl Inner {
    #[inline]
    pub(super) fn allocate(&self, len: usize, align: usize, zero: bool) -> Result<NonNull<u8>> {
        let pages = match self.window.pages_for(len) {
            Ok(pages) => pages,
            Err(error) => return Err(threads::inside(|_| self.with_largest(error), || error)),
        };
        if !align.is_power_of_two() {
            return Err(Error::invalid("an alignment that is no power of two"));
        }
        threads::inside(
            |inside| {
                if self.state.load(Ordering::Relaxed) != SERVING {
                    return self.allocate_in_child(pages, align);
                }
                let cache = self.cache(inside);
                let kept = if align <= 1 << self.window.shift {
                    cache.and_then(|cache| cache.pop(pages))
                } else {
                    None
                };
                let (page, pointer);
                if let Some(entry) = kept {
                    page = entry.page;
                    pointer = self.window.pointer(page)?;
                    if zero && entry.dirty {
                        // SAFETY: the range is ours, and nobody has been given it.
                        unsafe { self.window.zero(Run { page, pages }) };
                    }
                } else {
                    let old;
                    (page, old) = self.place(inside, pages, align)?;
                    pointer = self.window.pointer(page)?;
                    // Without the guard's page.
                    for run in old.runs_before(page + pages).filter(|_| zero) {
                        // SAFETY: as above.
                        unsafe { self.window.zero(run) };
                    }
                }
                let marks = self.window.marks();
                marks.set(page, Mark::new(Kind::Live, pages));
                self.count(cache, Counted::Given, pages);
                Ok(pointer)
            },
            || self.stray(pages, align),
        )
    }

    /// From a shard: the thread's own first, then the others. The page, and which of the pages hold old contents.
    #[cold]
    fn place(&self, inside: &Inside<'_>, pages: usize, align: usize) -> Result<(usize, Old)> {
        self.tick(inside);
        let placed = self.place_in_shards(inside, pages, align);
        let Err(Error::NoRoom { .. }) = placed else {
            return placed;
        };
        // Ranges that caches keep, or that are being given back, may be in the way.
        self.empty_caches(inside);
        self.wait_for_purge();
        let placed = self.place_in_shards(inside, pages, align);
        placed.map_err(|error| self.with_largest(error))
    }

    /// Says the largest hole of all shards in an error that has none.
    #[cold]
    fn with_largest(&self, error: Error) -> Error {
        let Error::NoRoom { bytes, .. } = error else {
            return error;
        };
        let of = |shard| self.locked(shard, |ranges| ranges.largest(&self.window));
        let pages = self.shards.iter().filter_map(|shard| of(shard).ok()).max();
        let usable = |pages: usize| pages.saturating_sub(usize::from(self.guard));
        Error::NoRoom {
            bytes,
            largest: pages.map(|pages| usable(pages) << self.window.shift),
        }
    }

    fn place_in_shards(
        &self,
        inside: &Inside<'_>,
        pages: usize,
        align: usize,
    ) -> Result<(usize, Old)> {
        let cache = self.cache(inside);
        // Some at a time, of those that the cache may keep.
        let most = match cache {
            Some(cache) if align <= 1 << self.window.shift && cache.room() != Some(0) => {
                (16 / pages).clamp(1, 8)
            }
            _ => 1,
        };
        let mut entries = [Entry::NONE; 8];
        let wanted = entries.get_mut(..most).unwrap_or_default();
        let total = self.with_guard(pages);
        let mut returned = 0;
        let placed = self.in_some_shard(inside, pages, |shard, ranges| {
            let (window, guard) = (&self.window, total - pages);
            returned += ranges.look_at_returned(window, &shard.returned, guard, total);
            ranges.place_some(window, total, align, wanted)
        });
        if returned > 0 {
            self.make_room(0);
        }
        let (count, old) = placed?;
        let marks = self.window.marks();
        let [first, rest @ ..] = &mut entries;
        for entry in [&mut *first].into_iter().chain(rest.iter_mut()).take(count) {
            marks.set(entry.page, Mark::new(Kind::Held, pages));
        }
        let guarded = self.guard(first.page, pages);
        for entry in rest.iter().take(count - 1) {
            let kept = guarded.is_ok()
                && self.guard(entry.page, pages).is_ok()
                && cache.is_some_and(|cache| self.keep(cache, pages, *entry));
            if !kept {
                self.put(inside, entry.page, pages, entry.dirty);
            }
        }
        if let Err(error) = guarded {
            self.put(inside, first.page, pages, first.dirty);
            return Err(error);
        }
        Ok((first.page, old))
    }

    /// Makes the page after a range of `pages` fault.
    fn guard(&self, page: usize, pages: usize) -> Result<()> {
        if self.guard {
            self.set_guard(page + pages, true)?;
        }
        Ok(())
    }

    /// Keeps a range in the thread's own cache, where that may.
    pub(super) fn keep(&self, cache: &Cache, pages: usize, entry: Entry) -> bool {
        if cache.room().is_none() {
            let most = cache::MOST_BYTES >> self.window.shift;
            cache.set_room(if self.keeps() { most } else { 0 });
        }
        cache.push(pages, entry)
    }

    #[cold]
    fn allocate_in_child(&self, pages: usize, align: usize) -> Result<NonNull<u8>> {
        if self.window.file.is_some() {
            return Err(Error::unsupported(
                "the memfd's free memory belongs to the parent",
                "make an arena in the child",
            ));
        }
        self.stray(pages, align)
    }

    /// Places something in a shard: the thread's own first, then the others.
    pub(super) fn in_some_shard<T>(
        &self,
        inside: &Inside<'_>,
        pages: usize,
        mut place: impl FnMut(&Shard, &mut Ranges) -> Result<T>,
    ) -> Result<T> {
        let (before, behind) = self.shards.split_at(self.own_shard(inside));
        for shard in behind.iter().chain(before) {
            let placed = self.locked(shard, |ranges| place(shard, ranges))?;
            // Its bytes may be those of a guard, too.
            if !matches!(placed, Err(Error::NoRoom { .. })) {
                return placed;
            }
        }
        Err(Error::NoRoom {
            bytes: pages << self.window.shift,
            largest: None,
        })
    }

    #[inline]
    pub(super) unsafe fn free(&self, address: usize, len: usize) -> Result<()> {
        let Some(page) = self.window.page_at(address) else {
            // SAFETY: as the caller says.
            return unsafe { self.free_stray(address, len) };
        };
        let marks = self.window.marks();
        // Without a look before: the mark would come from the CPU of the thread that got the buffer once to be read, and once to
        // be written.
        let pages = self.window.pages_for(len).unwrap_or(0);
        if !marks.hold(page, Mark::new(Kind::Live, pages)) {
            return Err(self.why_not(address, page, pages));
        }
        threads::inside(
            |inside| {
                self.count(self.cache(inside), Counted::Taken, pages);
                self.take_back(inside, page, pages);
            },
            || {
                self.count(None, Counted::Taken, pages);
                self.deferred.push(&marks, page);
            },
        );
        Ok(())
    }

    /// Why a buffer of `pages` at `page` could not be freed.
    #[cold]
    fn why_not(&self, address: usize, page: usize, pages: usize) -> Error {
        let mark = self.window.marks().get(page);
        match mark.kind() {
            // Given out again since.
            Kind::Live if mark.pages() == pages => Error::Freed { address },
            Kind::Live => Error::invalid("not the length that was given out"),
            Kind::Held | Kind::Free => Error::Freed { address },
            Kind::Nothing => Error::Foreign { address },
        }
    }

    /// Takes a buffer back, whose mark is held.
    #[inline]
    pub(super) fn take_back(&self, inside: &Inside<'_>, page: usize, pages: usize) {
        let cache = self.cache(inside);
        let serving = self.state.load(Ordering::Relaxed) == SERVING;
        let entry = Entry { page, dirty: true };
        if serving && cache.is_some_and(|cache| cache.push(pages, entry)) {
            return;
        }
        self.take_back_slowly(inside, cache, entry, pages);
    }

    #[cold]
    fn take_back_slowly(
        &self,
        inside: &Inside<'_>,
        cache: Option<&Cache>,
        entry: Entry,
        pages: usize,
    ) {
        if self.state.load(Ordering::Relaxed) != SERVING {
            let marks = self.window.marks();
            marks.set(entry.page, Mark::new(Kind::Free, pages));
            return;
        }
        self.tick(inside);
        if let Some(cache) = cache
            && pages <= cache::LARGEST
        {
            if self.keep(cache, pages, entry) {
                return;
            }
            let half = (cache.count(pages) / 2).clamp(1, cache::ROUNDS / 2);
            let (older, count) = cache.take_older(pages, half);
            for old in older.iter().take(count) {
                self.put(inside, old.page, pages, old.dirty);
            }
            if cache.push(pages, entry) {
                return;
            }
        }
        self.put(inside, entry.page, pages, true);
    }

    /// The shard in which a thread places first.
    pub(super) fn own_shard(&self, inside: &Inside<'_>) -> usize {
        inside.number().unwrap_or(0) % self.shards.len()
    }

    /// Takes back what threads of other shards freed.
    pub(super) fn take_returned(&self, shard: &Shard) {
        let guard = self.with_guard(0);
        // Where the lock is given up, so is the window.
        let returned = self.locked(shard, |ranges| {
            ranges.take_returned(&self.window, &shard.returned, guard)
        });
        if returned.is_ok_and(|pages| pages > 0) {
            self.make_room(0);
        }
    }

    /// Gives a range, whose mark is held, to its shard; to another thread's without its lock.
    pub(super) fn put(&self, inside: &Inside<'_>, page: usize, pages: usize, dirty: bool) {
        if self.guard && self.set_guard(page + pages, false).is_err() {
            // It would be given out with a hole in it: tried again by the next call that takes a lock.
            self.deferred.push(&self.window.marks(), page);
            return;
        }
        let number = self.shard_of(page);
        let shard = &self.shards[number];
        // Where nothing is kept, it goes to the kernel now.
        if dirty && number != self.own_shard(inside) && self.keeps() {
            (shard.returned).push(&self.window, page, self.with_guard(pages));
        } else {
            self.put_in(shard, page, pages, dirty);
        }
    }

    fn put_in(&self, shard: &Shard, page: usize, pages: usize, mut dirty: bool) {
        let total = self.with_guard(pages);
        if dirty && !self.make_room(total) {
            // The guard's page, too: it may hold what was left there before it was one.
            // SAFETY: the range is free, and ours until it is put back.
            dirty = unsafe { self.window.release(page, total) }.is_err();
            let given_back = if dirty { 0 } else { total as u64 };
            (self.window.counts.given_back).fetch_add(given_back, Ordering::Relaxed);
        }
        // Where the lock is given up, so is the window.
        let _ = self.locked(shard, |ranges| {
            ranges.put(&self.window, page, total, dirty);
        });
    }
}
