//! Taking back: into the thread's cache, else to the shard, kept or given back.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use super::Inner;
use super::cache::{self, Cache, Entry, count};
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::shard::Shard;
use super::threads::{self, Inside};
use crate::error::{Error, Result};

impl Inner {
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
            return Err(Error::Invalid {
                what: "not the length that was given out",
            });
        }
        if !marks.hold(page, mark) {
            return Err(Error::Freed { address });
        }
        if mark.kind() == Kind::Mapped {
            return self.free_map(page, mark);
        }
        threads::inside(
            |inside| {
                self.count_taken(self.cache(inside), mark.pages());
                self.take_back(inside, page, mark.pages());
            },
            || {
                self.count_taken(None, mark.pages());
                self.deferred.push(&marks, page);
            },
        );
        Ok(())
    }

    /// Counts a buffer that is freed: once, however often it is put off what becomes of it.
    #[inline]
    fn count_taken(&self, cache: Option<&Cache>, pages: usize) {
        let bytes = (pages as u64) << self.window.shift;
        if let Some(cache) = cache {
            count(&cache.taken, 1);
            count(&cache.taken_bytes, bytes);
        } else {
            self.others.taken.fetch_add(1, Ordering::Relaxed);
            self.others.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
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
        let _ = shard.put(&self.window, page, total, dirty, || self.is_given_up());
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
