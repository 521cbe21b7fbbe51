//! The gaps of a recording without root, and their cost.

use stopgap_events::machine::Missing;

/// The data that only tracefs gives; `why` tracefs is unavailable.
pub(super) fn of_root(why: &str) -> Vec<Missing> {
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
        .map(|(what, costs)| Missing::new(what, format!("{costs}; as root it is recorded"))),
    );
    all
}

/// The data that only perf gives; `error` has the reason and the remedy.
pub(super) fn of_perf(error: &stopgap_kernel::Error) -> Missing {
    let why = format!("{error}: counters and rusage say how many there were, not when and of whom");
    Missing::new("switches, forks, execs and ends", why)
}
