//! Switches of `PERF_RECORD_SWITCH` show a thread that leaves or one that arrives. There are no system calls.

use stopgap_stats::explain::CauseKind;
use stopgap_trace::Kind;

use super::builder::*;

const MS: u64 = 1_000_000;

/// ```text
/// CPU 0  client--blocks      client--pre-empted   client--ends    (idle until the end)
/// ms     0      10           30      40           45      50      1050
/// ```
#[test]
fn blocked_and_preempted_are_told_apart_without_calls() {
    let mut b = Builder::new();
    b.one_side(None, Some(CLIENT));
    let exec = Kind::Exec {
        filename: None,
        old_tid: None,
    };
    b.event(CLIENT, exec).after(10 * MS);
    b.one_side(Some((CLIENT, false)), None);
    b.after(20 * MS).one_side(None, Some(CLIENT));
    b.after(10 * MS).one_side(Some((CLIENT, true)), None);
    b.after(5 * MS).one_side(None, Some(CLIENT));
    b.after(5 * MS).event(CLIENT, Kind::Exit { priority: None });
    for (pid, mappings) in [(7, 20), (8, 900), (7, 30)] {
        let counter = Kind::Counter {
            name: "mappings".into(),
            value: mappings,
        };
        b.after(300 * MS).event(CLIENT, counter);
        b.events.last_mut().expect("just made").pid = Some(pid);
    }
    let findings = b.explain();
    assert_eq!(
        (findings.switches.total, findings.switches.involuntary),
        (Some(2), Some(1))
    );
    let causes = &findings.switches.causes;
    let of = |kind| {
        causes
            .iter()
            .find(|cause| cause.kind == kind)
            .expect("such a cause")
    };
    assert_eq!(of(CauseKind::Blocked).cause, "blocked in an unknown call");
    assert_eq!(
        of(CauseKind::Preempted).cause,
        "pre-empted, it is not known where"
    );
    assert_eq!(findings.switches.roundtrips, None, "not known, not 0");
    let task = &findings.tasks[0];
    let times = (
        task.running_ns,
        task.runnable_ns,
        task.blocked_ns,
        task.wall_ns,
    );
    assert_eq!(
        times,
        (25 * MS, 5 * MS, 20 * MS, 50 * MS),
        "its time ends with it"
    );
    let live = findings.memory.live.as_ref().expect("a counter");
    assert_eq!((&*live.source, live.most), ("mappings of process 8", 900));
    assert!(
        findings
            .missing
            .iter()
            .any(|one| one.what.contains("round trips"))
    );
}
