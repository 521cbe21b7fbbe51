use std::rc::Rc;

use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, State, Task, Wait, Waker, Within};
use stopgap_stats::explain::Findings;
use stopgap_trace::{Activity, Event, Kind, Metadata, Span};

use super::*;
use crate::{Explainer, Options};

const MS: u64 = 1_000_000;
const NAMES: [(u32, &str); 5] = [
    (7, "client"),
    (8, "server"),
    (9, "writer"),
    (10, "hog"),
    (11, "kill"),
];

fn name(tid: u32) -> &'static str {
    NAMES
        .iter()
        .find(|(known, _)| *known == tid)
        .map_or("", |(_, name)| name)
}

fn task(tid: u32) -> Task {
    Task {
        tid,
        comm: Some(Rc::from(name(tid))),
    }
}

fn event(time: u64, tid: u32, kind: Kind) -> Event {
    Event {
        time: Nanos(time * MS),
        cpu: None,
        pid: Some(tid),
        tid: Some(tid),
        comm: Some(name(tid).into()),
        kind,
    }
}

/// Returns a wait: when it began, when the thread was woken, and when it ran again, in ms.
fn wait(tid: u32, call: &str, state: State, times: [u64; 3]) -> Wait {
    let [left, woken, ran] = times.map(|ms| Nanos(ms * MS));
    Wait {
        left,
        woken: (state != State::Runnable).then_some(woken),
        ran: Some(ran),
        state: Some(state),
        call: (!call.is_empty()).then(|| Call {
            number: call.len() as u32,
            name: Some(Rc::from(call)),
            arguments: [Some(u64::from(tid)), None, None],
        }),
        within: Some(if call.is_empty() {
            Within::User
        } else {
            Within::Call
        }),
        instruction_pointer: Some(4_096),
        ..Wait::default()
    }
}

fn is_over(tid: u32, wait: Wait) -> Event {
    let ran = wait.ran.unwrap().0 / MS;
    event(ran, tid, Kind::Wait(Box::new(wait)))
}

fn woken_by(wait: Wait, tid: u32, context: Context) -> Wait {
    Wait {
        waker: Some(Waker {
            task: task(tid),
            context: Some(context),
            call: Some(Call {
                number: 0,
                name: Some(Rc::from("write")),
                arguments: [None; 3],
            }),
        }),
        ..wait
    }
}

fn made(time: u64, tid: u32) -> Event {
    let kind = Kind::Fork {
        target_tid: tid,
        target_comm: Some(name(tid).into()),
        target_pid: None,
    };
    event(time, 1, kind)
}

fn trigger(kind: TriggerKind, tid: Option<u32>, begin: u64, end: u64) -> Trigger {
    Trigger {
        tid,
        begin_ns: tid.map(|_| begin * MS),
        measured_ns: Some((end - begin) * MS),
        ..Trigger::new(kind, end * MS)
    }
}

fn stall_of(triggers: Vec<Trigger>, begin: u64, from: u64) -> Stall {
    let end = triggers.iter().map(|trigger| trigger.at_ns).max().unwrap();
    Stall {
        unix_s: 0,
        triggers,
        begin_ns: begin * MS,
        end_ns: end,
        from_ns: from * MS,
        taken_ns: end + 1_000 * MS,
        suppressed: 0,
    }
}

fn explained(stall: &Stall, events: &[Event]) -> (Findings, Vec<Vec<Waiting>>) {
    let options = Options {
        top: 10,
        frame_marker: None,
        request: None,
    };
    let mut explainer = Explainer::new(&Metadata::default(), options);
    explainer.watch(&windows(stall));
    events.iter().for_each(|event| explainer.event(event));
    explainer.finish_watched()
}

fn cause_of(trigger: Trigger, events: &[Event]) -> Cause {
    let stall = stall_of(vec![trigger], 0, 0);
    headline(&stall, &causes(&stall, &explained(&stall, events).1)).1
}

