//! System calls that fail when a test says so, in the thread that says so.
//!
//! ```
//! # #[cfg(feature = "inject")] {
//! // The third call of the closure fails.
//! let calls = stopgap_arena::inject::failing(3, rustix::io::Errno::NOMEM, || { /* ... */ });
//! assert_eq!(calls.made, 0);
//! # }
//! ```

use std::cell::Cell;

use rustix::io::Errno;

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { made: 0, fail: 0, errno: Errno::NOMEM, failed: None }) };
}

#[derive(Clone, Copy)]
struct State {
    made: u64,
    /// 0: none.
    fail: u64,
    errno: Errno,
    failed: Option<&'static str>,
}

/// Calls made while [`failing`] ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls<T> {
    /// Return value of the closure.
    pub result: T,
    /// Calls made, the failed one among them.
    pub made: u64,
    /// Which one failed; `None` where fewer were made.
    pub failed: Option<&'static str>,
}

/// Runs `work`, in which the `nth` system call of this thread, from 1, fails with `errno`; 0: none does.
pub fn failing<T>(nth: u64, errno: Errno, work: impl FnOnce() -> T) -> Calls<T> {
    STATE.set(State {
        made: 0,
        fail: nth,
        errno,
        failed: None,
    });
    let result = work();
    let State { made, failed, .. } = STATE.replace(State {
        made: 0,
        fail: 0,
        errno,
        failed: None,
    });
    Calls {
        result,
        made,
        failed,
    }
}

/// Asked by each wrapper in `sys` before its call.
pub(crate) fn before(call: &'static str) -> Result<(), Errno> {
    let mut state = STATE.get();
    state.made += 1;
    let fails = state.made == state.fail;
    if fails {
        state.failed = Some(call);
    }
    STATE.set(state);
    if fails { Err(state.errno) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let calls = failing(2, Errno::NOMEM, || {
            [before("a"), before("b"), before("c")].map(|r| r.is_err())
        });
        assert_eq!(calls.result, [false, true, false]);
        assert_eq!((calls.made, calls.failed), (3, Some("b")));
        assert!(before("d").is_ok());
    }
}
