//! Writing the record and printing, with nothing lost that was measured.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use stopgap_stats::record::Run;

use crate::failure::{DONE, Failure};
use crate::places;
use crate::whole_file::WholeFile;

/// Writes a record, `text`, under its name into `directory`; gives its path.
///
/// A directory that has become full or unwritable meanwhile does not lose what was measured:
/// the record goes to the private folder under the temporary directory instead, and where
/// that fails too, to standard output. Both are an error in the end.
pub(crate) fn record(text: &str, name: &str, directory: &Path) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    let Err(first) = write_whole(&path, text) else {
        return Ok(path);
    };
    let lost = format!("cannot write {}: {first}", path.display());
    let elsewhere = places::private().ok().map(|other| other.join(name));
    match elsewhere {
        Some(other) if write_whole(&other, text).is_ok() => Err(Failure::error(format!(
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

/// A reader finds the whole record or none.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let (whole, mut file) = WholeFile::private(path)?;
    file.write_all(text.as_bytes())?;
    whole.finish(&file)
}

/// Prints to standard output, with a line break at the end.
///
/// # Errors
/// A reader that has gone away, or a full disk: an error, not a panic.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| {
            if text.ends_with('\n') {
                Ok(())
            } else {
                out.write_all(b"\n")
            }
        })
        .and_then(|()| out.flush())
        .map_err(|error| Failure::error(format!("standard output: {error}")))
}

/// The file name of the record of `command`, begun at `started_unix_s` seconds since 1970.
pub(crate) fn name(command: &str, started_unix_s: u64) -> String {
    format!("{command}-{started_unix_s}-{}.json", std::process::id())
}

/// [`document`] of a run.
pub(crate) fn finish(
    run: &Run,
    command: &str,
    directory: &Path,
    json: bool,
    screen: impl FnOnce(&Run, &str) -> String,
) -> Result<ExitCode, Failure> {
    let name = name(command, run.started_unix_s);
    document(&run.to_json(), &name, directory, json, |place| {
        screen(run, place)
    })
}

/// Writes the record `text`, prints it (`json`) or what `screen` makes of it, and names its place.
pub(crate) fn document(
    text: &str,
    name: &str,
    directory: &Path,
    json: bool,
    screen: impl FnOnce(&str) -> String,
) -> Result<ExitCode, Failure> {
    let written = record(text, name, directory);
    let place = match &written {
        Ok(path) => path.display().to_string(),
        Err(_) => "not written (see below)".to_owned(),
    };
    let printed = if json {
        print(text)
    } else {
        print(&screen(&place))
    };
    match (written, printed) {
        (Err(failure), _) => Err(failure),
        (Ok(path), Err(Failure::Told { message, status })) => Err(Failure::Told {
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
