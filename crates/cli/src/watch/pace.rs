//! How often a window may be written: what fires without end must not fill the disk, nor keep the
//! machine busy.

use stopgap_events::units::Nanos;

/// The least time between two windows.
const SHORTEST: Nanos = Nanos::secs(15);
/// The most, while it fires again and again.
const LONGEST: Nanos = Nanos::secs(600);

/// So many times worse than what the last window was for, and it may have one of its own at once: a call
/// that waited 300 ms must not hide one that waits half a second and is what the user has felt. What becomes worse without end has few
/// windows: from 250 ms to a minute it is 14.
const WORSE: f64 = 1.5;

/// When the next window for one kind of trigger may be written. The distance doubles each time that it still fired shortly
/// before a window, and is the shortest again when it did not: a stall that fires for a few seconds
/// is one stall, and the next one after it is another.
#[derive(Debug)]
pub(super) struct Pace {
    next: Nanos,
    distance: Nanos,
    /// How far beyond its limit was what the last window was written for.
    written: Option<f64>,
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
            written: None,
            last: None,
            suppressed: 0,
            all: 0,
        }
    }

    /// Whether what fires at `now`, `severity` times its limit, may have a window; else it is counted.
    pub(super) fn allows(&mut self, now: Nanos, severity: f64) -> bool {
        let worse = |before: f64| severity >= before * WORSE;
        let allowed = now >= self.next || self.written.is_some_and(worse);
        if !allowed {
            self.suppressed += 1;
            self.last = Some(now);
        }
        allowed
    }

    /// A window is written at `now` for what was `severity` times its limit; how many triggers had none
    /// since the one before.
    pub(super) fn written(&mut self, now: Nanos, severity: f64) -> u64 {
        self.written = Some(severity);
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
        assert!(pace.allows(at(1), 1.0));
        assert_eq!(pace.written(at(1), 1.0), 0);
        assert!(!pace.allows(at(3), 1.0));
        assert!(pace.allows(at(40), 1.0));
        assert_eq!(pace.written(at(40), 1.0), 1, "long ago: another stall");
        assert!(!pace.allows(at(54), 1.0) && pace.allows(at(55), 1.0));
        assert_eq!(pace.written(at(55), 1.0), 1, "the same goes on: every 30 s");
        assert!(!pace.allows(at(84), 1.0) && pace.allows(at(85), 1.0));
        let mut now = 85;
        for _ in 0..9 {
            pace.written(at(now), 1.0);
            assert!(!pace.allows(at(now + 14), 1.0));
            let mut next = now + 15;
            while !pace.allows(at(next), 1.0) {
                next += 10;
            }
            assert!(next <= now + 610, "never longer than 10 minutes");
            now = next;
        }
        assert!(pace.distance > at(400), "{:?}", pace.distance);
        pace.written(at(now), 1.0);
        assert_eq!(pace.written(at(now + 2_000), 1.0), 0);
        assert!(
            pace.allows(at(now + 2_015), 1.0),
            "quiet: the shortest again"
        );
        assert!(pace.suppressed() > 12);
    }
    #[test]
    fn what_is_much_worse_does_not_wait() {
        let at = Nanos::secs;
        let mut pace = Pace::new();
        assert!(pace.allows(at(1), 1.2));
        pace.written(at(1), 1.2);
        assert!(!pace.allows(at(2), 1.7) && pace.allows(at(2), 1.8));
        assert!(pace.allows(at(4), 40.0));
        pace.written(at(4), 40.0);
        assert!(
            !pace.allows(at(9), 50.0),
            "not much worse than the last one"
        );
        // Ten minutes of a call that becomes slower and slower.
        let mut pace = Pace::new();
        let (mut windows, mut severity) = (0, 1.0);
        for second in 0..600 {
            severity *= 1.01;
            if pace.allows(at(second), severity) {
                pace.written(at(second), severity);
                windows += 1;
            }
        }
        assert!((10..30).contains(&windows), "{windows}");
    }
}
