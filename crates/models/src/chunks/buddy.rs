//! The physical memory as the kernel's page allocator keeps it: blocks of 2^order pages, free lists per
//! order and migrate type, split and coalesce, the fallback between migrate types, the watermark tests.
//!
//! After Linux 6.12, mm/page_alloc.c: `__rmqueue_smallest`, `expand`, `__free_one_page`,
//! `split_large_buddy`, `__rmqueue_fallback`, `steal_suitable_fallback`, `take_page_off_buddy`,
//! `__zone_watermark_ok`. In 3.4 and 3.14, splitting, coalescing and the free lists are the same; their fallback
//! ([`Fallbacks`]) and their watermark test are there beside the new ones.
//!
//! Left out: the per-CPU lists in front of the buddy lists (they hold up to some hundred single pages a CPU),
//! the types reclaimable, CMA, high-atomic and isolate (of 3.4 and 3.14 the type reserve is there), `ALLOC_NOFRAGMENT`, the boost of the watermarks after a
//! fallback, and the insertion at the tail of a block whose larger buddy may soon be whole. One zone, one node: a
//! [`Machine`](super::machine::Machine) has one or two.
//!
//! | file | what |
//! |---|---|
//! | `words` | migrate types, uses of pages, errors |
//! | `cell` | a page's byte |
//! | `list` | a free list |
//! | `allocate`, `free` | take blocks and give them back, with the fallback and the coalescing |
//! | `fallback` | what happens when a migrate type has nothing left |
//! | `watermark` | the tests that an allocation must pass, and the unusable index |
//! | `walk` | pages in order of their frames |
//! | `check` | the invariants, carried out |
//! | [`oracle`] | what all of it is held against |
//!
//! ```text
//! frame  0       2 3   4               8
//!        +-------+-+---+---------------+
//! cell   |1M  in |R|U  |2M  in  in  in |     1M: head of a free block of order 1, movable
//!        +-------+-+---+---------------+     in: inside of one     R, U: used, reclaimable resp. unmovable
//! ```

mod allocate;
mod cell;
mod check;
mod fallback;
mod free;
mod list;
pub mod oracle;
mod walk;
mod watermark;
mod words;

use cell::{Cell, Cells};
use list::List;
use words::MAX_ORDER;

pub use fallback::Fallbacks;
pub use walk::{Piece, Walk};
pub use words::{BLOCK_ORDER, BLOCK_PAGES, BuddyError, Mobility, ORDERS, PageState, Use};

/// The memory of one machine.
///
/// Invariants, which [`Buddy::check`] carries out:
/// * each page is in exactly one block: a used page by itself, or a free block of order 0 to 10 at a multiple
///   of its size; the cells say so;
/// * of two buddies of one order below 10 at most one is a free block of that order: free memory is coalesced as
///   far as it goes;
/// * a free block is on the list of its order and of the migrate type of its 2 MiB block, or of both of them where it
///   covers two; by the fallback of old, one below order 9 may be on another type's list;
/// * `used` counts the used pages, and they and the pages on the lists are all.
///
/// Room: a byte a page, at most 16 a free block, and less than 48 KiB beside.
#[derive(Clone)]
pub struct Buddy {
    cells: Cells,
    /// By order, then by [`Mobility`].
    lists: [[List; Mobility::ALL.len()]; ORDERS],
    /// The migrate type of each 2 MiB block.
    types: Vec<Mobility>,
    /// Whether the fallback is that of 3.14.
    old: bool,
    /// Used pages, by [`Use`].
    used: [u64; Use::ALL.len()],
    fallbacks: Fallbacks,
}

impl Buddy {
    /// The most pages that can be modelled: 64 GiB of 4 KiB pages.
    pub const MOST_PAGES: u64 = 1 << 24;

    /// Memory of `pages` pages, each of them used as `of`, all blocks movable. O(pages), some ms for 64 GiB.
    ///
    /// # Errors
    /// [`BuddyError::Size`] for 0 pages and for more than [`Buddy::MOST_PAGES`].
    pub fn new(pages: u64, of: Use) -> Result<Buddy, BuddyError> {
        let most = Buddy::MOST_PAGES;
        if !(1..=most).contains(&pages) {
            return Err(BuddyError::Size { pages, most });
        }
        let mut used = [0; Use::ALL.len()];
        used[of as usize] = pages;
        Ok(Buddy {
            cells: Cells::new(pages as usize, Cell::used(of)),
            lists: Default::default(),
            types: vec![Mobility::Movable; pages.div_ceil(BLOCK_PAGES) as usize],
            old: false,
            used,
            fallbacks: Fallbacks::default(),
        })
    }

    /// Memory of `pages` pages, all free and movable. The lowest frames are taken first, as if the pages had been
    /// freed from the last to the first. O(pages), some ms for 64 GiB.
    ///
    /// # Errors
    /// As [`Buddy::new`].
    pub fn all_free(pages: u64) -> Result<Buddy, BuddyError> {
        let mut buddy = Buddy::new(pages, Use::Movable)?;
        buddy.used = [0; Use::ALL.len()];
        let mut end = buddy.cells.len();
        buddy.cells.fill(0, end, Cell::INSIDE);
        while end > 0 {
            // Below a multiple of the largest block fit such blocks alone; what is above one is cut into the powers
            // of two that it is the sum of.
            let order = end.trailing_zeros().min(MAX_ORDER);
            end -= 1 << order;
            buddy.insert(end, order, Mobility::Movable);
        }
        Ok(buddy)
    }

