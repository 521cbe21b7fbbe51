//! How often a window may be written: what fires without end must not fill the disk, nor keep the
//! machine busy.

use stopgap_events::units::Nanos;

/// The least time between two windows.
const SHORTEST: Nanos = Nanos::secs(15);
/// The most, while it fires again and again.
const LONGEST: Nanos = Nanos::secs(600);

/// When the next window may be written. The distance doubles each time that it still fired shortly
/// before a window, and is the shortest again when it did not: a stall that fires for a few seconds
/// is one stall, and the next one after it is another.
#[derive(Debug)]
pub(super) struct Pace {
    next: Nanos,
    distance: Nanos,
    /// When something fired last that had no window.
    last: Option<Nanos>,
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
            last: None,
            suppressed: 0,
            all: 0,
        }
    }

    /// Whether what fires at `now` may have a window; else it is counted.
    pub(super) fn allows(&mut self, now: Nanos) -> bool {
        let allowed = now >= self.next;
        if !allowed {
            self.suppressed += 1;
            self.last = Some(now);
        }
        allowed
    }

    /// A window is written at `now`; how many triggers had none since the one before.
    pub(super) fn written(&mut self, now: Nanos) -> u64 {
        let suppressed = std::mem::take(&mut self.suppressed);
        self.all += suppressed;
        let goes_on = self.last.take().is_some_and(|last| now < last + SHORTEST);
        self.distance = if goes_on {
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
        assert!(!pace.allows(at(3)));
        assert!(pace.allows(at(40)));
        assert_eq!(pace.written(at(40)), 1, "long ago: another stall");
        assert!(!pace.allows(at(54)) && pace.allows(at(55)));
        assert_eq!(
            pace.written(at(55)),
            1,
            "the same goes on: 30 s from now on"
        );
        assert!(!pace.allows(at(84)) && pace.allows(at(85)));
        let mut now = 85;
        for _ in 0..9 {
            pace.written(at(now));
            assert!(!pace.allows(at(now + 14)));
            let mut next = now + 15;
            while !pace.allows(at(next)) {
                next += 10;
            }
            assert!(next <= now + 610, "never longer than 10 minutes");
            now = next;
        }
        assert!(pace.distance > at(400), "{:?}", pace.distance);
        pace.written(at(now));
        assert_eq!(pace.written(at(now + 2_000)), 0);
        assert!(pace.allows(at(now + 2_015)), "quiet: the shortest again");
        assert!(pace.suppressed() > 12);
    }
}