/// ```text
/// ms        1000                     1400
/// client    |recvfrom                |
/// server     |fsync                 |
/// disk        |writer's |server's   |
/// ```
fn client_server_disk() -> Vec<Event> {
    let block = |tid, begin: u64, issued: u64, end| {
        let span = Span {
            issued: Some(Nanos(issued * MS)),
            device: Some("254:0".into()),
            ..Span::new(Activity::Block, Nanos(begin * MS))
        };
        event(end, tid, Kind::Span(Box::new(span)))
    };
    let sync = Wait {
        for_io: Some(true),
        ..woken_by(
            wait(8, "fsync", State::Blocked, [1_001, 1_399, 1_399]),
            10,
            Context::Interrupt,
        )
    };
    vec![
        made(1, 7),
        made(1, 8),
        is_over(
            8,
            woken_by(
                wait(8, "read", State::Sleeping, [2, 1_000, 1_000]),
                7,
                Context::Task,
            ),
        ),
        block(9, 1_001, 1_001, 1_381),
        block(8, 1_001, 1_381, 1_399),
        is_over(8, sync),
        is_over(
            7,
            woken_by(
                wait(7, "recvfrom", State::Sleeping, [1_000, 1_400, 1_400]),
                8,
                Context::Task,
            ),
        ),
    ]
}

#[test]
fn the_line_names_the_chain_to_its_end() {
    let cause = cause_of(
        trigger(TriggerKind::SlowCall, Some(7), 1_000, 1_400),
        &client_server_disk(),
    );
    assert_eq!(cause.word, "answer");
    assert_eq!(
        cause.text,
        "answer, 100 % of 400 ms: was in recvfrom > server (8) was in fsync > disk 254:0, behind requests of writer (9)"
    );
    let culprit = cause.culprit.unwrap();
    assert_eq!((&*culprit.cause, culprit.tid), ("disk", Some(9)));
    assert!((0.9..1.0).contains(&culprit.share), "{}", culprit.share);
    assert_eq!(cause.waiting[0].total_ns, 400 * MS);
}

/// If a thread waits for its own request to the disk, no other thread could go after it.
#[test]
fn what_to_try_names_the_other_thread() {
    let window = |at| trigger(TriggerKind::SlowCall, Some(7), 1_000, at);
    let mut events = client_server_disk();
    let first = advice(&cause_of(window(1_400), &events)).expect("an end");
    assert_eq!(first.word, "io-priority");
    assert!(
        first.text.starts_with("put what writer writes"),
        "{first:?}"
    );
    // Without the other request, the server's own took all of the time.
    events.retain(|event| !matches!(&event.kind, Kind::Span(_) if event.tid == Some(9)));
    let cause = cause_of(window(1_400), &events);
    assert_eq!(advice(&cause), None, "{}", cause.text);
}

/// The cause of a page and the table below it come from the same graph.
#[test]
fn the_cause_is_that_of_the_table() {
    for (tid, call, begin, end) in [(7, "recvfrom", 1_000, 1_400), (8, "fsync", 1_001, 1_399)] {
        let stall = stall_of(
            vec![trigger(TriggerKind::SlowCall, Some(tid), begin, end)],
            0,
            0,
        );
        let (findings, waiting) = explained(&stall, &client_server_disk());
        let (_, cause) = headline(&stall, &causes(&stall, &waiting));
        let slow = findings
            .slow
            .iter()
            .find(|slow| slow.tid == tid && slow.call == call);
        let slow = slow.unwrap_or_else(|| panic!("{tid}: {:?}", findings.slow));
        assert_eq!(slow.parts[0].cause, cause.word);
        let chains = findings.chains.unwrap().waiting;
        let first = chains
            .iter()
            .find(|one| one.task == name(tid) && one.idleness == Idleness::Stalled);
        assert_eq!(first.unwrap().links, cause.waiting[0].links);
    }
}

/// The thread sleeps 700 of 1,000 ms and then waits for a CPU. Time before the stall does not count.
#[test]
fn a_window_has_its_own_time_alone() {
    let behind = |wait: Wait| Wait {
        previous: Some(task(10)),
        ..woken_by(wait, 10, Context::Interrupt)
    };
    let events = [
        is_over(7, behind(wait(7, "", State::Runnable, [5, 0, 900]))),
        is_over(
            7,
            behind(wait(7, "fsync", State::Blocked, [1_000, 1_700, 2_000])),
        ),
    ];
    let cause = cause_of(
        trigger(TriggerKind::SlowCall, Some(7), 1_000, 2_000),
        &events,
    );
    assert_eq!(
        cause.text,
        "io, 70 % of 1000 ms: was in fsync > a disk; 30 % run-queue"
    );
    let cause = cause_of(trigger(TriggerKind::RunQueue, Some(7), 5, 900), &events);
    assert_eq!(
        cause.text,
        "run-queue, 100 % of 895 ms: waited for a CPU, behind hog (10)"
    );
    assert_eq!(cause.culprit.unwrap().task.as_deref(), Some("hog"));
}

