//! How much memory a probe may use.

use std::path::Path;

use stopgap_events::units::Bytes;

use crate::error::{Error, Result};
use crate::files::{Files, read_text};
use crate::proc::memory;

/// Most memory that a probe uses where no other budget is given.
pub const CEILING: Bytes = Bytes::gib(2);

/// The least of a quarter of `MemAvailable` and [`CEILING`].
///
/// # Errors
/// Where `/proc/meminfo` cannot be read or has no `MemAvailable` (before Linux 3.14).
pub fn default(files: &(impl Files + ?Sized)) -> Result<Bytes> {
    let available = meminfo(files, "MemAvailable")?;
    Ok(Bytes((available.0 / 4).min(CEILING.0)))
}

/// One line of `/proc/meminfo`, `name` as it stands there.
///
/// # Errors
/// Where the file cannot be read or does not have it.
pub fn meminfo(files: &(impl Files + ?Sized), name: &str) -> Result<Bytes> {
    let path = Path::new("/proc/meminfo");
    let text = read_text(files, path)?;
    memory(&text, name)
        .ok_or_else(|| Error::parse(path.display(), format!("no line '{name}: ... kB'")))
}
