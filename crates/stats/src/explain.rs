//! The record of an explained trace, JSON `stopgap.explain/2`: who switched, waited, reclaimed and compacted, and
//! because of what.
//!
//! `stopgap-explain` makes it of a trace's events. What a trace cannot say is `None`, with a line in
//! [`Findings::missing`]; it is never 0. All times are nanoseconds on the trace's clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stopgap_events::machine::Missing;

use crate::profile::Profile;
use crate::verdict::Verdict;

mod chains;

pub use chains::{
    Blame, Chains, CriticalPath, Idleness, Link, Longest, Step, Stop, Waiting, WindowKind, Windows,
};

/// The name and version of the record's form.
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
    /// Which trace.
    pub trace: Trace,
    /// Events that were lost.
    pub losses: Losses,
    /// The answer in a word and a line.
    pub verdict: Verdict,
    /// Waits of the recorded threads, followed to who or what caused them; null where the trace has no scheduling events.
    pub chains: Option<Chains>,
    /// Threads that left the CPU, and why.
    pub switches: Switches,
    /// The traced threads by name: how they spent their time. Most switches first.
    pub tasks: Vec<Task>,
    /// The slowest operations, by their time without idle waits.
    pub slow: Vec<Slow>,
    /// All operations of a kind together.
    pub calls: Vec<Calls>,
    /// Calls of the mmap family below 10 ms that are a stall together, a row a thread's name, the most time first; null
    /// where the trace has no system calls.
    #[serde(default)]
    pub short_calls: Option<Vec<ShortCalls>>,
    /// Memory events.
    pub memory: Memory,
    /// Samples inside slow operations by innermost kernel function, the most first; null without samples.
    pub functions: Option<Vec<Function>>,
    /// Where CPU time went, by all samples; null without samples.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// What to try, with what speaks for it.
    pub advice: Vec<Advice>,
    /// Unknown values, and why.
    pub missing: Vec<Missing>,
}

/// Which trace.
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

/// What was lost before it reached the trace, and what does not fit together in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Losses {
    /// Events that were not captured; null where the trace does not say.
    pub lost: Option<u64>,
    /// Share of the captured and the lost together.
    pub share: Option<f64>,
    /// The share above which the verdict is `inconclusive`.
    pub limit: f64,
    /// System calls that end without having begun, or begin before the one before has ended: a sign of losses that
    /// nobody counted.
    pub contradictions: u64,
    /// Switches of traced threads that must have been and are not in the trace: a kernel may hide those of some threads.
    /// The verdict is told with them in it.
    #[serde(default)]
    pub untold: u64,
    /// Events earlier than the one before; they were taken to be at its time.
    pub disordered: u64,
}

/// How something is spread over round trips or frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Median; null below 5 of them.
    pub p50: Option<u64>,
    /// 90 % are not above; null below 100 of them.
    pub p90: Option<u64>,
    /// Mean; null where there is none.
    pub mean: Option<f64>,
    /// Largest.
    pub most: Option<u64>,
    /// Value and how many had it, ascending.
    pub distribution: Vec<(u64, u64)>,
}

/// What [`Findings::missing`] names where the trace has only the calls in which a thread waited or woke another.
pub const UNSEEN_CALLS: &str = "system calls that did not wait";

/// Returns a word of [`Part::cause`] as people say it: what the thread waited for, or what it was in.
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

/// What [`Findings::missing`] names where the recorder was not allowed to see the kernel's events.
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
    /// Switch-outs of client and server from a flush to the next.
    pub per_roundtrip: Spread,
    /// Mean of them less the 2 that a round trip on one CPU needs.
    pub excess: Option<f64>,
    /// The total, taken apart; the most frequent first.
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
    /// It was woken because a peer read (room to write), had nothing to do, and waits again in the same call.
    WriteSpaceWake,
    /// It was woken by somebody else, had nothing to do, and waits again in the same call.
    WokenForNothing,
    /// Pre-empted right after a system call, by whom it woke in that call.
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

/// Switch-outs of one cause.
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
    /// In which system call that one was, where it woke.
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
    /// Switch-outs of both, from a flush to the next.
    pub switches: u64,
    /// Their spread over round trips.
    pub per_roundtrip: Spread,
    /// Calls by which the client sent, a round trip.
    pub sends_per_roundtrip: f64,
    /// Calls by which the server sent, a round trip.
    pub replies_per_roundtrip: f64,
    /// Median time from a flush to the end of its last reply; null below 5 round trips.
    pub p50_ns: Option<u64>,
    /// The one CPU on which both ran all the time; null where there were several, or it is not known.
    pub one_cpu: Option<u32>,
}

