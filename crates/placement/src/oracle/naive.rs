use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::contract::{
    Direction, FreeError, Merge, Need, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};

/// An area that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Where.
    pub range: Range,
    /// With what it merges.
    pub merge: Merge,
}

/// First fit in a sorted list, from the bottom or the top. O(areas) a call.
#[derive(Debug, Clone)]
pub struct Naive {
    space: Space,
    keeps_vmas: bool,
    areas: Vec<Area>,
    work: Work,
}

impl Naive {
    /// Nothing is taken yet. With `keeps_vmas`, areas that may merge and touch become one.
    #[must_use]
    pub fn new(space: Space, keeps_vmas: bool) -> Naive {
        Naive {
            space,
            keeps_vmas,
            areas: Vec::new(),
            work: Work::default(),
        }
    }

    /// Ranges taken, by address.
    #[must_use]
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// The free areas, by address, each as large as it can be.
    pub fn holes(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        let window = self.space.window();
        (0..=self.areas.len()).filter_map(move |i| {
            let start = if i == 0 {
                window.start
            } else {
                self.areas[i - 1].range.end
            };
            let end = self.areas.get(i).map_or(window.end, |a| a.range.start);
            (start < end).then_some(Range::new(start, end))
        })
    }

    /// The first range, from the side that `need` looks from, that it allows. The hint is not looked at.
    #[must_use]
    pub fn first_fit(&self, need: &Need) -> Option<Range> {
        if need.direction == Direction::TopDown {
            self.holes().rev().find_map(|hole| need.within(hole))
        } else {
            self.holes().find_map(|hole| need.within(hole))
        }
    }

    /// Whether no page of `range` is taken.
    #[must_use]
    pub fn is_free(&self, range: Range) -> bool {
        !self.areas.iter().any(|area| area.range.overlaps(range))
    }

    /// Takes `range`, which the caller chose.
    ///
    /// # Errors
    /// Where it is not made of whole pages of the window, or not free.
    pub fn take(&mut self, range: Range, merge: Merge) -> Result<(), String> {
        if !self.space.holds(range) {
            return Err(format!("{range} is not made of whole pages of the window"));
        }
        if let Some(area) = self.areas.iter().find(|area| area.range.overlaps(range)) {
            return Err(format!("{range} overlaps {}, which is taken", area.range));
        }
        let index = self.areas.partition_point(|a| a.range.end <= range.start);
        self.areas.insert(index, Area { range, merge });
        self.join();
        self.work.placed += 1;
        Ok(())
    }

    /// Why `range` may not be given back or changed, if it may not.
    fn refuse(&self, range: Range) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let mut touched = self.areas.iter().filter(|area| area.range.overlaps(range));
        if self.is_free(range) {
            return Err(FreeError::AlreadyFree);
        }
        if touched.clone().count() == 1 && touched.clone().all(|area| area.range == range) {
            return Ok(());
        }
        // Merged areas may be given back in parts, as far as no page of the part is free.
        let within = |a: &Area| a.range.end.min(range.end) - a.range.start.max(range.start);
        let covered: u64 = touched.clone().map(within).sum();
        let divisible = self.keeps_vmas && touched.all(|area| area.merge != Merge::Never);
        if divisible && covered == range.length() {
            Ok(())
        } else {
            Err(FreeError::NotAsGiven)
        }
    }

    /// Removes `range` from every area that it touches; what lies outside it stays.
    fn carve(&mut self, range: Range) {
        let mut left = Vec::with_capacity(self.areas.len() + 1);
        for area in &self.areas {
            let below = Range::new(area.range.start, area.range.end.min(range.start));
            let above = Range::new(area.range.start.max(range.end), area.range.end);
            for part in [below, above] {
                if part.start < part.end {
                    left.push(Area {
                        range: part,
                        merge: area.merge,
                    });
                }
            }
        }
        self.areas = left;
    }

    /// Makes one area of neighbours that merge.
    fn join(&mut self) {
        if !self.keeps_vmas {
            return;
        }
        self.areas.dedup_by(|above, below| {
            let one = below.range.end == above.range.start
                && below.merge == above.merge
                && below.merge != Merge::Never;
            if one {
                below.range.end = above.range.end;
            }
            one
        });
    }
}

