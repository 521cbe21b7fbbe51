//! Where records and the journal go.
//!
//! Records: `-o`, else `$XDG_STATE_HOME/stopgap`, else `~/.local/state/stopgap`, else a private
//! folder `stopgap-UID` under the temporary directory. The journal of what root changed:
//! `/run/stopgap`; an ordinary user's beside the records.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stopgap_kernel::Linux;
use stopgap_kernel::tasks::Tasks;

use crate::failure::Failure;

/// The directory for records: it exists and can be written to.
pub(crate) fn records(explicit: Option<&Path>) -> Result<PathBuf, Failure> {
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
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let trial = directory.join(format!(".stopgap-{}", std::process::id()));
    create(&trial)?;
    fs::remove_file(&trial)?;
    fs::canonicalize(directory)
}

/// Creates a file, mode 0600, for writing. The directory may be everybody's, and names of ours can
/// be foretold: nothing of anybody else's is written to, no link of theirs followed.
pub(crate) fn create(path: &Path) -> std::io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// The folder of last resort. The temporary directory is everybody's: somebody else's folder
/// of that name must not be written to.
pub(crate) fn private() -> Result<PathBuf, Failure> {
    let uid = Linux.uid();
    let directory = folder_of_last_resort();
    let refuse = |why: &dyn std::fmt::Display| {
        Failure::error(format!(
            "cannot use {}: {why}; give a directory with -o, or set XDG_STATE_HOME to one",
            directory.display()
        ))
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(refuse(&error));
        }
        _ => {}
    }
    let meta = fs::symlink_metadata(&directory).map_err(|error| refuse(&error))?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        return Err(refuse(&"it is not ours alone (owner or mode)"));
    }
    usable(&directory).map_err(|error| refuse(&error))
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
