//! Reads what `/proc` says of another process, again and again.
//!
//! All of it is there for the process's own user; nothing needs a privilege but
//! [`crate::linux::MappingCount`], which the kernel refuses of a program that changed its user.

use std::collections::HashMap;

use stopgap_events::units::Bytes;

use crate::System;
use crate::error::{Error, Result};
use crate::files::{read_lossy, read_text};
use crate::proc::{stat_fields, switches_of};
use crate::tasks::Switches;

/// Counts of a process, all its threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// When it began, in the kernel's ticks since boot: of two processes that had one id, which.
    pub start: u64,
    /// Page faults so far that needed no disk.
    pub minor_faults: u64,
    /// Page faults so far that did.
    pub major_faults: u64,
    /// Memory that it has resident; exact to some pages a CPU (`mm_struct`'s counters per CPU).
    pub resident: Bytes,
}

/// `/proc/PID/stat` (proc_pid_stat(5)); some 20 us. `None` where the process has ended, be it that
/// nobody has waited for it yet.
///
/// # Errors
/// As read(2); where the file reads otherwise than expected.
pub fn usage(system: &dyn System, pid: u32) -> Result<Option<Usage>> {
    let path = format!("/proc/{pid}/stat");
    let Some(text) = read_of_process(system, &path)? else {
        return Ok(None);
    };
    let fields = stat_fields(&text);
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return Ok(None);
    }
    let field = |number: usize, name: &str| -> Result<u64> {
        let word = fields.get(number - 3); // the first one here is the third
        word.and_then(|word| word.parse().ok())
            .ok_or_else(|| Error::parse(&path, format!("no number {number}, {name}, in '{text}'")))
    };
    let pages = field(24, "rss")?;
    Ok(Some(Usage {
        start: field(22, "starttime")?,
        minor_faults: field(10, "minflt")?,
        major_faults: field(12, "majflt")?,
        resident: Bytes(pages.saturating_mul(system.page_size().0)),
    }))
}

/// The text of a file of a process; `None` where that has ended.
fn read_of_process(system: &dyn System, path: &str) -> Result<Option<String>> {
    match read_lossy(system, path) {
        Err(error) if error.is_ended() => Ok(None),
        text => text.map(Some),
    }
}

/// Its threads that there are now; none where it has ended.
///
/// # Errors
/// As readdir(3).
pub fn threads(system: &dyn System, pid: u32) -> Result<Vec<u32>> {
    match system.list(format!("/proc/{pid}/task").as_ref()) {
        Err(error) if error.is_ended() => Ok(Vec::new()),
        names => Ok(names?.iter().filter_map(|name| name.parse().ok()).collect()),
    }
}

/// How often a thread has left its CPU since it began; `None` where it has ended.
///
/// # Errors
/// As read(2); where the kernel does not print it.
pub fn switches(system: &dyn System, pid: u32, tid: u32) -> Result<Option<Switches>> {
    let path = format!("/proc/{pid}/task/{tid}/status");
    let Some(text) = read_of_process(system, &path)? else {
        return Ok(None);
    };
    let switches = switches_of(&text);
    let none = || Error::parse(&path, "no counts of context switches");
    switches.map(Some).ok_or_else(none)
}

/// Processes that this thread has forked and that have not ended (`CONFIG_PROC_CHILDREN`); none
/// where it has ended itself. One whose parent has ended is nobody's child any more.
///
/// # Errors
/// As read(2): `ENOENT` where the thread is there and the kernel has no such file.
pub fn children(system: &dyn System, pid: u32, tid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let path = format!("{folder}/children");
    match read_text(system, &path) {
        Err(error) if error.is_ended() && system.list(folder.as_ref()).is_err() => Ok(Vec::new()),
        text => text?
            .split_ascii_whitespace()
            .map(|word| {
                let wrong = |_| Error::parse(&path, format!("'{word}' is no process id"));
                word.parse().map_err(wrong)
            })
            .collect(),
    }
}

/// Returns `roots` and the processes that live below them: children, their children and so on. One look at all processes, some
/// 20 us each. A process whose parent has ended belongs to nobody here.
///
/// # Errors
/// As readdir(3) of `/proc`.
pub fn families(system: &dyn System, roots: &[u32]) -> Result<Vec<u32>> {
    let mut below: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all(system)? {
        if let Some(parent) = parent(system, pid) {
            below.entry(parent).or_default().push(pid);
        }
    }
    let mut family: Vec<u32> = Vec::new();
    let mut left: Vec<u32> = roots.iter().rev().copied().collect();
    while let Some(pid) = left.pop() {
        // Taken out: a root may be another root's child.
        left.extend(below.remove(&pid).unwrap_or_default());
        if !family.contains(&pid) {
            family.push(pid);
        }
    }
    Ok(family)
}

