//! The machine: CPUs with a run queue each, two tasks, a socket; event by event.
//!
//! An event is the end of a step, a tick, or an idle CPU that wakes. Between events nothing happens. As in a kernel
//! without kernel pre-emption, a task that has to give way does so when it returns to user mode, or at once where it
//! is there: a wake-up within a call pre-empts on the way out of that call.

use stopgap_events::random::Random;
use stopgap_events::roundtrip::{Cell, ClientPolicy, ClientWait, Cpus, Wait};

use super::Rules;
use super::outcome::{Cause, Outcome, Side, Why};
use super::prices::Prices;
use super::program::{Client, Program, Server, Step};
use super::scheduler::{self, GiveWay, RunQueue, Setting};
use super::socket::{Inbox, News, Sleep, hears};

/// Round trips that do not count: until virtual times have found their course.
const WARM_UP: u64 = 200;
/// Steps between two looks at whether to stop: about 10 ms.
const BETWEEN_STOPS: u64 = 100_000;

/// Step that a task is in the middle of; it takes [`Task::left`] more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// In user mode.
    User,
    /// In a write, before so many buffers are queued, with so many messages each.
    Sending { buffers: u32, messages: u32 },
    /// In a wait, before it looks.
    Looking,
    /// In a read, before it looks.
    Reading,
    /// On its way out of a call.
    Leaving,
}

struct Task {
    program: Program,
    doing: Doing,
    /// Nanoseconds of CPU time until it is done.
    left: u64,
    /// Where it runs.
    cpu: usize,
    /// Set while it sleeps.
    asleep: Option<Sleep>,
    /// Woken for room, and has not found anything to read since.
    woken_for_room: bool,
    /// Messages that arrived at its end of the socket.
    inbox: Inbox,
}

struct Cpu {
    queue: Box<dyn RunQueue>,
    running: Option<usize>,
    /// When the running task's step ends.
    ends: u64,
    /// Why the running task has to give way, once it may.
    give_way: Option<Why>,
    /// When it leaves idleness, where somebody was woken on it.
    wakes: Option<u64>,
    next_tick: u64,
}

/// See the module.
pub(super) struct Machine<'a> {
    cell: &'a Cell,
    prices: &'a Prices,
    now: u64,
    tick: u64,
    /// The server, the client.
    tasks: [Task; 2],
    cpus: Vec<Cpu>,
    random: Random,
    outcome: Outcome,
    /// Switch-outs since the last round trip ended.
    switches: u32,
    counting: bool,
}

enum Event {
    StepEnds,
    Wakes,
    Tick,
}

