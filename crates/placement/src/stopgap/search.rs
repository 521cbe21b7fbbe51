//! Where to look, in which order.

use crate::contract::{Direction, Need, Space};

use super::Stopgap;
use super::class::{CLASSES, EXACT, class_of};
use super::map::{Hole, Start};

/// Least alignment, less one page, at which places are probed rather than holes.
const PROBED: u64 = 63;
/// Places probed.
const PROBES: u32 = 8;
/// Alignments that have a cursor of their own: from one page on by powers of two; the last is for all above.
pub(super) const CURSORS: usize = 20;
/// Topmost holes tested, of one class each, for an alignment that they need not have.
const ALIGNED_TRIES: u32 = 6;
/// Holes tested, of one class, before the next class is tried.
const TRIES_PER_CLASS: u32 = 2;
/// Holes tested, in all, before only those are looked at that must fit.
const TRIES: u32 = 8;

/// The packed zone has this many pages more than its slack, so that a few ranges have some room, too.
const ZONE_LEAST: u64 = 512;
/// What the packed zone has more than what is held, in 1/65,536 of that, at least and at most.
pub(super) const SLACK_LEAST: u32 = 65_536 / 8;
const SLACK_MOST: u32 = 65_536 / 4 * 7;
/// So much it grows when a range finds no place there; it shrinks by a sixteenth of that when one does.
const SLACK_STEP: u32 = 64;

/// A need in pages, counted from the window's start.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) pages: u64,
    /// Alignment - 1, in pages.
    mask: u64,
    /// Value of the first page's bits under the mask.
    residue: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    down: bool,
    /// Neither limits nor the wish to begin at the bottom.
    top: bool,
}

impl Want {
    pub(super) fn new(need: &Need, space: Space, shift: u32) -> Want {
        let window = space.window();
        let mask = need.align_mask >> shift;
        let to_top = need.limits.end == window.end;
        let down = match need.direction {
            Direction::TopDown => true,
            Direction::BottomUp => false,
            // What is limited goes to the bottom, what is not to the top, so that it leaves the
            // bottom to those that can go nowhere else.
            Direction::Any => to_top,
        };
        Want {
            pages: need.size >> shift,
            mask,
            residue: (need.align_offset.wrapping_sub(window.start) >> shift) & mask,
            low: (need.limits.start - window.start) >> shift,
            high: (need.limits.end - window.start) >> shift,
            down,
            top: to_top && need.limits.start == window.start && down,
        }
    }

    /// Whether it may go to the bottom alone, anywhere there.
    pub(super) fn goes_to_bottom(&self) -> bool {
        !self.top && !self.down && self.mask == 0
    }

    /// Where in the hole `start..end` it goes, if it does.
    #[inline]
    fn within(&self, start: u64, end: u64) -> Option<u64> {
        let (low, high) = (start.max(self.low), end.min(self.high));
        let room = high.checked_sub(low)?.checked_sub(self.pages)?;
        let slack = if self.down {
            // From `high - pages` down to the residue.
            let last = high - self.pages;
            last.wrapping_sub(self.residue) & self.mask
        } else {
            self.residue.wrapping_sub(low) & self.mask
        };
        let room = room.checked_sub(slack)?;
        Some(if self.down { low + room } else { low + slack })
    }
}

impl Stopgap {
    /// Takes the pages that `want` asks for; `None` where the map has none.
    pub(super) fn search(&mut self, want: &Want) -> Option<u64> {
        if want.top {
            let found = if want.mask == 0 {
                self.plain(want.pages)
            } else {
                self.aligned(want)
            };
            if found.is_some() {
                return found;
            }
        }
        self.map.retire();
        let (hole, start) = self
            .best(want)
            .or_else(|| self.certain(want))
            .or_else(|| self.covering(want))
            .or_else(|| self.exhaustive(want))?;
        self.map.take(hole, start, start + want.pages);
        Some(start)
    }

    /// Classes with holes, from that of `pages` on.
    fn classes(&self, pages: u64) -> impl Iterator<Item = usize> + use<> {
        self.map.nonempty.from(class_of(pages))
    }

