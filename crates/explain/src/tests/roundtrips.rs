//! Round trips between a client and a server, as the mails and the probes found them.

use stopgap_stats::explain::{CauseKind, Findings};
use stopgap_stats::verdict::Word;

use stopgap_trace::{Event, Kind};

use super::builder::{Builder, CLIENT, SERVER, count, explain, options, with_waits};
use crate::{Explainer, Options};

const MS: u64 = 1_000_000;

/// Behaviour of client and server.
#[derive(Debug, Clone, Copy)]
struct Play {
    /// The client waits in read, and the server's read wakes it.
    blocking_read: bool,
    /// The server writes this many replies, each with its own call, and is pre-empted after each.
    replies: u32,
    /// Requests that the client sends before it waits.
    requests: u32,
}

const IDEAL: Play = Play {
    blocking_read: false,
    replies: 1,
    requests: 1,
};

/// One CPU, a socket whose ends are 5 and 7. Each round trip:
///
/// ```text
/// client  writev poll|                            |poll read
/// server             |epoll read write epoll_wait|
/// ```
fn play(play: Play, trips: u32) -> Builder {
    let mut b = Builder::new();
    let waits = if play.blocking_read { "read" } else { "poll" };
    b.switch(0, "R", CLIENT);
    for _ in 0..trips {
        for request in 0..play.requests {
            b.after(1_000).enter(CLIENT, "writev", 5);
            if request == 0 {
                b.wake(CLIENT, SERVER);
            }
            b.exit(CLIENT, "writev", 64);
        }
        b.after(1_000).enter(CLIENT, waits, 5);
        b.switch(CLIENT, "S", SERVER).exit(SERVER, "epoll_wait", 1);
        b.after(1_000).enter(SERVER, "read", 7);
        if play.blocking_read {
            b.wake(SERVER, CLIENT);
        }
        b.exit(SERVER, "read", 64);
        if play.blocking_read {
            // The switch comes on the way out of the read. The client finds nothing to read.
            b.switch(SERVER, "R", CLIENT)
                .after(500)
                .switch(CLIENT, "S", SERVER);
        }
        for reply in 0..play.replies {
            b.after(1_000)
                .enter(SERVER, "write", 7)
                .wake(SERVER, CLIENT);
            b.exit(SERVER, "write", 64);
            if reply + 1 < play.replies {
                b.after(2_000).switch(SERVER, "R", CLIENT);
                b.exit(CLIENT, "poll", 1)
                    .enter(CLIENT, "read", 5)
                    .exit(CLIENT, "read", 64);
                b.enter(CLIENT, "poll", 5).switch(CLIENT, "S", SERVER);
            }
        }
        b.enter(SERVER, "epoll_wait", 3).switch(SERVER, "S", CLIENT);
        b.after(1_000).exit(CLIENT, waits, 1);
        if !play.blocking_read {
            b.enter(CLIENT, "read", 5).exit(CLIENT, "read", 64);
        }
    }
    b
}

fn advised(findings: &Findings) -> Vec<&str> {
    findings.advice.iter().map(|advice| &*advice.word).collect()
}

#[test]
fn two_switches_a_round_trip() {
    let findings = play(IDEAL, 200).explain();
    let switches = &findings.switches;
    assert_eq!(switches.roundtrips, Some(200));
    assert_eq!(switches.per_roundtrip.distribution, [(2, 200)]);
    assert_eq!(
        (switches.per_roundtrip.p50, switches.per_roundtrip.p90),
        (Some(2), Some(2))
    );
    assert_eq!(switches.total, Some(400));
    assert!(switches.excess.unwrap().abs() < 1e-9);
    let pair = &switches.pairs[0];
    assert_eq!((&*pair.client, &*pair.server), ("client", "server"));
    assert_eq!(pair.one_cpu, Some(0));
    // From the client's writev to the end of its read.
    assert_eq!(pair.p50_ns.map(|ns| ns / 100), Some(40));
    assert_eq!(advised(&findings), Vec::<&str>::new());
    assert!(
        findings
            .verdict
            .text
            .starts_with("clean: 2.0 switches a round trip")
    );
}

