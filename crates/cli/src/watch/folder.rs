//! The directory of stalls: names by time, a bound on what it takes, and what a killed watch left.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stopgap_events::order::SortRows as _;
use stopgap_events::units::Bytes;
use stopgap_kernel::Linux;
use stopgap_kernel::folder::Folder;
use stopgap_kernel::local_time::LocalTime;
use stopgap_kernel::tasks::Tasks;

use crate::record::spools::SPOOL;
use crate::whole_file::name_and_pid;

/// The beginning of names of stalls' files.
const PREFIX: &str = "stall-";
/// The end of a trace.
pub(super) const TRACE: &str = "parquet";
/// The end of a page.
pub(super) const PAGE: &str = "txt";
/// How many pairs are kept at most: a folder that a person looks through.
const MOST: usize = 1_000;

/// The name of a stall at this time that no other in the directory has: `stall-20261121-140211`.
pub(super) fn name(directory: &Path, unix_s: u64) -> String {
    let stamp = LocalTime::at(unix_s).map_or_else(|| unix_s.to_string(), LocalTime::stamp);
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let taken = |name: &str| {
        let is = |there: &String| {
            let there = there.strip_prefix('.').unwrap_or(there);
            there
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        names.iter().any(is)
    };
    let first = format!("{PREFIX}{stamp}");
    let mut all = std::iter::once(first.clone()).chain((2..).map(|n| format!("{first}-{n}")));
    all.find(|name| !taken(name)).unwrap_or(first)
}

/// The folder of the pages of the stall `name`, as long as its files are not written.
pub(super) fn spool(directory: &Path, name: &str, watcher: u32) -> PathBuf {
    directory.join(format!(".{name}.{watcher}{SPOOL}"))
}

/// Returns the stall whose pages are in `spool`, and the process of its watch.
pub(super) fn stall_of(spool: &OsStr) -> Option<(&str, u32)> {
    let (name, watcher) = name_and_pid(spool, SPOOL)?;
    let name = name.to_str()?;
    name.starts_with(PREFIX).then_some((name, watcher))
}

/// Returns this user's folders of pages whose watch has ended.
pub(super) fn unfinished(directory: &Path) -> Vec<PathBuf> {
    let Ok(folder) = Folder::open(directory) else {
        return Vec::new(); // its error was reported when the directory was tried
    };
    // Without /proc nobody can tell whether a watch has ended.
    let proc = Path::new("/proc/self").exists();
    let is_left = |name: &OsString| {
        let ended = |(_, watcher): (&str, u32)| !Path::new(&format!("/proc/{watcher}")).exists();
        proc && stall_of(name).is_some_and(ended) && folder.own(name).is_ok()
    };
    let left = folder.names().into_iter().filter(is_left);
    let mut left: Vec<PathBuf> = left.map(|name| directory.join(name)).collect();
    left.sort_rows(Ord::cmp);
    left
}

/// Removes the oldest stalls until the others take no more than `most`; the newest stays. Returns how many were removed.
///
/// # Errors
/// As readdir(3) and unlink(2).
pub(super) fn bound(directory: &Path, most: Bytes) -> io::Result<usize> {
    let mut stalls: std::collections::BTreeMap<String, (u64, Vec<PathBuf>)> =
        std::collections::BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((stem, end)) = name.rsplit_once('.') else {
            continue;
        };
        if !stem.starts_with(PREFIX) || ![TRACE, PAGE].contains(&end) {
            continue;
        }
        let there = entry.metadata()?;
        // Another user's files push none of ours out.
        if !there.is_file() || there.uid() != Linux.uid() {
            continue;
        }
        let length = there.len();
        let stall = stalls.entry(stem.to_owned()).or_default();
        stall.0 += length;
        stall.1.push(entry.path());
    }
    let mut sum: u64 = stalls.values().map(|(length, _)| length).sum();
    let mut removed = 0;
    while stalls.len() > 1 && (sum > most.0 || stalls.len() > MOST) {
        let Some((_, (length, files))) = stalls.pop_first() else {
            break;
        };
        for file in files {
            fs::remove_file(file)?;
        }
        sum -= length;
        removed += 1;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_stall() {
        let folder = tempfile::tempdir().unwrap();
        let first = name(folder.path(), 1_700_000_000);
        assert!(first.starts_with("stall-2023111"), "{first}");
        let pages = spool(folder.path(), &first, 17);
        assert_eq!(stall_of(pages.file_name().unwrap()), Some((&*first, 17)));
        fs::create_dir(&pages).unwrap();
        let second = name(folder.path(), 1_700_000_000);
        assert_eq!(second, format!("{first}-2"));
        fs::write(folder.path().join(format!("{second}.txt")), "").unwrap();
        assert_eq!(name(folder.path(), 1_700_000_000), format!("{first}-3"));
        assert_eq!(stall_of(".trace.parquet.7.spool".as_ref()), None);
    }

    #[test]
    fn what_a_dead_watch_left_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let dead = spool(folder.path(), "stall-1", u32::MAX);
        let alive = spool(folder.path(), "stall-2", std::process::id());
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(&dead).unwrap();
        fs::create_dir(alive).unwrap();
        fs::create_dir(folder.path().join(".other.4294967295.spool")).unwrap();
        assert_eq!(unfinished(folder.path()), [dead]);
    }

    #[test]
    fn the_oldest_go_and_others_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, length: usize| {
            fs::write(folder.path().join(name), vec![0; length]).unwrap();
        };
        for day in 1..=4 {
            write(&format!("stall-2026010{day}-000000.txt"), 10);
            write(&format!("stall-2026010{day}-000000.parquet"), 90);
        }
        write("mine.parquet", 1_000);
        assert_eq!(bound(folder.path(), Bytes(250)).unwrap(), 2);
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 5, "{names:?}");
        assert!(names.contains(&"mine.parquet".to_owned()));
        assert!(names[1].contains("0103"), "{names:?}");
        assert_eq!(
            bound(folder.path(), Bytes(0)).unwrap(),
            1,
            "the newest stays"
        );
    }
}
