//! Giving back to the kernel: what is due, what is too much, all; and what was put off.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use rustix::event::PollFlags;

use super::Inner;
use super::cache::Cache;
use super::config::GiveBack;
use super::fork::SERVING;
use super::lock_free::marks::{Kind, Mark};
use super::shard::Shard;
use super::threads::{self, Inside};
use crate::error::Result;
use crate::sys::{files, threads as sys};

/// Pages given back under one lock, at most.
const AT_A_TIME: usize = 1024;
/// Between two looks at memory pressure, in ns.
const LOOK: u64 = 100_000_000;

impl Inner {
    /// Gives back up to `most` pages of a shard, some at a time.
    pub(super) fn give_back_of(&self, shard: &Shard, most: usize) -> Result<usize> {
        let mut given = 0;
        while given < most {
            let more = AT_A_TIME.min(most - given);
            let now = self.locked(shard, |ranges| ranges.give_back(&self.window, more))??;
            given += now;
            if now < more {
                break;
            }
        }
        Ok(given)
    }

    pub(super) fn give_back_all(&self, most: usize) -> Result<usize> {
        let mut given = 0;
        for shard in &self.shards {
            given += self.give_back_of(shard, most - given)?;
        }
        Ok(given)
    }

    fn empty(&self, cache: &Cache) {
        cache.drain(|pages, entry| {
            self.put(entry.page, Mark::new(Kind::Held, pages), entry.dirty);
        });
    }

    pub(super) fn empty_caches(&self, inside: &Inside<'_>) {
        if let Some(cache) = self.cache(inside) {
            self.empty(cache);
        }
        threads::orphans(|number| {
            if let Some(cache) = self.window.cache(number) {
                self.empty(cache);
            }
        });
        self.take_deferred(inside);
    }

    /// Takes back buffers that signal handlers freed, and those that still have their guard.
    fn take_deferred(&self, inside: &Inside<'_>) {
        let marks = self.window.marks();
        self.deferred.take(&marks, |page, mark| {
            if mark.kind() == Kind::HeldMap {
                self.put(page, mark, false);
            } else {
                self.take_back(inside, page, mark.pages());
            }
        });
    }

    pub(super) fn trim(&self, inside: &Inside<'_>) -> Result<u64> {
        if self.state.load(Ordering::Relaxed) != SERVING {
            return Ok(0);
        }
        let before = self.window.given_back.load(Ordering::Relaxed);
        self.empty_caches(inside);
        self.give_back_all(usize::MAX)?;
        let after = self.window.given_back.load(Ordering::Relaxed);
        Ok((after - before) << self.window.shift)
    }

    /// Gives back memory that is due, and buffers that handlers freed.
    #[inline]
    pub(super) fn tick(&self, inside: &Inside<'_>) {
        if !self.deferred.is_empty() {
            self.take_deferred(inside);
        }
        if self.give_back == GiveBack::AtOnce {
            return;
        }
        let (now, due) = (sys::now_coarse(), self.due.load(Ordering::Relaxed));
        if now >= due {
            let next = self.next_due();
            let mine = (self.due).compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
            if mine.is_ok() {
                // Memory that the kernel refuses now stays kept.
                let _ = self.sweep();
            }
        }
    }

    pub(super) fn next_due(&self) -> u64 {
        let wait = match self.give_back {
            GiveBack::AtOnce => u64::MAX,
            GiveBack::After(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            GiveBack::UnderPressure => LOOK,
        };
        sys::now_coarse().saturating_add(wait)
    }

    #[cold]
    fn sweep(&self) -> Result<()> {
        if let Some(trigger) = &self.trigger {
            if files::poll([(trigger.as_fd(), PollFlags::PRI)], false)?[0].there {
                self.give_back_all(usize::MAX)?;
            }
            return Ok(());
        }
        // The least that was kept since the last time is what nobody needed since then.
        let unused = self.window.least_kept.load(Ordering::Relaxed);
        self.give_back_all(unused)?;
        let now = self.window.kept.load(Ordering::Relaxed);
        self.window.least_kept.store(now, Ordering::Relaxed);
        Ok(())
    }
}
