//! A simulated machine that knows at each moment which thread keeps which waiting. It writes the rows that a kernel
//! would write, and the truth about each wait.

use std::collections::{BTreeMap, VecDeque};

use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, State, Task, Wait, Waker, Within};
use stopgap_trace::{Activity, Event, Kind, Span, Text};

/// The end of a chain, and the thread to which it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum End {
    Runs(u32),
    Behind(u32),
    Disk(u32),
    Slept(u32),
    Stopped(u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Run(u64),
    Lock(usize),
    Unlock(usize),
    /// A request to the disk that takes this long, and the wait for it.
    Sync(u64),
    /// A request for which nobody waits.
    Write(u64),
    Sleep(u64),
    Send(usize),
    Receive(usize),
    /// Starts a thread that was added with `child`.
    Fork(usize),
    Wait(usize),
    Stop(usize),
    Continue(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Unborn,
    Running,
    Runnable,
    Lock(usize),
    Disk,
    Sleep(u64),
    Receive(usize),
    Child(usize),
    Stopped(u32),
    Dead,
}

struct Thread {
    comm: Text,
    priority: i32,
    cpu: usize,
    script: Vec<Op>,
    next: usize,
    /// Nanoseconds left of the current `Run`.
    left: u64,
    at: At,
    wait: Wait,
    truth: BTreeMap<End, u64>,
    parent: Option<usize>,
}

#[derive(Default)]
struct Cpu {
    has: Option<usize>,
    slice: u64,
    queue: VecDeque<usize>,
    /// The thread that had the CPU before the current one.
    had: u32,
}

struct Request {
    by: usize,
    begin: u64,
    issued: u64,
    left: u64,
    waits: bool,
    sector: u64,
}

struct Channel {
    sender: usize,
    /// Whether a softirq in the sender's call wakes the receiver, as with a TCP connection within this machine.
    tcp: bool,
    count: u64,
    waits: Option<usize>,
}

#[derive(Default)]
struct Lock {
    owner: Option<usize>,
    waits: VecDeque<usize>,
}

/// The truth about a wait, and the row that shows the wait.
pub(super) struct Truth {
    pub(super) row: usize,
    pub(super) ends: BTreeMap<End, u64>,
}

pub(super) struct Machine {
    now: u64,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    locks: Vec<Lock>,
    channels: Vec<Channel>,
    disk: VecDeque<Request>,
    sectors: u64,
    pub(super) rows: Vec<Event>,
    pub(super) truth: Vec<Truth>,
}

const SLICE: u64 = 3_000_000;

fn tid(thread: usize) -> u32 {
    thread as u32 + 100
}

impl Machine {
    pub(super) fn new(cpus: usize, locks: usize) -> Machine {
        Machine {
            now: 1_000_000,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            threads: Vec::new(),
            locks: (0..locks).map(|_| Lock::default()).collect(),
            channels: Vec::new(),
            disk: VecDeque::new(),
            sectors: 0,
            rows: Vec::new(),
            truth: Vec::new(),
        }
    }

    pub(super) fn thread(
        &mut self,
        comm: &str,
        cpu: usize,
        priority: i32,
        script: Vec<Op>,
    ) -> usize {
        let index = self.add(comm, cpu, priority, script, At::Runnable);
        self.cpus[cpu].queue.push_back(index);
        index
    }

    /// Adds a thread that another one forks.
    pub(super) fn child(&mut self, comm: &str, cpu: usize, script: Vec<Op>) -> usize {
        self.add(comm, cpu, 120, script, At::Unborn)
    }

    fn add(&mut self, comm: &str, cpu: usize, priority: i32, script: Vec<Op>, at: At) -> usize {
        self.threads.push(Thread {
            comm: comm.into(),
            priority,
            cpu,
            script,
            next: 0,
            left: 0,
            at,
            wait: Wait {
                left: Nanos(self.now),
                state: Some(State::Runnable),
                ..Wait::default()
            },
            truth: BTreeMap::new(),
            parent: None,
        });
        self.threads.len() - 1
    }

    pub(super) fn set_script(&mut self, thread: usize, script: Vec<Op>) {
        self.threads[thread].script = script;
    }

    /// Adds a channel into which `sender` sends.
    pub(super) fn channel(&mut self, sender: usize, tcp: bool) -> usize {
        self.channels.push(Channel {
            sender,
            tcp,
            count: 0,
            waits: None,
        });
        self.channels.len() - 1
    }

    fn task(&self, thread: usize) -> Task {
        Task {
            tid: tid(thread),
            comm: Some(Text::clone(&self.threads[thread].comm)),
        }
    }

    fn task_of(&self, number: u32) -> Task {
        match number {
            0 => Task {
                tid: 0,
                comm: Some("swapper".into()),
            },
            number => self.task(number as usize - 100),
        }
    }

    /// Returns the end of the chain of a thread that is off its CPU at this moment.
    fn end(&self, thread: usize) -> End {
        let one = &self.threads[thread];
        match one.at {
            At::Running | At::Unborn | At::Dead => End::Runs(tid(thread)),
            At::Runnable => {
                let behind = self.cpus[one.cpu].has;
                End::Behind(behind.map_or(0, tid))
            }
            At::Lock(lock) => match self.locks[lock].owner {
                Some(owner) => self.end(owner),
                None => End::Runs(0),
            },
            At::Disk => End::Disk(tid(self.disk[0].by)),
            At::Sleep(_) => End::Slept(tid(thread)),
            At::Receive(channel) => self.end(self.channels[channel].sender),
            At::Child(child) => match self.threads[child].at {
                At::Unborn => self.end(self.threads[child].parent.unwrap_or(thread)),
                _ => self.end(child),
            },
            At::Stopped(by) => End::Stopped(by),
        }
    }

    /// Runs until all threads have ended, or until `end`.
    pub(super) fn run(&mut self, end: u64) {
        loop {
            // A thread that gets a CPU may wake another one at the same moment.
            for _ in 0..2 * self.threads.len() {
                for cpu in 0..self.cpus.len() {
                    self.schedule(cpu);
                }
            }
            let mut next = end;
            for cpu in &self.cpus {
                if let Some(has) = cpu.has {
                    let slice = if cpu.queue.is_empty() {
                        u64::MAX
                    } else {
                        cpu.slice
                    };
                    next = next.min(self.now + self.threads[has].left.min(slice));
                }
            }
            if let Some(request) = self.disk.front() {
                next = next.min(self.now + request.left);
            }
            for thread in &self.threads {
                if let At::Sleep(until) = thread.at {
                    next = next.min(until);
                }
            }
            let busy = !self.disk.is_empty()
                || self
                    .cpus
                    .iter()
                    .any(|cpu| cpu.has.is_some() || !cpu.queue.is_empty())
                || self
                    .threads
                    .iter()
                    .any(|one| matches!(one.at, At::Sleep(_)));
            if !busy || self.now >= end {
                return;
            }
            self.pass(next - self.now);
        }
    }

    /// Lets `ns` pass without a change, and then ends what is due.
    fn pass(&mut self, ns: u64) {
        for thread in 0..self.threads.len() {
            if !matches!(self.threads[thread].at, At::Running | At::Unborn | At::Dead) {
                let end = self.end(thread);
                *self.threads[thread].truth.entry(end).or_default() += ns;
            }
        }
        self.now += ns;
        if let Some(request) = self.disk.front_mut() {
            request.left -= ns;
        }
        for cpu in 0..self.cpus.len() {
            if let Some(has) = self.cpus[cpu].has {
                self.threads[has].left -= ns;
                self.cpus[cpu].slice = self.cpus[cpu].slice.saturating_sub(ns);
            }
        }
        if self.disk.front().is_some_and(|request| request.left == 0) {
            self.completes();
        }
        for thread in 0..self.threads.len() {
            if self.threads[thread].at == At::Sleep(self.now) {
                let waker = Waker {
                    task: self.task_of(0),
                    context: Some(Context::Interrupt),
                    call: None,
                };
                self.wake(thread, waker);
            }
        }
        for cpu in 0..self.cpus.len() {
            let Some(has) = self.cpus[cpu].has else {
                continue;
            };
            if self.threads[has].left == 0 {
                self.goes_on(has);
            } else if self.cpus[cpu].slice == 0 && !self.cpus[cpu].queue.is_empty() {
                self.preempt(cpu);
            }
        }
    }

    fn preempt(&mut self, cpu: usize) {
        let Some(has) = self.cpus[cpu].has else {
            return;
        };
        self.leaves(has, At::Runnable, State::Runnable, None);
        self.cpus[cpu].queue.push_back(has);
    }

    fn row(&mut self, thread: usize, kind: Kind) {
        self.rows.push(Event {
            time: Nanos(self.now),
            cpu: Some(self.threads[thread].cpu as u32),
            pid: Some(7),
            tid: Some(tid(thread)),
            comm: Some(Text::clone(&self.threads[thread].comm)),
            kind,
        });
    }

    /// Gives an idle CPU to the most urgent thread of its queue.
    fn schedule(&mut self, cpu: usize) {
        loop {
            if let Some(has) = self.cpus[cpu].has {
                let urgent =
                    |one: &&usize| self.threads[**one].priority < self.threads[has].priority;
                if !self.cpus[cpu].queue.iter().any(|one| urgent(&one)) {
                    return;
                }
                self.preempt(cpu);
            }
            let queue = &self.cpus[cpu].queue;
            let best = queue.iter().min_by_key(|&&one| self.threads[one].priority);
            let Some(&best) = best else { return };
            self.cpus[cpu].queue.retain(|&one| one != best);
            let previous = self.task_of(self.cpus[cpu].had);
            self.cpus[cpu].has = Some(best);
            self.cpus[cpu].slice = SLICE;
            self.cpus[cpu].had = tid(best);
            let now = Nanos(self.now);
            let priority = self.threads[best].priority;
            let one = &mut self.threads[best];
            one.at = At::Running;
            let wait = Wait {
                ran: Some(now),
                previous: Some(previous),
                priority: Some(priority),
                ..std::mem::take(&mut one.wait)
            };
            let ends = std::mem::take(&mut one.truth);
            self.truth.push(Truth {
                row: self.rows.len(),
                ends,
            });
            self.row(best, Kind::Wait(Box::new(wait)));
            if self.threads[best].left == 0 {
                self.goes_on(best);
            }
        }
    }

    /// Takes a thread off its CPU.
    fn leaves(&mut self, thread: usize, at: At, state: State, call: Option<(&str, [u64; 3])>) {
        let cpu = self.threads[thread].cpu;
        self.cpus[cpu].has = None;
        let call = call.map(|(name, arguments)| Call {
            number: 0,
            name: Some(name.into()),
            arguments: arguments.map(Some),
        });
        let within = match &call {
            Some(_) => Within::Call,
            None => Within::User,
        };
        let one = &mut self.threads[thread];
        one.at = at;
        one.wait = Wait {
            left: Nanos(self.now),
            left_cpu: Some(cpu as u32),
            state: Some(state),
            preempted: Some(state == State::Runnable),
            for_io: Some(state == State::Blocked),
            within: Some(within),
            call,
            ..Wait::default()
        };
        // The idle task comes in between if nobody waits.
        if self.cpus[cpu].queue.is_empty() && state != State::Runnable {
            self.cpus[cpu].had = 0;
        }
    }

    fn wake(&mut self, thread: usize, waker: Waker) {
        let one = &mut self.threads[thread];
        one.at = At::Runnable;
        one.wait.woken = Some(Nanos(self.now));
        one.wait.waker = Some(waker);
        let cpu = one.cpu;
        self.cpus[cpu].queue.push_back(thread);
    }

    fn by(&self, thread: usize, call: &str, soft: bool) -> Waker {
        Waker {
            task: self.task(thread),
            context: Some(if soft {
                Context::Softirq
            } else {
                Context::Task
            }),
            call: Some(Call {
                number: 0,
                name: Some(call.into()),
                arguments: [None; 3],
            }),
        }
    }

    fn request(&mut self, by: usize, ns: u64, waits: bool) {
        self.sectors += 8;
        let request = Request {
            by,
            begin: self.now,
            issued: self.now,
            left: ns,
            waits,
            sector: self.sectors,
        };
        self.disk.push_back(request);
    }

    fn completes(&mut self) {
        let Some(request) = self.disk.pop_front() else {
            return;
        };
        if let Some(next) = self.disk.front_mut() {
            next.issued = self.now;
        }
        let span = Span {
            issued: Some(Nanos(request.issued)),
            device: Some("sda".into()),
            sector: Some(request.sector),
            ..Span::new(Activity::Block, Nanos(request.begin))
        };
        self.row(request.by, Kind::Span(Box::new(span)));
        if request.waits {
            let waker = Waker {
                task: self.task_of(0),
                context: Some(Context::Softirq),
                call: None,
            };
            self.wake(request.by, waker);
        }
    }

    /// Lets a running thread follow its script until it runs for a time or leaves its CPU.
    fn goes_on(&mut self, thread: usize) {
        loop {
            let one = &mut self.threads[thread];
            let Some(&op) = one.script.get(one.next) else {
                return self.ends(thread);
            };
            one.next += 1;
            match op {
                Op::Run(ns) if ns > 0 => {
                    one.left = ns;
                    return;
                }
                Op::Run(_) => {}
                Op::Lock(lock) => {
                    if self.locks[lock].owner.is_some() {
                        self.locks[lock].waits.push_back(thread);
                        let arguments = [0x7000 + lock as u64 * 64, 128, 2];
                        let call = Some(("futex", arguments));
                        return self.leaves(thread, At::Lock(lock), State::Sleeping, call);
                    }
                    self.locks[lock].owner = Some(thread);
                }
                Op::Unlock(lock) => {
                    assert_eq!(self.locks[lock].owner, Some(thread));
                    self.locks[lock].owner = self.locks[lock].waits.pop_front();
                    if let Some(next) = self.locks[lock].owner {
                        let waker = self.by(thread, "futex", false);
                        self.wake(next, waker);
                    }
                }
                Op::Sync(ns) => {
                    self.request(thread, ns, true);
                    let call = Some(("fsync", [3, 0, 0]));
                    return self.leaves(thread, At::Disk, State::Blocked, call);
                }
                Op::Write(ns) => self.request(thread, ns, false),
                Op::Sleep(ns) => {
                    let until = self.now + ns;
                    let call = Some(("nanosleep", [0, 0, 0]));
                    return self.leaves(thread, At::Sleep(until), State::Sleeping, call);
                }
                Op::Send(channel) => {
                    self.channels[channel].count += 1;
                    if let Some(waits) = self.channels[channel].waits.take() {
                        self.channels[channel].count -= 1;
                        let tcp = self.channels[channel].tcp;
                        let waker = self.by(thread, if tcp { "sendto" } else { "write" }, tcp);
                        self.wake(waits, waker);
                    }
                }
                Op::Receive(channel) => {
                    if self.channels[channel].count == 0 {
                        self.channels[channel].waits = Some(thread);
                        let name = if self.channels[channel].tcp {
                            "recvfrom"
                        } else {
                            "read"
                        };
                        let call = Some((name, [5 + channel as u64, 0, 0]));
                        return self.leaves(thread, At::Receive(channel), State::Sleeping, call);
                    }
                    self.channels[channel].count -= 1;
                }
                Op::Fork(child) => {
                    let waker = self.by(thread, "clone", false);
                    let cpu = self.threads[child].cpu;
                    self.threads[child].parent = Some(thread);
                    self.threads[child].at = At::Runnable;
                    self.threads[child].wait = Wait {
                        left: Nanos(self.now),
                        state: Some(State::Runnable),
                        within: Some(Within::New),
                        waker: Some(waker),
                        ..Wait::default()
                    };
                    self.cpus[cpu].queue.push_back(child);
                }
                Op::Wait(child) => {
                    if self.threads[child].at != At::Dead {
                        let call = Some(("wait4", [0, 0, 0]));
                        return self.leaves(thread, At::Child(child), State::Sleeping, call);
                    }
                }
                Op::Stop(target) => {
                    let kind = Kind::Signal {
                        signal: 19,
                        target_tid: tid(target),
                        target_pid: Some(7),
                        target_comm: None,
                        to_process: Some(false),
                        result: Some(0),
                    };
                    self.row(thread, kind);
                    assert_eq!(self.threads[target].at, At::Running);
                    self.leaves(target, At::Stopped(tid(thread)), State::Stopped, None);
                }
                Op::Continue(target) => {
                    let waker = self.by(thread, "kill", false);
                    self.wake(target, waker);
                }
            }
        }
    }

    fn ends(&mut self, thread: usize) {
        for parent in 0..self.threads.len() {
            if self.threads[parent].at == At::Child(thread) {
                let waker = self.by(thread, "exit_group", false);
                self.wake(parent, waker);
            }
        }
        self.leaves(thread, At::Dead, State::Dead, Some(("exit_group", [0; 3])));
        let wait = std::mem::take(&mut self.threads[thread].wait);
        self.row(thread, Kind::Wait(Box::new(wait)));
    }
}
