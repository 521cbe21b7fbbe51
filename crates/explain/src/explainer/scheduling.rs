//! Events of the scheduler: who has a CPU, who waits for one, who was woken by whom.

use stopgap_stats::explain::Waker;
use stopgap_trace::{Event, Kind, Stack, Text};

use super::{Cpu, Explainer, outs};
use crate::call::{Family, Role};
use crate::stack;
use crate::switch_cause::because;
use crate::tasks::name;
use crate::thread::{Cpus, State, Thread, Where, WokenBy};
use crate::why::Why;

impl Explainer {
    pub(super) fn scheduling(&mut self, event: &Event) {
        match &event.kind {
            Kind::Switch {
                state,
                preempted,
                next_tid,
                next_comm,
                stack,
                ..
            } => {
                self.seen.switches = true;
                self.seen.arrivals |= event.tid.is_none() && next_tid.is_some();
                self.seen.stacks |= stack.is_some();
                if let Some(tid) = event.tid.filter(|&tid| tid != 0) {
                    let leaves = Leaves {
                        state: state.as_deref(),
                        preempted: *preempted,
                        stack: stack.as_ref(),
                    };
                    self.leaves(event, tid, &leaves, *next_tid, next_comm.as_ref());
                }
                if let Some(next) = next_tid.filter(|&next| next != 0) {
                    self.arrives(next, next_comm.as_ref(), event.cpu);
                }
                if let (Some(cpu), Some(next)) = (event.cpu, *next_tid) {
                    let left = event.tid.filter(|&tid| tid != 0);
                    self.cpus.insert(cpu, Cpu { has: next, left });
                }
            }
            Kind::Waking {
                target_tid,
                target_comm,
                ..
            } => {
                self.seen.wakings = true;
                let waker = self.acts(event);
                self.wakes(waker, *target_tid, target_comm.as_ref());
            }
            Kind::New {
                target_tid,
                target_comm,
                ..
            } => {
                self.acts(event);
                let now = self.now;
                if !self.threads.contains_key(target_tid) {
                    self.threads.insert(*target_tid, Thread::new(now));
                }
                let thread = self.thread(*target_tid, target_comm.as_ref());
                thread.advance(now);
                thread.state = State::Runnable;
            }
            Kind::Fork {
                target_tid,
                target_comm,
                ..
            } => {
                let parent = self.acts(event);
                let traced = parent.is_some_and(|tid| self.threads[&tid].traced);
                // An id that is given again: its former thread is gone, though its end was not seen.
                self.end_thread(*target_tid);
                let mut thread = Thread::new(self.now);
                thread.traced = traced;
                thread.comm = target_comm.clone();
                self.threads.insert(*target_tid, thread);
            }
            Kind::Exec { .. } => {
                if let Some(tid) = self.acts(event) {
                    self.thread(tid, None).traced = true;
                }
            }
            _ => {
                match self.acts(event) {
                    // Records of perf end here: there is none of the thread's last switch.
                    Some(tid) if self.seen.arrivals => {
                        let now = self.now;
                        self.thread(tid, None).advance(now);
                        self.end_thread(tid);
                    }
                    Some(tid) => self.thread(tid, None).exiting = true,
                    None => {}
                }
            }
        }
    }

    /// `tid` leaves its CPU.
    fn leaves(
        &mut self,
        event: &Event,
        tid: u32,
        leaves: &Leaves<'_>,
        next: Option<u32>,
        next_name: Option<&Text>,
    ) {
        self.takes_over(event, tid);
        let now = self.now;
        let thread = self.thread(tid, event.comm.as_ref());
        thread.notes_cpu(event.cpu);
        thread.was(State::Running);
        let missed = matches!(thread.state, State::Blocked | State::Runnable);
        if missed && thread.traced {
            self.came_untold(event.cpu);
        }
        if let Some(cpu) = event.cpu {
            self.has_cpu(cpu, tid);
        }
        let thread = self.thread(tid, None);
        if missed {
            thread.doubt(now);
        } else if thread.state == State::Unknown {
            // It must have had the CPU, but since when?
            thread.doubt(now);
        } else {
            thread.advance(now);
        }
        let ends = leaves.ends(thread.exiting);
        thread.exiting = ends;
        let could_run_on = leaves.could_run_on();
        thread.sleeps = leaves.stack.and_then(stack::why);
        thread.deep = leaves.state.is_some_and(|state| state.starts_with('D'));
        let why = because(thread, now, could_run_on, next, next_name);
        *thread.causes.entry(why).or_default() += 1;
        thread.switches += 1;
        thread.involuntary += u64::from(could_run_on == Some(true));
        thread.woke.clear();
        thread.woken_by = None;
        thread.state = match could_run_on {
            Some(true) => State::Runnable,
            Some(false) => State::Blocked,
            None => State::Unknown,
        };
        let mut strayed = false;
        if could_run_on == Some(false) {
            thread.slept_in_call = true;
            thread.asleep = Some((now, thread.why_asleep()));
            match &mut thread.operation {
                Some(operation) if operation.family == Family::Fault && leaves.is_in_a_call() => {
                    strayed = true;
                }
                Some(operation) => operation.goes_on(),
                None => {}
            }
        }
        let traced = thread.traced;
        self.frames.outs += u64::from(traced);
        if strayed {
            self.end_operation(tid, None, false);
        }
        if ends {
            self.end_thread(tid);
        }
    }

