//! Finds who asks where no waking shows it: questions to busy threads or through others, created threads,
//! connections.

use super::*;

const READ: (&str, [u64; 3]) = ("read", [4, 0, 0]);
const WORD: (&str, [u64; 3]) = ("futex", [0x10, 128, 0]);

fn slept(thread: u32, from: u64, to: u64) -> Event {
    wait_row(
        thread,
        [from, to, to],
        ("clock_nanosleep", [1, 0, 0]),
        woken_by(0, None),
    )
}

fn softly(row: Event, by: u32, call: Option<&str>, descriptor: u64) -> Event {
    with(row, |wait| {
        let mut waker = woken_by(by, call);
        waker.context = Some(Context::Softirq);
        if let Some(call) = &mut waker.call {
            call.arguments[0] = Some(descriptor);
        }
        wait.waker = Some(waker);
    })
}

fn on_stack(row: Event, frames: &str) -> Event {
    with(row, |wait| {
        wait.stack = Some(stopgap_events::wait::Stack {
            frames: frames.into(),
            of_a_like_wait: false,
        });
    })
}

/// Returns the length of a thread's sleeps that are judged `idleness`, in ms.
fn total(rows: &[Event], task: &str, idleness: Idleness) -> u64 {
    let mut graph = graph_of(&[]);
    are_born(&mut graph, rows);
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::new());
    let own = record
        .waiting
        .iter()
        .filter(|w| w.task == task && w.idleness == idleness && w.cause != "run-queue");
    own.map(|w| w.total_ns / MS).sum()
}

/// 1 asks the dispatcher 2, which gives the work to worker 3; 3 asks 4 and answers 1. Only once 3 is seen to get
/// work. Later it is busy.
#[test]
fn a_pool_answers_for_its_dispatcher() {
    let rows = |begins_by_itself: bool| {
        let mut rows = vec![wait_row(3, [1, 101, 101], WORD, woken_by(2, Some("futex")))];
        for at in [100, 200, 300] {
            if begins_by_itself {
                rows.push(slept(1, at - 40, at - 1));
            }
            let poll = ("epoll_wait", [3, 0, 8]);
            rows.push(wait_row(
                2,
                [at - 90, at, at],
                poll,
                woken_by(1, Some("write")),
            ));
            rows.push(wait_row(
                3,
                [at + 2, at + 40, at + 40],
                READ,
                woken_by(4, Some("write")),
            ));
            rows.push(wait_row(
                1,
                [at + 1, at + 50, at + 50],
                READ,
                woken_by(3, Some("write")),
            ));
        }
        rows.sort_by_key(|row| row.time);
        rows
    };
    assert_eq!(total(&rows(true), "t1", Idleness::Stalled), 3 * 49);
    // A ring of workers: 1 gets work from 3 and hands it on to 2, and never begins by itself.
    assert_eq!(total(&rows(false), "t1", Idleness::Stalled), 0);
}

/// 1 creates 2 and waits until 2 wakes it.
#[test]
fn making_a_thread_asks_it() {
    let made = with(
        wait_row(2, [2, 3, 3], ("clone", [0; 3]), woken_by(1, Some("clone"))),
        |wait| {
            wait.within = Some(Within::New);
            wait.state = Some(State::Runnable);
        },
    );
    let first = slept(1, 0, 1);
    let told = wait_row(1, [5, 200, 200], READ, woken_by(2, Some("write")));
    let rows = [first.clone(), made.clone(), told.clone()];
    assert_eq!(total(&rows, "t1", Idleness::Stalled), 195);
    // It did something else since then.
    let rows = [first.clone(), made.clone(), slept(1, 3, 5), told.clone()];
    assert_eq!(total(&rows, "t1", Idleness::Stalled), 0);
    // The second wake-up does not answer the creation.
    let more = wait_row(1, [201, 300, 300], READ, woken_by(2, Some("write")));
    let mut graph = graph_of(&[]);
    let rows = [first, made, told, more];
    rows.iter().for_each(|row| graph.event(row));
    let waiting = graph.finish(&HashSet::new()).waiting;
    let for_child: u64 = (waiting.iter())
        .filter(|waiting| waiting.cause == "child")
        .map(|waiting| waiting.total_ns)
        .sum();
    assert_eq!(for_child, 195 * MS);
}

