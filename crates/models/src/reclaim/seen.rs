//! Reclaim's view of the lists, which may be out of date.
//!
//! **Contract.** [`Seen`] holds the lengths of the lists and the count of pages that became active as they were read
//! again, as they were when they were last summed up. O(1).
//!
//! **Lineage.** Since 5.13 the statistics of a memory cgroup are gathered from per-CPU parts now and then
//! (`mem_cgroup_flush_stats()`, mm/memcontrol.c: each 2 s, `FLUSH_TIME`, and when `memory.stat` is read).
//! `prepare_scan_control()` and `inactive_is_low()` (mm/vmscan.c, 6.12) decide by them; how much of a list is scanned goes
//! by its true length (`lruvec_lru_size()`). So an inactive list of files that has run empty still counts as long, its
//! active list is left alone, the priority rises, and whole lists of pages that somebody holds are walked: the *storms*
//! of the live probe. Left out: that a flush is spared while little has changed (64 pages a CPU).

use super::memory::Memory;
use super::pages::{ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE, LISTS, ListId};
use super::setting::Kernel;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    at: u64,
    lens: [u64; LISTS],
    activated: u64,
}

impl Memory {
    /// Nanoseconds from one summing up to the next; 0: what is believed is what is.
    fn period(&self) -> u64 {
        match self.setting.kernel {
            Kernel::Linux6_12 => self.setting.statistics.0,
            Kernel::Linux4_19 => 0,
        }
    }

    /// Sums up, where it is time to.
    pub(super) fn look(&mut self) {
        let (now, period) = (self.meter.now, self.period());
        let turn = |at: u64| (at + self.phase) / period;
        if period > 0 && turn(now) != turn(self.seen.at) {
            self.sum_up();
        }
    }

    /// Brings the view up to date.
    pub(super) fn sum_up(&mut self) {
        let mut lens = [0; LISTS];
        for (list, len) in (0..).zip(&mut lens) {
            *len = self.pages.len(list);
        }
        self.seen = Seen {
            at: self.meter.now,
            lens,
            activated: self.activated,
        };
    }

    /// How long a list is believed to be.
    pub(super) fn seen_len(&self, list: ListId) -> u64 {
        match self.period() {
            0 => self.pages.len(list),
            _ => self.seen.lens[usize::from(list)],
        }
    }

    /// How many pages of each type the lists are believed to have.
    pub(super) fn seen_sizes(&self) -> [u64; 2] {
        let of = |a, b| self.seen_len(a) + self.seen_len(b);
        [
            of(INACTIVE_ANON, ACTIVE_ANON),
            of(INACTIVE_FILE, ACTIVE_FILE),
        ]
    }

    fn seen_activated(&self) -> u64 {
        match self.period() {
            0 => self.activated,
            _ => self.seen.activated,
        }
    }

    /// Whether pages that were read again became active, as far as is known, since reclaim last ended.
    pub(super) fn refaulted(&self) -> bool {
        self.seen_activated() != self.activated_before
    }

    /// `snapshot_refaults()`: at the end of each call of reclaim.
    pub(super) fn looked(&mut self) {
        self.activated_before = self.seen_activated();
    }
}
