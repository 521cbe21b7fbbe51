//! Ctrl-C still reports what was measured: the first SIGINT or SIGTERM only raises a flag that
//! every probe looks at between two steps. What comes within two seconds after it is the same wish once
//! more: `timeout` signals its child and then the whole group, a shell and a service manager may too. One
//! that comes later ends the process at once, so that a run that hangs can be ended (what was changed is
//! then put back by the next run, see [`crate::journal`]).
//!
//! ```text
//! first          2 s            later
//!   |-- ignored --|-- ends at once --
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How long after the first signal others are ignored, in nanoseconds.
const SAME_WISH: u64 = 2_000_000_000;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// When the first signal came, on the monotonic clock; 0 before.
static FIRST: AtomicU64 = AtomicU64::new(0);
static LEAVES: OnceLock<String> = OnceLock::new();

extern "C" fn raise_flag(signal: libc::c_int) {
    let now = monotonic();
    let first = FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    INTERRUPTED.store(true, Ordering::Relaxed);
    let Err(first) = first else { return };
    if now.saturating_sub(first) < SAME_WISH {
        return;
    }
    if let Some(line) = LEAVES.get() {
        // SAFETY: write(2) is async-signal-safe; the text is never changed nor freed. Where nobody reads
        // it there is nobody to tell.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    // SAFETY: signal(2) and raise(3) are async-signal-safe; both take plain integers.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Nanoseconds of the monotonic clock, at least 1.
fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime(2) is async-signal-safe and writes only to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    (seconds * 1_000_000_000 + nanos).max(1)
}

/// Sets the line for standard error if a later signal ends the process at once: what it leaves, and who
/// puts that back. The first such line counts.
pub fn leaves(line: &str) {
    let _ = LEAVES.set(format!("stopgap: {line}\n"));
}

/// From now on a file beyond `RLIMIT_FSIZE` is an error of write(2) (`EFBIG`), not the end of the run: SIGXFSZ is
/// ignored, as Rust's runtime does with SIGPIPE. What an exec(2) makes of this process inherits that.
pub fn survive_file_limits() {
    // SAFETY: signal(2) takes plain integers; SIG_IGN runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on SIGINT, SIGTERM and SIGHUP raise the flag. Children made by fork inherit it. SIGPIPE stays ignored,
/// as Rust's runtime sets it: a closed pipe is an error of write(2). So is SIGXFSZ, see [`survive_file_limits`].
pub fn install() {
    survive_file_limits();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, raise_flag);
    }
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: an all-zero sigaction is a valid value (no flags, empty mask); both handlers of this module are
    // async-signal-safe: atomics, clock_gettime(2), write(2), signal(2) and raise(3).
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// The signal of writing to a pipe that nobody reads.
pub const CLOSED_PIPE: i32 = libc::SIGPIPE;

/// Ends this process by [`CLOSED_PIPE`], as programs end that do not handle it. Returns only where another thread blocks it.
pub fn end_by_closed_pipe() {
    // SAFETY: signal(2) and raise(3) take plain integers.
    unsafe {
        libc::signal(CLOSED_PIPE, libc::SIG_DFL);
        libc::raise(CLOSED_PIPE);
    }
}

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn raise_request(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// From now on SIGUSR1 is a request, see [`requested`], and ends this process no more.
pub fn take_requests() {
    handle(libc::SIGUSR1, raise_request);
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

/// Returns the flag itself, for a wait that looks at one.
#[must_use]
pub fn flag() -> &'static AtomicBool {
    &INTERRUPTED
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// The second and the third signal come at once, as from `timeout`; one later ends who hangs.
    #[test]
    fn signals_close_together_are_one_and_a_later_one_ends_it() {
        const HANGS: &str = "STOPGAP_TEST_HANGS";
        if let Some(ready) = std::env::var_os(HANGS) {
            super::install();
            super::leaves("what is left");
            std::fs::write(ready, "").unwrap();
            loop {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let name = "signals::tests::signals_close_together_are_one_and_a_later_one_ends_it";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(HANGS, &ready)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while !ready.exists() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "it does not begin"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: kill(2) takes plain integers; the child is not waited for yet.
        let signal = |number| assert_eq!(unsafe { libc::kill(pid, number) }, 0);
        let first = Instant::now();
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGTERM] {
            signal(number);
            std::thread::sleep(Duration::from_millis(100));
        }
        if first.elapsed() < Duration::from_millis(1_900) {
            assert_eq!(child.try_wait().unwrap(), None, "the second one ended it");
        }
        std::thread::sleep(Duration::from_millis(2_200).saturating_sub(first.elapsed()));
        signal(libc::SIGTERM);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.ends_with("stopgap: what is left\n"), "{told}");
    }
}
