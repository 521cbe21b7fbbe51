//! Processes that map more and more: when each would come to `vm.max_map_count`, where mmap(2) fails with ENOMEM.
//!
//! ```text
//! mappings            x      a look in each quarter of the window;
//!                  x         fires where each has more than the one before,
//!               x            and the limit is near at the rate of the whole window
//!          x
//!       x
//! ```

use std::collections::{HashMap, VecDeque};

use stopgap_events::units::Nanos;
use stopgap_stats::watch::Growth;

/// Parts of the window, in each of which mappings must have become more: a program that starts maps much, and then no more.
const PARTS: u64 = 4;
/// From one part in so many of the limit on: few mappings are no leak yet, and most programs grow at their start.
const LEAST_PART: u64 = 16;

/// A trigger: the process, how its mappings grow, and the time to the limit.
pub(super) type Fired = (u32, Growth, Nanos);

/// The mappings of one process.
#[derive(Debug, Default)]
struct Process {
    /// When, and how many; the last ones of the window.
    looks: VecDeque<(Nanos, u32)>,
    /// It fires again when the time to the limit is half of what it was.
    fires_at: Option<Nanos>,
}

/// The mappings of all processes.
#[derive(Debug)]
pub(super) struct MapGrowth {
    horizon: Nanos,
    window: Nanos,
    next: Nanos,
    processes: HashMap<u32, Process>,
}

impl MapGrowth {
    /// Fires where the limit would be reached within `horizon` at the rate of the last `window`.
    pub(super) fn new(horizon: Nanos, window: Nanos) -> MapGrowth {
        MapGrowth {
            horizon,
            window,
            next: Nanos(0),
            processes: HashMap::new(),
        }
    }

    pub(super) fn horizon(&self) -> Nanos {
        self.horizon
    }

    pub(super) fn window(&self) -> Nanos {
        self.window
    }

    /// Returns the time from one look to the next.
    pub(super) fn step(&self) -> Nanos {
        Nanos(self.window.0 / PARTS)
    }

    /// Whether it is time for a look.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Takes how many mappings each process has `now`, and how many it may have. Returns what fires.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        limit: u64,
        counts: impl Iterator<Item = (u32, u32)>,
    ) -> Vec<Fired> {
        self.next = now + self.step();
        let mut before = std::mem::take(&mut self.processes);
        let mut fired = Vec::new();
        for (pid, maps) in counts {
            let mut process = before.remove(&pid).unwrap_or_default();
            process.looks.push_back((now, maps));
            while process.looks.len() as u64 > PARTS + 1 {
                process.looks.pop_front();
            }
            if let Some((growth, left)) = process.forecast(limit) {
                let fires_at = process.fires_at.unwrap_or(self.horizon);
                if left <= fires_at {
                    process.fires_at = Some(Nanos(left.0 / 2));
                    fired.push((pid, growth, left));
                }
            } else {
                process.fires_at = None;
            }
            self.processes.insert(pid, process);
        }
        fired
    }
}

impl Process {
    /// How it grows, and the time to the limit; `None` where it does not.
    fn forecast(&self, limit: u64) -> Option<(Growth, Nanos)> {
        let (&(begin, first), &(end, last)) = (self.looks.front()?, self.looks.back()?);
        let mut pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let whole = self.looks.len() as u64 > PARTS;
        if !whole || u64::from(last) < limit / LEAST_PART {
            return None;
        }
        if pairs.any(|((_, before), (_, after))| after <= before) {
            return None;
        }
        let (more, time) = (u64::from(last - first), end.saturating_sub(begin).0);
        let per = |unit: u64| {
            u64::try_from(u128::from(more) * u128::from(unit) / u128::from(time.max(1)))
        };
        let left =
            u128::from(limit.saturating_sub(last.into())) * u128::from(time) / u128::from(more);
        let growth = Growth {
            maps: last.into(),
            limit,
            per_hour: per(Nanos::secs(3_600).0).unwrap_or(u64::MAX),
        };
        Some((growth, Nanos(u64::try_from(left).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = Nanos::secs(3_600);

    fn looks(growth: &mut MapGrowth, counts: &[u32]) -> Vec<Fired> {
        let mut fired = Vec::new();
        for &count in counts {
            let now = growth.next.max(Nanos::secs(15));
            fired.extend(growth.look(now, 65_530, [(7, count), (8, 900)].into_iter()));
        }
        fired
    }

    /// 6 a second from 6,000 on: 65,530 in 2.75 hours.
    #[test]
    fn a_known_rate_gives_a_known_time() {
        let mut growth = MapGrowth::new(Nanos::secs(86_400), Nanos::secs(60));
        let counts: Vec<u32> = (0..5).map(|look| 6_000 + 90 * look).collect();
        let fired = looks(&mut growth, &counts);
        let [(pid, told, left)] = fired[..] else {
            panic!("{fired:?}");
        };
        assert_eq!((pid, told.maps, told.per_hour), (7, 6_360, 21_600));
        assert_eq!(left, Nanos((65_530 - 6_360) * 1_000_000_000 / 6));
        // The time to the limit must halve before it fires again.
        assert!(looks(&mut growth, &[6_450, 6_540]).is_empty());
        let again: Vec<u32> = (0..400).map(|look| 6_630 + 90 * look).collect();
        let fired = looks(&mut growth, &again);
        let [(_, _, half)] = fired[..] else {
            panic!("{fired:?}");
        };
        assert!(half <= Nanos(left.0 / 2) && half + Nanos::secs(15) > Nanos(left.0 / 2));
    }

    #[test]
    fn what_stops_starts_or_is_far_from_the_limit_does_not_fire() {
        let new = || MapGrowth::new(HOUR, Nanos::secs(60));
        // Too slow: 65,530 in 16 hours.
        let slow: Vec<u32> = (0..20).map(|look| 6_000 + 15 * look).collect();
        assert!(looks(&mut new(), &slow).is_empty());
        // A program that starts and has what it needs.
        assert!(looks(&mut new(), &[300, 4_000, 8_000, 9_000, 9_000, 9_001]).is_empty());
        // One that maps and unmaps.
        let back = [
            20_000, 21_000, 22_000, 20_500, 21_500, 22_500, 20_000, 21_000,
        ];
        assert!(looks(&mut new(), &back).is_empty());
        // Fast, and small.
        let small: Vec<u32> = (0..10).map(|look| 100 + 300 * look).collect();
        assert!(looks(&mut new(), &small).is_empty());
        // At its end, the process is forgotten.
        let mut growth = new();
        looks(&mut growth, &[6_000]);
        growth.look(Nanos::secs(100), 65_530, [(8, 1)].into_iter());
        assert_eq!(growth.processes.len(), 1);
    }
}
