//! Makes waits of switches and wake-ups, and spans of the events at their ends: what tracefs, perf and files of version 1 have.
//!
//! ```text
//!   switch A -> B          waking A           switch B -> A
//!   A leaves               A is woken         A runs again: its wait goes out
//! ```
//!
//! A wait goes out when its thread runs again, so waits stand in the order of time among the other events. [`spans`] are made
//! on the same way. All other events pass through as they are.
//!
//! # Where rows are missing
//!
//! Recorders lose rows, and some kernels hide switches of threads that were not asked for. Nothing is guessed then:
//!
//! * A thread acts although it is off its CPU: its return is missing. Its wait goes out without [`Wait::ran`], at the
//!   moment at which the thread is seen.
//! * Another thread has the CPU of a running one, or a running thread gets a CPU or acts on another one: the departure is
//!   missing. The wait says [`Wait::began_before`], and `left` is when the thread was last seen on a CPU.
//! * A thread sleeps, and runs without having been woken: [`Wait::woken`] is `None`.
//!
//! [`Waits::doubts`] counts the first two. A thread that comes back to the same CPU looks as if it had run where both are missing.

mod spans;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use stopgap_events::units::Nanos;
use stopgap_events::wait::{Call, Context, Stack, State, Task, Wait, Waker, Within};

use super::{Event, Kind, Text};
use spans::Spans;

/// Makes [`Kind::Wait`] of [`Kind::Switch`], [`Kind::Waking`] and [`Kind::New`], and [`Kind::Span`] of the kinds that
/// begin and end one: [`Kind::ReclaimBegin`], [`Kind::LockEnd`] and their like, [`Kind::BlockIssue`].
///
/// ```
/// use std::collections::VecDeque;
/// use stopgap_events::units::Nanos;
/// use stopgap_trace::{Event, Kind, Waits};
/// let switch = |time, from, to| Event {
///     time: Nanos(time),
///     cpu: Some(0),
///     pid: None,
///     tid: Some(from),
///     comm: None,
///     kind: Kind::Switch {
///         state: Some("S".into()),
///         preempted: Some(false),
///         priority: None,
///         next_tid: Some(to),
///         next_comm: None,
///         next_priority: None,
///         stack: None,
///     },
/// };
/// let (mut waits, mut out) = (Waits::default(), VecDeque::new());
/// waits.event(switch(10, 7, 0), &mut out);
/// assert!(out.is_empty(), "thread 7 is off its CPU");
/// waits.event(switch(30, 0, 7), &mut out);
/// let Kind::Wait(wait) = &out[0].kind else { panic!() };
/// assert_eq!((wait.left, wait.woken, wait.ran), (Nanos(10), None, Some(Nanos(30))));
/// ```
#[derive(Debug, Default)]
pub struct Waits {
    threads: HashMap<u32, Thread>,
    cpus: HashMap<u32, Cpu>,
    spans: Spans,
    /// When the first event was.
    begin: Option<u64>,
    now: u64,
    /// Whether there was a switch. Without any, nobody is known to be off a CPU.
    switches: bool,
    /// Whether some switches tell only who comes, as perf's records do.
    arrivals: bool,
    doubts: u64,
}

#[derive(Debug)]
struct Thread {
    pid: Option<u32>,
    comm: Option<Text>,
    place: Place,
    at: At,
    /// The CPU that it had last.
    cpu: Option<u32>,
    /// When it was last known to have a CPU; of a thread that was not heard of, when it began.
    seen: u64,
    exiting: bool,
    /// Whether the recorder was asked for it: there are events of its own doing, not only switches.
    followed: bool,
    /// When it was last woken while it had a CPU, and by whom.
    woken_early: Option<Box<(u64, Option<Waker>)>>,
}

#[derive(Debug)]
enum Place {
    Unknown,
    /// In its own code, or in the kernel because of an interrupt or a fault.
    User,
    In(Call),
}

#[derive(Debug)]
enum At {
    /// No event of it came yet.
    Unheard,
    Running,
    Off(Box<Wait>),
}

