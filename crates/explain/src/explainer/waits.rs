//! Waits of threads; begin and end of threads.

use stopgap_events::wait::{self, Context, Wait, Within};
use stopgap_trace::{Event, Kind, Moment};

use super::Explainer;
use crate::call::{Family, Role, name_of, role, waits_for_several};
use crate::chain::sleeps_once;
use crate::operation::{Operation, Site};
use crate::stack;
use crate::switch_cause::{because, call_in};
use crate::tasks::name;
use crate::thread::{Cpus, Open, State, Thread, Woke, WokenBy, could_run_on, states};
use crate::timeline::Stay;
use crate::why::Why;

/// Two waits belong to one call if the place and the arguments are the same and the thread ran for no longer than
/// this between them: the time that the kernel takes to check the condition and sleep again. A second call takes at
/// least as long.
const LOOKS_AGAIN_NS: u64 = 10_000;
/// The same limit for calls that work between their waits, as fsync does.
const WORKS_ON_NS: u64 = 1_000_000;

impl Explainer {
    /// Takes a wait of a thread.
    pub(super) fn waited(&mut self, event: &Event, wait: &Wait) {
        self.seen.switches = true;
        self.seen.wakings |= wait.woken.is_some();
        self.seen.stacks |= wait.stack.is_some();
        self.seen.calls |= wait.call.is_some();
        let Some(tid) = event.tid.filter(|&tid| tid != 0) else {
            return;
        };
        self.comes_back_unseen(tid);
        let now = self.now;
        let left = wait.left.0.min(now);
        if wait.within == Some(Within::New) && !self.threads.contains_key(&tid) {
            self.threads.insert(tid, Thread::new(left));
        }
        self.follows(event, wait);
        let followed = event.pid.is_some_and(|pid| self.followed.contains(&pid));
        let thread = self.thread(tid, event.comm.as_ref());
        thread.pid = event.pid.or(thread.pid);
        thread.traced |= followed;
        // The state before the recording is unknown, unless the source gives it.
        let unseen = wait.began_before && wait.state.is_none();
        let heard = thread.heard;
        if !wait.began_before {
            thread.notes_cpu(wait.left_cpu);
            if wait.within != Some(Within::New) {
                thread.runs(left, true);
            }
        }
        let missed = unseen && heard && thread.traced;
        thread.heard = true;
        if missed {
            self.untold += 1;
            self.seen.untold_ns += now - left;
        }
        if !wait.began_before && wait.within != Some(Within::New) {
            self.leaves(tid, wait, left);
        }
        if wait.state == Some(wait::State::Dead) {
            self.end_thread(tid);
            return;
        }
        if wait.ran.is_none() {
            let mut sleep = Vec::new();
            self.graph.last_sleep(tid, &mut sleep);
            let open = Open {
                wait: Box::new(wait.clone()),
                sleep,
                seen: now,
            };
            self.thread(tid, None).open = Some(open);
            let by = self.woken_by(wait);
            return self.wakes(tid, wait, by);
        }
        let woken = wait.woken.map(|woken| woken.0.clamp(left, now));
        let off = states(wait);
        let mut sleep = std::mem::take(&mut self.sleep);
        match self.is_in_operation(tid) {
            true => self.graph.last_sleep(tid, &mut sleep),
            false => sleep.clear(),
        }
        let by = self.woken_by(wait);
        let moments = (left, woken.unwrap_or(now), now);
        self.off(tid, wait, (&sleep, by.as_ref()), moments, off, off);
        self.sleep = sleep;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.notes_cpu(event.cpu);
            thread.ran = now;
        }
        if let Some(cpu) = event.cpu {
            self.cpus.insert(cpu, tid);
        }
        self.wakes(tid, wait, by);
    }

    fn is_in_operation(&self, tid: u32) -> bool {
        (self.threads.get(&tid)).is_some_and(|thread| thread.operation.is_some())
    }

    /// Books a wait of `tid`, which `waker` ended, on its `states`. The wait counts as `inferred` in the thread's
    /// operation, with the causes `sleep`.
    fn off(
        &mut self,
        tid: u32,
        wait: &Wait,
        (sleep, waker): (&[(Why, u64)], Option<&WokenBy>),
        (left, woken, ran): (u64, u64, u64),
        states: (State, State),
        inferred: (State, State),
    ) {
        let frames = wait.stack.as_ref().map(|stack| &stack.frames);
        let stack = (frames.filter(|_| self.is_in_operation(tid)))
            .and_then(|frames| self.stacks.get(frames, |frames| stack::why(frames)));
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let unseen = wait.began_before && wait.state.is_none();
        let left = if unseen {
            thread.booked.min(woken)
        } else {
            left
        };
        thread.book(woken, states.0);
        thread.book(ran, states.1);
        let asleep = inferred.0 == State::Blocked;
        if asleep {
            thread.woken_by = waker.cloned();
        }
        let Some(operation) = &mut thread.operation else {
            return;
        };
        let deep = wait.state == Some(wait::State::Blocked);
        // A page fault goes on while its thread sleeps. A pre-emption may come after the fault.
        if asleep || operation.by_waits.is_some() {
            operation.lasts(ran);
        }
        let stay = |left, woken, ran, otherwise| Stay {
            left,
            woken,
            ran,
            states: inferred,
            stack: stack.clone(),
            deep,
            for_io: wait.for_io == Some(true) && !waits_for_ring(wait),
            otherwise,
            throttled: wait.throttled == Some(true),
            waker: waker.cloned(),
        };
        // A wait for a child has pieces that are idle and pieces that are not.
        let mut at = left;
        for (why, ns) in sleep.split_last().map_or(&[][..], |(_, before)| before) {
            let until = (at + ns).min(woken);
            operation.stays(stay(at, until, until, why.clone()));
            at = until;
        }
        let otherwise = sleep.last().map_or(Why::Unknown, |(why, _)| why.clone());
        operation.stays(stay(at, woken, ran, otherwise));
    }

    /// Notes that `tid` left its CPU at `left`.
    fn leaves(&mut self, tid: u32, wait: &Wait, left: u64) {
        let site = self.site(tid, wait, left);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let why = because(thread, wait, left);
        thread.causes.add(why);
        thread.switches += 1;
        let could_run_on = could_run_on(wait);
        thread.involuntary += u64::from(could_run_on == Some(true));
        if let Some(call) = &wait.call {
            let call_name = name_of(call.number, call.name.as_ref());
            thread.multiplexes |= waits_for_several(&call_name, call.arguments[1]);
        }
        let traced = thread.traced;
        if could_run_on == Some(false) {
            thread.slept_in_call = true;
            let is_fault = |operation: &Operation| operation.family == Family::Fault;
            let by_rows = thread.operation.as_deref().is_some_and(is_fault);
            if by_rows && thread.calls && is_in_a_call(wait) {
                self.end_operation(tid, None, false);
            }
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.woken_by = None;
            thread.site = site;
        }
        if traced {
            self.frames.left(left);
        }
        self.roundtrips.left(tid, wait, left);
    }

    /// Returns where in the program `tid` waits since `left`. Begins and ends operations that show only by their
    /// waits.
    fn site(&mut self, tid: u32, wait: &Wait, left: u64) -> Option<Site> {
        let asleep = could_run_on(wait) == Some(false);
        let call = match wait.within {
            Some(Within::Call) => wait.call.as_ref(),
            _ => None,
        };
        let site = (call.is_some() || wait.within == Some(Within::User) && asleep).then(|| Site {
            call: call.map(|call| (call.number, call.arguments)),
            instruction_pointer: wait.instruction_pointer,
            stack_pointer: wait.stack_pointer,
        });
        let thread = self.thread(tid, None);
        if thread.calls || wait.instruction_pointer.is_none() {
            return site; // its calls have rows
        }
        let name = call_in(wait);
        let short = match name.as_deref().map(role) {
            Some(Role::Other) => WORKS_ON_NS,
            _ => LOOKS_AGAIN_NS,
        };
        let gap = left.saturating_sub(thread.ran);
        let over = std::mem::replace(
            &mut thread.call_is_over,
            call.is_some_and(|call| ends_with_its_sleep(wait, call)),
        );
        if wait.within == Some(Within::User) && !asleep {
            // A thread that was not seen to get its CPU has run since the trace or the thread began.
            let (ran, computes) = (thread.ran.max(thread.begin), is_computing(thread));
            if !computes {
                self.end_operation(tid, None, false);
                let begin = ran.min(left);
                let mut operation = self.operation(Family::Computing, "computing".into(), begin);
                operation.sure = Some(left);
                operation.by_waits = Some(Site::default());
                self.thread(tid, None).operation = Some(operation);
            }
            return None;
        }
        let same = site.is_some() && site == thread.site && gap <= short && !over;
        thread.slept_in_call &= same;
        if !same {
            self.end_operation(tid, None, false);
            if let Some(site) = &site {
                let family = name.as_deref().map_or(Family::Fault, Family::of_call);
                let name = name.unwrap_or_else(|| "fault".into());
                let mut operation = self.operation(family, name, left);
                operation.sure = Some(left);
                operation.by_waits = Some(site.clone());
                self.thread(tid, None).operation = Some(operation);
            }
        }
        site
    }

    /// Returns the thread that ended `wait`.
    fn woken_by(&self, wait: &Wait) -> Option<WokenBy> {
        let waker = wait.waker.as_ref()?;
        let call = waker.call.as_ref();
        let call = call.map(|call| name_of(call.number, call.name.as_ref()));
        let role = call.as_deref().map_or(Role::Other, role);
        // A softirq delivers what a thread sends within its own machine.
        let itself = match waker.context {
            Some(Context::Interrupt) => false,
            Some(Context::Softirq) => role == Role::Sends,
            Some(Context::Task) | None => waker.task.tid != 0,
        };
        let known = self.threads.get(&waker.task.tid);
        let comm =
            (waker.task.comm.as_ref()).or_else(|| known.and_then(|thread| thread.comm.as_ref()));
        Some(WokenBy {
            task: itself.then(|| name(waker.task.tid, comm)),
            call: call.filter(|_| itself),
            role,
        })
    }

    /// Notes that `by` woke the thread `target`, in `wait`.
    fn wakes(&mut self, target: u32, wait: &Wait, by: Option<WokenBy>) {
        let (Some(woken), Some(waker), Some(by)) = (wait.woken, &wait.waker, by) else {
            return;
        };
        let (tid, at) = (waker.task.tid, woken.0);
        let calls = match self.threads.get_mut(&tid) {
            Some(thread) => {
                thread.notes_waking(Woke {
                    whom: target,
                    at,
                    call: by.call.clone(),
                });
                thread.calls
            }
            None => false,
        };
        let descriptor = waker.call.as_ref().and_then(|call| call.arguments[0]);
        let (Role::Sends, Some(descriptor), Some(_)) = (by.role, descriptor, &by.call) else {
            return;
        };
        // A thread that waits inside a send itself waits for room, or for another writer of the file. Waking it is no
        // answer.
        let waits_in = (wait.call.as_ref()).map(|call| name_of(call.number, call.name.as_ref()));
        if waits_in.is_some_and(|name| role(&name) == Role::Sends) {
            return;
        }
        // In such a process, one thread may send the question and another one receive the answer.
        if self.graph.is_scheduled(tid) || self.graph.is_scheduled(target) {
            return;
        }
        let threads = &self.threads;
        let graph = &self.graph;
        let asker = |one, other| graph.asker(one, other);
        let several = |tid| threads.get(&tid).is_some_and(|thread| thread.multiplexes);
        if !calls {
            self.roundtrips
                .sends_to((tid, descriptor), target, at, asker);
        }
        let new =
            (self.roundtrips).wakes((tid, descriptor), (target, wait.left.0), at, several, asker);
        if let Some(ran) = wait.ran
            && !threads.get(&target).is_some_and(|thread| thread.calls)
        {
            self.roundtrips.received(target, None, ran.0);
        }
        if new {
            // The CPUs on which a thread ran before, when it was created or placed, say nothing about the pair.
            for tid in [tid, target] {
                self.thread(tid, None).cpus = Cpus::None;
            }
        }
    }

    /// Ends the open wait of `tid`, whose end was not seen: an event shows that `tid` has a CPU.
    pub(super) fn comes_back_unseen(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let Some(Open { wait, sleep, seen }) = thread.open.take() else {
            return;
        };
        let unseen = wait.began_before && wait.state.is_none();
        let missed = thread.traced && !unseen;
        let left = wait.left.0.min(seen);
        let woken = wait.woken.map(|woken| woken.0.clamp(left, seen));
        if missed {
            self.untold += 1;
            self.seen.untold_ns += seen - woken.unwrap_or(left);
        }
        // The switch that brought the thread back is hidden. The thread was off its CPU until now at the latest.
        let inferred = states(&wait);
        let states = match woken {
            Some(_) => (inferred.0, State::Unknown),
            None => (State::Unknown, State::Unknown),
        };
        let moments = (left, woken.unwrap_or(seen), seen);
        let by = self.woken_by(&wait);
        self.off(tid, &wait, (&sleep, by.as_ref()), moments, states, inferred);
        self.thread(tid, None).ran = seen;
    }

    /// Books a wait of `tid` that has not ended when the trace ends.
    pub(super) fn open_to_the_end(&mut self, tid: u32, open: &Open) {
        let (now, wait) = (self.now, &*open.wait);
        let left = wait.left.0.min(now);
        let woken = wait.woken.map_or(now, |woken| woken.0.clamp(left, now));
        let off = states(wait);
        let by = self.woken_by(wait);
        let moments = (left, woken, now);
        self.off(tid, wait, (&open.sleep, by.as_ref()), moments, off, off);
    }

    /// Learns which processes a recorder of the whole machine followed. It takes stacks of the program for these
    /// only.
    fn follows(&mut self, event: &Event, wait: &Wait) {
        if let (Some(pid), Some(_)) = (event.pid, &wait.user_stack) {
            self.followed.insert(pid);
        }
    }

    /// Learns from a counter of a process that the recorder follows it: the recorder reads counters of followed
    /// processes only.
    pub(super) fn counted(&mut self, name: &str, pid: Option<u32>) {
        if let Some(pid) = pid
            && name == "voluntary switches"
            && self.has_whole_machine()
        {
            self.followed.insert(pid);
        }
    }

    /// Returns whether the recorder kept the threads of the whole machine.
    fn has_whole_machine(&self) -> bool {
        let mut events = self.metadata.events.iter().flatten();
        events.any(|event| event == "bpf:sched_switch")
    }

    /// Takes an event by which a thread begins, ends, or executes another program.
    pub(super) fn lives(&mut self, event: &Event) {
        match &event.kind {
            Kind::Fork {
                target_tid,
                target_pid,
                target_comm,
            } => {
                let parent = self.acts(event);
                let traced = parent.is_some_and(|tid| self.threads[&tid].traced);
                if let (Some(child), Some(parent)) = (target_pid, event.pid)
                    && self.followed.contains(&parent)
                {
                    self.followed.insert(*child);
                }
                // The id was reused: its former thread is gone, although its end was not seen.
                self.end_thread(*target_tid);
                let mut thread = Thread::new(self.now);
                thread.traced = traced;
                thread.pid = *target_pid;
                thread.comm.clone_from(target_comm);
                self.threads.insert(*target_tid, thread);
            }
            Kind::Exec { filename, .. } => {
                let program = self.metadata.program.as_deref().map(file_name);
                if let Some(tid) = event.tid
                    && filename.as_deref().map(file_name) == program
                    && program.is_some()
                    && !std::mem::replace(&mut self.begun, true)
                {
                    self.graph.program_begins(tid, event.comm.as_ref());
                }
                let tid = self.acts(event);
                if let Some(tid) = tid.filter(|_| !self.has_whole_machine()) {
                    self.thread(tid, None).traced = true;
                }
            }
            Kind::Task(task) => {
                let begins = matches!(task.moment, Moment::Begin | Moment::New);
                if let (Some(tid), true) = (event.tid, begins) {
                    self.thread(tid, event.comm.as_ref()).heard = true;
                }
            }
            _ => {
                let now = self.now;
                if let Some(tid) = self.acts(event) {
                    self.thread(tid, None).exits = Some(now);
                    self.ending.push_back((now, tid));
                }
            }
        }
    }
}

