//! How the scanners of 6.12 go: they remember blocks that were of no use, and leave early.
//!
//! * A 2 MiB block without a page that can be moved, and one of which all free pages were taken, is skipped afterwards
//!   (`set_pageblock_skip`, `isolation_suitable`). Once a pass went from end to end, kswapd forgets that before it sleeps
//!   (`compact_blockskip_flush`, `reset_isolation_suitable`).
//! * An asynchronous pass leaves each aligned stretch of the order asked for at the first page that cannot be moved
//!   (`skip_on_failure`, since 4.8), and moves what it has at the end of each.
//! * The scanner of free pages stops as soon as it has one for each page that is to move (`isolate_freepages_block`); the
//!   next pass begins at the start of that block again.
//!
//! Counted as the kernel counts: a free block that is passed by is one.

use super::super::buddy::{BLOCK_PAGES, Mobility, Piece, Use};
use super::super::machine::Machine;
use super::super::zone::Zone;
use super::{BATCH, Mode};

#[derive(Debug, Clone)]
pub(super) struct Recent {
    /// Whether each 2 MiB block is skipped.
    skip: Vec<bool>,
    /// A pass went from end to end since kswapd last slept.
    flush: bool,
    /// Where in its block the scanner of free pages goes on, in this pass.
    at: Option<u64>,
}

impl Recent {
    pub(super) fn new(pages: u64) -> Recent {
        let blocks = usize::try_from(pages.div_ceil(BLOCK_PAGES)).unwrap_or(0);
        Recent {
            skip: vec![false; blocks],
            flush: false,
            at: None,
        }
    }

    pub(super) fn begin(&mut self) {
        self.at = None;
    }

    pub(super) fn met(&mut self) {
        self.flush = true;
    }

    /// kswapd goes to sleep.
    pub(super) fn kswapd_sleeps(&mut self) {
        if std::mem::take(&mut self.flush) {
            self.skip.fill(false);
        }
    }

    fn skips(&self, frame: u64) -> bool {
        self.skip[place(frame)]
    }
}

fn place(frame: u64) -> usize {
    (frame / BLOCK_PAGES) as usize
}

fn of_movable_type(zone: &Zone, frame: u64) -> bool {
    zone.buddy.block_mobility(frame) == Some(Mobility::Movable)
}

impl Machine {
    /// The next pages that can move.
    pub(super) fn find_sources_recent(
        &mut self,
        zone: usize,
        order: u32,
        mode: Mode,
        sources: &mut Vec<(u64, Use)>,
    ) {
        sources.clear();
        let place = &mut self.zones[zone];
        let start = place.compaction.migrate;
        let end = ((start / BLOCK_PAGES + 1) * BLOCK_PAGES).min(place.compaction.free);
        let passed_by = start.is_multiple_of(BLOCK_PAGES) && place.compaction.recent.skips(start);
        let leaves_early = mode == Mode::Async;
        if passed_by || (leaves_early && !of_movable_type(place, start)) {
            place.compaction.migrate = end;
            return;
        }
        let stretch_after = |frame: u64| ((frame >> order) + 1) << order;
        let (mut next, mut stretch_end, mut scanned) = (start, stretch_after(start), 0);
        for piece in place.buddy.walk(start..end) {
            let (Piece::Free { frame, .. } | Piece::Used { frame, .. }) = piece;
            // A free block may begin before.
            let frame = frame.max(start);
            if frame < next {
                continue;
            }
            if leaves_early && frame >= stretch_end {
                if !sources.is_empty() {
                    break;
                }
                stretch_end = stretch_after(frame);
            }
            scanned += 1;
            next = match piece {
                Piece::Free { frame, order } => frame + (1 << order),
                Piece::Used {
                    frame,
                    of: of @ (Use::Reclaimable | Use::Movable),
                } => {
                    sources.push((frame, of));
                    frame + 1
                }
                Piece::Used { .. } if leaves_early => {
                    sources.clear();
                    stretch_end
                }
                Piece::Used { frame, .. } => frame + 1,
            };
            if sources.len() == BATCH {
                break;
            }
        }
        let next = next.min(end);
        if next == end && sources.is_empty() {
            place.compaction.recent.skip[self::place(start)] = true;
        }
        place.compaction.migrate = next;
        self.scanned(scanned);
    }

    /// Free pages to move to, until there are `want` or the scanners met.
    pub(super) fn find_targets_recent(&mut self, zone: usize, want: usize, targets: &mut Vec<u64>) {
        while targets.len() < want && !self.zones[zone].compaction.have_met(false) {
            let place = &mut self.zones[zone];
            let end = place.compaction.free;
            let start = ((end - 1) / BLOCK_PAGES * BLOCK_PAGES).max(place.compaction.migrate);
            if place.compaction.recent.skips(start) || !of_movable_type(place, start) {
                place.compaction.free = start;
                continue;
            }
            let from = place.compaction.recent.at.take().unwrap_or(start);
            let pieces: Vec<Piece> = place.buddy.walk(from.max(start)..end).collect();
            let (mut scanned, mut at) = (0, None);
            for piece in pieces {
                let place = &mut self.zones[zone];
                let Piece::Free { frame, order } = piece else {
                    scanned += 1;
                    continue;
                };
                let mark = place.marks.min + (1 << order);
                if !place.is_ok(self.kernel, 0, mark, 0) {
                    at = Some(frame);
                    break;
                }
                let pages = frame.max(place.compaction.migrate)..frame + (1 << order);
                scanned += pages.end - pages.start;
                targets.extend(
                    pages.filter(|&page| place.buddy.allocate_at(page, Use::Movable).is_ok()),
                );
                if targets.len() >= want {
                    at = Some(frame + (1 << order));
                    break;
                }
            }
            let compaction = &mut self.zones[zone].compaction;
            match at {
                Some(at) if at < end => compaction.recent.at = Some(at),
                _ => {
                    compaction.recent.skip[self::place(start)] = true;
                    compaction.free = start;
                }
            }
            self.scanned(scanned);
            if at.is_some() {
                return;
            }
        }
    }
}
