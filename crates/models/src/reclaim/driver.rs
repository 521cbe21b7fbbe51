//! A driver's objects: taken, held, dropped, released; and the shrinker that gives them back.
//!
//! **Contract.** An object that is used has all its pages, held by [`Setting::policy`]. [`Memory::shrink_driver`] is the
//! shrinker: objects that nobody needs any more (*purgeable*, DONTNEED) first, then unused ones, and, asked by kswapd,
//! used ones. Releasing walks the object's pages and moves them back to the lists in the way of [`Setting::release`].
//!
//! **Lineage.** drivers/gpu/drm/i915: `i915_gem_object_put_pages_gtt()`, `i915_gem_shrink()`,
//! `i915_gem_shrinker_scan()` (4.19 to 6.12); `do_shrink_slab()` (mm/vmscan.c) for how much it is asked; mail 004;
//! `check_move_unevictable_folios()`, `shmem_unlock_mapping()`. Left out: what a GPU has still to do, writeback of what is
//! unused, framebuffers. In 2018 one lock protects all of it, and tasks wait for that lock. Left out as well: whoever needs the
//! lock spins for it, while its holder may not run because a thread of the highest priority has its CPU.

use super::memory::{By, Memory, OutOfMemory};
use super::meter::Cause;
use super::pages::{Kind, NONE, Owner, PageId, UNEVICTABLE};
use super::setting::{OBJECT, PAGE, Policy, Release};

/// Pages of an object.
pub(super) const OBJECT_PAGES: u32 = (OBJECT.0 / PAGE) as u32;
/// Pages that one hold of the LRU lock moves back: `PAGEVEC_SIZE`.
const PAGEVEC: u64 = 15;
/// `DEFAULT_SEEKS`.
const SEEKS: u64 = 2;

/// Use of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In use: its pages must stay.
    Used,
    /// In use for as long as the load runs (a GPU's queue): the shrinker skips it.
    Busy,
    /// Not in use: its pages are still held, until the shrinker releases them.
    Unused,
    /// Nobody needs what is in it.
    Purgeable,
    /// Released: its pages are like any others.
    Released,
    /// It has no pages any more.
    Gone,
}

#[derive(Debug, Clone)]
struct Object {
    state: State,
    marked: bool,
    pages: Vec<PageId>,
}

/// The objects, by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Driver {
    objects: Vec<Object>,
    /// All before this one are released.
    first: usize,
    /// Pages of objects by [`State`].
    pages: [u64; 6],
    /// Requests that the shrinker has not done yet.
    deferred: u64,
    /// When the lock is free.
    lock_free: u64,
}

impl Driver {
    /// Whether the object's mapping is marked.
    pub(super) fn marked(&self, object: u32) -> bool {
        self.objects[object as usize].marked
    }

    /// A page of a released object went to swap.
    pub(super) fn lost(&mut self, object: u32, slot: u32) {
        self.objects[object as usize].pages[slot as usize] = NONE;
    }

    fn set(&mut self, object: usize, state: State) {
        let pages = self.objects[object].pages.len() as u64;
        let before = std::mem::replace(&mut self.objects[object].state, state);
        self.pages[before as usize] -= pages;
        self.pages[state as usize] += pages;
        let done = |object: &Object| matches!(object.state, State::Released | State::Gone);
        while self.objects.get(self.first).is_some_and(done) {
            self.first += 1;
        }
    }
}

impl Memory {
    /// An empty object.
    pub(super) fn new_object(&mut self) -> u32 {
        let marked = self.setting.policy == Policy::Mapping;
        if marked {
            self.meter.spend(Cause::Pin, self.prices.mark);
        }
        self.driver.objects.push(Object {
            state: State::Used,
            marked,
            pages: Vec::with_capacity(OBJECT_PAGES as usize),
        });
        // A run makes far fewer than 2^32: each takes at least 4,096 steps.

        (self.driver.objects.len() - 1) as u32
    }

