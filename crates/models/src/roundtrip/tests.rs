//! Figures of the probe and of mail 002, what always adds up, and small cases by hand.
//!
//! In the diagrams a row is a task, a column a moment: `C` and `S` run, `.` sleeps, `r` waits for the CPU.

use proptest::prelude::*;
use stopgap_events::units::Nanos;

use stopgap_events::roundtrip::{ClientPolicy, ClientWait, Kernel, Reply, Wait};

use super::*;

fn counted(cell: &Cell, rules: Rules) -> Outcome {
    run(cell, rules, &Prices::default(), 2_000, 1, &|| false).expect("a cell that makes sense")
}

fn mean(cell: &Cell) -> f64 {
    counted(cell, Rules::Linux6_12)
        .mean()
        .expect("2,000 round trips")
}

/// How often a round trip, of that side, for that reason.
fn share(outcome: &Outcome, side: Side, why: Why) -> f64 {
    let count = outcome.causes.get(&Cause { side, why }).copied();
    outcome.per_round_trip(count.unwrap_or(0)).unwrap()
}

fn reading(work: Nanos) -> Cell {
    Cell {
        client: ClientWait::Read,
        work,
        ..Cell::PLAIN
    }
}

/// Steps without spread, all by hand.
fn exact() -> Prices {
    Prices {
        spread_per_cent: 0,
        ..Prices::default()
    }
}

/// Measured on Linux 6.18, one CPU (docs/questions/roundtrip.md), from one list of prices. The reader's figures come
/// of one mechanism: a round trip of 2 puts the client behind by what the server did meanwhile, each of 4 uses up what
/// the client does itself. A write a reply is the same: without work a reply costs the client more CPU time than the
/// server, so it catches up and lets the server finish; with 5 us of work it stays behind and pre-empts each time.
#[test]
fn the_probes_figures_within_25_per_cent() {
    let many = |client, reply, work| Cell {
        client,
        batch: 32,
        reply,
        work: Nanos::micros(work),
        ..Cell::PLAIN
    };
    let polling = |work| Cell {
        work,
        ..Cell::PLAIN
    };
    let measured = [
        (polling(Nanos(0)), 2.00),
        (polling(Nanos::millis(1)), 2.01),
        (reading(Nanos(0)), 2.72),
        (reading(Nanos::micros(5)), 3.74),
        (reading(Nanos::micros(50)), 3.71),
        (reading(Nanos::millis(1)), 3.99),
        (many(ClientWait::Poll, Reply::Together, 0), 2.00),
        (many(ClientWait::Read, Reply::Together, 0), 2.92),
        (many(ClientWait::Poll, Reply::Each, 0), 11.7),
        (many(ClientWait::Epoll, Reply::Each, 0), 11.2),
        (many(ClientWait::Read, Reply::Each, 0), 14.2),
        (many(ClientWait::Poll, Reply::Each, 5), 55.7),
        (many(ClientWait::Read, Reply::Each, 5), 52.5),
        (many(ClientWait::Poll, Reply::Each, 20), 58.1),
        (many(ClientWait::Read, Reply::Each, 20), 57.3),
    ];
    for (cell, measured) in measured {
        let modelled = mean(&cell);
        let factor = modelled / measured;
        assert!(
            (0.75..=1.25).contains(&factor),
            "{cell}: {modelled}, measured {measured}"
        );
    }
}

/// Where a reply costs both sides nearly the same CPU time, a tenth more or less of it decides: both figures are
/// told. Elsewhere there is one.
#[test]
fn a_bistable_cell_has_both_figures() {
    let note = |work| {
        let cell = Cell {
            batch: 32,
            reply: Reply::Each,
            work,
            ..Cell::PLAIN
        };
        let by = |prices: &Prices| {
            run(&cell, Rules::Linux6_12, prices, 500, 1, &|| false)
                .expect("a cell that makes sense")
        };
        let prices = Prices::default();
        let outcomes = [0, -10, 10].map(|per_cent| by(&prices.nudged(per_cent)));
        let mut told = row(&cell, Rules::Linux6_12, &outcomes[0], None);
        note_bistable(&mut told, [&outcomes[0], &outcomes[1], &outcomes[2]]);
        told.missing
    };
    let missing = note(Nanos::micros(1));
    assert!(missing[0].why.starts_with("bistable: "), "{missing:?}");
    assert_eq!(note(Nanos::micros(20)), []);
}

