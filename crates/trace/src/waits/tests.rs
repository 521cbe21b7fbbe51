//! The oracle is a scheduler in miniature: it knows the true waits and writes the rows that a kernel would.

use std::collections::{HashMap, HashSet};

use stopgap_events::random::Random;

use super::*;

const SEEDS: u64 = 100;
const STEPS: u64 = 400;
const BEGIN: u64 = 1_000;

fn comm(tid: u32) -> Text {
    format!("t{tid}").into()
}

fn task(tid: u32) -> Task {
    Task {
        tid,
        comm: Some(comm(tid)),
    }
}

struct Simulated {
    place: Place,
    /// Its CPU.
    on: Option<u32>,
    /// The wait that it is in.
    wait: Option<Wait>,
}

/// A true wait, and the rows by which it shows.
struct Truth {
    tid: u32,
    /// On which CPU it ended.
    cpu: Option<u32>,
    time: u64,
    wait: Wait,
    /// Whether its thread had called something before.
    followed: bool,
    departure: Option<usize>,
    arrival: Option<usize>,
}

struct Scheduler {
    random: Random,
    now: u64,
    threads: HashMap<u32, Simulated>,
    departures: HashMap<u32, usize>,
    made: u32,
    cpus: Vec<Option<u32>>,
    rows: Vec<Event>,
    truth: Vec<Truth>,
}

impl Scheduler {
    /// Runs for some hundred steps.
    fn run(seed: u64) -> Scheduler {
        let mut random = Random::new(seed);
        let cpus = 1 + random.index(4);
        let mut all = Scheduler {
            random,
            now: BEGIN,
            threads: HashMap::new(),
            departures: HashMap::new(),
            made: 10,
            cpus: vec![None; cpus],
            rows: Vec::new(),
            truth: Vec::new(),
        };
        let name = "mappings".into();
        all.row(0, None, Kind::Counter { name, value: 1 });
        for _ in 0..2 + cpus * 2 {
            let wait = Wait {
                left: Nanos(BEGIN),
                began_before: true,
                ..Wait::default()
            };
            all.add(wait);
        }
        for _ in 0..STEPS {
            all.step();
        }
        let mut open: Vec<u32> = all.threads.keys().copied().collect();
        open.sort_unstable();
        for tid in open {
            if let Some(wait) = all.threads.get_mut(&tid).and_then(|t| t.wait.take())
                && (wait.woken.is_some() || !wait.began_before)
            {
                all.over(tid, None, wait, None);
            }
        }
        all
    }

    fn add(&mut self, wait: Wait) -> u32 {
        self.made += 1;
        let thread = Simulated {
            place: Place::Unknown,
            on: None,
            wait: Some(wait),
        };
        self.threads.insert(self.made, thread);
        self.made
    }

    fn row(&mut self, tid: u32, cpu: Option<u32>, kind: Kind) {
        self.rows.push(Event {
            time: Nanos(self.now),
            cpu,
            pid: None,
            tid: Some(tid),
            comm: Some(comm(tid)),
            kind,
        });
    }

    fn over(&mut self, tid: u32, cpu: Option<u32>, wait: Wait, arrival: Option<usize>) {
        let followed = self.threads.get(&tid);
        self.truth.push(Truth {
            tid,
            cpu,
            time: self.now,
            wait,
            followed: followed.is_some_and(|t| !matches!(t.place, Place::Unknown)),
            departure: self.departures.remove(&tid),
            arrival,
        });
    }

    /// Threads whose wait is such.
    fn which(&self, is: impl Fn(&Wait) -> bool) -> Vec<u32> {
        let of = |(tid, thread): (&u32, &Simulated)| {
            thread.wait.as_ref().is_some_and(&is).then_some(*tid)
        };
        let mut tids: Vec<u32> = self.threads.iter().filter_map(of).collect();
        tids.sort_unstable();
        tids
    }

    fn one_of(&mut self, tids: &[u32]) -> Option<u32> {
        (!tids.is_empty()).then(|| tids[self.random.index(tids.len())])
    }

