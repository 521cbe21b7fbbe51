//! Compares the graph with a simulated machine that knows the truth.

mod asking;
mod fences;
mod file_locks;
mod live;
mod machine;
mod windows;

use std::collections::{BTreeMap, HashMap, HashSet};

use stopgap_events::random::Random;
use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, Task, Waker};
use stopgap_stats::explain::{Chains, Link, Waiting};

use super::*;
use machine::{End, Machine, Op};

const MS: u64 = 1_000_000;

/// Returns the ends of the chains of the last wait of `tid`, and the reasons where chains break.
fn ends(graph: &Graph, tid: u32) -> (BTreeMap<End, u64>, BTreeMap<String, u64>) {
    let thread = &graph.threads[&tid];
    let (mut ends, mut others) = (BTreeMap::new(), BTreeMap::new());
    let Some(last) = thread.last else {
        return (ends, others);
    };
    for piece in &thread.past.last().unwrap()[last.from..] {
        let hops: Vec<_> = graph.paths.hops_of(piece.path).collect();
        let of = |actor| graph.paths.actor_at(actor).tid.unwrap_or(0);
        let hop = hops[hops.len() - 1];
        let end = match hop.doing {
            Doing::Runs { .. } => End::Runs(of(hop.actor)),
            Doing::Queued { behind } => End::Behind(of(behind)),
            Doing::Disk { .. } => End::Disk(of(hop.actor)),
            Doing::Timer => End::Slept(of(hops[hops.len() - 2].actor)),
            Doing::Stopped => End::Stopped(of(hop.actor)),
            other => {
                *others.entry(format!("{other:?}")).or_default() += piece.ns;
                continue;
            }
        };
        *ends.entry(end).or_default() += piece.ns;
    }
    (ends, others)
}

/// Returns the nanoseconds that are booked otherwise than the truth.
fn difference(ends: &BTreeMap<End, u64>, truth: &BTreeMap<End, u64>) -> u64 {
    let more = |(end, ns): (&End, &u64)| ns.saturating_sub(ends.get(end).copied().unwrap_or(0));
    truth.iter().map(more).sum()
}

/// Returns threads that compute, lock, write, sleep, ask servers and fork at random.
fn by_chance(seed: u64) -> Machine {
    let mut random = Random::new(seed);
    let cpus = 1 + random.index(3);
    let mut machine = Machine::new(cpus, 2);
    let some = |random: &mut Random| 1 + random.below(5 * MS);
    let work = |random: &mut Random| -> Vec<Op> {
        match random.below(6) {
            0 => {
                let lock = random.index(2);
                let inside = match random.below(3) {
                    0 => Op::Sync(some(random)),
                    1 => Op::Sleep(some(random)),
                    _ => Op::Run(some(random)),
                };
                vec![
                    Op::Lock(lock),
                    Op::Run(some(random)),
                    inside,
                    Op::Unlock(lock),
                ]
            }
            1 => vec![Op::Sync(some(random))],
            2 => vec![Op::Write(some(random)), Op::Run(some(random))],
            3 => vec![Op::Sleep(some(random))],
            _ => vec![Op::Run(some(random))],
        }
    };
    for index in 0..2 + random.index(4) {
        let script = (0..15).flat_map(|_| work(&mut random)).collect();
        let priority = 119 + random.below(2) as i32;
        machine.thread(&format!("w{index}"), index % cpus, priority, script);
    }
    for index in 0..1 + random.index(2) {
        let (on, tcp) = (random.index(cpus), random.below(2) == 0);
        let client = machine.thread(&format!("client{index}"), on, 120, Vec::new());
        let server = machine.thread(
            &format!("server{index}"),
            random.index(cpus),
            120,
            Vec::new(),
        );
        let (asks, answers) = (machine.channel(client, tcp), machine.channel(server, tcp));
        let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            of_client.extend(work(&mut random));
            of_client.extend([Op::Send(asks), Op::Receive(answers)]);
            of_server.push(Op::Receive(asks));
            of_server.extend(work(&mut random));
            of_server.push(Op::Send(answers));
        }
        machine.set_script(client, of_client);
        machine.set_script(server, of_server);
    }
    let child = machine.child(
        "child",
        random.index(cpus),
        vec![Op::Run(some(&mut random)), Op::Sleep(some(&mut random))],
    );
    let script = vec![Op::Run(some(&mut random)), Op::Fork(child), Op::Wait(child)];
    machine.thread("parent", 0, 120, script);
    machine.run(10_000 * MS);
    machine
}

/// Returns a graph of threads that began in the recording, so it is known who asks whom.
fn graph_of(rows: &[Event]) -> Graph {
    let mut graph = Graph::new();
    are_born(&mut graph, rows);
    for row in rows {
        graph.event(row);
    }
    graph
}

/// Notes that the threads of `rows` began in the recording.
fn are_born(graph: &mut Graph, rows: &[Event]) {
    for tid in rows.iter().filter_map(|row| row.tid) {
        let comm = "".into();
        let mut thread = Thread::new(&mut graph.paths, tid, &comm, 0);
        thread.born = true;
        graph.threads.or_insert_with(tid, || thread);
    }
}

#[test]
fn chains_end_where_the_machine_says() {
    let (mut waits, mut wrong, mut time) = (0, 0, 0);
    for seed in 0..150 {
        let machine = by_chance(seed);
        let truth: HashMap<usize, _> = machine
            .truth
            .iter()
            .map(|one| (one.row, &one.ends))
            .collect();
        let mut graph = Graph::new();
        for (index, row) in machine.rows.iter().enumerate() {
            graph.event(row);
            let (Some(truth), Kind::Wait(wait)) = (truth.get(&index), &row.kind) else {
                continue;
            };
            let (ends, others) = ends(&graph, row.tid.unwrap());
            let length = row.time.0 - wait.left.0;
            let sum: u64 = ends.values().chain(others.values()).sum();
            assert_eq!(sum, length, "seed {seed}, row {index}: {wait:?}");
            let off = difference(&ends, truth);
            wrong += off;
            waits += 1;
            time += length;
        }
    }
    assert!(waits > 10_000, "{waits}");
    // Waits with more pieces than are kept have sums only.
    assert!(wrong * 1_000 < time, "{wrong} of {time} ns");
}

/// Returns the chains of waits of `task` under `cause`: the texts of each joined by `>`, with nanoseconds.
fn chains(record: &Chains, task: &str, cause: &str) -> Vec<(String, u64)> {
    fn add(links: &[Link], before: &str, out: &mut Vec<(String, u64)>) {
        for link in links {
            let text = format!("{before} > {}", link.text);
            match link.links.is_empty() {
                true => out.push((text, link.ns)),
                false => add(&link.links, &text, out),
            }
        }
    }
    let mut out = Vec::new();
    let of = |waiting: &&Waiting| waiting.task == task && waiting.cause == cause;
    for waiting in record.waiting.iter().filter(of) {
        add(&waiting.links, &waiting.text, &mut out);
    }
    out.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    out
}

fn record_of(machine: &Machine) -> Chains {
    graph_of(&machine.rows).finish(&HashSet::new())
}

fn first_of(record: &Chains, task: &str, cause: &str) -> (String, f64) {
    let chains = chains(record, task, cause);
    let whole: u64 = chains.iter().map(|(_, ns)| ns).sum();
    let (text, ns) = chains.first().cloned().unwrap_or_default();
    (text, ns as f64 / whole as f64)
}

