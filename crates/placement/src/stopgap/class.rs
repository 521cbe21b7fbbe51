//! Classes of short holes, one a length up to 64 pages, and octaves of long ones.

/// The longest length that has a class of its own in the tree of the map.
pub(super) const EXACT: u64 = 64;
/// Classes of short holes, one a length.
pub(super) const CLASSES: usize = EXACT as usize;

/// The class of short holes of `pages` pages, 1 to 64.
#[inline]
pub(super) fn class_of(pages: u64) -> usize {
    pages as usize - 1
}

/// A set of classes of short holes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Classes(u64);

impl Classes {
    pub(super) const NONE: Classes = Classes(0);

    #[inline]
    pub(super) fn insert(&mut self, class: usize) {
        self.0 |= 1 << (class % CLASSES);
    }

    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        self.0 &= !(1 << (class % CLASSES));
    }

    #[inline]
    pub(super) fn contains(self, class: usize) -> bool {
        self.0 >> (class % CLASSES) & 1 == 1
    }

    /// The lowest from `class` on, which may be one past the last.
    #[inline]
    pub(super) fn first_from(self, class: usize) -> Option<usize> {
        let left = self.0 & (!0u64).checked_shl(class as u32)?;
        (left != 0).then(|| left.trailing_zeros() as usize)
    }

    /// The highest.
    pub(super) fn last(self) -> Option<usize> {
        self.0.checked_ilog2().map(|class| class as usize)
    }

    /// Those from `class` on, from the lowest up.
    #[inline]
    pub(super) fn from(self, class: usize) -> impl Iterator<Item = usize> {
        let mut next = class;
        core::iter::from_fn(move || {
            let class = self.first_from(next)?;
            next = class + 1;
            Some(class)
        })
    }
}

/// The octave of `pages`, more than 64.
#[inline]
pub(super) fn octave_of(pages: u64) -> u8 {
    pages.ilog2() as u8
}

/// A number below 128 for each of 64 children: an octave that no long hole there exceeds, 0 for none.
#[derive(Clone)]
pub(super) struct Octaves([u64; 8]);

impl Octaves {
    #[cfg(test)]
    const NONE: Octaves = Octaves([0; 8]);
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = Octaves::LOW << 7;

    pub(super) fn clear(&mut self) {
        self.0 = [0; 8];
    }

    #[inline]
    pub(super) fn get(&self, child: usize) -> u8 {
        (self.0[child / 8 % 8] >> (child % 8 * 8)) as u8
    }

    #[inline]
    pub(super) fn set(&mut self, child: usize, octave: u8) {
        let word = &mut self.0[child / 8 % 8];
        *word &= !(0xff << (child % 8 * 8));
        *word |= u64::from(octave) << (child % 8 * 8);
    }

    /// The children of at least `octave`, a bit each.
    pub(super) fn at_least(&self, octave: u8) -> u64 {
        let mut found = 0;
        for (at, word) in self.0.iter().enumerate() {
            // Bit 7 of a byte stays where the byte is not less.
            let bits = ((word | Octaves::HIGH) - u64::from(octave) * Octaves::LOW) & Octaves::HIGH;
            // The product moves bit 0 of byte i to bit 56 + i.
            found |= (((bits >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56) << (8 * at);
        }
        found
    }

    pub(super) fn max(&self) -> u8 {
        (0..64).map(|child| self.get(child)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_set_gives_what_was_put_in_from_a_class_on() {
        let mut set = Classes::NONE;
        for class in [0, 5, 63, 40] {
            set.insert(class);
        }
        set.remove(40);
        let from = |class| set.from(class).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 5, 63]);
        assert_eq!(from(6), [63]);
        assert_eq!(from(64), []);
    }

    #[test]
    fn octaves_are_compared_all_at_once() {
        let mut octaves = Octaves::NONE;
        for (child, octave) in [(0, 6), (7, 44), (8, 7), (63, 9)] {
            octaves.set(child, 3);
            octaves.set(child, octave);
        }
        assert_eq!(octaves.at_least(1), 1 | 1 << 7 | 1 << 8 | 1 << 63);
        assert_eq!(octaves.at_least(7), 1 << 7 | 1 << 8 | 1 << 63);
        assert_eq!(octaves.at_least(9), 1 << 7 | 1 << 63);
        assert_eq!(octaves.at_least(45), 0);
        assert_eq!((octaves.get(7), octaves.max()), (44, 44));
    }
}
