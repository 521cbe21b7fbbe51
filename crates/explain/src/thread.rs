//! One thread: how it spent its time, its current call, and its current operation.
//!
//! ```text
//!   running | asleep       | runnable       | running ...
//!           left           woken            ran: the wait's row tells all of it
//! ```
//!
//! A thread runs between its waits. Its time is unknown before its first event, and where the begin or the end of a
//! wait is missing. Each nanosecond is booked on one state, so the states add up.

use std::collections::HashMap;

use stopgap_events::wait::{self, Wait};
use stopgap_trace::Text;

use crate::call::{Call, Role};
use crate::operation::{Operation, Site};
use crate::short::Short;
use crate::switch_cause::Because;
use crate::why::Why;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Unknown,
    Running,
    Runnable,
    Blocked,
}

/// Time by state, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) unknown: u64,
    pub(crate) running: u64,
    pub(crate) runnable: u64,
    pub(crate) blocked: u64,
}

impl Times {
    /// Returns the times since `before`.
    pub(crate) fn since(&self, before: &Times) -> Times {
        Times {
            unknown: self.unknown - before.unknown,
            running: self.running - before.running,
            runnable: self.runnable - before.runnable,
            blocked: self.blocked - before.blocked,
        }
    }

    fn add(&mut self, state: State, ns: u64) {
        *match state {
            State::Unknown => &mut self.unknown,
            State::Running => &mut self.running,
            State::Runnable => &mut self.runnable,
            State::Blocked => &mut self.blocked,
        } += ns;
    }
}

/// The place of a thread.
#[derive(Debug, Clone, Default)]
pub(crate) enum Where {
    /// Unknown: no event of the thread has come yet.
    #[default]
    Unknown,
    /// In its own code, or in the kernel because of an interrupt or a page fault.
    User,
    /// In a system call.
    In(Call),
}

/// The system call that ended last.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) name: Text,
    pub(crate) at: u64,
}

/// A waking by the thread.
#[derive(Debug, Clone)]
pub(crate) struct Woke {
    pub(crate) whom: u32,
    pub(crate) at: u64,
    /// The call in which the thread did it; `None`: an interrupt did it.
    pub(crate) call: Option<Text>,
}

/// The thread or interrupt that ended a sleep.
#[derive(Debug, Clone)]
pub(crate) struct WokenBy {
    /// `None`: an interrupt.
    pub(crate) task: Option<Text>,
    pub(crate) call: Option<Text>,
    pub(crate) role: Role,
}

/// Most wakings of a thread that are kept: the last ones.
const WOKEN: usize = 8;

/// A wait without its end.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) wait: Box<Wait>,
    /// The causes of its sleep, piece by piece.
    pub(crate) sleep: Vec<(Why, u64)>,
    /// The time until which it certainly lasted.
    pub(crate) seen: u64,
}

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) pid: Option<u32>,
    pub(crate) comm: Option<Text>,
    /// The begin of its life within the trace.
    pub(crate) begin: u64,
    /// The time up to which its times are booked.
    pub(crate) booked: u64,
    /// Whether an event has shown that it had a CPU, or what it did without one.
    pub(crate) heard: bool,
    pub(crate) times: Times,
    pub(crate) place: Where,
    pub(crate) ended: Option<Ended>,
    /// Whether its system calls have rows of their own.
    pub(crate) calls: bool,
    pub(crate) operation: Option<Box<Operation>>,
    pub(crate) short: Short,
    pub(crate) woke: Vec<Woke>,
    /// When it last got a CPU.
    pub(crate) ran: u64,
    pub(crate) woken_by: Option<WokenBy>,
    /// Whether it blocked in its current call.
    pub(crate) slept_in_call: bool,
    /// The place of its last wait.
    pub(crate) site: Option<Site>,
    /// Whether the call of its last wait ended with that wait.
    pub(crate) call_is_over: bool,
    /// Its last wait, if the wait's end was not seen.
    pub(crate) open: Option<Open>,
    /// Whether the recorder followed it, so that it has events of its own and not only switches.
    pub(crate) traced: bool,
    /// When it began to end.
    pub(crate) exits: Option<u64>,
    /// Whether it has waited for several descriptors at once.
    pub(crate) multiplexes: bool,
    pub(crate) switches: u64,
    pub(crate) involuntary: u64,
    pub(crate) causes: Causes,
    pub(crate) cpus: Cpus,
}

