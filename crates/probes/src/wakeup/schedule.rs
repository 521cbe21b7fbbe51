//! When a periodic thread should wake, and what its waking late means.
//!
//! Cyclictest takes one sample a wake-up and goes on with the next intended start that lies ahead, so of a
//! stall of 200 ms at an interval of 1 ms it keeps one sample. Whoever needed the CPU in those 200 ms waited, too:
//! here each intended start that has passed is a sample of its own, as late as it is (no *coordinated omission*).
//!
//! ```text
//! intended   1   2   3   4   5   6
//! asleep     |---|XXXXXXXXXXXX|
//! wakes      1                5.2
//! samples    0   3.2 2.2 1.2 0.2      slept for 2; missed 3, 4, 5
//! cyclictest 0   3.2
//! ```

use stopgap_events::units::Nanos;

/// The intended starts of one thread, on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    next: Nanos,
    interval: Nanos,
}

/// A period that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    /// When it should have begun.
    pub(crate) intended: Nanos,
    /// How much later that was.
    pub(crate) late: Nanos,
    /// Whether nobody slept for it: it passed while the thread was still asleep for an earlier one.
    pub(crate) missed: bool,
}

impl Schedule {
    /// The first start is an interval (at least 1 ns) after `now`.
    pub(crate) fn new(now: Nanos, interval: Nanos) -> Schedule {
        let interval = interval.max(Nanos(1));
        Schedule {
            next: now + interval,
            interval,
        }
    }

    /// What to sleep for.
    pub(crate) fn next(self) -> Nanos {
        self.next
    }

    /// The periods that are over `now`, oldest first; none where it woke too early.
    pub(crate) fn over(&mut self, now: Nanos) -> impl Iterator<Item = Period> {
        let mut missed = false;
        std::iter::from_fn(move || {
            // A start that is due this very moment is slept for: it returns at once.
            let due = self.next < now || (self.next == now && !missed);
            due.then(|| {
                let intended = self.next;
                self.next = intended + self.interval;
                Period {
                    intended,
                    late: now.saturating_sub(intended),
                    missed: std::mem::replace(&mut missed, true),
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn lates(periods: impl Iterator<Item = Period>) -> Vec<(u64, u64, bool)> {
        periods
            .map(|period| (period.intended.0, period.late.0, period.missed))
            .collect()
    }

    #[test]
    fn on_time_it_is_one_sample() {
        let mut schedule = Schedule::new(Nanos(5), Nanos(10));
        assert_eq!(schedule.next(), Nanos(15));
        assert_eq!(lates(schedule.over(Nanos(18))), [(15, 3, false)]);
        assert_eq!(schedule.next(), Nanos(25));
    }

    #[test]
    fn the_picture_above() {
        let mut schedule = Schedule::new(Nanos(0), Nanos(10));
        assert_eq!(lates(schedule.over(Nanos(10))), [(10, 0, false)]);
        let samples = [
            (20, 32, false),
            (30, 22, true),
            (40, 12, true),
            (50, 2, true),
        ];
        assert_eq!(lates(schedule.over(Nanos(52))), samples);
        assert_eq!(schedule.next(), Nanos(60));
    }

    #[test]
    fn woken_too_early_it_sleeps_again() {
        let mut schedule = Schedule::new(Nanos(0), Nanos(10));
        assert_eq!(lates(schedule.over(Nanos(9))), []);
        assert_eq!(schedule.next(), Nanos(10));
    }

    #[test]
    fn the_next_start_now_is_slept_for() {
        let mut schedule = Schedule::new(Nanos(0), Nanos(10));
        assert_eq!(lates(schedule.over(Nanos(20))), [(10, 10, false)]);
        assert_eq!(schedule.next(), Nanos(20));
    }

    #[test]
    fn a_stall_of_200_ms_is_200_samples_and_not_one() {
        let mut schedule = Schedule::new(Nanos(0), Nanos(MS));
        let periods = lates(schedule.over(Nanos(201 * MS + 1)));
        assert_eq!(periods.len(), 201);
        assert_eq!(periods.iter().filter(|period| period.2).count(), 200);
        // Evenly from 200 ms down to nothing.
        for (at, &(intended, late, _)) in (1..).zip(&periods) {
            assert_eq!((intended, late), (at * MS, (201 - at) * MS + 1));
        }
    }

    proptest! {
        /// However it wakes, every intended start up to the last wake-up is a sample once, and one
        /// more than the last wake-up is never one.
        #[test]
        fn no_start_is_left_out_and_none_counted_twice(
            begin in 0u64..1_000_000,
            interval in 1u64..1_000,
            lates in prop::collection::vec(0u64..5_000, 1..50),
        ) {
            let mut schedule = Schedule::new(Nanos(begin), Nanos(interval));
            let (mut samples, mut slept) = (Vec::new(), 0);
            let mut now = Nanos(begin);
            for late in &lates {
                now = now.max(schedule.next()) + Nanos(*late);
                for period in schedule.over(now) {
                    prop_assert_eq!(period.intended + period.late, now);
                    slept += usize::from(!period.missed);
                    samples.push(period.intended.0);
                }
                prop_assert!(schedule.next() >= now);
                prop_assert!(schedule.next().0 - now.0 <= interval);
            }
            let expected: Vec<u64> = (1..=samples.len() as u64).map(|k| begin + k * interval).collect();
            prop_assert_eq!(samples, expected);
            prop_assert_eq!(slept, lates.len());
        }
    }
}
