//! Classes of hole lengths, in pages: exact up to 64, then ever coarser.

/// How many there are.
pub(super) const CLASSES: usize = 90;
/// The longest length that has a class of its own.
pub(super) const EXACT: u64 = 64;

/// The class of holes of `pages` pages, at least 1. A longer hole never has a lower class.
///
/// ```text
/// pages    1 2 .. 64 | 65..95 96..127 128..191 ..  | 2^16..2^18 ..
/// classes  0 1 .. 63 | two an octave: 64 .. 83     | one for two octaves: 84 .. 89
/// ```
#[inline]
pub(super) fn class_of(pages: u64) -> usize {
    if pages <= EXACT {
        return pages as usize - 1;
    }
    let octave = pages.ilog2();
    if octave < 16 {
        (64 + (octave - 6) * 2) as usize + ((pages >> (octave - 1)) & 1) as usize
    } else {
        // All that is longer than 2^26 pages is of one class.
        84 + (octave.min(26) as usize - 16) / 2
    }
}

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Classes {
    words: [u64; 2],
}

impl Classes {
    pub(super) const NONE: Classes = Classes { words: [0; 2] };

    #[inline]
    pub(super) fn insert(&mut self, class: usize) {
        self.words[class / 64 % 2] |= 1 << (class % 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, class: usize) {
        self.words[class / 64 % 2] &= !(1 << (class % 64));
    }

    #[inline]
    pub(super) fn contains(self, class: usize) -> bool {
        self.words[class / 64 % 2] >> (class % 64) & 1 == 1
    }

    /// The lowest from `class` on.
    #[inline]
    pub(super) fn first_from(self, class: usize) -> Option<usize> {
        let mut class = class;
        if class < 64 {
            let low = self.words[0] >> class;
            if low != 0 {
                return Some(class + low.trailing_zeros() as usize);
            }
            class = 64;
        }
        let high = self.words[1] >> (class % 64);
        (high != 0 && class < CLASSES).then(|| class + high.trailing_zeros() as usize)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_with_lengths_and_leave_none_out() {
        let mut lengths: alloc::vec::Vec<u64> = (1..5_000).collect();
        for bits in 12..44 {
            lengths.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + (1 << (bits - 1))]);
        }
        lengths.sort_unstable();
        let classes = lengths.iter().map(|&pages| class_of(pages));
        let mut last = 0;
        for (class, pages) in classes.zip(&lengths) {
            assert!(class == last || class == last + 1, "{pages} pages: {class}");
            last = class;
        }
        assert_eq!(class_of(1 << 44), CLASSES - 1);
        assert!(last < CLASSES);
    }

    #[test]
    fn a_set_gives_what_was_put_in_from_a_class_on() {
        let mut set = Classes::NONE;
        for class in [0, 5, 63, 64, 70, 89] {
            set.insert(class);
        }
        set.remove(70);
        let from = |class| set.from(class).collect::<alloc::vec::Vec<_>>();
        assert_eq!(from(0), [0, 5, 63, 64, 89]);
        assert_eq!(from(6), [63, 64, 89]);
        assert_eq!(from(64), [64, 89]);
        assert_eq!(from(65), [89]);
        assert!(set.contains(64) && !set.contains(70));
    }
}