impl Policy for Naive {
    fn space(&self) -> Space {
        self.space
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        let hinted = need.hinted(self.space).filter(|&range| self.is_free(range));
        let found = hinted.or_else(|| self.first_fit(&need));
        let range = found.ok_or(PlaceError::Exhausted)?;
        // It is free: it lies in a hole.
        self.take(range, need.merge)
            .map_err(|_| PlaceError::Exhausted)?;
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.refuse(range)?;
        self.carve(range);
        Ok(())
    }

    fn keeps_vmas(&self) -> bool {
        self.keeps_vmas
    }

    fn protect(&mut self, part: Range, merge: Merge) -> Result<(), FreeError> {
        if !self.keeps_vmas {
            return Ok(());
        }
        self.refuse(part)?;
        let never = |a: &Area| a.range.overlaps(part) && a.merge == Merge::Never;
        if merge == Merge::Never || self.areas.iter().any(never) {
            return Err(FreeError::NotAsGiven);
        }
        self.carve(part);
        let index = self.areas.partition_point(|a| a.range.end <= part.start);
        self.areas.insert(index, Area { range: part, merge });
        self.join();
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        let first = self.areas.first().map(|area| area.range.start);
        let last = self.areas.last().map(|area| area.range.end);
        Statistics {
            ranges: self.areas.len() as u64,
            used: self.areas.iter().map(|area| area.range.length()).sum(),
            span: first.zip(last).map(|(start, end)| Range { start, end }),
            holes: self.holes().count() as u64,
            largest_hole: self.holes().map(Range::length).max().unwrap_or(0),
            memory: (self.areas.capacity() * size_of::<Area>()) as u64,
        }
    }

    fn work(&self) -> Work {
        self.work
    }

    fn check(&self) -> Result<(), String> {
        for area in &self.areas {
            if !self.space.holds(area.range) {
                return Err(format!("{} is not made of whole pages", area.range));
            }
        }
        for pair in self.areas.windows(2) {
            if pair[0].range.end > pair[1].range.start {
                return Err(format!("{} and {} overlap", pair[0].range, pair[1].range));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(keeps_vmas: bool) -> Naive {
        let space = Space::new(Range::new(0, 0x8000), 0x1000).unwrap();
        Naive::new(space, keeps_vmas)
    }

    fn with(size: u64, merge: Merge) -> Request {
        Request {
            merge,
            ..Request::of(size)
        }
    }

    /// ```text
    /// 0 1 2 3 4 5 6 7
    /// A A A B C . . .     A and B merge, C does not
    ///   ^ ^                freed: A is in two parts
    /// ```
    #[test]
    fn merged_areas_are_freed_in_parts_others_are_not() {
        let mut naive = naive(true);
        naive.place(&with(0x3000, Merge::With(1))).unwrap();
        naive.place(&with(0x1000, Merge::With(1))).unwrap();
        naive.place(&with(0x2000, Merge::Never)).unwrap();
        assert_eq!(naive.areas().len(), 2);
        assert_eq!(naive.free(Range::new(0x1000, 0x3000)), Ok(()));
        assert_eq!(naive.areas().len(), 3);
        let free = |naive: &mut Naive, start, end| naive.free(Range::new(start, end));
        assert_eq!(
            free(&mut naive, 0x1000, 0x2000),
            Err(FreeError::AlreadyFree)
        );
        assert_eq!(free(&mut naive, 0, 0x2000), Err(FreeError::NotAsGiven));
        assert_eq!(free(&mut naive, 0x4000, 0x5000), Err(FreeError::NotAsGiven));
        assert_eq!(free(&mut naive, 0x3000, 0x6000), Err(FreeError::NotAsGiven));
        assert_eq!(free(&mut naive, 0x5000, 0x4000), Err(FreeError::Malformed));
        assert_eq!(free(&mut naive, 0x7000, 0x9000), Err(FreeError::Malformed));
        assert_eq!(free(&mut naive, 0x7000, 0x7800), Err(FreeError::Malformed));
        assert_eq!(free(&mut naive, 0x4000, 0x6000), Ok(()));
        naive.check().unwrap();
    }

    #[test]
    fn a_protection_splits_and_merges_back() {
        let mut naive = naive(true);
        let whole = naive.place(&with(0x3000, Merge::With(1))).unwrap();
        let middle = Range::new(0x1000, 0x2000);
        naive.protect(middle, Merge::With(0)).unwrap();
        assert_eq!(naive.areas().len(), 3);
        naive.protect(middle, Merge::With(1)).unwrap();
        assert_eq!(naive.areas().len(), 1);
        assert_eq!(naive.areas()[0].range, whole);
    }
}