#[test]
fn a_convoy_waits_for_who_holds_the_lock() {
    let mut machine = Machine::new(4, 1);
    for index in 0..3 {
        let turn = [Op::Lock(0), Op::Run(MS), Op::Unlock(0)];
        machine.thread(&format!("w{index}"), index, 120, turn.repeat(20));
    }
    let turn = [Op::Lock(0), Op::Run(20 * MS), Op::Unlock(0)];
    machine.thread("holder", 3, 120, turn.repeat(20));
    machine.run(10_000 * MS);
    let record = record_of(&machine);
    let (text, share) = first_of(&record, "w0", "lock");
    assert_eq!(text, "waited for the lock at 0x7000 > holder ran");
    assert!((0.85..0.95).contains(&share), "{share}");
    let blamed = &record.blame[0];
    assert_eq!(
        (blamed.task.as_deref(), blamed.tid),
        (Some("holder"), Some(103))
    );
}

#[test]
fn an_inverted_priority_is_named() {
    let mut machine = Machine::new(2, 1);
    let low = vec![Op::Run(MS), Op::Lock(0), Op::Run(5 * MS), Op::Unlock(0)];
    machine.thread("low", 0, 139, low);
    machine.thread(
        "high",
        1,
        49,
        vec![Op::Sleep(2 * MS), Op::Lock(0), Op::Unlock(0)],
    );
    machine.thread("hog", 0, 59, vec![Op::Sleep(3 * MS), Op::Run(100 * MS)]);
    machine.run(10_000 * MS);
    let (text, share) = first_of(&record_of(&machine), "high", "lock");
    let expected = "waited for the lock at 0x7000 > low waited for a CPU, behind hog of higher priority: priority \
                    inversion";
    assert_eq!(text, expected);
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_disk_is_busy_with_somebody_elses_requests() {
    let mut machine = Machine::new(2, 0);
    let writes: Vec<Op> = (0..60).map(|_| Op::Write(2 * MS)).collect();
    machine.thread("tar", 0, 120, [vec![Op::Run(MS)], writes].concat());
    machine.thread("db", 1, 120, vec![Op::Run(2 * MS), Op::Sync(30 * MS)]);
    machine.run(10_000 * MS);
    let record = record_of(&machine);
    let chains = chains(&record, "db", "io");
    let texts: Vec<_> = chains.iter().map(|(text, ns)| (&**text, *ns)).collect();
    let expected = [
        ("was in fsync > disk sda, behind requests of tar", 119 * MS),
        ("was in fsync > disk sda, its own request", 30 * MS),
    ];
    assert_eq!(texts, expected);
    assert_eq!(record.blame[0].task.as_deref(), Some("tar"));
}

/// Returns a row of threads with these names. Each asks the next, and the last does `work`.
fn a_row(names: &[&str], tcp: bool, work: &[Op]) -> Machine {
    let mut machine = Machine::new(names.len(), 0);
    let all: Vec<usize> = (names.iter().enumerate())
        .map(|(index, name)| machine.thread(name, index, 120, Vec::new()))
        .collect();
    let (mut asked, mut answer) = (None, None);
    for (place, &thread) in all.iter().enumerate() {
        let mut script: Vec<Op> = asked.map(Op::Receive).into_iter().collect();
        script.push(Op::Run(MS));
        let answers = answer;
        if let Some(&next) = all.get(place + 1) {
            let (asks, back) = (machine.channel(thread, tcp), machine.channel(next, tcp));
            script.extend([Op::Send(asks), Op::Receive(back)]);
            (asked, answer) = (Some(asks), Some(back));
        } else {
            script.extend(work);
        }
        script.extend(answers.map(Op::Send));
        machine.set_script(thread, script.repeat(10));
    }
    machine.run(10_000 * MS);
    machine
}

#[test]
fn a_client_waits_for_a_disk_of_its_server() {
    let machine = a_row(&["client", "server"], false, &[Op::Sync(20 * MS)]);
    let (text, share) = first_of(&record_of(&machine), "client", "data");
    assert_eq!(
        text,
        "was in read > server was in fsync > disk sda, its own request"
    );
    assert!((0.9..0.99).contains(&share), "{share}");
}

#[test]
fn a_chain_of_four_ends_at_the_sleeper() {
    let machine = a_row(&["a", "b", "c", "d"], true, &[Op::Sleep(30 * MS)]);
    let record = record_of(&machine);
    let (text, share) = first_of(&record, "a", "data");
    let expected = "was in recvfrom > b was in recvfrom > c was in recvfrom > d slept in nanosleep > on purpose";
    assert_eq!(text, expected);
    assert!((0.85..0.95).contains(&share), "{share}");
    assert_eq!(record.blame[0].text, "d slept on purpose");
}

#[test]
fn the_holder_of_a_lock_is_in_fsync() {
    let mut machine = Machine::new(2, 1);
    let turn = [Op::Lock(0), Op::Sync(10 * MS), Op::Unlock(0), Op::Run(MS)];
    machine.thread("holder", 0, 120, turn.repeat(10));
    let turn = [Op::Run(2 * MS), Op::Lock(0), Op::Unlock(0)];
    machine.thread("waiter", 1, 120, turn.repeat(10));
    machine.run(10_000 * MS);
    let (text, share) = first_of(&record_of(&machine), "waiter", "lock");
    let expected =
        "waited for the lock at 0x7000 > holder was in fsync > disk sda, its own request";
    assert_eq!((&*text, share > 0.99), (expected, true), "{share}");
}

#[test]
fn who_stops_a_thread_is_named() {
    let mut machine = Machine::new(2, 1);
    let asks = machine.thread(
        "victim",
        0,
        120,
        vec![Op::Lock(0), Op::Run(600 * MS), Op::Unlock(0)],
    );
    let script = vec![
        Op::Sleep(10 * MS),
        Op::Stop(asks),
        Op::Sleep(500 * MS),
        Op::Continue(asks),
    ];
    machine.thread("shell", 1, 120, script);
    let wants = vec![Op::Sleep(5 * MS), Op::Lock(0), Op::Unlock(0)];
    machine.thread("wants", 1, 120, wants);
    machine.run(10_000 * MS);
    let record = record_of(&machine);
    let (text, share) = first_of(&record, "victim", "continue");
    assert_eq!((&*text, share), ("was stopped > stopped by shell", 1.0));
    let (text, _) = first_of(&record, "wants", "lock");
    assert!(text.contains("victim ran"), "{text}");
    let through = chains(&record, "wants", "lock");
    assert!(through.iter().any(
        |(text, ns)| text.ends_with("victim was stopped > stopped by shell") && *ns == 500 * MS
    ));
}

/// Thread 2 sleeps on purpose between its reads of what thread 1 sends by TCP.
#[test]
fn who_reads_slowly_is_named() {
    let soft = |row: Event, tid: u32, call: &'static str| {
        with(row, |wait| {
            wait.waker = Some(Waker {
                context: Some(Context::Softirq),
                ..woken_by(tid, Some(call))
            });
        })
    };
    let none = [0; 3];
    let rows = |reader| {
        [
            soft(
                wait_row(2, [1, 5, 5], ("read", none), woken_by(0, None)),
                1,
                "sendfile",
            ),
            wait_row(
                2,
                [6, 199, 199],
                ("clock_nanosleep", none),
                woken_by(0, None),
            ),
            soft(
                wait_row(1, [10, 200, 200], ("sendfile", none), woken_by(0, None)),
                reader,
                "read",
            ),
        ]
    };
    let first = |reader| {
        let mut graph = graph_of(&[]);
        rows(reader).iter().for_each(|row| graph.event(row));
        first_of(&graph.finish(&HashSet::new()), "t1", "data").0
    };
    let slow = "was in sendfile > t2 slept in clock_nanosleep > on purpose";
    assert_eq!(first(2), slow);
    assert_eq!(
        first(3),
        "was in sendfile > the network",
        "a stranger that reads"
    );
}

