//! Slow operations: each nanosecond has one cause.

use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, State, Task, Wait, Waker, Within};
use stopgap_stats::explain::{Findings, Slow};
use stopgap_trace::{Activity, Event, Kind, Reclaimer, Span, Stack};

use super::builder::{Builder, CLIENT, SERVER, options};

const MS: u64 = 1_000_000;

/// Returns the causes of the slowest operation in milliseconds, largest first.
fn parts(findings: &Findings) -> Vec<(&str, u64)> {
    let slow: &Slow = &findings.slow[0];
    let parts: Vec<(&str, u64)> = slow
        .parts
        .iter()
        .map(|part| (&*part.cause, part.ns / MS))
        .collect();
    assert_eq!(
        slow.parts.iter().map(|part| part.ns).sum::<u64>(),
        slow.length_ns
    );
    parts
}

fn in_mmap() -> Builder {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "mmap", 0);
    b
}

/// ```text
/// call      |-- mmap ------------------------------------------------|
/// reclaim       |-- memcg ----------------|
/// shrinker          |- foo_scan -|
/// CPU       ##########......rrrr############.........rrr############
/// ```
#[test]
fn reclaim_with_a_shrinker_and_a_lock() {
    let mut b = in_mmap();
    b.after(MS).reclaim(CLIENT, Reclaimer::Memcg, None);
    b.after(2 * MS)
        .reclaim(CLIENT, Reclaimer::Shrinker, Some("foo_scan"));
    b.after(3 * MS).switch(CLIENT, "D", 0);
    b.after(4 * MS).wake(0, CLIENT);
    b.after(5 * MS).switch(0, "R", CLIENT);
    b.after(6 * MS)
        .reclaimed(CLIENT, Reclaimer::Shrinker, Some("foo_scan"), None);
    b.after(7 * MS)
        .reclaimed(CLIENT, Reclaimer::Memcg, None, None);
    b.after(8 * MS)
        .lock(CLIENT, "mutex", 9)
        .after(9 * MS)
        .switch(CLIENT, "D", SERVER);
    b.enter(SERVER, "munmap", 0)
        .after(10 * MS)
        .wake(SERVER, CLIENT)
        .after(11 * MS);
    b.switch(SERVER, "S", CLIENT).locked(CLIENT, "mutex", 9);
    b.after(12 * MS).exit(CLIENT, "mmap", 4_096);
    let findings = b.explain();
    assert_eq!(
        parts(&findings),
        [
            ("on-cpu", 1 + 8 + 12),
            ("lock", 9 + 10),
            ("run-queue", 5 + 11),
            ("shrinker", 3 + 4 + 6),
            ("memcg-reclaim", 2 + 7)
        ]
    );
    let slow = &findings.slow[0];
    let shrinker = slow
        .parts
        .iter()
        .find(|part| part.cause == "shrinker")
        .unwrap();
    assert_eq!(shrinker.function.as_deref(), Some("foo_scan"));
    assert_eq!((slow.length_ns, slow.at_least), (78 * MS, false));
    assert_eq!((slow.result, slow.length_bytes), (Some(4_096), Some(4_096)));
    // The server ended its longest sleep.
    let waker = slow.woken_by.as_ref().unwrap();
    assert_eq!(
        (&*waker.task, waker.call.as_deref()),
        ("server", Some("munmap"))
    );
    assert_eq!(waker.slept_ns, 10 * MS);
    // Reclaim is counted by the wall clock, including sleeps and waits for a CPU.
    let reclaim = findings.memory.reclaim.as_ref().unwrap();
    let wall: Vec<(&str, u64)> = reclaim.iter().map(|r| (&*r.by, r.wall_ns / MS)).collect();
    assert_eq!(wall, [("memcg", 27), ("shrinker", 18)]);
    assert_eq!(reclaim[0].scanned, Some(64));
    assert!(
        findings.verdict.text.starts_with("stalls: "),
        "{:?}",
        findings.verdict
    );
}

