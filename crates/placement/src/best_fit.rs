//! `best-fit` and `best-fit-no-coalesce`: the smallest free area that is large enough.
//!
//! Source: mail 000 (r6144, 2011), which proposes it in place of the kernel's first fit, and the
//! version of it that its author ran: `radeon/mmap_manager.cpp` of his libdrm
//! (github.com/r6144/libdrm). Free areas are keyed by size and address, so that among areas of one
//! size the lowest is taken, as in his tree; a range is cut from an area's low end, as by his `steal`,
//! unless the request asks for the top. The last area in the direction of the address space, the
//! *open-ended* one that touches the window's far end, counts as infinitely large: it is used when no
//! other area will do, and then always from its near end, even where the request asks for the other direction.
//!
//! `best-fit` joins what is freed with both neighbours. `best-fit-no-coalesce` leaves it as it is, as
//! libdrm did: it answers [`PlaceError::Exhausted`] although areas that touch would together be large
//! enough, and ignores a hint that lies in two of them. A free area that was cut is not made whole
//! again either. What is held is known in both, so that errors of `free` are exact in both.
//!
//! Cost: O(log areas) for a call without limits and without alignment above a page. Otherwise areas
//! are tried from the asked size upwards until one takes the range: O(free areas) at worst, because
//! the order of sizes says nothing of addresses. Space: one B-tree entry for each range held and two
//! for each free area. Areas free and held are in one tree, as they are side by side: a range is cut and
//! joined by changing the entry that is there.
//!
//! Left out: libdrm reserved its addresses in blocks of 64 KiB to 256 MiB as it needed them; here the
//! window is reserved at once, and its open-ended area stands for what was not reserved yet.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;

use crate::contract::{
    Direction, FreeError, Need, PlaceError, Policy, Range, Request, Space, Statistics, Work,
};

/// The key of the open-ended area: larger than all others.
const INFINITE: u64 = u64::MAX;

/// A part of the window, by its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    end: u64,
    is_free: bool,
}

/// Best fit over a tree of free areas.
#[derive(Debug, Clone)]
pub struct BestFit {
    space: Space,
    /// Whether the open-ended area is the lowest, and is used from its top.
    top_down: bool,
    coalesces: bool,
    /// Size as the policy counts it, and start, of every free area.
    by_size: BTreeSet<(u64, u64)>,
    /// Free areas and ranges held, by start: together all of the window.
    areas: BTreeMap<u64, Area>,
    work: Work,
}

impl BestFit {
    /// Bytes that an entry of a B-tree of two words takes: `alloc` does not tell its trees' capacity,
    /// so nodes of 192 bytes and 11 entries are taken to be two thirds full, and one node in eight to
    /// hold children.
    const ENTRY: u64 = 28;

    /// Joins what is freed with its neighbours. `direction` is that of the address space: with
    /// [`Direction::BottomUp`] the highest area is the open-ended one, otherwise the lowest.
    #[must_use]
    pub fn new(space: Space, direction: Direction) -> BestFit {
        BestFit::with(space, direction, true)
    }

    /// Leaves what is freed as it is. `direction` as for [`BestFit::new`].
    #[must_use]
    pub fn without_coalescing(space: Space, direction: Direction) -> BestFit {
        BestFit::with(space, direction, false)
    }

    fn with(space: Space, direction: Direction, coalesces: bool) -> BestFit {
        let window = space.window();
        let mut policy = BestFit {
            space,
            top_down: direction != Direction::BottomUp,
            coalesces,
            by_size: BTreeSet::new(),
            areas: BTreeMap::new(),
            work: Work::default(),
        };
        policy.put(window, true);
        policy.by_size.insert(policy.key(window));
        policy
    }

    fn open_ended(&self, area: Range) -> bool {
        let window = self.space.window();
        if self.top_down {
            area.start == window.start
        } else {
            area.end == window.end
        }
    }

    fn key(&self, area: Range) -> (u64, u64) {
        let size = if self.open_ended(area) {
            INFINITE
        } else {
            area.length()
        };
        (size, area.start)
    }

    /// Puts an area at its start, over one that starts there.
    fn put(&mut self, area: Range, is_free: bool) {
        let end = area.end;
        self.areas.insert(area.start, Area { end, is_free });
    }

    /// The index gets a free area.
    fn add(&mut self, area: Range) {
        self.work.propagated += 1;
        self.by_size.insert(self.key(area));
    }

    /// The index loses a free area.
    fn remove(&mut self, area: Range) {
        self.work.propagated += 1;
        self.by_size.remove(&self.key(area));
    }

    /// The free area that all of `range` lies in.
    fn around(&self, range: Range) -> Option<Range> {
        let (&start, area) = self.areas.range(..=range.start).next_back()?;
        (area.is_free && range.end <= area.end).then_some(Range::new(start, area.end))
    }

