//! The rule of best fit, stated over a list.

use alloc::string::String;
use alloc::vec::Vec;

use crate::contract::{
    Direction, FreeError, Need, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};

use super::Naive;

/// `best-fit` in an address space that fills from the top: of the holes that take the range, the
/// smallest, and of those the lowest; the hole at the window's bottom counts as infinite and is used
/// from its top.
#[must_use]
pub fn top_down(naive: &Naive, need: &Need) -> Option<u64> {
    let holes: Vec<Range> = naive.holes().collect();
    best(naive.space(), Direction::TopDown, &holes, need).map(|range| range.start)
}

/// As [`top_down`] in an address space that fills from the bottom: the hole at the window's top counts
/// as infinite and is used from its bottom.
#[must_use]
pub fn bottom_up(naive: &Naive, need: &Need) -> Option<u64> {
    let holes: Vec<Range> = naive.holes().collect();
    best(naive.space(), Direction::BottomUp, &holes, need).map(|range| range.start)
}

fn best(space: Space, direction: Direction, areas: &[Range], need: &Need) -> Option<Range> {
    if let Some(range) = need.hinted(space)
        && areas.iter().any(|area| area.contains(range))
    {
        return Some(range);
    }
    let window = space.window();
    let open = |area: &Range| match direction {
        Direction::BottomUp => area.end == window.end,
        _ => area.start == window.start,
    };
    let near_end = Need { direction, ..*need };
    let fitting = areas.iter().filter_map(|area| {
        let need = if open(area) { &near_end } else { need };
        Some((area, need.within(*area)?))
    });
    let size = |area: &Range| (open(area), area.length(), area.start);
    fitting
        .min_by_key(|(area, _)| size(area))
        .map(|(_, range)| range)
}

/// Best fit in a list of free areas that are never joined again: what `best-fit-no-coalesce` must do.
/// The list has a history, so no rule over [`Naive`] could say it.
#[derive(Debug, Clone)]
pub struct Fragments {
    naive: Naive,
    direction: Direction,
    free: Vec<Range>,
}

impl Fragments {
    /// All of the window is one free area.
    #[must_use]
    pub fn new(space: Space, direction: Direction) -> Fragments {
        Fragments {
            naive: Naive::new(space, false),
            direction,
            free: [space.window()].into(),
        }
    }
}

impl Policy for Fragments {
    fn space(&self) -> Space {
        self.naive.space()
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space().need(request)?;
        let range =
            best(self.space(), self.direction, &self.free, &need).ok_or(PlaceError::Exhausted)?;
        // It is free: it lies in a free area.
        self.naive
            .take(range, need.merge)
            .map_err(|_| PlaceError::Exhausted)?;
        let around = self.free.iter().position(|area| area.contains(range));
        if let Some(area) = around.map(|index| self.free.swap_remove(index)) {
            let rests = [
                Range::new(area.start, range.start),
                Range::new(range.end, area.end),
            ];
            self.free.extend(rests.iter().filter(|r| r.length() > 0));
        }
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        self.naive.free(range)?;
        self.free.push(range);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        self.naive.statistics()
    }

    fn work(&self) -> Work {
        self.naive.work()
    }

    fn check(&self) -> Result<(), String> {
        self.naive.check()
    }
}
