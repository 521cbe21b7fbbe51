//! The memory that is short: pages come, are used, and go.
//!
//! **Contract.** [`Memory::take`] gives a page or says that memory is out; before that it reclaims, in the time of the
//! task whose clock [`Meter::now`] is. Pages used never exceed the limit. A page that goes tells its owner.
//!
//! **Lineage.** `try_charge_memcg()` (mm/memcontrol.c, 6.12) for a group: 16 attempts without progress, then out of
//! memory. `__alloc_pages_slowpath()` and `balance_pgdat()` for a machine: below the low mark kswapd is woken, at the
//! lowest each task reclaims for itself. Left out: charging ahead by 64 pages, zones,
//! compaction.

use stopgap_events::reclaim::Load;

use super::balance::Balance;
use super::driver::Driver;
use super::meter::{Cause, Meter};
use super::pages::{
    ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE, Kind, ListId, NONE, Owner, Page,
    PageId, Pages, UNEVICTABLE,
};
use super::prices::Prices;
use super::seen::Seen;
use super::setting::{BLOCK, Kernel, PAGE, Policy, Setting};
use super::workingset::{Shadow, Sizes, WorkingSet};

/// Pages that one call of reclaim wants: `SWAP_CLUSTER_MAX`.
pub(super) const BATCH: u64 = 32;
/// Calls of reclaim that free nothing before memory is out: `MAX_RECLAIM_RETRIES`.
const ATTEMPTS: u32 = 16;
/// The same for a page that is only read ahead.
const READ_AHEAD_ATTEMPTS: u32 = 2;
/// Single pages that a step reads.
const SINGLES: u32 = 32;

/// The reclaiming task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The task that needs memory.
    Task,
    /// kswapd.
    Kswapd,
}

/// No page could be reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfMemory;

/// Counts of reclaim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) scanned: u64,
    pub(super) scanned_anon: u64,
    pub(super) reclaimed: u64,
    pub(super) written: u64,
    pub(super) culled: u64,
    pub(super) read: u64,
    pub(super) shrunk: u64,
    pub(super) reclaim_ns: u64,
}

/// A machine's marks, in free pages.
#[derive(Debug, Clone, Copy)]
struct Marks {
    min: u64,
    low: u64,
    high: u64,
}

/// A stretch of the file that is read round and round, of which reading ahead makes one folio if it can.
#[derive(Debug, Clone)]
struct Place {
    /// Pages of the folio.
    size: u32,
    /// The folio; or each of its pages, where they were read one by one.
    parts: Vec<Part>,
}

/// A page in memory, or the shadow of an evicted one.
#[derive(Debug, Clone, Copy)]
struct Part {
    page: PageId,
    shadow: Option<Shadow>,
}

/// See the module.
pub(super) struct Memory {
    pub(super) setting: Setting,
    pub(super) prices: Prices,
    pub(super) pages: Pages,
    pub(super) meter: Meter,
    pub(super) counts: Counts,
    pub(super) balance: Balance,
    pub(super) working: WorkingSet,
    pub(super) driver: Driver,
    /// Free places in swap.
    pub(super) swap: u64,
    /// Pages that became active as they were read again; and as many of them as reclaim knew of when it last ended.
    pub(super) activated: u64,
    pub(super) activated_before: u64,
    pub(super) seen: Seen,
    /// By how much the summing up of statistics is ahead of the load's beginning.
    pub(super) phase: u64,
    /// Whether kswapd has been woken.
    pub(super) kswapd: bool,
    /// When reclaim was first needed.
    pub(super) first_reclaim: Option<u64>,
    limit: u64,
    marks: Option<Marks>,
    file: Vec<Place>,
    blocks: Vec<Vec<PageId>>,
}

