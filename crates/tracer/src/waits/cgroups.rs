//! Paths of cgroups: records have the id of a thread's cgroup in the unified hierarchy, which is the inode number of its folder.
//!
//! Where a process is in the root of that hierarchy, as where the hierarchies of version 1 are used, its path there is taken: that
//! of the memory controller, or the first other one that has it elsewhere than in its root. Such a path has no id in a record, so it
//! is one of a process: read when the process is first seen and after each exec, and inherited by what it forks.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs_core::{FromBufRead, ProcessCGroups};
use serde::{Deserialize, Serialize};
use stopgap_capture::Record;
use stopgap_events::units::Nanos;
use stopgap_kernel::System;

/// The file of paths of cgroups: a JSON object a line.
pub const CGROUPS: &str = "cgroups.jsonl";

/// Processes that are looked at in one reading of the rings: some 20 us each.
const AT_A_TIME: usize = 64;
/// Processes that wait to be looked at.
const MOST: usize = 1 << 14;
/// Folders of a hierarchy that are looked through.
const FOLDERS: usize = 1 << 14;
/// The hierarchy is looked through so often at most, for ids that no process tells.
const WALK: Nanos = Nanos::secs(1);
/// Controllers of version 1 in the order in which their paths are taken; `""` is a hierarchy without one, as systemd's.
const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "devices", ""];

/// A line of [`CGROUPS`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Grouped {
    /// The cgroup's id; 0 where the path is one of version 1.
    pub(crate) id: u64,
    /// The process in it, of version 1.
    pub(crate) pid: u32,
    /// The path below the root of its hierarchy.
    pub(crate) path: String,
}

/// Finds paths of the cgroups that records name.
pub(crate) struct Cgroups {
    /// The mount point of the unified hierarchy.
    unified: Option<PathBuf>,
    /// Whether hierarchies of version 1 are there.
    legacy: bool,
    known: HashSet<u64>,
    /// Processes that records named, where there is version 1.
    processes: HashSet<u32>,
    /// Processes to look at, each with the id that its record has; 0: not said.
    wanted: Vec<(u32, u64)>,
    next_walk: Nanos,
}

impl Cgroups {
    /// Looks for the hierarchies.
    pub(crate) fn new(system: &dyn System) -> Cgroups {
        let mounts = stopgap_kernel::cgroup::mounts(system).unwrap_or_default();
        let mut unified = mounts.iter().filter(|mount| mount.fs_type == "cgroup2");
        Cgroups {
            unified: unified.next().map(|mount| mount.mount_point.clone()),
            legacy: mounts.iter().any(|mount| mount.fs_type == "cgroup"),
            known: HashSet::new(),
            processes: HashSet::new(),
            wanted: Vec::new(),
            next_walk: Nanos(0),
        }
    }

    /// Takes notice of a record.
    pub(super) fn see(&mut self, record: &[u8]) {
        let Some((pid, id)) = Record::cgroup_of(record) else {
            return;
        };
        let unknown = id.is_some_and(|id| !self.known.contains(&id));
        // Of version 1 nothing is in the record: a process may be elsewhere when it begins and after an exec.
        let moved = self.legacy && (id.is_none() || self.processes.insert(pid));
        let wanted = (pid, id.filter(|_| unknown).unwrap_or(0));
        if (unknown || moved) && self.wanted.len() < MOST && !self.wanted.contains(&wanted) {
            self.wanted.push(wanted);
        }
    }

    /// Looks for what is not known yet.
    pub(super) fn look(&mut self, system: &dyn System) -> Vec<Grouped> {
        let mut found = Vec::new();
        let count = self.wanted.len().min(AT_A_TIME);
        let mut gone = false;
        for (pid, id) in self.wanted.drain(..count).collect::<Vec<_>>() {
            let (unified, other) = of_process(system, pid).unwrap_or_default();
            if let Some(path) = other {
                found.push(Grouped { id: 0, pid, path });
            }
            if id == 0 || self.known.contains(&id) {
                continue;
            }
            // It may have moved since.
            match unified.filter(|path| self.id_of(path) == Some(id)) {
                Some(path) => {
                    self.known.insert(id);
                    found.push(Grouped { id, pid: 0, path });
                }
                None => gone = true,
            }
        }
        if gone && system.now() >= self.next_walk {
            self.next_walk = system.now() + WALK;
            found.extend(self.walk());
        }
        found
    }

    fn id_of(&self, path: &str) -> Option<u64> {
        let folder = self.unified.as_ref()?.join(path.trim_start_matches('/'));
        Some(fs::metadata(folder).ok()?.ino())
    }

    /// Looks through the unified hierarchy.
    pub(crate) fn walk(&mut self) -> Vec<Grouped> {
        let Some(root) = &self.unified else {
            return Vec::new();
        };
        let (mut left, mut found) = (vec![root.clone()], Vec::new());
        while let Some(folder) = left.pop() {
            if found.len() + left.len() > FOLDERS {
                break;
            }
            let Ok(about) = fs::metadata(&folder) else {
                continue; // it was removed meanwhile
            };
            let below = folder.strip_prefix(root).unwrap_or(Path::new(""));
            if self.known.insert(about.ino()) {
                found.push(Grouped {
                    id: about.ino(),
                    pid: 0,
                    path: format!("/{}", below.display()),
                });
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            left.extend(folders.map(|entry| entry.path()));
        }
        found
    }
}

/// The path of a process in the unified hierarchy, and where it is in the root of that, in one of version 1.
fn of_process(system: &dyn System, pid: u32) -> Option<(Option<String>, Option<String>)> {
    let text = system.read(format!("/proc/{pid}/cgroup").as_ref()).ok()?;
    let groups = ProcessCGroups::from_buf_read(&*text).ok()?.0;
    let (unified, legacy): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| group.hierarchy == 0);
    let unified = unified.into_iter().next().map(|group| group.pathname);
    let elsewhere = |path: &str| path != "/";
    if unified.as_deref().is_some_and(elsewhere) {
        return Some((unified, None));
    }
    let with = |controller: &&str| {
        let mut of = legacy.iter().filter(|group| {
            let mut known = group.controllers.iter();
            match controller.is_empty() {
                true => known.all(|known| known.starts_with("name=")),
                false => known.any(|known| known == controller),
            }
        });
        let path = &of.next()?.pathname;
        elsewhere(path).then(|| path.clone())
    };
    Some((unified, CONTROLLERS.iter().find_map(with)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;

    #[test]
    fn a_path_is_that_of_the_unified_hierarchy_or_of_the_memory_controller() {
        let of = |text: &str| {
            let fake = Fake::default();
            fake.put("/proc/7/cgroup", text);
            of_process(&fake, 7).unwrap()
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(
            of("0::/system.slice/a.service\n"),
            (some("/system.slice/a.service"), None)
        );
        let hybrid =
            "4:pids:/other\n3:cpu,cpuacct:/\n2:memory:/docker/ab\n1:name=systemd:/init\n0::/\n";
        assert_eq!(of(hybrid), (some("/"), some("/docker/ab")));
        assert_eq!(
            of("2:memory:/\n1:name=systemd:/init\n"),
            (None, some("/init"))
        );
        assert_eq!(of("2:memory:/\n0::/\n"), (some("/"), None));
    }
}
