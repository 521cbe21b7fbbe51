//! Where to look, in which order.

use crate::contract::{Direction, Need, Space};

use super::Stopgap;
use super::class::{CLASSES, EXACT, class_of, octave_of};
use super::map::{Found, Hole, Start, coarse};
use crate::classes::class_of as long_class;

/// Least alignment, less one page, of which there are few places: they are probed, or found by the index.
const PROBED: u64 = 63;
/// Places probed.
const PROBES: u32 = 8;
/// Alignments that have a cursor of their own: from one page on by powers of two; the last is for all above.
pub(super) const CURSORS: usize = 20;
/// Classes tested for an alignment that their holes need not have.
const ALIGNED_TRIES: u32 = 12;
/// Holes tested of each of these classes: those that are not aligned stay, and must not hide others.
const ALIGNED_TRIES_PER_CLASS: u32 = 8;
/// Holes tested of all these classes together: each may lie in lines of the cache that nobody used lately.
const ALIGNED_LOOKS: u32 = 40;
/// Classes of lengths that may do of which the first hole is tested beside the index by alignment.
const LENGTHS: u32 = 4;
/// Short holes tested, of one class, before the next class is tried.
const TRIES_PER_CLASS: u32 = 2;
/// Holes tested, short and long, before only those are looked at that must fit.
const TRIES: u32 = 8;
/// Long holes of a size's own class among which the shortest that will do is taken.
const LOOKS: u32 = 8;
/// Leaves looked at for the topmost long hole.
const LEAVES: u32 = 16;
/// Visits of a request that finds nothing where something must fit, before it fails.
pub(super) const BUDGET: u32 = 256;

