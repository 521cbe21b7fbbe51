//! Frames, requests and round trips of traces with known answers.

use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, State, Task, Wait, Waker, Within};
use stopgap_stats::explain::{Findings, WindowKind, Windows};
use stopgap_trace::{Event, Kind, Metadata};

use super::builder::{Builder, CLIENT, SERVER, explain, name, options};
use crate::Options;

const MS: u64 = 1_000_000;

fn asked(request: &str) -> Options {
    Options {
        request: Some(request.parse().unwrap()),
        ..options()
    }
}

fn of(findings: &Findings, kind: WindowKind, task: &str) -> Windows {
    let windows = &findings.chains.as_ref().unwrap().windows;
    let found = windows
        .iter()
        .find(|one| one.kind == kind && one.task == task);
    found.unwrap_or_else(|| panic!("{windows:?}")).clone()
}

fn parts(windows: &Windows) -> Vec<(&str, u64)> {
    let parts = windows.parts.iter();
    parts.map(|part| (&*part.text, part.ns)).collect()
}

/// A client that asks on descriptor 5 and reads there, after a read of descriptor 6 and a read without a result.
fn asks(b: &mut Builder, work: u64) {
    b.after(MS).enter(CLIENT, "write", 5).wake(CLIENT, SERVER);
    b.exit(CLIENT, "write", 64);
    b.enter(CLIENT, "read", 6).exit(CLIENT, "read", 1);
    b.enter(CLIENT, "read", 5).exit(CLIENT, "read", -11);
    b.enter(CLIENT, "read", 5).switch(CLIENT, "S", SERVER);
    b.exit(SERVER, "read", 64);
    b.after(work).enter(SERVER, "write", 7).wake(SERVER, CLIENT);
    b.exit(SERVER, "write", 64).enter(SERVER, "read", 7);
    b.switch(SERVER, "S", CLIENT).exit(CLIENT, "read", 64);
}

#[test]
fn a_request_lasts_from_a_call_to_the_end_of_another_on_its_descriptor() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for work in 1..=10 {
        asks(&mut b, work * MS);
    }
    // A window that does not end.
    b.after(MS)
        .enter(CLIENT, "write", 5)
        .exit(CLIENT, "write", 64);
    b.after(MS).enter(CLIENT, "read", 5).switch(CLIENT, "S", 0);
    b.after(MS);
    b.switch(0, "R", 77);
    let findings = b.explain_with(asked("write..read"));
    let windows = of(&findings, WindowKind::Request, "client");
    assert_eq!((windows.count, windows.not_over), (10, 1));
    let sum: u64 = windows.parts.iter().map(|part| part.ns).sum();
    assert_eq!(sum, windows.total_ns);
    let (text, ns) = parts(&windows)[0];
    assert_eq!(text, "server ran");
    assert!(ns.abs_diff(55 * MS) < MS, "{ns}");
    let p50 = windows.p50_ns.unwrap();
    assert!(p50.abs_diff(5 * MS) < MS, "{p50}");
    let longest = windows.longest.as_ref().unwrap();
    assert_eq!(longest.number, 10);
    let chain: Vec<_> = longest.chain.iter().map(|stop| &*stop.text).collect();
    assert_eq!(chain, ["was in read", "server ran"]);
    assert!(longest.length_ns.abs_diff(10 * MS) < MS);
}

#[test]
fn a_request_of_before_the_trace_is_told_and_not_counted() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).after(MS);
    b.exit(CLIENT, "read", 64);
    asks(&mut b, 2 * MS);
    let findings = b.explain_with(asked("write..read"));
    let windows = of(&findings, WindowKind::Request, "client");
    assert_eq!(
        (windows.count, windows.began_before, windows.not_over),
        (1, 1, 0)
    );
}

#[test]
fn two_marks_make_a_request() {
    let mut b = Builder::new();
    let mark = |b: &mut Builder, mark: &str| {
        b.event(CLIENT, Kind::Mark { name: mark.into() });
    };
    b.switch(0, "R", CLIENT);
    mark(&mut b, "end");
    for _ in 0..5 {
        mark(&mut b, "begin");
        b.after(3 * MS);
        mark(&mut b, "end");
        b.after(7 * MS);
    }
    mark(&mut b, "begin");
    b.after(MS).switch(CLIENT, "S", 0);
    let findings = b.explain_with(asked("mark:begin..mark:end"));
    let windows = of(&findings, WindowKind::Request, "client");
    assert_eq!(
        (windows.count, windows.began_before, windows.not_over),
        (5, 1, 1)
    );
    assert!(
        windows.total_ns.abs_diff(15 * MS) < MS,
        "{}",
        windows.total_ns
    );
    assert_eq!(windows.parts.len(), 1);
    assert_eq!(windows.parts[0].text, "client ran");
}

