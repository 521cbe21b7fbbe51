//! What must hold of any events that are explained. Shared by the fuzz target and by
//! `crates/explain/tests/explain_bytes.rs`, which runs it on random bytes.

use std::collections::VecDeque;

use stopgap_events::units::Nanos;
use stopgap_events::wait::Context;
use stopgap_explain::{Exchanges, Explainer, Findings, Options};
use stopgap_trace::{Event, Kind, Metadata, Reclaimer, Stack, Text, Waits};

/// Bytes of one event: kind, thread, CPU, time, and two of what it is about.
const EVENT: usize = 6;

/// Threads: few, so that they meet.
const THREADS: u8 = 7;

const CALLS: [&str; 12] = [
    "read",
    "write",
    "poll",
    "epoll_wait",
    "mmap",
    "munmap",
    "futex",
    "rt_sigreturn",
    "sendmsg",
    "recvmsg",
    "sched_yield",
    "ioctl",
];
const STATES: [&str; 6] = ["R", "S", "D", "X", "Z", "I"];
const STACKS: [&str; 4] = [
    "a;__schedule_[k]",
    "handle_mm_fault_[k];shrink_slab_[k];__schedule_[k]",
    "io_schedule_[k];__schedule_[k]",
    "down_write_[k];rwsem_down_write_slowpath_[k];__schedule_[k]",
];
const RECLAIMERS: [Reclaimer; 4] = [
    Reclaimer::Direct,
    Reclaimer::Memcg,
    Reclaimer::Shrinker,
    Reclaimer::Throttled,
];

/// Explains the events that `bytes` are. Times by state, causes and parts add up, and a pair's round trips are not
/// more than its sends. Returns how many events there were.
pub(crate) fn run(bytes: &[u8]) -> usize {
    let mut now = 1_000_u64;
    let (mut waits, mut events) = (Waits::default(), VecDeque::new());
    for bytes in bytes.chunks_exact(EVENT) {
        waits.event(event(bytes, &mut now), &mut events);
    }
    waits.finish(Nanos(now), &mut events);
    let options = Options {
        top: 5,
        frame_marker: Some("read".to_owned()),
        request: "write..read".parse().ok(),
    };
    let mut explainer = Explainer::new(&Metadata::default(), options);
    events.iter().for_each(|event| explainer.event(event));
    let mut exchanges = Exchanges::new(&explainer.pairs());
    events.iter().for_each(|event| exchanges.event(event));
    for exchange in exchanges.finish() {
        assert!(exchange.roundtrips <= exchange.sends, "{exchange:?}");
        assert!(exchange.roundtrips <= exchange.replies, "{exchange:?}");
    }
    adds_up(&explainer.finish());
    events.len()
}

fn adds_up(findings: &Findings) {
    for task in &findings.tasks {
        let states = task.running_ns + task.runnable_ns + task.blocked_ns + task.unknown_ns;
        assert_eq!(states, task.wall_ns, "{}", task.task);
    }
    let causes = findings.switches.causes.iter();
    let causes: u64 = causes.map(|cause| cause.count).sum();
    assert_eq!(causes, findings.switches.total.unwrap_or(0));
    for slow in &findings.slow {
        let parts: u64 = slow.parts.iter().map(|part| part.ns).sum();
        assert_eq!(parts, slow.length_ns, "{slow:?}");
        assert!(slow.excess_ns <= slow.length_ns, "{slow:?}");
    }
}

fn event(bytes: &[u8], now: &mut u64) -> Event {
    let [what, thread, cpu, step, a, b] = bytes else {
        unreachable!("chunks of {EVENT} bytes");
    };
    // Sometimes time goes back.
    *now = match step {
        255 => now.saturating_sub(50_000),
        step => *now + u64::from(*step) * u64::from(*step) * 40,
    };
    let tid = u32::from(thread % THREADS);
    Event {
        time: Nanos(*now),
        cpu: (cpu % 5 != 4).then(|| u32::from(cpu % 5)),
        pid: None,
        tid: (thread % 64 != 63).then_some(tid),
        comm: (!b.is_multiple_of(8)).then(|| Text::from(format!("t{}", tid / 2))),
        kind: kind(*what, *a, *b),
    }
}

fn kind(what: u8, a: u8, b: u8) -> Kind {
    fn one<T: Copy>(of: &[T], index: u8) -> T {
        of[usize::from(index) % of.len()]
    }
    let other = u32::from(a % THREADS);
    let name = (b % 16 != 15).then(|| Text::from(one(&CALLS, a)));
    let number = u32::from(a);
    let by = one(&RECLAIMERS, a);
    let shrinker = (by == Reclaimer::Shrinker).then(|| Text::from("shrink"));
    let address = Some(u64::from(b % 3));
    let lock = a.is_multiple_of(2).then(|| Text::from("mmap"));
    match what % 24 {
        0..=5 => Kind::Switch {
            state: (b % 16 != 14).then(|| Text::from(one(&STATES, b))),
            preempted: (b % 4 != 3).then_some(b % 4 == 2),
            priority: None,
            next_tid: (b % 32 != 31).then_some(other),
            next_comm: None,
            next_priority: None,
            stack: b
                .is_multiple_of(3)
                .then(|| Stack(Text::from(one(&STACKS, b / 3)))),
        },
        6 | 7 => Kind::Waking {
            target_tid: other,
            target_comm: None,
            target_priority: None,
            target_cpu: None,
            waker_context: match b % 8 {
                0 => Some(Context::Task),
                1 => Some(Context::Softirq),
                2 => Some(Context::Interrupt),
                _ => None,
            },
        },
        8..=11 => Kind::SyscallEnter {
            number,
            name,
            arguments: [address, Some(u64::from(b)), None, None, None, None],
        },
        12..=15 => Kind::SyscallExit {
            number,
            name,
            result: (b % 8 != 7).then(|| i64::from(b) - 64),
        },
        16 => Kind::PageFault {
            address: u64::from(a),
            instruction_pointer: None,
            error_code: None,
            user: (b % 3 != 2).then_some(b.is_multiple_of(3)),
        },
        17 => Kind::ReclaimBegin {
            by,
            order: None,
            gfp: None,
            node: None,
            shrinker,
        },
        18 => Kind::ReclaimEnd {
            by,
            order: None,
            node: None,
            scanned: Some(u64::from(a)),
            reclaimed: None,
            shrinker,
            reason: None,
            duration: b.is_multiple_of(2).then(|| Nanos(u64::from(b) << (a % 57))),
        },
        19 => Kind::LockBegin {
            lock,
            address,
            write: None,
        },
        20 => Kind::LockEnd {
            lock,
            address,
            write: None,
            result: None,
        },
        21 => Kind::Fork {
            target_tid: other,
            target_pid: None,
            target_comm: None,
        },
        22 => match b % 3 {
            0 => Kind::Exit { priority: None },
            1 => Kind::Exec {
                filename: None,
                old_tid: None,
            },
            _ => Kind::New {
                target_tid: other,
                target_comm: None,
                target_priority: None,
                target_cpu: None,
            },
        },
        _ => match b % 4 {
            0 => Kind::BlockIssue {
                device: "8:0".into(),
                sector: u64::from(a % 4),
                length: None,
                operation: None,
            },
            1 => Kind::BlockComplete {
                device: "8:0".into(),
                sector: u64::from(a % 4),
                length: None,
                operation: None,
                result: None,
            },
            2 => Kind::Counter {
                name: "mappings".into(),
                value: i64::from(a) - 100,
            },
            _ => Kind::CompactionBegin {
                order: None,
                gfp: None,
                node: None,
                synchronous: None,
            },
        },
    }
}
