//! Finds why a thread left its CPU. Each switch-out has one cause, so the causes add up to the total.
//!
//! A kernel without preemption inside system calls (`PREEMPT_NONE`, and `none` of `PREEMPT_DYNAMIC`) notices only on
//! the way back to user mode, after `sys_exit`, that a thread which was woken in the call goes first. The switch then
//! seems to happen outside of any call. It is counted for the call that ended last, if the thread had woken the next
//! thread in that call, at most [`WAY_OUT_NS`] ago.

use stopgap_events::wait::{self, Wait, Within};
use stopgap_stats::explain::CauseKind;
use stopgap_trace::Text;

use crate::call::{Role, name_of, role};
use crate::operation::Operation;
use crate::stack;
use crate::thread::{Thread, Woke, could_run_on};

/// Nanoseconds. The way out of a call takes microseconds. The next tick, which would be another cause, is 1 to 10 ms
/// away.
pub(crate) const WAY_OUT_NS: u64 = 100_000;

/// The cause of a switch-out of one thread.
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

    /// Returns the cause in words.
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

/// Returns why `thread` left its CPU when `wait` began.
pub(crate) fn because(thread: &Thread, wait: &Wait, left: u64) -> Because {
    if wait.state == Some(wait::State::Dead) {
        return Because::new(CauseKind::Ended);
    }
    match could_run_on(wait) {
        None => Because::new(CauseKind::Unknown),
        Some(true) => preempted(thread, wait, left),
        Some(false) => blocked(thread, wait),
    }
}

/// Returns the name of the call in which a thread waited.
pub(crate) fn call_in(wait: &Wait) -> Option<Text> {
    let call = wait.call.as_ref()?;
    Some(name_of(call.number, call.name.as_ref()))
}

fn preempted(thread: &Thread, wait: &Wait, left: u64) -> Because {
    let next = wait.next.as_ref().map(|next| next.tid);
    let since = thread.ran;
    let own = |woke: &&Woke| Some(woke.whom) == next && (since..=left).contains(&woke.at);
    let woke = thread.woke.iter().rev().find(own);
    let name = wait.next.as_ref().and_then(|next| next.comm.as_ref());
    let by = woke.and(name).map(Text::clone);
    match (call_in(wait), wait.within) {
        (Some(call), _) if &*call == "sched_yield" => Because::in_call(CauseKind::Yielded, &call),
        (Some(call), _) => Because {
            by,
            ..Because::in_call(CauseKind::PreemptedInCall, &call)
        },
        (None, None) => Because {
            by,
            ..Because::new(CauseKind::Preempted)
        },
        (None, Some(_)) => {
            let woken_in = woke.and_then(|woke| Some((woke.call.as_ref()?, woke.at)));
            // Without rows of calls, the waking is the last time at which the call was certainly under way.
            let ended = woken_in.filter(|(call, at)| {
                let (name, at) = match &thread.ended {
                    Some(ended) => (&ended.name, ended.at),
                    None => (*call, *at),
                };
                name == *call && left.saturating_sub(at) <= WAY_OUT_NS
            });
            match ended {
                Some((call, _)) => Because {
                    by,
                    ..Because::in_call(CauseKind::PreemptedOnTheWayOut, call)
                },
                None => Because {
                    by,
                    ..Because::new(CauseKind::PreemptedInUser)
                },
            }
        }
    }
}

fn blocked(thread: &Thread, wait: &Wait) -> Because {
    let stopped = matches!(wait.state, Some(wait::State::Stopped | wait::State::Traced));
    let call = match (call_in(wait), wait.within) {
        _ if stopped => return Because::in_call(CauseKind::Blocked, &"a stop by a signal".into()),
        (Some(call), _) => call,
        (None, None) => return Because::new(CauseKind::Blocked),
        (None, Some(Within::Kernel)) => {
            return Because::in_call(CauseKind::Blocked, &"the kernel".into());
        }
        // Outside of calls, a thread sleeps in a page fault, or because a signal stops it.
        (None, _) => {
            let by_rows = |operation: &Operation| operation.by_waits.is_none();
            let in_fault = thread.operation.as_deref().is_some_and(by_rows)
                || wait
                    .stack
                    .as_ref()
                    .is_some_and(|stack| stack::in_fault(&stack.frames));
            let place = match in_fault {
                true => "a page fault",
                false => "no system call (a fault or a stop)",
            };
            return Because::in_call(CauseKind::Blocked, &place.into());
        }
    };
    // The thread never left the call: it was woken, but not for what it waits for.
    let again = thread.slept_in_call && matches!(role(&call), Role::Waits | Role::Receives);
    match &thread.woken_by {
        Some(waker) if again => Because {
            kind: match waker.role {
                Role::Receives => CauseKind::WriteSpaceWake,
                _ => CauseKind::WokenForNothing,
            },
            call: Some(call),
            by: waker.task.clone(),
            by_call: waker.call.clone(),
        },
        _ => Because::in_call(CauseKind::Blocked, &call),
    }
}