/// 1 connects to 2 again and again. Later 2 is busy, so its accept does not sleep.
#[test]
fn who_connects_asks() {
    let rows = |connects: u64, begins_by_itself: bool| {
        let accept = |from| {
            let row = wait_row(
                2,
                [from, from + 2, from + 2],
                ("accept", [3, 0, 0]),
                woken_by(1, None),
            );
            softly(row, 1, Some("connect"), 4)
        };
        let mut rows: Vec<_> = (0..connects).map(|n| accept(1 + 3 * n)).collect();
        for at in [10, 110, 210, 310, 410, 510, 610] {
            if begins_by_itself && at > 10 {
                rows.push(slept(1, at - 20, at));
            }
            rows.push(slept(2, at + 10, at + 70));
            rows.push(wait_row(
                1,
                [at + 1, at + 71, at + 71],
                READ,
                woken_by(2, Some("write")),
            ));
        }
        rows.sort_by_key(|row| row.time);
        rows
    };
    assert!(total(&rows(2, true), "t1", Idleness::Stalled) >= 6 * 70);
    // It receives one message after the other.
    assert!(total(&rows(2, false), "t1", Idleness::Stalled) <= 5 * 70);
    // It connected once and receives messages now and then. The first one may be a greeting.
    assert_eq!(total(&rows(1, true), "t1", Idleness::Stalled), 70);
}

/// 1 asks 2 through a pipe and waits in accept until 2 connects to it. Or 2 connects for another reason.
#[test]
fn an_answer_may_be_a_connection() {
    let rows = |asks: bool| {
        let mut rows = Vec::new();
        for at in [100, 200, 300, 400, 500] {
            rows.push(slept(1, at - 40, at));
            if asks {
                rows.push(wait_row(
                    2,
                    [at - 19, at, at],
                    READ,
                    woken_by(1, Some("write")),
                ));
            } else {
                rows.push(slept(2, at - 19, at + 60));
            }
            let accept = wait_row(
                1,
                [at + 1, at + 61, at + 61],
                ("accept", [3, 0, 0]),
                woken_by(2, None),
            );
            rows.push(softly(accept, 2, Some("connect"), 4));
        }
        rows.sort_by_key(|row| row.time);
        rows
    };
    assert_eq!(total(&rows(true), "t1", Idleness::Stalled), 5 * 60);
    assert_eq!(total(&rows(false), "t1", Idleness::Stalled), 0);
}

/// 2 has its own clock and wakes 1 at each tick. 1 asks it now and then; all but once, 2 is busy.
#[test]
fn a_clock_does_not_ask() {
    let poll = ("epoll_wait", [3, 0, 8]);
    let mut rows = vec![wait_row(2, [1, 3, 3], poll, woken_by(1, Some("write")))];
    for at in [10, 30, 50, 70, 90] {
        rows.push(slept(2, at, at + 10));
        rows.push(wait_row(
            1,
            [at + 1, at + 11, at + 11],
            READ,
            woken_by(2, Some("write")),
        ));
        rows.push(slept(1, at + 12, at + 18));
    }
    rows.push(slept(1, 110, 190));
    rows.push(wait_row(
        2,
        [111, 191, 191],
        poll,
        woken_by(1, Some("write")),
    ));
    rows.sort_by_key(|row| row.time);
    assert_eq!(total(&rows, "t2", Idleness::Stalled), 0);
}

/// Packets of this machine that no thread's call sends: from a timer of TCP, or from a softirq that came late.
#[test]
fn a_reader_of_this_machine_is_known_by_the_descriptor() {
    let send = |descriptor| ("sendto", [descriptor, 0, 0]);
    let first = |descriptor| {
        let received = wait_row(2, [1, 5, 5], ("recvfrom", [4, 0, 0]), woken_by(0, None));
        let rows = [
            slept(1, 0, 1),
            softly(received, 1, Some("sendto"), 7),
            slept(2, 6, 199),
            softly(
                wait_row(1, [10, 200, 200], send(descriptor), woken_by(0, None)),
                0,
                None,
                0,
            ),
        ];
        let mut graph = graph_of(&[]);
        rows.iter().for_each(|row| graph.event(row));
        first_of(&graph.finish(&HashSet::new()), "t1", "data").0
    };
    let slow = "was in sendto > t2 slept in clock_nanosleep > on purpose";
    assert_eq!(first(7), slow);
    assert_eq!(
        first(8),
        "was in sendto > the network",
        "another connection"
    );

    let close = wait_row(1, [10, 200, 200], ("close", [7, 0, 0]), woken_by(0, None));
    let close = |frames| softly(on_stack(close.clone(), frames), 0, None, 0);
    let sent = softly(
        wait_row(2, [1, 5, 5], READ, woken_by(0, None)),
        1,
        Some("sendto"),
        7,
    );
    let lingers = close("__tcp_close_[k];sk_stream_wait_close_[k];wait_woken_[k]");
    let rows = [slept(1, 0, 1), sent, slept(2, 6, 199), lingers];
    assert_eq!(total(&rows, "t1", Idleness::Stalled), 190);
    let mut graph = graph_of(&[]);
    rows.iter().for_each(|row| graph.event(row));
    let (text, _) = first_of(&graph.finish(&HashSet::new()), "t1", "data");
    assert_eq!(
        text,
        "was in close > t2 slept in clock_nanosleep > on purpose"
    );
}

