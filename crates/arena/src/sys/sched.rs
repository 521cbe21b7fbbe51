//! Scheduling policy of the calling thread, which rustix does not have.

use syscalls::{Sysno, syscall};

use super::{call, errno};
use crate::error::Result;

/// Returns the policy, with `SCHED_RESET_ON_FORK` where that is set.
pub(crate) fn policy() -> Result<i32> {
    call("sched_getscheduler", || {
        // SAFETY: takes nothing but integers; 0 is the calling thread.
        let policy = unsafe { syscall!(Sysno::sched_getscheduler, 0) };
        // A policy is an int.
        policy.map(|policy| policy as i32).map_err(errno)
    })
}

/// Sets a policy that has no real-time priority; the nice value stays.
pub(crate) fn set_policy(policy: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    call("sched_setscheduler", || {
        let parameters = &raw const parameters;
        // SAFETY: the parameters outlive the call, which only reads them; 0 is the calling thread.
        unsafe { syscall!(Sysno::sched_setscheduler, 0, policy, parameters) }
            .map(drop)
            .map_err(errno)
    })
}
