//! The state machine: times by state add up, causes add up, and a switch right after a call belongs to the call.

use proptest::prelude::*;
use stopgap_stats::explain::{CauseKind, Findings, Idleness};
use stopgap_trace::{Event, Kind, Metadata, Reclaimer};

use super::builder::{Builder, CLIENT, SERVER, count, explain, name, options, task};

/// Checks sums that hold in any trace, even a wrong one.
fn adds_up(findings: &Findings) {
    for task in &findings.tasks {
        let states = task.running_ns + task.runnable_ns + task.blocked_ns + task.unknown_ns;
        assert_eq!(states, task.wall_ns, "{}", task.task);
        let causes = findings.switches.causes.iter();
        let own = causes.filter(|cause| cause.task == task.task);
        assert_eq!(own.map(|cause| cause.count).sum::<u64>(), task.switches);
    }
    let causes: u64 = findings
        .switches
        .causes
        .iter()
        .map(|cause| cause.count)
        .sum();
    assert_eq!(causes, findings.switches.total.unwrap_or(0));
    for slow in &findings.slow {
        let parts: u64 = slow.parts.iter().map(|part| part.ns).sum();
        assert_eq!(parts, slow.length_ns, "{slow:?}");
        let shares: f64 = slow.parts.iter().map(|part| part.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{slow:?}");
        assert!(slow.excess_ns <= slow.length_ns);
    }
    assert!(
        findings
            .slow
            .is_sorted_by_key(|slow| std::cmp::Reverse(slow.excess_ns))
    );
}

/// ```text
/// server  ##rrr....      # running, r runnable, . asleep
/// client  ..###rr##
/// ```
#[test]
fn time_by_state() {
    let mut b = Builder::new();
    b.switch(0, "R", SERVER).enter(SERVER, "write", 5);
    b.after(100).wake(SERVER, CLIENT);
    b.after(100).exit(SERVER, "write", 8);
    b.switch(SERVER, "R", CLIENT).exit(CLIENT, "poll", 1);
    b.after(300).enter(CLIENT, "sched_yield", 0);
    b.switch(CLIENT, "R", SERVER).enter(SERVER, "poll", 0);
    b.after(50).switch(SERVER, "S", CLIENT);
    b.after(70).exit(CLIENT, "sched_yield", 0);
    let findings = b.explain();
    adds_up(&findings);
    let server = task(&findings, "server");
    assert_eq!(
        (server.running_ns, server.runnable_ns, server.blocked_ns),
        (250, 300, 70)
    );
    assert_eq!(server.unknown_ns, 0);
    let client = task(&findings, "client");
    // Before it was woken, the trace does not say whether it slept.
    assert_eq!(
        (client.unknown_ns, client.runnable_ns, client.running_ns),
        (100, 150, 370)
    );
    assert_eq!(findings.losses.contradictions, 0);
    assert_eq!(count(&findings, "client", CauseKind::Yielded), 1);
    assert_eq!(findings.switches.total, Some(3));
    assert_eq!(findings.switches.involuntary, Some(2));
}

/// With PREEMPT_NONE the switch comes after `sys_exit`.
#[test]
fn a_switch_on_the_way_out_is_of_the_call() {
    for (later, woken_in_call, kind) in [
        (3_000, true, CauseKind::PreemptedOnTheWayOut),
        (3_000_000, true, CauseKind::PreemptedInUser),
        (3_000, false, CauseKind::PreemptedInUser),
    ] {
        let mut b = Builder::new();
        b.switch(0, "R", SERVER).enter(SERVER, "writev", 5);
        b.after(2_000);
        if woken_in_call {
            b.wake(SERVER, CLIENT);
        }
        b.after(2_000).exit(SERVER, "writev", 8);
        b.after(later).switch(SERVER, "R", CLIENT);
        let findings = b.explain();
        adds_up(&findings);
        assert_eq!(
            count(&findings, "server", kind),
            1,
            "{later} {woken_in_call}"
        );
        let cause = &findings.switches.causes[0];
        if kind == CauseKind::PreemptedOnTheWayOut {
            assert_eq!(cause.call.as_deref(), Some("writev"));
            assert_eq!(cause.by_task.as_deref(), Some("client"));
            assert_eq!(
                cause.cause,
                "pre-empted on the way out of writev, in which it woke client"
            );
        }
    }
}

#[test]
fn a_kernel_that_preempts_in_the_call() {
    let mut b = Builder::new();
    b.switch(0, "R", SERVER).enter(SERVER, "writev", 5);
    b.after(2_000)
        .wake(SERVER, CLIENT)
        .switch(SERVER, "R+", CLIENT);
    let findings = b.explain();
    let cause = &findings.switches.causes[0];
    assert_eq!(cause.kind, CauseKind::PreemptedInCall);
    assert_eq!(
        (cause.call.as_deref(), cause.by_task.as_deref()),
        (Some("writev"), Some("client"))
    );
}

/// The exit of sigreturn does not have sigreturn's number.
#[test]
fn a_signal_is_no_contradiction() {
    for number in ["call 4294967295", "rt_sigreturn"] {
        let mut b = Builder::new();
        b.switch(0, "R", CLIENT)
            .enter(CLIENT, "rt_sigreturn", 0)
            .exit(CLIENT, number, 0);
        b.enter(CLIENT, "rt_sigreturn", 0)
            .enter(CLIENT, "read", 0)
            .exit(CLIENT, "read", 0);
        assert_eq!(b.explain().losses.contradictions, 0, "{number}");
    }
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT)
        .enter(CLIENT, "read", 0)
        .enter(CLIENT, "read", 0);
    assert_eq!(b.explain().losses.contradictions, 1);
}

