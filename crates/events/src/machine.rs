//! The machine, and its state before any load. `kernel` reads it, `stats` keeps it in the run record, `report` prints
//! it.
//!
//! Everything that may be unreadable is an `Option`: `None` is *unknown*, never 0, and a [`Missing`] beside it says
//! why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// An unknown fact, and why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The unknown fact.
    pub what: String,
    /// The reason, and what to do about it, if anything.
    pub why: String,
}

impl Missing {
    /// Creates an entry for `what`, which is unknown because of `why`.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Missing {
        Missing {
            what: what.into(),
            why: why.into(),
        }
    }
}

/// Rights on this system.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// An ordinary user.
    None,
    /// Some capabilities that help (`CAP_PERFMON`, `CAP_SYS_NICE`, `CAP_IPC_LOCK`).
    Some,
    /// Root with `CAP_SYS_ADMIN`.
    Root,
}

/// Facts about this machine, as far as they can be read. Strings are the kernel's own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Host name.
    pub host: Option<String>,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// Machine name, as `uname -m` prints it.
    pub architecture: Option<String>,
    /// The kernel's command line.
    pub command_line: Option<String>,
    /// A 64-bit FNV-1a hash of the kernel's configuration text, in hexadecimal, to distinguish two configurations.
    pub config_hash: Option<String>,
    /// Preemption model: `none`, `voluntary`, `full`, `lazy`, `rt`.
    pub preemption: Option<String>,
    /// Timer interrupts per second (`CONFIG_HZ`).
    pub hz: Option<u32>,
    /// Whether the multi-generational LRU is in use.
    pub mglru: Option<bool>,
    /// Base page size.
    pub page_size: Bytes,
    /// Size of a page that one entry of the second page-table level maps (2 MiB on x86-64).
    pub pmd_size: Option<Bytes>,
    /// `transparent_hugepage/enabled`, the chosen word.
    pub thp_enabled: Option<String>,
    /// `transparent_hugepage/defrag`, the chosen word.
    pub thp_defrag: Option<String>,
    /// `vm.compaction_proactiveness`.
    pub compaction_proactiveness: Option<u32>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// Kind of swap: `none`, `zram`, `file`, `partition`, or several joined by `+`.
    pub swap: Option<String>,
    /// Size of all swap.
    pub swap_size: Option<Bytes>,
    /// Version of the hierarchy with the memory controller: `cgroup2`, `cgroup1`, `none`.
    pub memory_cgroup: Option<String>,
    /// Linux security modules in use, joined by commas.
    pub lsm: Option<String>,
    /// IOMMU: `none`, or the domain types in use.
    pub iommu: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// CPUs that this process may run on.
    pub cpus: Vec<u32>,
    /// Microcode revision.
    pub microcode: Option<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// CPU vulnerabilities with their mitigation, `name: state`.
    pub mitigations: Vec<String>,
    /// Clock source in use.
    pub clock_source: Option<String>,
    /// Hypervisor, `none` on bare metal.
    pub hypervisor: Option<String>,
    /// Memory that the kernel manages.
    pub memory: Option<Bytes>,
    /// Memory available without swapping, at the start.
    pub memory_available: Option<Bytes>,
    /// Uptime in seconds.
    pub uptime_s: Option<u64>,
    /// The kernel's id of this boot.
    pub boot_id: Option<String>,
    /// Rights of this user on this machine.
    pub privilege: Privilege,
    /// Held capabilities, among those that matter here.
    pub capabilities: Vec<String>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `RLIMIT_MEMLOCK`, `None` where unlimited.
    pub memlock_limit: Option<Bytes>,
    /// Pressure when the run began.
    pub pressure_before: Vec<Pressure>,
    /// Pressure when the run ended.
    pub pressure_after: Vec<Pressure>,
    /// Other activity of the machine during the run; absent where it was not measured, and before 0.2.
    #[serde(default)]
    pub conditions: Option<Conditions>,
    /// Facts that could not be read, and why.
    pub missing: Vec<Missing>,
}