#[test]
fn a_wait_for_work_is_a_cause_only_where_it_fired() {
    let nap = woken_by(
        wait(7, "nanosleep", State::Sleeping, [10, 300, 300]),
        10,
        Context::Interrupt,
    );
    let events = [is_over(7, nap)];
    let of_all = cause_of(trigger(TriggerKind::Request, None, 0, 400), &events);
    assert_eq!(of_all.text, "unknown: no thread lost time within the stall");
    let fired = cause_of(trigger(TriggerKind::SlowCall, Some(7), 10, 300), &events);
    assert_eq!(
        fired.text,
        "idle, 100 % of 290 ms: slept in nanosleep > on purpose"
    );
}

#[test]
fn a_stop_names_who_sent_the_signal_and_is_no_cause_of_others() {
    let signal = Kind::Signal {
        signal: 19,
        to_process: Some(true),
        target_tid: 7,
        target_comm: None,
        target_pid: Some(7),
        result: None,
    };
    let events = [
        event(1, 11, signal),
        is_over(7, wait(7, "read", State::Stopped, [1, 900, 900])),
    ];
    let cause = cause_of(trigger(TriggerKind::Stopped, Some(7), 1, 900), &events);
    assert_eq!(
        cause.text,
        "stopped, 100 % of 899 ms: was stopped > stopped by kill (11)"
    );
    let of_all = cause_of(trigger(TriggerKind::Request, None, 0, 900), &events);
    assert_eq!(of_all.word, "unknown");
}

/// ```text
/// ms        0      100     200     300
/// 7         |memcg-reclaim, asleep since 150|
/// 8         |waits for a CPU          |
/// ```
#[test]
fn memory_pressure_is_memorys_doing_whoever_waits_for_a_cpu() {
    let reclaim = Span::new(Activity::MemcgReclaim, Nanos(0));
    let queue = Wait {
        previous: Some(task(10)),
        ..wait(8, "read", State::Runnable, [0, 0, 300])
    };
    let events = [
        is_over(7, wait(7, "mmap", State::Blocked, [150, 200, 200])),
        event(200, 7, Kind::Span(Box::new(reclaim))),
        is_over(8, queue),
    ];
    let pressure = cause_of(trigger(TriggerKind::MemoryPressure, None, 0, 300), &events);
    assert_eq!(pressure.word, "memcg-reclaim", "{}", pressure.text);
    assert!(
        pressure.text.contains("most by client"),
        "{}",
        pressure.text
    );
    let asked = cause_of(trigger(TriggerKind::Request, None, 0, 300), &events);
    assert_eq!(asked.word, "run-queue");
    assert!(asked.text.contains("most by server"), "{}", asked.text);
    let io = cause_of(trigger(TriggerKind::IoPressure, None, 0, 300), &events);
    assert_eq!(
        io.text,
        "unknown: nobody waited for a disk within the stall"
    );
}

#[test]
fn what_the_trace_does_not_have_is_said() {
    let call = trigger(TriggerKind::SlowCall, Some(7), 500, 1_400);
    let stall = stall_of(vec![call], 500, 1_000);
    let (_, cause) = headline(
        &stall,
        &causes(&stall, &explained(&stall, &client_server_disk()).1),
    );
    assert!(
        cause
            .text
            .ends_with("; it began 500 ms before the trace (a larger --buffer keeps more)"),
        "{}",
        cause.text
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
            ..trigger(TriggerKind::SlowCall, Some(7), 0, 900)
        };
        let stall = stall_of(vec![call], 0, 1_000);
        let (_, cause) = headline(&stall, &causes(&stall, &explained(&stall, &[]).1));
        assert!(cause.text.starts_with(words), "{}", cause.text);
    }
}

