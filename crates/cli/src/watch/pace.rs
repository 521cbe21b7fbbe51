//! How often a window may be written: what fires without end must not fill the disk, nor keep the
//! machine busy.

use stopgap_events::units::Nanos;

/// The least time between two windows.
const SHORTEST: Nanos = Nanos::secs(15);
/// The most, while it fires again and again.
const LONGEST: Nanos = Nanos::secs(600);

/// When the next window may be written. The distance doubles each time that something fired within
/// it, and is the shortest again when nothing did.
#[derive(Debug)]
pub(super) struct Pace {
    next: Nanos,
    distance: Nanos,
    /// Triggers since the last window.
    suppressed: u64,
    /// And before it.
    all: u64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            next: Nanos(0),
            distance: SHORTEST,
            suppressed: 0,
            all: 0,
        }
    }

    /// Whether what fires at `now` may have a window; else it is counted.
    pub(super) fn allows(&mut self, now: Nanos) -> bool {
        let allowed = now >= self.next;
        self.suppressed += u64::from(!allowed);
        allowed
    }

    /// A window is written at `now`; how many triggers had none since the one before.
    pub(super) fn written(&mut self, now: Nanos) -> u64 {
        let suppressed = std::mem::take(&mut self.suppressed);
        self.all += suppressed;
        self.distance = if suppressed > 0 {
            Nanos((self.distance.0 * 2).min(LONGEST.0))
        } else {
            SHORTEST
        };
        self.next = now + self.distance;
        suppressed
    }

    /// Triggers that had no window, all in all.
    pub(super) fn suppressed(&self) -> u64 {
        self.all + self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slows_down_while_it_fires_and_recovers() {
        let at = Nanos::secs;
        let mut pace = Pace::new();
        assert!(pace.allows(at(1)));
        assert_eq!(pace.written(at(1)), 0);
        assert!(!pace.allows(at(15)));
        assert!(pace.allows(at(16)));
        assert_eq!(
            pace.written(at(16)),
            1,
            "one fired between: 30 s from now on"
        );
        assert!(!pace.allows(at(45)) && pace.allows(at(46)));
        assert_eq!(pace.written(at(46)), 1);
        assert!(!pace.allows(at(105)) && pace.allows(at(106)), "60 s");
        let mut now = 106;
        for _ in 0..9 {
            pace.written(at(now));
            assert!(!pace.allows(at(now + 1)));
            now += 600;
            assert!(pace.allows(at(now)), "never longer than 10 minutes");
        }
        pace.written(at(now));
        assert!(pace.allows(at(now + 600)));
        assert_eq!(pace.written(at(now + 600)), 0);
        assert!(pace.allows(at(now + 616)), "quiet: the shortest again");
        assert_eq!(pace.suppressed(), 12);
    }
}