/// The reader's figures are the mechanism's, not the prices': with half and with twice of a price they stay near.
#[test]
fn half_and_twice_of_a_price_change_little() {
    let measured = [
        (reading(Nanos(0)), 2.72),
        (reading(Nanos::micros(50)), 3.71),
        (
            Cell {
                batch: 32,
                reply: Reply::Each,
                ..reading(Nanos::micros(20))
            },
            57.3,
        ),
    ];
    let prices: [fn(&mut Prices) -> &mut u64; 5] = [
        |prices| &mut prices.switch,
        |prices| &mut prices.wake,
        |prices| &mut prices.server_loop,
        |prices| &mut prices.client_loop,
        |prices| &mut prices.descriptor,
    ];
    for (index, price) in prices.iter().enumerate() {
        for (times, over) in [(1, 2), (2, 1)] {
            let mut changed = Prices::default();
            let price = price(&mut changed);
            *price = *price * times / over;
            for (cell, measured) in &measured {
                let outcome = run(cell, Rules::Linux6_12, &changed, 2_000, 1, &|| false);
                let factor = outcome.unwrap().mean().unwrap() / measured;
                let what = format!("price {index} x{times}/{over}, {cell}: {factor}");
                assert!((0.75..1.35).contains(&factor), "{what}");
            }
        }
    }
}

/// Measured: client blocked 0.93, pre-empted 0.43, server blocked 0.64, pre-empted 0.72.
#[test]
fn the_readers_switches_are_the_measured_kinds() {
    let outcome = counted(&reading(Nanos(0)), Rules::Linux6_12);
    let of = |side, voluntary| {
        let causes = outcome.causes.iter();
        let those = causes.filter(|(c, _)| c.side == side && c.voluntary() == voluntary);
        outcome.per_round_trip(those.map(|(_, n)| n).sum()).unwrap()
    };
    for (side, voluntary, measured) in [
        (Side::Client, true, 0.93),
        (Side::Client, false, 0.43),
        (Side::Server, true, 0.64),
        (Side::Server, false, 0.72),
    ] {
        let modelled = of(side, voluntary);
        assert!(
            (modelled - measured).abs() < 0.15,
            "{side} {voluntary}: {modelled}"
        );
    }
}

/// "0.96 such wakes per round trip against 0 for poll clients".
#[test]
fn room_wakes_a_reader_and_no_poller() {
    let reader = counted(&reading(Nanos::micros(50)), Rules::Linux6_12);
    let wakes = reader.per_round_trip(reader.room_wakes).unwrap();
    assert!((0.9..=1.0).contains(&wakes), "{wakes}");
    for client in [ClientWait::Poll, ClientWait::Epoll] {
        let cell = Cell {
            client,
            ..reading(Nanos::micros(50))
        };
        assert_eq!(counted(&cell, Rules::Linux6_12).room_wakes, 0, "{cell}");
    }
}

#[test]
fn a_batch_client_pre_empts_nobody() {
    let batch = Cell {
        policy: ClientPolicy::Batch,
        batch: 32,
        reply: Reply::Each,
        ..Cell::PLAIN
    };
    let modelled = mean(&batch);
    assert!((2.0..2.15).contains(&modelled), "{modelled}, measured 2.05");
    assert!(
        mean(&Cell {
            policy: ClientPolicy::Other,
            work: Nanos::micros(20),
            ..batch
        }) > 40.0
    );
}

/// Mail 002 at its worst, and each of what would have helped.
///
/// ```text
///            1 writev  2 slice   3 poll   4 select   5 slice   6 select again
/// client  CCC|rrrrrrrrr|C.........................|CCCC|rrrrrrrr|CCC
/// server  ...|SSSSSSSSS|rr|SSSSSSSSSSSSSSSSSSSSSSS|..rr|SSSSSSSS|...
///                                     reply ^       ^ the client's read: room
/// ```
#[test]
fn six_switches_a_request_in_the_mails_worst_case() {
    let with = |keyed, preempt| {
        let kernel = Kernel {
            keyed,
            preempt,
            merge: true,
        };
        counted(
            &Cell {
                kernel,
                ..Cell::MAIL
            },
            Rules::Linux2_6_35,
        )
    };
    let worst = with(false, true);
    let switches = worst.mean().unwrap();
    assert!(
        (5.8..=6.2).contains(&switches),
        "{switches}: {:?}",
        worst.causes
    );
    for (side, why) in [
        (Side::Client, Why::PreemptedAfterWrite),
        (Side::Server, Why::SliceOver),
        (Side::Client, Why::Blocks),
        (Side::Server, Why::Blocks),
        (Side::Client, Why::SliceOver),
        (Side::Server, Why::BlocksAgain),
    ] {
        let share = share(&worst, side, why);
        assert!((0.9..1.1).contains(&share), "{side} {why:?}: {share}");
    }
    let keyed = with(true, true).mean().unwrap();
    assert!((3.8..4.2).contains(&keyed), "{keyed}");
    let ideal = with(true, false).mean().unwrap();
    assert!((2.0..2.05).contains(&ideal), "{ideal}");
}

