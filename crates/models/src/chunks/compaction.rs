//! Compaction: pages at the beginning of memory move to free pages at its end, so that the beginning becomes free in
//! large blocks.
//!
//! **Contract.** One scanner goes up through memory and gathers up to 32 pages that can move, within a 2 MiB block; the
//! other goes down through blocks of movable type and takes free pages for them, each only while more than a mark
//! stays free. The pass ends when the two meet (both begin anew the next time), when the block asked for has come into
//! being, or when no free page is left to move to. Pages that cannot move, unmovable or pinned, are left and stand in the way.
//!
//! **Cost.** The sum of both scanners' ways: a full pass reads all pages' bytes once; blocks without a free page are
//! skipped in our own time, not in the modelled one.
//!
//! **Lineage.** `compact_zone`, `isolate_migratepages`, `isolate_freepages`, `compact_finished`, `compaction_suitable`,
//! `defer_compaction` (mm/compaction.c), `__isolate_free_page`, `__alloc_pages_direct_compact` (mm/page_alloc.c).
//! In 3.4 and 3.14 each 2 MiB block is looked at to its end, by either scanner; of 6.12 `recent` has more. In 3.4 and 3.14 a
//! pass for an unmovable request has only succeeded when a free block of *unmovable* type has come
//! into being, which moving does not bring about: so it runs to its end, and the block is taken then. 6.12 stops at the
//! first large enough block of any type. Left out: in 3.14 hints to skip blocks; the fast searches for free pages and for
//! blocks that are nearly free (5.1), giving up because of contention, and migrations that fail.

mod deferral;
mod recent;
mod suitable;

use std::ops::Range;

use super::buddy::{BLOCK_PAGES, Mobility, ORDERS, Piece, Use};
use super::machine::Machine;
use super::zone::Mark;

use deferral::Deferral;
use recent::Recent;
pub(super) use suitable::Suitable;

/// Pages that are moved at a time: `COMPACT_CLUSTER_MAX`.
const BATCH: usize = 32;

/// Which blocks a pass takes pages from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Only those of movable type.
    Async,
    /// All.
    Sync,
}

/// Result of a call for compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compacted {
    /// The block that was asked for, at this frame.
    Got(u64),
    /// A pass, and no block.
    Failed,
    /// No pass: too few pages free, or fragmentation is not to blame.
    Skipped,
    /// No pass: earlier ones failed.
    Deferred,
}

impl Compacted {
    pub(super) fn got(self) -> Option<u64> {
        match self {
            Compacted::Got(frame) => Some(frame),
            Compacted::Failed | Compacted::Skipped | Compacted::Deferred => None,
        }
    }
}

/// Where the scanners stand, and what earlier passes came to.
#[derive(Debug, Clone)]
pub(super) struct Compaction {
    /// The next page to be looked at for moving.
    migrate: u64,
    /// The page above the next one to be looked at for moving to.
    free: u64,
    deferral: Deferral,
    recent: Recent,
}

impl Compaction {
    pub(super) fn new(pages: u64) -> Compaction {
        Compaction {
            migrate: 0,
            free: pages,
            deferral: Deferral::default(),
            recent: Recent::new(pages),
        }
    }

    /// Others' passes went through all of memory and succeeded.
    pub(super) fn rest(&mut self, pages: u64) {
        *self = Compaction::new(pages);
    }

    /// kswapd goes to sleep.
    pub(super) fn kswapd_sleeps(&mut self) {
        self.recent.kswapd_sleeps();
    }

    /// In old kernels page by page, since 4.1 as soon as they are in one 2 MiB block (`compact_scanners_met`).
    fn have_met(&self, old: bool) -> bool {
        match old {
            true => self.free <= self.migrate,
            false => self.free.saturating_sub(1) / BLOCK_PAGES <= self.migrate / BLOCK_PAGES,
        }
    }
}

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// Before the scanners met.
    Part,
    /// When they met.
    Whole,
}