/// The kernel reports throttling when it is over. The sleep then gets that cause.
#[test]
fn throttled_is_told_afterwards() {
    let mut b = in_mmap();
    b.reclaim(CLIENT, Reclaimer::Direct, None);
    b.after(2 * MS).switch(CLIENT, "D", 0);
    b.after(40 * MS).wake(0, CLIENT).switch(0, "R", CLIENT);
    b.reclaimed(CLIENT, Reclaimer::Throttled, None, Some(40 * MS));
    b.after(3 * MS)
        .reclaimed(CLIENT, Reclaimer::Direct, None, None);
    b.after(MS).exit(CLIENT, "mmap", 0);
    let findings = b.explain();
    assert_eq!(
        parts(&findings),
        [("throttled", 40), ("direct-reclaim", 5), ("on-cpu", 1)]
    );
}

#[test]
fn a_stack_tells_locks_io_and_fences_apart() {
    for (stack, state, cause) in [
        (
            "vm_mmap_pgoff_[k];down_write_killable_[k];rwsem_down_write_slowpath_[k]",
            "D",
            "mmap_lock",
        ),
        (
            "filemap_fault_[k];folio_wait_bit_common_[k];io_schedule_[k]",
            "D",
            "io",
        ),
        ("drm_ioctl_[k];dma_fence_default_wait_[k]", "S", "fence"),
        (
            "try_to_free_mem_cgroup_pages_[k];shrink_node_[k]",
            "D",
            "memcg-reclaim",
        ),
        ("some_driver_[k]", "D", "unknown"),
    ] {
        let mut b = in_mmap();
        b.switch_at(CLIENT, state, 0, Some(stack));
        b.after(20 * MS)
            .wake(0, CLIENT)
            .switch(0, "R", CLIENT)
            .exit(CLIENT, "mmap", 0);
        assert_eq!(parts(&b.explain()), [(cause, 20)], "{stack}");
    }
}

#[test]
fn a_wait_for_the_own_block_request_is_io() {
    let mut b = in_mmap();
    let issue = Kind::BlockIssue {
        device: "8:0".into(),
        sector: 7,
        length: None,
        operation: None,
    };
    let complete = Kind::BlockComplete {
        device: "8:0".into(),
        sector: 7,
        length: None,
        operation: None,
        result: None,
    };
    b.event(CLIENT, issue).switch(CLIENT, "D", 0);
    b.after(30 * MS)
        .event(0, complete)
        .after(MS)
        .wake(0, CLIENT);
    b.switch(0, "R", CLIENT).exit(CLIENT, "mmap", 0);
    assert_eq!(parts(&b.explain()), [("io", 30), ("unknown", 1)]);
}

/// A poll that waits for its descriptors is not slow. A poll that waits for a CPU is.
#[test]
fn the_wait_of_a_poll_is_no_excess() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT)
        .enter(CLIENT, "poll", 0)
        .switch(CLIENT, "S", 0);
    b.after(9_000 * MS)
        .wake(0, CLIENT)
        .after(5 * MS)
        .switch(0, "R", CLIENT);
    b.exit(CLIENT, "poll", 1);
    let findings = b.explain();
    assert_eq!(parts(&findings), [("idle", 9_000), ("run-queue", 5)]);
    assert_eq!(findings.slow[0].excess_ns, 5 * MS);
    assert_eq!(findings.slow[0].woken_by, None);
    assert!(
        findings.verdict.text.starts_with("clean"),
        "{:?}",
        findings.verdict
    );
}

/// The end of a fault is not in a trace. A fault lasts at least until the last event that only the kernel can cause.
#[test]
fn a_fault_lasts_at_least() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).exit(CLIENT, "mmap", 0);
    // Nothing happens in the fault, so its length is unknown.
    b.fault(CLIENT).after(100 * MS).fault(CLIENT);
    b.after(MS).reclaim(CLIENT, Reclaimer::Direct, None);
    b.after(30 * MS)
        .reclaimed(CLIENT, Reclaimer::Direct, None, None);
    // The program's own time with a pre-emption.
    b.after(500 * MS)
        .switch(CLIENT, "R", 0)
        .after(MS)
        .switch(0, "R", CLIENT);
    b.after(500 * MS)
        .enter(CLIENT, "brk", 0)
        .exit(CLIENT, "brk", 0);
    let findings = b.explain();
    let slow = &findings.slow[0];
    assert_eq!(
        (&*slow.call, slow.length_ns, slow.at_least),
        ("fault", 31 * MS, true)
    );
    assert_eq!(parts(&findings), [("direct-reclaim", 30), ("on-cpu", 1)]);
    let faults = findings
        .calls
        .iter()
        .find(|calls| calls.kind == "fault")
        .unwrap();
    assert_eq!((faults.count, faults.slow), (1, 1));
}