/// Switch-outs by cause.
#[derive(Default)]
pub(crate) struct Causes {
    /// Causes that came last: most of them come again soon.
    recent: Vec<(Because, u64)>,
    /// Index of the cause that the next new one replaces.
    next: usize,
    others: HashMap<Because, u64>,
}

/// Number of recent causes, which are compared one by one before the map is used.
const RECENT_CAUSES: usize = 4;

impl Causes {
    pub(crate) fn add(&mut self, because: Because) {
        if let Some((_, count)) = (self.recent.iter_mut()).find(|(known, _)| *known == because) {
            *count += 1;
        } else if self.recent.len() < RECENT_CAUSES {
            self.recent.push((because, 1));
        } else {
            let (cause, count) = std::mem::replace(&mut self.recent[self.next], (because, 1));
            *self.others.entry(cause).or_default() += count;
            self.next = (self.next + 1) % RECENT_CAUSES;
        }
    }

    /// Returns the number of switch-outs by cause.
    pub(crate) fn counts(mut self) -> HashMap<Because, u64> {
        for (cause, count) in self.recent {
            *self.others.entry(cause).or_default() += count;
        }
        self.others
    }
}

/// The CPUs on which a thread was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Cpus {
    #[default]
    None,
    One(u32),
    Several,
}

impl Thread {
    pub(crate) fn new(begin: u64) -> Thread {
        Thread {
            begin,
            booked: begin,
            ..Thread::default()
        }
    }

    /// Books the time up to `until`.
    pub(crate) fn book(&mut self, until: u64, state: State) {
        let ns = until.saturating_sub(self.booked);
        self.booked = self.booked.max(until);
        self.times.add(state, ns);
    }

    /// Books the time up to `until`, when it had a CPU. Without scheduling events (`scheduled` is false) the time
    /// before stays unknown.
    pub(crate) fn runs(&mut self, until: u64, scheduled: bool) {
        let state = match scheduled && self.heard {
            true => State::Running,
            false => State::Unknown,
        };
        self.book(until, state);
        self.heard = true;
    }

    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.place {
            Where::In(call) => Some(call),
            _ => None,
        }
    }

    /// Notes that the thread woke another one.
    pub(crate) fn notes_waking(&mut self, woke: Woke) {
        if self.woke.len() == WOKEN {
            self.woke.remove(0);
        }
        self.woke.push(woke);
    }

    pub(crate) fn notes_cpu(&mut self, cpu: Option<u32>) {
        self.cpus = match (self.cpus, cpu) {
            (Cpus::None, Some(cpu)) => Cpus::One(cpu),
            (Cpus::One(one), Some(cpu)) if one == cpu => Cpus::One(one),
            (cpus, None) => cpus,
            _ => Cpus::Several,
        };
    }
}

/// Returns the states of a wait: before and after the thread was woken.
pub(crate) fn states(wait: &Wait) -> (State, State) {
    let known = match (wait.state, wait.preempted) {
        (Some(wait::State::Runnable), _) | (None, Some(true)) => State::Runnable,
        (Some(_), _) | (None, Some(false)) => State::Blocked,
        (None, None) => State::Unknown,
    };
    (known, State::Runnable)
}

/// Returns whether the thread could have run on. `None`: the trace does not say.
pub(crate) fn could_run_on(wait: &Wait) -> Option<bool> {
    match states(wait).0 {
        State::Unknown => None,
        state => Some(state == State::Runnable),
    }
}
