//! The measuring thread of one CPU.

use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;
use stopgap_stats::histogram::Recorder;
use stopgap_stats::record::Block;

use super::schedule::Schedule;
use super::{Policy, Wakeup};

/// What a real-time thread needs and did not get: why it then ran as an ordinary one.
pub(super) const REALTIME: &str = "wake-ups of a real-time thread";
/// Name of what is missing where memory cannot be locked.
pub(super) const LOCKED: &str = "locked memory (its own page faults may be in the figures)";

/// Figures of one CPU's thread in one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) cpu: u32,
    /// The policy under which it ran.
    pub(super) policy: Policy,
    /// Every period; `None` where it was interrupted before the first.
    pub(super) all: Option<Block>,
    /// Those that it slept for, as cyclictest counts.
    pub(super) slept: Option<Block>,
    /// Periods that passed while it slept for an earlier one; they are among all.
    pub(super) missed: u64,
    pub(super) missing: Vec<Missing>,
    /// Why it did not begin.
    pub(super) error: Option<String>,
}

/// Makes the calling thread one that wakes on `cpu`, and measures for `time`.
pub(super) fn carry_out(
    system: &dyn System,
    probe: &Wakeup,
    (run, cpu): (u32, u32),
    time: Nanos,
    interrupted: &dyn Fn() -> bool,
) -> Report {
    let mut report = Report {
        cpu,
        ..Report::default()
    };
    if let Err(error) = system.set_cpus(&[cpu]) {
        report.error = Some(error.to_string());
        return report;
    }
    let mut all = Recorder::new(probe.stall.0);
    let mut slept = Recorder::new(probe.stall.0);
    if let Err(error) = system.lock_memory() {
        report.missing.push(Missing::new(LOCKED, error.to_string()));
    }
    if probe.policy == Policy::Fifo {
        match system.set_fifo(probe.priority) {
            Ok(()) => report.policy = Policy::Fifo,
            Err(error) => {
                let why = format!("{error}: it ran under SCHED_OTHER");
                report.missing.push(Missing::new(REALTIME, why));
            }
        }
    }
    let begin = system.now();
    let mut schedule = Schedule::new(begin, probe.interval);
    while schedule.next() <= begin + time && !interrupted() {
        system.sleep_until(schedule.next());
        for period in schedule.over(system.now()) {
            all.record(period.intended.0, period.late.0);
            if period.missed {
                report.missed += 1;
            } else {
                slept.record(period.intended.0, period.late.0);
            }
        }
    }
    report.all = all.into_block(run, begin.0);
    report.slept = slept.into_block(run, begin.0);
    report
}
