//! Privilege of this process.

use stopgap_events::machine::Privilege;
use stopgap_events::units::Bytes;

use crate::System;
use crate::error::{Error, Result};
use crate::files::{Files, read_text};
use crate::notes::Notes;
use crate::proc::field;

/// The capabilities that matter here and their numbers (`include/uapi/linux/capability.h`).
const CAPABILITIES: [(&str, u32); 6] = [
    ("CAP_SYS_ADMIN", 21),
    ("CAP_PERFMON", 38),
    ("CAP_SYS_NICE", 23),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_RESOURCE", 24),
];

/// Privilege of this process, and the capabilities that it stands on.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) privilege: Privilege,
    pub(crate) capabilities: Vec<String>,
}

impl Held {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.capabilities.iter().any(|held| held == name)
    }
}

/// Effective capabilities. Those that hold only inside a user namespace count as none: pagemap,
/// perf and `/proc` of others ask the first one.
pub(crate) fn read(system: &dyn System, notes: &mut Notes) -> Held {
    let mask = notes.keep("capabilities", effective(system)).unwrap_or(0);
    let mut capabilities: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| mask >> bit & 1 == 1)
        .map(|(name, _)| (*name).to_owned())
        .collect();
    if !capabilities.is_empty() && in_user_namespace(system) {
        let held = capabilities.join(" ");
        let why = format!("{held} hold only inside this user namespace");
        notes.add("capabilities", why);
        capabilities.clear();
    }
    let privilege = match capabilities.first().map(String::as_str) {
        Some("CAP_SYS_ADMIN") => Privilege::Root,
        Some(_) => Privilege::Some,
        None => Privilege::None,
    };
    Held {
        privilege,
        capabilities,
    }
}

fn effective(files: &(impl Files + ?Sized)) -> Result<u64> {
    let path = "/proc/self/status";
    let status = crate::files::read_lossy(files, path)?;
    let mask = field(&status, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    mask.ok_or_else(|| Error::parse(path, "no line 'CapEff: ...'"))
}

/// The first user namespace maps every id to itself.
fn in_user_namespace(files: &(impl Files + ?Sized)) -> bool {
    let map = read_text(files, "/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().ne(["0", "0", "4294967295"]))
}

/// The soft limit on locked memory (`RLIMIT_MEMLOCK`); `None`: unlimited.
///
/// # Errors
/// Where `/proc/self/limits` cannot be read or does not have it.
pub fn memlock_limit(files: &(impl Files + ?Sized)) -> Result<Option<Bytes>> {
    let path = "/proc/self/limits";
    let text = read_text(files, path)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let word = line.and_then(|line| line.split_whitespace().next());
    if word == Some("unlimited") {
        return Ok(None);
    }
    let limit = word.and_then(|word| word.parse().ok()).map(Bytes);
    let none = || Error::parse(path, "no limit in the line 'Max locked memory'");
    limit.map(Some).ok_or_else(none)
}
