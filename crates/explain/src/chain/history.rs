//! What a thread did, as pieces in the order of time: recent pieces exactly, older ones merged.

use super::path::{NOT_KEPT, PathId};

/// A part of a thread's time, and the chain that says why it passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) path: PathId,
    pub(super) ns: u64,
}

/// Most pieces of a stretch that keep their order. A stretch with more pieces keeps sums by chain.
pub(super) const MOST_PIECES: usize = 24;
/// Most stretches of a thread. At this number, two neighbours are merged, so the oldest stretches grow longer and
/// longer.
const MOST_STRETCHES: usize = 256;
/// The newest stretches, which stay exact.
const EXACT: usize = 192;
/// Most merged stretches of one size. If there are more, the two oldest become one of twice the size. So most merges
/// are of small stretches, which are cheap, and the cost of a wait does not grow with the past.
const MOST_OF_A_SIZE: usize = 3;
/// Most pieces that a table on the stack sums, and the slots of that table: a power of two.
const FEW: usize = 64;
const PLACES: usize = 128;
/// Pieces of dropped stretches that stay in memory until the others are moved to the front: this number, or half the
/// number of others.
const MOST_GONE: usize = 256;

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

    /// Gives the pieces of the chain `from` the chain `to`.
    pub(super) fn renames(&mut self, from: PathId, to: PathId) {
        for piece in self.0.iter_mut().filter(|piece| piece.path == from) {
            piece.path = to;
        }
    }

    /// Keeps at most `most` pieces, and adds the time of the others to the chain `rest`. Returns whether the pieces
    /// lost their order.
    pub(super) fn shorten(&mut self, most: usize, rest: PathId) -> bool {
        if self.0.len() <= most {
            return false;
        }
        self.sums();
        if self.0.len() > most {
            let longest = |piece: &Piece| (std::cmp::Reverse(piece.ns), piece.path);
            self.0.select_nth_unstable_by_key(most - 1, longest);
            let ns = self.0.drain(most - 1..).map(|piece| piece.ns).sum();
            self.0.push(Piece { path: rest, ns });
        }
        true
    }
}

impl Line {
    /// Adds up the pieces of each chain, and sorts them by chain.
    pub(super) fn sums(&mut self) {
        let pieces = &mut self.0;
        if pieces.len() > FEW {
            pieces.sort_unstable_by_key(|piece| piece.path);
            pieces.dedup_by(|next, kept| {
                let same = next.path == kept.path;
                if same {
                    kept.ns += next.ns;
                }
                same
            });
            return;
        }
        // A merge has few pieces, and most of them have a chain that came before. A hash table finds it and leaves
        // fewer pieces to sort. Its slots hold the index of the chain's sum plus one.
        let mut known = [0_u8; PLACES];
        let mut count = 0;
        for at in 0..pieces.len() {
            let piece = pieces[at];
            let mut place = (piece.path.wrapping_mul(0x9e37_79b1) >> 16) as usize % PLACES;
            loop {
                match known[place] {
                    0 => {
                        pieces[count] = piece;
                        count += 1;
                        known[place] = count as u8; // at most FEW
                        break;
                    }
                    sum if pieces[usize::from(sum) - 1].path == piece.path => {
                        pieces[usize::from(sum) - 1].ns += piece.ns;
                        break;
                    }
                    _ => place = (place + 1) % PLACES,
                }
            }
        }
        pieces.truncate(count);
        pieces.sort_unstable_by_key(|piece| piece.path);
    }
}

/// A thread's time from when it got a CPU until it got one again. Its `pieces` pieces follow those of the stretch
/// before.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    begin: u64,
    end: u64,
    pieces: u32,
}

/// Several stretches, merged.
#[derive(Debug, Default)]
struct Merged {
    begin: u64,
    end: u64,
    /// Whether the pieces are sums and not in the order of time.
    rough: bool,
    pieces: Line,
}