/// The kernel reports a switch before it makes it. A lock's contention in between is booked on the thread that
/// leaves.
///
/// ```text
///   cpu 0   poll ..switch to t50 .. lock .. locked | t50: read ........... switch back, exit of poll
///   client  #####|asleep                                        woken r|
/// ```
#[test]
fn a_lock_inside_the_switch_is_of_nobody() {
    for (state, asleep, waits) in [("S", 240_000_000, 1_000), ("R", 0, 240_001_000)] {
        let mut b = Builder::new();
        b.switch(0, "R", CLIENT).enter(CLIENT, "poll", 5);
        b.after(1_000).switch(CLIENT, state, 50);
        b.event(
            CLIENT,
            Kind::Sample {
                stack: stopgap_trace::Stack("a_[k]".into()),
            },
        );
        b.lock(CLIENT, "spin", 1).locked(CLIENT, "spin", 1);
        b.enter(50, "read", 5);
        b.after(240_000_000).wake(50, CLIENT);
        b.after(1_000).exit(50, "read", 0).enter(50, "read", 5);
        b.switch(50, "S", CLIENT).exit(CLIENT, "poll", 1);
        let findings = b.explain();
        adds_up(&findings);
        assert_eq!(findings.losses.contradictions, 0, "{state}");
        let client = task(&findings, "client");
        let times = (client.runnable_ns, client.blocked_ns, client.unknown_ns);
        assert_eq!(times, (waits, asleep, 0), "{state}");
    }
}

/// An event that cannot happen within a switch, or that comes after an event of the next thread, stays a
/// contradiction.
#[test]
fn what_no_switch_does_contradicts_it() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "poll", 5);
    b.switch(CLIENT, "S", SERVER);
    let mut called = Builder::new();
    called.events = b.events.clone();
    called.now = b.now;
    let losses = called.exit(CLIENT, "poll", 1).explain().losses;
    assert_eq!(
        (losses.contradictions, losses.untold),
        (0, 1),
        "the server may have left: nothing is told of it"
    );
    b.enter(SERVER, "read", 5).lock(CLIENT, "spin", 1);
    b.locked(CLIENT, "spin", 1);
    assert_eq!(
        b.explain().losses.untold,
        2,
        "the sleeper acts, and the server has no CPU"
    );
}

/// A kernel may report nothing about some threads: t88 gets CPUs and leaves them unseen.
///
/// ```text
///   cpu 0   client: read .. switch to t88 ..(t88 leaves, unseen).. client: exit of read, fault
///   client  ######|asleep                                           ?######
/// ```
#[test]
fn who_follows_a_thread_that_is_never_told_of_contradicts_nothing() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "read", 5);
    b.after(1_000).switch(CLIENT, "S", 88);
    b.after(5_000).exit(CLIENT, "read", 1).fault(CLIENT);
    b.after(2_000).switch(CLIENT, "R", 88);
    // A switch itself may be its first event after that.
    b.after(5_000).switch(CLIENT, "S", 0);
    // On a CPU without any event so far.
    b.after(1_000).on(1).enter(CLIENT, "poll", 5);
    let findings = b.explain();
    adds_up(&findings);
    let losses = &findings.losses;
    assert_eq!((losses.contradictions, losses.untold), (0, 3));
    let client = task(&findings, "client");
    assert_eq!((client.running_ns, client.unknown_ns), (3_000, 11_000));
    let told = |m: &stopgap_events::machine::Missing| m.what == "3 switches of recorded threads";
    assert!(findings.missing.iter().any(told), "{:?}", findings.missing);
}

