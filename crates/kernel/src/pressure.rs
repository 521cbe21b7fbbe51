//! How long tasks have waited for a resource altogether, of the whole system or of a cgroup.

use std::path::{Path, PathBuf};

use procfs_core::ProcessCGroup;
use stopgap_events::units::Nanos;

use crate::cgroup;
use crate::error::Result;
use crate::files::Files;
use crate::proc::pressure;

/// The whole system's file of `resource`, a word as `memory` or `io`.
#[must_use]
pub fn global(resource: &str) -> PathBuf {
    Path::new("/proc/pressure").join(resource)
}

/// The file of the version-2 group of the process `pid`; `None` where it is in none, in the root
/// group (which has no file of its own), or its group keeps none.
///
/// # Errors
/// Where the files of `/proc` cannot be read or are not of the form that we know.
pub fn of_group(
    files: &(impl Files + ?Sized),
    pid: u32,
    resource: &str,
) -> Result<Option<PathBuf>> {
    let mounts = cgroup::mounts(files)?;
    let groups = cgroup::groups(files, &pid.to_string())?;
    let mount = cgroup::unified(&mounts);
    let Some(group) = mount.and_then(|mount| cgroup::group_of(&groups, mount, None)) else {
        return Ok(None);
    };
    let in_root = |group: &ProcessCGroup| group.hierarchy == 0 && group.pathname == "/";
    if groups.0.iter().any(in_root) {
        return Ok(None);
    }
    let file = group.join(format!("{resource}.pressure"));
    Ok(files.read(&file).is_ok().then_some(file))
}

/// How long some task has waited so far, by a pressure file.
///
/// # Errors
/// Where it cannot be read (`EOPNOTSUPP`: `psi=0`) or is not of the form that we know.
pub fn total(files: &(impl Files + ?Sized), path: &Path) -> Result<Nanos> {
    let read = pressure::read_file(files, "", path)?;
    Ok(Nanos::micros(read.some.total_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const MOUNT: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const LINE: &str = "some avg10=0.41 avg60=0.88 avg300=1.40 total=14877828\n";

    #[test]
    fn a_group_with_a_file_has_one() {
        let file = "/sys/fs/cgroup/app.slice/x/memory.pressure";
        let fake = Fake::default()
            .with_file("/proc/self/mountinfo", MOUNT)
            .with_file("/proc/7/cgroup", "0::/app.slice/x\n")
            .with_file("/proc/8/cgroup", "0::/\n")
            .with_file("/proc/9/cgroup", "4:memory:/a\n")
            .with_file(file, LINE);
        let of = |pid| of_group(&fake, pid, "memory").unwrap();
        assert_eq!(of(7), Some(PathBuf::from(file)));
        assert_eq!((of(8), of(9)), (None, None));
        assert_eq!(of_group(&fake, 7, "io").unwrap(), None);
        assert!(of_group(&fake, 6, "io").is_err(), "no such process");
        assert_eq!(
            total(&fake, Path::new(file)).unwrap(),
            Nanos(14_877_828_000)
        );
    }
}
