use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Error, Place, SCHEMA, SCHEMA_BEFORE};
use stopgap_events::machine::{Missing, Pressure};
use stopgap_events::range::AddressRange;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_events::words;

/// The clock of a trace's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// `CLOCK_MONOTONIC`: nanoseconds since boot without suspend.
    Monotonic,
    /// `CLOCK_BOOTTIME`: with it.
    Boottime,
    /// `CLOCK_REALTIME`: nanoseconds since 1970.
    Realtime,
    /// None: the times are the events' numbers, as in a workload.
    Order,
}

words!(
    Clock, "clock",
    Monotonic "monotonic",
    Boottime "boottime",
    Realtime "realtime",
    Order "order",
);

/// Events that were not captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Where they were lost: a buffer, a CPU.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// Machines that are alike in all of this can be compared. `None` means unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Machine name, as `uname -m` prints it.
    pub architecture: Option<String>,
    /// Maker and model, as the firmware says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// How many CPUs the recorder might use.
    pub cpus: Option<u64>,
    /// Memory that the kernel manages.
    pub memory: Option<Bytes>,
    /// Hypervisor, `none` on bare metal.
    pub hypervisor: Option<String>,
}

/// A file of a program or a library that a process with stacks had mapped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MappedFile {
    /// Its path as the process saw it.
    pub path: String,
    /// Its build id in hexadecimal: by it, symbols of a frame `FILE+0x...` can be found later.
    pub build_id: String,
}

/// Circumstances of a recording. `None` means unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Pressure when it began.
    pub pressure_before: Vec<Pressure>,
    /// Pressure when it ended.
    pub pressure_after: Vec<Pressure>,
    /// CPU time of all CPUs meanwhile, idle time included.
    pub cpu_time_ns: Option<Nanos>,
    /// CPU time that the hypervisor gave to somebody else.
    pub steal_ns: Option<Nanos>,
    /// CPU time that others had: neither the recorded process and the children that it waited for, nor the recorder.
    pub others_ns: Option<Nanos>,
}

/// A trace's description of itself. `None` means unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The clock of the times.
    pub clock: Option<Clock>,
    /// The kernel's id of the boot in which it was recorded.
    pub boot_id: Option<String>,
    /// The kernel it was recorded on: its release and its version, as `uname -rv` prints them.
    pub kernel: Option<String>,
    /// The subject: a command line, or a workload with its parameters.
    pub source: Option<String>,
    /// Size of a base page there.
    pub page_size: Option<Bytes>,
    /// Where a workload's mappings are to go.
    pub window: Option<AddressRange>,
    /// The losses; an empty list where nothing was lost.
    pub losses: Option<Vec<Loss>>,
    /// Events that were switched on, by their kernel's names (`sched:sched_switch`, `PERF_RECORD_SWITCH`): of them, none
    /// in the trace means that there was none. Those that were wanted and are not here are in `missing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    /// CPU time of a thread between two samples of it; `None` where the trace does not say, or has no samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_period_ns: Option<Nanos>,
    /// Name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The recorded program: the first word of its command line, which is in `source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// When the recording began, in UTC, as RFC 3339 writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The version of stopgap that recorded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopgap: Option<String>,
    /// Labels that the user gave it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Files in whose code user stacks lie.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<MappedFile>,
    /// Names of block devices by `major:minor`, as `8:0` is `sda`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, String>,
    /// Models of disks and drivers of GPUs, by the kernel's names: `nvme0n1`, `card0`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, String>,
    /// Processes, of those that were there when it was written, whose run time has a scheduler of its own (Go): a thread without a user stack
    /// that sleeps for a word has nothing to run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedulers: Vec<u32>,
    /// The circumstances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// Data that could not be captured, and why.
    pub missing: Vec<Missing>,
}

/// Stands in [`Metadata::missing`] where none of the processes to record was ever there: no thread of the trace was meant.
pub const NOBODY: &str = "the processes to record";

/// Refuses a version that is not ours.
pub(super) fn check_schema(place: Place, schema: &str) -> Result<(), Error> {
    if [SCHEMA, SCHEMA_BEFORE].contains(&schema) {
        return Ok(());
    }
    let schema: String = schema
        .chars()
        .take(60)
        .flat_map(char::escape_default)
        .collect();
    Err(Error::new(
        place,
        format!("its schema is '{schema}'; this version reads {SCHEMA} and {SCHEMA_BEFORE}"),
    ))
}