    fn asleep(&mut self) -> Option<u32> {
        let asleep = self.which(|wait| wait.woken.is_none() && wait.state != Some(State::Runnable));
        self.one_of(&asleep)
    }

    fn runnable(&mut self) -> Option<u32> {
        let ready = self.which(|wait| {
            wait.woken.is_some() || wait.state == Some(State::Runnable) || wait.began_before
        });
        self.one_of(&ready)
    }

    fn step(&mut self) {
        self.now += 1 + self.random.below(50);
        let cpu = self.random.index(self.cpus.len());
        let number = cpu as u32;
        let Some(tid) = self.cpus[cpu] else {
            return match self.random.below(2) {
                0 => self.wakes(0, number),
                _ => self.switch(number, 0, None),
            };
        };
        match self.random.below(12) {
            0..4 => self.calls(tid),
            4..6 => self.wakes(tid, number),
            6..8 => {
                let states = [
                    ("S", State::Sleeping),
                    ("D", State::Blocked),
                    ("T", State::Stopped),
                ];
                let state = states[self.random.index(states.len())];
                self.switch(number, tid, Some((state.0, state.1, false)));
            }
            8..10 => {
                let plus = self.random.below(2) == 0;
                self.switch(number, tid, Some(("R", State::Runnable, plus)));
            }
            10 if self.threads.len() < 12 => self.forks(tid, number),
            _ if self.random.below(4) == 0 => {
                self.row(tid, Some(number), Kind::Exit { priority: None });
                self.now += 1;
                self.switch(number, tid, Some(("Z", State::Dead, false)));
            }
            _ => {}
        }
    }

    /// A call begins or ends.
    fn calls(&mut self, tid: u32) {
        let names = ["read", "write", "sched_yield", "poll"];
        let number = self.random.index(names.len());
        let name = Some(Text::from(names[number]));
        let argument = self.random.below(9);
        let thread = self.threads.get_mut(&tid).unwrap();
        let on = thread.on;
        let kind = match &thread.place {
            Place::In(call) => Kind::SyscallExit {
                number: call.number,
                name: call.name.clone(),
                result: Some(0),
            },
            _ => Kind::SyscallEnter {
                number: number as u32,
                name: name.clone(),
                arguments: [Some(argument), None, Some(1), None, None, None],
            },
        };
        thread.place = match thread.place {
            Place::In(_) => Place::User,
            _ => Place::In(Call {
                number: number as u32,
                name,
                arguments: [Some(argument), None, Some(1)],
            }),
        };
        self.row(tid, on, kind);
    }

    fn waker(&self, tid: u32) -> Waker {
        let (context, call) = match self.threads.get(&tid).map(|thread| &thread.place) {
            None | Some(Place::User) => (Some(Context::Interrupt), None),
            Some(Place::In(call)) => (None, Some(call.clone())),
            Some(Place::Unknown) => (None, None),
        };
        Waker {
            task: task(tid),
            context,
            call,
        }
    }

    fn wakes(&mut self, by: u32, cpu: u32) {
        let Some(target_tid) = self.asleep() else {
            return;
        };
        let known = match self.random.below(4) {
            0 => Some(Context::Task),
            1 => Some(Context::Softirq),
            2 => Some(Context::Interrupt),
            _ => None,
        };
        let kind = Kind::Waking {
            target_tid,
            target_comm: Some(comm(target_tid)),
            target_priority: None,
            target_cpu: None,
            waker_context: known,
        };
        self.row(by, Some(cpu), kind);
        let now = Nanos(self.now);
        let mut waker = self.waker(by);
        waker.context = known.or(waker.context);
        let wait = self
            .threads
            .get_mut(&target_tid)
            .unwrap()
            .wait
            .as_mut()
            .unwrap();
        wait.woken = Some(now);
        wait.waker = Some(waker);
    }

