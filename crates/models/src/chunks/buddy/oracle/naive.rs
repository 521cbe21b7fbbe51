use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::chunks::buddy::{
    BLOCK_ORDER, BLOCK_PAGES, Buddy, BuddyError, Fallbacks, Mobility, PageState, Use,
};

/// Pages of the largest block: no free block reaches from one such part of the memory into the next.
const LARGEST: u64 = 1 << 10;

/// The memory, slow and too simple to be wrong.
///
/// It neither splits nor coalesces. Memory that is coalesced as far as it goes has one set of free blocks alone: the
/// largest ranges, of a power of two and aligned to it, that are free from end to end. So this
/// keeps which pages are free, looks these ranges up after each step, and for each writes down when it
/// was first seen: a free list is the blocks of one order and type, the one seen last first.
pub struct Naive {
    /// Use of each page; `None` is free.
    pages: Vec<Option<Use>>,
    /// The migrate type of each 2 MiB block.
    types: Vec<Mobility>,
    /// First frame of each free block -> its order, when it was seen first, and the type of its list.
    blocks: BTreeMap<u64, (u32, u64, Mobility)>,
    /// Whether the fallback is that of 3.14.
    old: bool,
    clock: u64,
    fallbacks: Fallbacks,
}

impl Naive {
    /// As [`Buddy::new`].
    ///
    /// # Errors
    /// As [`Buddy::new`].
    pub fn new(pages: u64, of: Use) -> Result<Naive, BuddyError> {
        if pages == 0 || pages > 64 << (30 - 12) {
            let most = Buddy::MOST_PAGES;
            return Err(BuddyError::Size { pages, most });
        }
        Ok(Naive {
            pages: (0..pages).map(|_| Some(of)).collect(),
            types: (0..pages).step_by(512).map(|_| Mobility::Movable).collect(),
            blocks: BTreeMap::new(),
            old: false,
            clock: 0,
            fallbacks: Fallbacks::default(),
        })
    }

    /// As [`Buddy::of_3_14`].
    #[must_use]
    pub fn of_3_14(self) -> Naive {
        Naive { old: true, ..self }
    }

    /// As [`Buddy::all_free`], literally: every page is freed, from the last to the first.
    ///
    /// # Errors
    /// As [`Buddy::new`].
    pub fn all_free(pages: u64) -> Result<Naive, BuddyError> {
        let mut naive = Naive::new(pages, Use::Movable)?;
        for frame in (0..pages).rev() {
            naive.free(frame, 0)?;
        }
        Ok(naive)
    }

    /// As [`Buddy::allocate`].
    pub fn allocate(&mut self, order: u32, mobility: Mobility, of: Use) -> Option<u64> {
        let own = self.smallest(order, mobility);
        let frame = own
            .or_else(|| self.fallback(order, mobility))
            .or_else(|| self.smallest(order, Mobility::Reserve))?;
        for page in frame..frame + (1 << order) {
            self.pages[page as usize] = Some(of);
        }
        self.look(frame);
        Some(frame)
    }

    /// As [`Buddy::allocate_at`].
    ///
    /// # Errors
    /// As [`Buddy::allocate_at`].
    pub fn allocate_at(&mut self, frame: u64, of: Use) -> Result<(), BuddyError> {
        match self.page(frame) {
            None => return Err(self.beyond(frame)),
            Some(PageState::Used(of)) => return Err(BuddyError::IsUsed { frame, of }),
            Some(PageState::Free { .. }) => self.pages[frame as usize] = Some(of),
        }
        self.look(frame);
        Ok(())
    }

