//! The record of an explained trace, JSON `stopgap.explain/2`: which threads switched, waited, reclaimed and
//! compacted, and why.
//!
//! `stopgap-explain` makes it from a trace's events. Values that a trace cannot give are `None`, with a line in
//! [`Findings::missing`]; they are never 0. All times are nanoseconds on the trace's clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use crate::profile::Profile;
use crate::verdict::Verdict;

mod chains;

pub use chains::{
    Blame, Chains, CriticalPath, Idleness, Link, Longest, Step, Stop, Waiting, WindowKind, Windows,
};

/// Name and version of the record's format.
pub const SCHEMA: &str = "stopgap.explain/2";

/// A trace, explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explain {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Findings.
    #[serde(flatten)]
    pub findings: Findings,
}

/// Explanation of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    /// The trace.
    pub trace: Trace,
    /// Events that were lost.
    pub losses: Losses,
    /// The answer in a word and a line.
    pub verdict: Verdict,
    /// Waits of the recorded threads with their causes; null where the trace has no scheduling events.
    pub chains: Option<Chains>,
    /// Threads that left the CPU, and why.
    pub switches: Switches,
    /// The traced threads by name: how they spent their time. Most switches first.
    pub tasks: Vec<Task>,
    /// The slowest operations, by their time without idle waits.
    pub slow: Vec<Slow>,
    /// Sums over all operations of a kind.
    pub calls: Vec<Calls>,
    /// Calls of the mmap family below 10 ms that are a stall together, one row per thread name, the most time first;
    /// null where the trace has no system calls.
    #[serde(default)]
    pub short_calls: Option<Vec<ShortCalls>>,
    /// Memory events.
    pub memory: Memory,
    /// Samples inside slow operations by innermost kernel function, the most first; null without samples.
    pub functions: Option<Vec<Function>>,
    /// Where CPU time went, by all samples; null without samples.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Advice with its evidence.
    pub advice: Vec<Advice>,
    /// Unknown values, and why.
    pub missing: Vec<Missing>,
}

/// The trace that was explained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The command that was recorded.
    pub source: Option<String>,
    /// The clock, a word of the trace's metadata.
    pub clock: Option<String>,
    /// The kernel's id of the boot in which it was recorded.
    pub boot_id: Option<String>,
    /// Events read.
    pub events: u64,
    /// From the first event to the last.
    pub duration_ns: Option<u64>,
    /// Why it was not read to its end.
    pub cut_short: Option<String>,
}

/// Events that were lost before they reached the trace, and events that contradict each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Losses {
    /// Events that were not captured; null where the trace does not say.
    pub lost: Option<u64>,
    /// Share of lost events in all events, captured or lost.
    pub share: Option<f64>,
    /// The share above which the verdict is `inconclusive`.
    pub limit: f64,
    /// System calls that end without a begin, or begin before the last one has ended. They are a sign of losses that
    /// nobody counted.
    pub contradictions: u64,
    /// Switches of traced threads that must have happened but are not in the trace: a kernel may hide the switches of
    /// some threads. The verdict names their number.
    #[serde(default)]
    pub untold: u64,
    /// Events earlier than the event before. They count as happening at that event's time.
    pub disordered: u64,
}

/// Distribution of a count over round trips or frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Median; null below 5 values.
    pub p50: Option<u64>,
    /// 90 % of the values are not larger; null below 100 values.
    pub p90: Option<u64>,
    /// Mean; null without values.
    pub mean: Option<f64>,
    /// Largest.
    pub most: Option<u64>,
    /// Each value and how often it came, in ascending order.
    pub distribution: Vec<(u64, u64)>,
}

/// The subject in [`Findings::missing`] of a trace that has only the calls in which a thread waited or woke another.
pub const UNSEEN_CALLS: &str = "system calls that did not wait";

/// Returns a cause of [`Part::cause`] in words: what the thread waited for, or what it did.
#[must_use]
pub fn cause_in_words(word: &str) -> &str {
    match word {
        "answer" => "for an answer",
        "child" => "for a child process",
        "cpu-quota" => "for its CPU quota",
        "fence" => "for a fence",
        "io" => "for a disk",
        "lock" => "for a lock",
        "mmap_lock" => "for mmap_lock",
        "rcu" => "for RCU",
        "run-queue" => "for a CPU",
        "compaction" => "in compaction",
        "direct-reclaim" => "in reclaim",
        "memcg-reclaim" => "in reclaim of its memory group",
        "shrinker" => "in the shrinker",
        "throttled" => "held back by reclaim",
        "on-cpu" => "on a CPU",
        "may-be-idle" => "perhaps idle",
        other => other,
    }
}

