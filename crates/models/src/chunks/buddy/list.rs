//! The list of free blocks of one order and mobility: the kernel's doubly linked list, newest first.

use super::cell::{Cell, Cells};

/// A stack of frames whose entries may be *stale*: a block that leaves the middle of the list (its
/// buddy was freed) only changes its cell.
///
/// An entry is on the list if its cell says so *and* no newer entry has the same frame. So the newest entry
/// whose cell says so is the list's head, exactly as in the kernel: of two entries of one frame the newer
/// one is met first, and when it has gone the cell no longer says so.
///
/// Invariant: the frames with such an entry are `live` many; `entries` takes room for at most
/// `4 * live + 64` of 4 bytes: 16 bytes a block. All is O(1), amortised.
#[derive(Clone, Default)]
pub(super) struct List {
    entries: Vec<u32>,
    live: usize,
}

impl List {
    /// Blocks on the list.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Puts `frame` first; its cell becomes `head`, this list's.
    pub(super) fn push(&mut self, frame: u32, head: Cell, cells: &mut Cells) {
        if self.entries.len() == self.entries.capacity() {
            self.clean(head, cells);
        }
        self.entries.push(frame);
        self.live += 1;
        cells.set(frame, head);
    }

    /// The first block. Stale entries above it are dropped.
    pub(super) fn first(&mut self, head: Cell, cells: &Cells) -> Option<u32> {
        if self.live == 0 {
            return None;
        }
        // It ends: one of the entries is live.
        while let Some(&frame) = self.entries.last() {
            if cells.get(frame) == head {
                return Some(frame);
            }
            self.entries.pop();
        }
        None
    }

    /// Takes `frame`, which is on this list, off it: its cell becomes [`Cell::INSIDE`].
    pub(super) fn remove(&mut self, frame: u32, head: Cell, cells: &mut Cells) {
        cells.set(frame, Cell::INSIDE);
        self.live -= 1;
        if self.entries.last() == Some(&frame) {
            self.entries.pop();
        }
        if self.entries.capacity() > 4 * self.live + 64 {
            self.clean(head, cells);
        }
    }

    /// Drops all stale entries and makes room for as many entries again as are left. The next call is at least
    /// half as many steps away as there are entries now, which pays for it.
    fn clean(&mut self, head: Cell, cells: &mut Cells) {
        let mut kept = self.entries.len();
        for place in (0..self.entries.len()).rev() {
            let frame = self.entries[place];
            if cells.meet(frame, head) {
                kept -= 1;
                self.entries[kept] = frame;
            }
        }
        self.entries.drain(..kept);
        for &frame in &self.entries {
            cells.part(frame);
        }
        let room = 2 * self.live + 32;
        self.entries.shrink_to(room);
        self.entries.reserve_exact(room - self.entries.len());
    }

    /// Its blocks, newest first.
    pub(super) fn newest_first(&self, head: Cell, cells: &Cells) -> Vec<u32> {
        let mut met = std::collections::HashSet::new();
        let on_it = |frame: &u32| cells.get(*frame) == head && met.insert(*frame);
        self.entries.iter().rev().copied().filter(on_it).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u32>()
    }
}