    fn forks(&mut self, by: u32, cpu: u32) {
        let waker = Some(self.waker(by));
        let left = Nanos(self.now + 1);
        let new = self.add(Wait {
            left,
            state: Some(State::Runnable),
            within: Some(Within::New),
            waker,
            ..Wait::default()
        });
        let fork = Kind::Fork {
            target_tid: new,
            target_pid: None,
            target_comm: Some(comm(new)),
        };
        self.row(by, Some(cpu), fork);
        self.now += 1;
        self.departures.insert(new, self.rows.len());
        let new = Kind::New {
            target_tid: new,
            target_comm: Some(comm(new)),
            target_priority: None,
            target_cpu: None,
        };
        self.row(by, Some(cpu), new);
    }

    /// `from` leaves, one that can run comes, and does something.
    fn switch(&mut self, cpu: u32, from: u32, leaves: Option<(&str, State, bool)>) {
        let next = self.runnable();
        if from == 0 && next.is_none() {
            return;
        }
        let to = next.unwrap_or(0);
        let at = self.rows.len();
        let (letter, _, plus) = leaves.unwrap_or(("R", State::Runnable, false));
        let kind = Kind::Switch {
            state: Some(letter.into()),
            preempted: Some(plus),
            priority: Some(120),
            next_tid: Some(to),
            next_comm: Some(comm(to)),
            next_priority: None,
            stack: None,
        };
        self.row(from, Some(cpu), kind);
        if let Some((_, state, plus)) = leaves {
            let thread = self.threads.get_mut(&from).unwrap();
            let (within, call) = match &thread.place {
                Place::In(call) => (Some(Within::Call), Some(call.clone())),
                Place::User => (Some(Within::User), None),
                Place::Unknown => (None, None),
            };
            let yields = call.as_ref().and_then(|call| call.name.as_deref()) == Some("sched_yield");
            let wait = Wait {
                left: Nanos(self.now),
                left_cpu: Some(cpu),
                state: Some(state),
                preempted: match state {
                    State::Runnable if plus => Some(true),
                    State::Runnable if within.is_none() => None,
                    State::Runnable => Some(!yields),
                    _ => Some(false),
                },
                priority: Some(120),
                within,
                call,
                next: Some(task(to)),
                ..Wait::default()
            };
            thread.on = None;
            self.departures.insert(from, at);
            if state == State::Dead {
                self.over(from, Some(cpu), wait, None);
                self.threads.remove(&from);
            } else {
                thread.wait = Some(wait);
            }
        }
        self.cpus[cpu as usize] = next;
        let Some(to) = next else { return };
        let thread = self.threads.get_mut(&to).unwrap();
        thread.on = Some(cpu);
        let mut wait = thread.wait.take().unwrap();
        wait.ran = Some(Nanos(self.now));
        wait.previous = Some(task(from));
        self.over(to, Some(cpu), wait, Some(at));
        self.now += 1;
        self.calls(to);
    }
}

/// Thread, CPU, time and wait.
type Made = (u32, Option<u32>, u64, Wait);

/// The waits that are made of rows, with thread, CPU and time; and the doubts.
fn made(rows: impl Iterator<Item = Event>, end: u64) -> (Vec<Made>, u64) {
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    rows.for_each(|row| waits.event(row, &mut out));
    let doubts = waits.doubts();
    waits.finish(Nanos(end), &mut out);
    assert!(out.iter().is_sorted_by_key(|event| event.time));
    let of = |event: Event| {
        let tid = event.tid.unwrap();
        assert_eq!(event.comm, Some(comm(tid)));
        match event.kind {
            Kind::Wait(wait) => Some((tid, event.cpu, event.time.0, *wait)),
            kind => {
                assert!(!matches!(kind.word(), "switch" | "waking" | "new"));
                None
            }
        }
    };
    (out.into_iter().filter_map(of).collect(), doubts)
}

