//! Not to compact again too soon after a failure.

use super::super::buddy::ORDERS;

/// After the n-th failure in a row, 2^n - 1 calls for its order or a higher one are refused, 63 at most
/// (`COMPACT_MAX_DEFER_SHIFT` is 6). Lower orders are not.
#[derive(Debug, Clone)]
pub(super) struct Deferral {
    /// Calls since the last failure.
    considered: u32,
    shift: u32,
    /// The lowest order that failed.
    failed: u32,
}

impl Default for Deferral {
    fn default() -> Deferral {
        Deferral {
            considered: 0,
            shift: 0,
            failed: ORDERS as u32,
        }
    }
}

impl Deferral {
    /// Whether a call for `order` is refused; it counts as one (`compaction_deferred`).
    pub(super) fn defers(&mut self, order: u32) -> bool {
        if order < self.failed {
            return false;
        }
        let limit = 1 << self.shift;
        self.considered = (self.considered + 1).min(limit);
        self.considered < limit
    }

    /// `defer_compaction`.
    pub(super) fn failed(&mut self, order: u32) {
        self.considered = 0;
        self.shift = (self.shift + 1).min(6);
        self.failed = self.failed.min(order);
    }

    /// `compaction_defer_reset` after an allocation that succeeded.
    pub(super) fn succeeded(&mut self, order: u32) {
        self.considered = 0;
        self.shift = 0;
        self.failed = self.failed.max(order + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_double_up_to_63() {
        let mut deferral = Deferral::default();
        assert!(!deferral.defers(9));
        for refused in [1, 3, 7, 15, 31, 63, 63] {
            deferral.failed(9);
            assert!((0..refused).all(|_| deferral.defers(9)));
            assert!(!deferral.defers(9), "{refused}");
            assert!(!deferral.defers(8), "a lower order is not deferred");
        }
        deferral.succeeded(9);
        assert!(!deferral.defers(10));
    }
}