/// Conditions of a machine during a run. A difference between these may explain a difference between the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// Per cent of the CPUs' time that a hypervisor gave to others.
    pub steal: Option<f64>,
    /// Per cent of the CPUs' time that other programs used.
    pub others: Option<f64>,
    /// Mean frequency of the CPUs as the run ended, MHz.
    pub frequency_mhz: Option<f64>,
    /// Temperature of the hottest sensor as the run ended, degrees Celsius.
    pub temperature_c: Option<f64>,
}

/// A requirement of a measurement: whether this machine meets it, and which evidence is lost if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The capability.
    pub what: String,
    /// Whether it is available.
    pub state: CheckState,
    /// The finding, in the machine's own words where it has some.
    pub found: String,
    /// The evidence that is lost; empty where none is.
    pub costs: String,
    /// The remedy; empty where none is needed or possible.
    pub advice: String,
}

/// How far a capability is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// Available for everything that stopgap does.
    Ok,
    /// Available for a part.
    Limited,
    /// Absent, or not permitted.
    Absent,
    /// Unknown.
    Unknown,
}

/// Pressure stall information of one resource, as `/proc/pressure/*` gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// `cpu`, `memory` or `io`.
    pub resource: String,
    /// Some task waited.
    pub some: PressureLine,
    /// All tasks waited; older kernels do not give it for the CPU.
    pub full: Option<PressureLine>,
}

/// One line of pressure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureLine {
    /// Per cent of the last 10 seconds.
    pub avg10: f64,
    /// Per cent of the last minute.
    pub avg60: f64,
    /// Per cent of the last five minutes.
    pub avg300: f64,
    /// Microseconds of waiting since boot.
    pub total_us: u64,
}

/// The state of the machine before any load of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Now {
    /// Length of the interval over which rates were measured, in milliseconds.
    pub interval_ms: u64,
    /// Processes with the most mappings, most first.
    pub mappings: Vec<ProcessMappings>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// Unusable-free-space index by order, orders ascending; zones weighted by free pages.
    pub unusable_index: Vec<OrderIndex>,
    /// Uptime in seconds.
    pub uptime_s: Option<u64>,
    /// Direct-reclaim and compaction counters since boot, by their names in `/proc/vmstat`;
    /// `allocstall` is the sum over zones.
    pub since_boot: Vec<Counter>,
    /// Memory, CPU and I/O pressure.
    pub pressure: Vec<Pressure>,
    /// Memory on the unevictable list.
    pub unevictable: Option<Bytes>,
    /// Memory locked with mlock.
    pub mlocked: Option<Bytes>,
    /// Tasks with the highest rate of voluntary switches, highest first.
    pub voluntary: Vec<TaskRate>,
    /// Tasks with the highest rate of involuntary switches, highest first.
    pub involuntary: Vec<TaskRate>,
    /// The process that was selected, if one was.
    pub process: Option<ProcessDetail>,
    /// Time that tasks waited for each resource within the interval.
    #[serde(default)]
    pub waited: Vec<Waited>,
    /// Control groups whose memory was at its limit within the interval, most waiting first; at most five.
    #[serde(default)]
    pub groups: Vec<GroupShort>,
    /// Swap; absent where it could not be read.
    #[serde(default)]
    pub swap: Option<SwapUse>,
    /// Disks that completed a request in the interval or had one open throughout, slowest first; at most five.
    #[serde(default)]
    pub disks: Vec<DiskUse>,
    /// Per cent of the interval in which a hypervisor gave the CPUs to others; absent where it could not be read.
    #[serde(default)]
    pub steal: Option<f64>,
    /// Threads of processes that were in state D (uninterruptible sleep) for the whole interval; at most five.
    #[serde(default)]
    pub stuck: Vec<Stuck>,
    /// Number of threads that were in state D for the whole interval.
    #[serde(default)]
    pub stuck_count: u64,
    /// Processes that the kernel has killed since boot for lack of memory; absent where it could not be read.
    #[serde(default)]
    pub oom_kills: Option<u64>,
    /// Lines of the kernel log about a stall, newest first; at most twenty. Absent where the log could not be read.
    #[serde(default)]
    pub kernel_log: Option<Vec<LogLine>>,
    /// Facts that could not be read, and why.
    pub missing: Vec<Missing>,
}

