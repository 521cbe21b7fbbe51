//! Says what is unknown because a kind of event never came, and whether that kind was recorded at all.

use stopgap_events::machine::Missing;
use stopgap_stats::explain::{KERNEL_EVENTS, UNSEEN_CALLS};
use stopgap_trace::Metadata;

use crate::explainer::{Explainer, Seen};

/// Facts that only certain events of the kernel show.
struct Subject {
    /// The facts that are unknown without the events.
    what: &'static str,
    /// Names of the events in a trace's metadata.
    events: &'static [&'static str],
    /// The reason that is given if the trace does not say which events were recorded.
    why: &'static str,
}

const SWITCHES: Subject = Subject {
    what: "switches, time by state, time on the CPU and on the run queue",
    events: &["sched:sched_switch", "PERF_RECORD_SWITCH"],
    why: "the trace has no scheduling events (switch)",
};
const WAKINGS: Subject = Subject {
    what: "who woke whom, round trips, time on the run queue after a sleep",
    events: &["sched:sched_waking"],
    why: "the trace has no waking events",
};
const CALLS: Subject = Subject {
    what: "slow calls, round trips, calls in which a thread sleeps",
    events: &["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"],
    why: "the trace has no system calls (syscall-enter, syscall-exit)",
};
const FAULTS: Subject = Subject {
    what: "slow page faults",
    events: &["exceptions:page_fault_user", "exceptions:page_fault_kernel"],
    why: "the trace has no page-fault events",
};
const UNSAID: &str = "the trace has no such events, and does not say whether they were recorded";
const RECLAIM: Subject = Subject {
    what: "reclaim",
    events: &[
        "vmscan:mm_vmscan_direct_reclaim_begin",
        "vmscan:mm_vmscan_memcg_reclaim_begin",
    ],
    why: UNSAID,
};
const COMPACTION: Subject = Subject {
    what: "compaction",
    events: &["compaction:mm_compaction_begin"],
    why: UNSAID,
};
const LOCKS: Subject = Subject {
    what: "waits for locks",
    events: &["mmap_lock:mmap_lock_start_locking", "lock:contention_begin"],
    why: UNSAID,
};
const STACKS: Subject = Subject {
    what: "in which lock, I/O or fence a thread sleeps where no event says so",
    events: &["ftrace:kernel_stack"],
    why: "no switch has a kernel stack",
};

impl Subject {
    /// Returns whether one of its events was switched on; `None` if the trace does not say which events were.
    fn recorded(&self, metadata: &Metadata) -> Option<bool> {
        let on = metadata.events.as_ref()?;
        // BPF programs are attached to the same tracepoints, under other names.
        let name = |event: &str| event.rsplit(':').next().map(str::to_owned);
        let own = |event: &&str| on.iter().any(|on| name(on) == name(event));
        Some(self.events.iter().any(own))
    }

    /// Returns why the facts are unknown.
    fn why(&self, metadata: &Metadata) -> String {
        let events = || self.events.join(", ");
        match self.recorded(metadata) {
            None => self.why.to_owned(),
            Some(true) => format!("{} was recorded, and there was none", events()),
            Some(false) => {
                let of_it = |lack: &&Missing| {
                    let event = lack.what.strip_prefix("event ");
                    event.is_some_and(|event| self.events.contains(&event))
                };
                let lack = metadata.missing.iter().find(of_it);
                let reason = lack.map_or("the recording did not have it switched on", |m| &m.why);
                format!("{}: {reason}", events())
            }
        }
    }
}

impl Seen {
    /// Marks the events that were switched on as seen: if none came, there was none.
    pub(crate) fn learn(&mut self, metadata: &Metadata) {
        let on = |subject: Subject| subject.recorded(metadata) == Some(true);
        self.faults |= on(FAULTS);
        self.reclaim |= on(RECLAIM);
        self.compaction |= on(COMPACTION);
        self.locks |= on(LOCKS);
    }
}

/// Returns the facts that are unknown because the trace lacks their events, with the reasons.
pub(crate) fn never_seen(all: &Explainer) -> Vec<Missing> {
    let (seen, metadata) = (&all.seen, &all.metadata);
    // A recording without the kernel's events says itself what it lacks.
    let says_itself = metadata.missing.iter().any(|m| m.what == KERNEL_EVENTS);
    let subjects = [
        (seen.switches, SWITCHES),
        (seen.wakings || !seen.switches, WAKINGS),
        (seen.calls, CALLS),
        (seen.faults, FAULTS),
        (seen.reclaim, RECLAIM),
        (seen.compaction, COMPACTION),
        (seen.locks, LOCKS),
        (seen.stacks || !seen.switches, STACKS),
    ];
    let unknown = subjects.into_iter().filter(|(known, subject)| {
        !(*known || says_itself && subject.recorded(metadata) == Some(false))
    });
    let missing = unknown.map(|(_, subject)| Missing::new(subject.what, subject.why(metadata)));
    let mut missing: Vec<Missing> = missing.collect();
    if !seen.samples {
        let why = match metadata.sample_period_ns {
            Some(period) => {
                format!("samples were taken each {period} of CPU time, and there was none")
            }
            None => "the trace has no samples; stopgap record --samples 999 takes them".to_owned(),
        };
        missing.push(Missing::new("in which functions CPU time was spent", why));
    }
    if lacks_calls(all) {
        let why = "the trace has no rows of them (syscall-enter, syscall-exit); stopgap record --events all takes them";
        missing.push(Missing::new(UNSEEN_CALLS, why));
    }
    if seen.nameless_calls {
        let why = "the trace has only their numbers, which differ between architectures";
        missing.push(Missing::new("what some system calls are", why));
    }
    missing
}

/// Returns whether waits name their calls while the other calls have no rows.
pub(crate) fn lacks_calls(all: &Explainer) -> bool {
    // A recording by BPF has rows for the calls that change an address space, and for no others.
    let some = |on: &Vec<String>| on.iter().any(|event| event.ends_with(":sys_mmap"));
    let some = all.metadata.events.as_ref().is_some_and(some);
    let recorded = CALLS.recorded(&all.metadata) == Some(true);
    all.seen.calls && !recorded && (some || !all.seen.call_rows)
}
