//! Whether memory is short, by the kernel's pressure stall information: no descriptor stays open, and no privilege is needed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::files;

/// Between two looks, in ns.
pub(crate) const LOOK: u64 = 100_000_000;

/// One part in so many of the time: as long as tasks stand still for want of memory, it is short.
const SHARE: u64 = 13;

/// How long tasks had stood still at the last look.
#[derive(Default)]
pub(crate) struct Pressure {
    /// When that was, in ns.
    at: AtomicU64,
    /// In us; 0: unknown.
    stalled: AtomicU64,
}

impl Pressure {
    /// Whether some task stood still for want of memory 150 ms of 2 s, or that share of the time since the last look. False where the
    /// kernel does not tell.
    pub(crate) fn is_high(&self, now: u64) -> bool {
        let before = self.at.load(Ordering::Relaxed);
        if now.saturating_sub(before) < LOOK {
            return false;
        }
        let stalled = files::stalled().unwrap_or(0);
        self.at.store(now, Ordering::Relaxed);
        let was = self.stalled.swap(stalled, Ordering::Relaxed);
        was > 0 && is_high(stalled.saturating_sub(was), now - before)
    }
}

fn is_high(stalled_us: u64, ns: u64) -> bool {
    stalled_us.saturating_mul(1_000 * SHARE) > ns
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pressure {
        /// As if the last look were long ago, and no task had stood still until then.
        pub(crate) fn pretend(&self) {
            self.at
                .store(crate::sys::threads::now_coarse() - LOOK, Ordering::Relaxed);
            self.stalled.store(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_thirteenth_of_the_time_is_too_much() {
        assert!(is_high(10_000, 100_000_000));
        assert!(!is_high(7_000, 100_000_000));
        assert!(is_high(160_000, 2_000_000_000));
        assert!(!is_high(150_000, 2_000_000_000));
        assert!(!is_high(0, 0));
    }

    #[test]
    fn the_first_look_and_one_too_soon_say_no() {
        let pressure = Pressure::default();
        assert!(!pressure.is_high(LOOK));
        // As if nothing had ever stood still before.
        pressure.stalled.store(1, Ordering::Relaxed);
        assert!(!pressure.is_high(LOOK + 1));
    }
}