/// An open waits for a lease that another process gives up, or for the other end of a FIFO.
#[test]
fn an_open_waits_for_a_lease_or_a_partner() {
    let open = |frames, by| {
        let row = wait_row(
            1,
            [10, 200, 200],
            ("openat", [0; 3]),
            woken_by(by, Some("openat")),
        );
        on_stack(row, frames)
    };
    let sleeper = slept(2, 5, 199);
    let lease = [
        sleeper.clone(),
        open("do_dentry_open_[k];__break_lease_[k]", 2),
    ];
    assert_eq!(total(&lease, "t1", Idleness::Stalled), 190);
    let partner = [sleeper, open("fifo_open_[k];wait_for_partner_[k]", 2)];
    assert_eq!(total(&partner, "t1", Idleness::Idle), 190);
}

/// 2 is an event loop that asks 3 on behalf of 1. It also waits for questions of others, which sleep on purpose. 1
/// waits for 3, which runs.
#[test]
fn a_loop_of_events_waits_for_who_answers_it() {
    let poll = ("epoll_wait", [3, 0, 8]);
    let mut rows = Vec::new();
    for at in [100, 200, 300] {
        rows.push(slept(1, at - 60, at));
        rows.push(wait_row(
            2,
            [at - 49, at + 1, at + 1],
            poll,
            woken_by(1, Some("write")),
        ));
        rows.push(wait_row(
            3,
            [at - 49, at + 2, at + 2],
            READ,
            woken_by(2, Some("write")),
        ));
        rows.push(slept(4, at - 69, at + 20));
        rows.push(wait_row(
            2,
            [at + 2, at + 21, at + 21],
            poll,
            woken_by(4, Some("write")),
        ));
        rows.push(wait_row(
            2,
            [at + 22, at + 40, at + 40],
            poll,
            woken_by(3, Some("write")),
        ));
        rows.push(wait_row(
            4,
            [at + 22, at + 30, at + 30],
            READ,
            woken_by(2, Some("write")),
        ));
        rows.push(wait_row(
            1,
            [at + 1, at + 41, at + 41],
            READ,
            woken_by(2, Some("write")),
        ));
    }
    rows.sort_by_key(|row| row.time);
    let mut graph = graph_of(&[]);
    are_born(&mut graph, &rows);
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::new());
    let found = chains(&record, "t1", "data");
    let ran: u64 = found
        .iter()
        .filter(|(text, _)| text.ends_with("t3 ran"))
        .map(|(_, ns)| ns)
        .sum();
    assert!(ran >= 3 * 36 * MS, "{found:?}");
    assert!(
        !found.iter().any(|(text, _)| text.contains("t4")),
        "{found:?}"
    );
}

/// 1 hands something to 2 at times and sleeps on purpose between its own pieces of work. It does not poll for an
/// answer.
#[test]
fn naps_between_work_are_no_looks() {
    let rows = |work: u64| {
        let mut rows = vec![wait_row(2, [1, 10, 10], READ, woken_by(1, Some("write")))];
        rows.extend(
            (0..6).map(|n| slept(1, 10 + n * (5 + work) + work, 15 + n * (5 + work) + work)),
        );
        let over = 14 + 5 * (5 + work) + work;
        rows.push(wait_row(
            2,
            [over, 90, 91],
            READ,
            woken_by(1, Some("write")),
        ));
        rows
    };
    assert!(total(&rows(0), "t1", Idleness::Stalled) > 0);
    assert_eq!(total(&rows(2), "t1", Idleness::Stalled), 0);
}