#[test]
fn a_blocking_read_costs_two_more() {
    let blocking = Play {
        blocking_read: true,
        ..IDEAL
    };
    let findings = play(blocking, 100).explain();
    assert_eq!(findings.switches.per_roundtrip.p50, Some(4));
    assert_eq!(count(&findings, "client", CauseKind::WriteSpaceWake), 100);
    assert_eq!(
        count(&findings, "server", CauseKind::PreemptedOnTheWayOut),
        100
    );
    assert!(
        advised(&findings).contains(&"poll"),
        "{:?}",
        findings.advice
    );
    let poll = findings
        .advice
        .iter()
        .find(|advice| advice.word == "poll")
        .unwrap();
    assert!(
        poll.evidence.contains("woken 100 times, 1.00 a round trip"),
        "{poll:?}"
    );
}

/// Xvfb writes each reply with its own call, and the client pre-empts it each time. A batch client would not.
#[test]
fn a_write_per_reply() {
    let many = Play {
        replies: 5,
        ..IDEAL
    };
    let findings = play(many, 100).explain();
    let switches = &findings.switches;
    assert_eq!(switches.per_roundtrip.p50, Some(10));
    assert_eq!(switches.pairs[0].replies_per_roundtrip.round() as u64, 5);
    assert_eq!(
        count(&findings, "server", CauseKind::PreemptedOnTheWayOut),
        400
    );
    assert!(
        findings
            .verdict
            .text
            .starts_with("excess 5.0x: 10.0 switches"),
        "{:?}",
        findings.verdict
    );
    let advised = advised(&findings);
    for word in ["sched-batch", "coalesce-replies", "separate-cpus"] {
        assert!(advised.contains(&word), "{word}: {:?}", findings.advice);
    }
    let batch = findings
        .advice
        .iter()
        .find(|advice| advice.word == "sched-batch")
        .unwrap();
    assert!(
        batch.text.contains("run client as SCHED_BATCH"),
        "{batch:?}"
    );
    assert!(
        batch.evidence.contains("server was pre-empted 400 times"),
        "{batch:?}"
    );
    // There are more pre-emptions than switches of the pair: other threads have the same names.
    let mut others = findings.clone();
    for cause in &mut others.switches.causes {
        cause.count *= 10;
    }
    let left = crate::advice::advise(&others);
    assert!(
        left.iter().all(|advice| advice.word != "sched-batch"),
        "{left:?}"
    );
}

/// Sends before the first reply are one flush.
#[test]
fn requests_in_one_go() {
    let pipelined = Play {
        requests: 8,
        ..IDEAL
    };
    let findings = play(pipelined, 100).explain();
    assert_eq!(findings.switches.roundtrips, Some(100));
    assert_eq!(findings.switches.per_roundtrip.p50, Some(2));
    assert_eq!(
        findings.switches.pairs[0].sends_per_roundtrip.round() as u64,
        8
    );
}

/// Round trips add up to all switches of the pair.
#[test]
fn each_switch_is_in_one_round_trip() {
    for replies in 1..6 {
        let findings = play(Play { replies, ..IDEAL }, 50).explain();
        let switches = &findings.switches;
        assert_eq!(
            switches.total.unwrap(),
            switches.pairs[0].switches,
            "{replies}"
        );
        let spread = &switches.per_roundtrip.distribution;
        let trips: u64 = spread.iter().map(|(_, count)| count).sum();
        assert_eq!(trips, switches.roundtrips.unwrap());
    }
}