    /// The range for `need` in `area`, if it will do.
    fn cut(&self, need: &Need, area: Range) -> Option<Range> {
        if !self.open_ended(area) {
            return need.within(area);
        }
        let direction = if self.top_down {
            Direction::TopDown
        } else {
            Direction::BottomUp
        };
        Need { direction, ..*need }.within(area)
    }

    /// The area that is taken for `need`, and the range in it.
    fn best(&mut self, need: &Need) -> Option<(Range, Range)> {
        let mut visited = 0;
        let found = self
            .by_size
            .range((need.size, 0)..)
            .find_map(|&(_, start)| {
                visited += 1;
                let area = Range::new(start, self.areas.get(&start)?.end);
                Some((area, self.cut(need, area)?))
            });
        self.work.visited += visited;
        found
    }

    fn hinted(&mut self, need: &Need) -> Option<(Range, Range)> {
        let range = need.hinted(self.space)?;
        self.work.visited += 1;
        Some((self.around(range)?, range))
    }

    /// Why `range` is not one that is held.
    fn refusal(&self, range: Range) -> FreeError {
        if !self.space.holds(range) {
            return FreeError::Malformed;
        }
        let areas = self.areas.range(..range.end).rev();
        let mut touched = areas.take_while(|(_, area)| area.end > range.start);
        if touched.any(|(_, area)| !area.is_free) {
            FreeError::NotAsGiven
        } else {
            FreeError::AlreadyFree
        }
    }
}

impl Policy for BestFit {
    fn space(&self) -> Space {
        self.space
    }

    fn place(&mut self, request: &Request) -> Result<Range, PlaceError> {
        let need = self.space.need(request)?;
        let found = self.hinted(&need).or_else(|| self.best(&need));
        let (area, range) = found.ok_or(PlaceError::Exhausted)?;
        self.remove(area);
        let rests = [
            Range::new(area.start, range.start),
            Range::new(range.end, area.end),
        ];
        for rest in rests {
            if rest.start < rest.end {
                self.put(rest, true);
                self.add(rest);
            }
        }
        self.put(range, false);
        self.work.placed += 1;
        Ok(range)
    }

    fn free(&mut self, range: Range) -> Result<(), FreeError> {
        let held = Area {
            end: range.end,
            is_free: false,
        };
        if self.areas.get(&range.start) != Some(&held) {
            return Err(self.refusal(range));
        }
        let mut area = range;
        if self.coalesces {
            if let Some((&start, before)) = self.areas.range(..range.start).next_back()
                && before.is_free
            {
                self.remove(Range::new(start, range.start));
                self.areas.remove(&range.start);
                area.start = start;
            }
            if let Some(&after) = self.areas.get(&range.end)
                && after.is_free
            {
                self.remove(Range::new(range.end, after.end));
                self.areas.remove(&range.end);
                area.end = after.end;
            }
        }
        self.put(area, true);
        self.add(area);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        let window = self.space.window();
        let mut statistics = Statistics {
            memory: (self.areas.len() + self.by_size.len()) as u64 * BestFit::ENTRY,
            ..Statistics::default()
        };
        // Holes are what lies between ranges that are held: areas that touch are one hole.
        let mut last = window.start;
        let mut hole = |start: u64, end: u64| {
            statistics.holes += u64::from(end > start);
            statistics.largest_hole = statistics.largest_hole.max(end - start);
        };
        for (&start, area) in self.areas.iter().filter(|(_, area)| !area.is_free) {
            hole(last, start);
            last = area.end;
        }
        hole(last, window.end);
        for (&start, area) in self.areas.iter().filter(|(_, area)| !area.is_free) {
            statistics.ranges += 1;
            statistics.used += area.end - start;
            let first = statistics.span.map_or(start, |span| span.start);
            statistics.span = Some(Range::new(first, area.end));
        }
        statistics
    }

    fn work(&self) -> Work {
        self.work
    }

