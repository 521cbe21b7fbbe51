//! The directory of the kernel's trace events.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stopgap_events::units::Nanos;

use crate::System;
use crate::error::{Error, Result};

/// Where tracefs is usually mounted: its own place, and within debugfs before Linux 4.1.
pub const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's trace file system, for as long as this lives.
#[derive(Debug)]
pub struct Tracefs {
    path: PathBuf,
    /// A mount of our own that no other process sees; it goes with this descriptor.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Mounted by the system at `path`.
    pub(crate) fn mounted(path: &Path) -> Tracefs {
        Tracefs {
            path: path.to_owned(),
            _mount: None,
        }
    }

    /// In a mount of our own, which is nowhere but behind its descriptor.
    pub(crate) fn detached(mount: OwnedFd) -> Tracefs {
        use std::os::fd::AsRawFd;
        Tracefs {
            path: PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            _mount: Some(mount),
        }
    }

    /// Its root, for this process.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the instance `name`: a ring buffer and switches of its own.
    #[must_use]
    pub fn instance(&self, name: &str) -> PathBuf {
        self.path.join("instances").join(name)
    }
}

/// Removes an instance: switches it off, so that it costs nothing more even where it cannot go,
/// removes it, and looks whether it is gone. A missing one is no error.
pub(crate) fn remove(system: &dyn System, name: &str) -> Result<()> {
    let tracefs = system.tracefs()?;
    let path = tracefs.instance(name);
    let instances = tracefs.path().join("instances");
    let there = || -> Result<bool> { Ok(system.list(&instances)?.iter().any(|one| one == name)) };
    if !there()? {
        return Ok(());
    }
    for switch in ["tracing_on", "events/enable"] {
        match system.write(&path.join(switch), b"0") {
            Err(error) if error.is_absent() => {}
            other => other?,
        }
    }
    // A reader that was killed with us may still be on its way out.
    let deadline = system.now() + Nanos::secs(3);
    loop {
        match system.remove_dir(&path) {
            Err(error) if error.errno() == Some(libc::EBUSY) && system.now() < deadline => {
                system.sleep_until(system.now() + Nanos::millis(20));
            }
            Err(error) if error.is_absent() => break,
            other => {
                other?;
                break;
            }
        }
    }
    if there()? {
        let why = std::io::Error::other("it is still there: somebody holds a file of it open");
        return Err(Error::call("rmdir", path.display(), why));
    }
    Ok(())
}
