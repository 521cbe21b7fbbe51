//! One thread: which state it is in, in which call, and in the middle of what.
//!
//! ```text
//!              switched in                     switched out, could run on
//!   runnable ---------------> running -----------------------------------> runnable
//!      ^                         |  switched out, asleep
//!      | woken                   v
//!      +---------------------- blocked            unknown: before it is first heard of, and
//!                                                 where what is heard contradicts what was
//! ```
//!
//! Time moves on in [`Thread::advance`] alone, which books every nanosecond on one state and, inside an operation,
//! on one cause: both add up by construction.

use std::collections::HashMap;

use stopgap_trace::Text;

use crate::call::{Call, Family, Role};
use crate::interval::Intervals;
use crate::operation::Operation;
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
    /// Returns the time since `before`.
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

/// Where a thread is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Where {
    /// No event of it came yet.
    #[default]
    Unknown,
    /// In its own code, or the kernel's on an interrupt's or a fault's behalf.
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

/// A waking that the thread did since it got its CPU.
#[derive(Debug, Clone)]
pub(crate) struct Woke {
    pub(crate) whom: u32,
    /// The call in which it did; `None`: in none, so an interrupt did.
    pub(crate) call: Option<Text>,
}

/// The last waking of the thread.
#[derive(Debug, Clone)]
pub(crate) struct WokenBy {
    /// `None`: an interrupt.
    pub(crate) task: Option<Text>,
    pub(crate) call: Option<Text>,
    pub(crate) role: Role,
}

/// Wakings of a stay on a CPU that are kept; of more, the last ones.
const WOKEN: usize = 8;

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) comm: Option<Text>,
    /// When it began to exist within the trace.
    pub(crate) begin: u64,
    /// Up to when its time is booked.
    pub(crate) booked: u64,
    pub(crate) state: State,
    pub(crate) times: Times,
    pub(crate) place: Where,
    pub(crate) ended: Option<Ended>,
    pub(crate) intervals: Intervals,
    /// The cause by the stack of the last switch-out.
    pub(crate) sleeps: Option<Why>,
    /// Whether the last sleep was not interruptible.
    pub(crate) deep: bool,
    /// Requests to block devices that it issued and that are not complete.
    pub(crate) requests: u32,
    pub(crate) operation: Option<Operation>,
    pub(crate) short: Short,
    pub(crate) woke: Vec<Woke>,
    pub(crate) woken_by: Option<WokenBy>,
    /// Whether it was switched out in the call that it is in, by its own will.
    pub(crate) slept_in_call: bool,
    /// Begin of the sleep, and what it is booked on.
    pub(crate) asleep: Option<(u64, Why)>,
    /// How long the sleep before was, and what it is booked on.
    pub(crate) slept: Option<(u64, Why)>,
    /// A recorder that was asked for it made events of its own doing, not only of its switches.
    pub(crate) traced: bool,
    /// Its first event is the first there was: the trace is whole from its begin on.
    pub(crate) whole: bool,
    pub(crate) exiting: bool,
    /// It has waited for several descriptors at once.
    pub(crate) multiplexes: bool,
    pub(crate) switches: u64,
    pub(crate) involuntary: u64,
    pub(crate) causes: HashMap<Because, u64>,
    pub(crate) cpus: Cpus,
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

    /// Books the time up to `now`.
    pub(crate) fn advance(&mut self, now: u64) {
        self.book(now, self.state);
    }

    /// An event says that it was in `state`: where it is its first, and no one before can be missing, it was so from
    /// the begin on.
    pub(crate) fn was(&mut self, state: State) {
        if std::mem::take(&mut self.whole) && self.state == State::Unknown {
            self.state = state;
        }
    }

    /// Books the time up to `now` as unknown: what was believed of it turns out wrong.
    pub(crate) fn doubt(&mut self, now: u64) {
        self.book(now, State::Unknown);
        self.asleep = None;
    }

    fn book(&mut self, now: u64, state: State) {
        let ns = now.saturating_sub(self.booked);
        self.booked = self.booked.max(now);
        self.times.add(state, ns);
        let why = self.operation.as_ref().map(|_| self.why(state));
        if let (Some(why), Some(operation)) = (why, &mut self.operation) {
            if state == State::Blocked && why == Why::Unknown {
                operation.unexplained_ns = operation.unexplained_ns.saturating_add(ns);
            }
            operation.charge(&why, ns);
        }
    }

    /// Why time passes now, were the thread in `state`.
    fn why(&self, state: State) -> Why {
        let intervals = || self.intervals.memory().or_else(|| self.intervals.wait());
        match state {
            State::Unknown => intervals().unwrap_or(Why::Unknown),
            State::Running => intervals().unwrap_or(Why::OnCpu),
            State::Runnable => Why::RunQueue,
            State::Blocked => self.why_asleep(),
        }
    }

    pub(crate) fn why_asleep(&self) -> Why {
        if self.sleeps == Some(Why::Throttled) || self.intervals.throttled() {
            return Why::Throttled;
        }
        let of_stack = self.sleeps.clone();
        let memory = self.intervals.memory();
        memory
            .or_else(|| of_stack.clone().filter(Why::is_reclaim))
            .or_else(|| self.intervals.wait())
            .or(of_stack)
            .or_else(|| (self.deep && self.requests > 0).then_some(Why::Io))
            .or_else(|| self.waits_for_an_event().then_some(Why::Event))
            .unwrap_or(Why::Unknown)
    }

    /// Whether it sleeps, to be woken by a signal too, in a call that is made to wait.
    fn waits_for_an_event(&self) -> bool {
        let family = self.operation.as_ref().map(|operation| operation.family);
        family == Some(Family::Poll) && !self.deep
    }

    pub(crate) fn call(&self) -> Option<&Call> {
        match &self.place {
            Where::In(call) => Some(call),
            _ => None,
        }
    }

    /// Notes that it woke somebody.
    pub(crate) fn notes_waking(&mut self, whom: u32) {
        if self.woke.len() == WOKEN {
            self.woke.remove(0);
        }
        let call = self.call().map(|call| Text::clone(&call.name));
        self.woke.push(Woke { whom, call });
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