/// 1 waits for the interpreter lock of Python, and looks again after each timeout. 2 holds it and runs. 3 is a
/// stranger.
#[test]
fn a_holder_of_the_interpreter_is_who_gives_it_up() {
    let wants = |from, word, by| {
        let call = ("futex", [word, 137, 0]);
        with(
            wait_row(
                1,
                [from, from + 5, from + 5],
                call,
                woken_by(by, Some("futex")),
            ),
            |wait| {
                wait.user_stack = Some(stopgap_events::wait::Stack {
                    frames: "time_sleep;take_gil;pthread_cond_timedwait".into(),
                    of_a_like_wait: false,
                });
            },
        )
    };
    let rows = [
        slept(2, 0, 1),
        slept(3, 0, 1),
        wants(10, 0x10, 2),
        wants(20, 0x14, 0),
        wants(25, 0x10, 0),
        wants(30, 0x14, 2),
        slept(2, 40, 41),
    ];
    let mut graph = graph_of(&[]);
    are_born(&mut graph, &rows);
    rows.iter().for_each(|row| graph.event(row));
    let (text, share) = first_of(&graph.finish(&HashSet::new()), "t1", "lock");
    assert_eq!(
        (&*text, share),
        ("waited for the global lock of Python at 0x10 > t2 ran", 1.0)
    );
}

/// 2 sends a part of its answer to 1, and the rest after 1 has acknowledged the first part.
#[test]
fn who_waits_for_a_late_acknowledgement_is_named() {
    let rest = |to| {
        softly(
            wait_row(1, [6, to, to], READ, woken_by(0, None)),
            99,
            None,
            0,
        )
    };
    let first = |to| {
        let part = wait_row(1, [1, 5, 5], READ, woken_by(2, Some("write")));
        let mut graph = graph_of(&[]);
        [slept(2, 0, 1), part, rest(to)]
            .iter()
            .for_each(|row| graph.event(row));
        let record = graph.finish(&HashSet::new());
        let waits = record.waiting.iter().filter(|w| w.total_ns > 20 * MS);
        let text = waits.map(|w| w.links[0].text.clone()).next();
        text.unwrap_or_default()
    };
    let named =
        "TCP held its acknowledgement back for 40 ms (Nagle's algorithm of t2 waits for it)";
    assert_eq!(first(47), named);
    assert_eq!(first(77), "the network");
}

/// 1 asks 2, which answers after 20 ms, then after 100 ms. 1 polls: with a timeout at a word, or in an event loop.
#[test]
fn timeouts_while_a_question_is_open_are_a_loss() {
    let rows = |call: (&'static str, [u64; 3]), asks: bool| {
        let asked = |from, at| wait_row(2, [from, at, at], READ, woken_by(1, Some("write")));
        let packet = softly(wait_row(9, [0, 1, 1], READ, woken_by(0, None)), 99, None, 0);
        let mut rows = vec![packet, slept(1, 0, 10), asked(0, 10)];
        rows.push(wait_row(1, [11, 30, 30], call, woken_by(2, Some("write"))));
        rows.push(slept(1, 31, 50));
        if asks {
            rows.push(asked(31, 50));
        }
        rows.extend((0..9).map(|n| {
            wait_row(
                1,
                [51 + 10 * n, 61 + 10 * n, 61 + 10 * n],
                call,
                woken_by(0, None),
            )
        }));
        rows.push(wait_row(
            1,
            [142, 150, 150],
            call,
            woken_by(2, Some("write")),
        ));
        rows.sort_by_key(|row| row.time);
        rows
    };
    let timed = ("futex", [0x10, 137, 0]);
    let several = ("epoll_wait", [3, 0, 8]);
    assert_eq!(
        total(&rows(timed, true), "t1", Idleness::Stalled),
        19 + 90 + 8
    );
    assert_eq!(
        total(&rows(several, true), "t1", Idleness::Stalled),
        19 + 90 + 8
    );
    // No question is open: it wakes by its own clock.
    assert_eq!(
        total(&rows(timed, false)[..10], "t1", Idleness::Stalled),
        19
    );
    assert_eq!(
        total(&rows(several, false)[..10], "t1", Idleness::Stalled),
        19
    );
}