/// The past of a thread: stretches of its time, each of which begins where the one before ends.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Merged stretches, in no order.
    old: Vec<Merged>,
    /// Places of the merged stretches in `old`, the oldest first.
    order: Vec<Place>,
    /// Place in `old` that a merge left unused.
    free: Option<u8>,
    /// Exact stretches. The first `gone` of them are in `old` already.
    recent: Vec<Stretch>,
    gone: usize,
    /// Pieces of `recent`. The first `gone_pieces` of them are dropped.
    pieces: Vec<Piece>,
    gone_pieces: usize,
}

/// Place of a merged stretch in `old`.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u8,
    /// How often merging doubled it. Larger stretches come before smaller ones.
    doubled: u8,
}

const _: () = assert!(MOST_STRETCHES - EXACT < u8::MAX as usize);

impl Past {
    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// Returns when the known past begins.
    pub(super) fn begin(&self) -> Option<u64> {
        let oldest = self.olds().next().map(|old| old.begin);
        oldest.or_else(|| Some(self.recent.get(self.gone)?.begin))
    }

    /// Returns the merged stretches, the oldest first.
    fn olds(&self) -> impl DoubleEndedIterator<Item = &Merged> {
        (self.order.iter()).map(|place| &self.old[usize::from(place.at)])
    }

    /// Returns when the last stretch begins.
    pub(super) fn last_begin(&self) -> Option<u64> {
        Some(self.recent.last()?.begin)
    }