/// Pressure with a trigger beside a slow call leads if the trace explains it.
#[test]
fn pressure_that_is_explained_comes_first() {
    let call = trigger(TriggerKind::SlowCall, Some(7), 1_000, 1_400);
    let pressure = trigger(TriggerKind::IoPressure, None, 1_000, 1_400);
    let stall = stall_of(vec![call.clone(), pressure.clone()], 0, 0);
    let (leads, cause) = headline(
        &stall,
        &causes(&stall, &explained(&stall, &client_server_disk()).1),
    );
    assert_eq!(
        leads.unwrap().kind,
        TriggerKind::SlowCall,
        "it waits for that disk"
    );
    assert_eq!(cause.word, "answer", "{}", cause.text);
    let mut events = client_server_disk();
    events.push(is_over(
        10,
        Wait {
            previous: Some(task(9)),
            ..wait(10, "", State::Runnable, [1_000, 0, 1_400])
        },
    ));
    let other = trigger(TriggerKind::RunQueue, Some(10), 1_000, 1_400);
    let stall = stall_of(vec![other, pressure], 0, 0);
    let all = causes(&stall, &explained(&stall, &events).1);
    let words: Vec<&str> = (all.iter().flatten().map(|cause| &*cause.word)).collect();
    assert_eq!(words, ["run-queue", "io"], "each has its own");
    let (leads, cause) = headline(&stall, &all);
    assert_eq!(leads.unwrap().kind, TriggerKind::IoPressure);
    assert_eq!(cause.word, "io", "{}", cause.text);
    let pressure = trigger(TriggerKind::MemoryPressure, None, 1_000, 1_400);
    let stall = stall_of(vec![call, pressure], 0, 0);
    let (leads, cause) = headline(
        &stall,
        &causes(&stall, &explained(&stall, &client_server_disk()).1),
    );
    assert_eq!(leads.unwrap().kind, TriggerKind::SlowCall);
    assert_eq!(cause.word, "answer", "{}", cause.text);
}

/// ```text
/// ms        1000  1060             1400
/// client    |recvfrom              |        asks the server, which waits for the disk
/// writer    |reclaim|                       60 ms of memory pressure
/// ```
#[test]
fn memory_pressure_leads_where_it_took_most() {
    let told = |lasts: u64| {
        let mut events = client_server_disk();
        let reclaim = Span::new(Activity::MemcgReclaim, Nanos(1_000 * MS));
        let times = [1_000, 1_000 + lasts, 1_000 + lasts];
        events.push(is_over(10, wait(10, "mmap", State::Blocked, times)));
        events.push(event(1_000 + lasts, 10, Kind::Span(Box::new(reclaim))));
        events.sort_by_key(|event| event.time);
        let call = trigger(TriggerKind::SlowCall, Some(7), 1_000, 1_400);
        let pressure = trigger(TriggerKind::MemoryPressure, None, 1_000, 1_400);
        let stall = stall_of(vec![call, pressure], 0, 0);
        let all = causes(&stall, &explained(&stall, &events).1);
        let (leads, cause) = headline(&stall, &all);
        (leads.unwrap().kind, cause.word)
    };
    assert_eq!(told(60), (TriggerKind::SlowCall, "answer".to_owned()));
    let memory = (TriggerKind::MemoryPressure, "memcg-reclaim".to_owned());
    assert_eq!(told(400), memory);
}

/// ```text
/// ms        900  1000                     1400  1500
/// client    |runs|recvfrom                |runs |
/// ```
#[test]
fn a_late_frame_is_what_its_thread_did() {
    let frame = |begin, end, late| Trigger {
        task: Some("client".to_owned()),
        measured_ns: Some(late * MS),
        ..trigger(TriggerKind::Frame, Some(7), begin, end)
    };
    let cause = cause_of(frame(900, 1_500, 583), &client_server_disk());
    assert_eq!(cause.word, "answer", "{}", cause.text);
    assert!(
        cause.text.starts_with("answer, 67 % of 600 ms: "),
        "{}",
        cause.text
    );
    assert!(cause.text.ends_with("; 33 % on-cpu"), "{}", cause.text);
    let cause = cause_of(frame(1_500, 1_900, 383), &client_server_disk());
    assert_eq!(cause.text, "on-cpu, 100 % of 400 ms: client ran");
    let culprit = cause.culprit.unwrap();
    assert_eq!((&*culprit.cause, culprit.tid), ("running", Some(7)));
    // It leads if another thread lost more.
    let other = trigger(TriggerKind::SlowCall, Some(7), 1_000, 1_400);
    let stall = stall_of(vec![other, frame(1_395, 1_440, 28)], 0, 0);
    let all = causes(&stall, &explained(&stall, &client_server_disk()).1);
    assert_eq!(headline(&stall, &all).0.unwrap().kind, TriggerKind::Frame);
}
