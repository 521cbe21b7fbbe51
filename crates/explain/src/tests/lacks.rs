//! Kinds of events that never came: there was no such event, or none was recorded.

use stopgap_stats::explain::Findings;

use super::builder::*;
use stopgap_events::machine::Missing;

fn with(events: Option<&[&str]>, missing: Vec<Missing>) -> Findings {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "mmap", 0);
    b.after(2_000_000).exit(CLIENT, "mmap", 0);
    b.metadata.events = events.map(|events| events.iter().map(|&e| e.to_owned()).collect());
    b.metadata.missing = missing;
    b.explain()
}

fn why<'f>(findings: &'f Findings, what: &str) -> Option<&'f str> {
    let found = findings.missing.iter().find(|m| m.what == what);
    found.map(|m| &*m.why)
}

#[test]
fn what_was_switched_on_and_never_came_is_known() {
    let findings = with(
        Some(&[
            "compaction:mm_compaction_begin",
            "sched:sched_switch",
            "sched:sched_waking",
            "vmscan:mm_vmscan_direct_reclaim_begin",
        ]),
        Vec::new(),
    );
    assert_eq!(why(&findings, "reclaim"), None);
    assert_eq!(why(&findings, "compaction"), None);
    assert_eq!(findings.memory.reclaim.as_deref().map(<[_]>::len), Some(0));
    let locks = why(&findings, "waits for locks").expect("not recorded");
    assert_eq!(
        locks,
        "mmap_lock:mmap_lock_start_locking, lock:contention_begin: the recording did not have it switched on"
    );
    let wakings = why(
        &findings,
        "who woke whom, round trips, time on the run queue after a sleep",
    );
    assert_eq!(
        wakings,
        Some("sched:sched_waking was recorded, and there was none")
    );
}

#[test]
fn what_was_not_switched_on_says_why() {
    let lack = Missing::new(
        "event compaction:mm_compaction_begin",
        "this kernel does not have it",
    );
    let findings = with(Some(&["sched:sched_switch"]), vec![lack]);
    assert_eq!(
        why(&findings, "compaction"),
        Some("compaction:mm_compaction_begin: this kernel does not have it")
    );
    assert_eq!(findings.memory.reclaim, None, "null, not 0");
}

#[test]
fn a_trace_that_does_not_say_is_not_guessed_at() {
    let findings = with(None, Vec::new());
    let reclaim = why(&findings, "reclaim").expect("not known");
    assert!(reclaim.ends_with("does not say whether they were recorded"));
    assert_eq!(findings.memory.reclaim, None);
}

/// `record` without root has lines of its own.
#[test]
fn what_a_recording_says_itself_is_not_said_twice() {
    let lack = Missing::new("kernel events", "needs root");
    let findings = with(Some(&["PERF_RECORD_SWITCH"]), vec![lack]);
    for what in [
        "reclaim",
        "compaction",
        "waits for locks",
        "slow page faults",
    ] {
        assert_eq!(why(&findings, what), None, "{what}");
    }
}

/// If rows name no thread, nobody's time is known, and the verdict is not clean.
#[test]
fn rows_without_threads_are_not_clean() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "mmap", 0);
    b.after(2_000_000).exit(CLIENT, "mmap", 0);
    let mut rows: Vec<_> = with_waits(&b.events).into_iter().collect();
    for row in &mut rows {
        (row.pid, row.tid, row.comm) = (None, None, None);
    }
    let verdict = explain(&rows, &b.metadata, options()).verdict;
    assert_eq!(verdict.word.to_string(), "inconclusive", "{}", verdict.text);
}

/// `record --comm NAME` found no process of that name. The findings about other threads are left out.
#[test]
fn where_nobody_came_the_others_are_not_explained() {
    let of = |missing: Vec<Missing>| {
        let mut b = Builder::new();
        b.switch(0, "R", CLIENT);
        b.after(2_000_000).switch(CLIENT, "S", 0);
        b.after(90_000_000).switch(0, "R", CLIENT);
        b.metadata.missing = missing;
        b.explain()
    };
    let findings = of(vec![Missing::new(stopgap_trace::NOBODY, "none came")]);
    let verdict = &findings.verdict;
    assert_eq!(verdict.word.to_string(), "inconclusive", "{}", verdict.text);
    assert!(verdict.text.ends_with("none came"), "{}", verdict.text);
    assert!(findings.slow.is_empty() && findings.calls.is_empty() && findings.tasks.is_empty());
    let waits = |findings: &Findings| findings.chains.as_ref().map(|chains| chains.waiting.len());
    assert_eq!(waits(&findings), Some(0));
    // The same without that line.
    assert_eq!(waits(&of(Vec::new())), Some(1));
}
