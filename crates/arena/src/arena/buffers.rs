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
use crate::error::{Error, Result};

impl Inner {
    #[inline]
    pub(super) fn allocate(&self, len: usize, align: usize, zero: bool) -> Result<NonNull<u8>> {
        let pages = self.window.pages_for(len)?;
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
                let entry = match kept {
                    Some(entry) => entry,
                    None => self.place(inside, pages, align)?,
                };
                let pointer = self.window.pointer(entry.page)?;
                if zero && entry.dirty {
                    // SAFETY: the range is ours, and nobody has been given it.
                    unsafe { self.window.zero(entry, pages) };
                }
                let marks = self.window.marks();
                marks.set(entry.page, Mark::new(Kind::Live, pages));
                self.count(cache, Counted::Given, pages);
                Ok(pointer)
            },
            || self.stray(pages, align, None),
        )
    }

    /// From a shard: the thread's own first, then the others.
    #[cold]
    fn place(&self, inside: &Inside<'_>, pages: usize, align: usize) -> Result<Entry> {
        self.tick(inside);
        let placed = self.place_in_shards(inside, pages, align);
        let Err(Error::NoRoom { .. }) = placed else {
            return placed;
        };
        // Ranges in caches may be in the way.
        self.empty_caches(inside);
        self.place_in_shards(inside, pages, align)
    }

    fn place_in_shards(&self, inside: &Inside<'_>, pages: usize, align: usize) -> Result<Entry> {
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
        let count = self.in_some_shard(inside, pages, |ranges| {
            ranges.place_some(&self.window, total, align, wanted)
        })?;
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
                self.put(entry.page, Mark::new(Kind::Held, pages), entry.dirty);
            }
        }
        if let Err(error) = guarded {
            self.put(first.page, Mark::new(Kind::Held, pages), first.dirty);
            return Err(error);
        }
        Ok(*first)
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
            let part = self.reserve();
            if self.give_back_surplus().is_err() {
                self.window.budget.fetch_add(part, Ordering::Relaxed);
                return false;
            }
            cache.set_room(part);
        }
        cache.push(pages, entry)
    }

    /// Gives back what shards keep beyond their part: what a cache was given just now may be taken already.
    fn give_back_surplus(&self) -> Result<()> {
        let kept = self.window.kept.load(Ordering::Relaxed);
        let surplus = kept.saturating_sub(self.window.budget.load(Ordering::Relaxed));
        self.give_back_all(surplus).map(drop)
    }

    /// Pages that a cache may keep, taken from what the arena may: a quarter of what is left, and 1 MiB at most.
    fn reserve(&self) -> usize {
        let most = cache::MOST_BYTES >> self.window.shift;
        let budget = &self.window.budget;
        let mut now = budget.load(Ordering::Relaxed);
        loop {
            let part = most.min(now / 4);
            match budget.compare_exchange_weak(
                now,
                now - part,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return part,
                Err(other) => now = other,
            }
        }
    }

    #[cold]
    fn allocate_in_child(&self, pages: usize, align: usize) -> Result<NonNull<u8>> {
        if self.window.file.is_some() {
            return Err(Error::unsupported(
                "the memfd's free memory belongs to the parent",
                "make an arena in the child",
            ));
        }
        self.stray(pages, align, None)
    }

    /// Places something in a shard: the thread's own first, then the others.
    pub(super) fn in_some_shard<T>(
        &self,
        inside: &Inside<'_>,
        pages: usize,
        mut place: impl FnMut(&mut Ranges) -> Result<T>,
    ) -> Result<T> {
        let (before, behind) = self
            .shards
            .split_at(inside.number().unwrap_or(0) % self.shards.len());
        for shard in behind.iter().chain(before) {
            let placed = self.locked(shard, &mut place)?;
            // Its bytes may be those of a guard, too.
            if !matches!(placed, Err(Error::NoRoom { .. })) {
                return placed;
            }
        }
        let bytes = pages << self.window.shift;
        Err(Error::NoRoom { bytes })
    }

    #[inline]
    pub(super) unsafe fn free(&self, address: usize, len: usize) -> Result<()> {
        let Some(page) = self.window.page_at(address) else {
            // SAFETY: as the caller says.
            return unsafe { self.free_stray(address, len) };
        };
        let marks = self.window.marks();
        let mark = marks.get(page);
        match mark.kind() {
            Kind::Live | Kind::Mapped => {}
            Kind::Held | Kind::Free | Kind::HeldMap => return Err(Error::Freed { address }),
            Kind::Nothing => return Err(Error::Foreign { address }),
        }
        if self.window.pages_for(len) != Ok(mark.pages()) {
            return Err(Error::invalid("not the length that was given out"));
        }
        if !marks.hold(page, mark) {
            return Err(Error::Freed { address });
        }
        if mark.kind() == Kind::Mapped {
            return self.free_map(page, mark);
        }
        threads::inside(
            |inside| {
                self.count(self.cache(inside), Counted::Taken, mark.pages());
                self.take_back(inside, page, mark.pages());
            },
            || {
                self.count(None, Counted::Taken, mark.pages());
                self.deferred.push(&marks, page);
            },
        );
        Ok(())
    }

    /// Takes a buffer back, whose mark is held.
    #[inline]
    pub(super) fn take_back(&self, inside: &Inside<'_>, page: usize, pages: usize) {
        let cache = self.cache(inside);
        let serving = self.state.load(Ordering::Relaxed) == SERVING;
        let entry = Entry {
            page,
            dirty: true,
            sparse: false,
        };
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
            let (older, count) = cache.take_older(pages);
            for old in older.iter().take(count) {
                self.put(old.page, Mark::new(Kind::Held, pages), old.dirty);
            }
            if cache.push(pages, entry) {
                return;
            }
        }
        self.put(entry.page, Mark::new(Kind::Held, pages), true);
    }

    /// Gives a range, whose mark is held, to its shard.
    pub(super) fn put(&self, page: usize, mark: Mark, mut dirty: bool) {
        let (pages, is_map) = (mark.pages(), mark.kind() == Kind::HeldMap);
        let marks = self.window.marks();
        if self.guard && !is_map && self.set_guard(page + pages, false).is_err() {
            // It would be given out with a hole in it: tried again by the next call that takes a lock.
            self.deferred.push(&marks, page);
            return;
        }
        let shard = &self.shards[self.shard_of(page)];
        let total = if is_map {
            pages
        } else {
            self.with_guard(pages)
        };
        if dirty && !is_map && !self.may_keep(shard, total) {
            // The guard's page, too: it may hold what was left there before it was one.
            // SAFETY: the range is free, and ours until it is put back.
            dirty = unsafe { self.window.release(page, total) }.is_err();
        }
        // Before: as soon as it is back, somebody else may be given it.
        marks.set(page, Mark::new(Kind::Free, pages));
        // Where the lock is given up, so is the window.
        let _ = self.locked(shard, |ranges| {
            ranges.put(&self.window, page, total, dirty);
        });
    }

    /// Whether `pages` more may be kept; gives back half of what there is in `shard`, where that is in the way.
    fn may_keep(&self, shard: &Shard, pages: usize) -> bool {
        let window = &self.window;
        let fits = || {
            let kept = window.kept.load(Ordering::Relaxed);
            kept + pages <= window.budget.load(Ordering::Relaxed)
        };
        if fits() {
            return true;
        }
        if pages > window.budget.load(Ordering::Relaxed) / 2 {
            return false;
        }
        let half = window.budget.load(Ordering::Relaxed) / 2;
        self.give_back_of(shard, half.max(pages)).is_ok() && fits()
    }
}
