//! Waits with their causes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Judgement whether a waiting thread loses time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Idleness {
    /// Loss: it waits for something that it needs, such as an answer, a lock, a disk, memory, a child or a CPU.
    Stalled,
    /// Unknown: the trace does not say whether it has work.
    MayBeIdle,
    /// Idle: it waits for work.
    Idle,
}

/// Waits of all threads with their causes. Each nanosecond of a wait is in one link of each depth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chains {
    /// Waits by name of the thread, reason and idleness; the most time first.
    pub waiting: Vec<Waiting>,
    /// Threads and things by the waits of others that they caused; the most time first. A wait behind another wait
    /// counts for each of them.
    pub blame: Vec<Blame>,
    /// Where the wall-clock time of the whole recording went, for the recorded program's first thread; null where the
    /// trace does not show it from begin to end.
    pub critical_path: Option<CriticalPath>,
    /// Frames, requests and round trips: how their time divides.
    pub windows: Vec<Windows>,
}

/// Waits of threads of one name for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The threads' name.
    pub task: String,
    /// Number of threads.
    pub threads: u64,
    /// Reason of the waits: a word as in [`Link::cause`].
    pub cause: String,
    /// The reason in words.
    pub text: String,
    /// The system call in which they waited.
    pub call: Option<String>,
    /// Place in the program with at least half of the time, as in [`Link::place`].
    pub place: Option<String>,
    /// Whether the threads lost time by these waits.
    pub idleness: Idleness,
    /// Number of waits.
    pub waits: u64,
    /// Sum of their lengths.
    pub total_ns: u64,
    /// The longest wait step by step, for a picture; empty where it lost no time, or less than 10 ms.
    pub steps: Vec<Step>,
    /// Length of the longest wait.
    pub longest_ns: u64,
    /// Begin of the longest wait, since the first event.
    pub longest_at_ns: u64,
    /// The thread that had the longest wait.
    pub longest_tid: u32,
    /// Causes of the waits, the most time first. Their times add up to `total_ns`.
    pub links: Vec<Link>,
}

/// One hop of chains: a thread and what it did meanwhile, or something outside of all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Reason of a wait: `time`, `lock`, `word` (a condition variable, a semaphore), `events`, `data`, `answer` (of
    /// the program behind a file system), `io`, `child`, `signal`, `continue`, `fence`, `mmap_lock`,
    /// `direct-reclaim`, `memcg-reclaim`, `compaction`, `throttled`, `memory`, `work`, `something`. End of a chain:
    /// `running`, `run-queue`, `priority-inversion`, `cpu-quota`, `disk`, `timer`, `timeout`, `network`,
    /// `delayed-ack`, `interrupt`, `device`, `stopped`, `held` (a lock whose holder's time is unknown), `cycle`,
    /// `perhaps-cycle`, `left-out` (hops of a long chain), `unknown` (the chain breaks), `other` (small causes).
    pub cause: String,
    /// The hop in words.
    pub text: String,
    /// The thread's name.
    pub task: Option<String>,
    /// The thread; null where there are several.
    pub tid: Option<u32>,
    /// The system call in which it waited.
    pub call: Option<String>,
    /// Place in the program with at least half of the time: the innermost functions that have a name, outermost
    /// first.
    pub place: Option<String>,
    /// Of `disk`: which one, by the kernel's name. Absent elsewhere, and where the trace does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Nanoseconds.
    pub ns: u64,
    /// Share of all waits of the group, 0 to 1.
    pub share: f64,
    /// The next hops, the most time first. Their times add up to `ns`; empty at the end of a chain.
    pub links: Vec<Link>,
}

/// A thread or thing for which others waited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blame {
    /// Its activity: a word as in [`Link::cause`].
    pub cause: String,
    /// Its activity in words.
    pub text: String,
    /// The thread's name; null for things outside of all threads.
    pub task: Option<String>,
    /// The thread; null where there are several.
    pub tid: Option<u32>,
    /// Time of waits of others that it caused.
    pub ns: u64,
    /// Share of all such time, 0 to 1.
    pub share: f64,
}

/// How the time of a window divides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CriticalPath {
    /// Name of the window.
    pub of: String,
    /// The thread of the window.
    pub tid: u32,
    /// Its length.
    pub window_ns: u64,
    /// Its parts: the ends of chains, the most time first. They add up to the window.
    pub parts: Vec<Link>,
}

/// Kind of a window of time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WindowKind {
    /// From a mark of a thread to its next one (`--frame-marker`).
    Frame,
    /// From a call or mark of a thread to another (`--request`).
    Request,
    /// From a client's request to the last reply.
    RoundTrip,
}

/// Windows of one kind, of threads of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// Kind of the windows.
    pub kind: WindowKind,
    /// Name of the windows' threads.
    pub task: String,
    /// The marker, the begin and end of a request, or the server's name.
    pub by: String,
    /// Number of windows that begin and end in the trace.
    pub count: u64,
    /// Sum of their lengths.
    pub total_ns: u64,
    /// Median length; null below 5 windows.
    pub p50_ns: Option<u64>,
    /// 99 % are not longer; null below 1,000 windows.
    pub p99_ns: Option<u64>,
    /// How their time divides over all threads: the ends of chains, the most time first. They add up to `total_ns`.
    pub parts: Vec<Link>,
    /// The longest window; null where there is none.
    pub longest: Option<Longest>,
    /// Windows that ended in the trace but began before it, or before the recording could see them. Not counted.
    pub began_before: u64,
    /// Windows that were open when the trace or their thread ended. Not counted.
    pub not_over: u64,
}

/// The longest window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Longest {
    /// Its number among these windows, from 1.
    pub number: u64,
    /// The thread of the window.
    pub tid: u32,
    /// Its begin, since the begin of the trace.
    pub at_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// How its time divides, as in [`Windows::parts`]. The parts add up to `length_ns`.
    pub parts: Vec<Link>,
    /// The chain with the most time: the thread, then the thread or thing for which it waited, and so on.
    pub chain: Vec<Stop>,
    /// The window step by step in time, for a picture: at most the first 256 steps.
    pub steps: Vec<Step>,
}

/// A part of a window with one chain of waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Its begin, since the begin of the trace.
    pub at_ns: u64,
    /// Its length.
    pub ns: u64,
    /// The chain; the window's thread is first.
    pub chain: Vec<Stop>,
}

/// A thread or thing in a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// The thread's name; null for things outside of all threads.
    pub task: Option<String>,
    /// The thread.
    pub tid: Option<u32>,
    /// Its activity: a word as in [`Link::cause`].
    pub cause: String,
    /// Its activity in words.
    pub text: String,
}
