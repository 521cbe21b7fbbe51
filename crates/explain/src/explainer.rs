//! The one pass over the events.

mod actions;
mod sampled;
mod scheduling;

use std::collections::HashMap;

use stopgap_stats::explain::Findings;
use stopgap_trace::{Event, Kind, Metadata, Text};

use crate::Options;
use crate::call::{Call, Family, name_of, role};
use crate::findings;
use crate::memory::Mappings;
use crate::operation::{Ending, Operation, Operations};
use crate::profile::Samples;
use crate::roundtrip::RoundTrips;
use crate::space::Spaces;
use crate::spread::Counts;
use crate::tasks::{Tasks, name};
use crate::thread::{State, Thread, Where};

/// Takes events, in the order of the trace; gives [`Findings`].
///
/// ```
/// use stopgap_trace::Metadata;
/// use stopgap_explain::{Explainer, Options};
/// let options = Options { top: 10, frame_marker: None };
/// let findings = Explainer::new(&Metadata::default(), options).finish();
/// assert_eq!(findings.switches.total, None, "no scheduling events: not known, not 0");
/// ```
pub struct Explainer {
    pub(crate) metadata: Metadata,
    pub(crate) options: Options,
    pub(crate) threads: HashMap<u32, Thread>,
    cpus: HashMap<u32, Cpu>,
    /// Requests to block devices that are not complete, and who issued them.
    requests: HashMap<(Text, u64), u32>,
    pub(crate) tasks: Tasks,
    pub(crate) roundtrips: RoundTrips,
    pub(crate) operations: Operations,
    pub(crate) mappings: Mappings,
    pub(crate) spaces: Spaces,
    pub(crate) frames: Frames,
    pub(crate) samples: Samples,
    pub(crate) seen: Seen,
    pub(crate) first: Option<u64>,
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) disordered: u64,
    pub(crate) contradictions: u64,
    /// Arrivals of followed threads that no switch told, from threads that are not followed.
    pub(crate) untold: u64,
    pub(crate) cut_short: Option<String>,
}

/// The thread that has a CPU, as far as the switches say.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    has: u32,
    /// The thread that left it last, until the first event of the thread that came.
    left: Option<u32>,
}

/// Which kinds of events came at all: what never came is not known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) switches: bool,
    pub(crate) wakings: bool,
    pub(crate) stacks: bool,
    pub(crate) calls: bool,
    pub(crate) nameless_calls: bool,
    pub(crate) faults: bool,
    pub(crate) reclaim: bool,
    pub(crate) compaction: bool,
    pub(crate) locks: bool,
    pub(crate) samples: bool,
    /// Switches that say only who comes, as perf's records do.
    pub(crate) arrivals: bool,
}

/// Switch-outs between marks.
#[derive(Default)]
pub(crate) struct Frames {
    /// Switch-outs of traced threads so far.
    outs: u64,
    /// As many at the last mark.
    at_mark: Option<u64>,
    pub(crate) counts: Counts,
}

/// Requests to block devices that are followed at a time.
const MOST_REQUESTS: usize = 65_536;

/// Threads and names that are kept; each takes some 2 KiB.
const MOST_KEPT: usize = 1 << 18;

impl Explainer {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(metadata: &Metadata, options: Options) -> Explainer {
        Explainer {
            metadata: metadata.clone(),
            operations: Operations::new(options.top),
            options,
            threads: HashMap::new(),
            cpus: HashMap::new(),
            requests: HashMap::new(),
            tasks: Tasks::default(),
            roundtrips: RoundTrips::default(),
            mappings: Mappings::default(),
            spaces: Spaces::new(metadata.page_size),
            frames: Frames::default(),
            samples: Samples::default(),
            seen: Seen::default(),
            first: None,
            now: 0,
            events: 0,
            disordered: 0,
            contradictions: 0,
            untold: 0,
            cut_short: None,
        }
    }

    /// The next event. Constant time, but for the end of a thread: that looks at all that are followed.
    pub fn event(&mut self, event: &Event) {
        let time = event.time.0;
        self.first.get_or_insert(time);
        self.events += 1;
        if time < self.now {
            self.disordered += 1;
        }
        self.now = self.now.max(time);
        self.marks(&event.kind);
        self.spaces.event(self.at(), event);
        if let Kind::Sample { stack } = &event.kind {
            self.sampled(event, stack);
        }
        match &event.kind {
            Kind::Switch { .. }
            | Kind::Waking { .. }
            | Kind::New { .. }
            | Kind::Fork { .. }
            | Kind::Exec { .. }
            | Kind::Exit { .. } => self.scheduling(event),
            Kind::Memory { event, .. } => self.mappings.event(self.at(), event),
            Kind::Counter { name, value } => {
                self.mappings.counter(self.at(), name, event.pid, *value);
            }
            Kind::Mark { .. } => {}
            _ => self.action(event),
        }
    }

