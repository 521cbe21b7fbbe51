//! What a thread did, as a line of pieces in time: recent ones exact, older ones merged.

use std::collections::VecDeque;

use super::path::{NOT_KEPT, PathId};

/// A part of a thread's time, and the chain of why it passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) path: PathId,
    pub(super) ns: u64,
}

/// Pieces of a stretch; beyond that only sums are kept.
pub(super) const MOST_PIECES: usize = 24;
/// Stretches of a thread. When there are as many, two neighbours are merged, so that the oldest reach back for ever longer.
const MOST_STRETCHES: usize = 256;
/// The newest, which are exact.
const EXACT: usize = 192;
/// Merged stretches of a size: of more, the two oldest become one of twice that. So most merges are of small ones, which are
/// cheap, and what a wait costs does not grow with the past.
const MOST_OF_A_SIZE: usize = 3;

/// Pieces in the order of time.
#[derive(Debug, Default)]
pub(super) struct Line(pub(super) Vec<Piece>);

impl Line {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn push(&mut self, path: PathId, ns: u64) {
        match self.0.last_mut() {
            _ if ns == 0 => {}
            Some(last) if last.path == path => last.ns += ns,
            _ => self.0.push(Piece { path, ns }),
        }
    }

    /// Gives pieces of one chain another.
    pub(super) fn renames(&mut self, from: PathId, to: PathId) {
        for piece in self.0.iter_mut().filter(|piece| piece.path == from) {
            piece.path = to;
        }
    }

    /// Keeps at most `most` pieces; returns whether their order is lost by that.
    pub(super) fn shorten(&mut self, most: usize) -> bool {
        if self.0.len() <= most {
            return false;
        }
        self.0.sort_unstable_by_key(|piece| piece.path);
        self.0.dedup_by(|next, kept| {
            let same = next.path == kept.path;
            if same {
                kept.ns += next.ns;
            }
            same
        });
        if self.0.len() > most {
            let longest = |piece: &Piece| (std::cmp::Reverse(piece.ns), piece.path);
            self.0.select_nth_unstable_by_key(most - 1, longest);
            let rest = self.0.drain(most - 1..).map(|piece| piece.ns).sum();
            self.0.push(Piece {
                path: NOT_KEPT,
                ns: rest,
            });
        }
        true
    }
}

/// A thread's time from when it got a CPU until it got one again, or several of those.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Whether the pieces are sums and not in the order of time.
    pub(super) rough: bool,
    /// How often it was doubled by merging.
    pub(super) doubled: u8,
    /// They add up to the stretch's length.
    pub(super) pieces: Vec<Piece>,
}

impl Stretch {
    /// Appends what happened from `from` to `to`; of sums their share.
    pub(super) fn part(&self, from: u64, to: u64, out: &mut Line) {
        let (from, to) = (from.max(self.begin), to.min(self.end));
        if from >= to {
            return;
        }
        if (from, to) == (self.begin, self.end) {
            for piece in &self.pieces {
                out.push(piece.path, piece.ns);
            }
            return;
        }
        let (length, wanted) = (self.end - self.begin, to - from);
        let share = |ns: u64| (u128::from(ns) * u128::from(wanted) / u128::from(length)) as u64;
        let mut at = 0;
        for piece in &self.pieces {
            let end = at + piece.ns;
            if self.rough {
                out.push(piece.path, share(end) - share(at));
            } else {
                let (begin, end) = (self.begin + at, self.begin + end);
                out.push(piece.path, end.min(to).saturating_sub(begin.max(from)));
            }
            at = end;
        }
    }

    fn absorb(&mut self, later: &Stretch) {
        self.end = later.end;
        self.doubled = self.doubled.max(later.doubled).saturating_add(1);
        let mut line = Line(std::mem::take(&mut self.pieces));
        for piece in &later.pieces {
            line.push(piece.path, piece.ns);
        }
        self.rough |= later.rough;
        self.rough |= line.shorten(MOST_PIECES);
        self.pieces = line.0;
    }
}

/// Adds the newest stretch, which begins where the last one ended.
pub(super) fn remember(past: &mut VecDeque<Stretch>, stretch: Stretch) {
    if past.len() >= MOST_STRETCHES {
        let first = to_merge(past);
        if let Some(later) = past.remove(first + 1) {
            past[first].absorb(&later);
        }
    }
    past.push_back(stretch);
}

/// Returns the index of the stretch that is merged with the one after it.
fn to_merge(past: &VecDeque<Stretch>) -> usize {
    let (mut size, mut count) = (0, 0);
    for (at, stretch) in past.iter().enumerate().take(past.len() - EXACT).rev() {
        if stretch.doubled != size {
            if count > MOST_OF_A_SIZE {
                return at + 1;
            }
            (size, count) = (stretch.doubled, 0);
        }
        count += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(line: &Line) -> u64 {
        line.0.iter().map(|piece| piece.ns).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// However much is merged, a window of the past has as many nanoseconds as it is long.
        #[test]
        fn a_window_is_as_long_as_it_is(
            lengths in prop::collection::vec(prop::collection::vec((1..40_u32, 1..1_000_u64), 1..5), 1..400),
            from in 0..200_000_u64,
            length in 1..200_000_u64,
        ) {
            let (mut past, mut now) = (VecDeque::new(), 0);
            for pieces in lengths {
                let begin = now;
                let mut line = Line::default();
                for (path, ns) in pieces {
                    line.push(path, ns);
                    now += ns;
                }
                let stretch = Stretch { begin, end: now, rough: false, doubled: 0, pieces: line.0 };
                remember(&mut past, stretch);
            }
            prop_assert!(past.len() <= MOST_STRETCHES);
            prop_assert!(past.iter().all(|stretch| stretch.pieces.len() <= MOST_PIECES));
            let mut line = Line::default();
            for stretch in &past {
                stretch.part(from, from + length, &mut line);
            }
            let wanted = (from + length).min(now).saturating_sub(from);
            prop_assert_eq!(sum(&line), wanted);
        }
    }
}
