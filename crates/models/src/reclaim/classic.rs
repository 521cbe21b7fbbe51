//! Active and inactive lists: what is scanned, what goes, what stays.
//!
//! **Contract.** [`Memory::reclaim_classic`] goes over the lists at growing strength (*priority* 12 to 0: a 2^-priority
//! share of each list) until enough went. From the tail of an inactive list, 32 pages at a time: a page that must stay
//! moves to the unevictable list, one that was used moves on or stays, one that somebody holds stays, any other goes.
//!
//! **Lineage.** mm/vmscan.c: `shrink_lruvec()`, `get_scan_count()`, `shrink_inactive_list()`, `shrink_active_list()`,
//! `do_try_to_free_pages()`; 6.12 and, where it differs, 4.19. Left out: memory.low and .min, nodes and zones, writeback of
//! files (pages here are clean), pages mapped from files, what a lock's contention costs.

use super::memory::{BATCH, By, Memory};
use super::meter::Cause;
use super::pages::{ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE, Kind, ListId};
use super::setting::{Kernel, PAGE};

/// `DEF_PRIORITY`.
pub(super) const PRIORITY: u32 = 12;

/// One call of reclaim, as `struct scan_control`.
struct Scan {
    want: u64,
    got: u64,
    priority: u32,
    /// May active pages of each type be made inactive?
    deactivate: [bool; 2],
    /// All that is active is made inactive.
    force: bool,
    /// An active list was skipped.
    skipped: bool,
    by: By,
}

fn inactive(file: usize) -> ListId {
    [INACTIVE_ANON, INACTIVE_FILE][file]
}

fn active(file: usize) -> ListId {
    [ACTIVE_ANON, ACTIVE_FILE][file]
}

/// `inactive_is_low()`: 1 GiB of a type wants a third inactive, less than that a half.
fn is_low(inactive: u64, active: u64) -> bool {
    let gib = ((inactive + active) * PAGE) >> 30;
    let ratio = if gib == 0 { 1 } else { (10 * gib).isqrt() };
    inactive * ratio < active
}

impl Memory {
    pub(super) fn reclaim_classic(&mut self, want: u64, by: By) -> u64 {
        let mut scan = Scan {
            want,
            got: 0,
            priority: PRIORITY,
            deactivate: [false; 2],
            force: false,
            skipped: false,
            by,
        };
        loop {
            for priority in (0..=PRIORITY).rev() {
                scan.priority = priority;
                self.shrink_lists(&mut scan);
                scan.got += self.shrink_driver(priority, by);
                if scan.got >= want {
                    return scan.got;
                }
            }
            // Since 5.5: rather than to give up, what is active is made inactive.
            let again = scan.got == 0 && scan.skipped && !scan.force;
            if !again || self.setting.kernel == Kernel::Linux4_19 {
                return scan.got;
            }
            scan.force = true;
            scan.skipped = false;
        }
    }

    fn low(&self, file: usize) -> bool {
        is_low(self.seen_len(inactive(file)), self.seen_len(active(file)))
    }

    /// Whether active pages of this type may be made inactive.
    fn may_deactivate(&self, file: usize) -> bool {
        match self.setting.kernel {
            Kernel::Linux6_12 => (file == 1 && self.refaulted()) || self.low(file),
            Kernel::Linux4_19 if file == 0 => self.swappable() && self.low(0),
            Kernel::Linux4_19 => {
                (self.refaulted() && self.pages.len(ACTIVE_FILE) > 0) || self.low(1)
            }
        }
    }

    /// How many pages of each list to scan: inactive and active anonymous, inactive and active file.
    fn scan_counts(&self, scan: &Scan) -> [u64; 4] {
        let inactive_file = self.seen_len(INACTIVE_FILE) >> scan.priority;
        let swappiness = self.setting.swappiness;
        // Enough file pages that do not thrash: nothing else is looked at.
        let trim = inactive_file > 0
            && match self.setting.kernel {
                Kernel::Linux6_12 => !scan.deactivate[1],
                Kernel::Linux4_19 => !self.low(1),
            };
        let tiny = self.file_is_tiny()
            && !self.low(0)
            && self.pages.len(INACTIVE_ANON) >> scan.priority > 0;
        let weights = if !self.swappable() || (swappiness == 0 && !self.machine()) {
            [0, 1]
        } else if scan.priority == 0 && swappiness > 0 {
            [u64::MAX; 2]
        } else if tiny {
            [1, 0]
        } else if trim {
            [0, 1]
        } else {
            self.balance.fractions(swappiness)
        };
        let all = weights[0].saturating_add(weights[1]).max(1);
        let mut counts = [0; 4];
        for list in [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE] {
            let weight = weights[usize::from(list >= INACTIVE_FILE)];
            let share = self.pages.len(list) >> scan.priority;
            counts[usize::from(list)] = match weight {
                u64::MAX => share,
                weight => share * weight / all,
            };
        }
        counts
    }

