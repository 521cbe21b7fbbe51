//! Output of `stopgap watch`, JSON `stopgap.watch/3`: one document per stall, and one at the end.
//!
//! All times are nanoseconds on the trace's clock (`CLOCK_MONOTONIC`), except `unix_s`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explain::{Findings, Waiting};

/// Name and version of the documents' format.
pub const SCHEMA: &str = "stopgap.watch/3";

/// One document: a line of standard output with `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The event.
    #[serde(flatten)]
    pub told: Told,
}

/// An event of the watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "told")]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Told {
    /// A stall was caught.
    Stall(Page),
    /// The watch has ended.
    End(End),
}

/// A stall that was caught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// When and why it was written.
    #[serde(flatten)]
    pub stall: Stall,
    /// The cause of the leading trigger.
    pub cause: Cause,
    /// The cause of each trigger, in the order of triggers; null where the trace has none.
    pub causes: Vec<Option<Cause>>,
    /// The trace file; null where it could not be written.
    pub trace: Option<String>,
    /// The page for people; null where it could not be written.
    pub page: Option<String>,
    /// Code that mapped, most calls first, if mappings grew.
    #[serde(default)]
    pub mapped_by: Vec<MappedBy>,
    /// Explanation of the trace, since [`Stall::from_ns`].
    pub findings: Findings,
}

/// When and why a window was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// Time of the stall, in seconds since 1970, UTC.
    pub unix_s: u64,
    /// Triggers that fired, in the order of time; never empty.
    pub triggers: Vec<Trigger>,
    /// Begin of the window that contains the stall.
    pub begin_ns: u64,
    /// End of that window.
    pub end_ns: u64,
    /// Begin of the trace.
    pub from_ns: u64,
    /// When the trace was taken, which is its end. The watch goes on.
    pub taken_ns: u64,
    /// Triggers since the last window that were too close to it for another one.
    pub suppressed: u64,
}

/// Kind of trigger.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TriggerKind {
    /// Tasks waited for memory.
    MemoryPressure,
    /// Tasks waited for block I/O.
    IoPressure,
    /// A thread lost too much time in a system call or a page fault: asleep, or without a CPU.
    SlowCall,
    /// A thread was ready and got no CPU.
    RunQueue,
    /// A thread slept uninterruptibly (state D).
    Blocked,
    /// The CPU quota of its cgroup stopped a thread.
    CpuQuota,
    /// A signal stopped a process (state T).
    Stopped,
    /// The mappings of a process grow and will reach the kernel's limit.
    MapGrowth,
    /// A program marked a moment.
    Mark,
    /// A thread's frame took longer than the period of its rhythm.
    Frame,
    /// The watch or the machine ended unexpectedly. These are the last seconds before.
    CutOff,
    /// Somebody requested it (SIGUSR1).
    Request,
}

/// A trigger that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
    /// Kind of the trigger.
    pub kind: TriggerKind,
    /// When it fired.
    pub at_ns: u64,
    /// When the thread's loss or its frame began; null where no thread lost time.
    pub begin_ns: Option<u64>,
    /// For pressure: how long at least one task waited within the window. For a thread: the time that it lost, or had
    /// lost so far. For a frame: how late it is. Null for a request, and where it could not be measured.
    pub measured_ns: Option<u64>,
    /// The least measured value at which it fires; null for a request and for a mark.
    pub threshold_ns: Option<u64>,
    /// For pressure: the window. For a frame: its period.
    pub window_ns: Option<u64>,
    /// For pressure of a cgroup: the cgroup's file.
    pub group: Option<String>,
    /// The system call of the thread, or `fault` for a page fault; null outside of both. For a frame: the call in
    /// which the thread waits for the next frame; null for frames by marks.
    pub call: Option<String>,
    /// The name of a mark, or of the mark that ends a frame.
    pub mark: Option<String>,
    /// The process of the thread.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The thread's name, if it is known.
    pub task: Option<String>,
    /// Whether the thread still lost time when it fired.
    pub open: bool,
    /// Growth of a process's mappings; `measured_ns` is the time to the limit.
    #[serde(default)]
    pub growth: Option<Growth>,
    /// The signal that stopped a process, and its sender; null for other triggers, and where the trace has no such
    /// signal.
    #[serde(default)]
    pub stopped_by: Option<Sender>,
}

