//! Begins and ends of calls become calls that took too long.

use std::collections::{HashMap, HashSet};

use stopgap_events::units::Nanos;

use super::Step;

/// Threads that may be in a watched call at a time; more are not followed.
const MOST_OPEN: usize = 65_536;

/// A call that is slower than its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCall {
    /// Its name.
    pub call: String,
    /// Its thread.
    pub tid: u32,
    /// When it began, on the monotonic clock.
    pub begin: Nanos,
    /// How long it took, or has taken so far.
    pub length: Nanos,
    /// From when on it counts as slow.
    pub limit: Nanos,
    /// Whether it had not ended yet.
    pub open: bool,
}

/// Which calls are open.
pub(super) struct Tracker {
    limits: HashMap<u32, (String, Nanos)>,
    open: HashMap<u32, (u32, u64)>,
    /// Those of them whose call was reported.
    reported: HashSet<u32>,
}

impl Tracker {
    pub(super) fn new(limits: Vec<(u32, String, Nanos)>) -> Tracker {
        let limit = |(number, call, time)| (number, (call, time));
        Tracker {
            limits: limits.into_iter().map(limit).collect(),
            open: HashMap::new(),
            reported: HashSet::new(),
        }
    }

    /// Events were lost: which calls are open is not known any more.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.reported.clear();
    }

    /// Returns the slow calls that ended within `steps`, which are in the order of time.
    pub(super) fn ended(&mut self, steps: &[Step]) -> Vec<SlowCall> {
        let mut slow = Vec::new();
        for step in steps {
            let open = self.open.remove(&step.tid);
            self.reported.remove(&step.tid);
            if step.enters {
                if self.open.len() < MOST_OPEN {
                    self.open.insert(step.tid, (step.number, step.time));
                }
            } else if let Some((number, begin)) = open
                && number == step.number
            {
                slow.extend(self.judge(step.tid, number, begin, step.time, false));
            }
        }
        slow
    }

    /// Returns the slow calls that are open at `now` and were not reported; `is_in` asks whether a thread is still
    /// in the call (one that ended in it has no end there).
    pub(super) fn open(&mut self, now: Nanos, is_in: impl Fn(u32, u32) -> bool) -> Vec<SlowCall> {
        let mut slow = Vec::new();
        let mut gone = Vec::new();
        for (&tid, &(number, begin)) in &self.open {
            if self.reported.contains(&tid) {
                continue;
            }
            if let Some(call) = self.judge(tid, number, begin, now.0, true) {
                if is_in(tid, number) {
                    slow.push(call);
                } else {
                    gone.push(tid);
                }
            }
        }
        for tid in gone {
            self.open.remove(&tid);
        }
        self.reported.extend(slow.iter().map(|call| call.tid));
        slow.sort_by_key(|call| call.begin);
        slow
    }

    fn judge(&self, tid: u32, number: u32, begin: u64, end: u64, open: bool) -> Option<SlowCall> {
        let (call, limit) = self.limits.get(&number)?;
        let length = Nanos(end.saturating_sub(begin));
        (length >= *limit).then(|| SlowCall {
            call: call.clone(),
            tid,
            begin: Nanos(begin),
            length,
            limit: *limit,
            open,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MMAP: u32 = 9;
    const BRK: u32 = 12;

    fn tracker() -> Tracker {
        let limit = |number, name: &str, ms| (number, name.to_owned(), Nanos::millis(ms));
        Tracker::new(vec![limit(MMAP, "mmap", 10), limit(BRK, "brk", 20)])
    }

    fn step(ms: u64, tid: u32, number: u32, enters: bool) -> Step {
        Step {
            time: ms * 1_000_000,
            tid,
            number,
            enters,
        }
    }

    fn told(slow: &[SlowCall]) -> Vec<(&str, u32, u64, bool)> {
        let one = |s: &SlowCall| (s.length.0 / 1_000_000, s.open);
        slow.iter()
            .map(|s| (s.call.as_str(), s.tid, one(s).0, one(s).1))
            .collect()
    }

    /// ```text
    /// ms        0    5    10   15   20   25   30
    /// thread 1  mmap------]                         10 ms: slow
    /// thread 2  brk-------------]                   15 ms: not slow
    /// thread 3       mmap-]                         5 ms: not slow
    /// thread 4       mmap------------------.. open  told once, and at its end
    /// ```
    #[test]
    fn each_call_has_its_limit() {
        let mut tracker = tracker();
        let steps = [
            step(0, 1, MMAP, true),
            step(0, 2, BRK, true),
            step(5, 3, MMAP, true),
            step(5, 4, MMAP, true),
            step(10, 1, MMAP, false),
            step(10, 3, MMAP, false),
            step(15, 2, BRK, false),
        ];
        assert_eq!(told(&tracker.ended(&steps)), [("mmap", 1, 10, false)]);
        let open = tracker.open(Nanos::millis(25), |_, _| true);
        assert_eq!(told(&open), [("mmap", 4, 20, true)]);
        assert!(tracker.open(Nanos::millis(26), |_, _| true).is_empty());
        let ended = tracker.ended(&[step(30, 4, MMAP, false)]);
        assert_eq!(told(&ended), [("mmap", 4, 25, false)]);
        assert!(tracker.open.is_empty() && tracker.reported.is_empty());
    }

    /// An end without its begin, a begin without its end, a thread that ended in the call, and losses.
    #[test]
    fn what_does_not_fit_together_is_no_slow_call() {
        let mut tracker = tracker();
        let steps = [
            step(50, 1, MMAP, false),
            step(60, 2, MMAP, true),
            step(99, 2, BRK, false),
            step(100, 3, MMAP, true),
        ];
        assert!(tracker.ended(&steps).is_empty());
        assert!(tracker.open(Nanos::millis(200), |_, _| false).is_empty());
        assert!(tracker.open.is_empty(), "it is not asked again");
        tracker.ended(&[step(300, 3, MMAP, true)]);
        tracker.forget();
        assert!(tracker.ended(&[step(400, 3, MMAP, false)]).is_empty());
        assert!(tracker.open(Nanos::millis(900), |_, _| true).is_empty());
    }

    /// One call after the other, and a signal's handler that makes calls inside of one.
    #[test]
    fn a_begin_replaces_the_one_before() {
        let mut tracker = tracker();
        let steps = [
            step(0, 1, MMAP, true),
            step(30, 1, BRK, true),
            step(55, 1, BRK, false),
        ];
        assert_eq!(told(&tracker.ended(&steps)), [("brk", 1, 25, false)]);
    }
}