    /// As [`Buddy::free`].
    ///
    /// # Errors
    /// As [`Buddy::free`].
    pub fn free(&mut self, frame: u64, order: u32) -> Result<(), BuddyError> {
        if order > 10 {
            return Err(BuddyError::Order { order });
        }
        if frame >= self.all() {
            return Err(self.beyond(frame));
        }
        let size = 1 << order;
        if !frame.is_multiple_of(size) {
            return Err(BuddyError::Unaligned { frame, order });
        }
        if frame + size > self.all() {
            return Err(self.beyond(self.all()));
        }
        for frame in frame..frame + size {
            match self.pages[frame as usize] {
                None => return Err(BuddyError::IsFree { frame }),
                Some(Use::Hole) => return Err(BuddyError::IsHole { frame }),
                Some(_) => {}
            }
        }
        let mut part = frame;
        while part < frame + size {
            let length = size.min(BLOCK_PAGES);
            for page in part..part + length {
                self.pages[page as usize] = None;
            }
            self.look(part);
            let mobility = self.type_of(part);
            if let Some((head, order)) = self.block(part) {
                self.set_types(head, order, mobility);
                self.list_under(head, mobility);
            }
            part += length;
        }
        Ok(())
    }

    /// As [`Buddy::set_use`].
    ///
    /// # Errors
    /// As [`Buddy::set_use`].
    pub fn set_use(&mut self, frame: u64, of: Use) -> Result<(), BuddyError> {
        match self.page(frame) {
            None => Err(self.beyond(frame)),
            Some(PageState::Free { .. }) => Err(BuddyError::IsFree { frame }),
            Some(PageState::Used(_)) => {
                self.pages[frame as usize] = Some(of);
                Ok(())
            }
        }
    }

    /// As [`Buddy::set_block_mobility`].
    ///
    /// # Errors
    /// As [`Buddy::set_block_mobility`].
    pub fn set_block_mobility(&mut self, frame: u64, mobility: Mobility) -> Result<(), BuddyError> {
        if frame >= self.all() {
            return Err(self.beyond(frame));
        }
        match self.block(frame) {
            Some((head, 10)) => {
                self.set_types(head, 10, mobility);
                self.list_under(head, mobility);
                self.stamp(head);
            }
            _ => self.change(frame, mobility),
        }
        Ok(())
    }

    /// As [`Buddy::page`].
    #[must_use]
    pub fn page(&self, frame: u64) -> Option<PageState> {
        let of = *self.pages.get(usize::try_from(frame).ok()?)?;
        Some(match (of, self.block(frame)) {
            (Some(of), _) => PageState::Used(of),
            (None, Some((head, order))) => PageState::Free { order, head },
            (None, None) => unreachable!("frame {frame} is free, and in no block"),
        })
    }

    /// As [`Buddy::block_mobility`].
    #[must_use]
    pub fn block_mobility(&self, frame: u64) -> Option<Mobility> {
        (frame < self.all()).then(|| self.type_of(frame))
    }

    /// As [`Buddy::free_list`].
    #[must_use]
    pub fn free_list(&self, order: u32, mobility: Mobility) -> Vec<u64> {
        let blocks = self.of_type(mobility).filter(|block| block.0 == order);
        let mut list: Vec<_> = blocks.collect();
        list.sort_unstable_by_key(|&(_, since, _)| Reverse(since));
        list.iter().map(|&(_, _, frame)| frame).collect()
    }

