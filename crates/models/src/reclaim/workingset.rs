//! Whether a page that comes back was needed: refault distance.
//!
//! **Contract.** A clock ticks with every page that is evicted or becomes active. An evicted page leaves a *shadow*, the
//! clock as it was. A page that comes back before as many ticks have passed as there are pages that could have made
//! room for it becomes active at once. O(1).
//!
//! **Lineage.** mm/workingset.c (`workingset_eviction()`, `workingset_test_recent()`): 4.19 counts active file pages as
//! room; 6.12, where there is swap, all anonymous ones too. Left out: shadows that are lost as their inodes go, the bits
//! that a shadow drops on large machines.

use super::setting::Kernel;

/// Trace of an evicted page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shadow {
    clock: u64,
    /// It had been on an active list.
    pub(super) workingset: bool,
}

/// Sizes of the evictable lists, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) anon: u64,
    pub(super) active_file: u64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkingSet {
    clock: u64,
}

impl WorkingSet {
    /// A folio of so many pages is evicted.
    pub(super) fn evict(&mut self, workingset: bool, pages: u64) -> Shadow {
        let clock = self.clock;
        self.clock += pages;
        Shadow { clock, workingset }
    }

    /// So many pages became active.
    pub(super) fn age(&mut self, pages: u64) {
        self.clock += pages;
    }

    /// Whether a file page that left `shadow` comes back soon enough.
    pub(super) fn recent(&self, shadow: Shadow, sizes: Sizes, swap: bool, kernel: Kernel) -> bool {
        let room = match kernel {
            Kernel::Linux6_12 if swap => sizes.active_file + sizes.anon,
            _ => sizes.active_file,
        };
        self.clock - shadow.clock <= room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_anonymous_pages_count_as_room_since_5_9() {
        let mut set = WorkingSet::default();
        let shadow = set.evict(false, 1);
        set.age(9);
        let sizes = Sizes {
            anon: 6,
            active_file: 4,
        };
        assert!(
            set.recent(shadow, sizes, true, Kernel::Linux6_12),
            "10 <= 4 + 6"
        );
        assert!(
            !set.recent(shadow, sizes, false, Kernel::Linux6_12),
            "no swap"
        );
        assert!(!set.recent(shadow, sizes, true, Kernel::Linux4_19));
        set.age(1);
        assert!(
            !set.recent(shadow, sizes, true, Kernel::Linux6_12),
            "11 > 10"
        );
    }
}
