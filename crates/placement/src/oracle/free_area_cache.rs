use alloc::string::String;

use crate::contract::{
    Direction, FreeError, Lack, Merge, Need, PlaceError, Policy, Range, Request, Space, Statistics,
    Work,
};

use super::Naive;

/// A kernel whose search continues at free_area_cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// 2.6.13 to 3.3.
    Linux2_6_35,
    /// 3.4 to 3.7.
    Linux3_4,
}

/// The kernel's rules of that time written down a second time, on [`Naive`]'s areas: an index into the
/// sorted list stands for a VMA, find_vma() walks the list, and each version's search is one function,
/// in the kernel's order. Addresses count from the window's start. O(areas) a lookup.
#[derive(Debug, Clone)]
pub struct NaiveFreeAreaCache {
    naive: Naive,
    era: Era,
    layout: Direction,
    task_size: i64,
    unmapped_base: i64,
    mmap_base: i64,
    fac: i64,
    /// `None`: all ones.
    chs: Option<i64>,
    work: Work,
    scanned: bool,
}

impl NaiveFreeAreaCache {
    /// An empty address space. [`Direction::Any`] is top-down.
    #[must_use]
    pub fn new(era: Era, space: Space, layout: Direction) -> NaiveFreeAreaCache {
        let (task_size, page) = (space.window().length() as i64, space.page() as i64);
        let pages = (task_size / 3 + page - 1) / page;
        let unmapped_base = pages * page;
        let (layout, mmap_base) = if layout == Direction::BottomUp {
            (Direction::BottomUp, unmapped_base)
        } else {
            (Direction::TopDown, task_size)
        };
        NaiveFreeAreaCache {
            naive: Naive::new(space, true),
            era,
            layout,
            task_size,
            unmapped_base,
            mmap_base,
            fac: mmap_base,
            chs: Some(0),
            work: Work::default(),
            scanned: false,
        }
    }

    /// free_area_cache, and cached_hole_size (`u64::MAX`: all ones).
    #[must_use]
    pub fn state(&self) -> (u64, u64) {
        let window = self.naive.space().window();
        (
            window.start + self.fac as u64,
            self.chs.map_or(u64::MAX, |size| size as u64),
        )
    }

    fn count(&self, address: u64) -> i64 {
        address as i64 - self.naive.space().window().start as i64
    }

    fn start(&self, vma: usize) -> Option<i64> {
        let area = self.naive.areas().get(vma)?;
        Some(self.count(area.range.start))
    }

    fn end(&self, vma: usize) -> i64 {
        self.count(self.naive.areas()[vma].range.end)
    }

    /// find_vma(): an index, which is past the last area where there is no VMA.
    fn find(&mut self, address: i64) -> usize {
        self.work.visited += 1;
        let areas = 0..self.naive.areas().len();
        let found = areas.clone().find(|&vma| self.end(vma) > address);
        found.unwrap_or(areas.end)
    }

    /// `!vma || limit <= vma->vm_start`.
    fn clear(&self, vma: usize, limit: i64) -> bool {
        self.start(vma).is_none_or(|start| limit <= start)
    }

    fn passed_over(&mut self, address: i64, vma: usize) {
        let Some(start) = self.start(vma) else { return };
        let larger = match self.chs {
            // address + ~0UL is address - 1.
            None => address <= start,
            Some(size) => address + size < start,
        };
        if larger {
            self.chs = Some(start - address);
        }
    }

    fn hint(&mut self, need: &Need) -> Option<i64> {
        let hinted = need.hinted(self.naive.space())?;
        let (address, limit) = (self.count(hinted.start), self.count(hinted.end));
        let vma = self.find(address);
        self.clear(vma, limit).then_some(address)
    }

    fn top_down_2_6_35(&mut self, need: &Need, len: i64) -> Option<i64> {
        if let Some(address) = self.hint(need) {
            return Some(address);
        }
        if self.chs.is_none_or(|size| len <= size) {
            self.work.resets += 1;
            self.chs = Some(0);
            self.fac = self.mmap_base;
        }
        if self.fac > len {
            let vma = self.find(self.fac - len);
            if self.clear(vma, self.fac) {
                self.fac -= len;
                return Some(self.fac);
            }
        }
        if self.mmap_base >= len {
            self.scanned = true;
            let mut address = self.mmap_base - len;
            loop {
                let vma = self.find(address);
                if self.clear(vma, address + len) {
                    self.fac = address;
                    return Some(address);
                }
                self.passed_over(address, vma);
                let start = self.start(vma)?;
                address = start - len;
                if len >= start {
                    break;
                }
            }
        }
        self.last_resort(need, len)
    }

