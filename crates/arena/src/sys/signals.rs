//! Keeping signals from the calling thread for some calls.

use std::marker::PhantomData;

use rustix::io::Errno;

use super::call;
use crate::error::Result;

/// The kernel's signal set: a bit a signal, the first of them signal 1.
type Signals = u64;
const ALL: Signals = !0;
static PIPE: Signals = 1 << (libc::SIGPIPE - 1);

fn errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
}

/// Changes what is blocked; what was.
fn mask(how: i32, set: Signals) -> std::result::Result<Signals, Errno> {
    let mut before: Signals = 0;
    let length = size_of::<Signals>();
    // SAFETY: both sets are of the length that is given and outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const set,
            &raw mut before,
            length,
        )
    };
    if done == 0 { Ok(before) } else { Err(errno()) }
}

/// While it lives no signal that can be blocked is handled by the thread that made it.
#[must_use = "dropped, signals come again"]
pub(crate) struct Blocked {
    before: Signals,
    /// Must stay on its thread.
    _thread: PhantomData<*const ()>,
}

impl Blocked {
    pub(crate) fn all() -> Result<Blocked> {
        let before = call("rt_sigprocmask", || mask(libc::SIG_BLOCK, ALL))?;
        Ok(Blocked {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // Cannot fail: the set came from the same call.
        let _ = mask(libc::SIG_SETMASK, self.before);
    }
}

/// While it lives the thread that made it gets no `SIGPIPE` for what it writes: the signal is blocked, and one that came
/// is taken. It goes to the thread that wrote (`anon_pipe_write`, fs/pipe.c), so nobody else's is taken.
#[must_use = "dropped, the signal comes again"]
pub(crate) struct NoPipeSignal {
    /// Signals that were blocked before; `None`: there is nothing to do.
    before: Option<Signals>,
    /// Must stay on its thread.
    _thread: PhantomData<*const ()>,
}

impl NoPipeSignal {
    pub(crate) fn new() -> Result<NoPipeSignal> {
        let mut pending: Signals = 0;
        call("rt_sigpending", || {
            // SAFETY: the set is of the length that is given and outlives the call.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_rt_sigpending,
                    &raw mut pending,
                    size_of::<Signals>(),
                )
            };
            if done == 0 { Ok(()) } else { Err(errno()) }
        })?;
        // One that waits already is blocked, and another adds nothing to it.
        let before = match pending & PIPE {
            0 => Some(call("rt_sigprocmask", || mask(libc::SIG_BLOCK, PIPE))?),
            _ => None,
        };
        Ok(NoPipeSignal {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for NoPipeSignal {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let nothing = std::ptr::null_mut::<libc::siginfo_t>();
        // SAFETY: set and time outlive the call, which writes nothing where nothing is named. `EAGAIN`: none came.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const PIPE,
                nothing,
                &raw const now,
                size_of::<Signals>(),
            )
        };
        if before & PIPE == 0 {
            // Cannot fail, as above.
            let _ = mask(libc::SIG_UNBLOCK, PIPE);
        }
    }
}
