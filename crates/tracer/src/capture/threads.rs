//! The threads of a process, by name, and the processes below it.

use std::path::Path;

use stopgap_events::machine::Missing;
use stopgap_kernel::System;
use stopgap_kernel::files::read_lossy;
use stopgap_kernel::process::families;

use crate::description::TaskName;
use crate::error::{Error, Result};

/// Those that there are now.
pub(crate) fn threads_of(system: &dyn System, pid: u32) -> Result<Vec<TaskName>> {
    let folder = format!("/proc/{pid}/task");
    let names = system.list(folder.as_ref()).map_err(|error| {
        if error.is_absent() {
            return stopgap_kernel::Error::NoProcess {
                pid,
                advice: String::new(),
            };
        }
        error
    })?;
    let tids = names.iter().filter_map(|name| name.parse().ok());
    Ok(tids
        .map(|tid: u32| {
            // One that has just ended has no name any more.
            let comm = read_lossy(system, format!("{folder}/{tid}/comm")).ok();
            let comm = comm.map(|comm| comm.trim_end_matches('\n').to_owned());
            TaskName { tid, pid, comm }
        })
        .collect())
}

/// The most threads whose names a description has.
const MOST: usize = 65_536;

/// All threads that there are now, up to [`MOST`].
pub(crate) fn all(system: &dyn System) -> Vec<TaskName> {
    let names = system.list(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|name| name.parse().ok());
    // A process that ends meanwhile has none any more.
    pids.flat_map(|pid| threads_of(system, pid).unwrap_or_default())
        .take(MOST)
        .collect()
}

/// Processes that were given to be followed.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// Those that are, in the order in which they were found.
    pub(crate) processes: Vec<u32>,
    /// Those that may not be.
    pub(crate) missing: Vec<Missing>,
}

/// Gives `follow` the processes `given` and `found` and those below them, but for this one and those below it, until a look finds nobody new: a
/// process that was made meanwhile by one that was not followed yet is found by the next look. `follow` is told whether this
/// is the first look. A process that has ended is passed over.
///
/// # Errors
/// The first one of `follow`, but that a process may not be followed which was not given.
pub(crate) fn follow_families(
    system: &dyn System,
    given: &[u32],
    found: &[u32],
    mut follow: impl FnMut(u32, bool) -> Result<()>,
) -> Result<Followed> {
    let roots = [given, found].concat();
    // This process and what it has started itself, to write the trace; unless it was given.
    let mut tried = families(system, &[system.pid()])?;
    let ours = given.iter().copied().filter(|pid| *pid != system.pid());
    let ours: Vec<u32> = ours.filter(|pid| tried.contains(pid)).collect();
    let asked = families(system, &ours)?;
    tried.retain(|pid| !asked.contains(pid));
    let mut followed = Followed::default();
    let mut is_first = true;
    loop {
        let mut fresh = families(system, &roots)?;
        fresh.retain(|pid| !tried.contains(pid));
        for &pid in &fresh {
            match follow(pid, is_first) {
                Ok(()) => followed.processes.push(pid),
                Err(Error::System(stopgap_kernel::Error::NoProcess { .. })) => {}
                Err(Error::System(error @ stopgap_kernel::Error::Unsupported { .. }))
                    if !given.contains(&pid) =>
                {
                    let what = format!("what process {pid} does");
                    followed.missing.push(Missing::new(what, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if fresh.is_empty() {
            return Ok(followed);
        }
        tried.extend(fresh);
        is_first = false;
    }
}
