//! Folders of our own (mode 0700) under the system's folder for temporary files.
//!
//! Each holds a file `owner` that its owner has locked (flock) as long as it lives. A folder goes when its owner drops
//! it. Where the owner was killed, the lock went with it, and the next process that makes a folder removes what it left:
//! a lock says who lives even across PID namespaces, a process id does not.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::{Error, Result};

const PREFIX: &str = "stopgap-emulate-";
const OWNER: &str = "owner";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    // Dropped in this order: the folder goes while it is still locked.
    folder: tempfile::TempDir,
    _owner: File,
}

impl Folder {
    pub(crate) fn new() -> Result<Folder> {
        Folder::below(&std::env::temp_dir())
    }

    pub(crate) fn below(place: &Path) -> Result<Folder> {
        sweep(place);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir_in(place)
            .map_err(|e| Error::file(place, e))?;
        let path = folder.path().join(OWNER);
        let owner = File::create_new(&path).map_err(|e| Error::file(&path, e))?;
        rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| Error::file(&path, e.into()))?;
        Ok(Folder {
            folder,
            _owner: owner,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of ours; gives its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, bytes).map_err(|e| Error::file(&path, e))?;
        Ok(path)
    }
}

/// Removes the folders whose owners were killed. What cannot be read or removed belongs to somebody else.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A link with such a name is not followed: what it points to is not ours.
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // Without the file its owner is about to lock it, or was killed in that moment: left alone.
        let Ok(owner) = File::open(entry.path().join(OWNER)) else {
            continue;
        };
        if rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