    /// Says why no more events should be given: the trace has more threads or names than are kept. `None` where there
    /// is room.
    #[must_use]
    pub fn is_full(&self) -> Option<String> {
        let kept = self.threads.len()
            + self.tasks.len()
            + self.mappings.len()
            + self.operations.functions.len();
        (kept > MOST_KEPT).then(|| format!("it has more than {MOST_KEPT} threads and names"))
    }

    /// Before the first event: the thread `tid` has been in `call` since before `from`, from which on the trace has
    /// every event of its. What of the call lies after `from` becomes an operation that took at least so long.
    pub fn is_in_call(&mut self, tid: u32, call: &str, from: u64) {
        self.first.get_or_insert(from);
        self.now = self.now.max(from);
        let thread = self.thread(tid, None);
        thread.whole = true;
        thread.traced = true;
        let name: Text = call.into();
        thread.operation = Family::of_call(call).map(|family| {
            let mut operation = Operation::new(family, Text::clone(&name), from);
            operation.before = true;
            operation
        });
        thread.place = Where::In(Call {
            role: role(call),
            name,
            first: None,
        });
    }

    /// The rest of the trace cannot be read, because of `why`.
    pub fn cut_short(&mut self, why: impl Into<String>) {
        self.cut_short = Some(why.into());
    }

    /// The threads that asked and answered each other so far: client and server.
    #[must_use]
    pub fn pairs(&self) -> &[(u32, u32)] {
        self.roundtrips.made()
    }

    /// All events were given: what they show.
    #[must_use]
    pub fn finish(mut self) -> Findings {
        let mut tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.sort_unstable();
        for &tid in &tids {
            // A call of a thread that went out of sight may have ended unseen, too.
            let lost_sight = self.seen.switches && self.threads[&tid].state == State::Unknown;
            if !lost_sight {
                self.end_operation(tid, None, true);
            }
        }
        for tid in self.roundtrips.threads() {
            self.end_pairs(tid);
        }
        let now = self.now;
        for tid in tids {
            if let Some(mut thread) = self.threads.remove(&tid) {
                thread.advance(now);
                self.tasks.fold(tid, thread);
            }
        }
        findings::record(self)
    }

    /// Nanoseconds since the first event.
    fn at(&self) -> u64 {
        self.now - self.first.unwrap_or(self.now)
    }

    /// Closes a frame where the marker says so.
    fn marks(&mut self, kind: &Kind) {
        let Some(marker) = &self.options.frame_marker else {
            return;
        };
        let is_mark = kind.word() == marker
            || match kind {
                Kind::Mark { name } => **name == **marker,
                Kind::SyscallEnter { name, number, .. } => {
                    *name_of(*number, name.as_ref()) == **marker
                }
                _ => false,
            };
        if is_mark {
            let outs = self.frames.outs;
            if let Some(before) = self.frames.at_mark.replace(outs) {
                self.frames.counts.add(outs - before);
            }
        }
    }

    /// The thread `tid`, which may be new to us. Its life began before the trace, unless a fork was seen.
    fn thread(&mut self, tid: u32, comm: Option<&Text>) -> &mut Thread {
        let first = self.first.unwrap_or(self.now);
        let thread = self
            .threads
            .entry(tid)
            .or_insert_with(|| Thread::new(first));
        if let Some(comm) = comm
            && thread.comm.as_ref() != Some(comm)
        {
            thread.comm = Some(Text::clone(comm));
        }
        thread
    }

    /// The thread that acts in `event`, on the CPU since at latest now; its time is booked up to now. `None` where it
    /// is not known or nobody (idle).
    fn acts(&mut self, event: &Event) -> Option<u32> {
        let tid = event.tid.filter(|&tid| tid != 0)?;
        self.takes_over(event, tid);
        let now = self.now;
        let scheduled = self.seen.switches;
        let thread = self.thread(tid, event.comm.as_ref());
        thread.was(State::Running);
        let missed = scheduled && matches!(thread.state, State::Blocked | State::Runnable);
        if missed {
            thread.doubt(now);
        } else {
            thread.advance(now);
        }
        if scheduled {
            thread.state = State::Running;
        }
        thread.notes_cpu(event.cpu);
        // A recorder shows only some switches of threads that were not asked for.
        if missed && thread.traced {
            self.came_untold(event.cpu);
        }
        if scheduled && let Some(cpu) = event.cpu {
            self.has_cpu(cpu, tid);
        }
        Some(tid)
    }

