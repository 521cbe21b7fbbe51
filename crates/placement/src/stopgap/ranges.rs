//! Ranges held, by address, and ranges that are divided.

use crate::contract::Range;

use super::Stopgap;
use super::map::Start;

/// The range or hole at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A range that was placed, or a part that [`Stopgap::split`] made of one, and that is not freed.
    Held(Range),
    /// Free addresses. Those on either side may be free as well.
    Free(Range),
}

impl Stopgap {
    /// Returns what lies at `address`; `None` outside the window. Constant, but for a descent through at most 6 levels.
    pub fn extent(&mut self, address: u64) -> Option<Extent> {
        let window = self.space.window();
        if address < window.start || window.end <= address {
            return None;
        }
        let page = self.page_of(address);
        let victim = self.map.victim;
        if victim.start <= page && page < victim.end {
            return Some(Extent::Free(self.range(victim.start, victim.pages())));
        }
        // From here on there is a boundary at or before each page.
        let (start, at) = self.map.previous(page + 1)?;
        let pages = self.map.length(at);
        let range = self.range(start, pages);
        let held = self.map.start(at) == Some(Start::Range) && !self.keeps(pages, start);
        Some(if held {
            Extent::Held(range)
        } else {
            Extent::Free(range)
        })
    }

    /// Divides a range that is held at `address`. Each part is freed as any other range. Returns
    /// `false`, and changes nothing, where `address` is no page's, lies in no range held, or at the start of one.
    ///
    /// Callers that stand in for munmap(2) need this, because munmap may unmap any part of a map.
    pub fn split(&mut self, address: u64) -> bool {
        let Some(Extent::Held(range)) = self.extent(address) else {
            return false;
        };
        let within = range.start < address
            && address.is_multiple_of(self.space.page())
            && !self.map.is_full();
        if within {
            let [start, page, end] = [range.start, address, range.end].map(|at| self.page_of(at));
            self.map.divide(start, page, end);
        }
        within
    }

    /// Returns whether a magazine has the range: to the map it is held.
    fn keeps(&self, pages: u64, start: u64) -> bool {
        let bottom = self.bottom.as_ref();
        self.magazines.holds(pages, start)
            || bottom.is_some_and(|bottom| bottom.holds(pages, start))
    }

    /// The ranges held, by address. Copies everything first and walks it.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        // The map has what magazines keep as held; a copy's map is given it.
        let mut copy = self.clone();
        copy.flush();
        let mut boundaries = copy.map.boundaries().into_iter().peekable();
        core::iter::from_fn(move || {
            let (start, what) = boundaries.next()?;
            // The last boundary is the end of the map.
            let &(end, _) = boundaries.peek()?;
            Some((start, end, what))
        })
        .filter(|(_, _, what)| *what == Start::Range)
        .map(|(start, end, _)| self.range(start, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Policy, Request, Space};
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    /// Some ranges over several tiles, every third one freed, so that magazines keep some of them.
    #[test]
    fn the_ranges_are_those_given_and_not_freed() {
        let space = Space::new(Range::new(0x7000, 0x4000_0000), 0x1000).unwrap();
        let mut stopgap = Stopgap::new(space);
        let sizes = (0..900).map(|i| 1 + (i * 37) % 0x2_5000);
        let mut held: Vec<Range> = sizes
            .map(|size| stopgap.place(&Request::of(size)).unwrap())
            .collect();
        let mut count = 0;
        held.retain(|&range| {
            count += 1;
            count % 3 != 0 || stopgap.free(range) != Ok(())
        });
        held.sort_unstable();
        assert_eq!(held.len(), 600);
        assert!(stopgap.ranges().eq(held));
    }

    /// splitmix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.0;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ (word >> 31)) % bound
        }
    }

    /// What `stopgap` says of every page of a window, in order, joined where both sides are free.
    fn extents(stopgap: &mut Stopgap) -> Vec<Extent> {
        let window = stopgap.space().window();
        let mut found: Vec<Extent> = Vec::new();
        let mut at = window.start;
        while let Some(extent) = stopgap.extent(at) {
            let (Extent::Held(range) | Extent::Free(range)) = extent;
            assert_eq!(range.start, at);
            assert_eq!(stopgap.extent(range.end - 1), Some(extent));
            at = range.end;
            match (found.last_mut(), extent) {
                (Some(Extent::Free(before)), Extent::Free(after)) => before.end = after.end,
                _ => found.push(extent),
            }
        }
        assert_eq!(at, window.end);
        found
    }

    /// Random places, splits and frees against a list of ranges, in windows of less than a leaf to several tiles.
    #[test]
    fn ranges_are_divided_and_freed_part_by_part() {
        let page = 0x1000_u64;
        let huge = 512 * page;
        for (seed, pages, longest) in [
            (1, 60, 9),
            (2, 700, 40),
            (3, 30_000, 3_000),
            (4, 30_000, 90),
            (5, 1 << 24, 1_500),
            (6, 200_000, 1_500),
        ] {
            let window = Range::new(0x7000, 0x7000 + pages * page);
            let mut stopgap = Stopgap::new(Space::new(window, page).unwrap());
            let mut random = Random(seed);
            // Start and end of each range held.
            let mut held: BTreeMap<u64, u64> = BTreeMap::new();
            for step in 0..4_000 {
                let address = window.start + random.below(pages) * page;
                let before = held.range(..=address).next_back();
                let range = before.map(|(&start, &end)| Range::new(start, end));
                let range = range.filter(|range| address < range.end);
                match random.below(3) {
                    0 => {
                        let size = (1 + random.below(longest)) * page;
                        // As the kernel does it with huge pages.
                        let alignment = if size >= huge { huge } else { 1 };
                        let hint = (random.below(4) == 0).then_some(address);
                        let request = Request {
                            alignment,
                            hint,
                            ..Request::of(size)
                        };
                        if let Ok(range) = stopgap.place(&request) {
                            let above = held.range(range.start..).next();
                            assert!(above.is_none_or(|(&start, _)| range.end <= start));
                            let below = held.range(..range.start).next_back();
                            assert!(below.is_none_or(|(_, &end)| end <= range.start));
                            assert_eq!(range.start % alignment, 0);
                            held.insert(range.start, range.end);
                        }
                    }
                    1 => {
                        let inside = range.is_some_and(|range| range.start < address);
                        assert_eq!(stopgap.split(address), inside, "seed {seed}, step {step}");
                        assert!(!stopgap.split(address + 1));
                        if inside && let Some(range) = range {
                            held.insert(range.start, address);
                            held.insert(address, range.end);
                        }
                    }
                    _ => {
                        if let Some(range) = range {
                            assert_eq!(stopgap.free(range), Ok(()), "seed {seed}, step {step}");
                            held.remove(&range.start);
                        }
                    }
                }
                if step % 16 == 0 {
                    stopgap
                        .check()
                        .unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"));
                    let mut expected = Vec::new();
                    let mut at = window.start;
                    for (&start, &end) in &held {
                        if at < start {
                            expected.push(Extent::Free(Range::new(at, start)));
                        }
                        expected.push(Extent::Held(Range::new(start, end)));
                        at = end;
                    }
                    if at < window.end {
                        expected.push(Extent::Free(Range::new(at, window.end)));
                    }
                    assert_eq!(extents(&mut stopgap), expected, "seed {seed}, step {step}");
                }
            }
            assert_eq!(stopgap.extent(window.start - 1), None);
            assert_eq!(stopgap.extent(window.end), None);
        }
    }
}
