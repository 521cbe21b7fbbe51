//! Switches that rusage counts and the rows do not have.
//!
//! perf lets go of a task early in its exit (since Linux 6.16 before `exit_mm()`, `do_exit()` in
//! `kernel/exit.c`): how often it leaves a CPU while its memory is freed is in no record. wait4(2) counts
//! those, of the command and of what it waited for.

use stopgap_events::machine::Missing;
use stopgap_trace::{Event, Kind};

use crate::counters::{RUSAGE_INVOLUNTARY, RUSAGE_VOLUNTARY};

/// Both counts, as the events go by.
#[derive(Debug, Default)]
pub(super) struct Balance {
    /// Rows in which a thread leaves a CPU.
    rows: u64,
    voluntary: Option<u64>,
    involuntary: Option<u64>,
}

impl Balance {
    pub(super) fn event(&mut self, event: &Event) {
        match &event.kind {
            Kind::Switch { .. } if event.tid.is_some() => self.rows += 1,
            Kind::Counter { name, value } if &**name == RUSAGE_VOLUNTARY => {
                self.voluntary = u64::try_from(*value).ok();
            }
            Kind::Counter { name, value } if &**name == RUSAGE_INVOLUNTARY => {
                self.involuntary = u64::try_from(*value).ok();
            }
            _ => {}
        }
    }

    /// What the rows lack. Where they have as many, nothing: then rusage lacks some too, as of processes
    /// that nobody waited for, and who lacks how many is not known.
    pub(super) fn missing(&self) -> Option<Missing> {
        const WHAT: &str = "switches in the exit of a task";
        const WHY: &str = "perf lets go of a task before it frees its memory; BPF records them, with CAP_BPF and CAP_PERFMON or as root";
        let Some(rusage) = self.voluntary.zip(self.involuntary) else {
            return Some(Missing::new(WHAT, WHY));
        };
        let counted = rusage.0.saturating_add(rusage.1);
        let lacks = counted.checked_sub(self.rows).filter(|&lacks| lacks > 0)?;
        Some(Missing::new(
            WHAT,
            format!(
                "rusage counts {counted} switches, the trace has {}: {lacks} at least are in no row; {WHY}",
                self.rows
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use stopgap_events::units::Nanos;

    use super::*;

    fn event(tid: Option<u32>, kind: Kind) -> Event {
        Event {
            time: Nanos(1),
            cpu: None,
            pid: None,
            tid,
            comm: None,
            kind,
        }
    }

    fn switch() -> Kind {
        Kind::Switch {
            state: None,
            preempted: Some(true),
            priority: None,
            next_tid: None,
            next_comm: None,
            next_priority: None,
            stack: None,
        }
    }

    fn counter(name: &str, value: i64) -> Event {
        let name = name.into();
        event(None, Kind::Counter { name, value })
    }

    #[test]
    fn what_rusage_counts_more_is_missing() {
        let mut balance = Balance::default();
        for tid in [Some(1), Some(2), None] {
            balance.event(&event(tid, switch()));
        }
        let unknown = balance.missing().expect("nobody counted");
        assert!(!unknown.why.contains("rusage"), "{unknown:?}");
        balance.event(&counter(RUSAGE_VOLUNTARY, 1));
        balance.event(&counter(RUSAGE_INVOLUNTARY, 4));
        let missing = balance.missing().expect("three");
        assert!(
            missing
                .why
                .starts_with("rusage counts 5 switches, the trace has 2: 3 at least are")
        );
        balance.event(&counter(RUSAGE_INVOLUNTARY, 1));
        assert_eq!(balance.missing(), None);
        balance.event(&counter(RUSAGE_INVOLUNTARY, 0));
        assert_eq!(balance.missing(), None, "more rows than rusage");
    }
}
