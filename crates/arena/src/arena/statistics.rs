//! Counters of an arena.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cache::Cache;
use super::fork::SERVING;
use super::{Inner, threads};

/// What an arena holds and has done. Read while others go on, so that sums may be off by what is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Bytes of the window.
    pub window: u64,
    /// Accessible bytes of these: all down to the lowest buffer ever.
    pub accessible: u64,
    /// Buffers given out now.
    pub buffers: u64,
    /// Their bytes, in whole pages.
    pub buffer_bytes: u64,
    /// Bytes of free memory that hold old contents and are not given back.
    pub kept: u64,
    /// Bytes of these in threads' caches.
    pub cached: u64,
    /// Buffers given out, ever.
    pub given: u64,
    /// Bytes given back to the kernel, ever; what was given back twice counts twice.
    pub given_back: u64,
    /// Mappings given out outside the window, ever: to signal handlers, and to children of unknown state.
    pub strays: u64,
}

/// A thread's buffers given out and taken back, each their number and bytes: counts that wrap, of which sums over all
/// threads make sense.
pub(super) struct Counts([AtomicU64; 4]);

/// What [`Counts`] count.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    Given = 0,
    Taken = 2,
}

impl Counts {
    pub(super) const fn new() -> Counts {
        Counts([const { AtomicU64::new(0) }; 4])
    }

    fn two(&self, which: Counted, bytes: u64) -> [(&AtomicU64, u64); 2] {
        let at = which as usize;
        [(&self.0[at], 1), (&self.0[at + 1], bytes)]
    }

    /// Counts where only this thread writes: a load and a store.
    #[inline]
    pub(super) fn add_own(&self, which: Counted, bytes: u64) {
        for (counter, more) in self.two(which, bytes) {
            let now = counter.load(Ordering::Relaxed);
            counter.store(now.wrapping_add(more), Ordering::Relaxed);
        }
    }

    /// Counts where other threads do, too.
    #[inline]
    pub(super) fn add_shared(&self, which: Counted, bytes: u64) {
        for (counter, more) in self.two(which, bytes) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }
}

impl Inner {
    /// Counts a buffer of `pages`: once, however often it is put off what becomes of it.
    #[inline]
    pub(super) fn count(&self, cache: Option<&Cache>, which: Counted, pages: usize) {
        let bytes = (pages as u64) << self.window.shift;
        match cache {
            Some(cache) => cache.buffers.add_own(which, bytes),
            None => self.others.add_shared(which, bytes),
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let window = &self.window;
        let bytes = |pages: usize| (pages as u64) << window.shift;
        let accessible = || {
            if self.state.load(Ordering::Relaxed) == SERVING {
                self.shards
                    .iter()
                    .for_each(|shard| self.take_returned(shard));
            }
            let of = |shard| self.locked(shard, |ranges| ranges.accessible());
            self.shards.iter().map(|shard| of(shard).unwrap_or(0)).sum()
        };
        // Before what is kept is counted: it takes back what was freed elsewhere.
        let accessible = bytes(threads::inside(|_| accessible(), || 0));
        let caches = window.caches(threads::numbers());
        let mut sums = [0_u64; 4];
        for Counts(counts) in caches
            .iter()
            .map(|cache| &cache.buffers)
            .chain([&self.others])
        {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        let [given, given_bytes, taken, taken_bytes] = sums;
        let cached = caches.iter().map(|cache| bytes(cache.pages())).sum();
        Statistics {
            window: window.span.bytes as u64,
            accessible,
            buffers: given.saturating_sub(taken),
            buffer_bytes: given_bytes.saturating_sub(taken_bytes),
            kept: bytes(window.counts.kept.load(Ordering::Relaxed)) + cached,
            cached,
            given,
            given_back: window.counts.given_back.load(Ordering::Relaxed) << window.shift,
            strays: self.strays.load(Ordering::Relaxed),
        }
    }
}