/// Events after a fault that do not belong to it: the program's own code, in which interrupts spin for locks and wake
/// others; and a call that is not recorded.
#[test]
fn what_follows_a_fault_is_not_of_it() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).exit(CLIENT, "mmap", 0);
    b.fault(CLIENT).after(200 * MS);
    b.wake(CLIENT, SERVER).after(200 * MS);
    b.lock(CLIENT, "SPIN", 1).after(MS).event(
        CLIENT,
        Kind::LockEnd {
            lock: None,
            address: Some(1),
            write: None,
            result: None,
        },
    );
    b.after(100 * MS).switch(CLIENT, "R", SERVER).after(50 * MS);
    b.switch(SERVER, "S", CLIENT).after(MS).fault(CLIENT);
    let sync = "entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k];ksys_sync_[k];io_schedule_[k]";
    b.switch_at(CLIENT, "D", SERVER, Some(sync)).after(600 * MS);
    b.wake(SERVER, CLIENT).after(MS).switch(SERVER, "S", CLIENT);
    b.after(MS).fault(CLIENT).after(MS);
    // An interruptible sleep without a stack.
    b.switch(CLIENT, "S", SERVER).after(300 * MS);
    b.wake(SERVER, CLIENT).switch(SERVER, "S", CLIENT);
    b.after(MS).enter(CLIENT, "brk", 0).exit(CLIENT, "brk", 0);
    let findings = b.explain();
    assert!(findings.slow.is_empty(), "{:?}", findings.slow);
    // A fault that itself sleeps is listed.
    let fault =
        "asm_exc_page_fault_[k];handle_mm_fault_[k];folio_wait_bit_common_[k];io_schedule_[k]";
    b.fault(CLIENT).switch_at(CLIENT, "D", SERVER, Some(fault));
    b.after(30 * MS)
        .wake(SERVER, CLIENT)
        .switch(SERVER, "S", CLIENT);
    b.after(MS).enter(CLIENT, "brk", 0).exit(CLIENT, "brk", 0);
    let findings = b.explain();
    assert_eq!(&*findings.slow[0].call, "fault");
    assert_eq!(parts(&findings), [("io", 30)]);
}

#[test]
fn a_call_that_is_still_open_is_told() {
    let mut b = in_mmap();
    b.lock(CLIENT, "mmap", 1).switch(CLIENT, "D", SERVER);
    b.after(700 * MS).enter(SERVER, "poll", 0);
    let findings = b.explain();
    assert_eq!(parts(&findings), [("mmap_lock", 700)]);
    assert!(findings.slow[0].at_least);
}

/// A recording that follows other threads shows the begin of a call, and nothing more of its thread.
#[test]
fn a_thread_out_of_sight_is_not_in_a_call_for_ever() {
    let mut b = in_mmap();
    b.after(MS)
        .switch(50, "R", SERVER)
        .after(700 * MS)
        .enter(SERVER, "poll", 0);
    let findings = b.explain();
    assert!(
        findings.slow.iter().all(|slow| slow.call != "mmap"),
        "{:?}",
        findings.slow
    );
    assert!(findings.losses.untold > 0);
}

/// The list has the N slowest of many operations, as a full sort would give them.
#[test]
fn the_slowest_are_those_of_a_sorted_list() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    let length = |i: u64| (i * 7_919 % 997) * 1_000;
    for i in 0..500 {
        b.enter(CLIENT, "munmap", 0)
            .after(length(i))
            .exit(CLIENT, "munmap", 0);
    }
    let findings = b.explain();
    let mut all: Vec<u64> = (0..500).map(length).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    let told: Vec<u64> = findings.slow.iter().map(|slow| slow.excess_ns).collect();
    assert_eq!(told, all[..10]);
    assert_eq!((findings.calls[0].count, findings.calls[0].slow), (500, 0));
    assert_eq!(findings.calls[0].total_ns, all.iter().sum::<u64>());
}

