//! What other tasks do to the memory while one builds a buffer, and between two buffers.
//!
//! kswapd (`balance_pgdat`, mm/vmscan.c), woken by an allocation that found less than the low mark, reclaims a page in
//! the time that direct reclaim needs for one, until the high mark is reached; its time is nobody's here. Beside
//! [`Walkers`](super::walkers::Walkers) all that it frees while a buffer is built is theirs, so it is not carried out.
//!
//! Between two buffers of 3.4 and 3.14 it does what the bystanders wake it for: where a block of their order is not
//! free above the high mark (`zone_balanced`), it compacts their zone once, asynchronously (`compact_pgdat`). Left
//! out: kcompactd, which does so from 4.6 on, and that these compete for locks.

use stopgap_chunks::policy::Effort;

use super::buddy::Mobility;
use super::bystanders::{Bystander, EVERY_NS};
use super::compaction::Mode;
use super::machine::{Asks, Machine};
use super::reclaim::BATCH;
use super::zone::Mark;

impl Machine {
    /// `ns` pass for the others.
    pub(super) fn elapse(&mut self, ns: f64) {
        self.clock_ns += ns;
        let Some(walkers) = self.walkers else {
            self.kswapd(ns);
            return;
        };
        self.owed += walkers.pages(ns);
        let asked = self.ask(Asks::USER);
        while self.owed >= 1.0 && self.grab(0, Mark::Low).is_some() {
            self.owed -= 1.0;
        }
        self.ask(asked);
        // They do not retry later what they could not allocate.
        self.owed = self.owed.min(1.0);
    }

    fn kswapd(&mut self, ns: f64) {
        if !self.kswapd_woken {
            return;
        }
        self.owed += if self.costs.reclaim_page_ns > 0.0 {
            ns / self.costs.reclaim_page_ns
        } else {
            f64::INFINITY
        };
        let mut pages = self.owed as u64;
        self.owed = self.owed.fract().max(0.0);
        self.kswapd_woken = false;
        for zone in &mut self.zones {
            let missing = zone.marks.high.saturating_sub(zone.buddy.free_pages());
            let want = pages.min(missing);
            let freed = zone.lru.shrink(&mut zone.buddy, want);
            pages -= want;
            self.kswapd_woken |= freed == want && freed < missing;
        }
        if !self.kswapd_woken {
            let zones = self.zones.iter_mut();
            zones.for_each(|zone| zone.compaction.kswapd_sleeps());
        }
    }

    /// The time until the next buffer: long enough for the walkers to have been everywhere, for kswapd to be done, and
    /// for compaction to have succeeded for others, so that it is no longer deferred.
    pub(super) fn rest(&mut self) {
        for zone in &mut self.zones {
            zone.compaction.rest(zone.buddy.pages());
        }
        if self.walkers.is_some() {
            self.walk_everywhere();
        } else {
            self.kswapd(f64::INFINITY);
        }
        if self.kernel.is_old() {
            for place in 0..self.bystanders.len() {
                self.compact_for(self.bystanders[place]);
            }
        }
        self.owed = 0.0;
    }

    /// The walkers go through all of memory: each page that they can take, they take, and others are freed, down to where
    /// reclaim holds each zone. In a zone with a reserve so many pages go from hand to hand as are free there; large
    /// blocks of it are split only where no smaller one is left.
    fn walk_everywhere(&mut self) {
        let Asks { mobility, of, .. } = Asks::USER;
        for (place, zone) in self.zones.iter_mut().enumerate() {
            let reserve = if place > 0 { zone.reserve } else { 0 };
            if reserve == 0 {
                while zone.buddy.allocate(0, mobility, of).is_some() {}
            }
            let level = zone.marks.min + reserve;
            let mut moved = 0;
            loop {
                let missing = level.saturating_sub(zone.buddy.free_pages());
                zone.lru.shrink(&mut zone.buddy, missing);
                if moved >= reserve {
                    break;
                }
                moved += zone.lru.shrink(&mut zone.buddy, BATCH).max(1);
                while zone.buddy.free_pages() > level {
                    zone.buddy.allocate(0, mobility, of);
                }
            }
        }
    }

    /// Compacts the drivers' zone as kswapd does for `driver` while nobody builds a buffer.
    fn compact_for(&mut self, driver: Bystander) {
        let zone = self.drivers_zone;
        if self.is_ok(zone, driver.order, self.zones[zone].marks.high) {
            return;
        }
        let counts = self.counts;
        self.pass(zone, driver.order, Mode::Async);
        self.counts = counts;
    }

    /// The bystanders' tries where so much time has passed since the last ones.
    pub(super) fn stand_by_in_time(&mut self) {
        if self.clock_ns - self.stood_by_ns >= EVERY_NS {
            self.stand_by();
        }
    }

    /// The bystanders' tries: each driver holds all its blocks at once, then gives them back.
    pub(super) fn stand_by(&mut self) {
        self.stood_by_ns = self.clock_ns;
        let counts = self.counts;
        let asked = self.ask(Asks {
            mobility: Mobility::Unmovable,
            first_zone: self.drivers_zone,
            ..self.asks
        });
        let mut held = Vec::new();
        for driver in self.bystanders.clone() {
            for _ in 0..driver.blocks {
                self.fared.tries[driver.order as usize] += 1;
                let block = if driver.waits {
                    self.slow_or_fast(driver.order, Effort::NoRetry)
                } else {
                    self.grab(driver.order, Mark::Low)
                        .or_else(|| self.grab(driver.order, Mark::Atomic))
                };
                match block {
                    Some(frame) => held.push((frame, driver.order)),
                    None => self.fared.failed[driver.order as usize] += 1,
                }
            }
        }
        for (frame, order) in held.into_iter().rev() {
            self.give_back(frame, order);
        }
        self.ask(asked);
        self.counts = counts;
    }
}