/// The subject in [`Findings::missing`] of a recorder that was not allowed to see the kernel's events.
pub const KERNEL_EVENTS: &str = "kernel events";

/// Threads that left the CPU, and why. Unit: switch-outs of traced threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Switches {
    /// Round trips of all pairs; null where the trace has no system calls or no scheduling.
    pub roundtrips: Option<u64>,
    /// Switch-outs of traced threads; null without scheduling events.
    pub total: Option<u64>,
    /// Switches of threads that could have run on.
    pub involuntary: Option<u64>,
    /// Switch-outs of other threads that the trace shows in part; not in the total.
    pub others: Option<u64>,
    /// Switch-outs of client and server between two flushes.
    pub per_roundtrip: Spread,
    /// The mean of these minus 2, the least for a round trip on one CPU.
    pub excess: Option<f64>,
    /// The total by cause, the most frequent first.
    pub causes: Vec<Cause>,
    /// Pairs that exchanged requests and replies, the most round trips first.
    pub pairs: Vec<Pair>,
    /// Switch-outs from a frame's mark to the next; null where no marker was given.
    pub frames: Option<Frames>,
}

/// Why a thread left the CPU, in one word.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// It waits, in a system call or a page fault.
    Blocked,
    /// It was woken because a peer read and so made room to write. It had nothing to do, and waits again in the same
    /// call.
    WriteSpaceWake,
    /// Another thread or an interrupt woke it. It had nothing to do, and waits again in the same call.
    WokenForNothing,
    /// Pre-empted right after a system call, by the thread that it had woken in that call.
    PreemptedOnTheWayOut,
    /// Pre-empted inside a system call.
    PreemptedInCall,
    /// Pre-empted while its own code ran.
    PreemptedInUser,
    /// Pre-empted; the trace does not say whether in a system call or in its own code.
    Preempted,
    /// It gave up the CPU (`sched_yield`).
    Yielded,
    /// It ended.
    Ended,
    /// The trace does not say.
    Unknown,
}

/// Switch-outs with the same cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// Name of the thread that left.
    pub task: String,
    /// The cause in words.
    pub cause: String,
    /// Switch-outs.
    pub count: u64,
    /// The cause in a word.
    pub kind: CauseKind,
    /// The system call that it was in or had just left.
    pub call: Option<String>,
    /// The thread that caused it: the one that woke or was woken.
    pub by_task: Option<String>,
    /// The system call in which that thread woke it.
    pub by_call: Option<String>,
}

/// Two tasks that exchange requests and replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// The client.
    pub client: String,
    /// The server.
    pub server: String,
    /// Round trips: from a flush to its last reply.
    pub roundtrips: u64,
    /// Switch-outs of both threads between flushes.
    pub switches: u64,
    /// Their distribution over round trips.
    pub per_roundtrip: Spread,
    /// Calls by which the client sent, per round trip.
    pub sends_per_roundtrip: f64,
    /// Calls by which the server sent, per round trip.
    pub replies_per_roundtrip: f64,
    /// Median time from a flush to the end of its last reply; null below 5 round trips.
    pub p50_ns: Option<u64>,
    /// The only CPU on which both ran; null where there were several, or where it is unknown.
    pub one_cpu: Option<u32>,
}

/// Switches by frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frames {
    /// The events that mark frames.
    pub marker: String,
    /// Frames between two marks.
    pub count: u64,
    /// Switch-outs of traced threads in a frame.
    pub switches: Spread,
}

/// Sums over the threads of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Their name.
    pub task: String,
    /// Number of threads.
    pub threads: u64,
    /// Switch-outs.
    pub switches: u64,
    /// Time on a CPU.
    pub running_ns: u64,
    /// Time on a run queue: pre-empted, or woken and not yet on a CPU.
    pub runnable_ns: u64,
    /// Time asleep.
    pub blocked_ns: u64,
    /// Time in an unknown state.
    pub unknown_ns: u64,
    /// Time during which they existed within the trace: the sum of the four times above.
    pub wall_ns: u64,
}

/// Time inside an operation with one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// `on-cpu`, `run-queue`, `direct-reclaim`, `memcg-reclaim`, `compaction`, `shrinker`, `throttled`, `mmap_lock`,
    /// `lock`, `io`, `fence`, `answer` (from a thread that it had asked, or room for what it writes), `child`,
    /// `stopped` (by a signal), `cpu-quota`, `may-be-idle`, `idle` (there was no work) or `unknown`.
    pub cause: String,
    /// A shrinker's function.
    pub function: Option<String>,
    /// Nanoseconds.
    pub ns: u64,
    /// Share of the operation, 0 to 1.
    pub share: f64,
}

