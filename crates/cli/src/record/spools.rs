//! Spools in a folder: of recordings that run, and of those that were cut off.

use std::path::{Path, PathBuf};

use super::way;
use crate::session::tell;
use crate::whole_file::remove_abandoned;

/// A spool beside its file: `.NAME.PID.spool`.
struct Beside {
    folder: PathBuf,
    /// The file that is made of it.
    name: String,
    recorder: u32,
}

/// What a spool's name says.
fn parts(name: &str) -> Option<(&str, u32)> {
    let (name, pid) = name
        .strip_prefix('.')?
        .strip_suffix(".spool")?
        .rsplit_once('.')?;
    (!name.is_empty()).then_some((name, pid.parse().ok()?))
}

fn all(folder: &Path) -> Vec<Beside> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new(); // what is wrong with it is said when a file is made there
    };
    let spool = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let (name, recorder) = parts(name.to_str()?)?;
        Some(Beside {
            folder: entry.path(),
            name: name.to_owned(),
            recorder,
        })
    };
    entries.flatten().filter_map(spool).collect()
}

/// The file that was to be made of the spool `folder`: beside it.
pub(super) fn file_of(folder: &Path) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let (name, _) = parts(folder.file_name()?.to_str()?)?;
    Some(folder.with_file_name(name))
}

/// The process that records into what will be `path`.
pub(super) fn writer_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let mut all = all(path.parent()?).into_iter();
    all.find(|spool| spool.name == name && way::records_into(spool.recorder, &spool.folder))
        .map(|spool| spool.recorder)
}

/// Says on standard error which spools nobody writes to any more. What a recording that was killed at once left,
/// an empty file on its way, is removed.
pub(crate) fn tell_of(folder: &Path) {
    remove_empty(folder);
    for spool in all(folder) {
        let folder = &spool.folder;
        if !way::records_into(spool.recorder, folder) && folder.join(super::DESCRIPTION).exists() {
            let folder = folder.display();
            tell(&format!(
                "{folder}: a recording that was cut off; stopgap record --recover {folder} makes {} of it",
                spool.name
            ));
        }
    }
}

/// Removes empty files on their way, `.NAME.PID.partial`, that nobody writes.
fn remove_empty(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name
            .to_str()
            .and_then(|name| name.strip_prefix('.')?.strip_suffix(".partial"));
        if ours.is_some() && entry.metadata().is_ok_and(|there| there.len() == 0) {
            remove_abandoned(&entry.path());
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
            file(".k.parquet.1.partial", ""),
            file("k.parquet.4194999.partial", ""),
            file(".k.4194999", ""),
        ];
        tell_of(folder.path());
        assert!(!left.exists());
        assert!(stay.iter().all(|path| path.exists()), "{stay:?}");
    }

    #[test]
    fn a_spool_names_its_file() {
        assert_eq!(parts(".k.parquet.17.spool"), Some(("k.parquet", 17)));
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
