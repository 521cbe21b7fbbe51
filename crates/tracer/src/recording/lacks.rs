//! The gaps of a recording by perf, and their cost.

use stopgap_events::machine::Missing;

/// The data that perf does not give; `why` better sources are unavailable.
pub(super) fn of_better_sources(why: &str) -> Vec<Missing> {
    let mut all = vec![Missing::new(
        "kernel events",
        format!("{why}; recorded is what a user may see, and the lines below say what that costs"),
    )];
    all.extend(
        [
            (
                "who wakes whom",
                "no round trips, and a thread that waits for a CPU cannot be told from one that sleeps",
            ),
            (
                "system calls",
                "not in which call a thread blocked, and no slow calls",
            ),
            (
                "stacks of who blocks",
                "a lock, I/O and a fence cannot be told apart",
            ),
            (
                "memory, lock and I/O events",
                "no page faults, reclaim, compaction or waits; mappings and faults are counters alone",
            ),
            (
                "who gets a CPU from whom",
                "a thread that is pre-empted, but not by whom",
            ),
        ]
        .map(|(what, costs)| Missing::new(what, format!("{costs}; BPF records it, with CAP_BPF and CAP_PERFMON or as root"))),
    );
    all
}

/// The data that only perf gives; `error` has the reason and the remedy.
pub(super) fn of_perf(error: &stopgap_kernel::Error) -> Missing {
    let why = format!("{error}: counters and rusage say how many there were, not when and of whom");
    Missing::new("switches, forks, execs and ends", why)
}
