//! The commands that only read, for another program in whose process they run: same flags, same documents, same errors, but
//! nothing is printed, no record is written, and signals stay the program's.
//!
//! Each takes the words of a command line, program name first. [`interrupt`] ends all that run, as Ctrl-C ends the command.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_kernel::signals;
use stopgap_stats::explain::Explain;
use stopgap_stats::replay::Replay;

use crate::args::{Args, Command, ReplayQuestion, parse_words};
use crate::{Failure, compare, explain, input_file, ministat, replay};

pub use crate::compare::Compared;

thread_local! {
    /// The call in which this thread is.
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

struct Call {
    words: Vec<OsString>,
    notes: Vec<String>,
}

/// What a call gave, and what the command would have told on standard error beside it.
#[derive(Debug)]
pub struct Told<T> {
    /// The document.
    pub value: T,
    /// Notes and warnings, in their order.
    pub notes: Vec<String>,
}

/// An explained trace.
#[derive(Debug)]
pub struct Explained {
    /// The document that `stopgap explain --json` prints.
    pub document: Explain,
    /// Why the trace was not read to its end; what comes before is explained.
    pub damaged: Option<String>,
}

/// Does what `stopgap explain` does with these words.
///
/// # Errors
/// [`Failure`], as the command's.
pub fn explain(words: &[OsString]) -> Result<Told<Explained>, Failure> {
    call(words, |command| match command {
        Command::Explain(flags) => {
            let (document, damaged) = explain::document(&flags)?;
            let damaged = damaged.map(Failure::message);
            Ok(Explained { document, damaged })
        }
        _ => Err(another()),
    })
}

/// Does what `stopgap replay` does with these words. `--no-record` is to be among them.
///
/// # Errors
/// [`Failure`], as the command's.
pub fn replay(words: &[OsString]) -> Result<Told<Replay>, Failure> {
    call(words, |command| {
        let Command::Replay(flags) = command else {
            return Err(another());
        };
        let (replay, _) = match flags.question {
            ReplayQuestion::Placement(flags) => replay::placement::outcome(&flags, &[]),
            ReplayQuestion::Chunks(flags) => replay::chunks::replayed(&flags),
            ReplayQuestion::Roundtrip(flags) => replay::roundtrip::outcome(&flags),
            ReplayQuestion::Reclaim(_) => Err(another()),
        }?;
        Ok(replay)
    })
}

/// Does what `stopgap compare` does with these words, which name files. Files beside the record are not written.
///
/// # Errors
/// [`Failure`], as the command's.
pub fn compare(words: &[OsString]) -> Result<Told<Compared>, Failure> {
    call(words, |command| match command {
        Command::Compare(flags) if flags.commands.is_empty() && flags.history.is_empty() => {
            compare::document(flags)
        }
        _ => Err(another()),
    })
}

/// Returns what `stopgap ministat` prints with these words, which name files.
///
/// # Errors
/// [`Failure`], as the command's.
pub fn ministat(words: &[OsString]) -> Result<Told<String>, Failure> {
    call(words, |command| match command {
        Command::Ministat(flags) if !flags.files.is_empty() => ministat::text(&flags),
        _ => Err(another()),
    })
}

/// Does `work`, and says in a line that it panicked where it does: no panic enters a program that called.
///
/// # Errors
/// The line, with the panic's message.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        format!(
            "stopgap panicked: {}; this is a fault of stopgap",
            of_panic(&*panic)
        )
    })
}

fn of_panic(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text))
        .unwrap_or("for no reason that it told")
}

/// Returns the process of a trace that makes most calls that map or unmap, where several do; `None` where `replay placement` needs no
/// `--pid`. Reads the trace through.
///
/// # Errors
/// Why the trace cannot be read, which names it.
pub fn busiest(path: &Path) -> Result<Option<u32>, String> {
    let fail = |why| format!("{}: {why}", path.display());
    Ok(replay::placement::calls::Calls::read(path)
        .map_err(fail)?
        .busiest())
}

/// Opens a trace for reading, as every command that reads one.
///
/// # Errors
/// Those of the system; a pipe, a device and the folder of a recording that was cut off are refused.
pub fn open(path: &Path) -> io::Result<File> {
    input_file::open(path)
}

/// Ends all calls of this process as Ctrl-C ends the command, and those to come, until [`go_on`].
pub fn interrupt() {
    signals::flag().store(true, Ordering::Relaxed);
}

/// Whether they are to end.
#[must_use]
pub fn interrupted() -> bool {
    signals::interrupted()
}

/// Lets calls run again after [`interrupt`].
pub fn go_on() {
    signals::flag().store(false, Ordering::Relaxed);
}

/// Whether [`keep_to_one_cpu`] was called.
static ONE_CPU: AtomicBool = AtomicBool::new(false);

/// Keeps each later call of this process to one CPU, for a program that runs as many processes as there are CPUs. One thread then decodes
/// and explains a trace.
pub fn keep_to_one_cpu() {
    ONE_CPU.store(true, Ordering::Relaxed);
}

/// Whether a call may use a second CPU.
pub(crate) fn may_use_two_cpus() -> bool {
    !ONE_CPU.load(Ordering::Relaxed)
}

/// The words of the call in which this thread is.
pub(crate) fn words() -> Option<Vec<OsString>> {
    CALL.with_borrow(|call| call.as_ref().map(|call| call.words.clone()))
}

/// Whether this thread is in a call of another program.
pub(crate) fn is_caller() -> bool {
    CALL.with_borrow(Option::is_some)
}

/// Keeps a note for the program that called; false where none did.
pub(crate) fn hears(line: &str) -> bool {
    CALL.with_borrow_mut(|call| match call {
        Some(call) => {
            call.notes.push(line.to_owned());
            true
        }
        None => false,
    })
}

fn another() -> Failure {
    Failure::error("these are the words of another command; this is a fault of stopgap")
}

fn call<T>(
    words: &[OsString],
    act: impl FnOnce(Command) -> Result<T, Failure>,
) -> Result<Told<T>, Failure> {
    let command = parse_words::<Args>(words)?.command;
    let begun = Call {
        words: words.to_vec(),
        notes: Vec::new(),
    };
    CALL.set(Some(begun));
    let value = act(command);
    let notes = CALL.take().map(|call| call.notes).unwrap_or_default();
    Ok(Told {
        value: value?,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    #[test]
    fn calls_keep_to_one_cpu_once_they_are_told_to() {
        assert!(may_use_two_cpus());
        keep_to_one_cpu();
        assert!(!may_use_two_cpus());
        ONE_CPU.store(false, Ordering::Relaxed);
    }

    #[test]
    fn a_panic_is_a_line_and_a_result_is_a_result() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| Err::<(), _>("as it was")), Ok(Err("as it was")));
        let line = |said: &str| {
            Err(format!(
                "stopgap panicked: {said}; this is a fault of stopgap"
            ))
        };
        let (literal, formatted) = (
            || -> u8 { panic!("a literal") },
            |at: usize| -> u8 { panic!("row {at}") },
        );
        assert_eq!(caught(literal), line("a literal"));
        assert_eq!(caught(|| formatted(7)), line("row 7"));
        assert_eq!(
            caught(|| -> u8 { panic_any(7_u8) }),
            line("for no reason that it told")
        );
        // A fault that no code of ours names: an index out of bounds.
        let none: Vec<u8> = Vec::new();
        let said = caught(|| none[3]).expect_err("there is no such index");
        assert!(said.contains("index is 3"), "{said}");
    }
}
