//! Generations instead of active and inactive lists. **Not validated against a live kernel.**
//!
//! **Contract.** At most four generations of each type, of which the oldest is scanned; with two left, a new one is
//! begun (*aging*). A page that was used, or that somebody holds, goes to the youngest: a held page is met once a
//! generation, and not at each turn of its list. Which type is scanned, the rate of pages that come back says.
//!
//! **Lineage.** mm/vmscan.c, 6.12: `lru_gen_shrink_lruvec()`, `evict_folios()`, `isolate_folios()`, `scan_folios()`,
//! `inc_max_seq()`, `try_to_inc_min_seq()`. Left out: tiers (how often a page was read), walks of page tables and the Bloom
//! filter, aging ahead of need, refaults of swap, per-node lists of groups.

use super::classic::PRIORITY;
use super::memory::{By, Memory};
use super::meter::Cause;
use super::pages::{GENERATIONS, Kind, ListId, Pages};

/// `MAX_NR_GENS`.
const MOST: u64 = 4;
/// `MIN_NR_GENS`.
const LEAST: u64 = 2;
/// `MAX_LRU_BATCH`, `MIN_LRU_BATCH`.
const BATCH: u64 = 64;

/// See the module. Index 0: anonymous; 1: file.
#[derive(Debug, Clone)]
pub(super) struct Generations {
    max: u64,
    min: [u64; 2],
    refaulted: [u64; 2],
    evicted: [u64; 2],
}

impl Generations {
    /// Four, all empty.
    pub(super) fn new() -> Generations {
        Generations {
            max: LEAST + 1,
            min: [0; 2],
            refaulted: [0; 2],
            evicted: [0; 2],
        }
    }

    fn list(generation: u64, file: usize) -> ListId {
        GENERATIONS + ((generation % MOST) * 2) as ListId + file as ListId
    }

    fn count(&self, file: usize) -> u64 {
        self.max - self.min[file] + 1
    }

    /// Where a page goes: a used one to the youngest, an anonymous one to the next, a file's to the second oldest.
    pub(super) fn place(&self, kind: Kind, active: bool) -> ListId {
        let file = kind.file();
        let generation = match kind {
            Kind::Anon => self.max,
            _ if active => self.max,
            Kind::Shmem => self.max - 1,
            Kind::File if self.min[1] + LEAST >= self.max => self.min[1],
            Kind::File => self.min[1] + 1,
        };
        Generations::list(generation, file)
    }

    /// Pages of each type.
    pub(super) fn sizes(&self, pages: &Pages) -> [u64; 2] {
        [0, 1].map(|file| {
            let all = self.min[file]..=self.max;
            all.map(|generation| pages.len(Generations::list(generation, file)))
                .sum()
        })
    }

    /// So many file pages came back.
    pub(super) fn refaulted(&mut self, pages: u64) {
        self.refaulted[1] += pages;
    }

    /// `get_type_to_scan()`.
    fn file_first(&self, swappiness: u64) -> bool {
        let gain = [swappiness, 200 - swappiness];
        let rate = |file: usize| (self.refaulted[file], self.evicted[file], gain[file]);
        let ((anon, of_anon, anon_gain), (file, of_file, file_gain)) = (rate(0), rate(1));
        file < BATCH || file * of_anon.max(BATCH) * anon_gain <= (anon + 1) * of_file * file_gain
    }
}

impl Memory {
    pub(super) fn reclaim_generations(&mut self, want: u64, by: By) -> u64 {
        let mut got = 0;
        for priority in (0..=PRIORITY).rev() {
            let mut left = (self.sizes().iter().sum::<u64>() >> priority).max(BATCH);
            while left > 0 && got < want {
                if self.out_of_generations() {
                    self.new_generation();
                }
                let (scanned, gone) = self.evict_batch();
                self.meter.resched();
                if scanned == 0 {
                    break;
                }
                left = left.saturating_sub(scanned);
                got += gone;
            }
            got += self.shrink_driver(priority, by);
            if got >= want {
                break;
            }
        }
        got
    }