impl Memory {
    /// Empty memory, and so many blocks to populate.
    pub(super) fn new(setting: &Setting, prices: &Prices, blocks: usize) -> Memory {
        let machine = setting.load == Load::GemSyslatency;
        let less = match setting.policy {
            Policy::None if !machine => setting.pinned.0,
            _ => 0,
        };
        let limit = (setting.limit.0 - less) / PAGE;
        // `__setup_per_zone_wmarks()`: 4 * sqrt(KiB of memory) KiB; low and high a quarter more each.
        let min = (limit * (PAGE >> 10) * 16).isqrt() / (PAGE >> 10);
        let marks = machine.then_some(Marks {
            min,
            low: min + min / 4,
            high: min + min / 2,
        });
        let looped = matches!(
            setting.load,
            Load::Refault | Load::Mixed | Load::GemSyslatency
        );
        let file = if looped { setting.folios() } else { Vec::new() };
        let place = |size| Place {
            size,
            parts: vec![Part {
                page: NONE,
                shadow: None,
            }],
        };
        let block = (BLOCK.0 / PAGE) as usize;
        Memory {
            setting: *setting,
            prices: *prices,
            pages: Pages::new(),
            meter: Meter::default(),
            counts: Counts::default(),
            balance: Balance::new(setting.kernel),
            working: WorkingSet::default(),
            driver: Driver::default(),
            swap: setting.swap.0 / PAGE,
            activated: 0,
            activated_before: 0,
            seen: Seen::default(),
            phase: 0,
            kswapd: false,
            first_reclaim: None,
            limit,
            marks,
            file: file.into_iter().map(place).collect(),
            blocks: vec![vec![NONE; block]; blocks],
        }
    }

    /// Whether this is a machine, with kswapd and a driver that shrinks, and not a group.
    pub(super) fn machine(&self) -> bool {
        self.marks.is_some()
    }

    /// Pages that no limit forbids.
    pub(super) fn free(&self) -> u64 {
        self.limit - self.pages.used()
    }

    /// `file_is_tiny`: a machine whose file pages would not bring it above the high mark looks only at anonymous ones.
    pub(super) fn file_is_tiny(&self) -> bool {
        let file = self.sizes()[1];
        self.marks
            .is_some_and(|marks| file + self.free() <= marks.high)
    }

    /// Whether kswapd has done enough.
    pub(super) fn balanced(&self) -> bool {
        self.marks.is_none_or(|marks| self.free() >= marks.high)
    }

    /// Whether `pages` are free beyond what kswapd keeps.
    pub(super) fn room_for(&self, pages: u64) -> bool {
        self.free() >= self.marks.map_or(0, |marks| marks.high) + pages
    }

    /// Whether so many pages can be had without reclaiming first.
    pub(super) fn plenty(&self, pages: u64) -> bool {
        self.free() >= self.marks.map_or(0, |marks| marks.min) + pages
    }

    /// Whether anonymous pages can go anywhere.
    pub(super) fn swappable(&self) -> bool {
        self.swap > 0
    }

    /// Pages of anonymous and of file lists.
    pub(super) fn sizes(&self) -> [u64; 2] {
        let of = |a, b| self.pages.len(a) + self.pages.len(b);
        [
            of(INACTIVE_ANON, ACTIVE_ANON),
            of(INACTIVE_FILE, ACTIVE_FILE),
        ]
    }

    /// A page for `owner`; with `unevictable` on no list that is scanned.
    pub(super) fn take(
        &mut self,
        kind: Kind,
        owner: Owner,
        unevictable: bool,
    ) -> Result<PageId, OutOfMemory> {
        self.take_folio(Page::new(kind, owner), unevictable)
    }

    /// The same of a folio, charged as a whole.
    fn take_folio(&mut self, mut page: Page, unevictable: bool) -> Result<PageId, OutOfMemory> {
        let (kind, size) = (page.kind, u64::from(page.size));
        let mut left = ATTEMPTS;
        if self.marks.is_some_and(|marks| self.free() < marks.low) {
            self.kswapd = true;
        }
        while !self.plenty(size) {
            let got = self.reclaim(BATCH.max(size), By::Task);
            if got == 0 {
                left -= 1;
                if left == 0 {
                    return Err(OutOfMemory);
                }
            } else {
                left = ATTEMPTS;
            }
        }
        let active = kind == Kind::Anon && self.setting.kernel == Kernel::Linux4_19;
        let list = Memory::place(kind, active);
        let list = if unevictable { UNEVICTABLE } else { list };
        page.young = kind == Kind::Anon;
        Ok(self.pages.insert(page, list))
    }

