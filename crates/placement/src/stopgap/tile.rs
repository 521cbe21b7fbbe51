//! A tile: the boundaries in 8,192 pages, and which of its leaves hold holes of which class.

use super::class::{CLASSES, Octaves};
use crate::memory::Zeroed;

/// Pages in a word of bits.
const WORD: u32 = 64;
/// Words of bits in a leaf.
pub(super) const LEAF_WORDS: usize = 2;
/// Pages in a leaf.
pub(super) const LEAF: u32 = WORD * LEAF_WORDS as u32;
/// Leaves in a tile: the bits of a word.
pub(super) const LEAVES: usize = 64;
/// Words of bits in a tile.
pub(super) const WORDS: usize = LEAVES * LEAF_WORDS;
/// Pages in a tile.
pub(super) const TILE: u64 = LEAF as u64 * LEAVES as u64;

/// A bit a page.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bits {
    /// A word of zeros stands at either end, so that a look across a word's edge needs no question.
    words: [u64; WORDS + 2],
}

impl Bits {
    pub(super) const NONE: Bits = Bits {
        words: [0; WORDS + 2],
    };

    #[inline]
    fn index(bit: u32) -> usize {
        (bit / WORD) as usize % WORDS
    }

    /// The 64 bits before `bit`.
    #[inline]
    pub(super) fn before(&self, bit: u32) -> u64 {
        let (index, shift) = (Bits::index(bit), bit % WORD);
        (self.words[index + 1] << (WORD - 1 - shift)) << 1 | (self.words[index] >> shift)
    }

    /// The 63 bits after `bit`, the next one lowest; beyond the tile there are none.
    #[inline]
    fn after(&self, bit: u32) -> u64 {
        let (index, shift) = (Bits::index(bit), bit % WORD);
        (self.words[index + 1] >> shift >> 1) | (self.words[index + 2] << (WORD - 1 - shift))
    }

    #[inline]
    pub(super) fn get(&self, bit: u32) -> bool {
        self.words[Bits::index(bit) + 1] >> (bit % WORD) & 1 == 1
    }

    #[inline]
    pub(super) fn set(&mut self, bit: u32) {
        self.words[Bits::index(bit) + 1] |= 1 << (bit % WORD);
    }

    #[inline]
    pub(super) fn clear(&mut self, bit: u32) {
        self.words[Bits::index(bit) + 1] &= !(1 << (bit % WORD));
    }

    /// The 64 bits of word `word` of leaf `leaf`.
    #[inline]
    pub(super) fn word(&self, leaf: usize, word: usize) -> u64 {
        self.words[(leaf % LEAVES) * LEAF_WORDS + word % LEAF_WORDS + 1]
    }

    #[inline]
    pub(super) fn leaf_is_empty(&self, leaf: usize) -> bool {
        self.word(leaf, 0) | self.word(leaf, 1) == 0
    }

    /// The first bit of a leaf that is not empty.
    pub(super) fn first_in(&self, leaf: usize) -> u32 {
        let at = |word| self.word(leaf, word).trailing_zeros();
        let bit = if self.word(leaf, 0) != 0 {
            at(0)
        } else {
            WORD + at(1)
        };
        first_bit(leaf) + bit
    }

    /// The last bit of a leaf that is not empty.
    pub(super) fn last_in(&self, leaf: usize) -> u32 {
        let at = |word| WORD - 1 - self.word(leaf, word).leading_zeros();
        let bit = if self.word(leaf, 1) != 0 {
            WORD + at(1)
        } else {
            at(0)
        };
        first_bit(leaf) + bit
    }
}

/// The first bit of a leaf.
#[inline]
pub(super) const fn first_bit(leaf: usize) -> u32 {
    leaf as u32 * LEAF
}

/// The first bit of a leaf's word.
#[inline]
pub(super) const fn word_bit(leaf: usize, word: usize) -> u32 {
    first_bit(leaf) + word as u32 * WORD
}

/// The leaf of a bit.
#[inline]
pub(super) const fn leaf_of(bit: u32) -> usize {
    (bit / LEAF) as usize
}

/// Stands for a length that has no room in 16 bits: more than a tile.
pub(super) const BEYOND: u16 = u16::MAX;