#[test]
fn the_waits_are_those_of_the_scheduler() {
    let mut waits = 0;
    for seed in 0..SEEDS {
        let all = Scheduler::run(seed);
        let (made, doubts) = made(all.rows.iter().cloned(), all.now);
        let truth: Vec<_> = (all.truth.into_iter())
            .map(|truth| (truth.tid, truth.cpu, truth.time, truth.wait))
            .collect();
        assert_eq!(made, truth, "seed {seed}");
        assert_eq!(doubts, 0, "seed {seed}");
        waits += made.len();
    }
    assert!(waits > 3_000, "{waits}");
}

/// Panics where a field of `wait` that is `Some` differs.
fn agrees(wait: &Wait, truth: &Wait, what: &str) {
    macro_rules! agree {
        ($($field:ident)*) => {$(
            assert!(wait.$field.is_none() || wait.$field == truth.$field, "{what}: {wait:?} {truth:?}");
        )*};
    }
    agree!(woken ran left_cpu state preempted within call next previous waker);
}

/// Every stay on a CPU has an event besides the switches, so that what is missing shows.
#[test]
fn rows_that_are_missing_make_no_wait_wrong() {
    let (mut exact, mut doubtful) = (0_u64, 0);
    for seed in 0..SEEDS {
        let all = Scheduler::run(seed);
        let mut random = Random::new(seed ^ 0xd20);
        let one_in = 2 + random.below(40);
        let of_scheduling = |row: &Event| matches!(row.kind.word(), "switch" | "waking" | "new");
        let dropped: HashSet<usize> = (all.rows.iter().enumerate())
            .filter(|(_, row)| of_scheduling(row) && random.below(one_in) == 0)
            .map(|(index, _)| index)
            .collect();
        let kept = all.rows.iter().enumerate();
        let kept = kept
            .filter(|(index, _)| !dropped.contains(index))
            .map(|(_, row)| row.clone());
        let (made, doubts) = made(kept, all.now);
        for (tid, cpu, time, wait) in &made {
            let what = format!("seed {seed}, thread {tid}");
            let mut of_it = all.truth.iter().filter(|truth| truth.tid == *tid);
            let found = if wait.ran.is_some() {
                of_it.find(|truth| truth.wait.ran == wait.ran)
            } else if wait.began_before {
                let woken = |truth: &Wait| wait.woken.is_none() || truth.woken == wait.woken;
                of_it.find(|truth| truth.wait.left >= wait.left && woken(&truth.wait))
            } else {
                of_it.find(|truth| truth.wait.left == wait.left)
            };
            let Some(truth) = found else {
                panic!("{what}: no such wait: {wait:?}");
            };
            if wait.began_before {
                assert!(
                    wait.state.is_none() && wait.left <= truth.wait.left,
                    "{what}: {wait:?}"
                );
                agrees(wait, &truth.wait, &what);
            } else {
                assert_eq!(wait.left, truth.wait.left, "{what}");
                agrees(wait, &truth.wait, &what);
            }
            if wait.ran.is_some() {
                assert_eq!((*cpu, *time), (truth.cpu, truth.time), "{what}");
                exact += u64::from(*wait == truth.wait);
            }
        }
        let is = |row: Option<usize>| row.map(|row| dropped.contains(&row));
        let half = |truth: &&Truth| {
            let (departure, arrival) = (is(truth.departure), is(truth.arrival));
            truth.followed
                && truth.wait.within != Some(Within::New)
                && departure.zip(arrival).is_some_and(|(d, a)| d != a)
        };
        let least = all.truth.iter().filter(half).count() as u64;
        assert!(doubts >= least, "seed {seed}: {doubts} counted of {least}");
        doubtful += doubts;
    }
    assert!(exact > 1_500 && doubtful > 300, "{exact} {doubtful}");
}

/// Thread, left, woken, ran, and whether it began before.
type Times = (u32, u64, Option<u64>, Option<u64>, bool);

fn event((time, cpu, tid, kind): (u64, u32, u32, Kind)) -> Event {
    Event {
        time: Nanos(time),
        cpu: Some(cpu),
        pid: None,
        tid: Some(tid),
        comm: Some(comm(tid)),
        kind,
    }
}