/// The thread that has a CPU, as far as the switches say.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    has: u32,
    /// The thread that left it last, until the first event of the thread that came.
    left: Option<u32>,
}

/// ns from a waking of a thread that still has its CPU to when it leaves it, at most, if that waking ends its sleep: the scheduler takes a
/// thread off its queue before it tells of the switch, and another CPU may wake it in between.
const ON_ITS_WAY_OUT: u64 = 1_000_000;

/// Threads that are followed at a time. Of more there are no waits.
const MOST_THREADS: usize = 1 << 18;

impl Waits {
    /// Takes the next event and appends what comes of it to `out`: waits and spans that are over, and the event itself
    /// unless it is one of those of which they are made. Constant time.
    pub fn event(&mut self, event: Event, out: &mut VecDeque<Event>) {
        self.begin.get_or_insert(event.time.0);
        self.now = self.now.max(event.time.0);
        match &event.kind {
            Kind::Switch { .. } => return self.switch(&event, out),
            Kind::Waking {
                target_tid,
                target_comm,
                waker_context,
                ..
            } => {
                let waker = self.waker(&event, *waker_context, out);
                return self.wakes(waker, *target_tid, target_comm.as_ref());
            }
            Kind::New {
                target_tid,
                target_comm,
                ..
            } => return self.begins(&event, *target_tid, target_comm.as_ref(), out),
            Kind::Exit { .. } => {
                let tid = self.acts(&event, out);
                self.spans.takes(&event, Nanos(self.now), out);
                out.push_back(event);
                if let Some(tid) = tid {
                    self.exits(tid, out);
                }
                return;
            }
            kind if self.is_of_a_running_thread(&event) && !self.inside_a_switch(&event) => {
                if let Some(tid) = self.acts(&event, out) {
                    self.learns(tid, kind, out);
                }
            }
            _ => {}
        }
        if !self.spans.takes(&event, Nanos(self.now), out) {
            out.push_back(event);
        }
    }

    /// Whether an event passes through as it is, and nothing is learnt from it but the time: waits as the recorder made them. Such an event
    /// need not be given to [`Waits::event`].
    pub fn passes(&mut self, event: &Event) -> bool {
        if !matches!(event.kind, Kind::Wait(_)) {
            return false;
        }
        self.begin.get_or_insert(event.time.0);
        self.now = self.now.max(event.time.0);
        true
    }