/// The neighbours of a long hole in the list of its class.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) next: u32,
    pub(super) previous: u32,
}

impl Link {
    /// No neighbours, where names count from 1.
    pub(super) const NONE: Link = Link {
        next: 0,
        previous: 0,
    };
}

/// The word of a bit.
#[inline]
pub(super) const fn word_of(bit: u32) -> usize {
    (bit / WORD) as usize
}

/// See the module.
///
/// A page has a bit in `cut` if a range or a hole starts there: a boundary. What starts there ends where
/// the next boundary is. A page has a bit in `hole` if a hole starts there, or if it is a hole's last page:
/// so a free sees from one bit whether a hole lies below. A hole that ends with its tile has
/// no bit at its end, for the tile of its last page need not exist.
///
/// ```text
/// pages   R R R . . . . R R .
/// cut     1 0 0 1 0 0 0 1 0 1
/// hole    0 0 0 1 0 0 1 0 0 1
/// ```
#[derive(Clone)]
pub(super) struct Tile {
    pub(super) cut: Bits,
    pub(super) hole: Bits,
    /// For each class of short holes, the leaves where one starts.
    pub(super) by_class: [u64; CLASSES],
    /// For each leaf, an octave that none of the long holes that start in it exceeds.
    pub(super) octaves: Octaves,
    /// For each word, where in the lists the long hole stands that starts in it: the last boundary of the word.
    pub(super) links: [Link; WORDS],
    /// For each word, pages from its last boundary to the next one, if that is in another word; [`BEYOND`] for as many or
    /// more. Not of the victim.
    lengths: [u16; WORDS],
    /// Leaves with a bit in `cut`.
    pub(super) occupied: u64,
    /// Its first page is `number * TILE`.
    pub(super) number: u32,
    /// The node above it.
    pub(super) parent: u32,
    /// The number, counted from 1, of the links that the index by alignment has for its long holes; 0 where it has none.
    pub(super) aligned: u32,
}

#[allow(unsafe_code)]
// SAFETY: all fields are integers.
unsafe impl Zeroed for Tile {}

impl Tile {
    /// Its first page.
    #[inline]
    pub(super) fn first_page(&self) -> u64 {
        u64::from(self.number) * TILE
    }

    #[inline]
    pub(super) fn set_cut(&mut self, bit: u32) {
        self.cut.set(bit);
        self.occupied |= 1 << leaf_of(bit);
    }

    /// Removes a boundary.
    #[inline]
    pub(super) fn clear_cut(&mut self, bit: u32) {
        self.cut.clear(bit);
        let leaf = leaf_of(bit);
        if self.cut.leaf_is_empty(leaf) {
            self.occupied &= !(1 << leaf);
        }
    }

    /// The holes of a leaf, by word, that may be of `class`.
    #[inline]
    pub(super) fn candidates(&self, leaf: usize, class: usize) -> [u64; LEAF_WORDS] {
        let at = leaf % LEAVES * LEAF_WORDS + 1;
        let cuts = [
            self.cut.words[at],
            self.cut.words[at + 1],
            self.cut.words[at + 2],
        ];
        let holes = [
            self.hole.words[at] & cuts[0],
            self.hole.words[at + 1] & cuts[1],
        ];
        if class < 63 {
            // Those with a boundary at the right distance.
            let ends = |word: usize| cuts[word] >> (class + 1) | cuts[word + 1] << (63 - class);
            let mut found = [holes[0] & ends(0), holes[1] & ends(1)];
            if leaf == LEAVES - 1 {
                // The last may end in the next tile.
                found[1] |= holes[1] & last(cuts[1]);
            }
            found
        } else {
            // As long as a word, they are the last in theirs.
            [holes[0] & last(cuts[0]), holes[1] & last(cuts[1])]
        }
    }

    /// The bit of the last boundary in a word that has one.
    #[inline]
    pub(super) fn last_cut(&self, word: usize) -> u32 {
        let bits = self.cut.words[word % WORDS + 1];
        word as u32 * WORD + (WORD - 1).wrapping_sub(bits.leading_zeros()) % WORD
    }

