//! Between a call from Python and the work: threads, Ctrl-C, errors and panics.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use stopgap_cli::Failure;
use stopgap_cli::library::{self, Told};

create_exception!(
    stopgap,
    Error,
    PyValueError,
    "Why stopgap could not do it: the line that the command prints."
);

/// How long a call works between two looks at whether Python has heard Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Stack of the thread that does the work: that of the command's own.
const STACK: usize = 8 << 20;

/// Calls that are running in this process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// What a call gives: its result, and notes that the command would print on standard error.
pub(crate) type Noted<T> = (T, Vec<String>);

/// Does `work`, a command's, in a thread of its own without the GIL. Ctrl-C ends it, and with it all other calls
/// of this process.
///
/// # Errors
/// `Error` with the command's text, `KeyboardInterrupt`, and `RuntimeError` after a panic.
pub(crate) fn of_command<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<Told<T>, Failure> + Send + 'static,
) -> PyResult<Noted<T>> {
    let (sends, mut result) = sync_channel(1);
    RUNNING.fetch_add(1, Ordering::SeqCst);
    let spawned = thread::Builder::new()
        .name("stopgap".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            let done = library::caught(work);
            if RUNNING.fetch_sub(1, Ordering::SeqCst) == 1 {
                library::go_on();
            }
            let _ = sends.send(done); // nobody waits where the interpreter ends
        });
    if let Err(error) = spawned {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        return Err(PyRuntimeError::new_err(format!(
            "no thread can be made: {error}"
        )));
    }
    let mut interrupted = None;
    let done = loop {
        let received;
        (received, result) = py.detach(move || (result.recv_timeout(LOOK), result));
        match received {
            Ok(done) => break done,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    library::interrupt();
                    interrupted = Some(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread that works has ended"));
            }
        }
    };
    match (interrupted, done) {
        (_, Err(panic)) => Err(PyRuntimeError::new_err(panic)),
        (Some(error), _) => Err(error),
        (None, Ok(Err(failure))) => Err(Error::new_err(failure.message())),
        (None, Ok(Ok(told))) => Ok((told.value, told.notes)),
    }
}

/// Does `work`, which is short, without the GIL.
///
/// # Errors
/// Those of `work`, and `RuntimeError` after a panic.
pub(crate) fn guarded<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| held(work))
}

/// The same with the GIL, for work that calls Python.
pub(crate) fn held<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    library::caught(work).unwrap_or_else(|panic| Err(PyRuntimeError::new_err(panic)))
}