    /// Brings up to `count` pages into `object`; whether it is full.
    pub(super) fn fill(&mut self, object: u32, count: u32) -> Result<bool, OutOfMemory> {
        let policy = self.setting.policy;
        let has = |memory: &Memory| memory.driver.objects[object as usize].pages.len();
        for _ in 0..count {
            self.meter.resched(); // since 5.0; before that nobody else ran until the object was full
            let slot = has(self) as u32;
            if slot == OBJECT_PAGES {
                break;
            }
            // First without reclaim, then at the cost of other objects, then by reclaim.
            if self.machine() && !self.plenty(1) {
                self.shrink(2 * u64::from(OBJECT_PAGES), By::Task);
            }
            let owner = Owner::Object { object, slot };
            let id = self.take(Kind::Shmem, owner, policy == Policy::Mapping)?;
            let page = self.pages.get_mut(id);
            page.pinned = true;
            let mut ns = self.prices.pin;
            if policy == Policy::Mlock {
                page.locked = true;
                self.pages.move_to(id, UNEVICTABLE);
                self.meter.irq_off(self.prices.list);
                ns += self.prices.lock;
            }
            self.meter.spend(Cause::Populate, self.prices.fill);
            self.meter.spend(Cause::Pin, ns);
            self.driver.objects[object as usize].pages.push(id);
            self.driver.pages[State::Used as usize] += 1;
        }
        let full = has(self) == OBJECT_PAGES as usize;
        if full {
            self.filled(object);
        }
        Ok(full)
    }

    /// Nothing more comes into `object`: where it is marked late, it is marked now.
    pub(super) fn filled(&mut self, object: u32) {
        let object = &mut self.driver.objects[object as usize];
        if self.setting.policy == Policy::MappingLate && !object.marked {
            object.marked = true;
            self.meter.spend(Cause::Pin, self.prices.mark);
        }
    }

    /// All objects so far stay in use.
    pub(super) fn keep_busy(&mut self) {
        for object in 0..self.driver.objects.len() {
            self.driver.set(object, State::Busy);
        }
    }

    /// Pages that must stay, on whichever list.
    pub(super) fn held(&self) -> u64 {
        let of = |state: State| self.driver.pages[state as usize];
        of(State::Used) + of(State::Busy) + of(State::Unused) + of(State::Purgeable)
    }

    /// It is not in use now; it is held until the shrinker comes.
    pub(super) fn unuse_object(&mut self, object: u32) {
        self.driver.set(object as usize, State::Unused);
    }

    /// Nobody needs what is in it (DONTNEED). What the shrinker released before goes at once.
    pub(super) fn drop_object(&mut self, object: u32) {
        let object = object as usize;
        if self.driver.objects[object].state == State::Released {
            self.purge(object);
        } else {
            self.driver.set(object, State::Purgeable);
        }
    }

    /// These are not held any more; their pages stay.
    #[cfg(test)]
    pub(super) fn free_objects(&mut self, objects: std::ops::Range<u32>) {
        for object in objects {
            self.release(object as usize);
        }
    }

    /// Gives up all that is held, object by object.
    pub(super) fn release_all(&mut self) {
        for object in self.driver.first..self.driver.objects.len() {
            if !matches!(
                self.driver.objects[object].state,
                State::Released | State::Gone
            ) {
                self.release(object);
                self.meter.resched();
            }
        }
    }

    /// The shrinker as reclaim calls it at `priority`: pages that it gave back.
    pub(super) fn shrink_driver(&mut self, priority: u32, by: By) -> u64 {
        let can = self.driver.pages[State::Purgeable as usize]
            + self.driver.pages[State::Unused as usize];
        if !self.machine() || can == 0 {
            return 0;
        }
        let batch = 2 * u64::from(OBJECT_PAGES);
        let mut todo = self.driver.deferred + ((can >> priority) * 4 / SEEKS);
        todo = todo.min(2 * can);
        let mut freed = 0;
        while todo >= batch || todo >= can {
            let asked = todo.min(batch);
            let got = self.shrink(asked, by);
            freed += got;
            todo -= asked;
            self.meter.resched();
            if got == 0 || todo == 0 {
                break;
            }
        }
        self.driver.deferred = todo;
        freed
    }

