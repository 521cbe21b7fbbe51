//! What other tasks do to the memory while one builds a buffer, and between two buffers.
//!
//! kswapd (`balance_pgdat`, mm/vmscan.c), woken by an allocation that found less than the low mark, reclaims a page in
//! the time that direct reclaim needs for one, until the high mark is reached; its time is nobody's here. Beside
//! [`Walkers`](super::walkers::Walkers) all that it frees is theirs, so it is not carried out. Left out: its own
//! compaction (kcompactd's from 4.6 on), and that it competes for locks.

use super::buddy::{Mobility, Use};
use super::bystanders::Fared;
use super::machine::Machine;

impl Machine {
    /// `ns` pass for the others.
    pub(super) fn elapse(&mut self, ns: f64) {
        let Some(walkers) = self.walkers else {
            self.kswapd(ns);
            return;
        };
        self.owed += walkers.pages(ns);
        while self.owed >= 1.0 && self.buddy.free_pages() > self.marks.low {
            if !self.walk() {
                break;
            }
            self.owed -= 1.0;
        }
        // What they could not have, they do not take later.
        self.owed = self.owed.min(1.0);
    }

    /// A walker takes a page; whether there was one.
    fn walk(&mut self) -> bool {
        let page = self.buddy.take(0, Mobility::Movable, Use::Reclaimable);
        page.is_some()
    }

    fn kswapd(&mut self, ns: f64) {
        if !self.kswapd_woken {
            return;
        }
        let missing = self.marks.high.saturating_sub(self.buddy.free_pages());
        self.owed += if self.costs.reclaim_page_ns > 0.0 {
            ns / self.costs.reclaim_page_ns
        } else {
            f64::INFINITY
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole pages, above 0
        let pages = (self.owed as u64).min(missing);
        let freed = self.lru.shrink(&mut self.buddy, pages);
        self.owed = self.owed.fract().max(0.0);
        self.kswapd_woken = freed == pages && freed < missing;
    }

    /// The time until the next buffer: long enough for the walkers to have been everywhere, for kswapd to be done, and
    /// for compaction to have succeeded for others, so that it is no longer deferred.
    pub(super) fn rest(&mut self) {
        self.compaction.rest(self.buddy.pages());
        if self.walkers.is_some() {
            while self.walk() {}
            self.lru.shrink(&mut self.buddy, self.marks.min);
        } else {
            self.kswapd(f64::INFINITY);
        }
        self.owed = 0.0;
    }

    /// The bystanders' tries after a buffer.
    pub(super) fn stand_by(&mut self) -> Fared {
        let mut fared = Fared::default();
        let mut held = Vec::new();
        for driver in self.bystanders.clone() {
            for _ in 0..driver.blocks {
                fared.tries[driver.order as usize] += 1;
                match self.grab(driver.order, self.marks.atomic()) {
                    Some(frame) => held.push((frame, driver.order)),
                    None => fared.failed[driver.order as usize] += 1,
                }
            }
        }
        for (frame, order) in held.into_iter().rev() {
            self.give_back(frame, order);
        }
        fared
    }
}
