//! A memory cgroup of our own: a limit that makes memory short for a load child and nobody else.
//!
//! Version 1 and 2 differ in where a child may be made, in names, and in what they count:
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | made below | our own group | the nearest group above us whose `cgroup.subtree_control` has `memory` (a group with processes cannot hand controllers to children) |
//! | limit | `memory.limit_in_bytes` | `memory.max` |
//! | pages scanned and reclaimed | `/proc/vmstat`, the whole system | `memory.stat` (`pgscan`, `pgsteal`), the group |
//! | pressure | `/proc/pressure/memory`, the whole system | `memory.pressure`, the group |
//!
//! Reclaim on behalf of a cgroup does not count in `pgscan_direct`; it does in `pgscan_anon`
//! and `pgscan_file` (5.8 on; `shrink_inactive_list`, mm/vmscan.c).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use procfs_core::process::{MountInfo, MountInfos};
use procfs_core::{FromBufRead, ProcessCGroups};
use stopgap_events::order::Inserted as _;
use stopgap_events::units::{Bytes, Nanos};

use crate::System;
use crate::error::{Error, Result};
use crate::files::{Files, read_number, read_text};
use crate::journal::Journal;
use crate::proc::pressure;

/// Which cgroup interface the memory controller is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Its own hierarchy.
    V1,
    /// The unified one.
    V2,
}

/// Where memory cgroups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The interface.
    pub version: Version,
    /// The directory in which a child is made.
    pub parent: PathBuf,
}

/// The mounts of this process.
///
/// # Errors
/// Where `/proc/self/mountinfo` cannot be read or is not of the form that we know.
pub fn mounts(files: &(impl Files + ?Sized)) -> Result<Vec<MountInfo>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = files.read(path)?;
    let mounts = MountInfos::from_buf_read(text.as_slice());
    Ok(mounts.map_err(|e| Error::parse(path.display(), e))?.0)
}

/// The type of the file system that an absolute path without symbolic links lies on.
///
/// # Errors
/// As [`mounts`], or when no mount holds the path.
pub fn file_system(files: &(impl Files + ?Sized), path: &Path) -> Result<String> {
    // Several mounts may lie on one point: the last one is seen.
    mounts(files)?
        .into_iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
        .map(|mount| mount.fs_type)
        .ok_or_else(|| {
            Error::parse(
                "/proc/self/mountinfo",
                format!("no mount holds {}", path.display()),
            )
        })
}

/// Counters of the form `name value`, one a line: `memory.stat`, `/proc/vmstat`. A line of
/// another form is passed over: newer kernels may add such.
///
/// # Errors
/// Where the file cannot be read.
pub fn counters(
    files: &(impl Files + ?Sized),
    path: impl AsRef<Path>,
) -> Result<BTreeMap<String, u64>> {
    let text = read_text(files, path)?;
    let pairs = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    });
    Ok(pairs.inserted())
}

/// [`counters`] of `memory.stat` of our own group, where the memory controller is on version 2.
///
/// # Errors
/// [`Error::Unsupported`] where it is not; else as the files of `/proc/self` and `memory.stat`: the
/// root group has none.
pub fn own_counters(files: &(impl Files + ?Sized)) -> Result<BTreeMap<String, u64>> {
    let mounts = mounts(files)?;
    let mount = unified(&mounts)
        .ok_or_else(|| no_group("no cgroup file system of version 2 is mounted"))?;
    let group = group_of(&groups(files, "self")?, mount, None)
        .ok_or_else(|| no_group("/proc/self/cgroup names no group of version 2"))?;
    counters(files, group.join("memory.stat"))
}

/// Returns the mount of version 2.
pub(crate) fn unified(mounts: &[MountInfo]) -> Option<&MountInfo> {
    mounts.iter().find(|mount| mount.fs_type == "cgroup2")
}

/// Returns the groups that the process `pid`, a number or `self`, is in.
pub(crate) fn groups(files: &(impl Files + ?Sized), pid: &str) -> Result<ProcessCGroups> {
    let path = format!("/proc/{pid}/cgroup");
    let text = files.read(path.as_ref())?;
    ProcessCGroups::from_buf_read(text.as_slice()).map_err(|e| Error::parse(&path, e))
}

