use super::*;
use stopgap_stats::explain::{Memory, Reclaim, Waker};

const MS: u64 = 1_000_000;

fn slow(task: &str, call: &str, begin: u64, parts: &[(&str, u64)]) -> Slow {
    let length: u64 = parts.iter().map(|(_, ms)| ms * MS).sum();
    let part = |&(cause, ms): &(&str, u64)| Part {
        cause: cause.to_owned(),
        function: None,
        ns: ms * MS,
        share: (ms * MS) as f64 / length as f64,
    };
    Slow {
        call: call.to_owned(),
        task: task.to_owned(),
        tid: 7,
        begin_ns: begin * MS,
        length_ns: length,
        at_least: false,
        excess_ns: length,
        length_bytes: None,
        result: None,
        parts: parts.iter().map(part).collect(),
        woken_by: None,
    }
}

fn cause(findings: &Findings, stall: &Stall) -> Cause {
    headline(findings, stall).1
}

fn findings(slow: Vec<Slow>) -> Findings {
    let options = crate::Options {
        top: 10,
        frame_marker: None,
        request: None,
    };
    let nothing = stopgap_trace::Metadata::default();
    let mut findings = crate::Explainer::new(&nothing, options).finish();
    findings.slow = slow;
    findings
}

fn stall(kind: TriggerKind, begin: u64, end: u64) -> Stall {
    let trigger = Trigger::new(kind, end * MS);
    Stall {
        unix_s: 0,
        triggers: vec![trigger],
        begin_ns: begin * MS,
        end_ns: end * MS,
        from_ns: 0,
        taken_ns: end * MS,
        suppressed: 0,
    }
}

/// ```text
/// ms        0         1000       2000       3000
/// other     [---- io, 1800 ms --]                  long, and before
/// waiter                              [mmap_lock]
/// holder                              [on-cpu---]
/// window                          |=============|
/// ```
#[test]
fn what_overlaps_counts_and_a_wait_before_work() {
    let mut waiter = slow(
        "waiter",
        "mmap",
        2_100,
        &[("mmap_lock", 150), ("run-queue", 10)],
    );
    waiter.woken_by = Some(Waker {
        task: "holder".to_owned(),
        call: Some("mmap".to_owned()),
        slept_ns: 150 * MS,
    });
    let findings = findings(vec![
        slow("other", "ioctl", 0, &[("io", 1_800)]),
        slow("holder", "mmap", 2_090, &[("on-cpu", 300)]),
        waiter,
    ]);
    let found = cause(&findings, &stall(TriggerKind::Request, 2_000, 2_500));
    assert_eq!(found.word, "mmap_lock", "{}", found.text);
    assert!(
        found.text.contains("most by waiter (7) in mmap: 160 ms"),
        "{}",
        found.text
    );
    assert!(
        found.text.ends_with("ended by holder in mmap"),
        "{}",
        found.text
    );
    assert!((found.share.unwrap() - 150.0 / 460.0).abs() < 1e-9);
    let before = cause(&findings, &stall(TriggerKind::Request, 0, 1_900));
    assert_eq!(before.word, "io");
}

/// The thread that reclaims waits for a CPU most of the time, and for pages from the disk.
#[test]
fn memory_pressure_is_memorys_doing() {
    let squeezed = [("run-queue", 600), ("io", 300), ("memcg-reclaim", 200)];
    let found = findings(vec![slow("eater", "fault", 100, &squeezed)]);
    let word = |kind| cause(&found, &stall(kind, 0, 2_000)).word;
    assert_eq!(word(TriggerKind::MemoryPressure), "memcg-reclaim");
    assert_eq!(word(TriggerKind::IoPressure), "io");
    let thrash = findings(vec![slow(
        "eater",
        "fault",
        100,
        &[("io", 300), ("on-cpu", 9)],
    )]);
    assert_eq!(
        cause(&thrash, &stall(TriggerKind::MemoryPressure, 0, 900)).word,
        "io"
    );
    // Work and queues make no pressure; who reclaimed was not traced.
    let busy = findings(vec![slow(
        "x",
        "munmap",
        0,
        &[("run-queue", 90), ("mmap_lock", 50)],
    )]);
    for kind in [TriggerKind::MemoryPressure, TriggerKind::IoPressure] {
        let found = cause(&busy, &stall(kind, 0, 900));
        assert_eq!(
            (&*found.word, found.share),
            ("unknown", None),
            "{}",
            found.text
        );
    }
    assert_eq!(
        cause(&busy, &stall(TriggerKind::Request, 0, 900)).word,
        "mmap_lock"
    );
}

#[test]
fn nothing_is_no_cause() {
    let mut nothing = findings(vec![slow("poller", "poll", 0, &[("idle", 5_000)])]);
    let found = cause(&nothing, &stall(TriggerKind::Request, 0, 5_000));
    assert_eq!((&*found.word, found.share), ("unknown", None));
    nothing.memory = Memory {
        reclaim: Some(vec![Reclaim {
            task: "cat".to_owned(),
            by: "memcg".to_owned(),
            function: None,
            count: 40,
            wall_ns: 200 * MS,
            most_ns: 9 * MS,
            scanned: None,
            reclaimed: None,
        }]),
        ..Memory::default()
    };
    let found = cause(&nothing, &stall(TriggerKind::MemoryPressure, 0, 5_000));
    assert_eq!(found.word, "memcg-reclaim");
    assert!(
        found.text.contains("by cat: 200 ms in 40 times"),
        "{}",
        found.text
    );
}