    /// All events were given, and the recording ended at `end`: appends the waits and spans that are not over.
    pub fn finish(mut self, end: Nanos, out: &mut VecDeque<Event>) {
        self.now = self.now.max(end.0);
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            self.comes_back(tid, None, self.now, out);
        }
        self.spans.finish(Nanos(self.now), out);
    }

    /// Returns how many begins and ends of spans had no partner so far.
    #[must_use]
    pub fn halves(&self) -> u64 {
        self.spans.halves()
    }

    /// Returns how often a departure or a return of a followed thread was missing so far.
    #[must_use]
    pub fn doubts(&self) -> u64 {
        self.doubts
    }

    /// The thread `tid`; `None` where too many are followed. One that was not heard of may have been off its CPU since
    /// the recording began.
    fn thread(&mut self, tid: u32, comm: Option<&Text>) -> Option<&mut Thread> {
        let full = self.threads.len() >= MOST_THREADS;
        let thread = match self.threads.entry(tid) {
            Entry::Occupied(thread) => thread.into_mut(),
            Entry::Vacant(_) if full => return None,
            Entry::Vacant(place) => place.insert(Thread::new(self.begin.unwrap_or(self.now))),
        };
        if let Some(comm) = comm
            && thread.comm.as_ref() != Some(comm)
        {
            thread.comm = Some(Text::clone(comm));
        }
        Some(thread)
    }

    /// The thread that acts in `event`, which has a CPU. `None` where it is unknown or nobody (idle).
    fn acts(&mut self, event: &Event, out: &mut VecDeque<Event>) -> Option<u32> {
        let tid = event.tid.filter(|&tid| tid != 0)?;
        self.takes_over(event, tid);
        let now = self.now;
        let thread = self.thread(tid, event.comm.as_ref())?;
        thread.pid = event.pid.or(thread.pid);
        let elsewhere = event.cpu.or(thread.cpu) != thread.cpu;
        let missed = match &thread.at {
            At::Unheard => {
                thread.at = At::Running;
                false
            }
            At::Off(wait) => !wait.began_before,
            // It cannot change its CPU without leaving it.
            At::Running if elsewhere && thread.cpu.is_some() => {
                thread.at = At::Off(Box::new(thread.left_unseen()));
                true
            }
            At::Running => false,
        };
        let missed = missed && thread.followed;
        thread.seen = now;
        thread.cpu = event.cpu.or(thread.cpu);
        self.doubts += u64::from(missed && self.switches);
        self.comes_back(tid, event.cpu, event.time.0, out);
        if let Some(cpu) = event.cpu {
            self.has_cpu(cpu, tid);
        }
        Some(tid)
    }

    /// `tid` is seen on a CPU, or the recording ends: its wait, if it is in one, goes out without its end.
    fn comes_back(&mut self, tid: u32, cpu: Option<u32>, time: u64, out: &mut VecDeque<Event>) {
        let (now, told) = (self.now, self.switches);
        if let Some(thread) = self.threads.get_mut(&tid)
            && matches!(thread.at, At::Off(_))
            && let At::Off(wait) = std::mem::replace(&mut thread.at, At::Running)
            && told
        {
            out.push_back(thread.row(tid, cpu, wait, time, now));
        }
    }

    /// Whether the thread of the event runs. Requests come of all threads, those that were not to be recorded, too: of a thread
    /// without any switch they say nothing.
    fn is_of_a_running_thread(&self, event: &Event) -> bool {
        let known = || event.tid.is_some_and(|tid| self.threads.contains_key(&tid));
        is_of_a_running_thread(&event.kind) && (!is_of_a_disk(&event.kind) || known())
    }

    /// Whether `event` is of a thread that has just left the CPU. `__schedule()` (kernel/sched/core.c) tells of the
    /// switch before it makes it, and until then all is booked on who leaves: the contention of a lock inside the
    /// switch, an NMI's sample, the page faults of BPF programs at the switch that read the thread's memory. Interrupts are
    /// off, so nothing else can come.
    fn inside_a_switch(&self, event: &Event) -> bool {
        let possible = matches!(
            event.kind,
            Kind::LockBegin { .. }
                | Kind::LockEnd { .. }
                | Kind::Sample { .. }
                | Kind::PageFault {
                    user: Some(false),
                    ..
                }
        );
        let left = || self.cpus.get(&event.cpu?)?.left;
        possible && event.tid.is_some() && left() == event.tid
    }

    /// An exec of a thread that is not its process's first ends the others and takes the number of the first
    /// (`de_thread()`, fs/exec.c): it acts under that number even before the exec event. It goes on as `tid`
    /// where `event` is the first of that.
    fn takes_over(&mut self, event: &Event, tid: u32) {
        let old = match &event.kind {
            Kind::Exec { old_tid, .. } => *old_tid,
            _ => event.cpu.and_then(|cpu| Some(self.cpus.get(&cpu)?.has)),
        };
        let Some(old) = old.filter(|&old| old != tid) else {
            return;
        };
        let leads = event.pid.is_none_or(|pid| pid == tid);
        if !leads || self.threads.contains_key(&tid) {
            return;
        }
        let is_exec = matches!(event.kind, Kind::Exec { .. });
        if (self.threads.get(&old)).is_some_and(|thread| is_exec || thread.is_in_exec())
            && let Some(thread) = self.threads.remove(&old)
        {
            self.threads.insert(tid, thread);
        }
    }

    /// `tid` has `cpu`: the thread that had it before has gone unseen.
    fn has_cpu(&mut self, cpu: u32, tid: u32) {
        let here = Cpu {
            has: tid,
            left: None,
        };
        let before = self.cpus.insert(cpu, here).map(|cpu| cpu.has);
        let Some(before) = before.filter(|&before| before != tid && before != 0) else {
            return;
        };
        if self.switches
            && let Some(gone) = self.threads.get_mut(&before)
            && matches!(gone.at, At::Running)
            && gone.cpu == Some(cpu)
        {
            gone.at = At::Off(Box::new(gone.left_unseen()));
            self.doubts += u64::from(gone.followed);
        }
    }

    fn switch(&mut self, event: &Event, out: &mut VecDeque<Event>) {
        let Kind::Switch {
            next_tid,
            next_comm,
            ..
        } = &event.kind
        else {
            return;
        };
        self.switches = true;
        self.arrivals |= event.tid.is_none() && next_tid.is_some();
        self.leaves(event, out);
        let Some(next) = *next_tid else { return };
        if let Some(cpu) = event.cpu {
            let left = event.tid.filter(|&tid| tid != 0);
            if left.is_none() {
                self.has_cpu(cpu, next);
            }
            self.cpus.insert(cpu, Cpu { has: next, left });
        }
        if next != 0 {
            self.arrives(event, next, next_comm.as_ref(), out);
        }
    }

    /// The thread of the row leaves its CPU.
    fn leaves(&mut self, event: &Event, out: &mut VecDeque<Event>) {
        let Some(tid) = self.acts(event, out) else {
            return;
        };
        let (now, time) = (self.now, event.time.0);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(wait) = thread.departure(event, now) else {
            return;
        };
        if wait.state == Some(State::Dead) {
            out.push_back(thread.row(tid, event.cpu, wait, time, now));
            self.threads.remove(&tid);
        } else {
            thread.at = At::Off(wait);
        }
    }

    /// `tid` gets the CPU of the row.
    fn arrives(&mut self, event: &Event, tid: u32, comm: Option<&Text>, out: &mut VecDeque<Event>) {
        let (now, time) = (self.now, event.time.0);
        let Some(thread) = self.thread(tid, comm) else {
            return;
        };
        let (mut wait, missed) = match std::mem::replace(&mut thread.at, At::Running) {
            At::Off(wait) => (wait, false),
            At::Unheard => (Box::new(thread.left_unseen()), false),
            At::Running => (Box::new(thread.left_unseen()), thread.followed),
        };
        if let Some((woken, waker)) = thread.woken_early.take().map(|early| *early)
            && wait.woken.is_none()
            && !matches!(wait.state, None | Some(State::Runnable))
            && woken + ON_ITS_WAY_OUT >= wait.left.0
        {
            wait.woken = Some(wait.left);
            wait.waker = waker;
        }
        wait.ran = Some(Nanos(now));
        wait.previous = event.tid.map(|tid| Task {
            tid,
            comm: event.comm.clone(),
        });
        thread.seen = now;
        thread.cpu = event.cpu;
        out.push_back(thread.row(tid, event.cpu, wait, time, now));
        self.doubts += u64::from(missed);
    }

    /// `waker` makes `target` runnable.
    fn wakes(&mut self, waker: Option<Waker>, target: u32, comm: Option<&Text>) {
        let now = Nanos(self.now);
        let Some(thread) = self.thread(target, comm) else {
            return;
        };
        if matches!(thread.at, At::Unheard) {
            thread.at = At::Off(Box::new(thread.left_unseen()));
        }
        match &mut thread.at {
            At::Off(wait) if wait.woken.is_none() && wait.state != Some(State::Runnable) => {
                wait.woken = Some(now);
                wait.waker = waker;
            }
            At::Running => thread.woken_early = Some(Box::new((now.0, waker))),
            _ => {}
        }
    }

    /// The thread of the row has made `target`, which may run from now on.
    fn begins(
        &mut self,
        event: &Event,
        target: u32,
        comm: Option<&Text>,
        out: &mut VecDeque<Event>,
    ) {
        let waker = self.waker(event, None, out);
        let left = Nanos(self.now);
        self.spans.takes(event, left, out);
        let Some(thread) = self.thread(target, comm) else {
            return;
        };
        thread.at = At::Off(Box::new(Wait {
            left,
            state: Some(State::Runnable),
            within: Some(Within::New),
            waker,
            ..Wait::default()
        }));
    }

    /// Who wakes in `event`. Where the source does not say in which context: in its own code a thread wakes nobody, so an interrupt
    /// does; on its way out of a call a thread does, which is taken for an interrupt then.
    fn waker(
        &mut self,
        event: &Event,
        known: Option<Context>,
        out: &mut VecDeque<Event>,
    ) -> Option<Waker> {
        self.acts(event, out);
        let tid = event.tid?;
        let place = self.threads.get(&tid).map(|thread| &thread.place);
        let (context, call) = match place {
            Some(Place::User) => (Some(Context::Interrupt), None),
            None if tid == 0 => (Some(Context::Interrupt), None),
            Some(Place::In(call)) => (None, Some(call.clone())),
            Some(Place::Unknown) | None => (None, None),
        };
        let comm = event.comm.clone();
        let task = Task { tid, comm };
        Some(Waker {
            task,
            context: known.or(context),
            call,
        })
    }

    /// The thread `tid` did `kind`.
    fn learns(&mut self, tid: u32, kind: &Kind, out: &mut VecDeque<Event>) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        match kind {
            Kind::SyscallEnter {
                number,
                name,
                arguments,
            } => {
                thread.followed = true;
                thread.place = Place::In(Call {
                    number: *number,
                    name: name.clone(),
                    arguments: [arguments[0], arguments[1], arguments[2]],
                });
            }
            Kind::SyscallExit { .. } => {
                thread.followed = true;
                thread.place = Place::User;
            }
            Kind::PageFault { .. } | Kind::Exec { .. } => thread.followed = true,
            Kind::Fork {
                target_tid,
                target_pid,
                target_comm,
            } => {
                let new = Thread {
                    pid: *target_pid,
                    comm: target_comm.clone(),
                    followed: thread.followed,
                    ..Thread::new(self.now)
                };
                // A number that is given again: the end of its former thread was not seen.
                if matches!(self.threads.get(target_tid), Some(former) if matches!(former.at, At::Off(_)))
                {
                    self.comes_back(*target_tid, None, self.now, out);
                }
                if self.threads.len() < MOST_THREADS || self.threads.contains_key(target_tid) {
                    self.threads.insert(*target_tid, new);
                }
            }
            _ => {}
        }
    }

    /// `tid` ends. Records of perf stop here: there is none of the thread's last switch.
    fn exits(&mut self, tid: u32, out: &mut VecDeque<Event>) {
        let now = self.now;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.exiting = true;
        if self.arrivals {
            let ended = Wait {
                state: Some(State::Dead),
                ..thread.left_unseen()
            };
            out.push_back(thread.row(tid, None, Box::new(ended), now, now));
            self.threads.remove(&tid);
        }
    }
}

