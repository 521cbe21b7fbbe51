//! Counters of an arena.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Inner;
use super::threads;

/// What an arena holds and has done. Read while others go on, so that sums may be off by what is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Bytes of the window.
    pub window: u64,
    /// Accessible bytes of these: all down to the lowest buffer ever.
    pub accessible: u64,
    /// Buffers given out now, files' mappings left out.
    pub buffers: u64,
    /// Their bytes, in whole pages.
    pub buffer_bytes: u64,
    /// Files' mappings given out now.
    pub maps: u64,
    /// Bytes of free memory that hold old contents and are not given back.
    pub kept: u64,
    /// Bytes of these in threads' caches.
    pub cached: u64,
    /// The most that [`Statistics::kept`] may be.
    pub keep: u64,
    /// Buffers given out, ever.
    pub given: u64,
    /// Bytes given back to the kernel, ever; what was given back twice counts twice.
    pub given_back: u64,
    /// Mappings given out outside the window, ever: to signal handlers, and to children of unknown state.
    pub strays: u64,
}

/// Counts of threads that have no cache.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) given: AtomicU64,
    pub(super) given_bytes: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) taken_bytes: AtomicU64,
}

impl Inner {
    pub(super) fn statistics(&self) -> Statistics {
        let window = &self.window;
        let bytes = |pages: usize| (pages as u64) << window.shift;
        let mut statistics = Statistics {
            window: window.span.bytes as u64,
            maps: self.maps.load(Ordering::Relaxed),
            keep: self.keep as u64,
            given_back: window.given_back.load(Ordering::Relaxed) << window.shift,
            strays: self.strays.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        let accessible = || {
            let all = self.shards.iter();
            let pages = all.map(|shard| shard.accessible(|| self.is_given_up()).unwrap_or(0));
            pages.sum()
        };
        statistics.accessible = bytes(threads::inside(|_| accessible(), || 0));
        let others = &self.others;
        let mut sums = [
            &others.given,
            &others.given_bytes,
            &others.taken,
            &others.taken_bytes,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        for cache in window.caches(threads::numbers()) {
            statistics.cached += bytes(cache.pages());
            let counts = [
                &cache.given,
                &cache.given_bytes,
                &cache.taken,
                &cache.taken_bytes,
            ];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        let [given, given_bytes, taken, taken_bytes] = sums;
        statistics.given = given;
        statistics.buffers = given.saturating_sub(taken);
        statistics.buffer_bytes = given_bytes.saturating_sub(taken_bytes);
        statistics.kept = bytes(window.kept.load(Ordering::Relaxed)) + statistics.cached;
        statistics
    }
}