/// If a kernel hides switches of some threads, there is a verdict all the same, which names what is uncertain.
///
/// ```text
///   cpu 0   client: read .. switch to t88 ..(40 ms: t88 leaves, unseen).. client: exit of read
/// ```
#[test]
fn hidden_switches_make_a_verdict_uncertain() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "mmap", 5);
    for _ in 0..10 {
        b.after(5).switch(CLIENT, "R", 88).after(5).fault(CLIENT);
    }
    let losses = b.explain().losses;
    assert_eq!((losses.contradictions, losses.untold), (0, 10));
    b.exit(CLIENT, "mmap", 0);
    let verdict = b.explain().verdict.text;
    let uncertain = "(uncertain: the trace lacks 10 switches of recorded threads; 50 ns of their time is unknown)";
    assert!(
        verdict.starts_with("clean") && verdict.ends_with(uncertain),
        "{verdict}"
    );

    // The operation's length is known, and so is the state in which its thread left.
    b.enter(CLIENT, "mmap", 5).switch(CLIENT, "D", 88);
    b.after(40_000_000).exit(CLIENT, "mmap", 1);
    let findings = b.explain();
    adds_up(&findings);
    let text = &findings.verdict.text;
    assert!(
        text.starts_with("stalls: a thread lost 40 ms at a time") && text.contains("uncertain"),
        "{text}"
    );
    assert_eq!(findings.slow[0].length_ns, 40_000_000);
    assert_eq!(findings.tasks[0].unknown_ns, 40_000_050);
}

/// An exec of a thread other than the first goes on under the first one's number (`de_thread()`), even before the
/// exec event.
///
/// ```text
///   cpu 0   t50: execve, asleep | client is killed: ends | t50 as client: locks, exec, end of execve
/// ```
#[test]
fn an_exec_of_another_thread_takes_the_number_of_the_first() {
    for calls in [true, false] {
        let mut b = Builder::new();
        b.switch(0, "R", 50);
        if calls {
            b.enter(50, "execve", 0);
        }
        b.after(1_000).wake(50, CLIENT).switch(50, "D", CLIENT);
        if calls {
            b.exit(CLIENT, "futex", -512);
        }
        b.after(10).event(CLIENT, Kind::Exit { priority: None });
        b.wake(CLIENT, 50).switch(CLIENT, "Z", 50);
        if calls {
            b.lock(CLIENT, "mmap", 1).locked(CLIENT, "mmap", 1);
        }
        let exec = Kind::Exec {
            filename: None,
            old_tid: Some(50),
        };
        b.after(500).event(CLIENT, exec);
        if calls {
            b.exit(CLIENT, "execve", 0);
        }
        b.after(100).enter(CLIENT, "brk", 0).switch(CLIENT, "S", 0);
        let findings = b.explain();
        adds_up(&findings);
        let losses = &findings.losses;
        assert_eq!((losses.contradictions, losses.untold), (0, 0), "{calls}");
        // The first thread before it was woken. Without calls, nothing shows that it is recorded.
        let unknown: u64 = findings.tasks.iter().map(|task| task.unknown_ns).sum();
        assert_eq!(unknown, if calls { 1_000 } else { 0 });
    }
}

/// A reader that room to write wakes, that scans, and that sleeps again in the same call.
#[test]
fn a_write_space_wake() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "read", 5);
    b.after(10)
        .switch(CLIENT, "S", SERVER)
        .enter(SERVER, "read", 7);
    b.after(10).wake(SERVER, CLIENT).exit(SERVER, "read", 8);
    b.enter(SERVER, "poll", 0).switch(SERVER, "S", CLIENT);
    b.after(10).switch(CLIENT, "S", 0);
    let findings = b.explain();
    assert_eq!(count(&findings, "client", CauseKind::Blocked), 1);
    assert_eq!(count(&findings, "client", CauseKind::WriteSpaceWake), 1);
    let again = findings
        .switches
        .causes
        .iter()
        .find(|c| c.kind == CauseKind::WriteSpaceWake);
    let again = again.unwrap();
    assert_eq!(
        again.cause,
        "woken for nothing by server's read (write space), back to sleep in read"
    );
}

