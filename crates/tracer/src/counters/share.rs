//! How much CPU time may be spent on counters.

use stopgap_events::units::Nanos;

/// At most one part in this many of the time is spent: reading a process's mappings takes its lock.
const PARTS: u64 = 100;
/// What may be spent at once at the beginning: a first round of some processes (about 0.5 ms of an
/// unoptimized build), also where a CPU is slow, as beside a busy hyperthread.
const HEAD_START: Nanos = Nanos::millis(10);

/// CPU time that was spent, and how much more may be.
#[derive(Debug)]
pub(super) struct Share {
    began: Nanos,
    spent: Nanos,
}

impl Share {
    pub(super) fn new(now: Nanos) -> Share {
        Share {
            began: now,
            spent: Nanos(0),
        }
    }

    /// Whether more may be spent at `now`.
    pub(super) fn may(&self, now: Nanos) -> bool {
        let elapsed = now.saturating_sub(self.began);
        self.spent.0 < elapsed.0 / PARTS + HEAD_START.0
    }

    pub(super) fn spend(&mut self, time: Nanos) {
        self.spent = Nanos(self.spent.0.saturating_add(time.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of any length: what is spent is the share, and at most one piece more.
    #[test]
    fn one_hundredth_of_the_time_is_spent() {
        for piece in [Nanos::micros(15), Nanos::micros(700), Nanos::millis(40)] {
            let mut share = Share::new(Nanos::secs(5));
            let mut now = Nanos::secs(5);
            while now < Nanos::secs(65) {
                now += Nanos::micros(100);
                while share.may(now) {
                    now += piece;
                    share.spend(piece);
                }
            }
            let most = Nanos::millis(600).0 + HEAD_START.0 + piece.0;
            assert!(
                (Nanos::millis(595).0..=most).contains(&share.spent.0),
                "{share:?}"
            );
        }
    }
}