/// What `rows` of time, CPU, thread and kind make.
fn told(rows: &[(u64, u32, u32, Kind)]) -> (Vec<Times>, u64) {
    let (made, doubts) = made(rows.iter().cloned().map(event), 100);
    let times = |(tid, _, _, wait): &Made| {
        let (woken, ran) = (wait.woken.map(|at| at.0), wait.ran.map(|at| at.0));
        (*tid, wait.left.0, woken, ran, wait.began_before)
    };
    (made.iter().map(times).collect(), doubts)
}

/// A thread goes to sleep and `to` gets its CPU.
fn switch(to: u32) -> Kind {
    Kind::Switch {
        state: Some("S".into()),
        preempted: None,
        priority: None,
        next_tid: Some(to),
        next_comm: Some(comm(to)),
        next_priority: None,
        stack: None,
    }
}

#[test]
fn what_shows_that_rows_are_missing() {
    let calls = || Kind::SyscallEnter {
        number: 0,
        name: None,
        arguments: [None; 6],
    };
    let wakes = |target_tid| Kind::Waking {
        target_tid,
        target_comm: None,
        target_priority: None,
        target_cpu: None,
        waker_context: None,
    };
    let first = (11, 10, None, Some(10), true);
    // Another thread acts where it should run.
    let rows = [
        (10, 0, 0, switch(11)),
        (20, 0, 11, calls()),
        (30, 0, 12, calls()),
    ];
    assert_eq!(told(&rows), (vec![first, (11, 20, None, None, true)], 1));
    // It acts on another CPU; then somebody else gets the first one.
    let rows = [
        (10, 0, 0, switch(11)),
        (20, 0, 11, calls()),
        (30, 1, 11, calls()),
        (40, 0, 12, calls()),
        (50, 1, 11, switch(0)),
    ];
    let open = (11, 50, None, None, false);
    assert_eq!(
        told(&rows),
        (vec![first, (11, 20, None, None, true), open], 1)
    );
    // It is off its CPU and acts. The second waking is of no sleep that is known.
    let rows = [
        (10, 0, 0, switch(11)),
        (20, 0, 11, calls()),
        (30, 0, 11, switch(0)),
        (40, 0, 0, wakes(11)),
        (50, 0, 0, wakes(11)),
        (60, 0, 11, calls()),
    ];
    assert_eq!(
        told(&rows),
        (vec![first, (11, 30, Some(40), None, false)], 1)
    );
}

/// Another CPU wakes a thread that is off its queue, before its own CPU tells of the switch.
#[test]
fn a_thread_that_is_woken_on_its_way_out_was_woken_when_it_left() {
    let wakes = || Kind::Waking {
        target_tid: 11,
        target_comm: None,
        target_priority: None,
        target_cpu: None,
        waker_context: None,
    };
    let times = |woken: u64, again: Option<u64>| {
        let left = 2_000_000;
        let mut rows = vec![
            (10, 0, 0, switch(11)),
            (woken, 1, 12, wakes()),
            (left, 0, 11, switch(0)),
        ];
        rows.extend(again.map(|time| (time, 1, 13, wakes())));
        rows.push((left + 900, 0, 0, switch(11)));
        let (made, _) = made(rows.into_iter().map(event), 100);
        let wait = &made.iter().rfind(|(tid, ..)| *tid == 11).unwrap().3;
        assert_eq!((wait.left.0, wait.ran), (left, Some(Nanos(left + 900))));
        let waker = wait.waker.as_ref().map(|waker| waker.task.tid);
        (wait.woken.map(|woken| woken.0 - left), waker)
    };
    assert_eq!(times(1_999_990, None), (Some(0), Some(12)));
    assert_eq!(times(1_999_990, Some(2_000_500)), (Some(500), Some(13)));
    assert_eq!(times(999_999, None), (None, None), "of a sleep before");
}