    fn scannable(&self) -> &'static [usize] {
        if self.swappable() && self.setting.swappiness > 0 {
            &[0, 1]
        } else {
            &[1]
        }
    }

    fn out_of_generations(&self) -> bool {
        let generations = &self.generations;
        let oldest = self
            .scannable()
            .iter()
            .map(|&file| generations.min[file])
            .min();
        oldest.is_some_and(|oldest| oldest + LEAST > generations.max)
    }

    /// `inc_max_seq()`: what is in the oldest of four joins the next.
    fn new_generation(&mut self) {
        for file in [0, 1] {
            if self.generations.count(file) == MOST {
                let oldest = self.generations.min[file];
                let [from, to] = [oldest, oldest + 1].map(|g| Generations::list(g, file));
                let moved = self.pages.len(from);
                // Behind the oldest of the next: they stay the first to be scanned.
                self.pages.append(from, to);
                self.meter
                    .spend(Cause::Moved, moved * self.prices.deactivate);
                self.generations.min[file] += 1;
            }
            self.generations.refaulted[file] /= 2;
            self.generations.evicted[file] /= 2;
        }
        self.generations.max += 1;
    }

    /// Empty oldest generations end, down to two; those of files not before those of anonymous pages.
    fn retire(&mut self) {
        let anon = self.scannable().len() == 2;
        for file in [0, 1] {
            let empty = |memory: &Memory| {
                let oldest = Generations::list(memory.generations.min[file], file);
                memory.generations.count(file) > LEAST && memory.pages.len(oldest) == 0
            };
            let ahead = |memory: &Memory| {
                anon && file == 0 && memory.generations.min[0] >= memory.generations.min[1]
            };
            while empty(self) && !ahead(self) {
                self.generations.min[file] += 1;
            }
        }
    }

    /// Scans up to 64 pages of the oldest generation of a type: how many, and how many went.
    fn evict_batch(&mut self) -> (u64, u64) {
        self.retire();
        let generations = &self.generations;
        let file_first = match self.scannable() {
            [_] => true,
            _ if generations.min[0] < generations.min[1] => false,
            _ => generations.file_first(self.setting.swappiness),
        };
        let order: &[usize] = match (self.scannable().len(), file_first) {
            (1, _) => &[1],
            (_, true) => &[1, 0],
            (_, false) => &[0, 1],
        };
        for &file in order {
            if self.generations.count(file) == LEAST {
                continue;
            }
            let from = Generations::list(self.generations.min[file], file);
            let count = self.pages.len(from).min(BATCH);
            if count > 0 {
                let gone = self.evict_from(from, file, count);
                self.retire();
                return (count, gone);
            }
        }
        // Nothing is old enough: the next turn begins a generation.
        if self.sizes().iter().sum::<u64>() > 0 && !self.out_of_generations() {
            self.new_generation();
            return (1, 0);
        }
        (0, 0)
    }

    fn evict_from(&mut self, from: ListId, file: usize, count: u64) -> u64 {
        let youngest = Generations::list(self.generations.max, file);
        let (mut gone, mut scanned, mut folios) = (0, 0, 0);
        while scanned < count {
            let Some(id) = self.pages.tail(from) else {
                break;
            };
            let size = u64::from(self.pages.get(id).size);
            scanned += size;
            folios += 1;
            if self.cull(id) {
                continue;
            }
            let page = self.pages.get_mut(id);
            let used = std::mem::take(&mut page.young);
            let full = page.kind != Kind::File && self.swap == 0;
            if used || page.pinned || full {
                self.pages.move_to(id, youngest);
                self.meter.spend(Cause::Kept, self.prices.kept);
            } else {
                self.generations.evicted[file] += size;
                self.evict(id);
                gone += size;
            }
        }
        self.count_scanned(file, scanned, folios);
        gone
    }
}