    /// `tid` gets a CPU.
    fn arrives(&mut self, tid: u32, comm: Option<&Text>, cpu: Option<u32>) {
        let now = self.now;
        let thread = self.thread(tid, comm);
        thread.notes_cpu(cpu);
        thread.was(State::Runnable);
        let missed = thread.state == State::Running;
        if missed {
            thread.doubt(now);
        } else {
            thread.advance(now);
        }
        // Nobody was seen to wake it.
        thread.wakes_up(now, None);
        thread.state = State::Running;
        let contradicts = missed && thread.traced;
        self.contradictions += u64::from(contradicts);
    }

    /// `waker` (`None`: idle, so an interrupt) wakes `target`.
    fn wakes(&mut self, waker: Option<u32>, target: u32, comm: Option<&Text>) {
        let now = self.now;
        let mut by = WokenBy {
            task: None,
            call: None,
            role: Role::Other,
        };
        let mut sends_on = None;
        if let Some(tid) = waker
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.notes_waking(target);
            // In its own code a thread wakes nobody: an interrupt does.
            if !matches!(thread.place, Where::User) {
                by.task = Some(name(tid, thread.comm.as_ref()));
            }
            if let Some(call) = thread.call() {
                by.call = Some(Text::clone(&call.name));
                by.role = call.role;
                sends_on = call.first.filter(|_| call.role == Role::Sends);
            }
        }
        let thread = self.thread(target, comm);
        thread.was(State::Blocked);
        if matches!(thread.state, State::Blocked | State::Unknown) {
            thread.advance(now);
            thread.wakes_up(now, Some(&by));
            thread.state = State::Runnable;
            thread.woken_by = Some(by);
        }
        if let (Some(tid), Some(descriptor)) = (waker, sends_on) {
            let threads = &self.threads;
            let outs = |tid| outs(threads, tid);
            let several = |tid| threads.get(&tid).is_some_and(|thread| thread.multiplexes);
            let new = self
                .roundtrips
                .wakes(tid, descriptor, target, now, outs, several);
            if new {
                // Where a thread ran before, when it was made or placed, says nothing of the pair.
                for tid in [tid, target] {
                    self.thread(tid, None).cpus = Cpus::None;
                }
            }
        }
    }
}

/// How a thread leaves its CPU.
struct Leaves<'a> {
    state: Option<&'a str>,
    preempted: Option<bool>,
    stack: Option<&'a Stack>,
}

impl Leaves<'_> {
    /// Whether it could have run on: its state says `R`, on the way out of a call without the `+` of a pre-emption
    /// in the kernel. `None`: the trace does not say.
    fn could_run_on(&self) -> Option<bool> {
        match (self.preempted, self.state) {
            (Some(true), _) => Some(true),
            (_, Some(state)) => Some(state.starts_with('R')),
            (preempted, None) => preempted,
        }
    }

    /// Whether it sleeps in a call, though none was seen to begin: not all are recorded. Without a stack it is the
    /// interruptible sleep that says so; a fault's is not, but for userfaultfd.
    fn is_in_a_call(&self) -> bool {
        match self.stack {
            Some(stack) => stack::in_call(stack),
            None => self.state.is_some_and(|state| state.starts_with('S')),
        }
    }

    /// Whether it never comes back.
    fn ends(&self, exiting: bool) -> bool {
        match self.state {
            Some(state) => state.starts_with(['X', 'Z']),
            None => exiting && self.preempted == Some(false),
        }
    }
}

impl Thread {
    /// Its sleep is over, `by` somebody or unseen.
    fn wakes_up(&mut self, now: u64, by: Option<&WokenBy>) {
        let Some((begin, why)) = self.asleep.take() else {
            return;
        };
        let slept = now.saturating_sub(begin);
        if let Some(operation) = &mut self.operation {
            operation.goes_on();
            let longest = operation.longest_sleep.as_ref().map_or(0, |w| w.slept_ns);
            if why != Why::Event && slept > longest {
                operation.longest_sleep = by.map(|by| Waker {
                    task: by.task.as_deref().unwrap_or("an interrupt").to_owned(),
                    call: by.call.as_deref().map(str::to_owned),
                    slept_ns: slept,
                });
            }
        }
        self.slept = Some((slept, why));
    }
}
