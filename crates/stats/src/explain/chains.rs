//! Waits, followed to who or what caused them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a thread that waits loses time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Idleness {
    /// It waits for something that it needs: an answer, a lock, a disk, memory, a child, a CPU.
    Stalled,
    /// The trace does not tell whether it has work.
    MayBeIdle,
    /// It waits for work.
    Idle,
}

/// Waits of all threads, followed to who or what caused them. Each nanosecond of a wait is in one link of each depth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chains {
    /// Waits by thread's name, what for, and idleness; the most time first.
    pub waiting: Vec<Waiting>,
    /// Threads and things by how much of others' waiting they caused; the most first. A wait that stands behind another
    /// wait is counted with each.
    pub blame: Vec<Blame>,
    /// Where the wall-clock time of the whole recording went, for the recorded program's first thread; null where the
    /// trace does not show it from begin to end.
    pub critical_path: Option<CriticalPath>,
    /// Frames, requests and round trips: where their time went.
    pub windows: Vec<Windows>,
}

/// Waits of threads of one name for one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The threads' name.
    pub task: String,
    /// How many threads.
    pub threads: u64,
    /// What they waited for, in a word: as in [`Link::cause`].
    pub cause: String,
    /// All of it in words.
    pub text: String,
    /// The system call in which they waited.
    pub call: Option<String>,
    /// Where in their program at least half of the time went by, as [`Link::place`].
    pub place: Option<String>,
    /// Whether they lost time by it.
    pub idleness: Idleness,
    /// How many waits.
    pub waits: u64,
    /// Their time.
    pub total_ns: u64,
    /// The longest wait step by step, for a picture; empty where it lost no time, or less than 10 ms.
    pub steps: Vec<Step>,
    /// The longest.
    pub longest_ns: u64,
    /// When the longest began, since the first event.
    pub longest_at_ns: u64,
    /// The thread that had the longest.
    pub longest_tid: u32,
    /// What was behind them, the most time first. Their times add up to `total_ns`.
    pub links: Vec<Link>,
}

/// One hop of chains: a thread and what it did meanwhile, or something outside of all threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Of a wait, what for: `time`, `lock`, `word` (a condition variable, a semaphore), `events`, `data`, `answer` (of the
    /// program behind a file system), `io`, `child`,
    /// `signal`, `continue`, `fence`, `mmap_lock`, `direct-reclaim`, `memcg-reclaim`, `compaction`, `throttled`,
    /// `memory`, `work`, `something`. At the end of a chain: `running`, `run-queue`, `priority-inversion`,
    /// `cpu-quota`, `disk`, `timer`, `timeout`, `network`, `delayed-ack`, `interrupt`, `device`, `stopped`, `held`
    /// (a lock, and what its holder did is not known), `cycle`, `perhaps-cycle`,
    /// `left-out` (hops of a long chain), `unknown` (the chain breaks), `other` (small ones).
    pub cause: String,
    /// The hop in words.
    pub text: String,
    /// The thread's name.
    pub task: Option<String>,
    /// The thread, where it is one alone.
    pub tid: Option<u32>,
    /// The system call in which it waited.
    pub call: Option<String>,
    /// Where in its program at least half of the time went by: the innermost functions that have a name, outermost first.
    pub place: Option<String>,
    /// Time.
    pub ns: u64,
    /// Share of all of these waits, 0 to 1.
    pub share: f64,
    /// The next hops, the most time first. Their times add up to `ns`; empty at the end of a chain.
    pub links: Vec<Link>,
}

/// A thread or thing that others waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Blame {
    /// What it did: a word as in [`Link::cause`].
    pub cause: String,
    /// The same in words.
    pub text: String,
    /// The thread's name; null of something outside of all threads.
    pub task: Option<String>,
    /// The thread, where it is one alone.
    pub tid: Option<u32>,
    /// Time of others' waits that it caused.
    pub ns: u64,
    /// Share of all such time, 0 to 1.
    pub share: f64,
}

/// Where the time of a window went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CriticalPath {
    /// Which window.
    pub of: String,
    /// The thread whose time it is.
    pub tid: u32,
    /// Its length.
    pub window_ns: u64,
    /// Its parts: the ends of chains, the most time first. They add up to the window.
    pub parts: Vec<Link>,
}

/// What a window of time is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WindowKind {
    /// From a thread's mark to its next (`--frame-marker`).
    Frame,
    /// From a call or mark of a thread to another (`--request`).
    Request,
    /// From what a client sends to the last reply.
    RoundTrip,
}

/// Windows of one kind, of threads of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// What they are.
    pub kind: WindowKind,
    /// The name of the threads whose time it is.
    pub task: String,
    /// The marker, what begins and ends a request, or the server's name.
    pub by: String,
    /// How many have a begin and an end in the trace.
    pub count: u64,
    /// Their time.
    pub total_ns: u64,
    /// Median; null below 5 of them.
    pub p50_ns: Option<u64>,
    /// 99 % are not longer; null below 1,000 of them.
    pub p99_ns: Option<u64>,
    /// Where their time went, over all threads: the ends of chains, the most time first. They add up to `total_ns`.
    pub parts: Vec<Link>,
    /// The longest; null where there is none.
    pub longest: Option<Longest>,
    /// Windows that ended in the trace and began before it, or before the recording could see them. Not counted.
    pub began_before: u64,
    /// Windows that had not ended when the trace or their thread did. Not counted.
    pub not_over: u64,
}

/// The longest window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Longest {
    /// Its number, from 1.
    pub number: u64,
    /// The thread whose time it is.
    pub tid: u32,
    /// When it began, from the trace's begin.
    pub at_ns: u64,
    /// Its length.
    pub length_ns: u64,
    /// Where its time went, as in [`Windows::parts`]; they add up to `length_ns`.
    pub parts: Vec<Link>,
    /// Its chain that has the most time: the thread, behind it who or what it waited for, and so on.
    pub chain: Vec<Stop>,
    /// It step by step in time, for a picture; of more than 256 steps the first.
    pub steps: Vec<Step>,
}

/// A part of a window, in which the chain of who waited for whom was the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When it began, from the trace's begin.
    pub at_ns: u64,
    /// How long it lasted.
    pub ns: u64,
    /// The window's thread first.
    pub chain: Vec<Stop>,
}

/// A thread or thing in a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// The thread's name; null of something outside of all threads.
    pub task: Option<String>,
    /// The thread.
    pub tid: Option<u32>,
    /// What it did: a word as in [`Link::cause`].
    pub cause: String,
    /// The same in words.
    pub text: String,
}
