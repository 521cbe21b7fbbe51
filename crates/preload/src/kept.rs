//! Freed maps that wait, with their pages, for the next request of their size.
//!
//! Bounded in bytes that are resident and in number; the oldest goes first.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::PAGE;
use crate::room::Span;

/// Runs of resident pages that are remembered of one map.
pub(crate) const RUNS: usize = 4;

/// Which pages of a kept map hold something: runs of pages from its start. All others are as the kernel makes them:
/// zero.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runs {
    runs: [(u32, u32); RUNS],
    count: usize,
}

impl Runs {
    /// Makes runs of the bytes of mincore(2). The last run includes gaps that there is no room for.
    pub(crate) fn of(pages: &[u8]) -> Runs {
        let mut runs = Runs::default();
        let mut next = 0;
        while let Some(skip) = pages[next..].iter().position(|page| page & 1 != 0) {
            let start = next + skip;
            let long = pages[start..].iter().position(|page| page & 1 == 0);
            next = start + long.unwrap_or(pages.len() - start);
            runs.push(start as u32, next as u32);
            if next == pages.len() {
                break;
            }
        }
        runs
    }

    fn push(&mut self, start: u32, end: u32) {
        if self.count < RUNS {
            self.runs[self.count] = (start, end);
            self.count += 1;
        } else {
            self.runs[RUNS - 1].1 = end;
        }
    }

    /// In pages from the start: the first, and the first that is no more of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = self.runs[..self.count].iter();
        all.map(|(start, end)| (*start as usize, *end as usize))
    }

    pub(crate) fn pages(&self) -> usize {
        self.iter().map(|(start, end)| end - start).sum()
    }
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Map {
    pub(crate) span: Span,
    pub(crate) runs: Runs,
    stamp: u64,
}

/// See the module.
pub(crate) struct Kept {
    by_pages: BTreeMap<usize, VecDeque<Map>>,
    stamp: u64,
    pages: usize,
    count: usize,
    /// Most resident pages that wait.
    most_pages: usize,
}

/// Most maps that wait: each may cost two VMAs.
const MOST: usize = 1024;

impl Kept {
    /// Returns an empty store that may keep nothing yet.
    pub(crate) const fn new() -> Kept {
        Kept {
            by_pages: BTreeMap::new(),
            stamp: 0,
            pages: 0,
            count: 0,
            most_pages: 0,
        }
    }

    /// Allows so many bytes of resident pages.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.most_pages = bytes / PAGE;
    }

    /// The one that was kept last, of so many pages.
    pub(crate) fn pop(&mut self, pages: usize) -> Option<Map> {
        let map = self.by_pages.get_mut(&pages)?.pop_back()?;
        self.pages -= map.runs.pages();
        self.count -= 1;
        Some(map)
    }

    /// Keeps one.
    pub(crate) fn push(&mut self, span: Span, runs: Runs) {
        self.stamp += 1;
        let map = Map {
            span,
            runs,
            stamp: self.stamp,
        };
        self.pages += runs.pages();
        self.count += 1;
        let list = self.by_pages.entry(span.length() / PAGE).or_default();
        list.push_back(map);
    }

    /// The oldest, where there are more than may be.
    pub(crate) fn too_many(&mut self) -> Option<Map> {
        (self.pages > self.most_pages || self.count > MOST)
            .then(|| self.oldest())
            .flatten()
    }

    /// The oldest of all.
    pub(crate) fn oldest(&mut self) -> Option<Map> {
        let firsts = self
            .by_pages
            .iter()
            .filter_map(|(pages, maps)| Some((maps.front()?.stamp, *pages)));
        let (_, pages) = firsts.min()?;
        let map = self.by_pages.get_mut(&pages)?.pop_front()?;
        self.pages -= map.runs.pages();
        self.count -= 1;
        Some(map)
    }

    /// Takes out all that share an address with `span`.
    pub(crate) fn remove(&mut self, span: Span) -> Vec<Map> {
        let mut removed = Vec::new();
        if self.count == 0 {
            return removed;
        }
        for maps in self.by_pages.values_mut() {
            maps.retain(|map| {
                let stays = !map.span.overlaps(span);
                if !stays {
                    removed.push(*map);
                }
                stays
            });
        }
        for map in &removed {
            self.pages -= map.runs.pages();
            self.count -= 1;
        }
        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
