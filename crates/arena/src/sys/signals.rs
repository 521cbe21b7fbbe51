//! Keeping signals from the calling thread for some calls.

use std::marker::PhantomData;

use rustix::io::Errno;
use syscalls::{Sysno, syscall};

use super::{call, errno};
use crate::error::Result;

/// The kernel's signal set: a bit a signal, the first of them signal 1.
type Signals = u64;
const ALL: Signals = !0;
static PIPE: Signals = 1 << (libc::SIGPIPE - 1);

/// Sets the signal mask and returns the previous one.
fn mask(how: i32, set: Signals) -> std::result::Result<Signals, Errno> {
    let mut before: Signals = 0;
    let (new, old) = (&raw const set, &raw mut before);
    // SAFETY: both sets are of the length that is given and outlive the call.
    let done = unsafe { syscall!(Sysno::rt_sigprocmask, how, new, old, size_of::<Signals>()) };
    done.map(|_| before).map_err(errno)
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
            let set = &raw mut pending;
            // SAFETY: the set is of the length that is given and outlives the call.
            unsafe { syscall!(Sysno::rt_sigpending, set, size_of::<Signals>()) }.map_err(errno)
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
        let (now, nothing) = ([0_i64; 2], std::ptr::null_mut::<libc::siginfo_t>());
        let (set, time) = (&raw const PIPE, now.as_ptr());
        let length = size_of::<Signals>();
        // SAFETY: set and time outlive the call, which writes nothing where nothing is named. `EAGAIN`: none came.
        let _ = unsafe { syscall!(Sysno::rt_sigtimedwait, set, nothing, time, length) };
        if before & PIPE == 0 {
            // Cannot fail, as above.
            let _ = mask(libc::SIG_UNBLOCK, PIPE);
        }
    }
}
