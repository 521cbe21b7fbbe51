//! Prices of the kernel's work, and the time that counts of it take.
//!
//! **Contract.** The machine counts ([`Counts`]); time is counts times costs, by cause, so that each millisecond can
//! be derived from its count.
//!
//! **Source.** [`Costs::THREAD`] is mail 001's machine: a 2 GiB Arm Chromebook with Linux 3.14 that swaps to zram while
//! four programs walk through 1,400 MiB. One of its figures is fitted, [`Costs::reclaim_page_ns`]: 0.25 s for 1,024 single
//! pages, each of which must be reclaimed first. What compaction costs is an assumption: a pass over these 2 GiB takes
//! 0.06 s and 8 us for each page that it moves. [`Costs::RECENT`] is a machine of today, with nobody beside: reclaim as
//! measured (2,946 ns a page), compaction assumed.
//!
//! Left out: waiting for a device (zram is none), for locks, and for a CPU.

use std::ops::{Add, Sub};

use thiserror::Error;

/// Prices of the kernel's work, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// One call of the page allocator.
    pub call_ns: f64,
    /// A page fault that maps a page or a large folio: entering the kernel, and page tables.
    pub fault_ns: f64,
    /// Clearing one page.
    pub clear_page_ns: f64,
    /// Reclaiming one page: finding it, writing it to swap, freeing it.
    pub reclaim_page_ns: f64,
    /// Looking at 512 pages, 2 MiB of 4 KiB pages, for those that compaction can move or move to.
    pub scan_block_ns: f64,
    /// Moving one page: copying it, and changing its entries in page tables.
    pub move_page_ns: f64,
}

/// Pages of which [`Costs::scan_block_ns`] speaks.
const SCAN_PAGES: f64 = 512.0;

impl Costs {
    /// Mail 001's machine.
    pub const THREAD: Costs = Costs {
        call_ns: 1_000.0,
        fault_ns: 0.0,
        clear_page_ns: 1_000.0,
        reclaim_page_ns: 244_000.0,
        scan_block_ns: 60_000.0,
        move_page_ns: 8_000.0,
    };

    /// A machine of today.
    pub const RECENT: Costs = Costs {
        call_ns: 300.0,
        fault_ns: 1_000.0,
        clear_page_ns: 300.0,
        reclaim_page_ns: 2_946.0,
        scan_block_ns: 15_000.0,
        move_page_ns: 5_000.0,
    };

    /// Each cost with its name, as they are printed and varied.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("call_ns", self.call_ns),
            ("fault_ns", self.fault_ns),
            ("clear_page_ns", self.clear_page_ns),
            ("reclaim_page_ns", self.reclaim_page_ns),
            ("scan_block_ns", self.scan_block_ns),
            ("move_page_ns", self.move_page_ns),
        ]
    }

    /// The same with `ns` for the cost of that name; `None` where there is no such cost.
    #[must_use]
    pub fn with(mut self, name: &str, ns: f64) -> Option<Costs> {
        let cost = match name {
            "call_ns" => &mut self.call_ns,
            "fault_ns" => &mut self.fault_ns,
            "clear_page_ns" => &mut self.clear_page_ns,
            "reclaim_page_ns" => &mut self.reclaim_page_ns,
            "scan_block_ns" => &mut self.scan_block_ns,
            "move_page_ns" => &mut self.move_page_ns,
            _ => return None,
        };
        *cost = ns;
        Some(self)
    }

    /// # Errors
    /// [`CostError`] for the first cost that is negative or not finite.
    pub fn check(&self) -> Result<(), CostError> {
        let wrong = |&(_, ns): &(&str, f64)| !ns.is_finite() || ns < 0.0;
        match self.named().into_iter().find(wrong) {
            Some((name, ns)) => Err(CostError { name, ns }),
            None => Ok(()),
        }
    }

    /// Returns the price of a scan of `pages` pages, in nanoseconds.
    pub(super) fn scan_ns(&self, pages: u64) -> f64 {
        pages as f64 / SCAN_PAGES * self.scan_block_ns
    }
}

/// A cost that nothing can have.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{name} is {ns}: it has to be a finite number of nanoseconds, 0 or more")]
pub struct CostError {
    /// The cost's name.
    pub name: &'static str,
    /// The text that was given.
    pub ns: f64,
}

