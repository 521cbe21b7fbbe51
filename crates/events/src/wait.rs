//! A *wait*: one interval in which a thread was off its CPU.
//!
//! ```text
//!   running | asleep                 | runnable           | running
//!         left                     woken                 ran
//! ```
//!
//! This type is all that capture passes to explanation. BPF programs make waits as they happen. tracefs, perf and old
//! traces have switches and wake-ups, from which a state machine makes waits. Fields that a source does not have are
//! `None`.

use std::rc::Rc;

use crate::units::Nanos;
use crate::words;

/// One interval off the CPU, of one thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// When the thread left its CPU. If `began_before` is set, the earliest moment at which it may have been off one.
    pub left: Nanos,
    /// Whether its leaving was not seen: it left before the recording began, or the switch was lost.
    pub began_before: bool,
    /// When it was made runnable. `None`: this was not seen, or it was runnable all the time.
    pub woken: Option<Nanos>,
    /// When it ran again. `None`: not before the recording ended, or the switch was lost.
    pub ran: Option<Nanos>,
    /// The CPU that it left. The event has the CPU on which it ran again.
    pub left_cpu: Option<u32>,
    /// Its state off the CPU.
    pub state: Option<State>,
    /// Whether the scheduler took the CPU from it although it could have run on.
    pub preempted: Option<bool>,
    /// Whether it left because its cgroup had used up its share of CPU time (`cpu.max`).
    pub throttled: Option<bool>,
    /// Whether the kernel counts the sleep as one for I/O (`task_struct.in_iowait`).
    pub for_io: Option<bool>,
    /// The kernel's priority of the thread, lower is more urgent.
    pub priority: Option<i32>,
    /// Its place when it left: in a call, in its own code, or in the kernel.
    pub within: Option<Within>,
    /// Its system call, if it was in one.
    pub call: Option<Call>,
    /// The next instruction in user mode.
    pub instruction_pointer: Option<u64>,
    /// The stack pointer in user mode.
    pub stack_pointer: Option<u64>,
    /// Where in the kernel it waited.
    pub stack: Option<Stack>,
    /// Where in the program it waited.
    pub user_stack: Option<Stack>,
    /// The thread that got the CPU; 0 is the idle task.
    pub next: Option<Task>,
    /// The thread that had the CPU before, on which this one ran again.
    pub previous: Option<Task>,
    /// The thread or interrupt that made it runnable.
    pub waker: Option<Waker>,
}

/// A thread by number and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its thread id; 0 is the idle task.
    pub tid: u32,
    /// Its name.
    pub comm: Option<Rc<str>>,
}

/// The system call of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, as the machine counts them.
    pub number: u32,
    /// Its name, without `sys_`.
    pub name: Option<Rc<str>>,
    /// Its first three arguments, as the registers had them.
    pub arguments: [Option<u64>; 3],
}

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Frames joined by `;`, outermost first; kernel frames end in `_[k]`. A frame is a function's name or `0x...`.
    pub frames: Rc<str>,
    /// Whether it was taken of an earlier wait in the same call, at the same depth and instruction.
    pub of_a_like_wait: bool,
}

/// The thread or interrupt that made a thread runnable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waker {
    /// The thread that had the CPU at that moment.
    pub task: Task,
    /// Whether that thread did it, or an interrupt on its CPU. `None`: unknown.
    pub context: Option<Context>,
    /// The system call of that thread.
    pub call: Option<Call>,
}

/// State of a thread off its CPU. Words are the kernel's letters (`/proc/PID/status`, fs/proc/array.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Runnable: it was pre-empted, gave the CPU up, or is new.
    Runnable,
    /// Asleep, and a signal wakes it.
    Sleeping,
    /// Asleep, and no signal wakes it.
    Blocked,
    /// Asleep as `Blocked`, but not counted as load: an idle kernel thread.
    Idle,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a tracer.
    Traced,
    /// A parked kernel thread.
    Parked,
    /// It has ended.
    Dead,
}

words!(
    State, "state",
    Runnable "R",
    Sleeping "S",
    Blocked "D",
    Idle "I",
    Stopped "T",
    Traced "t",
    Parked "P",
    Dead "X",
);

/// Place of a thread when it left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Within {
    /// In a system call.
    Call,
    /// In its own code, or in the kernel because of an interrupt or a page fault.
    User,
    /// In a kernel thread, which has no calls.
    Kernel,
    /// In a new thread that has not run yet.
    New,
}

words!(
    Within, "place",
    Call "call",
    User "user",
    Kernel "kernel",
    New "new",
);

/// On whose behalf a CPU acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// The thread itself.
    Task,
    /// A softirq: timers, the network, completed I/O.
    Softirq,
    /// A hard interrupt; where the source does not tell them apart, a softirq too.
    Interrupt,
}

words!(
    Context, "context",
    Task "task",
    Softirq "softirq",
    Interrupt "interrupt",
);

impl Wait {
    /// Returns how long the thread could not run: asleep, stopped, or waiting for nobody to wake it. `None` where no
    /// waking was seen and it did sleep, or where its leaving was not seen.
    #[must_use]
    pub fn asleep(&self) -> Option<Nanos> {
        match (self.state, self.woken) {
            _ if self.began_before => None,
            (Some(State::Runnable), _) => Some(Nanos(0)),
            (_, Some(woken)) => Some(woken.saturating_sub(self.left)),
            (_, None) => None,
        }
    }

    /// Returns how long the thread was ready and had no CPU. `None` where it did not run again, or no waking was seen
    /// and it did sleep.
    #[must_use]
    pub fn runnable(&self) -> Option<Nanos> {
        let ready = match self.state {
            Some(State::Runnable) => self.left,
            _ => self.woken?,
        };
        Some(self.ran?.saturating_sub(ready))
    }

    /// Returns the whole length. `None` where it did not run again, or its leaving was not seen.
    #[must_use]
    pub fn length(&self) -> Option<Nanos> {
        let ran = self.ran.filter(|_| !self.began_before)?;
        Some(ran.saturating_sub(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_has_two_parts_and_a_preemption_one() {
        let slept = Wait {
            left: Nanos(10),
            woken: Some(Nanos(70)),
            ran: Some(Nanos(100)),
            state: Some(State::Sleeping),
            ..Wait::default()
        };
        assert_eq!(slept.asleep(), Some(Nanos(60)));
        assert_eq!(slept.runnable(), Some(Nanos(30)));
        assert_eq!(slept.length(), Some(Nanos(90)));
        let preempted = Wait {
            woken: None,
            state: Some(State::Runnable),
            ..slept.clone()
        };
        assert_eq!(preempted.asleep(), Some(Nanos(0)));
        assert_eq!(preempted.runnable(), Some(Nanos(90)));
        let before = Wait {
            began_before: true,
            ..slept.clone()
        };
        assert_eq!((before.asleep(), before.length()), (None, None));
        assert_eq!(before.runnable(), Some(Nanos(30)));
        let unseen = Wait {
            woken: None,
            ..slept
        };
        assert_eq!(unseen.asleep(), None, "unknown is not 0");
        assert_eq!(unseen.runnable(), None);
    }
}