    /// The areas that are held and those that are free make up the window, without gap or overlap;
    /// free areas are keyed by their own size; where areas coalesce no two that are free touch.
    fn check(&self) -> Result<(), String> {
        let mut last = self.space.window().start;
        let (mut was_free, mut free) = (false, 0);
        for (&start, area) in &self.areas {
            let range = Range::new(start, area.end);
            if start != last || area.end <= start {
                return Err(format!("no area starts at {last:x}"));
            }
            if area.is_free && !self.by_size.contains(&self.key(range)) {
                return Err(format!("{range} is free, but not under its size"));
            }
            if self.coalesces && was_free && area.is_free {
                return Err(format!("{range} touches the free area below it"));
            }
            free += usize::from(area.is_free);
            was_free = area.is_free;
            last = area.end;
        }
        if last != self.space.window().end {
            return Err(format!("no area starts at {last:x}"));
        }
        if self.by_size.len() != free {
            return Err(format!(
                "{free} areas are free, but {} are keyed by size",
                self.by_size.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Answer, Differential, Fragments, Pair, Shape, best_fit};

    const P: u64 = 0x1000;

    fn space(pages: u64) -> Space {
        Space::new(Range::new(0x10_0000, 0x10_0000 + pages * P), P).unwrap()
    }

    /// Full most of the time, and roomy.
    const WINDOWS: [u64; 3] = [64, 256, 4096];

    #[test]
    fn it_fails_only_where_nothing_fits() {
        for (seed, pages) in WINDOWS.into_iter().enumerate() {
            for direction in [Direction::Any, Direction::BottomUp] {
                let policy = BestFit::new(space(pages), direction);
                let mut run = Differential::new(policy, Answer::Valid, Shape::ALL, seed as u64);
                run.run(6_000, 7).unwrap();
                let counts = run.counts();
                assert!(counts[1] > 500 && counts[2] > 500, "{counts:?}");
                assert!(pages > 64 || counts[0] > 500, "{counts:?}");
            }
        }
    }

    #[test]
    fn it_takes_what_its_rule_says() {
        for (seed, pages) in WINDOWS.into_iter().enumerate() {
            for (direction, rule) in [
                (Direction::TopDown, best_fit::top_down as fn(&_, &_) -> _),
                (Direction::BottomUp, best_fit::bottom_up),
            ] {
                let policy = BestFit::new(space(pages), direction);
                let answer = Answer::Rule(rule);
                let mut run = Differential::new(policy, answer, Shape::ALL, seed as u64);
                run.run(6_000, 50).unwrap();
            }
        }
    }

    #[test]
    fn without_coalescing_it_does_what_a_list_of_fragments_does() {
        for (seed, pages) in WINDOWS.into_iter().enumerate() {
            for direction in [Direction::TopDown, Direction::BottomUp] {
                let policy = BestFit::without_coalescing(space(pages), direction);
                let list = Fragments::new(space(pages), direction);
                let mut pair = Pair::new(policy, list, Shape::ALL, seed as u64).without_work();
                pair.run(20_000, 64).unwrap();
                let counts = pair.counts();
                assert!(counts.iter().all(|&n| n > 10), "{counts:?}");
            }
        }
    }

    /// ```text
    /// 0 1 2 3 4 5 6 7
    /// . . . . c b b a     as given, from the top
    /// . . . . . . . .     all freed: one area, or o o o o c b b a
    ///   * * * * *         five pages are one area's, or nobody's
    /// ```
    #[test]
    fn freed_neighbours_that_are_not_joined_exhaust_the_window() {
        for coalesces in [true, false] {
            let mut policy = BestFit::with(space(8), Direction::TopDown, coalesces);
            let given = [1, 2, 1].map(|pages| policy.place(&Request::of(pages * P)).unwrap());
            assert_eq!(given[2], Range::new(0x10_4000, 0x10_5000));
            for range in given {
                policy.free(range).unwrap();
            }
            assert_eq!(policy.statistics().largest_hole, 8 * P);
            let five = policy.place(&Request::of(5 * P));
            assert_eq!(five.is_ok(), coalesces, "{five:?}");
            policy.check().unwrap();
        }
    }

    /// ```text
    /// 0 1 2 3 4 5 6 7
    /// . . . e d . b .     a and c freed: holes of one page at 5 and 7
    /// . . . e d * b .     one page: the lower of the two, not the open-ended area
    /// . * * e d * b .     two pages: from the top of the open-ended area
    /// ```
    #[test]
    fn the_open_ended_area_is_the_last_to_be_used() {
        let mut policy = BestFit::new(space(8), Direction::Any);
        let given = [(); 5].map(|()| policy.place(&Request::of(P)).unwrap());
        policy.free(given[0]).unwrap();
        policy.free(given[2]).unwrap();
        let mut up = Request::of(2 * P);
        up.direction = Direction::BottomUp;
        assert_eq!(policy.place(&Request::of(P)).unwrap().start, 0x10_5000);
        assert_eq!(policy.place(&up).unwrap().start, 0x10_1000);
    }

    #[test]
    fn a_search_without_limits_looks_at_one_area() {
        let mut policy = BestFit::new(space(40_000), Direction::Any);
        let given: alloc::vec::Vec<Range> = (0..10_000)
            .map(|i| policy.place(&Request::of((1 + i % 4) * P)).unwrap())
            .collect();
        for &range in given.iter().step_by(2) {
            policy.free(range).unwrap();
        }
        let before = policy.work();
        for i in 0..1_000 {
            policy.place(&Request::of((1 + i % 4) * P)).unwrap();
        }
        assert_eq!(policy.work().visited - before.visited, 1_000);
        policy.check().unwrap();
    }
}
