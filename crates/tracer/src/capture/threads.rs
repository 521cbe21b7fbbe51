//! The threads of a process, by name.

use stopgap_kernel::System;
use stopgap_kernel::files::read_lossy;

use crate::description::TaskName;
use crate::error::Result;

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