/// A timer ends a wait for room in a Unix socket. The reader sleeps on purpose.
#[test]
fn a_unix_socket_has_no_network() {
    let send = |frames| {
        let row = wait_row(1, [10, 60, 60], ("sendto", [7, 0, 0]), woken_by(0, None));
        on_stack(softly(row, 99, None, 0), frames)
    };
    let first = |frames, to: u64| {
        let received = wait_row(2, [1, 5, 5], READ, woken_by(1, Some("sendto")));
        let received = with(received, |wait| {
            let call = wait.waker.as_mut().and_then(|waker| waker.call.as_mut());
            call.unwrap().arguments[0] = Some(to);
        });
        let mut graph = graph_of(&[]);
        [slept(1, 0, 1), received, slept(2, 6, 59), send(frames)]
            .iter()
            .for_each(|row| graph.event(row));
        first_of(&graph.finish(&HashSet::new()), "t1", "data").0
    };
    let unix = "unix_stream_sendmsg_[k];sock_alloc_send_pskb_[k]";
    assert_eq!(
        first(unix, 7),
        "was in sendto > t2 slept in clock_nanosleep > on purpose"
    );
    assert_eq!(first(unix, 8), "was in sendto > until its timeout");
    assert_eq!(
        first("tcp_sendmsg_[k];sk_stream_wait_memory_[k]", 8),
        "was in sendto > the network"
    );
}

/// 1 waits for the signal that its child 2 sends at its end, or for a signal of a stranger.
#[test]
fn the_end_of_a_child_may_be_a_signal() {
    let made = with(
        wait_row(2, [2, 3, 3], ("clone", [0; 3]), woken_by(1, Some("clone"))),
        |wait| {
            wait.within = Some(Within::New);
            wait.state = Some(State::Runnable);
        },
    );
    let waits = |by| {
        wait_row(
            1,
            [10, 200, 200],
            ("rt_sigsuspend", [0; 3]),
            woken_by(by, Some("exit_group")),
        )
    };
    // It was idle since it created the child.
    let rows = |by| [slept(1, 0, 1), made.clone(), slept(1, 4, 9), waits(by)];
    let rows_of = |by| {
        let mut rows = rows(by);
        rows.iter_mut()
            .filter(|row| row.tid == Some(2))
            .for_each(|row| row.pid = Some(8));
        rows
    };
    assert_eq!(total(&rows_of(2), "t1", Idleness::Stalled), 190);
    assert_eq!(total(&rows_of(3), "t1", Idleness::Stalled), 0);
}

/// 2 sleeps again after a question that it did not answer. The reason of that sleep is unknown.
#[test]
fn who_does_not_answer_is_named_though_it_sleeps() {
    let timed = ("futex", [0x10, 137, 0]);
    let asked = |from, at| wait_row(2, [from, at, at], READ, woken_by(1, Some("write")));
    let mut rows = vec![slept(1, 0, 10), asked(0, 10)];
    rows.push(wait_row(1, [11, 20, 20], timed, woken_by(2, Some("write"))));
    rows.extend([slept(1, 21, 50), asked(21, 50)]);
    // Another thread is on the CPU of 2.
    rows.push(with(
        wait_row(4, [0, 51, 52], READ, woken_by(9, Some("write"))),
        |wait| {
            wait.previous = Some(Task { tid: 2, comm: None });
        },
    ));
    rows.last_mut().unwrap().cpu = Some(2);
    rows.push(wait_row(1, [51, 251, 251], timed, woken_by(0, None)));
    let mut graph = graph_of(&[]);
    are_born(&mut graph, &rows);
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::new());
    let found = chains(&record, "t1", "word");
    let end = "t2 had been asked and did not answer until a timeout";
    assert!(
        found
            .iter()
            .any(|(text, ns)| text.ends_with(end) && *ns > 190 * MS),
        "{found:?}"
    );
}

/// 1 waits for its io_uring. The end of its own request wakes it, then the end of a stranger's request.
#[test]
fn a_ring_that_reads_waits_for_the_disk() {
    let rows = |of: u32| {
        let request = Span {
            device: Some("254:0".into()),
            issued: Some(Nanos(12 * MS)),
            ..Span::new(Activity::Block, Nanos(11 * MS))
        };
        let done = Event {
            time: Nanos(200 * MS - 10_000),
            tid: Some(of),
            comm: Some(format!("t{of}").into()),
            kind: Kind::Span(Box::new(request)),
            ..slept(of, 0, 1)
        };
        let ring = wait_row(
            1,
            [11, 200, 200],
            ("io_uring_enter", [5, 1, 1]),
            woken_by(0, None),
        );
        [slept(1, 0, 10), done, softly(ring, 99, None, 0)]
    };
    assert_eq!(total(&rows(1), "t1", Idleness::Stalled), 189);
    assert_eq!(total(&rows(3), "t1", Idleness::Stalled), 0);
}

