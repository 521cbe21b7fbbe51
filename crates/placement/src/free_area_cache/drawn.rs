//! A small address space that tests draw: a character a page, `.` for a free one.

use alloc::string::String;
use alloc::vec::Vec;

use super::{FreeAreaCache, Mm, Version};
use crate::contract::{Direction, Policy, Range, Request, Space, Work};

const PAGE: u64 = 0x1000;
/// TASK_UNMAPPED_BASE is page 4.
const PAGES: u64 = 12;

/// All ones.
pub(crate) const MAX: u64 = u64::MAX;

pub(crate) struct Drawn<V> {
    policy: FreeAreaCache<V>,
    live: Vec<(char, Range)>,
}

impl<V: Version> Drawn<V> {
    /// Twelve free pages.
    pub(crate) fn new(layout: Direction) -> Drawn<V> {
        let space = Space::new(Range::new(0, PAGES * PAGE), PAGE).unwrap();
        Drawn {
            policy: FreeAreaCache::new(space, layout),
            live: Vec::new(),
        }
    }

    /// Maps each name with as many pages as it is repeated: `"ABB"` is A of one page, then B of two.
    pub(crate) fn map_all(&mut self, names: &str) {
        let names: Vec<char> = names.chars().collect();
        for same in names.chunk_by(|a, b| a == b) {
            assert!(self.map(same[0], same.len() as u64), "{}", same[0]);
        }
    }

    /// Whether there was room for `pages` pages, mapped as `name`.
    pub(crate) fn map(&mut self, name: char, pages: u64) -> bool {
        self.place(name, Request::of(pages * PAGE))
    }

    /// The same at page `hint`, if it is free.
    pub(crate) fn map_at(&mut self, name: char, pages: u64, hint: u64) -> bool {
        let hint = Some(hint * PAGE);
        let request = Request::of(pages * PAGE);
        self.place(name, Request { hint, ..request })
    }

    fn place(&mut self, name: char, request: Request) -> bool {
        let placed = self.policy.place(&request);
        self.live.extend(placed.map(|range| (name, range)));
        self.policy.check().unwrap();
        placed.is_ok()
    }

    pub(crate) fn unmap(&mut self, name: char) {
        let index = self.live.iter().position(|live| live.0 == name).unwrap();
        self.policy.free(self.live.remove(index).1).unwrap();
        self.policy.check().unwrap();
    }

    /// Draws the pages, lowest first.
    pub(crate) fn picture(&self) -> String {
        let of_page = |page| {
            let inside = |range: Range| (range.start..range.end).contains(&(page * PAGE));
            let live = self.live.iter().find(|live| inside(live.1));
            live.map_or('.', |live| live.0)
        };
        (0..PAGES).map(of_page).collect()
    }

    /// free_area_cache and cached_hole_size in pages, or [`MAX`].
    pub(crate) fn state(&self) -> (u64, u64) {
        let mm: &Mm = self.policy.mm();
        let hole = match mm.cached_hole_size() {
            MAX => MAX,
            bytes => bytes / PAGE,
        };
        (mm.free_area_cache() / PAGE, hole)
    }

    /// VMAs visited, resets and full scans of what `act` does.
    pub(crate) fn work_of(&mut self, act: impl FnOnce(&mut Drawn<V>)) -> [u64; 3] {
        let of = |work: Work| [work.visited, work.resets, work.full_scans];
        let before = of(self.policy.work());
        act(self);
        let after = of(self.policy.work());
        [0, 1, 2].map(|i| after[i] - before[i])
    }
}
