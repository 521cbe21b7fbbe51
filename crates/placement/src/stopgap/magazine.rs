//! Magazines: for each size up to 64 pages, the starts of some ranges of it that were freed.

use crate::memory::Vec;

use super::class::EXACT;

/// Ranges in a magazine.
const ROUNDS: usize = 16;
/// No range starts at a page whose high part is this: there are at most 2^44 pages.
const EMPTY: u16 = u16::MAX;

/// The starts, low and high parts apart: so the low ones are compared four at a time.
#[derive(Clone, Copy)]
struct Magazine {
    low: [u32; ROUNDS],
    /// From `count` on they are [`EMPTY`].
    high: [u16; ROUNDS],
    count: u32,
}

impl Magazine {
    /// Whether `start` is among them, where something of the same low part is.
    #[cold]
    fn holds(&self, low: u32, high: u16) -> bool {
        (0..ROUNDS).any(|at| (self.low[at], self.high[at]) == (low, high))
    }

    /// Takes one out; the last takes its place.
    #[inline]
    fn remove(&mut self, at: usize) {
        self.count -= 1;
        let last = self.count as usize % ROUNDS;
        (self.low[at], self.high[at]) = (self.low[last], self.high[last]);
        self.low[last] = !self.low[last];
        self.high[last] = EMPTY;
    }
}

impl Magazine {
    const NEW: Magazine = Magazine {
        low: [0; ROUNDS],
        high: [EMPTY; ROUNDS],
        count: 0,
    };

    fn start(&self, at: usize) -> u64 {
        u64::from(self.high[at]) << 32 | u64::from(self.low[at])
    }

    #[inline]
    fn push(&mut self, start: u64, keep: bool) -> Push {
        let (low, high) = parts(start);
        let mut alike = false;
        for &round in &self.low {
            alike |= round == low;
        }
        if alike && self.holds(low, high) {
            return Push::Twice;
        }
        let at = self.count as usize;
        if !keep || at >= ROUNDS {
            return Push::Full;
        }
        (self.low[at], self.high[at]) = (low, high);
        self.count += 1;
        Push::Kept
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        let last = self.count.checked_sub(1)?;
        self.count = last;
        let at = last as usize % ROUNDS;
        let start = self.start(at);
        // The range is likely to come back: its low part must not look as if it were here.
        self.low[at] = !self.low[at];
        self.high[at] = EMPTY;
        Some(start)
    }
}

/// Freed ranges that the map still has as taken, by their exact size.
#[derive(Clone)]
pub(super) struct Magazines([Magazine; EXACT as usize]);

const fn parts(start: u64) -> (u32, u16) {
    (start as u32, (start >> 32) as u16)
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

impl Magazines {
    pub(super) const NEW: Magazines = Magazines([Magazine::NEW; EXACT as usize]);

    /// Moves every range, its pages and start, to the end of `list`.
    #[inline(never)]
    pub(super) fn drain_into(&mut self, list: &mut Vec<(u64, u64)>) {
        list.extend(self.all());
        *self = Magazines::NEW;
    }

    /// Returns whether a range that is kept shares a page with those from `start` to `end`.
    #[inline(never)]
    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        self.all()
            .any(|(pages, kept)| kept < end && start < kept + pages)
    }

    /// The magazine of `pages`, at least 1.
    #[inline]
    fn of(&mut self, pages: u64) -> Option<&mut Magazine> {
        self.0.get_mut(pages.wrapping_sub(1) as usize)
    }

    /// Keeps the range of `pages` at `start`, if `keep`.
    #[inline]
    pub(super) fn push(&mut self, pages: u64, start: u64, keep: bool) -> Push {
        match self.of(pages) {
            Some(magazine) => magazine.push(start, keep),
            None => Push::Full,
        }
    }

    /// Takes a range of `pages` out, the one that came last.
    #[inline]
    pub(super) fn pop(&mut self, pages: u64) -> Option<u64> {
        self.of(pages)?.pop()
    }

    /// As [`Magazines::pop`], one whose start, counted from page `origin`, has no bit of `mask`, an alignment
    /// below 2^31 less 1. Takes the least aligned start, and the last of several: a start that is
    /// aligned better is left to a request that needs it.
    #[inline]
    pub(super) fn pop_aligned(&mut self, pages: u64, mask: u64, origin: u64) -> Option<u64> {
        let magazine = self.of(pages)?;
        let (mask, origin) = (mask as u32, origin as u32);
        // The lowest bit and all below it: the better a start is aligned, the more.
        let reach = |start: u32| start ^ start.wrapping_sub(1);
        let mut least = u32::MAX;
        for (at, &low) in magazine.low.iter().enumerate() {
            let start = low.wrapping_sub(origin);
            let fits = start & mask == 0 && (at as u32) < magazine.count;
            least &= if fits { reach(start) } else { u32::MAX };
        }
        // Where none fits, only a start that fits any alignment could be among these.
        let mut found = 0u32;
        for (at, &low) in magazine.low.iter().enumerate() {
            found |= u32::from(reach(low.wrapping_sub(origin)) == least) << at;
        }
        found &= (1 << magazine.count) - 1;
        if found == 0 {
            return None;
        }
        let at = 31 - found.leading_zeros() as usize;
        let start = magazine.start(at);
        magazine.remove(at);
        Some(start)
    }

    /// Whether the range of `pages` at `start` is kept.
    pub(super) fn holds(&mut self, pages: u64, start: u64) -> bool {
        let (low, high) = parts(start);
        self.of(pages)
            .is_some_and(|magazine| magazine.holds(low, high))
    }

    /// As [`Magazines::pop`], the last that lies within `low..high`.
    pub(super) fn pop_within(&mut self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let magazine = self.of(pages)?;
        for at in (0..magazine.count as usize).rev() {
            let start = magazine.start(at);
            if low <= start && start + pages <= high {
                magazine.remove(at);
                return Some(start);
            }
        }
        None
    }

    /// Every range kept: pages and start.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().zip(1..).flat_map(|(magazine, pages)| {
            let held = 0..magazine.count as usize;
            held.map(move |at| (pages, magazine.start(at)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted from page 16: 5 and 7 are multiples of nothing, the others of 64, 128 and 512.
    #[test]
    fn the_least_aligned_that_does_is_popped() {
        let held = [5, 512, 64, 7, 384];
        let popped = |alignments: &[u64]| {
            let mut magazines = Magazines::NEW;
            for start in held {
                assert!(magazines.push(3, start + 16, true) == Push::Kept);
            }
            let pop = |&alignment| Some(magazines.pop_aligned(3, alignment - 1, 16)? - 16);
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
        let mut magazines = Magazines::NEW;
        let origin = 0u64.wrapping_sub(16);
        for start in [1 << 31, 0] {
            assert!(magazines.push(64, start + 48, true) == Push::Kept);
        }
        assert_eq!(magazines.pop_aligned(64, (1 << 31) - 1, origin), None);
        for (start, left) in [(48, Some((1 << 31) + 48)), ((1 << 31) + 48, None)] {
            assert_eq!(magazines.pop_aligned(64, (1 << 31) - 1, 48), Some(start));
            assert_eq!(magazines.all().next().map(|(_, start)| start), left);
        }
        assert_eq!(magazines.pop_aligned(64, 0, 48), None);
    }
}