/// Thread 1 is stopped by a signal of 3, then twice in another way. The old signal counts for the first stop only.
#[test]
fn who_traces_or_thaws_a_thread_is_named() {
    let stopped = |times, state, by| {
        with(
            wait_row(1, times, ("read", [0; 3]), woken_by(by, Some("write"))),
            |wait| {
                wait.state = Some(state);
            },
        )
    };
    let frozen = |row| {
        with(row, |wait| {
            wait.stack = Some(stopgap_events::wait::Stack {
                frames: "get_signal_[k];do_freezer_trap_[k]".into(),
                of_a_like_wait: false,
            });
        })
    };
    let signal = Event {
        kind: Kind::Signal {
            signal: 19,
            target_tid: 1,
            target_pid: Some(7),
            target_comm: None,
            to_process: None,
            result: None,
        },
        ..wait_row(3, [5, 5, 9], ("kill", [0; 3]), woken_by(0, None))
    };
    let mut graph = graph_of(&[]);
    let rows = [
        signal,
        stopped([10, 50, 50], State::Stopped, 4),
        stopped([60, 160, 160], State::Traced, 5),
        frozen(stopped([170, 370, 370], State::Sleeping, 6)),
    ];
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::new());
    let found = chains(&record, "t1", "continue");
    let expected = [
        ("was stopped > until t6 let it go on", 200 * MS),
        ("was stopped > stopped by t5", 100 * MS),
        ("was stopped > stopped by t3", 40 * MS),
    ];
    for (text, ns) in expected {
        assert!(found.contains(&(text.to_owned(), ns)), "{text}: {found:?}");
    }
    assert_eq!(record.blame[0].task.as_deref(), Some("t6"));
}

#[test]
fn hogs_and_a_slow_child() {
    let mut machine = Machine::new(1, 0);
    machine.thread("hog", 0, 120, vec![Op::Run(300 * MS)]);
    machine.thread("hog", 0, 120, vec![Op::Run(300 * MS)]);
    machine.thread("victim", 0, 120, vec![Op::Run(100 * MS)]);
    machine.run(10_000 * MS);
    let (text, share) = first_of(&record_of(&machine), "victim", "run-queue");
    assert_eq!(
        (&*text, share > 0.99),
        ("waited for a CPU > waited for a CPU, behind hog", true)
    );

    // The kernel hides the switches that bring the victim back.
    let hidden = |row: &Event| match row.comm.as_deref() {
        Some("victim") => with(row.clone(), |wait| wait.previous = None),
        _ => row.clone(),
    };
    let rows: Vec<Event> = machine.rows.iter().map(hidden).collect();
    let (text, share) = first_of(
        &graph_of(&rows).finish(&HashSet::new()),
        "victim",
        "run-queue",
    );
    assert_eq!(
        (&*text, share > 0.99),
        ("waited for a CPU > waited for a CPU, behind hog", true)
    );

    let mut machine = Machine::new(2, 0);
    let child = machine.child("child", 1, vec![Op::Run(5 * MS), Op::Sleep(95 * MS)]);
    machine.thread(
        "make",
        0,
        120,
        vec![Op::Run(MS), Op::Fork(child), Op::Wait(child)],
    );
    machine.run(10_000 * MS);
    let (text, share) = first_of(&record_of(&machine), "make", "child");
    let expected = "waited for a child in wait4 > child slept in nanosleep > on purpose";
    assert_eq!(
        (&*text, (0.94..0.96).contains(&share)),
        (expected, true),
        "{share}"
    );
}

/// Thread `victim` waits for CPU 1 from `ready` ms to the end of 3 s. Meanwhile two hogs have it in turns of 4 ms,
/// and a third thread gets 50 us of each 10 ms. `last` has the CPU just before the victim gets it. Returns the rows,
/// and how long each thread had the CPU.
fn behind_hogs(ready: u64, last: u32) -> (Vec<Event>, BTreeMap<u32, u64>) {
    const END: u64 = 3_000 * MS;
    let (hogs, brief, victim) = ([11, 12], 13, 14);
    let mut turns = Vec::new();
    let (mut now, mut turn) = (0, 0);
    while now < END {
        turns.push((now, hogs[turn % 2]));
        let next = now + 4 * MS;
        let comes = now / (10 * MS) * 10 * MS + 3 * MS;
        if now < comes && comes < next {
            turns.extend([(comes, brief), (comes + 50_000, hogs[turn % 2])]);
        }
        (now, turn) = (next, turn + 1);
    }
    if last == brief {
        turns.push((END - 50_000, brief));
    }
    let mut had = BTreeMap::new();
    for (turn, &(begin, tid)) in turns.iter().enumerate() {
        let end = turns.get(turn + 1).map_or(END, |next| next.0);
        *had.entry(tid).or_default() += end.saturating_sub(begin.max(ready * MS));
    }
    turns.push((END, victim));
    let mut left: HashMap<u32, u64> = [(victim, ready * MS)].into();
    let mut rows = Vec::new();
    let mut previous = 0;
    for (time, tid) in turns {
        let mut row = with(
            wait_row(tid, [0, 0, 0], ("", [0; 3]), woken_by(0, None)),
            |wait| {
                wait.left = Nanos(left.get(&tid).copied().unwrap_or(0));
                (wait.woken, wait.waker, wait.call) = (None, None, None);
                wait.ran = Some(Nanos(time));
                wait.state = Some(State::Runnable);
                wait.left_cpu = Some(1);
                wait.previous = Some(Task {
                    tid: previous,
                    comm: None,
                });
            },
        );
        (row.time, row.cpu) = (Nanos(time), Some(1));
        rows.push(row);
        left.insert(previous, time);
        previous = tid;
    }
    (rows, had)
}

/// A wait that began before the kept turns of its CPU is divided by how long each thread had the CPU.
#[test]
fn a_long_wait_is_behind_those_who_had_the_cpu() {
    for (ready, last) in [(0, 13), (1, 12), (700, 13), (1_903, 12), (2_700, 13)] {
        let (rows, had) = behind_hogs(ready, last);
        let graph = graph_of(&rows);
        let (ends, others) = ends(&graph, 14);
        let length = (3_000 - ready) * MS;
        assert_eq!((ends.values().sum::<u64>(), others.len()), (length, 0));
        let behind = |tid| ends.get(&End::Behind(tid)).copied().unwrap_or(0);
        for (&tid, &ns) in &had {
            assert!(behind(tid) <= ns, "{ready}: {ends:?}, {had:?}");
        }
        let hogs = behind(11) + behind(12);
        assert!(hogs * 100 >= length * 85, "{ready}: {ends:?}, {had:?}");
        assert!(
            behind(13) * 100 >= had[&13] * 80,
            "{ready}: {ends:?}, {had:?}"
        );
    }
}

/// Returns a row of kind `wait`: when the thread left, was woken and ran again, in which call, and its waker.
fn wait_row(thread: u32, times: [u64; 3], call: (&str, [u64; 3]), waker: Waker) -> Event {
    Event {
        time: Nanos(times[2] * MS),
        cpu: Some(thread),
        pid: Some(7),
        tid: Some(thread),
        comm: Some(format!("t{thread}").into()),
        kind: Kind::Wait(Box::new(Wait {
            left: Nanos(times[0] * MS),
            woken: Some(Nanos(times[1] * MS)),
            ran: Some(Nanos(times[2] * MS)),
            left_cpu: Some(thread),
            state: Some(State::Sleeping),
            within: Some(Within::Call),
            call: Some(Call {
                number: 0,
                name: Some(call.0.into()),
                arguments: call.1.map(Some),
            }),
            previous: Some(Task { tid: 0, comm: None }),
            waker: Some(waker),
            ..Wait::default()
        })),
    }
}

