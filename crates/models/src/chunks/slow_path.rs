//! The slow path of an allocation: reclaim, compaction and retries after the fast path fails.
//!
//! **Contract.** A block of the order asked for, or `None` after as much as the effort allows. Time passes for the
//! others with each batch reclaimed and each block scanned.
//!
//! **Lineage.** `__alloc_pages_slowpath` (mm/page_alloc.c), `do_try_to_free_pages`, `should_continue_reclaim`,
//! `compaction_ready` (mm/vmscan.c).
//!
//! * 3.4 and 3.14 with `__GFP_NORETRY`: min mark; asynchronous compaction; direct reclaim; synchronous compaction; fail. Reclaim
//!   for a costly order goes on until twice the block was reclaimed *and then* until compaction has the pages that it
//!   wants, the low mark and twice the block.
//! * 6.12: asynchronous compaction first; where it was skipped or deferred, a costly order with `__GFP_NORETRY` fails at
//!   once; else one reclaim, which stops at twice the block or as soon as compaction could go, and a second compaction,
//!   asynchronous for costly orders with `__GFP_NORETRY`, synchronous (`COMPACT_PRIO_SYNC_LIGHT`) otherwise.
//!   Without that flag, as page faults ask, a costly order ends there; another is tried up to 16 times, as long as pages are
//!   reclaimed or moved.
//! * Order 0 without a modifier reclaims until it has its page or nothing can be reclaimed. Without the bits of
//!   `__GFP_RECLAIM` an allocation takes what is above the min mark, or fails.
//!
//! **What decides the thread's times** (scenario `thread`): that the walkers take pages *while* reclaim and compaction
//! work, not before and not after. Reclaim for order 4 stops with 33 pages above the low mark of high memory; a pass over it
//! loses them in its first quarter, finds no page to move to and fails. For order 10 the pages suffice for the
//! pass; it fails because of what cannot be moved, but leaves blocks of orders 1 to 3, which `old` then finds at once:
//! without them it would take minutes. Up to order 3 direct reclaim takes 32 pages from each zone, so these orders are served
//! from normal memory: there large blocks are free. `fold` asks for pairs as long as they succeed; each time that they cost a
//! round of 64 pages, and it cannot use the half from high memory. So a buffer takes it 0.36 s where the first pair fails, and up to
//! 2.4 s where none does. Compaction forgets its deferral between buffers, because others' passes succeed.
//!
//! Left out: `wait_iff_congested`, the oom killer (the allocation fails), draining the CPUs' own lists, the
//! priority by which a zone's share of reclaim grows.

use stopgap_chunks::policy::Effort;

use super::buddy::Use;
use super::compaction::{Compacted, Mode, Suitable};
use super::kernel::COSTLY;
use super::machine::Machine;
use super::reclaim::BATCH;
use super::zone::Mark;

/// `MAX_RECLAIM_RETRIES` and `MAX_COMPACT_RETRIES`.
const MOST_RETRIES: u32 = 16;

impl Machine {
    /// The first frame of a block of `order`.
    pub(super) fn slow_or_fast(&mut self, order: u32, effort: Effort) -> Option<u64> {
        if let Some(frame) = self.grab(order, Mark::Low) {
            return Some(frame);
        }
        self.counts.slow += 1;
        self.kswapd_woken |= effort != Effort::NoReclaim;
        if let Some(frame) = self.grab(order, Mark::Min) {
            return Some(frame);
        }
        match effort {
            Effort::NoReclaim => None,
            Effort::Must | Effort::NoRetry if order == 0 => self.reclaim_one(effort),
            Effort::Must | Effort::NoRetry if self.kernel.is_old() => self.once_old(order),
            Effort::Must if order <= COSTLY => self.again(order),
            Effort::Must | Effort::NoRetry => self.once(order, effort),
        }
    }

    fn reclaim_one(&mut self, effort: Effort) -> Option<u64> {
        loop {
            let reclaimed = self.reclaim_batch();
            let frame = self.grab(0, Mark::Min);
            if frame.is_some() || reclaimed == 0 || effort != Effort::Must {
                return frame;
            }
        }
    }

