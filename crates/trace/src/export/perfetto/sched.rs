//! Scheduling as ftrace has it: of that, Perfetto makes the slices of CPUs, the states of threads
//! and the arrows of wake-ups, which no track event could.

use std::collections::HashMap;

use super::interned::Interned;
use super::messages::{
    Ftrace, FtraceEvent, FtraceEventBundle, SchedBlockedReason, SchedSwitch, SchedWaking,
};
use crate::export::timeline::Runs;
use crate::{Event, Text};
use stopgap_events::units::Nanos;
use stopgap_events::wait::{Stack, State, Task, Wait, Within};

/// Makes switches and wake-ups of waits.
///
/// A switch has two sides: the wait of the thread that leaves begins, and the wait of the thread that comes ends. The
/// first is known later, when that thread runs again; the switch is written then, with its own time. Perfetto sorts.
#[derive(Default)]
pub(super) struct Sched {
    runs: Runs,
    /// Arrivals after a thread whose wait is not over, by that thread.
    arrivals: HashMap<u32, Switch>,
    /// The last switch of each CPU of which the thread that left has ended: its wait came at once.
    ended: HashMap<u32, (Nanos, u32)>,
}

/// A switch, as far as it is known.
struct Switch {
    cpu: u32,
    time: Nanos,
    leaves: Option<Task>,
    priority: Option<i32>,
    state: i64,
    comes: Option<Task>,
    next_priority: Option<i32>,
}

impl Sched {
    /// Returns what a wait adds, each with its own time.
    pub(super) fn wait(
        &mut self,
        event: &Event,
        wait: &Wait,
        interned: &mut Interned,
    ) -> Vec<FtraceEventBundle> {
        let Some(tid) = event.tid else {
            return Vec::new();
        };
        let thread = Task {
            tid,
            comm: event.comm.clone(),
        };
        self.runs.wait(event, wait);
        let mut bundles = Vec::new();
        let arrival = self.arrivals.remove(&tid);
        let left = wait.left_cpu.filter(|_| !wait.began_before);
        match (arrival, left.filter(|_| wait.within != Some(Within::New))) {
            (arrival, Some(cpu)) => {
                let here = |switch: &Switch| (switch.cpu, switch.time) == (cpu, wait.left);
                let (arrival, other) = match arrival {
                    Some(arrival) if here(&arrival) => (Some(arrival), None),
                    other => (None, other),
                };
                bundles.extend(other.map(Switch::bundle));
                let (comes, next_priority) = match arrival {
                    Some(arrival) => (arrival.comes, arrival.next_priority),
                    None => (wait.next.clone(), None),
                };
                if wait.state == Some(State::Dead) {
                    self.ended.insert(cpu, (wait.left, tid));
                }
                let switch = Switch {
                    cpu,
                    time: wait.left,
                    leaves: Some(thread.clone()),
                    priority: wait.priority,
                    state: number(wait.state, wait.preempted),
                    comes,
                    next_priority,
                };
                let mut bundle = switch.bundle();
                bundle.event.extend(blocked(tid, wait, interned));
                bundles.push(bundle);
            }
            (arrival, None) => bundles.extend(arrival.map(Switch::bundle)),
        }
        bundles.extend(self.wakes(event, &thread, wait));
        bundles.extend(self.arrives(event, thread, wait));
        bundles
    }

    fn wakes(&self, event: &Event, thread: &Task, wait: &Wait) -> Option<FtraceEventBundle> {
        let is_new = wait.within == Some(Within::New);
        let time = if is_new { wait.left } else { wait.woken? };
        let waker = wait.waker.as_ref().map(|waker| waker.task.tid);
        // Where the waker ran is known if its waits are.
        let cpu = waker.and_then(|tid| self.runs.cpu_of(tid, time));
        let waking = SchedWaking {
            comm: thread.comm.as_ref().map(Text::to_string),
            pid: Some(id(thread.tid)),
            prio: wait.priority,
            target_cpu: event.cpu.map(id),
        };
        let what = match is_new {
            true => Ftrace::WakeupNew(waking),
            false => Ftrace::Waking(waking),
        };
        Some(FtraceEventBundle {
            cpu: Some(cpu.or(event.cpu).or(wait.left_cpu)?),
            event: vec![FtraceEvent {
                timestamp: Some(time.0),
                pid: waker,
                event: Some(what),
            }],
        })
    }

    /// The thread gets a CPU: who had it, is in a wait that is not over, or the idle task, or unknown.
    fn arrives(&mut self, event: &Event, thread: Task, wait: &Wait) -> Option<FtraceEventBundle> {
        let (time, cpu) = (wait.ran?, event.cpu?);
        let leaves = wait.previous.clone();
        let previous = leaves.as_ref().map_or(0, |task| task.tid);
        let switch = Switch {
            cpu,
            time,
            leaves,
            priority: None,
            state: if previous == 0 { 0 } else { number(None, None) },
            comes: Some(thread),
            next_priority: wait.priority,
        };
        if previous == 0 {
            return Some(switch.bundle());
        }
        if self.ended.get(&cpu) == Some(&(time, previous)) {
            return None;
        }
        let before = self.arrivals.insert(previous, switch);
        before.map(Switch::bundle)
    }

