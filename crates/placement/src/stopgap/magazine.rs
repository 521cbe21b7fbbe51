//! Magazines: for a size, the starts of some ranges of it that were freed.
//!
//! Sizes of up to 64 pages have one each. Larger ones share 256, made when the first is freed: a size may use
//! either of two, and gets the one that is empty. Where both hold another size, one of them loses a range to
//! the map, so that sizes that are no longer asked for make room.

use crate::memory::{Memory, Vec};

use super::class::EXACT;

/// Ranges in a magazine.
const ROUNDS: usize = 16;
/// Ranges in a magazine of a size above 64 pages: what is kept of those spreads what is held over more memory
/// than 16 of each would save time.
const ROUNDS_LARGE: usize = 8;
/// No range starts at a page whose high part is this: there are at most 2^44 pages.
const EMPTY: u16 = u16::MAX;

/// The starts, low and high parts apart: so the low ones are compared four at a time.
#[derive(Clone, Copy)]
struct Magazine {
    low: [u32; ROUNDS],
    /// From `count` on they are [`EMPTY`].
    high: [u16; ROUNDS],
    count: u32,
    /// Pages in a range.
    pages: u64,
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
        pages: 0,
    };

    /// How many it may hold.
    #[inline]
    fn room(&self) -> usize {
        if self.pages > EXACT {
            ROUNDS_LARGE
        } else {
            ROUNDS
        }
    }

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
        if !keep || at >= self.room() {
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
pub(super) struct Magazines {
    small: [Magazine; EXACT as usize],
    /// Pairs. Empty before a larger range is freed.
    large: Vec<Magazine>,
}

/// Pairs of magazines that sizes above 64 pages share.
const PAIRS: usize = 128;

const fn parts(start: u64) -> (u32, u16) {
    (start as u32, (start >> 32) as u16)
}

/// The first of the two magazines that a size above 64 pages may use.
#[inline]
const fn pair(pages: u64) -> usize {
    // The golden ratio's bits: neighbours and multiples go apart.
    2 * ((pages.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize % PAIRS)
}

/// Result of keeping a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    Kept,
    /// There is no room.
    Full,
    /// It is kept already.
    Twice,
    /// There is no room, and this range of another size is no longer kept: the map must have both.
    Lost {
        pages: u64,
        start: u64,
    },
}

impl Magazines {
    pub(super) const fn new(memory: Memory) -> Magazines {
        let mut small = [Magazine::NEW; EXACT as usize];
        let mut size = 0;
        while size < small.len() {
            small[size].pages = size as u64 + 1;
            size += 1;
        }
        Magazines {
            small,
            large: Vec::new_in(memory),
        }
    }

    /// Moves every range, its pages and start, to the end of `list`.
    #[inline(never)]
    pub(super) fn drain_into(&mut self, list: &mut Vec<(u64, u64)>) {
        for magazine in self.small.iter_mut().chain(&mut self.large) {
            for at in 0..magazine.count as usize {
                list.push((magazine.pages, magazine.start(at)));
            }
            *magazine = Magazine {
                pages: magazine.pages,
                ..Magazine::NEW
            };
        }
        self.large = Vec::new_in(*self.large.allocator());
    }

    /// Returns whether a range that is kept shares a page with those from `start` to `end`.
    #[inline(never)]
    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        self.small.iter().chain(&self.large).any(|magazine| {
            (0..magazine.count as usize).any(|at| {
                let kept = magazine.start(at);
                kept < end && start < kept + magazine.pages
            })
        })
    }

    /// The magazine that `pages`, at least 1, has now.
    #[inline]
    fn of(&mut self, pages: u64) -> Option<&mut Magazine> {
        if pages <= EXACT {
            return self.small.get_mut(pages.wrapping_sub(1) as usize);
        }
        let at = pair(pages);
        let two = self.large.get_mut(at..at + 2)?;
        // Which of the two cannot be foreseen: no branch.
        let magazine = &mut two[usize::from(two[1].pages == pages)];
        (magazine.pages == pages).then_some(magazine)
    }

    /// Keeps the range of `pages` at `start`, if `keep`.
    #[inline]
    pub(super) fn push(&mut self, pages: u64, start: u64, keep: bool) -> Push {
        match self.of(pages) {
            Some(magazine) => magazine.push(start, keep),
            None if keep => self.push_new(pages, start),
            None => Push::Full,
        }
    }

    /// Keeps a range of a size that has no magazine now.
    #[inline(never)]
    fn push_new(&mut self, pages: u64, start: u64) -> Push {
        let large = &mut self.large;
        if large.is_empty() {
            large.reserve_exact(2 * PAIRS);
            large.resize(2 * PAIRS, Magazine::NEW);
        }
        let at = pair(pages);
        let empty = (at..at + 2).find(|&at| large[at].count == 0);
        if let Some(at) = empty {
            large[at].pages = pages;
            return large[at].push(start, true);
        }
        // Either: the bit that tells neighbouring ranges apart.
        let old = &mut large[at + (start / 64 % 2) as usize];
        let size = old.pages;
        match old.pop() {
            Some(start) => Push::Lost { pages: size, start },
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
        let large = self.large.iter();
        self.small.iter().chain(large).flat_map(|magazine| {
            let held = 0..magazine.count as usize;
            held.map(|at| (magazine.pages, magazine.start(at)))
        })
    }

    /// Bytes of memory beside its own.
    pub(super) fn memory(&self) -> usize {
        size_of_val(self.large.as_slice())
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
            let mut magazines = Magazines::new(Memory::GLOBAL);
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
        let mut magazines = Magazines::new(Memory::GLOBAL);
        let origin = 0u64.wrapping_sub(16);
        for start in [1 << 31, 0] {
            assert!(magazines.push(70, start + 48, true) == Push::Kept);
        }
        assert_eq!(magazines.pop_aligned(70, (1 << 31) - 1, origin), None);
        for (start, left) in [(48, Some((1 << 31) + 48)), ((1 << 31) + 48, None)] {
            assert_eq!(magazines.pop_aligned(70, (1 << 31) - 1, 48), Some(start));
            assert_eq!(magazines.all().next().map(|(_, start)| start), left);
        }
        assert_eq!(magazines.pop_aligned(70, 0, 48), None);
    }

    /// Sizes of the same pair do not take each other's ranges.
    #[test]
    fn sizes_that_share_a_pair_are_told_apart() {
        let first = 65;
        let others: alloc::vec::Vec<u64> = (66..10_000)
            .filter(|&pages| pair(pages) == pair(first))
            .take(2)
            .collect();
        let mut magazines = Magazines::new(Memory::GLOBAL);
        assert!(magazines.push(first, 0x100, true) == Push::Kept);
        assert!(magazines.push(others[0], 0x10_000, true) == Push::Kept);
        assert_eq!(magazines.pop(others[1]), None);
        assert_eq!(magazines.pop(first), Some(0x100));
        assert_eq!(magazines.pop(first), None);
        assert_eq!(magazines.pop(others[0]), Some(0x10_000));
    }
}