    /// The bit of the last boundary in word `word` of leaf `leaf`, if a hole starts there: any long hole does.
    #[inline]
    pub(super) fn last_hole(&self, leaf: usize, word: usize) -> Option<u32> {
        let found = last(self.cut.word(leaf, word)) & self.hole.word(leaf, word);
        (found != 0).then(|| word_bit(leaf, word) + found.trailing_zeros())
    }

    /// Pages from the boundary `bit` to the next one; [`BEYOND`] where it is too far.
    #[inline]
    pub(super) fn length(&self, bit: u32) -> u16 {
        let after = self.cut.after(bit);
        // Without the table, which is in another line of the cache, where that can be.
        if after != 0 {
            after.trailing_zeros() as u16 + 1
        } else {
            self.lengths[word_of(bit) % WORDS]
        }
    }

    /// Whether a range of `pages`, at most 64, starts at `bit`.
    #[inline]
    pub(super) fn is_short_range(&self, bit: u32, pages: u64) -> bool {
        let starts = self.cut.words[Bits::index(bit) + 1] & !self.hole.words[Bits::index(bit) + 1];
        starts >> (bit % WORD) & 1 == 1 && u64::from(self.length(bit)) == pages && pages <= 64
    }

    /// The next boundary after `bit` is `pages` away.
    #[inline]
    pub(super) fn set_length(&mut self, bit: u32, pages: u64) {
        if u64::from(bit % WORD) + pages >= u64::from(WORD) {
            self.lengths[word_of(bit) % WORDS] = pages.min(u64::from(BEYOND)) as u16;
        }
    }

    /// The last boundary before `bit` in this tile.
    #[inline]
    pub(super) fn previous(&self, bit: u32) -> Option<u32> {
        let near = self.cut.before(bit);
        if near != 0 {
            return Some(bit - 1 - near.leading_zeros());
        }
        let half = bit.checked_sub(WORD)?;
        let near = self.cut.before(half);
        if near != 0 {
            return Some(half - 1 - near.leading_zeros());
        }
        let earlier = self.occupied & below(leaf_of(bit));
        (earlier != 0).then(|| self.cut.last_in(63 - earlier.leading_zeros() as usize))
    }
}

/// The highest bit of a word alone, none of none.
#[inline]
pub(super) const fn last(word: u64) -> u64 {
    (1u64 << 63).wrapping_shr(word.leading_zeros()) & word
}

/// The bits below `slot`.
#[inline]
pub(super) const fn below(slot: usize) -> u64 {
    (1 << slot) - 1
}

/// The bits above `slot`.
#[inline]
pub(super) const fn above(slot: usize) -> u64 {
    (!0 << slot) << 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of boundaries, over words, leaves and the tile's ends.
    #[test]
    fn neighbours_are_found_at_any_distance() {
        let bits = [
            0, 1, 63, 64, 65, 127, 128, 191, 192, 255, 256, 4_000, 8_190, 8_191,
        ];
        for (i, &low) in bits.iter().enumerate() {
            for &high in &bits[i + 1..] {
                let mut tile: crate::memory::Box<Tile> =
                    crate::memory::zeroed(crate::memory::Memory::GLOBAL);
                tile.set_cut(low);
                tile.set_cut(high);
                assert_eq!(tile.previous(high), Some(low), "{low} {high}");
                assert_eq!(tile.previous(low), None);
                tile.clear_cut(high);
                tile.clear_cut(low);
                assert_eq!(tile.occupied, 0);
            }
        }
    }

    #[test]
    fn a_window_of_bits_crosses_words() {
        let mut bits = Bits::NONE;
        for bit in [0, 60, 64, 130, 8_191] {
            bits.set(bit);
        }
        assert_eq!(bits.after(0), 1 << 59 | 1 << 63);
        assert_eq!(bits.after(60), 1 << 3);
        assert_eq!(bits.after(8_190), 1);
        assert_eq!(bits.before(64), 1 | 1 << 60);
        assert_eq!(bits.before(65), 1 << 63 | 1 << 59);
        assert_eq!(bits.before(0), 0);
        assert_eq!(bits.before(3), 1 << 61);
    }
}