fn woken_by(thread: u32, call: Option<&str>) -> Waker {
    Waker {
        task: Task {
            tid: thread,
            comm: Some(format!("t{thread}").into()),
        },
        context: Some(if thread == 0 {
            Context::Interrupt
        } else {
            Context::Task
        }),
        call: call.map(|name| Call {
            number: 0,
            name: Some(name.into()),
            arguments: [None; 3],
        }),
    }
}

/// 1 has the lock at 0x10 and waits for the lock at 0x20 until a timeout; 2 has that lock and waits for the first.
#[test]
fn a_deadlock_is_a_cycle() {
    let mutex = |address| ("futex", [address, 128, 2]);
    for sure in [true, false] {
        let mut rows = vec![
            // They got the locks from another thread, which released them.
            wait_row(1, [1, 5, 5], mutex(0x10), woken_by(3, Some("futex"))),
            wait_row(2, [1, 6, 6], mutex(0x20), woken_by(3, Some("futex"))),
            wait_row(1, [10, 2_010, 2_010], mutex(0x20), woken_by(0, None)),
            wait_row(
                2,
                [11, 2_011, 2_011],
                mutex(0x10),
                woken_by(1, Some("futex")),
            ),
        ];
        if !sure {
            rows.remove(1);
        }
        let record = graph_of(&rows).finish(&HashSet::new());
        let (text, share) = first_of(&record, "t2", "lock");
        let expected = match sure {
            true => "waited for the lock at 0x10 > deadlock: t1 waited for it, until a timeout",
            false => {
                "waited for the lock at 0x10 > t1 waited for another lock meanwhile; a timeout ended it: perhaps a deadlock"
            }
        };
        assert_eq!((&*text, share > 0.99), (expected, true), "{share}");
        let (text, share) = first_of(&record, "t1", "lock");
        let expected = match sure {
            true => "waited for the lock at 0x20 > until its timeout; t2 got it last",
            false => {
                "waited for the lock at 0x20 > t2 waited for another lock meanwhile; a timeout ended it: perhaps a deadlock"
            }
        };
        assert_eq!((&*text, share > 0.99), (expected, true), "{share}");
    }
}

/// Rows are lost. Each wait still adds up, and the graph names only threads of the true chain or of the waiting
/// thread's CPU.
#[test]
fn lost_rows_name_no_stranger() {
    let (mut broken, mut named, mut strangers) = (0_u64, 0_u64, 0_u64);
    for seed in 0..100 {
        let machine = by_chance(seed);
        let truth: HashMap<usize, _> = machine
            .truth
            .iter()
            .map(|one| (one.row, &one.ends))
            .collect();
        let mut random = Random::new(seed ^ 0x1057);
        let one_in = 3 + random.below(20);
        let mut graph = Graph::new();
        for (index, row) in machine.rows.iter().enumerate() {
            if random.below(one_in) == 0 {
                continue;
            }
            graph.event(row);
            let (Some(truth), Kind::Wait(wait)) = (truth.get(&index), &row.kind) else {
                continue;
            };
            let (ends, others) = ends(&graph, row.tid.unwrap());
            let (told, unknown): (u64, u64) = (ends.values().sum(), others.values().sum());
            assert_eq!(
                told + unknown,
                row.time.0 - wait.left.0,
                "seed {seed}, row {index}"
            );
            broken += unknown;
            named += told;
            let who = |end: &End| match *end {
                End::Runs(tid)
                | End::Behind(tid)
                | End::Disk(tid)
                | End::Slept(tid)
                | End::Stopped(tid) => tid,
            };
            let true_ones: HashSet<u32> = truth.keys().map(who).chain(row.tid).chain([0]).collect();
            let waker = wait.waker.as_ref().map(|waker| waker.task.tid);
            for (end, ns) in &ends {
                if !true_ones.contains(&who(end)) && Some(who(end)) != waker {
                    strangers += ns;
                }
            }
        }
    }
    assert!(broken * 100 > named, "chains break: {broken} of {named}");
    assert!(
        strangers * 50 < named,
        "{strangers} of {named} ns are of strangers"
    );
}

/// 32 workers wait for work at a condition variable. One waits for a lock whose holder writes.
#[test]
fn idle_workers_are_no_stall() {
    let mut rows = Vec::new();
    for worker in 10..42 {
        let condition = ("futex", [0x99, 393, 0]);
        rows.push(wait_row(
            worker,
            [1, 900, 900],
            condition,
            woken_by(2, Some("futex")),
        ));
    }
    rows.push(wait_row(
        3,
        [1, 2, 2],
        ("nanosleep", [0; 3]),
        woken_by(0, None),
    ));
    rows.push(wait_row(
        4,
        [10, 800, 901],
        ("futex", [0x10, 128, 2]),
        woken_by(3, Some("futex")),
    ));
    let mut graph = Graph::new();
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::new());
    let stalled =
        |waiting: &&Waiting| waiting.idleness == Idleness::Stalled && waiting.cause != "run-queue";
    let stalled: Vec<_> = record.waiting.iter().filter(stalled).collect();
    assert_eq!(stalled.len(), 1);
    assert_eq!((&*stalled[0].task, stalled[0].total_ns), ("t4", 790 * MS));
    assert_eq!(record.blame[0].task.as_deref(), Some("t3"));
}

/// Returns how the waits of thread 1 in its last call are judged. `born` says whether all threads began in the
/// recording, or none did.
fn judged(rows: &[Event], born: bool) -> Vec<(Idleness, u64)> {
    let mut graph = if born { graph_of(&[]) } else { Graph::new() };
    if born {
        for tid in 1..10 {
            let mut thread = Thread::new(&mut graph.paths, tid, &format!("t{tid}").into(), 0);
            thread.born = true;
            graph.threads.insert(tid, thread);
        }
    }
    rows.iter().for_each(|row| graph.event(row));
    let record = graph.finish(&HashSet::from([1]));
    let waits = record
        .waiting
        .iter()
        .filter(|waiting| waiting.cause != "run-queue");
    let mut found: Vec<_> = waits.map(|w| (w.idleness, w.total_ns / MS)).collect();
    found.sort_unstable();
    found
}

#[test]
fn threads_of_a_pool_are_known_by_their_names() {
    for (one, other, expected) in [
        ("pool-1-thread-1", "pool-1-thread-3", true),
        ("worker9", "worker10", true),
        ("pool-1-thread-1", "pool-1-thread-1", true),
        ("a-long-name-abc", "a-long-name-abc", false),
        ("pool-1-thread-1", "pool-2-thread-1", false),
        ("client1", "server1", false),
        ("worker", "worker1", false),
        ("t1", "t2", false),
        ("worker1", "worker1", false),
        ("1", "2", false),
        ("", "", false),
    ] {
        assert_eq!(idle::are_of_a_pool(one, other), expected, "{one} {other}");
    }
}

