//! What `stopgap watch` says, JSON `stopgap.watch/3`: one document a stall, one at the end.
//!
//! All times are nanoseconds on the trace's clock (`CLOCK_MONOTONIC`), but for `unix_s`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explain::{Findings, Waiting};

/// The name and version of the documents' form.
pub const SCHEMA: &str = "stopgap.watch/3";

/// One document, a line of standard output with `--json`.
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
    /// The watch is over.
    End(End),
}

/// A stall that was caught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// When and why it was written.
    #[serde(flatten)]
    pub stall: Stall,
    /// The explanation, by the trigger that tells most.
    pub cause: Cause,
    /// That of each trigger, in their order; null where the trace has none.
    pub causes: Vec<Option<Cause>>,
    /// The trace file; null where it could not be written.
    pub trace: Option<String>,
    /// The page for people; null where it could not be written.
    pub page: Option<String>,
    /// Of map growth: the code that mapped, most calls first.
    #[serde(default)]
    pub mapped_by: Vec<MappedBy>,
    /// Explanation of the trace, from [`Stall::from_ns`] in the buffers onwards.
    pub findings: Findings,
}

/// When and why a window was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// When, in seconds since 1970, UTC.
    pub unix_s: u64,
    /// Triggers that fired, the first first; never empty.
    pub triggers: Vec<Trigger>,
    /// The window that the stall is looked for in.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// The trace has nothing from before.
    pub from_ns: u64,
    /// When the trace was taken: it ends there. The watch goes on.
    pub taken_ns: u64,
    /// Triggers since the window before that were too near to it to write another.
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
    /// A process maps more and more, and would come to the kernel's limit.
    MapGrowth,
    /// A program marked a moment.
    Mark,
    /// A thread's frame took longer than the period of its rhythm.
    Frame,
    /// The watch, or the machine, ended without a word: these are its last seconds.
    CutOff,
    /// Somebody asked (SIGUSR1).
    Request,
}

/// A trigger that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
    /// What.
    pub kind: TriggerKind,
    /// When it was seen.
    pub at_ns: u64,
    /// When the thread began to lose time, or its frame; null where no thread did.
    pub begin_ns: Option<u64>,
    /// Pressure: how long some task waited within the window. A thread: the time that it lost, or
    /// had lost so far; of a frame how late it is. Null of a request, and where it could not be measured.
    pub measured_ns: Option<u64>,
    /// From when on it fires; null of a request and of a mark.
    pub threshold_ns: Option<u64>,
    /// Pressure: the window. A frame: the period of its rhythm.
    pub window_ns: Option<u64>,
    /// Pressure: its file, where it is a cgroup's.
    pub group: Option<String>,
    /// The system call that the thread was in, `fault` of a page fault; null outside of both. A frame: that in which the thread waits
    /// for the next one; null of frames by marks.
    pub call: Option<String>,
    /// The name of a mark, also of that by which a frame ends.
    pub mark: Option<String>,
    /// The process of the thread.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// Its name, where it is known.
    pub task: Option<String>,
    /// Whether the thread still lost time when it fired.
    pub open: bool,
    /// Growth of a process's mappings; `measured_ns` is the time to the limit.
    #[serde(default)]
    pub growth: Option<Growth>,
    /// The signal that stopped a process, and its sender; null of other triggers, and where the trace has no such signal.
    #[serde(default)]
    pub stopped_by: Option<Sender>,
}

/// The sender of a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// The signal's number.
    pub signal: u32,
    /// The thread that sent it, or on whose CPU the kernel did.
    pub tid: u32,
    /// Its name, where it is known.
    pub task: Option<String>,
}

/// Mappings of a process that become more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// How many it has.
    pub maps: u64,
    /// How many it may have: `vm.max_map_count`.
    pub limit: u64,
    /// How many come in an hour, by the window before.
    pub per_hour: u64,
}

/// Code that added mappings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappedBy {
    /// Calls by this stack while it was looked at.
    pub calls: u64,
    /// Functions of the program, outermost first.
    pub frames: Vec<String>,
}

impl Trigger {
    /// Returns a trigger of which nothing is known but its kind, and when it fired.
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
    /// As `cause` of a part in `stopgap.explain/2`: `memcg-reclaim`, `mmap_lock`, ...; `unknown` where
    /// nothing in the trace explains it; `map-growth` of that.
    pub word: String,
    /// In words, with its numbers: the chain from the waiting thread to who or what it waited for.
    pub text: String,
    /// Share of the time lost within the stall, 0 to 1; null where there was none.
    pub share: Option<f64>,
    /// Who or what is at the end of most of it; null where nothing is known of it.
    pub culprit: Option<Culprit>,
    /// The waits of the stall with their chains, as `chains.waiting` of `stopgap.explain/2`: those with the cause first, then the
    /// others, the most time first.
    pub waiting: Vec<Waiting>,
}

/// The end of a chain of waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Culprit {
    /// As `cause` of a link in `stopgap.explain/2`.
    pub cause: String,
    /// In words.
    pub text: String,
    /// Name of the thread; null of something that is none.
    pub task: Option<String>,
    /// The thread; null where it is several or none.
    pub tid: Option<u32>,
    /// Share of the time lost within the stall, 0 to 1.
    pub share: f64,
}

/// How a watch went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Stalls that were written.
    pub stalls: u64,
    /// Triggers that were too near to the one before.
    pub suppressed: u64,
    /// Stalls of which no window or page could be written.
    pub failed: u64,
    /// How long it watched.
    pub watched_ns: u64,
    /// Why it ended.
    pub why: String,
    /// Threads whose frames were asked for and had a rhythm, most late frames first.
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
    /// The call in which it waits for its next frame; null of frames by marks.
    pub call: Option<String>,
    /// The mark by which its frames end.
    pub mark: Option<String>,
    /// The period, as it was last.
    pub period_ns: u64,
    /// Frames that were seen.
    pub frames: u64,
    /// Frames that were late by the limit or more.
    pub late: u64,
    /// How late the latest of them was; null where none was.
    pub latest_ns: Option<u64>,
}

impl Document {
    /// `told` by this `version`.
    #[must_use]
    pub fn new(version: &str, told: Told) -> Document {
        Document {
            schema: SCHEMA.to_owned(),
            version: version.to_owned(),
            told,
        }
    }

    /// The document as one line of JSON, without a line feed.
    ///
    /// # Panics
    /// Never: strings, finite numbers and lists have a JSON form.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists have a JSON form")
    }
}
