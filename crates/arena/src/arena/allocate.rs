//! Giving out: from the thread's cache, else from a shard, some at a time.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::Inner;
use super::cache::{self, Cache, Entry, count};
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::threads::{self, Inside};
use crate::error::{Error, Result};

impl Inner {
    #[inline]
    pub(super) fn allocate(&self, len: usize, align: usize, zero: bool) -> Result<NonNull<u8>> {
        let pages = self.window.pages_for(len)?;
        if !align.is_power_of_two() {
            return Err(Error::Invalid {
                what: "an alignment that is no power of two",
            });
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
                match cache {
                    Some(cache) => {
                        count(&cache.given, 1);
                        count(&cache.given_bytes, (pages as u64) << self.window.shift);
                    }
                    None => {
                        self.others.given.fetch_add(1, Ordering::Relaxed);
                        let bytes = (pages as u64) << self.window.shift;
                        self.others.given_bytes.fetch_add(bytes, Ordering::Relaxed);
                    }
                }
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
        let number = inside.number();
        let cache = self.cache(inside);
        let own = number.unwrap_or(0) % self.shards.len();
        // Some at a time, of those that the cache may keep.
        let most = match cache {
            Some(cache) if align <= 1 << self.window.shift && cache.room() != Some(0) => {
                (16 / pages).clamp(1, 8)
            }
            _ => 1,
        };
        let mut entries = [Entry::NONE; 8];
        let mut answer = Err(Error::NoRoom {
            bytes: pages << self.window.shift,
        });
        let order = (0..self.shards.len()).map(|at| (own + at) % self.shards.len());
        for number in order {
            let wanted = entries.get_mut(..most).unwrap_or_default();
            let total = self.with_guard(pages);
            let shard = &self.shards[number];
            let placed = shard.place(&self.window, total, align, wanted, || self.is_given_up());
            // Its bytes would be those of the guard, too.
            if !matches!(placed, Err(Error::NoRoom { .. })) {
                answer = placed;
                break;
            }
        }
        let count = answer?;
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
            return Err(Error::Unsupported {
                what: "the memfd's free memory belongs to the parent",
                advice: "make an arena in the child",
            });
        }
        self.stray(pages, align, None)
    }
}