/// A server asks another one and writes to a disk, while two other threads want the CPU. Client and server still cost
/// 2 switches per round trip, and so do server and backend.
#[test]
fn a_switch_is_of_those_who_talk() {
    const BACKEND: u32 = 31;
    const HOG: u32 = 32;
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..50 {
        b.after(1_000).enter(CLIENT, "write", 5);
        b.wake(CLIENT, SERVER).exit(CLIENT, "write", 8);
        b.enter(CLIENT, "poll", 5).switch(CLIENT, "S", SERVER);
        b.exit(SERVER, "epoll_wait", 1);
        b.enter(SERVER, "fsync", 4).switch(SERVER, "D", HOG);
        b.after(500_000).wake(0, SERVER);
        b.switch(HOG, "R", SERVER).exit(SERVER, "fsync", 0);
        b.after(500).switch(SERVER, "R", HOG);
        b.after(500).switch(HOG, "R", SERVER);
        b.enter(SERVER, "write", 9).wake(SERVER, BACKEND);
        b.exit(SERVER, "write", 8).enter(SERVER, "read", 9);
        b.switch(SERVER, "S", BACKEND).exit(BACKEND, "read", 8);
        b.after(2_000)
            .enter(BACKEND, "write", 3)
            .wake(BACKEND, SERVER);
        b.exit(BACKEND, "write", 8).enter(BACKEND, "read", 3);
        b.switch(BACKEND, "S", SERVER).exit(SERVER, "read", 8);
        b.enter(SERVER, "write", 7).wake(SERVER, CLIENT);
        b.exit(SERVER, "write", 8).enter(SERVER, "epoll_wait", 3);
        b.switch(SERVER, "S", CLIENT).exit(CLIENT, "poll", 1);
        b.enter(CLIENT, "read", 5).exit(CLIENT, "read", 8);
    }
    let findings = b.explain();
    let pairs = findings.switches.pairs.iter().map(|pair| {
        (
            (&*pair.client, &*pair.server),
            pair.per_roundtrip.p50,
            pair.switches / pair.roundtrips,
        )
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    let (asks, hands_on) = (("client", "server"), ("server", "t31"));
    assert_eq!(pairs, [(asks, Some(2), 2), (hands_on, Some(2), 2)]);
}

/// The next question of a client that has its answer and sleeps may wake nobody. What comes then is no reply to the
/// first question.
#[test]
fn a_round_trip_is_over_when_its_client_sleeps_on_purpose() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    b.on(1).switch(0, "R", SERVER);
    for trip in 0..40 {
        // Most questions find the server awake.
        let asleep = trip % 10 == 0;
        if asleep {
            b.on(1).enter(SERVER, "epoll_wait", 3);
            b.switch(SERVER, "S", 0);
        }
        b.on(0).after(1_000).enter(CLIENT, "write", 5);
        if asleep {
            b.wake(CLIENT, SERVER);
        }
        b.exit(CLIENT, "write", 8).enter(CLIENT, "poll", 5);
        b.switch(CLIENT, "S", 0).on(1);
        if asleep {
            b.switch(0, "R", SERVER).exit(SERVER, "epoll_wait", 1);
        }
        b.enter(SERVER, "write", 7).wake(SERVER, CLIENT);
        b.exit(SERVER, "write", 8);
        b.on(0).switch(0, "R", CLIENT).exit(CLIENT, "poll", 1);
        b.enter(CLIENT, "read", 5).exit(CLIENT, "read", 8);
        b.enter(CLIENT, "nanosleep", 0).switch(CLIENT, "S", 0);
        b.after(MS).wake(0, CLIENT).switch(0, "R", CLIENT);
        b.exit(CLIENT, "nanosleep", 0);
    }
    let waits = with_waits(&b.events).into_iter();
    let mut explainer = Explainer::new(&b.metadata, options());
    for event in waits.filter(|event| matches!(event.kind, Kind::Wait(_))) {
        explainer.event(&event);
    }
    let findings = explainer.finish();
    let pair = &findings.switches.pairs[0];
    assert_eq!((&*pair.client, &*pair.server), ("client", "server"));
    let longest = pair.per_roundtrip.distribution.last().unwrap().0;
    assert!(longest <= 2, "{:?}", pair.per_roundtrip.distribution);
    assert!(pair.replies_per_roundtrip <= 1.0, "{pair:?}");
}

/// Five switches instead of two matter only if there are many: 20 per second are no finding.
#[test]
fn few_switches_are_no_excess() {
    let many = Play {
        replies: 5,
        ..IDEAL
    };
    let mut b = play(many, 20);
    assert_eq!(b.explain().verdict.word, Word::Excess);
    b.after(1_000 * MS).exit(CLIENT, "writev", 64);
    let verdict = b.explain().verdict;
    assert_ne!(verdict.word, Word::Excess, "{}", verdict.text);
}

/// If a trace begins in the middle, the client is the thread that does not wait for several descriptors.
#[test]
fn recorded_from_the_middle_on() {
    let whole = play(IDEAL, 50);
    for skipped in 0..20 {
        let findings = explain(&whole.events[skipped..], &whole.metadata, options());
        let pair = &findings.switches.pairs[0];
        assert_eq!(
            (&*pair.client, &*pair.server),
            ("client", "server"),
            "{skipped}"
        );
        assert!(
            (48..=50).contains(&pair.roundtrips),
            "{skipped}: {}",
            pair.roundtrips
        );
        assert_eq!(pair.per_roundtrip.p50, Some(2));
    }
}

/// If half of two switches per round trip are pre-emptions, there is nothing to gain.
#[test]
fn what_costs_two_needs_no_advice() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..50 {
        b.enter(CLIENT, "write", 5)
            .wake(CLIENT, SERVER)
            .exit(CLIENT, "write", 8);
        b.enter(CLIENT, "poll", 5).switch(CLIENT, "S", SERVER);
        b.exit(SERVER, "read", 8)
            .enter(SERVER, "write", 7)
            .wake(SERVER, CLIENT);
        b.exit(SERVER, "write", 8)
            .after(2_000)
            .switch(SERVER, "R", CLIENT);
        b.exit(CLIENT, "poll", 1).after(1_000);
    }
    let findings = b.explain();
    assert_eq!(findings.switches.per_roundtrip.p50, Some(2));
    assert_eq!(
        count(&findings, "server", CauseKind::PreemptedOnTheWayOut),
        50
    );
    assert_eq!(advised(&findings), Vec::<&str>::new());
}

