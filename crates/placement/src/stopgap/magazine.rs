//! Magazines: for a size, the starts of some ranges of it that were freed.
//!
//! Sizes of up to 64 pages have one each. Larger ones share as many more: one is the first's that comes, for
//! as long as it holds something.

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

/// Freed ranges that the map still has as taken, by their exact size.
#[derive(Clone)]
pub(super) struct Magazines {
    magazines: [Magazine; SHARED + 64],
}

/// The first of the magazines that sizes above 64 pages share.
const SHARED: usize = EXACT as usize;

#[allow(clippy::cast_possible_truncation)] // the parts of a number below 2^44
const fn parts(start: u64) -> (u32, u16) {
    (start as u32, (start >> 32) as u16)
}

/// The magazine of `pages`, at least 1.
#[inline]
#[allow(clippy::cast_possible_truncation)] // below 64
const fn index(pages: u64) -> usize {
    if pages <= EXACT {
        (pages.wrapping_sub(1) % EXACT) as usize
    } else {
        // The golden ratio's bits: neighbours and multiples go apart.
        SHARED + (pages.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }
}

/// What became of a range that was to be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    Kept,
    /// There is no room, or no magazine for its size.
    Full,
    /// It is kept already.
    Twice,
}

impl Magazines {
    pub(super) const fn new() -> Magazines {
        let empty = Magazine {
            low: [0; ROUNDS],
            high: [EMPTY; ROUNDS],
            count: 0,
            pages: 0,
        };
        let mut magazines = [empty; SHARED + 64];
        let mut size = 0;
        while size < SHARED {
            magazines[size].pages = size as u64 + 1;
            size += 1;
        }
        Magazines { magazines }
    }

    /// Keeps the range of `pages` at `start`, if `keep`.
    #[inline]
    pub(super) fn push(&mut self, pages: u64, start: u64, keep: bool) -> Push {
        let magazine = &mut self.magazines[index(pages)];
        if magazine.pages != pages {
            if magazine.count > 0 || !keep {
                return Push::Full;
            }
            magazine.pages = pages;
        }
        let (low, high) = parts(start);
        let mut alike = false;
        for &round in &magazine.low {
            alike |= round == low;
        }
        if alike && magazine.holds(low, high) {
            return Push::Twice;
        }
        let at = magazine.count as usize;
        if !keep || at >= ROUNDS {
            return Push::Full;
        }
        (magazine.low[at], magazine.high[at]) = (low, high);
        magazine.count += 1;
        Push::Kept
    }

    /// Takes a range of `pages` out, the one that came last.
    #[inline]
    pub(super) fn pop(&mut self, pages: u64) -> Option<u64> {
        let magazine = &mut self.magazines[index(pages)];
        if magazine.pages != pages {
            return None;
        }
        let last = magazine.count.checked_sub(1)?;
        magazine.count = last;
        let at = last as usize % ROUNDS;
        let low = magazine.low[at];
        let high = core::mem::replace(&mut magazine.high[at], EMPTY);
        // The range is likely to come back: its low part must not look as if it were here.
        magazine.low[at] = !low;
        Some(u64::from(high) << 32 | u64::from(low))
    }

    /// As [`Magazines::pop`], the last that starts at `residue` under `mask`, which is below 2^32.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // see above
    pub(super) fn pop_aligned(&mut self, pages: u64, mask: u64, residue: u64) -> Option<u64> {
        let magazine = &mut self.magazines[index(pages)];
        if magazine.pages != pages {
            return None;
        }
        let (mask, residue) = (mask as u32, residue as u32);
        let mut fits = 0u32;
        for (at, &low) in magazine.low.iter().enumerate() {
            fits |= u32::from(low & mask == residue) << at;
        }
        let last = magazine.count.checked_sub(1)?;
        fits &= u32::MAX >> (31 - last);
        if fits == 0 {
            return None;
        }
        let at = 31 - fits.leading_zeros() as usize;
        let start = u64::from(magazine.high[at]) << 32 | u64::from(magazine.low[at]);
        magazine.remove(at);
        Some(start)
    }

    /// Whether the range of `pages` at `start` is kept.
    pub(super) fn holds(&self, pages: u64, start: u64) -> bool {
        let magazine = &self.magazines[index(pages)];
        let (low, high) = parts(start);
        magazine.pages == pages && magazine.holds(low, high)
    }

    /// As [`Magazines::pop`], the last that lies within `low..high`.
    pub(super) fn pop_within(&mut self, pages: u64, low: u64, high: u64) -> Option<u64> {
        let magazine = &mut self.magazines[index(pages)];
        if magazine.pages != pages {
            return None;
        }
        for at in (0..magazine.count as usize).rev() {
            let start = u64::from(magazine.high[at]) << 32 | u64::from(magazine.low[at]);
            if low <= start && start + pages <= high {
                magazine.remove(at);
                return Some(start);
            }
        }
        None
    }

    /// Every range kept: pages and start.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.magazines.iter().flat_map(|magazine| {
            let rounds = magazine.low.iter().zip(&magazine.high);
            rounds
                .filter(|&(_, &high)| high != EMPTY)
                .map(move |(&low, &high)| (magazine.pages, u64::from(high) << 32 | u64::from(low)))
        })
    }
}
