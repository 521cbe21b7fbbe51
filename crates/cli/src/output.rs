//! Writing the record and printing, with nothing lost that was measured.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use stopgap_kernel::signals;
use stopgap_report::text::{visible, visible_in_colour};
use stopgap_stats::document::Document;
use stopgap_stats::record::Run;

use crate::failure::{DONE, Failure};
use crate::{places, voice, whole_file};

/// Writes a record, `text`, under its name into `directory`; gives its path.
///
/// A directory that has become full or unwritable meanwhile does not lose what was measured:
/// the record goes to the private folder under the temporary directory instead, and where
/// that fails too, to standard output. Both are an error in the end.
pub(crate) fn record(text: &str, name: &str, directory: &Path) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    let Err(first) = whole_file::write(&path, text) else {
        return Ok(path);
    };
    let lost = format!("cannot write {}: {first}", path.display());
    let elsewhere = places::private().ok().map(|other| other.join(name));
    match elsewhere {
        Some(other) if whole_file::write(&other, text).is_ok() => Err(Failure::error(format!(
            "{lost}; the record is in {}; free some space or give another directory with -o",
            other.display()
        ))),
        _ => {
            print(text)?;
            Err(Failure::error(format!(
                "{lost}; the record was printed instead; give another directory with -o"
            )))
        }
    }
}

/// Prints to standard output, with a line break at the end. On a terminal the only control sequences that pass are
/// colours. Text and line break are one write: a watch and the process that makes its pages print to the same file.
///
/// # Errors
/// A full disk, or a limit on the size of files. A reader that has gone away has seen enough: that is none.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut shown = match out.is_terminal() {
        true => Cow::Owned(visible_in_colour(text)),
        false => Cow::Borrowed(text),
    };
    if !text.ends_with('\n') {
        shown.to_mut().push('\n');
    }
    let written = out.write_all(shown.as_bytes());
    written_out(written.and_then(|()| out.flush()))
}

/// Prints what a person reads, unless `--quiet` asks for errors only.
///
/// # Errors
/// As [`print()`].
pub(crate) fn screen(text: &str) -> Result<(), Failure> {
    match voice::quiet() {
        true => Ok(()),
        false => print(&in_locale(text)),
    }
}

/// Returns a screen as the locale and the terminal can show it.
pub(crate) fn in_locale(text: &str) -> Cow<'_, str> {
    match voice::has_unicode() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(bars_in_ascii(text)),
    }
}

/// Returns the screen with its bars drawn in ASCII. Names stay as they are.
fn bars_in_ascii(text: &str) -> String {
    const BARS: [(char, char); 8] = [
        ('▁', '.'),
        ('▂', ':'),
        ('▃', '-'),
        ('▄', '='),
        ('▅', '+'),
        ('▆', '*'),
        ('▇', '#'),
        ('█', '@'),
    ];
    let of = |c: char| {
        BARS.iter()
            .find(|(bar, _)| *bar == c)
            .map_or(c, |(_, ascii)| *ascii)
    };
    text.chars().map(of).collect()
}

/// Returns the failure of having written to standard output. A reader that has gone is none, see [`reader_has_gone`].
///
/// # Errors
/// As [`print()`].
pub(crate) fn written_out(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::error(format!(
            "cannot write standard output: {error}"
        ))),
        Err(_) => {
            reader_has_gone();
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Whether somebody stopped reading standard output.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Interrupts the command as Ctrl-C does, because nobody reads its output. [`end`] ends it when all is put back.
pub(crate) fn reader_has_gone() {
    CLOSED.store(true, Ordering::Relaxed);
    signals::flag().store(true, Ordering::Relaxed);
}

/// Forgets that nobody reads the output: [`end`] does nothing.
pub(crate) fn reader_is_not_needed() {
    CLOSED.store(false, Ordering::Relaxed);
}

/// Ends this process by SIGPIPE where the reader of its output has gone. It comes last: settings are put back and files are
/// whole by then, which they would not be if the first write to the pipe ended the process.
pub(crate) fn end() {
    if CLOSED.load(Ordering::Relaxed) {
        signals::end_by_closed_pipe();
    }
}

/// Standard output for text that is written piece by piece. A file or a pipe gets it as it is; on a terminal control
/// characters of names are made visible.
pub(crate) fn stdout() -> impl Write {
    let out = io::stdout().lock();
    Visible {
        terminal: out.is_terminal(),
        out,
        rest: Vec::new(),
    }
}

struct Visible<W> {
    out: W,
    terminal: bool,
    /// The beginning of a character whose end has not come yet.
    rest: Vec<u8>,
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return self.out.write(bytes);
        }
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let text = visible(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
        self.out.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The file name of the record of `command`, begun at `started_unix_s` seconds since 1970.
pub(crate) fn name(command: &str, started_unix_s: u64) -> String {
    format!("{command}-{started_unix_s}-{}.json", std::process::id())
}

/// Form in which a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// The record.
    Json,
    /// A document in another form that a flag asked for.
    Asked,
    /// A screen, unless `--quiet` asks for errors only.
    Screen,
}

impl Printed {
    /// Returns what is printed with and without `--json`.
    pub(crate) fn with(json: bool) -> Printed {
        match json {
            true => Printed::Json,
            false => Printed::Screen,
        }
    }
}

/// [`document`] of a run.
pub(crate) fn finish(
    run: &Run,
    command: &str,
    directory: Option<&Path>,
    json: bool,
    screen: impl FnOnce(&Run, Option<&str>) -> String,
) -> Result<ExitCode, Failure> {
    let name = name(command, run.started_unix_s);
    let printed = Printed::with(json);
    document(&run.to_json(), &name, directory, printed, |place| {
        screen(run, place)
    })
}

/// Writes the record `text` into `directory`, where there is one, and prints it or the screen, which names the record's path.
pub(crate) fn document(
    text: &str,
    name: &str,
    directory: Option<&Path>,
    printed: Printed,
    screen: impl FnOnce(Option<&str>) -> String,
) -> Result<ExitCode, Failure> {
    let written = directory
        .map(|directory| record(text, name, directory))
        .transpose();
    let place = match &written {
        Ok(path) => path.as_ref().map(|path| path.display().to_string()),
        Err(_) => Some("not written (see below)".to_owned()),
    };
    let printed = match printed {
        Printed::Json => print(text),
        Printed::Asked => print(&in_locale(&screen(place.as_deref()))),
        Printed::Screen => self::screen(&screen(place.as_deref())),
    };
    match (written, printed) {
        (Err(failure), _) => Err(failure),
        (Ok(Some(path)), Err(Failure::Told { message, status })) => Err(Failure::Told {
            message: format!("{message}; the record is in {}", path.display()),
            status,
        }),
        (Ok(_), printed) => printed.map(|()| ExitCode::from(DONE)),
    }
}

/// A document as JSON.
pub(crate) fn json(document: &impl serde::Serialize) -> String {
    // Strings, numbers and lists of our own types always have a JSON form.
    serde_json::to_string_pretty(document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_in_ascii_and_names_stay() {
        assert_eq!(bars_in_ascii("größe ▁▂▃▄▅▆▇█ 9"), "größe .:-=+*#@ 9");
    }
}
