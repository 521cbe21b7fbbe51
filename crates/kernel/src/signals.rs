//! Ctrl-C still reports what was measured: the first SIGINT or SIGTERM only raises a flag that
//! every probe looks at between two steps; the second ends the process as usual (and what was
//! changed is put back by the next run, see [`crate::journal`]).

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn raise_flag(signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::Relaxed) {
        // SAFETY: signal(2) and raise(3) are async-signal-safe; both take plain integers.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP raise the flag. Children made by fork inherit it.
/// SIGPIPE stays ignored, as Rust's runtime sets it: a closed pipe is an error of write(2). So
/// is SIGXFSZ: a file beyond `RLIMIT_FSIZE` is an error (`EFBIG`), not the end of the run.
pub fn install() {
    // SAFETY: signal(2) takes plain integers; SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is a valid value (no flags, empty mask); the handler
        // is async-signal-safe: it swaps an atomic and calls signal(2) and raise(3).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = raise_flag as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn raise_request(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// From now on SIGUSR1 is a request, see [`requested`], and ends this process no more.
pub fn take_requests() {
    // SAFETY: as in `install`; the handler stores to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = raise_request as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}

/// Whether SIGUSR1 came since this was last asked.
#[must_use]
pub fn requested() -> bool {
    REQUESTED.swap(false, Ordering::Relaxed)
}

/// Whether the flag is up.
#[must_use]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}
