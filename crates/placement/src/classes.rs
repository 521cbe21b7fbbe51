//! Classes of hole lengths, in pages: exact up to 255, above that 128 an octave.

use crate::contract::Space;
use crate::memory::{Box, Memory, zeroed};

/// Classes an octave: 2 to this power.
const BITS: u32 = 7;
/// Lengths below this have a class each.
pub(crate) const EXACT: u64 = 1 << BITS;
/// All classes: the last is that of [`Space::MOST_PAGES`].
pub(crate) const CLASSES: usize = class_of(Space::MOST_PAGES) + 1;
/// Words of the set, and words that say which of those are not 0: powers of two, so that a remainder is quick.
const WORDS: usize = CLASSES.div_ceil(64).next_power_of_two();
const SUMMARY: usize = WORDS.div_ceil(64);

/// The class of holes of `pages` pages, at least 1. A longer hole never has a lower class.
///
/// ```text
/// pages     1 2 .. 255 | 256..257 258..259 .. 510..511 | 512..515 ..
/// classes   1 2 .. 255 | 256      257      .. 383      | 384      ..
/// ```
#[inline]
pub(crate) const fn class_of(pages: u64) -> usize {
    let above = (pages | EXACT).ilog2() - BITS;
    ((above as usize) << BITS) + (pages >> above) as usize
}

/// The shortest length of the class in which `pages` are.
#[inline]
pub(crate) const fn least_of_class(pages: u64) -> u64 {
    let above = (pages | EXACT).ilog2() - BITS;
    pages >> above << above
}

/// A set of classes.
#[derive(Clone)]
pub(crate) struct Set {
    summary: [u64; SUMMARY],
    words: [u64; WORDS],
}

impl Set {
    pub(crate) const NONE: Set = Set {
        summary: [0; SUMMARY],
        words: [0; WORDS],
    };

    #[inline]
    pub(crate) fn insert(&mut self, class: usize) {
        let word = class / 64 % WORDS;
        self.words[word] |= 1 << (class % 64);
        self.summary[word / 64 % SUMMARY] |= 1 << (word % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, class: usize) {
        let word = class / 64 % WORDS;
        self.words[word] &= !(1 << (class % 64));
        if self.words[word] == 0 {
            self.summary[word / 64 % SUMMARY] &= !(1 << (word % 64));
        }
    }

    #[inline]
    pub(crate) fn contains(&self, class: usize) -> bool {
        self.words[class / 64 % WORDS] >> (class % 64) & 1 == 1
    }

    /// The lowest from `class` on, which may be one past the last.
    #[inline]
    pub(crate) fn first_from(&self, class: usize) -> Option<usize> {
        let word = class / 64;
        let left = self.words.get(word)? >> (class % 64);
        if left != 0 {
            return Some(class + left.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut at = next / 64;
        let mut left = self.summary.get(at)? >> (next % 64) << (next % 64);
        while left == 0 {
            at += 1;
            left = *self.summary.get(at)?;
        }
        let word = (at * 64 + left.trailing_zeros() as usize) % WORDS;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The highest.
    pub(crate) fn last(&self) -> Option<usize> {
        let at = self.words.iter().rposition(|&word| word != 0)?;
        Some(at * 64 + self.words[at].ilog2() as usize)
    }
}

/// For each class the first hole.
#[derive(Clone)]
pub(crate) struct Firsts(Box<[u32; WORDS * 64]>);

impl Firsts {
    pub(crate) fn new() -> Firsts {
        Firsts(zeroed(Memory::GLOBAL))
    }

    #[inline]
    pub(crate) fn get(&self, class: usize) -> u32 {
        self.0[class % (WORDS * 64)]
    }

    /// Returns the hole that was the first.
    #[inline]
    pub(crate) fn replace(&mut self, class: usize, hole: u32) -> u32 {
        core::mem::replace(&mut self.0[class % (WORDS * 64)], hole)
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn classes_rise_with_lengths_and_know_their_shortest() {
        let mut lengths: Vec<u64> = (1..5_000).collect();
        for bits in 12..44 {
            lengths.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + (1 << (bits - 7))]);
        }
        lengths.push(Space::MOST_PAGES);
        lengths.sort_unstable();
        let mut last = 0;
        for &pages in &lengths {
            let (class, least) = (class_of(pages), least_of_class(pages));
            assert!(class >= last && class < CLASSES, "{pages}");
            assert!(least <= pages && (pages - least) * EXACT < pages, "{pages}");
            assert_eq!(class_of(least), class, "{pages}");
            assert!(class_of(least - 1) < class || least == 1, "{pages}");
            last = class;
        }
    }

    #[test]
    fn a_set_gives_what_was_put_in_from_a_class_on() {
        let mut set = Set::NONE;
        for class in [1, 63, 64, 200, 4_200, CLASSES - 1] {
            set.insert(class);
        }
        set.remove(200);
        for (from, first) in [
            (0, Some(1)),
            (2, Some(63)),
            (64, Some(64)),
            (65, Some(4_200)),
            (4_201, Some(CLASSES - 1)),
            (CLASSES, None),
        ] {
            assert_eq!(set.first_from(from), first, "{from}");
        }
        assert!(set.contains(64) && !set.contains(200));
        assert_eq!(set.last(), Some(CLASSES - 1));
    }
}
