//! What must be known of a capture to read its pages later, on this machine or another: the formats,
//! and what the kernel's numbers mean. It is written before the first page is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stopgap_trace::Metadata;

use crate::error::{Error, Result};
use crate::perf::PerfDescription;
use crate::waits::WaitsDescription;

/// The version of the description, as spools name it.
pub const SCHEMA: &str = "stopgap.spool/1";

/// The subject of a trace, for its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// What is recorded: a command line.
    pub source: String,
    /// The program: the first word of the command line.
    pub program: Option<String>,
    /// Labels that the user gave it.
    pub labels: BTreeMap<String, String>,
}

impl<S: Into<String>> From<S> for Subject {
    fn from(source: S) -> Subject {
        Subject {
            source: source.into(),
            ..Subject::default()
        }
    }
}

/// A capture's description.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process that captures; its instance has its number ([`crate::capture::instance_of`]).
    pub recorder: Option<u32>,
    /// The text of `events/header_page`.
    pub header_page: String,
    /// The text of each event's format, by `system:event`.
    pub formats: BTreeMap<String, String>,
    /// Names of system calls by number.
    pub syscalls: BTreeMap<u32, String>,
    /// Names of migrate types, in the order of their numbers; empty where they may not be read.
    pub migrate_types: Vec<String>,
    /// Threads that were there when the capture began.
    pub tasks: Vec<TaskName>,
    /// The mappings of processes when the capture began.
    pub layouts: Vec<Layout>,
    /// CPUs of which there are pages.
    pub cpus: Vec<u32>,
    /// Whether there are pages of [`EventSet::of_machine`](crate::events::EventSet::of_machine), too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_machine: bool,
    /// Threads that are not followed and were there when the capture began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<TaskName>,
    /// Description of perf's records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perf: Option<PerfDescription>,
    /// Description of the files of waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsDescription>,
    /// The metadata of the trace; its losses come at the end.
    pub metadata: Metadata,
}

/// A thread and its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name, where it could be read.
    pub comm: Option<String>,
}

/// The mappings of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The process.
    pub pid: u32,
    /// The text of `/proc/PID/maps`.
    pub maps: String,
    /// When it had been read, on the trace's clock.
    pub time_ns: u64,
}

impl Description {
    /// Reads a description; `file` is its name in errors.
    ///
    /// # Errors
    /// Where it is none, or of another version.
    pub fn parse(file: &str, text: &[u8]) -> Result<Description> {
        let description: Description = serde_json::from_slice(text)
            .map_err(|error| Error::description(file, error.to_string()))?;
        if description.schema == SCHEMA {
            return Ok(description);
        }
        let schema: String = description.schema.chars().take(60).collect();
        let why = format!(
            "its schema is '{}'; this version reads {SCHEMA}",
            schema.escape_default()
        );
        Err(Error::description(file, why))
    }
}
