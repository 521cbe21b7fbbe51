//! Spools in a folder: of recordings that run, and of those that were cut off.

use std::path::{Path, PathBuf};

use super::way;
use crate::session::tell;

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

/// Says on standard error which spools nobody writes to any more.
pub(crate) fn tell_of(folder: &Path) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
