//! What both measured, and what must hold of it.

use std::path::Path;

use stopgap_cli::Failure;
use stopgap_events::machine::Privilege;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_kernel::journal::Journal;
use stopgap_kernel::signals;
use stopgap_kernel::tasks::Tasks;
use stopgap_probes::wakeup::{MISSED, Policy, SLEPT_FOR, WAKE_UP, Wakeup};
use stopgap_probes::{Context, Probe};

use super::{INTERVAL, PRIORITY, STALL};
use crate::bound::Bound;

/// By what share means may differ.
const MEANS: f64 = 0.15;
/// How far maxima must be correlated.
const CORRELATED: f64 = 0.9;
/// A wake-up so late is part of the injected stall.
const LATE: Nanos = Nanos::millis(10);
/// Of the periods that the stall holds up for [`LATE`] or more, ours must hold so many; the stall may begin
/// a little late and the machine may take some of it.
const HELD: f64 = 0.8;
/// What the host may take of the CPU during a run. The kernel counts it in ticks of 10 ms: of two, more than one is taken
/// for sure, and one may be the end of what was taken before.
const STOLEN: Nanos = Nanos::millis(10);
/// How long the witness may be held up during a run, where half of what the load takes is not more: far above what it ever is by
/// itself.
const HELD_UP: Nanos = Nanos::millis(4);
/// Cyclictest keeps the wake-up that the stall ended with; the machine may add few of its own.
const KEPT_BY_CYCLICTEST: u64 = 5;

/// A run of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Side {
    /// Periods that were slept for.
    pub(super) samples: u64,
    sum_ns: f64,
    pub(super) max_ns: u64,
    /// How many samples of its histogram are late by [`LATE`] or more: with ours, missed periods, too.
    pub(super) above_10_ms: u64,
    /// Periods that passed while it slept for an earlier one; cyclictest does not count them.
    pub(super) missed: u64,
}

impl Side {
    /// Counts `count` wake-ups that were `late_ns` late.
    pub(super) fn add(&mut self, late_ns: u64, count: u64) {
        self.samples += count;
        self.sum_ns += late_ns as f64 * count as f64;
        if late_ns >= LATE.0 {
            self.above_10_ms += count;
        }
    }

    /// Mean lateness of periods that were slept for, microseconds.
    pub(super) fn mean_us(&self) -> f64 {
        self.sum_ns / self.samples as f64 / 1_000.0
    }
}

/// A run of `probe wakeup` on `cpu`.
pub(super) fn ours(journal: &Journal<'_>, cpu: u32, time: Nanos) -> Result<Side, Failure> {
    let probe = Wakeup {
        interval: INTERVAL,
        policy: Policy::Fifo,
        priority: PRIORITY,
        stall: LATE,
        runs: 1,
    };
    let before = Linux.cpus()?;
    Linux.set_cpus(&[cpu])?;
    let context = Context {
        system: &Linux,
        journal,
        budget: Bytes::mib(64),
        time,
        seed: 1,
        privilege: Privilege::Root,
        scratch: Path::new("/"),
        progress: &|_, _| {},
        interrupted: &signals::interrupted,
    };
    let measured = probe.run(&context);
    Linux.set_cpus(&before)?;
    let measured = measured.map_err(|error| Failure::error(error.to_string()))?;
    let pooled = |name| {
        let mut all = measured.series.iter();
        let series = all.find(|series| series.name == name);
        series
            .map(stopgap_stats::record::Series::pooled)
            .ok_or_else(|| {
                Failure::error(format!(
                    "probe wakeup gave no '{name}': {:?}",
                    measured.missing
                ))
            })
    };
    let mut side = Side::default();
    for (late, count) in pooled(SLEPT_FOR)?.buckets() {
        side.add(late, count);
    }
    let all = pooled(WAKE_UP)?;
    side.max_ns = all.max().unwrap_or(0);
    let late = all.buckets().filter(|(late, _)| *late >= LATE.0);
    side.above_10_ms = late.map(|(_, count)| count).sum();
    let missed = measured
        .counters
        .iter()
        .filter(|counter| counter.name == MISSED);
    side.missed = missed.map(|counter| counter.value).sum();
    Ok(side)
}

/// What was taken from both a tool and its load during a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// By the host, as the kernel counts it; `None`: this machine does not say.
    pub(super) stolen: Option<Nanos>,
    /// The longest that the witness was held up.
    pub(super) held_up: Nanos,
}

