//! A file that a reader finds whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A file on its way. What replaces a regular file, or nothing, is written beside it and renamed
/// at the end; a device or a pipe is written to as it is, a disk never. Dropped before [`WholeFile::finish`], it
/// leaves nothing behind.
pub(crate) struct WholeFile {
    /// Where it will be, and where it is so far; `None` for a device.
    rename: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Begins what will be `path`. Refused where `path` is the file `input`. What it replaces gives it its
    /// permissions.
    pub(crate) fn create(path: &Path, input: Option<&File>) -> io::Result<(WholeFile, File)> {
        WholeFile::begin(path, input, 0o666)
    }

    /// The same for what is nobody else's business: where it replaces nothing, its owner alone may read it.
    pub(crate) fn private(path: &Path) -> io::Result<(WholeFile, File)> {
        WholeFile::begin(path, None, 0o600)
    }

    /// `mode` is that of a new file, before the umask.
    fn begin(path: &Path, input: Option<&File>, mode: u32) -> io::Result<(WholeFile, File)> {
        let existing = match fs::metadata(path) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let (Some(there), Some(input)) = (&existing, input) {
            let input = input.metadata()?;
            if (there.dev(), there.ino()) == (input.dev(), input.ino()) {
                return Err(io::Error::other("it is the input"));
            }
        }
        // As root, one wrong letter in a name would end a file system.
        let kind = existing.as_ref().map(fs::Metadata::file_type);
        if kind.is_some_and(|kind| kind.is_block_device()) {
            return Err(io::Error::other("it is a disk; name a file"));
        }
        if existing.as_ref().is_some_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok((WholeFile { rename: None }, file));
        }
        // Through a link, the file that it leads to is replaced.
        let kept = existing.map(|there| there.permissions().mode() & 0o777);
        let path = match kept {
            Some(_) => fs::canonicalize(path)?,
            None => path.to_owned(),
        };
        remove_siblings(&path);
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            // Never more than it will have.
            .mode(kept.unwrap_or(mode))
            .open(&partial)?;
        // For who asks whether somebody still writes it; it goes with the descriptor. A file system
        // without locks refuses it, and there nobody removes another's.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let whole = WholeFile {
            rename: Some((partial, path)),
        };
        if let Some(mode) = kept {
            file.set_permissions(fs::Permissions::from_mode(mode))?; // the umask took of it
        }
        Ok((whole, file))
    }

    /// All is written: from now on it is there.
    pub(crate) fn finish(mut self, file: &File) -> io::Result<()> {
        let Some((partial, path)) = &self.rename else {
            return Ok(());
        };
        file.sync_all()?;
        fs::rename(partial, path)?;
        self.rename = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.rename {
            let _ = fs::remove_file(partial); // of no use to anybody
        }
    }
}

/// Removes what killed runs left of files on their way to `path`.
fn remove_siblings(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return; // what is wrong with it is said when the file is made
    };
    let begin = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(&begin)?.strip_suffix(".partial"));
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            remove_abandoned(&entry.path());
        }
    }
}

/// Removes a file on its way, `.NAME.PID.partial`, whose process is gone. One that somebody writes, here
/// or in another PID namespace, is locked by him.
pub(crate) fn remove_abandoned(partial: &Path) {
    let stem = partial.file_stem().and_then(|stem| stem.to_str());
    let Some((_, pid)) = stem.and_then(|stem| stem.rsplit_once('.')) else {
        return;
    };
    let lives = pid
        .parse::<u32>()
        .map_or(true, |pid| Path::new(&format!("/proc/{pid}")).exists());
    let regular = fs::symlink_metadata(partial).is_ok_and(|there| there.is_file());
    if lives || !regular {
        return;
    }
    if let Ok(file) = File::open(partial)
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        let _ = fs::remove_file(partial); // not ours to remove: then it stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn it_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let (whole, mut file) = WholeFile::create(&path, None).unwrap();
        file.write_all(b"half").unwrap();
        drop(whole);
        assert!(names(folder.path()).is_empty());

        fs::write(&path, "old").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        let (whole, mut file) = WholeFile::create(&link, None).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        whole.finish(&file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["link", "out"]);
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let partial = |pid: &str| folder.path().join(format!(".out.{pid}.partial"));
        // No process has such a number; of two of them one is still written, as from elsewhere.
        let (left, written) = (partial("4194999"), partial("4194998"));
        fs::write(&left, "").unwrap();
        let writer = File::create(&written).unwrap();
        flock(&writer, FlockOperation::NonBlockingLockExclusive).unwrap();
        let others = [
            folder.path().join(".other.4194999.partial"),
            partial("1"),
            partial("x"),
        ];
        for other in &others {
            fs::write(other, "").unwrap();
        }
        drop(WholeFile::create(&path, None).unwrap());
        assert!(!left.exists());
        assert!(written.exists() && others.iter().all(|other| other.exists()));
        drop(writer);
        drop(WholeFile::create(&path, None).unwrap());
        assert!(!written.exists());
    }

    #[test]
    fn what_is_private_is_its_owners_and_what_is_replaced_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = folder.path().join("snapshot");
        let (whole, file) = WholeFile::private(&path).unwrap();
        let partial = whole.rename.as_ref().unwrap().0.clone();
        assert_eq!(mode(&partial), 0o600);
        whole.finish(&file).unwrap();
        assert_eq!(mode(&path), 0o600);
        for kept in [0o666, 0o640, 0o600, 0o400] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            for private in [true, false] {
                let (whole, file) = match private {
                    true => WholeFile::private(&path),
                    false => WholeFile::create(&path, None),
                }
                .unwrap();
                whole.finish(&file).unwrap();
                assert_eq!(mode(&path), kept);
            }
        }
    }

    #[test]
    fn the_input_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        fs::write(&path, "input").unwrap();
        fs::hard_link(&path, folder.path().join("same")).unwrap();
        let input = File::open(&path).unwrap();
        for name in ["in", "same"] {
            let refused = WholeFile::create(&folder.path().join(name), Some(&input));
            assert!(refused.is_err());
        }
        assert_eq!(fs::read(&path).unwrap(), b"input");
    }
}
