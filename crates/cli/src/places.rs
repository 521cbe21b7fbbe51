//! Where records and the journal go.
//!
//! Records: `-o`, else `$XDG_STATE_HOME/stopgap`, else `~/.local/state/stopgap`, else a private
//! folder `stopgap-UID` under the temporary directory. The journal of what root changed:
//! `/run/stopgap`; an ordinary user's beside the records.

use std::fs;
use std::path::{Path, PathBuf};

use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::tasks::Tasks;

use crate::failure::Failure;
use crate::whole_file;

/// The directory for records: it exists and can be written to.
///
/// # Errors
/// Where it cannot be made or written to.
pub fn records(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(directory) = explicit {
        return usable(directory).map_err(|why| {
            Failure::error(format!(
                "cannot write to {}: {why}; give another directory with -o",
                directory.display()
            ))
        });
    }
    if let Some(directory) = state().and_then(|directory| usable(&directory).ok()) {
        return Ok(directory);
    }
    private()
}

/// Where records would go, for a dry run: nothing is made and nothing tried.
pub(crate) fn would_be(explicit: Option<&Path>) -> PathBuf {
    let directory = explicit.map(Path::to_owned).or_else(state);
    directory.unwrap_or_else(folder_of_last_resort)
}

/// The state directory of this user, where the environment names one.
fn state() -> Option<PathBuf> {
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("stopgap"))
}

/// Returns the folders that are there of those into which records go by themselves.
pub(crate) fn of_records() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = state()
        .filter(|folder| folder.is_dir())
        .into_iter()
        .collect();
    // The temporary directory is everybody's.
    let last = folder_of_last_resort();
    let own = Folder::open(&std::env::temp_dir())
        .and_then(|temporary| temporary.own(last.file_name().unwrap_or_default()));
    if own.is_ok() && !folders.contains(&last) {
        folders.push(last);
    }
    folders
}

fn folder_of_last_resort() -> PathBuf {
    std::env::temp_dir().join(format!("stopgap-{}", Linux.uid()))
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

/// Makes the directory where there is none, and tries whether a file can be made in it.
fn usable(directory: &Path) -> std::io::Result<PathBuf> {
    if directory.exists() && !directory.is_dir() {
        return Err(std::io::Error::other("it is no directory"));
    }
    let folder = Folder::make(directory)?;
    whole_file::warn_of(&folder);
    whole_file::try_in(&folder)?;
    fs::canonicalize(directory)
}

/// The folder of last resort. The temporary directory is everybody's: somebody else's folder
/// of that name must not be written to.
pub(crate) fn private() -> Result<PathBuf, Failure> {
    let directory = folder_of_last_resort();
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::error(format!(
            "cannot use {}: {why}; give a directory with -o, or set XDG_STATE_HOME to one",
            directory.display()
        ))
    };
    let name = directory.file_name().unwrap_or_default();
    let made =
        Folder::open(&std::env::temp_dir()).and_then(|temporary| match temporary.make_own(name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => temporary.own(name),
            made => made,
        });
    made.map_err(|error| refuse(&error))?;
    usable(&directory).map_err(|error| refuse(&error))
}

/// Where the journals of this user usually are, where that place is there; nothing is made.
pub(crate) fn usual_journal() -> Option<PathBuf> {
    if Linux.uid() == 0 {
        return Some(PathBuf::from("/run/stopgap"));
    }
    let records = state()?;
    records.is_dir().then(|| records.join("journal"))
}

/// The directory of the journal. An ordinary user's is where the next run looks for it, or where
/// there is no such place, beside the `records` of this one.
///
/// # Errors
/// Where there is no place for records.
pub fn journal(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if Linux.uid() == 0 {
        return Ok(PathBuf::from("/run/stopgap"));
    }
    let folder = match (records(None), given) {
        (Err(_), Some(given)) => given.to_owned(),
        (usual, _) => usual?,
    };
    Ok(folder.join("journal"))
}

/// Whether sudo started this: then files are root's, and the home directory is not that of the person at the terminal.
pub(crate) fn is_by_sudo() -> bool {
    Linux.uid() == 0 && std::env::var_os("SUDO_UID").is_some_and(|uid| uid != "0")
}

/// Returns a path as a person writes it: below the home directory it begins with `~`.
pub(crate) fn short(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| home.len() > 1 && !is_by_sudo());
    let below = home.as_ref().and_then(|home| path.strip_prefix(home).ok());
    below.map_or_else(
        || path.display().to_string(),
        |below| format!("~/{}", below.display()),
    )
}