/// Gives [`Counts`] its fields and what is done with all of them.
macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident),+ $(,)?) => {
        /// What the kernel did for the task that builds buffers. Other tasks' work is not in it.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)+
        }

        impl Add for Counts {
            type Output = Counts;
            fn add(self, other: Counts) -> Counts {
                Counts { $($field: self.$field + other.$field,)+ }
            }
        }

        impl Sub for Counts {
            type Output = Counts;
            /// Returns the work done since `earlier`, counts of the same machine.
            fn sub(self, earlier: Counts) -> Counts {
                Counts { $($field: self.$field - earlier.$field,)+ }
            }
        }

        impl Counts {
            /// Each count with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),+]
            }
        }
    };
}

counts! {
    /// Calls of the page allocator.
    calls,
    /// Those of them that went the slow path.
    slow,
    /// Page faults.
    faults,
    /// Pages cleared.
    cleared,
    /// Pages reclaimed.
    reclaimed,
    /// Pages that compaction looked at, by either scanner.
    scanned,
    /// Pages that compaction moved.
    moved,
    /// Compactions after which the allocation succeeded.
    compaction_succeeded,
    /// Compactions after which it failed.
    compaction_failed,
    /// Compactions not begun because too few pages were free, or because fragmentation was not to blame.
    compaction_skipped,
    /// Compactions not begun because earlier ones failed.
    compaction_deferred,
}

/// Time by what it was spent on, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ByCause {
    /// The allocator's own: [`Costs::call_ns`] a call.
    pub call_ns: f64,
    /// Page faults.
    pub fault_ns: f64,
    /// Clearing what was allocated.
    pub clear_ns: f64,
    /// Direct reclaim.
    pub reclaim_ns: f64,
    /// Direct compaction: scanning and moving.
    pub compaction_ns: f64,
}

impl ByCause {
    /// The time of `counts` at `costs`.
    #[must_use]
    pub fn priced(counts: &Counts, costs: &Costs) -> ByCause {
        ByCause {
            call_ns: counts.calls as f64 * costs.call_ns,
            fault_ns: counts.faults as f64 * costs.fault_ns,
            clear_ns: counts.cleared as f64 * costs.clear_page_ns,
            reclaim_ns: counts.reclaimed as f64 * costs.reclaim_page_ns,
            compaction_ns: costs.scan_ns(counts.scanned) + counts.moved as f64 * costs.move_page_ns,
        }
    }

    /// Each cause with its one word.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("call", self.call_ns),
            ("fault", self.fault_ns),
            ("clear", self.clear_ns),
            ("reclaim", self.reclaim_ns),
            ("compaction", self.compaction_ns),
        ]
    }

    /// All of it.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.named().into_iter().map(|(_, ns)| ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counts_times_costs() {
        let counts = Counts {
            calls: 3,
            faults: 1,
            cleared: 5,
            reclaimed: 7,
            scanned: 1_024,
            moved: 11,
            ..Counts::default()
        };
        let costs = Costs {
            call_ns: 1.0,
            fault_ns: 2.0,
            clear_page_ns: 10.0,
            reclaim_page_ns: 100.0,
            scan_block_ns: 1_000.0,
            move_page_ns: 10_000.0,
        };
        let time = ByCause::priced(&counts, &costs);
        let expected = [3.0, 2.0, 50.0, 700.0, 112_000.0];
        for ((cause, ns), expected) in time.named().into_iter().zip(expected) {
            assert!((ns - expected).abs() < 1e-6, "{cause}: {ns} ns");
        }
        assert!((time.total_ns() - 112_755.0).abs() < 1e-6);
        assert_eq!(counts + counts - counts, counts);
    }

    #[test]
    fn costs_that_nothing_can_have_are_refused_by_name() {
        assert_eq!(Costs::THREAD.check(), Ok(()));
        for ns in [-1.0, f64::NAN, f64::INFINITY] {
            let costs = Costs {
                move_page_ns: ns,
                ..Costs::THREAD
            };
            let error = costs.check().unwrap_err().to_string();
            assert!(error.starts_with("move_page_ns is "), "{error}");
        }
    }
}