    /// As [`Buddy::free_pages`].
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.pages_in_blocks_from(0)
    }

    /// Free pages in blocks of `order` or above.
    fn pages_in_blocks_from(&self, order: u32) -> u64 {
        let blocks = self.blocks.values().filter(|block| block.0 >= order);
        blocks.map(|block| 1 << block.0).sum()
    }

    /// As [`Buddy::used_pages`].
    #[must_use]
    pub fn used_pages(&self, of: Use) -> u64 {
        self.pages.iter().filter(|&&page| page == Some(of)).count() as u64
    }

    /// As [`Buddy::fallbacks`].
    #[must_use]
    pub fn fallbacks(&self) -> Fallbacks {
        self.fallbacks
    }

    /// As [`Buddy::watermark_ok_3_4`]: the pages in blocks of order k and above, less 2^order - 1, exceed min / 2^k.
    #[must_use]
    pub fn watermark_ok_3_4(&self, order: u32, min: u64, reserve: u64) -> bool {
        order <= 10
            && self.exceeds(0, order, min.saturating_add(reserve))
            && (1..=order).all(|k| self.exceeds(k, order, min >> k))
    }

    /// As [`Buddy::watermark_ok_6_12`].
    #[must_use]
    pub fn watermark_ok_6_12(&self, order: u32, min: u64, reserve: u64) -> bool {
        order <= 10
            && self.exceeds(0, order, min.saturating_add(reserve))
            && self.pages_in_blocks_from(order) > 0
    }

    /// Whether the pages in blocks of `from` and above, less 2^`order` - 1, exceed `min`.
    fn exceeds(&self, from: u32, order: u32, min: u64) -> bool {
        i128::from(self.pages_in_blocks_from(from)) - (1 << order) + 1 > i128::from(min)
    }

    /// As [`Buddy::unusable_index`].
    #[must_use]
    pub fn unusable_index(&self, order: u32) -> Option<f64> {
        let free = self.free_pages();
        let unusable = free - self.pages_in_blocks_from(order);
        (free > 0).then(|| unusable as f64 / free as f64)
    }

    fn fallback(&mut self, order: u32, mobility: Mobility) -> Option<u64> {
        let other = mobility.fallback()?;
        let of_other = self.of_type(other).filter(|block| block.0 >= order);
        let (largest, _, frame) = of_other.max()?;
        if largest >= BLOCK_ORDER {
            self.fallbacks.claimed += 1;
            self.set_types(frame, largest, mobility);
            self.list_under(frame, mobility);
            return Some(frame);
        }
        if self.old {
            return Some(self.fallback_3_14(frame, largest, mobility));
        }
        if largest < 4 && mobility == Mobility::Movable {
            self.fallbacks.pieces += 1;
            return self.smallest(order, other);
        }
        let start = frame / BLOCK_PAGES * BLOCK_PAGES;
        let block = self
            .pages
            .get(start as usize..(start + BLOCK_PAGES) as usize);
        let alike = |page: &&Option<Use>| match page {
            None => true,
            Some(Use::Unmovable | Use::Hole) => mobility == Mobility::Unmovable,
            Some(Use::Reclaimable | Use::Movable | Use::Pinned) => mobility == Mobility::Movable,
        };
        if block.is_some_and(|block| block.iter().filter(alike).count() >= 256) {
            self.fallbacks.claimed += 1;
            self.change(frame, mobility);
            return self.smallest(order, mobility);
        }
        self.fallbacks.pieces += 1;
        Some(frame)
    }

    /// By 3.14: from order 4 on the free blocks of the whole 2 MiB block change their lists, and the block its type
    /// where half of it is free. The largest block, at `frame`, is split under the type that the 2 MiB block has then.
    fn fallback_3_14(&mut self, frame: u64, largest: u32, mobility: Mobility) -> u64 {
        let start = frame / BLOCK_PAGES * BLOCK_PAGES;
        let block = self
            .pages
            .get(start as usize..(start + BLOCK_PAGES) as usize);
        let free = block.map(|block| block.iter().filter(|page| page.is_none()).count());
        let Some(free) = free.filter(|_| largest >= 4) else {
            self.fallbacks.pieces += 1;
            return frame;
        };
        self.move_free(frame, mobility);
        if free >= 256 {
            self.fallbacks.claimed += 1;
            self.set_types(frame, 0, mobility);
        } else {
            self.fallbacks.pieces += 1;
        }
        self.list_under(frame, self.type_of(frame));
        frame
    }

    /// Changes the type of the 2 MiB block of `frame`, no free block in which is larger.
    fn change(&mut self, frame: u64, mobility: Mobility) {
        if self.type_of(frame) != mobility {
            self.set_types(frame, 0, mobility);
            self.move_free(frame, mobility);
        }
    }

    /// Moves the free blocks of the 2 MiB block of `frame` to the lists of `mobility`.
    fn move_free(&mut self, frame: u64, mobility: Mobility) {
        let start = frame / BLOCK_PAGES * BLOCK_PAGES;
        for frame in (start..start + BLOCK_PAGES).rev() {
            if self.blocks.contains_key(&frame) {
                self.stamp(frame);
                self.list_under(frame, mobility);
            }
        }
    }

    /// Has the free block at `frame` be on the list of `mobility`.
    fn list_under(&mut self, frame: u64, mobility: Mobility) {
        self.blocks.get_mut(&frame).expect("a free block").2 = mobility;
    }

    /// Looks up the free blocks around `frame` anew.
    fn look(&mut self, frame: u64) {
        let start = frame / LARGEST * LARGEST;
        let mut found = BTreeMap::new();
        self.find(start, 10, &mut found);
        let before = self.blocks.clone();
        self.blocks.retain(|frame, &mut (order, ..)| {
            frame / LARGEST != start / LARGEST || found.get(frame) == Some(&order)
        });
        for (frame, order) in found {
            self.clock += 1;
            // A part of a block that was split stays on that block's list.
            let whole = before.range(..=frame).next_back();
            let whole = whole
                .filter(|&(&head, &(larger, ..))| larger > order && frame < head + (1 << larger));
            let mobility = whole.map_or_else(|| self.type_of(frame), |(_, block)| block.2);
            self.blocks
                .entry(frame)
                .or_insert((order, self.clock, mobility));
        }
    }

    /// The largest aligned free ranges in the range of `order` at `start`, and their orders.
    fn find(&self, start: u64, order: u32, found: &mut BTreeMap<u64, u32>) {
        let Some(pages) = self.pages.get(start as usize..) else {
            return;
        };
        let all = pages.get(..1 << order);
        if all.is_some_and(|all| all.iter().all(Option::is_none)) {
            found.insert(start, order);
        } else if let Some(half) = order.checked_sub(1) {
            self.find(start, half, found);
            self.find(start + (1 << half), half, found);
        }
    }

    /// Makes the block at `frame` the newest.
    fn stamp(&mut self, frame: u64) {
        self.clock += 1;
        self.blocks.get_mut(&frame).expect("a free block").1 = self.clock;
    }

    /// The newest of the smallest blocks of `order` or above.
    fn smallest(&self, order: u32, mobility: Mobility) -> Option<u64> {
        let large = self.of_type(mobility).filter(|block| block.0 >= order);
        let first = large.min_by_key(|&(order, since, _)| (order, Reverse(since)))?;
        Some(first.2)
    }

    /// The free blocks in 2 MiB blocks of `mobility`: order, when seen, first frame.
    fn of_type(&self, mobility: Mobility) -> impl Iterator<Item = (u32, u64, u64)> {
        let blocks = self.blocks.iter();
        blocks
            .filter(move |(_, block)| block.2 == mobility)
            .map(|(&frame, &(order, since, _))| (order, since, frame))
    }

    /// The free block that `frame` is in.
    fn block(&self, frame: u64) -> Option<(u64, u32)> {
        let (&head, &(order, ..)) = self.blocks.range(..=frame).next_back()?;
        (frame < head + (1 << order)).then_some((head, order))
    }

    fn type_of(&self, frame: u64) -> Mobility {
        self.types[(frame / BLOCK_PAGES) as usize]
    }

    /// Returns all 2 MiB blocks that have a page in the block of `order` at `frame`.
    fn set_types(&mut self, frame: u64, order: u32, mobility: Mobility) {
        for page in frame..frame + (1 << order) {
            self.types[(page / BLOCK_PAGES) as usize] = mobility;
        }
    }

    fn all(&self) -> u64 {
        self.pages.len() as u64
    }

    fn beyond(&self, frame: u64) -> BuddyError {
        let pages = self.all();
        BuddyError::Beyond { frame, pages }
    }
}
