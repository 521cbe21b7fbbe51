//! Why a thread left its CPU: each switch-out has one cause, so that causes add up to the total.
//!
//! The trap: a kernel without preemption inside system calls (`PREEMPT_NONE`, and `none` of `PREEMPT_DYNAMIC`)
//! notices on the way back to user mode, after `sys_exit`, that a thread which was woken in the call goes first. A
//! switch then seems to happen in no call at all. It is put down to the call that ended last, if in that call the
//! thread woke whom it makes room for, and if that was at most [`WAY_OUT_NS`] ago.

use stopgap_stats::explain::CauseKind;
use stopgap_trace::Text;

use crate::call::Role;
use crate::thread::{Thread, Where};

/// The way out of a call takes microseconds; the next tick, which would be another cause, is 1 to 10 ms away.
pub(crate) const WAY_OUT_NS: u64 = 100_000;

/// A cause, of one thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Because {
    pub(crate) kind: CauseKind,
    pub(crate) call: Option<Text>,
    pub(crate) by: Option<Text>,
    pub(crate) by_call: Option<Text>,
}

impl Because {
    fn new(kind: CauseKind) -> Because {
        Because {
            kind,
            call: None,
            by: None,
            by_call: None,
        }
    }

    fn in_call(kind: CauseKind, call: &Text) -> Because {
        Because {
            call: Some(Text::clone(call)),
            ..Because::new(kind)
        }
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let call = self.call.as_deref().unwrap_or("an unknown call");
        let by = self.by.as_deref().unwrap_or("an interrupt");
        let in_call = self.by_call.as_deref();
        match self.kind {
            CauseKind::Blocked => format!("blocked in {call}"),
            CauseKind::WriteSpaceWake => format!(
                "woken for nothing by {by}'s {} (write space), back to sleep in {call}",
                in_call.unwrap_or("read")
            ),
            CauseKind::WokenForNothing => match in_call {
                Some(theirs) => {
                    format!("woken for nothing by {by}'s {theirs}, back to sleep in {call}")
                }
                None => format!("woken for nothing by {by}, back to sleep in {call}"),
            },
            CauseKind::PreemptedOnTheWayOut => {
                format!("pre-empted on the way out of {call}, in which it woke {by}")
            }
            CauseKind::PreemptedInCall => match &self.by {
                Some(by) => format!("pre-empted in {call} by {by}, which had been woken"),
                None => format!("pre-empted in {call}"),
            },
            CauseKind::PreemptedInUser => match &self.by {
                Some(by) => format!("pre-empted in user mode by {by}, which had been woken"),
                None => "pre-empted in user mode (end of its slice)".to_owned(),
            },
            CauseKind::Preempted => match &self.by {
                Some(by) => format!("pre-empted by {by}, which had been woken"),
                None => "pre-empted, it is not known where".to_owned(),
            },
            CauseKind::Yielded => "yielded (sched_yield)".to_owned(),
            CauseKind::Ended => "ended".to_owned(),
            CauseKind::Unknown => "not known".to_owned(),
        }
    }
}

/// Why `thread` leaves now, `could_run_on` or not (`None`: the trace does not say), for the thread `next`.
pub(crate) fn because(
    thread: &Thread,
    now: u64,
    could_run_on: Option<bool>,
    next: Option<u32>,
    next_name: Option<&Text>,
) -> Because {
    if thread.exiting {
        return Because::new(CauseKind::Ended);
    }
    match could_run_on {
        None => Because::new(CauseKind::Unknown),
        Some(true) => preempted(thread, now, next, next_name),
        Some(false) => blocked(thread),
    }
}

fn preempted(thread: &Thread, now: u64, next: Option<u32>, next_name: Option<&Text>) -> Because {
    let woke = thread.woke.iter().rev().find(|w| Some(w.whom) == next);
    let by = woke.and(next_name).map(Text::clone);
    match &thread.place {
        Where::In(call) if &*call.name == "sched_yield" => {
            Because::in_call(CauseKind::Yielded, &call.name)
        }
        Where::In(call) => Because {
            by,
            ..Because::in_call(CauseKind::PreemptedInCall, &call.name)
        },
        Where::Unknown => Because {
            by,
            ..Because::new(CauseKind::Preempted)
        },
        Where::User => {
            let ended = thread.ended.as_ref().filter(|ended| {
                let woke_in_it = woke.is_some_and(|woke| woke.call.as_ref() == Some(&ended.name));
                woke_in_it && now.saturating_sub(ended.at) <= WAY_OUT_NS
            });
            match ended {
                Some(ended) => Because {
                    by,
                    ..Because::in_call(CauseKind::PreemptedOnTheWayOut, &ended.name)
                },
                None => Because {
                    by,
                    ..Because::new(CauseKind::PreemptedInUser)
                },
            }
        }
    }
}

fn blocked(thread: &Thread) -> Because {
    let call = match &thread.place {
        Where::In(call) => call,
        Where::Unknown => return Because::new(CauseKind::Blocked),
        // Outside of a call a thread sleeps in a fault, or where a signal stops it.
        Where::User if thread.operation.is_some() => {
            return Because::in_call(CauseKind::Blocked, &"a page fault".into());
        }
        Where::User => {
            return Because::in_call(
                CauseKind::Blocked,
                &"no system call (a fault or a stop)".into(),
            );
        }
    };
    // It never left the call: what it was woken for was not what it waits for.
    let again = thread.slept_in_call && matches!(call.role, Role::Waits | Role::Receives);
    match &thread.woken_by {
        Some(waker) if again => Because {
            kind: match waker.role {
                Role::Receives => CauseKind::WriteSpaceWake,
                _ => CauseKind::WokenForNothing,
            },
            call: Some(Text::clone(&call.name)),
            by: waker.task.clone(),
            by_call: waker.call.clone(),
        },
        _ => Because::in_call(CauseKind::Blocked, &call.name),
    }
}
