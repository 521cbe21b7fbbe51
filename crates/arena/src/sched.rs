//! Scheduling policies that spare switches.
//!
//! A server that answers request by request wakes its client with the first answer. The client, which slept and so has the
//! better claim, takes the CPU from the server, finds one answer, sleeps again; and so on, two switches an answer where two
//! a flush would do. A thread under `SCHED_BATCH` is woken all the same but takes the CPU from nobody
//! (`wakeup_preempt_fair`, kernel/sched/fair.c; Linux 2.6.23 on): the server answers all, sleeps, and the client finds all
//! answers at once.

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::sys::threads::{policy, set_policy};

/// A thread under `SCHED_BATCH`. Dropped, the thread is under its old policy again.
#[derive(Debug)]
#[must_use = "dropped, the thread is under its old policy again"]
pub struct Batch {
    /// What to go back to; `None`: it was under it already, or stays so.
    before: Option<i32>,
    /// The policy is the thread's, so only that thread can undo it.
    _thread: PhantomData<*const ()>,
}

/// Puts the calling thread under `SCHED_BATCH`: being woken, it takes the CPU from nobody. For the *client* of a server
/// that answers one by one; a server under it gains nothing.
///
/// What it costs:
///
/// * Being woken on a CPU where another ordinary thread runs, it waits until that thread sleeps or its time slice is over
///   (some milliseconds), where before it would have run at once. With the CPU to itself it waits no longer than before.
/// * Its share of the CPU, its nice value and its place among real-time threads stay as they are.
/// * Threads and processes that it starts, and what it execs, inherit the policy. Start them before, or drop the guard
///   first.
///
/// Two system calls; dropping the guard is one.
///
/// # Errors
/// [`Error::Unsupported`] for a thread that is not under `SCHED_OTHER` (a real-time or deadline thread would lose its
/// claim, a `SCHED_IDLE` one could not go back); else as sched_setscheduler(2).
pub fn batch_client() -> Result<Batch> {
    let now = policy()?;
    let reset = now & libc::SCHED_RESET_ON_FORK;
    let before = match now & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_BATCH => None,
        libc::SCHED_OTHER => {
            // A thread without privilege may not take that flag away.
            set_policy(libc::SCHED_BATCH | reset)?;
            Some(now)
        }
        _ => {
            return Err(Error::unsupported(
                "SCHED_BATCH for this thread",
                "it is under a policy of its own choice, not under SCHED_OTHER",
            ));
        }
    };
    Ok(Batch {
        before,
        _thread: PhantomData,
    })
}

impl Batch {
    /// Leaves the thread under `SCHED_BATCH` for good, and with it what it execs.
    pub fn stay(mut self) {
        self.before = None;
    }

    /// Goes back to the old policy now: apart from dropping, so that its error can be seen.
    ///
    /// # Errors
    /// As sched_setscheduler(2).
    pub fn end(mut self) -> Result<()> {
        self.before.take().map_or(Ok(()), set_policy)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // Going back to SCHED_OTHER needs no privilege. In a drop nobody would hear of another error.
            let _ = set_policy(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::failing;
    use rustix::io::Errno;

    /// In a thread of its own: the policy is inherited.
    fn alone(work: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope
                .spawn(work)
                .join()
                .expect("the thread's assertions hold");
        });
    }

    #[test]
    fn a_thread_is_under_it_while_the_guard_lives() {
        alone(|| {
            assert_eq!(policy(), Ok(libc::SCHED_OTHER));
            let guard = batch_client().unwrap();
            assert_eq!(policy(), Ok(libc::SCHED_BATCH));
            // Inherited by what it starts.
            alone(|| assert_eq!(policy(), Ok(libc::SCHED_BATCH)));
            drop(guard);
            assert_eq!(policy(), Ok(libc::SCHED_OTHER));
        });
    }

    #[test]
    fn a_guard_within_a_guard_ends_nothing() {
        alone(|| {
            let outer = batch_client().unwrap();
            drop(batch_client().unwrap());
            assert_eq!(policy(), Ok(libc::SCHED_BATCH));
            outer.end().unwrap();
            assert_eq!(policy(), Ok(libc::SCHED_OTHER));
            batch_client().unwrap().stay();
            assert_eq!(policy(), Ok(libc::SCHED_BATCH));
        });
    }

    #[test]
    fn the_flag_beside_the_policy_stays() {
        alone(|| {
            set_policy(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK).unwrap();
            let guard = batch_client().unwrap();
            assert_eq!(policy(), Ok(libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK));
            // It has what is started lose real-time policies and not this one.
            alone(|| assert_eq!(policy(), Ok(libc::SCHED_BATCH)));
            drop(guard);
            assert_eq!(policy(), Ok(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK));
        });
    }

    #[test]
    fn a_thread_of_another_policy_keeps_it() {
        alone(|| {
            set_policy(libc::SCHED_IDLE).unwrap();
            assert!(matches!(batch_client(), Err(Error::Unsupported { .. })));
            assert_eq!(policy(), Ok(libc::SCHED_IDLE));
        });
    }

    #[test]
    fn a_refusal_changes_nothing() {
        alone(|| {
            for nth in 1..=2 {
                let calls = failing(nth, Errno::PERM, || batch_client().map(drop));
                assert!(calls.failed.is_some(), "{nth}");
                assert_eq!(
                    calls.result.map_err(|error| error.errno()),
                    Err(libc::EPERM)
                );
                assert_eq!(policy(), Ok(libc::SCHED_OTHER), "{nth}");
            }
        });
    }
}
