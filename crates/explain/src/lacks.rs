//! What a kind of event that never came would have told, and whether it was recorded at all.

use stopgap_events::machine::Missing;

use crate::explainer::{Explainer, Seen};

/// Events of the kernel that tell one thing, by their names in a trace's metadata.
type Group = &'static [&'static str];

const SWITCHES: Group = &["sched:sched_switch", "PERF_RECORD_SWITCH"];
const WAKINGS: Group = &["sched:sched_waking"];
const CALLS: Group = &["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"];
const FAULTS: Group = &["exceptions:page_fault_user", "exceptions:page_fault_kernel"];
const RECLAIM: Group = &[
    "vmscan:mm_vmscan_direct_reclaim_begin",
    "vmscan:mm_vmscan_memcg_reclaim_begin",
];
const COMPACTION: Group = &["compaction:mm_compaction_begin"];
const LOCKS: Group = &["mmap_lock:mmap_lock_start_locking", "lock:contention_begin"];
const STACKS: Group = &["ftrace:kernel_stack"];

impl Seen {
    /// Of what was switched on, none that came is none that was: it is known. `events`: the trace's metadata.
    pub(crate) fn learn(&mut self, events: Option<&[String]>) {
        let on = |group| recorded(events, group) == Some(true);
        self.faults |= on(FAULTS);
        self.reclaim |= on(RECLAIM);
        self.compaction |= on(COMPACTION);
        self.locks |= on(LOCKS);
    }
}

/// Whether any event of `group` was switched on; `None` where the trace does not say which were.
fn recorded(events: Option<&[String]>, group: Group) -> Option<bool> {
    Some(events?.iter().any(|event| group.contains(&&**event)))
}

/// What is not known because its events are not in the trace, and why they are not.
pub(crate) fn never_seen(all: &Explainer) -> Vec<Missing> {
    let seen = &all.seen;
    let events = all.metadata.events.as_deref();
    let mut missing = Vec::new();
    // A recording without the kernel's events says itself what it does not have, and what that costs.
    let told = all
        .metadata
        .missing
        .iter()
        .any(|m| m.what == "kernel events");
    let mut say = |known: bool, what: &str, group: Group, unsaid: &str| {
        let why = || match recorded(events, group) {
            None => unsaid.to_owned(),
            Some(true) => format!("{} was recorded, and there was none", group.join(", ")),
            Some(false) => {
                let of_group = |lack: &&Missing| {
                    let event = lack.what.strip_prefix("event ");
                    event.is_some_and(|event| group.contains(&event))
                };
                let told = all.metadata.missing.iter().find(of_group);
                let reason = told.map_or("the recording did not have it switched on", |m| &m.why);
                format!("{}: {reason}", group.join(", "))
            }
        };
        let already = told && recorded(events, group) == Some(false);
        if !known && !already {
            missing.push(Missing::new(what, why()));
        }
    };
    say(
        seen.switches,
        "switches, time by state, time on the CPU and on the run queue",
        SWITCHES,
        "the trace has no scheduling events (switch)",
    );
    say(
        seen.wakings || !seen.switches,
        "who woke whom, round trips, time on the run queue after a sleep",
        WAKINGS,
        "the trace has no waking events",
    );
    say(
        seen.calls,
        "slow calls, round trips, calls in which a thread sleeps",
        CALLS,
        "the trace has no system calls (syscall-enter, syscall-exit)",
    );
    say(
        seen.faults,
        "slow page faults",
        FAULTS,
        "the trace has no page-fault events",
    );
    let either = "the trace has no such events, and does not say whether they were recorded";
    say(seen.reclaim, "reclaim", RECLAIM, either);
    say(seen.compaction, "compaction", COMPACTION, either);
    say(seen.locks, "waits for locks", LOCKS, either);
    say(
        seen.stacks || !seen.switches,
        "in which lock, I/O or fence a thread sleeps where no event says so",
        STACKS,
        "no switch has a kernel stack",
    );
    if !seen.samples {
        let why = match all.metadata.sample_period_ns {
            Some(period) => {
                format!("samples were taken each {period} of CPU time, and there was none")
            }
            None => "the trace has no samples; stopgap record --samples 999 takes them".to_owned(),
        };
        missing.push(Missing::new("in which functions CPU time was spent", why));
    }
    if seen.nameless_calls {
        let why = "the trace has only their numbers, which differ between architectures";
        missing.push(Missing::new("what some system calls are", why));
    }
    missing
}