/// Workers hand work on, each by a word of its own, as Java's do.
#[test]
fn threads_of_a_pool_ask_each_other_for_nothing() {
    let name = |row: Event, stem: &str| {
        let tid = row.tid.unwrap();
        let comm = Some(format!("{stem}{tid}").into());
        Event { comm, ..row }
    };
    let futex = |tid, times, by| {
        let waker = woken_by(by, Some("futex"));
        wait_row(
            tid,
            times,
            ("futex", [0x10 * u64::from(tid), 393, 0]),
            waker,
        )
    };
    for (stem, expected) in [("caller-", Idleness::Idle), ("t", Idleness::Stalled)] {
        let sleep = wait_row(
            2,
            [5, 190, 190],
            ("clock_nanosleep", [0; 3]),
            woken_by(0, None),
        );
        let rows = [futex(2, [1, 3, 3], 1), sleep, futex(1, [4, 200, 200], 2)];
        let mut graph = Graph::new();
        are_born(&mut graph, &rows);
        rows.into_iter()
            .for_each(|row| graph.event(&name(row, stem)));
        assert_eq!(
            graph.threads[&1].last.unwrap().idleness,
            Some(expected),
            "{stem}"
        );
    }
}

/// Without stacks, the trace says which processes run Go. Their threads wake each other and have nothing to run
/// meanwhile.
#[test]
fn threads_of_go_are_idle_without_stacks_too() {
    let futex = |tid, times, by| {
        let waker = woken_by(by, Some("futex"));
        wait_row(
            tid,
            times,
            ("futex", [0x10 * u64::from(tid), 128, 0]),
            waker,
        )
    };
    let rows = [futex(2, [1, 3, 3], 1), futex(1, [4, 200, 200], 2)];
    for (schedulers, expected) in [(vec![], Idleness::Stalled), (vec![7], Idleness::Idle)] {
        let mut graph = Graph::of(&Metadata {
            schedulers,
            ..Metadata::default()
        });
        are_born(&mut graph, &rows);
        rows.iter().for_each(|row| graph.event(row));
        assert_eq!(graph.threads[&1].last.unwrap().idleness, Some(expected));
    }
}

fn with_pid(row: Event, pid: u32) -> Event {
    let pid = Some(pid);
    Event { pid, ..row }
}

fn with(mut row: Event, change: impl FnOnce(&mut Wait)) -> Event {
    if let Kind::Wait(wait) = &mut row.kind {
        change(wait);
    }
    row
}