    /// `i915_gem_shrink()`: releases objects until `want` pages are. Pages of purged objects are free, others are on
    /// the lists again.
    fn shrink(&mut self, want: u64, by: By) -> u64 {
        let wait = self.driver.lock_free.saturating_sub(self.meter.now);
        if wait > 0 {
            // It spins, until somebody else wants the CPU.
            self.meter.resched();
            self.meter.spend(Cause::DriverLock, wait);
        }
        let mut states = vec![State::Purgeable, State::Unused];
        if by == By::Kswapd {
            states.push(State::Used);
        }
        let (mut seen, mut freed) = (0, 0);
        for state in states {
            for object in self.driver.first..self.driver.objects.len() {
                if seen >= want {
                    break;
                }
                if self.driver.objects[object].state == state {
                    let pages = self.driver.objects[object].pages.len() as u64;
                    if pages == 0 || (state == State::Used && pages < u64::from(OBJECT_PAGES)) {
                        continue; // it is being filled
                    }
                    seen += pages;
                    self.release(object);
                    if state == State::Purgeable {
                        freed += self.purge(object);
                    }
                }
            }
        }
        self.driver.lock_free = self.meter.now;
        self.counts.shrunk += freed;
        freed
    }

    /// The object's pages are held no longer.
    fn release(&mut self, object: usize) {
        let pages = self.driver.objects[object].pages.clone();
        let count = pages.len() as u64;
        let prices = self.prices;
        let list = Memory::place(Kind::Shmem, false);
        self.driver.objects[object].marked = false;
        self.driver.set(object, State::Released);
        for &id in &pages {
            let page = self.pages.get_mut(id);
            page.pinned = false;
            page.locked = false;
            if page.list() == UNEVICTABLE {
                self.pages.move_to(id, list);
            }
        }
        let batches = |count: u64| {
            let whole = count / PAGEVEC;
            (0..whole)
                .map(|_| PAGEVEC)
                .chain((!count.is_multiple_of(PAGEVEC)).then_some(count % PAGEVEC))
        };
        match (self.setting.policy, self.setting.release) {
            (Policy::None | Policy::Held, _) => {
                self.meter.spend(Cause::Release, count * prices.unpin);
            }
            (Policy::Mlock, _) | (Policy::Mapping | Policy::MappingLate, Release::Single) => {
                self.meter.irq_off(prices.list);
                self.meter
                    .spend(Cause::Release, count * (prices.unlock + prices.unpin));
            }
            (_, Release::SecondPass) => {
                for batch in batches(count) {
                    self.meter.irq_off(batch * (prices.move_back));
                    let ns = batch * (prices.walk + prices.move_back);
                    self.meter.spend(Cause::SecondPass, ns);
                    // shmem_unlock_mapping() lets others run; the driver's lock stays taken.
                    self.meter.resched();
                }
                self.meter.spend(Cause::Release, count * prices.unpin);
            }
            (_, release @ (Release::Batch | Release::BatchResched)) => {
                for batch in batches(count) {
                    self.meter.irq_off(batch * prices.move_back);
                    self.meter
                        .spend(Cause::Release, batch * (prices.move_back + prices.unpin));
                    if release == Release::BatchResched {
                        self.meter.resched();
                    }
                }
            }
        }
    }

    /// Frees a released object's pages: how many.
    fn purge(&mut self, object: usize) -> u64 {
        self.driver.set(object, State::Gone);
        let pages = std::mem::take(&mut self.driver.objects[object].pages);
        self.driver.pages[State::Gone as usize] -= pages.len() as u64;
        let mut freed = 0;
        for id in pages {
            if id == NONE {
                self.swap += 1;
                continue;
            }
            self.pages.remove(id);
            self.meter.spend(Cause::Release, self.prices.purge);
            freed += 1;
            if freed % PAGEVEC == 0 {
                self.meter.resched(); // shmem_undo_range()
            }
        }
        freed
    }
}