#[test]
fn samples_inside_slow_calls_by_function() {
    let sample = |function: &str| Kind::Sample {
        stack: Stack(format!("main;mmap;do_syscall_64_[k];{function}_[k]").into()),
    };
    let mut b = in_mmap();
    b.after(9 * MS).event(CLIENT, sample("unmapped_area"));
    b.after(9 * MS)
        .event(CLIENT, sample("unmapped_area.constprop.0"));
    b.after(9 * MS)
        .event(CLIENT, sample("clear_page"))
        .exit(CLIENT, "mmap", 0);
    // A short call, and a time outside of calls.
    b.enter(CLIENT, "munmap", 0)
        .event(CLIENT, sample("unmap_vmas"))
        .exit(CLIENT, "munmap", 0);
    b.event(CLIENT, sample("irq"));
    let functions = b.explain().functions.unwrap();
    let told: Vec<(&str, u64)> = functions
        .iter()
        .map(|f| (&*f.function, f.samples))
        .collect();
    assert_eq!(told, [("unmapped_area", 2), ("clear_page", 1)]);
    assert_eq!(in_mmap().explain().functions, None);
}

/// A driver's own wait without a stack, because the CPU had other work. The cause stays unknown with advice how to
/// record it; with a stack the cause is known.
#[test]
fn a_wait_of_which_nothing_tells() {
    for (stack, cause, lines) in [
        (None, "unknown", 1),
        (Some("drm_ioctl_[k];dma_fence_default_wait_[k]"), "fence", 0),
    ] {
        let mut b = Builder::new();
        b.switch_at(SERVER, "S", CLIENT, Some("do_poll_[k]"));
        b.enter(CLIENT, "ioctl", 5)
            .switch_at(CLIENT, "S", SERVER, stack);
        b.after(30_000_000)
            .wake(SERVER, CLIENT)
            .switch(SERVER, "R", CLIENT);
        b.exit(CLIENT, "ioctl", 0);
        let findings = b.explain();
        let slow = &findings.slow[0];
        assert_eq!(
            (&*slow.parts[0].cause, slow.parts[0].ns),
            (cause, 30_000_000)
        );
        let told = findings.missing.iter();
        let told =
            told.filter(|missing| missing.what == "what 1 slow ioctl slept for, 30 ms in all");
        let told: Vec<_> = told.collect();
        assert_eq!(told.len(), lines, "{:?}", findings.missing);
        assert!(
            told.iter()
                .all(|missing| missing.why.contains("perf record -g"))
        );
    }
}

/// Returns a wait in a call, of a source that records waits only, and the time of its end.
fn wait(left: u64, woken: u64, ran: u64, call: (u32, &str, u64), state: State) -> (u64, Kind) {
    let wait = Wait {
        left: Nanos(left),
        woken: Some(Nanos(woken)),
        ran: Some(Nanos(ran)),
        state: Some(state),
        preempted: Some(false),
        for_io: Some(state == State::Blocked),
        within: Some(Within::Call),
        call: Some(Call {
            number: call.0,
            name: Some(call.1.into()),
            arguments: [Some(call.2), Some(1), Some(0)],
        }),
        instruction_pointer: Some(4_096),
        stack_pointer: Some(8_192),
        ..Wait::default()
    };
    (ran, Kind::Wait(Box::new(wait)))
}

/// Explains the events of one thread.
fn explained(rows: impl IntoIterator<Item = (u64, Kind)>) -> Findings {
    let mut explainer = crate::Explainer::new(&Builder::new().metadata, options());
    for (time, kind) in rows {
        explainer.event(&Event {
            time: Nanos(time),
            cpu: Some(0),
            pid: Some(CLIENT),
            tid: Some(CLIENT),
            comm: Some("client".into()),
            kind,
        });
    }
    explainer.finish()
}