impl Machine {
    /// Compaction on behalf of an allocation of `order`, and the allocation itself. The zones that the request may have
    /// are compacted in their order, up to one that then has such a block (`try_to_compact_pages`), of old one above its
    /// low mark. Whether it is deferred, each zone knows for itself since 3.18, the first of them for all before that.
    pub(super) fn compact(&mut self, order: u32, mode: Mode) -> Compacted {
        let old = self.kernel.is_old();
        let first = self.asks.first_zone;
        let (mut end, mut deferred) = (None, false);
        for zone in self.zones_asked() {
            let asks = !old || zone == first;
            if asks && self.zones[zone].compaction.deferral.defers(order) {
                deferred = true;
                if old {
                    break;
                }
                continue;
            }
            let passed = match self.suitable(zone, order) {
                Suitable::Skip => None,
                Suitable::Enough => Some(End::Part),
                Suitable::Go => Some(self.pass(zone, order, mode)),
            };
            end = end.max(passed);
            if !old && mode == Mode::Sync && passed == Some(End::Whole) {
                self.zones[zone].compaction.deferral.failed(order);
            }
            let done = if old {
                self.is_ok(zone, order, self.zones[zone].marks.low)
            } else {
                passed == Some(End::Part) && self.finished(zone, order)
            };
            if done {
                break;
            }
        }
        if end.is_none() {
            let (count, came) = if deferred {
                (&mut self.counts.compaction_deferred, Compacted::Deferred)
            } else {
                (&mut self.counts.compaction_skipped, Compacted::Skipped)
            };
            *count += 1;
            return came;
        }
        let Some(frame) = self.grab(order, Mark::Min) else {
            self.counts.compaction_failed += 1;
            if old && mode == Mode::Sync {
                self.zones[first].compaction.deferral.failed(order);
            }
            return Compacted::Failed;
        };
        self.counts.compaction_succeeded += 1;
        let taken_from = self.zone_of(frame).map(|(zone, _)| zone);
        let zone = taken_from.filter(|_| !old).unwrap_or(first);
        self.zones[zone].compaction.deferral.succeeded(order);
        Compacted::Got(frame)
    }

    pub(super) fn pass(&mut self, zone: usize, order: u32, mode: Mode) -> End {
        let mut candidates = None;
        if self.kernel.is_old() {
            candidates = self.candidates(zone);
        }
        self.zones[zone].compaction.recent.begin();
        let mut targets = Vec::new();
        let mut sources = Vec::new();
        let end = loop {
            let place = &mut self.zones[zone];
            if place.compaction.have_met(self.kernel.is_old()) {
                place.compaction.migrate = 0;
                place.compaction.free = place.buddy.pages();
                place.compaction.recent.met();
                break End::Whole;
            }
            if self.finished(zone, order) {
                break End::Part;
            }
            if self.kernel.is_old() {
                self.find_sources(zone, mode, &mut sources);
            } else {
                self.find_sources_recent(zone, order, mode, &mut sources);
            }
            if targets.len() < sources.len() {
                if self.kernel.is_old() {
                    self.find_targets(zone, sources.len(), &mut candidates, &mut targets);
                } else {
                    self.find_targets_recent(zone, sources.len(), &mut targets);
                }
            }
            let short = targets.len() < sources.len();
            for &(source, of) in &sources {
                let Some(target) = targets.pop() else { break };
                self.move_page(zone, source, of, target);
            }
            if short && !self.zones[zone].compaction.have_met(self.kernel.is_old()) {
                break End::Part;
            }
        };
        for target in targets {
            self.free_in(zone, target);
        }
        end
    }

    /// Where they are few, all free blocks with their orders, the highest last: then most 2 MiB blocks have none, and
    /// need not be walked through.
    fn candidates(&self, zone: usize) -> Option<Vec<(u64, u32)>> {
        let buddy = &self.zones[zone].buddy;
        let free: u64 = (0..ORDERS as u32).map(|o| buddy.free_blocks(o)).sum();
        if free > buddy.pages() / 64 {
            return None;
        }
        let mut blocks = Vec::new();
        for order in 0..ORDERS as u32 {
            for &mobility in Mobility::ALL {
                let frames = buddy.free_list(order, mobility);
                blocks.extend(frames.into_iter().map(|frame| (frame, order)));
            }
        }
        blocks.sort_unstable();
        Some(blocks)
    }

