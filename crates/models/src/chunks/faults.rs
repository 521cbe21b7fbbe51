//! How page faults take a buffer of user memory: what the live probe does, on the model.
//!
//! **Contract.** A task touches a buffer from its start to its end. Each first touch takes the largest
//! of the orders allowed whose aligned stretch lies in the buffer and holds no page yet; where none is
//! to be had, the next smaller one, down to a single page. Unlike a driver's policy it is not sticky:
//! the next stretch tries the largest order again. Each first touch is a page fault ([`Costs::fault_ns`](super::cost::Costs)).
//!
//! A huge page is asked for twice where a fault reclaims: on this node without a second try, then as any order.
//!
//! **Lineage.** `do_huge_pmd_anonymous_page` (mm/huge_memory.c), `alloc_anon_folio` (mm/memory.c), `alloc_pages_mpol`
//! (mm/mempolicy.c, with `CONFIG_NUMA`), Linux 6.12. What is taken is movable and can be moved by compaction. Left out: cgroups.

use stopgap_chunks::policy::{Chunk, Effort, Source};

use super::buddy::{Mobility, Use};
use super::cost::{ByCause, Counts};
use super::machine::{Asks, Machine};

/// `HPAGE_PMD_ORDER`.
const HUGE: u32 = 9;

/// Which orders faults try, and how hard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// Orders above 0 that are allowed, largest first.
    pub orders: Vec<u32>,
    /// How hard for them: [`Effort::Must`] where a fault reclaims and compacts directly (it is no
    /// `__GFP_NORETRY`), [`Effort::NoReclaim`] where it does not.
    pub effort: Effort,
}

/// Cost of a buffer that faults fill.
#[derive(Debug, Clone, PartialEq)]
pub struct Faulted {
    /// Nanoseconds, all causes together.
    pub time_ns: f64,
    /// The longest that a stretch of `block` pages took, in nanoseconds.
    pub worst_block_ns: f64,
    /// The time by cause.
    pub by_cause: ByCause,
    /// Work done.
    pub counts: Counts,
    /// Folios of the buffer, in the order of their addresses.
    pub chunks: Vec<Chunk>,
}

impl Faults {
    /// Takes `pages` pages on `machine`, timed also for each stretch of `block` pages (at least 1);
    /// `None` where memory ends: what was taken is then given back.
    pub fn take(&self, machine: &mut Machine, pages: u64, block: u64) -> Option<Faulted> {
        let asked = machine.ask(Asks {
            mobility: Mobility::Movable,
            of: Use::Movable,
            first_zone: 0,
        });
        let faulted = self.touch(machine, pages, block.max(1));
        machine.ask(asked);
        faulted
    }

    fn touch(&self, machine: &mut Machine, pages: u64, block: u64) -> Option<Faulted> {
        let start = machine.counts();
        let mut chunks: Vec<Chunk> = Vec::new();
        let (mut at, mut begun, mut worst_block_ns) = (0, start, 0.0f64);
        while at < pages {
            let Some(chunk) = self.first_touch(machine, at, pages) else {
                chunks.iter().rev().for_each(|&chunk| machine.free(chunk));
                return None;
            };
            chunks.push(chunk);
            let end = at + (1 << chunk.order);
            machine.fault();
            machine.clear(1 << chunk.order);
            if end / block > at / block || end == pages {
                let now = machine.counts();
                let took = ByCause::priced(&(now - begun), &machine.costs()).total_ns();
                worst_block_ns = worst_block_ns.max(took);
                begun = now;
            }
            at = end;
        }
        let counts = machine.counts() - start;
        let by_cause = ByCause::priced(&counts, &machine.costs());
        Some(Faulted {
            time_ns: by_cause.total_ns(),
            worst_block_ns,
            by_cause,
            counts,
            chunks,
        })
    }

