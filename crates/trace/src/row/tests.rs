//! Waits that come back as they were, and cells that are no wait.

use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::{Event, Kind, Metadata, Text, file, lines};

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![Just(""), Just("a;b_[k]"), Just("\u{1}\"\u{e4}\n")].prop_map(Text::from)
}

fn task() -> impl Strategy<Value = Task> {
    (any::<u32>(), proptest::option::of(text())).prop_map(|(tid, comm)| Task { tid, comm })
}

fn call() -> impl Strategy<Value = Call> {
    let arguments = any::<[Option<u64>; 3]>();
    (any::<u32>(), proptest::option::of(text()), arguments).prop_map(|(number, name, arguments)| {
        Call {
            number,
            name,
            arguments,
        }
    })
}

fn stack() -> impl Strategy<Value = Stack> {
    (text(), any::<bool>()).prop_map(|(frames, of_a_like_wait)| Stack {
        frames,
        of_a_like_wait,
    })
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(
    all: &'static [T],
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(proptest::sample::select(all))
}

/// A wait and the time of its row.
fn wait() -> impl Strategy<Value = (Nanos, Wait)> {
    let waker = (task(), one_of(Context::ALL), proptest::option::of(call()));
    let waker = waker.prop_map(|(task, context, call)| Waker {
        task,
        context,
        call,
    });
    let times = (any::<[u64; 3]>(), any::<[bool; 3]>());
    let state = (
        one_of(State::ALL),
        any::<[Option<bool>; 3]>(),
        any::<Option<i32>>(),
        any::<Option<u32>>(),
    );
    let place = (
        one_of(Within::ALL),
        proptest::option::of(call()),
        any::<[Option<u64>; 2]>(),
        proptest::collection::vec(proptest::option::of(stack()), 2),
    );
    let others = (
        proptest::option::of(task()),
        proptest::option::of(task()),
        proptest::option::of(waker),
    );
    (times, state, place, others).prop_map(
        |((mut times, [began_before, woken, open]), state, place, (next, previous, waker))| {
            times.sort_unstable();
            let [left, made_runnable, time] = times.map(Nanos);
            let (state, [preempted, throttled, for_io], priority, left_cpu) = state;
            let (within, call, [instruction_pointer, stack_pointer], mut stacks) = place;
            let wait = Wait {
                left,
                began_before,
                woken: woken.then_some(made_runnable),
                ran: (!open).then_some(time),
                left_cpu,
                state,
                preempted,
                throttled,
                for_io,
                priority,
                within,
                call,
                instruction_pointer,
                stack_pointer,
                user_stack: stacks.pop().flatten(),
                stack: stacks.pop().flatten(),
                next,
                previous,
                waker,
            };
            (time, wait)
        },
    )
}

fn event((time, wait): (Nanos, Wait)) -> Event {
    Event {
        time,
        cpu: None,
        pid: None,
        tid: Some(7),
        comm: None,
        kind: Kind::Wait(Box::new(wait)),
    }
}

proptest! {
    #[test]
    fn waits_come_back_from_files_and_lines(waits in proptest::collection::vec(wait(), 0..40)) {
        let events: Vec<Event> = waits.into_iter().map(event).collect();
        let mut out = file::Writer::new(Vec::new()).unwrap();
        let mut text = lines::Writer::new(Vec::new(), &Metadata::default()).unwrap();
        for event in &events {
            out.write(event).unwrap();
            text.write(event).unwrap();
        }
        let bytes = out.finish(&Metadata::default()).unwrap();
        let back = file::Reader::new(Cursor::new(bytes)).unwrap();
        prop_assert_eq!(&back.map(Result::unwrap).collect::<Vec<_>>(), &events);
        let text = text.finish().unwrap();
        let back = lines::Reader::new(&text[..]).unwrap();
        prop_assert_eq!(&back.map(Result::unwrap).collect::<Vec<_>>(), &events);
    }
}

fn read(kind: &str, cells: &str) -> Result<Event, String> {
    let line = format!("{{\"kind\":\"{kind}\",{cells}}}");
    let mut reader = lines::Reader::new(line.as_bytes()).unwrap();
    reader.next().unwrap().map_err(|error| error.to_string())
}

#[test]
fn what_a_row_does_not_say_is_unknown() {
    let wait = Wait {
        left: Nanos(3),
        ran: Some(Nanos(9)),
        ..Wait::default()
    };
    let mut expected = event((Nanos(9), wait));
    expected.tid = None;
    assert_eq!(read("wait", "\"time_ns\":9,\"left_ns\":3"), Ok(expected));
}

#[test]
fn cells_that_are_no_wait() {
    for (cells, why) in [
        ("\"time_ns\":9", "column left_ns is null"),
        (
            "\"time_ns\":9,\"left_ns\":10",
            "time_ns 9 is before left_ns 10",
        ),
        (
            "\"time_ns\":9,\"left_ns\":10,\"open\":true",
            "time_ns 9 is before left_ns 10",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"woken_ns\":4",
            "woken_ns 4 is before left_ns 5",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"woken_ns\":10",
            "time_ns 9 is before woken_ns 10",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"state\":\"R+\"",
            "column state: unknown state 'R+'; there are R, S, D, I, T, t, P, X",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"within\":\"bed\"",
            "column within: unknown place 'bed'; there are call, user, kernel, new",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"waker_context\":\"task\"",
            "column waker_tid is null, but column waker_context is not",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"waker_tid\":1,\"waker_argument2\":1",
            "column waker_syscall is null, but column waker_argument2 is not",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"next_comm\":\"x\"",
            "column next_tid is null, but column next_comm is not",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"argument0\":1",
            "column syscall is null, but column argument0 is not",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"stack_of_like_wait\":true",
            "column stack is null, but column stack_of_like_wait is not",
        ),
        (
            "\"time_ns\":9,\"left_ns\":5,\"previous_tid\":4294967296",
            "column previous_tid: 4294967296 does not fit into 32 bits",
        ),
    ] {
        let error = Err(format!("line 1: {why}"));
        assert_eq!(read("wait", cells), error, "{cells}");
    }
}

#[test]
fn cells_that_are_no_span_task_or_signal() {
    for (kind, cells, why) in [
        ("span", "\"what\":\"lock\"", "column begin_ns is null"),
        ("span", "\"begin_ns\":1", "column what is null"),
        (
            "span",
            "\"what\":\"lock\",\"begin_ns\":10",
            "time_ns 9 is before begin_ns 10",
        ),
        (
            "span",
            "\"what\":\"block\",\"begin_ns\":5,\"issued_ns\":4",
            "issued_ns 4 is before begin_ns 5",
        ),
        (
            "span",
            "\"what\":\"nap\",\"begin_ns\":5",
            "column what: unknown activity 'nap'; there are direct-reclaim, memcg-reclaim, kswapd, throttled, shrinker, \
             compaction, lock, mmap-lock, fence, file-lock, page-fault, page-lock, writeback, block, softirq, interrupt, work",
        ),
        (
            "task",
            "\"moment\":\"then\"",
            "column moment: unknown moment 'then'; there are begin, new, renamed, exit, end",
        ),
        ("signal", "\"target_tid\":1", "column signal is null"),
    ] {
        let error = Err(format!("line 1: {why}"));
        assert_eq!(
            read(kind, &format!("\"time_ns\":9,{cells}")),
            error,
            "{cells}"
        );
    }
}