/// Both under the same load.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) takes: Nanos,
    pub(super) ours: Side,
    pub(super) theirs: Side,
    /// During each of the two runs.
    pub(super) taken: [Taken; 2],
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Pair {
    pub(super) const HEAD: &str = "pair  load ms  mean us: ours  cyclictest  ratio  max ms: ours  cyclictest  missed  \
                                   stolen ms  held up ms";

    /// Whether the machine was taken from one of the two and so made them unlike: by what the kernel and the witness say of
    /// that alone, never by what was measured.
    pub(super) fn is_void(&self) -> bool {
        // What is short beside the load's own time moves a maximum by little.
        let most = HELD_UP.max(Nanos(self.takes.0 / 2));
        let held_up =
            |taken: &Taken| taken.held_up > most || taken.stolen.is_some_and(|time| time > STOLEN);
        self.taken.iter().any(held_up)
    }

    pub(super) fn line(&self, number: u32) -> String {
        let (ours, theirs) = (&self.ours, &self.theirs);
        format!(
            "{number:>4}{:>9.1}{:>15.1}{:>12.1}{:>7.2}{:>14.2}{:>12.2}{:>8}{:>11}{:>12}{}",
            ms(self.takes.0),
            ours.mean_us(),
            theirs.mean_us(),
            ours.mean_us() / theirs.mean_us(),
            ms(ours.max_ns),
            ms(theirs.max_ns),
            ours.missed,
            self.taken.map(|taken| stolen_ms(taken.stolen)).join("+"),
            self.taken
                .map(|taken| format!("{:.1}", ms(taken.held_up.0)))
                .join("+"),
            if self.is_void() { "  void" } else { "" }
        )
    }
}

fn stolen_ms(stolen: Option<Nanos>) -> String {
    stolen.map_or("?".to_owned(), |time| (time.0 / 1_000_000).to_string())
}

/// Both beside one stall of [`STALL`].
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) ours: Side,
    pub(super) theirs: Side,
}

impl Stalled {
    pub(super) fn line(&self) -> String {
        format!(
            "a stall of {STALL}: samples of {LATE} and more: ours {} (missed periods {}), cyclictest {}; longest {:.1} and \
             {:.1} ms",
            self.ours.above_10_ms,
            self.ours.missed,
            self.theirs.above_10_ms,
            ms(self.ours.max_ns),
            ms(self.theirs.max_ns)
        )
    }
}

pub(super) fn bounds(pairs: &[Pair], stalled: &Stalled) -> Vec<Bound> {
    let mean = |side: fn(&Pair) -> &Side| {
        let all: f64 = pairs.iter().map(|pair| side(pair).mean_us()).sum();
        all / pairs.len() as f64
    };
    let (ours, theirs) = (mean(|pair| &pair.ours), mean(|pair| &pair.theirs));
    let off = (ours / theirs - 1.0).abs();
    let maxima: Vec<(f64, f64)> = pairs
        .iter()
        .map(|pair| (ms(pair.ours.max_ns), ms(pair.theirs.max_ns)))
        .collect();
    let r = correlation(&maxima);
    // A period that the stall holds up for LATE or more: all but the last ones of it.
    let expected = (STALL.0 - LATE.0) / INTERVAL.0;
    let held = (expected as f64 * HELD) as u64;
    vec![
        Bound::new(
            off <= MEANS,
            format!(
                "means: {ours:.1} us ours, {theirs:.1} cyclictest's, over {} pairs: {:.1} % apart ({:.0} %)",
                pairs.len(),
                off * 100.0,
                MEANS * 100.0
            ),
        ),
        Bound::new(
            r.is_some_and(|r| r > CORRELATED),
            format!(
                "maxima: r = {} ({CORRELATED})",
                r.map_or("unknown".to_owned(), |r| format!("{r:.3}"))
            ),
        ),
        Bound::new(
            stalled.ours.above_10_ms >= held,
            format!(
                "missed periods: {} of the {expected} that the stall holds up for {LATE} or more are in our histogram ({held})",
                stalled.ours.above_10_ms
            ),
        ),
        Bound::new(
            (1..=KEPT_BY_CYCLICTEST).contains(&stalled.theirs.above_10_ms),
            format!(
                "left out: cyclictest's histogram holds {} of them (1 to {KEPT_BY_CYCLICTEST})",
                stalled.theirs.above_10_ms
            ),
        ),
    ]
}