/// Time that tasks waited for a resource within the interval of [`Now`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// `cpu`, `memory` or `io`.
    pub resource: String,
    /// Per cent of the interval in which some task waited.
    pub some: f64,
    /// Per cent of it in which all tasks waited; older kernels do not give it for the CPU.
    pub full: Option<f64>,
}

/// A control group that is short of memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupShort {
    /// Its path below the mount of the memory controller.
    pub path: String,
    /// Per cent of the interval in which some task of the group waited for memory (version 2).
    pub some: Option<f64>,
    /// Number of allocations within the interval that found the group at its limit (version 1).
    pub at_limit: Option<u64>,
}

/// Use of swap, and the rate at which pages move.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwapUse {
    /// Size of all swap.
    pub total: Bytes,
    /// The part that is in use.
    pub used: Bytes,
    /// Whether a part is on a disk (not zram).
    pub on_disk: bool,
    /// Bytes per second read back within the interval.
    pub in_per_s: f64,
    /// Bytes per second written to it within the interval.
    pub out_per_s: f64,
}

/// Use of a disk within the interval of [`Now`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskUse {
    /// Its name, as `vda`.
    pub name: String,
    /// Requests completed.
    pub completed: u64,
    /// Mean milliseconds from a request's submission to its completion; absent where none completed.
    pub mean_ms: Option<f64>,
    /// Requests open at the end.
    pub in_flight: u64,
}

/// A thread that was in state D for the whole interval of [`Now`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stuck {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// The kernel function in which it sleeps; absent where it could not be read.
    pub function: Option<String>,
}

/// Subject of a line of the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// The kernel killed a process for lack of memory.
    OomKill,
    /// A task waited in state D for longer than `kernel.hung_task_timeout_secs`.
    HungTask,
    /// A driver found its GPU hung, or reset it.
    GpuHang,
    /// A CPU ran kernel code for seconds: soft lockup, hard lockup or RCU stall.
    Lockup,
    /// A disk did not answer in time, or a request failed.
    DiskError,
}

/// A line of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// Subject of the line.
    pub kind: LogKind,
    /// Age of the line when it was read, in seconds.
    pub seconds_ago: u64,
    /// The line without its time; at most 200 characters.
    pub text: String,
}

/// A named count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// Its name; the kernel's name if the kernel keeps it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// Mappings of a process by what backs them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMappings {
    /// Process id.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Lines of `/proc/PID/maps`.
    pub mappings: u64,
    /// Mappings by backing file, most first; at most five.
    pub backing: Vec<Backing>,
}

/// Mappings of one backing file, or of anonymous memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Backing {
    /// The path as the kernel prints it; `anonymous` where there is none.
    pub file: String,
    /// Number of mappings.
    pub mappings: u64,
    /// The number of these that are one base page long.
    pub one_page: u64,
}

/// The share of free memory that a request of this order cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderIndex {
    /// Order: the request is 2^order base pages.
    pub order: u32,
    /// 0: all free memory is in blocks of this order or larger; 1: none is.
    pub index: f64,
}

/// Rate at which a task left the CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRate {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Switches per second.
    pub per_second: f64,
}

/// More about one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessDetail {
    /// Process id.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Threads.
    pub threads: Option<u64>,
    /// Mappings, as in the list of processes.
    pub mappings: Option<u64>,
    /// Resident memory.
    pub resident: Option<Bytes>,
    /// Locked with mlock (`VmLck`).
    pub locked: Option<Bytes>,
    /// Pinned by page references (`VmPin`: long-term pins that the kernel charges).
    pub pinned: Option<Bytes>,
    /// Swapped out.
    pub swapped: Option<Bytes>,
}
