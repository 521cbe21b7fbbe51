//! One named shrinker, had to scan through debugfs and timed (`CONFIG_SHRINKER_DEBUG`, Linux 6.0 on;
//! Documentation/admin-guide/mm/shrinker_debugfs.rst).
//!
//! ```text
//! /sys/kernel/debug/shrinker/NAME-ID/count    read:  a line a memory cgroup: its inode, objects a NUMA node
//! /sys/kernel/debug/shrinker/NAME-ID/scan     write: "inode node objects"
//! ```
//!
//! It is destructive: what the shrinker can free it does free. Each cgroup and node that has objects is
//! asked once for all of them; what is timed is that write, an object is what `count` says less afterwards.
//! A scan calls the shrinker directly, without the lists of reclaim before it.

use std::path::{Path, PathBuf};

use stopgap_events::machine::Privilege;
use stopgap_events::units::Nanos;
use stopgap_kernel::files::read_text;
use stopgap_kernel::{Error, System};
use stopgap_stats::record::{Block, parameters};

use crate::contract::{Context, Measured, ProbeError};

const FOLDER: &str = "/sys/kernel/debug/shrinker";

/// Names of the times and counts; the judgement looks for them.
pub(super) const SCAN: &str = "shrinker scan";
pub(super) const FREED: &str = "objects freed";

/// Objects of one memory cgroup on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Objects {
    /// Inode of the cgroup.
    group: u64,
    node: usize,
    count: u64,
}

/// Whether a folder `NAME-ID` is the shrinker `asked`: by its whole name, or without the number that the
/// kernel puts behind.
fn is(folder: &str, asked: &str) -> bool {
    let short = folder.rsplit_once('-').map(|(name, _)| name);
    folder == asked || short == Some(asked)
}

/// The folders of the shrinkers of that name, whose names are not unique.
///
/// # Errors
/// [`ProbeError::Unsupported`] without root, in a kernel without, and where none has the name: it says
/// which there are.
pub(super) fn find(context: &Context<'_>, asked: &str) -> Result<Vec<PathBuf>, ProbeError> {
    let unsupported = |why: String| Err(ProbeError::Unsupported(why));
    if context.privilege != Privilege::Root {
        return unsupported(format!("shrinker {asked}: needs root"));
    }
    let names = match context.system.list(Path::new(FOLDER)) {
        Ok(names) => names,
        Err(error) => {
            return unsupported(format!(
                "shrinker {asked}: {error}; the kernel is built without CONFIG_SHRINKER_DEBUG, is older than \
                 6.0, or debugfs is not mounted (mount -t debugfs none /sys/kernel/debug)"
            ));
        }
    };
    let found: Vec<PathBuf> = names
        .iter()
        .filter(|name| is(name, asked))
        .map(|name| Path::new(FOLDER).join(name))
        .collect();
    if found.is_empty() {
        return unsupported(format!(
            "no shrinker is called '{asked}'; there are {}",
            names.join(", ")
        ));
    }
    Ok(found)
}

/// Counts the objects that it could free.
fn count(system: &dyn System, folder: &Path) -> Result<Vec<Objects>, Error> {
    let path = folder.join("count");
    let text = read_text(system, &path)?;
    let mut all = Vec::new();
    for line in text.lines() {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let wrong = || Error::parse(path.display(), format!("'{line}' is no inode with counts"));
        let numbers = numbers.map_err(|_| wrong())?;
        let (&group, counts) = numbers.split_first().ok_or_else(wrong)?;
        all.extend(
            counts
                .iter()
                .enumerate()
                .map(|(node, &count)| Objects { group, node, count }),
        );
    }
    Ok(all)
}

/// Returns the objects of all cgroups and nodes.
fn sum(objects: &[Objects]) -> u64 {
    objects.iter().map(|one| one.count).sum()
}

/// Has it scan all that it has, once: how long that took and how many objects it had before and after.
fn scan(system: &dyn System, folder: &Path) -> Result<(Nanos, u64, u64), Error> {
    let before = count(system, folder)?;
    let mut took = Nanos(0);
    for one in before.iter().filter(|one| one.count > 0) {
        let order = format!("{} {} {}", one.group, one.node, one.count);
        let start = system.now();
        system.write(&folder.join("scan"), order.as_bytes())?;
        took += system.now().saturating_sub(start);
    }
    let after = count(system, folder)?;
    Ok((took, sum(&before), sum(&after)))
}

/// Scans each of `folders` and keeps the times and counts.
pub(super) fn measure(context: &Context<'_>, folders: &[PathBuf], measured: &mut Measured) {
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let parameters = parameters([("shrinker", name.as_ref().into())]);
        let start = context.system.now();
        match scan(context.system, folder) {
            Ok((took, before, after)) => {
                let freed = before.saturating_sub(after);
                let block = |value| [Block::number(0, start.0, freed.max(1), value)];
                measured.block(FREED, "objects", &parameters, block(freed as f64));
                if freed == 0 {
                    let why = format!("of {before} objects not one was freed, in {took}");
                    measured.fail(SCAN, "ns/object", &parameters, &why);
                } else {
                    let each = block(took.0 as f64 / freed as f64);
                    measured.block(SCAN, "ns/object", &parameters, each);
                }
            }
            Err(error) => measured.note(format!("shrinker {name}"), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stopgap_kernel::fake::Fake;
    use stopgap_testing::assert_contains;

    #[test]
    fn a_name_is_whole_or_without_its_number() {
        assert!(is("sb-ext4:vda-12", "sb-ext4:vda"));
        assert!(is("sb-ext4:vda-12", "sb-ext4:vda-12"));
        assert!(!is("sb-ext4:vda-12", "sb-ext4"));
    }

    #[test]
    fn each_group_and_node_with_objects_is_asked_for_them() {
        let folder = Path::new(FOLDER).join("i915-3");
        let fake = Fake::default()
            .with_file(folder.join("count"), "1 0 12\n49 7 0\n")
            .with_file(folder.join("scan"), "");
        let all = count(&fake, &folder).unwrap();
        assert_eq!((all.len(), sum(&all)), (4, 19));
        let (_, before, after) = scan(&fake, &folder).unwrap();
        assert_eq!((before, after), (19, 19), "a fake frees nothing");
        // The last of two writes stands.
        assert_eq!(fake.content(folder.join("scan")).unwrap(), "49 0 7");
    }

    #[test]
    fn a_count_that_is_none_is_named() {
        let folder = Path::new(FOLDER).join("x-1");
        let fake = Fake::default().with_file(folder.join("count"), "1 many\n");
        let error = count(&fake, &folder).unwrap_err().to_string();
        assert_contains(&error, &["x-1/count", "'1 many'"]);
    }
}
