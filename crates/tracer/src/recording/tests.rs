//! Where perf is refused; `tests/record_user.rs` of the command records where it is not.

use stopgap_kernel::Linux;
use stopgap_kernel::clock::Clock;
use stopgap_kernel::linux::Held;
use stopgap_trace::Kind;

use super::*;
use crate::symbols::Symbols;

/// `kernel.perf_event_paranoid` above 2, in effect.
#[test]
fn counters_are_what_is_left_where_perf_is_refused() {
    // The filter lasts as long as its thread, and what that forks.
    let refused = std::thread::spawn(|| {
        stopgap_kernel::fake::refuse_switch_records().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("spool");
        let subject = Subject::from("sleep");
        let mut user = Recording::prepare(
            &Linux,
            &spool,
            subject,
            None,
            &By::Perf { why: "no tracefs" },
        )
        .unwrap();
        let held = Held::start(&["sleep", "0.3"].map(Into::into)).unwrap();
        let pid = held.pid();
        user.start(pid).unwrap();
        let child = held.release().unwrap();
        let deadline = Linux.now() + Nanos::secs(20);
        let ended = loop {
            user.pump(Some(child.watched()), Nanos::millis(20)).unwrap();
            if let Some(ended) = child.ended().unwrap() {
                break ended;
            }
            assert!(Linux.now() < deadline, "it does not end");
        };
        user.ended(pid, &ended).unwrap();
        let spool = user.stop(End::default()).unwrap();
        let mut trace = spool.trace(&Symbols::default()).unwrap();
        let mut names = Vec::new();
        while let Some(event) = trace.next_event().unwrap() {
            match event.kind {
                Kind::Counter { name, value } => names.push((name.to_string(), value)),
                other => panic!("{other:?}"),
            }
        }
        let metadata = trace.metadata();
        drop(trace);
        spool.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        (names, metadata, ended)
    });
    let (names, metadata, ended) = refused.join().unwrap();
    let last = |name: &str| {
        names
            .iter()
            .rev()
            .find(|one| one.0 == name)
            .map(|one| one.1)
    };
    assert!(last("mappings").is_some_and(|count| count > 3), "{names:?}");
    let voluntary = i64::try_from(ended.switches.voluntary).unwrap();
    assert_eq!(last("rusage voluntary switches"), Some(voluntary));
    let why = |what: &str| {
        metadata
            .missing
            .iter()
            .find(|one| one.what.starts_with(what))
    };
    assert!(why("kernel events").is_some_and(|one| one.why.starts_with("no tracefs")));
    let perf = why("switches, forks").expect("it is said");
    assert!(perf.why.contains("counters and rusage"), "{perf:?}");
    assert_eq!(metadata.losses, Some(Vec::new()));
}

#[test]
fn a_process_that_is_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let mut user = Recording::prepare(
        &Linux,
        &spool,
        Subject::default(),
        None,
        &By::Perf { why: "" },
    )
    .unwrap();
    let error = user.start(5_000_000).unwrap_err().to_string();
    assert_eq!(error, "no process 5000000");
    let again = Recording::prepare(
        &Linux,
        &spool,
        Subject::default(),
        None,
        &By::Perf { why: "" },
    );
    assert!(again.is_err(), "the folder is there");
}
