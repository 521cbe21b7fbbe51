use std::collections::BTreeMap;

use stopgap_events::memory::{MapId, Merge, Protection};
use stopgap_events::range::AddressRange;

/// The mapped pieces, by address. No two overlap.
#[derive(Debug, Default)]
pub(super) struct Space {
    pieces: BTreeMap<u64, Piece>,
}

/// The range that one map took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) range: AddressRange,
    pub(super) id: MapId,
    pub(super) protection: Protection,
    pub(super) merge: Merge,
}

impl Space {
    /// Adds a piece where nothing is.
    pub(super) fn insert(&mut self, piece: Piece) {
        debug_assert!(self.within(piece.range).is_empty(), "{piece:?}");
        self.pieces.insert(piece.range.start, piece);
    }

    pub(super) fn remove(&mut self, piece: &Piece) {
        self.pieces.remove(&piece.range.start);
    }

    /// The piece in which the address lies.
    pub(super) fn at(&self, address: u64) -> Option<Piece> {
        let (_, piece) = self.pieces.range(..=address).next_back()?;
        (address < piece.range.end).then_some(*piece)
    }

    /// The pieces that share an address with the range, upwards.
    pub(super) fn within(&self, range: AddressRange) -> Vec<Piece> {
        let first = self
            .at(range.start)
            .map_or(range.start, |piece| piece.range.start);
        let pieces = self.pieces.range(first..range.end.max(first));
        pieces.map(|(_, piece)| *piece).collect()
    }

    /// Whether all of the range is mapped.
    pub(super) fn covers(&self, range: AddressRange) -> bool {
        let mut reached = range.start;
        for piece in self.within(range) {
            if piece.range.start > reached {
                return false;
            }
            reached = piece.range.end;
        }
        reached >= range.end
    }
}