    /// Returns the switches of which nothing more comes.
    pub(super) fn finish(self) -> Vec<FtraceEventBundle> {
        let mut left: Vec<Switch> = self.arrivals.into_values().collect();
        left.sort_unstable_by_key(|switch| (switch.time, switch.cpu));
        left.into_iter().map(Switch::bundle).collect()
    }
}

impl Switch {
    fn bundle(self) -> FtraceEventBundle {
        let pid = |task: &Option<Task>| task.as_ref().map(|task| task.tid);
        let comm = |task: &Option<Task>| Some(task.as_ref()?.comm.as_ref()?.to_string());
        let what = SchedSwitch {
            prev_comm: comm(&self.leaves),
            prev_pid: pid(&self.leaves).map(id),
            prev_prio: self.priority,
            prev_state: Some(self.state),
            next_comm: comm(&self.comes),
            next_pid: pid(&self.comes).map(id),
            next_prio: self.next_priority,
        };
        FtraceEventBundle {
            cpu: Some(self.cpu),
            event: vec![FtraceEvent {
                timestamp: Some(self.time.0),
                pid: pid(&self.leaves),
                event: Some(Ftrace::Switch(what)),
            }],
        }
    }
}

/// Where a thread that sleeps does so: `sched_blocked_reason` names the innermost function that is
/// not the scheduler's, as the kernel's `__get_wchan` does, and whether it waits for I/O, which is
/// what goes through `io_schedule`.
fn blocked(tid: u32, wait: &Wait, interned: &mut Interned) -> Option<FtraceEvent> {
    let stack = wait.stack.as_ref()?;
    if wait.state == Some(State::Runnable) {
        return None;
    }
    let caller = sleeps_in(stack)?;
    let for_io = wait.for_io.unwrap_or_else(|| {
        let mut frames = stack.frames.split(';');
        frames.any(|frame| frame.starts_with("io_schedule") || frame.starts_with("mutex_lock_io"))
    });
    let reason = SchedBlockedReason {
        pid: Some(id(tid)),
        caller: Some(interned.symbol(caller)),
        io_wait: Some(u32::from(for_io)),
    };
    Some(FtraceEvent {
        timestamp: Some(wait.left.0),
        pid: Some(tid),
        event: Some(Ftrace::BlockedReason(reason)),
    })
}

fn sleeps_in(stack: &Stack) -> Option<&str> {
    let mut kernel = stack
        .frames
        .rsplit(';')
        .map_while(|frame| frame.strip_suffix("_[k]"));
    let of_scheduler = |name: &str| {
        let name = name.trim_start_matches('_');
        name.starts_with("schedule")
            || name.starts_with("io_schedule")
            || name.starts_with("preempt_schedule")
    };
    kernel.find(|name| !of_scheduler(name))
}

/// An id of the kernel's; those are far below 2^31.
pub(super) fn id(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A state as a number. Which number means what depends on the kernel's version; where a trace names
/// none, Perfetto takes those of Linux 4.4 (`TASK_STATE_TO_CHAR_STR`, include/linux/sched.h).
fn number(state: Option<State>, preempted: Option<bool>) -> i64 {
    const PREEMPTED: i64 = 0x800;
    /// Interruptible and not: shown as `SD`, for a thread of which no more is known than that it did
    /// not run on.
    const SLEEPS: i64 = 0x1 | 0x2;
    if preempted == Some(true) {
        return PREEMPTED;
    }
    match state {
        Some(State::Runnable) => 0,
        Some(State::Sleeping) => 0x1,
        Some(State::Blocked) => 0x2,
        Some(State::Stopped) => 0x4,
        Some(State::Traced) => 0x8,
        Some(State::Dead) => 0x10,
        Some(State::Parked) => 0x200,
        // Idle is uninterruptible without being load.
        Some(State::Idle) => 0x402,
        None => SLEEPS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_thread_sleeps_is_below_the_scheduler() {
        let stack = |frames: &[&str]| Stack {
            frames: frames.join(";").into(),
            of_a_like_wait: false,
        };
        let poll = stack(&[
            "main",
            "poll",
            "do_sys_poll_[k]",
            "schedule_hrtimeout_[k]",
            "schedule_[k]",
        ]);
        assert_eq!(sleeps_in(&poll), Some("do_sys_poll"));
        let read = stack(&[
            "filemap_read_[k]",
            "io_schedule_[k]",
            "schedule_[k]",
            "__schedule_[k]",
        ]);
        assert_eq!(sleeps_in(&read), Some("filemap_read"));
        assert_eq!(
            sleeps_in(&stack(&["main", "schedule"])),
            None,
            "no kernel frame"
        );
        assert_eq!(sleeps_in(&stack(&["schedule_[k]"])), None);
    }

    #[test]
    fn states_have_the_numbers_of_linux_4_4() {
        assert_eq!(number(Some(State::Sleeping), Some(false)), 1);
        assert_eq!(number(Some(State::Runnable), Some(true)), 0x800);
        assert_eq!(number(Some(State::Runnable), None), 0);
        assert_eq!(number(None, Some(false)), 3);
    }
}