#[test]
fn who_was_not_asked_for_is_not_in_the_total() {
    let mut b = Builder::new();
    b.switch(77, "R", CLIENT).enter(CLIENT, "poll", 0);
    b.after(5).switch(CLIENT, "S", 77);
    b.after(5).switch(88, "R", CLIENT).exit(CLIENT, "poll", 1);
    let findings = b.explain();
    adds_up(&findings);
    assert_eq!(
        (findings.switches.total, findings.switches.others),
        (Some(1), Some(2))
    );
    assert_eq!(
        findings.losses.contradictions, 0,
        "77 was switched out unseen, as it may"
    );
}

#[test]
fn threads_end_and_their_numbers_come_again() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "clone", 0);
    for _ in 0..1_000 {
        let fork = Kind::Fork {
            target_tid: 50,
            target_pid: None,
            target_comm: None,
        };
        let new = Kind::New {
            target_tid: 50,
            target_comm: None,
            target_priority: None,
            target_cpu: None,
        };
        b.after(10)
            .event(CLIENT, fork)
            .event(CLIENT, new)
            .switch(CLIENT, "S", 50);
        b.after(10)
            .enter(50, "exit_group", 0)
            .event(50, Kind::Exit { priority: None });
        b.wake(50, CLIENT).switch(50, "Z", CLIENT);
    }
    let findings = b.explain();
    adds_up(&findings);
    let children = task(&findings, "t50");
    assert_eq!((children.threads, children.running_ns), (1_000, 10_000));
    assert_eq!(count(&findings, "t50", CauseKind::Ended), 1_000);
}

/// Records of perf: a switch shows one side, and a thread that ends has no last switch.
///
/// ```text
///   client  in -- 10 -- fork -- out                  in -- 100
///   t50                             in -- 30 -- exit
/// ```
#[test]
fn switches_of_one_side() {
    let mut b = Builder::new();
    b.one_side(None, Some(CLIENT));
    let fork = Kind::Fork {
        target_tid: 50,
        target_pid: Some(50),
        target_comm: Some(name(50)),
    };
    b.after(10).event(CLIENT, fork);
    b.one_side(Some((CLIENT, false)), None);
    b.one_side(None, Some(50));
    b.after(30).event(50, Kind::Exit { priority: None });
    b.after(1_000).one_side(None, Some(CLIENT));
    b.after(100).one_side(Some((CLIENT, false)), None);
    let findings = b.explain();
    adds_up(&findings);
    let t50 = task(&findings, "t50");
    assert_eq!((t50.running_ns, t50.wall_ns), (30, 30));
    let client = task(&findings, "client");
    assert_eq!((client.running_ns, client.switches), (110, 2));
}

/// Without scheduling events switches are unknown, with a reason.
#[test]
fn no_scheduling_events() {
    let mut b = Builder::new();
    b.enter(CLIENT, "mmap", 0)
        .after(50_000_000)
        .exit(CLIENT, "mmap", 4_096);
    let findings = b.explain();
    adds_up(&findings);
    assert_eq!(findings.switches.total, None);
    assert_eq!(findings.switches.roundtrips, None);
    assert!(findings.tasks.is_empty());
    assert_eq!(findings.slow[0].parts[0].cause, "unknown");
    assert!(
        findings
            .missing
            .iter()
            .any(|missing| missing.why.contains("no scheduling events"))
    );
}

#[test]
fn losses_make_it_inconclusive() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "mmap", 0);
    b.after(50_000_000).exit(CLIENT, "mmap", 4_096);
    assert!(
        b.explain()
            .verdict
            .text
            .starts_with("stalls: a thread lost")
    );
    b.lost(1);
    let findings = b.explain();
    assert_eq!(findings.losses.lost, Some(1));
    assert!(
        findings
            .verdict
            .text
            .starts_with("inconclusive: 1 events were lost"),
        "{:?}",
        findings.verdict
    );
    b.metadata.losses = None;
    let findings = b.explain();
    assert_eq!((findings.losses.lost, findings.losses.share), (None, None));
    assert!(
        findings
            .missing
            .iter()
            .any(|missing| missing.what == "losses")
    );
}