    /// Returns the pieces of the last stretch.
    pub(super) fn last(&self) -> Option<&[Piece]> {
        let last = self.recent.last()?.pieces as usize;
        Some(&self.pieces[self.pieces.len() - last..])
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut [Piece]> {
        let last = self.recent.last()?.pieces as usize;
        let at = self.pieces.len() - last;
        Some(&mut self.pieces[at..])
    }

    /// Replaces the piece of `path` from `from` to `to` by `with`. Returns whether that piece was known exactly.
    pub(super) fn replace(&mut self, (from, to): (u64, u64), path: PathId, with: &[Piece]) -> bool {
        let time = |begin, end| begin <= from && to <= end;
        let place = |begin, pieces: &[Piece]| {
            let mut at = begin;
            pieces.iter().position(|piece| {
                let begin = at;
                at += piece.ns;
                (begin, at, piece.path) == (from, to, path)
            })
        };
        let mut end = self.pieces.len();
        for stretch in self.recent[self.gone..].iter_mut().rev() {
            let first = end - stretch.pieces as usize;
            if time(stretch.begin, stretch.end) {
                let Some(place) = place(stretch.begin, &self.pieces[first..end]) else {
                    return false;
                };
                let at = first + place;
                self.pieces.splice(at..=at, with.iter().copied());
                stretch.pieces = stretch.pieces - 1 + with.len() as u32;
                return true;
            }
            end = first;
        }
        let exact = |place: &&Place| {
            let old = &self.old[usize::from(place.at)];
            !old.rough && time(old.begin, old.end)
        };
        let Some(old) = self.order.iter().rev().find(exact) else {
            return false;
        };
        let old = &mut self.old[usize::from(old.at)];
        let Some(at) = place(old.begin, &old.pieces.0) else {
            return false;
        };
        old.pieces.0.splice(at..=at, with.iter().copied());
        true
    }

    /// Adds the newest stretch, which begins where the last one ended. `pieces` add up to its length.
    pub(super) fn remember(&mut self, (begin, end): (u64, u64), pieces: &[Piece]) {
        if self.order.len() + self.recent.len() - self.gone >= MOST_STRETCHES {
            self.merge();
        }
        let kept = self.pieces.len() - self.gone_pieces;
        if self.gone_pieces >= MOST_GONE.max(kept / 2) {
            self.pieces.drain(..self.gone_pieces);
            self.recent.drain(..self.gone);
            (self.gone, self.gone_pieces) = (0, 0);
        }
        self.pieces.extend_from_slice(pieces);
        self.recent.push(Stretch {
            begin,
            end,
            pieces: pieces.len() as u32,
        });
        if self.recent.len() - self.gone > EXACT {
            self.ages();
        }
    }

    /// Moves the oldest of the recent stretches to the old ones.
    fn ages(&mut self) {
        let Stretch { begin, end, pieces } = self.recent[self.gone];
        let of_it = &self.pieces[self.gone_pieces..][..pieces as usize];
        let at = self.free.take().unwrap_or(self.old.len() as u8); // there are few
        if usize::from(at) == self.old.len() {
            self.old.push(Merged::default());
        }
        let old = &mut self.old[usize::from(at)];
        (old.begin, old.end, old.rough) = (begin, end, false);
        old.pieces.clear();
        old.pieces.0.extend_from_slice(of_it);
        self.order.push(Place { at, doubled: 0 });
        self.gone += 1;
        self.gone_pieces += pieces as usize;
    }

    /// Merges two of the old stretches.
    fn merge(&mut self) {
        let first = to_merge(&self.order);
        if first + 1 >= self.order.len() {
            return;
        }
        let later = self.order.remove(first + 1);
        let earlier = &mut self.order[first];
        earlier.doubled = later.doubled.max(earlier.doubled).saturating_add(1);
        let (one, other) = (usize::from(earlier.at), usize::from(later.at));
        if let Ok([earlier, later]) = self.old.get_disjoint_mut([one, other]) {
            earlier.absorb(later);
        }
        self.free = Some(later.at);
    }

    /// Appends the known pieces from `from` to `to`, and returns the time at which they end.
    pub(super) fn part(&self, from: u64, to: u64, out: &mut Line) -> u64 {
        let mut at = from;
        let recent = &self.recent[self.gone..];
        let (mut first, mut piece) = (recent.len(), self.pieces.len());
        while let Some(stretch) = first.checked_sub(1).map(|first| recent[first])
            && stretch.end > from
        {
            first -= 1;
            piece -= stretch.pieces as usize;
        }
        if first == 0 {
            let earlier = self.olds().rev().take_while(|old| old.end > from);
            let first = self.order.len() - earlier.count();
            for old in self.olds().skip(first) {
                if old.begin >= to {
                    return at;
                }
                part(
                    (old.begin, old.end),
                    old.rough,
                    &old.pieces.0,
                    (at, to),
                    out,
                );
                at = old.end.min(to).max(at);
            }
        }
        for stretch in &recent[first..] {
            if stretch.begin >= to {
                break;
            }
            let pieces = &self.pieces[piece..][..stretch.pieces as usize];
            piece += pieces.len();
            part((stretch.begin, stretch.end), false, pieces, (at, to), out);
            at = stretch.end.min(to).max(at);
        }
        at
    }
}

/// Appends the pieces of a stretch from `from` to `to`. `rough` pieces are sums: each is appended by its share of the
/// time.
fn part(
    (begin, end): (u64, u64),
    rough: bool,
    pieces: &[Piece],
    (from, to): (u64, u64),
    out: &mut Line,
) {
    let (from, to) = (from.max(begin), to.min(end));
    if from >= to {
        return;
    }
    if (from, to) == (begin, end) {
        for piece in pieces {
            out.push(piece.path, piece.ns);
        }
        return;
    }
    let (length, wanted) = (end - begin, to - from);
    let share = |ns: u64| (u128::from(ns) * u128::from(wanted) / u128::from(length)) as u64;
    let mut at = 0;
    for piece in pieces {
        let until = at + piece.ns;
        if rough {
            out.push(piece.path, share(until) - share(at));
        } else {
            let (piece_begin, piece_end) = (begin + at, begin + until);
            let ns = piece_end.min(to).saturating_sub(piece_begin.max(from));
            out.push(piece.path, ns);
        }
        at = until;
    }
}

impl Merged {
    fn absorb(&mut self, later: &Merged) {
        self.end = later.end;
        for piece in &later.pieces.0 {
            self.pieces.push(piece.path, piece.ns);
        }
        self.rough |= later.rough;
        self.rough |= self.pieces.shorten(MOST_PIECES, NOT_KEPT);
    }
}

/// Returns the index of the stretch to be merged with the one after it.
fn to_merge(order: &[Place]) -> usize {
    let (mut size, mut count) = (0, 0);
    for (at, place) in order.iter().enumerate().rev() {
        if place.doubled != size {
            if count > MOST_OF_A_SIZE {
                return at + 1;
            }
            (size, count) = (place.doubled, 0);
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

        /// Each chain comes once, in order and with its time, for few pieces and for many.
        #[test]
        fn sums_are_by_chain(pieces in prop::collection::vec((1..40_u32, 1..1_000_u64), 0..130)) {
            let mut sums = std::collections::BTreeMap::new();
            for &(path, ns) in &pieces {
                *sums.entry(path).or_insert(0) += ns;
            }
            let mut line = Line(pieces.into_iter().map(|(path, ns)| Piece { path, ns }).collect());
            line.sums();
            prop_assert!(line.0.iter().map(|piece| (piece.path, piece.ns)).eq(sums));
        }

        /// A window of the past has as many nanoseconds as it is long, however much is merged.
        #[test]
        fn a_window_is_as_long_as_it_is(
            lengths in prop::collection::vec(prop::collection::vec((1..40_u32, 1..1_000_u64), 1..5), 1..400),
            from in 0..200_000_u64,
            length in 1..200_000_u64,
        ) {
            let mut stretches = Vec::new();
            let (mut past, mut now) = (Past::default(), 0);
            for pieces in lengths {
                let begin = now;
                let mut line = Line::default();
                for (path, ns) in pieces {
                    line.push(path, ns);
                    now += ns;
                }
                past.remember((begin, now), &line.0);
                stretches.push(line.0);
            }
            prop_assert!(past.order.len() + past.recent.len() - past.gone <= MOST_STRETCHES);
            prop_assert!(past.old.iter().all(|stretch| stretch.pieces.0.len() <= MOST_PIECES));
            let mut line = Line::default();
            let until = past.part(from, from + length, &mut line);
            let wanted = (from + length).min(now).saturating_sub(from);
            prop_assert_eq!(sum(&line), wanted);
            prop_assert_eq!(until, from.max(now.min(from + length)));
            // The newest pieces are unchanged.
            let mut exact = Line::default();
            let newest = &stretches[stretches.len().saturating_sub(EXACT)..];
            newest.iter().flatten().for_each(|piece| exact.push(piece.path, piece.ns));
            let mut line = Line::default();
            past.part(now - sum(&exact), now, &mut line);
            prop_assert_eq!(&line.0, &exact.0);
            // Replaces one piece among them.
            let last = past.last().unwrap()[0];
            let begin = past.last_begin().unwrap();
            let with = [(100, last.ns - last.ns / 2), (101, last.ns / 2)];
            let with = with.map(|(path, ns)| Piece { path, ns });
            let time = (begin, begin + last.ns);
            prop_assert!(past.replace(time, last.path, &with));
            prop_assert!(!past.replace(time, last.path, &with));
            let mut line = Line::default();
            prop_assert_eq!(past.part(time.0, time.1, &mut line), time.1);
            prop_assert!(line.0.iter().map(|piece| piece.path).eq([100, 101].into_iter().take(line.0.len())));
            prop_assert_eq!(sum(&line), last.ns);
            past.remember((now, now + 5), &[Piece { path: 7, ns: 5 }]);
            let mut line = Line::default();
            past.part(0, now + 5, &mut line);
            prop_assert_eq!(sum(&line), now + 5);
        }
    }
}