    fn top_down_3_4(&mut self, need: &Need, len: i64) -> Option<i64> {
        if let Some(address) = self.hint(need) {
            return Some(address);
        }
        if self.chs.is_none_or(|size| len <= size) {
            self.work.resets += 1;
            self.chs = Some(0);
            self.fac = self.mmap_base;
        }
        loop {
            let began = self.fac;
            self.scanned |= began == self.mmap_base;
            if began >= len {
                let mut address = began - len;
                loop {
                    let vma = self.find(address);
                    if self.clear(vma, address + len) {
                        self.fac = address;
                        return Some(address);
                    }
                    self.passed_over(address, vma);
                    let start = self.start(vma)?;
                    address = start - len;
                    if len >= start {
                        break;
                    }
                }
            }
            if began == self.mmap_base {
                return self.last_resort(need, len);
            }
            self.fac = self.mmap_base;
            self.chs = Some(0);
        }
    }

    fn last_resort(&mut self, need: &Need, len: i64) -> Option<i64> {
        self.chs = None;
        self.fac = self.unmapped_base;
        let found = self.bottom_up(need, len);
        self.fac = self.mmap_base;
        self.chs = None;
        found
    }

    fn bottom_up(&mut self, need: &Need, len: i64) -> Option<i64> {
        let (begin, end) = (self.unmapped_base, self.task_size);
        if let Some(address) = self.hint(need) {
            return Some(address);
        }
        let mut start_address = self.fac.max(begin);
        loop {
            self.scanned |= start_address == begin;
            let mut address = start_address;
            let mut vma = self.find(address);
            while address <= end - len {
                if self.clear(vma, address + len) {
                    self.fac = address + len;
                    return Some(address);
                }
                self.passed_over(address, vma);
                address = self.end(vma);
                vma += 1;
                self.work.visited += 1;
            }
            if start_address == begin {
                return None;
            }
            start_address = begin;
            self.chs = Some(0);
        }
    }

    fn unmapped(&mut self, hole: Range) {
        let areas = self.naive.areas();
        let next = areas.iter().position(|area| area.range.start >= hole.end);
        let next = next.unwrap_or(areas.len());
        if self.layout == Direction::TopDown {
            let address = self.start(next).unwrap_or(self.mmap_base);
            if address > self.fac {
                self.fac = address;
            }
            if self.fac > self.mmap_base {
                self.fac = self.mmap_base;
            }
        } else {
            let address = match next {
                0 => self.mmap_base,
                _ => self.end(next - 1),
            };
            if address >= self.unmapped_base && address < self.fac {
                self.fac = address;
                if self.era == Era::Linux2_6_35 {
                    self.chs = None;
                }
            }
        }
    }
}

impl Policy for NaiveFreeAreaCache {
    fn space(&self) -> Space {
        self.naive.space()
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let (space, layout) = (self.space(), self.layout);
        let need = space.need(request)?;
        if need.align_mask >= space.page() {
            return Err(PlaceError::Lacks(Lack::Alignment));
        }
        if need.limits.length() < space.window().length() {
            return Err(PlaceError::Lacks(Lack::Limits));
        }
        if ![Direction::Any, layout].contains(&need.direction) {
            return Err(PlaceError::Lacks(Lack::Direction));
        }
        let len = need.size as i64;
        self.scanned = false;
        let found = match (layout, self.era) {
            (Direction::BottomUp, _) => self.bottom_up(&need, len),
            (_, Era::Linux2_6_35) => self.top_down_2_6_35(&need, len),
            (_, Era::Linux3_4) => self.top_down_3_4(&need, len),
        };
        self.work.full_scans += u64::from(self.scanned);
        let start = space.window().start + found.ok_or(PlaceError::Exhausted)? as u64;
        let range = Range::new(start, start + need.size);
        // A rule that chose what is taken would be found by its refusal here.
        let taken = self.naive.take(range, need.merge);
        taken.map_err(|_| PlaceError::Exhausted)?;
        self.work.placed += 1;
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.naive.free(range)?;
        self.unmapped(range);
        Ok(())
    }

    fn keeps_vmas(&self) -> bool {
        true
    }

    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        self.naive.protect(part, merge)
    }

    fn statistics(&self) -> Statistics {
        self.naive.statistics()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn check(&self) -> Result<(), String> {
        self.naive.check()
    }
}
