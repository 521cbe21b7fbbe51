//! Magazines: for each size up to 64 pages, the starts of some ranges of it that were freed.

use crate::memory::Vec;

use super::class::EXACT;

/// Ranges in a magazine.
const ROUNDS: usize = 24;

/// Keys of ranges, those from the count on 0.
///
/// A key is the start, counted in pages from the base of all magazines. It has 32 bits, so that four are compared with one instruction.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Magazine([u32; ROUNDS]);

/// Freed ranges that the map still has as taken, by their exact size.
#[derive(Clone)]
pub(super) struct Magazines {
    rounds: [Magazine; EXACT as usize],
    counts: [u8; EXACT as usize],
    /// The page whose key is 0. It may be below page 0, and then wraps.
    base: u64,
}

/// Result of keeping a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    Kept,
    /// There is no room.
    Full,
    /// It is kept already.
    Twice,
}

/// The magazine of `pages`; beyond the last where they have none.
#[inline]
fn index(pages: u64) -> usize {
    pages.wrapping_sub(1) as usize
}

impl Magazines {
    /// Keeps ranges of the last 2^32 pages of a window of `pages`.
    pub(super) const fn at_top(pages: u64) -> Magazines {
        Magazines::from(pages.wrapping_sub(1 << 32))
    }

    /// Keeps ranges of the first 2^32 pages.
    pub(super) const fn at_bottom() -> Magazines {
        Magazines::from(u64::MAX)
    }

    const fn from(base: u64) -> Magazines {
        Magazines {
            rounds: [Magazine([0; ROUNDS]); EXACT as usize],
            counts: [0; EXACT as usize],
            base,
        }
    }

    /// As [`Magazines::at_top`], where nothing is kept yet.
    pub(super) fn open(&mut self, pages: u64) {
        self.base = Magazines::at_top(pages).base;
    }

    /// The key of a start; 0 of one that is too far away.
    #[inline]
    fn key(&self, start: u64) -> u32 {
        u32::try_from(start.wrapping_sub(self.base)).unwrap_or(0)
    }

    #[inline]
    fn start(&self, key: u32) -> u64 {
        self.base.wrapping_add(u64::from(key))
    }

    /// Takes the range at `at` out of a magazine; the last takes its place.
    #[inline]
    fn remove(&mut self, magazine: usize, at: usize) -> u64 {
        self.counts[magazine] -= 1;
        let last = usize::from(self.counts[magazine]) % ROUNDS;
        let keys = &mut self.rounds[magazine].0;
        let key = keys[at];
        keys[at] = keys[last];
        keys[last] = 0;
        self.start(key)
    }

    /// Keeps the range of `pages` at `start`, if `keep`.
    #[inline]
    pub(super) fn push(&mut self, pages: u64, start: u64, keep: bool) -> Push {
        let key = self.key(start);
        let magazine = index(pages);
        let Some(Magazine(keys)) = self.rounds.get_mut(magazine) else {
            return Push::Full;
        };
        if key == 0 {
            return Push::Full;
        }
        let count = &mut self.counts[magazine];
        let at = usize::from(*count);
        if among(keys, key) {
            return Push::Twice;
        }
        if !keep || at >= ROUNDS {
            return Push::Full;
        }
        keys[at] = key;
        *count += 1;
        Push::Kept
    }

    /// Takes a range of `pages` out, the one that came last.
    #[inline]
    pub(super) fn pop(&mut self, pages: u64) -> Option<u64> {
        self.pop_from(pages, 0)
    }

    /// As [`Magazines::pop`], unless that one starts below page `least`.
    #[inline]
    pub(super) fn pop_from(&mut self, pages: u64, least: u64) -> Option<u64> {
        let magazine = index(pages);
        let last = self.counts.get(magazine)?.checked_sub(1)?;
        let keys = &mut self.rounds[magazine].0;
        let at = usize::from(last) % ROUNDS;
        let start = self.base.wrapping_add(u64::from(keys[at]));
        if start < least {
            return None;
        }
        keys[at] = 0;
        self.counts[magazine] = last;
        Some(start)
    }

    /// As [`Magazines::pop`], one whose start, counted from page `origin`, has no bit of `mask`, an alignment
    /// below 2^31 less 1. Takes the least aligned start, and the last of several: a start that is
    /// aligned better is left to a request that needs it.
    #[inline]
    pub(super) fn pop_aligned(&mut self, pages: u64, mask: u64, origin: u64) -> Option<u64> {
        let magazine = index(pages);
        let count = u32::from(*self.counts.get(magazine)?);
        let keys = &self.rounds[magazine].0;
        // Alignments are below 2^31: the low 32 bits of a start decide.
        let (mask, origin) = (mask as u32, origin.wrapping_sub(self.base) as u32);
        // The lowest bit and all below it: the better a start is aligned, the more.
        let reach = |start: u32| start ^ start.wrapping_sub(1);
        let mut least = u32::MAX;
        for (at, &key) in keys.iter().enumerate() {
            let start = key.wrapping_sub(origin);
            let fits = start & mask == 0 && (at as u32) < count;
            least &= if fits { reach(start) } else { u32::MAX };
        }
        // Where none fits, only a start that fits any alignment could be among these.
        let mut found = 0u64;
        for (at, &key) in keys.iter().enumerate() {
            found |= u64::from(reach(key.wrapping_sub(origin)) == least) << at;
        }
        found &= (1 << count) - 1;
        if found == 0 {
            return None;
        }
        let at = 63 - found.leading_zeros() as usize;
        Some(self.remove(magazine, at))
    }