/// A BPF program at a switch that reads the stack of the thread that leaves faults on its behalf: the thread is off its CPU all the same.
#[test]
fn a_fault_inside_a_switch_is_no_return() {
    let fault = |user| Kind::PageFault {
        address: 0,
        instruction_pointer: None,
        error_code: None,
        user: Some(user),
    };
    let rows = [
        (10, 0, 0, switch(11)),
        (20, 0, 11, fault(true)),
        (30, 0, 11, switch(12)),
        (31, 0, 11, fault(false)),
        (32, 0, 11, fault(false)),
        (40, 0, 12, fault(false)),
        (50, 0, 12, switch(11)),
        (60, 0, 11, switch(0)),
    ];
    let first = [11, 12].map(|tid| (tid, if tid == 11 { 10 } else { 30 }, true));
    let (made, doubts) = told(&rows);
    let began_before = made.iter().filter(|wait| wait.4);
    let began_before: Vec<_> = began_before
        .map(|&(tid, _, _, ran, began)| (tid, ran.unwrap(), began))
        .collect();
    assert_eq!((began_before, doubts), (first.to_vec(), 0));
    assert!(made.contains(&(11, 30, None, Some(50), false)), "{made:?}");
    // Its return was not seen: what it does next says so.
    let rows = [
        (10, 0, 0, switch(11)),
        (20, 0, 11, fault(true)),
        (30, 0, 11, switch(12)),
        (40, 0, 11, fault(true)),
    ];
    assert_eq!(told(&rows).1, 1);
}

/// Records of perf: one side each, no states, and nothing after an exit.
#[test]
fn one_side_at_a_time() {
    let side = |time, leaves: Option<bool>, comes: Option<u32>| Event {
        time: Nanos(time),
        cpu: Some(0),
        pid: None,
        tid: leaves.map(|_| 11),
        comm: None,
        kind: Kind::Switch {
            state: None,
            preempted: leaves,
            priority: None,
            next_tid: comes,
            next_comm: None,
            next_priority: None,
            stack: None,
        },
    };
    let exit = Event {
        kind: Kind::Exit { priority: None },
        tid: Some(11),
        pid: Some(9),
        ..side(90, None, None)
    };
    let rows = [
        side(10, None, Some(11)),
        side(20, Some(false), None),
        side(50, None, Some(11)),
        side(60, Some(true), None),
        side(70, None, Some(11)),
        exit,
    ];
    let (mut waits, mut out) = (Waits::default(), VecDeque::new());
    rows.into_iter().for_each(|row| waits.event(row, &mut out));
    waits.finish(Nanos(500), &mut out);
    let told: Vec<_> = (out.iter())
        .filter_map(|event| match &event.kind {
            Kind::Wait(wait) => Some((
                wait.left.0,
                wait.ran.map(|ran| ran.0),
                wait.state,
                wait.preempted,
            )),
            _ => None,
        })
        .collect();
    let expected = [
        (10, Some(10), None, None),
        (20, Some(50), None, Some(false)),
        (60, Some(70), Some(State::Runnable), Some(true)),
        (90, None, Some(State::Dead), None),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        out.back().unwrap().pid,
        Some(9),
        "its process is known by then"
    );
}

/// Rows out of order: times of a wait stay in order, which a file demands.
#[test]
fn disorder_makes_no_wait_that_ends_before_it_begins() {
    for seed in 0..SEEDS {
        let mut rows = Scheduler::run(seed).rows;
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let (one, other) = (random.index(rows.len()), random.index(rows.len()));
            rows.swap(one, other);
        }
        let (mut waits, mut out) = (Waits::default(), VecDeque::new());
        rows.into_iter().for_each(|row| waits.event(row, &mut out));
        waits.finish(Nanos(0), &mut out);
        for event in &out {
            if let Kind::Wait(wait) = &event.kind {
                let woken = wait.woken.unwrap_or(wait.left);
                let in_order = wait.left <= woken && woken <= event.time;
                assert!(
                    in_order && wait.ran.is_none_or(|ran| ran == event.time),
                    "seed {seed}: {event:?}"
                );
            }
        }
    }
}