impl Thread {
    fn new(begin: u64) -> Thread {
        Thread {
            pid: None,
            comm: None,
            place: Place::Unknown,
            at: At::Unheard,
            cpu: None,
            seen: begin,
            exiting: false,
            followed: false,
            woken_early: None,
        }
    }

    fn is_in_exec(&self) -> bool {
        matches!(self.at, At::Running)
            && matches!(&self.place, Place::In(call) if call.name.as_deref() == Some("execve"))
    }

    /// The wait of a thread of which no departure was seen.
    fn left_unseen(&self) -> Wait {
        Wait {
            left: Nanos(self.seen),
            began_before: true,
            ..Wait::default()
        }
    }

    /// The wait that begins with the switch in `event`.
    fn departure(&mut self, event: &Event, now: u64) -> Option<Box<Wait>> {
        let Kind::Switch {
            state,
            preempted,
            priority,
            next_tid,
            next_comm,
            stack,
            ..
        } = &event.kind
        else {
            return None;
        };
        let letter = state.as_deref().and_then(|state| state.chars().next());
        // The state says `R`, on the way out of a call without the `+` of a pre-emption in the kernel.
        let could_run_on = match (preempted, letter) {
            (Some(true), _) => Some(true),
            (_, Some(letter)) => Some(letter == 'R'),
            (preempted, None) => *preempted,
        };
        let ends = match letter {
            Some(letter) => matches!(letter, 'X' | 'Z'),
            None => self.exiting && *preempted == Some(false),
        };
        self.exiting = false;
        let state = match letter {
            _ if ends => Some(State::Dead),
            _ if could_run_on == Some(true) => Some(State::Runnable),
            Some('S') => Some(State::Sleeping),
            Some('D') => Some(State::Blocked),
            Some('I') => Some(State::Idle),
            Some('T') => Some(State::Stopped),
            Some('t') => Some(State::Traced),
            Some('P') => Some(State::Parked),
            _ => None,
        };
        let (within, call) = match &self.place {
            Place::In(call) => (Some(Within::Call), Some(call.clone())),
            Place::User => (Some(Within::User), None),
            Place::Unknown => (None, None),
        };
        let yields = call
            .as_ref()
            .map(|call| call.name.as_deref() == Some("sched_yield"));
        let preempted = match (could_run_on, preempted, yields, within) {
            (Some(true), Some(true), ..) => Some(true),
            (Some(true), _, None, None) => None, // it may have yielded
            (Some(true), _, yields, _) => Some(yields != Some(true)),
            (could_run_on, ..) => could_run_on,
        };
        Some(Box::new(Wait {
            left: Nanos(now),
            left_cpu: event.cpu,
            state,
            preempted,
            priority: *priority,
            within,
            call,
            stack: stack.as_ref().map(|stack| Stack {
                frames: Text::clone(&stack.0),
                of_a_like_wait: false,
            }),
            next: next_tid.map(|tid| Task {
                tid,
                comm: next_comm.clone(),
            }),
            ..Wait::default()
        }))
    }