/// A source that records waits only has no begin and no end of a call. The waits of one place are one call if the
/// thread ran only to check its condition again.
///
/// ```text
///   client  fsync ....|5 us|....... D, for I/O     then |..| S in poll, 2 ms on the CPU, |..| fsync of another file
/// ```
#[test]
fn calls_by_their_waits_alone() {
    let lock = Span {
        address: Some(7),
        lock: Some("MUTEX".into()),
        ..Span::new(Activity::Lock, Nanos(100 * MS))
    };
    let madvise = (28, "madvise", 9);
    let rows = [
        wait(MS, 11 * MS, 12 * MS, madvise, State::Blocked),
        wait(
            12 * MS + 5_000,
            32 * MS + 5_000,
            32 * MS + 5_000,
            madvise,
            State::Blocked,
        ),
        wait(50 * MS, 90 * MS, 90 * MS, (7, "poll", 3), State::Sleeping),
        wait(
            100 * MS,
            115 * MS,
            115 * MS,
            (28, "madvise", 8),
            State::Blocked,
        ),
        (115 * MS, Kind::Span(Box::new(lock))),
    ];
    let findings = explained(rows);
    let told = findings.slow.iter().map(|slow| {
        let parts = slow
            .parts
            .iter()
            .map(|part| (&*part.cause, part.ns / 1_000));
        (
            &*slow.call,
            slow.length_ns / 1_000,
            slow.at_least,
            parts.collect::<Vec<_>>(),
        )
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [
            (
                "madvise",
                31_005,
                true,
                vec![("io", 30_000), ("run-queue", 1_000), ("on-cpu", 5)]
            ),
            ("madvise", 15_000, true, vec![("lock", 15_000)]),
        ],
    );
    assert_eq!(findings.tasks[0].blocked_ns, 85 * MS);
}

/// A loop that sleeps 2 ms and works for 5 us makes many calls, although each looks like the one before. The thread
/// waited for a CPU in 20 us of each; together these are no stall of 12 ms. The same waits within one fsync are one.
#[test]
fn a_call_that_sleeps_once_ends_with_its_sleep() {
    let waits = |name: &'static str, state| {
        (0..600).map(move |n| {
            let left = n * 2_025_000;
            let (woken, ran) = (left + 2_000_000, left + 2_020_000);
            wait(left, woken, ran, (230, name, 0), state)
        })
    };
    for name in ["clock_nanosleep", "futex", "epoll_wait", "read", "wait4"] {
        let findings = explained(waits(name, State::Sleeping));
        let slow = findings.calls.iter().map(|calls| calls.slow);
        assert_eq!(slow.sum::<u64>(), 0, "{name}: {:?}", findings.calls);
        let counts: u64 = findings.calls.iter().map(|calls| calls.count).sum();
        assert_eq!(counts, 600, "{name}");
    }
    let findings = explained(waits("fsync", State::Blocked));
    assert_eq!(findings.calls.len(), 1);
    assert_eq!((findings.calls[0].count, findings.calls[0].stalls), (1, 1));
}

/// A thread that computed before the trace began, long after the machine booted, computes since the begin of the
/// trace.
#[test]
fn what_was_before_the_trace_is_no_computing() {
    let boot = 50_000_000 * MS;
    let preempted = |left: u64, ran: u64| {
        let wait = Wait {
            left: Nanos(boot + left),
            ran: Some(Nanos(boot + ran)),
            state: Some(State::Runnable),
            preempted: Some(true),
            within: Some(Within::User),
            instruction_pointer: Some(4_096),
            stack_pointer: Some(8_192),
            ..Wait::default()
        };
        (boot + ran, Kind::Wait(Box::new(wait)))
    };
    let findings = explained([preempted(10 * MS, 30 * MS), preempted(35 * MS, 36 * MS)]);
    let slow = &findings.slow[0];
    assert_eq!(&*slow.call, "computing");
    assert!(slow.length_ns <= 36 * MS, "{slow:?}");
    assert_eq!(slow.excess_ns / MS, 21);
    assert_eq!(findings.calls[0].stalls, 1, "{:?}", findings.calls);
}

/// The kernel counts each wait for a ring as one for I/O. Such a wait is as idle as the same wait in epoll_wait.
#[test]
fn a_wait_for_a_ring_is_no_io_by_the_kernels_count() {
    for (call, slow) in [((426, "io_uring_enter", 5), 0), ((74, "fsync", 5), 1)] {
        let (time, kind) = wait(MS, 81 * MS, 81 * MS, call, State::Sleeping);
        let Kind::Wait(mut wait) = kind else {
            unreachable!()
        };
        wait.for_io = Some(true);
        wait.waker = Some(Waker {
            task: Task {
                tid: SERVER,
                comm: None,
            },
            context: Some(Context::Task),
            call: None,
        });
        let findings = explained([(time, Kind::Wait(wait))]);
        let stalls: u64 = findings.calls.iter().map(|calls| calls.stalls).sum();
        assert_eq!(stalls, slow, "{call:?}: {:?}", findings.slow);
    }
}