    /// Whether `event` is of a thread that has just left the CPU. `__schedule()` (kernel/sched/core.c) tells of the
    /// switch before it makes it, and until then all is booked on who leaves: the contention of a lock inside the
    /// switch, an NMI's sample. Interrupts are off, so nothing else can come.
    fn inside_a_switch(&self, event: &Event) -> bool {
        let possible = matches!(
            event.kind,
            Kind::LockBegin { .. } | Kind::LockEnd { .. } | Kind::Sample { .. }
        );
        let left = || self.cpus.get(&event.cpu?)?.left;
        possible && event.tid.is_some() && left() == event.tid
    }

    /// A thread that the trace follows is on `cpu`, and no switch told how it came there. Where a followed one had the
    /// CPU, or still has it, that is an event that cannot follow. A switch from a thread that is not followed comes in
    /// that thread's name, and a kernel may keep quiet of threads of its host's.
    fn came_untold(&mut self, cpu: Option<u32>) {
        let had = cpu.and_then(|cpu| self.cpus.get(&cpu)).map(|cpu| cpu.has);
        let had = had.and_then(|tid| self.threads.get(&tid));
        if cpu.is_none() || had.is_some_and(|thread| thread.traced) {
            self.contradictions += 1;
        } else {
            self.untold += 1;
        }
    }

    /// An exec of a thread that is not its process's first ends the others and takes the number of the first
    /// (`de_thread()`, fs/exec.c): it acts under that number even before the exec event. It goes on as `tid`
    /// where `event` is the first of that.
    fn takes_over(&mut self, event: &Event, tid: u32) {
        let old = match &event.kind {
            Kind::Exec { old_tid, .. } => *old_tid,
            _ => event.cpu.and_then(|cpu| Some(self.cpus.get(&cpu)?.has)),
        };
        let Some(old) = old.filter(|&old| old != tid) else {
            return;
        };
        let leads = event.pid.is_none_or(|pid| pid == tid);
        if !leads || self.threads.contains_key(&tid) {
            return;
        }
        let execs = |thread: &Thread| {
            matches!(event.kind, Kind::Exec { .. })
                || (thread.state == State::Running
                    && thread.call().is_some_and(|call| &*call.name == "execve"))
        };
        if self.threads.get(&old).is_some_and(execs) {
            self.end_pairs(old);
            if let Some(thread) = self.threads.remove(&old) {
                self.threads.insert(tid, thread);
            }
        }
    }

    /// `tid` has `cpu`: the thread that had it before has gone unseen.
    fn has_cpu(&mut self, cpu: u32, tid: u32) {
        let here = Cpu {
            has: tid,
            left: None,
        };
        let before = self.cpus.insert(cpu, here).map(|cpu| cpu.has);
        let Some(before) = before.filter(|&before| before != tid && before != 0) else {
            return;
        };
        let now = self.now;
        let Some(gone) = self.threads.get_mut(&before) else {
            return;
        };
        if gone.state == State::Running {
            gone.doubt(now);
            gone.state = State::Unknown;
            if gone.traced {
                self.contradictions += 1;
            }
        }
    }

    /// Ends the operation that `tid` is in, if any.
    fn end_operation(&mut self, tid: u32, result: Option<i64>, open: bool) {
        let now = self.now;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.advance(now);
        if let Some(operation) = thread.operation.take() {
            if !open && !operation.before {
                let took = thread.times.since(&operation.times);
                let unknown = if self.seen.switches { 0 } else { took.unknown };
                let work = took.running + took.blocked + unknown;
                let at = now - self.first.unwrap_or(now);
                (thread.short).add(operation.family, work, took.blocked, at);
            }
            let ending = Ending {
                task: name(tid, thread.comm.as_ref()),
                tid,
                result,
                open,
            };
            self.operations.ended(operation, &ending);
        }
    }

    /// Ends the pairs that `tid` is in.
    fn end_pairs(&mut self, tid: u32) {
        let threads = &self.threads;
        self.roundtrips.ended(
            tid,
            |tid| outs(threads, tid),
            |tid| {
                let thread = threads.get(&tid);
                let cpus = thread.map_or(crate::thread::Cpus::None, |thread| thread.cpus);
                (name(tid, thread.and_then(|t| t.comm.as_ref())), cpus)
            },
        );
    }

    /// `tid` is no more.
    fn end_thread(&mut self, tid: u32) {
        self.end_operation(tid, None, false);
        self.end_pairs(tid);
        if let Some(thread) = self.threads.remove(&tid) {
            self.tasks.fold(tid, thread);
        }
    }
}

/// Switch-outs of a thread so far.
fn outs(threads: &HashMap<u32, Thread>, tid: u32) -> u64 {
    threads.get(&tid).map_or(0, |thread| thread.switches)
}
