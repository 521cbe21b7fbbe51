//! Pages in order of their frames.

use std::ops::Range;

use super::Buddy;
use super::words::{PageState, Use};

/// A part of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A whole free block.
    Free {
        /// Its first frame.
        frame: u64,
        /// Its order.
        order: u32,
    },
    /// One used page.
    Used {
        /// Its frame.
        frame: u64,
        /// Kind of block.
        of: Use,
    },
}

/// Iterator over a part of the memory; see [`Buddy::walk`].
#[derive(Clone)]
pub struct Walk<'a> {
    buddy: &'a Buddy,
    next: u32,
    end: u32,
}

impl Buddy {
    /// The used pages and the free blocks that have a page in `frames`, from the lowest up. A free block that begins
    /// before or ends behind `frames` is there once, as the whole block that it is; the walk ends with the memory.
    /// O(1) a piece.
    #[must_use]
    pub fn walk(&self, frames: Range<u64>) -> Walk<'_> {
        let place = |frame: u64| frame.min(self.pages()) as u32;
        Walk {
            buddy: self,
            next: place(frames.start),
            end: place(frames.end),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.next >= self.end {
            return None;
        }
        match self.buddy.state(self.next) {
            PageState::Used(of) => {
                let frame = u64::from(self.next);
                self.next += 1;
                Some(Piece::Used { frame, of })
            }
            PageState::Free { order, head } => {
                {
                    self.next = head as u32 + (1 << order);
                }
                Some(Piece::Free { frame: head, order })
            }
        }
    }
}
