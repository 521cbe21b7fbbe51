//! Magazines: for each size of up to 64 pages, the starts of some ranges of it that were freed.

use super::class::EXACT;

/// Ranges in a magazine.
const ROUNDS: usize = 8;
/// No range starts here.
const EMPTY: u64 = u64::MAX;

/// Freed ranges that the map still has as taken, by their exact size.
#[derive(Clone)]
pub(super) struct Magazines {
    /// Of each, the places from `count` on are [`EMPTY`].
    rounds: [[u64; ROUNDS]; EXACT as usize],
    count: [u8; EXACT as usize],
    /// In all.
    pub(super) cached: u32,
}

impl Magazines {
    pub(super) const fn new() -> Magazines {
        Magazines {
            rounds: [[EMPTY; ROUNDS]; EXACT as usize],
            count: [0; EXACT as usize],
            cached: 0,
        }
    }

    /// Whether there is a magazine for `pages`, and it holds `start`.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // compared with 64
    pub(super) fn holds(&self, pages: u64, start: u64) -> bool {
        let magazine = self.rounds.get((pages.wrapping_sub(1)) as usize);
        magazine.is_some_and(|rounds| {
            let mut found = false;
            for &round in rounds {
                found |= round == start;
            }
            found
        })
    }

    /// Keeps the range of `pages` at `start`; `false` where it has no room.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // compared with 64
    pub(super) fn push(&mut self, pages: u64, start: u64) -> bool {
        let size = (pages.wrapping_sub(1)) as usize;
        let Some(count) = self.count.get_mut(size) else {
            return false;
        };
        let Some(round) = self.rounds[size].get_mut(usize::from(*count)) else {
            return false;
        };
        *round = start;
        *count += 1;
        self.cached += 1;
        true
    }

    /// Takes a range of `pages` out, the one that came last.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // compared with 64
    pub(super) fn pop(&mut self, pages: u64) -> Option<u64> {
        let size = (pages.wrapping_sub(1)) as usize;
        let count = self.count.get_mut(size)?;
        let last = count.checked_sub(1)?;
        let round = &mut self.rounds[size][usize::from(last) % ROUNDS];
        *count = last;
        self.cached -= 1;
        Some(core::mem::replace(round, EMPTY))
    }

    /// Every range kept: pages and start.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (1..).zip(&self.rounds).flat_map(|(pages, rounds)| {
            let held = rounds.iter().filter(|&&start| start != EMPTY);
            held.map(move |&start| (pages, start))
        })
    }
}