    /// The page or pages behind page `at` of the buffer.
    fn first_touch(&self, machine: &mut Machine, at: u64, pages: u64) -> Option<Chunk> {
        let fits = |order: &&u32| {
            let length = 1u64 << **order;
            at.is_multiple_of(length) && length <= pages - at
        };
        for &order in self.orders.iter().filter(fits) {
            let here = order == HUGE && self.effort == Effort::Must;
            let frame = here
                .then(|| machine.allocate(order, Effort::NoRetry))
                .flatten();
            if let Some(frame) = frame.or_else(|| machine.allocate(order, self.effort)) {
                return Some(Chunk { frame, order });
            }
        }
        let frame = machine.allocate(0, Effort::Must)?;
        Some(Chunk { frame, order: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::scenario::Scenario;

    fn faults(orders: &[u32], effort: Effort) -> Faults {
        Faults {
            orders: orders.to_vec(),
            effort,
        }
    }

    fn machine(scenario: Scenario) -> Machine {
        scenario.machine(&scenario.setting(1)).unwrap()
    }

    fn orders(faulted: &Faulted) -> Vec<u32> {
        faulted.chunks.iter().map(|chunk| chunk.order).collect()
    }

    /// ```text
    /// page     0 . . . 4 . . . 8 9 10      11 pages, orders 3 and 2 allowed
    /// takes    [    order 3   ] 0 0 0      an order needs its aligned stretch inside of the buffer
    /// ```
    #[test]
    fn each_stretch_takes_the_largest_that_fits() {
        let mut memory = machine(Scenario::Unfragmented);
        let taken = faults(&[3, 2], Effort::Must)
            .take(&mut memory, 11, 4)
            .unwrap();
        assert_eq!(orders(&taken), [3, 0, 0, 0]);
        assert_eq!(taken.counts.calls, 4);
        assert_eq!(taken.counts.cleared, 11);
        assert!(taken.worst_block_ns < taken.time_ns);
        let one = faults(&[3, 2], Effort::Must)
            .take(&mut memory, 11, 64)
            .unwrap();
        assert!((one.worst_block_ns - one.time_ns).abs() < 1e-6);
    }

    /// A failure does not count for the next stretch, as it does for a driver's sticky policy.
    #[test]
    fn every_stretch_tries_again() {
        let kept = Scenario::Kept {
            of: 4,
            pinned: true,
        };
        let mut memory = machine(kept);
        let taken = faults(&[9], Effort::NoReclaim)
            .take(&mut memory, 1024, 512)
            .unwrap();
        assert_eq!(taken.chunks.len(), 1024);
        assert_eq!(taken.counts.calls, 1024 + 2);
        assert_eq!((taken.counts.scanned, taken.counts.reclaimed), (0, 0));
    }

    /// What faults took can move; what devices took cannot. The machine asks for devices again.
    #[test]
    fn user_memory_is_movable() {
        let mut memory = machine(Scenario::Unfragmented);
        let taken = faults(&[], Effort::Must).take(&mut memory, 8, 8).unwrap();
        let used = |memory: &Machine, of| memory.buddy().used_pages(of);
        assert_eq!(
            (used(&memory, Use::Movable), used(&memory, Use::Unmovable)),
            (8, 0)
        );
        memory.allocate(0, Effort::Must).unwrap();
        assert_eq!(used(&memory, Use::Unmovable), 1);
        taken.chunks.iter().for_each(|&chunk| memory.free(chunk));
        memory.buddy().check().unwrap();
    }

    #[test]
    fn where_memory_ends_all_is_given_back() {
        let mut memory = machine(Scenario::NoContiguous);
        let free = memory.buddy().free_pages();
        assert_eq!(
            faults(&[4], Effort::NoReclaim).take(&mut memory, free + 1, 512),
            None
        );
        assert_eq!(memory.buddy().free_pages(), free);
    }

    /// Direct compaction of movable pages costs time and brings huge pages; where they are pinned it
    /// costs time and brings nothing.
    #[test]
    fn direct_huge_pages_cost_what_they_bring_or_not() {
        let of = |pinned, effort| {
            let mut memory = machine(Scenario::Kept { of: 4, pinned });
            faults(&[9], effort).take(&mut memory, 4096, 512).unwrap()
        };
        let movable = of(false, Effort::Must);
        let pinned = of(true, Effort::Must);
        let cheap = of(true, Effort::NoReclaim);
        assert!(orders(&movable).contains(&9), "{:?}", movable.counts);
        assert!(!orders(&pinned).contains(&9));
        assert!(pinned.by_cause.compaction_ns > 0.0);
        assert!(pinned.time_ns > cheap.time_ns);
    }
}