    /// The row of a wait, at `time` where the wait lies before that, and else `now`.
    fn row(&self, tid: u32, cpu: Option<u32>, mut wait: Box<Wait>, time: u64, now: u64) -> Event {
        let last = wait.woken.unwrap_or(wait.left).0;
        let time = Nanos(if time < last { now } else { time });
        if wait.ran.is_some() {
            wait.ran = Some(time);
        }
        Event {
            time,
            cpu,
            pid: self.pid,
            tid: Some(tid),
            comm: self.comm.clone(),
            kind: Kind::Wait(wait),
        }
    }
}

/// Whether the thread of such an event has a CPU at that moment.
fn is_of_a_running_thread(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Fork { .. }
            | Kind::Exec { .. }
            | Kind::SyscallEnter { .. }
            | Kind::SyscallExit { .. }
            | Kind::UnmappedArea { .. }
            | Kind::PageFault { .. }
            | Kind::ReclaimBegin { .. }
            | Kind::ReclaimEnd { .. }
            | Kind::CompactionBegin { .. }
            | Kind::CompactionEnd { .. }
            | Kind::Extfrag { .. }
            | Kind::LockBegin { .. }
            | Kind::LockEnd { .. }
            | Kind::LockRelease { .. }
            | Kind::BlockInsert { .. }
            | Kind::BlockIssue { .. }
            | Kind::BlockMerge { .. }
            | Kind::BlockComplete { .. }
            | Kind::FenceWaitBegin { .. }
            | Kind::FenceWaitEnd { .. }
            | Kind::Sample { .. }
    )
}

fn is_of_a_disk(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::BlockInsert { .. }
            | Kind::BlockIssue { .. }
            | Kind::BlockMerge { .. }
            | Kind::BlockComplete { .. }
    )
}

#[cfg(test)]
mod tests;