/// The sender of a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// The signal's number.
    pub signal: u32,
    /// The thread that sent it, or that had the CPU when the kernel sent it.
    pub tid: u32,
    /// The sender's name, if it is known.
    pub task: Option<String>,
}

/// Growth of the mappings of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// Number of mappings.
    pub maps: u64,
    /// Most mappings that the kernel allows: `vm.max_map_count`.
    pub limit: u64,
    /// Growth per hour, over the last window.
    pub per_hour: u64,
}

/// Code that added mappings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappedBy {
    /// Calls with this stack during the observation.
    pub calls: u64,
    /// Functions of the program, outermost first.
    pub frames: Vec<String>,
}

impl Trigger {
    /// Returns a trigger with a kind and a time; nothing else of it is known.
    #[must_use]
    pub fn new(kind: TriggerKind, at_ns: u64) -> Trigger {
        Trigger {
            kind,
            at_ns,
            begin_ns: None,
            measured_ns: None,
            threshold_ns: None,
            window_ns: None,
            group: None,
            call: None,
            mark: None,
            pid: None,
            tid: None,
            task: None,
            open: false,
            growth: None,
            stopped_by: None,
        }
    }
}

/// Explanation of a stall.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// As `cause` of a part in `stopgap.explain/2`: `memcg-reclaim`, `mmap_lock`, ...; `unknown` where nothing in the
    /// trace explains it; `map-growth` for growing mappings.
    pub word: String,
    /// In words and numbers: the chain from the waiting thread to the cause.
    pub text: String,
    /// Share of the time lost within the stall, 0 to 1; null where there was none.
    pub share: Option<f64>,
    /// The thread or thing at the end of most of that time; null where it is unknown.
    pub culprit: Option<Culprit>,
    /// The waits of the stall with their chains, as `chains.waiting` of `stopgap.explain/2`. Waits with the cause
    /// come first, then the others, the most time first.
    pub waiting: Vec<Waiting>,
}

/// The end of a chain of waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Culprit {
    /// As `cause` of a link in `stopgap.explain/2`.
    pub cause: String,
    /// In words.
    pub text: String,
    /// Name of the thread; null if the culprit is no thread.
    pub task: Option<String>,
    /// The thread; null for several threads or none.
    pub tid: Option<u32>,
    /// Share of the time lost within the stall, 0 to 1.
    pub share: f64,
}

/// Summary of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Stalls that were written.
    pub stalls: u64,
    /// Triggers that were too close to the last window.
    pub suppressed: u64,
    /// Stalls whose window or page could not be written.
    pub failed: u64,
    /// Length of the watch.
    pub watched_ns: u64,
    /// Why the watch ended.
    pub why: String,
    /// Watched threads whose frames have a rhythm, most late frames first.
    #[serde(default)]
    pub frames: Vec<Rhythm>,
}

/// The frames of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rhythm {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub task: String,
    /// The call in which it waits for its next frame; null for frames by marks.
    pub call: Option<String>,
    /// The mark that ends its frames.
    pub mark: Option<String>,
    /// The last period.
    pub period_ns: u64,
    /// Frames that were seen.
    pub frames: u64,
    /// Frames that were late by the limit or more.
    pub late: u64,
    /// How late the latest frame was; null where none was late.
    pub latest_ns: Option<u64>,
}

impl Document {
    /// Returns a document of this `version`.
    #[must_use]
    pub fn new(version: &str, told: Told) -> Document {
        Document {
            schema: SCHEMA.to_owned(),
            version: version.to_owned(),
            told,
        }
    }

    /// Returns the document as one line of JSON, without a line feed.
    ///
    /// # Panics
    /// Never: strings, finite numbers and lists have a JSON form.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists have a JSON form")
    }
}