    /// `shrink_lruvec()`.
    fn shrink_lists(&mut self, scan: &mut Scan) {
        self.look();
        scan.deactivate = [0, 1].map(|file| scan.force || self.may_deactivate(file));
        let targets = self.scan_counts(scan);
        let mut left = targets;
        // The first reclaim of a task for a whole machine runs to its end.
        let proportional = self.machine() && scan.by == By::Task && scan.priority == PRIORITY;
        let [ia, aa, if_, af] =
            [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE].map(usize::from);
        let mut stopped = false;
        let mut got = 0;
        while left[ia] > 0 || left[af] > 0 || left[if_] > 0 {
            for file in [0, 1] {
                for list in [inactive(file), active(file)] {
                    let slot = usize::from(list);
                    let now = left[slot].min(BATCH);
                    left[slot] -= now;
                    if now == 0 {
                        continue;
                    }
                    if list == inactive(file) {
                        got += self.shrink_inactive(file, now);
                    } else if scan.deactivate[file]
                        || self.setting.kernel == Kernel::Linux4_19 && self.may_deactivate(file)
                    {
                        self.shrink_active(file, now);
                    } else {
                        scan.skipped = true;
                    }
                }
            }
            self.meter.resched();
            if got < scan.want || proportional || stopped {
                continue;
            }
            // The type of which less is left is let off; the other is done in proportion.
            let file_left = left[if_] + left[af];
            let anon_left = left[ia] + left[aa];
            if file_left == 0 || anon_left == 0 {
                break;
            }
            let (off, on) = if file_left > anon_left {
                ([ia, aa], [if_, af])
            } else {
                ([if_, af], [ia, aa])
            };
            let target = targets[off[0]] + targets[off[1]] + 1;
            let percent = (left[off[0]] + left[off[1]]) * 100 / target;
            off.iter().for_each(|&slot| left[slot] = 0);
            for slot in on {
                let done = targets[slot] - left[slot];
                left[slot] = (targets[slot] * (100 - percent) / 100).saturating_sub(done);
            }
            stopped = true;
        }
        scan.got += got;
        if self.swappable() && self.low(0) {
            self.shrink_active(0, BATCH);
        }
    }

    /// `shrink_inactive_list()` over at most 32 pages: how many went.
    fn shrink_inactive(&mut self, file: usize, most: u64) -> u64 {
        let from = inactive(file);
        let count = most.min(self.pages.len(from));
        let (mut gone, mut rotated, mut written) = (0, 0, 0);
        let (mut scanned, mut folios) = (0, 0);
        // A folio is scanned whole: the last may go beyond. There is one: the list had `count`, and what stays on it goes
        // to its head.
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
            let (kind, pinned) = (page.kind, page.pinned);
            let used = std::mem::take(&mut page.young);
            let twice = std::mem::replace(&mut page.referenced, used) && used;
            let activate = used && (twice || self.setting.kernel == Kernel::Linux4_19);
            let full = kind != Kind::File && !self.swappable();
            if activate || (full && !used && !pinned) {
                self.pages.move_to(id, active(file));
                rotated += size;
            } else if used || pinned {
                self.pages.move_to(id, from);
            } else {
                self.evict(id);
                written += if kind == Kind::File { 0 } else { size };
                gone += size;
                continue;
            }
            self.meter.spend(Cause::Kept, self.prices.kept);
        }
        self.count_scanned(file, scanned, folios);
        let sizes = self.seen_sizes();
        self.balance
            .scanned(file, scanned, (scanned - gone, rotated, written), sizes);
        gone
    }

    /// `shrink_active_list()` over at most 32 pages.
    fn shrink_active(&mut self, file: usize, most: u64) {
        let count = most.min(self.pages.len(active(file)));
        let (mut scanned, mut folios) = (0, 0);
        while scanned < count {
            let Some(id) = self.pages.tail(active(file)) else {
                break;
            };
            scanned += u64::from(self.pages.get(id).size);
            folios += 1;
            if self.cull(id) {
                continue;
            }
            let page = self.pages.get_mut(id);
            page.young = false;
            page.workingset = true;
            self.pages.move_to(id, inactive(file));
            self.meter.spend(Cause::Moved, self.prices.deactivate);
        }
        self.meter.irq_off(folios * self.prices.list);
        let sizes = self.seen_sizes();
        self.balance.scanned(file, 0, (0, 0, 0), sizes);
        self.meter.resched();
    }
}