/// Switches by frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frames {
    /// Events that mark them.
    pub marker: String,
    /// Frames between two marks.
    pub count: u64,
    /// Switch-outs of traced threads in a frame.
    pub switches: Spread,
}

/// The threads of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Their name.
    pub task: String,
    /// How many.
    pub threads: u64,
    /// Switch-outs.
    pub switches: u64,
    /// Time on a CPU.
    pub running_ns: u64,
    /// Time on a run queue: pre-empted, or woken and not yet on a CPU.
    pub runnable_ns: u64,
    /// Time asleep.
    pub blocked_ns: u64,
    /// Time of which the trace does not say.
    pub unknown_ns: u64,
    /// The time that they existed within the trace: the sum of the above.
    pub wall_ns: u64,
}

/// Time inside an operation, of one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// `on-cpu`, `run-queue`, `direct-reclaim`, `memcg-reclaim`, `compaction`, `shrinker`, `throttled`, `mmap_lock`,
    /// `lock`, `io`, `fence`, `answer` (of a thread that it had asked, or room for what it writes), `child`, `stopped` (by a
    /// signal), `cpu-quota`, `may-be-idle`, `idle` (nothing was due) or `unknown`.
    pub cause: String,
    /// A shrinker's function.
    pub function: Option<String>,
    /// How long.
    pub ns: u64,
    /// Share of the operation, 0 to 1.
    pub share: f64,
}

/// One slow operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slow {
    /// The system call's name, `fault`, or `computing`: the program's own code, where it was kept from a CPU.
    pub call: String,
    /// The thread's name.
    pub task: String,
    /// The thread.
    pub tid: u32,
    /// When it began.
    pub begin_ns: u64,
    /// How long it took.
    pub length_ns: u64,
    /// Whether it took longer than that: a fault, whose end is not in a trace, or a call still open at the end.
    pub at_least: bool,
    /// The length without idle waits; of calls but those for memory and ioctl, without their CPU time, too.
    pub excess_ns: u64,
    /// Its argument, where that is a length.
    pub length_bytes: Option<u64>,
    /// Its result; an error as -errno.
    pub result: Option<i64>,
    /// The length taken apart; largest first.
    pub parts: Vec<Part>,
    /// Who ended its longest sleep; null where it did not sleep or the trace does not say.
    pub woken_by: Option<Waker>,
    /// Where the trace has no begin and end of calls: waits that are taken for one operation. They may be of several calls
    /// from one place in the program. Null where calls have rows.
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
    /// How long the sleep was.
    pub slept_ns: u64,
}

/// All operations of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calls {
    /// `mmap`, `munmap`, `mprotect`, `mremap`, `madvise`, `brk`, `fault`, `ioctl`, `poll` (with select and epoll), the name
    /// of any other call, or `computing`.
    pub kind: String,
    /// How many ended or were open; of faults those that waited or reclaimed. Without rows of calls, those that waited.
    pub count: u64,
    /// Those with an excess of a millisecond or more.
    pub slow: u64,
    /// Those with an excess of ten milliseconds or more, which people notice.
    #[serde(default)]
    pub stalls: u64,
    /// The excess of these stalls, added up.
    #[serde(default)]
    pub stalls_ns: u64,
    /// Their time.
    pub total_ns: u64,
    /// The longest excess.
    pub most_ns: u64,
    /// The time of the slow ones, taken apart; largest first.
    pub slow_parts: Vec<Part>,
}

