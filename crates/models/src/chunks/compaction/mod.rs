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
//! In 3.4 and 3.14 a pass for an unmovable request has only succeeded when a free block of *unmovable* type has come
//! into being, which moving does not bring about: so it runs to its end, and the block is taken then. 6.12 stops at the
//! first large enough block of any type. Left out: hints to skip blocks, the fast search for free pages (5.1), giving up
//! because of contention, and migrations that fail.

mod deferral;
mod suitable;

use std::ops::Range;

use super::buddy::{BLOCK_PAGES, Mobility, ORDERS, Piece, Use};
use super::machine::{MOBILITY, Machine};

use deferral::Deferral;
pub(super) use suitable::Suitable;

/// Pages that are moved at a time: `COMPACT_CLUSTER_MAX`.
const BATCH: usize = 32;

/// Which blocks a pass takes pages from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Those of movable type alone.
    Async,
    /// All.
    Sync,
}

/// What came of a call for compaction.
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
}

impl Compaction {
    pub(super) fn new(pages: u64) -> Compaction {
        Compaction {
            migrate: 0,
            free: pages,
            deferral: Deferral::default(),
        }
    }

    /// Others' passes went through all of memory and succeeded.
    pub(super) fn rest(&mut self, pages: u64) {
        *self = Compaction::new(pages);
    }

    fn have_met(&self) -> bool {
        self.free <= self.migrate
    }
}

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The scanners met.
    Whole,
    /// Before that.
    Part,
}

impl Machine {
    /// Compaction on behalf of an allocation of `order`, and the allocation itself.
    pub(super) fn compact(&mut self, order: u32, mode: Mode) -> Compacted {
        if self.compaction.deferral.defers(order) {
            self.counts.compaction_deferred += 1;
            return Compacted::Deferred;
        }
        let end = match self.suitable(order) {
            Suitable::Skip => {
                self.counts.compaction_skipped += 1;
                return Compacted::Skipped;
            }
            Suitable::Enough => End::Part,
            Suitable::Go => self.pass(order, mode),
        };
        if let Some(frame) = self.grab(order, self.marks.min) {
            self.counts.compaction_succeeded += 1;
            self.compaction.deferral.succeeded(order);
            return Compacted::Got(frame);
        }
        self.counts.compaction_failed += 1;
        if mode == Mode::Sync && (self.kernel.is_old() || end == End::Whole) {
            self.compaction.deferral.failed(order);
        }
        Compacted::Failed
    }

    fn pass(&mut self, order: u32, mode: Mode) -> End {
        let mut candidates = self.candidates();
        let mut targets = Vec::new();
        let mut sources = Vec::new();
        let end = loop {
            if self.compaction.have_met() {
                self.compaction.migrate = 0;
                self.compaction.free = self.buddy.pages();
                break End::Whole;
            }
            if self.finished(order) {
                break End::Part;
            }
            self.find_sources(mode, &mut sources);
            if targets.len() < sources.len() {
                self.find_targets(sources.len(), &mut candidates, &mut targets);
            }
            let short = targets.len() < sources.len();
            for &(source, of) in &sources {
                let Some(target) = targets.pop() else { break };
                self.move_page(source, of, target);
            }
            if short && !self.compaction.have_met() {
                break End::Part;
            }
        };
        for target in targets {
            self.give_back(target, 0);
        }
        end
    }

    /// Where they are few, all free blocks with their orders, the highest last: then most 2 MiB blocks have none, and
    /// need not be walked through.
    fn candidates(&self) -> Option<Vec<(u64, u32)>> {
        let free: u64 = (0..ORDERS as u32).map(|o| self.buddy.free_blocks(o)).sum();
        if free > self.buddy.pages() / 64 {
            return None;
        }
        let mut blocks = Vec::new();
        for order in 0..ORDERS as u32 {
            for &mobility in Mobility::ALL {
                let frames = self.buddy.free_list(order, mobility);
                blocks.extend(frames.into_iter().map(|frame| (frame, order)));
            }
        }
        blocks.sort_unstable();
        Some(blocks)
    }

    /// The next pages that can move.
    fn find_sources(&mut self, mode: Mode, sources: &mut Vec<(u64, Use)>) {
        sources.clear();
        let start = self.compaction.migrate;
        let end = ((start / BLOCK_PAGES + 1) * BLOCK_PAGES).min(self.compaction.free);
        if mode == Mode::Async && self.buddy.block_mobility(start) != Some(Mobility::Movable) {
            self.compaction.migrate = end;
            return;
        }
        let can_move = |of| self.buddy.used_pages(of) > 0;
        if !can_move(Use::Reclaimable) && !can_move(Use::Movable) {
            // It looks at each page in vain; we need not.
            self.compaction.migrate = end;
            self.scanned(end - start);
            return;
        }
        let mut next = start;
        for piece in self.buddy.walk(start..end) {
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
        self.compaction.migrate = next;
        self.scanned(next.min(end) - start);
    }

    /// Free pages to move to, until there are `want` or the scanners met: of each 2 MiB block all that the mark
    /// allows. `candidates` are the free blocks that there were when the pass began; below this scanner none is added.
    fn find_targets(
        &mut self,
        want: usize,
        candidates: &mut Option<Vec<(u64, u32)>>,
        targets: &mut Vec<u64>,
    ) {
        while targets.len() < want && !self.compaction.have_met() {
            let end = self.compaction.free;
            let start = ((end - 1) / BLOCK_PAGES * BLOCK_PAGES).max(self.compaction.migrate);
            self.compaction.free = start;
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
            if self.buddy.block_mobility(start) == Some(Mobility::Movable) {
                self.scanned(end - start);
                for frames in frames {
                    self.isolate(frames, targets);
                }
            }
        }
    }

    /// Takes the free blocks in `frames` that the mark allows.
    fn isolate(&mut self, frames: Range<u64>, targets: &mut Vec<u64>) {
        let base = if self.kernel.is_old() {
            self.marks.low
        } else {
            self.marks.min
        };
        if self.buddy.free_pages() <= base + 1 {
            return;
        }
        let free = |piece: &Piece| matches!(piece, Piece::Free { .. });
        let pieces: Vec<Piece> = self.buddy.walk(frames).filter(free).collect();
        for piece in pieces {
            let Piece::Free { frame, order } = piece else {
                continue;
            };
            if self.is_ok(0, base + (1 << order)) {
                let pages = frame.max(self.compaction.migrate)..frame + (1 << order);
                targets
                    .extend(pages.filter(|&page| self.buddy.take_at(page, Use::Movable).is_ok()));
            }
        }
    }

    fn move_page(&mut self, source: u64, of: Use, target: u64) {
        let marked = self.buddy.set_use(target, of);
        debug_assert_eq!(marked, Ok(()));
        self.give_back(source, 0);
        self.counts.moved += 1;
        self.elapse(self.costs.move_page_ns);
    }

    fn scanned(&mut self, pages: u64) {
        self.counts.scanned += pages;
        self.elapse(self.costs.scan_ns(pages));
    }

    /// Whether a direct compactor for `order` may stop.
    fn finished(&self, order: u32) -> bool {
        let any = |order| self.buddy.free_blocks(order) > 0;
        let mut orders = order..ORDERS as u32;
        if !self.kernel.is_old() {
            return orders.any(any);
        }
        self.is_ok(order, self.marks.low + (1 << order))
            && orders.any(|o| {
                self.buddy.free_blocks_of(o, MOBILITY) > 0 || (1 << o >= BLOCK_PAGES && any(o))
            })
    }
}

#[cfg(test)]
mod tests;