/// Returns the processes whose first thread has this name, as `/proc/PID/comm` prints it.
///
/// # Errors
/// As readdir(3) of `/proc`.
pub fn named(system: &dyn System, name: &[u8]) -> Result<Vec<u32>> {
    let mut pids = all(system)?;
    pids.retain(|pid| {
        let comm = system.read(format!("/proc/{pid}/comm").as_ref());
        comm.is_ok_and(|comm| comm.strip_suffix(b"\n") == Some(name))
    });
    Ok(pids)
}

/// Returns the processes that there are.
fn all(system: &dyn System) -> Result<Vec<u32>> {
    let names = system.list("/proc".as_ref())?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Returns the parent of a process; `None` where the process has ended.
fn parent(system: &dyn System, pid: u32) -> Option<u32> {
    let text = read_lossy(system, format!("/proc/{pid}/stat")).ok()?;
    stat_fields(&text).get(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use stopgap_testing::assert_contains;

    const STAT: &str = "7 (a b) R (c) S 1 7 7 0 -1 4194560 151 22 3 4 5 6 7 8 20 0 1 0 4242 1000 \
        12 18446744073709551615 1";

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let fake = Fake::default().with_file("/proc/7/stat", STAT);
        let usage = usage(&fake, 7).unwrap().unwrap();
        assert_eq!((usage.minor_faults, usage.major_faults), (151, 3));
        assert_eq!((usage.start, usage.resident.0), (4242, 12 * fake_page()));
    }

    fn fake_page() -> u64 {
        use crate::memory::Memory;
        Fake::default().page_size().0
    }

    #[test]
    fn one_that_has_ended_is_none_and_a_broken_file_is_named() {
        let zombie = STAT.replace(") S ", ") Z ");
        let fake = Fake::default()
            .with_file("/proc/7/stat", zombie)
            .with_file("/proc/8/stat", "8 (x) S 1");
        assert_eq!(usage(&fake, 7).unwrap(), None);
        assert_eq!(usage(&fake, 9).unwrap(), None);
        let error = usage(&fake, 8).unwrap_err().to_string();
        assert_contains(&error, &["/proc/8/stat", "rss"]);
        assert!(threads(&fake, 9).unwrap().is_empty());
        assert_eq!(switches(&fake, 9, 9).unwrap(), None);
    }

    #[test]
    fn children_are_those_of_a_thread() {
        let fake = Fake::default()
            .with_file("/proc/7/task/7/children", "12 13 ")
            .with_file("/proc/7/task/8/children", "x")
            .with_file("/proc/7/task/9/comm", "no such file in this kernel");
        assert_eq!(children(&fake, 7, 7).unwrap(), [12, 13]);
        assert_contains(children(&fake, 7, 8).unwrap_err().to_string(), &["'x'"]);
        assert!(children(&fake, 7, 9).unwrap_err().is_absent());
        assert!(children(&fake, 6, 6).unwrap().is_empty());
    }

    #[test]
    fn this_process_reads_as_the_kernel_says() {
        let system = crate::Linux;
        let own = std::process::id();
        let usage = usage(&system, own).unwrap().unwrap();
        assert!(usage.minor_faults > 0 && usage.resident.0 > 0);
        assert!(threads(&system, own).unwrap().contains(&own));
        assert!(switches(&system, own, own).unwrap().unwrap().total() > 0);
    }

    #[test]
    fn a_family_has_each_once_and_nobody_else() {
        let stat = |parent: u32| format!("1 (a) b) S {parent} 1");
        let mut fake = Fake::default();
        for (pid, parent) in [(1, 0), (7, 1), (8, 7), (9, 8), (10, 1), (11, 7)] {
            fake = fake.with_file(format!("/proc/{pid}/stat"), stat(parent));
        }
        let family = |roots: &[u32]| {
            let mut family = families(&fake, roots).unwrap();
            assert_eq!(family[0], roots[0]);
            family.sort_unstable();
            family
        };
        assert_eq!(family(&[7]), [7, 8, 9, 11]);
        assert_eq!(family(&[8, 7]), [7, 8, 9, 11], "one is the other's child");
        assert_eq!(family(&[10, 9]), [9, 10]);
        assert_eq!(family(&[99]), [99], "who asks finds out that it is gone");
    }

    #[test]
    fn a_name_is_the_whole_name() {
        let fake = Fake::default()
            .with_file("/proc/7/comm", "sh\n")
            .with_file("/proc/8/comm", "sh\n\n")
            .with_file("/proc/9/comm", "ssh\n")
            .with_file("/proc/self/comm", "sh\n");
        assert_eq!(named(&fake, b"sh").unwrap(), [7]);
        assert_eq!(named(&fake, b"sh\n").unwrap(), [8]);
        assert!(named(&fake, b"s").unwrap().is_empty());
    }
}
