//! A tile: the boundaries in 8,192 pages, and which of its leaves hold holes of which class.

use super::class::{CLASSES, class_of};

/// Pages in a leaf: the bits of a word.
pub(super) const LEAF: u64 = 128;
/// Leaves in a tile.
pub(super) const LEAVES: usize = 64;
/// Pages in a tile.
pub(super) const TILE: u64 = LEAF * LEAVES as u64;

/// See the module.
///
/// A page has a bit in `cut` if a range or a hole starts there, and also one in `hole` if it is a hole.
/// Nothing else is stored: a range or a hole ends where the next boundary is.
#[derive(Clone)]
pub(super) struct Tile {
    pub(super) cut: [u128; LEAVES],
    pub(super) hole: [u128; LEAVES],
    /// For each class, the leaves where a hole of it starts.
    pub(super) by_class: [u64; CLASSES],
    /// Leaves with a bit in `cut`.
    pub(super) occupied: u64,
    /// Its first page is `number * TILE`.
    pub(super) number: u32,
    /// The node above it.
    pub(super) parent: u32,
}

impl Tile {
    pub(super) fn new(number: u32, parent: u32) -> Tile {
        Tile {
            cut: [0; LEAVES],
            hole: [0; LEAVES],
            by_class: [0; CLASSES],
            occupied: 0,
            number,
            parent,
        }
    }

    /// Its first page.
    pub(super) fn first_page(&self) -> u64 {
        u64::from(self.number) * TILE
    }

    /// Pages from the boundary at `bit` to the next one in the same leaf.
    #[inline]
    pub(super) fn length_in_leaf(&self, leaf: usize, bit: u32) -> Option<u64> {
        let after = (self.cut[leaf] >> bit) >> 1;
        (after != 0).then(|| u64::from(after.trailing_zeros()) + 1)
    }

    /// Whether a hole of `class` starts and ends in `leaf`. `last` is the class of the hole that starts
    /// last in the leaf and ends beyond it, if there is one.
    #[inline]
    pub(super) fn leaf_has(&self, leaf: usize, class: usize, last: Option<usize>) -> bool {
        if last == Some(class) {
            return true;
        }
        self.topmost_in_leaf(leaf, class, u128::MAX).is_some()
    }

    /// The topmost of the holes of `class` in `leaf` that end within it and start at a bit of `among`.
    #[inline]
    pub(super) fn topmost_in_leaf(&self, leaf: usize, class: usize, among: u128) -> Option<u32> {
        let mut left = self.candidates(leaf, class) & among;
        while left != 0 {
            let bit = 127 - left.leading_zeros();
            let length = self.length_in_leaf(leaf, bit);
            if length.is_some_and(|length| class_of(length) == class) {
                return Some(bit);
            }
            left ^= 1 << bit;
        }
        None
    }

    /// As [`Tile::topmost_in_leaf`], from the bottom.
    #[inline]
    pub(super) fn lowest_in_leaf(&self, leaf: usize, class: usize, among: u128) -> Option<u32> {
        let mut left = self.candidates(leaf, class) & among;
        while left != 0 {
            let bit = left.trailing_zeros();
            let length = self.length_in_leaf(leaf, bit);
            if length.is_some_and(|length| class_of(length) == class) {
                return Some(bit);
            }
            left &= left - 1;
        }
        None
    }

    /// Holes that may have `class`: of exact classes those with a boundary at the right distance.
    #[inline]
    fn candidates(&self, leaf: usize, class: usize) -> u128 {
        if class < 64 {
            self.hole[leaf] & (self.cut[leaf] >> (class + 1))
        } else {
            self.hole[leaf]
        }
    }

    /// The hole that starts in `leaf` and ends beyond it.
    #[inline]
    pub(super) fn open_hole(&self, leaf: usize) -> Option<u32> {
        let bit = 127u32.checked_sub(self.cut[leaf].leading_zeros())?;
        (self.hole[leaf] >> bit & 1 == 1).then_some(bit)
    }
}