/// Returns whether a wait is probably the last of its call. A thread that sleeps for a time, a word, events or bytes
/// is woken once, and a loop of such calls is many operations, however briefly the thread runs between them. A sleep
/// for a file's pages is uninterruptible.
fn ends_with_its_sleep(wait: &Wait, call: &wait::Call) -> bool {
    wait.state == Some(wait::State::Sleeping)
        && (call.name.as_deref()).is_some_and(|name| sleeps_once(name, call.arguments))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_computing(thread: &Thread) -> bool {
    (thread.operation.as_ref()).is_some_and(|operation| operation.family == Family::Computing)
}

/// Returns whether a thread sleeps in a call whose begin was not recorded. Without a stack, an interruptible sleep
/// shows it: a page fault sleeps uninterruptibly, except with userfaultfd.
fn is_in_a_call(wait: &Wait) -> bool {
    match &wait.stack {
        Some(stack) => stack::in_call(&stack.frames),
        None => wait.state == Some(wait::State::Sleeping),
    }
}

/// Returns whether a thread waits for its io_uring. The kernel counts such a wait as a sleep for I/O, for any kind of
/// request (io_uring/io_uring.c, `io_cqring_schedule_timeout`).
fn waits_for_ring(wait: &Wait) -> bool {
    let name = wait.call.as_ref().and_then(|call| call.name.as_deref());
    name == Some("io_uring_enter")
}