    /// The list that a page belongs on.
    pub(super) fn place(kind: Kind, active: bool) -> ListId {
        match (kind, active) {
            (Kind::File, false) => INACTIVE_FILE,
            (Kind::File, true) => ACTIVE_FILE,
            (_, false) => INACTIVE_ANON,
            (_, true) => ACTIVE_ANON,
        }
    }

    /// Reclaims until `want` pages went or there is no hope; how many went, the driver's included.
    pub(super) fn reclaim(&mut self, want: u64, by: By) -> u64 {
        let start = self.meter.now;
        self.first_reclaim.get_or_insert(start);
        self.meter.spend(Cause::Freed, self.prices.call);
        let got = self.reclaim_classic(want, by);
        self.looked();
        self.counts.reclaim_ns += self.meter.now - start;
        got
    }

    /// A page goes, its owner learns of it.
    pub(super) fn evict(&mut self, id: PageId) {
        let page = self.pages.remove(id);
        let size = u64::from(page.size);
        let shadow = self.working.evict(page.workingset, size);
        self.counts.reclaimed += size;
        match page.owner {
            Owner::Looped { place, slot } => {
                self.file[place as usize].parts[slot as usize] = Part {
                    page: NONE,
                    shadow: Some(shadow),
                };
            }
            Owner::Streamed => {}
            Owner::Block { task, slot } => self.blocks[task as usize][slot as usize] = NONE,
            Owner::Object { object, slot } => self.driver.lost(object, slot),
        }
        if page.kind == Kind::File {
            self.meter.spend(Cause::Freed, self.prices.clean * size);
        } else {
            self.swap -= 1;
            self.counts.written += 1;
            self.meter.spend(Cause::Freed, self.prices.written);
        }
    }

    /// Pages of a folio of the looped file.
    pub(super) fn folio(&self, place: u32) -> u32 {
        self.file[place as usize].size
    }

    /// Folios of the looped file.
    pub(super) fn places(&self) -> u32 {
        self.file.len() as u32
    }

    /// Reads the looped file at page `slot` of `place`: how many pages. The folio as a whole, or where reclaim did not
    /// find room for one single pages, some at a time.
    pub(super) fn read_looped(&mut self, place: u32, slot: u32) -> Result<u32, OutOfMemory> {
        let Place { size, parts } = &mut self.file[place as usize];
        let size = *size;
        if slot == 0 && parts.iter().all(|part| part.page == NONE) {
            parts.truncate(1); // none of it is here: a folio is tried again
            let owner = Owner::Looped { place, slot };
            let folio = Page::folio(Kind::File, owner, size);
            if size == 1 || self.room_by_reclaim(u64::from(size)) {
                let id = self.take_folio(folio, false)?;
                self.came(id, place, 0);
                return Ok(size);
            }
            let parts = &mut self.file[place as usize].parts;
            let alone = parts[0];
            parts.resize(size as usize, alone);
        }
        if let [Part { page, .. }] = self.file[place as usize].parts[..] {
            self.counts.read += u64::from(size);
            self.meter
                .spend(Cause::Read, self.prices.hit * u64::from(size));
            self.accessed(page);
            return Ok(size);
        }
        let now = (size - slot).min(SINGLES);
        for slot in slot..slot + now {
            let here = self.file[place as usize].parts[slot as usize].page;
            if here == NONE {
                let id = self.take(Kind::File, Owner::Looped { place, slot }, false)?;
                self.came(id, place, slot);
            } else {
                self.counts.read += 1;
                self.meter.spend(Cause::Read, self.prices.hit);
                self.accessed(here);
            }
        }
        Ok(now)
    }

    /// Whether there is room for a folio of so many pages, for which a read ahead reclaims twice and no more
    /// (`__GFP_NORETRY`).
    fn room_by_reclaim(&mut self, pages: u64) -> bool {
        for _ in 0..READ_AHEAD_ATTEMPTS {
            if self.plenty(pages) {
                return true;
            }
            self.reclaim(BATCH.max(pages), By::Task);
        }
        self.plenty(pages)
    }

