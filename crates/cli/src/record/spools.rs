//! Spools in a folder: of recordings that run, and of those that were cut off.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use stopgap_kernel::folder::Folder;

use super::way;
use crate::session::tell;
use crate::whole_file::{name_and_pid, remove_abandoned};

/// The end of the name of a spool's folder.
pub(crate) const SPOOL: &str = ".spool";

/// A spool beside its file: `.NAME.PID.spool`.
struct Beside {
    folder: Folder,
    /// The file that is made of it.
    name: String,
    recorder: u32,
}

/// Returns the file and the recorder that a spool's name says.
fn parts(name: &OsStr) -> Option<(&str, u32)> {
    let (name, recorder) = name_and_pid(name, SPOOL)?;
    Some((name.to_str()?, recorder))
}

/// Those of ours: what another user has put there is none.
fn all(folder: &Folder) -> Vec<Beside> {
    let spool = |entry: OsString| {
        let (name, recorder) = parts(&entry)?;
        Some(Beside {
            folder: folder.own(&entry).ok()?,
            name: name.to_owned(),
            recorder,
        })
    };
    folder.names().into_iter().filter_map(spool).collect()
}

/// The file that was to be made of the spool `folder`: beside it.
pub(super) fn file_of(folder: &Path) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let (name, _) = parts(folder.file_name()?)?;
    Some(folder.with_file_name(name))
}

/// Says on standard error which spools nobody writes to any more. What a recording that was killed at once left,
/// an empty file on its way, is removed.
pub(crate) fn tell_of(folder: &Path) {
    let Ok(folder) = Folder::open(folder) else {
        return; // what is wrong with it is said when a file is made there
    };
    remove_empty(&folder);
    for spool in all(&folder) {
        let described = spool.folder.find(super::DESCRIPTION.as_ref());
        if !way::is_recorded_into(spool.recorder, &spool.folder) && matches!(described, Ok(Some(_)))
        {
            let folder = spool.folder.path().display();
            tell(&format!(
                "{folder}: a recording that was cut off; stopgap record --recover {folder} makes {} of it",
                spool.name
            ));
        }
    }
}

/// Removes empty files on their way, `.NAME.PID.partial`, that nobody writes.
fn remove_empty(folder: &Folder) {
    for name in folder.names() {
        let ends = Path::new(&name).extension() == Some(OsStr::new("partial"));
        let empty = |name| matches!(folder.find(name), Ok(Some(there)) if there.length == 0);
        if ends && empty(name.as_os_str()) {
            remove_abandoned(folder, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_of_a_killed_recording_goes_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        // No process has such a number.
        let left = file(".k.parquet.4194999.partial", "");
        let stay = [
            file(".k.parquet.4194998.partial", "half"),
            file("k.parquet.4194999.partial", ""),
            file(".k.4194999", ""),
        ];
        tell_of(folder.path());
        assert!(!left.exists());
        assert!(stay.iter().all(|path| path.exists()), "{stay:?}");
    }

    #[test]
    fn a_spool_names_its_file() {
        let parts = |name: &str| parts(OsStr::new(name)).map(|(name, pid)| (name.to_owned(), pid));
        assert_eq!(
            parts(".k.parquet.17.spool"),
            Some(("k.parquet".to_owned(), 17))
        );
        assert_eq!(parts(".k.17-0badcafe.spool"), Some(("k".to_owned(), 17)));
        for other in [
            ".17.spool",
            "k.17.spool",
            ".k.x.spool",
            ".k.17.partial",
            "..17.spool",
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }
}
