//! Waits that BPF programs record in the kernel ([`stopgap_capture`]): into a spool, and out of it as events.
//!
//! ```text
//! Capture, a ring a CPU -> waitsN.raw of each, maps.jsonl -> records in order -> events
//!                                        threads' names, stacks' names on the way
//! ```

mod cgroups;
mod jit;
mod keyed;
mod mappers;
mod source;
mod spool;
mod unwind;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use stopgap_capture::Part;
use stopgap_events::order::Inserted as _;
use stopgap_events::units::Bytes;

use crate::perf::Mapping;

pub use cgroups::CGROUPS;
pub(crate) use cgroups::Cgroups;
pub use mappers::{Mapper, mappers};
pub(crate) use source::Waits;
pub use spool::WaitSpool;
pub(crate) use spool::unsupported;

/// A description of the files of waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitsDescription {
    /// Files of records: one a ring, and one of the threads that existed.
    pub files: u32,
    /// Whether waits for locked pages are left out.
    pub no_page_locks: bool,
}

/// What to record by BPF.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only the waits of the threads that are followed, not those of the whole machine.
    pub only: bool,
    /// Processes that take one of these names later are followed.
    pub names: Vec<String>,
    /// Bytes of all rings together; `None`: 64 MiB.
    pub rings: Option<Bytes>,
    /// Parts that are recorded beside waits.
    pub parts: Vec<Part>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            only: false,
            names: Vec::new(),
            rings: None,
            parts: stopgap_capture::Options::default().parts,
        }
    }
}

/// Returns the names of this machine's system calls, by number.
#[must_use]
pub fn syscall_names() -> BTreeMap<u32, String> {
    syscalls::Sysno::iter()
        .filter_map(|call| Some((u32::try_from(call.id()).ok()?, call.name().to_owned())))
        .inserted()
}

/// Returns the mark that a thread made by taking the name `comm`: `stopgap_mark()` of `stopgap_mark.h`.
#[must_use]
pub fn mark_of(comm: &str) -> Option<&str> {
    comm.strip_prefix('\u{1}')
}

/// The file of a ring's records.
#[must_use]
pub fn waits_of(file: u32) -> String {
    format!("waits{file}.raw")
}

/// A line of [`MAPS`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mapped {
    /// When it was read.
    pub(crate) time_ns: u64,
    #[serde(flatten)]
    pub(crate) mapping: Mapping,
}

/// The file of the executable mappings of processes whose stacks were taken: a JSON object a line.
pub const MAPS: &str = "maps.jsonl";