/// The rules of docs/explain.md, each beside the same call judged otherwise.
#[test]
fn each_rule_of_idleness_has_a_twin() {
    use Idleness::{Idle, MayBeIdle, Stalled};
    const NONE: [u64; 3] = [0; 3];
    const SEVERAL: [u64; 3] = [0, 5, 0];
    const ONE: [u64; 3] = [0, 1, 0];
    const MUTEX: [u64; 3] = [0x10, 128, 2];
    const WORD: [u64; 3] = [0x10, 128, 0];
    let wait = |call, times, by| wait_row(1, times, call, woken_by(by, Some("write")));
    // Thread 2 slept on purpose, or ran, until it woke 1.
    let sleeper_from = |begin| {
        wait_row(
            2,
            [begin, 190, 191],
            ("clock_nanosleep", NONE),
            woken_by(0, None),
        )
    };
    let sleeper = || sleeper_from(2);
    let asked = || wait_row(2, [1, 3, 4], ("read", NONE), woken_by(1, Some("write")));
    let stack = |row: Event, frames: &str| {
        with(row, |wait| {
            wait.stack = Some(stopgap_events::wait::Stack {
                frames: frames.into(),
                of_a_like_wait: false,
            });
        })
    };
    let program = |row: Event, frames: &str| {
        with(row, |wait| {
            wait.user_stack = Some(stopgap_events::wait::Stack {
                frames: frames.into(),
                of_a_like_wait: false,
            });
        })
    };
    // Thread 1 asked 2 before, and now asks it while 2 waits for 3.
    let not_looked_at = |call| {
        vec![
            asked(),
            wait(("read", NONE), [5, 7, 8], 2),
            wait_row(
                3,
                [8, 189, 190],
                ("clock_nanosleep", NONE),
                woken_by(0, None),
            ),
            wait_row(
                2,
                [9, 190, 191],
                ("epoll_wait", NONE),
                woken_by(3, Some("write")),
            ),
            wait(call, [10, 200, 200], 2),
        ]
    };
    // Thread 2 answers 1, which sleeps and asks again.
    let answered_before = |last| {
        vec![
            asked(),
            wait(("read", NONE), [5, 10, 10], 2),
            wait(("nanosleep", NONE), [11, 21, 21], 0),
            wait_row(2, [11, 23, 24], ("read", NONE), woken_by(1, Some("write"))),
            last,
        ]
    };
    // Thread 1 asks 2, and sleeps five times.
    let looks_while_2_works_until = |before: &[Event], done| {
        let mut rows = before.to_vec();
        rows.push(asked());
        rows.extend((0..5).map(|nap| {
            let at = 10 * nap;
            wait(("nanosleep", NONE), [at + 5, at + 14, at + 14], 0)
        }));
        rows.push(wait_row(
            2,
            [done, 70, 71],
            ("read", NONE),
            woken_by(0, None),
        ));
        rows
    };
    let made_by_1 = || {
        let row = wait_row(2, [2, 3, 3], ("clone", NONE), woken_by(1, Some("clone")));
        let row = Event {
            pid: Some(8),
            ..row
        };
        with(row, |wait| {
            wait.within = Some(Within::New);
            wait.state = Some(State::Runnable);
        })
    };
    // Thread 2 sends 1 a signal.
    let signalled = || Event {
        kind: Kind::Signal {
            signal: 12,
            target_tid: 1,
            target_pid: Some(7),
            target_comm: None,
            to_process: None,
            result: None,
        },
        ..wait_row(2, [4, 4, 5], ("tgkill", NONE), woken_by(0, None))
    };
    let ring_worker = |mut row: Event| {
        row.comm = Some("iou-wrk-1".into());
        row
    };
    let softirq = |row: Event| {
        with(row, |wait| {
            if let Some(waker) = &mut wait.waker {
                waker.context = Some(Context::Softirq);
                waker.task.tid = 0;
                waker.call = None;
            }
        })
    };
    let open = |row: Event| {
        with(row, |wait| {
            (wait.woken, wait.ran, wait.waker) = (None, None, None);
        })
    };
    let long = [5, 200, 200];
    type Rule = (&'static str, bool, Vec<Event>, Vec<(Idleness, u64)>);
    let table: Vec<Rule> = vec![
        (
            "1 lock",
            true,
            vec![wait(("futex", MUTEX), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "1 its twin, a word",
            true,
            vec![sleeper(), wait(("futex", WORD), long, 2)],
            vec![(Idle, 195)],
        ),
        (
            "1 fsync",
            true,
            vec![wait(("fsync", NONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "1 FUSE",
            true,
            vec![
                sleeper(),
                stack(
                    wait(("read", NONE), long, 2),
                    "vfs_read_[k];request_wait_answer_[k]",
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "1 stopped",
            true,
            vec![with(wait(("read", NONE), long, 2), |wait| {
                wait.state = Some(State::Stopped);
            })],
            vec![(Stalled, 195)],
        ),
        (
            "8 a driver told one descriptor, for a thread",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("poll", ONE), woken_by(2, Some("ioctl"))),
            ],
            vec![(MayBeIdle, 195)],
        ),
        (
            "8 its twin, of several",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("poll", SEVERAL), woken_by(2, Some("ioctl"))),
            ],
            vec![(Idle, 195)],
        ),
        (
            "8 it is not known in which call",
            true,
            vec![with(wait(("", NONE), long, 0), |wait| {
                (wait.call, wait.within) = (None, None);
            })],
            vec![(MayBeIdle, 195)],
        ),
        (
            "1 a page fault",
            true,
            vec![with(wait(("", NONE), long, 2), |wait| {
                (wait.call, wait.within) = (None, Some(Within::User));
            })],
            vec![(Stalled, 195)],
        ),
        (
            "5 room in a message queue",
            true,
            vec![wait(("msgsnd", NONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "5 its twin",
            true,
            vec![sleeper(), wait(("msgrcv", NONE), long, 2)],
            vec![(Idle, 195)],
        ),
        (
            "2 nanosleep",
            true,
            vec![wait(("nanosleep", NONE), long, 0)],
            vec![(Idle, 195)],
        ),
        (
            "2 timerfd",
            true,
            vec![stack(
                wait(("read", NONE), long, 0),
                "vfs_read_[k];timerfd_read_iter_[k]",
            )],
            vec![(Idle, 195)],
        ),
        (
            "2 polls for an answer by naps",
            true,
            looks_while_2_works_until(&[], 52),
            vec![(Stalled, 43), (Idle, 2)],
        ),
        (
            "2 its twin, goes on after the answer",
            true,
            looks_while_2_works_until(&[], 6),
            vec![(Idle, 45)],
        ),
        (
            "2 its twin, the answer came before the third",
            true,
            {
                let mut rows = looks_while_2_works_until(&[], 52);
                let idle = wait_row(2, [16, 22, 23], ("read", NONE), woken_by(3, Some("write")));
                rows.insert(3, idle);
                rows
            },
            vec![(Idle, 45)],
        ),
        (
            "2 its twin, naps without a question, too",
            true,
            looks_while_2_works_until(&[wait(("nanosleep", NONE), [0, 1, 1], 0)], 52),
            vec![(MayBeIdle, 43), (Idle, 3)],
        ),
        (
            "3 a child that works",
            true,
            vec![wait(("wait4", NONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "3 its twin, which sleeps on purpose, and whose waking was not seen",
            true,
            vec![
                with(sleeper(), |wait| (wait.woken, wait.waker) = (None, None)),
                wait(("wait4", NONE), long, 2),
            ],
            vec![(Stalled, 9), (Idle, 186)],
        ),
        (
            "3 a child whose end shows by a descriptor",
            true,
            vec![
                made_by_1(),
                wait_row(1, long, ("poll", ONE), woken_by(2, Some("exit_group"))),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "3 the first word of a child, which closed another descriptor when it ran its program",
            true,
            vec![
                made_by_1(),
                wait_row(1, [4, 5, 5], ("read", NONE), woken_by(2, Some("execve"))),
                wait_row(1, [6, 200, 200], ("read", NONE), woken_by(2, Some("write"))),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "3 its twin, of several descriptors",
            true,
            vec![
                made_by_1(),
                wait_row(1, long, ("poll", SEVERAL), woken_by(2, Some("exit_group"))),
            ],
            vec![(MayBeIdle, 195)],
        ),
        (
            "3 its twin, the end of a stranger",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("poll", ONE), woken_by(2, Some("exit_group"))),
            ],
            vec![(Idle, 195)],
        ),
        (
            "1 at a barrier",
            true,
            vec![
                sleeper(),
                program(
                    wait(("futex", WORD), long, 2),
                    "main;step;pthread_barrier_wait",
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "7 a lock of Python, or what it makes of one",
            true,
            vec![
                sleeper(),
                program(
                    wait(("futex", WORD), long, 2),
                    "lock_PyThread_acquire_lock;acquire_timed;PyThread_acquire_lock_timed",
                ),
            ],
            vec![(MayBeIdle, 195)],
        ),
        (
            "1 a lock of Python that is nothing else",
            true,
            vec![
                sleeper(),
                program(
                    wait(("futex", WORD), long, 2),
                    "rlock_acquire;acquire_timed;PyThread_acquire_lock_timed",
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "3 in a signal's handler",
            true,
            vec![
                sleeper(),
                program(wait(("futex", WORD), [2, 3, 4], 0), "main;mutate;syscall"),
                signalled(),
                program(
                    wait(("futex", WORD), long, 2),
                    "main;mutate;__restore_rt;safepoint;syscall",
                ),
            ],
            vec![(Stalled, 195), (Idle, 1)],
        ),
        (
            "3 its twin, made by a handler",
            true,
            vec![
                sleeper(),
                signalled(),
                program(
                    wait(("futex", WORD), long, 2),
                    "main;mutate;__restore_rt;safepoint;syscall",
                ),
            ],
            vec![(Idle, 195)],
        ),
        (
            "3 its twin, called by the program itself",
            true,
            vec![
                sleeper(),
                signalled(),
                program(
                    wait(("futex", WORD), long, 2),
                    "main;mutate;safepoint;syscall",
                ),
            ],
            vec![(Idle, 195)],
        ),
        (
            "2 a worker of an io_uring",
            true,
            vec![stack(
                wait(("io_uring_enter", NONE), long, 2),
                "ret_from_fork_[k];io_wq_worker_[k];schedule_[k]",
            )],
            vec![(Idle, 195)],
        ),
        (
            "1 its twin, a worker that has work",
            true,
            vec![stack(
                with(wait(("io_uring_enter", NONE), long, 0), |wait| {
                    wait.for_io = Some(true);
                }),
                "ret_from_fork_[k];io_wq_worker_[k];io_wq_submit_work_[k];vfs_fsync_range_[k];schedule_[k]",
            )],
            vec![(Stalled, 195)],
        ),
        (
            "4 what a worker of its io_uring has done",
            true,
            vec![
                ring_worker(wait_row(
                    2,
                    [1, 3, 4],
                    ("io_uring_enter", NONE),
                    woken_by(1, Some("io_uring_enter")),
                )),
                wait_row(
                    1,
                    long,
                    ("io_uring_enter", NONE),
                    woken_by(2, Some("io_uring_enter")),
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "4 a question that was not answered until a timeout",
            true,
            answered_before(wait(("poll", [0, 1, 175]), [25, 200, 200], 0)),
            vec![(Stalled, 5), (Stalled, 175), (Idle, 10)],
        ),
        (
            "4 its twin, in a loop of events",
            true,
            answered_before(wait(("poll", [0, 5, 175]), [25, 200, 200], 0)),
            vec![(Stalled, 5), (Idle, 10), (Idle, 175)],
        ),
        (
            "4 its twin, of one that never answered",
            true,
            vec![asked(), wait(("poll", [0, 1, 195]), long, 0)],
            vec![(Idle, 195)],
        ),
        (
            "3 a child that sleeps on purpose",
            true,
            vec![sleeper(), wait(("wait4", NONE), long, 2)],
            vec![(Stalled, 10), (Idle, 185)],
        ),
        (
            "3 a thread that it joins",
            true,
            vec![wait_row(
                1,
                long,
                ("futex", WORD),
                woken_by(2, Some("exit")),
            )],
            vec![(Stalled, 195)],
        ),
        (
            "2 a thread of a scheduler without work, which it gave another before",
            true,
            vec![
                asked(),
                program(
                    wait(("futex", WORD), long, 2),
                    "runtime.schedule;runtime.findRunnable;runtime.stopm;runtime.futex.abi0",
                ),
            ],
            vec![(Idle, 195)],
        ),
        (
            "4 its twin, in a function of the program",
            true,
            vec![
                asked(),
                program(wait(("futex", WORD), long, 2), "main;ask;syscall"),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "2 a thread of a scheduler that is told by one of its process",
            true,
            vec![
                asked(),
                program(
                    wait(("epoll_pwait", SEVERAL), long, 2),
                    "runtime.schedule;runtime.findRunnable;runtime.netpoll",
                ),
            ],
            vec![(Idle, 195)],
        ),
        (
            "4 its twin, told by another process",
            true,
            vec![
                program(
                    wait(("epoll_pwait", SEVERAL), [0, 1, 1], 0),
                    "runtime.schedule;runtime.findRunnable;runtime.netpoll",
                ),
                with_pid(asked(), 8),
                program(
                    wait(("epoll_pwait", SEVERAL), long, 2),
                    "runtime.schedule;runtime.findRunnable;runtime.netpoll",
                ),
            ],
            vec![(Stalled, 195), (Idle, 1)],
        ),
        (
            "7 a word for which the other slept, too, and handed it on",
            true,
            vec![
                asked(),
                wait_row(
                    3,
                    [5, 198, 198],
                    ("clock_nanosleep", NONE),
                    woken_by(0, None),
                ),
                wait_row(
                    2,
                    [6, 199, 199],
                    ("futex", WORD),
                    woken_by(3, Some("futex")),
                ),
                wait(("futex", WORD), long, 2),
            ],
            vec![(Idle, 195)],
        ),
        (
            "4 its twin, by turns",
            true,
            vec![
                wait_row(2, [1, 4, 4], ("futex", WORD), woken_by(1, Some("futex"))),
                wait(("futex", WORD), long, 2),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "4 an answer",
            true,
            vec![asked(), wait(("poll", ONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "4 an answer by another",
            true,
            vec![
                asked(),
                wait_row(3, [1, 8, 9], ("read", NONE), woken_by(2, Some("write"))),
                wait(("read", NONE), long, 3),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "4 nothing was asked for",
            true,
            vec![sleeper(), wait(("poll", ONE), long, 2)],
            vec![(Idle, 195)],
        ),
        (
            "7 bytes of a busy thread",
            true,
            vec![wait(("read", NONE), long, 2)],
            vec![(MayBeIdle, 195)],
        ),
        (
            "7 of several",
            true,
            vec![wait(("poll", SEVERAL), long, 2)],
            vec![(Idle, 195)],
        ),
        (
            "4 a server that was there before its client",
            true,
            vec![
                with(
                    wait_row(3, [8, 9, 9], ("clone", NONE), woken_by(2, Some("clone"))),
                    |wait| {
                        wait.within = Some(Within::New);
                        wait.state = Some(State::Runnable);
                    },
                ),
                wait_row(1, [5, 20, 21], ("read", NONE), woken_by(3, Some("write"))),
                wait_row(3, [21, 23, 24], ("read", NONE), woken_by(1, Some("write"))),
                wait_row(
                    3,
                    [25, 190, 191],
                    ("clock_nanosleep", NONE),
                    woken_by(0, None),
                ),
                wait_row(
                    1,
                    [24, 200, 200],
                    ("read", NONE),
                    woken_by(3, Some("write")),
                ),
            ],
            vec![(MayBeIdle, 14), (Idle, 176)],
        ),
        (
            "6 who asks cannot be told, and the other was busy",
            true,
            vec![
                wait(("read", NONE), [1, 3, 4], 2),
                wait_row(2, [3, 6, 7], ("read", NONE), woken_by(1, Some("write"))),
                wait(("read", NONE), [7, 200, 200], 2),
            ],
            vec![(MayBeIdle, 195)],
        ),
        (
            "4 the server waits for the next question of a client that sleeps",
            true,
            vec![
                wait(("read", NONE), [1, 3, 4], 2),
                wait_row(2, [3, 6, 7], ("read", NONE), woken_by(1, Some("write"))),
                wait_row(
                    2,
                    [8, 190, 191],
                    ("clock_nanosleep", NONE),
                    woken_by(0, None),
                ),
                wait(("read", NONE), [7, 200, 200], 2),
            ],
            vec![(MayBeIdle, 2), (Idle, 193)],
        ),
        (
            "4 a server that another keeps from looking at the question",
            true,
            not_looked_at(("read", NONE)),
            vec![(Stalled, 192)],
        ),
        (
            "4 its twin, in a loop of events",
            true,
            not_looked_at(("poll", ONE)),
            vec![(Stalled, 2), (MayBeIdle, 190)],
        ),
        (
            "4 the other reads only now what it was sent",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("recvfrom", NONE), woken_by(2, Some("recvmsg"))),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "4 its twin, in a loop of events",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("poll", SEVERAL), woken_by(2, Some("recvmsg"))),
            ],
            vec![(Idle, 195)],
        ),
        (
            "4 a worker that told who made it that it is there",
            true,
            vec![
                with(
                    wait_row(1, [1, 2, 2], ("clone", NONE), woken_by(2, Some("clone"))),
                    |wait| {
                        wait.within = Some(Within::New);
                        wait.state = Some(State::Runnable);
                    },
                ),
                wait_row(2, [2, 4, 5], ("futex", WORD), woken_by(1, Some("futex"))),
                sleeper_from(6),
                wait(("futex", WORD), [7, 200, 200], 2),
            ],
            vec![(Idle, 193)],
        ),
        (
            "4 who asks is not known",
            false,
            vec![asked(), wait(("read", NONE), long, 2)],
            vec![(MayBeIdle, 195)],
        ),
        (
            "5 room for what it writes",
            true,
            vec![wait(("write", NONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "5 a connection",
            true,
            vec![softirq(wait(("connect", NONE), long, 2))],
            vec![(Stalled, 195)],
        ),
        (
            "5 room for a file that is sent",
            true,
            vec![softirq(wait(("sendfile", NONE), long, 2))],
            vec![(Stalled, 195)],
        ),
        (
            "1 a disk, while it makes a process",
            true,
            vec![with(wait(("clone", NONE), long, 0), |wait| {
                wait.for_io = Some(true);
            })],
            vec![(Stalled, 195)],
        ),
        (
            "3 a child that has not begun its program",
            true,
            vec![wait(("clone", NONE), long, 2)],
            vec![(Stalled, 195)],
        ),
        (
            "1 frozen, by the innermost function alone",
            true,
            vec![
                sleeper(),
                stack(
                    wait(("read", NONE), long, 2),
                    "do_syscall_64_[k];exit_to_user_mode_loop_[k];get_signal_[k]",
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "5 its twin",
            true,
            vec![softirq(wait(("accept", NONE), long, 2))],
            vec![(MayBeIdle, 195)],
        ),
        (
            "5 a new connection, by the kernel's stack",
            true,
            vec![stack(
                softirq(wait(("accept", NONE), long, 2)),
                "inet_csk_accept_[k]",
            )],
            vec![(Idle, 195)],
        ),
        (
            "6 uninterruptible",
            true,
            vec![with(wait(("ioctl", NONE), long, 2), |wait| {
                wait.state = Some(State::Blocked);
            })],
            vec![(Stalled, 195)],
        ),
        (
            "7 the network",
            true,
            vec![softirq(wait(("recvfrom", NONE), long, 2))],
            vec![(MayBeIdle, 195)],
        ),
        (
            "7 the network, several",
            true,
            vec![softirq(wait(("poll", SEVERAL), long, 2))],
            vec![(Idle, 195)],
        ),
        (
            "6 until its process ended",
            true,
            vec![
                sleeper(),
                wait_row(1, long, ("futex", WORD), woken_by(2, Some("exit_group"))),
            ],
            vec![(Idle, 195)],
        ),
        (
            "1 a lock that no call names: a safepoint of a JVM",
            true,
            vec![
                sleeper(),
                program(
                    wait(("futex", WORD), long, 2),
                    "run(int);SafepointSynchronize::block(JavaThread*);syscall",
                ),
            ],
            vec![(Stalled, 195)],
        ),
        (
            "1 a lock at which it looks between naps",
            true,
            vec![program(
                wait(("clock_nanosleep", NONE), long, 0),
                "main;sqlite3_step;usleep",
            )],
            vec![(Stalled, 195)],
        ),
        (
            "2 poll of no descriptor",
            true,
            vec![wait(("poll", NONE), long, 0)],
            vec![(Idle, 195)],
        ),
        (
            "2 its twin",
            true,
            vec![program(
                wait(("clock_nanosleep", NONE), long, 0),
                "main;pace;usleep",
            )],
            vec![(Idle, 195)],
        ),
        (
            "7 not over",
            true,
            vec![open(wait(("read", NONE), long, 2))],
            vec![(Idle, 195)],
        ),
        (
            "7 not over, and asked",
            true,
            vec![asked(), open(wait(("read", NONE), long, 2))],
            vec![(Stalled, 195)],
        ),
        (
            "7 the word of a busy thread",
            true,
            vec![wait(("futex", WORD), long, 2)],
            vec![(MayBeIdle, 195)],
        ),
        (
            "8 in a driver",
            true,
            vec![wait(("ioctl", NONE), long, 2)],
            vec![(MayBeIdle, 195)],
        ),
    ];
    for (rule, born, rows, expected) in table {
        assert_eq!(judged(&rows, born), expected, "{rule}");
    }
    // The first question was not seen, and the answer looks like a question. The thread that sleeps before the next
    // questions asks.
    let round = |at: u64| {
        [
            wait(("read", NONE), [at + 1, at + 14, at + 15], 2),
            wait(("nanosleep", NONE), [at + 16, at + 19, at + 19], 0),
            wait_row(
                2,
                [at + 15, at + 20, at + 21],
                ("read", NONE),
                woken_by(1, Some("write")),
            ),
        ]
    };
    let rows: Vec<Event> = (0..5).flat_map(|index| round(20 * index)).collect();
    let stalled = judged(&rows, true)
        .into_iter()
        .find(|(word, _)| *word == Stalled);
    assert_eq!(stalled, Some((Stalled, 3 * 13)), "all but the first two");
    // Thread 1 serves 2 and 3. In turns, one of them wakes it, and the question of the other is not seen, as with the
    // first one of 3.
    let round = |index: u64| {
        let at = 20 * index;
        let (rings, other) = if index.is_multiple_of(2) {
            (2, 3)
        } else {
            (3, 2)
        };
        let sleeps = |tid, until| {
            wait_row(
                tid,
                [at + 2, until, until],
                ("nanosleep", NONE),
                woken_by(0, None),
            )
        };
        let served = |tid, from, until| {
            wait_row(
                tid,
                [from, until, until],
                ("futex", WORD),
                woken_by(1, Some("futex")),
            )
        };
        [
            sleeps(rings, at + 10),
            wait(("read", NONE), [at + 3, at + 11, at + 11], rings),
            sleeps(other, at + 12),
            served(other, at + 13, at + 15),
            served(rings, at + 12, at + 16),
        ]
    };
    let rows: Vec<Event> = (0..30).flat_map(round).collect();
    let stalled = judged(&rows, true)
        .into_iter()
        .find(|(word, _)| *word == Stalled);
    let most = stalled.map_or(0, |(_, ms)| ms / 8);
    assert!(
        most < 5,
        "{most} of 30 waits of a server for its clients are a loss"
    );
}

/// `cargo test --release -p stopgap-explain speed -- --nocapture` prints waits per second.
#[test]
fn speed_and_memory_with_many_threads() {
    let (threads, waits) = if cfg!(debug_assertions) {
        (500, 10_000)
    } else {
        (5_000, 3_000_000)
    };
    let names: Vec<Text> = (0..threads)
        .map(|index| format!("t{}", index % 50).into())
        .collect();
    let call = |name: &str| Call {
        number: 0,
        name: Some(name.into()),
        arguments: [Some(3), Some(128), Some(2)],
    };
    let (futex, read) = (call("futex"), call("read"));
    let mut random = Random::new(1);
    let mut left: Vec<u64> = vec![0; threads];
    let mut graph = Graph::new();
    let mut took = std::time::Duration::ZERO;
    let mut batch = Vec::with_capacity(10_000);
    for index in 0..waits {
        let now = 1_000_000 + index as u64 * 1_000;
        let (one, waker) = (random.index(threads), random.index(threads));
        let began = left[one].max(now.saturating_sub(50_000_000));
        left[one] = now + 500;
        let wait = Wait {
            left: Nanos(began.min(now - 300)),
            woken: Some(Nanos(now - 200)),
            ran: Some(Nanos(now)),
            left_cpu: Some((one % 64) as u32),
            state: Some(State::Sleeping),
            within: Some(Within::Call),
            call: Some(if index % 2 == 0 {
                futex.clone()
            } else {
                read.clone()
            }),
            previous: Some(Task { tid: 0, comm: None }),
            waker: Some(Waker {
                task: Task {
                    tid: waker as u32 + 1,
                    comm: Some(Text::clone(&names[waker])),
                },
                context: Some(Context::Task),
                call: Some(futex.clone()),
            }),
            ..Wait::default()
        };
        batch.push(Event {
            time: Nanos(now),
            cpu: Some((one % 64) as u32),
            pid: Some(7),
            tid: Some(one as u32 + 1),
            comm: Some(Text::clone(&names[one])),
            kind: Kind::Wait(Box::new(wait)),
        });
        if batch.len() == batch.capacity() {
            let begin = std::time::Instant::now();
            batch.iter().for_each(|event| graph.event(event));
            took += begin.elapsed();
            batch.clear();
        }
    }
    let rate = f64::from(waits) / took.as_secs_f64();
    println!(
        "{rate:.0} waits per second, {} chains, {threads} threads",
        graph.chains()
    );
    assert!(graph.chains() < 300_000);
    let begin = std::time::Instant::now();
    let record = graph.finish(&HashSet::new());
    println!(
        "finished in {:?}, {} groups",
        begin.elapsed(),
        record.waiting.len()
    );
}

/// The first question of 1 finds 2 awake, so 2 seems to wake first. 2 waits 41 ms for the rest of each question
/// (Nagle's algorithm). 1 sleeps on purpose before it asks again: 1 asks.
#[test]
fn who_waits_for_the_rest_of_a_question_is_not_idle() {
    let read = ("read", [4, 0, 0]);
    let softirq = || Waker {
        context: Some(Context::Softirq),
        ..woken_by(99, None)
    };
    let mut rows = Vec::new();
    for round in 0..20 {
        let at = 100 + 50 * round;
        if round > 0 {
            rows.push(wait_row(
                2,
                [at - 6, at, at],
                read,
                woken_by(1, Some("write")),
            ));
        }
        rows.push(wait_row(2, [at + 1, at + 42, at + 42], read, softirq()));
        rows.push(wait_row(
            1,
            [at + 1, at + 43, at + 43],
            read,
            woken_by(2, Some("write")),
        ));
        let sleep = ("clock_nanosleep", [1, 0, 0]);
        rows.push(wait_row(
            1,
            [at + 44, at + 47, at + 47],
            sleep,
            woken_by(0, None),
        ));
    }
    rows.sort_by_key(|row| row.time);
    let mut graph = Graph::new();
    are_born(&mut graph, &rows);
    rows.iter().for_each(|row| graph.event(row));
    let chains = graph.finish(&HashSet::new());
    let of = |idleness, task: &str| {
        let own = chains
            .waiting
            .iter()
            .filter(|w| w.task == task && w.idleness == idleness);
        own.map(|w| w.total_ns / MS).sum::<u64>()
    };
    let lost = of(Idleness::Stalled, "t1");
    assert!(lost >= 16 * 42, "{lost}: {:#?}", chains.waiting);
}
