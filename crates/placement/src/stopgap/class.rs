//! Classes of hole lengths, in pages: exact up to 64, above that 64 an octave.

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

/// Octaves of long holes: a window has at most 2^44 pages.
const OCTAVES: usize = 39;
/// The first octave: 64 to 127 pages.
const FIRST: u32 = EXACT.ilog2();
/// Classes of long holes.
pub(super) const LONG_CLASSES: usize = OCTAVES * 64;

/// The octave of `pages`, more than 64.
#[inline]
pub(super) fn octave_of(pages: u64) -> u8 {
    pages.ilog2() as u8
}

/// The class of long holes of `pages` pages. A longer hole never has a lower class.
///
/// ```text
/// pages     65 66 .. 127 | 128..129 130..131 .. 254..255 | 256..259 ..
/// classes    1  2 ..  63 | 64       65       .. 127      | 128      ..
/// ```
#[inline]
pub(super) fn long_class(pages: u64) -> usize {
    let above = pages.ilog2() - FIRST;
    (above as usize) << 6 | ((pages >> above) & 63) as usize
}

/// The shortest length of a class of long holes.
#[inline]
pub(super) fn least(class: usize) -> u64 {
    (64 | class as u64 & 63) << (class >> 6)
}

/// A set of classes of long holes: a word an octave, and a word that says which are not 0.
#[derive(Clone, Copy)]
pub(super) struct LongClasses {
    octaves: u64,
    words: [u64; OCTAVES],
}

impl LongClasses {
    pub(super) const NONE: LongClasses = LongClasses {
        octaves: 0,
        words: [0; OCTAVES],
    };

    #[inline]
    pub(super) fn insert(&mut self, class: usize) {
        let octave = class >> 6;
        self.octaves |= 1 << octave;
        self.words[octave] |= 1 << (class & 63);
    }

    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        let octave = class >> 6;
        let word = &mut self.words[octave];
        *word &= !(1 << (class & 63));
        if *word == 0 {
            self.octaves &= !(1 << octave);
        }
    }

    #[inline]
    pub(super) fn contains(&self, class: usize) -> bool {
        self.words[class >> 6] >> (class & 63) & 1 == 1
    }

    /// The lowest from `class` on, which may be one past the last.
    #[inline]
    pub(super) fn first_from(&self, class: usize) -> Option<usize> {
        let octave = class >> 6;
        let left = self.words.get(octave)? >> (class & 63);
        if left != 0 {
            return Some(class + left.trailing_zeros() as usize);
        }
        let later = self.octaves & ((!1u64) << octave);
        if later == 0 {
            return None;
        }
        let octave = later.trailing_zeros() as usize;
        Some(octave << 6 | self.words[octave % OCTAVES].trailing_zeros() as usize)
    }

    /// The highest.
    pub(super) fn last(&self) -> Option<usize> {
        let octave = self.octaves.checked_ilog2()? as usize;
        Some(octave << 6 | self.words[octave].checked_ilog2()? as usize)
    }
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
    fn long_classes_rise_with_lengths_and_know_their_shortest() {
        let mut lengths: Vec<u64> = (65..5_000).collect();
        for bits in 12..44 {
            lengths.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + (1 << (bits - 7))]);
        }
        lengths.push(1 << 44);
        lengths.sort_unstable();
        let mut last = 0;
        for &pages in &lengths {
            let class = long_class(pages);
            assert!(class == last || least(class) > least(last), "{pages}");
            assert!(least(class) <= pages && pages < least(class + 1), "{pages}");
            assert!((pages - least(class)) * 64 < pages, "{pages}");
            last = class;
        }
        assert!(last < LONG_CLASSES);
    }

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
        let mut long = LongClasses::NONE;
        for class in [1, 63, 64, 200, LONG_CLASSES - 1] {
            long.insert(class);
        }
        long.remove(200);
        for (from, first) in [
            (0, Some(1)),
            (2, Some(63)),
            (64, Some(64)),
            (65, Some(LONG_CLASSES - 1)),
            (LONG_CLASSES, None),
        ] {
            assert_eq!(long.first_from(from), first, "{from}");
        }
        assert!(long.contains(64) && !long.contains(200));
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