    /// Books a folio that was read from the looped file.
    fn came(&mut self, id: PageId, place: u32, slot: u32) {
        let pages = u64::from(self.pages.get(id).size);
        let here = &mut self.file[place as usize].parts[slot as usize];
        here.page = id;
        if let Some(shadow) = here.shadow.take() {
            self.refault(id, shadow);
        }
        self.counts.read += pages;
        self.meter.spend(Cause::Read, self.prices.read * pages);
        self.accessed(id);
    }

    /// Reads a folio that is never read again, as large as they get: how many pages it has.
    pub(super) fn read_streamed(&mut self) -> Result<u64, OutOfMemory> {
        let pages = self.setting.folio.0 / PAGE;
        self.counts.read += pages;
        let folio = Page::folio(Kind::File, Owner::Streamed, pages as u32);
        let id = self.take_folio(folio, false)?;
        self.meter.spend(Cause::Read, self.prices.read * pages);
        self.accessed(id);
        Ok(pages)
    }

    /// `workingset_refault()`.
    fn refault(&mut self, id: PageId, shadow: Shadow) {
        let sizes = self.seen_sizes();
        let room = Sizes {
            anon: sizes[0],
            active_file: self.seen_len(ACTIVE_FILE),
        };
        let kernel = self.setting.kernel;
        if !self.working.recent(shadow, room, self.swappable(), kernel) {
            return;
        }
        let size = u64::from(self.pages.get(id).size);
        self.working.age(size);
        self.activated += size;
        self.pages.move_to(id, ACTIVE_FILE);
        if shadow.workingset {
            self.pages.get_mut(id).workingset = true;
            self.balance.refault(size, sizes);
        }
    }

    /// `folio_mark_accessed()`: the second use makes a page active.
    fn accessed(&mut self, id: PageId) {
        let page = self.pages.get_mut(id);
        if !page.referenced {
            page.referenced = true;
        } else if page.list() == INACTIVE_FILE {
            page.referenced = false;
            let size = u64::from(page.size);
            self.pages.move_to(id, ACTIVE_FILE);
            self.working.age(size);
        }
    }

    /// Populates a page of a task's block.
    pub(super) fn populate(&mut self, task: u32, slot: u32) -> Result<(), OutOfMemory> {
        let owner = Owner::Block { task, slot };
        let id = self.take(Kind::Anon, owner, false)?;
        self.blocks[task as usize][slot as usize] = id;
        self.meter.spend(Cause::Populate, self.prices.fault);
        Ok(())
    }

    /// Unmaps a task's block, of which `populated` pages were populated; the price is in that of populating.
    pub(super) fn unmap(&mut self, task: u32, populated: u32) {
        for slot in 0..populated as usize {
            match std::mem::replace(&mut self.blocks[task as usize][slot], NONE) {
                NONE => self.swap += 1,
                id => {
                    self.pages.remove(id);
                }
            }
        }
    }

    /// Moves a page that reclaim met and that must stay off the lists; `false`: it need not stay.
    pub(super) fn cull(&mut self, id: PageId) -> bool {
        let stays = self.unevictable(id);
        if stays {
            self.pages.move_to(id, UNEVICTABLE);
            self.counts.culled += 1;
            self.meter.spend(Cause::Moved, self.prices.cull);
        }
        stays
    }

    /// Books `count` pages of a list that were looked at, as so many folios taken off it and put back under its lock.
    pub(super) fn count_scanned(&mut self, file: usize, count: u64, folios: u64) {
        self.counts.scanned += count;
        self.counts.scanned_anon += if file == 0 { count } else { 0 };
        self.meter.irq_off(folios * self.prices.list);
    }

    /// Whether the page must stay by a lock of its own or a mark of its mapping.
    fn unevictable(&self, id: PageId) -> bool {
        let page = self.pages.get(id);
        page.locked
            || match page.owner {
                Owner::Object { object, .. } => self.driver.marked(object),
                _ => false,
            }
    }
}