    /// Takes `pages` anywhere: from the smallest hole in the packed zone, else the topmost below it.
    ///
    /// Where there is room, the victim goes before a hole that is not of the very size.
    #[inline]
    pub(super) fn plain(&mut self, pages: u64) -> Option<u64> {
        self.begin();
        let zone = self.map.zone;
        let own = class_of(pages);
        // Holes of the size's own class may be too small, if the class is not an exact one.
        let sure = own + usize::from(pages > EXACT);
        let victim = self.map.victim;
        let from_victim = victim.pages() >= pages && victim.end - pages >= zone;
        let dearest = match (from_victim, zone) {
            (false, _) => CLASSES,
            (true, 0) => class_of(victim.pages()),
            (true, _) => own + 1,
        };
        while let Some(class) = self.map.near.first_from(sure) {
            if class >= dearest {
                break;
            }
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, zone) {
                self.was_in_zone(true);
                return Some(self.map.take_top(hole, pages));
            }
            self.map.near.remove(class);
        }
        if from_victim {
            self.work.visited += 1;
            self.was_in_zone(true);
            return Some(self.map.take_from_victim(pages));
        }
        self.below_zone(pages, sure)
    }

    /// As [`Stopgap::plain`], aligned: from a hole that happens to do, or from the smallest that must do, in
    /// the packed zone; else from the topmost below it that must do.
    fn aligned(&mut self, want: &Want) -> Option<u64> {
        self.any_start = 0;
        self.begin();
        let zone = self.map.zone;
        if want.mask >= PROBED
            && let Some(start) = self.probe(want)
        {
            self.was_in_zone(start >= zone);
            return Some(start);
        }
        let padded = want.pages + want.mask;
        let sure = class_of(padded) + usize::from(padded > EXACT);
        let mut from = class_of(want.pages + want.mask / 2);
        let mut tries = 0;
        while let Some(class) = self.map.near.first_from(from) {
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, zone) {
                if let Some(start) = want.within(hole.start, hole.end) {
                    self.map.take(hole, start, start + want.pages);
                    self.was_in_zone(true);
                    return Some(start);
                }
            } else {
                self.map.near.remove(class);
            }
            tries += 1;
            from = class + 1;
            if tries == ALIGNED_TRIES {
                from = from.max(sure);
            }
        }
        let victim = self.map.victim;
        let in_victim = want.within(victim.start, victim.end);
        if let Some(start) = in_victim.filter(|&start| start >= zone) {
            self.map.take_within_victim(start, start + want.pages);
            self.was_in_zone(true);
            return Some(start);
        }
        self.was_in_zone(false);
        let mut best = None;
        let mut nearest = in_victim.map_or(0, |_| victim.start);
        let mut from = sure;
        while let Some(class) = self.map.nonempty.first_from(from) {
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, nearest)
                && let Some(start) = want.within(hole.start, hole.end)
            {
                nearest = hole.start;
                best = Some((hole, start));
            }
            from = class + 1;
        }
        match (best, in_victim) {
            (Some((hole, start)), _) => {
                self.map.take(hole, start, start + want.pages);
                Some(start)
            }
            (None, Some(start)) => {
                self.map.take_within_victim(start, start + want.pages);
                Some(start)
            }
            (None, None) => None,
        }
    }

    /// A large alignment leaves so few places that they are looked at one after the other, downwards from
    /// where the last search of the same alignment ended, and from the top again below the packed zone.
    fn probe(&mut self, want: &Want) -> Option<u64> {
        let top = want.within(0, self.map.pages)?;
        let cursor = (want.mask.count_ones() as usize).min(CURSORS) - 1;
        let mut start = self.cursors[cursor];
        for _ in 0..PROBES {
            start = match start.checked_sub(want.mask + 1) {
                Some(next) if next >= self.map.floor && next <= top => {
                    next + (want.residue.wrapping_sub(next) & want.mask)
                }
                _ => top,
            };
            self.work.visited += 1;
            let end = start + want.pages;
            if let Some(hole) = self.hole_at(start)
                && end <= hole.end
            {
                if hole == self.map.victim {
                    self.map.take_within_victim(start, end);
                } else {
                    self.map.take(hole, start, end);
                }
                self.cursors[cursor] = start;
                return Some(start);
            }
        }
        self.cursors[cursor] = start;
        None
    }

    /// A search begins: the zone is where it is now.
    #[inline]
    fn begin(&mut self) {
        let slack = (u128::from(self.live) * u128::from(self.slack)) >> 16;
        let zone = self.live + slack as u64 + ZONE_LEAST;
        // Not below the lowest range that went to the top: to begin a new part of the window is to leave
        // the zone.
        let zone = self.map.pages.saturating_sub(zone);
        self.keep_from = zone;
        let zone = if zone == 0 {
            0
        } else {
            zone.max(self.map.floor)
        };
        self.map.move_zone(zone, self.live / 64);
    }

    /// Whether a range could be placed in the zone. Where too few can although it is not full, it grows.
    #[inline]
    fn was_in_zone(&mut self, inside: bool) {
        let room = self.map.pages - self.map.zone;
        if inside {
            self.slack = self.slack.saturating_sub(SLACK_STEP / 16).max(SLACK_LEAST);
        } else if room > self.live + self.live / 16 {
            self.slack = (self.slack + SLACK_STEP).min(SLACK_MOST);
        }
    }

    /// Takes `pages` from the topmost hole of the classes from `sure` on, the victim among them; where there
    /// is none, from one of the size's own class.
    fn below_zone(&mut self, pages: u64, sure: usize) -> Option<u64> {
        self.was_in_zone(false);
        let victim = self.map.victim;
        let from_victim = victim.pages() >= pages;
        let mut best: Option<Hole> = None;
        let mut nearest = if from_victim { victim.start } else { 0 };
        let mut from = sure;
        while let Some(class) = self.map.nonempty.first_from(from) {
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, nearest) {
                nearest = hole.start;
                best = Some(hole);
            }
            from = class + 1;
        }
        if best.is_none() && from_victim {
            return Some(self.map.take_from_victim(pages));
        }
        if best.is_none() && sure > class_of(pages) {
            best = self.large_enough(class_of(pages), pages);
        }
        Some(self.map.take_top(best?, pages))
    }

    /// The topmost hole of `class` of at least `pages`.
    fn large_enough(&mut self, class: usize, pages: u64) -> Option<Hole> {
        let mut before = self.map.pages;
        loop {
            let hole = self.map.last_before(class, before)?;
            self.work.visited += 1;
            if hole.pages() >= pages {
                return Some(hole);
            }
            before = hole.start;
        }
    }

    /// The next hole of `class` from the side that `want` looks from, beyond page `from`, that starts
    /// within the limits.
    #[inline]
    fn next_hole(&mut self, want: &Want, class: usize, from: u64) -> Option<Hole> {
        self.work.visited += 1;
        if want.down {
            let hole = self.map.last_before(class, from)?;
            (hole.start >= want.low).then_some(hole)
        } else {
            let hole = self.map.first_from(class, from)?;
            (hole.start < want.high).then_some(hole)
        }
    }

    /// Some holes, from the smallest that are likely to do.
    fn best(&mut self, want: &Want) -> Option<(Hole, u64)> {
        self.begin();
        let zone = if want.down && want.high == self.map.pages {
            self.map.zone
        } else {
            0
        };
        let mut tries = 0;
        for class in self.classes(want.pages + want.mask / 2) {
            if tries >= TRIES {
                break;
            }
            let mut from = if want.down { want.high } else { want.low };
            for _ in 0..TRIES_PER_CLASS {
                let Some(hole) = self.next_hole(want, class, from) else {
                    break;
                };
                if hole.start < zone {
                    break;
                }
                if let Some(start) = want.within(hole.start, hole.end) {
                    return Some((hole, start));
                }
                tries += 1;
                from = if want.down {
                    hole.start
                } else {
                    hole.start + 1
                };
            }
        }
        None
    }

    /// Returns the first hole by address of the classes whose holes are long enough, unless the limits cut them.
    fn certain(&mut self, want: &Want) -> Option<(Hole, u64)> {
        let mut best: Option<(Hole, u64)> = None;
        for class in self.classes(want.pages + want.mask) {
            let from = if want.down { want.high } else { want.low };
            let Some(hole) = self.next_hole(want, class, from) else {
                continue;
            };
            let nearer = best.is_none_or(|(than, _)| (hole.start > than.start) == want.down);
            if nearer && let Some(start) = want.within(hole.start, hole.end) {
                best = Some((hole, start));
            }
        }
        best
    }

    /// The hole that starts below the limits and reaches into them.
    fn covering(&mut self, want: &Want) -> Option<(Hole, u64)> {
        let hole = self.hole_at(want.low)?;
        Some((hole, want.within(hole.start, hole.end)?))
    }

    /// The hole in which `page` lies.
    pub(super) fn hole_at(&mut self, page: u64) -> Option<Hole> {
        let (start, at) = self.map.previous(page + 1)?;
        let end = start + self.map.length(at);
        (self.map.start(at) == Some(Start::Hole)).then_some(Hole { start, end })
    }

    /// Every hole that is long enough, class by class.
    fn exhaustive(&mut self, want: &Want) -> Option<(Hole, u64)> {
        for class in self.classes(want.pages) {
            let mut from = if want.down { want.high } else { want.low };
            while let Some(hole) = self.next_hole(want, class, from) {
                if let Some(start) = want.within(hole.start, hole.end) {
                    return Some((hole, start));
                }
                from = if want.down {
                    hole.start
                } else {
                    hole.start + 1
                };
            }
        }
        None
    }
}