/// One slow operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slow {
    /// The system call's name; `fault`; or `computing`, the program's own code while it was kept from a CPU.
    pub call: String,
    /// The thread's name.
    pub task: String,
    /// The thread.
    pub tid: u32,
    /// When it began.
    pub begin_ns: u64,
    /// How long it took.
    pub length_ns: u64,
    /// Whether it took longer than that: a page fault, whose end is not in a trace; or a call that was open when the
    /// trace ended.
    pub at_least: bool,
    /// The length without idle waits; for calls other than those for memory and ioctl, also without CPU time.
    pub excess_ns: u64,
    /// Its argument, if that is a length.
    pub length_bytes: Option<u64>,
    /// Its result; an error as -errno.
    pub result: Option<i64>,
    /// The length by cause, largest part first.
    pub parts: Vec<Part>,
    /// The thread that ended its longest sleep; null where it did not sleep or the trace does not say.
    pub woken_by: Option<Waker>,
    /// Number of waits that count as this operation, in a trace without begin and end of calls. They may belong to
    /// several calls from one place in the program. Null where calls have rows.
    #[serde(default)]
    pub waits: Option<u64>,
    /// The longest of these waits.
    #[serde(default)]
    pub longest_wait_ns: Option<u64>,
}

/// The thread that ended a sleep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waker {
    /// Its name.
    pub task: String,
    /// The system call that it was in; null outside of one (an interrupt).
    pub call: Option<String>,
    /// Length of the sleep.
    pub slept_ns: u64,
}

/// Sums over all operations of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calls {
    /// `mmap`, `munmap`, `mprotect`, `mremap`, `madvise`, `brk`, `fault`, `ioctl`, `poll` (with select and epoll), the name
    /// of any other call, or `computing`.
    pub kind: String,
    /// How many ended or were open; for faults, those that waited or reclaimed. Without rows of calls, those that
    /// waited.
    pub count: u64,
    /// Number with an excess of at least a millisecond.
    pub slow: u64,
    /// Number with an excess of at least ten milliseconds, which people notice.
    #[serde(default)]
    pub stalls: u64,
    /// The sum of the excess of these stalls.
    #[serde(default)]
    pub stalls_ns: u64,
    /// Sum of their lengths.
    pub total_ns: u64,
    /// The longest excess.
    pub most_ns: u64,
    /// The time of the slow ones by cause, largest part first.
    pub slow_parts: Vec<Part>,
}

/// Short calls that are a stall together, of the threads of one name: at least 10 % of their work and 100 ms, or at
/// least 300 ms of one second. Work is time on a CPU, and time asleep in these calls. Waits for a CPU and other
/// sleeps do not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortCalls {
    /// The row in a sentence.
    pub text: String,
    /// Name of the threads.
    pub task: String,
    /// Calls of mmap, munmap, mprotect, mremap, madvise and brk below 10 ms.
    pub calls: u64,
    /// Their time, without waits for a CPU.
    pub total_ns: u64,
    /// Mean time of a call.
    pub mean_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Number of calls of at least 1 ms.
    pub slow: u64,
    /// All work of the threads.
    pub work_ns: u64,
    /// The calls' share of the work, 0 to 1.
    pub share: f64,
    /// The most time that one thread spent in such calls within one second, by the calls' ends.
    pub worst_second_ns: u64,
    /// Begin of that second, since the first event.
    pub worst_second_from_ns: u64,
    /// The calls by kind, the most time first.
    pub kinds: Vec<ShortKind>,
    /// Samples in these calls; null without samples.
    pub samples: Option<u64>,
    /// The kernel functions that were innermost in most of those samples.
    pub functions: Vec<Function>,
    /// The function with the fewest samples among the kernel functions that were on the stack in at least 40 % of
    /// those samples. It shows where most of the time went if no innermost function has much of it.
    pub below: Option<Function>,
}