impl<'a> Machine<'a> {
    pub(super) fn new(cell: &'a Cell, rules: Rules, prices: &'a Prices, seed: u64) -> Machine<'a> {
        let setting = Setting {
            batch: vec![false, cell.policy == ClientPolicy::Batch],
            preempt: cell.kernel.preempt,
        };
        let tick = scheduler::tick(rules);
        let cpus = match cell.cpus {
            Cpus::One => 1,
            Cpus::Two | Cpus::Free => 2,
        };
        let task = |program, cpu| Task {
            program,
            doing: Doing::User,
            left: 1,
            cpu,
            asleep: None,
            woken_for_room: false,
            inbox: Inbox::default(),
        };
        let mut machine = Machine {
            cell,
            prices,
            now: 0,
            tick,
            tasks: [
                task(Program::Server(Server::default()), 0),
                task(Program::Client(Client::default()), cpus - 1),
            ],
            cpus: (0..cpus)
                .map(|_| Cpu {
                    queue: scheduler::queue(rules, setting.clone()),
                    running: None,
                    ends: 0,
                    give_way: None,
                    wakes: None,
                    next_tick: tick,
                })
                .collect(),
            random: Random::new(seed),
            outcome: Outcome::default(),
            switches: 0,
            counting: false,
        };
        for task in 0..2 {
            let cpu = machine.tasks[task].cpu;
            machine.cpus[cpu].queue.wake(0, task);
        }
        for cpu in 0..cpus {
            machine.reschedule(cpu, None);
        }
        machine
    }

    /// Runs until `round_trips` have been counted, or `stop` says so.
    pub(super) fn run(mut self, round_trips: u64, stop: &dyn Fn() -> bool) -> Outcome {
        let mut warm_up = WARM_UP;
        let mut began = 0;
        let mut steps = 0_u64;
        while self.outcome.round_trips() < round_trips {
            steps += 1;
            if steps.is_multiple_of(BETWEEN_STOPS) && stop() {
                break;
            }
            if self.step() {
                if self.counting {
                    self.outcome.switches.push(self.switches);
                } else {
                    warm_up -= 1;
                    self.counting = warm_up == 0;
                    began = self.now;
                }
                self.switches = 0;
            }
        }
        self.outcome.elapsed_ns = self.now - began;
        self.outcome
    }

    /// Carries the next event out; says whether the client has got its last reply.
    fn step(&mut self) -> bool {
        let (at, cpu, event) = self.next();
        let passed = at - self.now;
        if self.counting {
            let busy = self.cpus.iter().filter(|cpu| cpu.running.is_some()).count();
            self.outcome.cpu_ns += passed * busy as u64;
        }
        self.now = at;
        match event {
            Event::StepEnds => return self.step_ends(cpu),
            Event::Wakes => {
                self.cpus[cpu].wakes = None;
                self.reschedule(cpu, None);
            }
            Event::Tick => {
                self.cpus[cpu].next_tick += self.tick;
                let give_way = self.cpus[cpu].queue.tick(at);
                self.told(cpu, give_way, Why::SliceOver);
                let user = self.cpus[cpu]
                    .running
                    .is_some_and(|task| self.tasks[task].doing == Doing::User);
                if user {
                    self.give_way(cpu);
                }
            }
        }
        false
    }

    /// Returns the earliest event. At equal times the lower CPU's comes first, and a step's end before a tick.
    fn next(&self) -> (u64, usize, Event) {
        let mut first: Option<(u64, usize, Event)> = None;
        for (index, cpu) in self.cpus.iter().enumerate() {
            // An idle CPU has no ticks (NO_HZ); its clock goes on.
            let events = [
                (cpu.running.map(|_| cpu.ends), Event::StepEnds),
                (cpu.wakes, Event::Wakes),
                (Some(cpu.next_tick), Event::Tick),
            ];
            for (at, event) in events {
                if let Some(at) = at
                    && first.as_ref().is_none_or(|(least, ..)| at < *least)
                {
                    first = Some((at, index, event));
                }
            }
        }
        first.expect("every CPU has a next tick")
    }

    /// The running task's step is over.
    fn step_ends(&mut self, cpu: usize) -> bool {
        let Some(me) = self.cpus[cpu].running else {
            return false;
        };
        let mut finished = false;
        match self.tasks[me].doing {
            Doing::User => {
                if Side::of_task(me) == Side::Server && self.cell.work.0 > 0 {
                    // It works until its CPU clock says that it has.
                    let give_way = self.cpus[cpu].queue.read_clock(self.now);
                    self.told(cpu, give_way, Why::SliceOver);
                }
                self.next_step(me);
            }
            Doing::Sending { buffers, messages } => {
                let other = 1 - me;
                self.tasks[other].inbox.queue(messages);
                let woke = self.wake(me, News::Data);
                let buffers = buffers - 1;
                let (doing, price) = match buffers {
                    0 => (Doing::Leaving, self.prices.write_leave),
                    _ => (Doing::Sending { buffers, messages }, self.prices.buffer),
                };
                self.begin(me, doing, price + woke);
            }
            Doing::Looking => {
                if self.tasks[me].inbox.has() {
                    self.begin(me, Doing::Leaving, self.prices.wait_leave);
                } else {
                    self.sleep(me, Sleep::Polling);
                    return false;
                }
            }
            Doing::Reading => {
                if !self.tasks[me].inbox.has() {
                    self.sleep(me, Sleep::Reading);
                    return false;
                }
                let (messages, buffers) = self.tasks[me].inbox.read();
                self.tasks[me].woken_for_room = false;
                finished = self.tasks[me].program.took(messages);
                let woke: u64 = (0..buffers).map(|_| self.wake(me, News::Room)).sum();
                let more = self.prices.buffer * (buffers as u64 - 1);
                self.begin(me, Doing::Leaving, self.prices.read_leave + more + woke);
            }
            Doing::Leaving => {
                // Its return to user mode.
                self.next_step(me);
                self.give_way(cpu);
                return false;
            }
        }
        finished
    }

    /// Begins what the program does next.
    fn next_step(&mut self, me: usize) {
        let step = self.tasks[me].program.next(self.cell, self.prices);
        let (doing, price) = match step {
            Step::User { own, told } => {
                self.begin(me, Doing::User, own);
                self.tasks[me].left += told;
                self.cpus[self.tasks[me].cpu].ends += told;
                return;
            }
            Step::Write(messages) => {
                let (buffers, each) = match self.cell.kernel.merge {
                    true => (1, messages),
                    false => (messages, 1),
                };
                let doing = Doing::Sending {
                    buffers,
                    messages: each,
                };
                let gathered = self.prices.vector * u64::from(messages - 1);
                (doing, self.prices.write_enter + gathered)
            }
            Step::Wait => (Doing::Looking, self.prices.wait_enter + self.scan(me)),
            Step::Read => (Doing::Reading, self.prices.read_enter),
        };
        self.begin(me, doing, price);
    }

    /// Looking at what one waits for.
    fn scan(&self, me: usize) -> u64 {
        match Side::of_task(me) {
            Side::Server if self.cell.server != Wait::Epoll => {
                self.prices.descriptor * u64::from(self.cell.descriptors)
            }
            _ => self.prices.descriptor,
        }
    }

    fn begin(&mut self, me: usize, doing: Doing, price: u64) {
        self.tasks[me].doing = doing;
        self.tasks[me].left = self.prices.spread(price, &mut self.random);
        let cpu = self.tasks[me].cpu;
        if self.cpus[cpu].running == Some(me) {
            self.cpus[cpu].ends = self.now + self.tasks[me].left;
        }
    }

    /// Wakes the other task if it waits for what `me` did; returns the price of the wake-up.
    fn wake(&mut self, me: usize, news: News) -> u64 {
        let other = 1 - me;
        let hears = self.tasks[other]
            .asleep
            .is_some_and(|sleep| hears(sleep, news, self.cell.kernel.keyed));
        if !hears {
            return 0;
        }
        self.tasks[other].asleep = None;
        self.tasks[other].woken_for_room = news == News::Room;
        if self.counting {
            match news {
                News::Data => self.outcome.data_wakes += 1,
                News::Room => self.outcome.room_wakes += 1,
            }
        }
        let cpu = self.tasks[other].cpu;
        let give_way = self.cpus[cpu].queue.wake(self.now, other);
        if self.cpus[cpu].running.is_none() {
            self.cpus[cpu].wakes = Some(self.now + self.prices.idle_wake);
        } else {
            self.told(
                cpu,
                give_way,
                match news {
                    News::Data => Why::PreemptedAfterWrite,
                    News::Room => Why::PreemptedAfterRead,
                },
            );
        }
        self.prices.wake
    }

    /// Notes that the running task has to give way; the first reason counts.
    fn told(&mut self, cpu: usize, give_way: GiveWay, woken: Why) {
        let why = match give_way {
            GiveWay::No => return,
            GiveWay::ToTheWoken => woken,
            GiveWay::SliceOver => Why::SliceOver,
        };
        self.cpus[cpu].give_way.get_or_insert(why);
    }

    /// In user mode: gives way where it has to.
    fn give_way(&mut self, cpu: usize) {
        if let Some(why) = self.cpus[cpu].give_way {
            self.reschedule(cpu, Some(why));
        }
    }

    /// `me`, which runs, finds nothing and sleeps.
    fn sleep(&mut self, me: usize, sleep: Sleep) {
        let task = &mut self.tasks[me];
        let why = if task.woken_for_room {
            Why::BlocksAgain
        } else {
            Why::Blocks
        };
        task.woken_for_room = false;
        task.asleep = Some(sleep);
        // When it wakes it looks again.
        let (doing, price) = match sleep {
            Sleep::Polling => {
                let epoll = match Side::of_task(me) {
                    Side::Server => self.cell.server == Wait::Epoll,
                    Side::Client => self.cell.client == ClientWait::Epoll,
                };
                let look_again = match epoll {
                    true => self.prices.look_again_epoll,
                    false => self.prices.look_again,
                };
                (Doing::Looking, look_again + self.scan(me))
            }
            Sleep::Reading => (Doing::Reading, self.prices.look_again_read),
        };
        let cpu = self.tasks[me].cpu;
        self.begin(me, doing, price);
        self.cpus[cpu].queue.sleep(self.now);
        self.reschedule(cpu, Some(why));
    }

    /// Picks the task that runs next; `why` is the reason the running one leaves, if it does.
    fn reschedule(&mut self, cpu: usize, why: Option<Why>) {
        let before = self.cpus[cpu].running;
        let next = self.cpus[cpu].queue.pick(self.now);
        self.cpus[cpu].give_way = None;
        if next == before && before.is_some_and(|task| self.tasks[task].asleep.is_none()) {
            return;
        }
        if let Some(before) = before {
            let why = why.expect("a running task leaves for a reason");
            if self.tasks[before].asleep.is_none() {
                self.tasks[before].left = self.cpus[cpu].ends - self.now;
            }
            self.switches += 1;
            if self.counting {
                let cause = Cause {
                    side: Side::of_task(before),
                    why,
                };
                *self.outcome.causes.entry(cause).or_default() += 1;
            }
        }
        self.cpus[cpu].running = next;
        if let Some(next) = next {
            let price = self.prices.spread(self.prices.switch, &mut self.random);
            self.cpus[cpu].ends = self.now + price + self.tasks[next].left;
        }
    }
}