/// A recording of the whole machine has waits of threads that talk but were not followed. They do not count for the
/// program.
#[test]
fn pairs_of_others_are_not_the_programs() {
    let whole = play(IDEAL, 50);
    let waits = with_waits(&whole.events);
    let waits = waits
        .into_iter()
        .filter(|event| matches!(event.kind, Kind::Wait(_)));
    let waits: Vec<Event> = waits.collect();
    let seen = |followed: Option<u32>| {
        let mut explainer = Explainer::new(&whole.metadata, options());
        let mut own = Builder::new();
        if let Some(tid) = followed {
            own.on(1).fault(tid);
        }
        own.events
            .iter()
            .chain(&waits)
            .for_each(|event| explainer.event(event));
        let pairs = explainer.pairs().len();
        (pairs, explainer.finish().switches.roundtrips.unwrap())
    };
    let (pairs, trips) = seen(Some(SERVER));
    assert!(pairs == 1 && trips > 40, "{pairs} {trips}");
    assert_eq!(
        seen(None),
        (pairs, trips),
        "where nobody was followed, all are meant"
    );
    assert_eq!(seen(Some(30)), (0, 0));
}

/// A server that earlier wrote its log to the same descriptor number as its connection did not ask anybody by that.
#[test]
fn a_descriptor_that_is_given_again_is_another_file() {
    for (ends, result) in [("close", 0), ("accept", 7), ("dup2", 7)] {
        let mut b = Builder::new();
        b.switch(0, "R", SERVER);
        b.enter(SERVER, "write", 7).exit(SERVER, "write", 8);
        b.after(1_000).enter(SERVER, ends, 7);
        b.exit(SERVER, ends, result).after(1_000);
        b.enter(SERVER, "read", 7).switch(SERVER, "S", CLIENT);
        for _ in 0..50 {
            b.after(1_000).enter(CLIENT, "write", 5);
            b.wake(CLIENT, SERVER).exit(CLIENT, "write", 8);
            b.enter(CLIENT, "read", 5).switch(CLIENT, "S", SERVER);
            b.exit(SERVER, "read", 8).after(1_000);
            b.enter(SERVER, "write", 7).wake(SERVER, CLIENT);
            b.exit(SERVER, "write", 8).after(1_000);
            b.enter(SERVER, "read", 7).switch(SERVER, "S", CLIENT);
            b.exit(CLIENT, "read", 8);
        }
        let pair = &b.explain().switches.pairs[0];
        let names = (&*pair.client, &*pair.server);
        assert_eq!(names, ("client", "server"), "after {ends}");
    }
}