#[test]
fn frames_are_of_the_thread_that_marks_them() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..6 {
        b.event(
            CLIENT,
            Kind::Mark {
                name: "frame".into(),
            },
        );
        b.after(5 * MS);
    }
    let marker = Some("frame".to_owned());
    let findings = b.explain_with(Options {
        frame_marker: marker,
        ..options()
    });
    let windows = of(&findings, WindowKind::Frame, "client");
    assert_eq!(
        (windows.count, windows.began_before, windows.not_over),
        (5, 1, 1)
    );
    assert_eq!(windows.p99_ns, None, "of five");
    assert!(windows.total_ns.abs_diff(25 * MS) < MS);
}

/// Returns waits only, as BPF records them: no begin or end of a call.
fn waits_alone(trips: u64) -> Vec<Event> {
    let call = |name: &str, descriptor| {
        Some(Call {
            number: u32::from(name == "write"),
            name: Some(name.into()),
            arguments: [Some(descriptor), Some(4_096), None],
        })
    };
    let wait = |tid, on, left, woken, ran, waker: (u32, u64)| Event {
        time: Nanos(ran),
        cpu: Some(tid),
        pid: Some(7),
        tid: Some(tid),
        comm: Some(name(tid)),
        kind: Kind::Wait(Box::new(Wait {
            left: Nanos(left),
            woken: Some(Nanos(woken)),
            ran: Some(Nanos(ran)),
            left_cpu: Some(tid),
            state: Some(State::Sleeping),
            within: Some(Within::Call),
            call: call("read", on),
            instruction_pointer: Some(1),
            waker: Some(Waker {
                task: Task {
                    tid: waker.0,
                    comm: Some(name(waker.0)),
                },
                context: Some(Context::Task),
                call: call("write", waker.1),
            }),
            ..Wait::default()
        })),
    };
    let mut events = Vec::new();
    for trip in 0..trips {
        let at = trip * 20 * MS + MS;
        // The server waits since its last answer. The client asks at `at` and waits for 10 ms.
        let since = if trip == 0 { 0 } else { at - 10 * MS + 10 };
        events.push(wait(SERVER, 7, since, at, at + 5, (CLIENT, 5)));
        events.push(wait(
            CLIENT,
            5,
            at + 100,
            at + 10 * MS,
            at + 10 * MS + 50,
            (SERVER, 7),
        ));
    }
    events
}

#[test]
fn waits_alone_show_requests_that_woke_somebody() {
    let events = waits_alone(8);
    let findings = explain(&events, &Metadata::default(), asked("write..read"));
    let windows = of(&findings, WindowKind::Request, "client");
    assert_eq!((windows.count, windows.total_ns), (8, 8 * (10 * MS + 50)));
    assert_eq!(parts(&windows)[0].0, "server ran");
    let sum: u64 = windows.parts.iter().map(|part| part.ns).sum();
    assert_eq!(sum, windows.total_ns);
}

#[test]
fn round_trips_have_their_path() {
    let findings = explain(&waits_alone(8), &Metadata::default(), options());
    let windows = of(&findings, WindowKind::RoundTrip, "client");
    assert_eq!(windows.by, "server");
    assert_eq!(windows.count, findings.switches.roundtrips.unwrap());
    assert_eq!(parts(&windows)[0].0, "server ran");
}

#[test]
fn what_is_no_request_says_so() {
    for wrong in [
        "write",
        "..",
        "write..",
        "..read",
        "Write..read",
        "mark:..read",
        "a b..c",
    ] {
        assert!(wrong.parse::<crate::Request>().is_err(), "{wrong}");
    }
    for right in [
        "ioctl..poll",
        "mark:frame begin..mark:frame end",
        "mark:a..read",
    ] {
        assert_eq!(right.parse::<crate::Request>().unwrap().to_string(), right);
    }
}
