//! The mappings of a process that may hold functions.

use procfs_core::FromRead;
use procfs_core::process::{MMPermissions, MMapPath, MemoryMaps};
use stopgap_kernel::System;

use crate::error::{Error, Result};
use crate::perf::Mapping;

/// The executable mappings of `pid` now; none where it has ended.
pub(crate) fn executable(system: &dyn System, pid: u32) -> Result<Vec<Mapping>> {
    let file = format!("/proc/{pid}/maps");
    let text = match system.read(file.as_ref()) {
        Ok(text) => text,
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let maps = MemoryMaps::from_read(&*text);
    let maps = maps.map_err(|error| Error::description(file, error.to_string()))?;
    let executable = maps
        .into_iter()
        .filter(|map| map.perms.contains(MMPermissions::EXECUTE));
    Ok(executable
        .map(|map| Mapping {
            pid,
            start: map.address.0,
            end: map.address.1,
            offset: map.offset,
            inode: map.inode,
            name: match map.pathname {
                MMapPath::Path(path) => path.display().to_string(),
                MMapPath::Vdso => "[vdso]".to_owned(),
                MMapPath::Heap => "[heap]".to_owned(),
                MMapPath::Stack => "[stack]".to_owned(),
                MMapPath::Other(name) => format!("[{name}]"),
                _ => String::new(),
            },
        })
        .collect())
}
