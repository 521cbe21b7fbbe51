//! Folders of our own (mode 0700) under the system's folder for temporary files.
//!
//! Each holds a file `owner` that its owner has locked (flock) as long as it lives. A folder goes when its owner drops
//! it. Where the owner was killed, the lock went with it, and the next process that makes a folder removes what it left:
//! a lock says who lives even across PID namespaces, a process id does not.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use stopgap_kernel::folder;

use crate::{Error, Result};

const PREFIX: &str = "stopgap-emulate-";
const OWNER: &str = "owner";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub struct Folder {
    // Dropped in this order: the folder goes while it is still locked.
    folder: tempfile::TempDir,
    _owner: File,
}

impl Folder {
    /// Makes one, and removes those whose owners were killed.
    ///
    /// # Errors
    /// Where the folder for temporary files cannot be written to.
    pub fn new() -> Result<Folder> {
        Folder::below(&std::env::temp_dir())
    }

    pub(crate) fn below(place: &Path) -> Result<Folder> {
        sweep_in(place);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir_in(place)
            .map_err(|e| Error::file(place, e))?;
        // Locked before it has its name: `sweep` takes an owner without a lock for a killed one.
        let new = folder.path().join("owner.new");
        let path = folder.path().join(OWNER);
        let owner = File::create_new(&new).map_err(|e| Error::file(&new, e))?;
        rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| Error::file(&new, e.into()))?;
        fs::rename(&new, &path).map_err(|e| Error::file(&path, e))?;
        Ok(Folder {
            folder,
            _owner: owner,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of ours; gives its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::write(&path, bytes).map_err(|e| Error::file(&path, e))?;
        Ok(path)
    }
}

/// Removes the folders whose owners were killed.
pub fn sweep() {
    sweep_in(&std::env::temp_dir());
}

/// Removes those in `place`. Every user may put something there: what is not this user's own folder and file is not touched.
fn sweep_in(place: &Path) {
    let Ok(folder) = folder::Folder::open(place) else {
        return;
    };
    for name in folder.names() {
        if !name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        // Without the file its owner is about to lock it, or was killed in that moment: not touched.
        let own = folder.own(&name);
        let Ok(owner) = own.and_then(|own| own.read(OWNER.as_ref())) else {
            continue;
        };
        if rustix::fs::flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(place.join(&name));
        }
    }
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    folder::open(path, |_| false)
}

#[cfg(test)]
mod tests;