    /// 3.4 and 3.14.
    fn once_old(&mut self, order: u32) -> Option<u64> {
        if let Compacted::Got(frame) = self.compact(order, Mode::Async) {
            return Some(frame);
        }
        self.reclaim_for(order);
        if let Some(frame) = self.grab(order, Mark::Min) {
            return Some(frame);
        }
        self.compact(order, Mode::Sync).got()
    }

    /// 6.12.
    fn once(&mut self, order: u32, effort: Effort) -> Option<u64> {
        let gives_up = order > COSTLY && effort != Effort::Must;
        match self.compact(order, Mode::Async) {
            Compacted::Got(frame) => return Some(frame),
            Compacted::Skipped | Compacted::Deferred if gives_up => return None,
            Compacted::Skipped | Compacted::Deferred | Compacted::Failed => {}
        }
        self.reclaim_for(order);
        if let Some(frame) = self.grab(order, Mark::Min) {
            return Some(frame);
        }
        let mode = if gives_up { Mode::Async } else { Mode::Sync };
        self.compact(order, mode).got()
    }

    /// 6.12 without `__GFP_NORETRY`, for an order that is not costly: until nothing comes of it any more
    /// (`should_reclaim_retry`, `should_compact_retry`).
    fn again(&mut self, order: u32) -> Option<u64> {
        for _ in 0..MOST_RETRIES {
            let before = self.counts;
            if let Some(frame) = self.once(order, Effort::Must) {
                return Some(frame);
            }
            let since = self.counts - before;
            if (since.reclaimed, since.moved) == (0, 0) {
                return None;
            }
        }
        None
    }

    /// Direct reclaim for a block of `order`, above 0, from each zone that the request may have.
    fn reclaim_for(&mut self, order: u32) {
        for zone in self.zones_reclaimed() {
            if order <= COSTLY || !self.compaction_ready(zone, order) {
                self.reclaim_in(zone, order);
            }
        }
    }

    fn reclaim_in(&mut self, zone: usize, order: u32) {
        let twice = 2 << order;
        // No page is met a second time: the walkers may put back what this frees.
        let all = self.zones[zone].buddy.used_pages(Use::Reclaimable);
        let mut reclaimed = 0;
        loop {
            let batch = self.reclaim_from(zone);
            reclaimed += batch;
            let done = if order <= COSTLY {
                true
            } else if self.kernel.is_old() {
                reclaimed >= twice && self.suitable(zone, order) != Suitable::Skip
            } else {
                reclaimed >= twice
                    || self.is_ok(zone, order, self.zones[zone].marks.min)
                    || self.suitable(zone, order) != Suitable::Skip
            };
            if done || batch == 0 || reclaimed >= all {
                return;
            }
        }
    }

    /// Whether so much is free that reclaim would only delay compaction.
    fn compaction_ready(&self, zone: usize, order: u32) -> bool {
        let marks = self.zones[zone].marks;
        let spare = if self.kernel.is_old() {
            // KSWAPD_ZONE_BALANCE_GAP_RATIO
            let pages = self.zones[zone].buddy.pages();
            marks.low.min(pages.div_ceil(100))
        } else if self.is_ok(zone, order, marks.min) {
            return true;
        } else {
            0
        };
        self.suitable(zone, order) != Suitable::Skip
            && self.is_ok(zone, 0, marks.high + spare + (2 << order))
    }

    /// A round of reclaim, 32 pages from each list (`shrink_zones`).
    fn reclaim_batch(&mut self) -> u64 {
        let zones = self.zones_reclaimed().into_iter();
        zones.map(|zone| self.reclaim_from(zone)).sum()
    }

    fn reclaim_from(&mut self, zone: usize) -> u64 {
        let place = &mut self.zones[zone];
        let reclaimed = place.lru.shrink(&mut place.buddy, BATCH);
        self.counts.reclaimed += reclaimed;
        self.elapse(reclaimed as f64 * self.costs.reclaim_page_ns);
        reclaimed
    }
}