    /// Whether the range of `pages` at `start` is kept.
    #[inline]
    pub(super) fn holds(&self, pages: u64, start: u64) -> bool {
        let (key, magazine) = (self.key(start), index(pages));
        let held = self.rounds.get(magazine);
        key != 0 && held.is_some_and(|Magazine(keys)| among(keys, key))
    }

    /// As [`Magazines::pop`], the last that lies within `low..high`.
    pub(super) fn pop_within(&mut self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let magazine = index(pages);
        let count = usize::from(*self.counts.get(magazine)?);
        let at = (0..count).rev().find(|&at| {
            let start = self.start(self.rounds[magazine].0[at]);
            low <= start && start + pages <= high
        })?;
        Some(self.remove(magazine, at))
    }

    /// As [`Magazines::pop`], the lowest.
    pub(super) fn pop_lowest(&mut self, pages: u64) -> Option<u64> {
        let magazine = index(pages);
        let count = usize::from(*self.counts.get(magazine)?);
        let keys = &self.rounds[magazine].0[..count];
        let (at, _) = keys.iter().enumerate().min_by_key(|(_, key)| **key)?;
        Some(self.remove(magazine, at))
    }

    /// Moves every range, its pages and start, to the end of `list`.
    #[inline(never)]
    pub(super) fn drain_into(&mut self, list: &mut Vec<(u64, u64)>) {
        list.extend(self.all());
        self.rounds.fill(Magazine([0; ROUNDS]));
        self.counts.fill(0);
    }

    /// Returns whether a range that is kept shares a page with those from `start` to `end`.
    #[inline(never)]
    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        self.all()
            .any(|(pages, kept)| kept < end && start < kept + pages)
    }

    /// Every range kept: pages and start.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let magazines = self.rounds.iter().zip(&self.counts).zip(1..);
        magazines.flat_map(move |((magazine, &count), pages)| {
            let held = &magazine.0[..usize::from(count)];
            held.iter().map(move |&key| (pages, self.start(key)))
        })
    }
}

/// Whether `key` is among them: without a branch for each.
#[inline]
fn among(keys: &[u32; ROUNDS], key: u32) -> bool {
    let mut any = false;
    for &other in keys {
        any |= other == key;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted from page 16: 5 and 7 are multiples of nothing, the others of 64, 128 and 512.
    #[test]
    fn the_least_aligned_that_does_is_popped() {
        let held = [5, 512, 64, 7, 384];
        let popped = |alignments: &[u64]| {
            let mut magazines = Magazines::at_top(1 << 34);
            // A multiple of all.
            let origin = (3 << 32) + 16;
            for start in held {
                assert!(magazines.push(3, start + origin, true) == Push::Kept);
            }
            let pop = |&alignment| Some(magazines.pop_aligned(3, alignment - 1, 16)? - origin);
            alignments.iter().map(pop).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(
            popped(&[1, 1, 1, 1, 1, 1]),
            [Some(7), Some(5), Some(64), Some(384), Some(512), None]
        );
        assert_eq!(popped(&[256, 256]), [Some(512), None]);
        assert_eq!(popped(&[64, 2, 1024]), [Some(64), Some(384), None]);
        assert_eq!(popped(&[1 << 31]), [None]);
    }

    /// A start that is where alignment counts from is a multiple of all.
    #[test]
    fn the_origin_is_aligned_best() {
        let mut magazines = Magazines::at_bottom();
        for start in [1 << 31, 0] {
            assert!(magazines.push(64, start + 48, true) == Push::Kept);
        }
        let below = 0u64.wrapping_sub(16);
        assert_eq!(magazines.pop_aligned(64, (1 << 31) - 1, below), None);
        for (start, left) in [(48, Some((1 << 31) + 48)), ((1 << 31) + 48, None)] {
            assert_eq!(magazines.pop_aligned(64, (1 << 31) - 1, 48), Some(start));
            assert_eq!(magazines.all().next().map(|(_, start)| start), left);
        }
        assert_eq!(magazines.pop_aligned(64, 0, 48), None);
    }

    /// Starts whose low 32 bits are the same are not taken for each other, and what has no key is not kept.
    #[test]
    fn what_is_too_far_away_is_not_kept() {
        for (mut magazines, near, far) in [
            (
                Magazines::at_top(1 << 40),
                (1 << 40) - 9,
                (1 << 40) - 9 - (1 << 32),
            ),
            (
                Magazines::at_top(1 << 40),
                (1 << 40) + 1 - (1 << 32),
                (1 << 40) - (1 << 32),
            ),
            (Magazines::at_top(1 << 32), 1, 0),
            (Magazines::at_bottom(), 7, 7 + (1 << 32)),
            (Magazines::at_bottom(), (1 << 32) - 2, (1 << 32) - 1),
        ] {
            assert!(magazines.push(9, near, true) == Push::Kept);
            assert!(magazines.push(9, far, true) == Push::Full);
            assert!(!magazines.holds(9, far) && magazines.holds(9, near));
            assert!(magazines.push(9, near, false) == Push::Twice);
            assert!(magazines.push(65, near, true) == Push::Full);
            assert_eq!(magazines.pop(9), Some(near));
            assert!(!magazines.holds(9, near));
        }
        // A whole window of less has a key for each page.
        let mut small = Magazines::at_top(100);
        let rounds = ROUNDS as u64;
        for start in 0..rounds {
            assert!(small.push(1, start, true) == Push::Kept);
        }
        assert!(small.push(1, rounds, true) == Push::Full);
        assert_eq!(small.pop_within(1, 0, 3), Some(2));
        assert_eq!(small.pop_lowest(1), Some(0));
        assert_eq!(small.pop_lowest(1), Some(1));
        assert_eq!(small.all().count(), ROUNDS - 3);
    }
}