const CALLS: [&str; 8] = [
    "mmap",
    "poll",
    "read",
    "write",
    "munmap",
    "ioctl",
    "futex",
    "exit_group",
];

/// Any event of four threads on two CPUs, with any times.
fn any_event() -> impl Strategy<Value = Event> {
    (
        0..22_usize,
        10..14_u32,
        10..14_u32,
        0..2_u32,
        0..8_usize,
        0..2_000_000_u64,
    )
        .prop_map(|(kind, tid, other, cpu, call, after)| {
            let mut b = Builder::new();
            b.now = after;
            b.on(cpu);
            let call = CALLS[call];
            match kind {
                0..4 => b.switch(tid, ["S", "R", "D", "R+"][kind], other),
                4 => b.switch(tid, "S", 0),
                5 => b.switch(0, "R", tid),
                6..9 => b.wake(tid, other),
                9..12 => b.enter(tid, call, u64::from(other)),
                12..15 => b.exit(tid, call, 8),
                15 => b.fault(tid),
                16 => b.reclaim(tid, Reclaimer::Direct, None),
                17 => b.reclaimed(tid, Reclaimer::Direct, None, None),
                18 => b.reclaimed(tid, Reclaimer::Throttled, None, Some(after)),
                19 => b.lock(tid, "mmap", 1),
                20 => b.locked(tid, "mmap", 1),
                _ => b.switch(tid, "X", other),
            };
            b.events.remove(0)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Everything adds up and nothing panics, however events contradict each other.
    #[test]
    fn nonsense_adds_up(mut events in prop::collection::vec(any_event(), 1..200)) {
        let mut now = 0;
        for event in &mut events {
            now += event.time.0;
            event.time.0 = now;
        }
        adds_up(&explain(&events, &Metadata::default(), options()));
    }

    /// The same for events out of order.
    #[test]
    fn disorder_adds_up(events in prop::collection::vec(any_event(), 1..100)) {
        let findings = explain(&events, &Metadata::default(), options());
        adds_up(&findings);
        let later = events.windows(2).any(|two| two[1].time < two[0].time);
        assert_eq!(findings.losses.disordered > 0, later);
    }
}

/// The child that becomes the program waits for its recorder in a read. The program itself may read as long from a
/// thread that was busy. Then it may have asked that thread.
#[test]
fn what_is_before_the_program_is_none_of_its_waits() {
    const MS: u64 = 1_000_000;
    let explain = |program: Option<&str>| {
        let mut b = Builder::new();
        b.metadata.program = program.map(str::to_owned);
        b.switch(0, "R", CLIENT).enter(CLIENT, "read", 5);
        b.switch(CLIENT, "S", 0).on(1);
        b.switch(0, "R", SERVER).enter(SERVER, "write", 6);
        b.after(30 * MS).wake(SERVER, CLIENT);
        b.exit(SERVER, "write", 1).on(0);
        b.switch(0, "R", CLIENT).exit(CLIENT, "read", 1);
        let exec = Kind::Exec {
            filename: Some("/usr/bin/program".into()),
            old_tid: None,
        };
        b.event(CLIENT, exec);
        let event = b.events.last_mut().unwrap();
        event.comm = Some("program".into());
        b.after(MS).switch(CLIENT, "R", 0).after(10);
        b.switch(0, "R", CLIENT).after(10);
        b.explain()
    };
    let long = |findings: &Findings| {
        let waiting = &findings.chains.as_ref().unwrap().waiting;
        let waits = waiting.iter().filter(|w| w.longest_ns >= 10 * MS);
        let waits = waits.map(|w| (w.task.clone(), w.idleness));
        waits.collect::<Vec<_>>()
    };
    let of = |idleness| [("client".to_owned(), idleness)];
    assert_eq!(long(&explain(Some("bin/program"))), of(Idleness::Idle));
    // The child existed when the recording began, or it executes another program.
    for program in [None, Some("another")] {
        assert_eq!(long(&explain(program)), of(Idleness::MayBeIdle));
    }
}