/// Returns the directory below `mount` of the group that has this controller; without one, of the group of version 2.
pub(crate) fn group_of(
    groups: &ProcessCGroups,
    mount: &MountInfo,
    controller: Option<&str>,
) -> Option<PathBuf> {
    let group = groups.0.iter().find(|group| match controller {
        Some(name) => group.controllers.iter().any(|c| c == name),
        None => group.hierarchy == 0 && group.controllers.is_empty(),
    })?;
    Some(directory(mount, &group.pathname))
}

fn no_group(advice: impl ToString) -> Error {
    Error::unsupported("no memory cgroup", advice)
}

impl Site {
    /// Where a child of ours can be made. Changes nothing: whether we may write there shows
    /// when one is made.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no memory controller, it is mounted read-only, or on
    /// version 2 no group above us hands it to its children; else as the files of `/proc/self`.
    pub fn find(files: &(impl Files + ?Sized)) -> Result<Site> {
        let own = groups(files, "self")?;
        let mounts = mounts(files)?;
        let writable = |mount: &MountInfo| match mount.mount_options.contains_key("ro") {
            false => Ok(()),
            true => Err(no_group(format!(
                "{} is mounted read-only: run outside of the container",
                mount.mount_point.display()
            ))),
        };
        let on_v1 = mounts
            .iter()
            .find(|m| m.fs_type == "cgroup" && m.super_options.contains_key("memory"));
        if let Some(mount) = on_v1 {
            writable(mount)?;
            let parent = group_of(&own, mount, Some("memory")).ok_or_else(|| {
                no_group("/proc/self/cgroup names no group of the memory controller")
            })?;
            return Ok(Site {
                version: Version::V1,
                parent,
            });
        }
        let mount = unified(&mounts)
            .ok_or_else(|| no_group("no cgroup file system with a memory controller is mounted"))?;
        writable(mount)?;
        let own = group_of(&own, mount, None)
            .ok_or_else(|| no_group("/proc/self/cgroup names no group of version 2"))?;
        let hands_down = |group: &&Path| {
            let file = group.join("cgroup.subtree_control");
            read_text(files, file).is_ok_and(|text| text.split(' ').any(|c| c == "memory"))
        };
        let parent = own
            .ancestors()
            .take_while(|group| group.starts_with(&mount.mount_point))
            .find(hands_down)
            .ok_or_else(|| {
                no_group(format!(
                    "no group from {} up hands the memory controller to its children; \
                     as root: echo +memory > {}/cgroup.subtree_control",
                    own.display(),
                    mount.mount_point.display()
                ))
            })?;
        Ok(Site {
            version: Version::V2,
            parent: parent.to_owned(),
        })
    }
}