/// The mail's third case by itself: short requests, a server that has all its credit when the client reads.
///
/// ```text
/// client  CCC|rrrrrr|CC|rrrr|CCC     written, pre-empted; read, pre-empted
/// server  ...|SSSSSS|..|SSSS|...     answers, sleeps; woken for room, looks at 50 descriptors, sleeps
/// ```
#[test]
fn an_unkeyed_wake_up_pre_empts_the_reader_of_the_answer() {
    let cell = Cell {
        work: Nanos::micros(500),
        ..Cell::MAIL
    };
    let outcome = counted(&cell, Rules::Linux2_6_35);
    assert!(
        (outcome.mean().unwrap() - 4.0).abs() < 0.05,
        "{:?}",
        outcome.causes
    );
    let preempted = share(&outcome, Side::Client, Why::PreemptedAfterRead);
    assert!((preempted - 1.0).abs() < 0.05, "{preempted}");
}

/// Nobody pre-empts, by either rules; two switches, each with one reason.
///
/// ```text
/// client  CC|....|CC|....|    writes, blocks in poll
/// server  r.|SSSS|r.|SSSS|    answers, blocks in poll
/// ```
#[test]
fn without_pre_emption_a_round_trip_is_two_blocks() {
    for &rules in Rules::ALL {
        let mut cell = Cell::PLAIN;
        cell.kernel.preempt = false;
        let outcome = run(&cell, rules, &exact(), 10, 1, &|| false).unwrap();
        assert_eq!(outcome.switches, [2; 10], "{rules}");
        assert!(
            outcome.causes.keys().all(|cause| cause.why == Why::Blocks),
            "{rules}"
        );
        // The client: write, wait, switch, look, read, its own. The server: the same, without its own.
        let Prices {
            write_enter,
            write_leave,
            wake,
            wait_enter,
            descriptor,
            ..
        } = exact();
        let Prices {
            switch,
            look_again,
            wait_leave,
            read_enter,
            read_leave,
            ..
        } = exact();
        let both = write_enter + wake + write_leave + wait_enter + descriptor;
        let both = both + switch + look_again + descriptor + wait_leave + read_enter + read_leave;
        let all = 2 * both + exact().client_loop;
        assert_eq!(outcome.cpu_ns, 10 * all, "{rules}");
    }
}

/// On two CPUs nobody is in the other's way: a reader is woken for room and sleeps again, while the server works.
///
/// ```text
/// client  C.....C.......C    blocks; woken for room, blocks again; reads the answer
/// server  ..SSSSSSSSSSSS..   reads (room), works, answers, blocks
/// ```
#[test]
fn two_cpus() {
    let two = |cell| {
        mean(&Cell {
            cpus: Cpus::Two,
            ..cell
        })
    };
    assert!((two(Cell::PLAIN) - 2.0).abs() < 0.01);
    assert!((two(reading(Nanos::micros(50))) - 3.0).abs() < 0.01);
    // Before the server has looked at all descriptors, the next request is there: it never sleeps.
    let busy = Cell {
        server: Wait::Select,
        descriptors: 500,
        ..Cell::PLAIN
    };
    assert!((two(busy) - 1.0).abs() < 0.01);
}

/// A writev that wakes a message at a time wakes the server for the first, and finds it awake for the rest.
#[test]
fn a_wake_up_a_message_costs_wake_ups() {
    let mut cell = Cell {
        batch: 8,
        cpus: Cpus::Two,
        ..Cell::PLAIN
    };
    let merged = counted(&cell, Rules::Linux6_12);
    cell.kernel.merge = false;
    let each = counted(&cell, Rules::Linux6_12);
    assert!(each.cpu_ns > merged.cpu_ns);
    assert!(
        each.mean() >= merged.mean(),
        "{:?} {:?}",
        each.causes,
        merged.causes
    );
}