/// Pearson's coefficient; `None` where one of them does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let (x, y) = pairs.iter().fold((0.0, 0.0), |sum, pair| {
        (sum.0 + pair.0 / n, sum.1 + pair.1 / n)
    });
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for pair in pairs {
        let (dx, dy) = (pair.0 - x, pair.1 - y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    let r = xy / (xx * yy).sqrt();
    r.is_finite().then_some(r)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_of_hand_computed_cases() {
        let r = |pairs: &[(f64, f64)]| correlation(pairs);
        assert_eq!(r(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]), Some(1.0));
        assert_eq!(r(&[(1.0, 3.0), (3.0, 1.0)]), Some(-1.0));
        // x 1 2 3 4, y 2 1 4 3: sums of products 3, of squares 5 and 5.
        let some = r(&[(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0)]).unwrap();
        assert!((some - 0.6).abs() < 1e-12);
        assert_eq!(r(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }

    fn side(mean_us: f64, max_ns: u64, above_10_ms: u64) -> Side {
        Side {
            samples: 1_000,
            sum_ns: mean_us * 1e6,
            max_ns,
            above_10_ms,
            missed: 0,
        }
    }

    /// ```text
    /// stolen   0+10  20+0  ?+?  ?+30  0+0   0+0    ms
    /// held up  0+0   0+0   0+0  0+0   0+4   5+0    ms
    /// void     no    yes   no   yes   no    yes    whatever the maxima are; the load takes 2 ms
    /// ```
    #[test]
    fn a_pair_is_void_by_what_was_taken_and_by_nothing_else() {
        let pair = |stolen: [Option<u64>; 2], held_up: [u64; 2], theirs: u64| Pair {
            takes: Nanos::millis(2),
            ours: side(100.0, 5_000_000, 0),
            theirs: side(100.0, theirs, 0),
            taken: [0, 1].map(|at| Taken {
                stolen: stolen[at].map(Nanos::millis),
                held_up: Nanos::millis(held_up[at]),
            }),
        };
        for theirs in [5_000_000, 300_000_000] {
            let void = |stolen, held_up| pair(stolen, held_up, theirs).is_void();
            assert!(!void([Some(0), Some(10)], [0, 0]));
            assert!(void([Some(20), Some(0)], [0, 0]));
            assert!(!void([None, None], [0, 0]));
            assert!(void([None, Some(30)], [0, 0]));
            assert!(!void([Some(0), Some(0)], [0, 4]));
            assert!(void([Some(0), Some(0)], [5, 0]));
        }
        let mut long = pair([None; 2], [0, 15], 1);
        long.takes = Nanos::millis(30);
        assert!(!long.is_void(), "half of the load's 30 ms");
        long.takes = Nanos::millis(29);
        assert!(long.is_void());
        let line = pair([None, Some(30)], [0, 5], 1).line(0);
        assert!(line.ends_with("?+30     0.0+5.0  void"), "{line}");
    }

    #[test]
    fn each_bound_can_break() {
        let pairs = |theirs: f64| -> Vec<Pair> {
            (1..=3)
                .map(|n| Pair {
                    takes: Nanos(n),
                    ours: side(100.0, n * 1_000, 0),
                    theirs: side(theirs, n * 1_100, 0),
                    taken: [Taken {
                        stolen: None,
                        held_up: Nanos(0),
                    }; 2],
                })
                .collect()
        };
        let stalled = |ours, theirs| Stalled {
            ours: side(1.0, 1, ours),
            theirs: side(1.0, 1, theirs),
        };
        let hold = |pairs: &[Pair], stalled: &Stalled| -> Vec<bool> {
            bounds(pairs, stalled).iter().map(Bound::holds).collect()
        };
        assert_eq!(hold(&pairs(110.0), &stalled(190, 1)), [true; 4]);
        assert_eq!(
            hold(&pairs(140.0), &stalled(190, 1)),
            [false, true, true, true]
        );
        assert_eq!(
            hold(&pairs(110.0), &stalled(1, 190)),
            [true, true, false, false]
        );
        let mut apart = pairs(110.0);
        apart[2].theirs.max_ns = 0;
        assert_eq!(hold(&apart, &stalled(190, 1)), [true, false, true, true]);
    }
}