/// Short calls of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShortKind {
    /// As in [`Calls::kind`].
    pub kind: String,
    /// Number of calls.
    pub calls: u64,
    /// Their time, without waits for a CPU.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Memory events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Mappings made; null where the trace shows none of the calls and events that would make them.
    pub maps: Option<u64>,
    /// Mappings, or parts of them, that were unmapped.
    pub unmaps: Option<u64>,
    /// Maps per second over the whole trace.
    pub maps_per_s: Option<f64>,
    /// Unmaps per second.
    pub unmaps_per_s: Option<f64>,
    /// Live mappings over time; null where nothing counted them.
    pub live: Option<Live>,
    /// Reclaim and compaction by thread; the longest first. Null where the trace has no such events and does not
    /// say that they were recorded.
    pub reclaim: Option<Vec<Reclaim>>,
    /// The cause of most of the time in slow memory operations; null where there are none.
    pub explained_by: Option<Explained>,
    /// Upper bound of the time of all mmap calls that went into the search for a hole: their CPU time until the
    /// kernel reported the hole.
    pub search_at_most_ns: Option<u64>,
    /// Whether placement, reclaim or compaction explains the slow memory operations; null where there are none.
    pub slow: Option<SlowMemory>,
    /// Mappings of processes at their end or at the trace's end, by their system calls, the most calls first; null
    /// where the trace has no calls. Mappings that exec makes (the program, its loader, its stack) are missing,
    /// unless the process existed when the recording began.
    pub spaces: Option<Vec<AddressSpace>>,
}

/// Sums over slow memory operations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowMemory {
    /// Number of operations.
    pub operations: u64,
    /// Sum of their lengths.
    pub total_ns: u64,
    /// Upper bound of the share of the search for a hole (CPU time until the kernel reported the hole); null where no
    /// event says when a hole was found.
    pub placement_at_most: Option<f64>,
    /// Share of direct and memcg reclaim, shrinkers, and waits that reclaim imposes; null where the trace has no such
    /// events.
    pub reclaim: Option<f64>,
    /// Share of compaction; null where the trace has no such events.
    pub compaction: Option<f64>,
}

/// Mappings of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddressSpace {
    /// The process.
    pub pid: Option<u32>,
    /// Its name.
    pub task: Option<String>,
    /// Its calls that mapped, unmapped, moved or protected something.
    pub calls: u64,
    /// Mappings, as the kernel counts them.
    pub mappings: u64,
    /// Bytes mapped.
    pub bytes: u64,
    /// Holes between mappings that the kernel placed itself; null where it placed none.
    pub holes: Option<Holes>,
}

/// Holes between neighbouring mappings, from the lowest to the highest address that the kernel chose itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holes {
    /// Number of holes.
    pub count: u64,
    /// Bytes of all holes.
    pub bytes: u64,
    /// Bytes of the largest hole.
    pub largest: u64,
}

/// Live mappings over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Live {
    /// `memory events`; `calls of process 812 (name)`, the process with the most calls; or the counter's name.
    pub source: String,
    /// The first count.
    pub first: i64,
    /// The last count.
    pub last: i64,
    /// The highest count.
    pub most: i64,
    /// Nanoseconds since the first event and count. Each point is the highest count of a stretch of time.
    pub points: Vec<(u64, i64)>,
}

/// Reclaim or compaction of one kind by the threads of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reclaim {
    /// Name of the threads that did it.
    pub task: String,
    /// `direct`, `memcg`, `kswapd`, `shrinker`, `throttled`, `compaction`.
    pub by: String,
    /// A shrinker's function.
    pub function: Option<String>,
    /// How many times.
    pub count: u64,
    /// Time from begin to end, including sleeps. A shrinker's time is part of its reclaim's.
    pub wall_ns: u64,
    /// The longest time.
    pub most_ns: u64,
    /// Pages scanned (for a shrinker: objects); null where the trace does not say.
    pub scanned: Option<u64>,
    /// Pages (objects) freed.
    pub reclaimed: Option<u64>,
}

/// The cause with the largest share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// As in [`Part::cause`].
    pub cause: String,
    /// As in [`Part::function`].
    #[serde(default)]
    pub function: Option<String>,
    /// Share of the time of the slow operations.
    pub share: f64,
    /// Number of slow operations that have it.
    pub operations: u64,
}

/// Samples of one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// Its name.
    pub function: String,
    /// Samples.
    pub samples: u64,
}

/// Something to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// `sched-batch`, `coalesce-replies`, `poll`, `separate-cpus`, `compaction`, `reclaim`, `mmap-lock`, `keep-mappings`,
    /// `io-priority`, `priority-inheritance`, `cpu`, `cpu-quota`, `tcp-nodelay` or `lock`.
    pub word: String,
    /// What to do.
    pub text: String,
    /// Evidence in the trace, with its numbers.
    pub evidence: String,
}