/// The packed zone has this many pages more than its slack, so that a few ranges have some room, too.
pub(super) const ZONE_LEAST: u64 = 512;
/// It has at least as many pages, where that is an eighth of the window or less, if what is held falls and rises: a program that frees
/// all of its few ranges and places as many again then gets them from magazines.
const ZONE_SWING: u64 = 8_192;
/// The most and the least that were held lately come nearer to what is held by one part in so many at each request that no magazine
/// answers.
const LATELY: u64 = 1_024;
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

    /// Whether it may go anywhere.
    pub(super) fn is_unlimited(&self) -> bool {
        self.top
    }

    /// The page from which it looks.
    fn side(&self) -> u64 {
        if self.down { self.high } else { self.low }
    }

    /// The page from which it looks on after `hole`.
    fn beyond(&self, hole: &Hole) -> u64 {
        if self.down {
            hole.start
        } else {
            hole.start + 1
        }
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
        if self.map.is_full() {
            return None;
        }
        if want.top {
            let found = if want.mask == 0 {
                self.plain(want.pages)
            } else {
                self.aligned(want)
            };
            // A plain search has looked at all that may do.
            if found.is_some() || want.mask == 0 {
                return found;
            }
        }
        self.map.retire();
        let (hole, start) = self
            .best(want)
            .or_else(|| self.sure(want))
            .or_else(|| self.covering(want))
            .or_else(|| self.exhaustive(want))?;
        self.map.take(hole, start, start + want.pages);
        Some(start)
    }

    /// Takes `pages` anywhere.
    #[inline]
    pub(super) fn plain(&mut self, pages: u64) -> Option<u64> {
        if pages <= EXACT {
            self.begin();
            self.plain_short(pages)
        } else {
            self.keep_from = self.zone();
            self.plain_long(pages)
        }
    }

    /// Takes up to 64 pages: from the smallest short hole in the packed zone, else from a long one there, else the
    /// topmost of all.
    ///
    /// The victim goes before a long hole of a higher class.
    #[inline]
    fn plain_short(&mut self, pages: u64) -> Option<u64> {
        let zone = self.map.zone;
        let own = class_of(pages);
        let victim = self.map.victim;
        let from_victim = victim.pages() >= pages && victim.end - pages >= zone;
        // In a window that is full a short victim is a hole like others.
        let dearest = if from_victim && zone == 0 && !victim.is_long() {
            class_of(victim.pages())
        } else {
            CLASSES
        };
        let mut from = own;
        while let Some(class) = self.map.near.first_from(from) {
            if class >= dearest {
                break;
            }
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, zone) {
                self.was_in_zone(true);
                return Some(self.map.take_top(hole, pages));
            }
            self.map.near.remove(class);
            from = class + 1;
        }
        if from_victim && self.victim_is_shortest() {
            self.work.visited += 1;
            self.was_in_zone(true);
            return Some(self.map.take_from_victim(pages));
        }
        if let Some(hole) = self.long_in_zone(zone) {
            self.was_in_zone(true);
            return Some(self.map.take_top(hole, pages));
        }
        self.below_zone(pages)
    }

    /// Whether no long hole of the lists is of a lower class than the victim.
    #[inline]
    fn victim_is_shortest(&self) -> bool {
        let pages = self.map.victim.pages();
        let first = self.map.long.first_from(0);
        pages <= EXACT || first.is_none_or(|first| long_class(pages) <= first)
    }

    /// The shortest long hole, if it lies in the zone, else the topmost that does.
    fn long_in_zone(&mut self, zone: u64) -> Option<Hole> {
        let class = self.map.long.first_from(0)?;
        self.work.visited += 1;
        let hole = self.map.first_of(class).hole;
        if hole.start >= zone {
            return Some(hole);
        }
        self.topmost_long(zone)
    }

    /// The topmost long hole from page `from` on, unless more than some leaves have to be looked at.
    fn topmost_long(&mut self, from: u64) -> Option<Hole> {
        let mut left = LEAVES;
        let hole = self.map.topmost_long(from, &mut left);
        self.work.visited += u64::from(LEAVES - left);
        hole
    }

    /// Takes more than 64 pages, from the shortest hole that has them: to the page up to 127 pages, above that to one
    /// part in 64 but for the holes of the size's own class that are looked at.
    #[inline]
    fn plain_long(&mut self, pages: u64) -> Option<u64> {
        let (found, looked) = self.map.shortest(pages, LOOKS);
        self.work.visited += u64::from(looked);
        let victim = self.map.victim;
        let is_better = |found: Found| {
            victim.pages() <= found.hole.pages()
                || found.hole.start < self.keep_from && victim.end > self.keep_from
        };
        if victim.pages() >= pages && found.is_none_or(is_better) {
            return Some(self.map.take_from_victim(pages));
        }
        let Found { hole, at } = match found {
            Some(found) => found,
            None => {
                let (found, looked) = self.map.shortest(pages, self.budget);
                self.work.visited += u64::from(looked);
                found?
            }
        };
        Some(self.map.take_top_at(hole, at, pages))
    }

    /// As [`Stopgap::plain`], aligned: from a hole that happens to do, or from the smallest that must do, in
    /// the packed zone; else from the topmost below it that must do.
    #[inline(never)]
    fn aligned(&mut self, want: &Want) -> Option<u64> {
        self.any_start = 0;
        self.begin();
        let zone = self.map.zone;
        // A range that is as long as its alignment leaves a hole that is aligned.
        let natural = want.pages & want.mask == 0;
        let few = want.mask >= PROBED;
        // The index has no short holes.
        if few
            && !natural
            && want.pages <= EXACT
            && let Some(start) = self.probe(want)
        {
            self.was_in_zone(start >= zone);
            return Some(start);
        }
        let padded = want.pages + want.mask;
        let likely = if natural {
            want.pages
        } else {
            want.pages + want.mask / 2
        };
        let (mut tries, mut left) = (0, ALIGNED_LOOKS);
        if likely <= EXACT {
            let mut from = class_of(likely);
            while let Some(class) = self.map.near.first_from(from) {
                if let Some((hole, start)) = self.aligned_short(want, class, zone, &mut left) {
                    self.map.take(hole, start, start + want.pages);
                    self.was_in_zone(true);
                    return Some(start);
                }
                tries += 1;
                from = class + 1;
                if tries >= ALIGNED_TRIES || left == 0 {
                    if padded > EXACT {
                        break;
                    }
                    from = from.max(class_of(padded));
                }
            }
        }
        if (few || want.pages > EXACT && self.map.indexes_alignments())
            && !natural
            && let Some(start) = self.by_alignment(want)
        {
            self.was_in_zone(start >= zone);
            return Some(start);
        }
        let sure = long_class(padded.max(EXACT + 1)) + 1;
        let mut from = long_class(likely.max(EXACT + 1));
        while let Some(class) = self.map.long.first_from(from) {
            if let Some((hole, start)) = self.aligned_long(want, class, zone, &mut left) {
                self.map.take(hole, start, start + want.pages);
                self.was_in_zone(true);
                return Some(start);
            }
            if class >= sure {
                break;
            }
            tries += 1;
            from = class + 1;
            if tries >= ALIGNED_TRIES || left == 0 {
                from = from.max(sure);
            }
        }
        if natural
            && few
            && let Some(start) = self.probe(want)
        {
            self.was_in_zone(start >= zone);
            return Some(start);
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
        let short = if padded > EXACT {
            CLASSES
        } else {
            class_of(padded)
        };
        let mut from = short;
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
        let topmost = self.topmost_long(nearest);
        let shortest = self.map.long.first_from(sure);
        let shortest = shortest.map(|class| self.map.first_of(class).hole);
        for hole in [topmost, shortest].into_iter().flatten() {
            if (hole.start >= nearest || best.is_none() && in_victim.is_none())
                && let Some(start) = want.within(hole.start, hole.end)
            {
                nearest = hole.start;
                best = Some((hole, start));
            }
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

    /// Takes from the long hole of the lowest class that does: by its pages from the best aligned one on, by its length if some of
    /// the shortest holes happen to be aligned, or by a length that must do. The victim is one of them.
    #[inline(never)]
    fn by_alignment(&mut self, want: &Want) -> Option<u64> {
        let base = self.space.window().start >> self.shift;
        if want.residue != base.wrapping_neg() & want.mask {
            return None;
        }
        self.map.index_alignments(base);
        self.work.visited += 1;
        let mut best = self.map.aligned_hole(want.mask.count_ones(), want.pages);
        let padded = (want.pages + want.mask).max(EXACT + 1);
        let sure = long_class(padded - 1) + 1;
        // Half of the holes of this length do.
        let mut from = long_class((want.pages + want.mask / 2).max(EXACT + 1));
        let mut tries = 0;
        while let Some(class) = self.map.long.first_from(from) {
            if best.is_some_and(|(least, _)| coarse(class) > least) {
                break;
            }
            self.work.visited += 1;
            let hole = self.map.first_of(class).hole;
            if class >= sure || want.within(hole.start, hole.end).is_some() {
                best = Some((coarse(class), hole));
                break;
            }
            tries += 1;
            from = class + 1;
            if tries == LENGTHS {
                from = from.max(sure);
            }
        }
        let victim = self.map.victim;
        if best.is_none_or(|(least, _)| coarse(long_class(victim.pages())) <= least)
            && let Some(start) = want.within(victim.start, victim.end)
        {
            self.map.take_within_victim(start, start + want.pages);
            return Some(start);
        }
        let (_, hole) = best?;
        let start = want.within(hole.start, hole.end)?;
        self.map.take(hole, start, start + want.pages);
        Some(start)
    }

    /// A large alignment leaves so few places that they are looked at one after the other, downwards from
    /// where the last search of the same alignment ended, and from the top again below the packed zone.
    #[inline(never)]
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
        self.watch();
        let zone = self.zone();
        self.keep_from = zone;
        // Not below the lowest range that went to the top: to begin a new part of the window is to leave
        // the zone.
        let zone = if zone == 0 {
            0
        } else {
            zone.max(self.map.floor)
        };
        self.map.move_zone(zone, self.live / 64);
    }

    /// Notes what is held now for [`Stopgap::swings`].
    #[inline]
    fn watch(&mut self) {
        if self.live >= self.most {
            // It has only risen since.
            (self.most, self.least) = (self.live, self.live);
        } else {
            self.most -= (self.most - self.live).div_ceil(LATELY);
            let rise = self.live.saturating_sub(self.least);
            self.least = self.live.min(self.least + rise.div_ceil(LATELY));
        }
    }

    /// Whether what was held lately fell to a quarter of what it had been, or less.
    #[inline]
    pub(super) fn swings(&self) -> bool {
        self.least <= self.most / 4
    }

    /// The packed zone's first page, by what is held now.
    #[inline]
    pub(super) fn zone(&self) -> u64 {
        if self.live >= self.full_from {
            return 0;
        }
        // Below 2^61: there are at most 2^44 pages, and the slack is below 2^17.
        let slack = (self.live * u64::from(self.slack)) >> 16;
        let zone = self.live + slack + ZONE_LEAST;
        let zone = if self.swings() {
            zone.max(ZONE_SWING.min(self.map.pages / 8))
        } else {
            zone
        };
        self.map.pages.saturating_sub(zone)
    }

    /// Whether a range could be placed in the zone. Where too few can although it is not full, it grows.
    #[inline]
    fn was_in_zone(&mut self, inside: bool) {
        let room = self.map.pages - self.map.zone;
        if inside {
            self.slack = self.slack.saturating_sub(SLACK_STEP / 16).max(SLACK_LEAST);
        } else if room > self.map.taken + self.map.taken / 16 {
            self.slack = (self.slack + SLACK_STEP).min(SLACK_MOST);
        }
    }

    /// Takes `pages`, at most 64, from the topmost hole that has as many, the victim among them.
    #[inline(never)]
    fn below_zone(&mut self, pages: u64) -> Option<u64> {
        self.was_in_zone(false);
        let victim = self.map.victim;
        let from_victim = victim.pages() >= pages;
        let mut best: Option<Hole> = None;
        let mut nearest = if from_victim { victim.start } else { 0 };
        let mut from = class_of(pages);
        while let Some(class) = self.map.nonempty.first_from(from) {
            self.work.visited += 1;
            if let Some(hole) = self.map.topmost(class, nearest) {
                nearest = hole.start;
                best = Some(hole);
            }
            from = class + 1;
        }
        if let Some(hole) = self.topmost_long(nearest) {
            best = Some(hole);
        }
        if best.is_none() && from_victim {
            return Some(self.map.take_from_victim(pages));
        }
        if best.is_none() {
            let class = self.map.long.first_from(0);
            best = class.map(|class| self.map.first_of(class).hole);
        }
        Some(self.map.take_top(best?, pages))
    }

    /// Finds the first that happens to do among the topmost short holes of `class` in the zone. Looks at one at least, and takes what it
    /// looks at from `left`.
    fn aligned_short(
        &mut self,
        want: &Want,
        class: usize,
        zone: u64,
        left: &mut u32,
    ) -> Option<(Hole, u64)> {
        self.work.visited += 1;
        *left = left.saturating_sub(1);
        let Some(mut hole) = self.map.topmost(class, zone) else {
            self.map.near.remove(class);
            return None;
        };
        for _ in 1..ALIGNED_TRIES_PER_CLASS {
            if let Some(start) = want.within(hole.start, hole.end) {
                return Some((hole, start));
            }
            *left = left.checked_sub(1)?;
            self.work.visited += 1;
            hole = self.map.last_before(class, hole.start)?;
            if hole.start < zone {
                return None;
            }
        }
        Some((hole, want.within(hole.start, hole.end)?))
    }

    /// Finds the first that happens to do and lies in the zone among the first long holes of `class`; else as [`Stopgap::aligned_short`].
    fn aligned_long(
        &mut self,
        want: &Want,
        class: usize,
        zone: u64,
        left: &mut u32,
    ) -> Option<(Hole, u64)> {
        let mut found = Some(self.map.first_of(class));
        for _ in 0..ALIGNED_TRIES_PER_CLASS {
            let Found { hole, at } = found?;
            self.work.visited += 1;
            if hole.start >= zone
                && let Some(start) = want.within(hole.start, hole.end)
            {
                return Some((hole, start));
            }
            *left = left.checked_sub(1)?;
            found = self.map.next_of(at);
        }
        None
    }

    /// The next short hole of `class` from the side that `want` looks from, beyond page `from`, that starts
    /// within the limits.
    #[inline]
    fn next_short(&mut self, want: &Want, class: usize, from: u64) -> Option<Hole> {
        self.work.visited += 1;
        if want.down {
            let hole = self.map.last_before(class, from)?;
            (hole.start >= want.low).then_some(hole)
        } else {
            let hole = self.map.first_from(class, from)?;
            (hole.start < want.high).then_some(hole)
        }
    }

    /// As [`Stopgap::next_short`], a long hole of at least `octave`. Takes what it looks at from `left`.
    fn next_long(&mut self, want: &Want, octave: u8, from: u64, left: &mut u32) -> Option<Hole> {
        let before = *left;
        let hole = self.map.next_long(octave, from, want.down, left);
        self.work.visited += u64::from(before - *left);
        hole.filter(|hole| {
            if want.down {
                hole.start >= want.low
            } else {
                hole.start < want.high
            }
        })
    }

    /// The long holes of at least `octave` from the side that `want` looks from, until one takes it: at most `tries` of
    /// them, and what there is `left` to look at.
    fn among_long(
        &mut self,
        want: &Want,
        octave: u8,
        tries: u32,
        left: &mut u32,
    ) -> Option<(Hole, u64)> {
        let mut from = want.side();
        for _ in 0..tries {
            let hole = self.next_long(want, octave, from, left)?;
            if let Some(start) = want.within(hole.start, hole.end) {
                return Some((hole, start));
            }
            from = want.beyond(&hole);
        }
        None
    }

    /// Some holes, from the smallest that are likely to do.
    #[inline(never)]
    fn best(&mut self, want: &Want) -> Option<(Hole, u64)> {
        self.begin();
        let zone = if want.down && want.high == self.map.pages {
            self.map.zone
        } else {
            0
        };
        let likely = want.pages + want.mask / 2;
        let mut tries = 0;
        if likely <= EXACT {
            for class in self.map.nonempty.from(class_of(likely)) {
                if tries >= TRIES {
                    break;
                }
                let mut from = want.side();
                for _ in 0..TRIES_PER_CLASS {
                    let Some(hole) = self.next_short(want, class, from) else {
                        break;
                    };
                    if hole.start < zone {
                        break;
                    }
                    if let Some(start) = want.within(hole.start, hole.end) {
                        return Some((hole, start));
                    }
                    tries += 1;
                    from = want.beyond(&hole);
                }
            }
        }
        let octave = octave_of(likely.max(EXACT + 1));
        let mut left = TRIES;
        self.among_long(want, octave, TRIES, &mut left)
    }

    /// Returns the first hole by address of the classes whose holes are long enough, unless the limits cut them.
    #[inline(never)]
    fn sure(&mut self, want: &Want) -> Option<(Hole, u64)> {
        let padded = want.pages + want.mask;
        let mut best: Option<(Hole, u64)> = None;
        if padded <= EXACT {
            for class in self.map.nonempty.from(class_of(padded)) {
                let Some(hole) = self.next_short(want, class, want.side()) else {
                    continue;
                };
                let nearer = best.is_none_or(|(than, _)| (hole.start > than.start) == want.down);
                if nearer && let Some(start) = want.within(hole.start, hole.end) {
                    best = Some((hole, start));
                }
            }
        }
        if best.is_some() {
            return best;
        }
        let padded = padded.max(EXACT + 1);
        let octave = octave_of(padded) + u8::from(!padded.is_power_of_two());
        // The limits cut one of them at most.
        let mut left = self.budget;
        self.among_long(want, octave, 2, &mut left)
    }

    /// The hole that starts below the limits and reaches into them.
    #[inline(never)]
    fn covering(&mut self, want: &Want) -> Option<(Hole, u64)> {
        let hole = self.hole_at(want.low)?;
        Some((hole, want.within(hole.start, hole.end)?))
    }

    /// The hole in which `page` lies.
    pub(super) fn hole_at(&mut self, page: u64) -> Option<Hole> {
        let victim = self.map.victim;
        if victim.start <= page && page < victim.end {
            return Some(victim);
        }
        let (start, at) = self.map.previous(page + 1)?;
        let end = start + self.map.length(at);
        (self.map.start(at) == Some(Start::Hole)).then_some(Hole { start, end })
    }

    /// Every hole that is long enough, class by class, as far as the budget goes.
    #[inline(never)]
    fn exhaustive(&mut self, want: &Want) -> Option<(Hole, u64)> {
        let mut left = self.budget;
        if want.pages <= EXACT {
            for class in self.map.nonempty.from(class_of(want.pages)) {
                let mut from = want.side();
                while let Some(hole) = self.next_short(want, class, from) {
                    if let Some(start) = want.within(hole.start, hole.end) {
                        return Some((hole, start));
                    }
                    left = left.checked_sub(1)?;
                    from = want.beyond(&hole);
                }
            }
        }
        let octave = octave_of(want.pages.max(EXACT + 1));
        self.among_long(want, octave, u32::MAX, &mut left)
    }
}
