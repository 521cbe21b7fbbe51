//! How much of a scan goes to anonymous and how much to file pages.
//!
//! **Contract.** [`Balance::fractions`] gives two weights. 6.12 notes what reclaim has cost a type: pages scanned in
//! vain, and 32 for each page read again or written. 4.19 notes what was scanned and what of that was used again
//! (*rotated*); a page that is merely held is not rotated, so that held pages look like ones worth scanning. Either forgets
//! half when what it has is a quarter of the lists. O(1).
//!
//! **Lineage.** `get_scan_count()` (mm/vmscan.c), `lru_note_cost()` (mm/swap.c, since 5.8),
//! `struct zone_reclaim_stat` (until 5.7). Left out: costs noted for the parents of a group.

use super::setting::Kernel;

/// Price of a page that is read again or written: `SWAP_CLUSTER_MAX`.
const IO: u64 = 32;

/// See the module. Index 0: anonymous; 1: file.
#[derive(Debug, Clone)]
pub(super) struct Balance {
    kernel: Kernel,
    cost: [u64; 2],
    scanned: [u64; 2],
    rotated: [u64; 2],
}

impl Balance {
    pub(super) fn new(kernel: Kernel) -> Balance {
        Balance {
            kernel,
            cost: [0; 2],
            scanned: [0; 2],
            rotated: [0; 2],
        }
    }

    /// Counts pages of type `file`: so many were scanned, so many of those did not go, so many were used again, so many
    /// written. `sizes`: pages of either type on the lists.
    pub(super) fn scanned(
        &mut self,
        file: usize,
        scanned: u64,
        (stayed, rotated, written): (u64, u64, u64),
        sizes: [u64; 2],
    ) {
        self.note(file, written * IO + stayed, sizes);
        self.scanned[file] += scanned;
        self.rotated[file] += rotated;
        if self.scanned[file] > sizes[file] / 4 {
            self.scanned[file] /= 2;
            self.rotated[file] /= 2;
        }
    }

    /// Pages that had been active came back from their file.
    pub(super) fn refault(&mut self, pages: u64, sizes: [u64; 2]) {
        self.note(1, pages * IO, sizes);
    }

    fn note(&mut self, file: usize, cost: u64, sizes: [u64; 2]) {
        self.cost[file] += cost;
        if self.cost[0] + self.cost[1] > (sizes[0] + sizes[1]) / 4 {
            self.cost = self.cost.map(|cost| cost / 2);
        }
    }

    /// The weights of anonymous and file pages.
    pub(super) fn fractions(&self, swappiness: u64) -> [u64; 2] {
        let weights = [swappiness, 200 - swappiness];
        match self.kernel {
            Kernel::Linux4_19 => {
                let of = |file: usize| {
                    weights[file] * (self.scanned[file] + 1) / (self.rotated[file] + 1)
                };
                [of(0), of(1)]
            }
            Kernel::Linux6_12 => {
                let sum = self.cost[0] + self.cost[1];
                let cost = [sum + self.cost[0], sum + self.cost[1]];
                let all = cost[0] + cost[1];
                let of = |file: usize| weights[file] * (all + 1) / (cost[file] + 1);
                [of(0), of(1)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "1/3 to 2/3": neither type is ever let off (Linux 6.12, `get_scan_count()`, by hand).
    #[test]
    fn costs_move_the_weights_between_a_third_and_two_thirds() {
        let mut balance = Balance::new(Kernel::Linux6_12);
        let sizes = [1 << 20; 2];
        assert_eq!(balance.fractions(60), [60, 140]);
        for _ in 0..1_000 {
            balance.refault(1, sizes);
        }
        // cost 32000 of file: all = 96000; 60 * 96001 / 32001 = 179, 140 * 96001 / 64001 = 209.
        assert_eq!(balance.fractions(60), [179, 209]);
        assert_eq!(balance.fractions(0)[0], 0);
    }

    /// A held page that is scanned makes 6.12 turn away from its list, and 4.19 turn to it.
    #[test]
    fn held_pages_repel_6_12_and_attract_4_19() {
        let turned = |kernel| {
            let mut balance = Balance::new(kernel);
            balance.scanned(0, 32, (32, 0, 0), [1 << 20; 2]);
            balance.scanned(1, 32, (0, 0, 0), [1 << 20; 2]);
            let [anon, file] = balance.fractions(100);
            anon < file
        };
        assert!(turned(Kernel::Linux6_12));
        assert!(!turned(Kernel::Linux4_19));
    }

    #[test]
    fn it_forgets() {
        let mut balance = Balance::new(Kernel::Linux6_12);
        for _ in 0..1_000_000 {
            balance.refault(1, [1_000; 2]);
        }
        assert!(balance.cost[1] <= 500, "{:?}", balance.cost);
    }
}
