//! Magazines: for each size of up to 64 pages, the starts of some ranges of it that were freed.

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
}

/// Freed ranges that the map still has as taken, by their exact size.
#[derive(Clone)]
pub(super) struct Magazines {
    magazines: [Magazine; EXACT as usize],
}

#[allow(clippy::cast_possible_truncation)] // the parts of a number below 2^44
const fn parts(start: u64) -> (u32, u16) {
    (start as u32, (start >> 32) as u16)
}

#[allow(clippy::cast_possible_truncation)] // compared with 64 where it is used
const fn index(pages: u64) -> usize {
    pages.wrapping_sub(1) as usize
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
        };
        Magazines {
            magazines: [empty; EXACT as usize],
        }
    }

    /// Keeps the range of `pages` at `start`, if `keep`.
    #[inline]
    pub(super) fn push(&mut self, pages: u64, start: u64, keep: bool) -> Push {
        let Some(magazine) = self.magazines.get_mut(index(pages)) else {
            return Push::Full;
        };
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
        let magazine = self.magazines.get_mut(index(pages))?;
        let last = magazine.count.checked_sub(1)?;
        magazine.count = last;
        let at = last as usize % ROUNDS;
        let high = core::mem::replace(&mut magazine.high[at], EMPTY);
        Some(u64::from(high) << 32 | u64::from(magazine.low[at]))
    }

    /// Ranges kept in all.
    pub(super) fn kept(&self) -> usize {
        let counts = self.magazines.iter().map(|magazine| magazine.count);
        counts.sum::<u32>() as usize
    }

    /// Every range kept: pages and start.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (1..).zip(&self.magazines).flat_map(|(pages, magazine)| {
            let rounds = magazine.low.iter().zip(&magazine.high);
            rounds
                .filter(|&(_, &high)| high != EMPTY)
                .map(move |(&low, &high)| (pages, u64::from(high) << 32 | u64::from(low)))
        })
    }
}