    /// The next pages that can move.
    fn find_sources(&mut self, zone: usize, mode: Mode, sources: &mut Vec<(u64, Use)>) {
        sources.clear();
        let place = &mut self.zones[zone];
        let start = place.compaction.migrate;
        let end = ((start / BLOCK_PAGES + 1) * BLOCK_PAGES).min(place.compaction.free);
        if mode == Mode::Async && place.buddy.block_mobility(start) != Some(Mobility::Movable) {
            place.compaction.migrate = end;
            return;
        }
        let can_move = |of| place.buddy.used_pages(of) > 0;
        if !can_move(Use::Reclaimable) && !can_move(Use::Movable) {
            // The kernel looks at each page for nothing; the model skips that.
            place.compaction.migrate = end;
            self.scanned(end - start);
            return;
        }
        let mut next = start;
        for piece in place.buddy.walk(start..end) {
            next = match piece {
                Piece::Free { frame, order } => frame + (1 << order),
                Piece::Used { frame, of } => {
                    if matches!(of, Use::Reclaimable | Use::Movable) {
                        sources.push((frame, of));
                    }
                    frame + 1
                }
            };
            if sources.len() == BATCH {
                break;
            }
        }
        place.compaction.migrate = next;
        self.scanned(next.min(end) - start);
    }

    /// Free pages to move to, until there are `want` or the scanners met: of each 2 MiB block all that the mark
    /// allows. `candidates` are the free blocks that there were when the pass began; below this scanner none is added.
    fn find_targets(
        &mut self,
        zone: usize,
        want: usize,
        candidates: &mut Option<Vec<(u64, u32)>>,
        targets: &mut Vec<u64>,
    ) {
        while targets.len() < want && !self.zones[zone].compaction.have_met(self.kernel.is_old()) {
            let place = &mut self.zones[zone];
            let end = place.compaction.free;
            let start = ((end - 1) / BLOCK_PAGES * BLOCK_PAGES).max(place.compaction.migrate);
            place.compaction.free = start;
            let frames: Vec<Range<u64>> = match candidates {
                None => std::iter::once(start..end).collect(),
                Some(candidates) => {
                    let here = candidates.partition_point(|&(frame, _)| frame < start);
                    let blocks = candidates.split_off(here).into_iter();
                    blocks
                        .map(|(frame, order)| frame..frame + (1 << order))
                        .collect()
                }
            };
            if place.buddy.block_mobility(start) == Some(Mobility::Movable) {
                self.scanned(end - start);
                for frames in frames {
                    self.isolate(zone, frames, targets);
                }
            }
        }
    }

    /// Takes the free blocks in `frames` that the mark allows.
    fn isolate(&mut self, zone: usize, frames: Range<u64>, targets: &mut Vec<u64>) {
        let kernel = self.kernel;
        let place = &mut self.zones[zone];
        let base = if kernel.is_old() {
            place.marks.low
        } else {
            place.marks.min
        };
        if place.buddy.free_pages() <= base + 1 {
            return;
        }
        let free = |piece: &Piece| matches!(piece, Piece::Free { .. });
        let pieces: Vec<Piece> = place.buddy.walk(frames).filter(free).collect();
        for piece in pieces {
            let Piece::Free { frame, order } = piece else {
                continue;
            };
            if place.is_ok(kernel, 0, base + (1 << order), 0) {
                let pages = frame.max(place.compaction.migrate)..frame + (1 << order);
                targets.extend(
                    pages.filter(|&page| place.buddy.allocate_at(page, Use::Movable).is_ok()),
                );
            }
        }
    }

    fn move_page(&mut self, zone: usize, source: u64, of: Use, target: u64) {
        let marked = self.zones[zone].buddy.set_use(target, of);
        debug_assert_eq!(marked, Ok(()));
        self.free_in(zone, source);
        self.counts.moved += 1;
        self.elapse(self.costs.move_page_ns);
    }

    fn free_in(&mut self, zone: usize, frame: u64) {
        let given = self.zones[zone].buddy.free(frame, 0);
        debug_assert_eq!(given, Ok(()));
    }

    fn scanned(&mut self, pages: u64) {
        self.counts.scanned += pages;
        self.elapse(self.costs.scan_ns(pages));
    }

    /// Whether a direct compactor for `order` may stop.
    fn finished(&self, zone: usize, order: u32) -> bool {
        let place = &self.zones[zone];
        let any = |order| place.buddy.free_blocks(order) > 0;
        let mut orders = order..ORDERS as u32;
        if !self.kernel.is_old() {
            return orders.any(any);
        }
        self.is_ok(zone, order, place.marks.low + (1 << order))
            && orders.any(|o| {
                place.buddy.free_blocks_of(o, self.asks.mobility) > 0
                    || (1 << o >= BLOCK_PAGES && any(o))
            })
    }
}

#[cfg(test)]
mod tests;
