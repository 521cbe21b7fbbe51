//! Classes of hole lengths, in pages: exact up to 64, then ever coarser.

/// How many there are.
pub(super) const CLASSES: usize = 100;
/// The longest length that has a class of its own.
pub(super) const EXACT: u64 = 64;

/// The class of holes of `pages` pages, at least 1. A longer hole never has a lower class.
///
/// ```text
/// pages    1 2 .. 64 | 65..95 96..127 128..191 ..  | 2^16..2^18 ..
/// classes  0 1 .. 63 | two an octave: 64 .. 83     | one for two octaves: 84 .. 99
/// ```
#[inline]
#[allow(clippy::cast_possible_truncation)] // below CLASSES
pub(super) const fn class_of(pages: u64) -> usize {
    if pages <= EXACT {
        return pages as usize - 1;
    }
    let octave = pages.ilog2();
    if octave < 16 {
        (64 + (octave - 6) * 2) as usize + ((pages >> (octave - 1)) & 1) as usize
    } else {
        84 + (octave as usize - 16) / 2
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
        assert_eq!(class_of(1 << 44), 98);
        assert!(last < CLASSES);
    }
}