/// Short calls that are a stall together, of the threads of one name: 10 % of their work and 100 ms or more, or 300 ms of
/// one second. Work is time on a CPU, and asleep in these calls; waits for a CPU and other sleeps are not in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortCalls {
    /// All of it in a sentence.
    pub text: String,
    /// The threads' name.
    pub task: String,
    /// Calls of mmap, munmap, mprotect, mremap, madvise and brk below 10 ms.
    pub calls: u64,
    /// Their time, without waits for a CPU.
    pub total_ns: u64,
    /// Mean of them.
    pub mean_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// How many took 1 ms or more.
    pub slow: u64,
    /// The threads' work in all.
    pub work_ns: u64,
    /// The calls' share of the work, 0 to 1.
    pub share: f64,
    /// The most time that one thread spent in such calls that ended in one second.
    pub worst_second_ns: u64,
    /// When that second began, since the first event.
    pub worst_second_from_ns: u64,
    /// The calls by kind, the most time first.
    pub kinds: Vec<ShortKind>,
    /// Samples in these calls; null without samples.
    pub samples: Option<u64>,
    /// The kernel functions that were innermost in most of those samples.
    pub functions: Vec<Function>,
    /// The function with the fewest samples among the kernel functions on the stack in at least 40 % of those samples:
    /// where most of the time went, where no innermost function has much of it.
    pub below: Option<Function>,
}

/// Short calls of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShortKind {
    /// As in [`Calls::kind`].
    pub kind: String,
    /// How many.
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
    /// Mappings, or parts of them, given up.
    pub unmaps: Option<u64>,
    /// Maps a second over the whole trace.
    pub maps_per_s: Option<f64>,
    /// Unmaps a second.
    pub unmaps_per_s: Option<f64>,
    /// Live mappings over time; null where nobody counted.
    pub live: Option<Live>,
    /// Reclaim and compaction by thread; the longest first. Null where the trace has no such events and does not
    /// say that they were recorded.
    pub reclaim: Option<Vec<Reclaim>>,
    /// What explains most of the time in slow memory operations; null where there are none.
    pub explained_by: Option<Explained>,
    /// At most so much of the time of all mmap calls went into the search for a hole: their CPU time until the kernel
    /// said which one it took.
    pub search_at_most_ns: Option<u64>,
    /// Whether placement, reclaim or compaction explains the slow memory operations; null where there are none.
    pub slow: Option<SlowMemory>,
    /// What processes had mapped at their end or the trace's, by their system calls, the most calls first; null where
    /// the trace has none. What exec maps itself (the program, its loader, its stack) is in none of them, unless the
    /// process was already there when the recording began.
    pub spaces: Option<Vec<AddressSpace>>,
}

/// Slow memory operations together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowMemory {
    /// How many.
    pub operations: u64,
    /// Their time.
    pub total_ns: u64,
    /// Upper bound of the search for a hole within that time (their CPU time until the kernel said which one it
    /// took); null where no event says when a hole was found.
    pub placement_at_most: Option<f64>,
    /// Direct and memcg reclaim, shrinkers, and being made to wait by reclaim; null where the trace has no such events.
    pub reclaim: Option<f64>,
    /// Compaction; null where the trace has no such events.
    pub compaction: Option<f64>,
}

/// Mappings of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddressSpace {
    /// The process.
    pub pid: Option<u32>,
    /// Its name.
    pub task: Option<String>,
    /// Calls of it that mapped, unmapped, moved or protected something.
    pub calls: u64,
    /// Mappings, as the kernel keeps them apart.
    pub mappings: u64,
    /// Bytes mapped.
    pub bytes: u64,
    /// Holes between what the kernel itself placed; null where it placed nothing.
    pub holes: Option<Holes>,
}

/// Holes between neighbouring mappings, from the lowest to the highest address at which the kernel itself put one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holes {
    /// How many.
    pub count: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Bytes in the largest.
    pub largest: u64,
}

/// Live mappings over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Live {
    /// `memory events`, `calls of process 812 (name)`: the one with the most calls, or the counter's name.
    pub source: String,
    /// At the first count.
    pub first: i64,
    /// At the last.
    pub last: i64,
    /// The most.
    pub most: i64,
    /// When (since the first event) and how many; of each stretch of time the largest.
    pub points: Vec<(u64, i64)>,
}

/// Reclaim or compaction by one kind of thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reclaim {
    /// Name of the thread that did it.
    pub task: String,
    /// `direct`, `memcg`, `kswapd`, `shrinker`, `throttled`, `compaction`.
    pub by: String,
    /// A shrinker's function.
    pub function: Option<String>,
    /// How often.
    pub count: u64,
    /// From begin to end, sleeps included. A shrinker's is within its reclaim's.
    pub wall_ns: u64,
    /// The longest.
    pub most_ns: u64,
    /// Pages (of a shrinker: objects) looked at; null where the trace does not say.
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
    /// Share of the time of the slow ones.
    pub share: f64,
    /// In how many slow operations.
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

/// What to try.
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