/// What may still be charged to our own memory group and to each group above it, the least of them; `None`
/// where no group limits us. A group that cannot be read counts as one without a limit.
///
/// # Errors
/// As the files of `/proc/self`.
pub fn left_in_own(files: &(impl Files + ?Sized)) -> Result<Option<Bytes>> {
    let own = groups(files, "self")?;
    let mut least = None;
    for mount in mounts(files)? {
        let (controller, limit, usage) = match mount.fs_type.as_str() {
            "cgroup" if mount.super_options.contains_key("memory") => (
                Some("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            "cgroup2" => (None, "memory.max", "memory.current"),
            _ => continue,
        };
        let Some(group) = group_of(&own, &mount, controller) else {
            continue;
        };
        for group in group
            .ancestors()
            .take_while(|at| at.starts_with(&mount.mount_point))
        {
            // `max` on version 2 is no number, and no limit.
            let number = |file| read_number::<_, u64>(files, group.join(file)).ok();
            if let (Some(limit), Some(usage)) = (number(limit), number(usage)) {
                let left = Bytes(limit.saturating_sub(usage));
                least = Some(least.map_or(left, |least: Bytes| least.min(left)));
            }
        }
    }
    Ok(least)
}

/// The directory of the group `name` below `mount`, which may show only a part of the
/// hierarchy (a container); a group outside of it is seen as its root.
pub(crate) fn directory(mount: &MountInfo, name: &str) -> PathBuf {
    let inside = Path::new(name).strip_prefix(&mount.root);
    match inside {
        Ok(rest) if !name.contains("/..") => mount.mount_point.join(rest),
        _ => mount.mount_point.clone(),
    }
}

/// How often a forced reclaim that was interrupted is asked for again. One is what a closed `io_uring` takes.
const MOST_INTERRUPTS: u32 = 8;

/// Pages that reclaim looked at and took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaimed {
    /// Looked at.
    pub scanned: u64,
    /// Taken.
    pub reclaimed: u64,
    /// Looked at in anonymous (or shared) memory, system-wide. `None` where the
    /// kernel does not say (before 5.8).
    pub anonymous: Option<u64>,
}

impl Reclaimed {
    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Reclaimed) -> Reclaimed {
        let anonymous = self.anonymous.zip(earlier.anonymous);
        Reclaimed {
            scanned: self.scanned.saturating_sub(earlier.scanned),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            anonymous: anonymous.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// A memory cgroup that we made. Undoing the journal removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    version: Version,
    path: PathBuf,
}

impl MemoryGroup {
    /// Makes one at `site`, its memory limited to `limit`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where we may not; else as mkdir(2) or write(2) say: nothing is
    /// then left.
    pub fn make(
        system: &dyn System,
        journal: &Journal<'_>,
        site: &Site,
        name: &str,
        limit: Bytes,
    ) -> Result<MemoryGroup> {
        let path = site.parent.join(name);
        journal.make_dir(&path).map_err(|error| {
            let erofs = error.errno() == Some(libc::EROFS);
            if error.is_refused() || erofs {
                no_group(format!("{error}; run as root"))
            } else {
                error
            }
        })?;
        let group = MemoryGroup {
            version: site.version,
            path,
        };
        let file = group.file("memory.limit_in_bytes", "memory.max");
        system.write(&file, limit.0.to_string().as_bytes())?;
        Ok(group)
    }

    /// Its file of that name in its version, or a whole path instead.
    fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.path.join(match self.version {
            Version::V1 => v1,
            Version::V2 => v2,
        })
    }

    /// Its directory: what [`crate::tasks::ChildLimits::cgroup`] takes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has reclaim of it weigh anonymous against file pages as `swappiness` says, 0 to 200, instead of as
    /// the machine does.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on version 2, which has it for the whole machine alone; else as write(2).
    pub fn set_swappiness(&self, files: &(impl Files + ?Sized), swappiness: u32) -> Result<()> {
        if self.version == Version::V2 {
            let advice = "cgroup version 2 has none: set vm.swappiness, or leave it as it is";
            return Err(Error::unsupported("a swappiness of its own", advice));
        }
        files.write(
            &self.path.join("memory.swappiness"),
            swappiness.to_string().as_bytes(),
        )
    }

    /// Its `memory.stat`.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn stat(&self, files: &(impl Files + ?Sized)) -> Result<BTreeMap<String, u64>> {
        counters(files, self.path.join("memory.stat"))
    }

    /// Pages scanned and reclaimed: of the group on version 2, of the whole system on 1.
    ///
    /// # Errors
    /// Where they cannot be read, or the kernel does not count them ([`Error::Parse`]: before
    /// 5.8 on version 1).
    pub fn reclaimed(&self, files: &(impl Files + ?Sized)) -> Result<Reclaimed> {
        let vmstat = counters(files, "/proc/vmstat")?;
        let path = self.file("/proc/vmstat", "memory.stat");
        let own = match self.version {
            Version::V1 => vmstat.clone(),
            Version::V2 => self.stat(files)?,
        };
        let sum = |one: &str| match self.version {
            Version::V1 => {
                Some(own.get(&format!("{one}_anon"))? + own.get(&format!("{one}_file"))?)
            }
            Version::V2 => own.get(one).copied(),
        };
        let need = |name: &str| {
            sum(name).ok_or_else(|| Error::parse(path.display(), format!("does not count {name}")))
        };
        Ok(Reclaimed {
            scanned: need("pgscan")?,
            reclaimed: need("pgsteal")?,
            anonymous: vmstat.get("pgscan_anon").copied(),
        })
    }

    /// How long some task waited for memory so far: of the group on version 2, of the whole
    /// system on 1.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel keeps no pressure information.
    pub fn stalled(&self, files: &(impl Files + ?Sized)) -> Result<Nanos> {
        let path = self.file("/proc/pressure/memory", "memory.pressure");
        match pressure::read_file(files, "memory", &path) {
            Ok(pressure) => Ok(Nanos::micros(pressure.some.total_us)),
            Err(error @ Error::Parse { .. }) => Err(error),
            Err(error) => {
                let why = "built without CONFIG_PSI, or switched off: boot with psi=1";
                Err(Error::unsupported(
                    "memory pressure",
                    format!("{error}; {why}"),
                ))
            }
        }
    }

    /// Reclaims what can be reclaimed of `length` charged to it: one request, which may take
    /// several passes inside the kernel. Called from within or from outside.
    ///
    /// The kernel gives up with `EINTR` whenever something is pending for the task, which need be no signal: work that
    /// a closed `io_uring` left for it counts, too (`signal_pending`, `mem_cgroup_force_empty`, mm/memcontrol-v1.c 6.12).
    /// It is carried out on the way back to us, so that the same request then runs on; that a few times at most,
    /// because real signals may come as fast as they like.
    ///
    /// # Errors
    /// As write(2), `EINTR` after [`MOST_INTERRUPTS`] of them; version 2 has `memory.reclaim` from 5.19 on. That not
    /// all of it could be reclaimed is no error.
    pub fn reclaim(&self, files: &(impl Files + ?Sized), length: Bytes) -> Result<()> {
        let file = self.file("memory.force_empty", "memory.reclaim");
        let content = match self.version {
            Version::V1 => "0".to_owned(),
            Version::V2 => length.0.to_string(),
        };
        let mut interrupts = 0;
        loop {
            match files.write(&file, content.as_bytes()) {
                Err(error)
                    if error.errno() == Some(libc::EINTR) && interrupts < MOST_INTERRUPTS =>
                {
                    interrupts += 1;
                }
                Err(error) if matches!(error.errno(), Some(libc::EAGAIN | libc::EBUSY)) => {
                    return Ok(());
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const V1_MOUNT: &str = "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2_MOUNT: &str = "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
    const ROOT_MOUNT: &str = "20 1 254:0 / / rw - ext4 /dev/vda rw\n";

    fn machine(mount: &str, own: &str) -> Fake {
        Fake::default()
            .with_file("/proc/self/mountinfo", format!("{ROOT_MOUNT}{mount}"))
            .with_file("/proc/self/cgroup", own)
            .with_file("/run/x", "")
    }

    fn why(result: Result<impl std::fmt::Debug>) -> String {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn on_version_1_a_child_is_made_below_us() {
        let fake = machine(V1_MOUNT, "4:memory:/a/b\n0::/\n");
        let site = Site::find(&fake).unwrap();
        assert_eq!(site.version, Version::V1);
        assert_eq!(site.parent, Path::new("/sys/fs/cgroup/memory/a/b"));
    }

    /// ```text
    ///  /              subtree_control: cpu memory
    ///  /user.slice    subtree_control: memory pids     <- here
    ///  /user.slice/s  subtree_control: (none), and we are in it
    /// ```
    #[test]
    fn on_version_2_it_is_made_where_memory_is_handed_down() {
        let fake = machine(V2_MOUNT, "0::/user.slice/s\n")
            .with_file("/sys/fs/cgroup/cgroup.subtree_control", "cpu memory\n")
            .with_file(
                "/sys/fs/cgroup/user.slice/cgroup.subtree_control",
                "memory pids\n",
            )
            .with_file("/sys/fs/cgroup/user.slice/s/cgroup.subtree_control", "\n");
        let site = Site::find(&fake).unwrap();
        assert_eq!(site.version, Version::V2);
        assert_eq!(site.parent, Path::new("/sys/fs/cgroup/user.slice"));
    }

    #[test]
    fn our_own_group_counts_on_version_2() {
        let stat = "anon 4096\npgscan 12\npgsteal 7\n";
        let fake = machine(V2_MOUNT, "0::/user.slice/s\n")
            .with_file("/sys/fs/cgroup/user.slice/s/memory.stat", stat);
        let counters = own_counters(&fake).unwrap();
        assert_eq!((counters["pgscan"], counters["pgsteal"]), (12, 7));
        assert!(
            own_counters(&machine(V2_MOUNT, "0::/\n")).is_err(),
            "the root has none"
        );
        let v1 = machine(V1_MOUNT, "4:memory:/a/b\n0::/\n");
        assert!(why(own_counters(&v1)).contains("version 2"));
    }

    #[test]
    fn where_none_can_be_made_it_says_why() {
        let nowhere = machine("", "0::/\n");
        assert!(why(Site::find(&nowhere)).contains("is mounted"));

        let sealed = V2_MOUNT.replace(" rw shared", " ro,nosuid shared");
        let sealed = machine(&sealed, "0::/s\n");
        assert!(why(Site::find(&sealed)).contains("read-only"));

        let not_handed =
            machine(V2_MOUNT, "0::/s\n").with_file("/sys/fs/cgroup/s/cgroup.subtree_control", "\n");
        assert!(why(Site::find(&not_handed)).contains("+memory"));

        let refused = machine(V1_MOUNT, "4:memory:/\n")
            .with_file("/sys/fs/cgroup/memory/tasks", "")
            .read_only("/sys/fs/cgroup");
        let journal = Journal::new(&refused, Path::new("/run/stopgap"));
        let site = Site::find(&refused).unwrap();
        let made = MemoryGroup::make(&refused, &journal, &site, "stopgap-1", Bytes::mib(1));
        assert!(why(made).contains("run as root"));
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mount = "30 20 0:26 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        for (own, expected) in [
            ("4:memory:/docker/x/y\n", "/sys/fs/cgroup/memory/y"),
            ("4:memory:/../elsewhere\n", "/sys/fs/cgroup/memory"),
        ] {
            let site = Site::find(&machine(mount, own)).unwrap();
            assert_eq!(site.parent, Path::new(expected));
        }
    }

    fn group(version: Version) -> MemoryGroup {
        MemoryGroup {
            version,
            path: PathBuf::from("/cg"),
        }
    }

    #[test]
    fn counts_come_from_where_the_version_has_them() {
        let vmstat =
            "pgscan_direct 5\npgscan_anon 10\npgscan_file 30\npgsteal_anon 1\npgsteal_file 20\n";
        let fake = Fake::default()
            .with_file("/proc/vmstat", vmstat)
            .with_file("/cg/memory.stat", "anon 4096\npgscan 7\npgsteal 6\n")
            .with_file(
                "/proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=90\n",
            )
            .with_file(
                "/cg/memory.pressure",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            );
        let v1 = group(Version::V1).reclaimed(&fake).unwrap();
        assert_eq!((v1.scanned, v1.reclaimed, v1.anonymous), (40, 21, Some(10)));
        let v2 = group(Version::V2).reclaimed(&fake).unwrap();
        assert_eq!((v2.scanned, v2.reclaimed), (7, 6));
        assert_eq!(
            group(Version::V1).stalled(&fake).unwrap(),
            Nanos::micros(90)
        );
        assert_eq!(group(Version::V2).stalled(&fake).unwrap(), Nanos::micros(7));
    }

    /// ```text
    ///  /     limit: none      used 9 GiB
    ///  /a    limit 4 GiB      used 1 GiB    <- the least is left here
    ///  /a/b  limit 8 GiB      used 0
    /// ```
    #[test]
    fn what_is_left_is_the_least_of_all_groups_above() {
        let at = |group: &str, limit: &str, usage: Bytes| {
            let folder = format!("/sys/fs/cgroup/memory{group}");
            [
                (format!("{folder}/memory.limit_in_bytes"), limit.to_owned()),
                (
                    format!("{folder}/memory.usage_in_bytes"),
                    usage.0.to_string(),
                ),
            ]
        };
        let none = "9223372036854771712";
        let (four, eight) = (Bytes::gib(4).0.to_string(), Bytes::gib(8).0.to_string());
        let mut fake = machine(V1_MOUNT, "4:memory:/a/b\n");
        for (path, content) in [
            at("", none, Bytes::gib(9)),
            at("/a", &four, Bytes::gib(1)),
            at("/a/b", &eight, Bytes(0)),
        ]
        .concat()
        {
            fake = fake.with_file(path, content);
        }
        assert_eq!(left_in_own(&fake).unwrap(), Some(Bytes::gib(3)));

        let v2 = machine(V2_MOUNT, "0::/s\n")
            .with_file("/sys/fs/cgroup/s/memory.max", "max\n")
            .with_file("/sys/fs/cgroup/s/memory.current", "7\n");
        assert_eq!(left_in_own(&v2).unwrap(), None);
        assert_eq!(left_in_own(&machine("", "0::/\n")).unwrap(), None);
    }

    #[test]
    fn a_swappiness_of_its_own_is_version_1s() {
        let fake = Fake::default().with_file("/cg/memory.swappiness", "60");
        group(Version::V1).set_swappiness(&fake, 100).unwrap();
        assert_eq!(fake.content("/cg/memory.swappiness").unwrap(), "100");
        assert!(why(group(Version::V2).set_swappiness(&fake, 100)).contains("vm.swappiness"));
    }

    /// ```text
    /// write   EINTR EINTR .. EINTR  done        eight at most, then it is the answer
    /// ```
    #[test]
    fn an_interrupted_reclaim_is_asked_for_again_but_not_for_ever() {
        let interrupted = |times| {
            Fake::default()
                .with_file("/cg/memory.force_empty", "")
                .with_file("/cg/memory.reclaim", "")
                .failing_writes("/cg", libc::EINTR, times)
        };
        for (version, file, written) in [
            (Version::V1, "/cg/memory.force_empty", "0"),
            (Version::V2, "/cg/memory.reclaim", "1048576"),
        ] {
            let fake = interrupted(MOST_INTERRUPTS);
            group(version).reclaim(&fake, Bytes::mib(1)).unwrap();
            assert_eq!(fake.content(file).unwrap(), written);
            let fake = interrupted(MOST_INTERRUPTS + 1);
            let error = group(version).reclaim(&fake, Bytes::mib(1)).unwrap_err();
            assert_eq!(error.errno(), Some(libc::EINTR));
            // Memory that could not be reclaimed is no error, and not asked for again.
            let fake = Fake::default()
                .with_file(file, "")
                .failing_writes("/cg", libc::EAGAIN, 1);
            group(version).reclaim(&fake, Bytes::mib(1)).unwrap();
            assert_eq!(fake.content(file).unwrap(), "");
        }
    }

    #[test]
    fn a_kernel_that_does_not_count_is_not_zero() {
        let fake = Fake::default().with_file("/proc/vmstat", "pgscan_direct 5\n");
        let error = group(Version::V1).reclaimed(&fake).unwrap_err();
        assert!(error.to_string().contains("pgscan"), "{error}");
        assert!(why(group(Version::V1).stalled(&fake)).contains("psi=1"));
    }

    #[test]
    fn the_deepest_mount_names_the_file_system() {
        let fake = machine("31 20 0:30 / /tmp rw - tmpfs tmpfs rw\n", "0::/\n");
        assert_eq!(file_system(&fake, Path::new("/tmp/a")).unwrap(), "tmpfs");
        assert_eq!(file_system(&fake, Path::new("/tmpx/a")).unwrap(), "ext4");
    }
}
