//! Scheduling as ftrace has it: of that, Perfetto makes the slices of CPUs, the states of threads
//! and the arrows of wake-ups, which no track event could.

use super::interned::Interned;
use super::messages::{
    Ftrace, FtraceEvent, FtraceEventBundle, SchedBlockedReason, SchedSwitch, SchedWaking,
};
use crate::{Event, Kind, Stack, Text};

/// The event as ftrace has it; `None` where it is none of scheduling, or on no CPU that is known.
pub(super) fn bundle(event: &Event, interned: &mut Interned) -> Option<FtraceEventBundle> {
    let cpu = Some(event.cpu?);
    let what = match &event.kind {
        Kind::Switch {
            state,
            preempted,
            priority,
            next_tid,
            next_comm,
            next_priority,
            ..
        } => Ftrace::Switch(SchedSwitch {
            prev_comm: event.comm.as_ref().map(Text::to_string),
            prev_pid: event.tid.map(id),
            prev_prio: *priority,
            prev_state: Some(number(state.as_deref(), *preempted)),
            next_comm: next_comm.as_ref().map(Text::to_string),
            next_pid: next_tid.map(id),
            next_prio: *next_priority,
        }),
        Kind::Waking {
            target_tid,
            target_comm,
            target_priority,
            target_cpu,
        } => Ftrace::Waking(waking(
            *target_tid,
            target_comm.as_ref(),
            *target_priority,
            *target_cpu,
        )),
        Kind::New {
            target_tid,
            target_comm,
            target_priority,
            target_cpu,
        } => Ftrace::WakeupNew(waking(
            *target_tid,
            target_comm.as_ref(),
            *target_priority,
            *target_cpu,
        )),
        _ => return None,
    };
    let timestamp = Some(event.time.0);
    let mut all = vec![FtraceEvent {
        timestamp,
        pid: event.tid,
        event: Some(what),
    }];
    if let Some(reason) = blocked(event, interned) {
        all.push(FtraceEvent {
            timestamp,
            pid: event.tid,
            event: Some(Ftrace::BlockedReason(reason)),
        });
    }
    Some(FtraceEventBundle { cpu, event: all })
}

fn waking(tid: u32, comm: Option<&Text>, prio: Option<i32>, cpu: Option<u32>) -> SchedWaking {
    SchedWaking {
        comm: comm.map(Text::to_string),
        pid: Some(id(tid)),
        prio,
        target_cpu: cpu.map(id),
    }
}

/// Where a thread that sleeps does so: `sched_blocked_reason` names the innermost function that is
/// not the scheduler's, as the kernel's `__get_wchan` does, and whether it waits for I/O, which is
/// what goes through `io_schedule`.
fn blocked(event: &Event, interned: &mut Interned) -> Option<SchedBlockedReason> {
    let Kind::Switch {
        state,
        preempted,
        stack: Some(stack),
        ..
    } = &event.kind
    else {
        return None;
    };
    if *preempted == Some(true) || state.as_deref().is_some_and(|state| state.starts_with('R')) {
        return None;
    }
    let caller = sleeps_in(stack)?;
    let for_io = stack
        .frames()
        .any(|frame| frame.starts_with("io_schedule") || frame.starts_with("mutex_lock_io"));
    Some(SchedBlockedReason {
        pid: event.tid.map(id),
        caller: Some(interned.symbol(caller)),
        io_wait: Some(u32::from(for_io)),
    })
}

fn sleeps_in(stack: &Stack) -> Option<&str> {
    let mut kernel = stack
        .frames()
        .rev()
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
fn number(state: Option<&str>, preempted: Option<bool>) -> i64 {
    const PREEMPTED: i64 = 0x800;
    /// Interruptible and not: shown as `SD`, for a thread of which no more is known than that it did
    /// not run on.
    const SLEEPS: i64 = 0x1 | 0x2;
    if preempted == Some(true) {
        return PREEMPTED;
    }
    match state {
        Some("R") => 0,
        Some("R+") => PREEMPTED,
        Some("S") => 0x1,
        Some("D") => 0x2,
        Some("T") => 0x4,
        Some("t") => 0x8,
        Some("X") => 0x10,
        Some("Z") => 0x20,
        Some("P") => 0x200,
        // Idle is uninterruptible without being load.
        Some("I") => 0x402,
        _ => SLEEPS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_thread_sleeps_is_below_the_scheduler() {
        let stack = |frames: &[&str]| Stack::new(frames.iter().copied());
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
        assert_eq!(number(Some("S"), Some(false)), 1);
        assert_eq!(number(Some("R"), Some(true)), 0x800);
        assert_eq!(number(Some("R+"), None), 0x800);
        assert_eq!(number(Some("R"), None), 0);
        assert_eq!(number(None, Some(false)), 3);
    }
}
