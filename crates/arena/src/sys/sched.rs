//! Scheduling policy of the calling thread. rustix has none of it.

use rustix::io::Errno;

use super::call;
use crate::error::Result;

fn errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
}

/// The policy, with `SCHED_RESET_ON_FORK` where that is set.
pub(crate) fn policy() -> Result<i32> {
    call("sched_getscheduler", || {
        // SAFETY: takes integers only; 0 is the calling thread.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        i32::try_from(policy)
            .ok()
            .filter(|&policy| policy >= 0)
            .ok_or_else(errno)
    })
}

/// Sets a policy that has no real-time priority; the nice value stays.
pub(crate) fn set_policy(policy: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    call("sched_setscheduler", || {
        // SAFETY: the parameters outlive the call, which only reads them; 0 is the calling thread.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                policy,
                &raw const parameters,
            )
        };
        if done == 0 { Ok(()) } else { Err(errno()) }
    })
}