/// 1 waits 90 ms for the CPU that 2 has. A real-time thread does not wait for an ordinary one, so its budget is used
/// up.
#[test]
fn a_real_time_thread_waits_for_its_budget() {
    let first = |own: i32, other: i32| {
        let has = with(wait_row(2, [0, 10, 10], READ, woken_by(9, None)), |wait| {
            wait.priority = Some(other);
        });
        let row = wait_row(1, [10, 10, 100], READ, woken_by(9, None));
        let waits = with(row, |wait| {
            (wait.priority, wait.state) = (Some(own), Some(State::Runnable));
            wait.previous = Some(Task { tid: 2, comm: None });
        });
        let mut graph = graph_of(&[]);
        [has, waits].iter().for_each(|row| graph.event(row));
        let record = graph.finish(&HashSet::new());
        let waits = record
            .waiting
            .iter()
            .find(|w| w.task == "t1" && w.total_ns == 90 * MS);
        waits.map(|w| w.cause.clone()).unwrap_or_default()
    };
    assert_eq!(first(-1, 120), "cpu-quota");
    assert_eq!(first(-1, 50), "run-queue");
    assert_eq!(first(120, 120), "run-queue");
}

/// A call that a supervisor or a scanner answers, which itself waits for questions.
#[test]
fn calls_may_have_a_program_behind_them() {
    let row = |by, frames| {
        on_stack(
            wait_row(
                1,
                [10, 200, 200],
                ("openat", [0; 3]),
                woken_by(by, Some("write")),
            ),
            frames,
        )
    };
    let stalled = |frames| total(&[slept(2, 5, 199), row(2, frames)], "t1", Idleness::Stalled);
    assert_eq!(
        stalled("__seccomp_filter_[k];seccomp_do_user_notification.isra.0_[k]"),
        190
    );
    assert_eq!(stalled("fsnotify_[k];fanotify_handle_event_[k]"), 190);
    assert_eq!(stalled("seccomp_notify_ioctl_[k];recv_wait_event_[k]"), 0);
    assert_eq!(stalled("vfs_read_[k];fanotify_read_[k];wait_woken_[k]"), 0);
}

/// 2 answers each question of 1 after it slept 20 ms on purpose, and 1 asks again at once. Sleeping in between is no
/// sign of the client: a client may think as long as a server may take for its answer.
#[test]
fn a_server_that_sleeps_before_it_answers_does_not_ask() {
    let sleeps_between = |first_question: u64, asker: u32, other: u32| {
        let mut rows = Vec::new();
        for round in 0..10 {
            let at = first_question + round * 20;
            rows.push(wait_row(
                other,
                [at - 1, at, at],
                ("epoll_wait", [0; 3]),
                woken_by(asker, Some("write")),
            ));
            rows.push(wait_row(
                other,
                [at, at + 19, at + 19],
                ("clock_nanosleep", [0; 3]),
                woken_by(0, None),
            ));
            rows.push(wait_row(
                asker,
                [at, at + 19, at + 19],
                READ,
                woken_by(other, Some("write")),
            ));
        }
        rows
    };
    let rows = sleeps_between(10, 1, 2);
    assert_eq!(total(&rows, "t1", Idleness::Stalled), 190);
    assert_eq!(total(&rows, "t2", Idleness::Stalled), 0);
    // The counterpart: 2 answers at once, and 1 thinks for 20 ms.
    let mut rows = Vec::new();
    for round in 0..10 {
        let at = 10 + round * 20;
        rows.push(wait_row(
            2,
            [at - 9, at, at],
            ("epoll_wait", [0; 3]),
            woken_by(1, Some("write")),
        ));
        rows.push(wait_row(
            1,
            [at, at + 1, at + 1],
            READ,
            woken_by(2, Some("write")),
        ));
        rows.push(slept(1, at + 1, at + 20));
    }
    assert_eq!(total(&rows, "t2", Idleness::Stalled), 0);
    assert_eq!(total(&rows, "t1", Idleness::Stalled), 10);
}
