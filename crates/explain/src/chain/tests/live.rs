//! The rules of `stopgap watch` for a wait that has just ended, compared with those of the graph.

use super::super::live::{Asks, Slept, may_carry};
use super::*;

/// Returns whether the sleep of a row was a loss; `None` for other rows.
fn told(asks: &mut Asks, row: &Event) -> Option<bool> {
    let (Some(tid), Kind::Wait(wait)) = (row.tid, &row.kind) else {
        return None;
    };
    let (call, waker) = (wait.call.as_ref()?, wait.waker.as_ref()?);
    let waker_call = waker.call.as_ref().and_then(|call| call.name.as_deref());
    let by_task = match waker.context {
        Some(Context::Task) => true,
        Some(Context::Softirq) => waker_call.is_some_and(may_carry),
        _ => false,
    };
    (wait.state == Some(State::Sleeping)).then(|| {
        asks.is_loss(&Slept {
            tid,
            left: wait.left.0,
            woken: wait.woken.unwrap().0,
            call: call.name.as_deref().unwrap(),
            arguments: call.arguments,
            waker: by_task.then_some(waker.task.tid),
            waker_call,
            by_its_pool: false,
        })
    })
}

/// Returns whether the graph and whether the live rules call the last sleep a loss. Threads began in the recording.
fn both(rows: &[Event]) -> (bool, bool) {
    let mut graph = Graph::new();
    are_born(&mut graph, rows);
    let mut asks = Asks::default();
    for tid in 1..10 {
        asks.born(tid, 99, 0);
    }
    let mut last = false;
    for row in rows {
        graph.event(row);
        last = told(&mut asks, row).unwrap_or(last);
    }
    let tid = rows.last().unwrap().tid.unwrap();
    let idleness = graph.threads[&tid].last.unwrap().idleness;
    (idleness == Some(Idleness::Stalled), last)
}

/// Threads of a pool sleep for one word, and each woken thread hands work on.
#[test]
fn threads_of_a_pool_ask_each_other_for_nothing() {
    let lock = |tid, times, by| {
        let waker = woken_by(by, Some("futex"));
        wait_row(tid, times, ("futex", [0x20, 128, 0]), waker)
    };
    let word = |tid, times, by| {
        wait_row(
            tid,
            times,
            ("futex", [0x10, 128, 0]),
            woken_by(by, Some("futex")),
        )
    };
    let pool = [
        word(2, [1, 100, 100], 3),
        lock(2, [101, 102, 102], 3),
        word(1, [2, 103, 103], 2),
        word(2, [104, 500, 500], 1),
        word(1, [105, 501, 501], 2),
    ];
    assert_eq!(both(&pool), (false, false));
    // Two threads that sleep in turns talk to each other.
    let talk = [
        word(2, [1, 100, 100], 1),
        word(1, [101, 300, 300], 2),
        word(2, [301, 400, 400], 1),
        word(1, [401, 700, 700], 2),
    ];
    assert_eq!(both(&talk), (true, true));
}

/// 1 asks 2 through a socket. A question that finds 2 awake wakes nobody, but the next wait of 1 ends when 2 takes
/// the question.
///
/// ```text
/// 1   asks, reads ..|............| reads .......|
/// 2   opens a file  | takes it   | answers, reads
/// ```
#[test]
fn a_question_to_a_busy_thread_is_seen_when_it_is_taken() {
    let read = |tid, left, woken, by, of| {
        let times = [left, woken, woken];
        wait_row(tid, times, ("read", [3, 0, 0]), woken_by(by, Some(of)))
    };
    let first = [read(1, 51, 80, 2, "read"), read(1, 80, 400, 2, "write")];
    assert_eq!(both(&first), (true, true), "the first question");
    let mut later = vec![
        read(2, 1, 50, 1, "write"),
        read(1, 50, 51, 2, "read"),
        read(1, 51, 60, 2, "write"),
    ];
    for at in (60..660).step_by(100) {
        // 2 goes on to the next question without a sleep.
        later.push(read(1, at, at + 1, 2, "read"));
        later.push(read(1, at + 1, at + 100, 2, "write"));
        assert_eq!(both(&later), (true, true), "{at}");
    }
    // A pipe gives no sign that 2 took the question.
    let pipe = [
        later[0].clone(),
        later[2].clone(),
        read(1, 60, 360, 2, "write"),
    ];
    assert_eq!(both(&pipe), (true, true));
    // The answer is read later, while its writer waits for the next question. That alone is no question.
    later.push(read(2, 700, 701, 1, "read"));
    later.push(read(2, 702, 999, 1, "write"));
    assert_eq!(both(&later), (false, false));
    // Nobody asks: 2 sends on its own.
    let pushes: Vec<Event> = (0..6)
        .map(|n| read(1, n * 100, n * 100 + 99, 2, "write"))
        .collect();
    assert_eq!(both(&pushes), (false, false));
    // An interrupt during another thread's read shows nothing.
    let packet = with(read(1, 0, 300, 2, "read"), |wait| {
        wait.waker.as_mut().unwrap().context = Some(Context::Softirq);
    });
    assert_eq!(both(&[packet]), (false, false));
}

/// A server's new process answers what its client asked the server that created it.
#[test]
fn who_was_made_for_a_question_answers_it() {
    let read = ("read", [3, 0, 0]);
    let rows = [
        wait_row(2, [1, 50, 50], read, woken_by(1, Some("write"))),
        wait_row(1, [51, 500, 500], read, woken_by(3, Some("write"))),
        wait_row(3, [501, 600, 600], read, woken_by(1, Some("write"))),
        wait_row(1, [601, 900, 900], read, woken_by(3, Some("write"))),
    ];
    let mut asks = Asks::default();
    asks.born(1, 99, 0);
    asks.born(2, 99, 0);
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            if row.tid == Some(1) {
                asks.born(3, 2, 60 * MS);
            }
            told(&mut asks, row)
        })
        .collect();
    assert_eq!(told[3], Some(true), "{told:?}");
}