/// The call of a thread, from `begin` to `end`, has fired.
fn fired(tid: u32, call: &str, begin: u64, end: u64) -> Trigger {
    Trigger {
        kind: TriggerKind::SlowCall,
        at_ns: end * MS,
        measured_ns: Some((end - begin) * MS),
        call: Some(call.to_owned()),
        tid: Some(tid),
        ..stall(TriggerKind::SlowCall, 0, 0).triggers.remove(0)
    }
}

fn stall_of(triggers: Vec<Trigger>, from: u64) -> Stall {
    Stall {
        triggers,
        from_ns: from * MS,
        ..stall(TriggerKind::SlowCall, 0, 3_000)
    }
}

fn of_thread(tid: u32, slow: Slow) -> Slow {
    Slow { tid, ..slow }
}

/// ```text
/// ms        0          1000        2000
/// trace                [===================
/// mm        [mmap, fires          ]
/// lto                  [fault, run-queue ]     of another thread, and longer within the trace
/// ```
#[test]
fn the_call_that_fired_is_the_headline() {
    let lto = of_thread(9, slow("lto", "fault", 1_000, &[("run-queue", 1_900)]));
    let trace = |mm: Slow| findings(vec![lto.clone(), of_thread(7, mm)]);
    let mm = slow("mm", "mmap", 1_000, &[("on-cpu", 660), ("run-queue", 340)]);
    let stall = stall_of(vec![fired(7, "mmap", 0, 2_000)], 1_000);
    let found = cause(&trace(mm), &stall);
    assert_eq!(
        found.text,
        "on-cpu, 66 % of the 1000 ms that the trace has of it; it began 1000 ms before (a larger --buffer keeps more)"
    );
    assert!((found.share.unwrap() - 0.66).abs() < 1e-9);

    let whole = slow("mm", "mmap", 1_000, &[("io", 700), ("on-cpu", 300)]);
    let stall_whole = stall_of(vec![fired(7, "mmap", 1_000, 2_000)], 500);
    assert_eq!(cause(&trace(whole), &stall_whole).text, "io, 70 % of it");

    let nothing = cause(&findings(vec![lto.clone()]), &stall);
    assert_eq!((&*nothing.word, nothing.share), ("unknown", None));
    assert!(
        nothing.text.contains("began 1000 ms before the trace")
            && nothing.text.contains("--buffer"),
        "{}",
        nothing.text
    );
    for (open, words) in [
        (false, "unknown: it was over 100 ms before the trace begins"),
        (
            true,
            "unknown: it was still going on 100 ms before the trace begins",
        ),
    ] {
        let call = Trigger {
            open,
            ..fired(7, "mmap", 0, 900)
        };
        let over = cause(&findings(vec![lto.clone()]), &stall_of(vec![call], 1_000));
        assert!(over.text.starts_with(words), "{}", over.text);
    }
}

/// Two calls fire; and one that works holds the lock for which a fault, which cannot fire, waits.
#[test]
fn who_waits_before_who_works() {
    let mut waiter = of_thread(7, slow("waiter", "mmap", 1_000, &[("mmap_lock", 300)]));
    waiter.woken_by = Some(Waker {
        task: "holder".to_owned(),
        call: Some("madvise".to_owned()),
        slept_ns: 300 * MS,
    });
    let holder = of_thread(8, slow("holder", "madvise", 990, &[("on-cpu", 320)]));
    let both = vec![
        fired(8, "madvise", 990, 1_310),
        fired(7, "mmap", 1_000, 1_300),
    ];
    let trace = findings(vec![holder.clone(), waiter.clone()]);
    let found = cause(&trace, &stall_of(both, 0));
    assert_eq!(found.word, "mmap_lock", "{}", found.text);
    assert!(
        found
            .text
            .contains("lost in 2 calls that fired; most by waiter (7) in mmap: 300 ms"),
        "{}",
        found.text
    );
    waiter.call = "fault".to_owned();
    let trace = findings(vec![holder, waiter]);
    let found = cause(&trace, &stall_of(vec![fired(8, "madvise", 990, 1_310)], 0));
    assert_eq!(
        found.text,
        "mmap_lock: it held the lock for which waiter (7) waited 300 ms in page faults; of its own 320 ms the most was on-cpu"
    );
}

/// Pressure that fires beside a call leads where the trace explains it.
#[test]
fn pressure_that_is_explained_comes_first() {
    let call = fired(7, "mmap", 1_000, 2_000);
    let mm = of_thread(7, slow("mm", "mmap", 1_000, &[("run-queue", 1_000)]));
    let eater = of_thread(9, slow("eater", "fault", 1_000, &[("memcg-reclaim", 400)]));
    let mut both = stall(TriggerKind::MemoryPressure, 0, 3_000);
    both.triggers.insert(0, call);
    let trace = findings(vec![mm.clone(), eater]);
    let (trigger, found) = headline(&trace, &both);
    assert_eq!(trigger.unwrap().kind, TriggerKind::MemoryPressure);
    assert_eq!(found.word, "memcg-reclaim", "{}", found.text);
    let trace = findings(vec![mm]);
    let (trigger, found) = headline(&trace, &both);
    assert_eq!(trigger.unwrap().kind, TriggerKind::SlowCall);
    assert_eq!(found.text, "run-queue, 100 % of it");
}
