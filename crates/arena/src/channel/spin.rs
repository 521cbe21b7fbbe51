//! How long it pays to spin before sleeping.
//!
//! A sleeper wakes late: from the peer's wake-up call until it runs pass some microseconds, more where its CPU has gone
//! idle. That is what spinning saves, so it pays where the peer answers faster than that, and no longer than that. Both
//! times are measured, over the last few waits:
//!
//! ```text
//! began             woke           now
//! |---- reply ------|---- wake ----|       it slept: both are known, `woke` is the peer's word
//! |---- reply ------|                      it spun:  only the reply
//! |-- wake --|-reply|                      the peer had to be woken first: that part is taken off
//! ```
//!
//! So a peer that thinks for long is never spun for, one that answers at once always, and who was wrong, because the
//! peer was pre-empted, has lost no more than what sleeping would have cost. The peer's word is advice:
//! the budget stays below the caller's limit.
//!
//! Lineage: the competitive argument of Karlin, Li, Manasse and Owicki (1991); `halt_poll_ns` of KVM, which grows and
//! shrinks a budget by what the last waits took. Ours needs no growing: it knows both sides of the comparison.

/// Until one was measured.
const WAKE: u64 = 20_000;
/// Bounds of the time of a wake-up that we believe.
const LEAST_WAKE: u64 = 1_000;
const MOST_WAKE: u64 = 200_000;
/// A new measurement counts one in so many.
const SHARE: u64 = 8;

/// Times that waits have taken, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Learnt {
    wake: u64,
    /// `None`: nothing came yet.
    reply: Option<u64>,
}

impl Learnt {
    pub(super) const NOTHING: Learnt = Learnt {
        wake: WAKE,
        reply: None,
    };

    /// How long to spin, at most `most`; 0: not at all. `woken`: the peer slept and was woken just now.
    pub(super) fn budget(&self, most: u64, woken: bool) -> u64 {
        if self.reply.is_some_and(|reply| reply > self.wake) {
            return 0;
        }
        let first = if woken { self.wake } else { 0 };
        (self.wake + first).min(most)
    }

    /// Notes that the event came `after` the wait began.
    pub(super) fn came(&mut self, after: u64, woken: bool) {
        let after = if woken {
            after.saturating_sub(self.wake)
        } else {
            after
        };
        // One that took milliseconds, because the peer was pre-empted, must not stop the spinning for long.
        let after = after.min(4 * self.wake);
        self.reply = Some(self.reply.map_or(after, |reply| towards(reply, after)));
    }

    /// We were awake so long after the peer had called.
    pub(super) fn woke(&mut self, after: u64) {
        self.wake = towards(self.wake, after.clamp(LEAST_WAKE, MOST_WAKE));
    }
}

/// A step from the average towards a new value; both below 2^63.
fn towards(average: u64, new: u64) -> u64 {
    (average * (SHARE - 1) + new) / SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 100_000;

    #[test]
    fn a_fast_peer_is_spun_for_and_a_slow_one_not() {
        let mut learnt = Learnt::NOTHING;
        assert_eq!(learnt.budget(MOST, false), WAKE, "nothing is known: try");
        learnt.came(600, false);
        assert_eq!(learnt.budget(MOST, false), WAKE);
        assert_eq!(learnt.budget(MOST, true), 2 * WAKE);
        for _ in 0..40 {
            learnt.came(1_000_000, false);
        }
        assert_eq!(learnt.budget(MOST, true), 0);
        for _ in 0..40 {
            learnt.came(600, false);
        }
        assert_eq!(learnt.budget(MOST, false), WAKE, "and it is learnt back");
    }

    #[test]
    fn where_waking_takes_longer_a_longer_reply_is_worth_it() {
        let mut learnt = Learnt::NOTHING;
        for _ in 0..60 {
            learnt.came(50_000, false);
        }
        assert_eq!(learnt.budget(MOST, false), 0);
        for _ in 0..60 {
            learnt.woke(80_000);
            learnt.came(50_000, false);
        }
        assert!(learnt.budget(MOST, false) > 50_000, "{learnt:?}");
    }

    #[test]
    fn one_outlier_changes_nothing() {
        let mut learnt = Learnt::NOTHING;
        learnt.came(600, false);
        learnt.came(u64::MAX, false);
        assert!(learnt.budget(MOST, false) > 0, "{learnt:?}");
    }

    #[test]
    fn a_peer_that_must_be_woken_is_not_slow_for_that() {
        let mut learnt = Learnt::NOTHING;
        for _ in 0..60 {
            learnt.came(WAKE + 600, true);
        }
        assert!(learnt.budget(MOST, false) > 0, "{learnt:?}");
    }

    #[test]
    fn whatever_the_peer_says_the_limit_holds() {
        let mut learnt = Learnt::NOTHING;
        for nonsense in [0, 1, u64::MAX, u64::MAX / 2] {
            for _ in 0..100 {
                learnt.woke(nonsense);
                learnt.came(0, true);
                assert!(learnt.budget(MOST, true) <= MOST);
                assert_eq!(learnt.budget(0, true), 0);
            }
        }
    }
}
