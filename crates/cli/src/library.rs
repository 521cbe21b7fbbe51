//! The commands that only read, for another program in whose process they run: same flags, same documents, same errors, but
//! nothing is printed, no record is written, and signals stay the program's.
//!
//! Each takes the words of a command line, program name first. [`interrupt`] ends all that run, as Ctrl-C ends the command.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

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
