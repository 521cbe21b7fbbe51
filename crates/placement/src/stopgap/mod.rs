//! stopgap's own policy.
//!
//! TODO head.

mod check;
mod class;
mod magazine;
mod map;
mod ranges;
mod search;
mod tile;

use alloc::string::String;

use crate::contract::{
    Direction, FreeError, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};
use magazine::{Magazines, Push};
use map::{Map, Place, Start};
use search::Want;

/// The packed zone has this many pages more, so that a few ranges have some room in it, too.
const ZONE_LEAST: u64 = 512;

/// See the module.
#[derive(Clone)]
pub struct Stopgap {
    space: Space,
    shift: u32,
    map: Map,
    magazines: Magazines,
    /// Pages held, those in magazines left out.
    live: u64,
    /// The packed zone's first page when the map last changed: magazines keep what lies in it. 0 where
    /// there is nothing below it, so that every page may be wanted.
    keep_from: u64,
    work: Work,
}

impl Stopgap {
    /// An empty `space`. Takes about 6 KiB, whatever its size.
    #[must_use]
    pub fn new(space: Space) -> Stopgap {
        let shift = space.page().trailing_zeros();
        Stopgap {
            space,
            shift,
            map: Map::new(space.window().length() >> shift),
            magazines: Magazines::new(),
            live: 0,
            keep_from: 0,
            work: Work::default(),
        }
    }

    /// The first page of the packed zone, at the top of the window: an eighth more than is held.
    #[inline]
    fn zone(&self) -> u64 {
        self.map
            .pages
            .saturating_sub(self.live + self.live / 8 + ZONE_LEAST)
    }

    #[inline]
    fn range(&self, start: u64, pages: u64) -> Range {
        let start = self.space.window().start + (start << self.shift);
        Range::new(start, start + (pages << self.shift))
    }

    #[inline]
    fn page_of(&self, address: u64) -> u64 {
        (address - self.space.window().start) >> self.shift
    }

    #[inline(never)]
    fn place_in_map(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        let want = Want::new(&need, self.space, self.shift);
        let hinted = need
            .hinted(self.space)
            .and_then(|range| self.take_hinted(range));
        let start = hinted
            .or_else(|| self.search(&want))
            .or_else(|| {
                // What magazines keep may be what is missing.
                self.flush().then(|| self.search(&want)).flatten()
            })
            .ok_or(PlaceError::Exhausted)?;
        self.live += want.pages;
        self.work.placed += 1;
        Ok(self.range(start, want.pages))
    }

    /// Anywhere in the map, which magazines keep nothing from: what is not found here may still be.
    #[inline(never)]
    fn place_plain(&mut self, pages: u64) -> Option<u64> {
        if pages == 0 || pages > self.map.pages {
            return None;
        }
        self.keep_from = self.zone();
        let hole = self.plain(pages)?;
        let start = hole.end - pages;
        self.map.take(hole, start, hole.end);
        Some(start)
    }

    #[inline(never)]
    fn give(&mut self, start: u64, pages: u64, at: Place) {
        self.live -= pages;
        self.keep_from = self.zone();
        self.map.give(start, start + pages, at);
    }

    /// Takes the range that a hint asks for, if it is free.
    fn take_hinted(&mut self, range: Range) -> Option<u64> {
        let (start, end) = (self.page_of(range.start), self.page_of(range.end));
        let overlaps = |(pages, kept): (u64, u64)| kept < end && start < kept + pages;
        if self.magazines.all().any(overlaps) {
            self.flush();
        }
        let hole = self.hole_at(start)?;
        (end <= hole.end).then(|| {
            self.map.take(hole, start, end);
            start
        })
    }

    /// Gives the map all that magazines keep; whether that was anything.
    #[cold]
    fn flush(&mut self) -> bool {
        if self.magazines.kept() == 0 {
            return false;
        }
        let kept = core::mem::replace(&mut self.magazines, Magazines::new());
        for (pages, start) in kept.all() {
            if let Some(at) = self.map.place(start) {
                self.map.give(start, start + pages, at);
            }
        }
        self.work.flushes += 1;
        true
    }

    /// Why `range`, which is no range as it was given, is refused.
    #[cold]
    fn refuse(&mut self, range: Range) -> FreeError {
        if !self.space.holds(range) {
            return FreeError::Malformed;
        }
        self.flush();
        let (start, end) = (self.page_of(range.start), self.page_of(range.end));
        let free = self.hole_at(start).is_some_and(|hole| end <= hole.end);
        if free {
            FreeError::AlreadyFree
        } else {
            FreeError::NotAsGiven
        }
    }
}

impl Policy for Stopgap {
    fn space(&self) -> Space {
        self.space
    }

    #[inline]
    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let anywhere = request.limits.is_none()
            && request.hint.is_none()
            && request.alignment <= self.space.page()
            && request.alignment.is_power_of_two()
            && request.offset == 0
            && request.direction != Direction::BottomUp;
        if anywhere {
            let pages = request.size.wrapping_add(self.space.page() - 1) >> self.shift;
            let start = match self.magazines.pop(pages) {
                Some(start) => Some(start),
                None => self.place_plain(pages),
            };
            if let Some(start) = start {
                self.live += pages;
                self.work.placed += 1;
                return Ok(self.range(start, pages));
            }
        }
        self.place_in_map(request)
    }

    #[inline]
    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        if !self.space.holds(range) {
            return Err(FreeError::Malformed);
        }
        let start = self.page_of(range.start);
        let pages = range.length() >> self.shift;
        let Some(at) = self.map.place(start) else {
            return Err(self.refuse(range));
        };
        if self.map.start(at) != Some(Start::Range) || self.map.length(at) != pages {
            return Err(self.refuse(range));
        }
        let keep = self.keep_from > 0 && start >= self.keep_from;
        match self.magazines.push(pages, start, keep) {
            Push::Kept => self.live -= pages,
            Push::Full => self.give(start, pages, at),
            Push::Twice => return Err(FreeError::AlreadyFree),
        }
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.walk()
    }

    fn work(&self) -> Work {
        Work {
            propagated: self.map.propagated,
            ..self.work
        }
    }

    fn check(&self) -> Result<(), String> {
        self.check_all()
    }
}

#[cfg(test)]
mod tests;
