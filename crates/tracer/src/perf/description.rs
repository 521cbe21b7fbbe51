//! The facts that later reading of perf's records needs.

use serde::{Deserialize, Serialize};
use stopgap_events::units::Nanos;

/// A description of records of perf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PerfDescription {
    /// CPUs of which there are records.
    pub cpus: Vec<u32>,
    /// Whether switches, forks, execs and ends are events of the trace; otherwise somebody else
    /// tells them, and here they only say who is who.
    pub scheduling: bool,
    /// Time on a CPU between two samples of a thread.
    pub period: Option<Nanos>,
    /// The mappings when the recording began.
    pub mappings: Vec<Mapping>,
}

/// Memory that a process had mapped, executable, before the first record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapping {
    /// The process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// First address beyond.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file's inode; 0 where it is none.
    pub inode: u64,
    /// The file, or `[vdso]` and the like; empty where it is none.
    pub name: String,
}