/// The first question to a new process finds it awake and wakes nobody, so the first waking is the answer. Neither is idle, and only
/// waits were recorded.
#[test]
fn who_made_the_other_asks_it() {
    let mut b = Builder::new();
    b.on(0).switch(0, "R", CLIENT);
    let fork = Kind::Fork {
        target_tid: SERVER,
        target_pid: Some(SERVER),
        target_comm: Some(super::builder::name(SERVER)),
    };
    b.after(1_000).event(CLIENT, fork).after(1_000);
    b.on(1).switch(0, "R", SERVER);
    for trip in 0..50 {
        b.on(0).after(1_000).enter(CLIENT, "write", 6);
        if trip > 0 {
            b.wake(CLIENT, SERVER);
            b.on(1).switch(0, "R", SERVER).exit(SERVER, "read", 1);
        }
        b.on(0).exit(CLIENT, "write", 1).enter(CLIENT, "read", 5);
        b.switch(CLIENT, "S", 0).after(4 * MS);
        b.on(1).enter(SERVER, "write", 8).wake(SERVER, CLIENT);
        b.exit(SERVER, "write", 1).enter(SERVER, "read", 7);
        b.switch(SERVER, "S", 0);
        // The client waits for its CPU, too.
        b.on(0).after(3 * MS).switch(0, "R", CLIENT);
        b.exit(CLIENT, "read", 1);
    }
    let waits = with_waits(&b.events).into_iter();
    let mut explainer = Explainer::new(&b.metadata, options());
    for event in waits.filter(|event| matches!(event.kind, Kind::Wait(_) | Kind::Fork { .. })) {
        explainer.event(&event);
    }
    let findings = explainer.finish();
    let pair = &findings.switches.pairs[0];
    let names = (&*pair.client, &*pair.server);
    assert_eq!(names, ("client", "server"));
    assert!(pair.p50_ns > Some(6 * MS), "{pair:?}");
    // The server's work is in what WHY says that the client waited, and no loss.
    let text = &findings.verdict.text;
    assert!(
        text.starts_with("stalls: client lost 150 ms in 100 waits"),
        "{text}"
    );
    assert!(
        text.ends_with("; 200 ms more went to work that it had asked for"),
        "{text}"
    );
}

#[test]
fn frames_are_from_mark_to_mark() {
    let frames = |marker: &str| {
        let frame_marker = Some(marker.to_owned());
        let findings = play(IDEAL, 50).explain_with(Options {
            frame_marker,
            ..options()
        });
        (findings.switches.frames.unwrap(), findings.missing)
    };
    let (by_call, _) = frames("writev");
    assert_eq!((by_call.count, by_call.switches.p50), (49, Some(2)));
    for kind in ["wait", "switch"] {
        assert!(frames(kind).0.count > 49, "{kind}");
    }
    let (never, missing) = frames("no-such-mark");
    assert_eq!((never.count, never.switches.mean), (0, None));
    assert!(
        missing
            .iter()
            .any(|missing| missing.why.contains("no-such-mark did not come twice"))
    );
}

/// Two programs that write to one file wait for each other there, but neither answers the other.
#[test]
fn writers_of_one_file_are_no_client_and_server() {
    let mut b = Builder::new();
    for _ in 0..20 {
        b.enter(CLIENT, "write", 5).after(10);
        b.wake(CLIENT, SERVER).switch(CLIENT, "S", SERVER).after(10);
        b.exit(SERVER, "write", 1).enter(SERVER, "write", 6);
        b.wake(SERVER, CLIENT).switch(SERVER, "S", CLIENT).after(10);
        b.exit(CLIENT, "write", 1);
    }
    let findings = b.explain();
    assert!(
        findings.switches.pairs.is_empty(),
        "{:?}",
        findings.switches.pairs
    );
    assert!(findings.advice.is_empty(), "{:?}", findings.advice);
}