    /// All pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        u64::from(self.cells.len())
    }

    /// Pages that are free.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.pages() - self.used.iter().sum::<u64>()
    }

    /// Pages used as `of`.
    #[must_use]
    pub fn used_pages(&self, of: Use) -> u64 {
        self.used[of as usize]
    }

    /// Free blocks of `order`; of an order above 10 there are none.
    #[must_use]
    pub fn free_blocks(&self, order: u32) -> u64 {
        let count = |&mobility| self.free_blocks_of(order, mobility);
        Mobility::ALL.iter().map(count).sum()
    }

    /// Free blocks of `order` on the list of `mobility`.
    #[must_use]
    pub fn free_blocks_of(&self, order: u32, mobility: Mobility) -> u64 {
        let lists = self.lists.get(order as usize);
        lists.map_or(0, |lists| lists[mobility as usize].len() as u64)
    }

    /// The first frames of the free blocks of `order` and `mobility` in the order in which they will be taken.
    /// O(blocks): for tests and for showing.
    #[must_use]
    pub fn free_list(&self, order: u32, mobility: Mobility) -> Vec<u64> {
        let Some(lists) = self.lists.get(order as usize) else {
            return Vec::new();
        };
        let head = Cell::head(order, mobility);
        let frames = lists[mobility as usize].newest_first(head, &self.cells);
        frames.into_iter().map(u64::from).collect()
    }

    /// What the page at `frame` is; `None` beyond the memory. O(orders) for a free page, O(1) for a used one.
    #[must_use]
    pub fn page(&self, frame: u64) -> Option<PageState> {
        let frame = self.frame(frame).ok()?;
        Some(self.state(frame))
    }

    /// Makes the used page at `frame` one of another use.
    ///
    /// # Errors
    /// [`BuddyError::Beyond`], [`BuddyError::IsFree`].
    pub fn set_use(&mut self, frame: u64, of: Use) -> Result<(), BuddyError> {
        let place = self.frame(frame)?;
        let Some(was) = self.cells.get(place).usage() else {
            return Err(BuddyError::IsFree { frame });
        };
        self.cells.set(place, Cell::used(of));
        self.used[was as usize] -= 1;
        self.used[of as usize] += 1;
        Ok(())
    }

    /// The migrate type of the 2 MiB block of `frame`; `None` beyond the memory.
    #[must_use]
    pub fn block_mobility(&self, frame: u64) -> Option<Mobility> {
        let frame = self.frame(frame).ok()?;
        Some(self.mobility(frame))
    }

    /// Gives the 2 MiB block of `frame` a migrate type, and moves its free blocks to that type's lists; where a free
    /// block of order 10 covers two, both change. O(512).
    ///
    /// # Errors
    /// [`BuddyError::Beyond`].
    pub fn set_block_mobility(&mut self, frame: u64, mobility: Mobility) -> Result<(), BuddyError> {
        let frame = self.frame(frame)?;
        match self.state(frame) {
            PageState::Free { head, order } if order > BLOCK_ORDER => {
                let head = self.frame(head)?;
                self.remove(head);
                self.note_mobility(head, order, mobility);
                self.insert(head, order, mobility);
            }
            PageState::Free { .. } | PageState::Used(_) => self.change_block(frame, mobility),
        }
        Ok(())
    }

    /// The same memory with the fallback of 3.14 in place of 6.12's.
    #[must_use]
    pub fn of_3_14(self) -> Buddy {
        Buddy { old: true, ..self }
    }

    /// Requests that the other migrate type's pages had to serve so far.
    #[must_use]
    pub fn fallbacks(&self) -> Fallbacks {
        self.fallbacks
    }

    /// Bytes that this takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let lists: usize = self.lists.iter().flatten().map(List::bytes).sum();
        size_of::<Buddy>()
            + self.cells.bytes()
            + lists
            + self.types.capacity() * size_of::<Mobility>()
    }

    /// `frame` as a place in the memory.
    fn frame(&self, frame: u64) -> Result<u32, BuddyError> {
        let pages = self.pages();
        u32::try_from(frame)
            .ok()
            .filter(|&place| place < self.cells.len())
            .ok_or(BuddyError::Beyond { frame, pages })
    }

    fn state(&self, frame: u32) -> PageState {
        if let Some(of) = self.cells.get(frame).usage() {
            return PageState::Used(of);
        }
        // The places below where a larger block could begin are inside of the same block until one is its head.
        let (mut head, mut larger) = (frame, 0);
        loop {
            if let Some((order, _)) = self.cells.get(head).heads() {
                let head = u64::from(head);
                return PageState::Free { order, head };
            }
            larger += 1;
            assert!(larger <= MAX_ORDER, "frame {frame} is in no block");
            head = frame >> larger << larger;
        }
    }

    fn mobility(&self, frame: u32) -> Mobility {
        self.types[(frame >> BLOCK_ORDER) as usize]
    }

    /// Writes down the migrate type of the 2 MiB blocks of a block of at least that size, or of the one that
    /// `frame` is in.
    fn note_mobility(&mut self, frame: u32, order: u32, mobility: Mobility) {
        let first = (frame >> BLOCK_ORDER) as usize;
        self.types[first..][..1 << order.saturating_sub(BLOCK_ORDER)].fill(mobility);
    }

    /// Puts the block at `frame`, all [`Cell::INSIDE`], first on its list.
    fn insert(&mut self, frame: u32, order: u32, mobility: Mobility) {
        let head = Cell::head(order, mobility);
        self.lists[order as usize][mobility as usize].push(frame, head, &mut self.cells);
    }

    /// Takes the free block that begins at `frame` off its list, wherever in it it is, and returns its order.
    /// All its cells are [`Cell::INSIDE`] then.
    fn remove(&mut self, frame: u32) -> u32 {
        let head = self.cells.get(frame);
        let (order, mobility) = head.heads().expect("the head of a free block");
        self.lists[order as usize][mobility as usize].remove(frame, head, &mut self.cells);
        order
    }
}

#[cfg(test)]
mod tests;
