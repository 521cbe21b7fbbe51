//! A file that a reader finds whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A file on its way. What replaces a regular file, or nothing, is written beside it and renamed
/// at the end; a device or a pipe is written to as it is, a disk never. Dropped before [`WholeFile::finish`], it
/// leaves nothing behind.
pub(crate) struct WholeFile {
    /// Where it will be, and where it is so far; `None` for a device.
    rename: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Begins what will be `path`. Refused where `path` is the file `input`.
    pub(crate) fn create(path: &Path, input: Option<&File>) -> io::Result<(WholeFile, File)> {
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
        let path = match existing {
            Some(_) => fs::canonicalize(path)?,
            None => path.to_owned(),
        };
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&partial)?;
        let rename = Some((partial, path));
        Ok((WholeFile { rename }, file))
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
