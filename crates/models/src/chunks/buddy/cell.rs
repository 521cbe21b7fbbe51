//! State of a page in one byte.

use super::words::{Mobility, ORDERS, Use};

/// One page's byte: used for something, the head of a free block, or inside of a free block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell(u8);

/// Values below are [`Use::ALL`]'s places.
const INSIDE: u8 = Use::ALL.len() as u8;
/// The heads: order by order, all mobilities of each.
const HEADS: u8 = INSIDE + 1;
const TYPES: u8 = Mobility::ALL.len() as u8;
/// Set on heads that a list met already, while it is cleared of entries that are stale.
const MET: u8 = 0x80;
const _: () = assert!(HEADS as usize + Mobility::ALL.len() * ORDERS <= MET as usize);

impl Cell {
    /// In a free block, and not its head.
    pub(super) const INSIDE: Cell = Cell(INSIDE);

    /// A used page.
    pub(super) fn used(of: Use) -> Cell {
        Cell(of as u8)
    }

    /// The head of a free block.
    pub(super) fn head(order: u32, mobility: Mobility) -> Cell {
        Cell(HEADS + order as u8 * TYPES + mobility as u8)
    }

    /// The page's use; `None` if it is free.
    pub(super) fn usage(self) -> Option<Use> {
        Use::ALL.get(usize::from(self.0)).copied()
    }

    /// Order and mobility of the free block whose head this is.
    pub(super) fn heads(self) -> Option<(u32, Mobility)> {
        let place = self.0.checked_sub(HEADS)?;
        let mobility = Mobility::ALL[usize::from(place % TYPES)];
        Some((u32::from(place / TYPES), mobility))
    }
}

/// The cells of all pages, by frame.
#[derive(Clone)]
pub(super) struct Cells(Vec<Cell>);

impl Cells {
    pub(super) fn new(pages: usize, cell: Cell) -> Cells {
        Cells(vec![cell; pages])
    }

    pub(super) fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn get(&self, frame: u32) -> Cell {
        self.0[frame as usize]
    }

    pub(super) fn set(&mut self, frame: u32, cell: Cell) {
        self.0[frame as usize] = cell;
    }

    /// Sets `count` cells from `frame`.
    pub(super) fn fill(&mut self, frame: u32, count: u32, cell: Cell) {
        self.0[frame as usize..][..count as usize].fill(cell);
    }

    /// Marks `frame` if it is `head` and was not marked; whether it was so.
    pub(super) fn meet(&mut self, frame: u32, head: Cell) -> bool {
        let first = self.0[frame as usize] == head;
        if first {
            self.0[frame as usize].0 |= MET;
        }
        first
    }

    /// Takes the mark off.
    pub(super) fn part(&mut self, frame: u32) {
        self.0[frame as usize].0 &= !MET;
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity()
    }
}
