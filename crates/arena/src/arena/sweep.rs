//! Giving back to the kernel: what is old, what is too much, all; and what was put off.
//!
//! A page that is kept has an age: a bit says that it was kept when half of [`Config::decay`](super::Config::decay) began. At
//! the end of that half those that still are go back, and the others are the next to. So a page that nobody needed goes after
//! a half to a whole of the time, and one that was used stays, however much is kept.
//!
//! What goes back is taken out of its shard like a buffer, some runs at a time. So no lock of a shard is held during the
//! system call, and nobody is given a page whose contents are about to go. One thread at a time does it, under
//! [`Inner::purging`], which a fork waits for.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use super::Inner;
use super::cache::Cache;
use super::fork::{ORPHAN, SERVING};
use super::lock_free::lock::Locked;
use super::shard::{Batch, GIVEN_UP, Shard};
use super::threads::{self, Inside};
use super::window::Which;
use crate::error::Result;
use crate::pressure::LOOK;
use crate::sys::threads as sys;

/// Pages given back by one call, at most.
const AT_A_TIME: usize = 8192;
/// Bytes that may be kept however little is used.
const FLOOR: usize = 64 << 20;

impl Inner {
    /// Whether anything is kept.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.half > 0
    }

    /// Whether `pages` that are used still may be kept: in all as many as are used then. Gives others back, where they would be
    /// too much.
    pub(super) fn make_room(&self, pages: usize) -> bool {
        let used = self.window.counts.used.load(Ordering::Relaxed);
        let most = used.saturating_sub(pages).max(FLOOR >> self.window.shift);
        if !self.keeps() || pages > most {
            return false;
        }
        let would = self.window.counts.kept.load(Ordering::Relaxed) + pages;
        if would > most
            // Else somebody is at it.
            && let Some(_one) = self.purging.try_lock()
        {
            let surplus = would - most / 4 * 3;
            let aged = self.purge(Which::Aged, surplus).unwrap_or(0);
            // What the kernel refuses now stays kept.
            let _ = self.purge(Which::All, surplus.saturating_sub(aged));
        }
        true
    }

    /// Gives back `most` pages, and what lies in the same huge page as the last of them: how many. Under the lock `purging`.
    fn purge(&self, which: Which, most: usize) -> Result<usize> {
        let mut given = 0_usize;
        for shard in &self.shards {
            given += self.purge_shard(shard, which, most.saturating_sub(given))?;
        }
        Ok(given)
    }

    fn purge_shard(&self, shard: &Shard, which: Which, most: usize) -> Result<usize> {
        let (mut given, mut from) = (0, 0);
        let mut keeps_depot = which == Which::Aged;
        while given < most {
            let mut batch = Batch::new(AT_A_TIME.min(most - given));
            self.locked(shard, |ranges| {
                ranges.take_kept(&self.window, &mut from, which, &mut batch);
            })?;
            if batch.runs().is_empty() {
                let more = !core::mem::replace(&mut keeps_depot, true)
                    && self.locked(shard, |ranges| ranges.empty_depot(&self.window))?;
                if !more {
                    break;
                }
                from = 0;
                continue;
            }
            // SAFETY: the runs were free, and now are nobody's but ours.
            let (clean, done) = unsafe { self.window.release_all(batch.runs()) };
            let held = self.locked(shard, |ranges| ranges.put_kept(&self.window, &batch, clean))?;
            (self.window.counts.given_back).fetch_add(held as u64, Ordering::Relaxed);
            given += held;
            done?;
        }
        if given > 0 {
            self.locked(shard, |ranges| ranges.advise_again(&self.window))?;
        }
        Ok(given)
    }

    /// `None` in a process where it will never be opened.
    fn lock_purging(&self) -> Result<Locked<'_>> {
        let is_given_up = || self.state.load(Ordering::Relaxed) == ORPHAN;
        self.purging.lock(is_given_up).ok_or(GIVEN_UP)
    }

    /// Waits until nothing is on its way to the kernel.
    pub(super) fn wait_for_purge(&self) {
        drop(self.lock_purging());
    }

    fn empty(&self, inside: &Inside<'_>, cache: &Cache) {
        cache.drain(|pages, entry| {
            self.put(inside, entry.page, pages, entry.dirty);
        });
    }

    pub(super) fn empty_caches(&self, inside: &Inside<'_>) {
        if let Some(cache) = self.cache(inside) {
            self.empty(inside, cache);
        }
        threads::orphans(|number| {
            if let Some(cache) = self.window.cache(number) {
                self.empty(inside, cache);
            }
        });
        self.take_deferred(inside);
        self.shards
            .iter()
            .for_each(|shard| self.take_returned(shard));
    }

    /// Takes back buffers that signal handlers freed, and those that still have their guard.
    fn take_deferred(&self, inside: &Inside<'_>) {
        let marks = self.window.marks();
        self.deferred.take(&marks, |page, mark| {
            self.take_back(inside, page, mark.pages());
        });
    }

    pub(super) fn trim(&self, inside: &Inside<'_>) -> Result<u64> {
        if self.state.load(Ordering::Relaxed) != SERVING {
            return Ok(0);
        }
        let before = self.window.counts.given_back.load(Ordering::Relaxed);
        self.empty_caches(inside);
        let one = self.lock_purging()?;
        self.purge(Which::All, usize::MAX)?;
        drop(one);
        let after = self.window.counts.given_back.load(Ordering::Relaxed);
        Ok((after - before) << self.window.shift)
    }

    /// Gives back memory that is due, and buffers that handlers freed.
    #[inline]
    pub(super) fn tick(&self, inside: &Inside<'_>) {
        if !self.deferred.is_empty() {
            self.take_deferred(inside);
        }
        let (now, due) = (sys::now_coarse(), self.due.load(Ordering::Relaxed));
        if now >= due {
            let next = now.saturating_add(self.half.min(LOOK));
            let mine = (self.due).compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
            if mine.is_ok() {
                // Memory that the kernel refuses now stays kept.
                let _ = self.decay(now);
            }
        }
    }

    /// Gives back what is old at `now`, or all where memory is short: how many pages.
    #[cold]
    pub(super) fn decay(&self, now: u64) -> Result<usize> {
        if !self.keeps() {
            return Ok(0);
        }
        self.shards
            .iter()
            .for_each(|shard| self.take_returned(shard));
        if self.window.counts.kept.load(Ordering::Relaxed) == 0 {
            self.begin_half(now);
            return Ok(0);
        }
        // Else somebody is at it.
        let Some(_one) = self.purging.try_lock() else {
            return Ok(0);
        };
        if self.pressure.is_high(now) {
            return self.purge(Which::All, usize::MAX);
        }
        let end = self.half_ends.load(Ordering::Relaxed);
        if now < end {
            return Ok(0);
        }
        self.begin_half(now);
        // Calls that free come here at least that often: for more than a half nothing was freed.
        let which = match now - end >= self.half + LOOK {
            true => Which::All,
            false => Which::Aged,
        };
        for shard in &self.shards {
            self.locked(shard, |ranges| ranges.age_depot(&self.window))?;
        }
        let given = self.purge(which, usize::MAX)?;
        for shard in &self.shards {
            self.locked(shard, |ranges| ranges.age(&self.window))?;
        }
        Ok(given)
    }

    pub(super) fn begin_half(&self, now: u64) {
        let end = now.saturating_add(self.half);
        self.half_ends.store(end, Ordering::Relaxed);
    }
}
