//! Whose an address is.

use core::sync::atomic::{AtomicU32, Ordering};

use alloc::boxed::Box;

use crate::contract::{Range, Space};

/// Entries in the table, at most; half as many at least, unless granules are the least there may be.
const ENTRIES: u64 = 4096;

/// Who gives an address out: the central map, or an extent, by its shard and its slot there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner(u32);

impl Owner {
    pub(super) const CENTRAL: Owner = Owner(0);

    /// `shard` and `slot` are below 2^16 - 1: there are no more shards than thread numbers, and no more
    /// extents than granules.
    pub(super) fn extent(shard: usize, slot: usize) -> Owner {
        Owner((shard as u32 + 1) << 16 | slot as u32 & 0xffff)
    }

    /// Shard and slot; `None` for the central map.
    #[inline]
    pub(super) fn slot(self) -> Option<(usize, usize)> {
        let shard = (self.0 >> 16).checked_sub(1)?;
        Some((shard as usize, self.0 as usize & 0xffff))
    }
}

/// The owner of each granule: 2^n bytes, counted from the window's start.
///
/// An entry changes only under the central map's lock and that of the shard that owns it before or after. So it
/// stands still for whoever holds the lock of the owner that it names; read without a lock it is a guess.
/// The locks order everything, so that the entries themselves need no order.
pub(super) struct Owners {
    window: Range,
    shift: u32,
    entries: Box<[AtomicU32]>,
}

impl Owners {
    /// All of it is the central map's. A granule is a power of two of bytes, at least `least` pages.
    pub(super) fn new(space: Space, least: u64) -> Owners {
        let window = space.window();
        let bytes = (least.max(1) * space.page()).max(window.length().div_ceil(ENTRIES));
        let shift = bytes.next_power_of_two().trailing_zeros();
        let entries = ((window.length() - 1) >> shift) + 1;
        Owners {
            window,
            shift,
            entries: (0..entries).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Bytes in a granule.
    pub(super) fn granule(&self) -> u64 {
        1 << self.shift
    }

    #[inline]
    fn index(&self, address: u64) -> usize {
        (address.wrapping_sub(self.window.start) >> self.shift) as usize
    }

    /// Whose `address` is; the central map's, where it is outside the window.
    #[inline]
    pub(super) fn of(&self, address: u64) -> Owner {
        let entry = self.entries.get(self.index(address));
        entry.map_or(Owner::CENTRAL, |entry| Owner(entry.load(Ordering::Relaxed)))
    }

    /// From `address`, which is in the window, to where its granule ends.
    fn rest_of_granule(&self, address: u64) -> Range {
        let into = (address - self.window.start) & (self.granule() - 1);
        let end = address - into + self.granule();
        Range::new(address, end.min(self.window.end))
    }

    /// The parts of `range` that have one owner each: a granule at most.
    pub(super) fn parts(&self, range: Range) -> impl Iterator<Item = (Range, Owner)> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let granule = self.rest_of_granule(at);
            let part = Range::new(at, granule.end.min(range.end));
            at = granule.end;
            Some((part, self.of(part.start)))
        })
    }

    /// Whether all of `range` is the central map's.
    #[inline]
    pub(super) fn are_central(&self, range: Range) -> bool {
        self.parts(range).all(|(_, owner)| owner == Owner::CENTRAL)
    }

    /// Makes `range`, whole granules, `owner`'s. Under the locks that the type names.
    pub(super) fn set(&self, range: Range, owner: Owner) {
        let (first, end) = (self.index(range.start), self.index(range.end - 1) + 1);
        for entry in self.entries.get(first..end).unwrap_or_default() {
            entry.store(owner.0, Ordering::Relaxed);
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_some_thousand_granules_at_most() {
        let space =
            |pages: u64| Space::new(Range::new(0x3000, 0x3000 + pages * 0x1000), 0x1000).unwrap();
        let cases = [
            (1, 1, 0x1000, 1),
            (5, 2, 0x2000, 3),
            (100_000, 4096, 0x100_0000, 25),
            ((1 << 35) - 8, 4096, 1 << 35, 4096),
            ((1 << 24) + 1, 4096, 0x200_0000, 2049),
        ];
        for (pages, least, granule, entries) in cases {
            let owners = Owners::new(space(pages), least);
            assert_eq!(owners.granule(), granule, "{pages} pages");
            assert_eq!(owners.entries.len(), entries, "{pages} pages");
        }
    }

    /// ```text
    /// pages     3 4 5 6 7 8 9 a b c d
    /// granules  |0  |1  |2  |3  |4  |5     of two pages; the last is cut
    /// owner          a a a a
    /// ```
    #[test]
    fn a_range_has_the_owners_of_its_parts() {
        let space = Space::new(Range::new(0x3000, 0xe000), 0x1000).unwrap();
        let owners = Owners::new(space, 2);
        let a = Owner::extent(700, 4095);
        assert_eq!(a.slot(), Some((700, 4095)));
        owners.set(Range::new(0x5000, 0x9000), a);
        let parts: alloc::vec::Vec<_> = owners.parts(Range::new(0x4000, 0xa000)).collect();
        let part = |start, end, owner| (Range::new(start, end), owner);
        assert_eq!(
            parts,
            [
                part(0x4000, 0x5000, Owner::CENTRAL),
                part(0x5000, 0x7000, a),
                part(0x7000, 0x9000, a),
                part(0x9000, 0xa000, Owner::CENTRAL),
            ]
        );
        assert!(owners.are_central(Range::new(0x9000, 0xe000)));
        assert!(!owners.are_central(Range::new(0x8000, 0xe000)));
        assert_eq!(owners.of(0xd000), Owner::CENTRAL);
        assert_eq!(owners.of(u64::MAX), Owner::CENTRAL);
        assert_eq!(owners.of(0), Owner::CENTRAL);
    }
}