#[test]
fn the_same_seed_gives_the_same_and_stopping_gives_what_there_is() {
    let cell = reading(Nanos(0));
    let of = |seed| {
        run(
            &cell,
            Rules::Linux6_12,
            &Prices::default(),
            500,
            seed,
            &|| false,
        )
        .unwrap()
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    let stopped = run(
        &cell,
        Rules::Linux6_12,
        &Prices::default(),
        u64::MAX,
        1,
        &|| true,
    )
    .unwrap();
    assert!(stopped.round_trips() < 100_000);
}

#[test]
fn nonsense_is_refused() {
    type Change = fn(&mut Cell);
    let changes: [(Change, &str); 6] = [
        (|cell| cell.batch = 0, "1 to 256"),
        (|cell| cell.batch = 257, "batch of 257"),
        (|cell| cell.descriptors = 0, "K of 0"),
        (|cell| cell.work = Nanos(u64::MAX), "at most 1 s"),
        (|cell| cell.think = Nanos::secs(2), "at most 1 s"),
        (|cell| cell.cpus = Cpus::Free, "placed freely"),
    ];
    for (change, says) in changes {
        let mut cell = Cell::PLAIN;
        change(&mut cell);
        let outcome = run(&cell, Rules::Linux6_12, &exact(), 1, 1, &|| false);
        let why = outcome.unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

fn cells() -> impl Strategy<Value = Cell> {
    fn of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
        proptest::sample::select(all)
    }
    let times = || of(&[0, 1_000, 40_000, 3_950_000]);
    let programs = (
        of(ClientWait::ALL),
        of(Wait::ALL),
        of(Reply::ALL),
        of(&[1, 2, 7, 32]),
    );
    let placed = (
        of(&[Cpus::One, Cpus::Two]),
        of(ClientPolicy::ALL),
        of(&[1, 50, 500]),
        times(),
        times(),
    );
    (programs, placed, any::<[bool; 3]>()).prop_map(|(programs, placed, kernel)| Cell {
        client: programs.0,
        server: programs.1,
        reply: programs.2,
        batch: programs.3,
        cpus: placed.0,
        policy: placed.1,
        descriptors: placed.2,
        work: Nanos(placed.3),
        think: Nanos(placed.4),
        kernel: Kernel {
            keyed: kernel[0],
            preempt: kernel[1],
            merge: kernel[2],
        },
    })
}

proptest! {
    /// Causes add up to switches; every block has its wake-up, except for tasks that sleep at an edge of the counted time;
    /// nobody is woken for room who polls for input with a key; wake-ups without pre-emption pre-empt nobody.
    #[test]
    fn what_always_holds(cell in cells(), rules in proptest::sample::select(Rules::ALL), seed: u64) {
        let outcome = run(&cell, rules, &Prices::default(), 50, seed, &|| false).unwrap();
        prop_assert_eq!(outcome.round_trips(), 50);
        let by_cause: u64 = outcome.causes.values().sum();
        prop_assert_eq!(by_cause, outcome.total());
        let blocks: u64 = outcome.causes.iter().filter(|(c, _)| c.voluntary()).map(|(_, n)| n).sum();
        let wakes = outcome.data_wakes + outcome.room_wakes;
        prop_assert!(blocks.abs_diff(wakes) <= 2, "{} blocks, {} wakes", blocks, wakes);
        if cell.kernel.keyed && cell.client != ClientWait::Read {
            prop_assert_eq!(outcome.room_wakes, 0);
        }
        if !cell.kernel.preempt {
            let woken = |why| matches!(why, Why::PreemptedAfterWrite | Why::PreemptedAfterRead);
            prop_assert!(!outcome.causes.keys().any(|cause| woken(cause.why)), "{:?}", outcome.causes);
        }
        if cell.cpus == Cpus::Two {
            prop_assert!(outcome.causes.keys().all(|cause| cause.voluntary()), "{:?}", outcome.causes);
        }
        // Work and thinking are exact, and CPU time is spent in no more than all CPUs.
        let told = 50 * (u64::from(cell.batch) * cell.work.0 + cell.think.0);
        prop_assert!(outcome.cpu_ns + cell.work.0 * u64::from(cell.batch) >= told);
        prop_assert!(outcome.cpu_ns <= 2 * outcome.elapsed_ns);
    }
}
